"""Newton's method for the classifiers of a block of siblings (``sibling_blocks.py`` says what a block is): DiSMEC.

Margins of all siblings are cached, and moved together by one pass over the documents a step. The step itself is found
for one sibling at a time (``newton_step.py``), as each has other documents inside its margin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.lanes import sum_of_rows
from longtail.kernels.mean_separation import mean_separating, means, take_out_own_columns, unusual
from longtail.kernels.newton_step import newton_step
from longtail.kernels.tiles import TILE, add_multiples, by_sibling, dots, list_places, multiply, tiled

__all__ = ["solve_newton"]

_ZERO, _TWO = np.float32(0), np.float32(2)
_FLAT = 0.1  # a line search ends where the slope is this share of the first one
_SEARCHES = 20  # its steps at most
_SUMS = 128  # partial sums, so that additions need not wait for one another


@kernel
def solve_newton(
    pointers: NDArray[np.int64],  # IN
    columns: NDArray[np.uint32],  # IN
    values: NDArray[np.float32],  # IN
    dense: NDArray[np.float32],  # IN
    dense_rows: NDArray[np.int32],  # IN (m) row of each document in ``dense``
    bias: np.float32,  # IN value of the constant feature
    targets: NDArray[np.float32],  # IN (m * width), changed: y C; 0 is padding
    siblings: int,  # IN how many of the width are no padding
    tolerance: float,  # IN ε
    max_passes: int,  # IN Newton steps at most
    start: NDArray[np.float32] | None,  # IN (e * width) dense weights to start from
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min ½‖w‖² + Σ C_i max(0, 1 − y_i w·x_i)² for each sibling in the primal; return the steps made.

    Keerthi and DeCoste 2005, algorithm 2.1, with conjugate gradients for the step and a line search on cached margins,
    from a mean-separating start or from the best multiple up to one of ``start``. A sibling is done at
    ‖∇f(w)‖ ≤ ε min(positives, negatives) / m · ‖∇f(0)‖, as in liblinear, and where a step promises to gain no more than
    a thousandth of f: of frequent labels the first alone may leave a hundredth.
    """
    m, width = len(pointers) - 1, len(targets) // max(len(pointers) - 1, 1)
    rows, constant = len(out) // width, np.full(1, bias, np.float32)
    marked, usual = unusual(targets, width)
    ends, own = take_out_own_columns(pointers, columns, values, targets, width, rows)
    block = (pointers, ends, columns, values, dense, dense_rows)
    mean, least = means(*block, constant, targets, width, marked, usual, own, rows)
    w, s = np.zeros(len(out), np.float32), np.zeros(len(out), np.float32)
    z, q = np.zeros(m * width, np.float32), np.empty(m * width, np.float32)
    live = np.zeros(width)
    live[:siblings] = 1.0
    t = live.copy()
    listed, places = np.empty(m * width + 1, np.int32), np.empty(m * width, np.int32)
    column_at = np.empty(rows, np.int32)
    if start is None:
        mean_separating(*block, constant, targets, width, marked, mean, s)
        _step_margins(*block, bias, targets, s, z, q, width, listed)
    else:
        s[: len(start)] = start
        n = _step_margins(*block, bias, targets, s, z, q, width, listed)
        begins = by_sibling(listed[:n], width, places)
        _search(places, begins, z, q, targets, np.zeros(width), dots(s, s, width), live, t)
    out[:], steps = _ZERO, 0
    while True:
        add_multiples(w, s, t, width)
        begins = by_sibling(listed[: _move(z, q, t, targets, width, listed)], width, places)
        s[:] = -w
        squares, n_live = dots(w, w, width), live.sum()
        for k in range(width):
            if live[k] == 0.0:
                continue
            limit = np.inf if steps == max_passes else tolerance * least[k]
            docs, slopes, curves = _derivatives(places[begins[k] : begins[k + 1]], z, targets, width)
            if newton_step(
                docs, *block, bias, slopes, curves, width, k, squares[k], limit, column_at, w, s
            ):  # fmt: skip
                live[k] = 0.0
                _write_own_columns(docs, ends, own, pointers, columns, slopes, width, k, out)
        if live.sum() == 0.0:
            out += w
            return steps
        if live.sum() < n_live:
            multiply(targets, live, width)  # as if it were padding: its documents need not be looked at any more
        n = _step_margins(*block, bias, targets, s, z, q, width, listed)
        begins = by_sibling(listed[:n], width, places)
        _search(places, begins, z, q, targets, dots(w, s, width), dots(s, s, width), live, t)
        steps += 1


@kernel
def _move(z: Any, q: Any, t: Any, targets: Any, width: int, listed: Any) -> int:
    """Move the margins by ``t`` q, and list the places (document * width + sibling) inside the margin."""
    n, far, marks = 0, tiled(t, width), np.zeros(TILE, np.uint8)
    for begin in range(0, len(z), TILE):
        margins, steps, signs = z[begin : begin + TILE], q[begin : begin + TILE], targets[begin : begin + TILE]
        for k in range(len(margins)):
            margins[k] += far[k] * steps[k]
            marks[k] = signs[k] * margins[k] < abs(signs[k])
        n = list_places(marks, len(margins), begin, listed, n)
    return n


