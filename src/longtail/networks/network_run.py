"""The inputs of a network's training: documents, the initial encoder, the label tree, settings."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.features.tokens import Tokens
from longtail.networks.embedder import Embedder
from longtail.networks.losses import Loss
from longtail.networks.training.checkpoints import Checkpoints
from longtail.steps.inputs import EVERYTHING, Inputs
from longtail.steps.work import Work
from longtail.tree.tree import LabelTree

__all__ = ["NetworkRun"]


@dataclass(frozen=True)
class NetworkRun:
    """The training of one network; ``tokens`` are those of ``documents``."""

    documents: Dataset
    embedder: Embedder  # tokeniser, and the encoder that training begins with and changes
    tokens: Tokens
    tree: LabelTree
    config: Config
    work: Work
    valid: Dataset | None = None  # over the labels of ``documents``; tells which epoch is the best
    loss: Loss | None = None  # given from Python, in the place of ``training.loss``
    inputs: Inputs = EVERYTHING  # of the trained network

    def checkpoints(self, number: int) -> Checkpoints:
        """Return the checkpoints of the network ``number`` of this run."""
        return Checkpoints(self.work.stages, self.work.key(self.inputs), number)
