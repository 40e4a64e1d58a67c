"""How the learning rate rises and falls over a run (Kharbanda et al. 2022, appendix: cosine at both ends)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from longtail.config import Training

__all__ = ["Schedule"]

_FIRST = 1 / 10  # of the rate, at the first step of the warm-up
_LAST = 1 / 100  # of the rate, at the last step of the cool-down


@dataclass(frozen=True)
class Schedule:
    """Warm-up, constant, cool-down; all in optimiser steps, which need not be whole."""

    total: int
    warmup: float
    cooldown: float

    @classmethod
    def of(cls, settings: Training, steps_per_epoch: int) -> Schedule:
        """Return the schedule of a run; in one too short for both ends, both shrink in proportion."""
        ends = settings.warmup_epochs + settings.cooldown_epochs
        scale = steps_per_epoch * min(1.0, settings.epochs / ends if ends else 1.0)
        return cls(settings.epochs * steps_per_epoch, settings.warmup_epochs * scale, settings.cooldown_epochs * scale)

    def factor(self, step: int) -> float:
        """Return what the learning rates are multiplied by at ``step``, counted from 0."""
        if step < self.warmup:
            return _cosine(_FIRST, 1.0, step / self.warmup)
        cooling = step + 1 - (self.total - self.cooldown)  # 1 above, so that the last step has the last rate
        return _cosine(1.0, _LAST, min(1.0, cooling / self.cooldown)) if cooling > 0 and self.cooldown else 1.0


def _cosine(begin: float, end: float, share: float) -> float:
    """Return the way from ``begin`` to ``end`` along half a cosine, level at both."""
    return end + (begin - end) * (1 + math.cos(math.pi * share)) / 2
