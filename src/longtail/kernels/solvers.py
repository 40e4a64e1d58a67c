"""Dual coordinate descent for the classifiers of a block of siblings (``sibling_blocks.py``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.sibling_blocks import (
    BLOCK,
    Documents,
    Problem,
    Weights,
    add_dense_margins,
    add_dense_row,
    add_row,
    dense_weights,
    margins_of,
    shuffle,
    step_and_add_dense_margins,
)
from longtail.kernels.simd import LINE, aligned_zeros, prefetch

__all__ = ["DualHinge", "DualLogistic", "solve_hinge", "solve_logistic"]

_ZERO = np.float32(0)
_ONE = np.float32(1)
_INFINITY = np.float32(np.inf)
# offsets of the parts of a block's state, each with a number per sibling
_MARGIN = 0
_STEP = BLOCK
_HIGH = 2 * BLOCK  # largest projected gradient of the pass
_LOW = 3 * BLOCK  # smallest one
_LIMIT = 4 * BLOCK  # gradient above which a document at α = 0 is shrunk
_LIVE = 5 * BLOCK  # 1 until the sibling is solved
_STATE = 6 * BLOCK
_FIRST_ALPHA = 1e-8  # α may not be 0 in the logistic dual, which takes its logarithm
_NEWTON_STEPS = 100
_AHEAD = 2  # documents that are prefetched before their turn
_MANY = 1024  # documents from which on prefetching pays


class DualHinge(NamedTuple):
    """Settings of :func:`solve_hinge`; its targets are y / (2 C)."""

    tolerance: float  # ε
    max_passes: int


class DualLogistic(NamedTuple):
    """Settings of :func:`solve_logistic`; its targets are y C."""

    tolerance: float  # ε
    max_passes: int


class _Block(NamedTuple):
    """Variables of a block while it is solved; ``width`` shrinks with the live siblings."""

    alpha: Any  # (m * width,)
    targets: Any  # (m * width,)
    weights: Weights
    width: int


@kernel
def _freeze(slot: int, sibling: int, documents: Documents, block: _Block, out: Any) -> None:
    """Copy the weights of the sibling in a slot to ``out`` [column][sibling]."""
    w = block.weights.w
    width = block.width
    rows = len(w) // width
    out_width = len(out) // rows
    for row in range(rows):
        out[row * out_width + sibling] = w[row * width + slot]
    if len(documents.products):
        dense = dense_weights(block.alpha, block.targets, block.width, slot, documents)
        out[sibling : len(dense) * out_width : out_width] = dense


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
    """Return ``narrow`` slots with all live ones, and renumber ``live`` and ``sibling`` to them."""
    slots = np.empty(narrow, np.int64)
    count = 0
    for wanted in (1, 0):  # live ones, then solved ones as padding
        for s in range(width):
            if count < narrow and live[s] == wanted:
                slots[count] = s
                count += 1
    live[:narrow] = live[slots]
    sibling[:narrow] = sibling[slots]
    return slots


@kernel
def solve_hinge(
    solver: DualHinge,  # IN
    problem: Problem,  # IN  targets y / (2 C); they are changed
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min ½‖w‖² + Σ C_i max(0, 1 − y_i w·x_i)² for each sibling in the dual; return the
    passes.

    Hsieh et al. 2008, algorithm 3, with shrinking: a document is shrunk where it may be for all
    siblings, and a sibling is solved when its projected gradients over all documents lie within
    ``tolerance``.
    """
    documents = problem.documents
    m = len(documents.pointers) - 1
    block = _zero_block(problem, len(out))
    order = np.arange(m)
    random = _random_state(problem.seed)
    sibling = np.arange(block.width)
    # one array for all variables of a sibling, so that the compiler rules out overlaps and
    # vectorises
    state = np.zeros(_STATE, np.float32)
    high = state[_HIGH:][:BLOCK]
    low = state[_LOW:][:BLOCK]
    limit = state[_LIMIT:][:BLOCK]
    live = state[_LIVE:][:BLOCK]
    live[: problem.siblings] = _ONE
    limit[:] = _INFINITY
    active = m
    passes = 0
    while passes < solver.max_passes:
        passes += 1
        shuffle(order, active, random)
        high[:] = -_INFINITY
        low[:] = _INFINITY
        active = _pass(order, active, documents, block, state)
        n_open = _count_open(state, block.width, solver.tolerance)
        if active < m:
            if n_open == 0:  # all are solved on the active documents: visit all documents once more
                active = m
                limit[:] = _INFINITY
                continue
        else:
            for s in range(block.width):
                if live[s] > _ZERO and high[s] - low[s] <= solver.tolerance:
                    live[s] = _ZERO
                    _freeze(s, sibling[s], documents, block, out)
            if n_open == 0:
                return passes
            if block.width > 8 and n_open <= 8:
                slots = _remaining(live, sibling, block.width, 8)
                high[:8] = high[slots]
                low[:8] = low[slots]
                block = _narrowed(block, slots)
        for s in range(block.width):
            limit[s] = high[s] if high[s] > _ZERO else _INFINITY
    for s in range(block.width):
        if live[s] > _ZERO:
            _freeze(s, sibling[s], documents, block, out)
    return passes


