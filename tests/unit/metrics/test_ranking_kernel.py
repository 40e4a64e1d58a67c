import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.kernels import ranking
from longtail.kernels.ranking import (
    BLOCK,
    LabelLists,
    Measures,
    RankingStatistics,
    ScoredLabels,
    rank_documents,
    resample_sums,
)

SCORES = st.sampled_from([-np.inf, -1.5, 0.0, 0.25, 0.5, 1.0, np.inf])  # few values: many ties
TYPES = [(np.int32, np.float32), (np.int64, np.float64)]


@st.composite
def documents_of_labels(draw):
    """(n_labels, predicted rows [(label, score)], true rows, masked rows, weights or empty, ks)."""
    n_labels = draw(st.integers(1, 9))
    n_docs = draw(st.integers(1, 5))
    some = st.lists(st.integers(0, n_labels - 1), unique=True, max_size=n_labels)
    predicted = [[(label, draw(SCORES)) for label in draw(some)] for _ in range(n_docs)]
    true = [draw(some) for _ in range(n_docs)]
    masked = [draw(some) if draw(st.booleans()) else [] for _ in range(n_docs)]
    weight = st.floats(0.5, 20.0)
    weights = draw(st.one_of(st.just([]), st.lists(weight, min_size=n_labels, max_size=n_labels)))
    ks = sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=3)))
    return n_labels, predicted, true, masked, np.array(weights), ks


def offsets(rows):
    return np.cumsum([0, *map(len, rows)], dtype=np.int64)


def flat(rows, dtype):
    return np.array([entry for row in rows for entry in row], dtype)


def run(n_labels, predicted, true, masked, weights, ks, types=TYPES[0]):
    width = min(ks[-1], max(map(len, [*predicted, *true])))
    columns = ranking.N_STATISTICS if len(weights) else ranking.N_UNWEIGHTED
    documents = np.full(
        (sum(map(bool, true)), len(ks), columns), np.nan
    )  # every cell has to be written
    counts = np.zeros((len(ks), n_labels), np.int64)
    hits = np.zeros_like(counts)
    verdict = rank_documents(
        ScoredLabels(
            offsets(predicted),
            flat([[label for label, _ in row] for row in predicted], types[0]),
            flat([[score for _, score in row] for row in predicted], types[1]),
        ),
        LabelLists(offsets(true), flat(true, np.int32)),
        LabelLists(offsets(masked), flat(masked, np.int32)),
        Measures(weights, np.array(ks), 1 / np.log2(np.arange(width) + 2)),
        RankingStatistics(documents, counts, hits),
    )
    return verdict, documents, counts, hits


def oracle(n_labels, predicted, true, masked, weights, ks):
    """The same with numpy, one document and one k at a time."""
    labelled = [i for i, row in enumerate(true) if row]
    columns = ranking.N_STATISTICS if len(weights) else ranking.N_UNWEIGHTED
    documents = np.zeros((len(labelled), len(ks), columns))
    counts, hits = np.zeros((2, len(ks), n_labels), np.int64)
    for out, i in enumerate(labelled):
        row = [(label, score) for label, score in predicted[i] if label not in masked[i]]
        labels = np.array([label for label, _ in row], np.int64)
        labels = labels[np.lexsort((labels, -np.array([score for _, score in row])))]
        for t, k in enumerate(ks):
            top = labels[:k]
            hit = np.isin(top, true[i])
            discounts = 1 / np.log2(np.arange(2, 2 + max(k, len(true[i]))))
            n_best = min(k, len(true[i]))
            documents[out, t, :3] = (
                hit.sum(),
                (hit * discounts[: len(top)]).sum() / discounts[:n_best].sum(),
                hit.sum() / len(true[i]),
            )
            if len(weights):
                best = np.sort(weights[true[i]])[::-1][:k]
                gains = hit * weights[top]
                documents[out, t, 3:] = (
                    gains.sum(),
                    best.sum(),
                    (gains * discounts[: len(top)]).sum(),
                    (best * discounts[:n_best]).sum(),
                )
            counts[t, top] += 1
            hits[t, top[hit]] += 1
    return documents, counts, hits


