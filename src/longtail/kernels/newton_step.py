"""The Newton step of one sibling, on the documents inside its margin and the columns that these have."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

__all__ = ["newton_step"]

_ZERO = np.float32(0)
_FORCING = 0.1  # ξ: conjugate gradients end where the residual is this share of the gradient
_CONJUGATES = 200  # steps of conjugate gradients at most
_PRECISION = 1e-7  # a step that promises less than this share of the objective is lost in rounding


@kernel
def newton_step(
    active: Any, pointers: Any, ends: Any, columns: Any, values: Any, dense: Any, bias: Any,
    slopes: Any, curves: Any, width: int, k: int, square: float, least: float, column_at: Any, w: Any, s: Any,
) -> bool:  # fmt: skip
    """Write sibling k's Newton step to s, which is −w before; return whether none is needed.

    None is where the gradient's norm is at most ``least``. ``slopes`` and ``curves`` (documents ``active`` * width) are
    the derivatives of the losses by the margin, ``square`` is ‖w‖². The gradient is w + Σ slope x, the Hessian
    I + Σ curve x xᵀ. In columns that no document inside the margin has it is the identity, and −w is the step.
    """
    docs, slope, curve = _inside(active, slopes, curves, width, k)
    rows, local, local_values, found = _renumber(docs, pointers, ends, columns, values, column_at)
    block, places = dense[docs], _places(found, dense.shape[1], len(w) // width, width, k)
    g, diagonal = w[places], np.ones(len(places), np.float32)
    value, outside = 0.5 * square, max(square - _dot(g, g), 0.0)
    for a in range(len(docs)):
        _add_both(slope[a], curve[a], g, diagonal, rows[a], rows[a + 1], local, local_values, block[a], bias)
        value += 0.5 * np.float64(slope[a]) * slope[a] / curve[a]
    norm = np.sqrt(_dot(g, g) + outside)
    if norm <= least:
        return True
    step = _conjugate_gradients(rows, local, local_values, block, bias, curve, g, diagonal, _FORCING * norm)
    for j in range(len(places)):
        s[places[j]] = step[j]
    return 0.5 * (outside - _dot(g, step)) <= _PRECISION * value


@kernel
def _inside(active: Any, slopes: Any, curves: Any, width: int, k: int) -> Any:
    """Return the documents inside the margin of sibling k, and their slopes and curves."""
    docs, n = np.empty(len(active), np.int32), 0
    slope, curve = np.empty(len(active), np.float32), np.empty(len(active), np.float32)
    for a in range(len(active)):
        at = a * width + k
        docs[n], slope[n], curve[n] = active[a], slopes[at], curves[at]
        n += curves[at] > _ZERO
    return docs[:n], slope[:n], curve[:n]


@kernel
def _places(found: Any, e: int, rows: int, width: int, k: int) -> Any:
    """Return where the weights of sibling k stand in w: those of the columns found, the bias, and the dense columns."""
    n = len(found)
    places = np.empty(n + 1 + e, np.int64)
    for j in range(n):
        places[j] = found[j] * width + k
    places[n] = (rows - 1) * width + k
    for j in range(e):
        places[n + 1 + j] = j * width + k
    return places


@kernel
def _renumber(docs: Any, pointers: Any, ends: Any, columns: Any, values: Any, column_at: Any) -> Any:
    """Copy some rows with their columns renumbered; returns these, and what the columns were."""
    total = 0
    for i in docs:
        total += ends[i] - pointers[i]
    rows, found = np.zeros(len(docs) + 1, np.int64), np.empty(min(total, len(column_at)) + 1, np.int64)
    local, local_values = np.empty(total, np.uint32), np.empty(total, np.float32)
    at, n = 0, 0
    for a in range(len(docs)):
        for k in range(pointers[docs[a]], ends[docs[a]]):
            column = columns[k]
            place = column_at[column]  # no branch: whether a column is new is hard to foretell
            new = place < 0
            place = n if new else place
            found[n], column_at[column] = column, place
            local[at], local_values[at] = place, values[k]
            at += 1
            n += new
        rows[a + 1] = at
    for j in range(n):
        column_at[found[j]] = -1
    return rows, local, local_values, found[:n]


@kernel
def _conjugate_gradients(
    rows: Any, columns: Any, values: Any, block: Any, bias: Any, curve: Any, g: Any, diagonal: Any, least: Any
) -> Any:  # fmt: skip
    """Return s with H s ≈ −g, preconditioned by the Hessian's diagonal."""
    x, r = np.zeros(len(g), np.float32), -g
    p = r / diagonal
    rho = _dot(r, p)
    for _ in range(_CONJUGATES):
        if np.sqrt(_dot(r, r)) <= least:
            break
        hp = _hessian_times(p, rows, columns, values, block, bias, curve)
        alpha = np.float32(rho / _dot(p, hp))
        for j in range(len(x)):
            x[j] += alpha * p[j]
            r[j] -= alpha * hp[j]
            hp[j] = np.divide(r[j], diagonal[j])
        rho, before = _dot(r, hp), rho
        beta = np.float32(rho / before)
        for j in range(len(x)):
            p[j] = hp[j] + beta * p[j]
    return x


