"""A trained model: from texts or features to ranked labels with probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config, Search
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.errors import DataError, Problem, UsageError, unknown_name
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.linear.explanation import Explanation, LinearRanker, explain_label
from longtail.linear.tree_ranker import TreeRanker
from longtail.metrics import Evaluation
from longtail.search.calibration import Calibration
from longtail.search.ensemble import mean_scores
from longtail.search.predictions import Predictions
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.neural.ranker import NeuralRanker  # which needs torch

__all__ = ["Facts", "Model", "document_features"]

_MEMBERS = 10  # labels that each tree of an ensemble gives, as a multiple of those asked for


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model was trained on."""

    documents: int
    pairs: int
    held_out: int  # documents that only the calibration has seen
    n_columns: int  # of the sparse block
    dense_width: int
    network_share: float = 0.0  # weight of the network's scores beside the linear classifiers'


@dataclass(frozen=True)
class Model:
    """Labels, how documents become features, the rankers, and what scores mean.

    Linear rankers score tf-idf or given features, or, beside a network, its vectors and tf-idf together (Φcat).
    """

    config: Config
    labels: Labels
    label_counts: NDArray[np.int64]  # documents of each label in training
    facts: Facts
    vectoriser: TfIdf | None  # None: documents come as features
    rankers: tuple[LinearRanker, ...]  # one a label tree, or a forest; none where a network does it all
    network: NeuralRanker | None = None
    calibration: Calibration | None = None
    metrics: Evaluation | None = None  # on the documents held out

    @property
    def tree(self) -> LabelTree | None:
        """The label tree of the network, else of the first linear ranker, if it has one."""
        if self.network is not None:
            return self.network.tree
        first = self.rankers[0]
        return first.tree if isinstance(first, TreeRanker) else None

    def predict(
        self,
        documents: Dataset | Iterable[str],
        k: int = 5,
        *,
        threshold: float = 0.0,
        beam_size: int | None = None,
        exclude: Sequence[Iterable[str]] | None = None,
    ) -> Predictions:
        """Return the ``k`` best labels of each document with a probability of at least ``threshold``, best first.

        ``exclude`` names labels, for each document, that may not come out. Scores are probabilities where the model
        is calibrated, else what the ranker gives: products along the path, shares of votes.
        """
        if k < 1:
            raise UsageError(f"k: found {k}; expected at least 1")
        search = self.config.search if beam_size is None else replace_beam(self.config.search, beam_size)
        ids = documents.ids if isinstance(documents, Dataset) else None
        documents = self._readable(documents)
        ranked = self.raw_scores(documents, min(k, len(self.labels)), search, self._excluded(exclude, len(documents)))
        if self.calibration is not None:
            ranked.data = self.calibration(ranked.data)
        return Predictions(ranked if threshold <= 0 else _at_least(ranked, threshold), self.labels, ids)

    def raw_scores(
        self, documents: Dataset | Strings, k: int, search: Search, exclude: sparse.csr_array | None = None
    ) -> sparse.csr_array:
        """Return (n, L) scores before calibration, best first: of the network, the mean of the trees, or of both."""
        share = self.facts.network_share
        if self.network is None:
            each = k if len(self.rankers) == 1 else _wanted(k, len(self.labels))
            features = document_features(documents, self.vectoriser, self.facts)
            return self._linear_scores(features, k, each, search, exclude)
        if share == 1:
            return self.network.search(_texts(documents), k, exclude)[0]
        return mean_scores(self.both_scores(documents, k, search, exclude), k, (share, 1 - share))

    def both_scores(
        self, documents: Dataset | Strings, k: int, search: Search, exclude: sparse.csr_array | None = None
    ) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Return the scores of the network and of the linear classifiers beside it, of more than ``k`` labels."""
        if self.network is None:
            raise UsageError(f"{self.config.method} has no network")
        wanted = _wanted(k, len(self.labels))
        ranked, vectors = self.network.search(_texts(documents), wanted, exclude)
        return ranked, self._linear_scores(self._combined(documents, vectors), wanted, wanted, search, exclude)

    def _linear_scores(
        self, features: Features, k: int, each: int, search: Search, exclude: sparse.csr_array | None
    ) -> sparse.csr_array:
        """Return the ``k`` best labels by the mean of all rankers, of which every one gives ``each``."""
        ranked = [_ranked(ranker, features, search, each, exclude) for ranker in self.rankers]
        return ranked[0] if len(ranked) == 1 else mean_scores(ranked, k)

    def features(self, documents: Dataset | Iterable[str]) -> Features:
        """Return the features of documents as the linear rankers got them in training."""
        documents = self._readable(documents)
        if self.network is None:
            return document_features(documents, self.vectoriser, self.facts)
        if not self.rankers:
            raise UsageError("this model has a network alone, which reads texts, not features; see embed")
        return self._combined(documents, self.network.embed(_texts(documents)))

    def embed(self, documents: Dataset | Iterable[str]) -> NDArray[np.float32]:
        """Return the network's (n, d) vectors of documents, Φ_dnn."""
        if self.network is None:
            raise UsageError(f"{self.config.method} has no network, so no embeddings; train with a method that has one")
        return self.network.embed(_texts(self._readable(documents)))

    def _combined(self, documents: Dataset | Strings, vectors: NDArray[np.float32]) -> Features:
        return document_features(documents, self.vectoriser, self.facts, vectors, self.config.cascade.vector_weight)

    def _readable(self, documents: Dataset | Iterable[str]) -> Dataset | Strings:
        if isinstance(documents, Dataset | Strings):
            return documents
        if isinstance(documents, str):
            raise UsageError("found one string; expected a list of texts, such as [text]")
        if self.network is None and (self.vectoriser is None or self.facts.dense_width):
            raise UsageError("this model was trained on ready-made features; expected a Dataset with features")
        return Strings.of(documents)

    def explain(self, text: str, label: str) -> Explanation:
        """Return what each n-gram of ``text`` adds to the margin of each node on the way to ``label``."""
        if label not in self.labels.columns:
            raise UsageError(unknown_name("label", label, self.labels.columns))
        if self.vectoriser is None:
            raise UsageError("this model was trained on ready-made features, which have no words to explain by")
        if self.network is not None:
            raise UsageError(f"{self.config.method} has a network, whose scores are no sums over words")
        explanation = explain_label(
            self.rankers, self.features([text]), self.labels.columns[label], self.config.search.score
        )
        return explanation.named(self.labels, self.label_counts, self.vectoriser.vocabulary, self.calibration)

    def label_id(self, label: str) -> str:
        """Return the id of a label given by id or name."""
        if label in self.labels:
            return label
        names = [at for at in range(len(self.labels)) if self.labels.name(at) == label]
        if len(names) != 1:
            raise UsageError(unknown_name("label", label, self.labels.columns))
        return self.labels.ids[names[0]]

    def _excluded(self, exclude: Sequence[Iterable[str]] | None, n: int) -> sparse.csr_array | None:
        if exclude is None:
            return None
        if len(exclude) != n:
            raise UsageError(f"exclude: found {len(exclude)} lists for {n} documents; expected one a document")
        columns = [sorted({self.labels.columns[name] for name in names if name in self.labels}) for names in exclude]
        indptr = np.cumsum([0, *map(len, columns)])
        indices = np.array([column for own in columns for column in own], np.int32)
        return csr_of(np.ones(len(indices), np.float32), indices, indptr, len(self.labels))


