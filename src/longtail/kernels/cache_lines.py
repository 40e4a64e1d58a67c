"""What numba has no word for: asking for memory ahead of its use, and comparing 32 bytes at once.

Each is a plain function for uncompiled kernels, and an LLVM instruction behind an overload for compiled ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import overload

__all__ = ["BYTES", "lowest_bit", "matches", "prefetch"]

intrinsic: Any = _intrinsic  # its type knows nothing of compiled calls
BYTES = 32  # that `matches` compares
_BYTE, _NUMBER = ir.IntType(8), ir.IntType(32)
_VECTOR = ir.VectorType(_BYTE, BYTES)


def prefetch(array: Any, at: Any) -> None:
    """Ask for the cache line of ``array[at]``, which is not read and may lie behind the end."""


def matches(array: Any, at: Any, wanted: Any) -> Any:
    """Return a bit for each of the 32 bytes from ``at`` on, the lowest for the first: whether it is ``wanted``."""
    return np.uint32(sum(1 << i for i, byte in enumerate(array[at : at + BYTES].tolist()) if byte == wanted))


def lowest_bit(number: Any) -> Any:
    """Return the place of the lowest bit that is set; 32 if none is."""
    return np.int64((int(number) & -int(number)).bit_length() - 1 if number else BYTES)


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
        builder.call(function, [address, _NUMBER(0), _NUMBER(3), _NUMBER(1)])  # to read, into all caches, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def _matches(typing: Any, array: Any, at: Any, wanted: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        there = builder.load(_address(context, builder, array, arguments[0], arguments[1], _VECTOR), align=1)
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        one = builder.insert_element(nothing, arguments[2], _NUMBER(0))
        everywhere = builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_NUMBER, BYTES), [0] * BYTES))
        return builder.bitcast(builder.icmp_unsigned("==", there, everywhere), _NUMBER)

    return types.uint32(array, types.intp, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def _lowest_bit(typing: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.cttz(arguments[0], ir.IntType(1)(0)), ir.IntType(64))

    return types.int64(types.uint32), generate


@overload(prefetch, inline="always")
def _prefetch_compiled(array: Any, at: Any) -> Any:
    def ask(array: Any, at: Any) -> None:
        _prefetch(array, at)

    return ask


@overload(matches, inline="always")
def _matches_compiled(array: Any, at: Any, wanted: Any) -> Any:
    def match(array: Any, at: Any, wanted: Any) -> Any:
        if at + BYTES <= array.shape[0]:
            return _matches(array, at, np.uint8(wanted))
        found = np.uint32(0)
        for i in range(array.shape[0] - at):  # a vector would reach behind the end
            found |= np.uint32(array[at + i] == wanted) << np.uint32(i)
        return found

    return match


@overload(lowest_bit, inline="always")
def _lowest_bit_compiled(number: Any) -> Any:
    def find(number: Any) -> Any:
        return _lowest_bit(number)

    return find