@kernel
def _zero_block(problem: Problem, size: int) -> _Block:
    """Return a block of ``size`` weights at α = 0."""
    documents = problem.documents
    targets = problem.targets
    width = len(targets) // max(len(documents.pointers) - 1, 1)
    weights = Weights(aligned_zeros(size), aligned_zeros(len(documents.products) * width))
    return _Block(np.zeros(len(targets), np.float32), targets, weights, width)


@kernel
def _random_state(seed: int) -> Any:
    return np.array([np.uint64(seed) * np.uint64(2) + np.uint64(1)], np.uint64)


@kernel
def _count_open(state: Any, width: int, tolerance: float) -> int:
    """Return how many siblings are not solved on the documents of the last pass."""
    n_open = 0
    for s in range(width):
        if state[_LIVE + s] > _ZERO and state[_HIGH + s] - state[_LOW + s] > tolerance:
            n_open += 1
    return n_open


@kernel
def _narrowed(block: _Block, slots: Any) -> _Block:
    """Return the block of some slots; its arrays are changed."""
    width = block.width
    narrow = len(slots)
    weights = Weights(
        _narrow(block.weights.w, width, slots, narrow),
        _narrow(block.weights.dense_margins, width, slots, narrow),
    )
    alpha = _narrow(block.alpha, width, slots, narrow)
    targets = _narrow(block.targets, width, slots, narrow)
    return _Block(alpha, targets, weights, narrow)


@kernel
def _pass(order: Any, active: int, documents: Documents, block: _Block, state: Any) -> int:
    """Visit the active documents, the first of ``order``; return how many of them stay active.

    Shrunk documents are moved behind the active ones. The step of a document in the dense weights
    waits for the margins of the next one, which read the same weights.
    """
    pointers, columns, values, dense, dense_rows, constant, norms, products = documents
    alpha, targets, weights, width = block
    w, dense_margins = weights
    bias = np.float32(constant)
    margins = state[_MARGIN:][:BLOCK]
    step = state[_STEP:][:BLOCK]
    by_rows = dense.shape[1] > 0 and len(dense_margins) == 0
    position = 0
    waiting = -1
    while position < active:
        i = order[position]
        start = pointers[i]
        end = pointers[i + 1]
        if len(order) >= _MANY:
            _prefetch_next(order, position, documents, targets, alpha, w, width)
        margins_of(margins, w, width, start, end, columns, values, bias)
        if waiting >= 0:
            step_and_add_dense_margins(step, waiting, margins, w, width, i, dense, dense_rows)
            waiting = -1
        elif dense.shape[1]:
            add_dense_margins(margins, w, dense_margins, width, i, dense, dense_rows)
        moved, shrunk = _visit(state, alpha, targets, i * width, width, norms[i])
        if shrunk:
            active -= 1
            order[position], order[active] = order[active], order[position]
            continue
        if moved:
            add_row(step, w, width, start, end, columns, values, bias)
            if by_rows:
                waiting = i
            elif dense.shape[1]:
                add_dense_row(step, w, dense_margins, width, i, dense, dense_rows, products)
        position += 1
    if waiting >= 0:
        add_dense_row(step, w, dense_margins, width, waiting, dense, dense_rows, products)
    return active


