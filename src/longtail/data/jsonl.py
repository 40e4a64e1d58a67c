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

__all__ = ["json_problem", "one_a_line", "read_jsonl", "write_jsonl"]

_decoder = msgspec.json.Decoder(Record)
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONE_SURROGATE = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")


def read_jsonl(path: Path | str, reading: Reading) -> Dataset:
    """Read JSON lines from a file or, with ``-``, from standard input."""
    builder = Builder(path, reading)
    for block in blocks(path, builder.problems):
        try:
            records = _decoder.decode_lines(block.data)
        except _MALFORMED:
            records = []
        if not one_a_line(block.data, len(records)) or not builder.extend(records):
            _read_slowly(block, builder)
    return builder.finish()


def one_a_line(data: bytes, count: int) -> bool:
    """Tell whether the ``count`` objects that decode_lines found in ``data`` stand on a line each, plainly.

    It also takes an object over several lines and several on one. Inside JSON no ``{`` follows a ``}``, so that
    where they meet two objects do.
    """
    meetings = data.count(b"}\n{") + data.count(b"}\r\n{")
    return data.count(b"\n") == count == meetings + 1


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
        return _wrong_type(str(error))
    if isinstance(error, UnicodeDecodeError):
        return f"a byte that is not UTF-8 ({quoted(error.object[error.start : error.end])})", "UTF-8 text"
    if isinstance(error, RecursionError):
        return "JSON nested too deeply", "a flat JSON object"
    return _malformed(line, str(error).removeprefix("JSON is malformed: "))


def _wrong_type(said: str) -> tuple[str, str]:
    """Return (found, expected) for msgspec's words on JSON that holds something else than it should."""
    what, _, place = said.partition(" - at `$")
    field = place.strip(".`")
    where = f" in '{field}'" if field else ""
    if wrong := re.fullmatch("Expected `(.*)`, got `(.*)`", what):
        if wrong[2] == "array" and not field:  # a newcomer's first file is often one large list
            return "a list", "one JSON object a line; jq -c '.[]' makes lines of a list"
        return f"{_word(wrong[2])}{where}", _word(wrong[1])
    if missing := re.fullmatch("Object missing required field `(.*)`", what):
        return f"no field '{missing[1]}'{where}", f"a JSON object with '{missing[1]}'"
    return (f"a number too large{where}", "a finite number") if "range" in what else (what + where, "another value")


def _word(json_type: str) -> str:
    """Return a msgspec type expression in plain words."""
    names = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false"}
    names |= {"object": "a JSON object", "array": "a list"}
    parts = [names.get(part, part) for part in json_type.split(" | ") if part != "null"]
    return " or ".join(dict.fromkeys(parts)) or "null"


def _malformed(line: bytes, said: str) -> tuple[str, str]:
    """Return (found, expected) for msgspec's words on what is no JSON."""
    truncated = said == "Input data was truncated"
    if (truncated or "surrogate" in said) and _LONE_SURROGATE.search(line):
        return "half of a surrogate pair (\\ud800 to \\udfff alone)", "whole characters"
    place = re.search(r"\(byte (\d+)\)", said)
    at = int(place[1]) if place else len(line)
    if number := re.match(rb"NaN|Infinity", line[at : at + 8]):
        return f"{number[0].decode()} (byte {at})", "a finite number"
    what = "JSON that ends too early" if truncated else said.replace("expected", "no")
    near = line[max(0, at - 30) : at + 240].lstrip(bytes(range(0x80, 0xC0)))  # not from the middle of a character
    return f"{what} near {quoted(near)}", "one JSON object a line"


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
