"""The contract of trained models, which :class:`longtail.models.model.Model` and
:class:`longtail.models.ensemble_model.Ensemble` fulfil.

:func:`longtail.pipeline.predict` goes from documents to predictions by it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config, Search
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.fingerprints import Fingerprints
from longtail.data.labels import Labels
from longtail.data.strings import Strings, blank, count_blank
from longtail.errors import ModelFolderError, UsageError
from longtail.metrics import Evaluation
from longtail.search.calibration import Calibration
from longtail.search.partial_predictions import PartialPredictions
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.models.ensemble_model import EnsembleExplanation
    from longtail.models.model import Model
    from longtail.networks.embedder import Embedder  # which need torch
    from longtail.networks.ranker import NeuralRanker
    from longtail.rankers.explanation import Explanation

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
    """Labels, facts about the training data, and the calibration of scores; each kind of model
    scores documents in its own way.
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

    @abstractmethod
    def explain(self, text: str, label: str) -> Explanation | EnsembleExplanation:
        """Return what each word of ``text`` adds to the score of ``label``, an id or a name."""

    @abstractmethod
    def predict_part(
        self,
        documents: Dataset,
        k: int = 5,
        *,
        threshold: float = 0.0,
        beam_size: int | None = None,
    ) -> PartialPredictions:
        """Return the ``k`` best labels per document that the loaded shards hold, as
        ``longtail merge`` needs them.
        """

    @property
    @abstractmethod
    def single(self) -> Model | None:
        """The model of one method; None for an ensemble."""

    @abstractmethod
    def weighted_members(self) -> tuple[tuple[Model, float], ...]:
        """Return the models whose scores are averaged, and their weights; of one method itself."""

    @property
    def tree(self) -> LabelTree | None:
        """The label tree that is searched, if there is one."""
        return None

    @property
    def label_graph(self) -> sparse.csr_array | None:
        """The (L, L) normalised label graph, if training made one."""
        return None

    @property
    def network(self) -> Embedder | None:
        """The network, if there is one."""
        return None

    @property
    def neural_ranker(self) -> NeuralRanker | None:
        """The network, if it ranks labels by itself."""
        return None

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

    def warn_of_threshold(self, threshold: float) -> None:
        """Warn, once a model, of a threshold for scores that are not probabilities."""
        if not threshold or self.calibration is not None or "threshold" in self._warned_of:
            return
        self._warned_of.add("threshold")
        log.warning(
            "threshold %g: this model is not calibrated, so it is compared with raw scores, "
            "not with probabilities; to calibrate the model, make it with documents for that: "
            "--valid, or valid=",
            threshold,
        )

    def warn_of_empty(self, documents: Dataset | Strings) -> None:
        """Warn, once a model, of documents in which there is nothing to read."""
        if "empty" in self._warned_of:
            return
        count = _count_empty(documents)
        if not count:
            return
        self._warned_of.add("empty")
        log.warning(
            "%s of the %s documents have no text or features: "
            "their labels are those that any document might have",
            f"{count:,}",
            f"{len(documents):,}",
        )

    @cached_property
    def _warned_of(self) -> set[str]:
        """What the log has been told once of this model."""
        return set()

    def check_k(self, k: int) -> int:
        """Return the number of labels to search for, at most as many as there are."""
        if k < 1:
            raise UsageError(f"k: found {k}; expected at least 1")
        return min(k, len(self.labels))

    def search_settings(self, beam_size: int | None) -> Search:
        """Return the settings of the search, with another beam if one is given."""
        if beam_size is None:
            return self.config.search
        return replace_beam(self.config.search, beam_size)

    def calibrated(self, ranked: sparse.csr_array) -> sparse.csr_array:
        """Replace scores by probabilities in place, where the model is calibrated; return the same
        matrix.
        """
        if not np.isfinite(ranked.data).all():
            problem = "scores that are not finite: weights of the model, or features given, are not"
            raise ModelFolderError(
                f"found {problem}; train the model again, or correct the features"
            )
        if self.calibration is not None:
            ranked.data = self.calibration(ranked.data)
        return ranked

    def readable(self, documents: Dataset | Iterable[str]) -> Dataset | Strings:
        """Return texts in one buffer; refuse texts where the model reads ready-made features."""
        if isinstance(documents, Dataset | Strings):
            return documents
        if isinstance(documents, str):
            raise UsageError("found one string; expected a list of texts, such as [text]")
        if isinstance(documents, Mapping) or hasattr(documents, "columns"):
            raise UsageError(
                "found a table, whose names of columns would be read as texts; expected a list of "
                'texts, such as table["text"]'
            )
        if not self.reads_text:
            raise UsageError(
                "this model was trained on ready-made features; expected a Dataset with features"
            )
        return Strings.of(documents)

    def excluded(self, exclude: Sequence[Iterable[str]] | None, n: int) -> sparse.csr_array | None:
        """Return (n, L) with an entry for each label that may not be predicted; None for none."""
        if exclude is None:
            return None
        if len(exclude) != n:
            raise UsageError(
                f"exclude: found {len(exclude)} lists for {n} documents; expected one a document"
            )
        exclude = list(exclude)  # keeps every list alive, and its identity
        # by identity: documents of one request share their list
        columns_of_list: dict[int, NDArray[np.int32]] = {}
        for names in exclude:
            if isinstance(names, str):
                raise UsageError(
                    f"exclude: found {names!r} for a document; expected a list of labels, such as "
                    f"[{names!r}]"
                )
            if id(names) not in columns_of_list:
                columns_of_list[id(names)] = self._columns_of(names)
        columns = [columns_of_list[id(names)] for names in exclude]
        indptr = np.cumsum([0, *map(len, columns)])
        indices = np.concatenate([np.zeros(0, np.int32), *columns])
        return csr_of(np.ones(len(indices), np.float32), indices, indptr, len(self.labels))

    def _columns_of(self, names: Iterable[str]) -> NDArray[np.int32]:
        """Return the columns of labels, rising; names that the model lacks have none."""
        known = {self.labels.column(name) for name in names if name in self.labels}
        return np.array(sorted(known), np.int32)


def _count_empty(documents: Dataset | Strings) -> int:
    """Return how many documents have neither a text nor features."""
    if isinstance(documents, Strings):
        return count_blank(documents)
    empty = np.ones(len(documents), bool)
    if documents.texts is not None:
        empty = blank(documents.texts)
    if documents.features is not None:
        empty &= np.diff(documents.features.indptr) == 0
    if documents.dense is not None:
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
