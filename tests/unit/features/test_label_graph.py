"""The label graph: what enters the walks, what comes out of them, and its normal form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from longtail.features import label_graph as module
from longtail.features.label_graph import label_graph, normalised
from longtail.kernels import pool
from shown_progress import shown_progress


@pytest.fixture
def matrix():
    rng = np.random.default_rng(5)
    return sparse.random_array((120, 90), density=0.04, format="csr", dtype=np.float32, rng=rng)


def test_any_threads_give_the_same_bytes(matrix, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 7)
    results = []
    for count in (1, 3):
        with pool.threads(count):
            graph = normalised(label_graph(matrix, seed=4))
        results.append([a.tobytes() for a in (graph.data, graph.indices, graph.indptr)])
    monkeypatch.undo()
    whole = normalised(label_graph(matrix, seed=4))
    assert (
        results[0] == results[1] == [a.tobytes() for a in (whole.data, whole.indices, whole.indptr)]
    )
    assert (label_graph(matrix, seed=5) != label_graph(matrix, seed=4)).nnz


def test_rows_are_short_and_have_themselves(matrix):
    graph = label_graph(matrix, seed=0, steps=300, keep=4)
    assert graph.shape == (90, 90)
    assert np.diff(graph.indptr).max() == 5
    assert (graph.diagonal() >= 1).all()
    assert graph.has_canonical_format
    together = (matrix.T @ matrix).toarray() > 0
    near = label_graph(matrix, seed=0, reset=1.0, keep=90).toarray() > 0
    assert not (near & ~together)[
        ~np.eye(90, dtype=bool)
    ].any()  # one step leads to labels of one document
    assert near.sum() > 200


def test_labels_with_many_documents_are_left_out():
    rows = np.zeros((6, 4), np.float32)
    rows[:, 0] = 1  # on all six documents
    rows[:3, 1] = rows[2:4, 2] = 1
    graph = label_graph(sparse.csr_array(rows), seed=0, max_documents=5).toarray()
    assert graph[0].tolist() == [1, 0, 0, 0]
    assert graph[1:, 0].tolist() == [0, 0, 0]
    assert graph[1].sum() == graph[2].sum() == 400
    assert (graph[1:3, 1:3] > 0).all()
    assert graph[3].tolist() == [0, 0, 0, 1]
    for limit in (0, 6):
        graph = label_graph(sparse.csr_array(rows), seed=0, max_documents=limit).toarray()
        assert (graph[:3, :3] > 0).all()


def test_stored_zeros_and_pairs_twice_are_no_pairs():
    plain = sparse.csr_array(np.array([[1.0, 1, 0], [0, 1, 1]], np.float32))
    odd = sparse.csr_array(
        (
            np.array([2, 5, 1, 0, 1, 1], np.float32),
            np.array([1, 0, 1, 0, 2, 1]),
            np.array([0, 3, 6]),
        ),
        (2, 3),
    )
    before = odd.data.copy()
    assert (label_graph(odd, seed=1).toarray() == label_graph(plain, seed=1).toarray()).all()
    assert (odd.data == before).all()
    assert len(odd.indices) == 6


def test_normal_form():
    graph = sparse.csr_array(np.array([[3.0, 1, 0], [0, 2, 0], [0, 6, 1]], np.float32))
    result = normalised(graph)
    plain = graph.toarray().astype(np.float64)
    expected = np.diag(plain.sum(1) ** -0.5) @ plain @ np.diag(plain.sum(0) ** -0.5)
    assert np.allclose(result.toarray(), expected)
    assert result.dtype == np.float32
    assert graph.data.tolist() == [3, 1, 2, 6, 1]


def test_labels_alone_have_1():
    assert (
        normalised(label_graph(sparse.csr_array(np.eye(3, 4)), seed=0)).toarray().tolist()
        == np.eye(4).tolist()
    )


def test_no_labels_and_no_documents():
    assert normalised(label_graph(sparse.csr_array((3, 0)), seed=0)).shape == (0, 0)
    assert normalised(label_graph(sparse.csr_array((0, 2)), seed=0)).toarray().tolist() == [
        [1, 0],
        [0, 1],
    ]


def test_progress_is_told_by_labels(matrix, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 50)
    with shown_progress() as message:
        label_graph(matrix, seed=0)
    assert message == [("label graph", 90, "labels"), 50, 40, "end"]
