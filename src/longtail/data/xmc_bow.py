"""Bag-of-words files of the XMC repository, one file or split by X and Y, and filter files."""

from __future__ import annotations

import logging
import re
from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.builder import Reading, in_vocabulary
from longtail.data.csr import csr_of_nothing
from longtail.data.dataset import Dataset, label_matrix_of
from longtail.data.headers import has_header, is_headerless
from longtail.data.labels import Labels
from longtail.data.left_out import warn_left_out
from longtail.data.lines import Block, beginning, blocks
from longtail.data.origin import features_note
from longtail.data.output import open_output
from longtail.data.problems import MAX_SHOWN, Problems, quoted
from longtail.data.source import Source
from longtail.data.sparse_lines import Headerless, SparseLines, read_sparse_lines, sparse_lines
from longtail.data.split_files import (
    TRN_TST,
    SplitFiles,
    label_strings,
    read_names,
    read_strings,
    write_strings,
)
from longtail.data.strings import Strings
from longtail.errors import UsageError

__all__ = [
    "bow_files",
    "number_labels",
    "read_bow",
    "read_filter",
    "read_xmc_split",
    "unknown_rows",
    "without_bad",
    "write_bow",
    "write_xmc_split",
]

log = logging.getLogger("longtail")
_FREE_LABELS = 10_000_000  # labels that a header may claim whatever the file's size
_BYTES_A_LABEL = 0.01  # of the file, for each label above that; real files have some 100


def read_bow(path: Path | str, reading: Reading) -> Dataset:
    """Read ``N D L`` and N lines ``l,l f:v f:v``, or svmlight lines without a header.

    A label's id is its number, or its line in NAME.labels.txt. Of a folder the split's file is
    read, such as ``train.txt`` or ``eurlex_train.txt``; names of labels lie in ``Yf.txt`` or
    ``Y.txt`` beside it."""
    folder = None
    if str(path) != "-" and Path(path).is_dir():
        folder = Path(path)
        path = _bow_file(folder, reading.split)
        reading.notes.append(f"file {Path(path).name}")
    problems = Problems(path, reading.skip_bad)
    headerless = Headerless(reading.n_documents, reading.labelled)
    lines = read_sparse_lines(path, problems, ("documents", "features", "labels"), headerless)
    beside = _ids_beside(path)
    if beside and not beside.exists():
        beside = None
    labels = _labels(beside, lines, problems)
    if folder is not None:
        labels = _named(labels, folder, reading)
    matrix, merged = label_matrix_of(*lines.listed, len(labels))
    headerless_file = None if lines.has_header else str(path)
    dataset = Dataset(
        matrix,
        labels,
        features=lines.pairs,
        merged_duplicates=merged,
        source=Source(Path(path), labels=labels),
        headerless_file=headerless_file,
    )
    if headerless_file:
        reading.notes.append(features_note(Path(path).name, lines.pairs, headerless=True))
    first_line = 2 if lines.has_header else 1
    bad = [*lines.bad, *unknown_rows(dataset, reading, problems, path, first_line)]
    return in_vocabulary(without_bad(dataset, bad, problems), reading)


def bow_files(folder: Path, split: str) -> list[Path]:
    """Return the files of a folder that are called ``train.txt`` or ``NAME_train.txt`` (or test)
    and hold features.
    """
    pattern = re.compile(rf"(?:.+_)?{split}\.txt(?:\.gz|\.zst)?")
    named = sorted(
        file for file in folder.iterdir() if pattern.fullmatch(file.name) and file.is_file()
    )
    starts = ((file, beginning(file)) for file in named)
    return [file for file, start in starts if has_header(start) or is_headerless(start)]


def _bow_file(folder: Path, split: str) -> Path:
    """Return the one file of a folder that holds the features and labels of a split."""
    files = bow_files(folder, split)
    if len(files) == 1:
        return files[0]
    if files:
        raise UsageError(
            f"{folder}: found {' and '.join(file.name for file in files)}; give one of the files"
        )
    raise UsageError(f"{folder}: no file {split}.txt or NAME_{split}.txt of features and labels")


