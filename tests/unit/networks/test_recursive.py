"""XR-Transformer against its equations, done for one document at a time in float64 with sets of nodes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from longtail.config import Encoder, Ranker, Recursive, Search, Training
from longtail.errors import ConfigError
from longtail.features.matrix import Features
from longtail.methods import METHODS, configure
from longtail.networks.base import NetworkRun
from longtail.networks.batches import Batch
from longtail.networks.embedder import pretrained_embedder
from longtail.networks.heads.head import Head
from longtail.networks.layout import (
    LevelLength,
    level_epochs,
    level_lengths,
)
from longtail.networks.level_fitting import level_training
from longtail.networks.recursive import Matcher, Resolution, joined_nodes
from longtail.networks.recursive_family import resolution_widths, tuned_levels
from longtail.networks.recursive_fitting import _Level, _LevelOutput
from longtail.networks.training.schedule import Schedule
from longtail.rankers.level_problems import LevelProblems, fit_rows
from longtail.steps.work import Work
from longtail.tree.tree import LabelTree
from tiny_encoder import tiny_encoder, write_encoder

TREE = LabelTree(
    np.random.default_rng(1).permutation(14).astype(np.int32),
    (np.array([0, 1, 4, 6]), np.array([0, 3, 4, 5, 9, 13, 14])),  # 3 → 6 → 14, of 1 to 4 children
)
TRUTH = [
    {13},
    {0, 1, 2, 9},
    set(range(14)),
    {3, 4, 8, 7},
]  # labels by position: one, siblings, all, and some
MATCHED = {
    1: [[0, 2], [1, -1], [2, 0], [0, -1]],
    2: [[5, 0], [1, 3], [0, 1], [4, -1]],
}  # P of the level above
LENGTHS = [9, 4, 16, 7]

pytestmark = pytest.mark.usefixtures("one_thread")


# values of the labels of the same documents: below 1 as Gandalf's, one document without a label of 1, and one above 1
SOFT = [
    {13: 0.3},
    {0: 1, 1: 0.3, 2: 0.25, 9: 0.125},
    {label: (1 + label) / 16 for label in range(14)},
    {3: 0.5, 4: 1, 8: 0.0625, 7: 1.5},
]


def label_matrix(truth=TRUTH):
    """Return the matrix over labels, not positions; ``truth`` are sets of labels, or their values."""
    matrix = np.zeros((len(truth), TREE.n_labels), np.float32)
    for row, own in enumerate(truth):
        for label in own:
            matrix[row, TREE.order[label]] = own[label] if isinstance(own, dict) else 1
    return sparse.csr_array(matrix)


def below(level, node):
    """Return the positions of the labels below a node."""
    nodes = {node}
    for finer in range(level, TREE.n_levels - 1):
        nodes = {child for own in nodes for child in TREE.children(finer, own)}
    return nodes


def counts(level, own):
    """Return R of eq. 6: of each node above a document's labels how many of them."""
    found = {node: len(below(level, node) & own) for node in range(TREE.widths[level])}
    return {node: count for node, count in found.items() if count}


def network_of(level, loss="squared-hinge", **settings):
    """Return a network in training mode that drops nothing, whose classifiers tell documents apart, with its M."""
    training = Training(head_optimiser="sgd", head_decay=0, loss=loss)
    network = Resolution(
        tiny_encoder(), TREE, level, Recursive(dropout=0.0, **settings), training, seed=5
    ).train()
    chance, head = torch.Generator().manual_seed(level), network.heads[0]
    head.set_rows(
        torch.randn(head.weight.shape, generator=chance) / 2,
        torch.randn(len(head.bias), generator=chance),
    )
    if level:
        network.parents = joined_nodes(
            np.array(MATCHED[level], np.int32), TREE.coarsen(label_matrix())[level - 1]
        )
    return network


def batch_of(level, order=(0, 1, 2, 3), truth=TRUTH):
    """Return the documents in this order, with R of the level's nodes."""
    mask = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    ids = np.where(mask, np.random.default_rng(3).integers(4, 200, mask.shape), 0)
    relevance = TREE.coarsen(label_matrix(truth))[level]
    positives = np.full((4, int(np.diff(relevance.indptr).max()) + 1), -1, np.int32)
    values = np.zeros(positives.shape, np.float32)
    for row, (start, end) in enumerate(pairwise(relevance.indptr)):
        positives[row, : end - start] = relevance.indices[start:end]
        values[row, : end - start] = relevance.data[start:end]
    rows = np.array(order)
    return Batch(*(torch.from_numpy(array[rows]) for array in (ids, mask, positives, values)), rows)


