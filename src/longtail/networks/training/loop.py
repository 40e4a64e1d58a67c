"""The training loop of every network: epochs, checkpoints, and what happens when something goes
wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail import reporting
from longtail.config import Training
from longtail.networks.batches import Batches
from longtail.networks.device import pool_threads
from longtail.networks.training.checkpoints import (
    Checkpoints,
    Epoch,
    History,
    State,
    StopRequest,
    stop_requests,
)
from longtail.networks.training.meter import (
    BEST_BY,
    Diverged,
    Meter,
    epoch_line,
    peak_gib,
)
from longtail.networks.training.schedule import Schedule
from longtail.networks.training.stepper import Network, Stepper
from longtail.steps.process_group import Shard

__all__ = ["Average", "History", "fit"]

log = logging.getLogger("longtail")

_NO_ROWS = np.zeros(0, np.int64)


def fit(
    network: Network,
    batches: Batches,
    settings: Training,
    *,
    seed: int,
    checkpoints: Checkpoints | None = None,
    validate: Callable[[], Mapping[str, float]] | None = None,
    steps: int = 0,
) -> History:
    """Train the network where it is, from the last checkpoint on if there is one; it ends with the
    best weights.

    The run ends after ``steps`` optimiser steps, maybe within an epoch; with 0 after
    ``settings.epochs``. ``validate`` is called after each epoch and returns metrics such as P@1;
    without it the last epoch counts as best. Where weights are averaged, an epoch's are their mean
    so far. Ctrl-C and SIGTERM end the run after the step that is running, with a checkpoint. Where
    several ranks train together, each has its part of every batch, and the first one reports."""
    run = _Run(network, batches, settings, seed, checkpoints or Checkpoints(), steps)
    cuda = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), pool_threads(), stop_requests() as stop:
        start = run.restore()
        for number in range(start.epoch, run.n_epochs):
            state = State(epoch=number)
            if number == start.epoch:
                state = start
            meter = Meter(state.losses, state.documents, state.seconds)
            run.train_epoch(number, state.batch, meter, stop)
            stop.obey()
            network.train(False)
            with run.average.in_place():
                run.close_epoch(number, meter, validate)
            stop.obey()  # the checkpoint is from before validation, which a resumed run repeats
            best = run.history.best
            if validate and settings.patience and number + 1 - best >= settings.patience:
                log.info("training: stops, as no epoch since epoch %d was better", best)
                break
        run.take_best_weights()
    return run.history


class _Run:
    """A run: where it is, and how it came there."""

    def __init__(
        self,
        network: Network,
        batches: Batches,
        settings: Training,
        seed: int,
        checkpoints: Checkpoints,
        steps: int = 0,
    ) -> None:
        self.network = network
        self.batches = batches
        self.settings = settings
        self.checkpoints = checkpoints
        schedule = Schedule.of(settings, len(batches), steps)
        self.total = schedule.total
        # the last one may end early
        self.n_epochs = settings.epochs
        if steps:
            self.n_epochs = -(-steps // len(batches))
        self.stepper = Stepper(network, settings, schedule, seed)
        self.device = self.stepper.device
        self.group = self.stepper.group
        heads = [
            (tensor, getattr(head, "shard", None))
            for head in network.heads
            for tensor in head.learnt()
        ]
        self.weights: list[Tensor] = [*self.stepper.parameters, *(tensor for tensor, _ in heads)]
        shards = [*(None for _ in self.stepper.parameters), *(shard for _, shard in heads)]
        self.average = Average(self.weights, settings.average, self.total, shards)
        self.history = History()
        self.step = 0
        self.saved_step = 0

    def restore(self) -> State:
        """Return the place to go on from: that of the checkpoint, or the beginning."""
        state = self.checkpoints.restore(self.network, self.stepper.adamw, self.average) or State()
        if state.step:
            # a setting may be new
            self.stepper.micro_batch = min(state.micro_batch, self.stepper.micro_batch)
            log.info("training: goes on from epoch %d, step %d", state.epoch + 1, state.step)
        self.history = state.history
        self.step = state.step
        self.saved_step = state.step
        return state

    def take_best_weights(self) -> None:
        """Put the weights of the best epoch into the network, or where weights are averaged their
        mean.
        """
        if 0 < self.history.best < len(self.history.epochs):
            self.checkpoints.restore_best(self.network)
        else:
            self.average.apply()

    def train_epoch(self, number: int, start: int, meter: Meter, stop: StopRequest) -> None:
        """Train on the batches of an epoch from ``start`` on, as far as the run goes; a checkpoint
        at its end.
        """
        self.network.train()
        position = start
        every = self.settings.checkpoint_steps
        last = _NO_ROWS
        length = min(len(self.batches), self.total - number * len(self.batches))
        total = min(self.batches.n_documents, length * self.batches.batch_size)
        with (
            reporting.stage(f"epoch {number + 1}", total, "documents"),
            closing(self.batches.epoch(number, start)) as batches,
        ):
            reporting.advance(meter.documents)
            for batch in islice(batches, length - start):
                names, values = self.stepper.step(batch, self.step)
                time_to_read = meter.note(self.step, batch.rows, names, values)
                self.step = self.step + 1
                position = position + 1
                last = batch.rows
                self.average.update(self.step)
                reporting.advance(len(batch))
                due = stop.came() or (every and self.step % every == 0)
                if time_to_read or due:
                    self._read(number, meter)
                if due and position < length:
                    self._save(number, position, meter, last)
                    stop.obey()
        self._read(number, meter)
        if position > start:
            self._save(number, position, meter, last)

    def _read(self, number: int, meter: Meter) -> None:
        wrong = meter.read()
        if wrong is not None:
            what, step, rows = wrong
            raise Diverged(what, number, step, rows, self._way_out())
        self._report("step", self._facts(number, meter))

    def _report(self, event: str, values: Mapping[str, Any]) -> None:
        if self.group.is_first:
            reporting.report(event, self.step, values)

    def _facts(self, number: int, meter: Meter) -> dict[str, Any]:
        return {
            "number": number + 1,
            "losses": meter.means(),
            "samples_per_s": meter.samples_per_s(),
            "seconds": meter.seconds,
            "rate": self.stepper.rate(self.step - 1),
            "peak_gib": peak_gib(self.device),
        }

    def _save(self, number: int, position: int, meter: Meter, rows: NDArray[np.int64]) -> None:
        """Write a checkpoint, unless a weight is no longer finite though no loss has shown it
        yet.
        """
        # a sum is finite where all are, and takes no memory
        sums = [tensor.detach().sum(dtype=torch.float32) for tensor in self.weights]
        if not torch.stack(sums).isfinite().all():
            raise Diverged("a weight", number, self.step - 1, rows, self._way_out())
        state = State(
            epoch=number,
            batch=position,
            step=self.step,
            micro_batch=self.stepper.micro_batch,
            losses=meter.losses,
            documents=meter.documents,
            seconds=meter.seconds,
            history=self.history,
        )
        self.checkpoints.save(self.network, self.stepper.adamw, state, self.average)
        self.saved_step = 0
        if self.checkpoints.enabled:
            self.saved_step = self.step
        meter.resume()

    def _way_out(self) -> str:
        ways = "try a smaller training.encoder_rate or training.head_rate, which begins anew"
        if not self.saved_step:
            return ways
        checkpoint = f"the checkpoint after step {self.saved_step}"
        return f"{ways}; {checkpoint} is from before it, for --resume as it was"

    def close_epoch(
        self,
        number: int,
        meter: Meter,
        validate: Callable[[], Mapping[str, float]] | None,
    ) -> None:
        """Validate, enter the epoch into the history, and keep the weights if it is the best so
        far.
        """
        valid: dict[str, float | None] = {}
        if validate is not None:
            valid.update(validate())
        epoch = Epoch(valid=valid, **self._facts(number, meter))
        best = self.history.best
        best_value = self.history.best_value
        value = _mean_precision(valid) if validate else None
        if value is not None and (not best or value > best_value):
            best = epoch.number
            best_value = value
            self.checkpoints.save_best(self.network)
        self.history = History(
            epochs=(*self.history.epochs, epoch), best=best, best_value=best_value
        )
        self._report("epoch", msgspec.to_builtins(epoch))
        epochs_left = (self.total - self.step) / max(len(self.batches), 1)
        log.info("%s", epoch_line(epoch, round(epochs_left * self.batches.n_documents)))


def _mean_precision(valid: Mapping[str, float | None]) -> float:
    values = [value for name in BEST_BY if (value := valid.get(name)) is not None]
    if not values:
        raise ValueError(
            f"validation gave {', '.join(valid) or 'nothing'}; expected one of {', '.join(BEST_BY)}"
        )
    return fmean(values)


# The mean of a network's weights over the last steps of a run, which generalises better than the
# last weights.
#
# Izmailov et al. 2018, Averaging Weights Leads to Wider Optima and Better Generalization (SWA,
# algorithm 1): w_SWA ← (w_SWA · n_models + w) / (n_models + 1).

# at most, in a run: neighbouring steps tell the mean little, and each costs a pass over all weights
_UPDATES = 100


class Average:
    """The running mean of ``weights``, as many numbers again, over the last ``share`` of ``total``
    steps.

    With a share of 0 it takes no memory and does nothing. The mean of bfloat16 weights is float32,
    as it would otherwise stand still. A weight that is split among ranks has its ``shards`` entry,
    and is an array as a whole."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        share: float,
        total: int,
        shards: Sequence[Shard | None] = (),
    ) -> None:
        self._total = total
        self._last = round(share * total)
        self._every = max(1, -(-self._last // _UPDATES))
        self._weights = list(weights) if self._last else []
        self._shards = shards or [None] * len(weights)
        # now, so that no step in the middle of the run is the first to need the memory
        self._means = [torch.zeros_like(weight, dtype=_wide(weight)) for weight in self._weights]
        self.count = 0  # weights that the mean is of

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after ``step`` steps, if it is one that counts; the last step of a run
        is.
        """
        left = self._total - step
        if not self._means or left >= self._last or left % self._every:
            return
        self.count += 1
        share = 1 / self.count
        for mean, weight in zip(self._means, self._weights, strict=True):
            mean.mul_(1 - share).add_(weight, alpha=share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the mean as the network's weights in the body, if there is one yet; float32 ones are
        not copied.
        """
        if not self.count:
            yield
            return
        before = [weight.data for weight in self._weights]
        try:
            for weight, mean in zip(self._weights, self._means, strict=True):
                weight.data = mean.to(weight.dtype)
            yield
        finally:
            for weight, data in zip(self._weights, before, strict=True):
                weight.data = data

    @torch.no_grad()
    def apply(self) -> None:
        """Make the mean the network's weights for good, if there is one."""
        if self.count:
            for weight, mean in zip(self._weights, self._means, strict=True):
                weight.copy_(mean)

    def to_arrays(self, state: bool = False) -> dict[str, NDArray[Any]]:
        """Return ``count`` and the mean, by the weights' position; nothing without a mean."""
        if not self.count:
            return {}
        arrays = {"count": np.array(self.count)}
        for at, (mean, shard) in enumerate(zip(self._means, self._shards, strict=False)):
            if shard is None:
                arrays[str(at)] = mean.cpu().numpy()
            else:
                arrays[str(at)] = shard.whole(mean)
        return arrays

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`to_arrays` gave."""
        self.count = 0
        if not arrays:
            return
        self.count = int(arrays["count"])
        for at, (mean, shard) in enumerate(zip(self._means, self._shards, strict=False)):
            array = arrays[str(at)]
            if shard is not None:
                array = shard.local_rows(array)
            mean.copy_(torch.from_numpy(np.array(array)))


def _wide(weight: Tensor) -> torch.dtype:
    if weight.dtype == torch.bfloat16:
        return torch.float32
    return weight.dtype
