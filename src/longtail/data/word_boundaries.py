"""Texts that words do not divide: text without spaces, such as Japanese or Thai, and single
characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

__all__ = ["READ_CHARACTERS", "are_many", "hardly_split"]

READ_CHARACTERS = "--set tfidf.0.unit=char --set tfidf.0.ngram_max=3"

_MANY = 0.2  # share of the documents from which on a person is warned
_LEAST = 5  # documents

_WORD = re.compile(r"\b\w\w+\b")  # the words of tf-idf
# Thai, Lao, Tibetan, Burmese, Khmer, kana, and the ideographs of Chinese and Japanese
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003134f]"
)
# characters of such a script between spaces, in the mean, of a text that was divided before
_LONGEST_PIECE = 8
_LOOKED_AT = 2000  # characters of a text


def hardly_split(texts: Iterable[str]) -> list[int]:
    """Return the places of the texts that are not blank and have one word or none, or no spaces
    between words.
    """
    return [row for row, text in enumerate(texts) if _is_hardly_split(text[:_LOOKED_AT])]


def are_many(count: int, of: int) -> bool:
    """Tell whether so many texts that are hardly split are worth a warning."""
    return count >= max(_LEAST, _MANY * of)


def _is_hardly_split(text: str) -> bool:
    if not text or text.isspace():
        return False
    if len(list(islice(_WORD.finditer(text), 2))) < 2:
        return True
    if text.isascii():
        return False
    characters = len(_WITHOUT_SPACES.findall(text))
    pieces = text.split()
    length = sum(map(len, pieces))
    return 2 * characters > length and length > _LONGEST_PIECE * len(pieces)
