"""Newton's method for the classifiers of a block of siblings (``sibling_blocks.py`` says what a block is): DiSMEC.

Margins of all siblings are cached, and moved together by one pass over the documents a step. The step itself is found
for one sibling at a time (``newton_step.py``), as each has other documents inside its margin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.mean_separation import add_margins, mean_separating, means, take_out_own_columns, unusual
from longtail.kernels.newton_step import newton_step
from longtail.kernels.tiles import TILE, add_multiples, dots, folded, list_marked, multiply, tiled

__all__ = ["solve_newton"]

_ZERO, _TWO = np.float32(0), np.float32(2)
_FLAT = 0.1  # a line search ends where the slope is this share of the first one
_SEARCHES = 20  # its steps at most


@kernel
def solve_newton(
    pointers: NDArray[np.int64],  # IN
    columns: NDArray[np.uint32],  # IN
    values: NDArray[np.float32],  # IN
    dense: NDArray[np.float32],  # IN
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
    ‖∇f(w)‖ ≤ ε min(positives, negatives) / m · ‖∇f(0)‖, as in liblinear.
    """
    m, width = len(pointers) - 1, len(targets) // max(len(pointers) - 1, 1)
    rows, constant = len(out) // width, np.full(1, bias, np.float32)
    marked, usual = unusual(targets, width)
    ends, own = take_out_own_columns(pointers, columns, values, targets, width, rows)
    mean, least = means(pointers, ends, columns, values, dense, constant, targets, width, marked, usual, own, rows)
    w, s = np.zeros(len(out), np.float32), np.zeros(len(out), np.float32)
    z, q = np.zeros(m * width, np.float32), np.empty(m * width, np.float32)
    live = np.zeros(width)
    live[:siblings] = 1.0
    t = live.copy()
    docs, column_at = np.empty(m, np.int32), np.full(rows, -1, np.int32)
    slopes, curves = np.empty(m * width, np.float32), np.empty(m * width, np.float32)
    if start is None:
        mean_separating(pointers, ends, columns, values, dense, constant, targets, width, marked, mean, s)
        _step_margins(pointers, ends, columns, values, dense, constant, targets, s, z, q, width, docs)
    else:
        s[: len(start)] = start
        n = _step_margins(pointers, ends, columns, values, dense, constant, targets, s, z, q, width, docs)
        _search(np.zeros(width), dots(s, s, width), z, q, targets, width, docs[:n], live, t)
    out[:], steps = _ZERO, 0
    while True:
        add_multiples(w, s, t, width)
        n = _active(z, q, t, targets, width, docs, slopes, curves)
        s[:] = -w
        squares, n_live = dots(w, w, width), live.sum()
        for k in range(width):
            limit = np.inf if steps == max_passes else tolerance * least[k]
            if live[k] > 0.0 and newton_step(
                docs[:n], pointers, ends, columns, values, dense, bias, slopes, curves, width, k, squares[k], limit,
                column_at, w, s,
            ):  # fmt: skip
                live[k] = 0.0
                _write_own_columns(docs[:n], ends, own, pointers, columns, slopes, width, k, out)
        if live.sum() == 0.0:
            out += w
            return steps
        if live.sum() < n_live:
            multiply(targets, live, width)  # as if it were padding: its documents need not be looked at any more
        n = _step_margins(pointers, ends, columns, values, dense, constant, targets, s, z, q, width, docs)
        _search(dots(w, s, width), dots(s, s, width), z, q, targets, width, docs[:n], live, t)
        steps += 1


