import os
import signal
import threading

import numpy as np
import pytest
import torch

from longtail.networks.training.checkpoints import (
    Checkpoints,
    Epoch,
    History,
    State,
    adamw_arrays,
    stop_requests,
)
from longtail.store import Stages


class Network:
    """Weights that are told apart from their optimiser's state."""

    def __init__(self, value):
        self.weight = np.full(3, value)
        self.momentum = np.full(3, -value)

    def to_arrays(self, state=False):
        return {"weight": self.weight} | ({"momentum": self.momentum} if state else {})

    def load_arrays(self, arrays):
        self.weight[:] = arrays["weight"]
        self.momentum[:] = arrays.get("momentum", 0)


def make_optimiser(steps=0):
    torch.manual_seed(0)
    first, second, idle = (torch.nn.Parameter(torch.randn(shape)) for shape in ((2, 3), (4,), (2,)))
    groups = [
        {"params": [first], "weight_decay": 0.1},
        {"params": [second, idle], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups)
    for parameter in (first, second, idle):
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        optimiser.state[parameter] = {"step": torch.tensor(0.0), **moments}
    for _ in range(steps):
        first.grad = torch.randn(2, 3)
        second.grad = torch.randn(4)
        optimiser.step()
    return optimiser


STATE = State(
    epoch=2,
    batch=7,
    step=41,
    micro_batch=16,
    losses={"level 1": 0.1 + 0.2, "level 2": 1e-300},
    documents=99,
    seconds=1.5,
    history=History(
        epochs=(
            Epoch(
                number=1,
                losses={"level 1": 1 / 3},
                samples_per_s=10.0,
                seconds=2.0,
                rate=1e-4,
                peak_gib=0.5,
                valid={"P@1": 0.25, "x": None},
            ),
        ),
        best=1,
        best_value=0.25,
    ),
)


@pytest.fixture
def stages(tmp_path):
    with Stages(tmp_path / "work") as stages:
        yield stages


class TestCheckpoints:
    def test_round_trip(self, stages):
        saved = make_optimiser(steps=5)
        Checkpoints(stages, "hash").save(Network(1.5), saved, STATE)
        checkpoints = Checkpoints(stages, "hash")
        network = Network(0.0)
        optimiser = make_optimiser()
        assert checkpoints.exists()
        assert checkpoints.restore(network, optimiser) == STATE
        assert network.weight.tolist() == [1.5] * 3
        assert network.momentum.tolist() == [-1.5] * 3
        got = adamw_arrays(optimiser)
        expected = adamw_arrays(saved)
        assert got.keys() == expected.keys()
        assert all(got[name].tobytes() == expected[name].tobytes() for name in got)
        assert got["adamw.step"].tolist() == [
            5,
            5,
            0,
        ]  # a parameter without gradients has not moved
        assert got["adamw.1.exp_avg"].any()

    def test_average_is_beside_the_network(self, stages):
        checkpoints = Checkpoints(stages, "hash")
        network = Network(0.0)
        average = Network(0.0)
        checkpoints.save(Network(1.0), make_optimiser(), STATE, Network(3.0))
        assert checkpoints.restore(network, make_optimiser(), average) == STATE
        assert (network.weight.tolist(), network.momentum.tolist()) == ([1.0] * 3, [-1.0] * 3)
        assert (average.weight.tolist(), average.momentum.tolist()) == ([3.0] * 3, [0.0] * 3)

    def test_none_there(self, stages):
        assert not Checkpoints(stages, "hash").exists()
        assert Checkpoints(stages, "hash").restore(Network(0.0), make_optimiser()) is None

    @pytest.mark.parametrize(("input_hash", "number"), [("other", 0), ("hash", 1)])
    def test_of_another_input_or_network(self, stages, input_hash, number):
        Checkpoints(stages, "hash").save(Network(1.5), make_optimiser(), STATE)
        checkpoints = Checkpoints(stages, input_hash, number)
        network = Network(0.0)
        assert checkpoints.restore(network, make_optimiser()) is None
        assert not network.weight.any()

    def test_damaged_one_is_not_used(self, stages):
        checkpoints = Checkpoints(stages, "hash")
        checkpoints.save(Network(1.5), make_optimiser(), STATE)
        file = stages.root / "checkpoint-0" / "arrays.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        assert checkpoints.restore(Network(0.0), make_optimiser()) is None

    def test_best_is_without_state_and_beside_the_checkpoint(self, stages):
        checkpoints = Checkpoints(stages, "hash")
        network = Network(0.0)
        checkpoints.save(Network(1.0), make_optimiser(), STATE)
        checkpoints.save_best(Network(2.0))
        checkpoints.restore_best(network)
        assert network.weight.tolist() == [2.0] * 3
        assert not network.momentum.any()
        checkpoints.restore(network, make_optimiser())
        assert network.weight.tolist() == [1.0] * 3

    def test_without_stages_the_best_is_a_copy_in_memory(self):
        checkpoints = Checkpoints()
        network = Network(1.0)
        checkpoints.save(network, make_optimiser(), STATE)
        assert not checkpoints.exists()
        assert checkpoints.restore(network, make_optimiser()) is None
        checkpoints.restore_best(network)
        assert network.weight.tolist() == [1.0] * 3
        checkpoints.save_best(network)
        network.weight[:] = 7
        checkpoints.restore_best(network)
        assert network.weight.tolist() == [1.0] * 3


@pytest.fixture
def handlers():
    """Handlers as the command line sets them."""

    def stop(number, frame):
        raise SystemExit(128 + number)

    before = (
        signal.signal(signal.SIGTERM, stop),
        signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    yield stop
    signal.signal(signal.SIGTERM, before[0])
    signal.signal(signal.SIGINT, before[1])


class TestStopRequests:
    @pytest.mark.parametrize(
        ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
    )
    def test_first_is_noted_and_obeyed_later(self, handlers, number, error):
        with stop_requests() as stop:
            stop.obey()
            os.kill(os.getpid(), number)
            assert stop.number == number
            with pytest.raises(error) as caught:
                stop.obey()
        assert getattr(caught.value, "code", 143) == 143
        assert signal.getsignal(signal.SIGTERM) is handlers
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_second_is_acted_on_at_once(self, handlers):
        with stop_requests():
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

    def test_ignored_ones_stay_ignored(self, handlers):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with stop_requests() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.number is None

    def test_off_the_main_thread(self, handlers):
        def run():
            with stop_requests() as stop:
                seen.append((stop.number, signal.getsignal(signal.SIGTERM)))

        seen = []
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert seen == [(None, handlers)]
