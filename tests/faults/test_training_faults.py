"""Training on a disk that fails: it ends with one line that says how to go on, and goes on to the
same bytes.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys

import pytest
from failing_disk import CODES, EVERY, FailingDisk, chance, tally, told_in_one_line
from small_disk import small_disk
from trainings import here, left_behind

from folder_contents import contents

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for what is open")

N_FAULTS = {"xr-linear": 100, "cascadexml": 25} if EVERY else {"xr-linear": 14, "cascadexml": 5}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def on_failing_disk(member, model, patch, *options, **fault):
    with patch.context() as only_now:
        disk = FailingDisk(only_now, model.parent, **fault)
        return disk, here(member.arguments(model, *options), model.parent.with_name("said"))


def test_after_a_fault_at_any_call_it_goes_on_to_the_same_bytes(trained, tmp_path, monkeypatch):
    member, expected = trained
    model = tmp_path / "run" / "model"
    model.parent.mkdir()
    rehearsal, ended = on_failing_disk(member, model, monkeypatch)
    assert ended.code == 0
    shutil.rmtree(model)
    pick = chance(member.method)
    hits = range(1, len(rehearsal.calls) + 1)
    for nth in sorted(pick.sample(hits, min(N_FAULTS[member.method], len(hits)))):
        code = pick.choice(CODES)
        sticky = pick.random() < 0.5
        disk, ended = on_failing_disk(member, model, monkeypatch, nth=nth, code=code, sticky=sticky)
        called, path = disk.calls[nth - 1] if nth <= len(disk.calls) else ("", model)
        if path.name == "model.run.jsonl" and called in ("open", "write") and not sticky:
            assert ended.code == 0, ended  # what a run tells of itself is worth less than the run
            assert (
                f"{path}: cannot be written ({os.strerror(code)}); the run goes on without it"
                in ended.said
            )
        elif ended.code:
            told_in_one_line(ended, code, model.parent)
            assert path.name == "longtail.lock" or "go on with --resume" in ended.said, ended.said
        else:
            assert contents(model) == expected
        force = [] if ended.code else ["--force"]
        again = here(member.arguments(model, "--resume", *force), tmp_path / "said")
        assert again.code == 0, again
        assert contents(model) == expected, (nth, called, path)
        assert left_behind(model) == []
        shutil.rmtree(model)


def test_a_run_log_that_cannot_be_written_does_not_end_the_run(trained, tmp_path):
    member, expected = trained
    model = tmp_path / "run" / "model"
    model.parent.mkdir()
    (model.parent / "model.run.jsonl").mkdir()  # nobody, not even root, writes there
    for options in ([], ["--resume", "--force"]):
        ended = here(member.arguments(model, *options), tmp_path / "said")
        assert ended.code == 0, ended
        assert ended.said.count(
            "cannot be written (Is a directory); the run goes on without it"
        ) in (1, 2)
        assert contents(model) == expected


def test_on_a_full_disk_and_on_with_more_room(trained, tmp_path):
    member, expected = trained
    model = tmp_path / "disk" / "model"
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        failures = 0
        for free in [1 << 12, *range(1 << 16, 6 << 20, 1 << 17)]:
            with disk.leaving(free):
                ended = here(member.arguments(model, "--resume"), tmp_path / "said")
            if ended.code == 0:
                break
            told_in_one_line(ended, errno.ENOSPC, model.parent)
            assert not model.exists()
            failures += 1
            tally()
        assert failures > 1
        assert ended.code == 0
        assert contents(model) == expected
        assert left_behind(model) == []
