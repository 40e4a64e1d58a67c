"""Dual coordinate descent for the classifiers of a block of siblings (``sibling_blocks.py`` says what a block is).

``targets`` is (m, width): the sign is y, what the absolute value is, each solver says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.cache_lines import LINE, prefetch
from longtail.kernels.dense_block import in_lines
from longtail.kernels.jit import kernel
from longtail.kernels.sibling_blocks import (
    BLOCK,
    add_dense_margins,
    add_dense_row,
    add_row,
    dense_weights,
    margins_of,
    shuffle,
    step_and_add_dense_margins,
)

__all__ = ["solve_hinge", "solve_logistic"]

_ZERO, _ONE, _INFINITY = np.float32(0), np.float32(1), np.float32(np.inf)
# where each part of a block's state begins
_MARGIN, _STEP, _HIGH, _LOW, _LIMIT, _LIVE, _PARTS = 0, BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK, 5 * BLOCK, 6
_FIRST_ALPHA = 1e-8  # α may not be 0 in the logistic dual, where its logarithm is taken
_NEWTON_STEPS = 100
_AHEAD, _FAR = 2, 1024  # documents that are asked for before their turn, where there are so many


@kernel
def _freeze(
    slot: int, sibling: int, w: Any, by_products: bool, alpha: Any, targets: Any, dense: Any, dense_rows: Any,
    width: int, out: Any, full: int,
) -> None:  # fmt: skip
    """Copy the weights of one sibling to where the caller finds them: ``out`` [column][sibling], ``full`` wide."""
    for row in range(len(w) // width):
        out[row * full + sibling] = w[row * width + slot]
    if by_products:
        out[sibling : dense.shape[1] * full : full] = dense_weights(alpha, targets, width, slot, dense, dense_rows)


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
    dense_rows: NDArray[np.int32],  # IN (m) row of each document in ``dense``
    bias: np.float32,  # IN value of the constant feature
    targets: NDArray[np.float32],  # IN (m * width), changed: y / (2 C); 0 is padding
    siblings: int,  # IN how many of the width are no padding
    tolerance: float,  # IN ε
    max_passes: int,  # IN
    seed: int,  # IN
    norms: NDArray[np.float32],  # IN (m) of ``square_norms``
    products: NDArray[np.float32],  # IN (m, m) inner products of dense rows to work with in their place, or (0, 0)
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min ½‖w‖² + Σ C_i max(0, 1 − y_i w·x_i)² for each sibling in the dual; return the passes made.

    Hsieh et al. 2008, algorithm 3, with shrinking: a document rests when all siblings would let it rest, and a
    sibling is done when its projected gradients over all documents lie within ``tolerance``.
    """
    m, rows = len(pointers) - 1, (pointers, columns, values, dense, dense_rows, bias, products)
    full = len(targets) // max(m, 1)
    width = full
    w, alpha = in_lines(len(out)), np.zeros(m * width, np.float32)
    by_products, pull = len(products) > 0, in_lines(len(products) * width)
    order, random = np.arange(m), np.array([np.uint64(seed) * np.uint64(2) + np.uint64(1)], np.uint64)
    sibling = np.arange(width)
    # one array for all that is kept of a sibling, so that the compiler need not fear overlaps and vectorises
    state = np.zeros(_PARTS * BLOCK, np.float32)
    high, low, limit = state[_HIGH:][:BLOCK], state[_LOW:][:BLOCK], state[_LIMIT:][:BLOCK]
    live = state[_LIVE:][:BLOCK]
    live[:siblings], limit[:] = _ONE, _INFINITY
    active, passes = m, 0
    while passes < max_passes:
        passes += 1
        shuffle(order, active, random)
        high[:], low[:] = -_INFINITY, _INFINITY
        active = _pass(order, active, rows, norms, targets, width, state, alpha, w, pull)
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
                    _freeze(s, sibling[s], w, by_products, alpha, targets, dense, dense_rows, width, out, full)
            if open_ == 0:
                return passes
            if width > 8 and open_ <= 8:
                slots = _remaining(live, sibling, width, 8)
                high[:8], low[:8] = high[slots], low[slots]
                w, alpha = _narrow(w, width, slots, 8), _narrow(alpha, width, slots, 8)
                pull = _narrow(pull, width, slots, 8)
                targets, width = _narrow(targets, width, slots, 8), 8
        for s in range(width):
            limit[s] = high[s] if high[s] > _ZERO else _INFINITY
    for s in range(width):
        if live[s] > _ZERO:
            _freeze(s, sibling[s], w, by_products, alpha, targets, dense, dense_rows, width, out, full)
    return passes


