"""What every trained model does alike, be it one of a method or an ensemble: documents in, ranked labels out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config, Search
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.errors import ModelFolderError, UsageError
from longtail.metrics import Evaluation
from longtail.metrics.analysis import at_least
from longtail.search.calibration import Calibration
from longtail.search.predictions import Predictions

__all__ = ["Facts", "RankingModel", "members_k", "replace_beam"]

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
    """Labels, what was trained on, and what scores mean; how documents are scored is for each kind of model to say."""

    config: Config
    labels: Labels
    label_counts: NDArray[np.int64]  # documents of each label in training
    facts: Facts
    calibration: Calibration | None = field(default=None, kw_only=True)
    metrics: Evaluation | None = field(default=None, kw_only=True)  # on the documents held out

    @abstractmethod
    def raw_scores(
        self, documents: Dataset | Strings, k: int, search: Search, exclude: sparse.csr_array | None = None
    ) -> sparse.csr_array:
        """Return (n, L) scores before calibration of ``k`` labels a document, best first."""

    @abstractmethod
    def embed(self, documents: Dataset | Iterable[str]) -> NDArray[np.float32]:
        """Return a network's (n, d) vectors of documents."""

    @property
    def missing_score(self) -> float:
        """The score, before calibration, of a label that is not found: 0, or −1 where scores are margins."""
        return 0.0

    @property
    @abstractmethod
    def reads_text(self) -> bool:
        """Whether texts are all that is needed, no ready-made features."""

    @property
    def preset(self) -> str:
        """The recipe of a paper that it was trained with, which is called by its benchmark; empty for none."""
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
        """Return the ``k`` best labels of each document with a score of at least ``threshold``, best first.

        Scores are probabilities where the model is calibrated, else what the ranker gives: products along the path,
        shares of votes, or margins, which may be negative.

        Args:
            documents: texts, or a dataset.
            k: labels of each document.
            threshold: the least score; 0 keeps all, also those below 0.
            beam_size: nodes kept on each level of a label tree; None: as the settings say.
            exclude: labels of each document that may not come out.
        """
        most, search = self._asked(k, beam_size)
        ids = documents.ids if isinstance(documents, Dataset) else None
        documents = self._readable(documents)
        ranked = self._calibrated(self.raw_scores(documents, most, search, self._excluded(exclude, len(documents))))
        return Predictions(at_least(ranked, threshold) if threshold else ranked, self.labels, ids)

    def _asked(self, k: int, beam_size: int | None) -> tuple[int, Search]:
        """Return how many labels to look for, no more than there are, and how."""
        if k < 1:
            raise UsageError(f"k: found {k}; expected at least 1")
        search = self.config.search if beam_size is None else replace_beam(self.config.search, beam_size)
        return min(k, len(self.labels)), search

    def _calibrated(self, ranked: sparse.csr_array) -> sparse.csr_array:
        """Return the very matrix of scores with probabilities in their place, if the model knows any."""
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
            raise UsageError("this model was trained on ready-made features; expected a Dataset with features")
        return Strings.of(documents)

    def _excluded(self, exclude: Sequence[Iterable[str]] | None, n: int) -> sparse.csr_array | None:
        if exclude is None:
            return None
        if len(exclude) != n:
            raise UsageError(f"exclude: found {len(exclude)} lists for {n} documents; expected one a document")
        columns = [sorted({self.labels.column(name) for name in names if name in self.labels}) for names in exclude]
        indptr = np.cumsum([0, *map(len, columns)])
        indices = np.array([column for own in columns for column in own], np.int32)
        return csr_of(np.ones(len(indices), np.float32), indices, indptr, len(self.labels))


def members_k(k: int, n_labels: int) -> int:
    """Return how many labels each member of an ensemble gives, so that the ``k`` best by their mean are among them."""
    return min(max(_MEMBERS * k, 100), n_labels)


def replace_beam(search: Search, beam_size: int) -> Search:
    """Return the settings with another beam; the search is no longer exact."""
    if beam_size < 1:
        raise UsageError(f"beam size: found {beam_size}; expected at least 1")
    return msgspec.structs.replace(search, beam_size=beam_size, exact=False)
