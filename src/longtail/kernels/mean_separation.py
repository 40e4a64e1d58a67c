"""Preparation of Newton's method: fewer columns, the scale of gradients, and a starting point."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.row_products import add_to_rows
from longtail.kernels.sibling_blocks import Documents
from longtail.kernels.tiles import TILE, dots, list_marked, multiply

__all__ = ["ShortenedRows", "Targets", "mean_separating", "means", "shortened", "unusual"]

_ZERO = np.float32(0)
_ONE = np.float32(1)
_TWO = np.float32(2)
_PARALLEL = 1e-6  # means whose squared sine is below this do not separate


class ShortenedRows(NamedTuple):
    """Documents whose sparse rows end before a last column that no other document has."""

    starts: Any  # (m + 1,) int64
    ends: Any  # (m,) int64
    columns: Any  # uint32
    values: Any  # float32
    dense: Any  # (n, e) float32
    dense_rows: Any  # (m,) int32
    bias: Any  # float32
    private: Any  # (m,) float32, the value of the column left out, or 0


class Targets(NamedTuple):
    """Targets of a block, nearly all of which are the same negative number."""

    targets: Any  # (m * width,) float32 y C, 0 is padding
    width: int
    unusual: Any  # int32, documents with another target or padding
    usual: Any  # float32, the target of all others


@kernel
def _add_document(step: Any, w: Any, width: int, rows: ShortenedRows, i: int) -> None:
    """Add step · x of document i to each sibling's w."""
    constant = np.full(1, rows.bias, np.float32)
    dense = rows.dense[rows.dense_rows[i]]
    add_to_rows(step, 0, w[len(w) - width :], width, None, constant, 0, 1)
    add_to_rows(step, 0, w, width, None, dense, 0, len(dense))
    add_to_rows(step, 0, w, width, rows.columns, rows.values, rows.starts[i], rows.ends[i])


