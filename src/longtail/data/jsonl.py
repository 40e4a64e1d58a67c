"""JSON lines: ``{"id"?, "title"?, "text", "labels": [...], "relevance"?}``, the first format of
Longtail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.json_lines import json_blocks
from longtail.data.left_out import IN_LABEL_FILE, warn_left_out
from longtail.data.output import open_output

__all__ = ["read_jsonl", "write_jsonl"]

_decoder = msgspec.json.Decoder(Record)


def read_jsonl(path: Path | str, reading: Reading) -> Dataset:
    """Read JSON lines from a file or, with ``-``, from standard input."""
    builder = Builder(path, reading)
    for block in json_blocks(path, _decoder, builder.problems):
        if block.objects is None or not builder.extend(block.objects):
            for number, record in block:
                builder.add(number, record)
    return builder.finish()


def write_jsonl(dataset: Dataset, path: Path | str) -> None:
    """Write a dataset with texts as JSON lines; ``.gz`` and ``.zst`` are compressed, ``-`` is
    standard output.
    """
    warn_left_out(dataset, path, "document ids", "texts", "relevances other than 1", *IN_LABEL_FILE)
    encode = msgspec.json.Encoder().encode
    with open_output(path) as out:
        for row, text in enumerate(dataset.document_texts()):
            record: dict[str, Any] = {} if dataset.ids is None else {"id": dataset.ids[row]}
            record |= {"text": text, "labels": dataset.labels_of(row)}
            relevance = dataset.relevance_of(row)
            if relevance is not None:
                record["relevance"] = relevance
            out.write(encode(record) + b"\n")
