"""Arrays in the safetensors format, read where they lie and written as the safetensors library
writes them.

The format: eight bytes of header length, a JSON header (name → dtype, shape, offsets), then the
arrays end to end. Both ways are here and not left to the library because the reader must bound what
it believes before it allocates, and the writer must hash what it writes and order metadata the same
way every time."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from longtail.store.durable import Buffer
from longtail.store.manifest import JSON_ERRORS
from longtail.store.refusal import refusal

__all__ = ["MAX_HEADER_BYTES", "array_pieces", "check_kinds", "read_arrays", "read_metadata"]

MAX_HEADER_BYTES = 8 << 20
_MAX_DIMS = 8
_MAX_ARRAY_BYTES = 1 << 60
_METADATA = "__metadata__"

# In the library's order, which it also lays arrays out by, last first: so each array is aligned to
# its item size.
_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in [
        ("BOOL", "?"),
        ("U8", "u1"),
        ("I8", "i1"),
        ("I16", "<i2"),
        ("U16", "<u2"),
        ("F16", "<f2"),
        ("I32", "<i4"),
        ("U32", "<u4"),
        ("F32", "<f4"),
        ("C64", "<c8"),
        ("F64", "<f8"),
        ("I64", "<i8"),
        ("U64", "<u8"),
    ]
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_RANKS = {dtype: rank for rank, dtype in enumerate(_DTYPES.values())}

_Natural = Annotated[int, msgspec.Meta(ge=0)]


class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: Annotated[tuple[_Natural, ...], msgspec.Meta(max_length=_MAX_DIMS)]
    data_offsets: tuple[_Natural, _Natural]


def read_arrays(buffer: memoryview, file: Path) -> dict[str, np.ndarray]:
    """Return the arrays in ``buffer``, the bytes of ``file``, without copying them; they are
    read-only if it is.
    """
    header, start = _header(buffer, file)
    tensors = {name: _tensor(name, raw, file) for name, raw in header.items() if name != _METADATA}
    _check_layout(tensors, len(buffer) - start, file)
    return {name: _view(tensor, buffer[start:]) for name, tensor in tensors.items()}


def read_metadata(buffer: memoryview, file: Path) -> dict[str, str]:
    """Return the strings that were written beside the arrays."""
    header, _ = _header(buffer, file)
    try:
        return msgspec.json.decode(header.get(_METADATA, b"{}"), type=dict[str, str])
    except JSON_ERRORS as error:
        raise refusal(file, f"its metadata is not readable ({error})") from None


def check_kinds(arrays: Mapping[str, np.ndarray], kinds: Mapping[str, str]) -> None:
    """Raise ValueError unless each named array is a vector of one of the kinds of numbers, as numpy
    calls them.

    "i" and "u" are integers, "f" numbers with fractions; KeyError where there is no such array.
    """
    for name, kind in kinds.items():
        array = arrays[name]
        if array.ndim != 1 or array.dtype.kind not in kind:
            raise ValueError(
                f"{name}: found {array.dtype} of shape {array.shape}; "
                f"expected a vector of kind {kind}"
            )


def array_pieces(
    arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> Iterator[Buffer]:
    """Yield the bytes of a safetensors file piece by piece; contiguous little-endian arrays are not
    copied.
    """
    little = dict[str, np.ndarray]()
    for name, array in arrays.items():
        little[name] = np.asarray(array, dtype=_known(name, array))
    names = sorted(little, key=lambda name: (-_RANKS[little[name].dtype], name))
    yield _encode_header({name: little[name] for name in names}, metadata)
    for name in names:
        yield np.ascontiguousarray(little[name]).reshape(-1).view(np.uint8).data


def _header(buffer: memoryview, file: Path) -> tuple[dict[str, msgspec.Raw], int]:
    length = int.from_bytes(buffer[:8], "little")
    if len(buffer) < 8 or length > len(buffer) - 8:
        raise refusal(
            file, f"is cut short: {len(buffer)} bytes, and its header alone would take {length + 8}"
        )
    if length > MAX_HEADER_BYTES:
        raise refusal(file, f"has a header of {length} bytes; at most {MAX_HEADER_BYTES} are read")
    try:
        return msgspec.json.decode(buffer[8 : 8 + length], type=dict[str, msgspec.Raw]), 8 + length
    except JSON_ERRORS as error:
        raise refusal(file, f"its header is not readable ({error})") from None


def _tensor(name: str, raw: msgspec.Raw, file: Path) -> _Tensor:
    try:
        tensor = msgspec.json.decode(raw, type=_Tensor)
    except JSON_ERRORS as error:
        raise refusal(file, f"the entry of array '{name}' is not readable ({error})") from None
    if tensor.dtype not in _DTYPES:
        raise refusal(
            file, f"array '{name}' has dtype '{tensor.dtype}', expected one of {', '.join(_DTYPES)}"
        )
    begin, end = tensor.data_offsets
    itemsize = _DTYPES[tensor.dtype].itemsize
    if math.prod(tensor.shape) * itemsize != end - begin:
        raise refusal(
            file,
            f"array '{name}' of shape {list(tensor.shape)} does not fill bytes {begin} to {end}",
        )
    # an array of no items can be absurd too
    if math.prod(filter(None, tensor.shape)) * itemsize > _MAX_ARRAY_BYTES:
        raise refusal(file, f"array '{name}' has the absurd shape {list(tensor.shape)}")
    return tensor


def _check_layout(tensors: dict[str, _Tensor], n_bytes: int, file: Path) -> None:
    filled = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        begin, end = tensor.data_offsets
        if begin != filled:
            raise refusal(
                file,
                f"array '{name}' starts at byte {begin}, expected {filled}: a hole or an overlap",
            )
        filled = end
    if filled != n_bytes:
        raise refusal(file, f"holds {n_bytes} bytes of arrays, and its header says {filled}")


def _view(tensor: _Tensor, data: memoryview) -> np.ndarray:
    begin, end = tensor.data_offsets
    array = np.frombuffer(data[begin:end], dtype=_DTYPES[tensor.dtype]).reshape(tensor.shape)
    if array.flags.aligned and sys.byteorder == "little":
        return array
    array = array.astype(array.dtype.newbyteorder("="))  # kernels take native aligned arrays only
    array.flags.writeable = False
    return array


def _known(name: str, array: np.ndarray) -> np.dtype[Any]:
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _NAMES or array.ndim > _MAX_DIMS or name == _METADATA:
        raise TypeError(
            f"array '{name}' of dtype {array.dtype} and {array.ndim} dimensions "
            "has no place in safetensors"
        )
    return dtype


def _encode_header(arrays: dict[str, np.ndarray], metadata: Mapping[str, str] | None) -> bytes:
    header: dict[str, object] = {_METADATA: dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name, array in arrays.items():
        begin = end
        end = end + array.nbytes
        header[name] = _Tensor(_NAMES[array.dtype], array.shape, (begin, end))
    raw = msgspec.json.encode(header)
    raw += b" " * (-len(raw) % 8)  # so that the arrays start aligned
    if len(raw) > MAX_HEADER_BYTES:
        raise ValueError(
            f"the names and shapes of {len(arrays)} arrays take {len(raw)} bytes, "
            f"above {MAX_HEADER_BYTES}"
        )
    return len(raw).to_bytes(8, "little") + raw
