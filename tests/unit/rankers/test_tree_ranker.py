from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from fitting import fit_tree_ranker
from msgspec.structs import replace
from scipy import sparse, special
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from longtail.config import Ranker, Search
from longtail.errors import ConfigError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.rankers import level_problems, spans
from longtail.rankers.level_problems import (
    LevelProblems,
    check_level_settings,
    fit_rows,
    uses_matcher,
)
from longtail.rankers.tree import TreeRanker
from longtail.search.ensemble import mean_scores
from longtail.tree.tree import LabelTree

D = 15
# labels 0–8 in this order under nodes of 3, 2, 2 and 2 labels, these under two nodes
TREE = LabelTree(
    np.array([4, 0, 8, 2, 6, 1, 7, 3, 5], np.int32),
    (np.array([0, 2, 4], np.int64), np.array([0, 3, 5, 7, 9], np.int64)),
)
MEMBERS = [  # labels below each node of each level
    [{4, 0, 8, 2, 6}, {1, 7, 3, 5}],
    [{4, 0, 8}, {2, 6}, {1, 7}, {3, 5}],
    [{label} for label in TREE.order.tolist()],
]
EXACT = Ranker(tolerance=1e-5, prune=0.0, max_passes=3000, weights="float32")


def documents(n=60, e=0, labels=9, seed=0):
    """Return features and labels that have to do with each other; document 3 has no label."""
    random = np.random.default_rng(seed)
    x = random.random((n, D)) * (random.random((n, D)) < 0.4)
    dense = random.normal(size=(n, e))
    margins = np.hstack([x, dense]) @ random.normal(size=(D + e, labels)) + 0.3 * random.normal(
        size=(n, labels)
    )
    y = margins > np.quantile(margins, 0.75, axis=0)
    y[3] = False
    return Features.of(sparse.csr_array(x), dense), sparse.csr_array(y.astype(np.float32))


def dense_rows(features):
    return np.hstack([features.dense, features.sparse.toarray()]).astype(np.float64)


def weights(chunks, bias=1.0):
    """Return (dense and sparse columns, nodes), and what the bias adds to each margin."""
    table = np.zeros((chunks.dense_width + chunks.n_columns, chunks.n_nodes))
    added = np.zeros(chunks.n_nodes)
    for node in range(chunks.n_nodes):
        columns, values, dense = chunks.weights(node)
        table[: chunks.dense_width, node] = dense
        last = columns == chunks.n_columns
        table[chunks.dense_width + columns[~last], node] = values[~last]
        added[node] = values[last].sum() * bias
    return table, added


def true_relevance(label_matrix, level):
    """Return how many labels of each document lie below each node."""
    y = label_matrix.toarray()
    return np.stack([y[:, sorted(members)].sum(axis=1) for members in MEMBERS[level]], axis=1)


def path_scores(ranker, features, score):
    """Return for each level the (n, nodes) products along the paths."""
    found = []
    x = dense_rows(features)
    for level, chunks in enumerate(ranker.levels):
        table, added = weights(chunks, ranker.bias)
        margins = x @ table + added
        power = 2 if score == "hinge-2" else 3
        own = (
            special.expit(margins)
            if score == "sigmoid"
            else np.exp(-(np.maximum(0, 1 - margins) ** power))
        )
        if level:
            own = own * found[-1][:, ranker.tree.parents(level)]
        found.append(own)
    return found


def assert_trained_on(chunks, level, features, label_matrix, allowed, ranker):
    """Compare each node with scikit-learn's classifier on the documents allowed to its parent (n,
    parents).
    """
    table, added = weights(chunks, ranker.bias)
    x = dense_rows(features)
    counts = true_relevance(label_matrix, level)
    total = label_matrix.toarray().sum(axis=1, keepdims=True)
    share = (
        np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
        if ranker.cost_sensitive
        else counts > 0
    )
    negative = ranker.cost_negative * (ranker.alpha if ranker.cost_sensitive else 1)
    costs = np.where(counts > 0, ranker.cost_positive * share, negative)
    parents = TREE.parents(level) if level else np.zeros(2, int)
    kind = LinearSVC if ranker.loss == "squared-hinge" else LogisticRegression
    settings = {
        "dual": True,
        "tol": 1e-10,
        "max_iter": 1_000_000,
        "intercept_scaling": ranker.bias,
        "random_state": 0,
    }
    settings |= {"solver": "liblinear"} if kind is LogisticRegression else {}
    for node, parent in enumerate(parents):
        mine = allowed[:, parent]
        model = kind(**settings).fit(x[mine], counts[mine, node] > 0, costs[mine, node])
        np.testing.assert_allclose(table[:, node], model.coef_[0], atol=5e-3)
        np.testing.assert_allclose(added[node], np.ravel(model.intercept_)[0], atol=5e-3)


