"""What Newton's method does before its first step: fewer columns, the scale of gradients, and a starting point."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.lanes import add_to_rows
from longtail.kernels.tiles import TILE, dots, list_marked, multiply

__all__ = ["mean_separating", "means", "take_out_own_columns", "unusual"]

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_PARALLEL = 1e-6  # means whose squared sine is below this do not separate


@kernel
def _add_document(
    step: Any, w: Any, width: int, start: Any, end: Any, columns: Any, values: Any, row: Any, bias: Any
) -> None:
    """Add step · x of one document to each sibling's w; ``bias`` is (1)."""
    add_to_rows(step, 0, w[len(w) - width :], width, None, bias, 0, 1)
    add_to_rows(step, 0, w, width, None, row, 0, len(row))
    add_to_rows(step, 0, w, width, columns, values, start, end)


@kernel
def unusual(targets: Any, width: int) -> Any:
    """Return the documents where not all targets are the same negative number or padding, and that number."""
    usual = _ZERO
    for target in targets[:width]:
        usual = min(usual, target)
    marks, docs, n = np.zeros(TILE, np.uint8), np.empty(len(targets) // max(width, 1), np.int32), 0
    for begin in range(0, len(targets), TILE):
        part = targets[begin : begin + TILE]
        for k in range(len(part)):
            marks[k] = (part[k] != usual) & (part[k] != _ZERO)
        n = list_marked(marks, len(part), begin // width, width, docs, n)
    return docs[:n], usual


@kernel
def take_out_own_columns(
    pointers: Any, columns: Any, values: Any, targets: Any, width: int, rows: int
) -> Any:  # fmt: skip
    """Return where each row ends without a last column that no other document has, and the value there, or 0.

    The best weight of such a column, of value a, is known: 2 C a y h / (1 + 2 C a²), with h = max(0, 1 − y w·x) of all
    other columns. Put into the objective this leaves C / (1 + 2 C a²) h² of the document, so ``targets`` change to it.
    """
    m = len(pointers) - 1
    seen, ends, own = np.zeros(rows, np.uint8), pointers[1:].copy(), np.zeros(m, np.float32)
    for column in columns:
        seen[column] = min(seen[column] + 1, 2)
    for i in range(m):
        last = ends[i] - 1
        if last >= pointers[i] and seen[columns[last]] == 1:
            ends[i], own[i] = last, values[last]
            for k in range(i * width, i * width + width):
                targets[k] = _discounted(targets[k], own[i])
    return ends, own


@kernel
def _discounted(target: Any, own: Any) -> Any:
    return np.divide(target, _ONE + _TWO * abs(target) * own * own)


@kernel
def means(
    pointers: Any, ends: Any, columns: Any, values: Any, dense: Any, dense_rows: Any, bias: Any, targets: Any,
    width: int, marked: Any, usual: Any, own: Any, rows: int,
) -> Any:  # fmt: skip
    """Return the mean x̄ of all documents, and min(positives, negatives) / m · ‖∇f(0)‖ of each sibling.

    ∇f(0) = −2 Σ C_i y_i x_i. Nearly all targets are the same, so their share is summed up once for all siblings, and
    for each only what ``marked`` documents differ by.
    """
    m, e = len(pointers) - 1, dense.shape[1]
    mean, common, differing = np.zeros(rows), np.zeros(rows), np.zeros(rows * width, np.float32)
    for i in range(m):
        share = np.float64(_discounted(usual, own[i]))
        for k in range(pointers[i], ends[i]):
            mean[columns[k]] += values[k]
            common[columns[k]] += share * values[k]
        row = dense[dense_rows[i]]
        for j in range(e):
            mean[j] += row[j]
            common[j] += share * row[j]
        mean[-1] += bias[0]
        common[-1] += share * bias[0]
    step, positives = np.zeros(width, np.float32), np.zeros(width)
    for i in marked:
        for k in range(width):
            target = targets[i * width + k]
            step[k] = target - _discounted(usual, own[i])
            positives[k] += target > _ZERO
        _add_document(step, differing, width, pointers[i], ends[i], columns, values, dense[dense_rows[i]], bias)
    norm = np.zeros(width)
    for row in range(rows):
        for k in range(width):
            norm[k] += (common[row] + differing[row * width + k]) ** 2
    fewer = np.maximum(np.minimum(positives, m - positives), 1.0)
    return (mean / max(m, 1)).astype(np.float32), 2.0 * np.sqrt(norm) * fewer / max(m, 1)


@kernel
def mean_separating(
    pointers: Any, ends: Any, columns: Any, values: Any, dense: Any, dense_rows: Any, bias: Any, targets: Any,
    width: int, marked: Any, mean: Any, out: Any,
) -> None:  # fmt: skip
    """Write w = u p̄ + v x̄ with w·p̄ = 1 and w·x̄ = 3π − 2, for the mean p̄ of positives, x̄ of all, π their share.

    Schultheis and Babbar 2022: positives lie at 1 and negatives at −2 on average. With P = ‖p̄‖², A = ‖x̄‖², B = p̄·x̄
    and f = 3π − 2 the equations u P + v B = 1 and u B + v A = f give u = (A − f B) / D and v = (f P − B) / D,
    D = P A − B². Where the means are parallel (no positives, or nothing else) w = f x̄ / A.
    All positives are among the documents ``marked``; rows end at ``ends``; ``bias`` is (1).
    """
    m, rows = len(pointers) - 1, len(mean)
    out[:] = _ZERO
    positives, step = np.zeros(width), np.zeros(width, np.float32)
    for i in marked:
        for k in range(width):
            step[k] = _ONE if targets[i * width + k] > _ZERO else _ZERO
            positives[k] += step[k]
        _add_document(step, out, width, pointers[i], ends[i], columns, values, dense[dense_rows[i]], bias)
    pp, pa, aa = dots(out, out, width), np.zeros(width), 0.0
    for row in range(rows):
        aa += np.float64(mean[row]) * mean[row]
        for k in range(width):
            pa[k] += np.float64(out[row * width + k]) * mean[row]
    of_sum, of_mean = np.zeros(width, np.float32), np.zeros(width, np.float32)
    for k in range(width):
        count = max(positives[k], 1.0)
        p, b, f = pp[k] / count**2, pa[k] / count, 3.0 * positives[k] / m - 2.0
        determinant = p * aa - b * b
        if determinant > _PARALLEL * p * aa:
            of_sum[k], of_mean[k] = (aa - f * b) / determinant / count, (f * p - b) / determinant
        elif aa > 0.0:
            of_mean[k] = f / aa
    multiply(out, of_sum, width)
    add_to_rows(of_mean, 0, out, width, None, mean, 0, rows)
