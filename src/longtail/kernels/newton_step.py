"""The Newton step of one sibling, on the documents inside its margin and the columns that these have."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.tiles import list_places

__all__ = ["newton_step"]

_ZERO, _UNIT = np.float32(0), np.float32(1)
_TINY = 1e-9  # in place of the weight of no documents
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)  # no checks for places below 0
_FORCING = 0.1  # ξ: conjugate gradients end where the residual is this share of the gradient
_CONJUGATES = 200  # steps of conjugate gradients at most
_PROMISE = 1e-3  # share of the objective that may be left to gain, as the Hessian's diagonal has it
_PRECISION = 1e-7  # a step that promises less than this share of the objective is lost in rounding


@kernel
def newton_step(
    docs: Any, pointers: Any, ends: Any, columns: Any, values: Any, dense: Any, dense_rows: Any, bias: Any,
    slope: Any, curve: Any, width: int, k: int, square: float, least: float, column_at: Any, w: Any, s: Any,
) -> bool:  # fmt: skip
    """Write sibling k's Newton step to s, which is −w before; return whether none is needed.

    None is where the gradient's norm is at most ``least`` and little is left to gain. ``docs`` are the documents inside
    its margin, ``slope`` and ``curve`` the derivatives of their losses by the margin, ``square`` is ‖w‖². The gradient
    is w + Σ slope x, the Hessian I + Σ curve x xᵀ. In columns that no document inside the margin has it is the
    identity, and −w is the step.
    """
    rows, local, local_values, found = _renumber(docs, pointers, ends, columns, values, column_at)
    inside, places = dense_rows[docs], _places(found, dense.shape[1], len(w) // width, width, k)
    g, diagonal, mean = w[places], np.ones(len(places), np.float32), np.zeros(len(places), np.float32)
    value, outside = 0.5 * square, max(square - _dot(g, g), 0.0)
    _add_sums(slope, curve, g, diagonal, mean, rows, local, local_values, dense, inside, bias)
    for a in range(len(docs)):
        value += 0.5 * np.float64(slope[a]) * slope[a] / curve[a]
    norm = np.sqrt(_dot(g, g) + outside)
    if norm <= least and (least == np.inf or 0.5 * (_quotient(g, diagonal) + outside) <= _PROMISE * value):
        return True
    _split_off_mean(diagonal, mean, max(_total(curve), _TINY))
    step = _conjugate_gradients(
        rows, local, local_values, dense, inside, bias, curve, g, diagonal, mean, _FORCING * norm
    )
    for j in range(len(places)):
        s[places[j]] = step[j]
    return 0.5 * (outside - _dot(g, step)) <= _PRECISION * value


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
    """Copy some rows with their columns renumbered; returns these, and what the columns were, rising.

    ``column_at`` (columns) is room to work in. Columns are marked first and numbered then: numbering each as it
    is met would make every entry wait for the one before.
    """
    rows = np.zeros(len(docs) + 1, np.int64)
    for a in range(len(docs)):
        rows[a + 1] = rows[a] + ends[docs[a]] - pointers[docs[a]]
    local, local_values = np.empty(rows[-1], np.uint32), np.empty(rows[-1], np.float32)
    marks, at = np.zeros((len(column_at) + 7) // 8 * 8, np.uint8), np.uint64(0)
    for i in docs:
        for k in range(np.uint64(pointers[i]), np.uint64(ends[i])):
            local[at], local_values[at] = columns[k], values[k]
            marks[columns[k]] = 1
            at += _ONE
    found = np.empty(len(marks) + 1, np.int32)
    found = found[: list_places(marks, len(marks), 0, found, 0)]
    for j in range(len(found)):
        column_at[found[j]] = j
    for k in range(len(local)):
        local[k] = column_at[local[k]]
    return rows, local, local_values, found


@kernel
def _conjugate_gradients(
    rows: Any, columns: Any, values: Any, dense: Any, inside: Any, bias: Any, curve: Any, g: Any, diagonal: Any,
    mean: Any, least: Any,
) -> Any:  # fmt: skip
    """Return s with H s ≈ −g, preconditioned by ``_solve``."""
    x, r, p = np.zeros(len(g), np.float32), -g, np.empty(len(g), np.float32)
    across = mean / diagonal
    scale = 1.0 / (1.0 + _dot(across, mean))
    _solve(r, diagonal, across, scale, p)
    rho = _dot(r, p)
    for _ in range(_CONJUGATES):
        if np.sqrt(_dot(r, r)) <= least:
            break
        hp = _hessian_times(p, rows, columns, values, dense, inside, bias, curve)
        alpha = np.float32(rho / _dot(p, hp))
        for j in range(len(x)):
            x[j] += alpha * p[j]
            r[j] -= alpha * hp[j]
        _solve(r, diagonal, across, scale, hp)
        rho, before = _dot(r, hp), rho
        beta = np.float32(rho / before)
        for j in range(len(x)):
            p[j] = hp[j] + beta * p[j]
    return x


@kernel
def _split_off_mean(diagonal: Any, mean: Any, weight: float) -> None:
    """Make ``mean`` the u and ``diagonal`` the D of D + u uᵀ, which is the Hessian but for likeness among documents.

    They come as Σ curve x and 1 + Σ curve x². With the weighted mean μ of the documents Σ curve x xᵀ is
    Σ curve (x − μ)(x − μ)ᵀ + weight μ μᵀ; the first is taken by its diagonal, the second whole: features of
    words are not below 0, so that f bends most by far in the direction of μ.
    """
    shrink = np.float32(1.0 / np.sqrt(weight))
    for j in range(len(mean)):
        mean[j] *= shrink
        diagonal[j] = max(diagonal[j] - mean[j] * mean[j], _UNIT)


@kernel
def _solve(r: Any, diagonal: Any, across: Any, scale: float, out: Any) -> None:
    """Write (D + u uᵀ)⁻¹ r, by Sherman and Morrison; ``across`` is D⁻¹ u, ``scale`` 1 / (1 + u D⁻¹ u)."""
    along = np.float32(scale * _dot(across, r))
    for j in range(len(r)):
        out[j] = np.divide(r[j], diagonal[j]) - along * across[j]


@kernel
def _hessian_times(
    p: Any, rows: Any, columns: Any, values: Any, dense: Any, inside: Any, bias: Any, curve: Any
) -> Any:  # fmt: skip
    """Return H p = p + Σ curve (x·p) x."""
    hp, n = p.copy(), len(p) - dense.shape[1]
    weights, dense_out, constant, total = p[n:], hp[n:], bias * p[n - 1], 0.0
    for a in range(len(curve)):
        begin, end = np.uint64(rows[a]), np.uint64(rows[a + 1])
        margin = constant + _margin(p, begin, end, columns, values)
        if len(weights):
            margin += np.float32(_dot(dense[inside[a]], weights))
        step = margin * curve[a]
        total += step
        for k in range(begin, end):
            hp[columns[k]] += values[k] * step
        if len(weights):
            row = dense[inside[a]]
            for j in range(len(row)):
                dense_out[j] += row[j] * step
    hp[n - 1] += bias * np.float32(total)
    return hp


@kernel
def _margin(w: Any, k: Any, end: Any, columns: Any, values: Any) -> Any:
    """Return w·x of the sparse entries from k on; four sums, as an addition waits for the one before."""
    a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
    while k + _FOUR <= end:
        a += values[k] * w[columns[k]]
        b += values[k + _ONE] * w[columns[k + _ONE]]
        c += values[k + _TWO] * w[columns[k + _TWO]]
        d += values[k + _THREE] * w[columns[k + _THREE]]
        k += _FOUR
    while k < end:
        a += values[k] * w[columns[k]]
        k += _ONE
    return (a + b) + (c + d)


@kernel
def _add_sums(
    slope: Any, curve: Any, g: Any, diagonal: Any, mean: Any, rows: Any, columns: Any, values: Any, dense: Any,
    inside: Any, bias: Any,
) -> None:  # fmt: skip
    """Add Σ slope x to the gradient, Σ curve x² to the Hessian's diagonal, and Σ curve x to ``mean``."""
    e = dense.shape[1]
    n = len(g) - e
    for a in range(len(slope)):
        first, second = slope[a], curve[a]
        g[n - 1] += first * bias
        diagonal[n - 1] += second * bias * bias
        mean[n - 1] += second * bias
        for k in range(np.uint64(rows[a]), np.uint64(rows[a + 1])):
            column, value = columns[k], values[k]
            g[column] += first * value
            diagonal[column] += second * value * value
            mean[column] += second * value
        row = dense[inside[a]]
        for j in range(e):
            g[n + j] += first * row[j]
            diagonal[n + j] += second * row[j] * row[j]
            mean[n + j] += second * row[j]


@kernel
def _total(numbers: Any) -> float:
    """Return the sum, in float64."""
    total = 0.0
    for number in numbers:
        total += number
    return total


@kernel
def _quotient(g: Any, diagonal: Any) -> float:
    """Return Σ g² / diagonal."""
    total = 0.0
    for j in range(len(g)):
        total += np.float64(g[j]) * g[j] / diagonal[j]
    return total


@kernel
def _dot(a: Any, b: Any) -> float:
    """Return a·b, summed up in float64."""
    sums = np.zeros(32)
    for begin in range(0, len(a), 32):
        left, right = a[begin : begin + 32], b[begin : begin + 32]
        for k in range(len(left)):
            sums[k] += np.float64(left[k]) * right[k]
    return float(sums.sum())
