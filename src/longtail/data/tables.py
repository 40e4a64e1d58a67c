"""Tables with one document a row: CSV and TSV with a header row; Parquet shares their columns.

The columns are ``text`` (or ``title``, or both), ``labels``, and if wanted ``id`` and
``relevance``, in any order and case; others are ignored. A cell of several labels is ``a;b;c``, or
a JSON list where a label could be misread. An id that is empty or begins with a quote is written as
a JSON string."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.left_out import IN_LABEL_FILE, warn_left_out
from longtail.data.lines import MAX_LINE, blocks
from longtail.data.output import open_output
from longtail.data.problems import Problems, not_utf8, quoted
from longtail.errors import UsageError, unknown_name

__all__ = [
    "BadRecord",
    "LabelCells",
    "add_row",
    "column_positions",
    "columns_to_write",
    "join_cell",
    "join_id",
    "no_column",
    "read_csv",
    "read_tsv",
    "split_cell",
    "split_id",
    "standard_names",
    "table_line",
    "table_rows",
    "write_csv",
    "write_tsv",
]

T = TypeVar("T", str, float)
log = logging.getLogger("longtail")

_SEPARATORS = ",|;"  # that people put between labels
_COMMONLY = 0.2  # share of the cells of labels that hold one of these
_HARDLY_ANY = 0.01  # share of those that hold the separator in use
COLUMNS = ("id", "title", "text", "labels", "relevance")


class BadRecord(Exception):
    """A row or cell that cannot be read: (problem, expected), and the file if it is another one."""


def read_csv(path: Path | str, reading: Reading) -> Dataset:
    """Read comma-separated values with a header row; cells may be quoted and hold newlines."""
    return _read_text_table(path, reading, reading.separator or ",")


def read_tsv(path: Path | str, reading: Reading) -> Dataset:
    """Read tab-separated values with a header row, quoted as CSV is."""
    return _read_text_table(path, reading, reading.separator or "\t")


def write_csv(dataset: Dataset, path: Path | str) -> None:
    """Write texts, labels and, where there are any, ids and relevances; ids are cells of
    :func:`join_id`.
    """
    _write_text_table(dataset, path, ",")


def write_tsv(dataset: Dataset, path: Path | str) -> None:
    """Write the columns of :func:`write_csv`, separated by tabs."""
    _write_text_table(dataset, path, "\t")


def _read_text_table(path: Path | str, reading: Reading, delimiter: str) -> Dataset:
    builder = Builder(path, reading)
    rows = table_rows(path, builder.problems, delimiter)
    line, header = next(rows, (0, []))
    shown = delimiter.replace("\t", "<TAB>")
    if not header:
        builder.problems.fatal("no header row", f"a first line such as text{shown}labels")
    by = ""
    if len(header) == 1:
        by = f", separated by {shown}"
    positions = column_positions(header, reading, builder.problems, line, by)
    label_cells = LabelCells(path, reading.label_separator)
    for line, row in rows:
        if len(row) != len(header):
            builder.problems.add(line, f"{len(row)} cells", f"{len(header)}, as in the header")
        else:
            cells: dict[str, Any] = {name: row[column] for name, column in positions.items()}
            if "id" in cells:
                cells["id"] = split_id(cells["id"])
            add_row(builder, line, cells, label_cells)
    dataset = builder.finish()
    if reading.labelled:
        label_cells.warn()
    return dataset


def column_positions(
    header: Sequence[str], reading: Reading, problems: Problems, line: int, by: str = ""
) -> dict[str, int]:
    """Return the position of each column that is there, or stop for one that has to be; ``by`` ends
    the message.
    """
    if not reading.label_separator:
        raise UsageError(
            "label_separator '': found no character; expected one or more, such as ';'"
        )
    names = standard_names(header, reading)
    twice = [name for name in COLUMNS if names.count(name) > 1]
    if twice:
        problems.fatal(f"two columns '{twice[0]}'", "each column once", line)
    required = []
    if "title" not in names:
        required.append("text")
    if reading.labelled:
        required.append("labels")
    for name in required:
        if name not in names:
            asked = {"text": reading.text_column, "labels": reading.labels_column}[name]
            if by:
                options = "--separator names another"
            else:
                options = "--text-column and --labels-column name others"
            expected = f"the columns 'text' and 'labels'{by} ({options})"
            problems.fatal(no_column(asked or name, header), expected, line)
    return {name: names.index(name) for name in COLUMNS if name in names}


def standard_names(header: Sequence[str], reading: Reading) -> list[str]:
    """Return the names of the columns in lower case, those that the reading asks for as ``text``
    and ``labels``.
    """
    names = [name.strip().lower() for name in header]
    for name, asked in (("text", reading.text_column), ("labels", reading.labels_column)):
        if asked is not None:  # a column of the standard name is another one
            other = {name: f"other {name}"}
            names = [other.get(column, column) for column in names]
            wanted = asked.strip().lower()
            standard = {wanted: name, f"other {wanted}": name}
            names = [standard.get(column, column) for column in names]
    return names


def no_column(name: str, header: Sequence[str]) -> str:
    """Return the problem of a missing column: the columns there are, and the nearest of them."""
    _, near, name_and_mark = unknown_name("column", name, header).partition("; did you mean ")
    hint = ""
    if near and len(header) > 1:
        hint = f" (did you mean {name_and_mark})"
    return f"no column '{name}'{hint} in {quoted(list(header), 200)}"


class LabelCells:
    """The cells of labels of a table: their separator, and whether they look as if another one was
    meant.
    """

    def __init__(self, path: Path | str, separator: str) -> None:
        self.separator = separator
        self._path = path
        self._cells = 0
        self._separated = 0
        self._others = Counter[str]()

    def count(self, cell: Any) -> None:
        """Look at one cell; lists of JSON and Parquet have no separator."""
        if not isinstance(cell, str) or not cell.strip() or cell.lstrip().startswith("["):
            return
        self._cells += 1
        if self.separator in cell:
            self._separated += 1
        else:
            self._others.update(character for character in _SEPARATORS if character in cell)

    def warn(self) -> None:
        """Warn where many cells are one label that holds a comma or the like, and hardly any is
        separated.
        """
        if not self._others or self._separated > _HARDLY_ANY * self._cells:
            return
        other, count = self._others.most_common(1)[0]
        if count < max(2, _COMMONLY * self._cells):
            return
        problem = f"{count:,} of {self._cells:,} cells of labels hold {other!r}"
        problem += ", and each is read as one label"
        way_out = f"where it separates labels, give --label-separator {other!r}"
        way_out += f", or label_separator={other!r}"
        log.warning(
            "%s: %s, as labels are separated by %r; %s",
            self._path,
            problem,
            self.separator,
            way_out,
        )


def add_row(builder: Builder, line: int, cells: dict[str, Any], label_cells: LabelCells) -> None:
    """Add the record of one row, whose cells are strings or, from Parquet, also lists, integers and
    None.
    """
    separator = label_cells.separator
    label_cells.count(cells.get("labels"))
    try:
        labels = _list(cells, "labels", separator, str)
        relevance = None
        if labels is not None:  # an empty cell of relevances means that all are 1
            relevance = _list(cells, "relevance", separator, float) or None
        text, title, document = (_string(cells.get(name)) for name in ("text", "title", "id"))
    except BadRecord as bad:
        builder.problems.add(line, *bad.args)
    else:
        record = Record(text, title, None, document, relevance)
        if labels is not None:
            record.labels = tuple(labels)
        builder.add(line, record)


def _string(value: Any) -> str | None:
    if isinstance(value, UnicodeDecodeError):
        raise BadRecord(*not_utf8(value))
    if value is None:
        return None
    return str(value)


def _list(cells: dict[str, Any], name: str, separator: str, of: type[T]) -> list[T] | None:
    value = cells.get(name)
    if isinstance(value, list):
        if None in value:
            raise BadRecord(f"a null in '{name}'", "strings" if of is str else "numbers")
        return value
    cell = _string(value)
    if cell is None:
        return None
    return split_cell(cell, separator, of)


@overload
def split_cell(cell: str, separator: str = ";") -> list[str]: ...
@overload
def split_cell(cell: str, separator: str, of: type[T]) -> list[T]: ...
def split_cell(cell: str, separator: str = ";", of: Any = str) -> Any:
    """Return the parts of one cell: a JSON list, or what stands between the separators, without
    outer space.
    """
    cell = cell.strip()
    try:
        if cell.startswith("["):
            return msgspec.json.decode(cell, type=list[of])
        return [of(part) for part in map(str.strip, cell.split(separator)) if part]
    except (msgspec.DecodeError, RecursionError, ValueError):
        example = '["one", "two"]' if of is str else "[1, 0.5]"
        raise BadRecord(f"{quoted(cell)} as a list", f"a list such as {example}") from None


def split_id(cell: str) -> str | None:
    """Return the document id of one cell: None for an empty cell, the string of a cell that is a
    JSON string.
    """
    if not cell.startswith('"'):
        return cell or None
    try:
        return msgspec.json.decode(cell, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return cell


def join_id(document: str) -> str:
    """Return the cell that :func:`split_id` reads back exactly: a JSON string for an empty id or
    one with a quote.
    """
    if document and not document.startswith('"'):
        return document
    return msgspec.json.encode(document).decode()


def join_cell(strings: Sequence[str]) -> str:
    """Return the cell that :func:`split_cell` reads back exactly."""
    if all(
        string and ";" not in string and string[0] != "[" and string == string.strip()
        for string in strings
    ):
        return ";".join(strings)
    return msgspec.json.encode(strings).decode()


class _Lines(Iterator[str]):
    """Feeds csv.reader line by line and knows where the record being read began and what is wrong
    with it.
    """

    def __init__(self, path: Path | str, problems: Problems) -> None:
        self._numbered = (
            (number, line)
            for block in blocks(path, problems)
            for number, line in enumerate(io.BytesIO(block.data), block.first_line)
        )
        self._last = 0
        self.begin()

    def begin(self) -> None:
        """Note that the next line begins a record."""
        self.start = 0
        self._size = 0
        self.gap = False  # a line inside the record was overlong, and is reported already
        self.undecodable: UnicodeDecodeError | None = None

    def __next__(self) -> str:
        number, line = next(self._numbered)
        self.gap = self.gap or (self.start > 0 and number != self._last + 1)
        self.start = self.start or number
        self._last = number
        self._size += len(line)
        if self._size > MAX_LINE:
            raise BadRecord(f"a record of more than {MAX_LINE >> 20} MiB", "quotes that are closed")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self.undecodable = error
            return line.decode(errors="replace")


def table_rows(
    path: Path | str, problems: Problems, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line a record begins on, its cells); blank lines are passed over, malformed records
    are reported.
    """
    source = _Lines(path, problems)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # of the process; 128 KiB at first
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        source.begin()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                problems.fatal("a quote that is never closed", 'a closing "', source.start)
            problems.add(source.start, *_malformed(error))
        except BadRecord as bad:
            problems.add(source.start, *bad.args)
        else:
            if source.undecodable:
                problems.add(source.start, *not_utf8(source.undecodable))
            elif row and not source.gap:
                yield source.start, row


