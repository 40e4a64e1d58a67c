from __future__ import annotations

import numpy as np
import pytest
from fitting import fit_tree_ranker
from scipy import sparse

from longtail.config import Ranker, Search
from longtail.data.labels import Label, Labels
from longtail.data.strings import Strings
from longtail.features.matrix import Features
from longtail.rankers.explanation import explain_label
from longtail.search.calibration import Calibration
from longtail.search.ensemble import mean_scores
from longtail.tree.tree import LabelTree

N = 50
D = 12
L = 10
TREE = LabelTree(
    np.array([4, 0, 8, 2, 9, 6, 1, 7, 3, 5], np.int32), (np.array([0, 5, 8, 10], np.int64),)
)
OTHER = LabelTree(
    np.arange(L, dtype=np.int32), (np.array([0, 2], np.int64), np.array([0, 4, L], np.int64))
)
WORDS = Strings.of([f"word{column}" for column in range(D)])
LABELS = Labels.of([Label(f"l{at}", f"Name {at}" if at != 4 else "") for at in range(L)])
COUNTS = np.array([3, 1, 9, 4, 2, 5, 0, 1, 8, 7])


@pytest.fixture(scope="module")
def documents():
    random = np.random.default_rng(0)
    x = random.random((N, D)) * (random.random((N, D)) < 0.4)
    dense = random.normal(size=(N, 2))
    margins = np.hstack([x, dense]) @ random.normal(size=(D + 2, L))
    return Features.of(sparse.csr_array(x), dense), sparse.csr_array(
        (margins > 0.5).astype(np.float32)
    )


def fit(documents, tree=TREE, **settings):
    return fit_tree_ranker(*documents, tree, Ranker(**{"bias": 0.5, "prune": 0.05} | settings))


@pytest.mark.parametrize("weights", ["float32", "float16"])
@pytest.mark.parametrize("score", ["hinge-2", "hinge-3", "sigmoid"])
def test_parts_add_up_to_margins_and_scores_multiply_to_that_of_the_search(
    documents, weights, score
):
    features, _ = documents
    ranker = fit(documents, weights=weights)
    searched = ranker.search(features, Search(beam_size=L, score=score), L).toarray()
    for row in range(0, N, 7):
        one = features.take(np.array([row]))
        for label in range(L):
            raw = explain_label([ranker], one, label, Search(score=score))
            assert raw.path_score == pytest.approx(searched[row, label], abs=1e-4)
            explanation = raw.named(LABELS, COUNTS, WORDS, None)
            assert explanation.path_score == pytest.approx(
                np.prod([step.score for step in explanation.steps])
            )
            for step in explanation.steps:
                parts = sum(part.contribution for part in step.contributions)
                assert step.margin == pytest.approx(parts + step.bias + step.dense, abs=1e-9)


def test_a_label_ranked_by_its_margin_is_explained_by_it(documents):
    features, _ = documents
    rankers = [fit(documents), fit(documents, OTHER)]
    search = Search(beam_size=L, score="sigmoid", last_level="margin")
    ranked = mean_scores(
        [ranker.search(features, search, L) for ranker in rankers], L, missing=-1.0
    ).toarray()
    for row, label in ((0, 3), (5, 7), (9, 1)):
        raw = explain_label(rankers, features.take(np.array([row])), label, search)
        assert raw.path_score == pytest.approx(ranked[row, label], abs=1e-4)
        for tree, ranker in enumerate(rankers):
            *above, last = (node for node in raw.nodes if node.tree == tree)
            assert last.level == ranker.tree.n_levels - 1
            assert last.score == last.margin
            assert all(
                node.score == pytest.approx(1 / (1 + np.exp(-node.margin))) for node in above
            )


