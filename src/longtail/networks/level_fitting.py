"""Settings and validation of one level, for networks that are trained level by level of the label
tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace as replace_settings
from scipy import sparse

from longtail.config import Training
from longtail.data.csr import csr_of_slots
from longtail.features.tokens import Tokens
from longtail.metrics import evaluate
from longtail.networks.base import NetworkRun
from longtail.networks.layout import LevelLength, LevelSettings
from longtail.networks.recursive import Matcher, Nodes
from longtail.networks.training.meter import BEST_BY

__all__ = ["LevelValidation", "level_training"]

_WARM_UP = 0.1  # of a level, where the settings leave it open; the rest cools down


def level_training(
    training: Training, settings: LevelSettings, length: LevelLength, steps_per_epoch: int
) -> Training:
    """Return the settings of training for a level by itself, whose optimiser steps an epoch are
    known.
    """
    passes = length.passes(steps_per_epoch)
    warm_up = _WARM_UP * passes
    if settings.warmup_steps:
        warm_up = min(settings.warmup_steps / max(steps_per_epoch, 1), passes)
    return replace_settings(
        training,
        epochs=math.ceil(passes),
        warmup_epochs=warm_up,
        cooldown_epochs=passes - warm_up,
    )


@dataclass(frozen=True)
class LevelValidation:
    """Validation documents on the way down, with the nodes that the levels so far chose for
    them.
    """

    levels: Sequence[sparse.csr_array]
    tokens: Tokens
    matched: Nodes | None = None

    @classmethod
    def of(cls, run: NetworkRun) -> LevelValidation | None:
        """Return the validation documents above the first level, if there are any."""
        if run.valid is None:
            return None
        return cls(
            run.tree.coarsen(run.valid.label_matrix),
            run.embedder.tokeniser(run.valid.document_texts()),
        )

    def below(self, matcher: Matcher, k: int) -> LevelValidation:
        """Return them with the ``k`` best nodes of a level, for the next one."""
        return LevelValidation(
            self.levels, self.tokens, matcher.match(self.tokens, self.matched, max(k, 1))[1]
        )

    def precision(self, matcher: Matcher) -> dict[str, float]:
        """Return P@1, P@3 and P@5 of the level's nodes."""
        truth = self.levels[matcher.network.level]
        nodes = matcher.match(self.tokens, self.matched, 5)[1]
        ranks = np.broadcast_to(np.arange(nodes.shape[1], 0, -1, dtype=np.float32), nodes.shape)
        metrics = evaluate(
            csr_of_slots(ranks, nodes, truth.shape[1]), truth.astype(bool).astype(np.float32)
        )
        return {name: float(metrics[name]) for name in BEST_BY}
