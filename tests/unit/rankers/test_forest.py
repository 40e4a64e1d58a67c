from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy import sparse

from longtail.config import Forest as Settings
from longtail.config import Search
from longtail.errors import ModelFolderError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.metrics.propensity import inverse_propensities
from longtail.rankers import forest as forest_module
from longtail.rankers.forest import Forest, fit_tree
from longtail.rankers.tail_classifier import fit_tail, no_tail

SETTINGS = Settings(trees=5, leaf_size=8, cost=3.0, prune=0.0)
N = 300
D = 40
L = 12


def planted(n=N, e=0, seed=0):
    """Return documents that hold words of their one to three labels, and the label matrix; document
    3 has no label.
    """
    random = np.random.default_rng(seed)
    y = np.zeros((n, L), bool)
    chances = 1 / np.arange(1, L + 1)
    for row in range(n):
        y[
            row, random.choice(L, random.integers(1, 4), replace=False, p=chances / chances.sum())
        ] = True
    y[3] = False
    words = np.random.default_rng(99).random((L, D)) * (
        np.random.default_rng(98).random((L, D)) < 0.15
    )
    x = y @ words + 0.3 * random.random((n, D)) * (random.random((n, D)) < 0.1)
    dense = (
        (y @ np.random.default_rng(97).normal(size=(L, e)) + 0.3 * random.normal(size=(n, e)))
        if e
        else None
    )
    return Features.of(sparse.csr_array(x, dtype=np.float32), dense), sparse.csr_array(
        y.astype(np.float32)
    )


def propensities(label_matrix):
    counts = np.bincount(label_matrix.indices, minlength=label_matrix.shape[1])
    return 1 / inverse_propensities(counts, max(label_matrix.shape[0], 3))


def forest(features, label_matrix, settings=SETTINGS, seed=0, chances=None):
    chances = propensities(label_matrix) if chances is None else chances
    given = features, label_matrix, chances, settings, seed
    trees = list(pool.run(lambda tree: fit_tree(*given, tree), range(settings.trees)))
    return Forest.of(trees, fit_tail(features, label_matrix), features, settings)


def whole(features):
    return np.hstack([features.dense, features.sparse.toarray()]).astype(np.float64)


def leaf_of(trees, root, row):
    node = root
    while trees.children[node]:
        own = slice(trees.weight_ptr[node], trees.weight_ptr[node + 1])
        margin = trees.weights[own].astype(np.float64) @ row[trees.columns[own]] + trees.bias[node]
        node = trees.children[node] + (margin > 0)
    return node


def naive_scores(model, features):
    """Return (n, L) scores, 0 where no tree finds a label, by plain loops."""
    trees = model.trees
    x = whole(features)
    gains = np.zeros((len(x), model.n_labels))
    for row, root in np.ndindex(len(x), len(trees.roots)):
        leaf = leaf_of(trees, trees.roots[root], x[row])
        own = slice(trees.leaf_ptr[leaf], trees.leaf_ptr[leaf + 1])
        gains[row, trees.labels[own]] += trees.gains[own]
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    unit = np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
    c = model.centroids
    centres = sparse.csr_array(
        (c.values, c.columns, c.ptr), shape=(model.n_labels, x.shape[1])
    ).toarray()
    distances = ((unit[:, None] - centres[None]) ** 2).sum(axis=2)
    near = 1 / (1 + np.exp(model.tail_gamma / 2 * distances))
    return (gains / len(trees.roots)) ** (1 - model.tail_share) * near**model.tail_share


def assert_ranked_as(found, scores, k):
    for row, expected in enumerate(scores):
        own = slice(found.indptr[row], found.indptr[row + 1])
        labels = found.indices[own]
        values = found.data[own]
        assert len(labels) == min(k, np.count_nonzero(expected))
        assert len(set(labels.tolist())) == len(labels)
        np.testing.assert_allclose(values, expected[labels], rtol=1e-5)
        np.testing.assert_allclose(values, np.sort(expected)[::-1][: len(values)], rtol=1e-5)
        keys = list(zip((-values).tolist(), labels.tolist(), strict=True))
        assert keys == sorted(keys)  # ties by label


@pytest.fixture(scope="module")
def data():
    return planted()


@pytest.fixture(scope="module")
def model(data):
    return forest(*data)


@pytest.mark.parametrize("k", [1, 4, None])
def test_search_is_a_walk_down_every_tree(model, k, monkeypatch):
    monkeypatch.setattr(forest_module, "_BLOCK", 16)
    features, _ = planted(60, seed=1)
    scores = naive_scores(model, features)
    assert_ranked_as(model.search(features, Search(), k), scores, k or L)
    assert (scores > 0).sum(axis=1).max() > 4
    assert scores.max() <= 1


