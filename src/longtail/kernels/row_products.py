"""Products of a few siblings at once, side by side in registers: sums of rows and additions to rows
of a block's weights, products with the dense weights of a chunk.

Each is a plain function for uncompiled kernels, and vector instructions for compiled ones
(``simd.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import overload

from longtail.kernels.chunks import decoded
from longtail.kernels.simd import ArrayOperand, Emitter, emitted

__all__ = [
    "DOCUMENTS",
    "PANEL",
    "WINDOW",
    "add_product",
    "add_to_rows",
    "copy_lane",
    "copy_panel",
    "product_of_four",
    "step_and_add_product",
    "sum_of_rows",
    "sums_of_lane",
    "sums_of_panel",
    "sums_of_window",
]

DOCUMENTS = 4  # that share the reading of weights
PANEL = 16  # siblings side by side
WINDOW = 4  # panels that one document is multiplied with at once
_INT = ir.IntType(32)
_LONG = ir.IntType(64)


# sparse rows of w, which is [column][sibling], of 1, 8 or 16 siblings


def sum_of_rows(
    out: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
) -> None:
    """Add Σ values[k] · w[columns[k]] to ``out[at : at + width]``.

    ``columns`` are uint32, or None: entry k is in column k − start.
    """
    for k in range(start, end):
        row = int(k - start if columns is None else columns[k]) * width
        out[at : at + width] += values[k] * w[row : row + width]


def add_to_rows(
    step: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
) -> None:
    """Add values[k] · step[at : at + width] to each row w[columns[k]], in the same layout."""
    for k in range(start, end):
        row = int(k - start if columns is None else columns[k]) * width
        w[row : row + width] += values[k] * step[at : at + width]


def _row_of(code: Emitter, operands: Any, k: Any) -> Any:
    """Return the position in w of the row of entry k."""
    if operands.columns is None:
        column = code.builder.sub(k, operands.start)
    else:
        column = operands.columns.index(k)
    return code.builder.mul(column, _LONG(code.lanes))


def _write_sum(code: Emitter, operands: Any) -> None:
    out = operands.out
    w = operands.w

    def add(k: Any, sums: list[Any]) -> list[Any]:
        weights = w.load(_row_of(code, operands, k))
        return [code.multiply_add(operands.values.broadcast(k), weights, sums[0])]

    _, sums = code.loop(operands.start, operands.end, 1, [out.load(operands.at)], add)
    out.store(sums[0], operands.at)


def _write_additions(code: Emitter, operands: Any) -> None:
    w = operands.w
    step = operands.step.load(operands.at)

    def add(k: Any, vectors: list[Any]) -> list[Any]:
        row = _row_of(code, operands, k)
        w.store(code.multiply_add(operands.values.broadcast(k), step, w.load(row)), row)
        return vectors

    code.loop(operands.start, operands.end, 1, [], add)


_sum_1 = emitted(sum_of_rows, 1, _write_sum)
_sum_8 = emitted(sum_of_rows, 8, _write_sum)
_sum_16 = emitted(sum_of_rows, 16, _write_sum)
_add_to_1 = emitted(add_to_rows, 1, _write_additions)
_add_to_8 = emitted(add_to_rows, 8, _write_additions)
_add_to_16 = emitted(add_to_rows, 16, _write_additions)


@overload(sum_of_rows, inline="always")
def _sum_compiled(
    out: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
) -> Any:
    def sum_(
        out: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
    ) -> None:
        if width == 16:
            _sum_16(out, at, w, width, columns, values, start, end)
        elif width == 1:
            _sum_1(out, at, w, width, columns, values, start, end)
        else:
            _sum_8(out, at, w, width, columns, values, start, end)

    return sum_


@overload(add_to_rows, inline="always")
def _add_compiled(
    step: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
) -> Any:
    def add(
        step: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
    ) -> None:
        if width == 16:
            _add_to_16(step, at, w, width, columns, values, start, end)
        elif width == 1:
            _add_to_1(step, at, w, width, columns, values, start, end)
        else:
            _add_to_8(step, at, w, width, columns, values, start, end)

    return add


# a dense row times w, which is [column][sibling], of 1, 8 or 16 siblings


def add_product(out: Any, w: Any, width: int, row: Any) -> None:
    """Add Σ row[j] · w[j] to ``out[:width]``."""
    for lane in range(DOCUMENTS):
        for j in range(lane, row.shape[0], DOCUMENTS):
            out[:width] += row[j] * w[j * width : (j + 1) * width]


def step_and_add_product(out: Any, w: Any, width: int, row: Any, step: Any, before: Any) -> None:
    """Add before[j] · step to w[j], and Σ row[j] · w[j] of the new w to ``out[:width]``, in one
    pass over w.
    """
    for j in range(row.shape[0]):
        w[j * width : (j + 1) * width] += before[j] * step[:width]
    add_product(out, w, width, row)


def _write_product(code: Emitter, operands: Any) -> None:
    """A vector of siblings, and four sums, because each addition waits for the one before it in its
    sum.
    """
    out = operands.out
    w = operands.w
    has_step = hasattr(operands, "step")
    start = code.zero
    step = None
    if has_step:
        step = operands.step.load(start)

    def add(lanes: int) -> Any:
        def body(j: Any, totals: list[Any]) -> list[Any]:
            totals = list(totals)
            for lane in range(lanes):
                k = code.shifted(j, lane)
                at = code.position(start, (k, code.lanes))
                x = operands.row.broadcast(k)
                weights = w.load(at)
                if has_step:
                    weights = code.multiply_add(operands.before.broadcast(k), step, weights)
                    w.store(weights, at)
                totals[lane] = code.multiply_add(x, weights, totals[lane])
            return totals

        return body

    depth = operands.row.size(0)
    first = [out.load(start), *[code.zeros()] * (DOCUMENTS - 1)]
    j, totals = code.loop(start, depth, DOCUMENTS, first, add(DOCUMENTS))
    _, (a, b, c, d) = code.loop(j, depth, 1, totals, add(1))
    out.store(code.add(code.add(a, b), code.add(c, d)), start)


def _write_product_of_one(code: Emitter, operands: Any) -> None:
    """One sibling, along columns: four vectors of sums, then their lanes, then the remaining
    columns.
    """
    w = operands.w
    row = operands.row
    has_step = hasattr(operands, "step")
    start = code.zero
    step = None
    if has_step:
        step = operands.step.broadcast(start)

    def add(vectors: int) -> Any:
        def body(j: Any, totals: list[Any]) -> list[Any]:
            totals = list(totals)
            for vector in range(vectors):
                at = code.shifted(j, vector * code.lanes)
                x = row.load(at)
                weights = w.load(at)
                if has_step:
                    weights = code.multiply_add(operands.before.load(at), step, weights)
                    w.store(weights, at)
                totals[vector] = code.multiply_add(x, weights, totals[vector])
            return totals

        return body

    def add_one(j: Any, totals: list[Any]) -> list[Any]:
        weights = code.in_first_lane(w.number(j))
        if has_step:
            before = code.in_first_lane(operands.before.number(j))
            weights = code.multiply_add(before, step, weights)
            w.set_number(code.lane(weights, 0), j)
        return [code.multiply_add(code.in_first_lane(row.number(j)), weights, totals[0])]

    depth = row.size(0)
    zeros = [code.zeros()] * DOCUMENTS
    j, totals = code.loop(start, depth, DOCUMENTS * code.lanes, zeros, add(DOCUMENTS))
    j, (a, b, c, d) = code.loop(j, depth, code.lanes, totals, add(1))
    sums = code.add(code.add(a, b), code.add(c, d))
    _, (sums,) = code.loop(j, depth, 1, [sums], add_one)
    total = operands.out.number(start)
    for lane in range(code.lanes):
        total = code.add(total, code.lane(sums, lane))
    operands.out.set_number(total, start)


_product_1 = emitted(add_product, 8, _write_product_of_one)
_product_8 = emitted(add_product, 8, _write_product)
_product_16 = emitted(add_product, 16, _write_product)
_step_1 = emitted(step_and_add_product, 8, _write_product_of_one)
_step_8 = emitted(step_and_add_product, 8, _write_product)
_step_16 = emitted(step_and_add_product, 16, _write_product)


@overload(add_product, inline="always")
def _add_product_compiled(out: Any, w: Any, width: int, row: Any) -> Any:
    def add(out: Any, w: Any, width: int, row: Any) -> None:
        if width == 16:
            _product_16(out, w, width, row)
        elif width == 1:
            _product_1(out, w, width, row)
        else:
            _product_8(out, w, width, row)

    return add


@overload(step_and_add_product, inline="always")
def _step_and_add_product_compiled(
    out: Any, w: Any, width: int, row: Any, step: Any, before: Any
) -> Any:
    def add(out: Any, w: Any, width: int, row: Any, step: Any, before: Any) -> None:
        if width == 16:
            _step_16(out, w, width, row, step, before)
        elif width == 1:
            _step_1(out, w, width, row, step, before)
        else:
            _step_8(out, w, width, row, step, before)

    return add


# dense weights of a chunk, as they are stored: float32, or codes of 8 or 16 bits


def _copying(lanes: int) -> Any:
    def copy(weights: Any, table: Any, at: Any, stride: int, depth: int, out: Any, to: Any) -> None:
        for j in range(depth):
            for lane in range(lanes):
                out[to + j * PANEL + lane] = decoded(weights, table, at + j * stride + lane)

    compiled = emitted(copy, lanes, _write_copy)

    @overload(copy, inline="always")
    def _copy_compiled(
        weights: Any, table: Any, at: Any, stride: int, depth: int, out: Any, to: Any
    ) -> Any:
        def call(
            weights: Any, table: Any, at: Any, stride: int, depth: int, out: Any, to: Any
        ) -> None:
            compiled(weights, table, at, stride, depth, out, to)

        return call

    return copy


def _summing(lanes: int, panels: int = 1) -> Any:
    def sums_of(
        weights: Any, table: Any, at: Any, stride: int, row: Any, sums: Any, to: Any
    ) -> None:
        for lane in range(panels * lanes):
            total = np.float32(0)
            for j in range(row.shape[0]):
                total += row[j] * decoded(weights, table, at + j * stride + lane)
            sums[to + lane] = total

    compiled = emitted(sums_of, lanes, _write_sums(panels))

    @overload(sums_of, inline="always")
    def _sums_compiled(
        weights: Any, table: Any, at: Any, stride: int, row: Any, sums: Any, to: Any
    ) -> Any:
        def call(
            weights: Any, table: Any, at: Any, stride: int, row: Any, sums: Any, to: Any
        ) -> None:
            compiled(weights, table, at, stride, row, sums, to)

        return call

    return sums_of


def _write_copy(code: Emitter, operands: Any) -> None:
    def copy(j: Any, vectors: list[Any]) -> list[Any]:
        at = code.position(operands.at, (j, operands.stride))
        numbers = _decode(code, operands.weights, operands.table, at)
        operands.out.store(numbers, code.position(operands.to, (j, PANEL)))
        return vectors

    code.loop(code.zero, operands.depth, 1, [], copy)


def _write_sums(panels: int) -> Any:
    def write(code: Emitter, operands: Any) -> None:
        shifts = [panel * code.lanes for panel in range(panels)]

        def add(j: Any, totals: list[Any]) -> list[Any]:
            x = operands.row.broadcast(j)
            begin = code.position(operands.at, (j, operands.stride))
            loaded = [
                _decode(code, operands.weights, operands.table, code.shifted(begin, shift))
                for shift in shifts
            ]
            return [code.multiply_add(x, w, total) for w, total in zip(loaded, totals, strict=True)]

        zeros = [code.zeros()] * panels
        _, totals = code.loop(code.zero, operands.row.size(0), 1, zeros, add)
        for total, shift in zip(totals, shifts, strict=True):
            operands.sums.store(total, code.shifted(operands.to, shift))

    return write


def _decode(code: Emitter, weights: ArrayOperand, table: ArrayOperand, at: Any) -> Any:
    """Return the weights from ``at`` on as numbers."""
    if weights.bits == 32:
        return weights.load(at)
    if weights.bits == 16:
        return _from_half(code, weights.load_codes(at))
    return _from_table(code, weights.load_codes(at), table)


def _from_half(code: Emitter, halves: Any) -> Any:
    """Return float16s as float32s: the bits in their new positions, and 2^112 for the other bias of
    the exponent.
    """
    builder = code.builder
    wide = ir.VectorType(_INT, code.lanes)
    bits = builder.zext(halves, wide)
    magnitude = builder.and_(bits, code.constant(wide, 0x7FFF))
    magnitude = builder.shl(magnitude, code.constant(wide, 13))
    scale = code.constant(code.vector, 2.0**112)
    magnitude = code.multiply(builder.bitcast(magnitude, code.vector), scale)
    sign = builder.and_(bits, code.constant(wide, 0x8000))
    sign = builder.shl(sign, code.constant(wide, 16))
    return builder.bitcast(builder.or_(builder.bitcast(magnitude, wide), sign), code.vector)


def _from_table(code: Emitter, codes: Any, table: ArrayOperand) -> Any:
    builder = code.builder
    numbers = ir.Constant(code.vector, ir.Undefined)
    for lane in range(code.lanes):
        at = builder.zext(code.lane(codes, lane), _LONG)
        numbers = builder.insert_element(numbers, table.number(at), _INT(lane))
    return numbers


# write the weights from ``at`` on, some of each ``stride``, as numbers to each 16 of ``out[to:]``
copy_lane = _copying(1)
copy_panel = _copying(PANEL)
# Σ row[j] · weights[at + j * stride :] of so many siblings side by side, to ``sums[to:]``
sums_of_lane = _summing(1)
sums_of_panel = _summing(PANEL)
sums_of_window = _summing(PANEL, WINDOW)


# four documents times a panel of dense weights as numbers


def product_of_four(
    numbers: Any, at: Any, rows: Any, documents: Any, first: Any, sums: Any, to: Any
) -> None:
    """Write the sums of ``documents[first : first + 4]`` with the panel at ``at`` to ``sums[first:,
    to:]``.
    """
    for lane in range(first, first + DOCUMENTS):
        total = np.zeros(PANEL, np.float32)
        for j in range(rows.shape[1]):
            total += rows[documents[lane], j] * numbers[at + j * PANEL :][:PANEL]
        sums[lane, to : to + PANEL] = total


def _write_product_of_four(code: Emitter, operands: Any) -> None:
    rows = operands.rows
    sums = operands.sums
    depth = rows.size(1)
    lanes = [code.shifted(operands.first, lane) for lane in range(DOCUMENTS)]
    begins = [code.builder.mul(operands.documents.number(lane), depth) for lane in lanes]

    def add(j: Any, totals: list[Any]) -> list[Any]:
        w = operands.numbers.load(code.position(operands.at, (j, PANEL)))
        xs = [rows.broadcast(code.builder.add(begin, j)) for begin in begins]
        return [code.multiply_add(x, w, total) for x, total in zip(xs, totals, strict=True)]

    zeros = [code.zeros()] * DOCUMENTS
    _, totals = code.loop(code.zero, depth, 1, zeros, add)
    for lane, total in zip(lanes, totals, strict=True):
        sums.store(total, code.position(operands.to, (lane, sums.size(1))))


_product_of_four = emitted(product_of_four, PANEL, _write_product_of_four)


@overload(product_of_four, inline="always")
def _product_of_four_compiled(
    numbers: Any, at: Any, rows: Any, documents: Any, first: Any, sums: Any, to: Any
) -> Any:
    def call(
        numbers: Any, at: Any, rows: Any, documents: Any, first: Any, sums: Any, to: Any
    ) -> None:
        _product_of_four(numbers, at, rows, documents, first, sums, to)

    return call
