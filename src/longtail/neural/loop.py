"""The training loop of every network: steps, epochs, checkpoints, and what happens when something goes wrong."""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail import progress
from longtail.config import Training
from longtail.errors import LongtailError
from longtail.neural.averaging import Average
from longtail.neural.batches import Batch, Batches
from longtail.neural.checkpoints import Checkpoints, Epoch, History, State, StopRequest, Weights, stop_requests
from longtail.neural.device import arithmetic, own_threads, quick_products
from longtail.neural.layout import documents_at_a_time
from longtail.neural.ranks import Ranks, current_ranks, total_gradients
from longtail.neural.run_log import BEST_BY, Diverged, Meter, RunLog, epoch_line, peak_gib
from longtail.neural.schedule import Schedule

__all__ = ["History", "Network", "OutOfMemory", "fit"]

log = logging.getLogger("longtail")

_NO_ROWS = np.zeros(0, np.int64)


class OutOfMemory(LongtailError):
    """The memory of the device does not suffice for one document at a time."""


class Network(Weights, Protocol):
    """What can be trained: parameters by AdamW, and heads that update themselves."""

    @property
    def heads(self) -> Iterable[Any]:
        """The :class:`~longtail.neural.heads.Head` of each level."""

    def optimiser_groups(self) -> list[dict[str, Any]]:
        """Return groups for AdamW: ``params``, ``lr`` and ``weight_decay``; always in the same order."""

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss of each level, the mean over the documents of the batch, which is on the device."""

    def train(self, mode: bool = True) -> Any:
        """Switch dropout and the recording of heads on or off."""


def fit(
    network: Network,
    batches: Batches,
    settings: Training,
    *,
    seed: int,
    checkpoints: Checkpoints | None = None,
    validate: Callable[[], Mapping[str, float]] | None = None,
    log_file: Path | None = None,
) -> History:
    """Train the network where it is, from the last checkpoint on if there is one; it ends with the best weights.

    ``validate`` is called after each epoch and returns metrics such as P@1; without it the last epoch counts as best.
    Where weights are averaged, an epoch's are their mean so far.
    Ctrl-C and SIGTERM end the run after the step that is running, with a checkpoint. Events go to ``log_file``.
    Where several ranks train together, each has its part of every batch, and the first one writes.
    """
    run = _Run(network, batches, settings, seed, checkpoints or Checkpoints())
    cuda = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), own_threads(), stop_requests() as stop:
        start = run.restore()
        file, board = (log_file, settings.tensorboard) if run.ranks.first else (None, "")
        with RunLog(file, board, start.step) as run_log:
            return run.epochs(start, validate, run_log, stop)


class _Stepper:
    """One optimiser step: micro-batches forward and backward, then AdamW and the heads."""

    def __init__(self, network: Network, settings: Training, schedule: Schedule, seed: int) -> None:
        self.network, self.settings, self.schedule, self.seed = network, settings, schedule, seed
        self.ranks = current_ranks()
        groups = network.optimiser_groups()
        self.parameters: list[Tensor] = [parameter for group in groups for parameter in group["params"]]
        self.device = self.parameters[0].device
        on_gpu = self.device.type == "cuda"
        self.micro_batch = documents_at_a_time(settings.micro_batch, settings.batch_size, on_gpu)
        self.adamw = torch.optim.AdamW(groups, fused=True)  # on a CPU seven times as fast as the plain one
        self.rates = [float(group["lr"]) for group in self.adamw.param_groups]
        for parameter in self.parameters:  # now: no step is the first to need the memory, and a checkpoint finds them
            place = self.device if self.device.type == "cuda" else None
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self.adamw.state[parameter] = {"step": torch.tensor(0.0, device=place), **moments}

    def step(self, batch: Batch, number: int) -> tuple[list[str], Tensor]:
        """Train on a batch; return the names of the levels, and their losses followed by the gradient's norm.

        All chance comes from (seed, number), so a step that is run again, or in a resumed run, is the same one.
        """
        heads = list(self.network.heads)
        seeds = np.random.SeedSequence((self.seed, number)).generate_state(1 + len(heads)) >> 1  # int32 for kernels
        with quick_products(self.settings.precision, self.device):
            while (done := self._gradients(batch, int(seeds[0]))) is None:
                self._shrink(batch, number)
        names, losses = done
        if self.ranks.count > 1:
            learns = self.ranks.lengths(len(batch))[self.ranks.rank] > 0
            losses = total_gradients(self.ranks, self.parameters, losses, learns)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip or math.inf)
        self._update(heads, seeds[1:].tolist(), self.schedule.factor(number))
        return names, torch.cat([losses, norm.to(losses)[None]])

    def rate(self, number: int) -> float:
        """Return the learning rate of the first group at a step."""
        return self.rates[0] * self.schedule.factor(number)

    def _gradients(self, batch: Batch, seed: int) -> tuple[list[str], Tensor] | None:
        """Leave the gradient of the batch in parameters and heads; None if memory did not suffice for it."""
        torch.manual_seed(seed + self.ranks.rank)
        names, total = list[str](), torch.zeros((), device=self.device)
        try:
            for whole in batch.split(self.micro_batch * self.ranks.count):
                part = _own(whole, self.ranks)
                with arithmetic(self.settings.precision, self.device):
                    losses = self.network.losses(part.to(self.device))
                names = list(losses)
                shares = torch.stack(list(losses.values())) * (len(part) / len(batch))
                shares = shares if len(part) else shares.nan_to_num()  # the mean of nothing
                torch.autograd.backward(shares.sum())
                total = total + shares.detach()
        except torch.OutOfMemoryError:
            return None
        return names, total

    def _shrink(self, batch: Batch, number: int) -> None:
        """Forget a half-made gradient and halve the micro-batch."""
        self.adamw.zero_grad(set_to_none=True)
        for head in self.network.heads:
            head.forget()
        if self.device.type == "cuda":
            gc.collect()  # cycles may hold tensors of the failed attempt
            torch.cuda.empty_cache()
        at_a_time = min(self.micro_batch, len(batch))
        advice = _savings(list(self.network.heads), self.settings)
        if self.ranks.count > 1:  # the others are in the middle of the step, and cannot run it again
            ways = [f"training.micro_batch={max(at_a_time // 2, 1)} and --resume", *advice]
            found = f"step {number + 1}, rank {self.ranks.rank}: out of memory with {at_a_time} documents at a time"
            raise OutOfMemory(f"{found}; try {', or '.join(ways)}")
        if at_a_time == 1:
            ways = ["a smaller encoder.max_tokens, shortlist or encoder", *advice]
            raise OutOfMemory(
                f"step {number + 1}: out of memory with 1 document of {batch.ids.shape[1]} tokens; "
                f"try {', or '.join(ways)}"
            )
        self.micro_batch = at_a_time // 2
        found = f"step {number + 1}: out of memory with {at_a_time} documents at a time"
        now = f"going on with {self.micro_batch} (training.micro_batch={self.micro_batch} begins so)"
        log.warning("%s", "; ".join([found, now, *advice]))

    def _update(self, heads: Sequence[Any], seeds: Sequence[int], factor: float) -> None:
        for group, rate in zip(self.adamw.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        try:
            for head, seed in zip(heads, seeds, strict=True):
                head.step(self.settings.head_rate * factor, seed)
        except torch.OutOfMemoryError:  # some rows may be updated, so the step cannot be run again
            ways = ["a smaller training.batch_size", *_savings(heads, self.settings)]
            message = f"out of memory while the classifiers are updated; try {', or '.join(ways)}"
            raise OutOfMemory(message) from None


def _savings(heads: Sequence[Any], settings: Training) -> list[str]:
    """Return the settings that would make the classifiers smaller, with what each saves."""
    n_weights = sum(tensor.numel() for head in heads for tensor in head.learnt())
    ways = []
    if settings.head_optimiser == "adamw":
        ways.append(f"training.head_optimiser=row-adam saves {8 * n_weights / 2**30:.1f} GiB")
    if settings.head_weights == "float32":
        ways.append(f"training.head_weights=bfloat16 saves {2 * n_weights / 2**30:.1f} GiB")
    return ways


def _own(batch: Batch, ranks: Ranks) -> Batch:
    """Return this rank's documents of a batch, which may be none; padded as the whole is."""
    if ranks.count == 1:
        return batch
    own = ranks.part(len(batch))
    mask = None if batch.mask is None else batch.mask[own]
    return Batch(batch.ids[own], mask, batch.positives[own], batch.values[own], batch.rows[own], batch.epoch)


