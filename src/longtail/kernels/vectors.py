"""Vectors of a known width, for which numba has no word (see ``lanes.py``): products and copies of
8, 16 or 64 numbers.

Each is a plain function for uncompiled kernels, and LLVM instructions behind an overload for
compiled ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic
from numba.extending import overload

from longtail.kernels.cache_lines import everywhere
from longtail.kernels.chunks import decoded

__all__ = [
    "DOCUMENTS",
    "PANEL",
    "WINDOW",
    "add_product",
    "copy_lane",
    "copy_panel",
    "product_of_four",
    "sums_of_lane",
]
__all__ += ["step_and_add_product", "sums_of_panel", "sums_of_window"]

intrinsic: Any = _intrinsic  # its type knows nothing of compiled calls
DOCUMENTS = 4  # that share the reading of weights
PANEL = 16  # siblings side by side
WINDOW = 4  # panels that one document is multiplied with at once
_FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_LONG = ir.IntType(64)


def copy_panel(
    weights: Any, table: Any, at: Any, stride: int, depth: int, out: Any, to: Any
) -> None:
    """Write the weights from ``at`` on, 16 of each ``stride``, as numbers to ``out[to:]`` one
    behind another.
    """
    for j in range(depth):
        for lane in range(PANEL):
            out[to + j * PANEL + lane] = decoded(weights, table, at + j * stride + lane)


def copy_lane(
    weights: Any, table: Any, at: Any, stride: int, depth: int, out: Any, to: Any
) -> None:
    """Write one weight of each ``stride`` as a number to each 16th of ``out[to:]``."""
    for j in range(depth):
        out[to + j * PANEL] = decoded(weights, table, at + j * stride)


def _sums(lanes: int) -> Any:
    def sums_of(
        weights: Any, table: Any, at: Any, stride: int, row: Any, sums: Any, to: Any
    ) -> None:
        for lane in range(lanes):
            total = np.float32(0)
            for j in range(row.shape[0]):
                total += row[j] * decoded(weights, table, at + j * stride + lane)
            sums[to + lane] = total

    return sums_of


# Σ row[j] · weights[at + j * stride :] of so many siblings side by side, to ``sums[to:]``
sums_of_lane = _sums(1)
sums_of_panel = _sums(PANEL)
sums_of_window = _sums(WINDOW * PANEL)


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


def add_product(out: Any, w: Any, width: int, row: Any) -> None:
    """Add Σ row[j] · w[j] to ``out[:width]``; w is [column][sibling], of 8 or 16 siblings."""
    for lane in range(DOCUMENTS):
        for j in range(lane, row.shape[0], DOCUMENTS):
            out[:width] += row[j] * w[j * width : (j + 1) * width]


def step_and_add_product(out: Any, w: Any, width: int, row: Any, step: Any, before: Any) -> None:
    """Add before[j] · step to w[j], and Σ row[j] · w[j] of what w is then to ``out[:width]``: one
    way through w.
    """
    for j in range(row.shape[0]):
        w[j * width : (j + 1) * width] += before[j] * step[:width]
    add_product(out, w, width, row)


# ------------------------------------------------------------------- and compiled


class _Code:
    """Writes instructions on vectors of ``lanes`` float32."""

    def __init__(self, lanes: int, context: Any, builder: Any, kinds: Any, arguments: Any) -> None:
        self.lanes = lanes
        self.builder = builder
        self.vector = ir.VectorType(_FLOAT, lanes)
        self.kinds = kinds
        self.arrays: list[Any] = [
            context.make_array(kind)(context, builder, argument)
            if isinstance(kind, types.Array)
            else None
            for kind, argument in zip(kinds, arguments, strict=True)
        ]
        name = f"llvm.fmuladd.v{lanes}f32"
        number = self.vector
        # fused or not, as the machine can: the same everywhere
        function = ir.FunctionType(number, [number] * 3)
        self._multiply_add = builder.module.globals.get(name) or ir.Function(
            builder.module, function, name
        )

    def size(self, array: int, axis: int) -> Any:
        return self.builder.extract_value(self.arrays[array].shape, axis)

    def at(self, base: Any, *terms: tuple[Any, Any]) -> Any:
        """Return base + Σ a·b."""
        for a, b in terms:
            base = self.builder.add(
                base, self.builder.mul(a, b if isinstance(b, ir.Value) else _LONG(b))
            )
        return base

    def number(self, array: int, at: Any) -> Any:
        return self.builder.load(self.builder.gep(self.arrays[array].data, [at]))

    def everywhere(self, number: Any) -> Any:
        """Return a number in all lanes."""
        return everywhere(self.builder, number, self.lanes)

    def _pointer(self, array: int, at: Any, kind: Any) -> Any:
        return self.builder.bitcast(
            self.builder.gep(self.arrays[array].data, [at]), kind.as_pointer()
        )

    def store(self, vector: Any, array: int, at: Any) -> None:
        self.builder.store(vector, self._pointer(array, at, self.vector), align=4)

    def load(self, array: int, at: Any, table: int | None = None) -> Any:
        """Return the weights from ``at`` on as numbers."""
        bits = self.kinds[array].dtype.bitwidth
        stored = ir.VectorType(_FLOAT if bits == 32 else ir.IntType(bits), self.lanes)
        found = self.builder.load(self._pointer(array, at, stored), align=bits // 8)
        if bits == 32:
            return found
        return self._from_half(found) if bits == 16 else self._from_table(found, table)

    def _from_half(self, codes: Any) -> Any:
        """Return float16s as float32s: the bits in their new places, and 2^112 for the other bias
        of the exponent.
        """
        builder = self.builder
        wide = ir.VectorType(_INT, self.lanes)
        bits = builder.zext(codes, wide)
        size = builder.shl(builder.and_(bits, self._all(wide, 0x7FFF)), self._all(wide, 13))
        size = builder.fmul(builder.bitcast(size, self.vector), self._all(self.vector, 2.0**112))
        sign = builder.shl(builder.and_(bits, self._all(wide, 0x8000)), self._all(wide, 16))
        return builder.bitcast(builder.or_(builder.bitcast(size, wide), sign), self.vector)

    def _from_table(self, codes: Any, table: Any) -> Any:
        numbers = ir.Constant(self.vector, ir.Undefined)
        for lane in range(self.lanes):
            code = self.builder.zext(self.builder.extract_element(codes, _INT(lane)), _LONG)
            numbers = self.builder.insert_element(numbers, self.number(table, code), _INT(lane))
        return numbers

    def _all(self, kind: Any, number: float) -> Any:
        return ir.Constant(kind, [number] * self.lanes)

    def zeros(self) -> Any:
        return self._all(self.vector, 0.0)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return self.builder.call(self._multiply_add, [a, b, c])

    def loop(
        self, begin: Any, end: Any, step: int, first: list[Any], body: Any
    ) -> tuple[Any, list[Any]]:
        """Run ``body`` (j, vectors → vectors) while step more are left; return where it stopped and
        the vectors.
        """
        builder = self.builder
        before = self.builder.block
        head, inside, behind = (
            builder.append_basic_block(name) for name in ("head", "inside", "behind")
        )
        builder.branch(head)
        builder.position_at_end(head)
        j = builder.phi(_LONG)
        carried = [builder.phi(self.vector) for _ in first]
        following = builder.add(j, _LONG(step))
        builder.cbranch(builder.icmp_signed("<=", following, end), inside, behind)
        builder.position_at_end(inside)
        vectors = body(j, carried)
        builder.branch(head)
        for phi, start, later in zip(
            [j, *carried], [begin, *first], [following, *vectors], strict=True
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(later, builder.block)
        builder.position_at_end(behind)
        return j, carried


def _written(lanes: int, write: Any) -> Any:
    """Return the compiled function whose instructions ``write`` (code, arguments) writes."""

    @intrinsic  # type: ignore[untyped-decorator]
    def written(typing: Any, given: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            parts: list[Any] = cgutils.unpack_tuple(builder, arguments[0])  # type: ignore[no-untyped-call]
            for place, kind in enumerate(given.types):
                if not isinstance(kind, types.Array):
                    parts[place] = context.cast(builder, parts[place], kind, types.intp)
            write(_Code(lanes, context, builder, given.types, parts), *parts)
            return context.get_dummy_value()

        return types.void(given), generate

    return written


def _write_copy(
    code: _Code, weights: Any, table: Any, at: Any, stride: Any, depth: Any, out: Any, to: Any
) -> None:
    def copy(j: Any, none: Any) -> Any:
        code.store(code.load(0, code.at(at, (j, stride)), 1), 5, code.at(to, (j, PANEL)))
        return none

    code.loop(_LONG(0), depth, 1, [], copy)


def _write_sums(panels: int) -> Any:
    def write(
        code: _Code, weights: Any, table: Any, at: Any, stride: Any, row: Any, sums: Any, to: Any
    ) -> None:
        places = [_LONG(panel * code.lanes) for panel in range(panels)]

        def add(j: Any, totals: Any) -> Any:
            x = code.everywhere(code.number(4, j))
            begin = code.at(at, (j, stride))
            loaded = [code.load(0, code.builder.add(begin, place), 1) for place in places]
            return [code.multiply_add(x, w, total) for w, total in zip(loaded, totals, strict=True)]

        _, totals = code.loop(_LONG(0), code.size(4, 0), 1, [code.zeros()] * panels, add)
        for total, place in zip(totals, places, strict=True):
            code.store(total, 5, code.builder.add(to, place))

    return write


def _write_product(
    code: _Code, numbers: Any, at: Any, rows: Any, documents: Any, first: Any, sums: Any, to: Any
) -> None:
    depth = code.size(2, 1)
    lanes = [code.builder.add(first, _LONG(lane)) for lane in range(DOCUMENTS)]
    begins = [code.builder.mul(code.number(3, lane), depth) for lane in lanes]

    def add(j: Any, totals: Any) -> Any:
        w = code.load(0, code.at(at, (j, PANEL)))
        xs = [code.everywhere(code.number(2, code.builder.add(begin, j))) for begin in begins]
        return [code.multiply_add(x, w, total) for x, total in zip(xs, totals, strict=True)]

    _, totals = code.loop(_LONG(0), depth, 1, [code.zeros()] * DOCUMENTS, add)
    for lane, total in zip(lanes, totals, strict=True):
        code.store(total, 5, code.at(to, (lane, code.size(5, 1))))


def _write_addition(code: _Code, out: Any, w: Any, row: Any, *step_of_row: Any) -> None:
    """Four sums, because each addition waits for the one before it in its sum; a step and its row
    change w before.
    """
    step = code.load(3, _LONG(0)) if step_of_row else None

    def add(lanes: int) -> Any:
        def body(j: Any, totals: Any) -> Any:
            totals = list(totals)
            for lane in range(lanes):
                k = code.builder.add(j, _LONG(lane))
                place = code.at(_LONG(0), (k, code.lanes))
                x = code.everywhere(code.number(2, k))
                weights = code.load(1, place)
                if step is not None:
                    weights = code.multiply_add(code.everywhere(code.number(4, k)), step, weights)
                    code.store(weights, 1, place)
                totals[lane] = code.multiply_add(x, weights, totals[lane])
            return totals

        return body

    depth = code.size(2, 0)
    totals = [code.load(0, _LONG(0)), *[code.zeros()] * (DOCUMENTS - 1)]
    j, totals = code.loop(_LONG(0), depth, DOCUMENTS, totals, add(DOCUMENTS))
    _, (a, b, c, d) = code.loop(j, depth, 1, totals, add(1))
    builder = code.builder
    code.store(builder.fadd(builder.fadd(a, b), builder.fadd(c, d)), 0, _LONG(0))


def _write_dot(code: _Code, out: Any, w: Any, row: Any, *step_of_row: Any) -> None:
    """The same of one sibling, along columns: four vectors of sums, then their lanes, then what is
    left of the row.
    """
    builder = code.builder
    step = code.everywhere(code.number(3, _LONG(0))) if step_of_row else None

    def add(lanes: int) -> Any:
        def body(j: Any, totals: Any) -> Any:
            totals = list(totals)
            for lane in range(lanes):
                place = builder.add(j, _LONG(lane * code.lanes))
                x = code.load(2, place)
                weights = code.load(1, place)
                if step is not None:
                    weights = code.multiply_add(code.load(4, place), step, weights)
                    code.store(weights, 1, place)
                totals[lane] = code.multiply_add(x, weights, totals[lane])
            return totals

        return body

    depth = code.size(2, 0)
    j, totals = code.loop(
        _LONG(0), depth, DOCUMENTS * code.lanes, [code.zeros()] * DOCUMENTS, add(DOCUMENTS)
    )
    j, (a, b, c, d) = code.loop(j, depth, code.lanes, totals, add(1))
    sums = builder.fadd(builder.fadd(a, b), builder.fadd(c, d))
    first = _INT(0)

    def alone(number: Any) -> Any:
        return builder.insert_element(code.zeros(), number, first)

    def rest(j: Any, totals: Any) -> Any:
        weights = alone(code.number(1, j))
        if step is not None:
            weights = code.multiply_add(alone(code.number(4, j)), step, weights)
            builder.store(
                builder.extract_element(weights, first), builder.gep(code.arrays[1].data, [j])
            )
        return [code.multiply_add(alone(code.number(2, j)), weights, totals[0])]

    _, (sums,) = code.loop(j, depth, 1, [sums], rest)
    total = code.number(0, _LONG(0))
    for lane in range(code.lanes):
        total = builder.fadd(total, builder.extract_element(sums, _INT(lane)))
    builder.store(total, builder.gep(code.arrays[0].data, [_LONG(0)]))


_add_8 = _written(8, _write_addition)
_add_16 = _written(16, _write_addition)
_add_1 = _written(8, _write_dot)


@overload(add_product, inline="always")
def _add_product_compiled(out: Any, w: Any, width: int, row: Any) -> Any:
    def add(out: Any, w: Any, width: int, row: Any) -> None:
        if width == 16:
            _add_16((out, w, row))
        elif width == 1:
            _add_1((out, w, row))
        else:
            _add_8((out, w, row))

    return add


@overload(step_and_add_product, inline="always")
def _step_and_add_product_compiled(
    out: Any, w: Any, width: int, row: Any, step: Any, before: Any
) -> Any:
    def add(out: Any, w: Any, width: int, row: Any, step: Any, before: Any) -> None:
        if width == 16:
            _add_16((out, w, row, step, before))
        elif width == 1:
            _add_1((out, w, row, step, before))
        else:
            _add_8((out, w, row, step, before))

    return add


def _compile(plain: Any, lanes: int, write: Any) -> None:
    """Let compiled kernels call what ``write`` writes in place of ``plain``."""
    written = _written(lanes, write)

    @overload(plain, inline="always")
    def _chosen(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> Any:
        def call(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> None:
            written((a, b, c, d, e, f, g))

        return call


_compile(copy_lane, 1, _write_copy)
_compile(copy_panel, PANEL, _write_copy)
_compile(sums_of_lane, 1, _write_sums(1))
_compile(sums_of_panel, PANEL, _write_sums(1))
_compile(sums_of_window, PANEL, _write_sums(WINDOW))
_compile(product_of_four, PANEL, _write_product)
