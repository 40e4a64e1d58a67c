"""The published tables: one TOML file each in ``tables/``, as plain structs.

A file has the numbers as they are printed. What a number is of stands at its row and at its column:
dataset, system, models of the ensemble, features, setting and metric. ``-`` is printed where a
system was not run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

__all__ = ["Cell", "Paper", "Row", "Table", "read_papers", "read_tables"]

_FOLDER = files("longtail.reproduction")
_NOT_RUN = "-"

Value = float | int | str | None
Unit = Literal["percent", "hours", "milliseconds", "counts", "settings"]


class Keys(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a number is of, as far as its row or its column says."""

    dataset: str = ""
    system: str = ""
    models: int = 0  # of the ensemble; 1 is a single model
    features: str = ""  # what the system reads: tfidf, dnn or dnn+tfidf
    setting: str = ""  # of an ablation
    metric: str = ""


class Cell(Keys, frozen=True, kw_only=True):
    """One printed number, or None where there is none, with all that it is of."""

    value: Value


class Row(Keys, frozen=True, kw_only=True):
    """One printed row."""

    values: tuple[Value, ...]


class Table(msgspec.Struct, frozen=True):
    """One published table."""

    id: str  # such as cascadexml-2
    paper: str
    number: int
    title: str
    unit: Unit
    columns: tuple[Keys, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # misprints, and what is meant where the paper leaves it open

    def cells(self) -> Iterator[Cell]:
        """Yield every number with what its row and its column say of it."""
        for row in self.rows:
            for column, value in zip(self.columns, row.values, strict=True):
                yield Cell(**_keys(column), **_keys(row), value=value)


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says of its table beside columns and rows."""

    paper: str
    number: int
    title: str
    unit: Unit
    notes: tuple[str, ...] = ()


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A paper whose tables are here."""

    title: str
    authors: str
    published: str
    tables: str  # which of them are here
    left_out: str


@cache
def read_papers() -> Mapping[str, Paper]:
    """Return the papers by the names that tables call them."""
    content = tomllib.loads((_FOLDER / "papers.toml").read_text("utf-8"))
    return msgspec.convert(content, dict[str, Paper])


@cache
def read_tables() -> Mapping[str, Table]:
    """Return all tables by id: papers in the order of the alphabet, tables by number."""
    entries = [entry for entry in (_FOLDER / "tables").iterdir() if entry.name.endswith(".toml")]
    tables = [
        parse_table(entry.name.removesuffix(".toml"), entry.read_text("utf-8")) for entry in entries
    ]
    tables.sort(key=lambda table: (table.paper, table.number))
    return {table.id: table for table in tables}


def parse_table(name: str, text: str) -> Table:
    """Return the table of a file's text; ValueError where it does not fit together."""
    content = tomllib.loads(text)
    columns = _columns(content.pop("columns"))
    rows = tuple(_row(row) for row in content.pop("rows"))
    about = msgspec.convert(content, _About)
    table = Table(
        name, about.paper, about.number, about.title, about.unit, columns, rows, about.notes
    )
    if name != f"{table.paper}-{table.number}":
        raise ValueError(
            f"{name}: found table {table.number} of {table.paper}; expected the file's name to say so"
        )
    for row in rows:
        if len(row.values) != len(columns):
            found = f"{len(row.values)} values in the row of {row.system or row.dataset}"
            raise ValueError(f"{name}: found {found}; expected {len(columns)}, one per column")
        for column in columns:
            twice = _keys(row).keys() & _keys(column).keys()
            if twice:
                raise ValueError(
                    f"{name}: found {', '.join(sorted(twice))} at a row and at its column; expected one"
                )
    return table


def _columns(lists: dict[str, list[Any]]) -> tuple[Keys, ...]:
    """Return the columns of a file, which lists one key of all of them at a time."""
    names = list(lists)
    return tuple(
        msgspec.convert(dict(zip(names, values, strict=True)), Keys)
        for values in zip(*lists.values(), strict=True)
    )


def _row(content: dict[str, Any]) -> Row:
    values = tuple(None if value == _NOT_RUN else value for value in content["values"])
    return msgspec.convert({**content, "values": values}, Row)


def _keys(of: Keys) -> dict[str, Any]:
    """Return what a row or a column says, by name."""
    said = {name: getattr(of, name) for name in Keys.__struct_fields__}
    return {name: value for name, value in said.items() if value}
