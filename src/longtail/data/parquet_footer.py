"""Column chunks by the footer of a Parquet file, read without pyarrow.

pyarrow knows them too, but ends the whole process where a damaged footer disagrees with itself.
The footer is one struct in Thrift's compact protocol, see parquet.thrift in apache/parquet-format.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ColumnChunk", "column_chunks"]

_MAGIC = b"PAR1"
# fields of FileMetaData, RowGroup and ColumnChunk
_ROW_GROUPS = 4
_COLUMNS = 1
_META_DATA = 3
# of ColumnMetaData
_PATH = 3
_NUM_VALUES = 5
_UNCOMPRESSED = 6
# kinds of values
_TRUE = 1
_FALSE = 2
_BYTE = 3
_DOUBLE = 7
_BINARY = 8
_LIST = 9
_SET = 10
_MAP = 11
_STRUCT = 12


class ColumnChunk(NamedTuple):
    """One column of one row group; the numbers are claims."""

    column: str  # of the table; a list has its values further down
    num_values: int
    nbytes: int  # uncompressed


def column_chunks(path: Path | str) -> Iterator[ColumnChunk]:
    """Yield the column chunks; ValueError where the footer cannot be read."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(4), "little")
        magic = file.read(4)
        if magic != _MAGIC or length > size - 12:
            raise ValueError("no footer")
        file.seek(size - 8 - length)
        footer = file.read(length)
    try:
        for group in _Thrift(footer).struct()[_ROW_GROUPS]:
            for chunk in group[_COLUMNS]:
                meta = chunk[_META_DATA]
                yield ColumnChunk(
                    meta[_PATH][0].decode(), int(meta[_NUM_VALUES]), int(meta[_UNCOMPRESSED])
                )
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError):
        # cut short, or other types than declared
        raise ValueError("a footer that cannot be read") from None


class _Thrift:
    """Decodes structs to dicts by field number, lists to lists; the others to numbers or bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> dict[int, Any]:
        """Return the fields of the struct that begins here."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step = head >> 4
            kind = head & 15
            number = number + step if step else self._zigzag()
            if kind <= _FALSE:
                fields[number] = kind == _TRUE
            else:
                fields[number] = self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind == _STRUCT:
            return self.struct()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind in (_LIST, _SET):
            return self._list()
        if kind == _MAP:
            raise ValueError("a map, which no footer has")
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind <= _BYTE:
            return self._byte()
        return self._zigzag()

    def _list(self) -> list[Any]:
        head = self._byte()
        size = self._varint() if head >> 4 == 15 else head >> 4
        if size > len(self._data) - self._at:  # an item takes a byte or more
            raise ValueError("a list that is longer than the footer")
        return [self._value(head & 15) for _ in range(size)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise ValueError("a string that is longer than the footer")
        return self._data[self._at - size : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
