"""Predictions by some shards of a model, as JSON lines, and those of all shards put together again.

A line says beside its labels what decides between them and the labels of other shards: log scores
(or margins, where these are the scores), which tell apart what a probability or a score may not,
and positions on the last level, which decide ties. So the merged predictions are, to the byte,
those of the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
from longtail.data.csr import csr_where
from longtail.data.json_lines import json_blocks
from longtail.data.labels import Labels
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.data.strings import Strings
from longtail.errors import UsageError
from longtail.kernels.search import Beam
from longtail.search.predictions import Predictions
from longtail.search.shards import Shards

__all__ = ["PartialPredictions", "merge_predictions", "write_partial"]


class _Part(msgspec.Struct, frozen=True):
    """The origin of a line, and the order of its labels."""

    shards: list[int]
    of: int
    k: int  # labels that were asked for
    log_scores: list[float]
    positions: list[int]
    model: str = ""  # the beginning of the seal of its folder, where it has one

    @property
    def origin(self) -> tuple[list[int], int, int, str]:
        """The fields that all lines of a file have in common."""
        return self.shards, self.of, self.k, self.model

    @property
    def origin_in_words(self) -> str:
        """The same for messages."""
        return f"shards {self.shards} of {self.of} of model {quoted(self.model)} with -k {self.k}"

    @property
    def model_in_words(self) -> str:
        """The model, for messages."""
        return f"{self.of} shards of model {quoted(self.model)}"


class _Line(msgspec.Struct, frozen=True):
    id: str
    labels: list[str]
    scores: list[float]
    part: _Part


_decoder = msgspec.json.Decoder(_Line)
_SEAL = 16  # digits of a seal that tell models apart


@dataclass(frozen=True, eq=False)
class PartialPredictions:
    """Suggestions for N documents by the labels of some shards, best first."""

    predictions: Predictions
    log_scores: NDArray[np.float32]  # beside the entries of the predictions' matrix
    positions: NDArray[np.int32]
    shards: Shards
    k: int

    @classmethod
    def of(
        cls,
        beam: Beam,
        ranked: sparse.csr_array,
        threshold: float,
        labels: Labels,
        ids: Strings | None,
        shards: Shards,
        k: int,
    ) -> PartialPredictions:
        """Take the best nodes and the (n, L) scores of their labels.

        Those below ``threshold`` are left out, unless it is 0.
        """
        _, positions, log_scores = beam
        kept = ranked.data >= (threshold or -np.inf)
        finite = np.maximum(log_scores[kept], np.finfo(np.float32).min)  # JSON has no −∞
        return cls(
            Predictions(csr_where(ranked, kept), labels, ids), finite, positions[kept], shards, k
        )


def write_partial(partial: PartialPredictions, path: Path | str) -> None:
    """Write one JSON line a document: what ``longtail predict`` writes, and what a merge needs."""
    encode = msgspec.json.Encoder().encode
    ends = partial.predictions.matrix.indptr.tolist()
    origin = (partial.shards.numbers, partial.shards.n_shards, partial.k)
    model = partial.shards.seal[:_SEAL]
    with open_output(path) as out:
        for row in range(len(partial.predictions)):
            here = slice(ends[row], ends[row + 1])
            part = _Part(
                *origin, partial.log_scores[here].tolist(), partial.positions[here].tolist(), model
            )
            out.write(encode(_Line(*partial.predictions.line(row), part)) + b"\n")


def merge_predictions(
    paths: Sequence[Path | str], output: Path | str, k: int | None = None
) -> None:
    """Write the predictions of the whole model from those of all its shards, each in one of the
    files.

    The ``k`` best labels of a document are kept; None: as many as were asked for when the files
    were made."""
    # whose bytes are counted where they are read
    with reporting.stage("merging", _size(paths), "B"):
        _merge(paths, output, k)


def _merge(paths: Sequence[Path | str], output: Path | str, k: int | None) -> None:
    encode = msgspec.json.Encoder().encode
    rows = _rows(paths)
    first = list(islice(rows, 1))
    for lines in first:
        most = _checked(paths, lines)
        k = most if k is None else k
        if k > most:
            raise UsageError(
                f"-k {k}: the files were made with -k {most}; "
                "make them with more, or ask for fewer here"
            )
    with open_output(output) as out:
        for lines in chain(first, rows):
            entries = [entry for line in lines for entry in _entries(line)]
            best = sorted(entries)[:k]
            labels = [entry[2] for entry in best]
            scores = [entry[3] for entry in best]
            out.write(encode({"id": lines[0].id, "labels": labels, "scores": scores}) + b"\n")


def _size(paths: Sequence[Path | str]) -> int | None:
    """Return the bytes of all files; None where one is a pipe, or is not there."""
    try:
        return sum(Path(path).stat().st_size for path in paths)
    except OSError:
        return None


def _entries(line: _Line) -> Iterator[tuple[float, int, str, float]]:
    """Yield the labels of a line, each behind what it is ranked by."""
    scores = (-score for score in line.part.log_scores)
    return zip(scores, line.part.positions, line.labels, line.scores, strict=True)


def _rows(paths: Sequence[Path | str]) -> Iterator[tuple[_Line, ...]]:
    """Yield the lines of each document, one a file."""
    ledgers = [Problems(path) for path in paths]
    files = [_lines(path, problems) for path, problems in zip(paths, ledgers, strict=True)]
    for numbered in zip_longest(*files):
        number = max(entry[0] for entry in numbered if entry is not None)
        for entry, problems in zip(numbered, ledgers, strict=True):
            if entry is None:
                problems.fatal(
                    "fewer lines than in the other files",
                    "one for each document in every file",
                    number,
                )
        lines = tuple(entry[1] for entry in numbered if entry is not None)
        for line, problems in zip(lines, ledgers, strict=True):
            if line.id != lines[0].id:
                expected = f"{quoted(lines[0].id)} as in {paths[0]}"
                problems.fatal(
                    f"document {quoted(line.id)}",
                    f"{expected}: the same documents in the same order",
                    number,
                )
        yield lines


def _lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, _Line]]:
    first: _Part | None = None
    for block in json_blocks(path, _decoder, problems):
        if block.first_line == 1 and block.objects is None:
            _check_kind(block.data, problems)
        for number, line in block:
            if problems.skipped:  # without it all lines after it would be those of other documents
                problems.close()
            first = first or line.part
            part = line.part
            sizes = {
                len(line.labels),
                len(line.scores),
                len(line.part.log_scores),
                len(line.part.positions),
            }
            if len(sizes) > 1:
                problems.fatal(
                    "lists of different lengths",
                    "a score, log score and position of each label",
                    number,
                )
            if part.origin != first.origin:
                expected = f"{first.origin_in_words}, as in the lines before"
                problems.fatal(part.origin_in_words, expected, number)
            yield number, line
    problems.close()


def _check_kind(data: bytes, problems: Problems) -> None:
    """Refuse another kind of file at its first line, where all lines would be told to be wrong."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        if "part" not in msgspec.json.decode(data.partition(b"\n")[0], type=dict[str, Any]):
            problems.fatal(
                "no field 'part'", "a file that `longtail predict --shards` has written", 1
            )


def _checked(paths: Sequence[Path | str], lines: Sequence[_Line]) -> int:
    """Return how many labels all files have; refuse files that are not all shards of one model,
    each once.
    """
    owners: dict[int, Path | str] = {}
    for path, line in zip(paths, lines, strict=True):
        part = line.part
        first = lines[0].part
        if (part.of, part.model) != (first.of, first.model):
            raise UsageError(
                f"{path}: is of {part.model_in_words}; expected {first.model_in_words}, "
                f"as in {paths[0]}: predictions of one model"
            )
        for shard in line.part.shards:
            if shard in owners:
                raise UsageError(
                    f"{path}: shard {shard}, which is in {owners[shard]}, too; give each shard once"
                )
            owners[shard] = path
    missing = sorted(set(range(lines[0].part.of)) - set(owners))
    if missing:
        files = ", ".join(map(str, paths))
        numbers = ", ".join(map(str, missing))
        raise UsageError(
            f"{files}: shard {numbers} is in none of the files; "
            "make its predictions with longtail predict --shards"
        )
    return min(line.part.k for line in lines)