def _ranked(
    ranker: LinearRanker, features: Features, search: Search, k: int, exclude: sparse.csr_array | None
) -> sparse.csr_array:
    """Return the ``k`` best labels; settings of the search are for label trees."""
    if isinstance(ranker, TreeRanker):
        return ranker.search(features, search, k, exclude)
    return ranker.search(features, k, exclude)


def _texts(documents: Dataset | Strings) -> Strings:
    return documents if isinstance(documents, Strings) else documents.document_texts()


def _wanted(k: int, n_labels: int) -> int:
    return min(max(_MEMBERS * k, 100), n_labels)


def document_features(
    documents: Dataset | Strings,
    vectoriser: TfIdf | None,
    facts: Facts | None = None,
    vectors: NDArray[np.float32] | None = None,
    vector_weight: float = 1.0,
) -> Features:
    """Return sparse features (given, else tf-idf) and dense ones beside them, whose rows get length ``vector_weight``.

    The dense block is ``vectors``, else what the documents bring.
    """
    texts = documents if isinstance(documents, Strings) else documents.texts
    given = None if isinstance(documents, Strings) else documents.features
    if vectors is None and isinstance(documents, Dataset):
        vectors = documents.dense
    if vectoriser is not None:
        rows = vectoriser.transform(texts if texts is not None else Strings.of([""] * len(documents)))
    elif given is not None:
        rows = given
    else:
        rows = csr_of(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(len(documents) + 1, np.int64), 0)
    features = Features.of(rows, None if vectors is None else _normalised(vectors) * np.float32(vector_weight))
    if facts is not None:
        _check_width("sparse", features.sparse.shape[1], facts.n_columns)
        _check_width("dense", features.dense.shape[1], facts.dense_width)
    return features


def _check_width(block: str, found: int, expected: int) -> None:
    if found != expected:
        problem = f"{found} columns of {block} features"
        raise DataError([Problem("features", 0, problem, f"{expected}, as in training; give --features as then")])


def _normalised(dense: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    normalised: NDArray[np.float32] = np.divide(dense, norms, out=np.zeros_like(dense), where=norms > 0)
    return normalised


def replace_beam(search: Search, beam_size: int) -> Search:
    """Return the settings with another beam; the search is no longer exact."""
    if beam_size < 1:
        raise UsageError(f"beam size: found {beam_size}; expected at least 1")
    return msgspec.structs.replace(search, beam_size=beam_size, exact=False)


def _at_least(ranked: sparse.csr_array, threshold: float) -> sparse.csr_array:
    kept = ranked.data >= threshold
    before = np.concatenate([[0], np.cumsum(kept)])
    return csr_of(ranked.data[kept], ranked.indices[kept], before[ranked.indptr], ranked.shape[1])
