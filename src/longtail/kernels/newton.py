"""Newton's method for the classifiers of a block of siblings (see ``sibling_blocks.py``): DiSMEC.

Margins of all siblings are cached, and moved together by one pass over the documents per step. The
step itself is computed for one sibling at a time (``newton_step.py``), as each has other documents
inside its margin."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.mean_separation import (
    ShortenedRows,
    mean_separating,
    means,
    shortened,
    unusual,
)
from longtail.kernels.newton_step import ActiveDocuments, NewtonWeights, newton_step
from longtail.kernels.row_products import sum_of_rows
from longtail.kernels.sibling_blocks import Problem
from longtail.kernels.tiles import (
    TILE,
    add_multiples,
    by_sibling,
    dots,
    list_positions,
    multiply,
    tiled,
)

__all__ = ["Newton", "solve_newton"]

_ZERO = np.float32(0)
_TWO = np.float32(2)
_FLAT = 0.1  # a line search ends where the slope is this share of the first one
_SEARCHES = 20  # its steps at most
_SUMS = 128  # partial sums, so that additions need not wait for one another


class Newton(NamedTuple):
    """Settings of :func:`solve_newton`; its targets are y C."""

    tolerance: float  # ε
    max_passes: int  # Newton steps at most


class _Margins(NamedTuple):
    """A number per document and sibling, at document * width + sibling."""

    targets: Any  # (m * width,) float32 y C, 0 is padding
    z: Any  # (m * width,) float32, margins at w
    q: Any  # (m * width,) float32, their change by the step s
    width: int


class _Inside(NamedTuple):
    """Buffers for the documents inside the margin, as positions among margins."""

    listed: Any  # (m * width + 1,) int32, rising
    positions: Any  # (m * width,) int32, by sibling


@kernel
def solve_newton(
    solver: Newton,  # IN
    problem: Problem,  # IN  targets y C; they are changed
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min ½‖w‖² + Σ C_i max(0, 1 − y_i w·x_i)² for each sibling in the primal; return the
    steps.

    Keerthi and DeCoste 2005, algorithm 2.1, with conjugate gradients for the step and a line search
    on cached margins, from a mean-separating start or from the best multiple up to one of the
    problem's. A sibling is solved at ‖∇f(w)‖ ≤ ε min(positives, negatives) / m · ‖∇f(0)‖, as in
    liblinear, and where a step promises to gain no more than a thousandth of f: of frequent labels
    the first alone may leave a hundredth."""
    documents = problem.documents
    targets = problem.targets
    m = len(documents.pointers) - 1
    width = len(targets) // max(m, 1)
    n_columns = len(out) // width
    block = unusual(targets, width)
    rows = shortened(documents, targets, width, n_columns)
    mean, least = means(rows, block, n_columns)
    size = m * width
    margins = _Margins(targets, np.zeros(size, np.float32), np.empty(size, np.float32), width)
    inside = _Inside(np.empty(size + 1, np.int32), np.empty(size, np.int32))
    column_at = np.empty(n_columns, np.int32)
    w = np.zeros(len(out), np.float32)
    s = np.zeros(len(out), np.float32)
    live = np.zeros(width)
    live[: problem.siblings] = 1.0
    t = live.copy()
    if len(problem.start) == 0:
        mean_separating(rows, block, mean, s)
        _step_margins(rows, margins, s, inside.listed)
    else:
        _copy_start(problem.start, width, s)
        begins = _inside_on_the_way(rows, margins, s, inside)
        _search(margins, inside.positions, begins, np.zeros(width), dots(s, s, width), live, t)
    out[:] = _ZERO
    steps = 0
    while True:
        add_multiples(w, s, t, width)
        n = _move(margins, t, inside.listed)
        begins = by_sibling(inside.listed[:n], width, inside.positions)
        s[:] = -w
        squares = dots(w, w, width)
        n_live = live.sum()
        for k in range(width):
            if live[k] == 0.0:
                continue
            limit = np.inf if steps == solver.max_passes else solver.tolerance * least[k]
            active = _derivatives(inside.positions[begins[k] : begins[k + 1]], margins)
            weights = NewtonWeights(w, s, width, k)
            if newton_step(active, rows, weights, squares[k], limit, column_at):
                live[k] = 0.0
                _write_private_columns(active, rows, width, k, out)
        if live.sum() == 0.0:
            out += w
            return steps
        if live.sum() < n_live:  # make solved siblings padding, whose documents are not looked at
            multiply(targets, live, width)
        begins = _inside_on_the_way(rows, margins, s, inside)
        ws = dots(w, s, width)
        _search(margins, inside.positions, begins, ws, dots(s, s, width), live, t)
        steps += 1


@kernel
def _copy_start(start: Any, width: int, s: Any) -> None:
    """Write the dense weights that Newton's method starts from as the first step."""
    siblings, e = start.shape
    for k in range(siblings):
        for j in range(e):
            s[j * width + k] = start[k, j]


@kernel
def _inside_on_the_way(rows: ShortenedRows, margins: _Margins, s: Any, inside: _Inside) -> Any:
    """Compute the margins of the step, and list the documents inside the margin before or after it
    by sibling; return where each begins.
    """
    n = _step_margins(rows, margins, s, inside.listed)
    return by_sibling(inside.listed[:n], margins.width, inside.positions)


@kernel
def _move(margins: _Margins, t: Any, listed: Any) -> int:
    """Move the margins by ``t`` q, and list the positions inside the margin; return how many."""
    n = 0
    far = tiled(t, margins.width)
    marks = np.zeros(TILE, np.uint8)
    for begin in range(0, len(margins.z), TILE):
        z = margins.z[begin : begin + TILE]
        q = margins.q[begin : begin + TILE]
        signs = margins.targets[begin : begin + TILE]
        for k in range(len(z)):
            z[k] += far[k] * q[k]
            marks[k] = signs[k] * z[k] < abs(signs[k])
        n = list_positions(marks, len(z), begin, listed, n)
    return n


