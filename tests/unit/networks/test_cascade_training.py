"""Initial classifiers of a network that ranks, by the settings."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from scipy import sparse

from longtail.config import Cascade, Training
from longtail.data.labels import Labels
from longtail.networks.cascade import CascadeXML
from longtail.networks.cascade_fitting import set_initial_weights
from longtail.networks.heads.initial_rows import prior_logit
from longtail.tree.tree import LabelTree
from tiny_encoder import tiny_encoder

TREE = LabelTree(np.arange(12, dtype=np.int32), (np.array([0, 3, 6, 9, 12]),))
N_DOCUMENTS = 20
WIDTH = 16


def initial_network(**settings):
    """Return a network with its initial classifiers, the vectors of documents, and the labels of
    each level.
    """
    chance = np.random.default_rng(0)
    truth = sparse.csr_array((chance.random((N_DOCUMENTS, 12)) < 0.2).astype(np.float32))
    levels = TREE.coarsen(truth)
    vectors = [chance.normal(1, 1, (N_DOCUMENTS, WIDTH)).astype(np.float32) for _ in levels]
    network = CascadeXML(tiny_encoder(), TREE, Cascade(**settings), Training(), seed=5)
    ranker = SimpleNamespace(network=network, tree=TREE, level_vectors=lambda tokens: vectors)
    labels = Labels.of([str(number) for number in range(12)])
    drawn = [head.weight.clone() for head in network.heads]
    set_initial_weights(ranker, [None] * N_DOCUMENTS, levels, network.settings, labels)
    return network, vectors, levels, drawn


@pytest.mark.parametrize("last_level", ["shortlist", "full"])
@pytest.mark.parametrize("rows", ["random", "xavier"])
class TestRandomRows:
    def test_stay_as_drawn_with_biases_at_the_prior(self, rows, last_level):
        network, _, levels, drawn = initial_network(label_rows=rows, last_level=last_level)
        for head, matrix, slots, weight in zip(
            network.heads, levels, network.slots, drawn, strict=True
        ):
            assert torch.equal(head.weight, weight)
            assert head.bias.tolist() == pytest.approx(
                [prior_logit(matrix, slots)] * len(head.bias)
            )
        assert network.heads[-1].bias[0] < -0.5

    def test_or_at_zero(self, rows, last_level):
        network, _, _, drawn = initial_network(
            label_rows=rows, last_level=last_level, prior_bias=False
        )
        for head, weight in zip(network.heads, drawn, strict=True):
            assert torch.equal(head.weight, weight)
            assert not head.bias.any()


@pytest.mark.parametrize("prior_bias", [True, False])
def test_an_average_document_scores_the_prior_or_zero_with_centroids(prior_bias):
    network, vectors, levels, drawn = initial_network(label_rows="centroid", prior_bias=prior_bias)
    for head, own, matrix, slots, weight in zip(
        network.heads, vectors, levels, network.slots, drawn, strict=True
    ):
        expected = prior_logit(matrix, slots) if prior_bias else 0.0
        scores = head.weight.numpy() @ own.mean(0) + head.bias.numpy()
        np.testing.assert_allclose(scores, expected, atol=1e-4)
        assert not torch.equal(head.weight, weight)