def slow_point(y, margin, share, loss, settings):
    """Return the loss of a node with target ``y`` and R̂ ``share``."""
    alpha = settings.alpha if settings.cost_sensitive else 1
    if loss == "bce":
        p = torch.sigmoid(margin)
        return -share * torch.log(p) - alpha * (1 - y) * torch.log(1 - p)
    if y > 0:
        return share * torch.clamp(1 - margin, min=0) ** 2
    return alpha * torch.clamp(1 + margin, min=0) ** 2


def slow_loss(network, weight, bias, batch, truth=TRUTH):
    """Return eq. 9 as a mean over M and documents, each alone and without padding."""
    settings, level, documents = network.settings, network.level, []
    for at, row in enumerate(batch.rows.tolist()):
        values = truth[row] if isinstance(truth[row], dict) else dict.fromkeys(truth[row], 1)
        nodes = set(range(TREE.widths[0]))
        if level:  # eq. 8
            above = {node for node in MATCHED[level][row] if node >= 0} | set(
                counts(level - 1, set(values))
            )
            nodes = {child for node in above for child in TREE.children(level - 1, node)}
        assert set(counts(level, set(values))) <= nodes
        x, total = network.vectors(batch.ids[at : at + 1, : LENGTHS[row]], None)[0][0].double(), 0
        for node in sorted(nodes):
            relevance = sum(value for label, value in values.items() if label in below(level, node))
            y = min(relevance, 1)
            share = relevance / max(sum(values.values()), 1) if settings.cost_sensitive else y
            total = total + slow_point(
                y, weight[node] @ x + bias[node], share, network.loss.name, settings
            )
        documents.append(total / len(nodes))
    return sum(documents) / len(documents)


KINDS = [
    {},
    {"loss": "bce"},
    {"cost_sensitive": False, "alpha": 0.3},
    {"alpha": 0.3},
    {"loss": "bce", "cost_sensitive": False},
]


