import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import f1_score, ndcg_score, precision_score, recall_score

from longtail import metrics
from longtail.errors import UsageError
from longtail.metrics import Evaluation, evaluate, inverse_propensities

LOG3 = 1 / math.log2(3)  # the discount of rank 2; that of rank 3 is 1/2


def csr(rows, n_labels, index=np.int32, dtype=np.float32):
    """Rows of (label, value), kept in the order given."""
    labels = np.array([label for row in rows for label, _ in row], index)
    values = np.array([value for row in rows for _, value in row], dtype)
    return sparse.csr_array(
        (values, labels, np.cumsum([0, *map(len, rows)], dtype=index)), shape=(len(rows), n_labels)
    )


def truth(rows, n_labels):
    return csr([[(label, 1) for label in row] for row in rows], n_labels)


# Worked by hand. Rankings: 0 2 1 | 1 3 (a tie, the lower label first) | 4 | 0; label 5 is nowhere
# true.
PREDICTIONS = csr([[(1, 0.7), (0, 0.9), (2, 0.8)], [(3, 0.6), (1, 0.6)], [(4, 0.2)], [(0, 1.0)]], 6)
LABELS = truth([[0, 1], [3], [4, 0, 2], []], 6)
WEIGHTS = np.array([1.0, 2.0, 4.0, 8.0, 3.0, 1.0])
BY_HAND = {
    "P@1": 2 / 3,  # 1 0 1
    "P@3": 4 / 9,  # 2/3 1/3 1/3: divided by 3 although document 2 has one prediction
    "R@1": 5 / 18,  # 1/2 0 1/3
    "R@3": 7 / 9,  # 2/2 1/1 1/3
    "nDCG@1": 2 / 3,
    "nDCG@3": ((1 + 0.5) / (1 + LOG3) + LOG3 / 1 + 1 / (1 + LOG3 + 0.5)) / 3,
    "coverage@1": 2 / 5,  # 0 and 4 of 0 1 2 3 4
    "coverage@3": 4 / 5,  # all but 2
    "macro-F1@1": (2 / 3 + 0 + 0 + 0 + 1)
    / 5,  # label 0: once predicted, twice true, one hit: 2/(1+2)
    "macro-F1@3": (2 / 3 + 2 / 3 + 0 + 1 + 1)
    / 5,  # label 1: twice predicted, once true, one hit: 2/(2+1)
    "PSP@1": 4 / 14,  # (1 + 0 + 3) / (2 + 8 + 4)
    "PSP@3": 14 / 19,  # (1+2 + 8 + 3) / (2+1 + 8 + 4+3+1)
    "PSnDCG@1": 4 / 14,
    # (1 + 2/2, 8 LOG3, 3) over (2 + 1 LOG3, 8, 4 + 3 LOG3 + 1/2)
    "PSnDCG@3": (2 + 8 * LOG3 + 3) / (2 + LOG3 + 8 + 4 + 3 * LOG3 + 0.5),
}
SINGLE = {
    "P": metrics.precision_at_k,
    "R": metrics.recall_at_k,
    "nDCG": metrics.ndcg_at_k,
    "coverage": metrics.coverage_at_k,
    "macro-F1": metrics.macro_f1_at_k,
}
PROPENSITY = {"PSP": metrics.psp_at_k, "PSnDCG": metrics.psndcg_at_k}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    metric, k = name.split("@")
    if metric in PROPENSITY:
        value = PROPENSITY[metric](PREDICTIONS, LABELS, int(k), WEIGHTS)
    else:
        value = SINGLE[metric](PREDICTIONS, LABELS, int(k))
        assert evaluate(PREDICTIONS, LABELS, [1, 3])[name] == value
    assert value == pytest.approx(BY_HAND[name], rel=1e-12)


def test_evaluation_counts_and_names():
    result = evaluate(PREDICTIONS, LABELS, (3, 1, 3))
    assert (result.n_documents, result.n_without_labels, result.n_test_labels) == (3, 1, 5)
    assert (result.ks, result.hits, result.a, result.b) == ((1, 3), (2, 4), None, None)
    assert set(result.metrics) == {name for name in BY_HAND if not name.startswith("PS")}


