"""The mean of the last steps' weights: by itself, and in the loop, where a resumed run must give
the same bytes.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from test_loop import STEPS, Stopped, TinyNetwork, bytes_of, change, raise_after, train

from longtail.networks.heads.head import Head
from longtail.networks.training.checkpoints import Checkpoints
from longtail.networks.training.loop import Average
from longtail.store import Stages

pytestmark = pytest.mark.usefixtures("one_thread")

TOTAL = 3 * STEPS  # of a run of three epochs
AVERAGED = change(average=0.5)  # the last 12 steps of 24, so half of the second epoch


def walk(weights, average, total, until=None):
    """Move weights by chance, and return the values of the first one after each step."""
    chance = torch.Generator().manual_seed(0)
    seen = []
    with torch.no_grad():
        for step in range(1, (until or total) + 1):
            for weight in weights:
                weight.add_(torch.randn(weight.shape, generator=chance))
            average.update(step)
            seen.append(weights[0].detach().clone())
    return seen


def made_weights(dtype=torch.float32):
    return [torch.nn.Parameter(torch.zeros(3, dtype=dtype)), torch.zeros(2, 2)]


def mean_of(average, weights):
    with average.in_place():
        return weights[0].detach().clone()


class TestMean:
    @pytest.mark.parametrize(
        ("share", "total", "steps"), [(0.5, 8, 4), (1.0, 5, 5), (0.3, 10, 3), (0.05, 20, 1)]
    )
    def test_of_the_last_steps(self, share, total, steps):
        weights = made_weights()
        average = Average(weights, share, total)
        seen = walk(weights, average, total)
        assert average.count == steps
        torch.testing.assert_close(mean_of(average, weights), torch.stack(seen[-steps:]).mean(0))

    def test_of_many_steps_takes_some_hundred(self):
        weights = made_weights()
        average = Average(weights, 0.75, 1000)
        seen = walk(weights, average, 1000)
        assert average.count == 94  # of 750, each eighth
        torch.testing.assert_close(
            mean_of(average, weights), torch.stack(seen[-1::-8][:94]).mean(0), rtol=1e-4, atol=1e-4
        )

    def test_of_bfloat16_is_not_rounded_on_the_way(self):
        weight = torch.zeros(1, dtype=torch.bfloat16)
        average = Average([weight], 1.0, 100)
        for step in range(1, 101):
            weight.fill_(
                1.0 if step % 2 else 1.0078125
            )  # neighbours in bfloat16: their mean is neither
            average.update(step)
        assert average.to_arrays()["0"].tolist() == pytest.approx([1.00390625], abs=1e-6)
        with average.in_place():
            assert weight.dtype == torch.bfloat16

    def test_share_of_nothing_takes_nothing(self):
        weights = made_weights()
        average = Average(weights, 0.0, 10)
        seen = walk(weights, average, 10)
        assert (average.count, average._means, average.to_arrays()) == (0, [], {})
        assert torch.equal(mean_of(average, weights), seen[-1])
        average.apply()
        assert torch.equal(weights[0].detach(), seen[-1])


class TestInPlace:
    def test_weights_come_back_the_same(self):
        weights = made_weights()
        average = Average(weights, 0.5, 8)
        seen = walk(weights, average, 8)
        pointer = weights[0].data_ptr()
        with average.in_place():
            assert not torch.equal(weights[0].detach(), seen[-1])
        assert torch.equal(weights[0].detach(), seen[-1])
        assert weights[0].data_ptr() == pointer

    def test_before_the_first_there_is_none(self):
        weights = made_weights()
        average = Average(weights, 0.5, 8)
        seen = walk(weights, average, 8, until=4)
        assert torch.equal(mean_of(average, weights), seen[-1])

    def test_settled_for_good(self):
        weights = made_weights()
        average = Average(weights, 0.5, 8)
        walk(weights, average, 8)
        expected = mean_of(average, weights)
        average.apply()
        assert torch.equal(weights[0].detach(), expected)


class TestArrays:
    def test_come_back(self):
        weights = made_weights()
        average = Average(weights, 0.5, 8)
        other = Average(weights, 0.5, 8)
        walk(weights, average, 8, until=6)
        other.load_arrays({name: np.array(array) for name, array in average.to_arrays().items()})
        for step in (7, 8):
            with torch.no_grad():
                weights[0].add_(1)
            average.update(step)
            other.update(step)
        assert average.count == other.count == 4
        assert torch.equal(mean_of(average, weights), mean_of(other, weights))

    def test_nothing_before_the_first(self):
        weights = made_weights()
        average = Average(weights, 0.5, 8)
        assert average.to_arrays() == {}
        average.load_arrays({})
        assert average.count == 0


@pytest.fixture
def stages(tmp_path):
    with Stages(tmp_path / "work") as stages:
        yield stages


@pytest.fixture(scope="module")
def whole():
    """A run that nothing interrupts."""
    network = TinyNetwork()
    return network, train(network, AVERAGED)


class Watched(TinyNetwork):
    """Notes its weights before each step."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.before = lambda network, batch: network.seen.append(plain_weights(network))