# -------------------------------------------------------------------------------------------------
# training


@pytest.mark.parametrize(
    "ranker",
    [
        Ranker(tolerance=1e-5, prune=0.0, max_passes=3000, weights="float32", cost_positive=2.0, bias=0.5),
        Ranker(tolerance=1e-5, prune=0.0, max_passes=3000, weights="float32", loss="logistic", cost_negative=3.0),
        Ranker(
            tolerance=1e-5, prune=0.0, max_passes=3000, weights="float32", cost_sensitive=True, alpha=0.3,
            cost_positive=4.0, cost_negative=2.0,
        ),
    ],
    ids=["hinge", "logistic", "cost-sensitive"],
)  # fmt: skip
def test_every_level_is_trained_on_the_documents_of_the_true_parents(ranker):
    features, label_matrix = documents(e=2)
    fitted = fit_tree_ranker(features, label_matrix, TREE, ranker)
    assert fitted.bias == ranker.bias
    assert [chunks.n_nodes for chunks in fitted.levels] == [2, 4, 9]
    assert_trained_on(fitted.levels[0], 0, features, label_matrix, np.ones((60, 1), bool), ranker)
    for level in (1, 2):
        allowed = true_relevance(label_matrix, level - 1) > 0
        assert_trained_on(fitted.levels[level], level, features, label_matrix, allowed, ranker)


@pytest.mark.parametrize("negatives", ["man", "tfn+man"])
def test_documents_that_the_levels_above_send_are_trained_on(negatives):
    features, label_matrix = documents(e=2)
    ranker = Ranker(
        tolerance=1e-5, prune=0.0, max_passes=3000, weights="float32", negatives=negatives
    )
    fitted = fit_tree_ranker(
        features, label_matrix, TREE, ranker, Search(beam_size=1, score="hinge-3")
    )
    for level in (1, 2):
        allowed = np.zeros((60, TREE.widths[level - 1]), bool)
        allowed[np.arange(60), beam(fitted, features, "hinge-3", 1)[level - 1][:, 0]] = True
        if negatives == "tfn+man":
            true = true_relevance(label_matrix, level - 1) > 0
            assert (true & ~allowed).any()
            assert (allowed & ~true).any()
            allowed |= true
        assert_trained_on(fitted.levels[level], level, features, label_matrix, allowed, ranker)


def test_costs_and_negatives_of_each_level_are_those_of_training_level_by_level():
    features, label_matrix = documents(e=2)
    costs = ((1.0, 2.0), (4.0, 0.5), (2.0, 3.0))
    negatives = ("man", "tfn", "tfn+man")
    search = Search(beam_size=1)
    base = replace(EXACT, max_passes=20, cost_positive=7.0)
    ranker = replace(base, level_costs=costs, level_negatives=negatives)
    fitted = fit_tree_ranker(features, label_matrix, TREE, ranker, search)
    levels = []
    relevance = TREE.coarsen(label_matrix)
    for level, (cost_positive, cost_negative) in enumerate(costs):
        own = replace(
            base, cost_positive=cost_positive, cost_negative=cost_negative, negatives=negatives[level]
        )  # fmt: skip
        levels.append(LevelProblems.of(features, relevance, TREE, levels, own, search, 0).solve())
    for own, other in zip(fitted.levels, levels, strict=True):
        assert all(
            other.to_arrays()[name].tobytes() == array.tobytes()
            for name, array in own.to_arrays().items()
        )
    plain = fit_tree_ranker(features, label_matrix, TREE, base, search)
    same = [
        np.array_equal(weights(one)[0], weights(two)[0])
        for one, two in zip(plain.levels, levels, strict=True)
    ]
    assert same == [False] * 3


def test_labels_alone_are_one_level():
    features, label_matrix = documents(e=2)
    flat = LabelTree(np.arange(9, dtype=np.int32), ())
    own = fit_tree_ranker(features, label_matrix, flat, replace(EXACT, level_costs=((3.0, 0.5),)))
    other = fit_tree_ranker(
        features, label_matrix, flat, replace(EXACT, cost_positive=3.0, cost_negative=0.5)
    )
    np.testing.assert_array_equal(weights(own.levels[0])[0], weights(other.levels[0])[0])


