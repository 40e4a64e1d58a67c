"""Predictions, data, reports and pictures on a disk that fails: the older file stays, and one line
says why.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from failing_disk import CODES, EVERY, FailingDisk, chance, told_in_one_line
from small_disk import small_disk
from trainings import here

import longtail as lt
from folder_contents import contents
from longtail.data import annif
from longtail.data.output import open_output

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for what is open")

FILES = [
    "predictions.jsonl",
    "predictions.jsonl.gz",
    "predictions.jsonl.zst",
    "report.html",
    "curve.png",
]
FILES += ["data.csv", "data.tsv", "data.parquet", "data.jsonl.gz", "data.txt"]
FOLDERS = {
    "lf": "lf",
    "pecos": "pecos",
    "attentionxml": "attentionxml",
    "annif-folder": "annif-folder",
}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with documents and a model of them."""
    folder = tmp_path_factory.mktemp("work")
    documents = lt.sample()[0].take(np.arange(150))
    lt.write(documents, folder / "data.jsonl")
    lt.Longtail("xr-linear").fit(documents).save(folder / "model")
    return folder


def command(work, path):
    """Return what writes ``path``."""
    data = str(work / "data.jsonl")
    if path.name.startswith("predictions"):
        return ["predict", str(work / "model"), data, "-k", "30", "-o", str(path)]
    if path.suffix == ".html":
        return ["evaluate", str(work / "model"), data, "--report", str(path), "--bootstrap", "2"]
    if path.suffix == ".png":
        return ["check", data, "--report", str(path)]
    to = "fasttext" if path.suffix == ".txt" else FOLDERS.get(path.name)
    return ["convert", data, str(path), *(["--to", to] if to else [])]


@pytest.mark.parametrize("name", FILES)
def test_a_fault_at_any_call_leaves_the_older_file(work, tmp_path, monkeypatch, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / "out" / name
    pick = chance(name)
    path.parent.mkdir()
    with monkeypatch.context() as patch:
        rehearsal = FailingDisk(patch, path.parent)
        assert here(command(work, path), tmp_path / "said").code == 0
    whole = path.read_bytes()
    hits = range(1, len(rehearsal.calls) + 1)
    assert len(hits) >= 4  # made, written, synced, put in place
    path.write_bytes(b"older")
    for nth in hits if EVERY else sorted({1, *pick.sample(hits, 2), hits[-2]}):
        code = pick.choice(CODES)
        sticky = pick.random() < 0.5
        with monkeypatch.context() as patch:
            FailingDisk(patch, path.parent, nth=nth, code=code, sticky=sticky)
            ended = here(command(work, path), tmp_path / "said")
        if path.read_bytes() == b"older":
            told_in_one_line(ended, code, path)
        else:  # in place already
            assert path.read_bytes() == whole
            path.write_bytes(b"older")
        assert sticky or [file.name for file in path.parent.iterdir()] == [name], nth
    assert here(command(work, path), tmp_path / "said").code == 0
    assert [file.name for file in path.parent.iterdir()] == [name]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("name", FOLDERS)
def test_a_fault_in_a_format_of_many_files_leaves_no_half_of_one(work, tmp_path, monkeypatch, name):
    path = tmp_path / "out" / name
    pick = chance(name)
    path.parent.mkdir()
    with monkeypatch.context() as patch:
        rehearsal = FailingDisk(patch, path.parent)
        assert here(command(work, path), tmp_path / "said").code == 0
    whole = contents(path)
    hits = range(1, len(rehearsal.calls) + 1)
    for nth in pick.sample(hits, min(60 if EVERY else 6, len(hits))):
        shutil.rmtree(path)
        code = pick.choice(CODES)
        with monkeypatch.context() as patch:
            FailingDisk(patch, path.parent, nth=nth, code=code)
            ended = here(command(work, path), tmp_path / "said")
        assert "Traceback" not in ended.said, ended.said
        assert ended.code in (0, 1, 2), ended
        result = contents(path) if path.exists() else {}
        assert result.items() <= whole.items()
        assert ended.code or result == whole
        path.mkdir(exist_ok=True)


def test_a_full_disk_ends_a_prediction_with_one_line(work, tmp_path):
    with small_disk(tmp_path / "disk", 1 << 13):
        for name in ("p.jsonl", "p.jsonl.gz", "p.jsonl.zst"):
            path = tmp_path / "disk" / name
            ended = here(command(work, path.with_name(f"predictions-{name}")), tmp_path / "said")
            told_in_one_line(ended, errno.ENOSPC, path.with_name(f"predictions-{name}"))
            assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("kind", ["full", "closed", "nobody"])
def test_standard_output_that_takes_nothing(work, kind):
    """A device that is full, no standard output at all, and a reader that has gone, as `head` does."""
    program = [
        sys.executable,
        "-m",
        "longtail",
        "-q",
        "predict",
        str(work / "model"),
        str(work / "data.jsonl"),
    ]
    end = {"full": ">/dev/full", "closed": ">&-", "nobody": "| true"}[kind]
    script = 'set -o pipefail; "$@" ' + end
    done = subprocess.run(
        ["bash", "-c", script, "-", *program], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode == (2 if kind == "closed" else 1)
    assert {"full": "standard output: No space", "closed": "is closed; give a file", "nobody": ""}[
        kind
    ] in done.stderr
    assert done.stderr.count("\n") == (kind != "nobody")


def test_files_of_dead_processes_are_removed_and_those_of_live_ones_are_not(tmp_path):
    path = tmp_path / "out.jsonl"
    ready, report = os.pipe()
    writers = []
    for _ in range(2):
        writers.append(os.fork())
        if not writers[-1]:
            with open_output(path) as file:
                file.write(b"half")
                file.flush()
                os.write(report, b".")
                signal.pause()
            os._exit(0)
        assert os.read(ready, 1) == b"."
    dead, live = writers
    try:
        os.kill(dead, signal.SIGKILL)
        os.waitpid(dead, 0)
        left = {file.name for file in tmp_path.iterdir()}
        assert len(left) == 2
        with open_output(path) as file:
            file.write(b"whole")
            there = {file.name for file in tmp_path.iterdir()}
        assert {name.split(".")[3].split("-")[0] for name in there} == {str(os.getpid()), str(live)}
        assert path.read_bytes() == b"whole"
    finally:
        os.kill(live, signal.SIGKILL)
        os.waitpid(live, 0)
    with open_output(path) as file:
        file.write(b"again")
    assert contents(tmp_path) == {"out.jsonl": b"again"}


def test_a_killed_conversion_to_many_files_leaves_none_and_the_next_one_works(tmp_path):
    """The writer dies after some documents; a part of them must not read as all of them."""
    documents = lt.sample()[0].take(np.arange(20))
    path = tmp_path / "out" / "documents"
    path.parent.mkdir()
    path.mkdir()
    child = os.fork()
    if not child:
        _write_until_killed(documents, path, count=7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert list(path.iterdir()) == []
    lt.write(documents, path, format="annif-folder")
    assert [file.name for file in path.parent.iterdir()] == ["documents"]
    assert len(lt.read(path)) == 20


def _write_until_killed(documents, path, count):
    """Write documents, and end by SIGKILL with the text that follows the first ``count``."""

    def texts():
        yield from documents.texts[:count]
        os.kill(os.getpid(), signal.SIGKILL)

    dying = SimpleNamespace(
        document_texts=texts, labels=documents.labels, labels_of=documents.labels_of
    )
    try:
        annif._names = lambda dataset: ([str(row) for row in range(20)], 0)
        annif.write_annif_folder(dying, path)
    finally:
        os._exit(3)
