"""Parquet with the columns of a CSV, read in batches and written in row groups.

Column chunks are found by the footer, read without pyarrow, which ends the whole process where a
damaged footer disagrees with itself. The footer is one struct in Thrift's compact protocol, see
parquet.thrift in apache/parquet-format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longtail.data.builder import Builder, Reading
from longtail.data.dataset import Dataset
from longtail.data.lines import MAX_EXPANSION
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.data.tables import (
    LabelCells,
    add_row,
    column_positions,
    columns_to_write,
    standard_names,
)
from longtail.errors import MissingExtra, UsageError
from longtail.reporting import advance

__all__ = ["ColumnChunk", "column_chunks", "read_parquet", "write_parquet"]

_ROW_GROUP = 8192  # rows of a Parquet row group
_BATCH = 1024  # rows read from Parquet at a time
_EXPANSION_FREE = 64 << 20  # bytes that come out of a small Parquet file without being a bomb
_TOO_LARGE = f"data that grows more than {MAX_EXPANSION} times", "a table of texts"


def read_parquet(path: Path | str, reading: Reading) -> Dataset:
    """Read a Parquet file; ``labels`` is a list of strings, or a cell as in CSV. Problems count
    rows from 1.
    """
    builder = Builder(path, reading)
    label_cells = LabelCells(path, reading.label_separator)
    row = 0
    for batch in _batches(path, reading, builder.problems):
        names = standard_names(batch.schema.names, reading)
        for values in zip(*map(_values, batch.columns), strict=True):
            row += 1
            add_row(builder, row, dict(zip(names, values, strict=True)), label_cells)
    dataset = builder.finish()
    if reading.labelled:
        label_cells.warn()
    return dataset


def _batches(path: Path | str, reading: Reading, problems: Problems) -> Iterator[Any]:
    """Yield record batches with the columns wanted; any error of pyarrow ends the reading."""
    arrow, parquet = _pyarrow()
    if not Path(path).is_file():
        if str(path) == "-":
            raise UsageError("Parquet needs a file; found standard input")
        raise UsageError(f"{path}: no such file")
    size = Path(path).stat().st_size
    most = max(_EXPANSION_FREE, MAX_EXPANSION * size)
    try:
        with parquet.ParquetFile(str(path), memory_map=False, pre_buffer=False) as file:
            schema = file.schema_arrow
            positions = column_positions(schema.names, reading, problems, 0)
            types = {name: schema.types[position] for name, position in positions.items()}
            _check_types(arrow, types, problems)
            columns = [schema.names[position] for position in positions.values()]
            rows = _rows_at_a_time(path, columns, most, problems)
            for batch in file.iter_batches(rows, columns=columns, use_threads=False):
                advance(size * batch.num_rows // max(file.metadata.num_rows, 1))
                most -= batch.nbytes
                if most < 0:
                    problems.fatal(*_TOO_LARGE)
                yield batch
    except PermissionError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except (arrow.ArrowException, OSError, MemoryError, OverflowError, ValueError) as error:
        problems.fatal(f"damaged Parquet data ({quoted(str(error), 120)})", "a whole Parquet file")


def _rows_at_a_time(path: Path | str, columns: Sequence[str], most: int, problems: Problems) -> int:
    """Return how many rows stay below ``most`` bytes, whatever stands in them, as pyarrow decodes
    all of a batch.
    """
    wanted = (chunk for chunk in column_chunks(path) if chunk.column in columns)
    # a value takes part of a bit in a chunk of many equal ones, and a row that repeats one may be
    # as large as the chunk
    sizes = [max(0, chunk.nbytes + 8 * chunk.num_values) for chunk in wanted]
    if sum(sizes) > most:
        problems.fatal(*_TOO_LARGE)
    return max(1, min(_BATCH, most // max([1, *sizes])))


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("Parquet", "parquet") from None
    return pyarrow, parquet


def _check_types(arrow: Any, types: dict[str, Any], problems: Problems) -> None:
    """Stop at a column whose values could not become what it stands for."""
    kinds = arrow.types

    def is_list(kind: Any) -> bool:
        return bool(
            kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
        )

    def fits(name: str, kind: Any) -> bool:
        if kinds.is_dictionary(kind):
            return fits(name, kind.value_type)
        if name == "labels" and is_list(kind):
            return fits("text", kind.value_type)
        if name == "relevance" and is_list(kind):
            return fits("number", kind.value_type)
        if name == "number":
            return bool(kinds.is_integer(kind) or kinds.is_floating(kind))
        text = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
        return bool(text or kinds.is_null(kind) or (name == "id" and kinds.is_integer(kind)))

    wanted = {
        "labels": "strings or lists of strings",
        "relevance": "lists of numbers",
        "id": "strings or integers",
    }
    for name, kind in types.items():
        if not fits(name, kind):
            problems.fatal(f"column '{name}' of type {kind}", wanted.get(name, "strings"))


def _values(column: Any) -> list[Any]:
    """Return a column's values; where a string is not UTF-8, the error stands in its place."""

    def value(scalar: Any) -> Any:
        try:
            return scalar.as_py()
        except UnicodeDecodeError as error:
            return error

    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        return [value(scalar) for scalar in column]
    return values


def write_parquet(dataset: Dataset, path: Path | str) -> None:
    """Write ``text``, ``labels`` (lists of strings) and, where there are any, ids and relevances,
    as zstd Parquet.
    """
    arrow, parquet = _pyarrow()
    if Path(path).suffix in (".gz", ".zst"):
        raise UsageError(
            f"{path}: Parquet is compressed inside; expected a name that ends in .parquet"
        )
    types = {
        "id": arrow.large_string(),
        "text": arrow.large_string(),
        "labels": arrow.list_(arrow.string()),
    }
    types["relevance"] = arrow.list_(arrow.float32())
    columns = columns_to_write(dataset, path)
    schema = arrow.schema([(name, types[name]) for name in columns])
    texts = dataset.document_texts()
    with open_output(path) as out, parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for first in range(0, len(dataset), _ROW_GROUP):
            rows = range(first, min(first + _ROW_GROUP, len(dataset)))
            cells = {
                "text": list(texts[first : rows.stop]),
                "labels": [dataset.labels_of(row) for row in rows],
            }
            cells["relevance"] = [dataset.relevance_of(row) for row in rows]
            cells["id"] = [dataset.document_id(row) for row in rows]
            writer.write_batch(arrow.record_batch([cells[name] for name in columns], schema=schema))


# The footer of a Parquet file

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
