"""The n-grams that one block of tf-idf features knows: strings in order, document frequencies, and
a hash table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from longtail import config
from longtail.data.strings import Strings
from longtail.errors import ModelFolderError
from longtail.kernels import ngrams, string_order
from longtail.kernels.jit import read_only
from longtail.store.tensors import check_kinds

__all__ = ["Vocabulary", "damaged"]

_LONGEST = 1000  # units of an n-gram in a model that is read


@dataclass
class Vocabulary:
    """N-grams in the order of their bytes, which is their columns, and in how many documents each
    was seen.
    """

    settings: config.TfIdf
    strings: Strings
    df: NDArray[np.integer]
    n_documents: int

    ARRAYS: ClassVar = frozenset({"df", "documents", "rest", "shared", "sizes"})

    def __len__(self) -> int:
        return len(self.strings)

    @cached_property
    def idf(self) -> NDArray[np.float64]:
        """Smoothed, as if one document more had every n-gram: ln((1 + n) / (1 + df)) + 1."""
        idf: NDArray[np.float64] = np.log((1 + self.n_documents) / (1.0 + self.df)) + 1
        return idf

    @cached_property
    def table(self) -> NDArray[np.uint64]:
        """Hash of an n-gram → column."""
        strings = self.strings.packed()
        hashes = ngrams.hash_ngrams(strings.arena, strings.offsets, self.settings.unit == "word")
        table = ngrams.empty_table(len(hashes))
        ngrams.fill_table(hashes, len(hashes), table)
        return table

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return n-grams without the prefix that each shares with the one before, and all numbers
        as narrow as can be.

        idf is not among them: it follows from ``df`` and ``documents``, which are half its size or
        less."""
        strings = self.strings.packed()
        shared, suffixes = string_order.pack_prefixes(strings.arena, strings.offsets)
        documents = np.array([self.n_documents], np.int64)
        sizes = strings.lengths
        return {
            "df": _narrow(self.df),
            "documents": documents,
            "rest": suffixes,
            "shared": shared,
            "sizes": _narrow(sizes),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], settings: config.TfIdf) -> Vocabulary:
        """Undo ``to_arrays``; arrays that contradict one another are refused before a kernel trusts
        them.
        """
        try:
            check_kinds(
                arrays, {"shared": "u", "rest": "u", "sizes": "u", "df": "u", "documents": "i"}
            )
        except ValueError as error:
            raise damaged(str(error)) from None
        shared = read_only(arrays["shared"])
        suffixes = read_only(arrays["rest"])
        sizes = arrays["sizes"].astype(np.int64)
        df = arrays["df"]
        if not len(shared) == len(sizes) == len(df) or len(arrays["documents"]) != 1:
            raise damaged("arrays of different lengths")
        if settings.ngram_max > _LONGEST:
            raise damaged(f"settings that ask for n-grams of {settings.ngram_max} units")
        if suffixes.dtype != np.uint8 or shared.dtype != np.uint8:
            raise damaged(f"n-grams as {suffixes.dtype}, their prefixes as {shared.dtype}")
        if not int(df.max(initial=0)) <= int(arrays["documents"][0]) < 1 << 62:
            raise damaged("n-grams in more documents than there were")
        before = np.append(0, sizes)[:-1]
        if (
            (sizes < 1).any()
            or (shared > np.minimum(sizes, before)).any()
            or (sizes - shared).sum() != len(suffixes)
        ):
            raise damaged("sizes of n-grams that contradict one another")
        offsets = np.append(0, np.cumsum(sizes))
        arena = np.empty(offsets[-1], np.uint8)
        string_order.unpack_prefixes(shared, suffixes, offsets, arena)
        _check_utf8(arena, offsets)
        vocabulary = cls(settings, Strings(arena, offsets), df, int(arrays["documents"][0]))
        _ = vocabulary.idf, vocabulary.table  # now, so that the first document has not to wait
        return vocabulary


def damaged(problem: str) -> ModelFolderError:
    """Return the error of arrays that ``to_arrays`` never made."""
    return ModelFolderError(
        f"tf-idf vocabulary: found {problem}; train the model anew, or take an undamaged copy of it"
    )


def _narrow(numbers: NDArray[np.integer]) -> NDArray[Any]:
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _check_utf8(arena: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
    """Refuse what would lead a kernel over the end of the arena."""
    try:
        arena.tobytes().decode()
    except UnicodeDecodeError as error:
        raise damaged("n-grams that are not UTF-8") from error
    if (arena[offsets[:-1]] & 0xC0 == 0x80).any():
        raise damaged("n-grams that begin inside a character")