@kernel
def _pass(
    order: Any, active: int, rows: Any, norms: Any, targets: Any, width: int, state: Any, alpha: Any, w: Any, pull: Any
) -> int:
    """Visit the first ``active`` documents of ``order``, and put those that may rest behind; return how many do not.

    The step of a document in the dense weights waits for the margins of the next one, which read the same weights.
    """
    pointers, columns, values, dense, dense_rows, bias, products = rows
    margins, step, position = state[_MARGIN:][:BLOCK], state[_STEP:][:BLOCK], 0
    waiting, by_rows = -1, dense.shape[1] > 0 and len(pull) == 0
    while position < active:
        i = order[position]
        start, end = pointers[i], pointers[i + 1]
        if len(order) >= _FAR:
            _ask_ahead(order, position, rows, targets, alpha, w, width)
        margins_of(margins, w, width, start, end, columns, values, bias)
        if waiting >= 0:
            step_and_add_dense_margins(step, waiting, margins, w, width, i, dense, dense_rows)
            waiting = -1
        elif dense.shape[1]:
            add_dense_margins(margins, w, pull, width, i, dense, dense_rows)
        moved, rest = _visit(state, alpha, targets, i * width, width, norms[i])
        if rest:
            active -= 1
            order[position], order[active] = order[active], order[position]
            continue
        if moved:
            add_row(step, w, width, start, end, columns, values, bias)
            if by_rows:
                waiting = i
            elif dense.shape[1]:
                add_dense_row(step, w, pull, width, i, dense, dense_rows, products)
        position += 1
    if waiting >= 0:
        add_dense_row(step, w, pull, width, waiting, dense, dense_rows, products)
    return active


@kernel
def _ask_ahead(order: Any, position: int, rows: Any, targets: Any, alpha: Any, w: Any, width: int) -> None:
    """Ask for what the next documents read: they lie anywhere in memory."""
    pointers, columns, values, dense, dense_rows, _, _ = rows
    if position + _AHEAD >= len(order):
        return
    later = order[position + _AHEAD]
    for k in range(pointers[later], pointers[later + 1], LINE):
        prefetch(columns, k)
        prefetch(values, k)
    after = order[position + 1]
    prefetch(targets, after * width)
    prefetch(alpha, after * width)
    flat, begin = dense.ravel(), np.int64(dense_rows[after]) * dense.shape[1]
    for k in range(begin, begin + dense.shape[1], LINE):
        prefetch(flat, k)
    for k in range(pointers[after], pointers[after + 1]):
        prefetch(w, np.int64(columns[k]) * width)


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
    dense_rows: NDArray[np.int32],  # IN (m) row of each document in ``dense``
    bias: np.float32,  # IN
    targets: NDArray[np.float32],  # IN (m * width): y C; 0 is padding
    siblings: int,  # IN
    tolerance: float,  # IN ε
    max_passes: int,  # IN
    seed: int,  # IN
    norms: NDArray[np.float32],  # IN (m) of ``square_norms``
    products: NDArray[np.float32],  # IN (m, m) inner products of dense rows to work with in their place, or (0, 0)
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min ½‖w‖² + Σ C_i ln(1 + exp(−y_i w·x_i)) for each sibling in the dual; return the passes made.

    Yu, Huang and Lin 2011, algorithm 5: a Newton step on each pair (α, C − α). A sibling is done when no
    gradient of a pass is above ``tolerance``.
    """
    m, e = len(pointers) - 1, dense.shape[1]
    width = len(targets) // max(m, 1)
    w, alpha = in_lines(len(out)), np.empty(m * width, np.float64)
    for place in range(len(alpha)):
        alpha[place] = min(0.001 * abs(targets[place]), _FIRST_ALPHA)
    by_products, pull = len(products) > 0, in_lines(len(products) * width)
    order, state = np.arange(m), np.array([np.uint64(seed) * np.uint64(2) + np.uint64(1)], np.uint64)
    live = np.zeros(width, np.int64)
    live[:siblings] = 1
    margins, step = np.empty(width, np.float32), np.empty(width, np.float32)
    largest, precision, newton_steps = np.empty(width), np.full(width, 1e-2), np.empty(width, np.int64)
    passes = 0
    while passes < max_passes:
        passes += 1
        shuffle(order, m, state)
        largest[:], newton_steps[:] = 0.0, 0
        for i in order:
            start, end, moved = pointers[i], pointers[i + 1], False
            margins_of(margins, w, width, start, end, columns, values, bias)
            if e:
                add_dense_margins(margins, w, pull, width, i, dense, dense_rows)
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
                add_row(step, w, width, start, end, columns, values, bias)
                if e:
                    add_dense_row(step, w, pull, width, i, dense, dense_rows, products)
        open_ = 0
        for s in range(width):
            if live[s] and largest[s] < tolerance:
                live[s] = 0
            open_ += live[s]
            if newton_steps[s] <= m // 10:
                precision[s] = max(1e-8, 0.1 * precision[s])
        if open_ == 0:
            break
    for s in range(width):
        _freeze(s, s, w, by_products, alpha, targets, dense, dense_rows, width, out, width)
    return passes
