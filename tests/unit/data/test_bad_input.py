"""What no reader may trip over: a table of bad inputs, each with the one result that it has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import bad_input_archives
import bad_input_benchmarks
import bad_input_labels
import bad_input_texts
import pytest
from bad_input import KINDS, MORE_KINDS, Case, LongLine

import longtail
from longtail.data import lines
from longtail.data.formats import FORMATS
from longtail.data.label_files import read_labels
from longtail.data.labels import Labels
from longtail.data.reading import read, read_features
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
WAY_OUT = re.compile(
    r"(more than )?\d+ bad records?; correct the file"
    r"(, or go on with --skip-bad (\d+|N)|: it is read whole or not at all)"
)


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

    def open_any(path):
        return nullcontext(Endless(endless[str(path)])) if str(path) in endless else opened(path)

    monkeypatch.setattr(lines, "_opened", open_any)
    monkeypatch.chdir(tmp_path)

    def make(case):
        for name, content in case.files.items():
            Path(name).parent.mkdir(exist_ok=True)
            if isinstance(content, LongLine):
                endless[name], content = content, b""
            Path(name).write_bytes(content() if callable(content) else content)
        first = next(iter(case.files))
        return (
            Path(first).parts[0]
            if case.format in FORMATS and FORMATS[case.format].folder
            else first
        )

    return make


def rows(matrix):
    """Return each row of a CSR matrix as column → value."""
    ends, columns, values = (part.tolist() for part in (matrix.indptr, matrix.indices, matrix.data))
    return [dict(zip(columns[a:b], values[a:b], strict=True)) for a, b in pairwise(ends)]


def documents(dataset):
    """Return (text, features or both, labels) of each document, labels with relevances where these are not all 1."""
    features = rows(dataset.features) if dataset.features is not None else [None] * len(dataset)
    texts = dataset.texts if dataset.texts is not None else [None] * len(dataset)
    found = []
    for row, (text, vector) in enumerate(zip(texts, features, strict=True)):
        content = [part for part in (text, vector) if part is not None]
        labels, relevance = dataset.labels_of(row), dataset.relevance_of(row)
        found.append(
            (*content, labels if relevance is None else dict(zip(labels, relevance, strict=True)))
        )
    return found


def take(case, path, **more):
    """Read a case; return what is in it, comparable, and how many labels were merged and dropped."""
    options = {**case.options, **more}
    if case.format == "labels":
        return [(label.id, label.name) for label in read_labels(path, **options)], (0, 0)
    if case.format == "predictions":
        found = read_predictions(
            path, Labels.of(["a", "b"]), **{"ids": Strings.of(["1", "2"]), **options}
        )
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


def assert_refused(case, error):
    """Check that an error says what the case says, each problem in a line of its own, and the way out in a last one."""
    assert type(error) is {2: UsageError, 3: DataError}[case.exit_code]
    assert error.exit_code == case.exit_code
    said = str(error).split("\n")
    assert said[: len(case.problems)] == list(case.problems)
    assert len(said) <= len(case.problems) + 1
    if case.exit_code == 3:
        assert all(map(PROBLEM.fullmatch, case.problems))
        assert all(map(WAY_OUT.fullmatch, said[len(case.problems) :]))


def table(condition):
    """Return the mark that runs a test on some cases."""
    cases = list(filter(condition, CASES))
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


@table(lambda case: case.documents is not None)
def test_it_is_read(case, put):
    assert take(case, put(case)) == (case.documents, case.counts)


@table(lambda case: case.problems and case.kind not in ("bomb", "long line"))
def test_it_is_refused(case, put):
    assert_refused(case, refusal(case, put(case)))


@table(lambda case: case.rest is not None)
def test_the_good_records_are_read_when_the_bad_ones_may_be_left_out(case, put):
    path, bad = put(case), len(case.problems)
    assert take(case, path, skip_bad=bad) == (case.rest, case.counts)
    if bad > 1:  # with one, it is refused as above
        error = refusal(case, path, skip_bad=bad - 1)
        way_out = f"{bad} bad records; correct the file, or go on with --skip-bad {bad}"
        assert str(error).split("\n") == [*case.problems, way_out]


@table(lambda case: case.problems and case.kind == "bomb")
def test_a_bomb_is_refused_at_once(case, put):
    path = put(case)
    started = time.process_time()
    error = refusal(case, path)
    assert (
        time.process_time() - started < 10
    )  # to read it all would take far longer, also where cores are shared
    assert_refused(case, error)


@table(lambda case: case.kind == "long line")
def test_a_long_line_does_not_fill_the_memory(case, put):
    path = put(case)
    tracemalloc.start()
    try:
        error = refusal(case, path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * lines.MAX_LINE
    assert_refused(case, error)


def test_the_table_has_every_format_and_every_kind():
    formats, kinds = (Counter(getattr(case, name) for case in CASES) for name in ("format", "kind"))
    assert set(formats) == {*FORMATS, "labels", "predictions", "filter", "features"}
    assert set(kinds) == KINDS | MORE_KINDS
    assert min(formats.values()) >= 10
    assert len(CASES) == len({case.name for case in CASES}) >= 300


@pytest.mark.parametrize("format", FORMATS)
def test_the_table_has_the_common_kinds_for_every_format(format):
    kinds = {case.kind for case in CASES if case.format == format}
    common = {
        "unknown label",
        "duplicate label",
        "missing fields",
        "empty text",
        "empty file",
        "NUL",
    }
    assert kinds >= common | {
        "truncated",
        "bomb",
        *({"BOM", "CRLF", "long line"} if format != "parquet" else ()),
    }


@pytest.mark.parametrize("bad", [20, 21, 30])
def test_at_most_20_problems_are_shown(tmp_path, monkeypatch, bad):
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_bytes(bad_input_texts.jsonl.before + b"x\n" * bad)
    with pytest.raises(DataError) as caught:
        read("bad.jsonl")
    *shown, way_out = str(caught.value).split("\n")
    assert [line.split(" ")[0] for line in shown] == [f"bad.jsonl:{line}:" for line in range(2, 22)]
    exact, more = f"{bad} bad records", "more than 20 bad records"
    assert way_out == (
        f"{exact}; correct the file, or go on with --skip-bad {bad}"
        if bad == 20
        else f"{more}; correct the file, or go on with --skip-bad N"
    )
    assert len(read("bad.jsonl", skip_bad=bad)) == 1
    with pytest.raises(DataError):
        read("bad.jsonl", skip_bad=bad - 1)


def test_bad_labels_of_a_label_file_may_be_left_out_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("good.jsonl").write_bytes(bad_input_archives.GOOD)
    Path("labels.jsonl").write_bytes(b'{"id": "a"}\n{"id": "b"}\n{"name": "x"}\n')
    assert read("good.jsonl", labels="labels.jsonl", skip_bad=1).n_labels == 2
    with pytest.raises(
        DataError, match=r"^labels.jsonl:3: no field 'id'; .*\n1 bad record; .* --skip-bad 1$"
    ):
        read("good.jsonl", labels="labels.jsonl")


def test_features_are_taken_whole(tmp_path):
    (tmp_path / "bad.bow").write_bytes(b"1 3 0\n 1:nan\n")
    with pytest.raises(
        DataError, match=r"1 bad record; correct the file: it is read whole or not at all$"
    ):
        read_features(tmp_path / "bad.bow")


COMMANDS = {
    "jsonl-wrong-types-label",
    "jsonl-wrong-JSON-one-list",
    "jsonl-truncated-gzip-30",
    "lf-unknown-label-closed",
}


def run(*command):
    environment = os.environ | {"PYTHONPATH": str(Path(longtail.__file__).parents[1])}
    whole = [sys.executable, "-m", "longtail", *command]
    return subprocess.run(
        whole, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
    )


@table(lambda case: case.name in COMMANDS)
def test_the_command_says_the_same(case, put):
    path, options = put(case), []
    if "labels" in case.options:
        Path("labels.txt").write_text("".join(f"{label}\n" for label in case.options["labels"].ids))
        options = ["--labels", "labels.txt"]
    done = run("check", path, *options)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.removeprefix("longtail: ") == f"{refusal(case, path)}\n"
    if case.rest:
        done = run("check", path, *options, "--skip-bad", str(len(case.problems)), "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["description"]["documents"] == len(case.rest)
