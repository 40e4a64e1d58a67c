"""Label-feature sets and raw texts of the Extreme Classification Repository, whose documents count
their labels.

``trn.json.gz`` and ``tst.json.gz`` (or ``trn.raw.json.gz``) hold the documents, ``lbl.json.gz`` the
labels with title and content. Sets without label features have their labels' names in ``Yf.txt``
instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.json_lines import json_blocks
from longtail.data.labels import Labels
from longtail.data.left_out import warn_left_out
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.data.source import Source
from longtail.data.split_files import TRN_TST, SplitFiles, read_names
from longtail.data.strings import Strings, StringsBuilder
from longtail.data.xmc_bow import number_labels

__all__ = ["FIELDS", "read_lf", "write_lf"]

FIELDS = ("title", "content")
_NAME = "{}.json"
_RAW_NAME = "{}.raw.json"
_LABELS = "lbl.json"
_LABEL_NAMES = "Yf.txt"
# sets of titles, which are read from files that hold more: LF-AmazonTitles-131K,
# WikiSeeAlsoTitles-350K …
_OF_TITLES = re.compile(r"(?:[a-z]+-)?[a-z]+titles-\d", re.IGNORECASE)
_OF_ANY_TEXTS = re.compile(r"(?:lf-)?[a-z]+-\d", re.IGNORECASE)
_NUMBERED = re.compile(r"\d+->")  # before each name of the sets of Wikipedia


class _LfRecord(msgspec.Struct, gc=False):
    """One document or label of a label-feature set; labels have no targets."""

    uid: str | int | None = None
    title: str | None = None
    content: str | None = None
    target_ind: list[int] | None = None
    target_rel: list[float] | None = None

    def record(self, ids: Sequence[str], fields: Sequence[str]) -> Record:
        """Return the document with the ids of its labels and the texts of ``fields``."""
        labels = None
        if self.target_ind is not None:
            labels = tuple(ids[target] for target in self.target_ind)
        relevance = self.target_rel
        if relevance is not None and relevance.count(1.0) == len(relevance):
            relevance = None
        if len(fields) == 1:
            return Record(getattr(self, fields[0]) or "", None, labels, self.uid, relevance)
        return Record(self.content, self.title, labels, self.uid, relevance)

    def wrong(self, n_labels: int, labelled: bool) -> tuple[str, str] | None:
        """Return (problem, expected) for a document that cannot be taken."""
        targets = self.target_ind
        relevance = self.target_rel
        if self.title is None and self.content is None:
            return (
                "no field 'title' or 'content'",
                'a document such as {"title": "…", "target_ind": [0]}',
            )
        if targets is None:
            if labelled:
                return ("no field 'target_ind'", "a list of label numbers, [] for none")
            return None
        if targets and not 0 <= min(targets) <= max(targets) < n_labels:
            outside = next(target for target in targets if not 0 <= target < n_labels)
            if n_labels:
                expected = f"a number below {n_labels}, the labels of the set"
            else:
                expected = "labels in lbl.json"
            return f"label number {outside} in 'target_ind'", expected
        if relevance is not None and len(relevance) != len(targets):
            return (
                f"{len(relevance)} of 'target_rel' for {len(targets)} of 'target_ind'",
                "one relevance a label",
            )
        return None


_decoder = msgspec.json.Decoder(_LfRecord)


def read_lf(path: Path | str, reading: Reading) -> Dataset:
    """Read a split: its folder, or the file itself with ``lbl.json`` or ``Yf.txt`` beside it.

    A label of ``lbl.json`` has its ``uid`` as id, its title as name and its content as text; one of
    ``Yf.txt`` the number of its line as id, and the line as name. ``reading.fields`` chooses title,
    content or both, of documents and labels alike; a folder named as a set of titles
    (LF-AmazonTitles-131K) means titles alone."""
    files = SplitFiles(path, reading.split, TRN_TST, [_RAW_NAME, _NAME])
    file = files.need(_NAME, _RAW_NAME)
    fields = reading.fields or _fields_by_name(files.folder, reading.notes)
    labels = _read_labels(files, fields, reading)
    ids = list(labels.ids)
    builder = Builder(file, _closed(reading, labels))
    for block in json_blocks(file, _decoder, builder.problems):
        records = block.objects
        plain = records is not None and not any(
            r.wrong(len(ids), reading.labelled) for r in records
        )
        if not plain or not builder.extend([r.record(ids, fields) for r in records or ()]):
            for number, record in block:
                if wrong := record.wrong(len(ids), reading.labelled):
                    builder.problems.add(number, *wrong)
                else:
                    builder.add(number, record.record(ids, fields))
    return replace(builder.finish(), source=Source(files.folder, labels=labels))


def _fields_by_name(folder: Path, notes: list[str]) -> tuple[str, ...]:
    """Return what the folder's name says is to be read, and note it if that is titles alone.

    In a folder called ``raw_text`` or the like the name of the folder above counts.
    """
    resolved = folder.resolve()
    names_set = _OF_TITLES.match(resolved.name) or _OF_ANY_TEXTS.match(resolved.name)
    name = resolved.name
    if not names_set:
        name = resolved.parent.name
    if not _OF_TITLES.match(name):
        return FIELDS
    notes.append(f"titles only, as the folder is called {name} (--fields title,content reads both)")
    return FIELDS[:1]


def _closed(reading: Reading, set_labels: Labels) -> Reading:
    """Return the reading with a closed vocabulary, for a set with the labels ``set_labels``."""
    if reading.labels is None:
        return replace(reading, labels=set_labels, unknown="error")
    if reading.unknown == "add":
        return replace(reading, labels=reading.labels.extended(set_labels.ids))
    return reading


def _read_labels(files: SplitFiles, fields: Sequence[str], reading: Reading) -> Labels:
    """Return the labels in the order in which documents count them."""
    path = files.need(_LABELS, _LABEL_NAMES)
    if files.find(_LABELS) is not None:
        return _read_label_file(path, fields)
    names = read_names(path)
    if len(names) and all(map(_NUMBERED.match, names)):
        names = Strings.of(_NUMBERED.sub("", name, count=1) for name in names)
    which = "which are called by the numbers of its lines"
    reading.notes.append(f"names of {len(names):,} labels in {path.name}, {which}")
    return Labels(
        number_labels(len(names), path.stat().st_size, Problems(path)).ids, _if_any(names)
    )


def _read_label_file(path: Path, fields: Sequence[str]) -> Labels:
    """Read ``lbl.json``, every line of which must be good, because documents count them.

    Name and text are title and content, or the one of them that is wanted is the name.
    """
    problems = Problems(path)
    ids = StringsBuilder()
    names = StringsBuilder()
    texts = StringsBuilder()
    seen: set[str] = set()
    for block in json_blocks(path, _decoder, problems):
        for number, record in block:
            uid = str(record.uid)
            if record.uid is None:
                uid = str(len(ids))
            if not uid:
                problems.add(number, "an empty uid", "a uid of its own for each label")
            elif uid in seen:
                problems.add(number, f"uid {quoted(uid)} again", "a uid of its own for each label")
            seen.add(uid)
            ids.append(uid)
            names.append(getattr(record, fields[0]) or "")
            content = record.content if len(fields) == 2 else ""
            texts.append(content or "")
    problems.close()
    return Labels(ids.finish(), _if_any(names.finish()), _if_any(texts.finish()))


def _if_any(strings: Strings) -> Strings | None:
    if not strings.lengths.any():
        return None
    return strings


def write_lf(dataset: Dataset, folder: Path | str, split: str = "train") -> None:
    """Write ``trn.json.gz`` or ``tst.json.gz``, and ``lbl.json.gz``.

    The first line of a text is its title. A label's name is its title, its text the content;
    aliases and uris are left out."""
    files = SplitFiles.to_write(folder, split, TRN_TST)
    texts = dataset.document_texts()
    labels_path = files.at(_LABELS + ".gz")
    held = ("document ids", "texts", "label names", "label texts", "relevances other than 1")
    warn_left_out(dataset, files.at(_NAME + ".gz"), *held)
    if labels_path.exists():
        there = _read_label_file(labels_path, FIELDS).ids
        files.refuse_other_labels(labels_path, there, dataset.labels.ids, _NAME + ".gz")
    encode = msgspec.json.Encoder().encode
    matrix = dataset.label_matrix
    with open_output(labels_path) as out:
        for label in dataset.labels:
            out.write(encode({"uid": label.id, "title": label.name, "content": label.text}) + b"\n")
    with open_output(files.at(_NAME + ".gz")) as out:
        for row, text in enumerate(texts):
            title, content = _title_and_content(text)
            row_of = slice(*matrix.indptr[row : row + 2].tolist())
            record: dict[str, Any] = {
                "uid": dataset.document_id(row),
                "title": title,
                "content": content,
            }
            record |= {
                "target_ind": matrix.indices[row_of].tolist(),
                "target_rel": matrix.data[row_of].tolist(),
            }
            out.write(encode(record) + b"\n")


def _title_and_content(text: str) -> tuple[str, str]:
    """Return the two parts that, joined by a newline, give the text again."""
    title, _, content = text.partition("\n")
    if title and content:
        return title, content
    return text, ""
