"""FastXML and PfastreXML: trees over documents whose leaves know labels, and centroids that bring
up the rare ones.

A leaf keeps the mean of its documents' relevance over propensity. A document's labels are those of
its leaves; the score P^α B^(1−α) joins the mean over trees, P, and the nearness to the label's
centroid, B (Jain et al. 2016). FastXML (Prabhu and Varma 2014) has no propensities, as if all were
1, and no centroids: α = 1."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
from longtail.config import Config, Search
from longtail.config import Forest as Settings
from longtail.data.csr import csr_of, rows_fit
from longtail.data.dataset import Dataset
from longtail.errors import ModelFolderError, UsageError
from longtail.features.gandalf import real_documents
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.forest import TreeSettings, grow_tree
from longtail.kernels.forest_search import (
    Centroids,
    Excluded,
    TailScoring,
    Trees,
    dot,
    label_score,
    search_forest,
)
from longtail.kernels.forest_split import DocumentLabels
from longtail.kernels.jit import read_only
from longtail.kernels.splitmix import random_bits
from longtail.metrics import inverse_propensities
from longtail.rankers.base import (
    Node,
    RankerExplanation,
    RankerFamily,
    RankerForecast,
    TrainingPoints,
)
from longtail.rankers.tail_classifier import fit_tail, no_tail
from longtail.reporting import logged_stage
from longtail.steps.run import Run
from longtail.store import Folder, FolderWriter
from longtail.store.tensors import check_kinds
from longtail.tree.given import Parents

if TYPE_CHECKING:
    from longtail.forecast.sizes import DataSizes
    from longtail.forecast.text import TextForecast

__all__ = [
    "Forest",
    "ForestExplanation",
    "ForestFamily",
    "Products",
    "Split",
    "TreePath",
    "fit_tree",
]

Arrays = Mapping[str, NDArray[Any]]
_BLOCK = 1024  # documents of one task of a search
_TREE = Trees._fields[1:]  # what one tree has
# of one core, per document, level of a tree, and number of the document with 5 more
_SPLIT_SECONDS = 3e-7
_SPLIT_BYTES = 4.0  # stored, per tree and number of the documents
_THREAD_BYTES = 12.0  # of one thread, per number of the documents
_CENTROID_BYTES = 8.0  # stored, per number of the documents


@dataclass(frozen=True)
class Products:
    """The columns, counted through, that a document and a row of weights share; values times
    weights are summed.
    """

    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """One node on the way of a document: products and bias add up to the margin, whose sign says
    where it goes.
    """

    node: int  # counted through all trees
    margin: float
    bias: float
    products: Products


@dataclass(frozen=True)
class TreePath:
    """The way of a document through one tree, and what its leaf says about the label."""

    splits: tuple[Split, ...]
    leaf: int
    # mean of relevance / propensity over the leaf's documents, as a share of the most there can be
    gain: float


@dataclass(frozen=True)
class ForestExplanation:
    """Why a label has its score: the mean gain over trees, P, and B, from the cosine with its
    centroid.
    """

    label: int
    trees: tuple[TreePath, ...]
    gain: float  # P
    # the sum of the products; the document has length one, the centroid one or a little less
    cosine: float
    products: Products
    nearness: float  # B; of no meaning where tail_share is 0
    tail_share: float  # 1 − α
    score: float  # P^α B^(1−α); 0 where no tree finds the label


@dataclass(frozen=True, eq=False)
class Forest:
    """All trees and centroids, and how much of a score is the centroids'; arrays may be read-only
    memory maps.
    """

    trees: Trees
    centroids: Centroids
    n_columns: int  # of the sparse block
    dense_width: int
    tail_share: float
    tail_gamma: float

    @classmethod
    def of(
        cls, trees: Sequence[Arrays], tail: Arrays, features: Features, settings: Settings
    ) -> Forest:
        """Join what ``fit_tree`` gave for each tree and what ``fit_tail`` gave; of ``features`` the
        widths count.
        """
        draft = cls(
            _joined(trees),
            Centroids(**tail),
            *features.widths,
            settings.tail_share,
            settings.tail_gamma,
        )
        return cls.from_arrays(draft.to_arrays())

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Forest:
        """Take what ``to_arrays`` gave; nothing is copied."""
        try:
            check_kinds(arrays, {"shape": "i", "tail": "f"})
            trees = Trees(*(read_only(arrays[f"tree_{name}"]) for name in Trees._fields))
            centroids = Centroids(
                *(read_only(arrays[f"tail_{name}"]) for name in Centroids._fields)
            )
            (n_columns, dense_width) = arrays["shape"].tolist()
            (share, gamma) = arrays["tail"].tolist()
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFolderError(
                f"forest: an array is missing or wrong ({error}); train the model again"
            ) from error
        width = n_columns + dense_width
        settings = (
            0 <= share <= 1
            and 0 < gamma < np.inf
            and min(n_columns, dense_width) >= 0
            and width < 1 << 31
        )
        if not (
            settings
            and _trees_fit(trees, width, centroids.squares.size)
            and _centroids_fit(centroids, width)
        ):
            raise ModelFolderError(
                "forest: the arrays do not fit each other; train the model again"
            )
        return cls(trees, centroids, n_columns, dense_width, share, gamma)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that is to be stored, by name."""
        return (
            {f"tree_{name}": array for name, array in self.trees._asdict().items()}
            | {f"tail_{name}": array for name, array in self.centroids._asdict().items()}
            | {
                "shape": np.array([self.n_columns, self.dense_width], np.int64),
                "tail": np.array([self.tail_share, self.tail_gamma], np.float64),
            }
        )

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.centroids.squares)

    @property
    def label_tree(self) -> None:
        """None: its trees are over documents."""
        return None

    def check_widths(self, n_columns: int, dense_width: int) -> bool:
        """Return whether it reads features of so many sparse and dense columns."""
        return (self.n_columns, self.dense_width) == (n_columns, dense_width)

    def missing_score(self, search: Search) -> float:
        """Return 0, the score of a label that no leaf knows."""
        return 0.0

    def search(
        self,
        features: Features,
        search: Search,
        k: int | None,
        exclude: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return (n, L) scores in (0, 1] of the ``k`` best labels per document (None: all in its
        leaves), best first.

        Settings of the search are for label trees.
        """
        n = len(features)
        rows = self._rows(features)
        excluded = Excluded(np.zeros(n + 1, np.int64), np.zeros(0, np.int32))
        if exclude is not None:
            if exclude.shape != (n, self.n_labels):
                raise ValueError(
                    f"exclude: found a shape of {exclude.shape}; expected {(n, self.n_labels)}"
                )
            excluded = Excluded(exclude.indptr.astype(np.int64), exclude.indices.astype(np.int32))
        most = self.n_labels
        if k is not None:
            most = k

        scoring = TailScoring(self.tail_share, self.tail_gamma)

        def task(block: tuple[int, int]) -> Any:
            return search_forest(*block, rows, self.trees, self.centroids, excluded, most, scoring)

        results = [(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))]
        with reporting.stage("searching", n, "documents"):
            for part in pool.run(task, pool.row_blocks(n, _BLOCK)):
                results.append(part)
                reporting.advance(len(part[0]))
        ends, labels, scores = (np.concatenate(parts) for parts in zip(*results, strict=True))
        before = np.cumsum([0, *(len(part[1]) for part in results)])[:-1]
        ends += np.repeat(before, [len(part[0]) for part in results])
        return csr_of(scores, labels, ends, self.n_labels)

    def explain(
        self, features: Features, label: int, search: Search, number: int
    ) -> RankerExplanation:
        """Explain one label: a step for the splits of all trees, P^α, and one for the centroid, if
        it counts.
        """
        details = self.explain_paths(features, label)
        nodes = _explanation_nodes(details, features)
        return RankerExplanation(float(np.prod([node.score for node in nodes])), nodes)

    def explain_paths(self, features: Features, label: int) -> ForestExplanation:
        """Return the way through each tree for the first row of ``features``; the score is that of
        ``search``.
        """
        rows = self._rows(features.take(slice(0, 1)))
        document = np.concatenate([rows.dense[0], np.zeros(self.n_columns, np.float32)])
        document[self.dense_width + rows.columns] = rows.values
        paths = tuple(self._path(int(root), document, label) for root in self.trees.roots)
        gain = float(np.mean([path.gain for path in paths]))
        length = float(np.linalg.norm(document.astype(np.float64)))
        centroids = self.centroids
        entries = slice(int(centroids.ptr[label]), int(centroids.ptr[label + 1]))
        near, products = _products(centroids.columns, centroids.values, entries, document)
        arguments = near, length, float(centroids.squares[label])
        score = np.float32(0)
        if gain > 0:
            score = np.float32(label_score(gain, *arguments, self.tail_share, self.tail_gamma))
        unit = Products(products.columns, products.values / (length or 1.0), products.weights)
        nearness = label_score(1.0, *arguments, 1.0, self.tail_gamma)
        cosine = near / (length or 1.0)
        return ForestExplanation(
            label, paths, gain, cosine, unit, nearness, self.tail_share, float(score)
        )

    def _path(self, node: int, document: NDArray[np.float32], label: int) -> TreePath:
        trees = self.trees
        splits = []
        while trees.children[node] > 0:
            entries = slice(int(trees.weight_ptr[node]), int(trees.weight_ptr[node + 1]))
            total, products = _products(trees.columns, trees.weights, entries, document)
            margin = total + float(trees.bias[node])
            splits.append(Split(node, margin, float(trees.bias[node]), products))
            node = int(trees.children[node]) + (margin > 0)
        leaf = slice(trees.leaf_ptr[node], trees.leaf_ptr[node + 1])
        gain = trees.gains[leaf][trees.labels[leaf] == label].sum()
        return TreePath(tuple(splits), node, float(gain))

    def _rows(self, features: Features) -> FeatureRows:
        expected = (self.n_columns, self.dense_width)
        if features.widths != expected:
            raise ValueError(
                f"features: found {features.widths} sparse and dense columns; "
                f"expected {expected}, as in training"
            )
        return _rows(features)

    def write(self, folder: FolderWriter, number: int) -> None:
        """Write all trees and centroids into one file."""
        folder.write_arrays(_file(number), self.to_arrays())


def _file(number: int) -> str:
    return f"forest-{number}.safetensors"


def _explanation_nodes(details: ForestExplanation, features: Features) -> tuple[Node, ...]:
    """Return the mean over trees of the products at all splits, signed by the way taken; and the
    centroid's.
    """
    n_trees = len(details.trees)
    products = np.zeros(features.shape[1])
    bias = 0.0
    for split in (split for path in details.trees for split in path.splits):
        sign = (1.0 if split.margin > 0 else -1.0) / n_trees
        np.add.at(
            products, split.products.columns, sign * split.products.values * split.products.weights
        )
        bias += sign * split.bias
    gain = details.gain ** (1 - details.tail_share) if details.score else 0.0
    name = f"the ways through {n_trees} trees"
    trees = Node.of_products(products, features, gain, bias, level=0, name=name, location="forest")
    if details.tail_share == 0:
        return (trees,)
    products = np.zeros(features.shape[1])
    products[details.products.columns] = details.products.values * details.products.weights
    nearness = details.nearness**details.tail_share
    name = "the label's centroid"
    return trees, Node.of_products(
        products, features, nearness, level=1, name=name, location="forest"
    )


class ForestFamily(RankerFamily):
    """FastXML and PfastreXML."""

    name = "forest"
    reads = frozenset({"forest"})

    def check(self, config: Config, documents: Dataset, parents: Parents | None) -> None:
        """Refuse fewer documents than propensities can be made of."""
        if config.forest.propensities and len(documents) < 3:
            raise UsageError(
                f"{config.method}: found {len(documents)} documents; "
                "expected at least 3, for propensities"
            )

    def fit(self, points: TrainingPoints, run: Run) -> tuple[Forest]:
        """Grow the trees, each a stage, and compute the labels' centroids, if these have a part in
        scores.
        """
        settings = run.config.forest
        features = points.features
        relevance = points.documents.label_matrix
        propensities = _label_propensities(points.documents, settings)

        def grow(tree: int) -> dict[str, NDArray[Any]]:
            return fit_tree(features, relevance, propensities, settings, run.config.seed, tree)

        with logged_stage("trees of documents") as log_fact:
            trees = run.work.each("document-tree", grow, range(settings.trees), "trees")
            if settings.tail_share > 0:
                tail = run.work.arrays("centroids", lambda: fit_tail(features, relevance))
            else:
                tail = no_tail(points.documents.n_labels)
            forest = Forest.of(trees, tail, features, settings)
            nodes = len(forest.trees.children) / settings.trees
            log_fact(f"{settings.trees} trees, {nodes:,.0f} nodes each")
        return (forest,)

    def load(
        self, folder: Folder, config: Config, shards: Collection[int] | None
    ) -> Iterator[Forest]:
        """Yield the forest of the folder."""
        if _file(0) in folder.files:
            yield Forest.from_arrays(folder.arrays(_file(0)))

    def card_rows(self, rankers: Sequence[Forest], config: Config) -> dict[str, str]:
        """Return the number of trees and their nodes."""
        trees = rankers[0].trees
        return {"trees of documents": f"{len(trees.roots)}, {len(trees.children):,} nodes"}

    def forecast(self, sizes: DataSizes, text: TextForecast, config: Config) -> RankerForecast:
        """Estimate by the depth of a tree; within a factor of 2 on sets of 23,000 to 62,000
        documents.
        """
        settings = config.forest
        depth = math.log2(max(sizes.documents / settings.leaf_size, 2))
        per_document = text.each + text.dense_width + 5
        numbers = text.numbers + text.dense_width * sizes.documents
        seconds = _SPLIT_SECONDS * sizes.documents * per_document * depth * settings.trees
        stored = _SPLIT_BYTES * numbers * settings.trees
        if settings.tail_share:
            stored += _CENTROID_BYTES * numbers
        return RankerForecast("trees of documents", seconds, stored, _THREAD_BYTES * numbers)

    def tuning_space(self, config: Config, settings: Mapping[str, Any]) -> Sequence[str]:
        """Return the cost of a split, the size of leaves, and the share of centroids where they
        have one.
        """
        space = ["forest.cost=1..20:log", "forest.leaf_size=5,10,20"]
        if config.forest.tail_share > 0:
            space.append("forest.tail_share=0..0.6")
        return space


def _label_propensities(documents: Dataset, settings: Settings) -> NDArray[np.float64]:
    """Return the divisors of gains: 1 for every label where training does not weigh by
    propensities.
    """
    if not settings.propensities:
        return np.ones(documents.n_labels)
    real = real_documents(documents)  # texts of labels would make rare ones look frequent
    return 1 / inverse_propensities(
        real.label_counts, len(real), settings.propensity_a, settings.propensity_b
    )


def fit_tree(
    features: Features,
    label_matrix: sparse.csr_array,
    propensities: NDArray[np.float64],
    settings: Settings,
    seed: int,
    tree: int,
) -> dict[str, NDArray[Any]]:
    """Grow the tree of this number, on one thread; documents without labels have no part in it.

    A label that a document has by less than 1 gains as much less.
    """
    pairs = sparse.csr_array(label_matrix, copy=True)
    pairs.eliminate_zeros()
    gains = np.minimum(pairs.data, 1) * (
        propensities.min(initial=1.0) / propensities[pairs.indices]
    )
    labelled = np.flatnonzero(np.diff(pairs.indptr)).astype(np.int32)
    labels = DocumentLabels(
        pairs.indptr.astype(np.int64), pairs.indices.astype(np.int32), gains.astype(np.float32)
    )
    tree_settings = TreeSettings(*(getattr(settings, name) for name in TreeSettings._fields))
    tree_seed = random_bits(seed, tree, 0)
    grown = grow_tree(_rows(features), labelled, labels, pairs.shape[1], tree_settings, tree_seed)
    # arrays without the room that they grew in
    return {name: array.copy() for name, array in zip(_TREE, grown, strict=True)}


def _rows(features: Features) -> FeatureRows:
    rows = features.sparse
    pointers, columns, values, dense = map(
        read_only, (rows.indptr, rows.indices, rows.data, features.dense)
    )
    return FeatureRows(pointers, columns, values, dense, features.widths[0])


def _products(
    columns: NDArray[Any], weights: NDArray[Any], entries: slice, document: NDArray[np.float32]
) -> tuple[float, Products]:
    """Return w·x of a row of weights, added up as in a search, and what it is made of."""
    total = float(
        dot(columns, weights, entries.start, entries.stop, np.arange(len(document)), document)
    )
    shared = np.flatnonzero(document[columns[entries]])
    shared_columns = columns[entries][shared].astype(np.int64)
    return total, Products(
        shared_columns,
        document[shared_columns].astype(np.float64),
        weights[entries][shared].astype(np.float64),
    )


def _joined(trees: Sequence[Arrays]) -> Trees:
    """Count nodes and entries through all trees."""
    together = {
        name: np.concatenate([tree[name] for tree in trees])
        for name in _TREE
        if not name.endswith("ptr")
    }
    for name in ("weight_ptr", "leaf_ptr"):
        sizes = np.concatenate([np.diff(tree[name]) for tree in trees])
        together[name] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    nodes = [len(tree["children"]) for tree in trees]
    roots = np.cumsum([0, *nodes[:-1]]).astype(np.int64)
    together["children"] += np.repeat(roots, nodes) * (together["children"] > 0)
    return Trees(roots=roots, **together)


def _trees_fit(trees: Trees, width: int, n_labels: int) -> bool:
    """Kernels read without looking at bounds, and go down by numbers of children, which must be
    larger.
    """
    n = len(trees.children)
    inner = np.flatnonzero(trees.children)
    return bool(
        _of_types(trees, "qqfqifqif")
        and len(trees.bias) == n == len(trees.weight_ptr) - 1 == len(trees.leaf_ptr) - 1
        and len(trees.roots) > 0
        and _within(trees.roots, n)
        and _within(trees.children, n - 1)
        and (trees.children[inner] > inner).all()
        and len(trees.columns) == len(trees.weights)
        and len(trees.labels) == len(trees.gains)
        and rows_fit(trees.weight_ptr, trees.columns, width)
        and rows_fit(trees.leaf_ptr, trees.labels, n_labels)
        and (trees.gains > 0).all()  # a search takes a sum of 0 for a label that it has not met
        and all(np.isfinite(numbers).all() for numbers in (trees.gains, trees.weights, trees.bias))
    )


def _centroids_fit(centroids: Centroids, width: int) -> bool:
    fits = _of_types(centroids, "qiff") and len(centroids.ptr) == len(centroids.squares) + 1
    fits = fits and len(centroids.columns) == len(centroids.values)
    fits = fits and bool(
        np.isfinite(centroids.values).all() and np.isfinite(centroids.squares).all()
    )
    return fits and rows_fit(centroids.ptr, centroids.columns, width)


def _of_types(arrays: Sequence[NDArray[Any]], types: str) -> bool:
    """Say whether all are vectors, of int64 (q), int32 (i) or float32 (f): kernels are compiled for
    no others.
    """
    return all(
        array.ndim == 1 and array.dtype == np.dtype(code)
        for array, code in zip(arrays, types, strict=True)
    )


def _within(numbers: NDArray[Any], end: int) -> bool:
    return bool(numbers.size == 0 or (numbers.min() >= 0 and numbers.max() < end))
