"""Benchmark texts: label-feature sets (``trn.json.gz``, ``lbl.json.gz``) and AttentionXML's ``train_raw_texts.txt``.

What folders of benchmark files share is here too: how a split's files are found, and strings one a line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.jsonl import json_problem, one_a_line
from longtail.data.labels import Labels
from longtail.data.lines import Block, blocks
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.data.strings import Strings, StringsBuilder
from longtail.errors import UsageError, unknown_name

__all__ = [
    "SplitFiles",
    "in_vocabulary",
    "label_strings",
    "read_attentionxml",
    "read_lf",
    "read_strings",
    "text_lines",
    "warn_left_out",
    "write_attentionxml",
    "write_lf",
    "write_strings",
]

log = logging.getLogger("longtail")
_NEWLINE = r"\r\n|\r|\n"
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class SplitFiles:
    """The files of one split in a folder: ``{}`` in a name is the split, ``.gz`` or ``.zst`` may follow it."""

    def __init__(self, path: Path | str, split: str, parts: dict[str, str], names: Sequence[str]) -> None:
        """Take the folder, or any of the files called as ``names``; ``parts`` is split → its word in a name."""
        if split not in parts:
            raise UsageError(unknown_name("split", split, parts))
        self.folder, self.part = Path(path), parts[split]
        self._others = [part for part in parts.values() if part != self.part]
        if not self.folder.is_dir():
            self.part = self._part_of(self.folder, names)
            self.folder = self.folder.parent

    @classmethod
    def to_write(cls, folder: Path | str, split: str, parts: dict[str, str]) -> SplitFiles:
        """Make the folder if it is not there."""
        try:
            Path(folder).mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be made a folder ({error.strerror})") from None
        return cls(folder, split, parts, ())

    @staticmethod
    def _part_of(path: Path, names: Sequence[str]) -> str:
        for name in names:
            pattern = re.escape(name).replace(r"\{\}", "(.+)") + r"(?:\.gz|\.zst)?"
            if found := re.fullmatch(pattern, path.name):
                return found[1]
        examples = ", ".join(name.format("…") for name in names)
        raise UsageError(f"{path}: not a folder; expected a folder of this format, or a file in it called {examples}")

    def at(self, name: str) -> Path:
        """Return where a file of this split is written."""
        return self.folder / name.format(self.part)

    def find(self, *names: str) -> Path | None:
        """Return the first of the files that is there, compressed or not."""
        for name in names:
            there = [f for end in ("", ".gz", ".zst") if (f := self.folder / (name.format(self.part) + end)).exists()]
            if len(there) > 1:
                raise UsageError(f"{self.folder}: found {there[0].name} and {there[1].name}; expected one of them")
            if there:
                return there[0]
        return None

    def need(self, *names: str) -> Path:
        """Return what :meth:`find` does, or say which file is missing."""
        found = self.find(*names)
        if found is None:
            raise UsageError(f"{self.folder}: no file {' or '.join(name.format(self.part) for name in names)}")
        return found

    def refuse_other_labels(self, path: Path, there: Iterable[str], ours: Iterable[str], name: str) -> None:
        """Raise if the file at ``path`` is needed as it is, by the other split's file ``name``."""
        taken = any((self.folder / name.format(part)).exists() for part in self._others)
        if taken and list(there) != list(ours):
            found = f"{path}: holds other labels than this dataset and belongs to the other split too"
            raise UsageError(f"{found}; expected the same labels: read with labels=…, or write to another folder")


def in_vocabulary(dataset: Dataset, reading: Reading) -> Dataset:
    """Return the dataset over the labels that the reading asks for."""
    if reading.labels is None:
        return dataset
    if reading.unknown == "add":
        return dataset.with_labels(reading.labels.extended(dataset.labels.ids), "drop")
    return dataset.with_labels(reading.labels, reading.unknown)


def warn_left_out(dataset: Dataset, path: Path | str, *held: str) -> None:
    """Warn, once, of what the dataset has and a format that holds only ``held`` has not."""
    labels, graded = dataset.labels, int((dataset.label_matrix.data != 1).sum())
    counts = {name: len(part) for name, part in (("document ids", dataset.ids), ("texts", dataset.texts)) if part}
    matrices = {"rows of features": dataset.features, "rows of label features": dataset.label_features}
    counts |= {name: part.shape[0] for name, part in matrices.items() if part is not None}
    counts |= {f"label {field}": len(part) for field in ("names", "texts", "uris") if (part := getattr(labels, field))}
    counts |= {"lists of label aliases": len(labels.aliases or ()), "relevances other than 1": graded}
    lost = [f"{count} {name}" for name, count in counts.items() if count and name not in held]
    if lost:
        log.warning("%s: left out, as this format cannot hold them: %s", path, ", ".join(lost))


def text_lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, str | None]]:
    """Yield (line number, text) for every line; None for one that is bad, which is reported."""
    expected = 1
    for block in blocks(path, problems):
        for overlong in range(expected, block.first_line):
            yield overlong, None
        expected = block.first_line + block.data.count(b"\n")
        for number, line in enumerate(block.data.split(b"\n")[:-1], block.first_line):
            try:
                yield number, line.removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                found, wanted = json_problem(line, error)
                problems.add(number, found, wanted, path)
                yield number, None


