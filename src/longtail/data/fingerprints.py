"""Fingerprints of documents: hashes by which test data is compared with training data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.strings import Strings

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset

__all__ = ["KEPT", "Fingerprints", "document_hashes", "shared_ids", "shared_with", "string_hashes"]

KEPT = 1 << 20  # hashes that a model keeps, at most: 8 MiB
_BYTES = 8


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """Sorted hashes of the different documents of a training set, the smallest ones where there are
    many.

    Hashes are as good as random, so the smallest of them are a sample of the documents: of other
    data, those with hashes in the same range are looked up, and they stand for all."""

    hashes: NDArray[np.uint64]
    complete: bool = True

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], kept: int = KEPT) -> Fingerprints:
        """Return the fingerprints of documents by their hashes, at most ``kept`` of them."""
        different = np.unique(hashes[hashes > 0])
        return cls(different[:kept], len(different) <= kept)

    @property
    def bound(self) -> int:
        """The largest hash that is looked up."""
        if self.complete or not len(self.hashes):
            return np.iinfo(np.uint64).max
        return int(self.hashes[-1])

    def known(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return (n,) whether each of ``hashes`` is one of these."""
        if not len(self.hashes):
            return np.zeros(len(hashes), bool)
        positions = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        are_known: NDArray[np.bool_] = self.hashes[positions] == hashes
        return are_known


def shared_with(documents: Dataset, training: Sequence[Fingerprints]) -> int:
    """Return how many documents stand in any of several training sets, an estimate where these are
    sampled.
    """
    if not training:
        return 0
    hashes = document_hashes(documents)
    hashes = hashes[hashes > 0]
    compared = hashes[hashes <= min(fingerprints.bound for fingerprints in training)]
    if not len(compared):
        return 0
    known = np.zeros(len(compared), bool)
    for fingerprints in training:
        known |= fingerprints.known(compared)
    return round(int(known.sum()) * len(hashes) / len(compared))


def shared_ids(documents: Dataset, others: Dataset) -> int:
    """Return how many documents have an id of one of the ``others``; numbers are no evidence, as
    any file has them.
    """
    if documents.ids is None or others.ids is None:
        return 0
    known = set(others.ids)
    return sum(not document.isdecimal() and document in known for document in documents.ids)


def document_hashes(documents: Dataset) -> NDArray[np.uint64]:
    """Return (N,) hashes of texts, else of ready-made features; 0 for documents with neither."""
    if documents.texts is not None:
        return string_hashes(documents.texts)
    elif documents.features is not None:
        return _hashes(_row_pieces(documents.features))
    elif documents.dense is not None:
        return _hashes(row.tobytes() if row.any() else b"" for row in documents.dense)
    return np.zeros(len(documents), np.uint64)


def string_hashes(strings: Strings) -> NDArray[np.uint64]:
    """Return (n,) hashes of strings without outer white space; 0 for those that are empty then."""
    return _hashes(text.strip().encode() for text in strings)


def _hashes(pieces: Iterable[bytes]) -> NDArray[np.uint64]:
    raw = b"".join(map(_digest, pieces))
    return np.frombuffer(raw, "<u8").astype(np.uint64)


def _digest(piece: bytes) -> bytes:
    """Return a hash; 0 for nothing."""
    if not piece:
        return bytes(_BYTES)
    return blake2b(piece, digest_size=_BYTES).digest()


def _row_pieces(features: sparse.csr_array) -> Iterator[bytes]:
    columns = features.indices.astype("<i8")
    values = features.data.astype("<f4")
    for start, end in pairwise(features.indptr.tolist()):
        yield columns[start:end].tobytes() + values[start:end].tobytes()