def _named(labels: Labels, folder: Path, reading: Reading) -> Labels:
    """Return the labels with the names that lie in the folder, if these are as many."""
    file = next((folder / name for name in (_NAMES, _OLD_NAMES) if (folder / name).exists()), None)
    if file is None:
        return labels
    names = read_names(file)
    if len(names) != len(labels):
        reading.notes.append(
            f"{file.name} not used: {len(names):,} lines for {len(labels):,} labels"
        )
        return labels
    reading.notes.append(f"label names of {file.name}")
    return replace(labels, names=names)


def unknown_rows(
    dataset: Dataset, reading: Reading, problems: Problems, file: object, first_line: int | None
) -> list[int]:
    """Report and return the rows with a label outside a closed vocabulary; row 0 is on
    ``first_line``, if on any.
    """
    if reading.labels is None or reading.unknown != "error":
        return []
    known = np.fromiter(
        (label in reading.labels for label in dataset.labels.ids), bool, dataset.n_labels
    )
    matrix = dataset.label_matrix
    outside = np.flatnonzero(~known[matrix.indices])
    rows, first = np.unique(np.searchsorted(matrix.indptr, outside, "right") - 1, return_index=True)
    bad: list[int] = rows.tolist()
    for row, column in zip(bad, matrix.indices[outside[first]].tolist(), strict=True):
        problem = f"unknown label {quoted(dataset.labels.ids[column])}"
        line = 0
        if first_line:
            line = row + first_line
        else:
            problem += f" in row {row}"
        problems.add(line, problem, "a label of the given vocabulary", file)
    return bad


def without_bad(dataset: Dataset, bad: list[int], problems: Problems) -> Dataset:
    """Return the dataset without its bad rows, or raise for more of them than may be skipped."""
    problems.close()
    rows = np.delete(np.arange(len(dataset)), bad)
    if not len(rows):
        problems.fatal("no document", "at least one")
    if not bad:
        return dataset
    return dataset.take(rows)


def _ids_beside(path: Path | str) -> Path | None:
    """Return where the ids of labels lie that are not just numbers: train.txt.gz has
    train.labels.txt.
    """
    name = re.sub(r"(\.txt)?(\.gz|\.zst)?$", "", Path(path).name)
    if str(path) == "-":
        return None
    return Path(path).with_name(f"{name}.labels.txt")


def _labels(beside: Path | None, lines: SparseLines, problems: Problems) -> Labels:
    """Return the labels by the ids of the file ``beside``, else by number."""
    count = lines.header[-1]
    if beside is None:
        return number_labels(count, lines.nbytes, problems)
    ids = read_strings(beside, count if lines.has_header else None)
    if len(ids) < count:
        problems.fatal(f"{len(ids)} lines", f"at least {count}, one a label", file=beside)
    empty = np.flatnonzero(ids.lengths == 0)
    if len(empty):
        problems.fatal("an empty label id", "one id a line", int(empty[0]) + 1, beside)
    labels = Labels(ids)
    if len(labels.columns) != len(ids):
        problems.fatal("a label id that stands twice", "each id once", file=beside)
    return labels


def number_labels(count: int, nbytes: int, problems: Problems) -> Labels:
    """Return labels called "0" to "count − 1"; refuse more than a file of ``nbytes`` can have."""
    if count > max(_FREE_LABELS, nbytes / _BYTES_A_LABEL):
        problems.fatal(
            f"{count} labels claimed by a file of {nbytes} bytes",
            "a label matrix as wide as its labels",
        )
    return Labels(_number_strings(count))


def _number_strings(count: int) -> Strings:
    """Return "0" to "count − 1", made digit by digit: a million Python strings would take longer
    than the file.
    """
    arenas = []
    lengths = []
    first = 0
    digits = 1
    while first < count:
        numbers = np.arange(first, min(10**digits, count))
        table = np.empty((len(numbers), digits), np.uint8)
        for position in range(digits):
            table[:, position] = numbers // 10 ** (digits - 1 - position) % 10 + ord("0")
        arenas.append(table.ravel())
        lengths.append(np.full(len(numbers), digits, np.int64))
        first = 10**digits
        digits = digits + 1
    offsets = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    return Strings(np.concatenate([np.empty(0, np.uint8), *arenas]), offsets)