def test_settings_of_another_number_of_levels_are_refused():
    features, label_matrix = documents()
    with pytest.raises(
        ConfigError, match=r"level_costs: found settings for 2 levels; expected 3, .*2 → 4 → 9"
    ):
        fit_tree_ranker(features, label_matrix, TREE, Ranker(level_costs=((1.0, 1.0),) * 2))
    with pytest.raises(
        ConfigError, match=r"level_negatives: found settings for 1 level; expected 3"
    ):
        check_level_settings(Ranker(level_negatives=("tfn",)), TREE.widths)


@pytest.mark.parametrize(
    ("negatives", "levels", "expected"),
    [
        ("tfn", (), False),
        ("man", (), True),
        ("man", ("tfn", "tfn"), False),
        ("tfn", ("tfn", "tfn+man"), True),
        ("tfn", ("man", "tfn"), False),  # the first level has nothing above it
    ],
)
def test_whether_a_search_finds_negatives(negatives, levels, expected):
    assert uses_matcher(Ranker(negatives=negatives, level_negatives=levels)) == expected


def test_bootstrapping_knows_no_costs_of_levels():
    features, label_matrix = documents(e=4)
    relevance = TREE.coarsen(label_matrix)
    given = TREE.coarsen(label_matrix)[0]
    ranker = replace(EXACT, max_passes=10)
    rows = [
        fit_rows(features.dense, relevance[1], TREE, 1, given, own, 0)
        for own in (ranker, replace(ranker, level_costs=((9.0, 9.0),) * 3))
    ]
    np.testing.assert_array_equal(rows[0][0], rows[1][0])


def test_a_document_that_is_sent_with_a_score_of_0_counts_too():
    features, label_matrix = documents()
    far = Features.of(features.sparse * np.float32(1000))  # margins so bad that scores are 0
    above = [
        LevelProblems.of(features, TREE.coarsen(label_matrix), TREE, [], EXACT, Search(), 0).solve()
    ]
    man = Ranker(negatives="man")
    sent = level_problems._parents(
        far, TREE.coarsen(label_matrix), TREE, above, man, Search(beam_size=2)
    ).tocsc()
    assert (
        path_scores(TreeRanker(TREE, tuple(above), 1.0), far, "hinge-3")[0].astype(np.float32) == 0
    ).any()
    assert sent.indptr.tolist() == [0, 60, 120]
    assert sent.indices.tolist() == [*range(60), *range(60)]


def test_relevance_of_eq_6_by_hand():
    label_matrix = sparse.csr_array(
        np.array([[1, 0, 1, 0, 1, 0, 0, 0, 0], [0, 3, 0, 0, 1, 0, 0, 0, 0]], np.float32)
    )
    coarse, fine, labels = TREE.coarsen(label_matrix)
    ranker = Ranker(cost_sensitive=True)

    def shares(matrix):
        pointers, rows, values = spans.positives_of(matrix, ranker)
        table = np.zeros(matrix.shape)
        for node, (start, end) in enumerate(pairwise(pointers)):
            table[rows[start:end], node] = values[start:end]
        return table

    np.testing.assert_allclose(shares(coarse), [[1, 0], [0.25, 0.75]])
    np.testing.assert_allclose(shares(fine), [[2 / 3, 1 / 3, 0, 0], [0.25, 0, 0.75, 0]], rtol=1e-6)
    np.testing.assert_allclose(
        shares(labels)[0], [1 / 3, 1 / 3, 0, 1 / 3, 0, 0, 0, 0, 0], rtol=1e-6
    )
    np.testing.assert_allclose(shares(labels)[1], [0.25, 0, 0, 0, 0, 0.75, 0, 0, 0])
    assert (spans.positives_of(labels, Ranker())[2] == 1).all()


@pytest.mark.parametrize(
    "ranker", [Ranker(negatives="tfn+man"), Ranker(loss="logistic", weights="float32")]
)
def test_bytes_are_the_same_for_any_number_of_threads(monkeypatch, ranker):
    monkeypatch.setattr(spans, "_TASK", 100)
    features, label_matrix = documents(e=2)
    runs = []
    for count in (1, 3, 3):
        with pool.threads(count):
            fitted = fit_tree_ranker(features, label_matrix, TREE, ranker, seed=7)
            ranked = fitted.search(features, Search(), 3)
        arrays = [array for chunks in fitted.levels for array in chunks.to_arrays().values()]
        runs.append(
            [array.tobytes() for array in (*arrays, ranked.data, ranked.indices, ranked.indptr)]
        )
    assert runs[0] == runs[1] == runs[2]


