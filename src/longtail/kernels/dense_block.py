"""The dense block of a chunk: what it adds to the activations of its siblings, for one document or for four at a time.

Both ways add the same products in the same order, so that a score never depends on which documents come together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.chunks import decoded
from longtail.kernels.jit import kernel

__all__ = ["DOCUMENTS", "decode", "sums_of_four", "sums_of_one"]

DOCUMENTS = 4  # that share the reading of weights


@kernel
def decode(weights: Any, table: Any, at: int, out: Any) -> None:
    """Write out the weights from ``at`` on as numbers."""
    for i in range(out.shape[0]):
        out[i] = decoded(weights, table, at + i)


@kernel
def sums_of_one(
    weights: Any,  # IN  dense weights of the level, as stored
    table: Any,  # IN
    at: int,  # IN  where those of the chunk begin
    row: Any,  # IN  (dense_width,) the document
    sums: Any,  # OUT (n_siblings,)
) -> None:
    """Siblings lie side by side, so the inner loop is SIMD without reordering any sum."""
    sums[:] = np.float32(0)
    for j in range(row.shape[0]):
        for sibling in range(sums.shape[0]):
            sums[sibling] += row[j] * decoded(weights, table, at + sibling)
        at += sums.shape[0]


@kernel
def sums_of_four(
    weights: Any,  # IN  (dense_width * width,) decoded
    rows: Any,  # IN  (n, dense_width)
    documents: Any,  # IN  (4,) rows
    width: int,  # IN  number of siblings
    sums: Any,  # OUT (4, at least width)
) -> None:
    """Two columns at a time: each sum is loaded and stored half as often, each weight once for four documents."""
    a, b, c, d = rows[documents[0]], rows[documents[1]], rows[documents[2]], rows[documents[3]]
    s0, s1, s2, s3 = sums[0, :width], sums[1, :width], sums[2, :width], sums[3, :width]
    s0[:], s1[:], s2[:], s3[:] = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    e = rows.shape[1]
    for j in range(0, e - 1, 2):
        first, second = weights[j * width : (j + 1) * width], weights[(j + 1) * width : (j + 2) * width]
        a0, b0, c0, d0, a1, b1, c1, d1 = a[j], b[j], c[j], d[j], a[j + 1], b[j + 1], c[j + 1], d[j + 1]
        for i in range(width):
            u, v = first[i], second[i]
            s0[i] = (s0[i] + a0 * u) + a1 * v
            s1[i] = (s1[i] + b0 * u) + b1 * v
            s2[i] = (s2[i] + c0 * u) + c1 * v
            s3[i] = (s3[i] + d0 * u) + d1 * v
    if e % 2:
        last = weights[(e - 1) * width : e * width]
        for i in range(width):
            s0[i] += a[e - 1] * last[i]
            s1[i] += b[e - 1] * last[i]
            s2[i] += c[e - 1] * last[i]
            s3[i] += d[e - 1] * last[i]