@kernel
def _derivatives(places: Any, z: Any, targets: Any, width: int) -> Any:
    """Return the documents at these places, and the first and second derivative of C (1 − y z)² by z there."""
    docs = np.empty(len(places), np.int32)
    slopes, curves = np.empty(len(places), np.float32), np.empty(len(places), np.float32)
    for a in range(len(places)):
        place = np.uint32(places[a])
        target, cost = targets[place], abs(targets[place])
        inside = cost - target * z[place]
        docs[a], curves[a] = place // np.uint32(width), _TWO * cost
        slopes[a] = -_TWO * inside if target > _ZERO else _TWO * inside
    return docs, slopes, curves


@kernel
def _step_margins(
    pointers: Any, ends: Any, columns: Any, values: Any, dense: Any, dense_rows: Any, bias: Any, targets: Any, s: Any,
    z: Any, q: Any, width: int, listed: Any,
) -> int:  # fmt: skip
    """Write q = s·x, and list the places inside the margin at w or at w + s; return how many."""
    n, per, marks = 0, TILE // width, np.zeros(TILE, np.uint8)
    e, flat, constant = dense.shape[1], dense.ravel(), tiled(bias * s[len(s) - width :], width)
    for first in range(0, len(ends), per):
        begin = first * width
        steps, margins, signs = q[begin : begin + TILE], z[begin : begin + TILE], targets[begin : begin + TILE]
        steps[:] = constant[: len(steps)]
        for i in range(first, min(first + per, len(ends))):
            at = (i - first) * width
            if e:
                begin_of_row = np.int64(dense_rows[i]) * e
                sum_of_rows(steps, at, s, width, None, flat, begin_of_row, begin_of_row + e)
            sum_of_rows(steps, at, s, width, columns, values, pointers[i], ends[i])
        for k in range(len(steps)):
            target, before = signs[k], signs[k] * margins[k]
            after = before + target * steps[k]
            marks[k] = (before if before < after else after) < abs(target)
        n = list_places(marks, len(steps), begin, listed, n)
    return n


@kernel
def _search(
    places: Any, begins: Any, z: Any, q: Any, targets: Any, ws: Any, ss: Any, live: Any, t: Any
) -> None:  # fmt: skip
    """Set ``t`` of each sibling to where f(w + t s) is about least, 0 ≤ t ≤ 1; 0 if it is not live.

    Only the documents inside the margin somewhere on the way count, those at ``places``: margins are linear in t.
    """
    for k in range(len(t)):
        t[k] = 0.0
        if live[k] > 0.0:
            inside, falls, steps = _lines(places[begins[k] : begins[k + 1]], z, q, targets)
            t[k] = _best_multiple(inside, falls, steps, ws[k], ss[k])


@kernel
def _lines(places: Any, z: Any, q: Any, targets: Any) -> Any:
    """Return C (1 − y z), C y q and y q at these places: the first falls by the second as t grows."""
    size = len(places)
    inside, falls, steps = np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, np.float32)
    for a in range(size):
        place = np.uint32(places[a])
        target, by = targets[place], q[place]
        inside[a], falls[a] = abs(target) - target * z[place], target * by
        steps[a] = by if target > _ZERO else -by
    return inside, falls, steps


@kernel
def _best_multiple(inside: Any, falls: Any, steps: Any, ws: float, ss: float) -> float:
    """Return t of one sibling; the slope is that of ½‖w + t s‖² and of the losses of these documents."""
    first, _ = _along(inside, falls, steps, ws, ss, 0.0)
    low, high, t = 0.0, 1.0, 1.0 if first < 0.0 else 0.0
    for turn in range(_SEARCHES if first < 0.0 else 0):
        slope, curve = _along(inside, falls, steps, ws, ss, t)
        if abs(slope) <= _FLAT * abs(first) or (turn == 0 and slope < 0.0):
            break
        if slope > 0.0:
            high = t
        else:
            low = t
        t -= slope / curve
        if not low < t < high:
            t = 0.5 * (low + high)
    return t


@kernel
def _along(inside: Any, falls: Any, steps: Any, ws: float, ss: float, t: float) -> Any:
    """Return the first and second derivative of f(w + t s) by t."""
    far, slopes, curves = np.float32(t), np.zeros(_SUMS, np.float32), np.zeros(_SUMS, np.float32)
    for begin in range(0, len(inside), _SUMS):
        now, fall, step = inside[begin : begin + _SUMS], falls[begin : begin + _SUMS], steps[begin : begin + _SUMS]
        for k in range(len(now)):
            left = now[k] - far * fall[k]
            slopes[k] += left * step[k] if left > _ZERO else _ZERO
            curves[k] += fall[k] * step[k] if left > _ZERO else _ZERO
    slope, curve = 0.0, 0.0
    for k in range(_SUMS):
        slope += slopes[k]
        curve += curves[k]
    return ws + t * ss - 2.0 * slope, ss + 2.0 * curve


@kernel
def _write_own_columns(
    docs: Any, ends: Any, own: Any, pointers: Any, columns: Any, slopes: Any, width: int, k: int, out: Any
) -> None:
    """Write one sibling's weights of columns that only one document has; they are 0 but for active documents."""
    for a in range(len(docs)):
        i = docs[a]
        if ends[i] < pointers[i + 1]:
            out[np.int64(columns[ends[i]]) * width + k] = -own[i] * slopes[a]
