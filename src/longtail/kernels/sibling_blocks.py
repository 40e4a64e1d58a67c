"""Products of a block: up to 16 siblings over the same documents.

All siblings of a node are trained on the same documents, so one pass over a document's non-zeros
serves them all: ``w`` is laid out as [column][sibling], each non-zero touches one cache line, and
the inner loop runs along siblings.

A *block* is a problem of ``m`` documents and ``width`` (8 or 16) siblings, some of which may be
padding. ``w`` has one row of ``width`` for each of the e dense columns, the sparse columns, and the
bias, in this order.

Where documents are fewer than dense columns, the dense block is known by its inner products K = XXᵀ
alone, as in any dual method with a kernel: ``dense_margins`` (m, width) is its part of all margins,
and a step on document i adds the row K_i times the step to it. Dense weights are Σ y α x at the
end.

Functions of one document take arrays, not the tuples that hold them, and loops read arrays from
local variables: numba counts references to an array whenever it is read from a tuple."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.row_products import (
    add_product,
    add_to_rows,
    step_and_add_product,
    sum_of_rows,
)

__all__ = ["BLOCK", "Documents", "Problem", "Weights", "add_dense_margins", "add_dense_row"]
__all__ += [
    "add_row",
    "dense_weights",
    "margins_of",
    "shuffle",
    "square_norms",
    "step_and_add_dense_margins",
]

BLOCK = 16  # siblings solved together: 16 float32 are one cache line
# of a document without features: padding adds nothing to the norm in a division
_LEAST_NORM = 1e-30


class Documents(NamedTuple):
    """The features of a node's documents, which all its blocks share; solvers only read them."""

    pointers: Any  # (m + 1,) int64
    columns: Any  # uint32, renumbered: the sparse columns of these documents from e on
    values: Any  # float32
    dense: Any  # (n, e) float32: the dense block of the features of all documents
    dense_rows: Any  # (m,) int32: the row of each document in ``dense``
    bias: float  # value of the constant feature, which float32 has exactly
    norms: Any  # (m,) float32 of ``square_norms``; empty unless the solver is a dual one
    products: Any  # (m, m) float32 inner products of the dense rows, used in their stead; or (0, 0)


class Problem(NamedTuple):
    """The classifiers of a block as a problem of a solver."""

    documents: Documents
    index: Any  # ColumnIndex of the documents, which the proximal solver reads
    targets: Any  # (m * width,) float32: the sign is y, the size is up to the solver; 0 is padding
    siblings: int  # how many of the width are no padding
    start: Any  # (siblings, e) float32 dense weights that Newton's method starts from, or (0, e)
    seed: int  # of the order in which the dual solvers visit documents


class Weights(NamedTuple):
    """The classifiers of a block while a dual solver works on them."""

    w: Any  # (rows * width,) float32, [column][sibling]
    dense_margins: Any  # (m * width,) float32 where documents have ``products``, else empty


@kernel
def _random_below(state: Any, n: int) -> Any:
    """Return a number below ``n`` < 2^32 (xorshift64, high bits of a product, not a modulo)."""
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
    out: Any, w: Any, width: int, start: Any, end: Any, columns: Any, values: Any, bias: Any
) -> None:
    """Compute w·x of one document for all siblings, without the dense block: ``out`` (width)."""
    last = len(w) - width
    for s in range(width):
        out[s] = bias * w[last + s]
    sum_of_rows(out, 0, w, width, columns, values, start, end)


@kernel
def add_dense_margins(
    out: Any, w: Any, dense_margins: Any, width: int, i: Any, dense: Any, dense_rows: Any
) -> None:
    """Add the dense part of document i's margins."""
    if len(dense_margins):
        for s in range(width):
            out[s] += dense_margins[i * width + s]
    else:
        add_product(out, w, width, dense[dense_rows[i]])


@kernel
def add_row(
    step: Any, w: Any, width: int, start: int, end: int, columns: Any, values: Any, bias: Any
) -> None:
    """Add step[s] · x of one document to each sibling's w, without the dense block."""
    last = len(w) - width
    for s in range(width):
        w[last + s] += bias * step[s]
    add_to_rows(step, 0, w, width, columns, values, start, end)


@kernel
def step_and_add_dense_margins(
    step: Any, before: Any, out: Any, w: Any, width: int, i: Any, dense: Any, dense_rows: Any
) -> None:
    """Take the step of document ``before`` in the dense w, then add the dense margins of document
    i.
    """
    step_and_add_product(out, w, width, dense[dense_rows[i]], step, dense[dense_rows[before]])


@kernel
def add_dense_row(
    step: Any,
    w: Any,
    dense_margins: Any,
    width: int,
    i: Any,
    dense: Any,
    dense_rows: Any,
    products: Any,
) -> None:
    """Add step[s] times the dense row of document i to each sibling's w, or to dense margins."""
    if len(dense_margins):
        add_to_rows(step, 0, dense_margins, width, None, products[i], 0, products.shape[1])
    else:
        add_to_rows(step, 0, w, width, None, dense[dense_rows[i]], 0, dense.shape[1])


@kernel
def dense_weights(alpha: Any, targets: Any, width: int, slot: int, documents: Documents) -> Any:
    """Return Σ y α x (e,) of one sibling over the dense block."""
    dense = documents.dense
    dense_rows = documents.dense_rows
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