def test_without_the_tail_a_score_is_the_mean_gain_of_the_leaves(data):
    alone = forest(*data, msgspec.structs.replace(SETTINGS, tail_share=0.0))
    assert_ranked_as(alone.search(data[0], Search(), 5), naive_scores(alone, data[0]), 5)
    bare = Forest.from_arrays(
        alone.to_arrays() | {f"tail_{name}": array for name, array in no_tail(L).items()}
    )
    assert bare.n_labels == L
    for own in (bare, alone):
        ranked = own.search(data[0], Search(), 5)
        found = own.explain_paths(data[0], 1)
        assert found.score == pytest.approx(found.gain)
        assert ranked.data.tobytes() == alone.search(data[0], Search(), 5).data.tobytes()


def test_leaves_keep_the_mean_relevance_over_propensity_of_their_documents(data, model):
    features, label_matrix = data
    gains = label_matrix.toarray() * propensities(label_matrix).min() / propensities(label_matrix)
    x = whole(features)
    trees = model.trees
    for root in trees.roots:
        leaves = np.array([leaf_of(trees, root, row) for row in x])
        leaves[3] = -1  # has no label, so no part
        assert len(set(leaves.tolist())) > 20
        for leaf in set(leaves.tolist()) - {-1}:
            expected = gains[leaves == leaf].mean(axis=0)
            own = slice(trees.leaf_ptr[leaf], trees.leaf_ptr[leaf + 1])
            assert np.count_nonzero(expected) == own.stop - own.start
            np.testing.assert_allclose(trees.gains[own], expected[trees.labels[own]], rtol=1e-5)


def test_a_full_leaf_keeps_its_best_labels(data):
    settings = msgspec.structs.replace(SETTINGS, trees=1, leaf_size=N)
    full, cut = (
        fit_tree(
            *data, propensities(data[1]), msgspec.structs.replace(settings, leaf_labels=most), 0, 0
        )
        for most in (L, 3)
    )
    assert full["children"].tolist() == [0]
    assert sorted(full["labels"].tolist()) == list(range(L))
    assert cut["labels"].tolist() == full["labels"][:3].tolist()
    assert (np.diff(full["gains"]) <= 0).all()


def test_a_planted_problem_is_learnt(model):
    features, truth = planted(200, seed=2)
    ranked = model.search(features, Search(), 1)
    hits = [truth[row, ranked.indices[row]] > 0 for row in range(200) if row != 3]
    assert np.mean(hits) > 0.8


def test_rare_labels_gain_by_propensities(data):
    features, label_matrix = data
    even = forest(features, label_matrix, chances=np.ones(L)).search(features, Search(), 1)
    scored = forest(features, label_matrix).search(features, Search(), 1)
    assert np.sum(scored.indices >= L // 2) > np.sum(even.indices >= L // 2)


def test_the_tail_is_the_mean_direction_of_documents():
    features, label_matrix = planted(e=3)
    x = whole(features)
    tail = fit_tail(features, label_matrix)
    units = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    means = label_matrix.toarray().T @ units
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    means[np.abs(means) < 0.01] = 0
    found = sparse.csr_array(
        (tail["values"], tail["columns"], tail["ptr"]), shape=means.shape
    ).toarray()
    np.testing.assert_allclose(found, means, atol=1e-5)
    np.testing.assert_allclose(tail["squares"], (means**2).sum(axis=1), rtol=1e-4)


@pytest.mark.parametrize("sparse_block", [True, False])
def test_dense_columns_are_columns_too(sparse_block):
    features, label_matrix = planted(e=6)
    if not sparse_block:
        features = Features.of(features.dense)
    mixed = forest(features, label_matrix)
    assert mixed.trees.columns.min() < 6
    assert_ranked_as(mixed.search(features, Search(), 3), naive_scores(mixed, features), 3)


def test_threads_change_no_byte_and_seeds_do(data, model, monkeypatch):
    monkeypatch.setattr(forest_module, "_BLOCK", 16)
    features, label_matrix = data
    stored = []
    for count in (1, 3):
        with pool.threads(count):
            own = forest(features, label_matrix)
            ranked = own.search(features, Search(), 5)
            stored.append(
                [array.tobytes() for array in own.to_arrays().values()] + [ranked.data.tobytes()]
            )
    assert stored[0] == stored[1]
    other = forest(features, label_matrix, seed=1).to_arrays()["tree_weights"]
    assert other.tobytes() != model.trees.weights.tobytes()
    roots = (
        model.trees.weight_ptr[model.trees.roots + 1] - model.trees.weight_ptr[model.trees.roots]
    )
    assert len(set(roots.tolist())) > 1  # trees differ from each other


def test_stored_arrays_give_the_same_forest(data, model, tmp_path):
    for name, array in model.to_arrays().items():
        np.save(tmp_path / name, array)
    names = list(model.to_arrays())
    mapped = Forest.from_arrays(
        {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in names}
    )
    one = model.search(data[0], Search(), 5)
    other = mapped.search(data[0], Search(), 5)
    assert one.data.tobytes() == other.data.tobytes()
    assert one.indices.tobytes() == other.indices.tobytes()


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("tree_roots", 0, 10**6),
        ("tree_children", 0, 10**6),
        ("tree_children", 0, -1),
        ("tree_children", 1, 1),  # a node that is its own child
        ("tree_columns", 3, D),
        ("tree_columns", 3, -1),
        ("tree_labels", 3, L),
        ("tree_gains", 3, 0.0),
        ("tree_gains", 3, np.nan),
        ("tree_weight_ptr", -1, 3),
        ("tree_weight_ptr", 1, 10**6),
        ("tree_leaf_ptr", 0, -2),
        ("tail_ptr", -1, 10**6),
        ("tail_columns", 0, D),
        ("shape", 0, D - 10),
    ],
)
def test_arrays_that_do_not_fit_are_refused(model, name, at, value):
    arrays = model.to_arrays()
    changed = arrays[name].copy()
    changed[at] = value
    with pytest.raises(ModelFolderError, match="do not fit"):
        Forest.from_arrays(arrays | {name: changed})