def write_bow(dataset: Dataset, path: Path | str) -> None:
    """Write features and labels as ``N D L`` lines; label ids that are not their columns' numbers
    go beside.

    NAME.labels.txt holds them, one a line. Document ids, texts, names and relevances are left out.
    """
    features = _features(dataset)
    warn_left_out(dataset, path, "rows of features")
    beside = _ids_beside(path)
    ids = _ids_to_write(dataset.labels, beside, path)
    if beside and ids:
        write_strings(ids, beside)
    ends = dataset.label_matrix.indptr.tolist()
    columns = dataset.label_matrix.indices.tolist()
    with open_output(path) as out:
        out.write(b"%d %d %d\n" % (len(dataset), features.shape[1], dataset.n_labels))
        for row, line in enumerate(sparse_lines(features)):
            out.write(
                ",".join(map(str, columns[ends[row] : ends[row + 1]])).encode()
                + b" "
                + line
                + b"\n"
            )


def _features(dataset: Dataset) -> sparse.csr_array:
    if dataset.features is None:
        expected = "expected features, or a format that holds text"
        raise UsageError(f"these documents have text but no features; {expected}")
    if dataset.headerless_file is not None:
        file = dataset.headerless_file
        n_columns = dataset.features.shape[1]
        log.warning(
            "%s: has no header; written as %d columns, the largest that it holds", file, n_columns
        )
    return dataset.features


def _ids_to_write(labels: Labels, beside: Path | None, path: Path | str) -> list[str]:
    """Return the ids unless they are numbers; a file of ids that is already there would be read, so
    also then.
    """
    numbered = labels.ids == _number_strings(len(labels))
    if not numbered:
        where = "their ids are left out"
        if beside:
            where = f"their ids are in {beside}"
        log.warning("%s: labels are written as column numbers, %s", path, where)
    needed = beside is not None and (not numbered or beside.exists())
    if needed:
        return label_strings(labels, beside or path)
    return []


_X = "{}_X_Xf.txt"
_Y = "{}_X_Y.txt"
_LABEL_X = "lbl_X_Xf.txt"
_NAMES = "Yf.txt"
_OLD_NAMES = "Y.txt"
_IDS = "labels.txt"


def read_xmc_split(path: Path | str, reading: Reading) -> Dataset:
    """Read ``trn_X_Xf.txt``, ``trn_X_Y.txt`` and, where they are, label features, names and ids, or
    those of test.

    ``path`` is the folder or one of the files. ``Yf.txt`` holds label names, ``labels.txt`` ids,
    one a line."""
    files = SplitFiles(path, reading.split, TRN_TST, [_X, _Y])
    file = files.need(_X)
    problems = Problems(file, reading.skip_bad)
    x = read_sparse_lines(file, problems, ("documents", "features"))
    y = _read_y(files, x, reading, problems)
    labels = _split_labels(files, y, x.nbytes + y.nbytes, problems)
    label_features = _read_label_features(files, x, y, problems)
    source = Source(files.folder, labels=labels)
    dataset = Dataset(
        y.pairs, labels, features=x.pairs, label_features=label_features, source=source
    )
    bad = [*x.bad, *y.bad, *unknown_rows(dataset, reading, problems, files.find(_Y), 2)]
    return in_vocabulary(without_bad(dataset, bad, problems), reading)


def _split_labels(files: SplitFiles, y: SparseLines, nbytes: int, problems: Problems) -> Labels:
    if files.find(_Y) is None:
        return Labels(Strings.of([]))
    labels = _labels(files.find(_IDS), y._replace(nbytes=nbytes), problems)
    names = files.find(_NAMES)
    if names:
        return replace(labels, names=read_names(names, len(labels)))
    return labels


def _read_y(files: SplitFiles, x: SparseLines, reading: Reading, problems: Problems) -> SparseLines:
    """Read the label matrix; documents that need no labels may come without one."""
    file = files.find(_Y, required=reading.labelled)
    if file is None:
        return SparseLines((x.header[0], 0), csr_of_nothing(x.header[0], 0), x.listed, [], 0)
    y = read_sparse_lines(file, problems, ("documents", "labels"))
    if y.header[0] != x.header[0]:
        problem = f"{y.header[0]} documents, but {x.header[0]} in {files.need(_X).name}"
        problems.fatal(problem, "as many in both", 1, file)
    return y


