"""The training of eXtremeText (Wydmuch et al. 2018): steps of SGD on vectors of words and on the
nodes of a label tree.

Threads share both without locks (Hogwild, Recht et al. 2011). The result of one thread depends on
the order of the documents alone; several threads overwrite some of each other's steps, and the
result varies from run to run.

Rows are ``width`` numbers long, a multiple of ``LINE``. Numbers behind the dimensions of a vector
are zeros and stay zeros."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import borrowing, kernel
from longtail.kernels.simd import LINE, Emitter, add_multiple, aligned_zeros, emitted

__all__ = ["Parameters", "Schedule", "Targets", "padded_width", "train_documents"]


class Targets(NamedTuple):
    """The label tree, and the nodes that each document is a positive of.

    Nodes are counted through all levels, coarse to fine, so that labels come last.
    """

    child_pointers: Any  # (1 + inner nodes + 1,) int64: the root's children, then each node's
    pointers: Any  # (n + 1,) int64
    nodes: Any  # int32, rising in each document
    values: Any  # float32 in (0, 1]


class Parameters(NamedTuple):
    """The rows that are trained, one after another; see the head of this file."""

    vectors: Any  # (columns * width,) float32; columns of the dense block first
    nodes: Any  # (nodes * width,) float32
    width: int


class Schedule(NamedTuple):
    """The learning rate, which falls linearly to 0 over all epochs, and the penalty."""

    rate: float  # at the beginning
    penalty: float  # λ
    done: int  # documents before this epoch
    total: int  # documents of all epochs


def padded_width(dimensions: int) -> int:
    """Return the width of a row that holds so many dimensions."""
    return -(-dimensions // LINE) * LINE


@kernel
def train_documents(
    first: int,  # IN  positions in ``order``
    last: int,
    order: Any,  # IN  (n,) documents of the epoch
    rows: FeatureRows,  # IN
    targets: Targets,  # IN
    parameters: Parameters,  # IN/OUT  other threads write, too
    schedule: Schedule,  # IN
) -> float:
    """Do a step for each of some documents; return the sum of their losses.

    The vector of a document is the mean of its columns' vectors, weighted by its values:
    h = Σ x_j v_j / Σ |x_j|. Its loss is the logistic loss σ(w·h) of all nodes whose parent it is a
    positive of. A document without features has no vector and no step."""
    width = parameters.width
    hidden = aligned_zeros(width)
    gradient = aligned_zeros(width)
    sums = aligned_zeros(LINE)
    loss = 0.0
    for position in range(first, last):
        document = order[position]
        scale = _mean_of_vectors(document, rows, parameters, hidden)
        if scale == 0:
            continue
        share = (schedule.done + position) / schedule.total
        rate = schedule.rate * (1.0 - share)
        gradient[:] = 0
        keep = np.float32(1.0 - rate * schedule.penalty)
        loss += _step_on_nodes(
            document, targets, parameters, hidden, gradient, sums, np.float32(rate), keep
        )
        _step_on_vectors(document, rows, parameters, gradient, np.float32(rate) * scale)
    return loss


@borrowing
def _mean_of_vectors(document: int, rows: FeatureRows, parameters: Parameters, hidden: Any) -> Any:
    """Write h; return 1 / Σ |x_j|, 0 where there are no features."""
    width = parameters.width
    hidden[:] = 0
    total = np.float32(0)
    dense_width = rows.dense.shape[1]
    for column in range(dense_width):
        x = rows.dense[document, column]
        total += abs(x)
        add_multiple(hidden, x, parameters.vectors, column * width, width)
    for k in range(rows.pointers[document], rows.pointers[document + 1]):
        x = rows.values[k]
        total += abs(x)
        at = (dense_width + rows.columns[k]) * width
        add_multiple(hidden, x, parameters.vectors, at, width)
    if total == 0:
        return total
    scale = np.float32(1) / total
    for i in range(width):
        hidden[i] *= scale
    return scale


@borrowing
def _step_on_nodes(
    document: int,
    targets: Targets,
    parameters: Parameters,
    hidden: Any,  # IN
    gradient: Any,  # OUT  (width,) Σ (y − σ) w of the nodes before their steps
    sums: Any,  # scratch (LINE,)
    rate: Any,
    keep: Any,  # 1 − rate · λ
) -> float:
    """Take a step on each child of the root and of every positive node; return their loss."""
    width = parameters.width
    begin = targets.pointers[document]
    end = targets.pointers[document + 1]
    n_parents = len(targets.child_pointers) - 1
    positive = begin
    loss = 0.0
    for k in range(begin - 1, end):
        parent = np.int64(0)
        if k >= begin:
            parent = np.int64(targets.nodes[k]) + 1
        if parent >= n_parents:  # labels, which have no children
            break
        for child in range(targets.child_pointers[parent], targets.child_pointers[parent + 1]):
            target = np.float32(0)
            if positive < end and targets.nodes[positive] == child:
                target = targets.values[positive]
                positive += 1
            at = child * width
            write_products(sums, parameters.nodes, at, hidden, width)
            margin = 0.0
            for lane in range(LINE):
                margin += sums[lane]
            loss += max(margin, 0.0) - target * margin + np.log1p(np.exp(-abs(margin)))
            error = np.float32(target - 1.0 / (1.0 + np.exp(-margin)))
            step_on_row(parameters.nodes, at, hidden, gradient, error, rate * error, keep, width)
    return loss


@borrowing
def _step_on_vectors(
    document: int, rows: FeatureRows, parameters: Parameters, gradient: Any, rate: Any
) -> None:
    width = parameters.width
    dense_width = rows.dense.shape[1]
    for column in range(dense_width):
        x = rate * rows.dense[document, column]
        add_to_row(parameters.vectors, column * width, x, gradient, width)
    for k in range(rows.pointers[document], rows.pointers[document + 1]):
        at = (dense_width + rows.columns[k]) * width
        add_to_row(parameters.vectors, at, rate * rows.values[k], gradient, width)


# rows, in vectors of LINE numbers; ``count`` is a multiple of LINE


def write_products(sums: Any, numbers: Any, at: Any, vector: Any, count: Any) -> None:
    """Write partial sums of the product of a row and a vector, (LINE,), which add up to it."""
    products = numbers[at : at + count] * vector[:count]
    sums[:] = products.reshape(-1, LINE).sum(axis=0, dtype=np.float32)


def add_to_row(numbers: Any, at: Any, x: Any, vector: Any, count: Any) -> None:
    """Add x times a vector to the row that begins at ``at``."""
    numbers[at : at + count] += x * vector[:count]


def step_on_row(
    numbers: Any,
    at: Any,
    hidden: Any,
    gradient: Any,
    error: Any,
    step: Any,
    keep: Any,
    count: Any,
) -> None:
    """Add error · w to the gradient, and let the row w become keep · w + step · hidden."""
    row = numbers[at : at + count]
    gradient[:count] += error * row
    row *= keep
    row += step * hidden[:count]


def _write_products(code: Emitter, operands: Any) -> None:
    def add(i: Any, sums: list[Any]) -> list[Any]:
        row = operands.numbers.load(code.builder.add(operands.at, i))
        return [code.add(sums[0], code.multiply(row, operands.vector.load(i)))]

    _, sums = code.loop(code.zero, operands.count, code.lanes, [code.zeros()], add)
    operands.sums.store(sums[0], code.zero)


def _write_addition(code: Emitter, operands: Any) -> None:
    factor = code.broadcast(operands.x)

    def add(i: Any, vectors: list[Any]) -> list[Any]:
        at = code.builder.add(operands.at, i)
        product = code.multiply(factor, operands.vector.load(i))
        operands.numbers.store(code.add(operands.numbers.load(at), product), at)
        return vectors

    code.loop(code.zero, operands.count, code.lanes, [], add)


def _write_step(code: Emitter, operands: Any) -> None:
    error = code.broadcast(operands.error)
    step = code.broadcast(operands.step)
    keep = code.broadcast(operands.keep)

    def add(i: Any, vectors: list[Any]) -> list[Any]:
        at = code.builder.add(operands.at, i)
        row = operands.numbers.load(at)
        gradient = code.add(operands.gradient.load(i), code.multiply(error, row))
        operands.gradient.store(gradient, i)
        moved = code.multiply(step, operands.hidden.load(i))
        operands.numbers.store(code.add(code.multiply(keep, row), moved), at)
        return vectors

    code.loop(code.zero, operands.count, code.lanes, [], add)


_products = emitted(write_products, LINE, _write_products)
_add_to_row = emitted(add_to_row, LINE, _write_addition)
_step_on_row = emitted(step_on_row, LINE, _write_step)


@overload(write_products)
def _products_compiled(sums: Any, numbers: Any, at: Any, vector: Any, count: Any) -> Any:
    def write(sums: Any, numbers: Any, at: Any, vector: Any, count: Any) -> None:
        _products(sums, numbers, at, vector, count)

    return write


@overload(add_to_row)
def _addition_compiled(numbers: Any, at: Any, x: Any, vector: Any, count: Any) -> Any:
    def add(numbers: Any, at: Any, x: Any, vector: Any, count: Any) -> None:
        _add_to_row(numbers, at, x, vector, count)

    return add


@overload(step_on_row)
def _step_compiled(
    numbers: Any,
    at: Any,
    hidden: Any,
    gradient: Any,
    error: Any,
    step: Any,
    keep: Any,
    count: Any,
) -> Any:
    def move(
        numbers: Any,
        at: Any,
        hidden: Any,
        gradient: Any,
        error: Any,
        step: Any,
        keep: Any,
        count: Any,
    ) -> None:
        _step_on_row(numbers, at, hidden, gradient, error, step, keep, count)

    return move
