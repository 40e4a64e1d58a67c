"""AttentionXML on several label trees against the mean of its networks, one document and label at a time."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

import torch

from attention_networks import (
    SETTINGS,
    TREE,
    N,
    arrays_of,
    batch_of,
    level_of,
    sample_problem,
    trained,
)
from longtail import store
from longtail.methods import configure
from longtail.networks import attention_fitting
from longtail.networks.attention import AttentionXML
from longtail.networks.attention_trees import (
    AttentionTrees,
    load_attention,
    mean_scores,
    save_attention,
)
from longtail.networks.encoders.word_encoder import WordEncoder
from longtail.networks.ranker import NeuralRanker
from longtail.steps.work import Work
from longtail.tree.tree import LabelTree

OTHER = LabelTree(
    np.random.default_rng(5).permutation(14).astype(np.int32),
    (np.array([0, 2, 3]), np.array([0, 4, 8, 14])),  # 2 → 3 → 14
)
FLAT = LabelTree(np.random.default_rng(6).permutation(14).astype(np.int32), ())
TREES = [TREE, OTHER, FLAT]

pytestmark = pytest.mark.usefixtures("one_thread")


def network_of(tree):
    return AttentionXML([level_of(t, tree=tree) for t in range(tree.n_levels)]).eval()


@pytest.fixture
def networks():
    return [network_of(tree) for tree in TREES]


def slow_means(networks, batch, row):
    """Return the mean score of each label of a document, 0 where a tree does not have it among its candidates."""
    totals = dict.fromkeys(range(14), 0.0)
    for network, tree in zip(networks, TREES, strict=True):
        ranked = network.rank(batch.ids, batch.mask, network.slots[-1])
        for node, score in zip(
            ranked.nodes[row].tolist(), ranked.scores[row].tolist(), strict=True
        ):
            if node >= 0:
                totals[int(tree.order[node])] += score / len(networks)
    return totals


class TestMeanScores:
    @pytest.mark.parametrize("seed", range(4))
    def test_sums_of_each_label(self, seed):
        rng = np.random.default_rng(seed)
        trees = 3
        slots = [5, 3, 6]
        labels = np.concatenate(
            [np.stack([rng.permutation(9)[:n] for _ in range(20)]) for n in slots], 1
        )
        labels[rng.random(labels.shape) < 0.2] = -1
        scores = rng.random(labels.shape)
        totals, found = mean_scores(
            torch.from_numpy(scores), torch.from_numpy(labels.astype(np.int32)), trees
        )
        for row in range(20):
            kept = found[row] >= 0
            ours = dict(zip(found[row][kept].tolist(), totals[row][kept].tolist(), strict=True))
            assert len(ours) == int(kept.sum())
            expected = {
                label: sum(scores[row][labels[row] == label]) / trees
                for label in set(labels[row].tolist()) - {-1}
            }
            assert ours == pytest.approx(expected)


class TestRank:
    def test_is_the_mean_of_the_trees(self, networks):
        batch = batch_of(9)
        ensemble = AttentionTrees(networks, TREES).eval()
        ranked = ensemble.rank(batch.ids, batch.mask, 14)
        assert ensemble.slots == [3, 6, 14]
        for row in range(3):
            expected = slow_means(networks, batch, row)
            found = {
                int(TREE.order[node]): score
                for node, score in zip(
                    ranked.nodes[row].tolist(), ranked.scores[row].tolist(), strict=True
                )
            }
            assert found == pytest.approx(expected)
            assert ranked.scores[row].tolist() == sorted(ranked.scores[row].tolist(), reverse=True)
        first = networks[0].rank(batch.ids, batch.mask, 3)
        torch.testing.assert_close(ranked.vectors, first.vectors)
        assert all(map(torch.equal, ranked.kept, first.kept))

    def test_the_best_alone(self, networks):
        batch = batch_of(9)
        ensemble = AttentionTrees(networks, TREES).eval()
        few = ensemble.rank(batch.ids, batch.mask, 3)
        all_labels = ensemble.rank(batch.ids, batch.mask, 14)
        assert torch.equal(few.nodes, all_labels.nodes[:, :3])

    def test_trees_alike_are_one(self):
        batch = batch_of(9)
        one = network_of(TREE)
        two = AttentionTrees([one, network_of(TREE)], [TREE, TREE]).eval()
        ours, theirs = two.rank(batch.ids, batch.mask, 5), one.rank(batch.ids, batch.mask, 5)
        torch.testing.assert_close(ours.scores, theirs.scores)
        assert torch.equal(ours.nodes, theirs.nodes)

    def test_score_of_a_label(self, networks):
        batch = batch_of(9)
        ensemble = AttentionTrees(networks, TREES).eval()
        for label in (0, 5, 13):
            found = ensemble.path_scores(batch.ids, batch.mask, TREE.ancestors(label))
            expected = [
                network.path_scores(batch.ids, batch.mask, tree.ancestors(label))
                for network, tree in zip(networks, TREES, strict=True)
            ]
            torch.testing.assert_close(found, sum(expected) / 3)

    def test_in_half_and_the_vectors_of_the_first(self, networks):
        batch = batch_of()
        ensemble = AttentionTrees([network.float() for network in networks], TREES).eval()
        half = ensemble.in_half()
        assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
        assert half.heads[0] is ensemble.heads[0]
        assert ensemble.heads[-1] is networks[0].heads[-1]
        assert len(ensemble.heads) == 3 + 3 + 1
        vectors = ensemble.vectors(batch.ids, batch.mask)
        torch.testing.assert_close(vectors, networks[0].vectors(batch.ids, batch.mask))
        assert ensemble.widths == networks[0].widths
        assert ensemble.label_vectors().encoder is networks[0].levels[-1].encoder


@pytest.fixture(scope="module")
def problem():
    return sample_problem()


SHORT = SETTINGS | {"attention": SETTINGS["attention"] | {"epochs": [2, 1], "trees": 2}}


def trees_of(problem):
    order = np.random.default_rng(8).permutation(problem.tree.n_labels).astype(np.int32)
    return [LabelTree(order, problem.tree.offsets)]


@pytest.fixture(scope="module")
def ranker(problem):
    return trained(problem, settings=SHORT, more_trees=trees_of(problem))


def arrays_of_trees(ranker):
    return [
        arrays_of(NeuralRanker(ranker.tokeniser, network, tree))
        for network, tree in zip(ranker.network.networks, ranker.network.trees, strict=True)
    ]


class TestTraining:
    def test_each_tree_is_trained_as_if_alone(self, problem, ranker):
        """The first with the seed of the run, the second with the next one and other weights of the LSTM."""
        first, second = arrays_of_trees(ranker)
        alone = arrays_of(trained(problem, settings=SHORT))
        assert set(first) == set(second) == set(alone)
        for name, array in alone.items():
            np.testing.assert_array_equal(first[name], array)
        for part in ("encoder.forwards.weight_ih_l0", "first.weight", "head.weight"):
            assert not np.allclose(first[1, part], second[1, part])

    def test_each_tree_begins_with_other_states(self, problem, monkeypatch):
        starts = []
        fit = attention_fitting.fit

        def noting(network, *args, **named):
            if network.level == 0:
                encoder = network.encoder
                starts.append(
                    (encoder.embedding.weight.clone(), encoder.forwards.weight_ih_l0.clone())
                )
            return fit(network, *args, **named)

        monkeypatch.setattr(attention_fitting, "fit", noting)
        trained(problem, settings=SHORT, more_trees=2 * trees_of(problem))
        words, states = zip(*starts, strict=True)
        assert torch.equal(words[0], words[1])
        assert torch.equal(words[0], words[2])
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert not torch.allclose(states[one], states[other])

    def test_goes_on_with_the_second_tree(self, problem, ranker, tmp_path, monkeypatch):
        fit = attention_fitting.fit
        levels = []

        def stopped(network, *args, **named):
            levels.append(network.level)
            if len(levels) == 4:
                raise KeyboardInterrupt
            return fit(network, *args, **named)

        with store.Stages(tmp_path / "work") as stages:
            monkeypatch.setattr(attention_fitting, "fit", stopped)
            with pytest.raises(KeyboardInterrupt):
                trained(problem, Work(stages), settings=SHORT, more_trees=trees_of(problem))
            resumed = trained(problem, Work(stages), settings=SHORT, more_trees=trees_of(problem))
        assert levels == [0, 1, 0, 1, 1]
        for ours, theirs in zip(arrays_of_trees(resumed), arrays_of_trees(ranker), strict=True):
            for name, array in theirs.items():
                np.testing.assert_array_equal(ours[name], array)

    def test_saved_and_read(self, problem, ranker, tmp_path):
        with store.write_folder(tmp_path / "model") as folder:
            ranker.network.encoder.save(folder.path("encoder"))
            save_attention(ranker, folder)
        read = store.open_folder(tmp_path / "model")
        config = configure("attentionxml", None, SHORT)
        encoder = WordEncoder.load(read.path("encoder"))
        loaded = load_attention(read, config, problem.tokeniser, encoder, torch.device("cpu"))
        texts = problem.documents.texts
        ours, theirs = (known.search(texts, 4) for known in (ranker, loaded))
        for name in ("indices", "indptr", "data"):
            np.testing.assert_array_equal(getattr(ours[0], name), getattr(theirs[0], name))
        np.testing.assert_array_equal(ours[1], theirs[1])
        np.testing.assert_array_equal(ranker.label_scores(texts, 3), loaded.label_scores(texts, 3))

    def test_search_is_the_mean_of_both(self, problem, ranker):
        """All labels are candidates of both trees with a shortlist of all nodes, so that the scores are exact means."""
        found = ranker.search(problem.documents.texts, problem.tree.n_labels)[0].toarray()
        both = [
            NeuralRanker(ranker.tokeniser, network, tree)
            .search(problem.documents.texts, problem.tree.n_labels)[0]
            .toarray()
            for network, tree in zip(ranker.network.networks, ranker.network.trees, strict=True)
        ]
        assert found.shape[0] == N
        np.testing.assert_allclose(found, (both[0] + both[1]) / 2, rtol=1e-5)

    def test_a_folder_of_fewer_trees(self, problem, tmp_path):
        alone = trained(problem, settings=SHORT)
        with store.write_folder(tmp_path / "model") as folder:
            save_attention(alone, folder)
        with pytest.raises(Exception, match="tree-network-1"):
            load_attention(
                store.open_folder(tmp_path / "model"),
                configure("attentionxml", None, SHORT),
                problem.tokeniser,
                alone.network.encoder,
                torch.device("cpu"),
            )
