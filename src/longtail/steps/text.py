"""The step from texts to features: tf-idf, unless the documents bring features of their own."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from longtail.config import Config
from longtail.data.csr import csr_arrays, csr_of_arrays
from longtail.data.dataset import Dataset
from longtail.features.document_features import document_features
from longtail.features.matrix import Features, join_blocks
from longtail.features.tfidf import TfIdf
from longtail.methods import METHODS, network_of, reads_label_texts
from longtail.reporting import logged_stage
from longtail.steps.inputs import Inputs, settings_in
from longtail.steps.run import Run
from longtail.steps.trees import point_inputs

__all__ = ["log_unread_label_texts", "text_features", "text_inputs"]

log = logging.getLogger("longtail")


def text_inputs(config: Config) -> Inputs:
    """Return the inputs of the text features of the documents, made or given."""
    return settings_in("features", "normalise_features", "tfidf") | point_inputs(config)


def text_features(documents: Dataset, run: Run) -> tuple[TfIdf | None, Features]:
    """Return the features of the documents, and the vectoriser that made them unless they were
    given.
    """
    config = run.config
    # an encoder reads the texts, and nothing else
    if config.features == "dnn" and network_of(config) is None:
        return None, document_features(replace(documents, features=None), None, config)
    if documents.features is not None or (documents.dense is not None and not _has_text(documents)):
        return None, document_features(documents, None, config)

    def make() -> dict[str, np.ndarray]:
        vectoriser, rows = TfIdf.fit_transform(documents.document_texts(), config.tfidf)
        return csr_arrays(rows) | {
            f"vectoriser.{name}": array for name, array in vectoriser.to_arrays().items()
        }

    with logged_stage("features") as note:
        inputs = settings_in("tfidf") | point_inputs(config)
        arrays = run.work.arrays("features", make, inputs, versions=True)
        vectoriser_arrays = {
            name.removeprefix("vectoriser."): array for name, array in arrays.items() if "." in name
        }
        vectoriser = TfIdf.from_arrays(vectoriser_arrays, config.tfidf)
        rows = csr_of_arrays(arrays, vectoriser.n_features)
        note(
            f"{len(documents):,} documents, {vectoriser.n_features:,} n-grams, "
            f"{rows.nnz / len(documents):.1f} each"
        )
    return vectoriser, join_blocks(rows, documents.dense)


def log_unread_label_texts(documents: Dataset, config: Config) -> None:
    """Log that the labels have texts which this training does not read, and the methods that do."""
    texts = documents.labels.texts
    if texts is None or not texts.lengths.any() or reads_label_texts(config):
        return
    able = sorted(
        entry.name
        for entry in METHODS.values()
        if "text" in entry.settings.get("label_text", {}).get("parts", ())
    )
    count = int((texts.lengths > 0).sum())
    log.info(
        "%s does not read the texts of labels (%s have one); "
        "--gandalf (gandalf.use) trains on them, and so do %s",
        config.method,
        f"{count:,}",
        ", ".join(able),
    )


def _has_text(documents: Dataset) -> bool:
    return documents.texts is not None and documents.texts.arena.size > 0