# -------------------------------------------------------------------------------------------------
# searching


def beam(ranker, features, score, size):
    """Return the best nodes of each level (n, size) among the children of the best of the level
    above.
    """
    kept = []
    for level, scores in enumerate(path_scores(ranker, features, score)):
        if level:
            parents = ranker.tree.parents(level)
            reached = (kept[-1][:, :, None] == parents).any(axis=1)
            scores = np.where(reached, scores, -1)
        kept.append(np.argsort(-scores, axis=1, kind="stable")[:, :size])
    return kept


def rows_of(ranked):
    return [
        (ranked.indices[start:end], ranked.data[start:end])
        for start, end in zip(ranked.indptr[:-1], ranked.indptr[1:], strict=True)
    ]


@pytest.fixture(scope="module")
def fitted():
    """Documents, labels, and a ranker of each loss."""
    features, label_matrix = documents(e=2)
    hinge = Ranker(weights="float32", prune=0.01)
    logistic = Ranker(weights="float32", prune=0.01, loss="logistic")
    return (
        features,
        label_matrix,
        *(fit_tree_ranker(features, label_matrix, TREE, one) for one in (hinge, logistic)),
    )


@pytest.mark.parametrize("score", ["hinge-2", "hinge-3", "sigmoid"])
def test_search_is_that_of_dense_matrices(fitted, score):
    features, _, hinge, logistic = fitted
    ranker = logistic if score == "sigmoid" else hinge
    kept = beam(ranker, features, score, 2)
    scores = path_scores(ranker, features, score)[-1]
    ranked = ranker.search(features, Search(beam_size=2, score=score), 3)
    everything = ranker.search(features, Search(beam_size=2, score=score), None)
    for at, (labels, found) in enumerate(rows_of(ranked)):
        reached = TREE.refine(1, kept[1][at])
        best = reached[np.argsort(-scores[at, reached], kind="stable")]
        np.testing.assert_allclose(found, scores[at, best[:3]], atol=1e-5)
        np.testing.assert_allclose(found, scores[at, TREE.positions[labels]], atol=1e-5)
        assert set(rows_of(everything)[at][0].tolist()) == set(TREE.order[reached].tolist())


def margins_of(ranker, features):
    """Return (n, nodes of the last level) W x + b."""
    table, added = weights(ranker.levels[-1], ranker.bias)
    return dense_rows(features) @ table + added


@pytest.mark.parametrize("score", ["hinge-3", "sigmoid"])
@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_labels_ranked_by_margin_are_the_children_of_the_beam(fitted, score, beam_size):
    features, _, hinge, logistic = fitted
    ranker = logistic if score == "sigmoid" else hinge
    kept = beam(ranker, features, score, beam_size)
    margins = margins_of(ranker, features)
    search = Search(beam_size=beam_size, score=score, last_level="margin")
    ranked, by_path = (
        ranker.search(features, replace(search, last_level=name), 3) for name in ("margin", "path")
    )
    everything = ranker.search(features, search, None)
    assert (everything.data < 0).any()
    for at, (labels, found) in enumerate(rows_of(ranked)):
        reached = TREE.refine(1, kept[1][at])
        best = reached[np.argsort(-margins[at, reached], kind="stable")]
        np.testing.assert_allclose(found, margins[at, best[:3]], atol=1e-5)
        np.testing.assert_allclose(found, margins[at, TREE.positions[labels]], atol=1e-5)
        assert set(rows_of(everything)[at][0].tolist()) == set(TREE.order[reached].tolist())
    if (
        score == "sigmoid" or beam_size > 1
    ):  # of one path the order is the same, unless both scores are 1
        assert (beam_size == 1) == (ranked.indices.tolist() == by_path.indices.tolist())


def test_margins_of_labels_without_a_tree_above(fitted):
    features, label_matrix, *_ = fitted
    flat = LabelTree(np.random.default_rng(0).permutation(9).astype(np.int32), ())
    ranker = fit_tree_ranker(features, label_matrix, flat, Ranker(weights="float32"))
    ranked = ranker.search(features, Search(last_level="margin"), 9).toarray()
    np.testing.assert_allclose(ranked, margins_of(ranker, features)[:, flat.positions], atol=1e-5)


