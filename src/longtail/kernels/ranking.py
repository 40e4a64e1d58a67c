"""Ranks predictions against true labels, one pass over CSR rows, and resamples the resulting
statistics.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.splitmix import GOLDEN, finalised

__all__ = [
    "BEST_DCG",
    "BEST_GAIN",
    "BLOCK",
    "DUPLICATE",
    "FINE",
    "GAIN",
    "GAIN_DCG",
    "HITS",
    "NDCG",
    "N_STATISTICS",
    "N_UNWEIGHTED",
    "OUT_OF_RANGE",
    "RECALL",
    "SCORE_IS_NAN",
    "rank_documents",
    "resample_sums",
]

# Columns of a document's statistics, for each k. Those from GAIN on exist only where labels have
# weights.
HITS = 0  # number of true labels in the top k
NDCG = 1  # DCG over the ideal DCG of min(true labels, k)
RECALL = 2  # hits over true labels
GAIN = 3  # sum of the weights of the hits
BEST_GAIN = 4  # the same sum for the k heaviest true labels
GAIN_DCG = 5  # sum of the weights of the hits, discounted by rank
BEST_DCG = 6  # the same sum for the k heaviest true labels, heaviest first
N_UNWEIGHTED = 3
N_STATISTICS = 7

# What `rank_documents` says about its input.
FINE = 0
OUT_OF_RANGE = -1
DUPLICATE = -2
SCORE_IS_NAN = -3

BLOCK = 4096  # documents resampled together: their statistics stay in the cache

_U32 = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)


@kernel
def _before(score: Any, label: Any, other_score: Any, other_label: Any) -> Any:
    """The order of a ranking: falling score, ties by rising label."""
    return score > other_score or (score == other_score and label < other_label)


@kernel
def _top_of_row(
    labels: Any,  # IN  (n,) predicted labels of one document, any order
    scores: Any,  # IN  (n,)
    seen: Any,  # IN/OUT (n_labels,) stamp where predicted, -stamp where masked
    stamp: int,  # IN  differs from row to row
    top_labels: Any,  # OUT (width,)
    top_scores: Any,  # OUT (width,)
) -> int:
    """Insert the best entries of a row in ranking order; return how many, or what is wrong with the
    row.
    """
    width = top_labels.shape[0]
    count = 0
    for j in range(labels.shape[0]):
        label = labels[j]
        score = scores[j]
        if label < 0 or label >= seen.shape[0]:
            return OUT_OF_RANGE
        if seen[label] == -stamp:
            continue
        if seen[label] == stamp:
            return DUPLICATE
        if math.isnan(score):
            return SCORE_IS_NAN
        seen[label] = stamp
        if count < width:
            count += 1
        elif not _before(score, label, top_scores[width - 1], top_labels[width - 1]):
            continue
        slot = count - 1
        while slot > 0 and _before(score, label, top_scores[slot - 1], top_labels[slot - 1]):
            top_scores[slot], top_labels[slot] = top_scores[slot - 1], top_labels[slot - 1]
            slot -= 1
        top_scores[slot], top_labels[slot] = score, label
    return count


@kernel
def _heaviest(
    labels: Any,  # IN  (n,) true labels of one document
    weights: Any,  # IN  (n_labels,)
    best: Any,  # OUT (width,) falling
) -> int:
    """Write the largest weights among the labels; return how many."""
    count = 0
    for label in labels:
        weight = weights[label]
        if count < best.shape[0]:
            count += 1
        elif weight <= best[count - 1]:
            continue
        slot = count - 1
        while slot > 0 and best[slot - 1] < weight:
            best[slot] = best[slot - 1]
            slot -= 1
        best[slot] = weight
    return count


@kernel
def _weigh_best(
    best: Any,  # IN  (count,) weights, falling
    ks: Any,  # IN  (n_ks,) rising
    discounts: Any,  # IN  (width,)
    statistics: Any,  # OUT (n_ks, N_STATISTICS): BEST_GAIN and BEST_DCG
) -> None:
    """Write the best sums any ranking can reach on one document."""
    gain = 0.0
    dcg = 0.0
    rank = 0
    for t in range(ks.shape[0]):
        while rank < min(ks[t], best.shape[0]):
            gain += best[rank]
            dcg += best[rank] * discounts[rank]
            rank += 1
        statistics[t, BEST_GAIN] = gain
        statistics[t, BEST_DCG] = dcg


@kernel
def _weigh_ranking(
    ranking: Any,  # IN  (count,) labels of one document, best first
    true: Any,  # IN  (n_labels,) stamp where true
    stamp: int,  # IN
    n_true: int,  # IN  at least 1
    weights: Any,  # IN  (n_labels,), or empty: no weighted statistics
    ks: Any,  # IN  (n_ks,) rising
    discounts: Any,  # IN  (width,)
    ideal: Any,  # IN  (width + 1,) sums of the first discounts
    statistics: Any,  # OUT (n_ks, N_STATISTICS or N_UNWEIGHTED): all but BEST_GAIN and BEST_DCG
    # OUT (n_ks, n_labels) += 1 where the label is between the k before and this one
    predicted: Any,
    hits: Any,  # OUT (n_ks, n_labels) += 1 where it is also true
) -> None:
    """Write what the ranking of one document reaches."""
    n_hits = 0
    rank = 0
    dcg = 0.0
    gain = 0.0
    gain_dcg = 0.0
    for t in range(ks.shape[0]):
        while rank < min(ks[t], ranking.shape[0]):
            label = ranking[rank]
            predicted[t, label] += 1
            if true[label] == stamp:
                hits[t, label] += 1
                n_hits += 1
                dcg += discounts[rank]
                if weights.shape[0]:
                    gain += weights[label]
                    gain_dcg += weights[label] * discounts[rank]
            rank += 1
        statistics[t, HITS] = n_hits
        statistics[t, NDCG] = dcg / ideal[min(n_true, ks[t])]
        statistics[t, RECALL] = n_hits / n_true
        if weights.shape[0]:
            statistics[t, GAIN] = gain
            statistics[t, GAIN_DCG] = gain_dcg


@kernel
def rank_documents(
    predicted_offsets: NDArray[np.int64],  # IN  (n_docs + 1,)
    predicted_labels: NDArray[Any],  # IN  int32 or int64, any order inside a row
    scores: NDArray[Any],  # IN  float32 or float64
    true_offsets: NDArray[np.int64],  # IN  (n_docs + 1,)
    true_labels: NDArray[np.int32],  # IN  in range, no label twice in a row
    masked_offsets: NDArray[np.int64],  # IN  (n_docs + 1,)
    masked_labels: NDArray[np.int32],  # IN  in range: predictions that are passed over
    # IN  (n_labels,) weight of a hit, or empty: no weighted statistics
    weights: NDArray[np.float64],
    ks: NDArray[np.int64],  # IN  (n_ks,) rising
    # IN  (width,) of ranks; width >= min(max k, longest row of either matrix)
    discounts: NDArray[np.float64],
    documents: NDArray[np.float64],  # OUT (n_docs with labels, n_ks, N_STATISTICS or N_UNWEIGHTED)
    # OUT (n_ks, n_labels) += documents that have the label in their top k
    predicted: NDArray[np.int64],
    hits: NDArray[np.int64],  # OUT (n_ks, n_labels) += those of them for which it is true
) -> tuple[int, int]:
    """Write the statistics of every document that has labels; return (FINE, 0) or (what is wrong,
    row).
    """
    n_labels = predicted.shape[1]
    width = discounts.shape[0]
    ideal = np.zeros(width + 1)
    for rank in range(width):
        ideal[rank + 1] = ideal[rank] + discounts[rank]
    # stamps (row + 1) instead of sets: nothing to clear between rows
    seen = np.zeros(n_labels, np.int32)
    true = np.zeros(n_labels, np.int32)
    top_labels = np.empty(width, predicted_labels.dtype)
    top_scores = np.empty(width, scores.dtype)
    best = np.empty(width, np.float64)
    out = 0
    for row in range(predicted_offsets.shape[0] - 1):
        stamp = row + 1
        for j in range(masked_offsets[row], masked_offsets[row + 1]):
            seen[masked_labels[j]] = -stamp
        begin = predicted_offsets[row]
        end = predicted_offsets[row + 1]
        count = _top_of_row(
            predicted_labels[begin:end], scores[begin:end], seen, stamp, top_labels, top_scores
        )
        if count < 0:
            return count, row
        begin = true_offsets[row]
        end = true_offsets[row + 1]
        n_true = end - begin
        if n_true == 0:
            continue
        for j in range(begin, end):
            true[true_labels[j]] = stamp
        _weigh_ranking(
            top_labels[:count],
            true,
            stamp,
            n_true,
            weights,
            ks,
            discounts,
            ideal,
            documents[out],
            predicted,
            hits,
        )
        if weights.shape[0]:
            _weigh_best(
                best[: _heaviest(true_labels[begin:end], weights, best)],
                ks,
                discounts,
                documents[out],
            )
        out += 1
    for t in range(1, ks.shape[0]):  # a label at rank r counts for every k >= r
        for label in range(n_labels):
            predicted[t, label] += predicted[t - 1, label]
            hits[t, label] += hits[t - 1, label]
    return FINE, 0


@kernel
def _draw_counts(
    n_draws: int,  # IN
    size: int,  # IN  number of documents to draw from
    key: Any,  # IN  uint64
    counts: Any,  # OUT (>= size,) how often each was drawn
) -> None:
    """Draw documents with replacement; two from each 64 random bits, by multiplication instead of a
    modulo.
    """
    counts[:size] = 0
    counter = key
    bound = np.uint64(size)
    for _ in range(n_draws // 2):
        counter += GOLDEN
        bits = finalised(counter)
        counts[((bits >> _U32) * bound) >> _U32] += 1
        counts[((bits & _LOW_HALF) * bound) >> _U32] += 1
    if n_draws % 2:
        counts[((finalised(counter + GOLDEN) >> _U32) * bound) >> _U32] += 1


@kernel
def _add_weighted(
    documents: Any,  # IN  (n, n_statistics)
    counts: Any,  # IN  (>= n,)
    sums: Any,  # IN/OUT (n_statistics,)
) -> None:
    """Add counts @ documents to the sums; four documents a step, to load and store the sums a
    fourth as often.
    """
    n = documents.shape[0]
    for i in range(0, n - 3, 4):
        a = float(counts[i])
        b = float(counts[i + 1])
        c = float(counts[i + 2])
        d = float(counts[i + 3])
        for s in range(sums.shape[0]):
            sums[s] += (a * documents[i, s] + b * documents[i + 1, s]) + (
                c * documents[i + 2, s] + d * documents[i + 3, s]
            )
    for i in range(n - n % 4, n):
        for s in range(sums.shape[0]):
            sums[s] += counts[i] * documents[i, s]


@kernel
def resample_sums(
    documents: NDArray[np.float64],  # IN  (n_docs, n_statistics)
    # IN  (n_resamples, n_blocks) how many documents come from each block of BLOCK
    draws: NDArray[np.int64],
    key: Any,  # IN  uint64, the seed
    sums: NDArray[np.float64],  # OUT (n_resamples, n_statistics) += sums over the drawn documents
) -> None:
    """Sum statistics over documents drawn with replacement, block by block so that all reads hit
    the cache.
    """
    n_docs = documents.shape[0]
    counts = np.zeros(BLOCK, np.int64)
    for block in range(draws.shape[1]):
        first = block * BLOCK
        size = min(BLOCK, n_docs - first)
        for resample in range(draws.shape[0]):
            stream = np.uint64(block * draws.shape[0] + resample)
            _draw_counts(
                draws[resample, block], size, finalised(key + finalised(stream * GOLDEN)), counts
            )
            _add_weighted(documents[first : first + size], counts, sums[resample])
