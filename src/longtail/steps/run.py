"""Context shared by all steps of a training run: settings, stages, hierarchy, device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.steps.work import Work
from longtail.tree.given import Parents

__all__ = ["Run"]


class Run(NamedTuple):
    """A training run: its settings, its stages, and what was given beside the documents."""

    config: Config
    work: Work
    parents: Parents | None = None  # a hierarchy of the labels, in place of a clustered tree
    valid: Dataset | None = None  # tells which epoch of a network is the best
    device: str = "auto"
    # of a network: a loss, or a function, in the place of ``training.loss``
    loss: Callable[..., Any] | None = None
    # positions of the documents that are trained on, where others are held out
    rows: NDArray[np.int64] | None = None