@kernel
def unusual(targets: Any, width: int) -> Targets:
    """Return the targets, and the documents where not all are the same negative number or
    padding.
    """
    usual = _ZERO
    for target in targets[:width]:
        usual = min(usual, target)
    marks = np.zeros(TILE, np.uint8)
    documents = np.empty(len(targets) // max(width, 1), np.int32)
    n = 0
    for begin in range(0, len(targets), TILE):
        part = targets[begin : begin + TILE]
        for k in range(len(part)):
            marks[k] = (part[k] != usual) & (part[k] != _ZERO)
        n = list_marked(marks, len(part), begin // width, width, documents, n)
    return Targets(targets, width, documents[:n], usual)


@kernel
def shortened(documents: Documents, targets: Any, width: int, n_columns: int) -> ShortenedRows:
    """Return the rows without a last column that no other document has; ``targets`` change with it.

    The best weight of such a column, of value a, is known: 2 C a y h / (1 + 2 C a²), with h =
    max(0, 1 − y w·x) of all other columns. Put into the objective this leaves C / (1 + 2 C a²) h²
    of the document, so ``targets`` change to it."""
    pointers = documents.pointers
    columns = documents.columns
    values = documents.values
    m = len(pointers) - 1
    seen = np.zeros(n_columns, np.uint8)
    ends = pointers[1:].copy()
    private = np.zeros(m, np.float32)
    for column in columns:
        seen[column] = min(seen[column] + 1, 2)
    for i in range(m):
        last = ends[i] - 1
        if last >= pointers[i] and seen[columns[last]] == 1:
            ends[i] = last
            private[i] = values[last]
            for k in range(i * width, i * width + width):
                targets[k] = _discounted(targets[k], private[i])
    return ShortenedRows(
        pointers,
        ends,
        columns,
        values,
        documents.dense,
        documents.dense_rows,
        np.float32(documents.bias),
        private,
    )


@kernel
def _discounted(target: Any, value: Any) -> Any:
    """Return the target of a document without the value of its private column."""
    return np.divide(target, _ONE + _TWO * abs(target) * value * value)


@kernel
def means(rows: ShortenedRows, block: Targets, n_columns: int) -> Any:
    """Return the mean x̄ of all documents, and min(positives, negatives) / m · ‖∇f(0)‖ per sibling.

    ∇f(0) = −2 Σ C_i y_i x_i. Nearly all targets are the same, so their share is summed up once for
    all siblings, and for each only the difference of unusual documents."""
    starts, ends, columns, values, dense, dense_rows, bias, private = rows
    targets, width, unusual_documents, usual = block
    m = len(ends)
    mean = np.zeros(n_columns)
    common = np.zeros(n_columns)
    differing = np.zeros(n_columns * width, np.float32)
    for i in range(m):
        share = np.float64(_discounted(usual, private[i]))
        for k in range(starts[i], ends[i]):
            mean[columns[k]] += values[k]
            common[columns[k]] += share * values[k]
        row = dense[dense_rows[i]]
        for j in range(len(row)):
            mean[j] += row[j]
            common[j] += share * row[j]
        mean[-1] += bias
        common[-1] += share * bias
    step = np.zeros(width, np.float32)
    positives = np.zeros(width)
    for i in unusual_documents:
        for k in range(width):
            target = targets[i * width + k]
            step[k] = target - _discounted(usual, private[i])
            positives[k] += target > _ZERO
        _add_document(step, differing, width, rows, i)
    norm = np.zeros(width)
    for column in range(n_columns):
        for k in range(width):
            norm[k] += (common[column] + differing[column * width + k]) ** 2
    fewer = np.maximum(np.minimum(positives, m - positives), 1.0)
    return (mean / max(m, 1)).astype(np.float32), 2.0 * np.sqrt(norm) * fewer / max(m, 1)


@kernel
def mean_separating(rows: ShortenedRows, block: Targets, mean: Any, out: Any) -> None:
    """Write w = u p̄ + v x̄ with w·p̄ = 1 and w·x̄ = 3π − 2.

    p̄ is the mean of positives, x̄ of all documents, π their share (Schultheis and Babbar 2022):
    positives lie at 1 and negatives at −2 on average. With P = ‖p̄‖², A = ‖x̄‖², B = p̄·x̄ and
    f = 3π − 2 the equations u P + v B = 1 and u B + v A = f give u = (A − f B) / D and
    v = (f P − B) / D, D = P A − B². Where the means are parallel (no positives, or nothing else)
    w = f x̄ / A. All positives are among the unusual documents.
    """
    m = len(rows.ends)
    targets = block.targets
    width = block.width
    n_columns = len(mean)
    out[:] = _ZERO
    positives = np.zeros(width)
    step = np.zeros(width, np.float32)
    for i in block.unusual:
        for k in range(width):
            step[k] = _ONE if targets[i * width + k] > _ZERO else _ZERO
            positives[k] += step[k]
        _add_document(step, out, width, rows, i)
    pp = dots(out, out, width)
    pa = np.zeros(width)
    aa = 0.0
    for column in range(n_columns):
        aa += np.float64(mean[column]) * mean[column]
        for k in range(width):
            pa[k] += np.float64(out[column * width + k]) * mean[column]
    of_sum = np.zeros(width, np.float32)
    of_mean = np.zeros(width, np.float32)
    for k in range(width):
        count = max(positives[k], 1.0)
        p = pp[k] / count**2
        b = pa[k] / count
        f = 3.0 * positives[k] / m - 2.0
        determinant = p * aa - b * b
        if determinant > _PARALLEL * p * aa:
            of_sum[k] = (aa - f * b) / determinant / count
            of_mean[k] = (f * p - b) / determinant
        elif aa > 0.0:
            of_mean[k] = f / aa
    multiply(out, of_sum, width)
    add_to_rows(of_mean, 0, out, width, None, mean, 0, n_columns)