def _malformed(error: csv.Error) -> tuple[str, str]:
    if "expected after" in str(error):
        return (
            "text after the closing quote of a cell",
            'a quote inside a quoted cell written twice, ""',
        )
    if "new-line" in str(error):
        return "a carriage return outside quotes", "lines that end in LF or CRLF"
    return str(error), "a row of cells"


def table_line(cells: Iterable[str], delimiter: str) -> bytes:
    """Return one line of a text table; a cell is quoted where it holds a quote, a newline or the
    delimiter.
    """
    is_special = re.compile(f'["\r\n{delimiter}]').search

    def quoted_if_special(cell: str) -> str:
        if not is_special(cell):
            return cell
        doubled = cell.replace('"', '""')
        return f'"{doubled}"'

    line = delimiter.join(map(quoted_if_special, cells))
    return f"{line}\n".encode()


def _write_text_table(dataset: Dataset, path: Path | str, delimiter: str) -> None:
    columns = columns_to_write(dataset, path)
    with open_output(path) as out:
        out.write(table_line(columns, delimiter))
        for row, text in enumerate(dataset.document_texts()):
            cells = {"text": text, "labels": join_cell(dataset.labels_of(row))}
            cells["relevance"] = ";".join(map(repr, dataset.relevance_of(row) or []))
            cells["id"] = join_id(dataset.document_id(row))
            out.write(table_line((cells[name] for name in columns), delimiter))


def columns_to_write(dataset: Dataset, path: Path | str) -> list[str]:
    """Return the columns that hold something, in the order they are written; warn of what has no
    column.
    """
    warn_left_out(dataset, path, "document ids", "texts", "relevances other than 1", *IN_LABEL_FILE)
    graded = bool((dataset.label_matrix.data != 1).any())
    there = {"id": dataset.ids is not None, "text": True, "labels": True, "relevance": graded}
    return [name for name, is_there in there.items() if is_there]
