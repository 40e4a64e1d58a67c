"""Measurements of a training run: losses read off the device every few steps, memory, and the line
of an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail import reporting
from longtail.errors import LongtailError
from longtail.networks.training.checkpoints import Epoch

__all__ = ["BEST_BY", "RECALL", "Diverged", "Meter", "epoch_line", "peak_gib"]

RECALL = "recall of level "  # how validation names the recall of the shortlist of a level
BEST_BY = ("P@1", "P@3", "P@5")  # the best epoch has the highest mean of these

_STEPS = 20  # between two readings of the device; each one waits for all that it was given to do
_ROWS_SHOWN = 8


class Diverged(LongtailError):
    """A loss, gradient or weight that is no longer finite; ``rows`` are the documents of the
    batch.
    """

    def __init__(
        self, what: str, epoch: int, step: int, rows: NDArray[np.int64], way_out: str
    ) -> None:
        shown = ", ".join(map(str, rows[:_ROWS_SHOWN]))
        if len(rows) > _ROWS_SHOWN:
            shown += f", … ({len(rows)} in all)"
        batch = f"documents {shown}, counted from 0"
        super().__init__(
            f"epoch {epoch + 1}, step {step + 1}: {what} is not finite, for the batch of {batch}; "
            f"{way_out}"
        )
        self.what = what
        self.epoch = epoch
        self.step = step
        self.rows = rows


class Meter:
    """Sums of an epoch; the losses of single steps stay on the device until :meth:`read`."""

    def __init__(self, losses: Mapping[str, float], documents: int, seconds: float) -> None:
        self.losses = dict(losses)
        self.documents = documents
        self.seconds = seconds
        self._waiting: list[tuple[int, NDArray[np.int64], Tensor]] = []
        self._names: Sequence[str] = ()
        self._since = time.perf_counter()

    def note(
        self, step: int, rows: NDArray[np.int64], names: Sequence[str], values: Tensor
    ) -> bool:
        """Keep the values (levels + 1,) of a step, the last one the gradient's norm; True when it
        is time to read.
        """
        self._waiting.append((step, rows, values))
        self._names = names
        return len(self._waiting) >= _STEPS

    def read(self) -> tuple[str, int, NDArray[np.int64]] | None:
        """Wait for the device and add up what was noted; of the first value that is not finite:
        what, step, rows.
        """
        waiting = self._waiting
        self._waiting = []
        table: Sequence[NDArray[np.float64]] = ()
        if waiting:
            table = list(torch.stack([values for *_, values in waiting]).double().cpu().numpy())
        for (step, rows, _), values in zip(waiting, table, strict=True):
            wrong = np.flatnonzero(~np.isfinite(values))
            if wrong.size:
                level = int(wrong[0])
                what = "the gradient"
                if level < len(self._names):
                    what = f"the loss of {self._names[level]}"
                return what, step, rows
            self.documents += len(rows)
            # one by one: a resumed sum is the same
            for name, value in zip(self._names, values.tolist(), strict=False):
                self.losses[name] = self.losses.get(name, 0.0) + value * len(rows)
        now = time.perf_counter()
        self.seconds = self.seconds + now - self._since
        self._since = now
        return None

    def resume(self) -> None:
        """Leave out of ``seconds`` what passed since :meth:`read`: a checkpoint was written."""
        self._since = time.perf_counter()

    def means(self) -> dict[str, float]:
        """Return the mean loss of a document by level."""
        return {name: value / self.documents for name, value in self.losses.items()}

    def samples_per_s(self) -> float:
        """Return documents a second of the epoch so far."""
        return self.documents / max(self.seconds, 1e-9)


def peak_gib(device: torch.device) -> float:
    """Return the most memory in use so far, in GiB: of the device, or of the process where that is
    the CPU.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return 1e6 * reporting.peak_memory_mb() / 2**30


def epoch_line(epoch: Epoch, documents_left: int) -> str:
    """Return an epoch as one line for people."""
    losses = ", ".join(f"{name} {loss:.4g}" for name, loss in epoch.losses.items())
    valid = "".join(
        f", {name} {value:.2%}" for name in BEST_BY if (value := epoch.valid.get(name)) is not None
    )
    recalls = [
        f"{value:.1%}"
        for name, value in epoch.valid.items()
        if name.startswith(RECALL) and value is not None
    ]
    if recalls:
        valid += f", shortlists keep {' and '.join(recalls)}"
    left = documents_left / max(epoch.samples_per_s, 1e-9)
    speed = (
        f"{epoch.samples_per_s:,.0f} documents/s, {epoch.peak_gib:.1f} GiB, rate {epoch.rate:.2g}"
    )
    time = f"{epoch.seconds:.1f} s, {left / 60:.1f} min left"
    return f"epoch {epoch.number}: loss {losses}{valid}; {speed} ({time})"
