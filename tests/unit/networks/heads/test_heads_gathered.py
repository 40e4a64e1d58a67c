"""Rows that a head hands out for others to compute with, and takes the gradient of."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from head_scenarios import OPTIMISERS  # noqa: E402
from longtail.networks.heads import updates  # noqa: E402
from longtail.networks.heads.head import Head  # noqa: E402

K = 30
D = 20
BATCHES = [torch.tensor([3, 0, 17]), torch.tensor([17, 29, 5, 3]), torch.tensor([8])]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(updates, "CPU_ELEMENTS", 3 * D)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_step_is_that_of_scores_with_the_same_gradients(optimiser, dtype):
    """A document that is the gradient, scored with a gradient of 1, moves a row as its gathered row
    does.
    """
    chance = torch.Generator().manual_seed(0)
    one, other = (
        Head(K, D, optimiser=optimiser, dtype=dtype, weight_decay=0.1, std=0.5) for _ in range(2)
    )
    for step in range(3):
        for nodes in BATCHES:
            gradient = torch.randn(len(nodes), D, generator=chance)
            (one.gathered(nodes) * gradient).sum().backward()
            other.scores(gradient, nodes[:, None]).sum().backward()
        one.step(0.1, seed=step)
        other.step(0.1, seed=step)
    found = one.to_arrays()
    expected = other.to_arrays()
    for name in expected.keys() - {"bias", "bias_square", "bias_mean"}:  # only scores have biases
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert not found["bias"].any()


def test_rows_come_in_float32_and_in_the_order_asked_for():
    head = Head(K, D, dtype=torch.bfloat16)
    nodes = torch.tensor([7, 2, 9])
    rows = head.gathered(nodes)
    assert rows.dtype == torch.float32
    assert torch.equal(rows, head.weight[nodes].float())
    assert Head(K, D, dtype=torch.float64).gathered(nodes).dtype == torch.float64


def test_rows_that_were_not_gathered_stay():
    head = Head(K, D, optimiser="adamw", weight_decay=0.5)
    before = head.weight.clone()
    nodes = torch.tensor([11, 4])
    head.gathered(nodes).square().sum().backward()
    assert head.weight.grad is None
    head.step(0.1, seed=0)
    moved = (head.weight != before).any(1)
    assert moved.nonzero().flatten().tolist() == [4, 11]


def test_nothing_is_recorded_outside_training():
    head = Head(K, D)
    assert not head.eval().gathered(torch.tensor([1])).requires_grad
    with torch.no_grad():
        assert not head.train().gathered(torch.tensor([1])).requires_grad


def test_gathered_rows_are_a_kind_of_their_own():
    head = Head(K, D)
    head.gathered(torch.tensor([1])).sum().backward()
    head.scores(torch.ones(1, D), None).sum().backward()
    with pytest.raises(
        ValueError, match="gathered rows and scores of all nodes; expected one kind"
    ):
        head.step(0.1, seed=0)


def test_an_empty_gathering_changes_nothing():
    head = Head(K, D, weight_decay=0.5)
    before = head.to_arrays()
    head.gathered(torch.zeros(0, dtype=torch.int64)).sum().backward()
    head.step(0.1, seed=0)
    assert all(np.array_equal(before[name], array) for name, array in head.to_arrays().items())