@settings(max_examples=300, deadline=None)
@given(documents_of_labels(), st.sampled_from(TYPES))
def test_statistics_and_counts_equal_the_oracle(case, types):
    verdict, documents, counts, hits = run(*case, types)
    expected, expected_counts, expected_hits = oracle(*case)
    assert verdict == (ranking.FINE, 0)
    np.testing.assert_allclose(documents, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(counts, expected_counts)
    np.testing.assert_array_equal(hits, expected_hits)


@pytest.mark.parametrize("order", ["falling", "rising", "shuffled"])
def test_long_rows_and_deep_k(order):
    rng = np.random.default_rng(5)
    scores = rng.integers(0, 40, 300) / 8
    labels = rng.permutation(300)
    arrange = {
        "falling": np.argsort(-scores),
        "rising": np.argsort(scores),
        "shuffled": np.arange(300),
    }[order]
    row = [
        (int(label), float(score))
        for label, score in zip(labels[arrange], scores[arrange], strict=True)
    ]
    case = (300, [row], [list(range(0, 300, 3))], [[]], rng.random(300) + 1, [1, 7, 100, 250])
    _, documents, counts, hits = run(*case)
    for found, expected in zip((documents, counts, hits), oracle(*case), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ([(0, 1.0), (3, 1.0)], ranking.OUT_OF_RANGE),
        ([(0, 1.0), (-1, 1.0)], ranking.OUT_OF_RANGE),
        ([(0, 1.0), (1, 0.5), (0, 0.1)], ranking.DUPLICATE),  # also below the top k
        ([(0, 1.0), (1, np.nan)], ranking.SCORE_IS_NAN),
    ],
)
@pytest.mark.parametrize("true", [[0], []])  # also in a document that is left out
def test_wrong_rows_are_named(row, problem, true):
    verdict, *_ = run(3, [[(0, 1.0)], row], [[0], true], [[], []], np.array([]), [1])
    assert verdict == (problem, 1)


U64 = np.uint64


def numpy_random_bits(counter):
    """splitmix64 of an array of counters; arrays of uint64 wrap around without a warning."""
    bits = (counter ^ (counter >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> U64(27))) * U64(0x94D049BB133111EB)
    return bits ^ (bits >> U64(31))


def numpy_counts(n_docs, draws, key):
    """How often each document is drawn in each resample: (n_resamples, n_docs)."""
    golden = U64(0x9E3779B97F4A7C15)
    counts = np.zeros((len(draws), n_docs))
    for block in range(draws.shape[1]):
        size = min(BLOCK, n_docs - block * BLOCK)
        for resample in range(len(draws)):
            n = draws[resample, block]
            stream = np.array([block * len(draws) + resample], U64)
            start = numpy_random_bits(np.array([key]) + numpy_random_bits(stream * golden))
            bits = numpy_random_bits(start + np.arange(1, n // 2 + n % 2 + 1, dtype=U64) * golden)
            halves = np.stack([bits >> U64(32), bits & U64(0xFFFFFFFF)], axis=1).ravel()[:n]
            drawn = (halves * U64(size)) >> U64(32)
            counts[resample, block * BLOCK : block * BLOCK + size] += np.bincount(
                drawn.astype(int), minlength=size
            )
    return counts


@settings(max_examples=40, deadline=None)
@given(
    n_docs=st.one_of(st.integers(1, 40), st.integers(BLOCK - 2, BLOCK + 5)),
    n_resamples=st.integers(1, 4),
    n_statistics=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_resampled_sums_equal_the_oracle(n_docs, n_resamples, n_statistics, seed):
    rng = np.random.default_rng(seed)
    documents = rng.random((n_docs, n_statistics))
    sizes = np.array([min(BLOCK, n_docs - first) for first in range(0, n_docs, BLOCK)])
    draws = rng.multinomial(n_docs, sizes / n_docs, size=n_resamples)
    key = rng.integers(2**64, dtype=U64)
    sums = np.zeros((n_resamples, n_statistics))
    with np.errstate(over="ignore"):
        resample_sums(documents, draws, key, sums)
    np.testing.assert_allclose(sums, numpy_counts(n_docs, draws, key) @ documents, rtol=1e-12)
