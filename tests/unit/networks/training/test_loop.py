import json
import logging
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import sparse

from longtail import reporting
from longtail.config import Training
from longtail.features.tokens import Tokens
from longtail.networks.batches import Batches
from longtail.networks.heads.head import Head
from longtail.networks.training.checkpoints import Checkpoints, adamw_arrays
from longtail.networks.training.loop import _Run, fit
from longtail.networks.training.meter import Diverged
from longtail.networks.training.schedule import Schedule
from longtail.networks.training.stepper import OutOfMemory
from longtail.reporting import listening
from longtail.run_log import RunLog
from longtail.steps.process_group import ProcessGroup, use_group
from longtail.store import Stages

N_DOCUMENTS = 61
N_LABELS = 12
WIDTH = 8
SETTINGS = Training(epochs=3, batch_size=8, checkpoint_steps=3, head_rate=5e-2)
STEPS = -(-N_DOCUMENTS // 8)  # an epoch


class Stopped(Exception):
    """Stands for a crash."""


class TinyNetwork(torch.nn.Module):
    """A bag of words under two heads: all nodes of a coarse level, and a shortlist of labels."""

    def __init__(self, dropout=0.2, optimiser="row-adam"):
        super().__init__()
        torch.manual_seed(7)
        self.words = torch.nn.Embedding(50, WIDTH)
        self.map = torch.nn.Linear(WIDTH, WIDTH)
        self.idle = torch.nn.Parameter(
            torch.ones(2)
        )  # as the pooler of an encoder: never has a gradient
        self.dropout = torch.nn.Dropout(dropout)
        sizes = (4, N_LABELS)
        self.heads = torch.nn.ModuleList(Head(n, WIDTH, optimiser=optimiser, seed=n) for n in sizes)
        self.sizes = []
        self.at_step = 0
        self.before = lambda network, batch: None

    def optimiser_groups(self):
        decayed = [self.words.weight, self.map.weight, self.idle]
        groups = (
            {"params": decayed, "lr": 2e-2, "weight_decay": 0.05},
            {"params": [self.map.bias], "lr": 4e-2},
        )
        return [groups[0], groups[1] | {"weight_decay": 0.0}]

    def losses(self, batch):
        self.sizes.append(len(batch))
        self.before(self, batch)
        x = self.dropout(torch.tanh(self.map(self.words(batch.ids).mean(1))))
        targets = torch.zeros(len(batch), N_LABELS + 1)
        targets = targets.scatter(1, batch.positives.long() % (N_LABELS + 1), batch.values)[:, :-1]
        coarse = targets.view(len(batch), 4, 3).amax(2)
        labels = torch.arange(N_LABELS, dtype=torch.int32).repeat(len(batch), 1)
        logits = self.heads[0].scores(x, None), self.heads[1].scores(x, labels)
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        return {"level 1": bce(logits[0], coarse), "level 2": bce(logits[1], targets)}

    def to_arrays(self, state=False):
        arrays = {name: tensor.detach().numpy() for name, tensor in self.named_parameters()}
        for number, head in enumerate(self.heads):
            own = (
                head.to_arrays()
                if state
                else {"weight": head.weight.numpy(), "bias": head.bias.numpy()}
            )
            arrays |= {f"heads.{number}.{name}": array for name, array in own.items()}
        return arrays

    def load_arrays(self, arrays):
        with torch.no_grad():
            for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
                if name in arrays:
                    tensor.copy_(torch.tensor(arrays[name]))


def make_batches(n=N_DOCUMENTS, seed=1):
    chance = np.random.default_rng(seed)
    lengths = chance.integers(1, 20, n)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.zeros(ends[-1], np.uint16)
    labels = chance.integers(0, N_LABELS, n)
    for row in range(n):  # words tell the label
        ids[ends[row] : ends[row + 1]] = 1 + labels[row] * 4 + chance.integers(0, 4, lengths[row])
    matrix = sparse.csr_array((np.ones(n, np.float32), (np.arange(n), labels)), shape=(n, N_LABELS))
    return Batches(Tokens(ids, ends, 0, False), matrix, SETTINGS.batch_size, seed)


def change(**settings):
    return Training(
        **({name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__} | settings)
    )


def train(network, settings=SETTINGS, stages=None, **options):
    return fit(
        network,
        make_batches(),
        settings,
        seed=3,
        checkpoints=Checkpoints(stages, "hash"),
        **options,
    )


def bytes_of(network):
    return {name: array.tobytes() for name, array in network.to_arrays(state=True).items()}


def raise_after(steps, error):
    """Return what a network does before each loss: raise at the step after ``steps``."""

    def before(network, batch):
        network.at_step += 1
        if network.at_step > steps:
            raise error

    return before


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def whole():
    """A run that nothing interrupts, with its history."""
    network = TinyNetwork()
    return network, train(network)


@pytest.fixture
def stages(tmp_path):
    with Stages(tmp_path / "work") as stages:
        yield stages


class TestTraining:
    def test_losses_fall_and_history_tells(self, whole):
        network, history = whole
        assert [epoch.number for epoch in history.epochs] == [1, 2, 3]
        for level in ("level 1", "level 2"):
            assert history.epochs[2].losses[level] < 0.9 * history.epochs[0].losses[level]
        assert all(epoch.samples_per_s > 0 and epoch.peak_gib > 0 for epoch in history.epochs)
        assert history.epochs[2].rate == pytest.approx(2e-4)
        assert history.best == 0
        assert not network.training

    def test_same_seed_same_bytes_and_global_chance_untouched(self, whole):
        torch.manual_seed(99)
        expected = torch.rand(3)
        torch.manual_seed(99)
        network = TinyNetwork()
        torch.manual_seed(99)
        train(network)
        assert torch.equal(torch.rand(3), expected)
        assert bytes_of(network) == bytes_of(whole[0])
        other = TinyNetwork()
        fit(other, make_batches(), SETTINGS, seed=4)
        assert bytes_of(other) != bytes_of(network)

    def test_against_a_plain_loop(self):
        settings = change(epochs=1, warmup_epochs=0.0, cooldown_epochs=0.0, clip=1e-3)
        network = TinyNetwork(dropout=0.0, optimiser="sgd")
        plain = TinyNetwork(dropout=0.0, optimiser="sgd")
        train(network, settings)
        adamw = torch.optim.AdamW(plain.optimiser_groups(), fused=True)
        for batch in make_batches().epoch(0):
            sum(plain.losses(batch).values()).backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), 1e-3)
            adamw.step()
            adamw.zero_grad()
            for head in plain.heads:
                head.step(5e-2, 0)
        assert bytes_of(network) == bytes_of(plain)
        unclipped = TinyNetwork(dropout=0.0, optimiser="sgd")
        train(unclipped, change(epochs=1, warmup_epochs=0.0, cooldown_epochs=0.0, clip=0.0))
        assert bytes_of(unclipped) != bytes_of(plain)

    def test_one_cycle_and_epsilon_against_a_plain_loop(self):
        own = {"schedule": "one-cycle", "epsilon": 1e-3, "head_optimiser": "adamw", "clip": 0.0}
        settings = change(epochs=1, warmup_epochs=0.5, cooldown_epochs=0.5, **own)
        network, plain = (TinyNetwork(dropout=0.0, optimiser="adamw") for _ in range(2))
        for head in [*network.heads, *plain.heads]:
            head.epsilon = 1e-3
        train(network, settings)
        adamw = torch.optim.AdamW(plain.optimiser_groups(), eps=1e-3, fused=True)
        rates = [group["lr"] for group in adamw.param_groups]
        schedule = Schedule.of(settings, STEPS)
        seen = []
        for step, batch in enumerate(make_batches().epoch(0)):
            factor = schedule.factor(step)
            beta1 = schedule.beta1(step)
            sum(plain.losses(batch).values()).backward()
            for group, rate in zip(adamw.param_groups, rates, strict=True):
                group["lr"] = rate * factor
                group["betas"] = (beta1, 0.999)
            adamw.step()
            adamw.zero_grad()
            for head in plain.heads:
                head.step(5e-2 * factor, 0, beta1)
            seen.append(beta1)
        assert len(set(seen)) > 2
        assert bytes_of(network) == bytes_of(plain)

    @pytest.mark.parametrize("size", [1, 3])
    def test_micro_batches_change_rounding_only(self, size):
        whole = TinyNetwork(dropout=0.0)
        split = TinyNetwork(dropout=0.0)
        expected = train(whole, change(epochs=1))
        got = train(split, change(epochs=1, micro_batch=size))
        assert max(split.sizes) == size
        for name, array in whole.to_arrays().items():
            np.testing.assert_allclose(split.to_arrays()[name], array, rtol=2e-3, atol=2e-4)
        for level, loss in expected.epochs[0].losses.items():
            assert got.epochs[0].losses[level] == pytest.approx(loss, rel=1e-4)

    def test_bfloat16_arithmetic(self, whole):
        network = TinyNetwork()
        kinds = set()
        network.map.register_forward_hook(lambda module, given, made: kinds.add(made.dtype))
        history = train(network, change(precision="bfloat16", epochs=1))
        assert kinds == {torch.bfloat16}
        assert network.map.weight.dtype == torch.float32
        assert history.epochs[0].losses["level 2"] == pytest.approx(
            whole[1].epochs[0].losses["level 2"], rel=0.05
        )

    def test_progress_and_log(self, caplog):
        seen = []
        reporter = SimpleNamespace(
            start=lambda name, total, unit: seen.append((name, total, unit, [])),
            advance=lambda amount: seen[-1][-1].append(amount),
            finish=lambda: None,
        )
        reporting.show_on(reporter)
        try:
            with caplog.at_level(logging.INFO, "longtail"):
                train(TinyNetwork(), change(epochs=1), validate=lambda: {"P@1": 0.5})
        finally:
            reporting.show_on(None)
        ((name, total, unit, amounts),) = seen
        assert (name, total, unit, sum(amounts)) == (
            "epoch 1",
            N_DOCUMENTS,
            "documents",
            N_DOCUMENTS,
        )
        line = caplog.messages[-1]
        assert line.startswith("epoch 1: loss level 1 0.")
        for part in (
            "level 2 0.",
            "P@1 50.00%",
            "documents/s",
            "GiB",
            "rate 0.0002",
            "0.0 min left",
        ):
            assert part in line


