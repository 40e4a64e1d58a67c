"""Published datasets and tables: the data files of this package as structs; and the documents of
an experiment, read in the published layout and compared with published sizes.

``datasets.toml`` has the datasets with their published sizes, ``papers.toml`` the papers, and each
file in ``tables/`` a table with the numbers as printed. Rows and columns of a table have the keys
of its numbers: dataset, system, models of the ensemble, features, setting and metric. ``-`` is
printed for a system that was not run.
"""

from __future__ import annotations

import logging
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.data.dataset import Dataset
from longtail.data.filter_files import AUTO, find_filter
from longtail.data.formats import sniff
from longtail.data.output import open_output
from longtail.data.reading import read
from longtail.data.xmc_bow import read_filter
from longtail.errors import UsageError, unknown_name
from longtail.metrics import propensity_constants

__all__ = [
    "Cell",
    "Documents",
    "Paper",
    "PublishedDataset",
    "Row",
    "Table",
    "published_dataset",
    "published_datasets",
    "read_documents",
    "read_papers",
    "read_tables",
]

log = logging.getLogger("longtail")

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


# Documents of an experiment

_FILTER = "filter_labels_test.txt"
_SHARE_SEED = 0  # the same share on every machine
_WIDTH_TOLERANCE = 0.01  # relative deviation of the number of feature columns


@dataclass(frozen=True)
class Documents:
    """Training and test documents; the labels of the test part begin with those of training."""

    train: Dataset
    test: Dataset
    filter: Path | None  # pairs of a test document and a label that are not counted
    differences: tuple[str, ...]  # from the published sizes, as sentences
    test_rows: NDArray[np.int64] | None = None  # rows of a share's test documents

    def share(self, share: float) -> Documents:
        """Return a share of the documents of both parts, in their order, with all labels."""
        if share == 1:
            return self
        test_rows = _rows(len(self.test), share)
        train = self.train.take(_rows(len(self.train), share))
        return replace(self, train=train, test=self.test.take(test_rows), test_rows=test_rows)

    def filter_file(self, folder: Path) -> Path | None:
        """Return the filter file for these test documents; a share's is written to ``folder``."""
        if self.filter is None or self.test_rows is None:
            return self.filter
        any_number = np.iinfo(np.int64).max  # sizes are checked when the file is used
        pairs = read_filter(self.filter, any_number, any_number)
        kept = pairs[np.isin(pairs[:, 0], self.test_rows)]
        numbers = np.searchsorted(self.test_rows, kept[:, 0])
        path = folder / _FILTER
        with open_output(path) as out:
            for number, label in zip(numbers.tolist(), kept[:, 1].tolist(), strict=True):
                out.write(f"{number} {label}\n".encode())
        return path


def read_documents(
    folder: Path, published: PublishedDataset, reads_features: bool = False
) -> Documents:
    """Read both parts of a dataset in its published layout, and compare their sizes.

    Args:
        folder: the dataset as its authors publish it.
        published: its published sizes and layout.
        reads_features: whether the recipe reads tf-idf, which should be the published features.
    """
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "no such folder"
        expected = f"expected the folder of {published.title} as its authors publish it"
        raise UsageError(f"{folder}: {problem}; {expected}")
    options = _reading(folder, published)
    train = read(folder, split="train", skip_bad=None, **options)
    test = read(folder, split="test", labels=train.labels, unknown="add", skip_bad=None, **options)
    differences = [*_differences(train, test, published)]
    if reads_features and published.layout != "lf":
        differences += _feature_differences(train, published)
    documents = Documents(train, test, find_filter(AUTO, test), tuple(differences))
    for difference in documents.differences:
        log.warning("%s: %s; another dataset or split?", folder, difference)
    return documents


def _reading(folder: Path, published: PublishedDataset) -> dict[str, Any]:
    """Return the options for reading this dataset: the fields of label-feature sets."""
    if not published.fields or sniff(folder).name != "lf":
        return {}
    return {"fields": published.fields}


def _rows(count: int, share: float) -> NDArray[np.int64]:
    """Return the rows of a share, at least one."""
    order = np.random.default_rng(_SHARE_SEED).permutation(count)
    return np.sort(order[: max(1, math.ceil(share * count))])


def _differences(train: Dataset, test: Dataset, published: PublishedDataset) -> Iterator[str]:
    """Yield sentences on sizes that differ; the labels may be those of one part or of both."""
    sizes = {
        "documents to train on": (len(train), published.train),
        "test documents": (len(test), published.test),
    }
    if train.n_labels != published.labels:
        sizes["labels"] = (test.n_labels, published.labels)
    for quantity, (number, expected) in sizes.items():
        if number != expected:
            yield f"found {number:,} {quantity}, and {published.title} has {expected:,}"


def _feature_differences(train: Dataset, published: PublishedDataset) -> Iterator[str]:
    """Yield a sentence if the features differ from the published ones."""
    if train.features is None:
        yield (
            f"found no tf-idf features beside the texts of {published.title}, "
            "so Longtail's are used"
        )
        return
    width = train.features.shape[1]
    # the last columns of an svmlight file may be empty in the training part
    if abs(width - published.features) > _WIDTH_TOLERANCE * published.features:
        yield (
            f"found {width:,} columns of features, and {published.title} has {published.features:,}"
        )
