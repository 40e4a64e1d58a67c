"""Datasets: taking, splitting, changing the vocabulary, and the canonical label matrix."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.data.dataset import Dataset, label_matrix_of
from longtail.data.labels import Label, Labels
from longtail.data.strings import Strings
from longtail.errors import DataError, UsageError

quick = settings(deadline=None, max_examples=80)


def dataset_of(texts, labels=None):
    return Dataset.of(texts, labels or [[f"l{row % 3}"] for row in range(len(texts))])


def rows(dataset):
    return [dataset.labels_of(row) for row in range(len(dataset))]


def features_only(n):
    matrix = sparse.csr_array(np.eye(n, dtype=np.float32))
    ids = Strings.of(f"d{row}" for row in range(n))
    return Dataset(matrix.copy(), Labels.of(map(str, range(n))), features=matrix, ids=ids)


# --- made of Python values
# ---------------------------------------------------------------------------------------


def test_of_texts_and_labels():
    dataset = Dataset.of(["wind", "sun", ""], [["b", "a"], [], ("a",)])
    assert (len(dataset), dataset.n_labels) == (3, 2)
    assert list(dataset.document_texts()) == ["wind", "sun", ""]
    assert list(dataset.labels.ids) == ["b", "a"]
    assert rows(dataset) == [["b", "a"], [], ["a"]]
    assert dataset.label_matrix.toarray().tolist() == [[1, 1], [0, 0], [0, 1]]
    assert dataset.label_matrix.dtype == np.float32
    assert dataset.label_counts.tolist() == [1, 2]
    assert dataset.label_counts.dtype == np.int64
    assert [dataset.document_id(row) for row in range(3)] == ["0", "1", "2"]
    assert [dataset.relevance_of(row) for row in range(3)] == [None, None, None]
    assert repr(dataset) == "Dataset(3 documents, 2 labels, 3 pairs, texts)"


@pytest.mark.parametrize(
    "vocabulary", [["a", "c", "b"], [Label("a"), Label("c", "C"), "b"], Labels.of("acb")]
)
def test_of_with_a_vocabulary(vocabulary):
    dataset = Dataset.of(["x"], [["b"]], vocabulary)
    assert list(dataset.labels.ids) == ["a", "c", "b"]
    assert dataset.label_matrix.toarray().tolist() == [[0, 0, 1]]
    with pytest.raises(
        DataError,
        match=r"^documents:2: unknown label 'd'.*; expected a label of the given vocabulary",
    ):
        Dataset.of(["x", "y"], [["b"], ["d"]], vocabulary)


def test_of_refuses_no_documents_and_sides_that_differ():
    with pytest.raises(DataError, match="documents: no document; expected at least one"):
        Dataset.of([], [])
    with pytest.raises(ValueError, match="zip"):
        Dataset.of(["a", "b"], [[]])


def test_features_in_place_of_text():
    dataset = features_only(3)
    assert repr(dataset) == "Dataset(3 documents, 3 labels, 3 pairs, 3 features)"
    assert dataset.document_id(2) == "d2"
    with pytest.raises(UsageError, match="features but no text; expected texts"):
        dataset.document_texts()


def test_with_features_wants_one_row_a_document():
    dataset = dataset_of(["a", "b"])
    good = sparse.csr_array(np.ones((2, 5), np.float32))
    assert dataset.with_features(good).features is good
    assert dataset.features is None
    with pytest.raises(
        DataError,
        match=r"^features: 3 rows of features for 2 documents; expected one row a document$",
    ):
        dataset.with_features(sparse.csr_array((3, 5)))


def test_memory_counts_every_part():
    matrix = sparse.csr_array(np.eye(2, dtype=np.float32))
    one = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    texts = Strings.of(["ab", "c"])
    ids = Strings.of(["x", "y"])
    labels = Labels.of(["p", "q"])
    bare = Dataset(matrix, labels).nbytes
    assert bare >= one
    assert Dataset(matrix, labels, texts=texts).nbytes == bare + texts.nbytes
    assert Dataset(matrix, labels, ids=ids).nbytes == bare + ids.nbytes
    assert Dataset(matrix, labels, features=matrix).nbytes == bare + one
    assert Dataset(matrix, labels, label_features=matrix).nbytes == bare + one


# --- take and split
# ----------------------------------------------------------------------------------------------


def test_take_keeps_the_parts_together():
    matrix = sparse.csr_array(np.diag([1, 2, 3]).astype(np.float32))
    labels = Labels.of("abc")
    label_features = sparse.csr_array(np.eye(3, dtype=np.float32))
    texts = Strings.of(["t0", "t1", "t2"])
    ids = Strings.of(["i0", "i1", "i2"])
    taken = Dataset(matrix, labels, texts, matrix, ids, label_features).take(np.array([2, 0, -1]))
    assert list(taken.texts) == ["t2", "t0", "t2"]
    assert list(taken.ids) == ["i2", "i0", "i2"]
    assert rows(taken) == [["c"], ["a"], ["c"]]
    assert [taken.relevance_of(row) for row in range(3)] == [[3.0], None, [3.0]]
    assert taken.features.toarray().tolist() == [[0, 0, 3], [1, 0, 0], [0, 0, 3]]
    assert taken.labels is labels
    assert taken.label_features is label_features


def test_take_nothing_and_without_labels():
    nothing = dataset_of(["a", "b"]).take(np.array([], np.int64))
    assert (len(nothing), nothing.n_labels, list(nothing.texts)) == (0, 2, [])
    unlabelled = dataset_of(["a", "b"], [[], []]).take(np.array([1]))
    assert (len(unlabelled), unlabelled.n_labels, unlabelled.labels_of(0)) == (1, 0, [])


@pytest.mark.parametrize(
    ("test", "size"), [(0.1, 10), (0.25, 25), (0.994, 99), (1, 1), (99, 99), (np.float32(0.5), 50)]
)
def test_split_by_share_or_number(test, size):
    dataset = dataset_of([f"text {row}" for row in range(100)])
    train, held = dataset.split(test=test, seed=3)
    assert (len(train), len(held)) == (100 - size, size)
    assert sorted([*train.texts, *held.texts]) == sorted(dataset.texts)
    assert train.labels is held.labels is dataset.labels


def test_the_default_is_a_tenth_and_seed_0():
    dataset = dataset_of([f"text {row}" for row in range(50)])
    assert dataset.split()[1].texts == dataset.split(test=0.1, seed=0)[1].texts
    assert len(dataset.split()[1]) == 5


def test_split_is_the_same_by_seed_and_another_by_another():
    dataset = dataset_of([f"text {row}" for row in range(60)])
    held = {seed: list(dataset.split(0.3, seed)[1].texts) for seed in range(4)}
    assert all(list(dataset.split(0.3, seed)[1].texts) == texts for seed, texts in held.items())
    assert len({tuple(texts) for texts in held.values()}) == 4


def test_split_shuffles_but_keeps_the_order_within_a_side():
    dataset = dataset_of([f"{row:02}" for row in range(40)])
    train, held = (list(side.texts) for side in dataset.split(0.5, 1))
    assert train == sorted(train)
    assert held == sorted(held)
    assert held not in ([f"{row:02}" for row in range(20)], [f"{row:02}" for row in range(20, 40)])


def test_any_document_may_be_held_out():
    dataset = dataset_of([f"text {row}" for row in range(10)])
    assert {text for seed in range(60) for text in dataset.split(1, seed)[1].texts} == set(
        dataset.texts
    )


@quick
@given(st.lists(st.integers(0, 6), min_size=2, max_size=25), st.data(), st.integers(0, 5))
def test_every_document_on_one_side_and_the_same_text_on_the_same(kinds, data, seed):
    dataset = dataset_of(
        [f"text {kind}" for kind in kinds], [[f"l{row}"] for row in range(len(kinds))]
    )
    wanted = data.draw(st.integers(1, len(kinds) - 1))
    sizes = np.bincount(kinds)
    fitting = sizes[(sizes > 0) & (sizes <= wanted)]
    if not len(fitting):
        with pytest.raises(UsageError, match=f"every text stands more than {wanted} times"):
            dataset.split(wanted, seed)
        return
    train, held = dataset.split(wanted, seed)
    assert sorted(chain(*rows(train), *rows(held))) == sorted(dataset.labels.ids)
    assert not set(train.texts) & set(held.texts)
    assert max(0, wanted - fitting.max()) < len(held) <= wanted or len(held) == fitting.sum()
    assert len(train) > 0


def test_a_text_that_fills_the_data_never_empties_the_test_part():
    dataset = dataset_of(["same"] * 20 + ["x", "y"])
    for seed in range(8):
        train, held = dataset.split(2, seed)
        assert sorted(held.texts) == ["x", "y"]
        assert len(train) == 20


def test_split_of_equal_texts_says_so():
    with pytest.raises(
        UsageError, match=r"split\(test=0.5\): every text stands more than 2 times; expected texts"
    ):
        dataset_of(["same"] * 4).split(0.5)


@pytest.mark.parametrize("test", [0, -1, 4, 5, 0.0, 0.1, 0.9, 1.0, -0.5, 2.0])
def test_split_wants_a_document_on_each_side(test):
    with pytest.raises(UsageError, match=r"of 4 documents; expected at least 1 on each side"):
        dataset_of(list("abcd")).split(test)


def test_split_without_texts_takes_each_document_for_itself():
    train, held = features_only(10).split(4)
    assert sorted([*train.ids, *held.ids]) == [f"d{row}" for row in range(10)]
    assert held.features.toarray().tolist() == held.label_matrix.toarray().tolist()
    assert len(held) == 4


# --- another vocabulary
# ------------------------------------------------------------------------------------------


def test_with_labels_moves_the_columns():
    dataset = Dataset.of(["x", "y"], [["a", "b", "c"], ["c"]])
    moved = dataset.with_labels(Labels.of(["c", "new", "b", "a"]))
    assert rows(moved) == [["c", "b", "a"], ["c"]]
    assert moved.label_matrix.toarray().tolist() == [[1, 0, 1, 1], [1, 0, 0, 0]]
    assert moved.label_matrix.has_sorted_indices
    assert moved.label_matrix.dtype == np.float32
    assert moved.texts is dataset.texts
    assert dataset.with_labels(dataset.labels) is dataset


def test_with_labels_keeps_relevance_with_its_label():
    matrix = sparse.csr_array(np.array([[2, 0, 5], [0, 7, 0]], np.float32))
    moved = Dataset(matrix, Labels.of("abc")).with_labels(Labels.of("cba"))
    assert moved.label_matrix.toarray().tolist() == [[5, 0, 2], [0, 7, 0]]


def test_with_labels_names_the_first_unknown_label():
    dataset = Dataset.of(["x", "y"], [["a"], ["a", "z"]])
    with pytest.raises(DataError) as caught:
        dataset.with_labels(Labels.of("a"))
    assert (
        str(caught.value)
        == "labels: unknown label 'z' of document '1'; expected a label of the given vocabulary"
    )


def test_with_labels_drops_on_request_and_counts():
    dataset = Dataset.of(["x", "y", "x"], [["a", "z"], ["z", "q"], []])
    less = dataset.with_labels(Labels.of(["b", "a"]), "drop")
    assert rows(less) == [["a"], [], []]
    assert less.dropped_unknown == 3
    assert less.with_labels(Labels.of("b"), "drop").dropped_unknown == 4
    assert less.with_labels(Labels.of("ab")).dropped_unknown == 3


def test_with_labels_adds_on_request():
    dataset = Dataset.of(["x", "y"], [["z", "a"], ["q"]])
    more = dataset.with_labels(Labels.of(["b", "a"]), "add")
    assert list(more.labels.ids) == ["b", "a", "z", "q"]
    assert rows(more) == [["a", "z"], ["q"]]
    assert more.dropped_unknown == 0


def test_a_label_without_documents_may_be_unknown():
    dataset = Dataset.of(["x"], [["a"]], ["a", "unused"])
    assert rows(dataset.with_labels(Labels.of("a"))) == [["a"]]


# --- the label matrix
# --------------------------------------------------------------------------------------------

pairs = st.tuples(st.integers(0, 4), st.integers(1, 9))


def slow_matrix(documents, n_labels):
    """The first relevance of each label of each document, as nested lists, and the number left out."""
    matrix = [[0] * n_labels for _ in documents]
    merged = 0
    for row, document in enumerate(documents):
        for column, relevance in document:
            if matrix[row][column]:
                merged += 1
            else:
                matrix[row][column] = relevance
    return matrix, merged


def flat(documents, dtype=np.int32):
    columns = np.array([column for document in documents for column, _ in document], dtype)
    relevance = np.array([value for document in documents for _, value in document], np.float32)
    return columns, np.cumsum([0, *map(len, documents)]), relevance


@quick
@given(
    st.lists(st.lists(pairs, max_size=30), min_size=1, max_size=5),
    st.sampled_from([np.int32, np.int64]),
)
def test_label_matrix_as_a_slow_one(documents, dtype):
    columns, row_ends, relevance = flat(documents, dtype)
    matrix, merged = label_matrix_of(columns, row_ends, 5, relevance)
    assert (matrix.toarray().tolist(), merged) == slow_matrix(documents, 5)
    plain, merged_again = label_matrix_of(columns, row_ends, 5)
    assert merged_again == merged
    assert plain.toarray().tolist() == (matrix.toarray() > 0).astype(int).tolist()
    for made in (matrix, plain):
        assert made.dtype == np.float32
        assert made.indices.dtype == made.indptr.dtype == np.int32
        assert sparse.csr_array(
            (made.data, made.indices, made.indptr), made.shape
        ).has_canonical_format


def test_of_many_relevances_of_a_label_the_first_is_kept():
    columns = np.array([5] * 40 + list(range(40)))
    matrix, merged = label_matrix_of(
        columns, np.array([0, 80]), 40, np.arange(1, 81, dtype=np.float32)
    )
    assert matrix[0, 5] == 1
    assert merged == 40 + 1 - 1
    assert matrix.nnz == 40


def test_the_same_label_in_neighbouring_documents_is_not_twice():
    matrix, merged = label_matrix_of(np.array([1, 1, 1]), np.array([0, 1, 1, 2, 3]), 2)
    assert merged == 0
    assert matrix.toarray().tolist() == [[0, 1], [0, 0], [0, 1], [0, 1]]


def test_what_is_given_stays_as_it_was():
    columns = np.array([2, 0, 2])
    row_ends = np.array([0, 3])
    relevance = np.array([3, 1, 2], np.float32)
    for array in (columns, row_ends, relevance):
        array.flags.writeable = False
    matrix, merged = label_matrix_of(columns, row_ends, 3, relevance)
    assert (matrix.toarray().tolist(), merged) == ([[1, 0, 3]], 1)
    assert label_matrix_of(columns, row_ends, 3)[0].toarray().tolist() == [[1, 0, 1]]
    assert (columns.tolist(), relevance.tolist()) == ([2, 0, 2], [3, 1, 2])


def test_no_label_at_all():
    matrix, merged = label_matrix_of(np.array([], np.int32), np.array([0, 0, 0]), 0)
    assert (matrix.shape, matrix.nnz, merged) == ((2, 0), 0, 0)


@pytest.mark.parametrize(
    ("texts", "labels"),
    [([3], [["x"]]), (["a"], [[3]]), (["a", "b"], ["xy", ["z"]]), (["\ud800"], [["x"]])],
)
def test_documents_of_python_values_must_be_strings(texts, labels):
    with pytest.raises(UsageError, match=r"document 1: .*; expected"):
        Dataset.of(texts, labels)
