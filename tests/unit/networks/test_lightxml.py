"""LightXML as settings of the cascade, against its equations done for one document at a time; then
trained.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from test_cascade import LENGTHS, TRUTH, alone, batch_of
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from longtail.config import Cascade, Training
from longtail.data.dataset import Dataset
from longtail.methods import configure
from longtail.metrics import evaluate
from longtail.networks.cascade import CascadeXML
from longtail.networks.cascade_fitting import train_ranker
from longtail.networks.cascade_ranker import CascadeRanker
from longtail.networks.embedder import pretrained_embedder
from longtail.networks.network_folder import load_network, save_network
from longtail.store import open_folder, write_folder
from longtail.tree.tree import LabelTree
from tiny_encoder import tiny_encoder, write_encoder

pytestmark = pytest.mark.usefixtures("one_thread")

ORDER = np.random.default_rng(1).permutation(14).astype(np.int32)
CLUSTERS = LabelTree(ORDER, (np.array([0, 3, 4, 8, 13, 14]),))  # 5 → 14, of 1 to 5 labels
ALONE = LabelTree(ORDER, ())
SETTINGS = {"merge": "concat", "rescale": False, "label_rows": "random"}


def network_of(tree, *, dropout=False, **settings):
    """Return a network in training mode, whose classifiers tell documents apart; without
    ``dropout`` none is left.
    """
    cascade = Cascade(**{**SETTINGS, "last_level": "shortlist", **settings})
    training = Training(head_optimiser="sgd", head_decay=0)
    network = CascadeXML(tiny_encoder(), tree, cascade, training, seed=5).train()
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout) and not dropout:
            module.p = 0.0
    chance = torch.Generator().manual_seed(0)
    for head in network.heads:
        shape = head.weight.shape
        head.set_rows(
            torch.randn(shape, generator=chance) / 3, torch.randn(shape[0], generator=chance)
        )
    return network


def side_by_side(network, batch, at):
    """Return z, the vectors of the last layers of one document."""
    return torch.cat(network.encoder(alone(batch, at), None, [1, 2, 3]), 1)[0]


def narrowed(network, z):
    """Return h = M z + m, the bottleneck."""
    linear = network.merges[1][1]
    return linear.weight @ z + linear.bias


def slow_losses(network, batch, kept):
    """Return the loss of clusters and of candidates, the mean over documents."""
    first, second = network.heads
    losses = []
    for at, own in enumerate(TRUTH):
        z = side_by_side(network, batch, at)
        logits = first.weight @ z + first.bias
        targets = torch.zeros(5)
        for label, value in own.items():
            cluster = CLUSTERS.ancestors(int(ORDER[label]))[0]
            targets[cluster] = max(float(targets[cluster]), value)
        best = logits.topk(kept).indices.tolist()
        candidates = {label for cluster in best for label in CLUSTERS.children(0, cluster)} | set(
            own
        )
        nodes = torch.tensor(sorted(candidates))
        scores = second.weight[nodes] @ narrowed(network, z) + second.bias[nodes]
        wanted = torch.tensor([own.get(label, 0.0) for label in sorted(candidates)])
        losses.append(torch.stack([bce(logits, targets), bce(scores, wanted)]))
    return torch.stack(losses).mean(0)


class TestClusters:
    @pytest.mark.parametrize("kept", [1, 2, 5])
    def test_losses_are_two_means(self, kept):
        network = network_of(CLUSTERS, bottleneck=6, shortlist=(kept,))
        batch = batch_of()
        found = torch.stack(list(network.losses(batch).values()))
        torch.testing.assert_close(found, slow_losses(network, batch, kept), rtol=1e-4, atol=1e-5)

    def test_gradients(self):
        network = network_of(CLUSTERS, bottleneck=6, shortlist=(2,))
        batch = batch_of()
        parameters = [*network.merges.parameters(), *network.encoder.parameters()]
        expected = torch.autograd.grad(
            slow_losses(network, batch, 2).sum(), parameters, allow_unused=True
        )
        sum(network.losses(batch).values()).backward()
        assert parameters[0].shape == (6, 48)
        for parameter, gradient in zip(parameters, expected, strict=True):
            if gradient is not None:
                torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=2e-5)

    def test_score_is_a_product(self):
        network = network_of(CLUSTERS, bottleneck=6, shortlist=(5,)).eval()
        batch = batch_of()
        ranked = network.rank(batch.ids, batch.mask, 14)
        assert ranked.vectors.shape == (4, 6)
        first, second = network.heads
        for at in range(4):
            z = side_by_side(network, batch, at)
            clusters = (first.weight @ z + first.bias).sigmoid()[
                torch.from_numpy(CLUSTERS.parents(1)).long()
            ]
            expected = (second.weight @ narrowed(network, z) + second.bias).sigmoid() * clusters
            found = torch.zeros(14).scatter_(0, ranked.nodes[at].long(), ranked.scores[at])
            torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(
                ranked.vectors[at], narrowed(network, z).detach(), rtol=1e-4, atol=1e-5
            )

    def test_shapes_and_dropout(self):
        network = network_of(CLUSTERS, dropout=True, bottleneck=6)
        assert network.layers == ((1, 2, 3), (1, 2, 3))
        assert network.widths == [48, 6]
        assert network.dropouts[0].p == network.merges[1][0].p == 0.5
        assert network.dropouts[1].p == 0
        assert network_of(CLUSTERS).widths == [48, 48]

    def test_bottleneck_is_trained_kept_and_halved(self):
        network = network_of(CLUSTERS, bottleneck=6).eval()
        batch = batch_of()
        grouped = {
            id(parameter) for group in network.optimiser_groups() for parameter in group["params"]
        }
        assert grouped == {id(parameter) for parameter in network.parameters()}
        other = network_of(CLUSTERS, bottleneck=6).eval()
        with torch.no_grad():
            other.merges[1][1].weight.zero_()
        other.load_arrays({name: np.array(array) for name, array in network.to_arrays().items()})
        expected = network.rank(batch.ids, batch.mask, 3)
        assert torch.equal(other.rank(batch.ids, batch.mask, 3).scores, expected.scores)
        half = network.in_half()
        assert {p.dtype for p in half.merges.parameters()} == {torch.bfloat16}
        assert {p.dtype for p in network.merges.parameters()} == {torch.float32}
        torch.testing.assert_close(
            half.rank(batch.ids, batch.mask, 3).scores, expected.scores, atol=0.05, rtol=0
        )


class TestAllLabels:
    @pytest.mark.parametrize("last_level", ["auto", "shortlist"])
    def test_loss_and_ranking(self, last_level):
        network = network_of(ALONE, last_level=last_level, bottleneck=6)
        batch = batch_of()
        assert (network.widths, network.kept, list(network.merges.parameters())) == ([48], (), [])
        (head,) = network.heads
        z = torch.stack([side_by_side(network, batch, at) for at in range(len(LENGTHS))])
        logits = z @ head.weight.T + head.bias
        targets = torch.zeros(4, 14)
        for at, own in enumerate(TRUTH):
            targets[at, list(own)] = torch.tensor(list(own.values()))
        assert list(network.losses(batch)) == ["level 1"]
        torch.testing.assert_close(
            network.losses(batch)["level 1"], bce(logits, targets), rtol=1e-4, atol=1e-5
        )
        ranked = network.eval().rank(batch.ids, batch.mask, 4)
        best = logits.detach().sigmoid().topk(4)
        assert torch.equal(ranked.nodes.long(), best.indices)
        torch.testing.assert_close(ranked.scores, best.values, rtol=1e-4, atol=1e-5)


WORDS = [
    "red",
    "green",
    "blue",
    "apple",
    "pear",
    "sky",
    "window",
    "editor",
    "sound",
    "file",
    "door",
    "tree",
]


@pytest.fixture(scope="module")
def documents():
    """Documents that name their label twelve words wide, among others."""
    chance = np.random.default_rng(4)
    texts = []
    labels = []
    for _ in range(240):
        own = chance.integers(12)
        texts.append(" ".join([WORDS[own]] * 3 + list(chance.choice(WORDS, 2))))
        labels.append([WORDS[own]])
    return Dataset.of(texts, labels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, documents):
    return write_encoder(tmp_path_factory.mktemp("encoder"), list(documents.texts))


class TestTrained:
    @pytest.mark.parametrize("rows", ["random", "centroid"])
    @pytest.mark.parametrize("borders", [(), (0, 3, 6, 9, 12)], ids=["all labels", "clusters"])
    def test_learns_and_comes_back(self, tmp_path, documents, folder, borders, rows):
        tree = LabelTree(np.arange(12, dtype=np.int32), (np.array(borders),) if borders else ())
        settings = {
            **SETTINGS,
            "label_rows": rows,
            "bottleneck": 10,
            "dropout": [0.1] * tree.n_levels,
        }
        settings |= {"last_level": "shortlist", "shortlist": [2]} if borders else {}
        training = {
            "epochs": 4,
            "batch_size": 8,
            "encoder_rate": 2e-3,
            "head_rate": 1e-2,
            "average": 0.25,
        }
        encoder = {"name": str(folder), "max_tokens": 16}
        config = configure(
            "cascadexml", None, {"encoder": encoder, "cascade": settings, "training": training}
        )
        embedder = pretrained_embedder(config.encoder, device="cpu")
        network = CascadeXML(
            embedder.network.encoder, tree, config.cascade, config.training, config.seed
        )
        ranker = CascadeRanker(embedder.tokeniser, network, tree)
        tokens = ranker.tokeniser(documents.document_texts())
        history = train_ranker(ranker, documents, tokens, config)
        first, last = (sum(history.epochs[at].losses.values()) for at in (0, -1))
        assert last < 0.8 * first
        found, vectors = ranker.search(tokens, 3)
        assert evaluate(found, documents.label_matrix)["P@1"] > 0.9
        assert vectors.shape == (240, 10 if borders else 48)
        with write_folder(tmp_path / "model") as writer:
            save_network(ranker.freeze(), writer)
        loaded = load_network(open_folder(tmp_path / "model"), config, "cpu")
        again, same = loaded.search(tokens, 3)
        np.testing.assert_array_equal(again.toarray(), found.toarray())
        np.testing.assert_array_equal(same, vectors)
