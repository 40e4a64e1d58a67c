"""A trained model: from texts or features to ranked labels with probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
from longtail.linear.explanation import Explanation, explain_label
from longtail.linear.tree_ranker import TreeRanker
from longtail.metrics import Evaluation
from longtail.search.calibration import Calibration
from longtail.search.ensemble import mean_scores
from longtail.search.predictions import Predictions

__all__ = ["Facts", "Model", "document_features"]

_MEMBERS = 10  # labels that each tree of an ensemble gives, as a multiple of those asked for


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model was trained on."""

    documents: int
    pairs: int
    held_out: int  # documents that only the calibration has seen
    n_columns: int  # of the sparse block
    dense_width: int


@dataclass(frozen=True)
class Model:
    """Labels, how documents become features, a ranker a tree, and what scores mean."""

    config: Config
    labels: Labels
    label_counts: NDArray[np.int64]  # documents of each label in training
    facts: Facts
    vectoriser: TfIdf | None  # None: documents come as features
    rankers: tuple[TreeRanker, ...]
    calibration: Calibration | None = None
    metrics: Evaluation | None = None  # on the documents held out

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
        is calibrated, else products along the path.
        """
        if k < 1:
            raise UsageError(f"k: found {k}; expected at least 1")
        search = self.config.search if beam_size is None else replace_beam(self.config.search, beam_size)
        ids = documents.ids if isinstance(documents, Dataset) else None
        features = self.features(documents)
        ranked = self.rank(features, min(k, len(self.labels)), search, self._excluded(exclude, len(features)))
        return Predictions(ranked if threshold <= 0 else _at_least(ranked, threshold), self.labels, ids)

    def rank(
        self, features: Features, k: int, search: Search | None = None, exclude: sparse.csr_array | None = None
    ) -> sparse.csr_array:
        """Return (n, L) scores of the ``k`` best labels, best first."""
        ranked = self.raw_scores(features, k, search or self.config.search, exclude)
        if self.calibration is not None:
            ranked.data = self.calibration(ranked.data)
        return ranked

    def raw_scores(
        self, features: Features, k: int, search: Search, exclude: sparse.csr_array | None = None
    ) -> sparse.csr_array:
        """Return (n, L) scores before calibration: products along the path, averaged over the trees."""
        if len(self.rankers) == 1:
            return self.rankers[0].search(features, search, k, exclude)
        wanted = min(max(_MEMBERS * k, 100), len(self.labels))
        return mean_scores([ranker.search(features, search, wanted, exclude) for ranker in self.rankers], k)

    def features(self, documents: Dataset | Iterable[str]) -> Features:
        """Return the features of documents as they were made in training."""
        if not isinstance(documents, Dataset):
            if isinstance(documents, str):
                raise UsageError("found one string; expected a list of texts, such as [text]")
            if self.vectoriser is None or self.facts.dense_width:
                raise UsageError("this model was trained on ready-made features; expected a Dataset with features")
            return Features.of(self.vectoriser.transform(documents))
        return document_features(documents, self.vectoriser, self.facts)

    def explain(self, text: str, label: str) -> Explanation:
        """Return what each n-gram of ``text`` adds to the margin of each node on the way to ``label``."""
        if label not in self.labels.columns:
            raise UsageError(unknown_name("label", label, self.labels.columns))
        if self.vectoriser is None:
            raise UsageError("this model was trained on ready-made features, which have no words to explain by")
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


def document_features(documents: Dataset, vectoriser: TfIdf | None, facts: Facts | None = None) -> Features:
    """Return sparse features (given, else tf-idf) and dense ones beside them; rows of the dense block get length 1."""
    dense = None if documents.dense is None else _normalised(documents.dense)
    if vectoriser is not None:
        texts = documents.texts if documents.texts is not None else Strings.of([""] * len(documents))
        rows = vectoriser.transform(texts)
    elif documents.features is not None:
        rows = documents.features
    else:
        rows = csr_of(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(len(documents) + 1, np.int64), 0)
    features = Features.of(rows, dense)
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