def slow_metrics(predictions, labels, n_labels, ks, weights):
    """Everything from the formulas with lists and dicts.

    Rows of (label, score); rows of true labels.
    """
    kept = [(row, set(true)) for row, true in zip(predictions, labels, strict=True) if true]
    ranked = [
        ([label for label, _ in sorted(row, key=lambda p: (-p[1], p[0]))], true)
        for row, true in kept
    ]
    tested = set().union(*(true for _, true in ranked))
    values = {}

    def discounted(gains):
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))

    for k in ks:
        precision, recall, ndcg, gain, best, gain_dcg, best_dcg = ([] for _ in range(7))
        tp, predicted, positive = (dict.fromkeys(range(n_labels), 0) for _ in range(3))
        for ranking, true in ranked:
            hits = [label in true for label in ranking[:k]]
            gains = [weights[label] if label in true else 0.0 for label in ranking[:k]]
            ideal = sorted((weights[label] for label in true), reverse=True)[:k]
            precision.append(sum(hits) / k)
            recall.append(sum(hits) / len(true))
            ndcg.append(discounted(hits) / discounted([1] * min(k, len(true))))
            gain.append(sum(gains))
            best.append(sum(ideal))
            gain_dcg.append(discounted(gains))
            best_dcg.append(discounted(ideal))
            for label in true:
                positive[label] += 1
            for label in ranking[:k]:
                predicted[label] += 1
                tp[label] += label in true
        n = len(ranked)
        f1 = [2 * tp[label] / (predicted[label] + positive[label]) for label in tested]
        values |= {
            f"P@{k}": sum(precision) / n,
            f"nDCG@{k}": sum(ndcg) / n,
            f"R@{k}": sum(recall) / n,
            f"PSP@{k}": (sum(gain) / n) / (sum(best) / n),
            f"PSnDCG@{k}": (sum(gain_dcg) / n) / (sum(best_dcg) / n),
            f"coverage@{k}": sum(tp[label] > 0 for label in tested) / len(tested),
            f"macro-F1@{k}": sum(f1) / len(tested),
        }
    return values


@st.composite
def cases(draw):
    n_labels = draw(st.integers(1, 8))
    n_docs = draw(st.integers(1, 6))
    some = st.lists(st.integers(0, n_labels - 1), unique=True, max_size=n_labels)
    score = st.sampled_from([-2.0, 0.0, 0.5, 1.0])
    predictions = [[(label, draw(score)) for label in draw(some)] for _ in range(n_docs)]
    labels = [draw(some) for _ in range(n_docs)]
    labels[draw(st.integers(0, n_docs - 1))] = [
        draw(st.integers(0, n_labels - 1))
    ]  # at least one has labels
    n_train = draw(st.integers(3, 10_000))
    counts = draw(st.lists(st.integers(0, n_train), min_size=n_labels, max_size=n_labels))
    ks = draw(st.sets(st.integers(1, 10), min_size=1, max_size=3))
    return n_labels, predictions, labels, n_train, np.array(counts), sorted(ks)


