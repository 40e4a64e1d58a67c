"""Documents prepared once for all tasks, on whatever threads, that train classifiers on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.node_documents import NodeDocuments

__all__ = ["SharedDocuments"]


class SharedDocuments:
    """The prepared documents of groups that several tasks read, and the dense block where it has to
    be scaled.

    The first task that asks for a group prepares it while the others wait; after the last one it is
    released, unless ``keep`` is set. Arrays are not written to, so that threads share them. What
    was prepared does not travel to other processes, which prepare their own."""

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self._lock = Lock()
        self._groups: dict[int, _Entry] = {}
        self._scaled: tuple[float, NDArray[np.float32]] | None = None

    def __reduce__(self) -> tuple[Callable[..., SharedDocuments], tuple[bool]]:
        return _empty, (self._keep,)

    def __len__(self) -> int:
        """Groups that are held now."""
        return len(self._groups)

    @contextmanager
    def borrowed(
        self, group: int, users: int, prepare: Callable[[], NodeDocuments]
    ) -> Iterator[NodeDocuments]:
        """Give the documents of a group to the body, one of ``users`` that will ask for it."""
        with self._lock:
            first = group not in self._groups
            entry = self._groups.setdefault(group, _Entry(users))
        if first:
            try:
                entry.documents.set_result(prepare())
            except BaseException as error:
                entry.documents.set_exception(error)
                raise
        try:
            yield entry.documents.result()
        finally:
            with self._lock:
                entry.users -= 1
                if entry.users == 0 and not self._keep:
                    del self._groups[group]

    def dense_block(self, dense: NDArray[np.float32], scale: np.float32) -> NDArray[np.float32]:
        """Return ``dense * scale``: the very array where the scale is 1, else one copy for as long
        as this is kept.
        """
        if scale == 1:
            return dense
        with self._lock:
            if self._scaled is None or self._scaled[0] != float(scale):
                self._scaled = float(scale), dense * scale
            return self._scaled[1]


class _Entry:
    def __init__(self, users: int) -> None:
        self.users = users
        self.documents: Future[Any] = Future()


def _empty(keep: bool) -> SharedDocuments:
    return SharedDocuments(keep=keep)
