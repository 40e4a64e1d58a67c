"""The contract of linear rankers: the family that trains them, and the trained ranker that scores
labels.

A family is everything about one kind of ranker: which data and settings it refuses, how it is
trained in stages that can be resumed, how it is read from a model folder, what a run will take, and
which settings are worth tuning. The families of Longtail are trees of labels (``tree.py``), trees
of documents (``forest.py``), nearest documents (``neighbours.py``) and vectors of words with a
label tree (``extremetext.py``); a package of your own adds one with
:func:`longtail.methods.register_ranker`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config, Search
from longtail.data.dataset import Dataset
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.methods.family import Family
from longtail.steps.inputs import EVERYTHING, Inputs
from longtail.tree.given import Parents
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.forecast.sizes import DataSizes
    from longtail.forecast.text import TextForecast
    from longtail.steps.run import Run
    from longtail.store import Folder, FolderWriter

__all__ = [
    "LabelHints",
    "Node",
    "Ranker",
    "RankerExplanation",
    "RankerFamily",
    "RankerForecast",
    "TrainingPoints",
]


class Node(NamedTuple):
    """One step of an explanation in columns of the features: a node of a label tree, a forest, or a
    learner.

    Values times weights, bias and the dense part add up to the margin.
    """

    tree: int
    level: int
    labels: NDArray[np.int32]  # labels below, where it is a node of a label tree
    margin: float
    score: float
    bias: float
    dense: float
    columns: NDArray[np.integer]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    name: str = ""  # in place of the names of its labels
    location: str = ""  # of a step that is no node of a label tree: a forest, a learner

    @classmethod
    def of_products(
        cls,
        products: NDArray[np.float64],
        features: Features,
        score: float,
        bias: float = 0.0,
        **description: Any,
    ) -> Node:
        """Return the step whose margin is the sum of ``products``, one per column of both blocks,
        and the bias.

        Args:
            products: values times weights, those of the dense block first.
            features: the explained document is the first row.
            score: the step's factor, or part, of the label's score.
            bias: added to the margin.
            description: ``tree``, ``level``, ``name`` and ``location`` of the step.
        """
        start, end = features.sparse.indptr[:2]
        columns = features.sparse.indices[start:end]
        values = features.sparse.data[start:end].astype(np.float64)
        width = features.dense.shape[1]
        sparse_products = products[width + columns]
        dense = float(products[:width].sum())
        weights = np.divide(
            sparse_products, values, out=np.zeros_like(sparse_products), where=values != 0
        )
        margin = float(sparse_products.sum()) + dense + bias
        position = {"tree": 0, "level": 0} | description
        no_labels = np.zeros(0, np.int32)
        return cls(
            labels=no_labels,
            margin=margin,
            score=score,
            bias=bias,
            dense=dense,
            columns=columns,
            values=values,
            weights=weights,
            **position,
        )


class RankerExplanation(NamedTuple):
    """Why a ranker gives a label its score, before calibration."""

    score: float
    nodes: tuple[Node, ...]


class Ranker(Protocol):
    """A trained ranker: gives documents their best labels by sparse and dense features."""

    @property
    def n_labels(self) -> int:
        """Number of labels."""

    @property
    def label_tree(self) -> LabelTree | None:
        """The label tree that is searched, if there is one."""

    def check_widths(self, n_columns: int, dense_width: int) -> bool:
        """Return whether it reads features of so many sparse and dense columns."""

    def missing_score(self, search: Search) -> float:
        """Return the score of a label that is not among the best."""

    def search(
        self,
        features: Features,
        search: Search,
        k: int | None,
        exclude: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return (n, L) scores of the ``k`` best labels per document, best first.

        Args:
            features: of n documents.
            search: settings of the search down a label tree.
            k: labels per document; None for all that the search meets.
            exclude: (n, L), an entry for each label that may not be returned.
        """

    def explain(
        self, features: Features, label: int, search: Search, number: int
    ) -> RankerExplanation:
        """Explain one label for the first row of ``features``; ``number`` is the ranker's among
        those of the model.
        """

    def write(self, folder: FolderWriter, number: int) -> None:
        """Write the ranker into a model folder."""