class _Run:
    """A run: where it is, and how it came there."""

    def __init__(
        self, network: Network, batches: Batches, settings: Training, seed: int, checkpoints: Checkpoints
    ) -> None:
        self.network, self.batches, self.settings, self.checkpoints = network, batches, settings, checkpoints
        self.stepper = _Stepper(network, settings, Schedule.of(settings, len(batches)), seed)
        self.device, self.ranks = self.stepper.device, self.stepper.ranks
        heads = [(tensor, getattr(head, "shard", None)) for head in network.heads for tensor in head.learnt()]
        self.weights: list[Tensor] = [*self.stepper.parameters, *(tensor for tensor, _ in heads)]
        shards = [*(None for _ in self.stepper.parameters), *(shard for _, shard in heads)]
        self.average = Average(self.weights, settings.average, settings.epochs * len(batches), shards)
        self.history, self.step, self.saved_step = History(), 0, 0

    def restore(self) -> State:
        """Return the place to go on from: that of the checkpoint, or the beginning."""
        state = self.checkpoints.restore(self.network, self.stepper.adamw, self.average) or State()
        if state.step:
            self.stepper.micro_batch = state.micro_batch
            log.info("training: goes on from epoch %d, step %d", state.epoch + 1, state.step)
        self.history, self.step, self.saved_step = state.history, state.step, state.step
        return state

    def epochs(
        self,
        start: State,
        validate: Callable[[], Mapping[str, float]] | None,
        run_log: RunLog,
        stop: StopRequest,
    ) -> History:
        """Run the epochs that are left, and put the best weights into the network."""
        for number in range(start.epoch, self.settings.epochs):
            state = start if number == start.epoch else State(epoch=number)
            meter = Meter(state.losses, state.documents, state.seconds)
            self._epoch(number, state.batch, meter, run_log, stop)
            stop.obey()
            self.network.train(False)
            with self.average.in_place():
                self._close_epoch(number, meter, validate, run_log)
            stop.obey()  # the checkpoint is from before validation, which a resumed run repeats
            if self.settings.patience and number + 1 - self.history.best >= self.settings.patience and validate:
                log.info("training: stops, as no epoch since epoch %d was better", self.history.best)
                break
        if 0 < self.history.best < len(self.history.epochs):
            self.checkpoints.restore_best(self.network)
        else:
            self.average.settle()
        return self.history

    def _epoch(self, number: int, start: int, meter: Meter, run_log: RunLog, stop: StopRequest) -> None:
        """Train on the batches of an epoch from ``start`` on; a checkpoint at its end."""
        self.network.train()
        position, every, last = start, self.settings.checkpoint_steps, _NO_ROWS
        name, total = f"epoch {number + 1}", self.batches.n_documents
        with progress.stage(name, total, "documents"), closing(self.batches.epoch(number, start)) as batches:
            progress.advance(meter.documents)
            for batch in batches:
                names, values = self.stepper.step(batch, self.step)
                time_to_read = meter.note(self.step, batch.rows, names, values)
                self.step, position, last = self.step + 1, position + 1, batch.rows
                self.average.update(self.step)
                progress.advance(len(batch))
                due = stop.came() or (every and self.step % every == 0)
                if time_to_read or due:
                    self._read(number, meter, run_log)
                if due and position < len(self.batches):
                    self._save(number, position, meter, last)
                    stop.obey()
        self._read(number, meter, run_log)
        if position > start:
            self._save(number, position, meter, last)

    def _read(self, number: int, meter: Meter, run_log: RunLog) -> None:
        wrong = meter.read()
        if wrong is not None:
            what, step, rows = wrong
            raise Diverged(what, number, step, rows, self._way_out())
        run_log.write("step", self.step, self._facts(number, meter))

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
        """Write a checkpoint, unless a weight is no longer finite though no loss has shown it yet."""
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
        self.saved_step = self.step if self.checkpoints.enabled else 0
        meter.resume()

    def _way_out(self) -> str:
        ways = "try a smaller training.encoder_rate or training.head_rate, which begins anew"
        if not self.saved_step:
            return ways
        return f"{ways}; the checkpoint after step {self.saved_step} is from before it, for --resume as it was"

    def _close_epoch(
        self, number: int, meter: Meter, validate: Callable[[], Mapping[str, float]] | None, run_log: RunLog
    ) -> None:
        """Validate, enter the epoch into the history, and keep the weights if it is the best so far."""
        valid: dict[str, float | None] = {} if validate is None else dict(validate())
        epoch = Epoch(valid=valid, **self._facts(number, meter))
        best, best_value = self.history.best, self.history.best_value
        value = _mean_precision(valid) if validate else None
        if value is not None and (not best or value > best_value):
            best, best_value = epoch.number, value
            self.checkpoints.save_best(self.network)
        self.history = History(epochs=(*self.history.epochs, epoch), best=best, best_value=best_value)
        run_log.write("epoch", self.step, msgspec.to_builtins(epoch))
        log.info("%s", epoch_line(epoch, (self.settings.epochs - epoch.number) * self.batches.n_documents))


def _mean_precision(valid: Mapping[str, float | None]) -> float:
    values = [value for name in BEST_BY if (value := valid.get(name)) is not None]
    if not values:
        raise ValueError(f"validation gave {', '.join(valid) or 'nothing'}; expected one of {', '.join(BEST_BY)}")
    return fmean(values)
