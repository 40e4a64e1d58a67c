"""The steps of the pipeline to the label graph, to label points by it (Gandalf), and to the label
tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy import sparse

from longtail.config import Config
from longtail.data.csr import csr_arrays, csr_of_arrays
from longtail.data.dataset import Dataset
from longtail.errors import DataError, Problem
from longtail.features.gandalf import label_points, real_documents
from longtail.features.label_features import label_features
from longtail.features.label_graph import label_graph, normalised
from longtail.features.matrix import Features, prepared_rows
from longtail.features.tfidf import TfIdf
from longtail.reporting import logged_stage
from longtail.steps.inputs import EVERYTHING, GRAPH_INPUTS, HIERARCHY, Inputs, settings_in
from longtail.steps.run import Run
from longtail.steps.work import Work
from longtail.tree.cluster import build_tree
from longtail.tree.given import tree_from_parents
from longtail.tree.tree import LabelTree

__all__ = [
    "kept_label_graph",
    "label_graph_of",
    "label_trees",
    "point_inputs",
    "tree_inputs",
    "with_label_points",
]


def label_trees(
    documents: Dataset,
    features: Features,
    vectoriser: TfIdf | None,
    run: Run,
    seeds: Mapping[str, int],
    inputs: Inputs = EVERYTHING,
    kinds: Mapping[str, str] | None = None,
) -> list[LabelTree]:
    """Return a label tree, given or clustered, for each stage that ``seeds`` names.

    Each is clustered by its own seed; features of the labels are shared by neighbouring trees of
    one kind.

    Args:
        documents: whose labels are clustered.
        features: of the documents.
        vectoriser: makes features of label texts, unless features were given.
        run: the training run.
        seeds: names of stages, and the seed of each.
        inputs: of the trees (:func:`tree_inputs`).
        kinds: names of stages, and the label features of each, where they are not
            ``label_features.kind``.
    """

    @lru_cache(maxsize=1)
    def rows(kind: Any) -> Features:
        texts = _label_texts(documents, features, vectoriser, run.config, kind)
        if kind.startswith("graph"):
            graph = label_graph_of(documents, run.config, run.work)
        else:
            graph = None
        keep = run.config.label_features.graph_features
        return label_features(features, documents.label_matrix, kind, texts, graph, keep)

    trees = []
    kinds = kinds or {}
    for name, seed in seeds.items():
        kind = kinds.get(name, run.config.label_features.kind)
        with logged_stage("tree") as note:
            make = partial(_make_tree, documents, partial(rows, kind), run, seed)
            tree = LabelTree.from_arrays(run.work.arrays(name, make, inputs, versions=True))
            note(" → ".join(f"{width:,}" for width in tree.widths))
        trees.append(tree)
    return trees


def tree_inputs(config: Config, of_features: Inputs, *, of_ensemble: bool = False) -> Inputs:
    """Return the inputs of label trees.

    Args:
        config: resolved settings.
        of_features: inputs of the features that labels are clustered by.
        of_ensemble: whether these are the trees of linear classifiers, which
            ``label_features.tree_kinds`` is for.
    """
    kinds: frozenset[str] = frozenset({config.label_features.kind})
    read = settings_in("label_features.kind", "label_features.graph_features", "tree", "seed")
    if of_ensemble:
        kinds = config.label_features.kinds
        read |= settings_in("label_features.tree_kinds")
    if any(kind.startswith("graph") for kind in kinds):
        read |= GRAPH_INPUTS
    return of_features | read | {HIERARCHY}


def _make_tree(
    documents: Dataset, rows: Callable[[], Features], run: Run, seed: int
) -> dict[str, np.ndarray]:
    if run.parents is not None:
        return tree_from_parents(documents.labels, run.parents).to_arrays()
    return build_tree(rows(), documents.label_counts, run.config.tree, seed).to_arrays()


def _label_texts(
    documents: Dataset, features: Features, vectoriser: TfIdf | None, config: Config, kind: str
) -> Features | None:
    """Return features of the labels' texts; None where trees of this kind do not read them.

    Args:
        documents: whose labels are clustered.
        features: of the documents.
        vectoriser: of texts, unless features were given.
        config: resolved settings.
        kind: of the label features.
    """
    if not kind.endswith("text"):
        return None
    if documents.label_features is not None:
        rows = prepared_rows(documents.label_features, config.normalise_features)
    else:
        if vectoriser is None:
            expected = (
                "label texts and documents with text, without ready-made features (--no-features)"
            )
            raise DataError([Problem("labels", 0, "no features of label texts", expected)])
        rows = vectoriser.transform(documents.labels.described())
    return Features.of(rows, np.zeros((documents.n_labels, features.dense.shape[1]), np.float32))


def label_graph_of(documents: Dataset, config: Config, work: Work) -> sparse.csr_array:
    """Return the normalised label correlation graph, csr of shape (n_labels, n_labels); label
    points do not enter.
    """
    settings = config.label_features

    def make() -> dict[str, np.ndarray]:
        counts = label_graph(
            real_documents(documents).label_matrix,
            seed=config.seed,
            steps=settings.graph_steps,
            reset=settings.graph_reset,
            keep=settings.graph_keep,
            max_documents=settings.graph_max_documents,
        )
        return csr_arrays(normalised(counts))

    arrays = work.arrays("label-graph", make, GRAPH_INPUTS, hold=True, versions=True)
    return csr_of_arrays(arrays, documents.n_labels)


def kept_label_graph(documents: Dataset, config: Config, work: Work) -> sparse.csr_array | None:
    """Return the label graph for the model folder; None where no step of the training needs it."""
    in_tree = any(kind.startswith("graph") for kind in config.label_features.kinds)
    if not (config.gandalf.use or in_tree or "graph" in config.label_text.parts):
        return None
    return label_graph_of(documents, config, work)


def point_inputs(config: Config) -> Inputs:
    """Return the inputs of the documents that are trained on, with Gandalf of label texts, too."""
    if not config.gandalf.use:
        return settings_in("gandalf.use")
    return settings_in("gandalf") | GRAPH_INPUTS


def with_label_points(documents: Dataset, run: Run) -> Dataset:
    """Return what to train on: the documents and, where Gandalf is asked for, texts of labels
    behind them.
    """
    config = run.config
    if not config.gandalf.use:
        return documents
    with logged_stage("gandalf") as note:
        graph = label_graph_of(documents, config, run.work)
        more = label_points(documents, graph, config.gandalf, config.seed)
        added = len(more) - len(documents)
        pairs = more.label_matrix.nnz - documents.label_matrix.nnz
        note(f"texts of {added:,} labels as documents, {pairs / added - 1:.1f} neighbours each")
        if documents.labels.texts is None and documents.labels.names is None:
            note("no label has a text or name, so ids are read as texts")
    return more