class TestLosses:
    @pytest.mark.parametrize("truth", [TRUTH, SOFT], ids=["hard", "soft"])
    @pytest.mark.parametrize("level", [0, 1, 2])
    @pytest.mark.parametrize("kind", KINDS, ids=str)
    def test_value_and_gradients_are_those_of_the_equations(self, kind, level, truth):
        network, batch = network_of(level, **kind), batch_of(level, truth=truth)
        head, parameters = network.heads[0], list(network.encoder.parameters())
        weight, bias = head.weight.double().requires_grad_(), head.bias.double().requires_grad_()
        expected = slow_loss(network, weight, bias, batch, truth)
        gradients = torch.autograd.grad(expected, [*parameters, weight, bias], allow_unused=True)
        ((name, found),) = network.losses(batch).items()
        assert name == f"level {level + 1}"
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
        found.backward()
        for parameter, gradient in zip(parameters, gradients, strict=False):
            assert (parameter.grad is None) == (gradient is None)
            if gradient is not None:
                torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=2e-5)
        assert (
            sum(float(gradient.abs().sum()) for gradient in gradients[:-2] if gradient is not None)
            > 1
        )
        head.step(1.0, 0)  # plain gradient descent: what a step of 1 takes away is the gradient
        torch.testing.assert_close(
            weight.detach() - head.weight.double(), gradients[-2], rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(
            bias.detach() - head.bias.double(), gradients[-1], rtol=1e-4, atol=1e-5
        )

    def test_each_document_has_its_own_parents(self):
        network = network_of(2)
        batches = [batch_of(2), batch_of(2, (2, 0, 3, 1)), *batch_of(2, (3, 1, 0, 2)).split(1)]
        with torch.no_grad():
            whole, shuffled, *alone = (float(network.losses(batch)["level 3"]) for batch in batches)
        assert whole == pytest.approx(shuffled, rel=1e-5)
        assert whole == pytest.approx(np.mean(alone), rel=1e-5)

    @pytest.mark.parametrize("cost_sensitive", [False, True])
    def test_soft_bce_is_least_at_the_targets(self, cost_sensitive):
        """One document whose labels are Gandalf's: what its classifiers are drawn to is y, not 1."""
        network = network_of(2, loss="bce", cost_sensitive=cost_sensitive)
        targets = torch.tensor([[1, 0.3, 0, 0.1]])
        logits = torch.tensor([[12.0, -0.5, -12, -2]], requires_grad=True)
        positive, negative = network._relevances(network.loss, targets, torch.tensor([[1.0]]))
        network.loss.weighted(
            logits, positive, negative, torch.ones(1, 4, dtype=torch.bool)
        ).sum().backward()
        torch.testing.assert_close(logits.grad, logits.detach().sigmoid() - targets)

    def test_decay_is_the_classifiers(self):
        network = Resolution(
            tiny_encoder(), TREE, 1, Recursive(), Training(head_decay=0.25), seed=0
        )
        assert network.heads[0].weight_decay == 0.25
        sizes = [sum(p.numel() for p in group["params"]) for group in network.optimiser_groups()]
        assert sum(sizes) == sum(p.numel() for p in network.encoder.parameters())
        assert network.optimiser_groups()[1]["weight_decay"] == 0


class TestArrays:
    @pytest.mark.parametrize("state", [False, True])
    def test_there_and_back(self, state):
        ours, theirs = (
            Resolution(tiny_encoder(seed=seed), TREE, 1, Recursive(), Training(), seed=seed)
            for seed in (1, 2)
        )
        ours.parents = network_of(1).parents
        ours.train().losses(batch_of(1))["level 2"].backward()
        ours.heads[0].step(0.1, 0)
        arrays = ours.to_arrays(state)
        assert ("head.count" in arrays) == state
        theirs.load_arrays(arrays)
        for name, array in theirs.to_arrays(state).items():
            np.testing.assert_array_equal(array, arrays[name])

    def test_rows_begin_otherwise_on_every_level_and_seed(self):
        def first(level, seed):
            return (
                Resolution(tiny_encoder(), TREE, level, Recursive(), Training(), seed)
                .heads[0]
                .weight[:3]
            )

        assert torch.equal(first(0, 7), first(0, 7))
        assert not torch.equal(first(0, 7), first(0, 8))
        assert not torch.equal(first(0, 7), first(1, 7))

    def test_half_precision_leaves_the_network_as_it_is(self):
        network = network_of(0)
        half = network.in_half()
        assert next(half.encoder.parameters()).dtype == torch.bfloat16
        assert next(network.encoder.parameters()).dtype == torch.float32
        assert half.heads[0] is network.heads[0]


TEXTS = ("a b c", "b", "c c a d e f", "", "d a")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    folder = write_encoder(tmp_path_factory.mktemp("encoder"), TEXTS)
    return pretrained_embedder(Encoder(name=str(folder), max_tokens=8), device="cpu")


class TestMatching:
    def matcher(self, embedder, level):
        network = Resolution(embedder.network.encoder, TREE, level, Recursive(), Training(), 3)
        head = network.heads[0]
        head.set_rows(torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(9)))
        return Matcher(embedder.tokeniser, network)

    @pytest.mark.parametrize("k", [1, 4, 99])
    def test_best_first_among_the_children(self, embedder, k):
        parents = np.array(
            [[0, 2], [1, -1], [2, 0], [-1, -1], [0, -1]], np.int32
        )  # of 3 + 1, 3, …, 0, 1 children
        matcher, tokens = self.matcher(embedder, 1), embedder.tokeniser(TEXTS)
        vectors, nodes = matcher.match(tokens, parents, k)
        assert nodes.shape == (5, min(k, 6))
        np.testing.assert_allclose(vectors, embedder.embed(tokens), rtol=1e-5, atol=1e-6)
        logits = vectors @ matcher.network.heads[0].weight.numpy().T
        for row, own in enumerate(parents):
            children = [child for node in own if node >= 0 for child in TREE.children(0, node)]
            ranked = sorted(children, key=lambda node: -logits[row, node])[:k]
            assert nodes[row].tolist() == ranked + [-1] * (nodes.shape[1] - len(ranked))

    def test_without_parents_all_nodes(self, embedder):
        matcher = self.matcher(embedder, 0)
        vectors, nodes = matcher.match(embedder.tokeniser(TEXTS), None, 2)
        logits = vectors @ matcher.network.heads[0].weight.numpy().T
        np.testing.assert_array_equal(nodes, np.argsort(-logits, axis=1)[:, :2])
        assert matcher.match(embedder.tokeniser([]), None, 2)[1].shape == (0, 2)

    def test_no_parents_at_all(self, embedder):
        """As with recursive.shortlist = 0."""
        none = np.zeros((5, 0), np.int32)
        assert (self.matcher(embedder, 1).match(embedder.tokeniser(TEXTS), none, 3)[1] == -1).all()


