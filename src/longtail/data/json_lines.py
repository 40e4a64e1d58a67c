"""Lines of JSON, many at a time where they are plain, one by one where something is wrong with
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import numpy as np

from longtail.data.lines import Block, blocks
from longtail.data.problems import Problems, not_utf8, quoted

__all__ = ["LINES_OF_A_LIST", "JsonBlock", "json_blocks"]

T = TypeVar("T")
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
)
LINES_OF_A_LIST = "one JSON object a line; jq -c '.[]' makes lines of a list"
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


def json_blocks(
    path: Path | str, decoder: msgspec.json.Decoder[T], problems: Problems
) -> Iterator[JsonBlock[T]]:
    """Yield the lines of a file block by block, decoded."""
    for number, block in enumerate(blocks(path, problems)):
        if number == 0:
            _check_first_line(block, problems, path)
        yield JsonBlock(block, decoder, problems, path)


def _check_first_line(block: Block, problems: Problems, path: Path | str) -> None:
    """Stop at a file that begins like pretty-printed JSON: each of its lines would be a problem."""
    first = block.data.lstrip().partition(b"\n")[0].strip()
    if first == b"[":
        problems.fatal("a list over several lines", LINES_OF_A_LIST, block.first_line, path)
    if first == b"{":
        expected = "one JSON object a line; jq -c . makes lines of them"
        problems.fatal("a JSON object over several lines", expected, block.first_line, path)


class JsonBlock(Generic[T]):
    """The objects of one block of lines; iterating gives (line number, object) and reports the bad
    lines.
    """

    def __init__(
        self, block: Block, decoder: msgspec.json.Decoder[T], problems: Problems, path: Path | str
    ) -> None:
        self.first_line, self.data = block
        self._decoder = decoder
        self._problems = problems
        self._path = path

    @cached_property
    def objects(self) -> list[T] | None:
        """The objects of all lines, where each holds one good object and nothing else."""
        try:
            objects = self._decoder.decode_lines(self.data)
        except _MALFORMED:
            return None
        if _one_a_line(self.data, len(objects)):
            return objects
        return None

    def __iter__(self) -> Iterator[tuple[int, T]]:
        if self.objects is not None:
            yield from enumerate(self.objects, self.first_line)
            return
        for number, line in enumerate(self.data.split(b"\n")[:-1], self.first_line):
            if not line.strip():
                continue
            try:
                decoded = self._decoder.decode(line)
            except _MALFORMED as error:
                self._problems.add(number, *_json_problem(line, error), self._path)
            else:
                yield number, decoded


def _one_a_line(data: bytes, count: int) -> bool:
    """Tell whether the ``count`` objects that decode_lines found in ``data`` stand on a line each.

    It also takes an object over several lines and several on one. But inside JSON no ``{`` follows
    a ``}``: where every line begins with one and ends with the other, every newline stands between
    two objects."""
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == _NEWLINE)
    if len(ends) != count or not count or characters[0] != _OPEN:
        return False
    last = characters[ends - 1]
    last = np.where(last == _RETURN, characters[ends - 2], last)
    return bool((last == _CLOSE).all() and (characters[ends[:-1] + 1] == _OPEN).all())


def _json_problem(line: bytes, error: Exception) -> tuple[str, str]:
    """Return (problem, expected) for a line that is not the JSON object it should be."""
    if isinstance(error, msgspec.ValidationError):
        return _wrong_type(str(error))
    if isinstance(error, UnicodeDecodeError):
        return not_utf8(error)
    if isinstance(error, RecursionError):
        return "JSON nested too deeply", "a flat JSON object"
    return _malformed(line, str(error).removeprefix("JSON is malformed: "))


def _wrong_type(message: str) -> tuple[str, str]:
    """Return (problem, expected) for msgspec's message on JSON of another type."""
    what, _, path = message.partition(" - at `$")
    field = path.strip(".`")
    where = f" in '{field}'" if field else ""
    if wrong := re.fullmatch("Expected `(.*)`, got `(.*)`", what):
        if wrong[2] == "array" and not field:  # a newcomer's first file is often one large list
            return "a list", LINES_OF_A_LIST
        return f"{_word(wrong[2])}{where}", _word(wrong[1])
    if missing := re.fullmatch("Object missing required field `(.*)`", what):
        return f"no field '{missing[1]}'{where}", f"a JSON object with '{missing[1]}'"
    if "range" in what:
        return (f"a number too large{where}", "a finite number")
    return (what + where, "another value")


def _word(json_type: str) -> str:
    """Return a msgspec type expression in plain words."""
    names = {
        "str": "a string",
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
    }
    names |= {"object": "a JSON object", "array": "a list"}
    parts = [names.get(part, part) for part in json_type.split(" | ") if part != "null"]
    return " or ".join(dict.fromkeys(parts)) or "null"


def _malformed(line: bytes, message: str) -> tuple[str, str]:
    """Return (problem, expected) for msgspec's message on what is no JSON."""
    truncated = message == "Input data was truncated"
    if (truncated or "surrogate" in message) and _LONE_SURROGATE.search(line):
        return "half of a surrogate pair (\\ud800 to \\udfff alone)", "whole characters"
    position = re.search(r"\(byte (\d+)\)", message)
    at = int(position[1]) if position else len(line)
    if number := re.match(rb"NaN|Infinity", line[at : at + 8]):
        return f"{number[0].decode()} (byte {at})", "a finite number"
    what = message.replace("expected", "no")
    if truncated:
        what = "JSON that ends too early"
    # not from the middle of a character
    near = line[max(0, at - 30) : at + 240].lstrip(bytes(range(0x80, 0xC0)))
    return f"{what} near {quoted(near)}", "one JSON object a line"
