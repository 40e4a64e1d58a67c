"""eXtremeText (Wydmuch et al. 2018): vectors of words, learned with the nodes of a probabilistic
label tree.

A document's vector is the mean of its features' vectors, weighted by tf-idf. Nodes are logistic
classifiers on it; the probability of a label is the product along its path. Both are trained
together by SGD (``kernels/extremetext.py``)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
from longtail.config import Config, Search
from longtail.config import ExtremeText as Settings
from longtail.config import Ranker as NodeSettings
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, LongtailError, ModelFolderError, UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.extremetext import (
    Parameters,
    Schedule,
    Targets,
    padded_width,
    train_documents,
)
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import read_only
from longtail.kernels.splitmix import draw, random_bits
from longtail.methods.family import around
from longtail.methods.registry import ranker_reads
from longtail.rankers.base import (
    Node,
    RankerExplanation,
    RankerFamily,
    RankerForecast,
    TrainingPoints,
)
from longtail.rankers.tree import TreeRanker, read_ranker
from longtail.reporting import logged_stage
from longtail.search.chunks import Chunks, Part
from longtail.search.weight_codes import WeightType
from longtail.steps.inputs import settings_in
from longtail.steps.run import Run
from longtail.steps.trees import label_trees, tree_inputs
from longtail.store import Folder, FolderWriter
from longtail.tree.cluster import level_widths
from longtail.tree.given import Parents
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.forecast.sizes import DataSizes
    from longtail.forecast.text import TextForecast

__all__ = ["ExtremeText", "ExtremeTextFamily", "Trainer"]

Arrays = dict[str, NDArray[Any]]
log = logging.getLogger("longtail")

_BLOCK = 1024  # documents that a thread trains on at a time; fewer are always one thread's work
_ROWS = 4096  # vectors that are initialised together
_NO_ENTRIES = np.zeros(0, np.int64)
_NO_WEIGHTS = np.zeros(0, np.float32)
_STAGE = "words and nodes"
# seconds of one core, per dimension: a step on a node, and on the vector of a feature
_NODE_SECONDS = 0.5e-9
_FEATURE_SECONDS = 0.6e-9
_DIVERGED = 2.0  # times the loss of nodes without training
_PATHS = 0.6  # share of the nodes that a document's labels would have on paths of their own
# per number of a node; those of words are not stored as int8
_STORED_BYTES = {"float32": 4.0, "float16": 2.0, "int8": 1.0}


@dataclass(frozen=True)
class ExtremeText(TreeRanker):
    """A label tree whose nodes read vectors of documents, and the vectors of the features that
    these are means of.
    """

    vectors: NDArray[Any]  # (columns, dimensions), those of the dense block first
    dense_width: int  # columns of the dense block
    threads: int  # of the training, at most

    @property
    def n_columns(self) -> int:
        """Columns of the sparse block."""
        return len(self.vectors) - self.dense_width

    def check_widths(self, n_columns: int, dense_width: int) -> bool:
        """Return whether there are vectors of so many sparse and dense columns."""
        return (self.n_columns, self.dense_width) == (n_columns, dense_width)

    def level_features(self, features: Features) -> Features:
        """Return the vectors of documents, a dense block: h = Σ x_j v_j / Σ |x_j|.

        A document without features has a vector of zeros.
        """
        expected = (self.n_columns, self.dense_width)
        if features.widths != expected:
            raise UsageError(
                f"features: found {features.widths} sparse and dense columns; "
                f"expected {expected}, as in training; make them with the model's own vectoriser"
            )
        rows = features.sparse
        columns, positions = np.unique(rows.indices, return_inverse=True)
        words = self.vectors[self.dense_width + columns].astype(np.float32)
        counted = csr_of(rows.data, positions.astype(np.int32), rows.indptr, len(columns))
        hidden = counted @ words
        totals = np.asarray(abs(counted).sum(axis=1), np.float32)
        if self.dense_width:
            hidden += features.dense @ self.vectors[: self.dense_width].astype(np.float32)
            totals += np.abs(features.dense).sum(axis=1)
        scaled = np.zeros_like(hidden)
        np.divide(hidden, totals[:, None], out=scaled, where=totals[:, None] > 0)
        return Features.of(scaled)

    def explain(
        self, features: Features, label: int, search: Search, number: int
    ) -> RankerExplanation:
        """Explain one label: at each node x_j v_j·w / Σ |x_j| of each feature, which add up to the
        margin w·h.
        """
        row = features.take(slice(0, 1))
        explanation = super().explain(self.level_features(row), label, search, number)
        ancestors = self.tree.ancestors(label)
        columns, shares = self._shares(row)
        vectors = self.vectors[columns].astype(np.float64)
        nodes = []
        for node in explanation.nodes:
            _, _, weights = self.levels[node.level].weights(ancestors[node.level])
            products = np.zeros(len(self.vectors))
            products[columns] = shares * (vectors @ weights)
            named = Node.of_products(products, row, node.score, tree=number, level=node.level)
            nodes.append(named._replace(labels=node.labels))
        return explanation._replace(nodes=tuple(nodes))

    def _shares(self, row: Features) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the columns of one document, through both blocks, and x_j / Σ |x_j|."""
        dense = np.arange(self.dense_width)
        columns = np.concatenate([dense, self.dense_width + row.sparse.indices.astype(np.int64)])
        values = np.concatenate([row.dense[0], row.sparse.data]).astype(np.float64)
        return columns, values / (np.abs(values).sum() or 1.0)

    def write(self, folder: FolderWriter, number: int) -> None:
        """Write the vectors, the tree, and a file for each level."""
        sizes = np.array([self.dense_width, self.threads], np.int64)
        folder.write_arrays(_file(number), {"vectors": self.vectors, "sizes": sizes})
        super().write(folder, number)


