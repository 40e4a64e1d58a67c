"""JSON lines: ``{"id"?, "title"?, "text", "labels": [...], "relevance"?}``, the first format of Longtail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.lines import Block, blocks
from longtail.data.output import open_output
from longtail.data.problems import quoted

__all__ = ["json_problem", "read_jsonl", "write_jsonl"]

_decoder = msgspec.json.Decoder(Record)
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONE_SURROGATE = re.compile(rb"\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|[c-fC-F])")


def read_jsonl(path: Path | str, reading: Reading) -> Dataset:
    """Read JSON lines from a file or, with ``-``, from standard input."""
    builder = Builder(path, reading)
    for block in blocks(path, builder.problems):
        try:
            taken = builder.extend(_decoder.decode_lines(block.data))
        except _MALFORMED:
            taken = False
        if not taken:
            _read_slowly(block, builder)
    return builder.finish()


def _read_slowly(block: Block, builder: Builder) -> None:
    """Read a block that holds something unusual line by line, so that a bad record is named by its line."""
    for number, line in enumerate(block.data.split(b"\n")[:-1], block.first_line):
        if not line.strip():
            continue
        try:
            record = _decoder.decode(line)
        except _MALFORMED as error:
            builder.problems.add(number, *json_problem(line, error))
        else:
            builder.add(number, record)


def json_problem(line: bytes, error: Exception) -> tuple[str, str]:
    """Return (found, expected) for a line that ``error`` says is not the JSON object it should be."""
    if isinstance(error, msgspec.ValidationError):
        wrong = re.fullmatch(r"Expected `(.*)`, got `(.*)`(?: - at `\$\.?(.*)`)?", str(error))
        if wrong:
            field = f" in '{wrong[3]}'" if wrong[3] else ""
            return f"{_word(wrong[2])}{field}", _word(wrong[1])
        return str(error), "a JSON object with 'text' and 'labels'"
    if isinstance(error, UnicodeDecodeError):
        return f"a byte that is not UTF-8 ({quoted(error.object[error.start : error.end])})", "UTF-8 text"
    if isinstance(error, RecursionError):
        return "JSON nested too deeply", "a flat JSON object"
    if _LONE_SURROGATE.search(line):
        return "half of a surrogate pair (\\ud800 to \\udfff alone)", "whole characters"
    return f"{str(error).removeprefix('JSON is malformed: ')} in {quoted(line)}", "one JSON object a line"


def _word(json_type: str) -> str:
    """Return a msgspec type expression in plain words."""
    names = {"str": "a string", "int": "a number", "float": "a number", "bool": "true or false"}
    names |= {"object": "a JSON object", "array": "a list"}
    parts = [names.get(part, part) for part in json_type.split(" | ") if part != "null"]
    return " or ".join(dict.fromkeys(parts)) or "null"


def write_jsonl(dataset: Dataset, path: Path | str) -> None:
    """Write a dataset with texts as JSON lines; ``.gz`` and ``.zst`` are compressed, ``-`` is standard output."""
    encode = msgspec.json.Encoder().encode
    with open_output(path) as out:
        for row, text in enumerate(dataset.document_texts()):
            record: dict[str, Any] = {} if dataset.ids is None else {"id": dataset.ids[row]}
            record |= {"text": text, "labels": dataset.labels_of(row)}
            relevance = dataset.relevance_of(row)
            if relevance is not None:
                record["relevance"] = relevance
            out.write(encode(record) + b"\n")
