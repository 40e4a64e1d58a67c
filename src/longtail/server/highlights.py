"""Which words of a text speak for a label: the n-grams of an explanation, found again where they
stand.
"""

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
    """Return the words that have a weight, in their order; of an ensemble, the members' weighted
    sum.

    The weight of a word is what the n-grams that touch it add, or how far the score of a network
    falls without it."""
    weighed: Spans = {}
    members = (member for member, _ in model.weighted_members())
    for member, (weight, own) in zip(members, explanation.weighted(), strict=True):
        if own is not None:
            _add(weighed, _spans(member, text, own), weight)
    return _apart(weighed)


def _add(weighed: Spans, own: Spans, share: float) -> None:
    for span, weight in own.items():
        weighed[span] = weighed.get(span, 0.0) + share * weight


def _apart(weighed: Spans) -> list[Highlight]:
    """Return spans that do not overlap: members may split words differently, and such are cut at
    all borders.
    """
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
    if not explanation.sums:  # a network alone: words as they stand in the text
        return _words_left_out(text, totals)
    if model.vectoriser is None:
        return {}
    lowered, places = _lowered(text)
    found: Spans = {}
    for block in model.config.tfidf:
        for start, end, weight in _weighed_words(lowered, totals, block):
            span = places[start], places[end - 1] + 1
            found[span] = found.get(span, 0.0) + weight
    return found


def _lowered(text: str) -> tuple[str, range | list[int]]:
    """Return the text in lower case, and where each of its characters comes from: one letter
    becomes two.
    """
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered, range(len(text))
    return lowered, [at for at, letter in enumerate(text) for _ in letter.lower()]


class _Units(NamedTuple):
    """What n-grams are made of, and which words the unit at each place stands in, or between."""

    parts: list[str]
    between: str
    words: list[tuple[int, int]]  # in lower-case text
    first: NDArray[np.int64]  # (units,) the word at or behind a unit
    last: NDArray[np.int64]  # (units,) the word at or before it


def _units(lowered: str, unit: str) -> _Units:
    """Split as tf-idf does: into words of two letters or more, or into characters with white space
    as one blank.
    """
    if unit == "word":
        words = [match.span() for match in _WORDS.finditer(lowered)]
        numbers = np.arange(len(words))
        return _Units([lowered[start:end] for start, end in words], " ", words, numbers, numbers)
    words = [match.span() for match in _CHUNKS.finditer(lowered)]
    places = np.array([match.start() for match in _CHARACTERS.finditer(lowered)], np.int64)
    starts, ends = np.array(words, np.int64).reshape(-1, 2).T
    parts = [" " if lowered[at].isspace() else lowered[at] for at in places.tolist()]
    return _Units(
        parts,
        "",
        words,
        np.searchsorted(ends, places, "right"),
        np.searchsorted(starts, places, "right") - 1,
    )


def _weighed_words(
    lowered: str, totals: Mapping[str, float], block: TfIdf
) -> Iterator[tuple[int, int, float]]:
    """Yield where words begin and end, with the sum of all n-grams that touch them."""
    units = _units(lowered, block.unit)
    changes = np.zeros(len(units.words) + 1)  # of the sum, from one word to the next
    for length in range(block.ngram_min, block.ngram_max + 1):
        for first in range(len(units.parts) - length + 1):
            weight = totals.get(units.between.join(units.parts[first : first + length]))
            if weight is not None:
                changes[units.first[first]] += weight
                changes[units.last[first + length - 1] + 1] -= weight
    for (start, end), weight in zip(units.words, np.cumsum(changes[:-1]).tolist(), strict=True):
        if abs(weight) > _NOTHING:  # what is left of sums and differences is not a weight
            yield start, end, weight


def _words_left_out(text: str, totals: Mapping[str, float]) -> Spans:
    """Return every occurrence, in upper and lower case, of words whose absence changes the score."""
    words = {normalize("NFC", word).casefold(): weight for word, weight in totals.items() if weight}
    if not words:
        return {}
    one = "|".join(map(re.escape, sorted(totals, key=len, reverse=True)))
    found: Spans = {}
    for match in re.finditer(rf"(?<!\w)(?:{one})(?!\w)", text, re.IGNORECASE):
        weight = words.get(normalize("NFC", match[0]).casefold())
        if weight:
            found[match.span()] = weight
    return found
