"""Thresholds, worst documents, masks, and differences between two systems, beside oracles and by
hand.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import average_precision_score, precision_recall_curve

from longtail.errors import UsageError
from longtail.metrics.analysis import at_least, precision_recall, unmasked, worst_documents
from longtail.metrics.bootstrap import paired_differences, percentile_intervals, resampled_sums
from longtail.metrics.ranking import evaluate, resampled_metrics


def csr(rows):
    """Return rows of {column: value} over five columns; entries keep their order."""
    indptr = np.cumsum([0, *map(len, rows)])
    columns = np.array([column for row in rows for column in row], np.int32)
    values = np.array([value for row in rows for value in row.values()], np.float64)
    return sparse.csr_array((values, columns, indptr), shape=(len(rows), 5))


def drawn(seed, n=40):
    """Return scores of all labels of each document, some of them alike, and the truth."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(1, 12, (n, 5)) / 12
    truth = sparse.csr_array((rng.random((n, 5)) < 0.3).astype(np.float32))
    return sparse.csr_array(scores), truth


class TestPrecisionRecall:
    @given(st.integers(0, 1000))
    def test_as_scikit_learn(self, seed):
        scores, truth = drawn(seed)
        labelled = np.diff(truth.indptr) > 0
        if not labelled.any():
            return
        found = precision_recall(scores, truth)
        y = truth.toarray()[labelled].ravel()
        s = scores.toarray()[labelled].ravel()
        precision, recall, thresholds = precision_recall_curve(y, s)
        by_threshold = {t: (p, r) for t, p, r in zip(thresholds, precision, recall, strict=False)}
        assert len(found.thresholds) > 1
        for t, p, r in zip(found.thresholds, found.precision, found.recall, strict=True):
            assert (p, r) == pytest.approx(by_threshold[t])
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        assert found.f1 == pytest.approx(f1.max())
        assert by_threshold[found.threshold] == pytest.approx(
            (found.precision[found.best], found.recall[found.best])
        )
        assert found.average_precision == pytest.approx(average_precision_score(y, s))

    def test_points_are_few_and_the_best_and_the_ends_are_among_them(self):
        rng = np.random.default_rng(0)
        scores = sparse.csr_array(rng.random((400, 5)) + 0.01)
        truth = sparse.csr_array((rng.random((400, 5)) < scores.toarray() / 2).astype(np.float32))
        whole = precision_recall(scores, truth, 10_000)
        few = precision_recall(scores, truth, 20)
        assert len(few.thresholds) <= 20 < len(whole.thresholds)
        assert (few.threshold, few.f1, few.average_precision) == (
            whole.threshold,
            whole.f1,
            whole.average_precision,
        )
        assert few.recall[-1] == whole.recall[-1]
        assert list(few.recall) == sorted(few.recall)
        assert list(few.thresholds) == sorted(few.thresholds, reverse=True)

    def test_documents_without_labels_do_not_count(self):
        truth = csr([{0: 1}, {}])
        assert precision_recall(csr([{0: 0.5}, {1: 0.9}]), truth).precision == (1.0,)
        assert precision_recall(csr([{}, {1: 0.9}]), truth) is None


def test_worst_documents():
    truth = csr([{0: 1}, {0: 1}, {0: 1}, {}, {0: 1}])
    ranked = csr([{0: 0.9, 1: 0.8}, {1: 0.4, 2: 0.3}, {1: 0.7}, {1: 1.0}, {1: 0.9, 0: 0.8}])
    assert worst_documents(ranked, truth, k=2, n=9) == [
        2,
        1,
        4,
        0,
    ]  # nothing right, surest first; then second, first
    assert worst_documents(ranked, truth, k=1, n=2) == [4, 2]
    assert worst_documents(csr([{}] * 5), truth, n=2) == [0, 1]


def test_at_least_and_unmasked():
    ranked = csr([{3: 0.9, 1: 0.5}, {}, {0: 0.5, 4: 0.1}])
    assert at_least(ranked, 0.5).toarray().tolist() == [
        [0, 0.5, 0, 0.9, 0],
        [0] * 5,
        [0.5, 0, 0, 0, 0],
    ]
    kept = unmasked(ranked, np.array([[2, 0], [0, 3], [1, 1]]))
    assert kept.toarray().tolist() == [[0, 0.5, 0, 0, 0], [0] * 5, [0, 0, 0, 0, 0.1]]
    assert unmasked(ranked, None) is ranked


class TestDifferences:
    def test_resamples_are_those_of_the_intervals(self):
        scores, truth = drawn(1)
        values = resampled_metrics(scores, truth, [1, 3], bootstrap=200, seed=4)
        intervals = evaluate(scores, truth, [1, 3], bootstrap=200, seed=4).intervals
        assert set(values) == set(intervals)
        assert np.quantile(values["P@3"], [0.025, 0.975]) == pytest.approx(intervals["P@3"])

    def test_the_same_system_twice(self):
        scores, truth = drawn(2)
        values = resampled_metrics(scores, truth, [1], bootstrap=100)
        same = paired_differences(values, values)["P@1"]
        assert (same.low, same.high, same.p) == (0, 0, 1)

    def test_differences_by_hand(self):
        # from −4 to 96: 4 below 0, 1 at it
        first = {"x": np.arange(101.0)}
        other = {"x": np.arange(101.0) * 2 - 4}
        found = paired_differences(first, other)["x"]
        assert (found.low, found.high, found.p) == pytest.approx((-1.5, 93.5, 2 * (5 + 1) / 102))

    @pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 95])
    def test_confidence_is_a_fraction(self, confidence):
        words = (
            f"^confidence: found {confidence}; expected a fraction between 0 and 1, such as 0.95$"
        )
        with pytest.raises(UsageError, match=words):
            percentile_intervals({}, confidence)

    @pytest.mark.parametrize(("resamples", "seed"), [(0, 0), (1_000_001, 0), (5, -1)])
    def test_how_many_resamples_there_may_be(self, resamples, seed):
        words = f"^bootstrap: found {resamples} resamples, seed {seed}; expected 1 to 1000000 and a seed >= 0$"
        with pytest.raises(UsageError, match=words):
            resampled_sums(np.ones((4, 2)), resamples, seed)
        assert resampled_sums(np.ones((4, 2)), 1, 0).tolist() == [[4, 4]]

    def test_pairs_see_what_intervals_alone_do_not(self):
        """One right label more in a tenth of the documents is sure, as it is never one less."""
        rng = np.random.default_rng(3)
        truth = sparse.csr_array(np.eye(5, dtype=np.float32)[rng.integers(0, 5, 400)])
        right = rng.random(400) < 0.5
        more = right | (rng.random(400) < 0.1)

        def metrics(good):
            said = np.where(good, truth.indices, (truth.indices + 1) % 5)
            return resampled_metrics(
                csr([{int(label): 1.0} for label in said]), truth, [1], bootstrap=500
            )

        found = paired_differences(metrics(right), metrics(more))["P@1"]
        change = (more.sum() - right.sum()) / 400
        assert 0 < found.low < change < found.high
        assert found.p == pytest.approx(2 / 501)
        back = paired_differences(metrics(more), metrics(right))["P@1"]
        assert (back.low, back.high, back.p) == pytest.approx((-found.high, -found.low, found.p))
        noise = {"x": rng.normal(0, 1, 999)}
        assert paired_differences({"x": np.zeros(999)}, noise)["x"].p > 0.5
