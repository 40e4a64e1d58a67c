"""One classifier a label: beside scikit-learn's, in batches, on hard negatives, with penalties of
their own.
"""

from __future__ import annotations

import numpy as np
import pytest
from fitting import fit_tree_ranker, solved
from msgspec.structs import replace
from scipy import sparse
from sklearn.svm import LinearSVC

from longtail.config import Ranker, Search
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.rankers import one_vs_all
from longtail.rankers.base import LabelHints
from longtail.rankers.one_vs_all import LabelProblems, label_batches, nearest_labels
from longtail.tree.tree import LabelTree

N = 70
D = 12
E = 3
L = 40
EXACT = Ranker(tolerance=1e-6, prune=0.0, max_passes=3000, weights="float32")
SOLVERS = {
    "dual": EXACT,
    "newton": replace(EXACT, solver="newton"),
}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(one_vs_all, "BATCH", 32)
    monkeypatch.setattr(one_vs_all, "_SPAN", 16)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x = random.random((N, D)) * (random.random((N, D)) < 0.4)
    dense = random.normal(size=(N, E))
    margins = np.hstack([x, dense]) @ random.normal(size=(D + E, L)) + 0.3 * random.normal(
        size=(N, L)
    )
    y = margins > np.quantile(margins, 0.85, axis=0)
    y[:, 7] = False  # a label without documents
    return Features.of(sparse.csr_array(x), dense), sparse.csr_array(y.astype(np.float32))


def flat():
    return LabelTree(np.random.default_rng(1).permutation(L).astype(np.int32), ())


def weights_of(chunks):
    """Return (dense and sparse columns and the bias, labels)."""
    table = np.zeros((E + D + 1, chunks.n_nodes))
    for node in range(chunks.n_nodes):
        columns, values, dense = chunks.weights(node)
        table[:E, node] = dense
        table[E + columns, node] = values
    return table


def reference(features, targets, rows, penalty=1.0):
    """Return scikit-learn's weights over the dense block divided by √penalty, in terms of the block
    itself.
    """
    x = np.hstack([features.dense / np.sqrt(penalty), features.sparse.toarray()])[rows]
    model = LinearSVC(dual=True, tol=1e-10, max_iter=1_000_000, random_state=0).fit(
        x, targets[rows]
    )
    return np.concatenate(
        [model.coef_[0, :E] / np.sqrt(penalty), model.coef_[0, E:], model.intercept_]
    )


@pytest.mark.parametrize("ranker", SOLVERS.values(), ids=SOLVERS.keys())
def test_each_label_is_the_classifier_over_all_documents(data, ranker):
    features, y = data
    tree = flat()
    fitted = fit_tree_ranker(features, y, tree, ranker)
    (chunks,) = fitted.levels
    assert (chunks.n_nodes, chunks.n_chunks) == (L, 2)
    table = weights_of(chunks)
    targets = y.toarray()[:, tree.order]
    for label in range(L):
        if targets[:, label].any():
            expected = reference(features, targets[:, label], np.arange(N))
            np.testing.assert_allclose(table[:, label], expected, atol=5e-3)
    empty = int(tree.positions[7])
    assert table[:-1, empty].tolist() == [0] * (E + D)
    assert table[-1, empty] == -1


@pytest.mark.parametrize("ranker", SOLVERS.values(), ids=SOLVERS.keys())
def test_the_dense_block_may_have_a_penalty_of_its_own(data, ranker):
    features, y = data
    plain, penalised = (
        weights_of(solved(LabelProblems.of(features, y, replace(ranker, dense_penalty=penalty), 0)))
        for penalty in (1.0, 9.0)
    )
    for label in (0, 20):
        expected = reference(features, y.toarray()[:, label], np.arange(N), penalty=9.0)
        np.testing.assert_allclose(penalised[:, label], expected, atol=5e-3)
    assert np.abs(penalised[:E]).mean() < 0.8 * np.abs(plain[:E]).mean()


