import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import precision_recall_fscore_support

from longtail.errors import UsageError
from longtail.kernels.ranking import BLOCK
from longtail.metrics import FrequencyTable, by_frequency, evaluate, per_label, precision_at_k
from longtail.metrics.bootstrap import resampled_sums


def random_case(seed, n_docs=50, n_labels=30, n_predicted=8, n_true=3):
    rng = np.random.default_rng(seed)

    def rows(n, values):
        picked = np.concatenate([rng.permutation(n_labels)[:n] for _ in range(n_docs)])
        return sparse.csr_array(
            (values, picked, np.arange(0, n * n_docs + 1, n)), shape=(n_docs, n_labels)
        )

    predictions = rows(n_predicted, rng.random(n_predicted * n_docs))
    return predictions, rows(n_true, np.ones(n_true * n_docs)), rng.integers(0, 200, n_labels)


# Rankings 0 1 | 2 0 | 3 | 4 (no labels). True 0 | 2 3 | 4 5 | none.
PREDICTIONS = sparse.csr_array(
    np.array([[9, 8, 0, 0, 0, 0], [1, 0, 2, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]])
)
LABELS = sparse.csr_array(
    np.array([[1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]])
)
COUNTS = np.array([500, 100, 101, 5, 1, 0])


def test_bins_by_hand():
    table = by_frequency(PREDICTIONS, LABELS, COUNTS, ks=(1, 2))
    assert [part.name for part in table.bins] == ["0", "1", "2–5", "6–20", "21–100", ">100"]
    assert [part.n_labels for part in table.bins] == [1, 1, 1, 0, 1, 2]
    assert [part.n_positives for part in table.bins] == [1, 1, 1, 0, 0, 2]
    assert [part.hits for part in table.bins] == [(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (2, 2)]
    assert table.bins[-1].precision == pytest.approx((2 / 3, 2 / 6))  # 3 documents have labels
    assert table.bins[-1].recall == (1.0, 1.0)
    assert table.bins[0].recall == (0.0, 0.0)
    assert table.bins[3].recall == table.bins[4].recall == (None, None)
    assert (table.n_documents, table.ks) == (3, (1, 2))


def test_table_as_text_and_json():
    table = by_frequency(PREDICTIONS, LABELS, COUNTS, ks=(1, 2))
    lines = str(table).splitlines()
    assert lines[0].split() == ["in", "train", "labels", "positives", "P@1", "P@2", "R@1", "R@2"]
    assert lines[-1].split() == [">100", "2", "2", "66.67", "33.33", "100.00", "100.00"]
    assert lines[4].split() == ["6–20", "0", "0", "0.00", "0.00", "–", "–"]
    assert lines[:2] == [
        "in train  labels  positives    P@1    P@2     R@1     R@2",
        "       0       1          1   0.00   0.00    0.00    0.00",
    ]
    assert msgspec.json.decode(msgspec.json.encode(table), type=FrequencyTable) == table


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(1, 2, 6, 21, 101), (50,), ()]))
def test_bins_add_up_to_the_whole(seed, edges):
    predictions, labels, counts = random_case(seed)
    table = by_frequency(predictions, labels, counts, ks=(1, 5), edges=edges)
    whole = evaluate(predictions, labels, (1, 5))
    assert len(table.bins) == len(edges) + 1
    assert sum(part.n_labels for part in table.bins) == labels.shape[1]
    assert sum(part.n_positives for part in table.bins) == labels.nnz
    for t, k in enumerate((1, 5)):
        assert sum(part.precision[t] for part in table.bins) == pytest.approx(
            whole[f"P@{k}"], rel=1e-12
        )
        assert sum(part.hits[t] for part in table.bins) == whole.hits[t]


def test_bins_equal_a_mask_of_the_labels():
    predictions, labels, counts = random_case(1)
    table = by_frequency(predictions, labels, counts, ks=(4,))
    top = np.argsort(-predictions.toarray(), axis=1)[:, :4]
    for part in table.bins:
        inside = (counts >= part.low) & (
            counts <= (counts.max() if part.high is None else part.high)
        )
        hits = sum(
            inside[label] and labels[i, label] > 0 for i, row in enumerate(top) for label in row
        )
        assert part.hits == (hits,)


def test_labels_by_hand():
    table = per_label(PREDICTIONS, LABELS, 2, COUNTS)
    assert table.train_count.tolist() == COUNTS.tolist()
    assert table.test_count.tolist() == [1, 0, 1, 1, 1, 1]
    assert table.predicted_count.tolist() == [
        2,
        1,
        1,
        1,
        0,
        0,
    ]  # label 4 only in the document without labels
    assert table.hits.tolist() == [1, 0, 1, 0, 0, 0]
    assert table.precision.tolist() == [0.5, 0, 1, 0, 0, 0]
    assert table.recall.tolist() == [1, 0, 1, 0, 0, 0]
    assert table.f1 == pytest.approx([2 / 3, 0, 1, 0, 0, 0])