@kernel
def _prefetch_next(
    order: Any, position: int, documents: Documents, targets: Any, alpha: Any, w: Any, width: int
) -> None:
    """Prefetch the data of the next documents, which lie anywhere in memory."""
    pointers, columns, values, dense, dense_rows, _, _, _ = documents
    if position + _AHEAD >= len(order):
        return
    later = order[position + _AHEAD]
    for k in range(pointers[later], pointers[later + 1], LINE):
        prefetch(columns, k)
        prefetch(values, k)
    following = order[position + 1]
    prefetch(targets, following * width)
    prefetch(alpha, following * width)
    flat = dense.ravel()
    begin = np.int64(dense_rows[following]) * dense.shape[1]
    for k in range(begin, begin + dense.shape[1], LINE):
        prefetch(flat, k)
    for k in range(pointers[following], pointers[following + 1]):
        prefetch(w, np.int64(columns[k]) * width)


@kernel
def _visit(state: Any, alpha: Any, targets: Any, at: int, width: int, norm: Any) -> Any:
    """Move α of one document for each sibling; return (whether any moved, whether it is shrunk)."""
    moved = np.int32(0)
    needed = np.int32(0)
    # slices have no negative indices, and np.divide no error for 0: either would prevent
    # vectorising
    signs = targets[at : at + width]
    alphas = alpha[at : at + width]
    for s in range(width):
        target = signs[s]
        old = alphas[s]
        y = _ONE if target > _ZERO else -_ONE
        diagonal = target * y
        gradient = y * state[_MARGIN + s] - _ONE + old * diagonal
        shrinks = (old == _ZERO) & (gradient > state[_LIMIT + s])
        projected = gradient if (old > _ZERO) | (gradient < _ZERO) else _ZERO
        high = state[_HIGH + s]
        low = state[_LOW + s]
        state[_HIGH + s] = projected if projected > high else high
        state[_LOW + s] = projected if projected < low else low
        new = old - np.divide(gradient, norm + diagonal)
        new = new if new > _ZERO else _ZERO
        change = (new - old) * state[_LIVE + s]
        alphas[s] = old + change
        state[_STEP + s] = change * y
        moved |= np.int32(change != _ZERO)
        needed |= np.int32((state[_LIVE + s] > _ZERO) & (not shrinks))
    return moved != 0, needed == 0


@kernel
def _newton(
    a: float, b: float, cost: float, old: float, precision: float
) -> tuple[float, float, int]:
    """Minimise z ln z + (C−z) ln(C−z) + ½a(z−α)² + b(z−α) over z, steps kept inside (0, C).

    Returns z, the size of the gradient before the first step, and the steps made (Yu et al. 2011,
    algorithm 4).
    """
    z = 0.1 * old if cost - old < 0.5 * cost else old
    gradient = a * (z - old) + b + np.log(z / (cost - z))
    size = abs(gradient)
    steps = 0
    while abs(gradient) >= precision and steps <= _NEWTON_STEPS:
        z_next = z - gradient / (a + cost / ((cost - z) * z))
        z = 0.1 * z if z_next <= 0.0 else z_next
        gradient = a * (z - old) + b + np.log(z / (cost - z))
        steps += 1
    return z, size, steps


class _LogisticState(NamedTuple):
    """A number per sibling of a block whose logistic dual is being solved."""

    margins: Any  # float32
    step: Any  # float32
    live: Any  # int64, 1 until the sibling is solved
    largest: Any  # float64, largest gradient of the pass
    precision: Any  # float64, to which gradients are brought to 0
    newton_steps: Any  # int64, of the pass


