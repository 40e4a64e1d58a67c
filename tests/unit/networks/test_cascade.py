"""CascadeXML against algorithm 1 done for one document at a time, in float64, with sets of nodes in
plain Python.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from longtail.config import Cascade, Training
from longtail.errors import ConfigError
from longtail.networks.batches import Batch
from longtail.networks.cascade import CascadeXML
from longtail.networks.heads.head import Head
from longtail.tree.tree import LabelTree
from tiny_encoder import tiny_encoder

TREE = LabelTree(
    np.random.default_rng(1).permutation(14).astype(np.int32),
    (np.array([0, 1, 4, 6]), np.array([0, 3, 4, 5, 9, 13, 14])),  # 3 → 6 → 14, of 1 to 4 children
)
LAYERS = ((1, 2), (2,), (3,))
# labels by position: one, some that are siblings, many, and soft ones
TRUTH = [
    {13: 1.0},
    {0: 1.0, 1: 1.0, 2: 1.0, 9: 1.0},
    dict.fromkeys(range(14), 1.0),
    {3: 0.25, 4: 0.5, 8: 0.75, 7: 0.1},
]
LENGTHS = [9, 4, 16, 7]


pytestmark = pytest.mark.usefixtures("one_thread")


def network_of(tree=TREE, kept=(2, 2), layers=LAYERS, last_level="shortlist", **settings):
    """Return a network in training mode whose dropouts drop nothing, and whose classifiers tell
    documents apart.
    """
    training = Training(head_optimiser="sgd", head_decay=0)
    cascade = Cascade(layers=layers, shortlist=kept, last_level=last_level, **settings)
    network = CascadeXML(tiny_encoder(), tree, cascade, training, seed=5).train()
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    chance = torch.Generator().manual_seed(0)
    for head in network.heads:
        head.set_rows(
            torch.randn(head.weight.shape, generator=chance) / 2,
            torch.randn(len(head.bias), generator=chance),
        )
    return network


def batch_of(truth=TRUTH, lengths=LENGTHS):
    """Return documents of these lengths; the positives rise in each row, as in training."""
    chance = np.random.default_rng(3)
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    ids = np.where(mask, chance.integers(4, 200, mask.shape), 0)
    positives = np.full((len(truth), max(map(len, truth)) + 1), -1, np.int32)
    values = np.zeros(positives.shape, np.float32)
    for at, own in enumerate(truth):
        positives[at, : len(own)] = sorted(own)
        values[at, : len(own)] = [own[label] for label in sorted(own)]
    tensors = (torch.from_numpy(array) for array in (ids, mask, positives, values))
    return Batch(*tensors, np.arange(len(truth)))


def alone(batch, at):
    """Return the ids of one document, without padding."""
    return batch.ids[at : at + 1, : LENGTHS[at]]


def path(tree, position):
    return tree.ancestors(int(tree.order[position]))


def weights_of(network):
    """Return (weight, bias) of each level, in float64, to be differentiated by."""
    return [
        (head.weight.double().requires_grad_(), head.bias.double().requires_grad_())
        for head in network.heads
    ]


def slow_step(tree, weights, theta, own, settings):
    """Return the losses of each level for one document, and S^(t) of each: algorithm 1, line by
    line.
    """
    losses = []
    shortlists = []
    shortlist = set(range(tree.widths[0]))
    for t, (weight, bias) in enumerate(weights):
        y = {}
        for position, value in own.items():
            node = path(tree, position)[t]
            y[node] = max(y.get(node, 0), value)
        if t == tree.n_levels - 1 and settings.last_level == "full":
            shortlist = set(range(tree.n_labels))
        nodes = sorted(shortlist)
        p = {node: weight[node] @ theta[t].double() + bias[node] for node in nodes}
        losses.append(
            sum(bce(p[node], torch.tensor(y.get(node, 0.0)).double()) for node in nodes)
            / len(nodes)
        )
        shortlists.append(shortlist)
        if t < tree.n_levels - 1:
            top = sorted(nodes, key=lambda node: -float(p[node].detach()))[: settings.shortlist[t]]
            shortlist = {child for node in top for child in tree.children(t, node)}
            shortlist |= {path(tree, position)[t + 1] for position in own}
    smallest = min(map(len, shortlists))
    alpha = [len(shortlist) / smallest if settings.rescale else 1 for shortlist in shortlists]
    return [factor * loss for factor, loss in zip(alpha, losses, strict=True)], shortlists


def slow_losses(network, weights, batch, truth):
    """Return the losses of each level, the mean over documents that go through the encoder one by
    one.
    """
    documents = []
    for at, own in enumerate(truth):
        theta = [vector[0] for vector in network.vectors(alone(batch, at), None)]
        documents.append(torch.stack(slow_step(TREE, weights, theta, own, network.settings)[0]))
    return torch.stack(documents).mean(0)


KINDS = [
    {},
    {"rescale": False},
    {"last_level": "full"},
    {"last_level": "full", "rescale": False},
    {"kept": (1, 1)},
    {"kept": (3, 6)},
    {"kept": (64, 64)},
]


class TestLosses:
    @pytest.mark.parametrize("kind", KINDS, ids=str)
    def test_are_those_of_the_algorithm(self, kind):
        network = network_of(**kind)
        batch = batch_of()
        found = network.losses(batch)
        assert list(found) == ["level 1", "level 2", "level 3"]
        expected = slow_losses(network, weights_of(network), batch, TRUTH)
        torch.testing.assert_close(
            torch.stack(list(found.values())).double(), expected, rtol=1e-5, atol=1e-6
        )

    @pytest.mark.parametrize("kind", KINDS[:5], ids=str)
    def test_gradients(self, kind):
        network = network_of(**kind)
        batch = batch_of()
        weights = weights_of(network)
        parameters = [*network.encoder.parameters(), *network.merges.parameters()]
        flat = [tensor for pair in weights for tensor in pair]
        total = slow_losses(network, weights, batch, TRUTH).sum()
        expected = torch.autograd.grad(total, [*parameters, *flat], allow_unused=True)
        sum(network.losses(batch).values()).backward()
        for parameter, gradient in zip(parameters, expected, strict=False):
            assert (parameter.grad is None) == (gradient is None)
            if gradient is not None:
                torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=2e-5)
        for t, head in enumerate(
            network.heads
        ):  # plain gradient descent: what a step of 1 takes away is the gradient
            head.step(1.0, 0)
            weight, bias = (tensor.detach() for tensor in weights[t])
            torch.testing.assert_close(
                weight - head.weight.double(),
                expected[len(parameters) + 2 * t],
                rtol=1e-4,
                atol=1e-5,
            )
            torch.testing.assert_close(
                bias - head.bias.double(),
                expected[len(parameters) + 2 * t + 1],
                rtol=1e-4,
                atol=1e-5,
            )

    def test_shortlists_of_the_case_differ(self):
        """What the tests above hold is worth little if all shortlists were as long as one another."""
        network = network_of(kept=(1, 1))
        batch = batch_of()
        sizes = set()
        for at, own in enumerate(TRUTH):
            theta = [vector[0] for vector in network.vectors(alone(batch, at), None)]
            sizes.add(
                tuple(
                    map(len, slow_step(TREE, weights_of(network), theta, own, network.settings)[1])
                )
            )
        assert len(sizes) >= 3

    def test_dropout_of_each_level_is_the_settings_own(self):
        cascade = Cascade(layers=LAYERS, dropout=(0.1, 0.2, 0.3), shortlist=(2, 2))
        network = CascadeXML(tiny_encoder(), TREE, cascade, Training(), seed=0)
        assert [module.p for module in network.dropouts] == [0.1, 0.2, 0.3]

    @pytest.mark.parametrize("kind", KINDS[:3], ids=str)
    def test_micro_batches_add_up(self, kind):
        network = network_of(**kind)
        batch = batch_of()
        whole = torch.stack(list(network.losses(batch).values()))
        parts = [
            torch.stack(list(network.losses(part).values())) * len(part) / 4
            for part in batch.split(3)
        ]
        torch.testing.assert_close(sum(parts), whole)


def slow_ranking(network, theta, kept):
    """Return {position: score} of all labels that are reached by ``kept`` nodes of each level."""
    tree = network_tree(network)
    nodes = None
    settings = network.settings
    above = {}
    for t, (weight, bias) in enumerate(weights_of(network)):
        nodes = range(tree.widths[0]) if nodes is None else nodes
        own = {
            node: float((weight[node] @ theta[t].double() + bias[node]).detach().sigmoid())
            for node in nodes
        }
        scores = {node: own[node] * above.get(node, 1) for node in nodes}
        if t == tree.n_levels - 1:
            return scores
        top = sorted(nodes, key=lambda node: -own[node])[: kept[t]]
        carried = {"level": dict.fromkeys(top, 1.0), "weighted": own, "path": scores}[
            settings.score
        ]
        above = {child: carried[node] for node in top for child in tree.children(t, node)}
        nodes = list(above)


def network_tree(network):
    return LabelTree(
        np.arange(network.tables.widths[-1], dtype=np.int32),
        tuple(
            network.tables.starts(level).numpy().astype(np.int64) for level in range(network.last)
        ),
    )


def assert_ranked(ranked, expected, k):
    for scores, nodes, own in zip(ranked.scores, ranked.nodes, expected, strict=True):
        known = nodes[nodes >= 0].tolist()
        assert len(known) == min(k, len(own))
        assert (nodes[len(known) :] == -1).all()
        assert (scores[len(known) :] == 0).all()
        best = sorted(own, key=lambda node: -own[node])[:k]
        assert known == best
        assert scores[: len(known)].tolist() == pytest.approx(
            [own[node] for node in best], rel=1e-4
        )


class TestRank:
    @pytest.mark.parametrize("score", ["weighted", "level", "path"])
    @pytest.mark.parametrize("kept", [(3, 6), (1, 2), (2, 1)], ids=str)
    @pytest.mark.parametrize("k", [1, 5, 99])
    def test_is_the_search_done_slowly(self, score, kept, k):
        network = network_of(score=score, kept=kept).eval()
        batch = batch_of()
        ranked = network.rank(batch.ids, batch.mask, k)
        expected = []
        for at in range(4):
            theta = [vector[0] for vector in network.vectors(alone(batch, at), None)]
            expected.append(slow_ranking(network, theta, kept))
            torch.testing.assert_close(ranked.vectors[at], theta[-1].detach(), rtol=1e-4, atol=1e-5)
        assert_ranked(ranked, expected, k)
        assert [part.shape for part in ranked.kept] == [(4, kept[0]), (4, kept[1])]

    def test_scores_along_the_path_multiply(self):
        """Where everything is kept, each kind of score is a product of σ of all nodes of a level."""
        batch = batch_of()
        found = {}
        for score in ("weighted", "level", "path"):
            network = network_of(score=score, kept=(3, 6)).eval()
            ranked = network.rank(batch.ids, batch.mask, 14)
            found[score] = torch.zeros(4, 14).scatter_(1, ranked.nodes.long(), ranked.scores)
        theta = network.vectors(batch.ids, batch.mask)
        dense = [
            (vector @ head.weight.T + head.bias).sigmoid()
            for vector, head in zip(theta, network.heads, strict=True)
        ]
        paths = torch.tensor([path(TREE, position) for position in range(14)])
        first, second, last = (dense[t][:, paths[:, t]] for t in range(3))
        torch.testing.assert_close(found["level"], last)
        torch.testing.assert_close(found["weighted"], last * second)
        torch.testing.assert_close(found["path"], last * second * first)

    @pytest.mark.parametrize("k", [3, 99])
    def test_full_last_level(self, k):
        network = network_of(last_level="full").eval()
        batch = batch_of()
        ranked = network.rank(batch.ids, batch.mask, k)
        head = network.heads[-1]
        theta = network.vectors(batch.ids, batch.mask)[-1]
        dense = (theta @ head.weight.T + head.bias).sigmoid()
        assert_ranked(ranked, [dict(enumerate(row)) for row in dense.tolist()], k)

    @pytest.mark.parametrize("last_level", ["shortlist", "full"])
    def test_labels_alone(self, last_level):
        tree = LabelTree(np.arange(5, dtype=np.int32), ())
        network = network_of(tree, (), ((3,),), last_level=last_level)
        batch = batch_of([{0: 1.0}, {}, {4: 1.0}, {1: 1.0}])
        theta = network.vectors(batch.ids, batch.mask)[0]
        logits = theta @ network.heads[0].weight.T + network.heads[0].bias
        targets = torch.tensor([[1.0, 0, 0, 0, 0], [0] * 5, [0, 0, 0, 0, 1], [0, 1, 0, 0, 0]])
        torch.testing.assert_close(network.losses(batch)["level 1"], bce(logits, targets))
        ranked = network.eval().rank(batch.ids, batch.mask, 7)
        assert ranked.kept == ()
        assert_ranked(ranked, [dict(enumerate(row)) for row in logits.sigmoid().tolist()], 7)


class TestWeights:
    def test_come_back(self):
        network = network_of().eval()
        batch = batch_of()
        other = network_of().eval()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(0.3)
        other.heads[1].set_rows(network.heads[1].weight + 1)
        arrays = {name: np.array(array) for name, array in network.to_arrays().items()}
        other.load_arrays(arrays)
        for ours, theirs in zip(
            network.rank(batch.ids, batch.mask, 5)[:3],
            other.rank(batch.ids, batch.mask, 5)[:3],
            strict=True,
        ):
            assert torch.equal(ours, theirs)

    def test_each_parameter_is_in_one_group(self):
        network = network_of()
        grouped = [
            id(parameter) for group in network.optimiser_groups() for parameter in group["params"]
        ]
        assert len(grouped) == len(set(grouped))
        assert set(grouped) == {id(parameter) for parameter in network.parameters()}

    def test_merging_layers_learn_as_classifiers_do_if_asked_for(self):
        training = Training(encoder_rate=1e-4, head_rate=3e-3, encoder_decay=0.05, head_decay=0.007)
        networks = {
            own: CascadeXML(
                tiny_encoder(), TREE, Cascade(layers=LAYERS, merge_training=own), training, seed=5
            )
            for own in ("encoder", "classifiers")
        }
        found = {}
        for own, network in networks.items():
            groups = network.optimiser_groups()
            grouped = [id(parameter) for group in groups for parameter in group["params"]]
            assert len(grouped) == len(set(grouped))
            assert set(grouped) == {id(parameter) for parameter in network.parameters()}
            weight, bias = (id(parameter) for parameter in network.merges.parameters())
            places = {id(parameter): group for group in groups for parameter in group["params"]}
            found[own] = [(places[at]["lr"], places[at]["weight_decay"]) for at in (weight, bias)]
            encoder = {
                (places[id(own)]["lr"], places[id(own)]["weight_decay"])
                for own in network.encoder.parameters()
            }
            assert encoder == {(1e-4, 0.05), (1e-4, 0.0)}
        assert found == {"encoder": [(1e-4, 0.0)] * 2, "classifiers": [(3e-3, 0.007), (3e-3, 0.0)]}

    def test_nothing_to_merge_is_no_group(self):
        settings = Cascade(layers=((1,), (2,), (3,)), merge_training="classifiers")
        assert (
            len(CascadeXML(tiny_encoder(), TREE, settings, Training(), seed=5).optimiser_groups())
            == 2
        )

    def test_merging_begins_as_the_mean(self):
        network = network_of()
        batch = batch_of()
        first, second = network.encoder(batch.ids, batch.mask, [1, 2])
        torch.testing.assert_close(network.vectors(batch.ids, batch.mask)[0], (first + second) / 2)


class TestXavierRows:
    @pytest.mark.parametrize("last_level", ["shortlist", "full"])
    def test_every_level_is_uniform_within_its_bound(self, last_level):
        settings = Cascade(label_rows="xavier", last_level=last_level)
        network = CascadeXML(tiny_encoder(), TREE, settings, Training(), seed=5)
        for head, nodes in zip(network.heads, TREE.widths, strict=True):
            bound = (6 / (nodes + 16)) ** 0.5
            assert head.weight.shape == (nodes, 16)
            assert 0.8 * bound < head.weight.abs().max() <= bound
            assert abs(head.weight.mean()) < 0.2 * bound

    def test_seed_alone_decides_and_levels_differ(self):
        tree = LabelTree(np.arange(8, dtype=np.int32), (np.arange(9),))
        made = [
            CascadeXML(tiny_encoder(), tree, Cascade(label_rows="xavier"), Training(), seed)
            for seed in (5, 5, 6)
        ]
        first, again, other = ([head.weight for head in network.heads] for network in made)
        assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
        assert not any(torch.equal(*pair) for pair in zip(first, other, strict=True))
        assert not torch.equal(*first)  # of two levels of the same shape

    def test_rows_that_are_still_to_be_set_are_not_drawn(self, monkeypatch):
        monkeypatch.setattr(Head, "set_xavier_rows", lambda head, seed: pytest.fail("drawn"))
        CascadeXML(tiny_encoder(), TREE, Cascade(label_rows="xavier"), Training(), 0, std=0)


class TestInHalf:
    @pytest.mark.parametrize("pooling", ["cls", "mean"])
    def test_ranks_alike_and_leaves_the_network_as_it_was(self, pooling):
        network = network_of().eval()
        batch = batch_of()
        network.encoder.pooling = pooling
        half = network.in_half()
        found = half.rank(batch.ids, batch.mask, 3)
        expected = network.rank(batch.ids, batch.mask, 3)
        torch.testing.assert_close(found.scores, expected.scores, atol=0.05, rtol=0)
        assert {p.dtype for p in half.encoder.parameters()} == {torch.bfloat16}
        assert {p.dtype for p in network.parameters()} == {torch.float32}
        assert all(own is shared for own, shared in zip(half.heads, network.heads, strict=True))


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"layers": ((1,), (3,))},
                "layers: found settings for 2 levels; expected 3, as the tree has",
            ),
            ({"layers": ((1,), (2,), (12,))}, "layers: found 12; expected at most 3"),
            ({"shortlist": (5,)}, "shortlist: found settings for 2 levels"),
            ({"shortlist": (5, 5, 5)}, "shortlist: found settings for 4 levels"),
            ({"dropout": (0.1, 0.2, 0.3, 0.4)}, "dropout: found settings for 4 levels"),
        ],
    )
    def test_of_another_tree(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            CascadeXML(tiny_encoder(), TREE, Cascade(**settings), Training(), 0)

    def test_by_themselves(self):
        network = CascadeXML(tiny_encoder(), TREE, Cascade(), Training(), 0)
        assert network.layers == ((1,), (2,), (3,))
        assert network.kept == (3, 6)
