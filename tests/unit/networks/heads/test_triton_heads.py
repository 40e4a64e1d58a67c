"""The kernels under Triton's interpreter against the torch path, in a process where nothing is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from head_scenarios import OPTIMISERS, assert_alike, shortlists, trained  # noqa: E402
from longtail.networks.heads import triton_launch  # noqa: E402
from longtail.networks.heads.gathers import gather_dot, gather_sum  # noqa: E402
from longtail.networks.heads.updates import HeadRows, stochastic_bf16  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(
    not INTERPRETED, reason="runs in the process that test_under_the_interpreter starts"
)


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_under_the_interpreter():
    here = Path(__file__)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(here)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=here.parents[4],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout


@interpreted
@pytest.mark.parametrize(
    ("kind", "dtype", "optimiser"),
    [
        *(("candidates", torch.float32, optimiser) for optimiser in OPTIMISERS),
        ("candidates", torch.bfloat16, "row-adam"),
        ("all nodes", torch.bfloat16, "adamw"),
        ("full loss", torch.float32, "row-adam"),
    ],
)
def test_training_is_that_of_the_torch_path(kind, dtype, optimiser, monkeypatch):
    monkeypatch.setattr(triton_launch, "SPLIT", 4)
    monkeypatch.setattr(triton_launch, "PAIRS", 16)
    run = {"dtype": dtype, "optimiser": optimiser, "n_nodes": 12, "documents": 3, "slots": 7}
    assert_alike(trained(kind, **run), trained(kind, kernels=False, **run), dtype)


@interpreted
@pytest.mark.parametrize("kind", ["candidates", "all nodes"])
@pytest.mark.parametrize("optimiser", ["row-adam", "adamw"])
def test_first_moment_and_epsilon_of_a_step_are_those_of_the_torch_path(kind, optimiser):
    run = {"optimiser": optimiser, "n_nodes": 12, "documents": 3, "slots": 7}
    run |= {"beta1": (0.95, 0.7), "epsilon": 0.3}
    found = trained(kind, **run)
    assert_alike(found, trained(kind, kernels=False, **run), torch.float32)
    assert not np.allclose(
        found["weight"], trained(kind, **run | {"epsilon": 1e-8})["weight"], atol=1e-3
    )
    moved = trained(kind, **run | {"beta1": (0.9, 0.9)})["weight"]
    assert np.allclose(found["weight"], moved, atol=1e-5) == (optimiser == "row-adam")


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled there")
@pytest.mark.parametrize("kernel", [
    "gather_dot", "gather_sum", "update_touched_rows", "update_all_rows", "negative_residuals", "positive_residuals",
])  # fmt: skip
def test_kernels_compile_for_a_gpu_that_is_not_there(kernel, tmp_path, monkeypatch):
    """The interpreter takes more than the compiler does."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from longtail.kernels import triton_heads

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    function = getattr(triton_heads, kernel)
    types = {name: _type(name) for name in function.arg_names}
    constants = {
        "WIDTH": 384,
        "BLOCK_D": 512,
        "BLOCK_S": 8,
        "SPLIT": 64,
        "BLOCK_N": 4,
        "AHEAD": 2,
        "BLOCK": 64,
    }
    constants |= {"OPTIMISER": triton_heads.ADAMW, "EPSILON": 1e-8, **triton_launch.ADAM}
    values = {
        (place,): constants[name]
        for place, name in enumerate(function.arg_names)
        if name in constants
    }
    assert compile(ASTSource(function, types, values), target=GPUTarget("cuda", 90, 32)).asm["ptx"]


def _type(name):
    if name.isupper():
        return "constexpr"
    if name in ("lr", "decay", "beta1", "one_minus_beta1", "log_beta1"):
        return "fp32"
    if name.startswith("n_") or name in ("first", "seed"):
        return "i32"
    return {"weight": "*bf16", "x": "*bf16", "residuals": "*bf16"}.get(
        name,
        "*i32" if name in ("candidates", "count", "documents", "nodes", "positives") else "*fp32",
    )


@interpreted
@pytest.mark.parametrize(("width", "n_nodes"), [(20, 30), (64, 3), (130, 400), (384, 50)])
def test_products_for_widths_and_nodes_that_do_not_fill_blocks(width, n_nodes, monkeypatch):
    monkeypatch.setattr(triton_launch, "SPLIT", 64)
    rng = np.random.default_rng(0)
    candidates = shortlists(rng, 3, 100, n_nodes)
    weight, x = (
        torch.from_numpy(rng.normal(size=(n, width)).astype(np.float32)) for n in (n_nodes, 3)
    )
    bias = torch.from_numpy(rng.normal(size=n_nodes).astype(np.float32))
    gradients = torch.from_numpy(rng.normal(size=(3, 100)).astype(np.float32))
    found = gather_dot(x, weight, bias, candidates), gather_sum(gradients, weight, candidates)
    monkeypatch.setattr(triton_launch, "serves", lambda weight: False)
    expected = gather_dot(x, weight, bias, candidates), gather_sum(gradients, weight, candidates)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@interpreted
def test_runs_longer_than_what_is_read_at_once_and_across_programs(monkeypatch):
    """One node in every document: its run spans several programs and belongs to the first."""
    monkeypatch.setattr(triton_launch, "PAIRS", 2)
    rng = np.random.default_rng(1)
    nodes = torch.tensor(
        [0] * 3 + [1] * 9 + [4] * 1 + [6] * 2, dtype=torch.int32
    )  # 6 of 6: padding
    documents = torch.from_numpy(rng.integers(0, 4, len(nodes)).astype(np.int32))
    gradients = torch.from_numpy(rng.normal(size=len(nodes)).astype(np.float32))
    x = torch.from_numpy(rng.normal(size=(4, 8)).astype(np.float32))
    rows = HeadRows(torch.zeros(6, 8), torch.zeros(6), {}, "sgd", 0.0)
    triton_launch.update_touched_rows(rows, x, nodes, documents, gradients, 1.0, 0)
    expected = torch.zeros(7, 9).index_add_(
        0, nodes, gradients[:, None] * torch.cat([x[documents], torch.ones(len(nodes), 1)], 1)
    )
    torch.testing.assert_close(torch.cat([rows.weight, rows.bias[:, None]], 1), -expected[:6])


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of Inf and NaN
def test_rounding_gives_the_bytes_of_the_torch_path():
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 1 << 32, (8, 20), dtype=np.uint32)
    bits[0, :4] = [
        0x7F800000,
        0xFF800000,
        0x7F800001,
        0xFFC00000,
    ]  # ±Inf, NaNs, the first without high bits
    values = torch.from_numpy(bits.view(np.float32))
    rows = HeadRows(torch.zeros(18, 20, dtype=torch.bfloat16), torch.zeros(18), {}, "sgd", 0.0)
    for seed in (0, 1, 1 << 40):
        rows.weight.zero_()
        triton_launch.update_all_rows(rows, slice(10, 18), -values, torch.zeros(8), 1.0, seed)
        expected = stochastic_bf16(values, torch.arange(10, 18), seed)
        number = ~expected.isnan()  # the sign of a NaN is anybody's
        assert torch.equal(rows.weight[10:].isnan(), ~number)
        assert torch.equal(
            rows.weight[10:][number].view(torch.int16), expected[number].view(torch.int16)
        )