@kernel
def _derivatives(positions: Any, margins: _Margins) -> ActiveDocuments:
    """Return the documents at these positions, and the derivatives of C (1 − y z)² by z there."""
    documents = np.empty(len(positions), np.int32)
    slopes = np.empty(len(positions), np.float32)
    curves = np.empty(len(positions), np.float32)
    width = np.uint32(margins.width)
    targets = margins.targets
    z = margins.z
    for a in range(len(positions)):
        position = np.uint32(positions[a])
        target = targets[position]
        cost = abs(target)
        inside = cost - target * z[position]
        documents[a] = position // width
        curves[a] = _TWO * cost
        slopes[a] = -_TWO * inside if target > _ZERO else _TWO * inside
    return ActiveDocuments(documents, slopes, curves)


@kernel
def _step_margins(rows: ShortenedRows, margins: _Margins, s: Any, listed: Any) -> int:
    """Write q = s·x, and list the positions inside the margin at w or at w + s; return how many."""
    starts, ends, columns, values, dense, dense_rows, bias, _ = rows
    targets, all_z, all_q, width = margins
    m = len(ends)
    per_tile = TILE // width
    marks = np.zeros(TILE, np.uint8)
    e = dense.shape[1]
    flat = dense.ravel()
    constant = tiled(bias * s[len(s) - width :], width)
    n = 0
    for first in range(0, m, per_tile):
        begin = first * width
        q = all_q[begin : begin + TILE]
        z = all_z[begin : begin + TILE]
        signs = targets[begin : begin + TILE]
        q[:] = constant[: len(q)]
        for i in range(first, min(first + per_tile, m)):
            at = (i - first) * width
            if e:
                row = np.int64(dense_rows[i]) * e
                sum_of_rows(q, at, s, width, None, flat, row, row + e)
            sum_of_rows(q, at, s, width, columns, values, starts[i], ends[i])
        for k in range(len(q)):
            target = signs[k]
            before = signs[k] * z[k]
            after = before + target * q[k]
            marks[k] = (before if before < after else after) < abs(target)
        n = list_positions(marks, len(q), begin, listed, n)
    return n


@kernel
def _search(
    margins: _Margins,  # IN
    positions: Any,  # IN  those inside the margin at some t, by sibling
    begins: Any,  # IN (width + 1,) where those of each sibling begin
    ws: Any,  # IN (width,) w·s
    ss: Any,  # IN (width,) s·s
    live: Any,  # IN (width,)
    t: Any,  # OUT (width,)
) -> None:
    """Set ``t`` of each sibling to where f(w + t s) is about least, 0 ≤ t ≤ 1; 0 if it is not live.

    Only documents inside the margin at some t count: margins are linear in t.
    """
    for k in range(len(t)):
        t[k] = 0.0
        if live[k] > 0.0:
            inside, falls, steps = _lines(positions[begins[k] : begins[k + 1]], margins)
            t[k] = _best_multiple(inside, falls, steps, ws[k], ss[k])


@kernel
def _lines(positions: Any, margins: _Margins) -> Any:
    """Return C (1 − y z), C y q and y q at these positions: the first falls by the second as t
    grows.
    """
    targets = margins.targets
    z = margins.z
    q = margins.q
    size = len(positions)
    inside = np.empty(size, np.float32)
    falls = np.empty(size, np.float32)
    steps = np.empty(size, np.float32)
    for a in range(size):
        position = np.uint32(positions[a])
        target = targets[position]
        by = q[position]
        inside[a] = abs(target) - target * z[position]
        falls[a] = target * by
        steps[a] = by if target > _ZERO else -by
    return inside, falls, steps


@kernel
def _best_multiple(inside: Any, falls: Any, steps: Any, ws: float, ss: float) -> float:
    """Return t of one sibling, by the slope of ½‖w + t s‖² and the losses of these documents."""
    first, _ = _along(inside, falls, steps, ws, ss, 0.0)
    if not first < 0.0:
        return 0.0
    low = 0.0
    high = 1.0
    t = 1.0
    for turn in range(_SEARCHES):
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
    far = np.float32(t)
    slopes = np.zeros(_SUMS, np.float32)
    curves = np.zeros(_SUMS, np.float32)
    for begin in range(0, len(inside), _SUMS):
        now = inside[begin : begin + _SUMS]
        fall = falls[begin : begin + _SUMS]
        step = steps[begin : begin + _SUMS]
        for k in range(len(now)):
            left = now[k] - far * fall[k]
            slopes[k] += left * step[k] if left > _ZERO else _ZERO
            curves[k] += fall[k] * step[k] if left > _ZERO else _ZERO
    slope = 0.0
    curve = 0.0
    for k in range(_SUMS):
        slope += slopes[k]
        curve += curves[k]
    return ws + t * ss - 2.0 * slope, ss + 2.0 * curve


@kernel
def _write_private_columns(
    active: ActiveDocuments, rows: ShortenedRows, width: int, k: int, out: Any
) -> None:
    """Write sibling k's weights of columns that only one document has.

    They are 0 but for active documents.
    """
    for a in range(len(active.documents)):
        i = active.documents[a]
        if rows.ends[i] < rows.starts[i + 1]:
            column = np.int64(rows.columns[rows.ends[i]])
            out[column * width + k] = -rows.private[i] * active.slopes[a]
