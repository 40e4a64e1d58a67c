"""Dual coordinate descent for the classifiers of up to 16 siblings at once.

All siblings of a node are trained on the same documents, so one pass over a document's non-zeros serves them all:
``w`` is laid out as [column][sibling], each non-zero touches one cache line, and the inner loop runs along siblings.

A *block* is a problem of ``m`` documents and ``width`` (8 or 16) siblings, some of which may be padding:
``pointers`` (m + 1), ``columns`` and ``values`` are the sparse rows, renumbered from ``e`` on; ``dense`` is (m, e);
``w`` has one row of ``width`` for each of the e dense columns, the sparse columns, and the bias, in this order.
``targets`` is (m, width): the sign is y, what the absolute value is, the solver says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel

__all__ = ["BLOCK", "solve_hinge", "solve_logistic"]

BLOCK = 16  # siblings solved together: 16 float32 are one cache line

_ZERO, _ONE, _INFINITY = np.float32(0), np.float32(1), np.float32(np.inf)
# where each part of a block's state begins
_MARGIN, _STEP, _HIGH, _LOW, _LIMIT, _LIVE, _PARTS = 0, BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK, 5 * BLOCK, 6
_FIRST_ALPHA = 1e-8  # α may not be 0 in the logistic dual, where its logarithm is taken
_NEWTON_STEPS = 100
_LEAST_NORM = 1e-30  # of a document without features: padding has nothing beside the norm to divide by


@kernel
def _random_below(state: Any, n: int) -> Any:
    """Return a number below ``n`` < 2^32 (xorshift64, high bits of a product in place of a modulo)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64(((x >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel
def _shuffle(order: Any, n: int, state: Any) -> None:
    for last in range(n - 1, 0, -1):
        other = _random_below(state, last + 1)
        order[last], order[other] = order[other], order[last]


@kernel
def _margins(
    out: Any, w: Any, width: int, start: Any, end: Any, columns: Any, values: Any, row: Any, bias: Any
) -> None:  # fmt: skip
    """Compute w·x of one document for all siblings: ``out`` (width)."""
    last = len(w) - width
    for s in range(width):
        out[s] = bias * w[last + s]
    for j in range(len(row)):
        value, at = row[j], j * width
        for s in range(width):
            out[s] += value * w[at + s]
    k = start
    while k + 4 <= end:  # four rows of w a step: the sums are loaded and stored a quarter as often
        v0, v1, v2, v3 = values[k], values[k + 1], values[k + 2], values[k + 3]
        a0, a1 = np.int64(columns[k]) * width, np.int64(columns[k + 1]) * width
        a2, a3 = np.int64(columns[k + 2]) * width, np.int64(columns[k + 3]) * width
        for s in range(width):
            out[s] += (v0 * w[a0 + s] + v1 * w[a1 + s]) + (v2 * w[a2 + s] + v3 * w[a3 + s])
        k += 4
    while k < end:
        value, place = values[k], np.int64(columns[k]) * width
        for s in range(width):
            out[s] += value * w[place + s]
        k += 1


@kernel
def _add(step: Any, w: Any, width: int, start: int, end: int, columns: Any, values: Any, row: Any, bias: Any) -> None:
    """Add step[s] · x of one document to each sibling's w."""
    last = len(w) - width
    for s in range(width):
        w[last + s] += bias * step[s]
    for j in range(len(row)):
        value, at = row[j], j * width
        for s in range(width):
            w[at + s] += value * step[s]
    for k in range(start, end):
        value, place = values[k], np.int64(columns[k]) * width
        for s in range(width):
            w[place + s] += value * step[s]


@kernel
def _freeze(slot: int, sibling: int, w: Any, width: int, out: Any, full: int) -> None:
    """Copy the weights of one sibling to where the caller finds them: ``out`` [column][sibling], ``full`` wide."""
    for row in range(len(w) // width):
        out[row * full + sibling] = w[row * width + slot]


@kernel
def _narrow(array: Any, width: int, slots: Any, narrow: int) -> Any:
    """Keep some slots of each row of ``width``, in place, and return the shorter array."""
    rows = len(array) // width
    for row in range(rows):
        for s in range(narrow):
            array[row * narrow + s] = array[row * width + slots[s]]
    return array[: rows * narrow]


@kernel
def _remaining(live: Any, sibling: Any, width: int, narrow: int) -> Any:
    """Return ``narrow`` slots that hold all live ones, and renumber ``live`` and ``sibling`` to them."""
    slots = np.empty(narrow, np.int64)
    count = 0
    for wanted in (1, 0):  # live ones, then dead ones as padding
        for s in range(width):
            if count < narrow and live[s] == wanted:
                slots[count] = s
                count += 1
    live_now, sibling_now = live[slots], sibling[slots]
    live[:narrow], sibling[:narrow] = live_now, sibling_now
    return slots


@kernel
def solve_hinge(
    pointers: NDArray[np.int64],  # IN
    columns: NDArray[np.uint32],  # IN
    values: NDArray[np.float32],  # IN
    dense: NDArray[np.float32],  # IN
    bias: np.float32,  # IN value of the constant feature
    targets: NDArray[np.float32],  # IN (m * width), changed: y / (2 C); 0 is padding
    siblings: int,  # IN how many of the width are no padding
    tolerance: float,  # IN ε
    max_passes: int,  # IN
    seed: int,  # IN
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min ½‖w‖² + Σ C_i max(0, 1 − y_i w·x_i)² for each sibling in the dual; return the passes made.

    Hsieh et al. 2008, algorithm 3, with shrinking: a document rests when all siblings would let it rest, and a
    sibling is done when its projected gradients over all documents lie within ``tolerance``.
    """
    m = len(pointers) - 1
    full = len(targets) // max(m, 1)
    width = full
    w, alpha = np.zeros(len(out), np.float32), np.zeros(m * width, np.float32)
    norms = _norms(pointers, values, dense, bias)
    order, random = np.arange(m), np.array([np.uint64(seed) * np.uint64(2) + np.uint64(1)], np.uint64)
    sibling = np.arange(width)
    # one array for all that is kept of a sibling, so that the compiler need not fear overlaps and vectorises
    state = np.zeros(_PARTS * BLOCK, np.float32)
    margins, step = state[_MARGIN:][:BLOCK], state[_STEP:][:BLOCK]
    high, low, limit = state[_HIGH:][:BLOCK], state[_LOW:][:BLOCK], state[_LIMIT:][:BLOCK]
    live = state[_LIVE:][:BLOCK]
    live[:siblings], limit[:] = _ONE, _INFINITY
    active, passes = m, 0
    while passes < max_passes:
        passes += 1
        _shuffle(order, active, random)
        high[:], low[:] = -_INFINITY, _INFINITY
        position = 0
        while position < active:
            i = order[position]
            start, end, row = pointers[i], pointers[i + 1], dense[i]
            _margins(margins, w, width, start, end, columns, values, row, bias)
            moved, rest = _visit(state, alpha, targets, i * width, width, norms[i])
            if rest:
                active -= 1
                order[position], order[active] = order[active], order[position]
                continue
            if moved:
                _add(step, w, width, start, end, columns, values, row, bias)
            position += 1
        open_ = 0
        for s in range(width):
            if live[s] > _ZERO and high[s] - low[s] > tolerance:
                open_ += 1
        if active < m:
            if open_ == 0:  # all are done on the documents that do not rest: look at all documents once more
                active = m
                limit[:] = _INFINITY
                continue
        else:
            for s in range(width):
                if live[s] > _ZERO and high[s] - low[s] <= tolerance:
                    live[s] = _ZERO
                    _freeze(s, sibling[s], w, width, out, full)
            if open_ == 0:
                return passes
            if width > 8 and open_ <= 8:
                slots = _remaining(live, sibling, width, 8)
                high[:8], low[:8] = high[slots], low[slots]
                w, alpha = _narrow(w, width, slots, 8), _narrow(alpha, width, slots, 8)
                targets, width = _narrow(targets, width, slots, 8), 8
        for s in range(width):
            limit[s] = high[s] if high[s] > _ZERO else _INFINITY
    for s in range(width):
        if live[s] > _ZERO:
            _freeze(s, sibling[s], w, width, out, full)
    return passes


@kernel
def _visit(state: Any, alpha: Any, targets: Any, at: int, width: int, norm: Any) -> Any:
    """Move α of one document for each sibling; return whether any moved, and whether all let the document rest."""
    moved, wanted = np.int32(0), np.int32(0)
    # slices have no negative indices, and np.divide no error for 0: either would keep the loop from being vectorised
    signs, alphas = targets[at : at + width], alpha[at : at + width]
    for s in range(width):
        target, old = signs[s], alphas[s]
        y = _ONE if target > _ZERO else -_ONE
        diagonal = target * y
        gradient = y * state[_MARGIN + s] - _ONE + old * diagonal
        rests = (old == _ZERO) & (gradient > state[_LIMIT + s])
        projected = gradient if (old > _ZERO) | (gradient < _ZERO) else _ZERO
        high, low = state[_HIGH + s], state[_LOW + s]
        state[_HIGH + s] = projected if projected > high else high
        state[_LOW + s] = projected if projected < low else low
        new = old - np.divide(gradient, norm + diagonal)
        new = new if new > _ZERO else _ZERO
        change = (new - old) * state[_LIVE + s]
        alphas[s] = old + change
        state[_STEP + s] = change * y
        moved |= np.int32(change != _ZERO)
        wanted |= np.int32((state[_LIVE + s] > _ZERO) & (not rests))
    return moved != 0, wanted == 0


@kernel
def _norms(pointers: Any, values: Any, dense: Any, bias: Any) -> Any:
    """Return ‖x‖² of each document, the constant feature included."""
    norms = np.empty(len(pointers) - 1, np.float32)
    for i in range(len(norms)):
        total = np.float64(bias) * bias
        for k in range(pointers[i], pointers[i + 1]):
            total += np.float64(values[k]) * values[k]
        for j in range(dense.shape[1]):
            total += np.float64(dense[i, j]) * dense[i, j]
        norms[i] = max(total, _LEAST_NORM)
    return norms


@kernel
def _newton(a: float, b: float, cost: float, old: float, precision: float) -> tuple[float, float, int]:
    """Minimise z ln z + (C−z) ln(C−z) + ½a(z−α)² + b(z−α) over z, Newton's steps kept inside (0, C).

    Returns z, the size of the gradient before the first step, and the steps made (Yu et al. 2011, algorithm 4).
    """
    z = 0.1 * old if cost - old < 0.5 * cost else old
    gradient = a * (z - old) + b + np.log(z / (cost - z))
    size, steps = abs(gradient), 0
    while abs(gradient) >= precision and steps <= _NEWTON_STEPS:
        z_next = z - gradient / (a + cost / ((cost - z) * z))
        z = 0.1 * z if z_next <= 0.0 else z_next
        gradient = a * (z - old) + b + np.log(z / (cost - z))
        steps += 1
    return z, size, steps


@kernel
def solve_logistic(
    pointers: NDArray[np.int64],  # IN
    columns: NDArray[np.uint32],  # IN
    values: NDArray[np.float32],  # IN
    dense: NDArray[np.float32],  # IN
    bias: np.float32,  # IN
    targets: NDArray[np.float32],  # IN (m * width): y C; 0 is padding
    siblings: int,  # IN
    tolerance: float,  # IN ε
    max_passes: int,  # IN
    seed: int,  # IN
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min ½‖w‖² + Σ C_i ln(1 + exp(−y_i w·x_i)) for each sibling in the dual; return the passes made.

    Yu, Huang and Lin 2011, algorithm 5: a Newton step on each pair (α, C − α). A sibling is done when no
    gradient of a pass is above ``tolerance``.
    """
    m = len(pointers) - 1
    width = len(targets) // max(m, 1)
    w, alpha = np.zeros(len(out), np.float32), np.empty(m * width, np.float64)
    for place in range(len(alpha)):
        alpha[place] = min(0.001 * abs(targets[place]), _FIRST_ALPHA)
    norms = _norms(pointers, values, dense, bias)
    order, state = np.arange(m), np.array([np.uint64(seed) * np.uint64(2) + np.uint64(1)], np.uint64)
    live = np.zeros(width, np.int64)
    live[:siblings] = 1
    margins, step = np.empty(width, np.float32), np.empty(width, np.float32)
    largest, precision, newton_steps = np.empty(width), np.full(width, 1e-2), np.empty(width, np.int64)
    passes = 0
    while passes < max_passes:
        passes += 1
        _shuffle(order, m, state)
        largest[:], newton_steps[:] = 0.0, 0
        for i in order:
            start, end, row, moved = pointers[i], pointers[i + 1], dense[i], False
            _margins(margins, w, width, start, end, columns, values, row, bias)
            for s in range(width):
                step[s] = _ZERO
                if live[s] == 0:
                    continue
                at = i * width + s
                target = targets[at]
                y, cost, a = 1.0 if target > _ZERO else -1.0, np.float64(abs(target)), np.float64(norms[i])
                b, old, sign = y * margins[s], alpha[at], 1.0
                if 0.5 * a * (cost - 2.0 * old) + b < 0.0:  # the other of the pair is the one near 0
                    old, sign = cost - old, -1.0
                z, size, steps = _newton(a, sign * b, cost, old, precision[s])
                largest[s] = max(largest[s], size)
                newton_steps[s] += steps
                if steps:
                    alpha[at] = z if sign > 0.0 else cost - z
                    step[s] = sign * (z - old) * y
                    moved = True
            if moved:
                _add(step, w, width, start, end, columns, values, row, bias)
        open_ = 0
        for s in range(width):
            if live[s] and largest[s] < tolerance:
                live[s] = 0
            open_ += live[s]
            if newton_steps[s] <= m // 10:
                precision[s] = max(1e-8, 0.1 * precision[s])
        if open_ == 0:
            break
    out[:] = w
    return passes
