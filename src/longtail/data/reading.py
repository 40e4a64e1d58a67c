"""``read`` and ``write``: documents with labels from and to any format of the catalogue."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from longtail.data.builder import Reading, Split, Unknown
from longtail.data.dataset import Dataset
from longtail.data.formats import (
    FORMATS,
    Format,
    format_by_name,
    formats_in,
    named_format,
    recognise,
    sniff,
)
from longtail.data.labels import Labels
from longtail.data.origin import log_origin
from longtail.data.source import Source
from longtail.errors import UsageError, unknown_name
from longtail.reporting import stage

__all__ = ["ReadKeywords", "ReadOptions", "read", "read_features", "write"]

log = logging.getLogger("longtail")


@dataclass(frozen=True)
class ReadOptions:
    """The options of :func:`read`, which documents them."""

    format: str | None = None
    split: Split = "train"
    labels: Labels | Path | str | None = None
    unknown: Unknown | None = None
    features: Path | str | Literal[False] | None = None
    fields: str | Sequence[str] | None = None
    labelled: bool = True
    skip_bad: int | None = 0
    label_separator: str = ";"
    separator: str | None = None
    text_column: str | None = None
    labels_column: str | None = None


class ReadKeywords(TypedDict, total=False):
    """The fields of :class:`ReadOptions` as keyword arguments."""

    format: str | None
    split: Split
    labels: Labels | Path | str | None
    unknown: Unknown | None
    features: Path | str | Literal[False] | None
    fields: str | Sequence[str] | None
    labelled: bool
    skip_bad: int | None
    label_separator: str
    separator: str | None
    text_column: str | None
    labels_column: str | None


def read(path: Path | str, **options: Unpack[ReadKeywords]) -> Dataset:
    """Read documents with labels from a file, a folder that holds ``split``, or ``-``, standard
    input.

    Args:
        path: A file, a folder or ``-``.
        **options: Fields of ``ReadOptions``, below.

    Keyword Args:
        format: Name of the format; recognised by names and content otherwise.
        split: Part of a folder that holds both, ``train`` or ``test``.
        labels: A vocabulary or a label file, which fixes the columns.
        unknown: What becomes of a label outside it: ``error``, ``drop`` or ``add``.
        features: File of features in place of text (.npz, BoW, svmlight), or of vectors beside it
            (.npy). None takes those that lie beside the texts in a folder of AttentionXML or PECOS,
            False takes none.
        fields: ``title``, ``content`` or both, of documents and labels of a label-feature set.
        labelled: Whether every record must have labels.
        skip_bad: Bad records that may be left out, also of the label file; None for data that is
            read whole or not.
        label_separator: Between the labels of one cell of a table.
        separator: Between the cells of a CSV or TSV file, where it is not the usual one.
        text_column: Name of the column of texts of a table, in place of ``text``.
        labels_column: Name of the column of labels of a table, in place of ``labels``.
    """
    asked = ReadOptions(**options)
    form = named_format(asked.format) if asked.format else sniff(path)
    is_folder = str(path) != "-" and Path(path).is_dir()
    others = []
    if is_folder and not asked.format:
        others = [name for name in formats_in(Path(path)) if name != form.name]
    if form.name == "jsonl" and is_folder:
        path, asked = _jsonl_folder(Path(path), asked)
    if asked.features is False and form.name in ("bow", "xmc-split"):
        problem = f"{form.name} holds features and no texts"
        raise UsageError(f"{path}: {problem}; expected to read them, or another format")
    reading = _reading(asked, form, path)
    _check_table_options(reading, form, path)
    with stage(f"reading {Path(path).name}", _size(path), "B"):
        dataset: Dataset = form.function("read")(path, reading)
    dataset = _with_source(dataset, path, asked)
    if reading.notes or (is_folder and form.name != "jsonl"):
        log_origin(path, form.name, dataset, reading.notes, others)
    if not asked.features:
        return dataset
    features = _read_features(asked.features, len(dataset))
    return dataset.with_features(features.matrix, asked.features, features.is_headerless)


def _reading(asked: ReadOptions, form: Format, path: Path | str) -> Reading:
    """Return what a reader is asked for; its label file is read."""
    labels_file = str(asked.labels) if isinstance(asked.labels, Path | str) else ""
    return Reading(
        split=asked.split,
        labels=_vocabulary(asked),
        unknown=asked.unknown or "error",
        labelled=asked.labelled,
        needs_text=not asked.features,
        skip_bad=asked.skip_bad,
        label_separator=asked.label_separator,
        separator=asked.separator,
        text_column=asked.text_column,
        labels_column=asked.labels_column,
        labels_file=labels_file,
        fields=_fields(asked.fields, form, path),
        folder_features=asked.features is None or Path(asked.features or "").suffix == ".npy",
    )


def _check_table_options(reading: Reading, form: Format, path: Path | str) -> None:
    """Warn of options of tables for another format; refuse what is no separator."""
    separator = reading.separator
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise UsageError(f"separator {separator!r}; expected one character, such as ';'")
    options = {
        "label_separator": reading.label_separator != ";",
        "separator": separator is not None,
        "text_column": reading.text_column is not None,
        "labels_column": reading.labels_column is not None,
    }
    used = [name for name, is_used in options.items() if is_used]
    if used and form.name not in ("csv", "tsv", "parquet"):
        log.warning("%s: is read as %s; without effect there: %s", path, form.name, ", ".join(used))


def _with_source(dataset: Dataset, path: Path | str, asked: ReadOptions) -> Dataset:
    """Return the documents with the file or folder that they are from.

    A reader whose files number the labels has set which labels those are.
    """
    if str(path) == "-":
        return dataset
    numbered = None
    is_whole = not asked.skip_bad
    if dataset.source is not None:
        numbered = dataset.source.labels
        is_whole = is_whole and dataset.source.whole
    return replace(dataset, source=Source.of(path, asked.split, numbered, is_whole))


def write(
    dataset: Dataset, path: Path | str, *, format: str | None = None, split: str = "train"
) -> None:
    """Write a dataset; the format is recognised by the name of ``path`` unless it is given."""
    form = named_format(format) if format else format_by_name(Path(path), written=True)
    # the name of a member is not that of the folder
    if form is None or (form.folder and not format):
        names = ", ".join(FORMATS)
        raise UsageError(f"{path}: the name does not tell the format; give one with --to: {names}")
    if form.folder and str(path) == "-":
        expected = "expected the name of a folder, found standard output"
        raise UsageError(f"{form.name} is a folder of files; {expected}")
    write_format = form.function("write")
    if form.folder:
        write_format(dataset, path, split=split)
    else:
        write_format(dataset, path)


class _Features(NamedTuple):
    """Ready-made features; a file without a header may lack the last columns."""

    matrix: Any
    is_headerless: bool = False


def read_features(path: Path | str) -> Any:
    """Return ready-made features: a csr_array (n, d) from ``.npz``, BoW or svmlight, an array (n,
    e) from ``.npy``.
    """
    return _read_features(path, None).matrix


def _read_features(path: Path | str, n_documents: int | None) -> _Features:
    if Path(path).suffix in (".npz", ".npy"):
        from longtail.data.npz import read_csr_npz, read_dense_npy

        if Path(path).suffix == ".npz":
            return _Features(read_csr_npz(path))
        return _Features(read_dense_npy(path))
    expected = "expected features as .npz, .npy, BoW or svmlight"
    if Path(path).is_file() and not recognise(Path(path)):
        raise UsageError(f"{path}: unknown format; {expected}")
    # a row left out would move those after it
    reading = Reading(labelled=False, skip_bad=None, n_documents=n_documents)
    dataset: Dataset = sniff(path).function("read")(path, reading)
    if dataset.features is None:
        raise UsageError(f"{path}: holds texts; {expected}")
    for note in reading.notes:
        log.info(note)
    return _Features(dataset.features, dataset.headerless_file is not None)


def _fields(
    fields: str | Sequence[str] | None, form: Format, path: Path | str
) -> tuple[str, ...] | None:
    """Return the fields asked for in the order of a record; refuse them for other formats."""
    if fields is None:
        return None
    if form.name != "lf":
        problem = f"{path} is read as {form.name}"
        raise UsageError(
            f"fields are chosen of label-feature sets (lf): title, content or both; {problem}"
        )
    names = fields.split(",") if isinstance(fields, str) else fields
    if not isinstance(names, list | tuple):
        raise UsageError(f"fields: found {fields!r}; expected title, content or title,content")
    from longtail.data.lf import FIELDS

    asked = [name.strip() if isinstance(name, str) else name for name in names]
    for name in asked:
        if name not in FIELDS:
            raise UsageError(unknown_name("field", name, FIELDS))
    if not asked:
        raise UsageError("no field; expected title, content or title,content")
    return tuple(name for name in FIELDS if name in asked)


def _jsonl_folder(folder: Path, asked: ReadOptions) -> tuple[Path, ReadOptions]:
    """Return the document file of a folder of JSON lines; labels that lie beside it are read."""
    file = _jsonl_file(folder, asked.split)
    if file is None:
        stem = f"{asked.split}.jsonl"
        raise UsageError(f"{folder}: no {stem}, {stem}.gz or {stem}.zst in this folder")
    if asked.labels is None:
        beside = _jsonl_file(folder, "labels")
        if beside is not None:
            asked = replace(asked, labels=beside, unknown=asked.unknown or "add")
    return file, asked


def _jsonl_file(folder: Path, stem: str) -> Path | None:
    for ending in ("", ".gz", ".zst"):
        file = folder / f"{stem}.jsonl{ending}"
        if file.exists():
            return file
    return None


def _vocabulary(asked: ReadOptions) -> Labels | None:
    if asked.labels is None or isinstance(asked.labels, Labels):
        return asked.labels
    from longtail.data.label_files import read_labels

    return read_labels(asked.labels, skip_bad=asked.skip_bad)


def _size(path: Path | str) -> int | None:
    if Path(path).is_file():
        return Path(path).stat().st_size
    return None
