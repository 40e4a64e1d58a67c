"""What no reader may trip over: a table of bad inputs, each with the one result that it has."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import bad_input_archives
import bad_input_benchmarks
import bad_input_labels
import bad_input_texts
import pytest
from bad_input import KINDS, MORE_KINDS, Case, LongLine

from longtail.data import lines
from longtail.data.formats import FORMATS, read, read_features
from longtail.data.label_files import read_labels
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.data.xmc_bow import read_filter
from longtail.errors import DataError, LongtailError, UsageError
from longtail.search.predictions import read_predictions

CASES: list[Case] = [
    case
    for table in (bad_input_texts, bad_input_benchmarks, bad_input_labels, bad_input_archives)
    for case in table.CASES
]
PROBLEM = re.compile(r"[\w./-]+(:[1-9]\d*)?: \S.*; expected \S.*")
WAY_OUT = re.compile(r"\d+ bad records?; mend the file(, or go on with --skip-bad \d+|: it is read whole or not at all)")


class Endless:
    """A stream of a :class:`LongLine`, each part of which is made when it is asked for."""

    def __init__(self, content: LongLine) -> None:
        self._before, self._left, self._after = content.before, content.size, content.after

    def read1(self, size: int) -> bytes:
        if self._before:
            part, self._before = self._before[:size], self._before[size:]
        elif self._left:
            part = b"a" * min(size, self._left)
            self._left -= len(part)
        else:
            part, self._after = self._after[:size], self._after[size:]
        return part


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Return the function that makes the files of a case and returns what is to be read."""
    opened, endless = lines._opened, {}
    monkeypatch.setattr(
        lines, "_opened", lambda path: nullcontext(Endless(endless[str(path)])) if str(path) in endless else opened(path)
    )
    monkeypatch.chdir(tmp_path)

    def make(case):
        for name, content in case.files.items():
            Path(name).parent.mkdir(exist_ok=True)
            if isinstance(content, LongLine):
                endless[name], content = content, b""
            Path(name).write_bytes(content() if callable(content) else content)
        first = next(iter(case.files))
        return Path(first).parts[0] if case.format in FORMATS and FORMATS[case.format].folder else first

    return make


def rows(matrix):
    """Return each row of a CSR matrix as column → value."""
    ends, columns, values = (part.tolist() for part in (matrix.indptr, matrix.indices, matrix.data))
    return [dict(zip(columns[a:b], values[a:b], strict=True)) for a, b in zip(ends, ends[1:], strict=False)]


def documents(dataset):
    """Return (text, features or both, labels) of each document, labels with relevances where these are not all 1."""
    features = rows(dataset.features) if dataset.features is not None else [None] * len(dataset)
    texts = dataset.texts if dataset.texts is not None else [None] * len(dataset)
    found = []
    for row, (text, vector) in enumerate(zip(texts, features, strict=True)):
        content = [part for part in (text, vector) if part is not None]
        labels, relevance = dataset.labels_of(row), dataset.relevance_of(row)
        found.append((*content, labels if relevance is None else dict(zip(labels, relevance, strict=True))))
    return found


def take(case, path, **more):
    """Read a case; return what is in it, comparable, and how many labels were merged and dropped."""
    options = {**case.options, **more}
    if case.format == "labels":
        return [(label.id, label.name) for label in read_labels(path, **options)], (0, 0)
    if case.format == "predictions":
        found = read_predictions(path, Labels.of(["a", "b"]), **{"ids": Strings.of(["1", "2"]), **options})
        return [[label.id for label in found[row]] for row in range(len(found))], (0, 0)
    if case.format == "filter":
        return read_filter(path, n_documents=2, n_labels=3).tolist(), (0, 0)
    if case.format == "features":
        return rows(read_features(path)), (0, 0)
    dataset = read(path, format=case.format, **options)
    return documents(dataset), (dataset.merged_duplicates, dataset.dropped_unknown)


def refusal(case, path, **more):
    with pytest.raises(LongtailError) as caught:
        take(case, path, **more)
    return caught.value


def table(*kinds, **fields):
    """Return the mark that runs a test on the cases of these kinds, or of all, whose fields are as given."""
    cases = [case for case in CASES if not kinds or case.kind in kinds]
    cases = [case for case in cases if all(bool(getattr(case, name)) == value for name, value in fields.items())]
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


@table(problems=False)
def test_it_is_read(case, put):
    assert take(case, put(case)) == (case.documents, case.counts)


@table(problems=True)
def test_it_is_refused(case, put):
    error = refusal(case, put(case))
    assert type(error) is {2: UsageError, 3: DataError}[case.exit_code]
    assert error.exit_code == case.exit_code
    said = str(error).split("\n")
    assert said[: len(case.problems)] == list(case.problems)
    assert len(said) <= len(case.problems) + 1
    if case.exit_code == 3:
        assert all(map(PROBLEM.fullmatch, case.problems))
        assert all(map(WAY_OUT.fullmatch, said[len(case.problems) :]))


@table(problems=True, rest=True)
def test_the_good_records_are_read_when_the_bad_ones_may_be_left_out(case, put):
    path, bad = put(case), len(case.problems)
    assert take(case, path, skip_bad=bad) == (case.rest, case.counts)
    error = refusal(case, path, skip_bad=bad - 1)
    said = f"{bad} bad record{'s' if bad > 1 else ''}; mend the file, or go on with --skip-bad {bad}"
    assert str(error).split("\n") == [*case.problems, said]


@table("bomb", problems=True)
def test_a_bomb_is_refused_at_once(case, put):
    path = put(case)
    started = time.process_time()
    refusal(case, path)
    assert time.process_time() - started < 2


@table("long line")
def test_a_long_line_does_not_fill_the_memory(case, put):
    path = put(case)
    tracemalloc.start()
    try:
        refusal(case, path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * lines.MAX_LINE
