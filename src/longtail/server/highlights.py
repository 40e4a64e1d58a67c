"""Highlights: the n-grams of an explanation, located in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from longtail.config import TfIdf
from longtail.models.ensemble_model import Ensemble, EnsembleExplanation
from longtail.models.model import Model
from longtail.rankers.explanation import Explanation
from longtail.server.answers import Highlight

__all__ = ["highlights"]

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