def _read_label_features(
    files: SplitFiles, x: SparseLines, y: SparseLines, problems: Problems
) -> sparse.csr_array | None:
    """Read ``lbl_X_Xf.txt`` where it is; a bad line that may be skipped leaves its label without
    features.
    """
    file = files.find(_LABEL_X)
    if file is None or files.find(_Y) is None:
        return None
    features = read_sparse_lines(file, problems, ("labels", "features"))
    if features.header != (y.header[1], x.header[1]):
        problem = f"{features.header[0]} labels and {features.header[1]} features"
        problems.fatal(problem, f"{y.header[1]} and {x.header[1]}, as in the other files", 1, file)
    return features.pairs


def write_xmc_split(dataset: Dataset, folder: Path | str, split: str = "train") -> None:
    """Write ``trn_X_Xf.txt`` and ``trn_X_Y.txt`` or those of test, label features, ``Yf.txt`` with
    label names.

    Label ids that are not their columns' numbers go to ``labels.txt``; document ids and texts are
    left out."""
    files = SplitFiles.to_write(folder, split, TRN_TST)
    features = _features(dataset)
    held = ("rows of features", "rows of label features", "label names", "relevances other than 1")
    warn_left_out(dataset, files.at(_X), *held)
    ids = _ids_to_write(dataset.labels, files.at(_IDS), files.at(_Y))
    if files.at(_IDS).exists():
        files.refuse_other_labels(files.at(_IDS), read_strings(files.at(_IDS)), ids, _Y)
    if ids:
        write_strings(ids, files.at(_IDS))
    matrices = {_X: features, _Y: dataset.label_matrix, _LABEL_X: dataset.label_features}
    for name, matrix in matrices.items():
        if matrix is not None:
            with open_output(files.at(name)) as out:
                out.write(b"%d %d\n" % matrix.shape)
                out.writelines(line + b"\n" for line in sparse_lines(matrix))
    if dataset.labels.names:
        write_strings(dataset.labels.names, files.at(_NAMES))


_PLAIN_PAIRS = re.compile(rb"(?:[ \t]*\d{1,10}[ \t]+\d{1,10}[ \t]*\r?\n)*+")


def read_filter(path: Path | str, n_documents: int, n_labels: int) -> NDArray[np.int64]:
    """Read lines ``document label``, pairs of positions from 0 that evaluation passes over, of
    shape (m, 2).
    """
    problems = Problems(path)
    numbers = array("q")
    for block in blocks(path, problems):
        if _PLAIN_PAIRS.fullmatch(block.data):
            pairs = np.fromstring(block.data, np.int64, sep=" ").reshape(-1, 2)
            lines = np.arange(block.first_line, block.first_line + len(pairs))
        else:
            pairs, lines = _filter_slowly(block, problems)
        limits = np.array([n_documents, n_labels])
        for at in np.flatnonzero((pairs >= limits).any(axis=1))[: MAX_SHOWN + 1].tolist():
            axis = int(pairs[at, 0] < n_documents)
            noun = ("document", "label")[axis]
            problems.add(
                int(lines[at]), f"{noun} {pairs[at, axis]}", f"a number below {limits[axis]}"
            )
        numbers.frombytes(pairs.tobytes())
    problems.close()
    return np.frombuffer(numbers, np.int64).reshape(-1, 2)


def _filter_slowly(block: Block, problems: Problems) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (pairs, their lines) of a block that holds something unusual."""
    pairs = []
    numbers = []
    for number, line in enumerate(block.data.split(b"\n")[:-1], block.first_line):
        tokens = line.split()
        if len(tokens) == 2 and all(token.isdigit() and len(token) <= 18 for token in tokens):
            pairs.append([int(token) for token in tokens])
            numbers.append(number)
        elif tokens:
            problems.add(number, quoted(line), "a document number and a label number")
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(numbers, np.int64)
