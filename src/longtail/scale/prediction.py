"""`longtail predict` in this process, with some shards of a model, or with workers of Ray."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from longtail.data.dataset import Dataset
from longtail.data.strings import Strings
from longtail.errors import UsageError
from longtail.kernels import pool
from longtail.models.model_folder import load_model
from longtail.models.ranking_model import RankingModel
from longtail.pipeline import predict
from longtail.search.partial_predictions import write_partial
from longtail.search.predictions import Predictions, write_predictions
from longtail.store import open_folder

__all__ = ["PredictionJob", "count_unread", "prediction_job"]


class PredictionJob(ABC):
    """A model that is ready to predict."""

    @abstractmethod
    def run(
        self, documents: Dataset, output: str, k: int, threshold: float, beam_size: int | None
    ) -> int:
        """Write predictions, and return the number of documents that are known to hold nothing that
        the model knows.

        Args:
            documents: to be labelled.
            output: file to write; - for stdout.
            k: labels per document.
            threshold: the least score.
            beam_size: nodes kept on each level of a label tree; None: as the settings say.
        """


def prediction_job(
    model: Path,
    *,
    threads: int = 0,
    device: str = "auto",
    shards: Collection[int] | None = None,
    ray: str | None = None,
) -> PredictionJob:
    """Open a model folder; documents need not be read yet.

    Args:
        model: the model folder.
        threads: 0 for all cores; of a cluster that is started, its workers.
        device: where a network runs.
        shards: numbers of the shards of labels to predict with; None for the whole model.
        ray: address of a Ray cluster; None for this machine.
    """
    if ray is None:
        trained = load_model(model, device, shards)
        if shards is None:
            return _WholeModel(trained, threads)
        return _SomeShards(trained, threads)
    if shards is not None:
        raise UsageError(
            "found --ray and --shards; expected one of them, as a worker loads the whole model"
        )
    if device not in ("auto", "cpu"):
        raise UsageError(
            f"found --ray and --device {device}; expected one of them, as workers predict on CPUs"
        )
    # now, not when a cluster has started; its bytes are verified there
    open_folder(model, verify="size")
    return _RayWorkers(model, threads, ray)


class _WholeModel(PredictionJob):
    def __init__(self, model: RankingModel, threads: int) -> None:
        self.model = model
        self.threads = threads

    def run(
        self, documents: Dataset, output: str, k: int, threshold: float, beam_size: int | None
    ) -> int:
        """Write the predictions of the whole model."""
        with pool.threads(self.threads):
            predictions = predict(
                self.model, documents, k, threshold=threshold, beam_size=beam_size
            )
        write_predictions(predictions, output)
        return count_unread(self.model, documents, predictions, beam_size)


class _SomeShards(_WholeModel):
    def run(
        self, documents: Dataset, output: str, k: int, threshold: float, beam_size: int | None
    ) -> int:
        """Write the predictions of some shards, which ``longtail merge`` joins with others."""
        with pool.threads(self.threads):
            part = self.model.predict_part(documents, k, threshold=threshold, beam_size=beam_size)
        write_partial(part, output)
        return 0


class _RayWorkers(PredictionJob):
    def __init__(self, model: Path, threads: int, address: str) -> None:
        self.model = model
        self.threads = threads
        self.address = address

    def run(
        self, documents: Dataset, output: str, k: int, threshold: float, beam_size: int | None
    ) -> int:
        """Write the predictions that workers of Ray make; unread documents are not counted."""
        from longtail.scale.ray import connected, predict_folder

        with redirect_stdout(sys.stderr), connected(self.address, self.threads):
            predictions = predict_folder(
                self.model, documents, k, threshold=threshold, beam_size=beam_size
            )
        write_predictions(predictions, output)
        return 0


def count_unread(
    model: RankingModel, documents: Dataset, predictions: Predictions, beam_size: int | None = None
) -> int:
    """Return the number of documents that hold nothing that the model knows: they have the labels
    of an empty text.

    Args:
        model: the model of the predictions.
        documents: the documents.
        predictions: made with the same ``beam_size``.
        beam_size: nodes kept on each level of a label tree.
    """
    if documents.texts is None or not model.reads_text:
        return 0
    lengths = np.diff(predictions.matrix.indptr)
    k = int(lengths.max(initial=1)) or 1
    search = model.search_settings(beam_size)
    nothing = model.calibrated(model.raw_scores(Strings.of([""]), k, search))
    count = 0
    for length in np.unique(lengths[lengths > 0]):
        rows = predictions.matrix[np.flatnonzero(lengths == length)]
        same = rows.indices.reshape(-1, length) == nothing.indices[:length]
        same &= rows.data.reshape(-1, length) == nothing.data[:length]
        count += int(same.all(axis=1).sum())
    return count