def plain_weights(network):
    return {name: np.array(array) for name, array in network.to_arrays().items()}


class TestInTheLoop:
    def test_ends_with_the_mean(self, whole):
        network = Watched()
        train(network, change(average=0.0))
        last = plain_weights(network)
        expected = [*network.seen[1:], last][-TOTAL // 2 :]
        got = plain_weights(whole[0])
        for name, array in got.items():
            np.testing.assert_allclose(
                array, np.mean([one[name] for one in expected], 0), rtol=1e-5, atol=1e-6
            )
        moved = [name for name in got if not np.array_equal(got[name], last[name])]
        assert {"words.weight", "map.bias", "heads.0.weight", "heads.1.bias"} <= set(moved)

    def test_training_itself_is_left_as_it_was(self):
        """Validation looks at the mean; the next step begins where the last one ended."""
        networks = Watched(), Watched()
        for network, share in zip(networks, (0.0, 0.5), strict=True):
            train(network, change(average=share), validate=lambda: {"P@1": 0.5})
        for ours, theirs in zip(networks[0].seen, networks[1].seen, strict=True):
            assert all(np.array_equal(ours[name], theirs[name]) for name in ours)

    @pytest.mark.parametrize("kept", ["memory", "disk"])
    @pytest.mark.parametrize("best", [1, 2, 3])
    def test_validation_sees_the_mean_and_the_best_epoch_keeps_it(self, stages, kept, best):
        network = Watched()
        seen = []

        def validate():
            seen.append(plain_weights(network))
            return {"P@1": 1.0 if len(seen) == best else 0.5}

        settings = change(average=0.5, patience=0)
        history = train(network, settings, stages if kept == "disk" else None, validate=validate)
        assert history.best == best
        got = plain_weights(network)
        assert all(np.array_equal(got[name], seen[best - 1][name]) for name in got)
        ends = network.seen[STEPS]["map.bias"], network.seen[2 * STEPS]["map.bias"]
        assert np.array_equal(seen[0]["map.bias"], ends[0])  # before the first mean
        assert not np.array_equal(seen[1]["map.bias"], ends[1])
        middle = [one["map.bias"] for one in network.seen[TOTAL // 2 + 1 : 2 * STEPS + 1]]
        np.testing.assert_allclose(seen[1]["map.bias"], np.mean(middle, 0), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize(
        "steps", [4, TOTAL // 2 - 1, TOTAL // 2, TOTAL // 2 + 1, 2 * STEPS, TOTAL - 1]
    )
    def test_same_bytes_after_a_crash(self, stages, whole, steps):
        settings = change(average=0.5, checkpoint_steps=1)
        network = TinyNetwork()
        network.before = raise_after(steps, Stopped)
        with pytest.raises(Stopped):
            train(network, settings, stages)
        resumed = TinyNetwork()
        train(resumed, settings, stages)
        assert len(resumed.sizes) == TOTAL - steps
        assert bytes_of(resumed) == bytes_of(whole[0])

    def test_a_finished_run_is_not_run_again(self, stages, whole):
        train(TinyNetwork(), AVERAGED, stages)
        again = TinyNetwork()
        train(again, AVERAGED, stages)
        assert again.sizes == []
        assert bytes_of(again) == bytes_of(whole[0])

    def test_a_crash_in_validation_leaves_the_weights_of_the_run(self, stages):
        def crash():
            raise Stopped

        network = TinyNetwork()
        with pytest.raises(Stopped):
            train(network, change(average=1.0, epochs=1), stages, validate=crash)
        plain = TinyNetwork()
        train(plain, change(average=0.0, epochs=1))
        assert bytes_of(network) == bytes_of(plain)

    def test_without_it_checkpoints_hold_none(self, stages):
        train(TinyNetwork(), change(epochs=1), stages)
        arrays = stages.get(Checkpoints(stages, "hash")._last, "hash").arrays("arrays.safetensors")
        assert not [name for name in arrays if name.startswith("average.")]

    def test_of_bfloat16_classifiers(self):
        network = TinyNetwork()
        network.heads = torch.nn.ModuleList(
            Head(n, 8, optimiser="sgd", dtype=torch.bfloat16, seed=n) for n in (4, 12)
        )
        network.to_arrays = lambda state=False: {"bias": network.heads[0].bias.numpy()}
        train(network, change(average=0.5, epochs=1))
        assert network.heads[0].weight.dtype == torch.bfloat16
        assert torch.isfinite(network.heads[0].weight).all()
