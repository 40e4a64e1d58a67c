"""What labels look like: sums of documents against the plain product, graphs, texts, and labels
without any.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.features import label_features as module
from longtail.features.label_features import label_features
from longtail.features.matrix import Features
from longtail.kernels import pool


def random_features(rng, rows, columns, dense=0, density=0.2):
    block = sparse.random_array(
        (rows, columns), density=density, format="csr", dtype=np.float32, rng=rng
    )
    block.data -= np.float32(0.3)  # signs, so that sums may cancel
    return Features.of(block, rng.standard_normal((rows, dense)))


def plain(features):
    return np.hstack([features.dense, features.sparse.toarray()]).astype(np.float64)


def unit(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


def is_well_formed(features):
    rows = features.sparse
    assert [a.dtype for a in (rows.data, rows.indices, rows.indptr)] == [
        np.float32,
        np.int32,
        np.int64,
    ]
    assert features.dense.dtype == np.float32
    assert features.dense.flags.c_contiguous
    for row in range(len(features)):
        columns = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
        assert (np.diff(columns) > 0).all()


@given(
    st.integers(0, 2**32),
    st.integers(1, 20),
    st.integers(1, 30),
    st.sampled_from([0, 1, 70, 9000]),
    st.integers(0, 3),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_sums_are_the_normalised_product(seed, documents, labels, columns, dense, soft):
    rng = np.random.default_rng(seed)
    features = random_features(rng, documents, columns, dense)
    matrix = sparse.random_array(
        (documents, labels), density=0.3, format="csr", dtype=np.float32, rng=rng
    )
    matrix.data += np.float32(0 if soft else 1)  # relevances above 1 count as 1
    result = label_features(features, matrix, "pifa")
    expected = unit(np.minimum(matrix.toarray(), 1).T.astype(np.float64) @ plain(features))
    assert np.allclose(plain(result), expected, atol=2e-5)
    assert result.shape == (labels, columns + dense)
    is_well_formed(result)


def test_any_threads_give_the_same_bytes(monkeypatch):
    monkeypatch.setattr(module, "_WORK", 50)
    rng = np.random.default_rng(3)
    features = random_features(rng, 200, 500, 3)
    matrix = sparse.random_array((200, 80), density=0.1, format="csr", rng=rng)
    matrix.data += 1
    results = []
    for count in (1, 3):
        with pool.threads(count):
            made = label_features(features, matrix, "pifa")
        results.append(
            [
                a.tobytes()
                for a in (made.sparse.data, made.sparse.indices, made.sparse.indptr, made.dense)
            ]
        )
    assert results[0] == results[1]
    expected = unit((matrix.toarray() != 0).T.astype(np.float64) @ plain(features))
    assert np.allclose(plain(made), expected, atol=1e-5)


def test_relevance_and_stored_zeros():
    features = Features.of(sparse.csr_array([[3.0, 0], [0, 4]]))
    matrix = sparse.csr_array([[5.0, 1], [1, 1]])
    matrix.data[3] = 0  # stored, and no label of the document
    assert label_features(features, matrix, "pifa").sparse.toarray().round(5).tolist() == [
        [pytest.approx(0.6, abs=1e-5), pytest.approx(0.8, abs=1e-5)],
        [1, 0],
    ]


@pytest.fixture
def three():
    """Labels with documents and text, without documents, and without either."""
    features = Features.of(sparse.csr_array([[3.0, 0], [0, 4]]), np.array([[0.0], [0]]))
    texts = Features.of(sparse.csr_array([[2.0, 0], [1, 0], [0, 0]]), np.array([[0.0], [1], [0]]))
    return features, sparse.csr_array([[1.0, 0, 0], [1, 0, 0]]), texts


def test_texts(three):
    features, matrix, texts = three
    half = np.sqrt(0.5)
    result = label_features(features, matrix, "text", texts)
    assert np.allclose(plain(result), [[0, 1, 0], [half, half, 0], [0, 0, 0]])
    assert texts.sparse.data[0] == 2  # the caller's is as it was


def test_a_label_without_documents_takes_its_text(three):
    features, matrix, texts = three
    half = np.sqrt(0.5)
    result = label_features(features, matrix, "pifa", texts)
    assert np.allclose(plain(result), [[0, 0.6, 0.8], [half, half, 0], [0, 0, 0]])
    is_well_formed(result)
    assert np.allclose(
        plain(label_features(features, matrix, "pifa")), [[0, 0.6, 0.8], [0, 0, 0], [0, 0, 0]]
    )


def test_both_side_by_side(three):
    half = np.sqrt(0.5)
    result = label_features(*three[:2], "pifa+text", three[2])
    assert result.dense.shape == (3, 2)
    expected = [
        [0, 0, 0.6 * half, 0.8 * half, half, 0],
        [0, half, 0, 0, half, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    assert np.allclose(plain(result), expected)
    is_well_formed(result)


def largest(rows, keep):
    kept = np.zeros_like(rows)
    best = np.argsort(-np.abs(rows), axis=1, kind="stable")[:, :keep]
    np.put_along_axis(kept, best, np.take_along_axis(rows, best, 1), 1)
    return kept


@given(
    st.integers(0, 2**32),
    st.integers(1, 20),
    st.integers(1, 30),
    st.sampled_from([1, 70]),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=40)
def test_a_graph_times_the_largest_of_the_sums(seed, documents, labels, columns, dense):
    rng = np.random.default_rng(seed)
    features = random_features(rng, documents, columns, dense)
    matrix = sparse.random_array(
        (documents, labels), density=0.3, format="csr", dtype=np.float32, rng=rng
    )
    graph = sparse.random_array(
        (labels, labels), density=0.3, format="csr", dtype=np.float32, rng=rng
    )
    keep = int(rng.integers(1, 12))
    result = label_features(features, matrix, "graph", graph=graph, keep=keep)
    sums = plain(label_features(features, matrix, "pifa"))
    sums[:, dense:] = largest(sums[:, dense:], keep)
    expected = graph.toarray() @ sums
    expected[:, dense:] = largest(expected[:, dense:], keep)
    assert np.allclose(plain(result), unit(expected), atol=2e-5)
    is_well_formed(result)


def test_any_threads_give_the_same_bytes_with_a_graph(monkeypatch):
    monkeypatch.setattr(module, "_WORK", 50)
    rng = np.random.default_rng(3)
    features = random_features(rng, 200, 500, 3)
    matrix = sparse.random_array((200, 80), density=0.1, format="csr", rng=rng)
    graph = sparse.random_array((80, 80), density=0.1, format="csr", rng=rng)
    results = []
    for count in (1, 3):
        with pool.threads(count):
            made = label_features(features, matrix, "graph", graph=graph, keep=20)
        results.append(
            [
                a.tobytes()
                for a in (made.sparse.data, made.sparse.indices, made.sparse.indptr, made.dense)
            ]
        )
    assert results[0] == results[1]
    assert np.diff(made.sparse.indptr).max() == 20


def test_a_graph_and_texts(three):
    features, matrix, texts = three
    graph = sparse.csr_array(np.array([[1, 0, 0], [1, 1, 0], [0.5, 0, 0.5]]))
    half = np.sqrt(0.5)
    filled = np.array([[0, 0.6, 0.8], [half, half, 0], [0, 0, 0]])
    result = label_features(features, matrix, "graph", texts, graph)
    assert np.allclose(plain(result), unit(graph.toarray() @ filled))
    both = plain(label_features(features, matrix, "graph+text", texts, graph))
    alone = plain(label_features(features, matrix, "graph", None, graph))
    member = plain(label_features(features, matrix, "text", texts))
    sides = [alone[:, :1], member[:, :1], alone[:, 1:], member[:, 1:]]
    assert np.allclose(both, unit(np.hstack(sides)))


@pytest.mark.parametrize("kind", ["graph", "graph+text"])
def test_a_graph_that_is_missing_is_named(three, kind):
    with pytest.raises(ValueError, match="no label graph"):
        label_features(*three[:2], kind, three[2])


@pytest.mark.parametrize("kind", ["text", "pifa+text", "graph+text"])
def test_texts_that_are_missing_are_named(three, kind):
    with pytest.raises(ValueError, match="no features of label texts"):
        label_features(*three[:2], kind)


def test_texts_in_other_columns_are_refused(three):
    with pytest.raises(ValueError, match="found 7 columns; expected 3"):
        label_features(*three[:2], "text", Features.of(sparse.csr_array((3, 7))))


def shared_documents(relevance):
    """Return the normalised rows of YᵀY, pair by pair."""
    documents, labels = relevance.shape
    product = np.zeros((labels, labels))
    for document in range(documents):
        for first in range(labels):
            for second in range(labels):
                product[first, second] += relevance[document, first] * relevance[document, second]
    return unit(product)


@given(
    st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 12), st.integers(0, 3), st.booleans()
)
@settings(deadline=None, max_examples=40)
def test_labels_of_the_same_documents(seed, documents, labels, dense, soft):
    rng = np.random.default_rng(seed)
    features = random_features(rng, documents, 20, dense)
    matrix = sparse.random_array(
        (documents, labels), density=0.4, format="csr", dtype=np.float32, rng=rng
    )
    matrix.data += np.float32(0 if soft else 1)  # relevances above 1 count as 1
    before = matrix.copy()
    output = label_features(features, matrix, "output")
    expected = shared_documents(np.minimum(matrix.toarray(), 1).astype(np.float64))
    assert output.shape == (labels, labels)
    assert output.widths == (labels, 0)
    assert np.allclose(plain(output), expected, atol=2e-5)
    is_well_formed(output)
    joint = label_features(features, matrix, "joint")
    assert joint.widths == (20 + labels, dense)
    pifa = plain(label_features(features, matrix, "pifa"))
    assert np.allclose(plain(joint), unit(np.hstack([pifa, expected])), atol=2e-5)
    is_well_formed(joint)
    assert (matrix != before).nnz == 0  # the caller's is as it was


def test_a_stored_zero_is_no_label_of_a_document():
    matrix = sparse.csr_array([[1.0, 1], [1, 1]])
    matrix.data[1] = matrix.data[2] = 0
    output = label_features(Features.of(sparse.csr_array((2, 3))), matrix, "output")
    assert output.sparse.toarray().tolist() == [[1, 0], [0, 1]]
    assert output.sparse.nnz == 2


def test_no_labels_and_no_documents():
    features = Features.of(sparse.csr_array((4, 5)))
    for kind, widths in {"pifa": (5, 5), "output": (0, 2), "joint": (5, 7)}.items():
        assert label_features(features, sparse.csr_array((4, 0)), kind).shape == (0, widths[0])
        none = label_features(features.take(slice(0)), sparse.csr_array((0, 2)), kind)
        assert none.shape == (2, widths[1])