@kernel
def _hessian_times(p: Any, rows: Any, columns: Any, values: Any, block: Any, bias: Any, curve: Any) -> Any:
    """Return p + Σ 2 C_i (x_i·p) x_i over the active documents."""
    hp = p.copy()
    for a in range(len(curve)):
        margin = _margin(p, rows[a], rows[a + 1], columns, values, block[a], bias)
        _add(margin * curve[a], hp, rows[a], rows[a + 1], columns, values, block[a], bias)
    return hp


@kernel
def _margin(w: Any, start: int, end: int, columns: Any, values: Any, row: Any, bias: Any) -> Any:
    """Return w·x of one document for one sibling."""
    n = len(w) - len(row)
    a, b, c, d = bias * w[n - 1], _ZERO, _ZERO, _ZERO
    k = start
    while k + 4 <= end:
        a += values[k] * w[columns[k]]
        b += values[k + 1] * w[columns[k + 1]]
        c += values[k + 2] * w[columns[k + 2]]
        d += values[k + 3] * w[columns[k + 3]]
        k += 4
    while k < end:
        a += values[k] * w[columns[k]]
        k += 1
    return (a + b) + (c + d) + (np.float32(_dot(row, w[n:])) if len(row) else _ZERO)


@kernel
def _add_both(
    slope: Any, curve: Any, g: Any, diagonal: Any, start: int, end: int, columns: Any, values: Any, row: Any, bias: Any
) -> None:
    """Add slope · x of one document to the gradient, and curve · x² to the Hessian's diagonal."""
    n = len(g) - len(row)
    g[n - 1] += slope * bias
    diagonal[n - 1] += curve * bias * bias
    for k in range(start, end):
        column, value = columns[k], values[k]
        g[column] += slope * value
        diagonal[column] += curve * value * value
    for j in range(len(row)):
        g[n + j] += slope * row[j]
        diagonal[n + j] += curve * row[j] * row[j]


@kernel
def _add(step: Any, w: Any, start: int, end: int, columns: Any, values: Any, row: Any, bias: Any) -> None:
    """Add step · x of one document to one sibling's w."""
    n = len(w) - len(row)
    w[n - 1] += bias * step
    for k in range(start, end):
        w[columns[k]] += values[k] * step
    behind = w[n:]
    for j in range(len(row)):
        behind[j] += row[j] * step


@kernel
def _dot(a: Any, b: Any) -> float:
    """Return a·b, summed up in float64."""
    sums = np.zeros(32)
    for begin in range(0, len(a), 32):
        left, right = a[begin : begin + 32], b[begin : begin + 32]
        for k in range(len(left)):
            sums[k] += np.float64(left[k]) * right[k]
    return float(sums.sum())
