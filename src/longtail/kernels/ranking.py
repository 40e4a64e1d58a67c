"""Ranks predictions against true labels, one pass over CSR rows, and resamples the resulting
statistics.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import borrowing, kernel
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
    "LabelLists",
    "Measures",
    "RankingStatistics",
    "ScoredLabels",
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

# What `rank_documents` returns about its input.
FINE = 0
OUT_OF_RANGE = -1
DUPLICATE = -2
SCORE_IS_NAN = -3

BLOCK = 4096  # documents resampled together: their statistics stay in the cache

_U32 = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)


class ScoredLabels(NamedTuple):
    """Predicted labels, in any order inside a row."""

    offsets: NDArray[np.int64]  # (n_docs + 1,)
    labels: NDArray[Any]  # int32 or int64
    scores: NDArray[Any]  # float32 or float64


class LabelLists(NamedTuple):
    """Labels of documents, in range, no label twice in a row."""

    offsets: NDArray[np.int64]  # (n_docs + 1,)
    labels: NDArray[np.int32]


class Measures(NamedTuple):
    """What is measured."""

    weights: NDArray[np.float64]  # (n_labels,) of a hit, or empty: no weighted statistics
    ks: NDArray[np.int64]  # (n_ks,) rising
    # (width,) of ranks; width >= min(max k, longest row of either matrix)
    discounts: NDArray[np.float64]


class RankingStatistics(NamedTuple):
    """Statistics of documents and labels at each k."""

    documents: NDArray[np.float64]  # (n_docs with labels, n_ks, N_STATISTICS or N_UNWEIGHTED)
    predicted: NDArray[np.int64]  # (n_ks, n_labels) documents with the label in their top k
    hits: NDArray[np.int64]  # (n_ks, n_labels) those of them for which it is true


@kernel
def _before(score: Any, label: Any, other_score: Any, other_label: Any) -> Any:
    """Return whether a label ranks before another: falling score, ties by rising label."""
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
            top_scores[slot] = top_scores[slot - 1]
            top_labels[slot] = top_labels[slot - 1]
            slot -= 1
        top_scores[slot] = score
        top_labels[slot] = label
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


@borrowing
def _weigh_ranking(
    ranking: Any,  # IN  (count,) labels of one document, best first
    true: Any,  # IN  (n_labels,) stamp where true
    stamp: int,  # IN
    n_true: int,  # IN  at least 1
    measures: Measures,  # IN
    ideal: Any,  # IN  (width + 1,) sums of the first discounts
    document: int,  # IN  row of the statistics
    # OUT all but BEST_GAIN and BEST_DCG of the document; counts of labels += 1 where the label is
    # between the k before and this one
    statistics: RankingStatistics,
) -> None:
    """Write what the ranking of one document reaches."""
    weights, ks, discounts = measures
    documents, predicted, hits = statistics
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
        documents[document, t, HITS] = n_hits
        documents[document, t, NDCG] = dcg / ideal[min(n_true, ks[t])]
        documents[document, t, RECALL] = n_hits / n_true
        if weights.shape[0]:
            documents[document, t, GAIN] = gain
            documents[document, t, GAIN_DCG] = gain_dcg


@kernel
def rank_documents(
    predicted: ScoredLabels,  # IN
    true: LabelLists,  # IN
    masked: LabelLists,  # IN  predictions that are passed over
    measures: Measures,  # IN
    statistics: RankingStatistics,  # OUT
) -> tuple[int, int]:
    """Write the statistics of every document that has labels; return (FINE, 0) or (what is wrong,
    row).
    """
    offsets = predicted.offsets
    weights = measures.weights
    discounts = measures.discounts
    n_labels = statistics.predicted.shape[1]
    width = discounts.shape[0]
    ideal = np.zeros(width + 1)
    for rank in range(width):
        ideal[rank + 1] = ideal[rank] + discounts[rank]
    # stamps (row + 1) instead of sets: nothing to clear between rows
    seen = np.zeros(n_labels, np.int32)
    is_true = np.zeros(n_labels, np.int32)
    top_labels = np.empty(width, predicted.labels.dtype)
    top_scores = np.empty(width, predicted.scores.dtype)
    best = np.empty(width, np.float64)
    document = 0
    for row in range(offsets.shape[0] - 1):
        stamp = row + 1
        for j in range(masked.offsets[row], masked.offsets[row + 1]):
            seen[masked.labels[j]] = -stamp
        labels = predicted.labels[offsets[row] : offsets[row + 1]]
        scores = predicted.scores[offsets[row] : offsets[row + 1]]
        count = _top_of_row(labels, scores, seen, stamp, top_labels, top_scores)
        if count < 0:
            return count, row
        true_labels = true.labels[true.offsets[row] : true.offsets[row + 1]]
        n_true = true_labels.shape[0]
        if n_true == 0:
            continue
        for label in true_labels:
            is_true[label] = stamp
        ranking = top_labels[:count]
        _weigh_ranking(ranking, is_true, stamp, n_true, measures, ideal, document, statistics)
        if weights.shape[0]:
            n_best = _heaviest(true_labels, weights, best)
            _weigh_best(best[:n_best], measures.ks, discounts, statistics.documents[document])
        document += 1
    _add_up(statistics.predicted)
    _add_up(statistics.hits)
    return FINE, 0


@kernel
def _add_up(counts: Any) -> None:
    """Add up counts over ks: a label at rank r counts for every k >= r."""
    for t in range(1, counts.shape[0]):
        for label in range(counts.shape[1]):
            counts[t, label] += counts[t - 1, label]


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
    """Add counts @ documents to the sums; four documents per step, to load and store the sums a
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