def test_labels_are_trained_on_hard_negatives_and_some_by_chance(data):
    features, y = data
    candidates = sparse.csr_array(
        (np.random.default_rng(3).random((N, L)) < 0.02).astype(np.float32)
    )
    problems = LabelProblems.of(
        features, y, replace(EXACT, hard_negatives=1), 0, LabelHints(candidates)
    )
    pointers, documents = problems.documents
    table = weights_of(solved(problems))
    wanted = (y + candidates).toarray() > 0
    by_chance = 0
    for label in (0, 15, 16, 39):
        block = label // 16
        rows = documents[pointers[block] : pointers[block + 1]]
        needed = np.flatnonzero(wanted[:, block * 16 : block * 16 + 16].any(axis=1))
        assert set(needed.tolist()) <= set(rows.tolist())
        by_chance += len(rows) - len(needed)
        np.testing.assert_allclose(
            table[:, label], reference(features, y.toarray()[:, label], rows), atol=5e-3
        )
    assert 0 < by_chance <= 2 * candidates.nnz
    assert len(documents) < 3 * N


def test_without_candidates_centroids_attract_them(data):
    features, y = data
    rows = np.hstack([features.dense, features.sparse.toarray()])
    centroids = y.toarray().T @ rows
    norms = np.linalg.norm(centroids, axis=1, keepdims=True)
    centroids = np.divide(centroids, norms, out=np.zeros_like(centroids), where=norms > 0)
    small = np.abs(centroids) < one_vs_all._CENTROID_WEIGHT
    small[:, :E] = False
    scores = rows @ np.where(small, 0, centroids).T
    found = nearest_labels(features, y, 3)
    assert (np.diff(found.indptr) == 3).all()
    for row in range(N):
        own = found.indices[found.indptr[row] : found.indptr[row + 1]]
        np.testing.assert_allclose(np.sort(scores[row, own]), np.sort(scores[row])[-3:], atol=5e-3)
    given = LabelProblems.of(features, y, replace(EXACT, hard_negatives=3), 0)
    assert (
        given.documents[1].tolist()
        == LabelProblems.of(features, y, replace(EXACT, hard_negatives=9), 0, LabelHints(found))
        .documents[1]
        .tolist()
    )


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
def test_batches_and_threads_change_no_byte(data, monkeypatch, weights):
    features, y = data
    ranker = Ranker(weights=weights, prune=0.01, solver="newton")
    runs = []
    for threads in (1, 3):
        with pool.threads(threads):
            fitted = fit_tree_ranker(features, y, flat(), ranker)
            ranked = fitted.search(features, Search(score="sigmoid"), 5)
        runs.append(
            [*fitted.levels[0].to_arrays().values(), ranked.indptr, ranked.indices, ranked.data]
        )
    assert fitted.levels[0].dtype == weights
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*runs, strict=True))


def test_search_looks_at_every_label(data):
    features, y = data
    tree = flat()
    fitted = fit_tree_ranker(features, y, tree, EXACT)
    rows = np.hstack([features.dense, features.sparse.toarray(), np.ones((N, 1))])
    margins = rows @ weights_of(fitted.levels[0])
    expected = np.zeros((N, L))
    expected[:, tree.order] = 1 / (1 + np.exp(-margins))
    for search in (Search(score="sigmoid", beam_size=1), Search(score="sigmoid", exact=True)):
        found = fitted.search(features, search, 4)
        for row in range(N):
            own = slice(found.indptr[row], found.indptr[row + 1])
            np.testing.assert_allclose(found.data[own], np.sort(expected[row])[::-1][:4], atol=1e-5)
            np.testing.assert_allclose(
                found.data[own], expected[row, found.indices[own]], atol=1e-5
            )
    one = fitted.search(features.take(np.array([5])), Search(score="sigmoid"), 4)
    assert one.data.tobytes() == found.data[found.indptr[5] : found.indptr[6]].tobytes()


def test_batches_cover_all_labels():
    assert label_batches(70) == [(0, 32), (32, 64), (64, 70)]
    assert label_batches(0) == []
