"""Documents read in several ways that must agree, and written and read again."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracles

from longtail.data.builder import Reading
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import DataError, LongtailError

__all__ = [
    "MANY",
    "VOCABULARY",
    "Reader",
    "Writer",
    "read",
    "rewritten",
    "seldom",
    "set_seldom",
    "without_bad_lines",
    "written",
]

MANY = 10**6  # bad records that may be skipped
VOCABULARY = Labels.of(["a", "b", "http://e.x/a", "0", "1", "blue", "é"])
_one_in = 1
Reader = Callable[[Path, Reading], Dataset]
Writer = Callable[[Dataset, Path], None]


def set_seldom(one_in: int) -> None:
    """Ask for the costly second opinions on one input in as many."""
    global _one_in
    _one_in = one_in


def seldom(data: bytes) -> bool:
    """Tell whether this input is to have the costly second opinions."""
    return zlib.crc32(data) % _one_in == 0


def read(reader: Reader, path: Path, data: bytes) -> Dataset | None:
    """Return what is read when bad records are skipped; now and then, read in other ways that must
    agree.
    """
    lenient = oracles.outcome(reader, path, Reading(skip_bad=MANY))
    if isinstance(lenient, Dataset):
        oracles.check_dataset(lenient)
    if seldom(data):
        strict = oracles.outcome(reader, path, Reading())
        assert isinstance(strict, LongtailError) or oracles.same(strict, lenient), (
            "skip_bad changes what is good"
        )
        with oracles.small_chunks(4 + zlib.crc32(data) % 40):
            _agree(lenient, oracles.outcome(reader, path, Reading(skip_bad=MANY)))
        _read_otherwise(reader, path, lenient)
    return lenient if isinstance(lenient, Dataset) else None


def _agree(a: Any, b: Any) -> None:
    """Two outcomes are the same dataset, or both refusals."""
    if isinstance(a, Dataset) and isinstance(b, Dataset):
        assert oracles.same(a, b)
    else:
        assert isinstance(a, LongtailError) and isinstance(b, LongtailError), f"{a} but {b}"  # noqa: PT018


def _read_otherwise(reader: Reader, path: Path, lenient: Any) -> None:
    """Read over a given vocabulary and without labels."""
    for unknown in ("error", "drop", "add"):
        result = oracles.outcome(
            reader, path, Reading(labels=VOCABULARY, unknown=unknown, skip_bad=MANY)
        )
        if not isinstance(result, Dataset):
            continue
        oracles.check_dataset(result)
        assert isinstance(lenient, Dataset)
        assert list(result.labels.ids)[: len(VOCABULARY)] == list(VOCABULARY.ids)
        if unknown == "add":
            assert [set(result.labels_of(row)) for row in range(len(result))] == [
                set(lenient.labels_of(row)) for row in range(len(lenient))
            ]
        if unknown == "drop":
            assert result.texts == lenient.texts
            assert result.label_matrix.nnz + result.dropped_unknown >= lenient.label_matrix.nnz
    result = oracles.outcome(reader, path, Reading(labelled=False, skip_bad=MANY))
    if isinstance(result, Dataset):
        oracles.check_dataset(result)
    else:
        assert not isinstance(lenient, Dataset), f"unlabelled reading refuses: {result}"


def without_bad_lines(reader: Reader, path: Path, data: bytes, lenient: Dataset) -> set[int] | None:
    """Read again without the lines that were called bad: the rest is good and the same; return
    those lines.
    """
    strict = oracles.outcome(reader, path, Reading())
    if isinstance(strict, Dataset):
        return set()
    plain = oracles.reference_plain(data)
    if plain is None or not isinstance(strict, DataError):
        return None
    bad = {problem.line for problem in strict.problems}
    if isinstance(oracles.outcome(reader, path, Reading(skip_bad=len(bad))), LongtailError):
        return None  # more than are shown, or nothing is good
    path.write_bytes(oracles.without_lines(plain, bad))
    _agree(lenient, oracles.outcome(reader, path, Reading()))
    return bad


def written(reader: Reader, write: Writer, dataset: Dataset, path: Path, exact: bool) -> None:
    """What is written reads back: as it was where ``exact``, else as it was written the first time."""
    first = rewritten(reader, write, dataset, path)
    if first is None:
        return
    ids = exact and (
        dataset.ids is None or "" not in list(dataset.ids)
    )  # a table says with "" that there is none
    if exact:
        assert oracles.same(first, dataset, ids=ids), f"{dataset!r} reads back as {first!r}"
    else:
        second = rewritten(reader, write, first, path)
        assert second is not None
        assert oracles.same(first, second), f"{first!r} reads back as {second!r}"


def rewritten(reader: Reader, write: Writer, dataset: Dataset, path: Path) -> Dataset | None:
    """Write and read; the writer may refuse."""
    if isinstance(oracles.outcome(write, dataset, path), LongtailError):
        return None
    result = oracles.outcome(reader, path, Reading())
    nothing = isinstance(result, DataError) and result.problems[0].found == "no document"
    assert isinstance(result, Dataset) or nothing, f"what was written does not read back: {result}"
    return result if isinstance(result, Dataset) else None