def test_contributions_are_value_times_weight_the_largest_first(documents):
    features, _ = documents
    ranker = fit(documents, weights="float32")
    one = features.take(np.array([1]))
    explanation = explain_label([ranker], one, 2, Search(score="hinge-3")).named(
        LABELS, COUNTS, WORDS, None
    )
    values = dict(zip(one.sparse.indices.tolist(), one.sparse.data.tolist(), strict=True))
    assert [step.level for step in explanation.steps] == [0, 1]
    for step, node in zip(explanation.steps, TREE.ancestors(2), strict=True):
        columns, weights, dense = ranker.levels[step.level].weights(node)
        known = dict(zip(columns.tolist(), weights.tolist(), strict=True))
        assert {part.feature for part in step.contributions} == {
            f"word{column}" for column in known.keys() & values
        }
        for part in step.contributions:
            column = int(part.feature.removeprefix("word"))
            assert (part.value, part.weight) == (values[column], known[column])
            assert part.contribution == pytest.approx(part.value * part.weight)
        sizes = [abs(part.contribution) for part in step.contributions]
        assert sizes == sorted(sizes, reverse=True)
        assert step.bias == pytest.approx(0.5 * known[D])
        assert step.dense == pytest.approx(float(one.dense[0].astype(np.float64) @ dense))


def test_an_ensemble_has_the_steps_of_all_trees_and_the_mean_score(documents):
    features, _ = documents
    rankers = [fit(documents), fit(documents, OTHER)]
    search = Search(beam_size=L)
    mean = mean_scores(
        [ranker.search(features, search, None) for ranker in rankers], None
    ).toarray()
    raw = explain_label(rankers, features.take(np.array([5])), 7, search)
    assert raw.path_score == pytest.approx(mean[5, 7], abs=1e-4)
    steps = raw.named(LABELS, COUNTS, WORDS, None).steps
    assert [(step.tree, step.level) for step in steps] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    products = [np.prod([step.score for step in steps if step.tree == tree]) for tree in (0, 1)]
    assert raw.path_score == pytest.approx(np.mean(products))


def test_names(documents):
    features, _ = documents
    rankers = [fit(documents), fit(documents, OTHER)]
    one = features.take(np.array([0]))
    explanation = explain_label(rankers, one, 4, Search(score="hinge-3")).named(
        LABELS, COUNTS, WORDS, None
    )
    assert (explanation.label, explanation.name) == (
        "l4",
        "l4",
    )  # without a name the id stands for it
    # below the node are 4, 0, 8, 2 and 9; the three most frequent stand for it
    names = [step.node for step in explanation.steps]
    assert names[:2] == ["Name 2, Name 8, Name 9 … (5 labels)", "l4"]
    assert names[2] == "Name 2, Name 8, Name 9 … (10 labels)"
    explanation = explain_label(rankers, one, 3, Search(score="hinge-3")).named(
        LABELS, COUNTS, WORDS, None
    )
    assert (explanation.label, explanation.name) == ("l3", "Name 3")
    assert explanation.steps[0].node == "Name 5, Name 3"
    assert explanation.probability is None


def test_the_probability_is_that_of_the_calibration(documents):
    features, _ = documents
    raw = explain_label([fit(documents)], features.take(np.array([0])), 4, Search(score="hinge-3"))
    calibration = Calibration(np.array([0.0, 1.0]), np.array([0.2, 0.6]))
    explanation = raw.named(LABELS, COUNTS, WORDS, calibration)
    assert explanation.probability == pytest.approx(0.2 + 0.4 * explanation.path_score)


def test_summed_adds_a_feature_over_the_steps(documents):
    features, _ = documents
    rankers = [fit(documents), fit(documents, OTHER)]
    explanation = explain_label(
        rankers, features.take(np.array([2])), 1, Search(score="hinge-3")
    ).named(LABELS, COUNTS, WORDS, None)
    summed = explanation.summed()
    totals = {}
    for step in explanation.steps:
        for part in step.contributions:
            totals.setdefault(part.feature, []).append(part.contribution)
    assert dict(summed) == {feature: pytest.approx(sum(parts)) for feature, parts in totals.items()}
    assert max(map(len, totals.values())) > 1
    sizes = [abs(total) for _, total in summed]
    assert sizes == sorted(sizes, reverse=True)


def test_a_document_without_known_features_has_bias_and_dense_alone(documents):
    ranker = fit(documents)
    empty = Features.of(sparse.csr_array((1, D), dtype=np.float32), np.zeros((1, 2)))
    explanation = explain_label([ranker], empty, 1, Search(score="sigmoid")).named(
        LABELS, COUNTS, WORDS, None
    )
    for step in explanation.steps:
        assert step.contributions == ()
        assert step.margin == step.bias
    searched = ranker.search(empty, Search(beam_size=L, score="sigmoid"), L).toarray()
    assert explanation.path_score == pytest.approx(searched[0, 1], abs=1e-4)
