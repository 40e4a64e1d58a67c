"""Losses of networks in float64, against the formulas for one node at a time, which autograd
differentiates.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from test_cascade import LAYERS, TREE, TRUTH, alone, batch_of, network_of, path, weights_of  # noqa: E402
from test_recursive import TREE as MATCH_TREE  # noqa: E402
from test_recursive import batch_of as nodes_batch  # noqa: E402
from test_recursive import label_matrix  # noqa: E402

from head_scenarios import positives  # noqa: E402
from longtail.config import Cascade, Recursive, Training  # noqa: E402
from longtail.config.networks import loss_names  # noqa: E402
from longtail.errors import UsageError  # noqa: E402
from longtail.networks.cascade import CascadeXML  # noqa: E402
from longtail.networks.heads import updates  # noqa: E402
from longtail.networks.heads.head import Head  # noqa: E402
from longtail.networks.heads.row_training import Targets  # noqa: E402
from longtail.networks.losses import (  # noqa: E402
    Asymmetric,
    BinaryCrossEntropy,
    ChunkTargets,
    DecoupledSoftmax,
    Focal,
    PointwiseLoss,
    SquaredHinge,
    UserLoss,
    loss_named,
    loss_of,
)
from longtail.networks.recursive import Resolution, joined_nodes  # noqa: E402
from tiny_encoder import tiny_encoder  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

B = 5
S = 12
K = 30
D = 20
LOSSES = {
    "bce": BinaryCrossEntropy(),
    "squared-hinge": SquaredHinge(),
    "focal": Focal(),
    "focal 0": Focal(0.0),
    "focal 3.5": Focal(3.5),
    "asymmetric": Asymmetric(),
    "asymmetric without margin": Asymmetric(0.0, 1.0, 0.0),
    "asymmetric with a wide margin": Asymmetric(2.0, 0.0, 0.4),
    "decoupled-softmax": DecoupledSoftmax(),
}
EVERY = pytest.mark.parametrize("name", LOSSES)


def test_every_named_loss_is_checked_here():
    *names, custom = loss_names()
    assert custom == "custom"
    assert [type(loss_named(name)) for name in names] == [type(LOSSES[name]) for name in names]
    assert [loss_named(name).name for name in names] == names


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def formula(name, p, y):
    """Return the loss of one document by the formulas of the papers: scores (n,) and targets (n,)
    of its nodes.
    """
    s = torch.sigmoid(p)
    if name == "bce":
        return (-y * s.log() - (1 - y) * (1 - s).log()).sum()
    if name == "squared-hinge":
        return torch.where(y > 0, y * (1 - p).clamp(min=0) ** 2, (1 + p).clamp(min=0) ** 2).sum()
    if name.startswith("focal"):
        gamma = LOSSES[name].gamma
        return (-y * (1 - s) ** gamma * s.log() - (1 - y) * s**gamma * (1 - s).log()).sum()
    if name.startswith("asymmetric"):
        loss = LOSSES[name]
        q = (s - loss.margin).clamp(min=0)
        of_positives = -((1 - s) ** loss.gamma_positive) * s.log()
        return (y * of_positives - (1 - y) * q**loss.gamma_negative * (1 - q).log()).sum()
    total = p.sum() * 0
    for j in range(len(p)):
        if y[j] > 0:
            against = [p[k].exp() for k in range(len(p)) if y[k] == 0]
            total = total - y[j] * torch.log(p[j].exp() / (p[j].exp() + sum(against)))
    return total


def shortlist(rng):
    """Return scores, targets and counted slots: hard and soft targets, padding, a document without
    positives, one without negatives, and one whose slots are all padding but one.
    """
    scores = torch.from_numpy(rng.normal(0, 3, (B, S)))
    targets = torch.zeros(B, S, dtype=torch.float64)
    targets[0, :3] = 1
    targets[1, 2:8] = torch.from_numpy(rng.random(6))
    targets[2] = 1
    targets[4, 0] = 1
    counted = torch.from_numpy(rng.random((B, S)) < 0.8)
    counted[4] = False
    counted[4, 0] = True
    return scores.requires_grad_(), targets, counted


@EVERY
def test_value_and_gradient_on_shortlists(name, rng):
    scores, targets, counted = shortlist(rng)
    found = LOSSES[name].value(scores, targets, counted)
    expected = torch.stack(
        [formula(name, scores[row, counted[row]], targets[row, counted[row]]) for row in range(B)]
    )
    torch.testing.assert_close(found, expected)
    weights = torch.linspace(-1, 2, B, dtype=torch.float64)
    gradients = [
        torch.autograd.grad((losses * weights).sum(), scores)[0] for losses in (found, expected)
    ]
    torch.testing.assert_close(*gradients)
    assert not gradients[0][~counted].any()
    torch.testing.assert_close(LOSSES[name](scores, targets, counted), found)


@EVERY
def test_weights_of_nodes_on_shortlists(name, rng):
    """Weights of positives and negatives, as cost-sensitive training has them."""
    scores, targets, counted = shortlist(rng)
    positive = torch.from_numpy(rng.random((B, S))) * (targets > 0)
    negative = 0.3 * torch.from_numpy(rng.random((B, S))) * (targets == 0)
    found = LOSSES[name].weighted(scores, positive, negative, counted)
    if name == "decoupled-softmax":
        z = (negative * counted * scores.exp()).sum(1, keepdim=True)
        expected = (positive * counted * (1 + z / scores.exp()).log()).sum(1)
    else:
        ones = torch.ones_like(scores)
        points = [
            [
                positive[at] * formula(name, scores[at].view(1), ones[at].view(1))
                + negative[at] * formula(name, scores[at].view(1), 0 * ones[at].view(1))
                for at in ((row, slot) for slot in range(S) if counted[row, slot])
            ]
            for row in range(B)
        ]
        expected = torch.stack([sum(own) for own in points])
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(losses.sum(), scores)[0] for losses in (found, expected)]
    torch.testing.assert_close(*gradients)


@EVERY
def test_extreme_scores_are_finite(name):
    scores = torch.tensor([[-1e4, -90.0, 0.0, 90.0, 1e4]], requires_grad=True)
    for targets in (torch.ones(1, 5), torch.zeros(1, 5), torch.tensor([[1.0, 0, 1, 0, 1]])):
        loss = LOSSES[name].value(scores, targets, torch.ones(1, 5, dtype=torch.bool))
        (gradient,) = torch.autograd.grad(loss.sum(), scores)
        assert loss.isfinite().all()
        assert gradient.isfinite().all()


@EVERY
@pytest.mark.parametrize("size", [1, 4, 7, 30])
def test_chunks_add_up_to_all_labels(name, size, rng):
    """Losses and gradients of one chunk after another are those of autograd on all labels at once."""
    scores = torch.from_numpy(rng.normal(0, 3, (B, K))).requires_grad_()
    nodes, values = positives(rng, B, 4, K)
    nodes[1] = -1  # a document without positives
    values = values.double().masked_fill(nodes < 0, 0)
    dense = torch.zeros(B, K + 1, dtype=torch.float64).scatter_(1, nodes.long() % (K + 1), values)[
        :, :K
    ]
    expected = torch.stack([formula(name, scores[row], dense[row]) for row in range(B)])
    (gradient,) = torch.autograd.grad(expected.sum(), scores)
    targets = Targets(nodes, values, LOSSES[name])
    chunks = [slice(start, min(start + size, K)) for start in range(0, K, size)]
    normaliser = targets.loss.normaliser(
        (scores.detach()[:, own], targets.of_chunk(own)) for own in chunks
    )
    parts = [
        targets.loss.chunk(scores.detach()[:, own].clone(), targets.of_chunk(own), normaliser)
        for own in chunks
    ]
    torch.testing.assert_close(sum(losses for losses, _ in parts), expected.detach())
    torch.testing.assert_close(torch.cat([own for _, own in parts], 1), gradient)


@EVERY
@pytest.mark.parametrize("block", [3, 100])
def test_full_head_trains_vectors_and_rows(name, block, rng, monkeypatch):
    """Vectors, rows and biases move by autograd's gradients, in two micro-batches with a weight
    each.
    """
    monkeypatch.setattr(updates, "CPU_ELEMENTS", block * D)
    head = Head(K, D, dtype=torch.float64, optimiser="sgd", std=0.5)
    x = torch.from_numpy(rng.normal(size=(B, D))).requires_grad_()
    nodes, values = positives(rng, B, 4, K)
    values = values.double()
    scale = torch.from_numpy(rng.random(B))
    weight = head.weight.clone().requires_grad_()
    bias = head.bias.clone().requires_grad_()
    dense = torch.zeros(B, K + 1, dtype=torch.float64).scatter_(1, nodes.long() % (K + 1), values)[
        :, :K
    ]
    scores = x @ weight.T + bias
    expected = torch.stack([formula(name, scores[row], dense[row]) for row in range(B)])
    gradients = torch.autograd.grad((expected * scale).sum(), [x, weight, bias])
    for part in (slice(0, 2), slice(2, B)):
        losses = head.full_loss(x[part], nodes[part], values[part], LOSSES[name])
        torch.testing.assert_close(losses, expected[part].detach())
        (losses * scale[part]).sum().backward()
    torch.testing.assert_close(x.grad, gradients[0])
    head.step(1.0, seed=0)
    torch.testing.assert_close(weight.detach() - head.weight, gradients[1])
    torch.testing.assert_close(bias.detach() - head.bias, gradients[2])


def test_rows_are_never_trained_by_another_loss_than_vectors(rng):
    head = Head(K, D, optimiser="sgd")
    x = torch.randn(B, D, requires_grad=True)
    nodes, values = positives(rng, B, 4, K)
    for loss in (BinaryCrossEntropy(), Focal()):
        head.full_loss(x, nodes, values, loss).sum().backward()
    with pytest.raises(
        ValueError, match="found the losses bce and focal; expected one loss in a batch"
    ):
        head.step(1.0, seed=0)
    with pytest.raises(TypeError, match="loss"):
        Targets(nodes, values)


class TestLevels:
    """Losses of CascadeXML on shortlists and on all labels, with α and masks, against documents one
    by one.
    """

    @EVERY
    @pytest.mark.parametrize("last_level", ["shortlist", "full"])
    @pytest.mark.parametrize("rescale", [True, False])
    def test_values_and_gradients(self, name, last_level, rescale):
        network = network_of(last_level=last_level, rescale=rescale)
        batch = batch_of()
        network.loss = LOSSES[name]
        weights = weights_of(network)
        flat = [tensor for pair in weights for tensor in pair]
        documents = [
            slow_levels(
                name,
                network,
                weights,
                [own[0].double() for own in network.vectors(alone(batch, at), None)],
                own,
            )
            for at, own in enumerate(TRUTH)
        ]
        expected = torch.stack([torch.stack(own) for own in documents]).mean(0)
        gradients = torch.autograd.grad(
            expected.sum(), [*network.encoder.parameters(), *flat], allow_unused=True
        )
        found = network.losses(batch)
        torch.testing.assert_close(
            torch.stack(list(found.values())).double(), expected, rtol=1e-4, atol=1e-5
        )
        sum(found.values()).backward()
        for parameter, gradient in zip(network.encoder.parameters(), gradients, strict=False):
            if gradient is not None:
                torch.testing.assert_close(parameter.grad, gradient, rtol=5e-3, atol=1e-4)
        for head, (weight, bias), at in zip(network.heads, weights, range(3), strict=True):
            head.step(1.0, 0)
            first = len(gradients) - len(flat) + 2 * at
            moved = weight.detach() - head.weight.double(), bias.detach() - head.bias.double()
            torch.testing.assert_close(moved[0], gradients[first], rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(moved[1], gradients[first + 1], rtol=1e-3, atol=1e-4)

    @pytest.mark.parametrize("last_level", ["shortlist", "full"])
    def test_function_of_the_user_is_the_loss_that_it_computes(self, last_level):
        def squares(scores, targets, counted):
            return ((1 - scores).relu().square() * targets * counted).sum(1) + (
                (1 + scores).relu().square() * (targets == 0) * counted
            ).sum(1)

        results = []
        for loss in (SquaredHinge(), UserLoss(squares)):
            network = network_of(last_level=last_level)
            network.loss = loss
            losses = network.losses(batch_of())
            sum(losses.values()).backward()
            for head in network.heads:
                head.step(1.0, 0)
            weights = [head.weight for head in network.heads]
            results.append(
                [*losses.values(), *weights, *(p.grad for p in network.encoder.parameters())]
            )
        for hinge, custom in zip(*results, strict=True):
            if hinge is not None:
                torch.testing.assert_close(custom, hinge, rtol=1e-4, atol=1e-5)

    def test_setting_chooses_the_loss(self):
        for name in loss_names():
            training = Training(loss=name)
            cascade = Cascade(layers=LAYERS, shortlist=(2, 2))
            assert CascadeXML(tiny_encoder(), TREE, cascade, training, seed=0).loss.name == name
            assert (
                Resolution(tiny_encoder(), TREE, 1, Recursive(), training, seed=0).loss.name == name
            )

    @EVERY
    @pytest.mark.parametrize("cost_sensitive", [True, False])
    def test_a_level_of_xr_transformer(self, name, cost_sensitive):
        settings = Recursive(dropout=0.0, cost_sensitive=cost_sensitive, alpha=0.3)
        training = Training(head_optimiser="sgd", head_decay=0)
        network = Resolution(
            tiny_encoder(), MATCH_TREE, 1, settings, training, 5, loss=LOSSES[name]
        ).train()
        network.parents = joined_nodes(
            np.array([[0], [1], [2], [0]], np.int32), MATCH_TREE.coarsen(label_matrix())[0]
        )
        batch = nodes_batch(1)
        shortlist = network.shortlist(batch)
        with torch.no_grad():
            p = network.scores(batch.ids, batch.mask, shortlist.nodes)[1].double()
        documents = []
        for row in range(4):
            real = shortlist.nodes[row] >= 0
            own = p[row, real]
            relevance = shortlist.targets[row, real].double()
            y = relevance.clamp(max=1)
            total = max(float(batch.values[row].sum()), 1)
            loss = LOSSES[name]
            positive, negative = loss.weights(y)
            if cost_sensitive:
                positive, negative = relevance / total, 0.3 * negative
            counted = torch.ones(1, len(own), dtype=torch.bool)
            documents.append(
                loss.weighted(own[None], positive[None], negative[None], counted)[0] / len(own)
            )
        ((_, found),) = network.losses(batch).items()
        torch.testing.assert_close(
            found.double(), torch.stack(documents).mean(), rtol=1e-5, atol=1e-6
        )


def slow_levels(name, network, weights, theta, own):
    """Return α_t / |S^(t)| · Σ L(p, y) of one document, sets of nodes in plain Python."""
    settings = network.settings
    totals = []
    sizes = []
    nodes = set(range(TREE.widths[0]))
    for t, (weight, bias) in enumerate(weights):
        y = {}
        for position, value in own.items():
            node = path(TREE, position)[t]
            y[node] = max(y.get(node, 0), value)
        if t == TREE.n_levels - 1 and settings.last_level == "full":
            nodes = set(range(TREE.n_labels))
        order = sorted(nodes)
        p = weight[order] @ theta[t] + bias[order]
        targets = torch.tensor([y.get(node, 0.0) for node in order]).double()
        totals.append(formula(name, p, targets))
        sizes.append(len(order))
        if t < TREE.n_levels - 1:
            top = [
                order[at]
                for at in p.detach().argsort(descending=True)[: settings.shortlist[t]].tolist()
            ]
            nodes = {child for node in top for child in TREE.children(t, node)}
            nodes |= {path(TREE, position)[t + 1] for position in own}
    alpha = [size / min(sizes) if settings.rescale else 1 for size in sizes]
    return [factor / size * total for factor, size, total in zip(alpha, sizes, totals, strict=True)]


class TestOwnLosses:
    def test_a_pointwise_loss_needs_no_derivatives(self, rng):
        class Squared(PointwiseLoss):
            name = "squared"

            def positive(self, scores):
                return (scores - 1).square()

            def negative(self, scores):
                return (scores + 1).square()

        scores = torch.from_numpy(rng.normal(size=(B, S)))
        columns = torch.zeros(B, 1, dtype=torch.int64)
        losses, gradient = Squared().chunk(
            scores, ChunkTargets(columns, torch.ones(B, 1).double()), None
        )
        targets = torch.zeros(B, S, dtype=torch.float64)
        targets[:, 0] = 1
        sign = 2 * targets - 1
        torch.testing.assert_close(losses, (scores - sign).square().sum(1))
        torch.testing.assert_close(gradient, 2 * (scores - sign))

    def test_functions_and_losses_are_losses(self):
        focal = Focal(3)
        assert loss_of(focal) is focal
        assert isinstance(loss_of(lambda scores, targets, counted: scores.sum(1)), UserLoss)

    @pytest.mark.parametrize("result", [None, 3.0, torch.zeros(()), torch.zeros(2, 3)])
    def test_a_function_that_gives_no_loss_of_each_document_is_refused(self, result):
        loss = UserLoss(lambda scores, targets, counted: result)
        with pytest.raises(
            UsageError, match=r"^loss: found .* for scores \(2, 3\); expected a tensor \(2,\)"
        ):
            loss.value(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool))

    def test_a_missing_custom_loss_is_named(self):
        scores = torch.zeros(1, 1)
        with pytest.raises(UsageError, match=r"^training.loss: found custom without a loss"):
            loss_named("custom").value(scores, scores, scores > 0)

    @pytest.mark.parametrize("make", [
        lambda: Focal(-1.0), lambda: Focal(0.5), lambda: Focal(math.nan), lambda: Asymmetric(gamma_negative=0.1),
        lambda: Asymmetric(margin=1.0), lambda: Asymmetric(margin=-0.1),
    ])  # fmt: skip
    def test_parameters_out_of_range_are_refused(self, make):
        with pytest.raises(UsageError, match=r"^(gamma|gamma_negative|margin): found .*; expected"):
            make()

    def test_decoupled_softmax_needs_its_first_pass(self):
        targets = ChunkTargets(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1))
        with pytest.raises(ValueError, match="without normaliser"):
            DecoupledSoftmax().chunk(torch.zeros(1, 2), targets, None)
