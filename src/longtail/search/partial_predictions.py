"""Predictions by some shards of a model, as JSON lines, and those of all shards put together again.

A line says beside its labels what decides between them and the labels of other shards: log scores, which tell apart
what a probability or a score may not, and positions on the last level, which decide ties. So the merged predictions
are, to the byte, those of the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of
from longtail.data.json_lines import json_blocks
from longtail.data.labels import Labels
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.data.strings import Strings
from longtail.errors import UsageError
from longtail.search.predictions import Predictions
from longtail.search.shards import Beam, Shards

__all__ = ["PartialPredictions", "merge_predictions", "write_partial"]


class _Part(msgspec.Struct, frozen=True):
    """What a line says of where it comes from, and of each of its labels."""

    shards: list[int]
    of: int
    k: int  # labels that were asked for
    log_scores: list[float]
    positions: list[int]


class _Line(msgspec.Struct, frozen=True):
    id: str
    labels: list[str]
    scores: list[float]
    part: _Part


_decoder = msgspec.json.Decoder(_Line)


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
        found: Beam,
        ranked: sparse.csr_array,
        threshold: float,
        labels: Labels,
        ids: Strings | None,
        shards: Shards,
        k: int,
    ) -> PartialPredictions:
        """Take the nodes that were found and the (n, L) scores of their labels; those below ``threshold`` go."""
        ptr, positions, log_scores = found
        kept = ranked.data >= threshold
        ends = np.concatenate([[0], np.cumsum(kept)])[ptr]
        matrix = csr_of(ranked.data[kept], ranked.indices[kept], ends, len(labels))
        finite = np.maximum(log_scores[kept], np.finfo(np.float32).min)  # JSON has no −∞
        return cls(Predictions(matrix, labels, ids), finite, positions[kept], shards, k)


def write_partial(partial: PartialPredictions, path: Path | str) -> None:
    """Write one JSON line a document: what ``longtail predict`` writes, and what a merge needs."""
    encode, ends = msgspec.json.Encoder().encode, partial.predictions.matrix.indptr.tolist()
    numbers, count = partial.shards.numbers, partial.shards.n_shards
    with open_output(path) as out:
        for row in range(len(partial.predictions)):
            scored, here = partial.predictions[row], slice(ends[row], ends[row + 1])
            ids = partial.predictions.ids
            part = _Part(numbers, count, partial.k, partial.log_scores[here].tolist(), partial.positions[here].tolist())
            name, labels = ids[row] if ids is not None else str(row), [label.id for label in scored]
            out.write(encode(_Line(name, labels, [label.score for label in scored], part)) + b"\n")


def merge_predictions(paths: Sequence[Path | str], output: Path | str, k: int | None = None) -> None:
    """Write the predictions of the whole model from those of all its shards, each in one of the files.

    The ``k`` best labels of a document are kept; None: as many as were asked for when the files were made.
    """
    encode = msgspec.json.Encoder().encode
    rows = _rows(paths)
    first = next(rows, None)
    most = 0 if first is None else _checked(paths, first)
    if first is not None and k is not None and k > most:
        raise UsageError(f"-k {k}: the files were made with -k {most}; make them with more, or ask for fewer here")
    with open_output(output) as out:
        for lines in chain([] if first is None else [first], rows):
            entries = [entry for line in lines for entry in _entries(line)]
            best = sorted(entries)[: most if k is None else k]
            labels, scores = [entry[2] for entry in best], [entry[3] for entry in best]
            out.write(encode({"id": lines[0].id, "labels": labels, "scores": scores}) + b"\n")


def _entries(line: _Line) -> Iterator[tuple[float, int, str, float]]:
    """Yield the labels of a line, each behind what it is ranked by."""
    scores = (-score for score in line.part.log_scores)
    return zip(scores, line.part.positions, line.labels, line.scores, strict=True)


def _rows(paths: Sequence[Path | str]) -> Iterator[tuple[_Line, ...]]:
    """Yield the lines of each document, one a file."""
    ledgers = [Problems(path) for path in paths]
    files = [_lines(path, problems) for path, problems in zip(paths, ledgers, strict=True)]
    for found in zip_longest(*files):
        line = max(own[0] for own in found if own is not None)
        for own, problems in zip(found, ledgers, strict=True):
            if own is None:
                problems.fatal("fewer lines than in the other files", "one for each document in every file", line)
        lines = tuple(own[1] for own in found if own is not None)
        for own, problems in zip(lines, ledgers, strict=True):
            if own.id != lines[0].id:
                wanted = f"{quoted(lines[0].id)} as in {paths[0]}: the same documents in the same order"
                problems.fatal(f"document {quoted(own.id)}", wanted, line)
        yield lines


def _lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, _Line]]:
    first: _Part | None = None
    for block in json_blocks(path, _decoder, problems):
        for number, line in block:
            if problems.skipped:  # without it all lines after it would be those of other documents
                problems.close()
            first, part = first or line.part, line.part
            sizes = {len(line.labels), len(line.scores), len(line.part.log_scores), len(line.part.positions)}
            if len(sizes) > 1:
                problems.fatal("lists of different lengths", "a score, log score and position of each label", number)
            if (part.shards, part.of, part.k) != (first.shards, first.of, first.k):
                found, wanted = (f"shards {own.shards} of {own.of} with -k {own.k}" for own in (part, first))
                problems.fatal(found, f"{wanted}, as in the lines before", number)
            yield number, line
    problems.close()


def _checked(paths: Sequence[Path | str], lines: Sequence[_Line]) -> int:
    """Return how many labels all files have; refuse files that are not all shards of one model, each once."""
    owners: dict[int, Path | str] = {}
    for path, line in zip(paths, lines, strict=True):
        if line.part.of != lines[0].part.of:
            found, other = f"shards of a model that has {line.part.of}", f"{lines[0].part.of} as in {paths[0]}"
            raise UsageError(f"{path}: {found}; expected {other}: predictions of one model")
        for shard in line.part.shards:
            if shard in owners:
                raise UsageError(f"{path}: shard {shard}, which is in {owners[shard]}, too; give each shard once")
            owners[shard] = path
    missing = sorted(set(range(lines[0].part.of)) - set(owners))
    if missing:
        raise UsageError(
            f"{', '.join(map(str, paths))}: shard {', '.join(map(str, missing))} is in none of the files; "
            "make its predictions with longtail predict --shards"
        )
    return min(line.part.k for line in lines)
