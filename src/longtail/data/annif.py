"""Annif's corpora: short texts in one TSV or CSV file, and folders with a file for each document;
its vocabularies.

A line of the TSV is ``text<TAB><uri> <uri>``; the CSV has columns ``text``, ``subject_uris`` and
``document_id``. A folder holds ``NAME.txt`` and beside it ``NAME.tsv`` with lines
``<uri><TAB>label``, or ``NAME.key`` with a label a line. The id of a label is its URI without the
angle brackets."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.left_out import IN_LABEL_FILE, count_left_out, log_left_out
from longtail.data.lines import MAX_LINE, chunks, text_lines
from longtail.data.output import open_output
from longtail.data.problems import Problems, not_utf8, quoted
from longtail.data.tables import BadRecord, no_column, table_line, table_rows
from longtail.errors import DataError, UsageError
from longtail.store.writing import check_outside, write_new_folder

__all__ = [
    "read_annif_csv",
    "read_annif_folder",
    "read_annif_tsv",
    "write_annif_csv",
    "write_annif_folder",
    "write_annif_tsv",
    "write_annif_vocabulary",
]

# where Annif cuts a subject file, and the tab
_LINE_ENDS = r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]"
_UNSAFE_IN_NAMES = r'^\.|[%/\\:*?"<>|\x00-\x1f\x7f]'
_LONGEST_NAME = 200  # bytes; file systems end at 255


def read_annif_tsv(path: Path | str, reading: Reading) -> Dataset:
    """Read short texts; URIs may also stand without angle brackets. Unlabelled reading takes lines
    without a tab.
    """
    builder = Builder(path, reading)
    for number, line in text_lines(path, builder.problems):
        if not line:
            continue
        text, tab, uris = line.partition("\t")
        if tab:
            _add(builder, number, text, uris)
        elif reading.labelled:
            builder.problems.add(number, f"no tab in {quoted(text)}", "text<TAB><uri> <uri>")
        else:
            _add(builder, number, text, None)
    return builder.finish()


def read_annif_csv(path: Path | str, reading: Reading) -> Dataset:
    """Read texts from a table with a header row; columns beside text, subject_uris and document_id
    are passed over.
    """
    builder = Builder(path, reading)
    rows = table_rows(path, builder.problems, ",")
    line, header = next(rows, (0, []))
    needed = ["text"]
    if reading.labelled:
        needed.append("subject_uris")
    for name in needed:
        if header.count(name) != 1:
            problem = f"two columns '{name}'" if name in header else no_column(name, header)
            builder.problems.fatal(
                problem, "a header row with the columns text and subject_uris, each once", line
            )
    for line, row in rows:
        if len(row) != len(header):
            builder.problems.add(line, f"{len(row)} cells", f"{len(header)}, as in the header")
        else:
            cells = dict(zip(header, row, strict=True))
            _add(
                builder,
                line,
                cells["text"],
                cells.get("subject_uris"),
                cells.get("document_id") or None,
            )
    return builder.finish()


def _add(
    builder: Builder, number: int, text: str, uris: str | None, document: str | None = None
) -> None:
    """Add a document whose labels stand in one string, ``<uri> <uri>``."""
    labels = None
    if uris is not None:
        labels = tuple(map(_without_brackets, uris.split()))
    if labels and "" in labels:
        builder.problems.add(number, "an empty URI <>", "<uri>")
    else:
        builder.add(number, Record(text=text, labels=labels, id=document))


def write_annif_tsv(dataset: Dataset, path: Path | str) -> None:
    """Write short texts; labels without white space read back exactly.

    White space in a label is percent-encoded; tabs and newlines in a text become
    spaces. Ids and relevances are left out. What was changed or lost is logged.
    """
    uris = {label: _encoded(label, r"\s") for label in dataset.labels.ids}
    with open_output(path) as out:
        for row, text in enumerate(dataset.document_texts()):
            text = re.sub("^\ufeff|[\t\r\n]", " ", text)
            subjects = " ".join(f"<{uris[label]}>" for label in dataset.labels_of(row))
            out.write(f"{text}\t{subjects}\n".encode())
    _log_left_out(dataset, path, uris, n_ids=len(dataset.ids or ()))


def write_annif_csv(dataset: Dataset, path: Path | str) -> None:
    """Write texts as they are, with ids where there are any; white space in labels as in
    :func:`write_annif_tsv`.
    """
    uris = {label: _encoded(label, r"\s") for label in dataset.labels.ids}
    ids = dataset.ids
    with open_output(path) as out:
        header = ["text", "subject_uris"]
        out.write(table_line(["document_id", *header] if ids else header, ","))
        for row, text in enumerate(dataset.document_texts()):
            subjects = " ".join(f"<{uris[label]}>" for label in dataset.labels_of(row))
            cells = [text, subjects]
            if ids:
                cells.insert(0, ids[row])
            out.write(table_line(cells, ","))
    _log_left_out(dataset, path, uris, n_ids=0)


def write_annif_vocabulary(labels: Labels, path: Path | str) -> None:
    """Write the labels for ``annif load-vocab``: ``<uri><TAB>name`` a line, and behind it an alias
    that is alone.

    That is where Annif has the notation. A label without a name gets its id for one: Annif takes it
    for retired otherwise. White space in an id is percent-encoded as in :func:`write_annif_tsv`.
    What is left out is logged."""
    altered = texts = aliases = 0
    with open_output(path) as out:
        for label in labels:
            uri = _encoded(label.id, r"\s")
            cells = [re.sub(_LINE_ENDS, " ", cell).strip() for cell in (label.name, *label.aliases)]
            notation = []
            if len(cells) == 2:
                notation = cells[1:]
            out.write("\t".join([f"<{uri}>", cells[0] or uri, *notation]).encode() + b"\n")
            altered = altered + (uri != label.id)
            texts = texts + bool(label.text)
            aliases += len(label.aliases) - len(notation)
    log_left_out(
        path, {"labels, percent-encoded": altered, "label texts": texts, "aliases": aliases}
    )


def read_annif_folder(path: Path | str, reading: Reading) -> Dataset:
    """Read the documents of a folder in the order of their names; an id is the name,
    percent-decoded, without .txt.

    A document without a subject file has no labels to read, which is a problem unless ``reading``
    is unlabelled. Where a vocabulary is given, a subject that is no id in it but the name of one of
    its labels is that label."""
    builder = Builder(path, reading)
    id_of = _by_name(reading)
    for file in _documents(Path(path)):
        builder.problems.file = _shown(file)
        try:
            text = _content(file)
            labels = _subjects(file, id_of, reading)
            builder.add(0, Record(text=text, labels=labels, id=_id_of_name(file.stem)))
        except BadRecord as bad:
            builder.problems.add(0, *bad.args)
    builder.problems.file = str(path)
    return builder.finish()


def _documents(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    try:
        return sorted(
            file for file in folder.iterdir() if file.suffix == ".txt" and file.name[0] != "."
        )
    except PermissionError as error:
        raise UsageError(f"{folder}: cannot be read ({error.strerror})") from None


def _content(file: Path) -> str:
    """Return the text of a document or subject file."""
    if not file.is_file():  # a pipe or a device could be read for ever
        raise BadRecord("not a regular file", "a text file", _shown(file))
    data = bytearray()
    try:
        with closing(chunks(file, Problems(_shown(file)))) as stream:
            for chunk in stream:
                data += chunk
                if len(data) > MAX_LINE:
                    raise BadRecord(
                        f"more than {MAX_LINE >> 20} MiB", "one document a file", _shown(file)
                    )
        return data.removeprefix(b"\xef\xbb\xbf").decode()
    except DataError as error:  # a damaged archive is one bad document here
        raise BadRecord(error.problems[0].found, error.problems[0].expected, _shown(file)) from None
    except UnicodeDecodeError as error:
        raise BadRecord(*not_utf8(error), _shown(file)) from None


def _subjects(
    document: Path, id_of: Callable[[str], str], reading: Reading
) -> tuple[str, ...] | None:
    """Return the labels in a document's subject file, from each line the first cell that is not
    empty.
    """
    for file in (document.with_suffix(".tsv"), document.with_suffix(".key")):
        if os.path.lexists(file):
            cells = (
                map(str.strip, line.split("\t")) for line in re.split(r"[\n\r]", _content(file))
            )
            subjects = [
                _without_brackets(first)
                for line in cells
                if (first := next(filter(None, line), ""))
            ]
            if "" in subjects:
                raise BadRecord("an empty URI <>", "<uri>", _shown(file))
            return tuple(map(id_of, subjects))
    if reading.labelled:
        raise BadRecord("no subject file", "one with the same name and .tsv or .key beside it")
    return None


def _by_name(reading: Reading) -> Callable[[str], str]:
    """Return the function from a subject to the label's id."""
    known = reading.labels
    if known is None or known.names is None:
        return str
    names = known.names
    ids = known.ids

    @cache
    def ids_of_names() -> dict[str, str]:
        times = Counter(names)
        return {name: label for name, label in zip(names, ids, strict=True) if times[name] == 1}

    def id_of(subject: str) -> str:
        if subject in known:
            return subject
        return ids_of_names().get(subject, subject)

    return id_of


