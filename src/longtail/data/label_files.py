"""Label files: the vocabulary as JSON lines, TSV or CSV, one id a line, or SKOS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import repeat
from pathlib import Path

import msgspec

from longtail.data.annif import write_annif_vocabulary
from longtail.data.json_lines import json_blocks
from longtail.data.labels import Label, Labels
from longtail.data.lines import chunks, text_lines, uncompressed
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.data.skos import SKOS_SUFFIXES, read_skos, write_skos
from longtail.data.strings import Strings, StringsBuilder
from longtail.data.tables import BadRecord, join_cell, no_column, split_cell, table_line, table_rows
from longtail.errors import UsageError

__all__ = ["read_labels", "write_labels"]

_FIELDS = ("id", "name", "text", "aliases", "uri")
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".csv": "csv"}
_SUFFIXES |= dict.fromkeys(SKOS_SUFFIXES, "skos")
_LONGEST_HEADER = 1 << 20  # bytes
_decoder = msgspec.json.Decoder(Label)


def read_labels(path: Path | str, language: str = "en", skip_bad: int | None = 0) -> Labels:
    """Read a label file, told by its name or else its first line; ``-`` is JSON lines from standard
    input.

    A table with a header row has the columns id, name, text, aliases and uri; one without is
    ``id<TAB>name``, or Annif's ``<uri><TAB>name<TAB>notation``. ``language`` chooses the names of a
    SKOS file."""
    kind = _kind_by_name(path) or _kind_by_content(path)
    if kind == "skos":
        return read_skos(path, language)
    collected = _Collected(path, skip_bad)
    if kind == "jsonl":
        _read_jsonl(path, collected)
    elif kind == "csv":
        _read_table(path, collected, ",")
    elif kind == "tsv" and _has_header(path):
        _read_table(path, collected, "\t")
    elif kind == "ids":
        _read_lines(path, collected, _bare_id)
    else:
        _read_lines(path, collected, _annif_label)
    return collected.finish()


def write_labels(labels: Labels, path: Path | str) -> None:
    """Write ``.jsonl`` (also for ``-``), ``.tsv``, ``.csv``, or SKOS as ``.ttl``; the first three
    keep everything.

    ``.annif.tsv`` is the vocabulary that ``annif load-vocab`` reads.
    """
    kind = _kind_by_name(path)
    if str(uncompressed(path)).lower().endswith(".annif.tsv"):
        write_annif_vocabulary(labels, path)
    elif kind == "skos" and uncompressed(path).suffix.lower() == ".ttl":
        write_skos(labels, path)
    elif kind == "jsonl":
        _write_jsonl(labels, path)
    elif kind == "csv":
        _write_table(labels, path, ",")
    elif kind == "tsv":
        _write_table(labels, path, "\t")
    else:
        raise UsageError(
            f"{path}: labels cannot be written under this name; expected .jsonl, .tsv, .csv or .ttl"
        )


class _Collected:
    """The labels read so far, as columns; an id that is empty or stands twice is a problem."""

    def __init__(self, path: Path | str, skip_bad: int | None) -> None:
        self.problems = Problems(path, skip_bad)
        self._seen: set[str] = set()
        self._ids = StringsBuilder()
        self._names = StringsBuilder()
        self._texts = StringsBuilder()
        self._uris = StringsBuilder()
        self._aliases: list[tuple[str, ...]] = []
        self._waiting: list[Label] = []  # to be put into the columns many at a time

    def add(self, line: int, label: Label) -> None:
        """Add one label, or report it."""
        if not label.id:
            self.problems.add(line, "an empty id", "an id")
        elif not self.extend([label]):
            self.problems.add(line, f"the label {quoted(label.id)} again", "each id once")

    def extend(self, labels: Sequence[Label]) -> bool:
        """Add many labels; add none and return False if one of them has a problem."""
        ids = {label.id for label in labels}
        if len(ids) != len(labels) or "" in ids or not self._seen.isdisjoint(ids):
            return False
        self._seen |= ids
        self._waiting += labels
        if len(self._waiting) >= 4096:
            self._put()
        return True

    def _put(self) -> None:
        labels = self._waiting
        self._waiting = []
        self._ids.extend([label.id for label in labels])
        self._names.extend([label.name for label in labels])
        self._texts.extend([label.text for label in labels])
        self._uris.extend([label.uri for label in labels])
        self._aliases += [label.aliases for label in labels]

    def finish(self) -> Labels:
        """Return the vocabulary; columns in which nothing stands are None."""
        self.problems.close()
        if not self._seen:
            self.problems.fatal("no label", "at least one")
        self._put()

        def column(builder: StringsBuilder) -> Strings | None:
            strings = builder.finish()
            if not len(strings.arena):
                return None
            return strings

        aliases = None
        if any(self._aliases):
            aliases = tuple(self._aliases)
        return Labels(
            self._ids.finish(),
            column(self._names),
            column(self._texts),
            aliases,
            column(self._uris),
        )


def _kind_by_name(path: Path | str) -> str | None:
    if str(path) == "-":
        return "jsonl"
    return _SUFFIXES.get(uncompressed(path).suffix.lower())


def _kind_by_content(path: Path | str) -> str:
    first = _first_line(path)
    if first.startswith("{"):
        return "jsonl"
    if first.lower().startswith(("<?xml", "<rdf", "@prefix", "@base", "prefix ")):
        return "skos"
    if "\t" in first:
        return "tsv"
    return "ids"


def _first_line(path: Path | str) -> str:
    head = b""
    with closing(chunks(path, Problems(path))) as stream:
        for chunk in stream:  # until it is whole, or longer than any header
            head = (head + chunk).removeprefix(b"\xef\xbb\xbf").lstrip()
            if b"\n" in head or len(head) > _LONGEST_HEADER:
                break
    return head.partition(b"\n")[0].decode(errors="replace")


def _has_header(path: Path | str) -> bool:
    cells = {cell.strip(' "\r').lower() for cell in _first_line(path).split("\t")}
    return cells == {"id"} or ("id" in cells and len(cells.intersection(_FIELDS)) > 1)


def _read_jsonl(path: Path | str, collected: _Collected) -> None:
    for block in json_blocks(path, _decoder, collected.problems):
        if block.objects is None or not collected.extend(block.objects):
            for number, label in block:
                collected.add(number, label)


def _read_table(path: Path | str, collected: _Collected, delimiter: str) -> None:
    rows = table_rows(path, collected.problems, delimiter)
    line, header = next(rows, (0, []))
    names = [name.strip().lower() for name in header]
    if "id" not in names:
        collected.problems.fatal(no_column("id", header), "a header row with a column 'id'", line)
    for name in _FIELDS:
        if names.count(name) > 1:
            collected.problems.fatal(f"two columns '{name}'", "each column once", line)
    for line, row in rows:
        if len(row) != len(names):
            collected.problems.add(line, f"{len(row)} cells", f"{len(names)}, as in the header")
            continue
        cells = dict(zip(names, row, strict=True))
        id_, name, text, aliases, uri = (cells.get(field, "") for field in _FIELDS)
        try:
            collected.add(line, Label(id_, name, text, tuple(split_cell(aliases)), uri))
        except BadRecord as bad:
            collected.problems.add(line, *bad.args)


def _read_lines(
    path: Path | str, collected: _Collected, label_of: Callable[[str], Label | None]
) -> None:
    for number, line in text_lines(path, collected.problems):
        if not line or line.isspace():
            continue
        label = label_of(line)
        if label is None:
            collected.problems.add(
                number, f"{line.count(chr(9)) + 1} cells", "id<TAB>name, or a header row"
            )
        else:
            collected.add(number, label)


def _bare_id(line: str) -> Label:
    return Label(line.strip())


def _annif_label(line: str) -> Label | None:
    """Return the label of ``id<TAB>name<TAB>notation``; an id in angle brackets is a URI, a
    notation an alias.
    """
    label, name, notation, *more = [*map(str.strip, line.split("\t")), "", ""]
    if len(more) > 2:
        return None
    uri = ""
    if label.startswith("<") and label.endswith(">"):
        label = label[1:-1]
        uri = label
    aliases = (notation,) if notation else ()
    return Label(label, name, aliases=aliases, uri=uri)


def _rows(labels: Labels) -> Iterator[tuple[str, str, str, tuple[str, ...], str]]:
    """Yield the fields of each label, faster than label by label."""
    columns = (labels.names or repeat(""), labels.texts or repeat(""), labels.aliases or repeat(()))
    return zip(labels.ids, *columns, labels.uris or repeat(""), strict=False)


def _write_jsonl(labels: Labels, path: Path | str) -> None:
    encode = msgspec.json.Encoder().encode
    with open_output(path) as out:
        for row in _rows(labels):
            out.write(encode(Label(*row)) + b"\n")


def _write_table(labels: Labels, path: Path | str, delimiter: str) -> None:
    columns = (True, labels.names, labels.texts, labels.aliases, labels.uris)
    present = [position for position, column in enumerate(columns) if column]
    with open_output(path) as out:
        out.write(table_line([_FIELDS[position] for position in present], delimiter))
        for label, name, text, aliases, uri in _rows(labels):
            cells = (label, name, text, join_cell(aliases), uri)
            out.write(table_line([cells[position] for position in present], delimiter))
