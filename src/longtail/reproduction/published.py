"""Published datasets and tables: the data files of this package as structs.

``datasets.toml`` has the datasets with their published sizes, ``papers.toml`` the papers, and each
file in ``tables/`` a table with the numbers as printed. Rows and columns of a table have the keys
of its numbers: dataset, system, models of the ensemble, features, setting and metric. ``-`` is
printed for a system that was not run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from longtail.errors import UsageError, unknown_name
from longtail.metrics import propensity_constants

__all__ = [
    "Cell",
    "Paper",
    "PublishedDataset",
    "Row",
    "Table",
    "published_dataset",
    "published_datasets",
    "read_papers",
    "read_tables",
]

_FOLDER = files("longtail.reproduction")
_NOT_RUN = "-"

Value = float | int | str | None
Unit = Literal["percent", "hours", "milliseconds", "counts", "settings"]


class PublishedDataset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dataset of the papers: published sizes, layout, and family of propensities."""

    title: str
    train: int
    test: int
    labels: int
    labels_per_document: float
    documents_per_label: float
    features: int
    words: float
    layout: str  # format of the authors' download
    family: Literal["wikipedia", "amazon", "default"]
    source: str
    fields: tuple[str, ...] = ()  # fields of a record that are read, for label-feature sets

    @property
    def propensity(self) -> tuple[float, float]:
        """Constants A and B of the propensities."""
        return propensity_constants(self.family)


@cache
def published_datasets() -> Mapping[str, PublishedDataset]:
    """Return the datasets by name, in the order of their file."""
    content = tomllib.loads((_FOLDER / "datasets.toml").read_text("utf-8"))
    return msgspec.convert(content, dict[str, PublishedDataset])


def published_dataset(name: str) -> PublishedDataset:
    """Return a dataset; an error names the most similar one."""
    known = published_datasets()
    if name not in known:
        raise UsageError(unknown_name("dataset", name, known))
    return known[name]


# Tables


class Keys(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The keys of a number that its row or its column has."""

    dataset: str = ""
    system: str = ""
    models: int = 0  # of the ensemble; 1: a single model
    features: str = ""  # features that the system reads: tfidf, dnn or dnn+tfidf
    setting: str = ""  # of an ablation study
    metric: str = ""


class Cell(Keys, frozen=True, kw_only=True):
    """A printed number with all its keys; None: not printed."""

    value: Value


class Row(Keys, frozen=True, kw_only=True):
    """A printed row."""

    values: tuple[Value, ...]


class Table(msgspec.Struct, frozen=True):
    """A published table."""

    id: str  # such as cascadexml-2
    paper: str
    number: int
    title: str
    unit: Unit
    columns: tuple[Keys, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # misprints, and readings of ambiguous entries

    def cells(self) -> Iterator[Cell]:
        """Yield every number with the keys of its row and its column."""
        for row in self.rows:
            for column, value in zip(self.columns, row.values, strict=True):
                yield Cell(**_keys(column), **_keys(row), value=value)


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entries of a file besides columns and rows."""

    paper: str
    number: int
    title: str
    unit: Unit
    notes: tuple[str, ...] = ()


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A paper with tables in this package."""

    title: str
    authors: str
    published: str
    tables: str  # those that this package has
    left_out: str


@cache
def read_papers() -> Mapping[str, Paper]:
    """Return the papers by the names that tables use."""
    content = tomllib.loads((_FOLDER / "papers.toml").read_text("utf-8"))
    return msgspec.convert(content, dict[str, Paper])


@cache
def read_tables() -> Mapping[str, Table]:
    """Return all tables by id, sorted by paper and number."""
    entries = [entry for entry in (_FOLDER / "tables").iterdir() if entry.name.endswith(".toml")]
    tables = [
        parse_table(entry.name.removesuffix(".toml"), entry.read_text("utf-8")) for entry in entries
    ]
    tables.sort(key=lambda table: (table.paper, table.number))
    return {table.id: table for table in tables}


def parse_table(name: str, text: str) -> Table:
    """Return the table of a file's text; ValueError for an inconsistent one."""
    content = tomllib.loads(text)
    columns = _columns(content.pop("columns"))
    rows = tuple(_row(row) for row in content.pop("rows"))
    about = msgspec.convert(content, _About)
    table = Table(
        name, about.paper, about.number, about.title, about.unit, columns, rows, about.notes
    )
    if name != f"{table.paper}-{table.number}":
        raise ValueError(
            f"{name}: found table {table.number} of {table.paper}; "
            f"expected the file's name to be {table.paper}-{table.number}"
        )
    for row in rows:
        if len(row.values) != len(columns):
            size = f"{len(row.values)} values in the row of {row.system or row.dataset}"
            raise ValueError(f"{name}: found {size}; expected {len(columns)}, one per column")
        for column in columns:
            twice = _keys(row).keys() & _keys(column).keys()
            if twice:
                names = ", ".join(sorted(twice))
                raise ValueError(f"{name}: found {names} at a row and at its column; expected one")
    return table


def _columns(lists: dict[str, list[Any]]) -> tuple[Keys, ...]:
    """Return the columns of a file, which has one list per key."""
    names = list(lists)
    return tuple(
        msgspec.convert(dict(zip(names, values, strict=True)), Keys)
        for values in zip(*lists.values(), strict=True)
    )


def _row(content: dict[str, Any]) -> Row:
    values = [None if value == _NOT_RUN else value for value in content["values"]]
    return msgspec.convert({**content, "values": values}, Row)


def _keys(part: Keys) -> dict[str, Any]:
    """Return the keys of a row or a column that are not empty."""
    values = {name: getattr(part, name) for name in Keys.__struct_fields__}
    return {name: value for name, value in values.items() if value}
