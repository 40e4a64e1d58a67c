"""AttentionXML's folders: ``train_raw_texts.txt`` and ``train_labels.txt``, and the same for test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise, zip_longest
from pathlib import Path

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.lines import text_lines
from longtail.data.losses import warn_left_out
from longtail.data.problems import Problems
from longtail.data.split_files import SplitFiles, label_strings, one_line, write_strings

__all__ = ["read_attentionxml", "write_attentionxml"]

_PARTS = {"train": "train", "test": "test"}
_RAW, _TOKENISED, _TARGETS = "{}_raw_texts.txt", "{}_texts.txt", "{}_labels.txt"
_SEPARATOR = "/SEP/"
_BATCH = 4096  # documents added at a time


def read_attentionxml(path: Path | str, reading: Reading) -> Dataset:
    """Read one text a line, and its labels, split at white space, from the same line of another file.

    ``/SEP/``, which AttentionXML puts between title and text, becomes a newline.
    """
    files = SplitFiles(path, reading.split, _PARTS, [_RAW, _TOKENISED, _TARGETS])
    texts = files.need(_RAW, _TOKENISED)
    targets = files.need(_TARGETS) if reading.labelled else files.find(_TARGETS)
    builder = Builder(targets or texts, reading)  # what is wrong with a record is wrong with its labels
    records = _records(texts, targets, builder.problems)
    while batch := list(islice(records, _BATCH)):
        if not builder.extend([record for _, record in batch]):
            for number, record in batch:
                builder.add(number, record)
    builder.problems.file = str(texts)
    return builder.finish()


def _records(texts: Path, targets: Path | None, problems: Problems) -> Iterator[tuple[int, Record]]:
    """Yield (line, document) for the lines that are good in both files, which must be of the same length."""
    for document, own in zip_longest(text_lines(texts, problems), text_lines(targets, problems) if targets else ()):
        if document is None or (own is None and targets):
            number, more = own or document or (0, None)
            file, other = (targets, texts) if document is None else (texts, targets)
            if more and not more.isspace():  # blank lines at the end of one file do no harm
                problems.fatal(f"a line more than in {other}", "as many lines in both", number, file)
        elif document[1] is not None and (own is None or own[1] is not None):
            text = re.sub(f" ?{_SEPARATOR} ?", "\n", document[1]) if _SEPARATOR in document[1] else document[1]
            yield document[0], Record(text, labels=own[1].split() if own and own[1] is not None else None)


def write_attentionxml(dataset: Dataset, folder: Path | str, split: str = "train") -> None:
    """Write ``train_raw_texts.txt`` and ``train_labels.txt``, or those of test.

    A newline becomes `` /SEP/ ``, white space in a label ``_`` as AttentionXML has it; the rest is left out.
    """
    files = SplitFiles.to_write(folder, split, _PARTS)
    texts, targets = dataset.document_texts(), files.at(_TARGETS)
    labels = label_strings(dataset.labels, targets, r"\s|^$", "_")
    warn_left_out(dataset, files.at(_RAW), "texts")
    write_strings((one_line(text, f" {_SEPARATOR} ") for text in texts), files.at(_RAW))
    ends, columns = dataset.label_matrix.indptr.tolist(), dataset.label_matrix.indices.tolist()
    own = (" ".join(map(labels.__getitem__, columns[start:end])) for start, end in pairwise(ends))
    write_strings(own, targets)