def _file(number: int) -> str:
    return f"word-vectors-{number}.safetensors"


class ExtremeTextFamily(RankerFamily):
    """eXtremeText."""

    name = "extremetext"
    reads = ranker_reads("extremetext")
    has_label_tree = True

    def check(self, config: Config, documents: Dataset, parents: Parents | None) -> None:
        """Refuse scores that are no probabilities of logistic classifiers."""
        if config.search.score != "sigmoid":
            raise ConfigError(
                f"search.score: found {config.search.score} with {config.method}, whose nodes are "
                "trained with the logistic loss; expected sigmoid"
            )

    def label_trees(self, points: TrainingPoints, run: Run) -> tuple[LabelTree, ...]:
        """Return the clustered or given label tree."""
        if run.config.tree.kind == "flat":
            run = run._replace(parents=None)
        inputs = tree_inputs(run.config, points.inputs)
        seeds = {"tree-0": run.config.seed}
        trees = label_trees(
            points.documents, points.features, points.vectoriser, run, seeds, inputs
        )
        return tuple(trees)

    def fit(self, points: TrainingPoints, run: Run) -> tuple[ExtremeText]:
        """Train the vectors and the nodes; each epoch is kept, so that it can be resumed."""
        config = run.config
        settings = config.extremetext
        (tree,) = points.trees
        trainer = Trainer.of(
            points.features, points.documents.label_matrix, tree, settings, config.seed
        )
        inputs = tree_inputs(config, points.inputs) | settings_in("extremetext", "seed")
        with logged_stage(_STAGE) as log_fact:
            with reporting.stage(_STAGE, settings.epochs * trainer.n_documents, "documents"):
                arrays = run.work.rounds("words-and-nodes", trainer.epoch, settings.epochs, inputs)
            dense_width = points.features.dense.shape[1]
            ranker = _ranker(arrays, tree, settings, dense_width, config.ranker.weights)
            words, dimensions = ranker.vectors.shape
            log_fact(f"{words:,} features and {sum(tree.widths):,} nodes, {dimensions} dimensions")
        return (ranker,)

    def load(
        self, folder: Folder, config: Config, shards: Collection[int] | None
    ) -> Iterator[ExtremeText]:
        """Yield the vectors and the label tree of the folder."""
        if _file(0) not in folder.files:
            return
        arrays = folder.arrays(_file(0))
        dense_width, threads = _checked_sizes(arrays)
        nodes = read_ranker(folder, 0, NodeSettings(bias=0.0), shards)
        widths = (0, arrays["vectors"].shape[1])
        if not nodes.check_widths(*widths):
            raise ModelFolderError(
                f"extremetext: expected nodes that read {widths[1]} dimensions, as the vectors "
                "have; train again"
            )
        yield ExtremeText(
            nodes.tree, nodes.levels, nodes.bias, arrays["vectors"], dense_width, threads
        )

    def card_rows(self, rankers: Sequence[ExtremeText], config: Config) -> dict[str, str]:
        """Return the sizes of the tree and the vectors, and whether another training gives the
        same.
        """
        (ranker,) = rankers
        words, dimensions = ranker.vectors.shape
        training = "one thread: the same data, settings and seed give the same model"
        if ranker.threads > 1:
            training = (
                f"{ranker.threads} threads without locks: another training gives a slightly "
                "different model, -j 1 the same one each time"
            )
        return {
            "label tree": " → ".join(f"{width:,}" for width in ranker.tree.widths),
            "vectors": f"{words:,} of words and {sum(ranker.tree.widths):,} of nodes, "
            f"{dimensions} dimensions as {config.ranker.weights}",
            "trained on": training,
        }

    def forecast(self, sizes: DataSizes, text: TextForecast, config: Config) -> RankerForecast:
        """Estimate by the steps of SGD; the number of nodes is that of a balanced tree."""
        settings = config.extremetext
        widths = [sizes.n_labels]
        if config.tree.kind != "flat":
            widths = [*level_widths(sizes.n_labels, config.tree), sizes.n_labels]
        parents = 1.0  # positive nodes of a document on the level above
        visited = 0.0
        for above, nodes in zip([1, *widths], widths, strict=False):
            visited += min(parents, above) * nodes / above
            parents = 1.0 + _PATHS * max(sizes.true_labels - 1, 0.0)
        per_document = _NODE_SECONDS * visited
        per_document += _FEATURE_SECONDS * (text.each + text.dense_width)
        seconds = settings.epochs * settings.dimensions * sizes.documents * per_document
        columns = text.columns + text.dense_width
        rows = columns + sum(widths)
        of_nodes = _STORED_BYTES[config.ranker.weights]
        of_vectors = max(of_nodes, _STORED_BYTES["float16"])
        stored = settings.dimensions * (of_vectors * columns + of_nodes * sum(widths))
        return RankerForecast(
            _STAGE,
            seconds,
            stored,
            thread_bytes=0.0,
            shared_bytes=4.0 * rows * padded_width(settings.dimensions),
            tree=tuple(widths),
        )

    def tuning_space(self, config: Config, settings: Mapping[str, Any]) -> Sequence[str]:
        """Return the learning rate, the penalty, epochs, and the size of leaves."""
        chosen = config.extremetext
        return [
            around("extremetext.rate", chosen.rate),
            around("extremetext.penalty", chosen.penalty),
            "extremetext.epochs=10,20,30,40",
            "tree.leaf_size=25,50,100,200",
        ]


