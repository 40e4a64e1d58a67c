"""The service behind the endpoints: a loaded model's predictions and explanations, without HTTP."""

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
from longtail.server.label_neighbours import LabelDocuments, LabelSearch, related
from longtail.server.label_path import label_path, tree_of
from longtail.server.problem_details import Refusal

__all__ = ["Asked", "BatchKey", "Service", "load_service"]

_SAME_ANYWAY = 50  # up to this k, the first labels do not depend on k, even of averaged rankings
_KEPT_NAMES = 1 << 16  # cached pairs of id and name
_RUNNERS = 2  # batches of a linear model that may run side by side
_TIMED = 3  # timed runs; the fastest counts
_WARM_UP = (
    "Warm up.",
    "Offshore wind turbines in the Baltic Sea, and how they are kept in good order.",
    "-",  # without a word; an empty text would cause a warning
)


class Asked(NamedTuple):
    """A document with the options of its request."""

    text: str
    k: int
    threshold: float
    exclude: tuple[str, ...]


class BatchKey(NamedTuple):
    """Properties shared by the documents of a batch, so that batching changes no prediction."""

    service: Service
    beam_size: int | None
    k: int  # 0: up to 50


@dataclass(frozen=True, eq=False)
class Service:
    """A loaded model with its name and version, model card, and training documents."""

    model: Model | Ensemble
    name: ModelName
    card: str
    documents: LabelDocuments | None  # None: the server has no training documents
    threads: int
    beam_size: int | None

    def key(self, k: int, beam_size: int | None) -> BatchKey:
        """Return the key of the batches that a request may be part of."""
        if k <= _SAME_ANYWAY:
            k = 0
        return BatchKey(self, beam_size or self.beam_size, k)

    def predict(self, key: BatchKey, asked: Sequence[Asked]) -> list[list[SuggestedLabel]]:
        """Return the labels of each document, best first."""
        exclude = None
        if any(document.exclude for document in asked):
            exclude = [document.exclude for document in asked]
        texts = [document.text for document in asked]
        k = max(document.k for document in asked)
        with self._alone, pool.threads(self.threads):
            ranked = predict(self.model, texts, k, beam_size=key.beam_size, exclude=exclude).matrix
        ends = ranked.indptr.tolist()
        columns = ranked.indices.tolist()
        scores = ranked.data.tolist()
        results = []
        for row, document in enumerate(asked):
            self.model.warn_of_threshold(document.threshold)
            here = slice(ends[row], min(ends[row + 1], ends[row] + document.k))
            pairs = zip(columns[here], scores[here], strict=True)
            least = document.threshold or -math.inf  # 0 keeps all: a score may be a margin
            results.append(
                [self._suggested(column, score) for column, score in pairs if score >= least]
            )
        return results

    def explain(self, text: str, label: str) -> ExplainResponse:
        """Explain a label like ``longtail explain --json``, with highlights in the text."""
        known = self.index.resolve(label)
        try:
            with self._alone, pool.threads(self.threads):
                explanation = self.model.explain(text, known)
        except UsageError as error:
            raise Refusal(422, "Cannot be explained", str(error)) from None
        fields = msgspec.to_builtins(explanation)
        return ExplainResponse(**fields, highlights=highlights(self.model, text, explanation))

    def path(self, text: str, label: str | None, alternatives: int) -> PathResponse:
        """Return the path through the label tree to a label; None: to the best label."""
        known = None if label is None else self.index.resolve(label)
        with self._alone, pool.threads(self.threads):
            if known is None:
                best = predict(self.model, [text], 1, beam_size=self.beam_size)[0]
                known = best[0].id if best else None
            try:
                return PathResponse(
                    [] if known is None else label_path(self.model, text, known, alternatives)
                )
            except UsageError as error:  # the label is in a shard that is not loaded
                raise Refusal(422, "Cannot be explained", str(error)) from None

    def label(self, label: str) -> LabelResponse:
        """Describe a label."""
        known = self.index.resolve(label)
        column = self.model.labels.column(known)
        entry = self.model.labels[column]
        examples = []
        if self.documents is not None:
            examples = self.documents.examples(column)
        return LabelResponse(
            entry.id,
            entry.name or entry.id,
            entry.text or None,
            list(entry.aliases),
            entry.uri or None,
            int(self.model.label_counts[column]),
            related(self.model, column, self.documents),
            examples,
        )

    @cached_property
    def index(self) -> LabelSearch:
        """Search for labels; built on first use."""
        return LabelSearch(self.model.labels, self.model.label_counts)

    @property
    def has_tree(self) -> bool:
        """Whether there is a label tree to show."""
        return tree_of(self.model) is not None

    @property
    def has_text(self) -> bool:
        """Whether words of a text can explain a label."""
        return any(
            member.vectoriser is not None or member.neural_ranker is not None
            for member in self._members
        )

    @property
    def runners(self) -> int:
        """Batches that may run side by side: linear kernels release the GIL; a network runs one."""
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
        """A lock for networks, whose buffers two threads cannot share; linear models need none."""
        if self._has_network:
            return threading.Lock()
        return nullcontext()

    @cached_property
    def _names(self) -> Callable[[int], tuple[str, str]]:
        """Cached id and name of a column: reading strings from an arena is slow."""
        labels = self.model.labels
        return lru_cache(_KEPT_NAMES)(lambda column: (labels.ids[column], labels.name(column)))

    def _suggested(self, column: int, score: float) -> SuggestedLabel:
        return SuggestedLabel(*self._names(column), score)

    def warm_up(self) -> float:
        """Compile kernels and read weights once; return the approximate seconds per document."""
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
    """Load and verify the model of a folder, or some of its shards, and warm it up."""
    folder = open_model_folder(path, shards)
    model = load_model(folder, device, shards)
    if not model.reads_text:
        raise UsageError(
            f"{path}: this model was trained on ready-made features, but a server receives texts"
        )
    if not len(model.labels):
        raise UsageError(f"{path}: a model without labels")
    card = ""
    if "README.md" in folder.files:
        card = folder.read_bytes("README.md").decode("utf-8", "replace")
    name = ModelName(path.resolve().name, folder.manifest.sha256[:12])
    by_label = None
    if documents is not None:
        by_label = LabelDocuments.of(documents, model.labels)
    service = Service(model, name, card, by_label, threads, beam_size)
    service.warm_up()
    return service
