"""The learning rate over a run: warm-up, a constant rate, cool-down.

``cosine`` is that of Kharbanda et al. 2022 (appendix A.2.1). ``one-cycle`` is that of the code they
published, where AdamW's β₁ moves against the rate. ``linear`` is that of BERT, and of Zhang et al.
2021."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from longtail.config import Training

__all__ = ["Schedule"]

Shape = Literal["cosine", "linear", "one-cycle"]

_FIRST = 1 / 10  # of the rate, at the first step of the warm-up
_LAST = 1 / 100  # of the rate, at the last step of the cool-down
_LAST_OF_CYCLE = 1 / 1000  # the same of one-cycle
_BETA1 = 0.9
_BETA1_OF_CYCLE = (0.95, 0.85)  # where the rate is lowest, and where it is highest


@dataclass(frozen=True)
class Schedule:
    """Warm-up, constant, cool-down; all in optimiser steps, which need not be whole."""

    total: int
    warmup: float
    cooldown: float
    shape: Shape = "cosine"

    @classmethod
    def of(cls, settings: Training, steps_per_epoch: int, total: int = 0) -> Schedule:
        """Return the schedule of a run; in one too short for both ends, both shrink in proportion.

        ``total`` are its optimiser steps, 0 standing for those of ``settings.epochs``.
        """
        total = total or settings.epochs * steps_per_epoch
        epochs = total / max(steps_per_epoch, 1)
        ends = settings.warmup_epochs + settings.cooldown_epochs
        scale = steps_per_epoch * min(1.0, epochs / ends if ends else 1.0)
        return cls(
            total,
            settings.warmup_epochs * scale,
            settings.cooldown_epochs * scale,
            settings.schedule,
        )

    def factor(self, step: int) -> float:
        """Return the factor of the learning rates at ``step``, counted from 0."""
        if self.shape == "linear":
            return self._linear(step)
        rising = self._rising(step)
        if rising is not None:
            return _cosine(_FIRST, 1.0, rising)
        falling = self._falling(step)
        last = _LAST_OF_CYCLE
        if self.shape == "cosine":
            last = _LAST
        if falling is None:
            return 1.0
        return _cosine(1.0, last, falling)

    def beta1(self, step: int) -> float:
        """Return AdamW's β₁ at ``step``: constant but for one-cycle, where it falls as the rate
        rises, and back.
        """
        if self.shape != "one-cycle":
            return _BETA1
        highest, lowest = _BETA1_OF_CYCLE
        rising = self._rising(step)
        if rising is not None:
            return _cosine(highest, lowest, rising)
        falling = self._falling(step)
        if falling is None:
            return lowest
        return _cosine(lowest, highest, falling)

    def _linear(self, step: int) -> float:
        """Return the factor that rises from 0 and would be 0 again one step after the last one."""
        if step < self.warmup:
            return step / self.warmup
        left = self.total - step
        if left < self.cooldown:
            return max(left, 0) / self.cooldown
        return 1.0

    def _rising(self, step: int) -> float | None:
        """Return how much of the warm-up is over at ``step``, None behind it."""
        if step < self.warmup:
            return step / self.warmup
        return None

    def _falling(self, step: int) -> float | None:
        """Return how much of the cool-down is over after ``step``, all of it at the last one; None
        before it.
        """
        cooling = step + 1 - (self.total - self.cooldown)
        if cooling > 0 and self.cooldown:
            return min(1.0, cooling / self.cooldown)
        return None


def _cosine(begin: float, end: float, share: float) -> float:
    """Return the way from ``begin`` to ``end`` along half a cosine, level at both."""
    return end + (begin - end) * (1 + math.cos(math.pi * share)) / 2