@kernel
def solve_logistic(
    solver: DualLogistic,  # IN
    problem: Problem,  # IN  targets y C
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min ½‖w‖² + Σ C_i ln(1 + exp(−y_i w·x_i)) for each sibling in the dual; return the
    passes.

    Yu, Huang and Lin 2011, algorithm 5: a Newton step on each pair (α, C − α). A sibling is solved
    when no gradient of a pass is above ``tolerance``.
    """
    documents = problem.documents
    targets = problem.targets
    m = len(documents.pointers) - 1
    width = len(targets) // max(m, 1)
    weights = Weights(aligned_zeros(len(out)), aligned_zeros(len(documents.products) * width))
    alpha = np.empty(m * width, np.float64)
    for at in range(len(alpha)):
        alpha[at] = min(0.001 * abs(targets[at]), _FIRST_ALPHA)
    block = _Block(alpha, targets, weights, width)
    pointers, columns, values, dense, dense_rows, constant, norms, products = documents
    w, dense_margins = weights
    bias = np.float32(constant)
    order = np.arange(m)
    random = _random_state(problem.seed)
    state = _LogisticState(
        np.empty(width, np.float32),
        np.empty(width, np.float32),
        np.zeros(width, np.int64),
        np.empty(width),
        np.full(width, 1e-2),
        np.empty(width, np.int64),
    )
    state.live[: problem.siblings] = 1
    passes = 0
    while passes < solver.max_passes:
        passes += 1
        shuffle(order, m, random)
        state.largest[:] = 0.0
        state.newton_steps[:] = 0
        for i in order:
            start = pointers[i]
            end = pointers[i + 1]
            margins_of(state.margins, w, width, start, end, columns, values, bias)
            if dense.shape[1]:
                add_dense_margins(state.margins, w, dense_margins, width, i, dense, dense_rows)
            if _visit_logistic(state, alpha, targets, i * width, norms[i]):
                add_row(state.step, w, width, start, end, columns, values, bias)
                if dense.shape[1]:
                    add_dense_row(
                        state.step, w, dense_margins, width, i, dense, dense_rows, products
                    )
        if _close_solved(state, m, solver.tolerance) == 0:
            break
    for s in range(width):
        _freeze(s, s, documents, block, out)
    return passes


@kernel
def _close_solved(state: _LogisticState, m: int, tolerance: float) -> int:
    """Close the siblings that a pass has solved, and raise the precision of those that took few
    steps; return how many are open.
    """
    live = state.live
    n_open = 0
    for s in range(len(live)):
        if live[s] and state.largest[s] < tolerance:
            live[s] = 0
        n_open += live[s]
        if state.newton_steps[s] <= m // 10:
            state.precision[s] = max(1e-8, 0.1 * state.precision[s])
    return n_open


@kernel
def _visit_logistic(state: _LogisticState, alpha: Any, targets: Any, begin: Any, norm: Any) -> bool:
    """Move α of one document for each sibling, write the step of w; return whether any moved."""
    margins, step, live, largest, precision, newton_steps = state
    moved = False
    a = np.float64(norm)
    for s in range(len(step)):
        step[s] = _ZERO
        if live[s] == 0:
            continue
        at = begin + s
        target = targets[at]
        y = 1.0 if target > _ZERO else -1.0
        cost = np.float64(abs(target))
        b = y * margins[s]
        old = alpha[at]
        sign = 1.0
        if 0.5 * a * (cost - 2.0 * old) + b < 0.0:  # the other of the pair is the one near 0
            old = cost - old
            sign = -1.0
        z, size, steps = _newton(a, sign * b, cost, old, precision[s])
        largest[s] = max(largest[s], size)
        newton_steps[s] += steps
        if steps:
            alpha[at] = z if sign > 0.0 else cost - z
            step[s] = sign * (z - old) * y
            moved = True
    return moved
