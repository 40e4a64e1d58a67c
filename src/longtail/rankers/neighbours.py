"""AnnexML (Tagami 2017): the documents nearest to a new one in learned embeddings vote with their
labels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
from longtail.config import Config, Search
from longtail.config import Neighbours as Settings
from longtail.data.csr import csr_of, csr_of_nothing, rows_fit
from longtail.data.dataset import Dataset
from longtail.errors import ModelFolderError, UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.splitmix import random_bits
from longtail.rankers.base import (
    Node,
    RankerExplanation,
    RankerFamily,
    RankerForecast,
    TrainingPoints,
)
from longtail.rankers.partitions import (
    IndexType,
    Learner,
    check_index,
    document_graph,
    fit_learner,
    unit_block,
)
from longtail.reporting import logged_stage
from longtail.search.ensemble import best_first
from longtail.steps.run import Run
from longtail.store import Folder, FolderWriter
from longtail.store.tensors import check_kinds
from longtail.tree.given import Parents

if TYPE_CHECKING:
    from longtail.forecast.sizes import DataSizes
    from longtail.forecast.text import TextForecast

__all__ = ["Neighbours", "NeighboursExplanation", "NeighboursFamily", "Voter", "learner_seeds"]

_BLOCK = 4096  # documents that are searched at once
# votes are flatter than the loss: with γ itself P@1 lost on debian-tags and with equal votes on
# gutenberg-lcsh, on training documents held out
_FLATNESS = 0.5
_SETTINGS = Settings()
_EXAMPLES = 3  # documents that are named in a step of an explanation
# seconds of one core, per dimension, epoch, document and number of it with 5 more, times its
# neighbours and negatives
_STEP_SECONDS = 1.4e-9
_EMBEDDED_BYTES = 2.0  # per dimension of a column in a part, or of a document
_MOST_VOTERS = 10_000  # or as many as there are documents: each takes room in every search


@dataclass(frozen=True)
class Voter:
    """A training document that has the label: its cosine is the sum of contributions, its vote a
    part of the score.
    """

    learner: int
    part: int
    document: int  # row in training
    similarity: float
    vote: float
    columns: NDArray[np.int32]  # of the explained document, those of the dense block first
    contributions: NDArray[np.float64]  # of each column to the similarity


@dataclass(frozen=True)
class NeighboursExplanation:
    """Why a label: the votes of all voters add up to its score."""

    label: int
    score: float
    parts: tuple[int, ...]  # the part that each learner chose
    voters: tuple[Voter, ...]  # by learner, nearest first


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Learners, each with parts and embeddings of the training documents, and those documents'
    labels.
    """

    n_labels: int
    n_columns: int  # of both blocks of the features
    learners: tuple[Learner, ...]
    label_ptr: NDArray[np.int64]  # (N + 1,)
    label_columns: NDArray[np.int32]  # labels of each training document
    voters: int
    gamma: float
    index: IndexType
    # beside ``label_columns``, at most 1; None: all are 1
    label_values: NDArray[np.float32] | None = None
    # (N,) position of each document in the training data; None: all of that are trained on
    document_rows: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        learners: Sequence[Mapping[str, NDArray[Any]]],
        features: Features,
        label_matrix: sparse.csr_array,
        settings: Settings = _SETTINGS,
        document_rows: NDArray[np.int64] | None = None,
    ) -> Neighbours:
        """Put together what ``fit_learner`` gave for each of ``learner_seeds``.

        Args:
            learners: arrays of each learner.
            features: of the documents.
            label_matrix: (N, L) relevance.
            settings: of the search.
            document_rows: positions in the training data of the first documents, where some are
                held out; documents behind these are texts of labels.
        """
        (n_documents, n_columns) = features.shape
        n_labels = label_matrix.shape[1]
        made = tuple(Learner.from_arrays(arrays, n_columns, n_documents) for arrays in learners)
        labels = label_matrix.indptr.astype(np.int64), label_matrix.indices.astype(np.int32)
        values = np.minimum(label_matrix.data, 1).astype(np.float32)
        soft = None
        if (values < 1).any():
            soft = values
        if document_rows is not None:
            no_rows = np.full(n_documents - len(document_rows), -1)
            document_rows = np.concatenate([document_rows, no_rows])
        return cls(
            n_labels,
            n_columns,
            made,
            *labels,
            settings.voters,
            settings.gamma,
            settings.index,
            soft,
            document_rows,
        )

    @property
    def label_tree(self) -> None:
        """None: documents are searched."""
        return None

    def check_widths(self, n_columns: int, dense_width: int) -> bool:
        """Return whether it reads features of so many columns in all."""
        return self.n_columns == n_columns + dense_width

    def missing_score(self, search: Search) -> float:
        """Return 0, the score of a label without votes."""
        return 0.0

    def search(
        self,
        features: Features,
        search: Search,
        k: int | None,
        exclude: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return (n, L) float32 scores of the ``k`` best labels per document (None: all with
        votes), best first.

        A score is the label's share of the votes, the mean over learners. In each, the nearest
        documents of the document's part vote, weighted by softmax(γ/2 cosine), and by half for a
        label that they have by half. A document without a column that its part knows gets no
        labels. ``exclude`` has an entry for each label that may not be returned. Settings of the
        search are for label trees."""
        n = len(features)
        if features.shape[1] != self.n_columns:
            raise UsageError(
                f"features: found {features.shape[1]} columns; "
                f"expected {self.n_columns}, as in training"
            )
        if exclude is not None and exclude.shape != (n, self.n_labels):
            raise UsageError(
                f"exclude: found shape {exclude.shape}; "
                f"expected {(n, self.n_labels)}: documents, labels"
            )
        ranked = [csr_of_nothing(0, self.n_labels)]
        with reporting.stage("searching", n, "documents"):
            for begin, end in pool.row_blocks(n, _BLOCK):
                ranked.append(self._search_block(features, slice(begin, end), k, exclude))
                reporting.advance(end - begin)
        values, columns = (
            np.concatenate([getattr(block, name) for block in ranked])
            for name in ("data", "indices")
        )
        counts = np.concatenate([np.diff(block.indptr) for block in ranked])
        return csr_of(values, columns, np.concatenate([[0], np.cumsum(counts)]), self.n_labels)

    def _search_block(
        self, features: Features, block: slice, k: int | None, exclude: sparse.csr_array | None
    ) -> sparse.csr_array:
        documents, _, votes = self._votes(unit_block(features.take(block)))
        n, width = documents.shape
        shares = csr_of(
            votes.ravel(),
            documents.ravel(),
            np.arange(0, n * width + 1, width),
            len(self.label_ptr) - 1,
        )
        scores = shares @ self._label_matrix
        if exclude is not None:
            barred = exclude[block].astype(bool).astype(np.float64)
            scores = scores - scores.multiply(barred)
        scores.eliminate_zeros()
        scores.data = np.minimum(scores.data, 1)  # a sum of shares may be a rounding above
        return best_first(scores.astype(np.float32), k)

    @cached_property
    def _label_matrix(self) -> sparse.csr_array:
        """The labels of the training documents."""
        if self.label_values is None:
            values = np.ones(len(self.label_columns))
        else:
            values = self.label_values.astype(np.float64)
        return csr_of(values, self.label_columns, self.label_ptr, self.n_labels)

    def _votes(
        self, rows: sparse.csr_array
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float64]]:
        """Return voting documents, cosines and votes, (n, learners × voters); a missing one is
        document 0, vote 0.
        """

        def nearest(learner: Learner) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
            return learner.voters(rows, self.voters, self.index)

        documents, cosines = zip(*pool.run(nearest, self.learners), strict=True)
        votes = [
            _shares(voters, near, self.gamma) / len(self.learners)
            for voters, near in zip(documents, cosines, strict=True)
        ]
        return np.maximum(np.hstack(documents), 0), np.hstack(cosines), np.hstack(votes)

    def explain(
        self, features: Features, label: int, search: Search, number: int
    ) -> RankerExplanation:
        """Explain one label: a step per learner, the cosines of its voters that have the label
        times their votes.
        """
        details = self.explain_votes(features, label)
        nodes = tuple(
            self._learner_node(details, learner, features) for learner in range(len(self.learners))
        )
        return RankerExplanation(float(np.mean([node.score for node in nodes])), nodes)

    def _learner_node(
        self, details: NeighboursExplanation, learner: int, features: Features
    ) -> Node:
        voters = [voter for voter in details.voters if voter.learner == learner]
        products = np.zeros(features.shape[1])
        share = 0.0
        for voter in voters:
            vote = len(self.learners) * voter.vote
            products[voter.columns] += vote * voter.contributions
            share += vote
        name = f"{len(voters)} neighbours have it"
        if voters:
            names = [self._document_name(voter.document) for voter in voters[:_EXAMPLES]]
            name = f"{name}: training documents {', '.join(names)}"
        return Node.of_products(
            products, features, share, tree=learner, name=name, location=f"learner {learner + 1}"
        )

    def _document_name(self, document: int) -> str:
        """Return the number of a document in the training data, from 1."""
        if self.document_rows is None:
            return str(document + 1)
        row = int(self.document_rows[document])
        if row < 0:
            return "(text of a label)"
        return str(row + 1)

    def explain_votes(self, features: Features, label: int) -> NeighboursExplanation:
        """Return the voters that have a label, for the first row of ``features``."""
        rows = unit_block(features.take(slice(0, 1)))
        documents, cosines, votes = (array[0] for array in self._votes(rows))
        parts = tuple(int(learner.parts(rows)[0]) for learner in self.learners)
        voters = []
        for at in np.flatnonzero(votes > 0).tolist():
            number = at // self.voters
            document = int(documents[at])
            if value := self._value(document, label):
                contributions = _contributions(self.learners[number], parts[number], rows, document)
                pair = float(cosines[at]), float(votes[at]) * value
                voters.append(
                    Voter(number, parts[number], document, *pair, rows.indices, contributions)
                )
        score = float(np.float32(min(sum(voter.vote for voter in voters), 1.0)))
        return NeighboursExplanation(label, score, parts, tuple(voters))

    def _value(self, document: int, label: int) -> float:
        """Return by how much a training document has a label."""
        row = slice(int(self.label_ptr[document]), int(self.label_ptr[document + 1]))
        positions = np.flatnonzero(self.label_columns[row] == label)
        if not len(positions):
            return 0.0
        if self.label_values is None:
            return 1.0
        return float(self.label_values[row][positions[0]])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that is to be stored, by name."""
        arrays: dict[str, NDArray[Any]] = {
            f"{number}.{name}": array
            for number, learner in enumerate(self.learners)
            for name, array in learner.to_arrays().items()
        }
        sizes = np.array([self.n_labels, self.n_columns, len(self.learners), self.voters], np.int64)
        arrays |= {"label_ptr": self.label_ptr, "label_columns": self.label_columns}
        if self.label_values is not None:
            arrays["label_values"] = self.label_values
        if self.document_rows is not None:
            arrays["document_rows"] = self.document_rows
        return arrays | {"sizes": sizes, "gamma": np.array([self.gamma])}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], index: IndexType = "exact"
    ) -> Neighbours:
        """Take what ``to_arrays`` gave, checked; nothing is copied, and memory maps may be
        read-only.
        """
        try:
            return cls._from_arrays(arrays, index)
        except (KeyError, ValueError) as error:
            raise ModelFolderError(
                f"neighbours: an array is missing or misshapen ({error}); train again"
            ) from None

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, NDArray[Any]], index: IndexType) -> Neighbours:
        check_kinds(arrays, {"sizes": "i", "gamma": "f", "label_ptr": "i", "label_columns": "i"})
        n_labels, n_columns, n_learners, voters = (int(size) for size in arrays["sizes"])
        (gamma,) = arrays["gamma"].tolist()
        if not 0 < gamma < np.inf or not 0 < n_columns < 1 << 31:
            raise ModelFolderError(
                f"neighbours: found a γ of {gamma:g} and {n_columns} columns; train again"
            )
        if not 1 <= n_learners <= len(arrays) or not 1 <= voters <= max(
            len(arrays["label_ptr"]), _MOST_VOTERS
        ):
            raise ModelFolderError(
                f"neighbours: found {n_learners} learners and {voters} voters; train again"
            )
        ptr = arrays["label_ptr"]
        columns = arrays["label_columns"]
        if not rows_fit(ptr, columns, n_labels):
            raise ModelFolderError(
                f"neighbours: expected labels from 0 to {n_labels - 1} by document; train again"
            )
        values = arrays.get("label_values")
        if values is not None and (values.dtype != np.float32 or values.ndim != 1):
            raise ModelFolderError(
                f"neighbours: found label_values as {values.dtype}; expected float32; train again"
            )
        if values is not None and (
            len(values) != len(columns) or not bool(((values > 0) & (values <= 1)).all())
        ):
            raise ModelFolderError(
                "neighbours: expected a value above 0 and up to 1 per label of a document; "
                "train again"
            )
        learner_arrays = [
            {
                name.partition(".")[2]: array
                for name, array in arrays.items()
                if name.startswith(f"{number}.")
            }
            for number in range(n_learners)
        ]
        learners = tuple(
            Learner.from_arrays(of_learner, n_columns, len(ptr) - 1)
            for of_learner in learner_arrays
        )
        rows = arrays.get("document_rows")  # models of earlier versions have none
        if rows is not None and (rows.dtype != np.int64 or rows.shape != (len(ptr) - 1,)):
            raise ModelFolderError(
                f"neighbours: found document_rows as {rows.dtype} of shape {rows.shape}; "
                f"expected {len(ptr) - 1} of int64; train again"
            )
        return cls(n_labels, n_columns, learners, ptr, columns, voters, gamma, index, values, rows)

    def write(self, folder: FolderWriter, number: int) -> None:
        """Write all learners and the labels of their documents into one file."""
        folder.write_arrays(_file(number), self.to_arrays())


