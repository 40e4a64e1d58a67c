"""Sums over the rows of a block's weights, 8 or 16 siblings in one register.

numba has no word for a vector of a known width, and its loops over 8 or 16 numbers cost more in
checks than in work. So each is a plain function for uncompiled kernels, and LLVM instructions
behind an overload for compiled ones, where ``w`` and what is added are C-ordered float32,
``columns`` uint32 or None, and not checked."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import overload

from longtail.kernels.cache_lines import everywhere

__all__ = ["add_to_rows", "sum_of_rows"]

intrinsic: Any = _intrinsic  # its type knows nothing of compiled calls
_LONG = ir.IntType(64)


def sum_of_rows(
    out: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
) -> None:
    """Add Σ values[k] · w[columns[k]] to ``out[at : at + width]``; w is [column][sibling], None is
    column k - start.
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


class _Rows:
    """What both loops need: vectors of ``width``, and the row and value of an entry."""

    def __init__(
        self, width: int, context: Any, builder: Any, signature: Any, arguments: Any
    ) -> None:
        self.builder = builder
        self.vector = ir.VectorType(ir.FloatType(), width)
        self.width = width
        (_, self.at, _, _, _, self.start, self.end) = arguments
        kinds = signature.args
        self.other, self.w, self.columns, self.values = (
            None
            if kinds[k] is types.none
            else context.make_array(kinds[k])(context, builder, arguments[k]).data
            for k in (0, 2, 3, 4)
        )

    def pointer(self, data: Any, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [at]), self.vector.as_pointer())

    def row(self, k: Any) -> Any:
        """Return the pointer to the row of entry k."""
        builder = self.builder
        if self.columns is None:
            column = builder.sub(k, self.start)
        else:
            column = builder.zext(builder.load(builder.gep(self.columns, [k])), _LONG)
        return self.pointer(self.w, builder.mul(column, _LONG(self.width)))

    def value(self, k: Any) -> Any:
        """Return the value of entry k in all lanes."""
        return everywhere(
            self.builder, self.builder.load(self.builder.gep(self.values, [k])), self.width
        )

    def load(self, pointer: Any) -> Any:
        return self.builder.load(pointer, align=4)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        product = self.builder.fmul(a, b, flags=("contract",))
        return self.builder.fadd(product, c, flags=("contract",))

    def loop(self, body: Any, first: Any) -> Any:
        """Run ``body`` (entry, vector → vector) over all entries and return the last vector."""
        builder = self.builder
        before = self.builder.block
        head, inside, behind = (
            builder.append_basic_block(name) for name in ("head", "inside", "behind")
        )
        builder.branch(head)
        builder.position_at_end(head)
        k = builder.phi(_LONG)
        carried = builder.phi(self.vector)
        k.add_incoming(self.start, before)
        carried.add_incoming(first, before)
        builder.cbranch(builder.icmp_signed("<", k, self.end), inside, behind)
        builder.position_at_end(inside)
        carried.add_incoming(body(k, carried), inside)
        k.add_incoming(builder.add(k, _LONG(1)), inside)
        builder.branch(head)
        builder.position_at_end(behind)
        return carried


def _summing(width: int) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def summing(
        typing: Any, out: Any, at: Any, w: Any, columns: Any, values: Any, start: Any, end: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows = _Rows(width, context, builder, signature, arguments)
            to = rows.pointer(rows.other, rows.at)
            total = rows.loop(
                lambda k, sums: rows.multiply_add(rows.value(k), rows.load(rows.row(k)), sums),
                rows.load(to),
            )
            builder.store(total, to, align=4)
            return context.get_dummy_value()

        return types.void(out, types.intp, w, columns, values, types.intp, types.intp), generate

    return summing


def _adding(width: int) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def adding(
        typing: Any, step: Any, at: Any, w: Any, columns: Any, values: Any, start: Any, end: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows = _Rows(width, context, builder, signature, arguments)

            def add(k: Any, by: Any) -> Any:
                row = rows.row(k)
                builder.store(rows.multiply_add(rows.value(k), by, rows.load(row)), row, align=4)
                return by

            rows.loop(add, rows.load(rows.pointer(rows.other, rows.at)))
            return context.get_dummy_value()

        return types.void(step, types.intp, w, columns, values, types.intp, types.intp), generate

    return adding


_sum_1 = _summing(1)
_sum_8 = _summing(8)
_sum_16 = _summing(16)
_add_1 = _adding(1)
_add_8 = _adding(8)
_add_16 = _adding(16)


@overload(sum_of_rows, inline="always")
def _sum_compiled(
    out: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
) -> Any:
    def sum_(
        out: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
    ) -> None:
        if width == 16:
            _sum_16(out, at, w, columns, values, start, end)
        elif width == 1:
            _sum_1(out, at, w, columns, values, start, end)
        else:
            _sum_8(out, at, w, columns, values, start, end)

    return sum_


@overload(add_to_rows, inline="always")
def _add_compiled(
    step: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
) -> Any:
    def add(
        step: Any, at: Any, w: Any, width: int, columns: Any, values: Any, start: Any, end: Any
    ) -> None:
        if width == 16:
            _add_16(step, at, w, columns, values, start, end)
        elif width == 1:
            _add_1(step, at, w, columns, values, start, end)
        else:
            _add_8(step, at, w, columns, values, start, end)

    return add
