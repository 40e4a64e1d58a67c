"""Label-feature sets: ``trn.json.gz``, ``tst.json.gz`` and ``lbl.json.gz``, whose lines the documents count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.json_lines import json_blocks
from longtail.data.labels import Labels
from longtail.data.losses import warn_left_out
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.data.source import Source
from longtail.data.split_files import TRN_TST, SplitFiles
from longtail.data.strings import Strings, StringsBuilder

__all__ = ["read_lf", "write_lf"]

_NAME, _LABELS = "{}.json", "lbl.json"


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


_decoder = msgspec.json.Decoder(_LfRecord)


def read_lf(path: Path | str, reading: Reading) -> Dataset:
    """Read a split of a label-feature set: its folder, or the file itself with ``lbl.json`` beside it.

    A label's id is its ``uid``, its name the title, its text title and content, one a line, where there is content.
    """
    files = SplitFiles(path, reading.split, TRN_TST, [_NAME])
    file = files.need(_NAME)
    labels = _read_labels(files.need(_LABELS))
    ids = list(labels.ids)
    builder = Builder(file, _closed(reading, labels))
    for block in json_blocks(file, _decoder, builder.problems):
        records = block.objects
        plain = records is not None and not any(r.wrong(len(ids), reading.labelled) for r in records)
        if not plain or not builder.extend([r.record(ids) for r in records or ()]):
            for number, record in block:
                if wrong := record.wrong(len(ids), reading.labelled):
                    builder.problems.add(number, *wrong)
                else:
                    builder.add(number, record.record(ids))
    return replace(builder.finish(), source=Source(files.folder, labels=labels))


def _closed(reading: Reading, own: Labels) -> Reading:
    """Return the reading with a vocabulary that has the columns wanted for a set with the labels ``own``."""
    if reading.labels is None:
        return replace(reading, labels=own, unknown="error")
    return replace(reading, labels=reading.labels.extended(own.ids)) if reading.unknown == "add" else reading


def _read_labels(path: Path) -> Labels:
    """Read ``lbl.json``, every line of which must be good, because documents count them."""
    problems = Problems(path)
    ids, names, texts = StringsBuilder(), StringsBuilder(), StringsBuilder()
    seen: set[str] = set()
    for block in json_blocks(path, _decoder, problems):
        for number, record in block:
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
    files = SplitFiles.to_write(folder, split, TRN_TST)
    texts, labels_path = dataset.document_texts(), files.at(_LABELS + ".gz")
    held = ("document ids", "texts", "label names", "label texts", "relevances other than 1")
    warn_left_out(dataset, files.at(_NAME + ".gz"), *held)
    if labels_path.exists():
        files.refuse_other_labels(labels_path, _read_labels(labels_path).ids, dataset.labels.ids, _NAME + ".gz")
    encode, matrix = msgspec.json.Encoder().encode, dataset.label_matrix
    with open_output(labels_path) as out:
        for label in dataset.labels:
            content = label.text.removeprefix(f"{label.name}\n") if label.name else label.text
            out.write(encode({"uid": label.id, "title": label.name, "content": content}) + b"\n")
    with open_output(files.at(_NAME + ".gz")) as out:
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
