"""AttentionXML's folders: ``train_raw_texts.txt``, ``train_labels.txt``, features in
``train_v1.txt``; and test.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Iterator
from itertools import islice, pairwise, zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.headers import has_header, is_headerless
from longtail.data.left_out import warn_left_out
from longtail.data.lines import beginning, text_lines
from longtail.data.origin import features_note
from longtail.data.output import open_output
from longtail.data.problems import Problems
from longtail.data.sparse_lines import (
    Headerless,
    SparseLines,
    read_sparse_lines,
    sparse_lines,
)
from longtail.data.split_files import SplitFiles, label_strings, one_line, write_strings

__all__ = ["read_attentionxml", "write_attentionxml"]

log = logging.getLogger("longtail")
_PARTS = {"train": "train", "test": "test"}
_RAW = "{}_raw_texts.txt"
_TOKENISED = "{}_texts.txt"
_TARGETS = "{}_labels.txt"
# train_v1.txt of Amazon-670K and Amazon-3M, train.txt of Wiki-500K, test.txt
_FEATURES = ("{}_v1.txt", "{}.txt")
_SEPARATOR = "/SEP/"
_BATCH = 4096  # documents added at a time


def read_attentionxml(path: Path | str, reading: Reading) -> Dataset:
    """Read one text a line, its labels, split at white space, from the same line of another file,
    and its features.

    ``/SEP/``, which AttentionXML puts between title and text, becomes a newline. Features are the
    svmlight lines of ``train_v1.txt`` or ``train.txt`` (``test_v1.txt`` or ``test.txt``), if there
    are any."""
    files = SplitFiles(path, reading.split, _PARTS, [_RAW, _TOKENISED, _TARGETS])
    texts = files.need(_RAW, _TOKENISED)
    targets = files.find(_TARGETS, required=reading.labelled)
    # what is wrong with a record is wrong with its labels
    builder = Builder(targets or texts, reading)
    records = _records(texts, targets, builder.problems)
    lines = array("q")  # of the documents that are kept, from 1
    n_lines = 0
    while batch := list(islice(records, _BATCH)):
        n_lines = batch[-1][0]
        _add(builder, [(number, record) for number, record in batch if record is not None], lines)
    builder.problems.file = str(texts)
    feature_file = None
    if reading.folder_features:
        feature_file = _feature_file(files)
    if feature_file is None:
        return builder.finish()
    features = _read_features(feature_file, texts, n_lines, builder.problems)
    dataset = builder.finish()
    reading.notes.append(features_note(feature_file.name, features.pairs, not features.has_header))
    whole = _with_features(dataset, features, np.frombuffer(lines, np.int64) - 1, feature_file)
    if not len(whole):
        builder.problems.fatal("no document", "at least one")
    return whole


def _add(builder: Builder, batch: list[tuple[int, Record]], lines: array[int]) -> None:
    """Add documents, and to ``lines`` the lines of those that can be taken."""
    if builder.extend([record for _, record in batch]):
        lines.extend(number for number, _ in batch)
        return
    for number, record in batch:
        builder.add(number, record)
        if len(builder) > len(lines):
            lines.append(number)


def _feature_file(files: SplitFiles) -> Path | None:
    """Return the file of features beside the texts, unless its content is something else."""
    file = files.find(_FEATURES[0]) or files.find(_FEATURES[1])
    if file is None:
        return None
    start = beginning(file)
    if not has_header(start) and not is_headerless(start):
        log.info("%s: not lines of features such as 0:0.5 7:1; not read", file)
        return None
    return file


def _read_features(file: Path, texts: Path, n_lines: int, problems: Problems) -> SparseLines:
    """Return the features of all lines of texts, also of those that are bad."""
    names = ("documents", "features", "labels")
    features = read_sparse_lines(file, problems, names, Headerless(n_lines, labelled=False))
    n_rows = features.pairs.shape[0]
    if n_rows != n_lines:
        wrong = f"{n_rows} rows of features, but {n_lines} lines in {texts.name}"
        problems.fatal(
            wrong, "as many in both; leave the features out with --no-features", file=file
        )
    return features


def _with_features(
    dataset: Dataset, features: SparseLines, rows: NDArray[np.int64], file: Path
) -> Dataset:
    """Return the documents with their ``rows`` of features, without those that are bad there."""
    matrix = features.pairs
    if len(rows) < matrix.shape[0]:
        matrix = matrix[rows]
    whole = dataset.with_features(matrix, file, headerless=not features.has_header)
    if not features.bad:
        return whole
    return whole.take(np.flatnonzero(~np.isin(rows, features.bad)))


def _records(
    texts: Path, targets: Path | None, problems: Problems
) -> Iterator[tuple[int, Record | None]]:
    """Yield (line, document), None for a line that is bad in one of the files, which must be of the
    same length.
    """
    target_lines = text_lines(targets, problems) if targets else ()
    for document, target in zip_longest(text_lines(texts, problems), target_lines):
        if document is None or (target is None and targets):
            number, more = target or document or (0, None)
            file, other = (targets, texts) if document is None else (texts, targets)
            if more and not more.isspace():  # blank lines at the end of one file do no harm
                problems.fatal(
                    f"a line more than in {other}", "as many lines in both", number, file
                )
        elif document[1] is not None and (target is None or target[1] is not None):
            text = document[1]
            if _SEPARATOR in text:
                text = re.sub(f" ?{_SEPARATOR} ?", "\n", text)
            labels = None
            if target and target[1] is not None:
                labels = tuple(target[1].split())
            yield document[0], Record(text, labels=labels)
        else:
            yield document[0], None


def write_attentionxml(dataset: Dataset, folder: Path | str, split: str = "train") -> None:
    """Write ``train_raw_texts.txt`` and ``train_labels.txt``, or those of test.

    A newline becomes `` /SEP/ ``, white space in a label ``_`` as AttentionXML has it. Features go
    to ``train_v1.txt`` or ``test.txt``, as svmlight lines without a header. All else is left out.
    """
    files = SplitFiles.to_write(folder, split, _PARTS)
    texts = dataset.document_texts()
    targets = files.at(_TARGETS)
    labels = label_strings(dataset.labels, targets, r"\s|^$", "_")
    warn_left_out(dataset, files.at(_RAW), "texts", "rows of features")
    write_strings((one_line(text, f" {_SEPARATOR} ") for text in texts), files.at(_RAW))
    ends = dataset.label_matrix.indptr.tolist()
    columns = dataset.label_matrix.indices.tolist()
    rows = (" ".join(map(labels.__getitem__, columns[start:end])) for start, end in pairwise(ends))
    write_strings(rows, targets)
    if dataset.features is not None:
        name = _FEATURES[0] if split == "train" else _FEATURES[1]
        with open_output(files.at(name)) as out:
            out.writelines(b" " + line + b"\n" for line in sparse_lines(dataset.features))