def test_labels_agree_with_scikit_learn():
    predictions, labels, counts = random_case(2)
    decided = np.zeros(labels.shape, bool)
    np.put_along_axis(decided, np.argsort(-predictions.toarray(), axis=1)[:, :3], True, axis=1)
    expected = precision_recall_fscore_support(
        labels.toarray() > 0, decided, average=None, zero_division=0
    )
    table = per_label(predictions, labels, 3, counts)
    for found, values in zip(
        (table.precision, table.recall, table.f1, table.test_count), expected, strict=True
    ):
        np.testing.assert_allclose(found, values, rtol=1e-12)


def test_analysis_passes_over_masked_predictions():
    mask = np.array([[0, 0]])
    assert per_label(PREDICTIONS, LABELS, 2, COUNTS, mask).hits.tolist() == [0, 0, 1, 0, 0, 0]
    assert by_frequency(PREDICTIONS, LABELS, COUNTS, (1,), mask=mask).bins[-1].hits == (1,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: by_frequency(PREDICTIONS, LABELS, COUNTS, edges=(2, 2)), r"edges: found \(2, 2\)"),
        (lambda: by_frequency(PREDICTIONS, LABELS, COUNTS, edges=(0, 2)), "edges: found"),
        (
            lambda: by_frequency(PREDICTIONS, LABELS, COUNTS[:3]),
            r"label_counts: found int64 of shape \(3,\); expected 6",
        ),
        (lambda: per_label(PREDICTIONS, LABELS, 1, -COUNTS), "whole numbers of at least 0"),
        (lambda: per_label(PREDICTIONS, LABELS, 1, COUNTS / 2), "label_counts: found float64"),
        (lambda: per_label(PREDICTIONS, LABELS, 0, COUNTS), "k: found"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize("n_docs", [7, BLOCK, 2 * BLOCK + 100])
def test_a_resample_holds_as_many_documents_as_there_are(n_docs):
    sums = resampled_sums(np.ones((n_docs, 2, 3)), 50, seed=0)
    np.testing.assert_array_equal(sums, np.full((50, 2, 3), n_docs))


def test_resamples_are_multinomial():
    # With the unit vectors as statistics the sums are the counts of the draws: 6 documents, 20,000
    # resamples.
    counts = resampled_sums(np.eye(6), 20_000, seed=1)
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.03)
    np.testing.assert_allclose(np.cov(counts.T), np.eye(6) - 1 / 6, atol=0.05)


def test_resamples_reach_all_blocks_alike():
    n_docs = 2 * BLOCK + 300
    in_block = np.arange(n_docs)[:, None] // BLOCK == np.arange(3)
    counts = resampled_sums(in_block.astype(float), 2000, seed=2)
    share = np.array([BLOCK, BLOCK, 300]) / n_docs
    np.testing.assert_allclose(counts.mean(axis=0), n_docs * share, rtol=0.01)
    np.testing.assert_allclose(counts.var(axis=0), n_docs * share * (1 - share), rtol=0.15)


def test_intervals_have_the_width_of_theory():
    predictions, labels, counts = random_case(3, n_docs=400)
    found = evaluate(predictions, labels, (1, 3), label_counts=counts, n_train=1000, bootstrap=2000)
    alone = [precision_at_k(predictions[[i]], labels[[i]], 3) for i in range(400)]
    low, high = found.intervals["P@3"]
    assert low < found["P@3"] < high
    assert high - low == pytest.approx(2 * 1.96 * np.std(alone) / np.sqrt(400), rel=0.1)
    narrow = evaluate(predictions, labels, (3,), bootstrap=2000, confidence=0.5).intervals["P@3"]
    assert narrow[1] - narrow[0] == pytest.approx(
        2 * 0.6745 * np.std(alone) / np.sqrt(400), rel=0.15
    )
    assert set(found.intervals) == {
        name for name in found.metrics if not name.startswith(("coverage", "macro"))
    }


def test_ratios_are_resampled_as_ratios_of_sums():
    # Hits and best sums are equal in each document, so PSP is 1 in every resample although the sums
    # vary.
    _, labels, counts = random_case(4)
    found = evaluate(labels, labels, (5,), label_counts=counts, n_train=1000, bootstrap=100)
    assert found.intervals["PSP@5"] == pytest.approx((1.0, 1.0))


def test_the_seed_decides():
    predictions, labels, _ = random_case(5)
    first, again, other = (
        evaluate(predictions, labels, bootstrap=50, seed=seed).intervals for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