class TestNodes:
    @given(
        st.lists(
            st.tuples(st.sets(st.integers(0, 8)), st.sets(st.integers(0, 8))),
            min_size=1,
            max_size=6,
        )
    )
    def test_joined(self, documents):
        """The matched ones have gaps, as where parents have few children."""
        matched = np.full((len(documents), 10), -1, np.int32)
        true = np.zeros((len(documents), 9), np.float32)
        for row, (chosen, own) in enumerate(documents):
            matched[row, 1 : len(chosen) + 1] = list(chosen)
            true[row, list(own)] = 2
        joined = joined_nodes(matched, sparse.csr_array(true))
        most = max([1, *(len(chosen | own) for chosen, own in documents)])
        expected = [
            sorted(chosen | own) + [-1] * (most - len(chosen | own)) for chosen, own in documents
        ]
        assert joined.tolist() == expected
        assert joined.dtype == np.int32


EXACT = {"tolerance": 1e-6, "max_passes": 5000, "prune": 0.0, "weights": "float32"}


def problem(n=40, width=5):
    """Return vectors and the levels of labels that depend on them."""
    chance = np.random.default_rng(4)
    vectors = chance.normal(size=(n, width)).astype(np.float32)
    scores = vectors @ chance.normal(size=(width, 14)) + chance.normal(size=(n, 14)) / 2
    return vectors, TREE.coarsen(sparse.csr_array((scores > 1.5).astype(np.float32)))


def node_weights(chunks, bias):
    """Return weights (nodes, width) and biases of a level without sparse columns but for the constant."""
    found = [chunks.weights(node) for node in range(chunks.n_nodes)]
    return np.stack([dense for _, _, dense in found]), np.array(
        [values.sum() * bias for _, values, _ in found]
    )


def level_of(levels, config):
    """Return the second level of a run of which nothing but the tree and the settings is asked."""
    return _Level(1, LevelLength(1), NetworkRun(None, None, None, TREE, config, Work()), levels)


