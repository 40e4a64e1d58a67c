"""Instructions that numba has no word for: vectors of a known width, prefetching, bits of a number.

numba's loops over 8 or 16 numbers cost more in checks than in work. So a function here is plain
Python for uncompiled kernels, and LLVM instructions behind an ``overload`` for compiled ones. In
these, arrays are C-ordered, and positions are not checked.

:func:`emitted` makes them of a function that writes instructions. Operands have the names of the
plain function's parameters:

    def copy(source, target, count):
        target[:count] = source[:count]

    def write_copy(code, operands):
        def copy_vector(i, sums):
            operands.target.store(operands.source.load(i), i)
            return sums

        code.loop(code.zero, operands.count, code.lanes, [], copy_vector)

Most overloads say ``inline="always"``. Those that :func:`~longtail.kernels.jit.borrowing` kernels
call do not: numba would count a reference to the array at every call, by a locked instruction."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import overload

from longtail.kernels.jit import kernel

__all__ = [
    "BYTES",
    "LANES",
    "LINE",
    "ArrayOperand",
    "Emitter",
    "add_multiple",
    "aligned_zeros",
    "at_least",
    "cache_aligned",
    "count_ones",
    "emitted",
    "lowest_bit",
    "matches",
    "prefetch",
]

intrinsic: Any = _intrinsic  # its type knows nothing of compiled calls
BYTES = 32  # that `matches` and `at_least` compare
LINE = 16  # float32 numbers in a cache line
LANES = 8  # numbers that `add_multiple` adds at once
_BYTE = ir.IntType(8)
_INT = ir.IntType(32)
_LONG = ir.IntType(64)
_FLOAT = ir.FloatType()
_Body = Callable[[Any, list[Any]], list[Any]]


class Emitter:
    """Writes instructions on vectors of ``lanes`` float32."""

    def __init__(self, lanes: int, context: Any, builder: Any) -> None:
        self.lanes = lanes
        self.context = context
        self.builder = builder
        self.vector = ir.VectorType(_FLOAT, lanes)
        self.zero = _LONG(0)  # a position
        name = f"llvm.fmuladd.v{lanes}f32"
        # fused or not, as the machine can: the same everywhere
        function = ir.FunctionType(self.vector, [self.vector] * 3)
        known = builder.module.globals.get(name)
        self._multiply_add = known or ir.Function(builder.module, function, name)

    def operand(self, kind: Any, value: Any) -> Any:
        """Return an argument as an operand: an array, None, or a number as it is."""
        if isinstance(kind, types.Array):
            return ArrayOperand(self, kind, value)
        if isinstance(kind, types.NoneType):
            return None
        return value

    def position(self, begin: Any, *terms: tuple[Any, Any]) -> Any:
        """Return begin + Σ a·b; b may be a number of Python."""
        for a, b in terms:
            if not isinstance(b, ir.Value):
                b = _LONG(b)
            begin = self.builder.add(begin, self.builder.mul(a, b))
        return begin

    def shifted(self, begin: Any, by: int) -> Any:
        """Return begin + by."""
        return self.builder.add(begin, _LONG(by))

    def constant(self, kind: Any, number: float) -> Any:
        """Return a vector of one number."""
        return ir.Constant(kind, [number] * self.lanes)

    def zeros(self) -> Any:
        """Return a vector of zeros."""
        return self.constant(self.vector, 0.0)

    def broadcast(self, number: Any) -> Any:
        """Return a vector that has a number in all lanes."""
        return _broadcast(self.builder, number, self.lanes)

    def in_first_lane(self, number: Any) -> Any:
        """Return a vector that has a number in its first lane, and zeros."""
        return self.builder.insert_element(self.zeros(), number, _INT(0))

    def lane(self, vector: Any, lane: int) -> Any:
        """Return the number in a lane."""
        return self.builder.extract_element(vector, _INT(lane))

    def add(self, a: Any, b: Any) -> Any:
        """Return a + b."""
        return self.builder.fadd(a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        """Return a · b, rounded."""
        return self.builder.fmul(a, b)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """Return a · b + c."""
        return self.builder.call(self._multiply_add, [a, b, c])

    def loop(self, begin: Any, end: Any, step: int, first: list[Any], body: _Body) -> Any:
        """Run ``body`` (position, vectors → vectors) while ``step`` more are left.

        Returns the position where it stopped, and the last vectors.
        """
        builder = self.builder
        before = builder.block
        head = builder.append_basic_block("head")
        inside = builder.append_basic_block("inside")
        behind = builder.append_basic_block("behind")
        builder.branch(head)
        builder.position_at_end(head)
        j = builder.phi(_LONG)
        carried = [builder.phi(self.vector) for _ in first]
        following = self.shifted(j, step)
        if step == 1:  # as compilers know it
            is_inside = builder.icmp_signed("<", j, end)
        else:
            is_inside = builder.icmp_signed("<=", following, end)
        builder.cbranch(is_inside, inside, behind)
        builder.position_at_end(inside)
        vectors = body(j, carried)
        builder.branch(head)
        starts = [begin, *first]
        for phi, start, later in zip([j, *carried], starts, [following, *vectors], strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(later, builder.block)
        builder.position_at_end(behind)
        return j, carried


class ArrayOperand:
    """An array, read and written at positions of its numbers."""

    def __init__(self, code: Emitter, kind: Any, value: Any) -> None:
        array = code.context.make_array(kind)(code.context, code.builder, value)
        self._code = code
        self._builder = code.builder
        self._data = array.data
        self._shape = array.shape
        self.bits = kind.dtype.bitwidth

    def size(self, axis: int) -> Any:
        """Return the length of an axis."""
        return self._builder.extract_value(self._shape, axis)

    def number(self, at: Any) -> Any:
        """Return one number."""
        return self._builder.load(self._builder.gep(self._data, [at]))

    def set_number(self, number: Any, at: Any) -> None:
        """Write one number."""
        self._builder.store(number, self._builder.gep(self._data, [at]))

    def index(self, at: Any) -> Any:
        """Return one unsigned number as a position."""
        return self._builder.zext(self.number(at), _LONG)

    def broadcast(self, at: Any) -> Any:
        """Return a vector that has one number in all lanes."""
        return self._code.broadcast(self.number(at))

    def load(self, at: Any) -> Any:
        """Return the float32 from ``at`` on."""
        return self._builder.load(self._pointer(at, self._code.vector), align=4)

    def store(self, vector: Any, at: Any) -> None:
        """Write float32 from ``at`` on."""
        self._builder.store(vector, self._pointer(at, self._code.vector), align=4)

    def load_codes(self, at: Any) -> Any:
        """Return the integers from ``at`` on."""
        kind = ir.VectorType(ir.IntType(self.bits), self._code.lanes)
        return self._builder.load(self._pointer(at, kind), align=self.bits // 8)

    def _pointer(self, at: Any, kind: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self._data, [at]), kind.as_pointer())


def emitted(plain: Callable[..., Any], lanes: int, write: Callable[[Emitter, Any], None]) -> Any:
    """Return a function for kernels with the parameters of ``plain``.

    Args:
        plain: what the instructions do. Its parameters are arrays, None, float32 and integers.
        lanes: numbers in a vector.
        write: called as ``write(emitter, operands)``. The attributes of ``operands`` are the
            parameters of ``plain``: :class:`ArrayOperand`, None or a value.
    """
    parameters = inspect.signature(plain).parameters

    def define(typing: Any, *kinds: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            code = Emitter(lanes, context, builder)
            operands = SimpleNamespace()
            for name, kind, value in zip(parameters, signature.args, arguments, strict=True):
                setattr(operands, name, code.operand(kind, value))
            write(code, operands)
            return context.get_dummy_value()

        return types.void(*map(_passed_as, kinds)), generate

    # numba reads the parameters of an intrinsic from its signature
    typing = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([typing, *parameters.values()])
    define.__signature__ = signature  # type: ignore[attr-defined]
    define.__name__ = plain.__name__
    return intrinsic(define)


def _passed_as(kind: Any) -> Any:
    if isinstance(kind, types.Array | types.NoneType):
        return kind
    if isinstance(kind, types.Float):
        return types.float32
    return types.intp


def _broadcast(builder: Any, number: Any, lanes: int) -> Any:
    nothing = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = builder.insert_element(nothing, number, _INT(0))
    zeros = ir.Constant(ir.VectorType(_INT, lanes), [0] * lanes)
    return builder.shuffle_vector(first, nothing, zeros)


@kernel
def cache_aligned(size: int) -> Any:
    """Return room (size,) for float32 that begins with a cache line, so that a row of 16 is one
    line and not two.
    """
    room = np.empty(size + LINE, np.float32)
    begin = -(room.ctypes.data >> 2) & (LINE - 1)
    # in two steps, because numpy lets an empty slice begin where its array does
    return room[begin:][:size]


@kernel
def aligned_zeros(size: int) -> Any:
    """Return zeros (size,) float32 that begin with a cache line."""
    room = cache_aligned(size)
    room[:] = 0
    return room


# prefetching


def prefetch(array: Any, at: Any) -> None:
    """Prefetch the cache line of ``array[at]``, which is not read and may lie behind the end."""


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(typing: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, array, arguments, _BYTE)
        kind = ir.FunctionType(ir.VoidType(), [address.type, _INT, _INT, _INT])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        # to read, into all caches, data
        builder.call(function, [address, _INT(0), _INT(3), _INT(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@overload(prefetch)
def _prefetch_compiled(array: Any, at: Any) -> Any:
    def ask(array: Any, at: Any) -> None:
        _prefetch(array, at)

    return ask


def _address(context: Any, builder: Any, kind: Any, arguments: Any, to: Any) -> Any:
    """Return the pointer to ``array[at]``, the first two arguments, as one to the type ``to``."""
    array, at = arguments[:2]
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), to.as_pointer())


# bytes and bits


def matches(array: Any, at: Any, wanted: Any) -> Any:
    """Return a bit for each of the 32 bytes from ``at`` on, the lowest for the first: whether it is
    ``wanted``.
    """
    content = array[at : at + BYTES].tolist()
    return np.uint32(sum(1 << i for i, byte in enumerate(content) if byte == wanted))


def at_least(array: Any, at: Any, flag: Any, least: Any) -> Any:
    """Return a bit for each of the 32 bytes from ``at`` on, the lowest for the first: whether byte
    | flag ≥ least.
    """
    content = array[at : at + BYTES].tolist()
    return np.uint32(sum(1 << i for i, byte in enumerate(content) if byte | flag >= least))


def lowest_bit(number: Any) -> Any:
    """Return the position of the lowest bit that is set; 32 if none is."""
    return np.int64((int(number) & -int(number)).bit_length() - 1 if number else BYTES)


def count_ones(number: Any) -> Any:
    """Return how many bits are set."""
    return int(number).bit_count()


def _load_bytes(context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
    vector = ir.VectorType(_BYTE, BYTES)
    return builder.load(_address(context, builder, kind, arguments, vector), align=1)


@intrinsic  # type: ignore[untyped-decorator]
def _matches(typing: Any, array: Any, at: Any, wanted: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        content = _load_bytes(context, builder, array, arguments)
        wanted = _broadcast(builder, arguments[2], BYTES)
        return builder.bitcast(builder.icmp_unsigned("==", content, wanted), _INT)

    return types.uint32(array, types.intp, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def _at_least(typing: Any, array: Any, at: Any, flag: Any, least: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        content = _load_bytes(context, builder, array, arguments)
        flags = _broadcast(builder, arguments[2], BYTES)
        leasts = _broadcast(builder, arguments[3], BYTES)
        compared = builder.icmp_unsigned(">=", builder.or_(content, flags), leasts)
        return builder.bitcast(compared, _INT)

    return types.uint32(array, types.intp, types.uint8, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def _lowest_bit(typing: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.cttz(arguments[0], ir.IntType(1)(0)), _LONG)

    return types.int64(types.uint32), generate


@intrinsic  # type: ignore[untyped-decorator]
def _count_ones(typing: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.ctpop(arguments[0]), _LONG)

    return types.int64(types.uint32), generate


@overload(matches)
def _matches_compiled(array: Any, at: Any, wanted: Any) -> Any:
    def match(array: Any, at: Any, wanted: Any) -> Any:
        if at + BYTES <= array.shape[0]:
            return _matches(array, at, np.uint8(wanted))
        bits = np.uint32(0)
        for i in range(array.shape[0] - at):  # a vector would reach behind the end
            bits |= np.uint32(array[at + i] == wanted) << np.uint32(i)
        return bits

    return match


@overload(at_least)
def _at_least_compiled(array: Any, at: Any, flag: Any, least: Any) -> Any:
    def compare(array: Any, at: Any, flag: Any, least: Any) -> Any:
        if at + BYTES <= array.shape[0]:
            return _at_least(array, at, np.uint8(flag), np.uint8(least))
        bits = np.uint32(0)
        for i in range(array.shape[0] - at):  # a vector would reach behind the end
            bits |= np.uint32((array[at + i] | flag) >= least) << np.uint32(i)
        return bits

    return compare


@overload(lowest_bit)
def _lowest_bit_compiled(number: Any) -> Any:
    def find(number: Any) -> Any:
        return _lowest_bit(number)

    return find


@overload(count_ones)
def _count_ones_compiled(number: Any) -> Any:
    def count(number: Any) -> Any:
        return _count_ones(np.uint32(number))

    return count


# sums of one row


def add_multiple(sums: Any, x: Any, numbers: Any, at: Any, count: Any) -> None:
    """Add x times the numbers from ``at`` on to the first ``count`` sums, a multiple of LANES;
    products are rounded.
    """
    sums[:count] += x * numbers[at : at + count]


def _write_addition(code: Emitter, operands: Any) -> None:
    sums = operands.sums
    factor = code.broadcast(operands.x)

    def add(lane: Any, vectors: list[Any]) -> list[Any]:
        numbers = operands.numbers.load(code.builder.add(operands.at, lane))
        sums.store(code.add(sums.load(lane), code.multiply(factor, numbers)), lane)
        return vectors

    code.loop(code.zero, operands.count, code.lanes, [], add)


_add_multiple = emitted(add_multiple, LANES, _write_addition)


@overload(add_multiple)
def _add_multiple_compiled(sums: Any, x: Any, numbers: Any, at: Any, count: Any) -> Any:
    def add(sums: Any, x: Any, numbers: Any, at: Any, count: Any) -> None:
        _add_multiple(sums, x, numbers, at, count)

    return add
