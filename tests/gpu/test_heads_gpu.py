"""The compiled kernels against the torch path on the CPU, at widths and lengths that encoders have."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from head_scenarios import KINDS, OPTIMISERS, assert_alike, trained  # noqa: E402
from longtail.networks.heads import triton_launch  # noqa: E402
from longtail.networks.heads.head import Head  # noqa: E402
from longtail.networks.heads.updates import HeadRows, stochastic_bf16  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_that_of_the_cpu(kind, dtype, optimiser, kernels):
    run = {"dtype": dtype, "optimiser": optimiser}
    assert_alike(trained(kind, device="cuda", kernels=kernels, **run), trained(kind, **run), dtype)


@pytest.mark.parametrize(
    ("width", "n_nodes"), [(20, 5000), (130, 40), (384, 5000), (768, 5000), (1024, 3000)]
)
def test_shortlists_of_real_size(width, n_nodes):
    run = {"optimiser": "sgd", "n_nodes": n_nodes, "width": width, "documents": 33, "slots": 1500}
    assert_alike(
        trained("candidates", device="cuda", **run),
        trained("candidates", **run),
        torch.float32,
        1e-3,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_gives_the_same_bytes(kind, dtype):
    run = {
        "device": "cuda",
        "dtype": dtype,
        "n_nodes": 3000,
        "width": 384,
        "documents": 64,
        "slots": 1200,
    }
    one = trained(kind, **run)
    other = trained(kind, **run)
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_offsets_beyond_31_bits():
    """2.9 million rows of 768: the last ones lie past 2³¹ elements."""
    n_nodes = 2_900_000
    width = 768
    head = Head(n_nodes, width, optimiser="sgd", dtype=torch.bfloat16, device="cuda")
    x = torch.randn(4, width, device="cuda", requires_grad=True)
    candidates = torch.arange(n_nodes - 12, n_nodes, dtype=torch.int32, device="cuda").view(4, 3)
    logits = head.scores(x, candidates)
    rows = head.weight[-12:].float().view(4, 3, width)
    torch.testing.assert_close(logits, (rows * x[:, None]).sum(2), rtol=1e-3, atol=1e-3)
    logits.sum().backward()
    torch.testing.assert_close(x.grad, rows.sum(1), rtol=1e-3, atol=1e-3)
    before = head.weight[-12:].float()
    head.step(1.0, seed=0)
    torch.testing.assert_close(
        before - head.weight[-12:].float(), x.repeat_interleave(3, 0), rtol=2e-2, atol=2e-2
    )


def test_rounding_gives_the_bytes_of_the_torch_path():
    values = torch.from_numpy(np.random.default_rng(2).normal(size=(500, 768)).astype(np.float32))
    rows = HeadRows(
        torch.zeros(510, 768, dtype=torch.bfloat16).cuda(), torch.zeros(510).cuda(), {}, "sgd", 0.0
    )
    for seed in (0, 1, 1 << 40):
        rows.weight.zero_()
        triton_launch.update_all_rows(
            rows, slice(10, 510), -values.cuda(), torch.zeros(500).cuda(), 1.0, seed
        )
        expected = stochastic_bf16(values, torch.arange(10, 510), seed)
        assert torch.equal(rows.weight[10:].cpu().view(torch.int16), expected.view(torch.int16))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_waits_for_nothing():
    """Scores, gradient and step queue their work without the host ever asking how it went."""
    head = Head(5000, 64, device="cuda")
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    candidates = torch.randint(-1, 5000, (8, 200), dtype=torch.int32, device="cuda")
    for strict in ("default", "error"):  # the first time kernels are compiled
        torch.cuda.set_sync_debug_mode(strict)
        try:
            head.scores(x, candidates).sum().backward()
            head.step(0.1, seed=1)
        finally:
            torch.cuda.set_sync_debug_mode("default")