class TestFirstRows:
    RANKERS = (
        Ranker(**EXACT, cost_positive=2.0, bias=0.5),
        Ranker(**EXACT, loss="logistic", cost_negative=3.0),
        Ranker(**EXACT, cost_sensitive=True, alpha=0.3, bias=0.0),
    )

    @pytest.mark.parametrize("level", [0, 1, 2])
    @pytest.mark.parametrize("ranker", RANKERS, ids=["hinge", "logistic", "cost-sensitive"])
    def test_are_at_the_optimum(self, ranker, level):
        """The gradient of eq. 11 for each node is almost nothing, beside what it is made of."""
        vectors, levels = problem()
        parents = None
        if level:
            parents = levels[level - 1] + sparse.csr_array(
                np.eye(40, TREE.widths[level - 1], dtype=np.float32)
            )
        weights, bias = fit_rows(vectors, levels[level], TREE, level, parents, ranker, 0)
        counted, totals = levels[level].toarray(), levels[level].sum(axis=1)
        for node in range(TREE.widths[level]):
            mine = (
                slice(None)
                if parents is None
                else parents.toarray()[:, TREE.parents(level)[node]] > 0
            )
            x, count, total = vectors[mine].astype(np.float64), counted[mine, node], totals[mine]
            y = np.where(count > 0, 1.0, -1.0)
            share = (
                np.where(count > 0, count / np.maximum(total, 1), ranker.alpha)
                if ranker.cost_sensitive
                else 1.0
            )
            cost = share * np.where(y > 0, ranker.cost_positive, ranker.cost_negative)
            margins = y * (x @ weights[node] + bias[node])
            slopes = (
                -2 * np.maximum(0, 1 - margins)
                if ranker.loss == "squared-hinge"
                else -1 / (1 + np.exp(margins))
            )
            parts = (cost * slopes * y)[:, None] * x
            assert abs(weights[node] + parts.sum(0)).max() < 1e-3 * max(abs(parts).sum(), 1e-6)
            pushed = (cost * slopes * y).sum() * ranker.bias**2
            assert bias[node] == pytest.approx(-pushed, rel=1e-3, abs=1e-3)

    @pytest.mark.parametrize("ranker", RANKERS, ids=["hinge", "logistic", "cost-sensitive"])
    def test_are_those_of_a_level_of_linear_classifiers(self, ranker):
        vectors, levels = problem()
        above = []
        for level in range(3):
            parents = levels[level - 1] if level else None
            weights, bias = fit_rows(vectors, levels[level], TREE, level, parents, ranker, 7)
            problems = LevelProblems.of(
                Features.of(vectors), levels, TREE, above, ranker, Search(), 7
            )
            above.append(problems.solve())
            expected = node_weights(above[-1], ranker.bias)
            np.testing.assert_array_equal(weights, expected[0])
            np.testing.assert_allclose(bias, expected[1], rtol=1e-6)

    @pytest.mark.parametrize(("loss", "bias"), [("squared-hinge", -1.0), ("bce", None)])
    def test_at_random_they_start_about_the_score_of_a_node_that_is_not_true(self, loss, bias):
        _, levels = problem()
        settings = {"recursive": {"bootstrap": False}, "training": {"loss": loss}}
        level = level_of(levels, configure("xr-transformer", None, settings))
        head, given = Head(6, 5, std=0.5), joined_nodes(np.full((40, 1), 2, np.int32), levels[0])
        before = head.weight.clone()
        network = SimpleNamespace(
            heads=[head], parents=given, tables=SimpleNamespace(most_children=[3])
        )
        level._set_initial_weights(network, None)
        share = (
            levels[1].nnz / 40 / round((given >= 0).sum(1).mean() * 3)
        )  # of the slots of a document
        expected = np.log(share / (1 - share)) if bias is None else bias
        np.testing.assert_allclose(head.bias.numpy(), np.full(6, expected), rtol=1e-5)
        assert torch.equal(head.weight, before)

    @pytest.mark.parametrize(("settings", "solved"), [
        ({}, [0, 1]), ({"bootstrap_root": False}, [1]), ({"bootstrap": False}, []),
        ({"bootstrap": False, "bootstrap_root": True}, []),
    ])  # fmt: skip
    def test_which_levels_a_linear_solver_starts(self, monkeypatch, settings, solved):
        _, levels = problem()
        asked = []

        def first_rows(level, handed, given):
            asked.append(level.t)
            return np.zeros((TREE.widths[level.t], 5), np.float32), np.zeros(
                TREE.widths[level.t], np.float32
            )

        monkeypatch.setattr(_Level, "_bootstrapped", first_rows)
        config = configure("xr-transformer", None, {"recursive": settings})
        for t in (0, 1):
            level = replace(level_of(levels, config), t=t)
            head = Head(TREE.widths[t], 5)
            network = SimpleNamespace(
                heads=[head], parents=None, tables=SimpleNamespace(most_children=[3])
            )
            level._set_initial_weights(network, None)
            assert bool(head.weight.any()) == (t not in solved)
        assert asked == solved

    @pytest.mark.parametrize("length", [0.01, 30.0])
    @pytest.mark.parametrize("loss", ["squared-hinge", "bce"])
    def test_margins_on_the_raw_vectors_are_the_solvers(self, length, loss):
        """The solver reads vectors of mean length 1, whatever theirs is: the head's scores are its margins."""
        vectors, levels = problem()
        settings = {"recursive": {"cost_sensitive": True, "alpha": 0.5}, "training": {"loss": loss}}
        config = configure("xr-transformer", None, {**settings, "ranker": {"cost_positive": 2.0}})
        level = level_of(levels, config)
        matched = np.full((40, 1), 2, np.int32)
        given = joined_nodes(matched, levels[0])
        rows = level._bootstrapped(_LevelOutput(vectors * length, matched), given)
        head = Head(6, 5)
        head.set_rows(*rows)
        found = head.eval().scores(torch.from_numpy(vectors * length), None).numpy()
        unit = vectors / np.linalg.norm(vectors, axis=1).mean()
        own = {
            "loss": "logistic" if loss == "bce" else loss,
            "cost_sensitive": True,
            "alpha": 0.5,
            "prune": 0.0,
        }
        ranker = Ranker(
            **own, cost_positive=2.0, cost_negative=2.0, max_passes=config.ranker.max_passes
        )
        allowed = sparse.csr_array(
            np.maximum(levels[0].toarray() > 0, np.eye(3)[[2] * 40]).astype(np.float32)
        )
        weights, bias = fit_rows(unit, levels[1], TREE, 1, allowed, ranker, 0)
        np.testing.assert_allclose(found, unit @ weights.T + bias, rtol=1e-3, atol=1e-3)
        assert abs(found).max() > 0.5