class Trainer(NamedTuple):
    """Everything that an epoch reads."""

    rows: FeatureRows
    targets: Targets
    settings: Settings
    seed: int
    n_columns: int  # of both blocks
    n_nodes: int

    @classmethod
    def of(
        cls,
        features: Features,
        label_matrix: sparse.csr_array,
        tree: LabelTree,
        settings: Settings,
        seed: int,
    ) -> Trainer:
        """Prepare the features and the positive nodes of documents for training.

        Args:
            features: of the documents.
            label_matrix: (n, L) relevance; a label by less than 1 is a target of as much.
            tree: the label tree.
            settings: of the training.
            seed: of the initial vectors and of the order of documents.
        """
        rows = features.sparse
        pointers, columns, values, dense = map(
            read_only, (rows.indptr, rows.indices, rows.data, features.dense)
        )
        return cls(
            FeatureRows(pointers, columns, values, dense, features.widths[0]),
            _targets(tree, label_matrix),
            settings,
            seed,
            sum(features.widths),
            sum(tree.widths),
        )

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.rows.pointers) - 1

    @property
    def first_loss(self) -> float:
        """The mean loss of nodes that give every document a probability of one half."""
        children = np.diff(self.targets.child_pointers)
        parents = self.targets.nodes[self.targets.nodes < len(children) - 1] + 1
        visited = children[0] + children[parents].sum() / self.n_documents
        return float(visited * np.log(2))

    def initial(self) -> Arrays:
        """Return vectors of words drawn from ±1 / dimensions, and nodes of zeros."""
        dimensions = self.settings.dimensions
        width = padded_width(dimensions)
        vectors = np.zeros((self.n_columns, width), np.float32)
        generator = np.random.default_rng(self.seed)
        for first in range(0, self.n_columns, _ROWS):
            block = vectors[first : first + _ROWS, :dimensions]
            block[:] = (2 * generator.random(block.shape, np.float32) - 1) / dimensions
        nodes = np.zeros((self.n_nodes, width), np.float32)
        return {"vectors": vectors, "nodes": nodes, "threads": np.array([1])}

    def epoch(self, arrays: Arrays | None, number: int) -> Arrays:
        """Train for one epoch, in place, and return the arrays.

        Args:
            arrays: of the epoch before; None: there is none.
            number: of the epoch, from 0.
        """
        if arrays is None:
            arrays = self.initial()
        n = self.n_documents
        epochs = self.settings.epochs
        schedule = Schedule(self.settings.rate, self.settings.penalty, number * n, epochs * n)
        vectors = arrays["vectors"]
        parameters = Parameters(vectors.ravel(), arrays["nodes"].ravel(), vectors.shape[1])
        order = draw(np.arange(n), n, random_bits(self.seed, 1, number))

        def train(block: tuple[int, int]) -> float:
            loss = train_documents(*block, order, self.rows, self.targets, parameters, schedule)
            return float(loss)

        blocks = pool.row_blocks(n, _BLOCK)
        loss = 0.0
        for (first, last), of_block in zip(blocks, pool.run(train, blocks), strict=True):
            loss += of_block / n
            reporting.advance(last - first)
        threads = min(pool.thread_count(), len(blocks))
        arrays["threads"] = np.maximum(arrays["threads"], threads)
        if not (loss <= _DIVERGED * self.first_loss and _is_finite(arrays)):
            raise LongtailError(
                f"extremetext.rate: training diverged in epoch {number + 1}, found a loss of "
                f"{loss:.4g} where no training has one of {self.first_loss:.4g}; "
                f"expected a smaller rate than {self.settings.rate:g}"
            )
        log.info("epoch %d of %d: loss %.4f", number + 1, epochs, loss)
        reporting.report("epoch", number + 1, {"loss": loss})
        return arrays