def _file(number: int) -> str:
    return f"neighbours-{number}.safetensors"


class NeighboursFamily(RankerFamily):
    """AnnexML."""

    name = "neighbours"
    reads = frozenset({"neighbours"})

    def check(self, config: Config, documents: Dataset, parents: Parents | None) -> None:
        """Refuse an index that is not installed."""
        check_index(config.neighbours.index)

    def fit(self, points: TrainingPoints, run: Run) -> tuple[Neighbours]:
        """Train the learners, each a stage, whose documents vote."""
        settings = run.config.neighbours
        seed = run.config.seed
        features = points.features
        relevance = points.documents.label_matrix

        def neighbours_of_documents() -> dict[str, NDArray[Any]]:
            return {"rows": document_graph(relevance, settings.graph_neighbours, seed)}

        graph = run.work.arrays("document-graph", neighbours_of_documents)["rows"]

        def learn(learner_seed: int) -> dict[str, NDArray[Any]]:
            return fit_learner(features, relevance, graph, settings, learner_seed)

        with logged_stage("learners") as log_fact:
            learners = run.work.each(
                "learner", learn, learner_seeds(settings.learners, seed), "learners"
            )
            ranker = Neighbours.of(learners, features, relevance, settings, run.rows)
            log_fact(f"{settings.learners} learners, {settings.dimensions} dimensions")
        return (ranker,)

    def load(
        self, folder: Folder, config: Config, shards: Collection[int] | None
    ) -> Iterator[Neighbours]:
        """Yield the learners of the folder."""
        if _file(0) in folder.files:
            yield Neighbours.from_arrays(folder.arrays(_file(0)), config.neighbours.index)

    def card_rows(self, rankers: Sequence[Neighbours], config: Config) -> dict[str, str]:
        """Return the number of learners and their dimensions."""
        return {
            "learners": f"{len(rankers[0].learners)}, {config.neighbours.dimensions} dimensions"
        }

    def forecast(self, sizes: DataSizes, text: TextForecast, config: Config) -> RankerForecast:
        """Estimate by the steps of AdaGrad; within a factor of 2 on sets of 23,000 to 62,000
        documents.
        """
        settings = config.neighbours
        per_document = text.each + text.dense_width + 5
        pairs = settings.graph_neighbours + settings.negatives
        steps = settings.dimensions * settings.epochs * sizes.documents * per_document * pairs
        n_parts = max(sizes.documents // settings.part_size, 1)
        columns = n_parts * float(text.distinct(sizes.documents / n_parts))
        stored = (
            _EMBEDDED_BYTES * settings.dimensions * (columns + sizes.documents) * settings.learners
        )
        thread_bytes = 12.0 * n_parts * text.columns + 8.0 * settings.dimensions * text.columns
        return RankerForecast(
            "learners", _STEP_SECONDS * steps * settings.learners, stored, thread_bytes
        )

    def tuning_space(self, config: Config, settings: Mapping[str, Any]) -> Sequence[str]:
        """Return the size of embeddings and the number of voters."""
        return [
            "neighbours.dimensions=25,50,100",
            "neighbours.gamma=3..30:log",
            "neighbours.voters=5,10,20,50",
        ]


def learner_seeds(learners: int, seed: int) -> list[int]:
    """Return the seed of each learner."""
    return [int(random_bits(seed, 0, number)) for number in range(learners)]


def _shares(
    documents: NDArray[np.int32], cosines: NDArray[np.float32], gamma: float
) -> NDArray[np.float64]:
    """Return softmax(γ/2 cosine) over the documents of each row; 0 where there are none."""
    weights = np.exp(_FLATNESS * gamma * (cosines.astype(np.float64) - 1)) * (documents >= 0)
    totals = weights.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(
        weights, totals, out=np.zeros_like(weights), where=totals > 0
    )
    return shares


def _contributions(
    learner: Learner, part: int, row: sparse.csr_array, document: int
) -> NDArray[np.float64]:
    """Return what each column of the row adds to its cosine: x_f V_f·e / ‖Vx‖, e the document's
    stored embedding.
    """
    first, last = learner.document_ptr[part : part + 2]
    at = first + np.searchsorted(learner.documents[first:last], document)
    weights = learner.column_weights(row.indices, part).astype(np.float64)
    along = row.data.astype(np.float64)[:, None] * weights
    products: NDArray[np.float64] = along @ learner.embeddings[at].astype(np.float64)
    return products / np.linalg.norm(along.sum(axis=0))