def read_strings(path: Path | str, count: int | None = None) -> Strings:
    """Read one string a line; all must be good, and ``count`` if that is given, for their places mean something."""
    problems = Problems(path)
    strings = [text for _, text in text_lines(path, problems)]
    problems.close()
    if count not in (None, len(strings)):
        problems.fatal(f"{len(strings)} lines", f"{count}, one a label")
    return Strings.of(text or "" for text in strings)


def write_strings(strings: Iterable[str], path: Path | str) -> None:
    """Write one string a line; a newline inside becomes a space."""
    with open_output(path) as out:
        for string in strings:
            out.write(_one_line(string).encode() + b"\n")


def _one_line(text: str, by: str = " ") -> str:
    return re.sub(_NEWLINE, by, text) if "\n" in text or "\r" in text else text


def label_strings(labels: Labels, path: Path | str, pattern: str = _NEWLINE, by: str = " ") -> list[str]:
    """Return the ids as a file of lines can hold them: ``pattern`` replaced, with one warning; never two the same."""
    strings = [re.sub(pattern, by, label) for label in labels.ids]
    first: dict[str, int] = {}
    for column, string in enumerate(strings):
        if first.setdefault(string, column) != column:
            two = f"{quoted(labels.ids[first[string]])} and {quoted(labels.ids[column])}"
            raise UsageError(f"{path}: labels {two} become one in this format; rename one, or write JSON lines")
    changed = sum(string != label for string, label in zip(strings, labels.ids, strict=True))
    if changed:
        log.warning("%s: %r stands for what this format cannot hold in %d label ids", path, by, changed)
    return strings


_LF_PARTS = {"train": "trn", "test": "tst"}
_LF_NAME, _LF_LABELS = "{}.json", "lbl.json"


class _LfRecord(msgspec.Struct, gc=False):
    """One document or label of a label-feature set; labels have no targets."""

    uid: str | int | None = None
    title: str | None = None
    content: str | None = None
    target_ind: list[int] | None = None
    target_rel: list[float] | None = None

    def record(self, ids: Sequence[str]) -> Record:
        """Return the document with the ids of its labels."""
        labels = None if self.target_ind is None else [ids[target] for target in self.target_ind]
        relevance = self.target_rel
        if relevance is not None and relevance.count(1.0) == len(relevance):
            relevance = None
        return Record(self.content, self.title, labels, self.uid, relevance)

    def wrong(self, n_labels: int, labelled: bool) -> tuple[str, str] | None:
        """Return (found, expected) for a document that cannot be taken."""
        targets, relevance = self.target_ind, self.target_rel
        if self.title is None and self.content is None:
            return "no field 'title' or 'content'", 'a document such as {"title": "…", "target_ind": [0]}'
        if targets is None:
            return ("no field 'target_ind'", "a list of label numbers, [] for none") if labelled else None
        if targets and not 0 <= min(targets) <= max(targets) < n_labels:
            outside = next(target for target in targets if not 0 <= target < n_labels)
            expected = f"a number below {n_labels}, the labels of lbl.json" if n_labels else "labels in lbl.json"
            return f"label number {outside} in 'target_ind'", expected
        if relevance is not None and len(relevance) != len(targets):
            return f"{len(relevance)} of 'target_rel' for {len(targets)} of 'target_ind'", "one relevance a label"
        return None


_lf_decoder = msgspec.json.Decoder(_LfRecord)


def read_lf(path: Path | str, reading: Reading) -> Dataset:
    """Read a split of a label-feature set: its folder, or the file itself with ``lbl.json`` beside it.

    A label's id is its ``uid``, its name the title, its text title and content, one a line, where there is content.
    """
    files = SplitFiles(path, reading.split, _LF_PARTS, [_LF_NAME])
    file = files.need(_LF_NAME)
    labels = _read_lf_labels(files.need(_LF_LABELS))
    ids = list(labels.ids)
    builder = Builder(file, _closed(reading, labels))
    for block in blocks(file, builder.problems):
        try:
            records = _lf_decoder.decode_lines(block.data)
            taken = one_a_line(block.data, len(records))
            taken = taken and not any(r.wrong(len(ids), reading.labelled) for r in records)
            taken = taken and builder.extend([r.record(ids) for r in records])
        except _MALFORMED:
            taken = False
        if not taken:
            for number, record in _lf_slowly(block, builder.problems, file):
                if wrong := record.wrong(len(ids), reading.labelled):
                    builder.problems.add(number, *wrong)
                else:
                    builder.add(number, record.record(ids))
    return builder.finish()


def _closed(reading: Reading, own: Labels) -> Reading:
    """Return the reading with a vocabulary that has the columns wanted for a set with the labels ``own``."""
    if reading.labels is None:
        return replace(reading, labels=own, unknown="error")
    return replace(reading, labels=reading.labels.extended(own.ids)) if reading.unknown == "add" else reading