def _id_of_name(stem: str) -> str:
    try:
        stem.encode()
    except UnicodeEncodeError:
        raise BadRecord("a file name that is not UTF-8", "a UTF-8 name") from None
    try:
        return unquote(stem, errors="strict")
    except UnicodeDecodeError:  # a percent sign that is no escape
        return stem


def _shown(file: Path) -> str:
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def write_annif_folder(dataset: Dataset, path: Path | str, split: str = "train") -> None:
    """Write a .txt and a .tsv for each document into a new or an empty folder; ``split`` plays no
    part.

    A file's name is the document's id with unsafe characters percent-encoded. Where ids are
    missing, repeated or long, all documents are numbered instead. In labels, tabs and newlines are
    percent-encoded. Relevances are left out. What was changed or lost is logged."""
    folder = Path(path)
    if folder.exists() and _documents(folder):
        raise UsageError(f"{folder}: has documents already; expected an empty or a new folder")
    if not folder.parent.is_dir():
        raise UsageError(f"{folder}: the folder {folder.parent} does not exist; make it first")
    check_outside(folder)
    names, numbered = _names(dataset)
    uris = {label: _encoded(label, _LINE_ENDS) for label in dataset.labels.ids}
    lines = {
        label: f"<{uri}>\t{re.sub(_LINE_ENDS, ' ', dataset.labels.name(column))}\n"
        for column, (label, uri) in enumerate(uris.items())
    }
    with write_new_folder(folder) as temporary:
        for row, text in enumerate(dataset.document_texts()):
            subjects = "".join(lines[label] for label in dataset.labels_of(row))
            (temporary / f"{names[row]}.txt").write_bytes(re.sub("^\ufeff", " ", text).encode())
            (temporary / f"{names[row]}.tsv").write_bytes(subjects.encode())
    _log_left_out(dataset, path, uris, n_ids=numbered)


