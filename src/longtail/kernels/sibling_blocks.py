"""What solvers do with a block: up to 16 siblings over the same documents.

All siblings of a node are trained on the same documents, so one pass over a document's non-zeros serves them all:
``w`` is laid out as [column][sibling], each non-zero touches one cache line, and the inner loop runs along siblings.

A *block* is a problem of ``m`` documents and ``width`` (8 or 16) siblings, some of which may be padding:
``pointers`` (m + 1), ``columns`` and ``values`` are the sparse rows, renumbered from ``e`` on; ``dense`` is (m, e);
``w`` has one row of ``width`` for each of the e dense columns, the sparse columns, and the bias, in this order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

__all__ = ["BLOCK", "add_row", "margins_of", "shuffle", "square_norms"]

BLOCK = 16  # siblings solved together: 16 float32 are one cache line
_LEAST_NORM = 1e-30  # of a document without features: padding has nothing beside the norm to divide by


@kernel
def _random_below(state: Any, n: int) -> Any:
    """Return a number below ``n`` < 2^32 (xorshift64, high bits of a product in place of a modulo)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64(((x >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel
def shuffle(order: Any, n: int, state: Any) -> None:
    """Shuffle the first ``n`` numbers of ``order`` (Fisher and Yates)."""
    for last in range(n - 1, 0, -1):
        other = _random_below(state, last + 1)
        order[last], order[other] = order[other], order[last]


@kernel
def margins_of(
    out: Any, w: Any, width: int, start: Any, end: Any, columns: Any, values: Any, row: Any, bias: Any
) -> None:  # fmt: skip
    """Compute w·x of one document for all siblings: ``out`` (width)."""
    last = len(w) - width
    for s in range(width):
        out[s] = bias * w[last + s]
    for j in range(len(row)):
        value, at = row[j], j * width
        for s in range(width):
            out[s] += value * w[at + s]
    k = start
    while k + 4 <= end:  # four rows of w a step: the sums are loaded and stored a quarter as often
        v0, v1, v2, v3 = values[k], values[k + 1], values[k + 2], values[k + 3]
        a0, a1 = np.int64(columns[k]) * width, np.int64(columns[k + 1]) * width
        a2, a3 = np.int64(columns[k + 2]) * width, np.int64(columns[k + 3]) * width
        for s in range(width):
            out[s] += (v0 * w[a0 + s] + v1 * w[a1 + s]) + (v2 * w[a2 + s] + v3 * w[a3 + s])
        k += 4
    while k < end:
        value, place = values[k], np.int64(columns[k]) * width
        for s in range(width):
            out[s] += value * w[place + s]
        k += 1


@kernel
def add_row(
    step: Any, w: Any, width: int, start: int, end: int, columns: Any, values: Any, row: Any, bias: Any
) -> None:
    """Add step[s] · x of one document to each sibling's w."""
    last = len(w) - width
    for s in range(width):
        w[last + s] += bias * step[s]
    for j in range(len(row)):
        value, at = row[j], j * width
        for s in range(width):
            w[at + s] += value * step[s]
    for k in range(start, end):
        value, place = values[k], np.int64(columns[k]) * width
        for s in range(width):
            w[place + s] += value * step[s]


@kernel
def square_norms(pointers: Any, values: Any, dense: Any, bias: Any) -> Any:
    """Return ‖x‖² of each document, the constant feature included."""
    norms = np.empty(len(pointers) - 1, np.float32)
    for i in range(len(norms)):
        total = np.float64(bias) * bias
        for k in range(pointers[i], pointers[i + 1]):
            total += np.float64(values[k]) * values[k]
        for j in range(dense.shape[1]):
            total += np.float64(dense[i, j]) * dense[i, j]
        norms[i] = max(total, _LEAST_NORM)
    return norms