@settings(max_examples=200, deadline=None)
@given(
    cases(),
    st.sampled_from([np.int32, np.int64]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([np.bool_, np.int8, np.float32]),
)
def test_evaluate_equals_the_slow_implementation(case, index, score_type, label_type):
    n_labels, rows, labels, n_train, counts, ks = case
    # Explicit zeros are not positives; a bool can hold no negative, which is not a positive either.
    absent = [sorted(set(range(n_labels)) - set(row))[:2] for row in labels]
    values = [
        [
            *((label, 1) for label in row),
            *((label, 0 if label_type is np.bool_ else -i) for i, label in enumerate(zero)),
        ]
        for row, zero in zip(labels, absent, strict=True)
    ]
    predictions = csr(rows, n_labels, index, score_type)
    label_matrix = csr(values, n_labels, index, label_type)
    result = evaluate(
        predictions, label_matrix, ks, label_counts=counts, n_train=n_train, a=0.6, b=2.6
    )
    weights = [
        1 + (math.log(n_train) - 1) * 3.6**0.6 * (count + 2.6) ** -0.6 for count in counts.tolist()
    ]
    assert result.metrics == pytest.approx(
        slow_metrics(rows, labels, n_labels, ks, weights), rel=1e-9, abs=1e-12
    )
    assert (result.a, result.b) == (0.6, 2.6)
    assert result.n_without_labels == sum(not row for row in labels)


def random_case(n_docs=60, n_labels=25, n_predicted=25, seed=0):
    """Distinct scores, so that scikit-learn, which knows no rule for ties, must agree."""
    rng = np.random.default_rng(seed)
    scores = np.stack([rng.permutation(n_labels) + 1.0 for _ in range(n_docs)])
    true = rng.random((n_docs, n_labels)) < 0.12
    true[~true.any(axis=1), 3] = True
    true[:, 7] = False  # predicted and never true
    true[~true.any(axis=1), 4] = True
    rows = [
        [(int(j), scores[i, j]) for j in rng.permutation(n_labels)[:n_predicted]]
        for i in range(n_docs)
    ]
    return csr(rows, n_labels), sparse.csr_array(true.astype(np.float32)), scores, true


@pytest.mark.parametrize("k", [1, 3, 5, 25])
def test_agrees_with_scikit_learn(k):
    predictions, label_matrix, scores, true = random_case()
    decided = scores > np.sort(scores, axis=1)[:, [-k - 1]] if k < 25 else np.ones_like(true)
    tested = np.flatnonzero(true.any(axis=0))
    assert 7 not in tested
    found = evaluate(predictions, label_matrix, [k])
    assert found[f"nDCG@{k}"] == pytest.approx(ndcg_score(true, scores, k=k), rel=1e-12)
    assert found[f"P@{k}"] == pytest.approx(
        precision_score(true, decided, average="samples"), rel=1e-12
    )
    assert found[f"R@{k}"] == pytest.approx(
        recall_score(true, decided, average="samples"), rel=1e-12
    )
    f1 = f1_score(true, decided, labels=tested, average="macro", zero_division=0)
    assert found[f"macro-F1@{k}"] == pytest.approx(f1, rel=1e-12)


def both(predictions, label_matrix, **options):
    counts = np.arange(label_matrix.shape[1])
    return evaluate(
        predictions, label_matrix, (1, 3, 5), label_counts=counts, n_train=100, **options
    )


def test_order_of_documents_and_entries_does_not_matter():
    predictions, label_matrix, *_ = random_case(n_predicted=12)
    expected = both(predictions, label_matrix)
    rng = np.random.default_rng(1)
    order = rng.permutation(predictions.shape[0])
    assert both(predictions[order], label_matrix[order]).metrics == pytest.approx(
        expected.metrics, rel=1e-12
    )
    for i in range(predictions.shape[0]):
        for matrix in (predictions, label_matrix):
            row = np.arange(matrix.indptr[i], matrix.indptr[i + 1])
            mixed = rng.permutation(row)
            matrix.indices[row] = matrix.indices[mixed]
            matrix.data[row] = matrix.data[mixed]
    shuffled = label_matrix.__class__(
        (label_matrix.data, label_matrix.indices, label_matrix.indptr)
    )
    assert not shuffled.has_canonical_format
    assert both(predictions, shuffled) == expected


def test_perfect_predictions_reach_one():
    _, label_matrix, *_ = random_case()
    counts = np.arange(label_matrix.shape[1])
    perfect = label_matrix.copy()
    perfect.data = inverse_propensities(counts, 100)[perfect.indices]  # the rarest first
    found = both(perfect, label_matrix)
    for k in (1, 3, 5):
        for name in ("nDCG", "PSP", "PSnDCG"):
            assert found[f"{name}@{k}"] == pytest.approx(1.0, rel=1e-12)


def test_more_ks_than_predictions_miss():
    predictions = csr([[(0, 1.0)], []], 3)
    label_matrix = truth([[0, 1], [2]], 3)
    assert metrics.precision_at_k(predictions, label_matrix, 1000) == pytest.approx(1 / 1000 / 2)
    assert metrics.recall_at_k(predictions, label_matrix, 2**31 - 1) == pytest.approx(1 / 4)


def test_masked_predictions_are_passed_over_and_truth_is_not():
    # Without its best label document 0 ranks 2 1; the masked true label still counts among its
    # labels.
    mask = np.array(
        [[1, 5], [0, 0], [2, 1], [0, 0]]
    )  # any order, twice, and pairs that are not predicted
    found = evaluate(PREDICTIONS, LABELS, [1, 3], mask=mask)
    assert found["P@1"] == pytest.approx(1 / 3)
    assert found["R@3"] == pytest.approx((1 / 2 + 1 + 1 / 3) / 3)
    for name, function in SINGLE.items():
        assert (
            function(PREDICTIONS, LABELS, 1, mask=mask) == found[f"{name}@1"] < BY_HAND[f"{name}@1"]
        )
    for function in PROPENSITY.values():
        assert function(PREDICTIONS, LABELS, 1, WEIGHTS, mask=mask) == pytest.approx(3 / 14)
    assert evaluate(PREDICTIONS, LABELS, mask=np.zeros((0, 2), int)) == evaluate(
        PREDICTIONS, LABELS
    )


def test_duplicate_labels_in_the_label_matrix_are_added_up():
    repeated = csr(
        [
            [(0, 1), (1, 1), (0, 1)],
            [(3, 1), (3, -1), (3, 1)],
            [(4, 1), (0, 1), (2, 1)],
            [(5, 2), (5, -2)],
        ],
        6,
    )
    before = repeated.data.copy()
    assert evaluate(PREDICTIONS, repeated) == evaluate(PREDICTIONS, LABELS)
    np.testing.assert_array_equal(repeated.data, before)  # the caller's matrix stays as it was


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.uint8])
def test_other_score_types(dtype):
    scores = csr([[(1, 2), (0, 3)], [(2, 1)]], 4, dtype=dtype)
    assert metrics.precision_at_k(scores, truth([[0], [1]], 4), 1) == 0.5


