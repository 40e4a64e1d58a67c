"""Training a network that ranks labels: classifiers at their first values, then the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from scipy import sparse

from longtail.config import Cascade, Config
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.features.tokens import Tokens
from longtail.methods import encoder_of
from longtail.metrics import evaluate
from longtail.networks.batches import Batches
from longtail.networks.cascade import CascadeXML
from longtail.networks.cascade_ranker import CascadeRanker
from longtail.networks.heads.initial_rows import Rows, centroid_rows, prior_logit
from longtail.networks.training.checkpoints import Checkpoints
from longtail.networks.training.loop import History, fit
from longtail.networks.training.meter import BEST_BY, RECALL
from longtail.steps.process_group import ProcessGroup, current_group, shared_cores

__all__ = ["train_ranker"]


def train_ranker(
    ranker: CascadeRanker,
    documents: Dataset,
    tokens: Tokens,
    config: Config,
    valid: Dataset | None = None,
    checkpoints: Checkpoints | None = None,
) -> History:
    """Train the network of ``ranker`` on the documents and their tokens; relevances above 1 count
    as 1.
    """
    with shared_cores(current_group()), _graphs_of_training(ranker.network):
        levels = [_targets(matrix) for matrix in ranker.tree.coarsen(documents.label_matrix)]
        if checkpoints is None or not checkpoints.exists():
            set_initial_weights(ranker, tokens, levels, config.cascade, documents.labels)
        by_length = encoder_of(config).batches_by_length
        batches = Batches(tokens, levels[-1], config.training.batch_size, config.seed, by_length)
        if valid is None:
            validate = None
        else:
            validate = _validation(ranker, valid.with_labels(documents.labels, unknown="drop"))
        return fit(
            ranker.network,
            batches,
            config.training,
            seed=config.seed,
            checkpoints=checkpoints,
            validate=validate,
        )


@contextmanager
def _graphs_of_training(network: CascadeXML) -> Iterator[None]:
    """Let go of the CUDA graphs that were recorded in the body."""
    try:
        yield
    finally:
        network.read.forget_graphs()


def _validation(ranker: CascadeRanker, valid: Dataset) -> Callable[[], dict[str, float]]:
    """Return a function that measures the network as it is: precision, and recall of the shortlists
    (table 11).
    """
    tokens = ranker.tokeniser(valid.document_texts())

    def measure() -> dict[str, float]:
        with ranker.distributed(current_group()):
            metrics = evaluate(
                ranker.search(tokens, min(5, ranker.tree.n_labels))[0], valid.label_matrix
            )
            recalls = ranker.shortlist_recall(tokens, valid.label_matrix)
        kept = {f"{RECALL}{level}": recall for level, recall in enumerate(recalls, 1)}
        return {name: float(metrics[name]) for name in BEST_BY} | kept

    return measure


def set_initial_weights(
    ranker: CascadeRanker,
    tokens: Tokens,
    levels: list[sparse.csr_array],
    settings: Cascade,
    labels: Labels,
) -> None:
    """Set the initial classifiers of each level; random rows are those that the network was made
    with.
    """
    heads = ranker.network.heads
    group = current_group()
    priors = [0.0] * len(heads)
    if settings.prior_bias:
        priors = [
            prior_logit(matrix, size)
            for matrix, size in zip(levels, ranker.network.slots, strict=True)
        ]
    for head, prior in zip(heads, priors, strict=True):
        head.set_bias(prior)
    if settings.label_rows in ("random", "xavier"):
        return
    vectors = _level_vectors(ranker, tokens, group)
    with_texts = settings.label_rows == "centroid+text" and (
        labels.names is not None or labels.texts is not None
    )
    texts: Sequence[tuple[np.ndarray | None, np.ndarray | None]] = [(None, None)] * len(heads)
    if with_texts:
        texts = _text_vectors(ranker, labels, group)
    for head, level_vectors, matrix, prior, (text, mean) in zip(
        heads, vectors, levels, priors, texts, strict=True
    ):
        if head.text is not None:  # starts at the labels' words
            continue
        rows: Rows = centroid_rows(level_vectors, matrix, prior, text, mean, head.nodes)
        head.set_rows(rows.weights, rows.bias)


def _level_vectors(ranker: CascadeRanker, tokens: Tokens, group: ProcessGroup) -> list[np.ndarray]:
    """Return the vectors of all documents for each level; each rank reads some of them."""
    if group.size == 1:
        return ranker.level_vectors(tokens)
    part = group.part(len(tokens))
    lengths = group.lengths(len(tokens))
    ends = tokens.ends[part.start : part.stop + 1]
    part_tokens = replace(tokens, ids=tokens.ids[ends[0] : ends[-1]], ends=ends - ends[0])
    return [group.all_gather_array(level, lengths) for level in ranker.level_vectors(part_tokens)]


def _text_vectors(
    ranker: CascadeRanker, labels: Labels, group: ProcessGroup
) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Return the vectors of the nodes' texts: of a label its own, of a node above the mean of its
    labels'.

    Of several ranks each reads the texts of its own labels, and has the rows of its own nodes and
    the mean of all."""
    tree = ranker.tree
    runs = [group.part(width) for width in tree.widths]
    labels_of_part = np.sort(tree.order[runs[-1]])
    descriptions = labels.described()
    levels = ranker.level_vectors(
        ranker.tokeniser([descriptions[label] for label in labels_of_part]), "label texts"
    )
    nodes = tree.coarsen(
        sparse.csr_array(sparse.eye_array(tree.n_labels, format="csr", dtype=np.float32))
    )
    if group.size == 1:
        return [
            (matrix.T.tocsr() @ vectors, None)
            for matrix, vectors in zip(nodes, levels, strict=True)
        ]
    by_level = list[tuple[np.ndarray, np.ndarray | None]]()
    for level, (run, matrix, vectors) in enumerate(zip(runs, nodes, levels, strict=True)):
        mean = group.all_reduce_array(vectors.sum(0, dtype=np.float64)) / matrix.shape[1]
        rows = matrix[labels_of_part].T.tocsr()
        if level == tree.n_levels - 1:  # a label's text is read by the rank that has its row
            texts = rows[run] @ vectors
        else:
            texts = group.all_reduce_array(rows @ vectors)[run]
        by_level.append((texts, mean.astype(np.float32)))
    return by_level


def _targets(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix = matrix.astype(np.float32)
    np.minimum(matrix.data, 1, out=matrix.data)
    return matrix
