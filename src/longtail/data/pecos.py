"""PECOS folders: ``X.trn.txt``, ``Y.trn.npz``, features in ``tfidf-attnxml/X.trn.npz``; the same
for ``tst``.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from longtail.data.builder import Reading, in_vocabulary
from longtail.data.csr import csr_of_nothing
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.left_out import warn_left_out
from longtail.data.lines import text_lines
from longtail.data.npz import read_csr_npz, write_csr_npz
from longtail.data.origin import features_note
from longtail.data.problems import Problems
from longtail.data.source import Source
from longtail.data.split_files import (
    TRN_TST,
    SplitFiles,
    label_strings,
    read_strings,
    write_strings,
)
from longtail.data.strings import Strings, StringsBuilder
from longtail.data.xmc_bow import number_labels, unknown_rows, without_bad

__all__ = ["read_pecos", "write_pecos"]

log = logging.getLogger("longtail")
_TEXTS = "X.{}.txt"
_FEATURES = "X.{}.npz"
_TARGETS = "Y.{}.npz"
_ITEMS = "output-items.txt"
_BELOW = "tfidf-attnxml/X.{}.npz"  # where the sets of xmc-base have their features


def read_pecos(path: Path | str, reading: Reading) -> Dataset:
    """Read texts, one a line, features, or both, and the label matrix; ``path`` is the folder or
    one of the files.

    Features are those of the folder itself, else those of ``tfidf-attnxml`` in it. A line of
    ``output-items.txt`` is a label's id. Where the file is missing or a line repeats, ids are
    column numbers, and lines that repeat are names."""
    files = SplitFiles(path, reading.split, TRN_TST, [_TEXTS, _FEATURES, _TARGETS])
    text_file = files.find(_TEXTS)
    feature_file = _feature_file(files, text_file, reading)
    problems = Problems(
        text_file or feature_file or files.need(_TEXTS, _FEATURES), reading.skip_bad
    )
    target_file = files.find(_TARGETS, required=reading.labelled)
    texts = None
    bad: list[int] = []
    if text_file:
        texts, bad = _read_texts(text_file, problems)
    features = None
    if feature_file:
        features = read_csr_npz(feature_file)
    n_rows = 0
    if texts is not None:
        n_rows = len(texts)
    elif features is not None:
        n_rows = features.shape[0]
    matrix = _read_targets(target_file) if target_file else csr_of_nothing(n_rows, 0)
    for file, part in ((feature_file, features), (target_file, matrix)):
        if part is not None and part.shape[0] != n_rows:
            problem = f"{part.shape[0]} rows, but {n_rows} documents in {Path(problems.file).name}"
            problems.fatal(problem, "as many in both", file=file)
    if feature_file and features is not None:
        reading.notes.append(features_note(str(feature_file.relative_to(files.folder)), features))
    labels = _read_labels(files, matrix.shape[1], target_file, problems)
    dataset = Dataset(
        matrix, labels, texts=texts, features=features, source=Source(files.folder, labels=labels)
    )
    first_line = 1 if text_file else None
    bad += unknown_rows(dataset, reading, problems, text_file or target_file, first_line)
    return in_vocabulary(without_bad(dataset, bad, problems), reading)


def _feature_file(files: SplitFiles, text_file: Path | None, reading: Reading) -> Path | None:
    """Return the features to read: none where texts are there and features are not wanted."""
    if not reading.folder_features and reading.needs_text:
        files.need(_TEXTS)
    if not reading.folder_features and text_file is not None:
        return None
    inside = files.find(_FEATURES)
    below = files.find(_BELOW)
    if inside and below:
        reading.notes.append(f"{below.relative_to(files.folder)} is there too and was not read")
    return inside or below


def _read_texts(path: Path, problems: Problems) -> tuple[Strings, list[int]]:
    """Return one text a line and the rows of bad lines, which are empty."""
    builder = StringsBuilder()
    bad = []
    for number, text in text_lines(path, problems):
        builder.append(text or "")
        if text is None:
            bad.append(number - 1)
    return builder.finish(), bad


def _read_targets(path: Path) -> sparse.csr_array:
    """Return the label matrix; zeros that are stored are no labels."""
    matrix = read_csr_npz(path)
    matrix.eliminate_zeros()
    if matrix.nnz and matrix.data.min() < 0:
        Problems(path).fatal(f"relevance {matrix.data.min()}", "finite numbers above 0")
    return matrix


def _read_labels(files: SplitFiles, count: int, targets: Path | None, problems: Problems) -> Labels:
    """Return the labels of the columns, which have an item each where the folder lists them."""
    items = files.find(_ITEMS)
    if targets is None:
        return Labels(Strings.of([]))
    if items is None:
        return number_labels(count, targets.stat().st_size, problems)
    lines = read_strings(items, count)
    repeated = count - len(set(lines))
    empty = int(np.count_nonzero(lines.lengths == 0))
    if not repeated and not empty:
        return Labels(lines)
    problem = f"{empty} empty items"
    if repeated:
        problem = f"{repeated} items stand there before"
    log.warning("%s: found %s; the labels are called by their column numbers", items, problem)
    return replace(number_labels(count, count * 100, problems), names=lines)


def write_pecos(dataset: Dataset, folder: Path | str, split: str = "train") -> None:
    """Write texts, features, or both, the label matrix, and the label ids as ``output-items.txt``.

    Newlines become spaces; document ids and what labels have beside their ids are left out.
    """
    files = SplitFiles.to_write(folder, split, TRN_TST)
    items = files.at(_ITEMS)
    ids = label_strings(dataset.labels, items)
    if items.exists():
        files.refuse_other_labels(items, read_strings(items), ids, _TARGETS)
    warn_left_out(dataset, files.folder, "texts", "rows of features", "relevances other than 1")
    write_strings(ids, items)
    if dataset.texts is not None:
        write_strings(dataset.texts, files.at(_TEXTS))
    if dataset.features is not None:
        write_csr_npz(dataset.features, files.at(_FEATURES))
    write_csr_npz(dataset.label_matrix, files.at(_TARGETS))