def with_entry(position, **change):
    matrix = PREDICTIONS.copy()
    for name, value in change.items():
        getattr(matrix, name)[position] = value
    return matrix


WRONG = {
    "shapes": (
        lambda: evaluate(PREDICTIONS, LABELS[:, :5]),
        r"\(4, 6\) and label_matrix \(4, 5\) differ in shape",
    ),
    "documents": (lambda: evaluate(PREDICTIONS[:2], LABELS), "differ in shape"),
    "nan": (lambda: evaluate(with_entry(3, data=np.nan), LABELS), "document 1 has a NaN score"),
    "twice": (lambda: evaluate(with_entry(4, indices=3), LABELS), "document 1 has a label twice"),
    "range": (
        lambda: evaluate(with_entry(5, indices=6), LABELS),
        "document 2 has a label out of range; expected .* 5",
    ),
    "indptr": (lambda: evaluate(with_entry(1, indptr=6), LABELS), "predictions: its indptr"),
    "label nan": (
        lambda: evaluate(PREDICTIONS, csr([[(0, np.nan)], [], [], []], 6)),
        "^label_matrix: found NaN; expected values above 0",
    ),
    "label range": (
        lambda: evaluate(PREDICTIONS, with_entry(0, indices=-1)),
        "label_matrix: found label",
    ),
    "no labels": (
        lambda: evaluate(PREDICTIONS, truth([[]] * 4, 6)),
        "none of its 4 documents has a label",
    ),
    "no documents": (lambda: evaluate(PREDICTIONS[:0], LABELS[:0]), "none of its 0 documents"),
    "dense": (
        lambda: evaluate(PREDICTIONS.toarray(), LABELS),
        "predictions: found a ndarray of shape",
    ),
    "list": (lambda: evaluate([[1]], LABELS), "predictions: found a list of shape unknown"),
    "csc": (lambda: evaluate(PREDICTIONS, LABELS.tocsc()), "label_matrix: found a csc_array"),
    "complex": (
        lambda: evaluate(PREDICTIONS.astype(complex), LABELS),
        "complex128; expected numbers",
    ),
    "k zero": (lambda: evaluate(PREDICTIONS, LABELS, [0, 1]), r"k: found \[0, 1\]"),
    "k none": (lambda: evaluate(PREDICTIONS, LABELS, []), "k: found"),
    "k half": (lambda: metrics.precision_at_k(PREDICTIONS, LABELS, 1.5), "k: found"),
    "k huge": (lambda: evaluate(PREDICTIONS, LABELS, [10**20]), "k: found .* at most 2147483647"),
    "k large": (lambda: evaluate(PREDICTIONS, LABELS, [1, 2**31]), "k: found"),
    "n_train": (
        lambda: evaluate(PREDICTIONS, LABELS, label_counts=np.ones(6, int)),
        "n_train is missing",
    ),
    "label_counts": (lambda: evaluate(PREDICTIONS, LABELS, n_train=9), "label_counts is missing"),
    "counts": (
        lambda: evaluate(PREDICTIONS, LABELS, label_counts=np.ones(5, int), n_train=9),
        r"\(5,\); expected \(6,\)",
    ),
    "mask shape": (
        lambda: evaluate(PREDICTIONS, LABELS, mask=np.array([1, 2])),
        "mask: found int64 of shape",
    ),
    "mask range": (
        lambda: evaluate(PREDICTIONS, LABELS, mask=np.array([[4, 0]])),
        "outside the 4 documents",
    ),
    "mask label": (lambda: evaluate(PREDICTIONS, LABELS, mask=np.array([[0, 6]])), "and 6 labels"),
    "mask negative": (
        lambda: evaluate(PREDICTIONS, LABELS, mask=np.array([[-1, 0]])),
        "mask: found a pair outside",
    ),
    "mask no label": (
        lambda: evaluate(PREDICTIONS, LABELS, mask=np.array([[0, -1]])),
        "mask: found a pair outside",
    ),
    "bootstrap": (lambda: evaluate(PREDICTIONS, LABELS, bootstrap=-1), "found -1 resamples"),
    "bootstrap huge": (
        lambda: evaluate(PREDICTIONS, LABELS, bootstrap=10**10),
        "10000000000 .* 1 to 1000000 ",
    ),
    "bootstrap large": (
        lambda: evaluate(PREDICTIONS, LABELS, bootstrap=10**6 + 1),
        "found 1000001 resamples",
    ),
    "confidence": (
        lambda: evaluate(PREDICTIONS, LABELS, bootstrap=9, confidence=95),
        "confidence: found 95",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused_in_one_line(name):
    call, message = WRONG[name]
    with pytest.raises(UsageError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_evaluation_as_table_and_json():
    plain = evaluate(PREDICTIONS, LABELS, [1, 3])
    lines = str(plain).splitlines()
    assert lines[0].split() == ["@1", "@3"]
    assert lines[1].split() == ["P", "66.67", "44.44"]
    assert [line.split()[0] for line in lines[1:-1]] == ["P", "nDCG", "R", "coverage", "macro-F1"]
    assert (
        lines[-1] == "percent over 3 documents with 5 labels; 1 documents without labels left out"
    )
    counts = np.array([0, 1, 2, 3, 4, 5])
    full = evaluate(
        PREDICTIONS,
        LABELS,
        [1],
        label_counts=counts,
        n_train=50,
        a=0.6,
        b=2.6,
        bootstrap=20,
        seed=3,
    )
    assert "propensity A=0.6 B=2.6; [95 % intervals of 20 resamples, seed 3]" in str(full)
    low, high = full.intervals["P@1"]
    assert f"66.67 [{100 * low:.2f}, {100 * high:.2f}]" in str(full)
    assert msgspec.json.decode(msgspec.json.encode(full), type=Evaluation) == full


def test_an_evaluation_without_intervals_need_not_speak_of_them():
    said = msgspec.to_builtins(evaluate(PREDICTIONS, LABELS, [1, 3]))
    short = {
        name: said[name]
        for name in said
        if name not in ("intervals", "n_resamples", "seed", "confidence")
    }
    assert msgspec.to_builtins(msgspec.convert(short, Evaluation)) == said


def test_evaluation_is_set_in_columns():
    assert str(evaluate(PREDICTIONS, LABELS, [1, 1000])).splitlines()[:-1] == [
        "             @1  @1000",
        "P         66.67   0.13",
        "nDCG      66.67  67.33",
        "R         27.78  77.78",
        "coverage  40.00  80.00",
        "macro-F1  33.33  66.67",
    ]


def test_every_public_name_is_there():
    assert sorted(metrics.__all__) == metrics.__all__
    assert all(hasattr(metrics, name) for name in metrics.__all__)
