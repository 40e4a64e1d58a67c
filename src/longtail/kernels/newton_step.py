"""The Newton step of one sibling, on the documents inside its margin and the columns that these
have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.mean_separation import ShortenedRows
from longtail.kernels.tiles import list_positions

__all__ = ["ActiveDocuments", "NewtonWeights", "newton_step"]

_ZERO = np.float32(0)
_UNIT = np.float32(1)
_TINY = 1e-9  # in place of the weight of no documents
_ONE = np.uint64(1)  # positions are unsigned: no checks for those below 0
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FOUR = np.uint64(4)
_FORCING = 0.1  # ξ: conjugate gradients end where the residual is this share of the gradient
_CONJUGATES = 200  # steps of conjugate gradients at most
_PROMISE = 1e-3  # share of the objective that may be left to gain, as the Hessian's diagonal has it
_PRECISION = 1e-7  # a step that promises less than this share of the objective is lost in rounding


class ActiveDocuments(NamedTuple):
    """The documents inside the margin of one sibling."""

    documents: Any  # int32
    slopes: Any  # float32, first derivatives of their losses by the margin
    curves: Any  # float32, second derivatives


class NewtonWeights(NamedTuple):
    """The weights of one sibling and its step, among those of a block."""

    w: Any  # (rows * width,) float32, [column][sibling]
    step: Any  # (rows * width,) float32
    width: int
    sibling: int


class _LocalRows(NamedTuple):
    """Active documents with their columns renumbered; next come the bias and the dense columns."""

    pointers: Any  # (active + 1,) int64
    columns: Any  # uint32
    values: Any  # float32
    dense: Any  # (n, e) float32
    dense_rows: Any  # (active,) int32
    bias: Any  # float32


class _Hessian(NamedTuple):
    """An approximate Hessian D + u uᵀ."""

    diagonal: Any  # D
    across: Any  # D⁻¹ u
    scale: float  # 1 / (1 + u D⁻¹ u)


@kernel
def newton_step(
    active: ActiveDocuments,  # IN
    rows: ShortenedRows,  # IN
    weights: NewtonWeights,  # IN/OUT  the step is −w before
    square: float,  # IN  ‖w‖²
    least: float,  # IN  norm of the gradient that is small enough
    column_at: Any,  # (columns,) room to work in
) -> bool:
    """Write the Newton step of a sibling; return whether none is needed.

    It is not where the gradient's norm is at most ``least`` and little is left to gain. The
    gradient is w + Σ slope x, the Hessian I + Σ curve x xᵀ. In columns that no active document has
    it is the identity, and −w is the step."""
    local, names = _renumber(active.documents, rows, column_at)
    positions = _positions(names, rows.dense.shape[1], weights)
    g = weights.w[positions]
    diagonal = np.ones(len(positions), np.float32)
    mean = np.zeros(len(positions), np.float32)
    value = 0.5 * square
    outside = max(square - _dot(g, g), 0.0)
    _add_sums(active, local, g, diagonal, mean)
    slopes = active.slopes
    curves = active.curves
    for a in range(len(slopes)):
        value += 0.5 * np.float64(slopes[a]) * slopes[a] / curves[a]
    norm = np.sqrt(_dot(g, g) + outside)
    if norm <= least:
        gain = 0.5 * (_quotient(g, diagonal) + outside)
        if least == np.inf or gain <= _PROMISE * value:
            return True
    _split_off_mean(diagonal, mean, max(_total(curves), _TINY))
    across = mean / diagonal
    hessian = _Hessian(diagonal, across, 1.0 / (1.0 + _dot(across, mean)))
    step = _conjugate_gradients(local, curves, g, hessian, _FORCING * norm)
    for j in range(len(positions)):
        weights.step[positions[j]] = step[j]
    return 0.5 * (outside - _dot(g, step)) <= _PRECISION * value


@kernel
def _positions(names: Any, e: int, weights: NewtonWeights) -> Any:
    """Return where the weights of a sibling are in w: of the columns, the bias, and the dense
    columns.
    """
    width = weights.width
    rows = len(weights.w) // width
    n = len(names)
    positions = np.empty(n + 1 + e, np.int64)
    for j in range(n):
        positions[j] = names[j] * width + weights.sibling
    positions[n] = (rows - 1) * width + weights.sibling
    for j in range(e):
        positions[n + 1 + j] = j * width + weights.sibling
    return positions


@kernel
def _renumber(documents: Any, rows: ShortenedRows, column_at: Any) -> Any:
    """Copy some rows with their columns renumbered; return these, and the names of the columns,
    rising.

    Columns are marked first and numbered then: numbering each as it is met would make every entry
    wait for the one before."""
    starts = rows.starts
    ends = rows.ends
    names_before = rows.columns
    values_before = rows.values
    pointers = np.zeros(len(documents) + 1, np.int64)
    for a in range(len(documents)):
        pointers[a + 1] = pointers[a] + ends[documents[a]] - starts[documents[a]]
    columns = np.empty(pointers[-1], np.uint32)
    values = np.empty(pointers[-1], np.float32)
    marks = np.zeros((len(column_at) + 7) // 8 * 8, np.uint8)
    at = np.uint64(0)
    for i in documents:
        for k in range(np.uint64(starts[i]), np.uint64(ends[i])):
            columns[at] = names_before[k]
            values[at] = values_before[k]
            marks[names_before[k]] = 1
            at += _ONE
    names = np.empty(len(marks) + 1, np.int32)
    names = names[: list_positions(marks, len(marks), 0, names, 0)]
    for j in range(len(names)):
        column_at[names[j]] = j
    for k in range(len(columns)):
        columns[k] = column_at[columns[k]]
    dense_rows = rows.dense_rows[documents]
    return _LocalRows(pointers, columns, values, rows.dense, dense_rows, rows.bias), names


@kernel
def _conjugate_gradients(
    rows: _LocalRows, curves: Any, g: Any, preconditioner: _Hessian, least: Any
) -> Any:
    """Return s with H s ≈ −g, whose residual is at most ``least``."""
    x = np.zeros(len(g), np.float32)
    r = -g
    p = np.empty(len(g), np.float32)
    _solve(r, preconditioner, p)
    rho = _dot(r, p)
    for _ in range(_CONJUGATES):
        if np.sqrt(_dot(r, r)) <= least:
            break
        hp = _hessian_times(p, rows, curves)
        alpha = np.float32(rho / _dot(p, hp))
        for j in range(len(x)):
            x[j] += alpha * p[j]
            r[j] -= alpha * hp[j]
        _solve(r, preconditioner, hp)
        before = rho
        rho = _dot(r, hp)
        beta = np.float32(rho / before)
        for j in range(len(x)):
            p[j] = hp[j] + beta * p[j]
    return x


@kernel
def _split_off_mean(diagonal: Any, mean: Any, weight: float) -> None:
    """Make ``mean`` the u and ``diagonal`` the D of D + u uᵀ, which is the Hessian but for likeness
    among documents.

    They come as Σ curve x and 1 + Σ curve x². With the weighted mean μ of the documents Σ curve x
    xᵀ is Σ curve (x − μ)(x − μ)ᵀ + weight μ μᵀ; the first is taken by its diagonal, the second
    whole: features of words are not below 0, so that f is by far the steepest in the direction
    of μ."""
    shrink = np.float32(1.0 / np.sqrt(weight))
    for j in range(len(mean)):
        mean[j] *= shrink
        diagonal[j] = max(diagonal[j] - mean[j] * mean[j], _UNIT)


@kernel
def _solve(r: Any, hessian: _Hessian, out: Any) -> None:
    """Write (D + u uᵀ)⁻¹ r, by Sherman and Morrison."""
    diagonal = hessian.diagonal
    across = hessian.across
    along = np.float32(hessian.scale * _dot(across, r))
    for j in range(len(r)):
        out[j] = np.divide(r[j], diagonal[j]) - along * across[j]


@kernel
def _hessian_times(p: Any, rows: _LocalRows, curves: Any) -> Any:
    """Return H p = p + Σ curve (x·p) x."""
    pointers, columns, values, dense, dense_rows, bias = rows
    hp = p.copy()
    n = len(p) - dense.shape[1]
    weights = p[n:]
    dense_out = hp[n:]
    constant = bias * p[n - 1]
    total = 0.0
    for a in range(len(curves)):
        begin = np.uint64(pointers[a])
        end = np.uint64(pointers[a + 1])
        margin = constant + _margin(p, begin, end, columns, values)
        if len(weights):
            margin += np.float32(_dot(dense[dense_rows[a]], weights))
        step = margin * curves[a]
        total += step
        for k in range(begin, end):
            hp[columns[k]] += values[k] * step
        if len(weights):
            row = dense[dense_rows[a]]
            for j in range(len(row)):
                dense_out[j] += row[j] * step
    hp[n - 1] += bias * np.float32(total)
    return hp


@kernel
def _margin(w: Any, k: Any, end: Any, columns: Any, values: Any) -> Any:
    """Return w·x of the sparse entries from k on, in four independent sums."""
    a = _ZERO
    b = _ZERO
    c = _ZERO
    d = _ZERO
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
def _add_sums(active: ActiveDocuments, rows: _LocalRows, g: Any, diagonal: Any, mean: Any) -> None:
    """Add Σ slope x to the gradient, Σ curve x² to the Hessian's diagonal, and Σ curve x to
    ``mean``.
    """
    pointers, columns, values, dense, dense_rows, bias = rows
    slopes = active.slopes
    curves = active.curves
    e = dense.shape[1]
    n = len(g) - e
    for a in range(len(slopes)):
        first = slopes[a]
        second = curves[a]
        g[n - 1] += first * bias
        diagonal[n - 1] += second * bias * bias
        mean[n - 1] += second * bias
        for k in range(np.uint64(pointers[a]), np.uint64(pointers[a + 1])):
            column = columns[k]
            value = values[k]
            g[column] += first * value
            diagonal[column] += second * value * value
            mean[column] += second * value
        row = dense[dense_rows[a]]
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
        left = a[begin : begin + 32]
        right = b[begin : begin + 32]
        for k in range(len(left)):
            sums[k] += np.float64(left[k]) * right[k]
    return float(sums.sum())
