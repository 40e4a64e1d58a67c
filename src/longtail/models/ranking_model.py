"""What every trained model does alike, be it one of a method or an ensemble: documents in, ranked
labels out.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config, Search
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.fingerprints import Fingerprints
from longtail.data.labels import Labels
from longtail.data.strings import Strings, blank
from longtail.errors import ModelFolderError, UsageError
from longtail.metrics import Evaluation
from longtail.metrics.analysis import at_least
from longtail.search.calibration import Calibration
from longtail.search.predictions import Predictions

__all__ = ["Facts", "RankingModel", "members_k", "replace_beam"]

log = logging.getLogger("longtail")

_MEMBERS = 2  # labels that each member of an ensemble gives, as a multiple of those asked for


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model was trained on."""

    documents: int
    pairs: int
    held_out: int  # documents that only the calibration has seen
    n_columns: int  # of the sparse block
    dense_width: int
    network_share: float = 0.0  # weight of the network's scores beside the linear classifiers'

    @property
    def widths(self) -> tuple[int, int]:
        """Sparse and dense columns of the features that linear classifiers read."""
        return self.n_columns, self.dense_width


@dataclass(frozen=True)
class RankingModel(ABC):
    """Labels, what was trained on, and what scores mean; how documents are scored is for each kind
    of model to say.
    """

    config: Config
    labels: Labels
    label_counts: NDArray[np.int64]  # documents of each label in training
    facts: Facts
    calibration: Calibration | None = field(default=None, kw_only=True)
    metrics: Evaluation | None = field(default=None, kw_only=True)  # on the documents held out
    # of the documents of training
    fingerprints: Fingerprints | None = field(default=None, kw_only=True)

    @abstractmethod
    def raw_scores(
        self,
        documents: Dataset | Strings,
        k: int,
        search: Search,
        exclude: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return (n, L) scores before calibration of ``k`` labels a document, best first."""

    @abstractmethod
    def embed(self, documents: Dataset | Iterable[str]) -> NDArray[np.float32]:
        """Return a network's (n, d) vectors of documents."""

    @property
    def missing_score(self) -> float:
        """The score, before calibration, of a label that is not found: 0, or −1 where scores are
        margins.
        """
        return 0.0

    @property
    def all_fingerprints(self) -> tuple[Fingerprints, ...]:
        """Fingerprints of the training documents, of an ensemble those of each member; older models
        have none.
        """
        if self.fingerprints is None:
            return ()
        return (self.fingerprints,)

    @property
    @abstractmethod
    def reads_text(self) -> bool:
        """Whether texts are all that is needed, no ready-made features."""

    @property
    def preset(self) -> str:
        """The recipe of a paper that it was trained with, which is called by its benchmark; empty
        for none.
        """
        return self.config.preset

    def predict(
        self,
        documents: Dataset | Iterable[str],
        k: int = 5,
        *,
        threshold: float = 0.0,
        beam_size: int | None = None,
        exclude: Sequence[Iterable[str]] | None = None,
    ) -> Predictions:
        """Return the ``k`` best labels of each document with a score of at least ``threshold``,
        best first.

        Scores are probabilities where the model is calibrated, else what the ranker gives: products
        along the path, shares of votes, or margins, which may be negative.

        Args:
            documents: texts, or a dataset.
            k: labels of each document.
            threshold: the least score; 0 keeps all, also those below 0. It is a probability where
                the model is calibrated; where it is not, the log warns once.
            beam_size: nodes kept on each level of a label tree; None: as the settings say.
            exclude: labels of each document that may not come out.
        """
        self.warn_of_threshold(threshold)
        most, search = self._asked(k, beam_size)
        ids = documents.ids if isinstance(documents, Dataset) else None
        documents = self._readable(documents)
        self._warn_of_empty(documents)
        ranked = self._calibrated(
            self.raw_scores(documents, most, search, self._excluded(exclude, len(documents)))
        )
        return Predictions(at_least(ranked, threshold) if threshold else ranked, self.labels, ids)

    def warn_of_threshold(self, threshold: float) -> None:
        """Warn, once a model, of a threshold for scores that are not probabilities."""
        if not threshold or self.calibration is not None or "threshold" in self._warned_of:
            return
        self._warned_of.add("threshold")
        log.warning(
            "threshold %g: this model is not calibrated, so it is compared with raw scores, not with probabilities; "
            "to calibrate the model, make it with documents for that: --valid, or valid=",
            threshold,
        )

    def _warn_of_empty(self, documents: Dataset | Strings) -> None:
        """Warn, once a model, of documents in which there is nothing to read."""
        if "empty" in self._warned_of or not (count := _count_empty(documents)):
            return
        self._warned_of.add("empty")
        log.warning(
            "%s of the %s documents have no text or features: their labels are those that any document might have",
            f"{count:,}",
            f"{len(documents):,}",
        )

    @cached_property
    def _warned_of(self) -> set[str]:
        """What the log has been told once of this model."""
        return set()

    def count_unread(
        self, documents: Dataset, predictions: Predictions, beam_size: int | None = None
    ) -> int:
        """Return how many documents hold nothing that the model knows: their labels are those of an
        empty text.

        Args:
            documents: The documents.
            predictions: Their predictions by :meth:`predict`, with the same ``beam_size``.
            beam_size: Nodes kept on each level of a label tree.
        """
        if documents.texts is None or not self.reads_text:
            return 0
        lengths = np.diff(predictions.matrix.indptr)
        k = int(lengths.max(initial=1)) or 1
        most, search = self._asked(k, beam_size)
        nothing = self._calibrated(self.raw_scores(Strings.of([""]), most, search, None))
        count = 0
        for length in np.unique(lengths[lengths > 0]):
            rows = predictions.matrix[np.flatnonzero(lengths == length)]
            same = rows.indices.reshape(-1, length) == nothing.indices[:length]
            same &= rows.data.reshape(-1, length) == nothing.data[:length]
            count += int(same.all(axis=1).sum())
        return count

    def _asked(self, k: int, beam_size: int | None) -> tuple[int, Search]:
        """Return how many labels to look for, no more than there are, and how."""
        if k < 1:
            raise UsageError(f"k: found {k}; expected at least 1")
        if beam_size is None:
            search = self.config.search
        else:
            search = replace_beam(self.config.search, beam_size)
        return min(k, len(self.labels)), search

    def _calibrated(self, ranked: sparse.csr_array) -> sparse.csr_array:
        """Return the very matrix of scores with probabilities in their place, if the model knows
        any.
        """
        if not np.isfinite(ranked.data).all():
            found = "scores that are not finite: weights of the model, or features given, are not"
            raise ModelFolderError(f"found {found}; train the model again, or mend the features")
        if self.calibration is not None:
            ranked.data = self.calibration(ranked.data)
        return ranked

    def _readable(self, documents: Dataset | Iterable[str]) -> Dataset | Strings:
        if isinstance(documents, Dataset | Strings):
            return documents
        if isinstance(documents, str):
            raise UsageError("found one string; expected a list of texts, such as [text]")
        if not self.reads_text:
            raise UsageError(
                "this model was trained on ready-made features; expected a Dataset with features"
            )
        return Strings.of(documents)

    def _excluded(self, exclude: Sequence[Iterable[str]] | None, n: int) -> sparse.csr_array | None:
        if exclude is None:
            return None
        if len(exclude) != n:
            raise UsageError(
                f"exclude: found {len(exclude)} lists for {n} documents; expected one a document"
            )
        exclude = list(exclude)  # which keeps every list alive, and its identity
        # by identity: documents of one request share their list
        found: dict[int, NDArray[np.int32]] = {}
        for names in exclude:
            if id(names) not in found:
                found[id(names)] = self._columns_of(names)
        columns = [found[id(names)] for names in exclude]
        indptr = np.cumsum([0, *map(len, columns)])
        indices = np.concatenate([np.zeros(0, np.int32), *columns])
        return csr_of(np.ones(len(indices), np.float32), indices, indptr, len(self.labels))

    def _columns_of(self, names: Iterable[str]) -> NDArray[np.int32]:
        """Return the columns of labels, rising; names that the model lacks have none."""
        known = {self.labels.column(name) for name in names if name in self.labels}
        return np.array(sorted(known), np.int32)


def _count_empty(documents: Dataset | Strings) -> int:
    """Return how many documents have neither a text nor features."""
    texts = documents if isinstance(documents, Strings) else documents.texts
    empty = np.ones(len(documents), bool) if texts is None else blank(texts)
    if isinstance(documents, Dataset) and documents.features is not None:
        empty &= np.diff(documents.features.indptr) == 0
    if isinstance(documents, Dataset) and documents.dense is not None:
        empty &= ~documents.dense.any(axis=1)
    return int(empty.sum())


def members_k(k: int, n_labels: int) -> int:
    """Return how many labels each member of an ensemble gives, so that the ``k`` best by their mean
    are among them.
    """
    return min(max(_MEMBERS * k, 100), n_labels)


def replace_beam(search: Search, beam_size: int) -> Search:
    """Return the settings with another beam; the search is no longer exact."""
    if beam_size < 1:
        raise UsageError(f"beam size: found {beam_size}; expected at least 1")
    return msgspec.structs.replace(search, beam_size=beam_size, exact=False)
