"""A loaded model as the server uses it: what every endpoint answers, without HTTP."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from longtail.data.dataset import Dataset
from longtail.errors import UsageError
from longtail.kernels import pool
from longtail.models.ensemble_model import Ensemble
from longtail.models.model import Model
from longtail.models.model_folder import load_model
from longtail.pipeline import predict
from longtail.search.shard_files import open_model_folder
from longtail.server.answers import (
    ExplainResponse,
    LabelResponse,
    ModelName,
    PathResponse,
    SuggestedLabel,
)
from longtail.server.highlights import highlights
from longtail.server.label_neighbours import LabelDocuments, related
from longtail.server.label_path import label_path, tree_of
from longtail.server.label_search import LabelSearch
from longtail.server.problem_details import Refusal

__all__ = ["Asked", "BatchKey", "Service", "load_service"]

# of up to so many labels the first are the same whatever k is, also where rankings are averaged
_SAME_ANYWAY = 50
_KEPT_NAMES = 1 << 16
_RUNNERS = 2
_TIMED = 3  # runs of which the quickest counts
_WARM_UP = (
    "Warm up.",
    "Offshore wind turbines in the Baltic Sea, and how they are kept in good order.",
    "-",  # without a word; an empty text would be warned of
)


class Asked(NamedTuple):
    """What is asked for one document."""

    text: str
    k: int
    threshold: float
    exclude: tuple[str, ...]


class BatchKey(NamedTuple):
    """What documents of one batch share, so that none of them is answered otherwise than alone."""

    service: Service
    beam_size: int | None
    k: int  # 0: up to 50


@dataclass(frozen=True, eq=False)
class Service:
    """A model with its name and version, and what makes labels findable."""

    model: Model | Ensemble
    name: ModelName
    card: str
    documents: LabelDocuments | None  # where training documents were given
    threads: int
    beam_size: int | None

    def key(self, k: int, beam_size: int | None) -> BatchKey:
        """Return what a request must have in common with others of its batch."""
        return BatchKey(self, beam_size or self.beam_size, 0 if k <= _SAME_ANYWAY else k)

    def predict(self, key: BatchKey, asked: Sequence[Asked]) -> list[list[SuggestedLabel]]:
        """Return the labels of each document, best first."""
        exclude = [own.exclude for own in asked] if any(own.exclude for own in asked) else None
        k = max(own.k for own in asked)
        with self._alone, pool.threads(self.threads):
            texts = [own.text for own in asked]
            ranked = predict(self.model, texts, k, beam_size=key.beam_size, exclude=exclude).matrix
        ends = ranked.indptr.tolist()
        columns = ranked.indices.tolist()
        scores = ranked.data.tolist()
        found = []
        for row, own in enumerate(asked):
            self.model.warn_of_threshold(own.threshold)
            here = slice(ends[row], min(ends[row + 1], ends[row] + own.k))
            pairs = zip(columns[here], scores[here], strict=True)
            least = own.threshold or -math.inf  # 0 keeps all: a score may be a margin
            found.append(
                [self._suggested(column, score) for column, score in pairs if score >= least]
            )
        return found

    def explain(self, text: str, label: str) -> ExplainResponse:
        """Return why a label came out, as ``longtail explain --json`` does, and the words that did
        it.
        """
        known = self.index.resolve(label)
        try:
            with self._alone, pool.threads(self.threads):
                explanation = self.model.explain(text, known)
        except UsageError as error:
            raise Refusal(422, "Not to be explained", str(error)) from None
        fields = msgspec.to_builtins(explanation)
        return ExplainResponse(**fields, highlights=highlights(self.model, text, explanation))

    def path(self, text: str, label: str | None, alternatives: int) -> PathResponse:
        """Return the way through the label tree to a label, or to the best one."""
        known = None if label is None else self.index.resolve(label)
        with self._alone, pool.threads(self.threads):
            if known is None:
                best = predict(self.model, [text], 1, beam_size=self.beam_size)[0]
                known = best[0].id if best else None
            try:
                return PathResponse(
                    [] if known is None else label_path(self.model, text, known, alternatives)
                )
            except UsageError as error:  # the label is in a shard that is not held here
                raise Refusal(422, "Not to be explained", str(error)) from None

    def label(self, label: str) -> LabelResponse:
        """Return all that is known of a label."""
        known = self.index.resolve(label)
        column = self.model.labels.column(known)
        own = self.model.labels[column]
        return LabelResponse(
            own.id,
            own.name or own.id,
            own.text or None,
            list(own.aliases),
            own.uri or None,
            int(self.model.label_counts[column]),
            related(self.model, column, self.documents),
            [] if self.documents is None else self.documents.examples(column),
        )

    @cached_property
    def index(self) -> LabelSearch:
        """Labels by parts of their names; made when first asked for."""
        return LabelSearch(self.model.labels, self.model.label_counts)

    @property
    def has_tree(self) -> bool:
        """Whether there is a way through a label tree to show."""
        return tree_of(self.model) is not None

    @property
    def has_text(self) -> bool:
        """Whether words of a text explain a label."""
        return any(
            member.vectoriser is not None or member.neural_ranker is not None
            for member in self._members
        )

    @property
    def runners(self) -> int:
        """Batches that may run side by side: kernels of linear models let go of the GIL, a network
        is one.
        """
        cores = self.threads or pool.thread_count()
        if self._has_network:
            return 1
        return min(cores, _RUNNERS)

    @property
    def _has_network(self) -> bool:
        return any(member.network is not None for member in self._members)

    @property
    def _members(self) -> tuple[Model, ...]:
        return tuple(member for member, _ in self.model.weighted_members())

    @cached_property
    def _alone(self) -> AbstractContextManager[object]:
        """A network has buffers that two threads may not share; linear models are only read."""
        if self._has_network:
            return threading.Lock()
        return nullcontext()

    @cached_property
    def _names(self) -> Callable[[int], tuple[str, str]]:
        """Id and name of a column; strings are slow to take out of an arena."""
        labels = self.model.labels
        return lru_cache(_KEPT_NAMES)(lambda column: (labels.ids[column], labels.name(column)))

    def _suggested(self, column: int, score: float) -> SuggestedLabel:
        return SuggestedLabel(*self._names(column), score)

    def warm_up(self) -> float:
        """Compile kernels and touch weights, once; return the seconds that a document takes,
        roughly.
        """
        return self._document_seconds

    @cached_property
    def _document_seconds(self) -> float:
        asked = [Asked(text, 5, 0.0, ()) for text in _WARM_UP]
        key = self.key(5, None)
        self.predict(key, asked)
        self.predict(key, [asked[1]._replace(exclude=(self.model.labels.ids[0],))])
        return min(self._seconds(key, asked) for _ in range(_TIMED)) / len(asked)

    def _seconds(self, key: BatchKey, asked: Sequence[Asked]) -> float:
        begin = monotonic()
        self.predict(key, asked)
        return monotonic() - begin


def load_service(
    path: Path,
    device: str,
    threads: int,
    beam_size: int | None,
    documents: Dataset | None = None,
    shards: Collection[int] | None = None,
) -> Service:
    """Return the verified model of a folder, or some of its shards, ready to answer."""
    folder = open_model_folder(path, shards)
    model = load_model(folder, device, shards)
    if not model.reads_text:
        raise UsageError(
            f"{path}: this model was trained on ready-made features, and a server is given texts"
        )
    if not len(model.labels):
        raise UsageError(f"{path}: a model without labels")
    if "README.md" in folder.files:
        card = folder.read_bytes("README.md").decode("utf-8", "replace")
    else:
        card = ""
    name = ModelName(path.resolve().name, folder.manifest.sha256[:12])
    known = None if documents is None else LabelDocuments.of(documents, model.labels)
    service = Service(model, name, card, known, threads, beam_size)
    service.warm_up()
    return service
