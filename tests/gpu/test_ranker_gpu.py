"""A frozen network on the GPU, in recorded kernels and bfloat16, beside the same network on the
CPU.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from longtail.config import Cascade, Training  # noqa: E402
from longtail.features.tokens import Tokeniser  # noqa: E402
from longtail.networks.cascade import CascadeXML  # noqa: E402
from longtail.networks.ranker import NeuralRanker  # noqa: E402
from longtail.tree.tree import LabelTree  # noqa: E402
from tiny_encoder import tiny_encoder, write_encoder  # noqa: E402

pytestmark = pytest.mark.gpu

TEXTS = [
    f"word{number} word{number % 7} and some more of them {number * 3}" for number in range(100)
]


@pytest.fixture(scope="module")
def tokeniser(tmp_path_factory):
    return Tokeniser.load(write_encoder(tmp_path_factory.mktemp("encoder"), TEXTS), 24)


def ranker(tokeniser, device, last_level, pooling="mean"):
    tree = LabelTree.from_borders(np.arange(300), [np.linspace(0, 300, 9).astype(int)])
    network = CascadeXML(
        tiny_encoder(), tree, Cascade(last_level=last_level), Training(), 0, std=0.3
    ).to(device)
    network.encoder.pooling = pooling
    return NeuralRanker(tokeniser, network, tree).freeze()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("last_level", ["shortlist", "full"])
def test_scores_are_those_of_the_cpu(tokeniser, last_level, pooling):
    expected, vectors = ranker(tokeniser, "cpu", last_level, pooling).search(TEXTS, 300)
    result, member = ranker(tokeniser, "cuda", last_level, pooling).search(TEXTS, 300)
    np.testing.assert_allclose(result.toarray(), expected.toarray(), atol=0.03)
    np.testing.assert_allclose(member, vectors, atol=0.05)


@pytest.mark.parametrize("last_level", ["shortlist", "full"])
def test_few_documents_at_a_time_give_what_many_do(tokeniser, last_level):
    frozen = ranker(tokeniser, "cuda", last_level)
    many, vectors = frozen.search(TEXTS, 5)
    for size in (1, 3, 32):
        few, member = frozen.search(TEXTS[:size], 5)
        np.testing.assert_allclose(few.toarray(), many[:size].toarray(), atol=0.02)
        np.testing.assert_allclose(member, vectors[:size], atol=0.05)


def test_the_network_itself_stays_as_it_was(tokeniser):
    assert {p.dtype for p in ranker(tokeniser, "cuda", "full").network.parameters()} == {
        torch.float32
    }
