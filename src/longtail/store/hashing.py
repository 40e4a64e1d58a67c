"""One hash for what a stage of training was made from."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

__all__ = ["content_hash"]


def content_hash(*objects: Any) -> str:
    """Return the SHA-256, in hexadecimal, of the values; it differs when a type, a shape or a byte
    does.

    Takes what JSON can say, bytes, msgspec Structs, numpy arrays, and CSR or CSC matrices, nested
    as wanted. Lists and tuples are alike, and so are Structs and dicts."""
    digest = hashlib.sha256()
    _feed(digest, objects)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Hash what stands for ``value`` and no other: a tag, the length where it has one, and the
    content.
    """
    match value:
        case str():  # first, as most of a million values are
            raw = value.encode("utf-8", "surrogatepass")
            digest.update(b"s%d;%b" % (len(raw), raw))
        case None | bool() | np.bool():
            digest.update(f"{value!s};".encode())
        case int() | np.integer():
            digest.update(f"i{int(value)};".encode())
        case float() | np.floating():
            digest.update(b"f" + struct.pack("<d", value))
        case bytes():
            digest.update(b"b%d;" % len(value))
            digest.update(value)
        case np.ndarray():
            _feed_array(digest, value)
        case list() | tuple():
            digest.update(b"l%d;" % len(value))
            for item in value:
                _feed(digest, item)
        case Mapping():
            digest.update(b"d%d;" % len(value))
            for key in _sorted_keys(value):
                _feed(digest, key)
                _feed(digest, value[key])
        case msgspec.Struct():
            _feed(digest, msgspec.to_builtins(value, order="deterministic"))
        case _ if hasattr(value, "indptr"):
            _feed(
                digest, [value.format, list(value.shape), value.indptr, value.indices, value.data]
            )
        case _:
            raise TypeError(f"a value of type {type(value).__name__} cannot be hashed by content")


def _feed_array(digest: Any, array: np.ndarray) -> None:
    if array.dtype.hasobject:
        raise TypeError("an array of Python objects cannot be hashed by content")
    digest.update(f"a{array.dtype.str}{array.shape};".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _sorted_keys(mapping: Mapping[Any, Any]) -> list[str]:
    if not all(isinstance(key, str) for key in mapping):
        raise TypeError("a mapping whose keys are not all strings cannot be hashed by content")
    return sorted(mapping)