class TestResume:
    @pytest.mark.parametrize("steps", [2, 4, STEPS, 2 * STEPS + 5])
    def test_same_bytes_after_a_crash(self, stages, whole, steps):
        network = TinyNetwork()
        network.before = raise_after(steps, Stopped)
        with pytest.raises(Stopped):
            train(network, stages=stages)
        resumed = TinyNetwork()
        history = train(resumed, stages=stages)
        saved = max(n for n in range(steps + 1) if n % 3 == 0 or n % STEPS == 0)
        assert len(resumed.sizes) == 3 * STEPS - saved
        assert bytes_of(resumed) == bytes_of(whole[0])
        assert [epoch.losses for epoch in history.epochs] == [
            epoch.losses for epoch in whole[1].epochs
        ]
        assert [epoch.rate for epoch in history.epochs] == [epoch.rate for epoch in whole[1].epochs]

    @pytest.mark.parametrize("total", [5, STEPS, 2 * STEPS + 3])
    @pytest.mark.parametrize("schedule", ["cosine", "linear", "one-cycle"])
    def test_steps_in_place_of_epochs_end_the_run_there(self, stages, total, schedule):
        settings = change(
            warmup_epochs=0.5, cooldown_epochs=1.0, schedule=schedule, head_optimiser="adamw"
        )
        network = TinyNetwork(optimiser="adamw")
        history = train(network, settings, steps=total)
        assert len(network.sizes) == total
        assert len(history.epochs) == -(-total // STEPS)
        documents = [STEPS * 8 - 3] * (total // STEPS)
        assert sum(network.sizes) in range(
            sum(documents) + 8 * (total % STEPS) - 3, sum(documents) + 8 * STEPS
        )
        crashing = TinyNetwork(optimiser="adamw")
        crashing.before = raise_after(total - 1, Stopped)
        with pytest.raises(Stopped):
            train(crashing, settings, stages, steps=total)
        resumed = TinyNetwork(optimiser="adamw")
        again = train(resumed, settings, stages, steps=total)
        assert 0 < len(resumed.sizes) < total
        assert bytes_of(resumed) == bytes_of(network)
        assert [epoch.losses for epoch in again.epochs] == [
            epoch.losses for epoch in history.epochs
        ]
        finished = TinyNetwork(optimiser="adamw")
        train(finished, settings, stages, steps=total)
        assert finished.sizes == []
        assert bytes_of(finished) == bytes_of(network)

    def test_whole_epochs_of_steps_are_epochs(self, whole):
        network = TinyNetwork()
        train(network, change(epochs=9), steps=3 * STEPS)
        assert bytes_of(network) == bytes_of(whole[0])

    def test_optimiser_state_is_the_same_too(self, stages):
        runs = [
            _Run(TinyNetwork(), make_batches(), SETTINGS, 3, Checkpoints(stages, "hash"))
            for _ in range(2)
        ]
        batches = list(make_batches().epoch(0))
        for number in range(4):
            runs[0].stepper.step(batches[number], number)
        runs[0].step = 4
        meter = SimpleNamespace(losses={}, documents=32, seconds=0.0, resume=lambda: None)
        runs[0]._save(0, 4, meter, batches[3].rows)
        assert runs[1].restore().step == 4
        first, second = (adamw_arrays(run.stepper.adamw) for run in runs)
        assert all(first[name].tobytes() == second[name].tobytes() for name in first)
        assert first["adamw.step"].tolist() == [4, 4, 0, 4]

    def test_a_finished_run_is_not_run_again(self, stages, whole):
        train(TinyNetwork(), stages=stages)
        again = TinyNetwork()
        history = train(again, stages=stages)
        assert again.sizes == []
        assert bytes_of(again) == bytes_of(whole[0])
        assert [epoch.losses for epoch in history.epochs] == [
            epoch.losses for epoch in whole[1].epochs
        ]

    def test_killed(self, tmp_path, whole):
        script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_loop import Stages, TinyNetwork, train

def before(network, batch):
    network.at_step += 1
    if network.at_step == 14:
        os.kill(os.getpid(), signal.SIGKILL)

network = TinyNetwork()
network.before = before
train(network, stages=Stages({str(tmp_path / "work")!r}))
"""
        done = subprocess.run(
            [sys.executable, "-c", script], check=False, capture_output=True, text=True
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        resumed = TinyNetwork()
        with Stages(tmp_path / "work") as stages:
            train(resumed, stages=stages)
        assert len(resumed.sizes) == 3 * STEPS - 12
        assert bytes_of(resumed) == bytes_of(whole[0])

    @pytest.mark.parametrize("steps", [4, STEPS])
    def test_stop_request_finishes_the_step_and_saves(self, stages, whole, steps):
        def before(network, batch):
            network.at_step += 1
            if network.at_step == steps:
                os.kill(os.getpid(), signal.SIGINT)

        network = TinyNetwork()
        validated = []
        network.before = before
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                train(network, stages=stages, validate=lambda: validated.append(1) or {"P@1": 0.0})
        finally:
            signal.signal(signal.SIGINT, handler)
        assert len(network.sizes) == steps
        assert not validated
        resumed = TinyNetwork()
        train(resumed, stages=stages)
        assert len(resumed.sizes) == 3 * STEPS - steps
        assert bytes_of(resumed) == bytes_of(whole[0])


class TestValidation:
    def run(self, values, stages=None, patience=0, epochs=3):
        network = TinyNetwork()
        seen = []

        def validate():
            seen.append(bytes_of(network))
            assert not network.training
            value = values[len(seen) - 1]
            return {"P@1": value, "P@3": value, "P@5": value, "N@1": -value}

        history = train(
            network, change(epochs=epochs, patience=patience), stages, validate=validate
        )
        return network, seen, history

    @pytest.mark.parametrize("kept", ["memory", "disk"])
    def test_the_best_weights_are_kept(self, stages, kept):
        network, seen, history = self.run([0.2, 0.5, 0.4], stages if kept == "disk" else None)
        assert (history.best, history.best_value) == (2, 0.5)
        assert [epoch.valid["P@3"] for epoch in history.epochs] == [0.2, 0.5, 0.4]
        weights = bytes_of(network)
        assert all(weights[name] == seen[1][name] for name in network.to_arrays())
        assert weights != seen[2]

    def test_the_last_is_best(self):
        network, seen, history = self.run([0.2, 0.5, 0.6])
        assert history.best == 3
        assert bytes_of(network) == seen[2]

    def test_a_first_value_of_nothing_counts(self):
        assert self.run([0.0, 0.0, 0.0])[2].best == 1

    def test_patience(self):
        _, seen, history = self.run([0.2, 0.5, 0.4, 0.5, 0.9, 0.9], patience=2, epochs=6)
        assert len(seen) == len(history.epochs) == 4
        assert history.best == 2

    def test_mean_of_three(self):
        given = iter(
            [
                {"P@1": 0.5, "P@3": 0.1, "P@5": 0.1},
                {"P@1": 0.3, "P@3": 0.3, "P@5": 0.3},
                {"P@1": 0.8},
            ]
        )
        history = train(TinyNetwork(), validate=lambda: next(given))
        assert history.best_value == 0.8
        with pytest.raises(ValueError, match=r"gave R@1; expected one of P@1, P@3, P@5"):
            train(TinyNetwork(), validate=lambda: {"R@1": 0.5})

    def test_resumed_after_a_crash_in_validation(self, stages):
        expected, _, _ = self.run([0.2, 0.5, 0.4])
        calls = iter([0.2, 0.5, Stopped])

        def validate():
            value = next(calls)
            if value is Stopped:
                raise Stopped
            return {"P@1": value}

        with pytest.raises(Stopped):
            train(TinyNetwork(), stages=stages, validate=validate)
        network = TinyNetwork()
        history = train(network, stages=stages, validate=lambda: {"P@1": 0.4})
        assert network.sizes == []
        assert (history.best, len(history.epochs)) == (2, 3)
        assert [epoch.valid["P@1"] for epoch in history.epochs] == [0.2, 0.5, 0.4]
        got = bytes_of(network)
        assert all(got[name] == bytes_of(expected)[name] for name in network.to_arrays())


class TestDiverged:
    def poisoned_at(self, step, poison):
        def before(network, batch):
            network.at_step += 1
            if network.at_step == step:
                network.rows = batch.rows.tolist()
                poison(network)

        network = TinyNetwork()
        network.before = before
        return network

    def test_loss_names_the_batch_and_the_level(self, stages):
        network = self.poisoned_at(STEPS + 2, lambda network: network.heads[1].bias.fill_(math.nan))
        with pytest.raises(Diverged) as caught:
            train(network, stages=stages)
        error = caught.value
        assert (error.what, error.epoch, error.step) == ("the loss of level 2", 1, STEPS + 1)
        assert error.rows.tolist() == network.rows
        assert str(error) == (
            f"epoch 2, step {STEPS + 2}: the loss of level 2 is not finite, for the batch of documents "
            f"{', '.join(map(str, network.rows[:8]))}, counted from 0; try a smaller training.encoder_rate or "
            f"training.head_rate, which begins anew; the checkpoint after step {STEPS + 1} is from before it, for "
            "--resume as it was"
        )
        assert len(network.sizes) < STEPS + 2 + 20
        resumed = TinyNetwork()
        train(resumed, stages=stages)
        assert len(resumed.sizes) == 3 * STEPS - STEPS - 1

    def test_weights_whose_loss_was_never_seen(self, stages):
        # step 3 is the last before a checkpoint: its loss is fine, what it does to the weights is
        # not
        def spoil(network):
            step = network.heads[0].step
            network.heads[0].step = lambda *given: (
                step(*given),
                network.heads[0].weight[0].fill_(math.inf),
            )

        with pytest.raises(
            Diverged,
            match=r"^epoch 1, step 3: a weight is not finite.*head_rate, which begins anew$",
        ) as caught:
            train(self.poisoned_at(3, spoil), stages=stages)
        assert not Checkpoints(stages, "hash").exists()
        assert len(caught.value.rows) == 8

    def test_gradient(self):
        def spoil(network):
            network.map.bias.register_hook(lambda gradient: gradient * math.nan)

        with pytest.raises(Diverged, match="step 2: the gradient is not finite") as caught:
            train(self.poisoned_at(2, spoil), change(checkpoint_steps=0))
        assert "--resume" not in str(caught.value)


class TwoProcesses(ProcessGroup):
    size = 2


class TestOutOfMemory:
    def short_of_memory_above(self, size, network, at_step=3):
        def before(network, batch):
            network.at_step += 1
            if network.at_step >= at_step and len(batch) > size:
                raise torch.OutOfMemoryError("CUDA out of memory")

        network.before = before
        return network

    def test_goes_on_with_smaller_micro_batches(self, caplog, stages):
        settings = change(epochs=2, head_optimiser="adamw")
        network = self.short_of_memory_above(2, TinyNetwork(dropout=0.0))
        with caplog.at_level(logging.INFO, "longtail"):
            train(network, settings, stages)
        assert network.sizes[:8] == [8, 8, 8, 4, 2, 2, 2, 2]
        assert caplog.messages[0] == (
            "step 3: out of memory with 8 documents at a time; going on with 4 (training.micro_batch=4 begins so); "
            "training.head_optimiser=row-adam saves 0.0 GiB; training.head_weights=bfloat16 saves 0.0 GiB"
        )
        plain = TinyNetwork(dropout=0.0)
        train(plain, settings)
        for name, array in plain.to_arrays().items():
            np.testing.assert_allclose(network.to_arrays()[name], array, rtol=2e-3, atol=2e-4)

    def test_a_half_made_gradient_is_forgotten(self):
        def before(network, batch):  # the second micro-batch of a step fails once
            network.at_step += 1
            if network.at_step == 2:
                raise torch.OutOfMemoryError("CUDA out of memory")

        network = TinyNetwork()
        plain = TinyNetwork()
        network.before = before
        train(network, change(epochs=1, micro_batch=4))
        assert network.sizes[:4] == [4, 4, 2, 2]
        train(plain, change(epochs=1, micro_batch=2))
        assert bytes_of(network) == bytes_of(
            plain
        )  # the same step from its beginning, with the same chance

    def test_resumed_with_the_smaller_one(self, stages):
        def before(network, batch):
            network.at_step += 1
            if len(batch) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            if network.at_step > 30:
                raise Stopped

        assert max(self.sizes_after_resuming(before, stages)) == 2

    def test_resumed_with_a_smaller_setting(self, stages):
        def before(network, batch):
            network.at_step += 1
            if network.at_step > 8:
                raise Stopped

        assert max(self.sizes_after_resuming(before, stages, change(micro_batch=2))) == 2

    def sizes_after_resuming(self, before, stages, *settings):
        """Return the sizes of micro-batches of a run that goes on where ``before`` has stopped
        another.
        """
        network = TinyNetwork()
        resumed = TinyNetwork()
        network.before = before
        with pytest.raises(Stopped):
            train(network, stages=stages)
        train(resumed, *settings, stages=stages)
        return resumed.sizes

    def test_of_several_ranks_the_setting_to_go_on_with_is_named(self):
        network = self.short_of_memory_above(2, TinyNetwork())
        said = r"^step 3, rank 0: out of memory with 4 documents at a time; try training.micro_batch=2 and --resume"
        with use_group(TwoProcesses()), pytest.raises(OutOfMemory, match=said):
            train(network)

    def test_at_one_document(self):
        network = self.short_of_memory_above(0, TinyNetwork())
        with pytest.raises(
            OutOfMemory,
            match=r"^step 3: out of memory with 1 document of \d+ tokens; try a smaller",
        ):
            train(network)
        assert network.sizes == [8, 8, 8, 4, 2, 1]

    def test_in_the_update(self):
        network = TinyNetwork()

        def step(rate, seed, beta1):
            raise torch.OutOfMemoryError("CUDA out of memory")

        network.heads[1].step = step
        with pytest.raises(
            OutOfMemory, match=r"classifiers are updated; try a smaller training.batch_size, or"
        ):
            train(network)


class TestRunLog:
    def test_lines(self, tmp_path, whole):
        file = tmp_path / "run.jsonl"
        file.write_bytes(b'{"event":"step"}\n{"event":"st')  # of a run that was killed
        with listening(RunLog(file)):
            train(TinyNetwork(), change(checkpoint_steps=0), validate=lambda: {"P@1": 0.5})
        lines = file.read_bytes().splitlines()
        events = [json.loads(line) for line in lines[2:]]
        assert lines[1] == b'{"event":"st'
        assert [(event["event"], event["step"]) for event in events] == [
            (kind, epoch * STEPS) for epoch in (1, 2, 3) for kind in ("step", "epoch")
        ]
        assert events[5]["losses"] == whole[1].epochs[2].losses
        assert events[5]["valid"] == {"P@1": 0.5}
        assert {"number", "samples_per_s", "rate", "peak_gib"} < events[4].keys()

    def test_read_every_twenty_steps(self, tmp_path):
        settings = change(epochs=1, batch_size=2, checkpoint_steps=0)
        batches = make_batches()
        batches.batch_size = 2
        with listening(RunLog(tmp_path / "run.jsonl")):
            fit(TinyNetwork(), batches, settings, seed=0)
        lines = (tmp_path / "run.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [20, 31, 31]
