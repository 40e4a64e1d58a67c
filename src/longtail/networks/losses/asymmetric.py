"""Asymmetric loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from longtail.errors import UsageError
from longtail.networks.losses.base import (
    PointwiseLoss,
    checked_gamma,
    focal_positive,
    focal_slope,
)

__all__ = ["Asymmetric"]


class Asymmetric(PointwiseLoss):
    """Asymmetric loss (ASL): a γ for positives and one for negatives, which count nothing with σ
    below the margin.
    """

    name = "asymmetric"

    def __init__(
        self, gamma_positive: float = 1.0, gamma_negative: float = 4.0, margin: float = 0.05
    ) -> None:
        self.gamma_positive = checked_gamma("gamma_positive", gamma_positive)
        self.gamma_negative = checked_gamma("gamma_negative", gamma_negative)
        if not 0 <= margin < 1:
            raise UsageError(f"margin: found {margin!r}; expected a number from 0 to below 1")
        self.margin = float(margin)
        self._log_margin = -math.inf
        if margin:
            self._log_margin = math.log(margin)

    def positive(self, scores: Tensor) -> Tensor:
        """Return −(1 − σ)^γ₊·log σ."""
        return focal_positive(scores, self.gamma_positive)

    def negative(self, scores: Tensor) -> Tensor:
        """Return −q^γ₋·log(1 − q)."""
        shifted = self._shifted(scores)
        return -shifted.pow(self.gamma_negative) * self._log_complement(scores)

    def slopes(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives; that of negatives is 0 where σ is at most m."""
        gamma = self.gamma_negative
        shifted = self._shifted(scores)
        log_complement = self._log_complement(scores)
        sigma_slope = scores.sigmoid() * (-scores).sigmoid()
        of_power = torch.zeros_like(scores)
        if gamma:
            of_power = -gamma * shifted.pow(gamma - 1) * log_complement
        of_log = shifted.pow(gamma) * (-log_complement).exp()
        of_negatives = torch.where(shifted > 0, sigma_slope * (of_power + of_log), 0)
        return focal_slope(scores, self.gamma_positive), of_negatives

    def _shifted(self, scores: Tensor) -> Tensor:
        """Return q = max(σ − m, 0)."""
        return (scores.sigmoid() - self.margin).relu()

    def _log_complement(self, scores: Tensor) -> Tensor:
        """Return log(1 − q) = log(1 − σ + m), at most 0; finite for every score."""
        log_margin = scores.new_full((), self._log_margin)
        return torch.logaddexp(functional.logsigmoid(-scores), log_margin).clamp(max=0)
