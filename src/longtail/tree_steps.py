"""The step of the pipeline from features of documents to the label tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import sparse

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.errors import DataError, Problem
from longtail.features.label_features import label_features
from longtail.features.label_graph import label_graph, normalised
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.tree.cluster import build_tree
from longtail.tree.given import tree_from_parents
from longtail.tree.tree import LabelTree
from longtail.work import Work, told

__all__ = ["Parents", "label_tree"]

Parents = Mapping[str, Sequence[str]]


def label_tree(
    documents: Dataset,
    features: Features,
    vectoriser: TfIdf | None,
    config: Config,
    name: str,
    seed: int,
    parents: Parents | None,
    work: Work,
) -> LabelTree:
    """Return the label tree: given, or clustered by the labels' features; each of an ensemble by another seed."""

    def make() -> dict[str, np.ndarray]:
        if parents is not None:
            return tree_from_parents(documents.labels, parents).to_arrays()
        settings = config.label_features
        texts = _label_texts(documents, features, vectoriser, config)
        graph = _label_graph(documents, config) if settings.kind.startswith("graph") else None
        rows = label_features(features, documents.label_matrix, settings.kind, texts, graph, settings.graph_features)
        return build_tree(rows, documents.label_counts, config.tree, seed).to_arrays()

    with told("tree") as say:
        tree = LabelTree.from_arrays(work.arrays(name, make))
        say(" → ".join(f"{width:,}" for width in tree.widths))
    return tree


def _label_texts(documents: Dataset, features: Features, vectoriser: TfIdf | None, config: Config) -> Features | None:
    if not config.label_features.kind.endswith("text"):
        return None
    if documents.label_features is not None:
        return Features.of(
            documents.label_features, np.zeros((documents.n_labels, features.dense.shape[1]), np.float32)
        )
    labels = documents.labels
    if vectoriser is None:
        raise DataError([Problem("labels", 0, "no features of label texts", "label texts and documents with text")])
    return Features.of(
        vectoriser.transform(labels.described()), np.zeros((len(labels), features.dense.shape[1]), np.float32)
    )


def _label_graph(documents: Dataset, config: Config) -> sparse.csr_array:
    """Return the label correlation graph, which smooths the labels' features."""
    settings = config.label_features
    counts = label_graph(
        documents.label_matrix,
        seed=config.seed,
        steps=settings.graph_steps,
        reset=settings.graph_reset,
        keep=settings.graph_keep,
        max_documents=settings.graph_max_documents,
    )
    return normalised(counts)