def _is_finite(arrays: Arrays) -> bool:
    """Return whether all numbers are; a sum is finite where all are, and takes no memory."""
    return all(bool(np.isfinite(arrays[name].sum())) for name in ("vectors", "nodes"))


def _targets(tree: LabelTree, label_matrix: sparse.csr_array) -> Targets:
    """Return the children of each node, and the nodes of each document, counted through all
    levels.
    """
    levels = tree.coarsen(label_matrix)
    positives = sparse.csr_array(sparse.hstack(levels, format="csr"))
    positives.eliminate_zeros()
    positives.sort_indices()
    starts = np.cumsum([0, *tree.widths])
    ends = [starts[level + 1] + offsets[1:] for level, offsets in enumerate(tree.offsets)]
    return Targets(
        np.concatenate([[0], [tree.widths[0]], *ends]).astype(np.int64),
        positives.indptr.astype(np.int64),
        positives.indices.astype(np.int32),
        np.minimum(positives.data, 1).astype(np.float32),
    )


def _ranker(
    arrays: Arrays, tree: LabelTree, settings: Settings, dense_width: int, weights: WeightType
) -> ExtremeText:
    """Return the trained ranker with its numbers as they are stored."""
    vectors: NDArray[Any] = arrays["vectors"][:, : settings.dimensions]
    vectors = vectors.astype(np.float32 if weights == "float32" else np.float16)
    starts = np.cumsum([0, *tree.widths])
    levels = []
    for level, first in enumerate(starts[:-1]):
        nodes = arrays["nodes"][first : starts[level + 1], : settings.dimensions]
        offsets = np.array([0, len(nodes)])
        if level:
            offsets = tree.offsets[level - 1]
        parts = map(partial(_part, nodes), offsets[:-1], offsets[1:])
        levels.append(Chunks.build(offsets, parts, 0, settings.dimensions, weights))
    return ExtremeText(tree, tuple(levels), 0.0, vectors, dense_width, int(arrays["threads"][0]))


def _part(nodes: NDArray[np.float32], first: int, last: int) -> Part:
    """Return the chunk of siblings without sparse columns."""
    return Part(_NO_ENTRIES, np.zeros(1, np.int64), _NO_ENTRIES, _NO_WEIGHTS, nodes[first:last])


def _checked_sizes(arrays: Mapping[str, NDArray[Any]]) -> tuple[int, int]:
    """Return the columns of the dense block and the threads of the training, once arrays have been
    checked.
    """
    problem = None
    if set(arrays) != {"vectors", "sizes"}:
        problem = f"found the arrays {', '.join(sorted(arrays))}; expected sizes, vectors"
    elif arrays["vectors"].ndim != 2 or arrays["vectors"].dtype not in (np.float16, np.float32):
        problem = f"found vectors as {arrays['vectors'].dtype}; expected rows of floats"
    elif arrays["sizes"].shape != (2,) or arrays["sizes"].dtype != np.int64:
        problem = "expected two sizes as int64"
    elif not 0 <= arrays["sizes"][0] <= len(arrays["vectors"]) or arrays["sizes"][1] < 1:
        problem = f"found sizes of {arrays['sizes'].tolist()}"
    elif not np.isfinite(arrays["vectors"]).all():
        problem = "found vectors that are not finite"
    if problem is not None:
        raise ModelFolderError(f"extremetext: {problem}; train again")
    dense_width, threads = arrays["sizes"].tolist()
    return dense_width, threads
