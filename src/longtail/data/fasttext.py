"""fastText: one document a line, ``__label__a __label__b the text``.

As in fastText itself, every word that begins with the prefix is a label, wherever in the line it
stands, and words are what stands between the ASCII white space characters and NUL."""

from __future__ import annotations

import re
from pathlib import Path

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.left_out import IN_LABEL_FILE, count_left_out, log_left_out
from longtail.data.lines import text_lines
from longtail.data.output import open_output

__all__ = ["PREFIX", "read_fasttext", "write_fasttext"]

PREFIX = "__label__"
_SPACE = " \t\n\v\f\r\0"
_LABEL = re.compile(f"(?<![^{_SPACE}]){PREFIX}([^{_SPACE}]*)[{_SPACE}]*")


def read_fasttext(path: Path | str, reading: Reading) -> Dataset:
    """Read fastText lines; a line without a label is a document without labels, blank lines are
    passed over.
    """
    builder = Builder(path, reading)
    for number, line in text_lines(path, builder.problems):
        text = (line or "").strip(_SPACE)
        labels = _LABEL.findall(text)
        if "" in labels:
            builder.problems.add(
                number, f"'{PREFIX}' without a name", f"a label such as {PREFIX}name"
            )
        elif text:
            builder.add(
                number, Record(text=_LABEL.sub("", text).rstrip(_SPACE), labels=tuple(labels))
            )
    return builder.finish()


def write_fasttext(dataset: Dataset, path: Path | str) -> None:
    """Write fastText lines; labels without white space read back exactly.

    In a label each white space character becomes ``_``; in a text, newlines become spaces, outer
    white space and byte order marks are lost, and a word that would read as a label loses its first
    underscore. Ids, relevances, and documents with neither text nor label are left out. Losses are
    logged."""
    written = {label: re.sub(f"[{_SPACE}]", "_", label) for label in dataset.labels.ids}
    words = empty = 0
    with open_output(path) as out:
        for row, text in enumerate(dataset.document_texts()):
            labels = [PREFIX + written[label] for label in dataset.labels_of(row)]
            text = re.sub("[\r\n]", " ", text.strip(_SPACE + "\ufeff"))
            text, changed = _LABEL.subn(lambda match: match[0][1:], text)
            words += changed
            line = " ".join([*labels, text] if text else labels)
            empty += not line
            if line:
                out.write(f"{line}\n".encode())
    log_left_out(
        path,
        {
            "labels with white space in them, written with _": sum(
                new != old for old, new in written.items()
            ),
            "labels that became equal to another": len(written) - len(set(written.values())),
            f"words with {PREFIX} in texts": words,
            "documents without text and labels": empty,
            **count_left_out(dataset, "texts", *IN_LABEL_FILE),
        },
    )