def _lf_slowly(block: Block, problems: Problems, file: Path) -> Iterator[tuple[int, _LfRecord]]:
    """Yield (line, record) of a block that holds something unusual, and report what is not JSON by its line."""
    for number, line in enumerate(block.data.split(b"\n")[:-1], block.first_line):
        if not line.strip():
            continue
        try:
            yield number, _lf_decoder.decode(line)
        except _MALFORMED as error:
            found, expected = json_problem(line, error)
            problems.add(number, found, expected, file)


def _read_lf_labels(path: Path) -> Labels:
    """Read ``lbl.json``, every line of which must be good, because documents count them."""
    problems = Problems(path)
    ids, names, texts = StringsBuilder(), StringsBuilder(), StringsBuilder()
    seen: set[str] = set()
    for block in blocks(path, problems):
        for number, record in _lf_slowly(block, problems, path):
            uid, name = str(len(ids) if record.uid is None else record.uid), record.title or ""
            if uid in seen:
                problems.add(number, f"uid {quoted(uid)} again", "a uid of its own for each label")
            seen.add(uid)
            ids.append(uid)
            names.append(name)
            texts.append(_joined(name, record.content))
    problems.close()
    return Labels(ids.finish(), _if_any(names.finish()), _if_any(texts.finish()))


def _if_any(strings: Strings) -> Strings | None:
    return strings if strings.lengths.any() else None


def _joined(name: str, content: str | None) -> str:
    return f"{name}\n{content}" if name and content else content or ""


def write_lf(dataset: Dataset, folder: Path | str, split: str = "train") -> None:
    """Write ``trn.json.gz`` or ``tst.json.gz``, and ``lbl.json.gz``.

    The first line of a text is its title. A label's text that does not begin with its name gains it as first line;
    aliases and uris are left out.
    """
    files = SplitFiles.to_write(folder, split, _LF_PARTS)
    texts, labels_path = dataset.document_texts(), files.at(_LF_LABELS + ".gz")
    held = ("document ids", "texts", "label names", "label texts", "relevances other than 1")
    warn_left_out(dataset, files.at(_LF_NAME + ".gz"), *held)
    if labels_path.exists():
        files.refuse_other_labels(labels_path, _read_lf_labels(labels_path).ids, dataset.labels.ids, _LF_NAME + ".gz")
    encode, matrix = msgspec.json.Encoder().encode, dataset.label_matrix
    with open_output(labels_path) as out:
        for label in dataset.labels:
            content = label.text.removeprefix(f"{label.name}\n") if label.name else label.text
            out.write(encode({"uid": label.id, "title": label.name, "content": content}) + b"\n")
    with open_output(files.at(_LF_NAME + ".gz")) as out:
        for row, text in enumerate(texts):
            title, content = _title_and_rest(text)
            row_of = slice(*matrix.indptr[row : row + 2].tolist())
            record: dict[str, Any] = {"uid": dataset.document_id(row), "title": title, "content": content}
            record |= {"target_ind": matrix.indices[row_of].tolist(), "target_rel": matrix.data[row_of].tolist()}
            out.write(encode(record) + b"\n")


def _title_and_rest(text: str) -> tuple[str, str]:
    """Return the two parts that, joined by a newline, give the text again."""
    title, _, rest = text.partition("\n")
    return (title, rest) if title and rest else (text, "")


_ATTENTION_PARTS = {"train": "train", "test": "test"}
_RAW, _TOKENISED, _TARGETS = "{}_raw_texts.txt", "{}_texts.txt", "{}_labels.txt"
_SEPARATOR = "/SEP/"
_BATCH = 4096  # documents added at a time


def read_attentionxml(path: Path | str, reading: Reading) -> Dataset:
    """Read one text a line, and its labels, split at white space, from the same line of another file.

    ``/SEP/``, which AttentionXML puts between title and text, becomes a newline.
    """
    files = SplitFiles(path, reading.split, _ATTENTION_PARTS, [_RAW, _TOKENISED, _TARGETS])
    texts = files.need(_RAW, _TOKENISED)
    targets = files.need(_TARGETS) if reading.labelled else files.find(_TARGETS)
    builder = Builder(targets or texts, reading)  # what is wrong with a record is wrong with its labels
    records = _attention_records(texts, targets, builder.problems)
    while batch := list(islice(records, _BATCH)):
        if not builder.extend([record for _, record in batch]):
            for number, record in batch:
                builder.add(number, record)
    builder.problems.file = str(texts)
    return builder.finish()


def _attention_records(texts: Path, targets: Path | None, problems: Problems) -> Iterator[tuple[int, Record]]:
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
    files = SplitFiles.to_write(folder, split, _ATTENTION_PARTS)
    texts, targets = dataset.document_texts(), files.at(_TARGETS)
    labels = label_strings(dataset.labels, targets, r"\s|^$", "_")
    warn_left_out(dataset, files.at(_RAW), "texts")
    write_strings((_one_line(text, f" {_SEPARATOR} ") for text in texts), files.at(_RAW))
    ends, columns = dataset.label_matrix.indptr.tolist(), dataset.label_matrix.indices.tolist()
    own = (" ".join(map(labels.__getitem__, columns[start:end])) for start, end in pairwise(ends))
    write_strings(own, targets)