class TestLayout:
    def test_many_resolutions_as_in_table_7(self):
        assert resolution_widths(3_956, "many") == (16, 256)
        assert resolution_widths(30_938, "many") == (128, 2048)
        assert (
            resolution_widths(670_091, "many")
            == resolution_widths(2_812_281, "many")
            == (128, 2048, 32768)
        )
        assert resolution_widths(243, "many") == (16,)
        assert resolution_widths(5, "many") == resolution_widths(1, "many") == ()

    def test_one_resolution(self):
        assert resolution_widths(100, "one") == ()
        assert resolution_widths(101, "one") == (2,)
        assert resolution_widths(670_091, "one") == (8192,)

    @pytest.mark.parametrize(("widths", "finest", "expected"), [
        ((16, 256, 4000), "auto", 3), ((16, 256, 4000), "labels", 3), ((16, 256, 4000), "clusters", 2),
        ((128, 2048, 200_000), "auto", 2), ((128, 2048, 200_000), "labels", 3), ((128, 199_999), "auto", 2),
        ((70,), "clusters", 1), ((300_000,), "auto", 1),
    ])  # fmt: skip
    def test_tuned(self, widths, finest, expected):
        assert tuned_levels(widths, finest) == expected

    @pytest.mark.parametrize(("epochs", "levels", "expected"), [
        (10, 3, (2, 2, 6)), (5, 3, (1, 1, 3)), (10, 1, (10,)), (1, 3, (1, 1, 1)), (12, 4, (2, 2, 2, 6)),
    ])  # fmt: skip
    def test_epochs_are_shared(self, epochs, levels, expected):
        assert level_epochs((), epochs, levels) == expected

    def test_epochs_that_are_given(self):
        assert level_epochs((4, 1), 10, 2) == (4, 1)
        with pytest.raises(
            ConfigError, match=r"recursive.epochs: found numbers for 2 levels; expected 3, as many"
        ):
            level_epochs((4, 1), 10, 3)

    def test_steps_are_passes_over_the_documents(self):
        def passes(n_levels, **settings):
            return [
                length.passes(20) for length in level_lengths(Recursive(**settings), 10, n_levels)
            ]

        assert passes(2, steps=(30, 45)) == [1.5, 2.25]
        assert passes(2, epochs=(4, 1)) == [4, 1]
        assert passes(3) == [2, 2, 6]
        with pytest.raises(
            ConfigError, match=r"recursive.steps: found numbers for 2 levels; expected 3, as many"
        ):
            passes(3, steps=(30, 45))
        with pytest.raises(ConfigError, match=r"steps: found \[30\] beside epochs=\[2\]"):
            configure("xr-transformer", None, {"recursive": {"steps": [30], "epochs": [2]}})

    @pytest.mark.parametrize(("recursive", "epochs", "warm_up"), [
        ({"epochs": [2, 5]}, 5, 0.5), ({"epochs": [2, 5], "warmup_steps": 30}, 5, 1.5),
        ({"steps": [9, 50]}, 3, 0.25), ({"steps": [9, 50], "warmup_steps": 30}, 3, 1.5),
        ({"steps": [9, 50], "warmup_steps": 80}, 3, 2.5),
    ])  # fmt: skip
    def test_training_of_a_level(self, recursive, epochs, warm_up):
        config = configure("xr-transformer", None, {"recursive": recursive})
        length = level_lengths(config.recursive, 10, 2)[1]
        training = level_training(config.training, config.recursive, length, 20)
        passes = length.steps / 20 if length.steps else length.epochs
        assert (training.epochs, training.warmup_epochs) == (epochs, warm_up)
        assert training.warmup_epochs + training.cooldown_epochs == pytest.approx(passes)
        schedule = Schedule.of(training, 20, length.steps)
        assert schedule.total == (length.steps or 20 * length.epochs)
        assert schedule.warmup == pytest.approx(warm_up * 20)
        assert schedule.cooldown == pytest.approx(schedule.total - warm_up * 20)

    def test_levels_that_do_not_rise(self):
        with pytest.raises(
            ConfigError, match=r"recursive.*levels: found \[8, 8\]; expected rising"
        ):
            configure("xr-transformer", None, {"recursive": {"levels": [8, 8]}})

    def test_presets_have_steps_for_what_they_tune(self):
        labels = {
            "eurlex-4k": 3956,
            "wiki10-31k": 30938,
            "amazoncat-13k": 13330,
            "wiki-500k": 501070,
        }
        labels |= {"amazon-670k": 670091, "amazon-3m": 2812281}
        assert set(METHODS["xr-transformer"].presets) == set(labels)
        for preset, n_labels in labels.items():
            own = configure("xr-transformer", preset).recursive
            tuned = tuned_levels((*own.levels, n_labels), own.finest)
            assert len(own.steps) == tuned
