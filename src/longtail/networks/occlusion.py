"""Why a label came out of a network: how much its score falls when a word is left out of the text.

Zeiler and Fergus 2014, Visualizing and Understanding Convolutional Networks, section 4.2
(«occlusion»), with words in place of patches. A fall is exact, and is all that it is: what leaving
out this one word does. Words act together, so falls do not add up to the score, nor to what leaving
out several words does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol
from unicodedata import category, normalize

import numpy as np
from numpy.typing import NDArray
from scipy import special

from longtail.data.strings import Strings
from longtail.features.tokens import Tokeniser, Tokens
from longtail.rankers.explanation import Contribution, Step

__all__ = ["MOST_WORDS", "LabelScorer", "Occlusions", "occlusions"]

MOST_WORDS = 256  # different ones, the first of the text: as many passes through the network

_CHUNK = re.compile(r"\S+")
# in a word: apostrophes, the soft hyphen, and what joins or parts letters of one word
_INSIDE = "'’\u00ad\u200c\u200d"
_WORD = re.compile(rf"[^\s{_INSIDE}]+(?:[{_INSIDE}]+[^\s{_INSIDE}]+)*")
_LARGEST = 1 - 2**-53  # the score next to 1, whose logit is a number


class LabelScorer(Protocol):
    """The network to explain: one that ranks, as :class:`~longtail.networks.ranker.NeuralRanker`
    does.
    """

    tokeniser: Tokeniser

    def label_scores(
        self, texts: Strings | Iterable[str] | Tokens, label: int
    ) -> NDArray[np.float64]:
        """Return the (n,) scores of one label, between 0 and 1."""


@dataclass(frozen=True)
class Occlusions:
    """Changes of the logit of a label's score, log(s / (1 − s)), by leaving out each word of a
    text.
    """

    score: float  # of the text as it is
    words: tuple[str, ...]  # as each first stands there; the largest fall, by absolute value, first
    counts: tuple[int, ...]  # how often each stands there
    falls: tuple[float, ...]  # of the logit; below 0: it rises

    def step(self) -> Step:
        """Return it as the step of an explanation."""
        parts = zip(self.words, self.counts, self.falls, strict=True)
        contributions = tuple(
            Contribution(word, count, fall / count, fall) for word, count, fall in parts
        )
        name = "the network, with one word at a time left out"
        margin = float(_logits(np.array(self.score)))
        return Step(0, 0, name, margin, self.score, 0.0, 0.0, contributions, "left-out")


def occlusions(ranker: LabelScorer, text: str, label: int) -> Occlusions:
    """Return the change by leaving out each word: all its occurrences, in upper and lower case, of
    the first 256 words.

    Words whose absence changes no token, as those behind the last one that is read, are not listed.
    """
    text, places = _readable_part(text, ranker.tokeniser.max_tokens)
    left_out = list(places.values())[:MOST_WORDS]
    keep_lines = ranker.tokeniser.cleaning != "none"  # where a line break is a token
    texts = [text, *(_without(text, spans, keep_lines) for spans in left_out)]
    tokens = ranker.tokeniser(texts)
    whole, *others = np.split(tokens.ids, tokens.ends[1:-1])
    read = [at for at, row in enumerate(others) if not np.array_equal(row, whole)]
    scores = ranker.label_scores([text, *(texts[1 + at] for at in read)], label)
    logits = _logits(scores)
    falls = logits[0] - logits[1:]
    order = np.argsort(-np.abs(falls), kind="stable").tolist()
    spans = [left_out[read[at]] for at in order]
    words = tuple(text[slice(*occurrences[0])] for occurrences in spans)
    return Occlusions(float(scores[0]), words, tuple(map(len, spans)), tuple(falls[order].tolist()))


def _logits(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    logits: NDArray[np.float64] = special.logit(
        np.clip(scores, np.finfo(np.float64).tiny, _LARGEST)
    )
    return logits


def _readable_part(text: str, max_tokens: int) -> tuple[str, dict[str, list[tuple[int, int]]]]:
    """Return as much of a text as can be read whichever word is left out, and the places of its
    words, folded.

    A word is a token at least: where ``max_tokens`` words are left without the most frequent one, a
    book costs no more than a page."""
    places: dict[str, list[tuple[int, int]]] = {}
    most = 0
    for number, (start, end) in enumerate(_words(text), 1):
        occurrences = places.setdefault(normalize("NFC", text[start:end]).casefold(), [])
        occurrences.append((start, end))
        most = max(most, len(occurrences))
        if number - most > max_tokens:
            return text[:end], places
    return text, places


def _words(text: str) -> Iterator[tuple[int, int]]:
    """Yield where words begin and end: letters, marks on them and digits, between white space or
    punctuation.
    """
    for chunk in _CHUNK.finditer(text):
        letters = "".join(
            char if char in _INSIDE or category(char)[0] in "LMN" else " " for char in chunk[0]
        )
        for word in _WORD.finditer(letters):
            if any(map(str.isalnum, word[0])):  # not a mark alone, as beside some pictograms
                yield chunk.start() + word.start(), chunk.start() + word.end()


def _without(text: str, spans: list[tuple[int, int]], keep_lines: bool = False) -> str:
    """Return the text without these places, and of the white space around each without what stands
    behind.

    With ``keep_lines`` line breaks stay.
    """
    parts = []
    at = 0
    for start, end in spans:
        parts.append(text[at:start])
        at = end
        if start == 0 or text[start - 1].isspace():
            while at < len(text) and text[at].isspace() and not (keep_lines and text[at] == "\n"):
                at += 1
    return "".join([*parts, text[at:]])