class LabelHints(NamedTuple):
    """Knowledge of another model about labels, in columns and rows of labels."""

    # (n, L) has an entry where a document is a hard negative of a label
    candidates: sparse.csr_array | None = None
    start: NDArray[np.float32] | None = None  # (L, e) initial weights of the dense block
    inputs: Inputs = frozenset()

    def ordered(self, tree: LabelTree) -> LabelHints:
        """Return the same in the order of the tree's labels."""
        candidates = self.candidates
        if candidates is not None:
            candidates = tree.coarsen(candidates)[-1]
        start = self.start
        if start is not None:
            start = start[tree.order]
        return LabelHints(candidates, start, self.inputs)


class TrainingPoints(NamedTuple):
    """The training data of linear rankers."""

    documents: Dataset  # with Gandalf, texts of labels behind them
    features: Features  # one row per document
    vectoriser: TfIdf | None = None  # makes features of label texts, unless features were given
    # from a network, for classifiers of single labels
    label_hints: Callable[[], LabelHints] = LabelHints
    trees: tuple[LabelTree, ...] = ()  # those of RankerFamily.label_trees
    inputs: Inputs = EVERYTHING  # of documents and features


class RankerForecast(NamedTuple):
    """The cost of training one ranker."""

    stage: str  # name of the stage in the log
    seconds: float  # of one core
    stored: float  # bytes
    thread_bytes: float  # bytes of one thread at work
    shared_bytes: float = 0.0  # that all threads work on, beside those stored
    tree: tuple[int, ...] = ()  # nodes of each level of its label tree, if it has one


class RankerFamily(Family):
    """One kind of linear ranker.

    ``reads`` names the groups of settings that its training and search read, ``custom`` among them
    if it has settings of its own there."""

    has_label_tree: ClassVar[bool] = False

    def check(self, config: Config, documents: Dataset, parents: Parents | None) -> None:
        """Refuse data and settings on which training would fail, before any work is done.

        Args:
            config: resolved settings.
            documents: to be trained on.
            parents: a given hierarchy of the labels.
        """

    def label_trees(self, points: TrainingPoints, run: Run) -> tuple[LabelTree, ...]:
        """Return the label trees that :meth:`fit` gets as ``points.trees``; none by default."""
        return ()

    @abstractmethod
    def fit(self, points: TrainingPoints, run: Run) -> tuple[Ranker, ...]:
        """Train; each long part is a stage of ``run.work``, so that it can be resumed.

        A stage declares the settings and data that it is made from: ``points.inputs``, and the
        settings that this family reads. One that declares nothing is made again when any setting
        changes.
        """

    @abstractmethod
    def load(
        self, folder: Folder, config: Config, shards: Collection[int] | None
    ) -> Iterator[Ranker]:
        """Yield the rankers of a model folder, none if it has none of this family.

        Args:
            folder: a verified model folder.
            config: its settings.
            shards: numbers of the shards of labels to load; None for all.
        """

    def card_rows(self, rankers: Sequence[Any], config: Config) -> dict[str, str]:
        """Return rows of the model card about the rankers of a model: name and value."""
        return {}

    def forecast(
        self, sizes: DataSizes, text: TextForecast, config: Config
    ) -> RankerForecast | None:
        """Estimate the cost of training; None where it is not known, or that of label trees."""
        return None

    def tuning_space(self, config: Config, settings: Any) -> Sequence[str]:
        """Return the dimensions worth searching over, as ``longtail tune --search`` takes them.

        Args:
            config: resolved settings.
            settings: the method's own settings in the catalogue, which make it this method.
        """
        return ()
