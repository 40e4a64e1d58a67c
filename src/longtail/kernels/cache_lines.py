"""What numba has no word for: asking for memory ahead of its use, comparing 32 bytes and adding 8
numbers at once.

Each is a plain function for uncompiled kernels, and LLVM instructions behind an overload for
compiled ones. No overload says ``inline="always"``: numba would count a reference to the array at
every call, by a locked instruction. ``borrowing`` is for kernels where even one such count a call
is too much."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic
from numba.extending import overload

from longtail.kernels.jit import kernel

__all__ = ["BYTES", "LANES", "LINE", "add_multiple", "everywhere"]
__all__ += ["from_a_line_on", "lowest_bit", "matches", "prefetch"]

intrinsic: Any = _intrinsic  # its type knows nothing of compiled calls
BYTES = 32  # that `matches` compares
LINE = 16  # float32 numbers in a cache line
LANES = 8  # numbers that `add_multiple` adds at once
_BYTE = ir.IntType(8)
_NUMBER = ir.IntType(32)
_LONG = ir.IntType(64)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_VECTOR = ir.VectorType(_BYTE, BYTES)


@kernel
def from_a_line_on(size: int) -> Any:
    """Return room (size,) for float32 that begins with a cache line, so that a row of 16 is one
    line and not two.
    """
    room = np.empty(size + LINE, np.float32)
    begin = -(room.ctypes.data >> 2) & (LINE - 1)
    return room[begin : begin + size]


def prefetch(array: Any, at: Any) -> None:
    """Ask for the cache line of ``array[at]``, which is not read and may lie behind the end."""


def matches(array: Any, at: Any, wanted: Any) -> Any:
    """Return a bit for each of the 32 bytes from ``at`` on, the lowest for the first: whether it is
    ``wanted``.
    """
    return np.uint32(
        sum(1 << i for i, byte in enumerate(array[at : at + BYTES].tolist()) if byte == wanted)
    )


def lowest_bit(number: Any) -> Any:
    """Return the place of the lowest bit that is set; 32 if none is."""
    return np.int64((int(number) & -int(number)).bit_length() - 1 if number else BYTES)


def add_multiple(sums: Any, x: Any, numbers: Any, at: Any, count: Any) -> None:
    """Add x times the numbers from ``at`` on to the first ``count`` sums, a multiple of LANES;
    products are rounded.
    """
    sums[:count] += x * numbers[at : at + count]


def _address(context: Any, builder: Any, kind: Any, array: Any, at: Any, to: Any) -> Any:
    """Return the pointer to ``array[at]`` as one to the type ``to``."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), to.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(typing: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, array, arguments[0], arguments[1], _BYTE)
        kind = ir.FunctionType(ir.VoidType(), [address.type, _NUMBER, _NUMBER, _NUMBER])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        # to read, into all caches, data
        builder.call(function, [address, _NUMBER(0), _NUMBER(3), _NUMBER(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


def everywhere(builder: Any, number: Any, lanes: int) -> Any:
    """Return a vector that has a number in all lanes."""
    nothing = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    one = builder.insert_element(nothing, number, _NUMBER(0))
    return builder.shuffle_vector(
        one, nothing, ir.Constant(ir.VectorType(_NUMBER, lanes), [0] * lanes)
    )


@intrinsic  # type: ignore[untyped-decorator]
def _matches(typing: Any, array: Any, at: Any, wanted: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        there = builder.load(
            _address(context, builder, array, arguments[0], arguments[1], _VECTOR), align=1
        )
        wanted = everywhere(builder, arguments[2], BYTES)
        return builder.bitcast(builder.icmp_unsigned("==", there, wanted), _NUMBER)

    return types.uint32(array, types.intp, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def _lowest_bit(typing: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.cttz(arguments[0], ir.IntType(1)(0)), ir.IntType(64))

    return types.int64(types.uint32), generate


@intrinsic  # type: ignore[untyped-decorator]
def _add_multiple(typing: Any, sums: Any, x: Any, numbers: Any, at: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        all_sums, factor, all_numbers, begin, end = arguments
        factor = everywhere(builder, factor, LANES)
        with cgutils.for_range_slice(builder, _LONG(0), end, _LONG(LANES), inc=True) as (lane, _):
            to = _address(context, builder, sums, all_sums, lane, _FLOATS)
            own = _address(
                context, builder, numbers, all_numbers, builder.add(begin, lane), _FLOATS
            )
            product = builder.fmul(factor, builder.load(own, align=4))
            builder.store(builder.fadd(builder.load(to, align=4), product), to, align=4)
        return context.get_dummy_value()

    return types.void(sums, types.float32, numbers, types.intp, types.intp), generate


@overload(prefetch)
def _prefetch_compiled(array: Any, at: Any) -> Any:
    def ask(array: Any, at: Any) -> None:
        _prefetch(array, at)

    return ask


@overload(matches)
def _matches_compiled(array: Any, at: Any, wanted: Any) -> Any:
    def match(array: Any, at: Any, wanted: Any) -> Any:
        if at + BYTES <= array.shape[0]:
            return _matches(array, at, np.uint8(wanted))
        found = np.uint32(0)
        for i in range(array.shape[0] - at):  # a vector would reach behind the end
            found |= np.uint32(array[at + i] == wanted) << np.uint32(i)
        return found

    return match


@overload(lowest_bit)
def _lowest_bit_compiled(number: Any) -> Any:
    def find(number: Any) -> Any:
        return _lowest_bit(number)

    return find


@overload(add_multiple)
def _add_multiple_compiled(sums: Any, x: Any, numbers: Any, at: Any, count: Any) -> Any:
    def add(sums: Any, x: Any, numbers: Any, at: Any, count: Any) -> None:
        _add_multiple(sums, x, numbers, at, count)

    return add