@kernel
def _active(z: Any, q: Any, t: Any, targets: Any, width: int, docs: Any, slopes: Any, curves: Any) -> int:
    """Move the margins by ``t`` q, and list documents with a sibling inside the margin, with −2 C y h and 2 C of each.

    h = 1 − y z; where it is negative, both are 0. Returns how many there are.
    """
    n, before, far, marks = 0, 0, tiled(t, width), np.zeros(TILE, np.uint8)
    for begin in range(0, len(z), TILE):
        margins, steps, signs = z[begin : begin + TILE], q[begin : begin + TILE], targets[begin : begin + TILE]
        for k in range(len(margins)):
            margins[k] += far[k] * steps[k]
            marks[k] = signs[k] * margins[k] < abs(signs[k])
        n = list_marked(marks, len(margins), begin // width, width, docs, before)
        for a in range(before, n):
            at, to = docs[a] * width, a * width
            slopes[to : to + width], curves[to : to + width] = z[at : at + width], targets[at : at + width]
        before = n
    _derivatives(slopes[: n * width], curves[: n * width])
    return n


@kernel
def _derivatives(slopes: Any, curves: Any) -> None:
    """Turn margins and targets into the first and second derivative of C max(0, 1 − y z)² by z."""
    for k in range(len(slopes)):
        target, cost = curves[k], abs(curves[k])
        inside = cost - target * slopes[k]
        inside = inside if inside > _ZERO else _ZERO
        slopes[k] = -_TWO * inside if target > _ZERO else _TWO * inside
        curves[k] = _TWO * cost if inside > _ZERO else _ZERO


@kernel
def _step_margins(
    pointers: Any, ends: Any, columns: Any, values: Any, dense: Any, bias: Any, targets: Any, s: Any, z: Any, q: Any,
    width: int, docs: Any,
) -> int:  # fmt: skip
    """Write q = s·x, and list documents with a sibling inside the margin at w or at w + s; return how many."""
    n, per, marks = 0, TILE // width, np.zeros(TILE, np.uint8)
    for first in range(0, len(ends), per):
        begin = first * width
        steps, margins, signs = q[begin : begin + TILE], z[begin : begin + TILE], targets[begin : begin + TILE]
        steps[:] = _ZERO
        for i in range(first, min(first + per, len(ends))):
            add_margins(steps, (i - first) * width, s, width, pointers[i], ends[i], columns, values, dense[i], bias)
        for k in range(len(steps)):
            target, before = signs[k], signs[k] * margins[k]
            after = before + target * steps[k]
            marks[k] = (before if before < after else after) < abs(target)
        n = list_marked(marks, len(steps), first, width, docs, n)
    return n


@kernel
def _search(
    ws: Any, ss: Any, z: Any, q: Any, targets: Any, width: int, docs: Any, live: Any, t: Any
) -> None:  # fmt: skip
    """Set ``t`` of each sibling to where f(w + t s) is about least, 0 ≤ t ≤ 1; 0 if it is not live.

    Only the documents ``docs`` inside the margin somewhere on the way count: margins are linear in t.
    """
    size = len(docs) * width
    some_z, some_q, some = np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, np.float32)
    for a in range(len(docs)):
        at, to = docs[a] * width, a * width
        some_z[to : to + width], some_q[to : to + width] = z[at : at + width], q[at : at + width]
        some[to : to + width] = targets[at : at + width]
    far = np.zeros(width)
    slope, _ = _along(ws, ss, some_z, some_q, some, width, far)
    first = np.abs(slope)
    low, high, open_ = np.zeros(width), np.ones(width), np.zeros(width)
    for k in range(width):
        open_[k] = live[k] if slope[k] < 0.0 else 0.0
        far[k] = open_[k]
    for turn in range(_SEARCHES):
        slope, curve = _along(ws, ss, some_z, some_q, some, width, far)
        left = 0
        for k in range(width):
            if open_[k] == 0.0 or abs(slope[k]) <= _FLAT * first[k] or (turn == 0 and slope[k] < 0.0):
                open_[k] = 0.0
                continue
            left += 1
            if slope[k] > 0.0:
                high[k] = far[k]
            else:
                low[k] = far[k]
            far[k] -= slope[k] / curve[k]
            if not low[k] < far[k] < high[k]:
                far[k] = 0.5 * (low[k] + high[k])
        if left == 0:
            break
    t[:] = far


@kernel
def _along(ws: Any, ss: Any, z: Any, q: Any, targets: Any, width: int, far: Any) -> Any:
    """Return the first and second derivative of f(w + t s) by t at ``far``."""
    t, slopes, curves = tiled(far, width), np.zeros(TILE, np.float32), np.zeros(TILE, np.float32)
    for begin in range(0, len(z), TILE):
        margins, steps, signs = z[begin : begin + TILE], q[begin : begin + TILE], targets[begin : begin + TILE]
        for k in range(len(margins)):
            target, by = signs[k], steps[k]
            inside = abs(target) - target * (margins[k] + t[k] * by)
            inside = inside if inside > _ZERO else _ZERO
            slopes[k] -= (_TWO * inside if target > _ZERO else -_TWO * inside) * by
            curves[k] += _TWO * abs(target) * by * by if inside > _ZERO else _ZERO
    return ws + far * ss + folded(slopes, width), ss + folded(curves, width)


@kernel
def _write_own_columns(
    mine: Any, ends: Any, own: Any, pointers: Any, columns: Any, slopes: Any, width: int, k: int, out: Any
) -> None:
    """Write one sibling's weights of columns that only one document has; they are 0 but for active documents."""
    for a in range(len(mine)):
        i = mine[a]
        if ends[i] < pointers[i + 1]:
            out[np.int64(columns[ends[i]]) * width + k] = -own[i] * slopes[a * width + k]
