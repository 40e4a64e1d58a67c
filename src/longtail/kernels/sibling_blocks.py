"""What solvers do with a block: up to 16 siblings over the same documents.

All siblings of a node are trained on the same documents, so one pass over a document's non-zeros serves them all:
``w`` is laid out as [column][sibling], each non-zero touches one cache line, and the inner loop runs along siblings.

A *block* is a problem of ``m`` documents and ``width`` (8 or 16) siblings, some of which may be padding:
``pointers`` (m + 1), ``columns`` and ``values`` are the sparse rows, renumbered from ``e`` on; the dense row of
document i is ``dense[dense_rows[i]]``, where it lies in the features of all documents. ``w`` has one row of ``width``
for each of the e dense columns, the sparse columns, and the bias, in this order.

Where documents are fewer than dense columns, the dense block is known by its inner products K = XXᵀ alone, as in any
dual method with a kernel: ``pull`` (m, width) is what it adds to all margins, and a step on document i adds to ``pull``
the row K_i times the step. The margin of a document is then there to be read, and dense weights are Σ y α x at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.lanes import add_to_rows, sum_of_rows
from longtail.kernels.vectors import add_product, step_and_add_product

__all__ = ["BLOCK", "add_dense_margins", "add_dense_row", "add_row", "dense_weights", "margins_of", "shuffle"]
__all__ += ["square_norms", "step_and_add_dense_margins"]

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
def margins_of(out: Any, w: Any, width: int, start: Any, end: Any, columns: Any, values: Any, bias: Any) -> None:
    """Compute w·x of one document for all siblings, the dense block left out: ``out`` (width)."""
    last = len(w) - width
    for s in range(width):
        out[s] = bias * w[last + s]
    sum_of_rows(out, 0, w, width, columns, values, start, end)


@kernel
def add_dense_margins(out: Any, w: Any, pull: Any, width: int, i: Any, dense: Any, dense_rows: Any) -> None:
    """Add what the dense block of document i adds to its margins."""
    if len(pull):
        for s in range(width):
            out[s] += pull[i * width + s]
    else:
        add_product(out, w, width, dense[dense_rows[i]])


@kernel
def add_row(step: Any, w: Any, width: int, start: int, end: int, columns: Any, values: Any, bias: Any) -> None:
    """Add step[s] · x of one document to each sibling's w, the dense block left out."""
    last = len(w) - width
    for s in range(width):
        w[last + s] += bias * step[s]
    add_to_rows(step, 0, w, width, columns, values, start, end)


@kernel
def step_and_add_dense_margins(
    step: Any, before: Any, out: Any, w: Any, width: int, i: Any, dense: Any, dense_rows: Any
) -> None:  # fmt: skip
    """Take the step of document ``before`` in each sibling's dense w, then add the dense margins of document i."""
    step_and_add_product(out, w, width, dense[dense_rows[i]], step, dense[dense_rows[before]])


@kernel
def add_dense_row(
    step: Any, w: Any, pull: Any, width: int, i: Any, dense: Any, dense_rows: Any, products: Any
) -> None:  # fmt: skip
    """Add step[s] times the dense block of document i to each sibling's w, or to what it pulls at the margins."""
    if len(pull):
        add_to_rows(step, 0, pull, width, None, products[i], 0, products.shape[1])
    else:
        add_to_rows(step, 0, w, width, None, dense[dense_rows[i]], 0, dense.shape[1])


@kernel
def dense_weights(alpha: Any, targets: Any, width: int, slot: int, dense: Any, dense_rows: Any) -> Any:
    """Return Σ y α x (e,) of one sibling over the dense block."""
    weights = np.zeros(dense.shape[1], np.float32)
    for i in range(len(dense_rows)):
        change = np.float32(alpha[i * width + slot])
        if change != 0:
            change = change if targets[i * width + slot] > 0 else -change
            row = dense[dense_rows[i]]
            for j in range(len(row)):
                weights[j] += change * row[j]
    return weights


@kernel
def square_norms(pointers: Any, values: Any, dense: Any, dense_rows: Any, bias: Any) -> Any:
    """Return ‖x‖² of each document, the constant feature included."""
    norms = np.empty(len(pointers) - 1, np.float32)
    for i in range(len(norms)):
        total = np.float64(bias) * bias
        for k in range(pointers[i], pointers[i + 1]):
            total += np.float64(values[k]) * values[k]
        for j in range(dense.shape[1]):
            total += np.float64(dense[dense_rows[i], j]) * dense[dense_rows[i], j]
        norms[i] = max(total, _LEAST_NORM)
    return norms
