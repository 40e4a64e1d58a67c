"""An encoder from CUDA graphs against the same one, kernel by kernel."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from longtail.networks.encoders.word_encoder import make_word_encoder  # noqa: E402
from longtail.networks.graphs import EncoderGraphs  # noqa: E402

pytestmark = pytest.mark.gpu

V, D, T, B, PAD = 500, 32, 32, 64, 0


def encoder(kind):
    vectors = np.random.default_rng(0).normal(0, 0.2, (V, D)).astype(np.float32)
    return make_word_encoder(kind, vectors, np.ones(V, np.float32), PAD, T, 0).to("cuda").train()


def batches(lengths):
    chance = torch.Generator().manual_seed(1)
    for number in lengths:
        ids = torch.randint(1, V, (B, number), generator=chance)
        mask = torch.arange(number) < torch.randint(1, number + 1, (B, 1), generator=chance)
        yield ids.cuda(), mask.cuda()


def trained(network, encode, half, layers):
    """Return vectors, gradients and buffers over some steps, on which weights move."""
    seen, rate = [], 0.01
    for number, (ids, mask) in enumerate(batches([32, 32, 16, 32])):
        torch.manual_seed(number)
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            vectors = encode(ids, mask, layers)
        sum(vector.float().square().mean() for vector in vectors).backward()
        seen.append([*vectors, *(own.grad for own in network.parameters()), *network.buffers()])
        seen[-1] = [own.detach().float().clone() for own in seen[-1] if own is not None]
        with torch.no_grad():
            for own in network.parameters():
                if own.grad is not None:
                    own -= rate * own.grad
        network.zero_grad(set_to_none=True)
    return seen


def assert_alike(plain, graphed, layers, half=False):
    """Both are trained by the same steps, one of them by graphs; bfloat16 may round otherwise."""
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-4, "atol": 1e-5}
    by_graphs = trained(graphed, EncoderGraphs(graphed, B), half, layers)
    for one, other in zip(trained(plain, plain, half, layers), by_graphs, strict=True):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, **tolerance)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["bag", "inception", "routed-inception", "cnn"])
def test_graphs_do_what_the_kernels_do(kind, half):
    plain, graphed = encoder(kind), encoder(kind)
    assert EncoderGraphs(graphed, B).serve(next(batches([32]))[0])
    assert_alike(plain, graphed, list(range(1, plain.depth + 1)), half)


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("kind", ["bag", "routed-inception"])
def test_a_layer_alone_leaves_weights_without_a_gradient(kind, layer):
    assert_alike(encoder(kind), encoder(kind), [layer])


@pytest.mark.parametrize("kind", ["inception", "routed-inception"])
def test_a_layer_that_is_detached(kind):
    """Gradients of a layer that trains its own parameters alone, then, in the same graphs' place, of all."""
    plain, graphed = encoder(kind), encoder(kind)
    graphs = EncoderGraphs(graphed, B)
    for detached in ([2], []):
        ours, theirs = (
            trained(network, partial(encode, detached=detached), False, [2])
            for network, encode in ((plain, plain), (graphed, graphs))
        )
        for one, other in zip(ours, theirs, strict=True):
            assert len(one) == len(other)
            for a, b in zip(one, other, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_vectors_of_words_that_stay():
    plain, graphed = encoder("bag"), encoder("bag")
    for own in (plain, graphed):
        own.embedding.requires_grad_(False)
    assert_alike(plain, graphed, [1, 2])


def test_what_recording_changes_is_put_back():
    network = encoder("routed-inception")
    before, chance = deepcopy(network.state_dict()), torch.cuda.get_rng_state()
    graphs, (ids, mask) = EncoderGraphs(network, B), next(batches([32]))
    graphs(ids, mask, [1, 2])
    once = deepcopy(network)
    once.load_state_dict(before)
    torch.cuda.set_rng_state(chance)
    once(ids, mask, [1, 2])
    for name, own in once.state_dict().items():  # one pass moved both alike
        torch.testing.assert_close(network.state_dict()[name], own, rtol=1e-4, atol=1e-5)


def test_graphs_that_are_forgotten_give_their_memory_back():
    network = encoder("routed-inception")
    graphs, (ids, mask) = EncoderGraphs(network, B), next(batches([32]))
    before = torch.cuda.memory_allocated()
    graphs(ids, mask, [1, 2])
    torch._C._cuda_clearCublasWorkspaces()  # those of the stream that recorded stay with torch
    held = torch.cuda.memory_allocated()
    graphs.forget()
    assert torch.cuda.memory_allocated() - before < (held - before) / 2


def test_parts_of_a_batch_and_inference_go_without():
    network = encoder("bag")
    graphs, (ids, _) = EncoderGraphs(network, B), next(batches([32]))
    assert not graphs.serve(ids[:-1])
    assert not graphs.serve(ids.cpu())
    with torch.no_grad():
        assert not graphs.serve(ids)
    network.eval()
    assert not graphs.serve(ids)