def _names(dataset: Dataset) -> tuple[list[str], int]:
    """Return a file name for each document, and how many ids were given up for numbers."""
    ids = dataset.ids or ()
    names = [_encoded(document, _UNSAFE_IN_NAMES) for document in ids]
    usable = all(ids) and all(len(name.encode()) <= _LONGEST_NAME for name in names)
    if names and usable and len({name.casefold() for name in names}) == len(names):
        return names, 0
    digits = len(str(len(dataset)))
    return [f"{number:0{digits}}" for number in range(1, len(dataset) + 1)], len(ids)


def _without_brackets(uri: str) -> str:
    if uri.startswith("<") and uri.endswith(">"):
        return uri[1:-1]
    return uri


def _encoded(string: str, unsafe: str) -> str:
    """Return ``string`` with what ``unsafe`` matches percent-encoded; never empty."""
    encoded = re.sub(unsafe, lambda match: quote(match[0], safe="").replace(".", "%2E"), string)
    return encoded or "%20"


def _log_left_out(dataset: Dataset, path: Path | str, uris: dict[str, str], n_ids: int) -> None:
    altered = sum(new != old for old, new in uris.items())
    others = count_left_out(dataset, "texts", "document ids", *IN_LABEL_FILE)
    log_left_out(path, {"labels, percent-encoded": altered, "document ids": n_ids, **others})
