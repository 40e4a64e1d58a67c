"""Batches of documents for training and inference: of like length, in an order that (seed, epoch)
decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

if TYPE_CHECKING:
    from longtail.features.tokens import Tokens

__all__ = ["Batch", "Batches", "prefetched"]

Item = TypeVar("Item")
Made = TypeVar("Made")

# batches whose documents are sorted by length together: little padding, yet batches stay random
_WINDOW = 50
_AHEAD = 4  # batches made before they are asked for
_POSITIVES = 4  # the width of positives is a multiple of this, for few shapes


@dataclass(frozen=True)
class Batch:
    """Token ids and true labels of some documents.

    ``ids`` (B, T) int64; ``mask`` (B, T) bool, None where nothing is padded; ``positives`` (B, P)
    int32 positions of labels, −1 at padding, with ``values`` (B, P) float32, 0 there; ``rows`` (B,)
    tells which documents they are. ``epoch`` is the one that they are trained in, from 0 on."""

    ids: Tensor
    mask: Tensor | None
    positives: Tensor
    values: Tensor
    rows: NDArray[np.int64]
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device) -> Batch:
        """Return the batch on ``device``; the copy runs beside what the device does if memory is
        pinned.
        """
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """Return the batch in page-locked memory, which the device can fetch from by itself."""
        return self._each(Tensor.pin_memory)

    def split(self, size: int) -> list[Batch]:
        """Return batches of at most ``size`` documents, in order; they share this one's memory."""
        if size >= len(self):
            return [self]
        cuts = [slice(at, at + size) for at in range(0, len(self), size)]
        return [self._each(itemgetter(cut), self.rows[cut]) for cut in cuts]

    def _each(
        self, change: Callable[[Tensor], Tensor], rows: NDArray[np.int64] | None = None
    ) -> Batch:
        mask = self.mask
        if mask is not None:
            mask = change(mask)
        if rows is None:
            rows = self.rows
        return Batch(
            change(self.ids), mask, change(self.positives), change(self.values), rows, self.epoch
        )


class Batches:
    """Cuts documents into batches; ``positives`` is csr (n, L), columns in the tree's order, values
    soft targets.
    """

    def __init__(
        self,
        tokens: Tokens,
        positives: sparse.csr_array,
        batch_size: int,
        seed: int,
        by_length: bool = True,
    ) -> None:
        """Take tokens and labels; ``by_length``: batches of texts of like length, which have little
        padding.
        """
        self.tokens = tokens
        self.batch_size = batch_size
        self.seed = seed
        self._window = 1
        if by_length:
            self._window = _WINDOW
        self._positives = positives
        # nothing is learnt from the others
        self._labelled = np.flatnonzero(np.diff(self._positives.indptr))
        self._pin = torch.cuda.is_available()

    def __len__(self) -> int:
        """Return the batches an epoch."""
        return -(-self.n_documents // self.batch_size)

    @property
    def n_documents(self) -> int:
        """Documents an epoch: those with a label."""
        return len(self._labelled)

    def epoch(self, number: int, start: int = 0) -> Generator[Batch, None, None]:
        """Yield the batches of epoch ``number`` from position ``start`` on: each labelled document
        is in one.
        """
        return prefetched(
            partial(self._batch, epoch=number), islice(self._order(number), start, None)
        )

    @classmethod
    def in_order(cls, tokens: Tokens, batch_size: int) -> Generator[Batch, None, None]:
        """Yield every document once without labels, the longest first: what memory allows is known
        at once.
        """
        none = np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(len(tokens) + 1, np.int64)
        unknown = sparse.csr_array(none, shape=(len(tokens), 0))
        rows = np.argsort(-tokens.lengths, kind="stable")
        return prefetched(cls(tokens, unknown, batch_size, 0)._batch, _cut(rows, batch_size))

    def _order(self, number: int) -> list[NDArray[np.int64]]:
        """Return the rows of each batch of an epoch."""
        rng = np.random.default_rng((self.seed, number))
        shuffled = rng.permutation(self._labelled)
        windows = _cut(shuffled, self._window * self.batch_size)
        lengths = self.tokens.lengths
        by_length = [window[np.argsort(lengths[window], kind="stable")] for window in windows]
        batches = [rows for window in by_length for rows in _cut(window, self.batch_size)]
        return [batches[at] for at in rng.permutation(len(batches))]

    def _batch(self, rows: NDArray[np.int64], epoch: int = 0) -> Batch:
        ids, mask = self.tokens.padded(rows)
        positives, values = self._padded_positives(rows)
        padding = None
        if not mask.all():
            padding = torch.from_numpy(mask)
        tensors = (
            torch.from_numpy(ids),
            padding,
            torch.from_numpy(positives),
            torch.from_numpy(values),
        )
        batch = Batch(*tensors, rows, epoch)
        if self._pin:
            return batch.pinned()
        return batch

    def _padded_positives(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the labels of ``rows`` and their values, both (B, P), as wide as the longest row
        needs.
        """
        begins = self._positives.indptr[rows]
        counts = self._positives.indptr[rows + 1] - begins
        slots = np.arange(-(-counts.max(initial=0) // _POSITIVES) * _POSITIVES)
        filled = slots < counts[:, None]  # (B, P)
        at = (begins[:, None] + slots)[filled]
        positives = np.full(filled.shape, -1, np.int32)
        values = np.zeros(filled.shape, np.float32)
        positives[filled], values[filled] = self._positives.indices[at], self._positives.data[at]
        return positives, values


def _cut(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def prefetched(
    make: Callable[[Item], Made], items: Iterable[Item], ahead: int = _AHEAD
) -> Generator[Made, None, None]:
    """Yield ``make(item)`` of each item in order, made by one thread a few items ahead; its errors
    are raised here.

    Closing the iterator ends the thread. A lone item is made by the caller: there is nothing to be
    ahead of."""
    if isinstance(items, Sized) and len(items) == 1:
        yield from map(make, items)
        return
    waiting = deque[Future[Made]]()
    items = iter(items)
    pool = ThreadPoolExecutor(1, "batches")
    try:
        waiting.extend(pool.submit(make, item) for item in islice(items, ahead))
        while waiting:
            made = waiting.popleft().result()
            waiting.extend(pool.submit(make, item) for item in islice(items, 1))
            yield made
    finally:
        pool.shutdown(cancel_futures=True)
