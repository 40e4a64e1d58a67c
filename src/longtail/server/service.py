"""The service behind the endpoints: a loaded model's predictions and explanations, without HTTP;
and highlights, the n-grams of an explanation, located in the text.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import NamedTuple
from unicodedata import normalize

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.config import TfIdf
from longtail.data.dataset import Dataset
from longtail.errors import UsageError
from longtail.kernels import pool
from longtail.models.ensemble_model import Ensemble, EnsembleExplanation
from longtail.models.model import Model
from longtail.models.model_folder import load_model
from longtail.pipeline import predict
from longtail.rankers.explanation import Explanation
from longtail.search.shard_files import open_model_folder
from longtail.server.answers import (
    ExplainResponse,
    Highlight,
    LabelResponse,
    ModelName,
    PathResponse,
    SuggestedLabel,
)
from longtail.server.label_neighbours import LabelDocuments, LabelSearch, related
from longtail.server.label_path import label_path, tree_of
from longtail.server.problem_details import Refusal

__all__ = ["Asked", "BatchKey", "Service", "highlights", "load_service"]

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


_WORDS = re.compile(r"(?u)\b\w\w+\b")  # as tf-idf splits
_CHUNKS = re.compile(r"\S+")
_CHARACTERS = re.compile(r"\s+|\S")
_NOTHING = 1e-12

Spans = dict[tuple[int, int], float]  # code points of the text → weight


def highlights(
    model: Model | Ensemble, text: str, explanation: Explanation | EnsembleExplanation
) -> list[Highlight]:
    """Return the words with a weight, in the order of the text.

    The weight of a word is the sum over the n-grams that touch it, or the decrease of a network's
    score without the word. An ensemble adds up the weights of its members.
    """
    weighed: Spans = {}
    members = (member for member, _ in model.weighted_members())
    for member, (weight, part) in zip(members, explanation.weighted(), strict=True):
        if part is not None:
            _add(weighed, _spans(member, text, part), weight)
    return _apart(weighed)


def _add(weighed: Spans, spans: Spans, share: float) -> None:
    for span, weight in spans.items():
        weighed[span] = weighed.get(span, 0.0) + share * weight


def _apart(weighed: Spans) -> list[Highlight]:
    """Return spans that do not overlap; those of members that split words differently are cut."""
    borders = sorted({at for span in weighed for at in span})
    if not borders:
        return []
    weights = np.zeros(len(borders) - 1)
    covered = np.zeros(len(borders) - 1, bool)
    places = {at: number for number, at in enumerate(borders)}
    for (start, end), weight in weighed.items():
        weights[places[start] : places[end]] += weight
        covered[places[start] : places[end]] = True
    pieces = zip(pairwise(borders), weights.tolist(), covered.tolist(), strict=True)
    return [
        Highlight(start, end, weight) for (start, end), weight, used in pieces if used and weight
    ]


def _spans(model: Model, text: str, explanation: Explanation) -> Spans:
    totals = dict(explanation.summed())
    if not explanation.sums:  # of a network only: words as written in the text
        return _words_left_out(text, totals)
    if model.vectoriser is None:
        return {}
    lowered, positions = _lowered(text)
    spans: Spans = {}
    for block in model.config.tfidf:
        for start, end, weight in _weighed_words(lowered, totals, block):
            span = positions[start], positions[end - 1] + 1
            spans[span] = spans.get(span, 0.0) + weight
    return spans


def _lowered(text: str) -> tuple[str, range | list[int]]:
    """Return the text in lower case, and the position in ``text`` of each of its characters.

    Some letters become two in lower case.
    """
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered, range(len(text))
    return lowered, [at for at, letter in enumerate(text) for _ in letter.lower()]


class _Units(NamedTuple):
    """The units of n-grams, and the word that each unit belongs to or stands beside."""

    parts: list[str]
    between: str
    words: list[tuple[int, int]]  # spans in the lower-case text
    first: NDArray[np.int64]  # (units,) the word at or after a unit
    last: NDArray[np.int64]  # (units,) the word at or before it


def _units(lowered: str, unit: str) -> _Units:
    """Split like tf-idf: into words of two letters or more, or into characters.

    White space counts as one blank.
    """
    if unit == "word":
        words = [match.span() for match in _WORDS.finditer(lowered)]
        numbers = np.arange(len(words))
        return _Units([lowered[start:end] for start, end in words], " ", words, numbers, numbers)
    words = [match.span() for match in _CHUNKS.finditer(lowered)]
    positions = np.array([match.start() for match in _CHARACTERS.finditer(lowered)], np.int64)
    starts, ends = np.array(words, np.int64).reshape(-1, 2).T
    parts = [" " if lowered[at].isspace() else lowered[at] for at in positions.tolist()]
    return _Units(
        parts,
        "",
        words,
        np.searchsorted(ends, positions, "right"),
        np.searchsorted(starts, positions, "right") - 1,
    )


def _weighed_words(
    lowered: str, totals: Mapping[str, float], block: TfIdf
) -> Iterator[tuple[int, int, float]]:
    """Yield the start and end of words with the summed weight of the n-grams that touch them."""
    units = _units(lowered, block.unit)
    changes = np.zeros(len(units.words) + 1)  # of the sum, from one word to the next
    for length in range(block.ngram_min, block.ngram_max + 1):
        for first in range(len(units.parts) - length + 1):
            weight = totals.get(units.between.join(units.parts[first : first + length]))
            if weight is not None:
                changes[units.first[first]] += weight
                changes[units.last[first + length - 1] + 1] -= weight
    for (start, end), weight in zip(units.words, np.cumsum(changes[:-1]).tolist(), strict=True):
        if abs(weight) > _NOTHING:  # beyond rounding errors of the cumulative sum
            yield start, end, weight


def _words_left_out(text: str, totals: Mapping[str, float]) -> Spans:
    """Return all occurrences, in any case, of words whose absence changes the score."""
    words = {normalize("NFC", word).casefold(): weight for word, weight in totals.items() if weight}
    if not words:
        return {}
    one = "|".join(map(re.escape, sorted(totals, key=len, reverse=True)))
    spans: Spans = {}
    for match in re.finditer(rf"(?<!\w)(?:{one})(?!\w)", text, re.IGNORECASE):
        weight = words.get(normalize("NFC", match[0]).casefold())
        if weight:
            spans[match.span()] = weight
    return spans