@pytest.mark.parametrize(
    "name", ["tree_bias", "tree_weights", "tree_gains", "tail_values", "tail_squares", "tree_roots"]
)
def test_arrays_of_other_lengths_are_refused(model, name):
    arrays = model.to_arrays()
    with pytest.raises(ModelFolderError, match="do not fit"):
        Forest.from_arrays(arrays | {name: arrays[name][:0]})


def test_arrays_that_are_missing_or_of_another_kind_are_refused(model):
    arrays = model.to_arrays()
    with pytest.raises(ModelFolderError, match="tree_bias"):
        Forest.from_arrays({name: array for name, array in arrays.items() if name != "tree_bias"})
    for changed in (
        {"shape": np.arange(3)},
        {"tree_columns": arrays["tree_columns"].astype(np.float64)},
    ):
        with pytest.raises(ModelFolderError, match="train the model again"):
            Forest.from_arrays(arrays | changed)


def test_excluded_labels_make_room_for_others(data, model):
    features, _ = data
    best = model.search(features, Search(), 2)
    exclude = sparse.csr_array((best.data, best.indices, best.indptr), shape=(N, L))
    scores = naive_scores(model, features)
    scores[exclude.toarray() > 0] = 0
    assert_ranked_as(model.search(features, Search(), 3, exclude), scores, 3)
    with pytest.raises(ValueError, match="exclude"):
        model.search(features, Search(), 3, exclude[:5])


def test_features_of_another_width_are_refused(model):
    with pytest.raises(ValueError, match="columns"):
        model.search(Features.of(sparse.csr_array((2, D + 1), dtype=np.float32)), Search(), 3)


def test_empty_documents_come_to_leaves_too(model):
    features = Features.of(sparse.csr_array((3, D), dtype=np.float32))
    assert_ranked_as(model.search(features, Search(), 5), naive_scores(model, features), 5)
    none = model.search(Features.of(sparse.csr_array((0, D), dtype=np.float32)), Search(), 5)
    assert none.shape == (0, L)


@pytest.mark.parametrize("n", [1, 5])
def test_fewer_documents_than_a_leaf(n):
    features, label_matrix = planted(10)
    few = forest(features.take(slice(0, n)), label_matrix[:n])
    assert len(few.trees.children) == SETTINGS.trees
    assert_ranked_as(few.search(features, Search(), None), naive_scores(few, features), L)


def test_one_label_alone_and_no_labels_at_all():
    features, label_matrix = planted(60)
    single = forest(features, sparse.csr_array(label_matrix[:, [0]]))
    assert set(single.search(features, Search(), 3).indices.tolist()) == {0}
    nothing = forest(features, sparse.csr_array((60, 4), dtype=np.float32))
    assert nothing.search(features, Search(), 3).nnz == 0


@pytest.mark.parametrize("e", [0, 4])
def test_an_explanation_adds_up_to_the_score(e):
    features, label_matrix = planted(e=e)
    model = forest(features, label_matrix)
    ranked = model.search(features, Search(), None)
    for row in (0, 7):
        own = slice(ranked.indptr[row], ranked.indptr[row + 1])
        for label, score in zip(
            ranked.indices[own].tolist(), ranked.data[own].tolist(), strict=True
        ):
            told = model.explain_paths(features.take(slice(row, None)), label)
            assert told.score == pytest.approx(score, rel=1e-6)
            assert told.gain == pytest.approx(np.mean([path.gain for path in told.trees]))
            assert told.score == pytest.approx(
                told.gain ** (1 - told.tail_share) * told.nearness**told.tail_share
            )
            assert told.cosine == pytest.approx(told.products.values @ told.products.weights)
            for root, path in zip(model.trees.roots, told.trees, strict=True):
                assert path.leaf == leaf_of(model.trees, root, whole(features)[row])
                for split in path.splits:
                    total = split.products.values @ split.products.weights + split.bias
                    assert split.margin == pytest.approx(total)
                    assert (
                        split.products.values == whole(features)[row, split.products.columns]
                    ).all()
    missing = set(range(L)) - set(ranked.indices[own].tolist())
    if missing:
        assert model.explain_paths(features.take(slice(7, None)), missing.pop()).score == 0