def test_in_an_ensemble_a_label_that_a_tree_does_not_find_has_the_margin_of_a_negative(fitted):
    features, label_matrix, hinge, _ = fitted
    flat = LabelTree(np.arange(9, dtype=np.int32), ())
    other = fit_tree_ranker(features, label_matrix, flat, Ranker(weights="float32"), seed=1)
    search = Search(beam_size=1, last_level="margin")
    members = [ranker.search(features, search, None) for ranker in (hinge, other)]
    found = mean_scores(members, 9, missing=-1.0)
    expected = np.zeros((60, 9))
    for member in members:
        have = (
            sparse.csr_array(
                (np.ones_like(member.data), member.indices, member.indptr), member.shape
            ).toarray()
            > 0
        )
        expected += np.where(have, member.toarray(), -1.0) / 2
        assert have.all() == (member is members[1])
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-5)
    assert all((np.diff(scores) <= 0).all() for _, scores in rows_of(found))


def test_an_exact_search_by_margins_is_refused():
    with pytest.raises(ValueError, match="exact: found true with last_level=margin"):
        Search(exact=True, last_level="margin")


@pytest.mark.parametrize("score", ["hinge-3", "sigmoid"])
def test_exact_search_finds_the_best_of_all_labels(fitted, score):
    features, _, hinge, logistic = fitted
    ranker = logistic if score == "sigmoid" else hinge
    scores = path_scores(ranker, features, score)[-1]
    ranked = ranker.search(features, Search(beam_size=1, score=score, exact=True), 2)
    narrow = ranker.search(features, Search(beam_size=1, score=score), 2)
    for at, (labels, found) in enumerate(rows_of(ranked)):
        np.testing.assert_allclose(found, -np.sort(-scores[at])[:2], atol=1e-5)
        np.testing.assert_allclose(found, scores[at, TREE.positions[labels]], atol=1e-5)
    assert (narrow.data < ranked.data - 1e-3).any()  # a beam of 1 loses some


def test_more_labels_wanted_than_there_are(fitted):
    features, _, hinge, _ = fitted
    for search in (Search(), Search(exact=True)):
        ranked = hinge.search(features, search, 50)
        assert (np.diff(ranked.indptr) == 9).all()
        assert all(sorted(labels.tolist()) == list(range(9)) for labels, _ in rows_of(ranked))


def test_excluded_labels_do_not_come_out(fitted):
    features, label_matrix, hinge, _ = fitted
    for search in (Search(), Search(exact=True)):
        ranked = hinge.search(features, search, 9, exclude=label_matrix)
        assert ranked.nnz == 60 * 9 - label_matrix.nnz
        assert (ranked.toarray()[label_matrix.toarray() > 0] == 0).all()


def test_an_ensemble_is_the_mean_of_its_trees(fitted):
    features, label_matrix, hinge, _ = fitted
    flat = LabelTree(np.random.default_rng(0).permutation(9).astype(np.int32), ())
    other = fit_tree_ranker(features, label_matrix, flat, Ranker(weights="float32"), seed=1)
    search = Search(beam_size=4)
    both = mean_scores([ranker.search(features, search, None) for ranker in (hinge, other)], 3)
    mean = sum(
        path_scores(ranker, features, "hinge-3")[-1][:, ranker.tree.positions] for ranker in (hinge, other)
    ) / 2  # fmt: skip
    for at, (labels, found) in enumerate(rows_of(both)):
        np.testing.assert_allclose(found, -np.sort(-mean[at])[:3], atol=1e-5)
        np.testing.assert_allclose(found, mean[at, labels], atol=1e-5)


def test_a_label_of_every_document_and_labels_of_none():
    features, label_matrix = documents()
    y = label_matrix.toarray()
    y[:, 4] = 1  # in every document
    y[:, [3, 5, 6]] = 0  # a node of two labels, and one that has a sibling, in none
    fitted = fit_tree_ranker(features, sparse.csr_array(y), TREE, Ranker(cost_positive=10.0))
    ranked = fitted.search(features, Search(), 9)
    assert (ranked.toarray()[:, 4] > 0.9).all()
    labels = [row[0].tolist() for row in rows_of(ranked)]
    assert not {row[0] for row in labels} & {3, 5, 6}
    margins = weights(fitted.levels[1])[1]
    assert margins[3] == -1
    assert (weights(fitted.levels[2])[1][TREE.positions[[3, 5, 6]]] == -1).all()
