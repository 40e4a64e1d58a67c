"""Model folders against full disks, kill -9 and each other."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from failing_disk import FailingDisk
from saved_folders import FILES, leftovers, refused, save, version_of

from longtail import store
from longtail.errors import ModelFolderError
from longtail.store import durable, reading, writing

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


# -------------------------------------------------------------------------------------------------
# failing disks


CHANGES = ("write", "fsync", "rename", "mkdir", "exchange")
THE_REST = ("open", "close", "unlink", "rmdir", "scandir", "lstat", "exchange")


def disk_calls(path, monkeypatch):
    with monkeypatch.context() as patch:
        disk = FailingDisk(patch, path.parent, only=CHANGES)
        save(path, 2)
    return disk.calls


def save_fails(path, monkeypatch, code, nth, sticky):
    """Save on a failing disk; tell whether that failed, with the disk's error."""
    with monkeypatch.context() as patch:
        disk = FailingDisk(patch, path.parent, nth, code, sticky=sticky, only=CHANGES)
        try:
            save(path, 2)
        except OSError as error:
            return error.errno == code
    # What can fail without harm: making a folder that is there already, and the one-step exchange.
    assert disk.failed in ("mkdir", "exchange")
    return False


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_leaves_the_old_folder(tmp_path, monkeypatch, renaming, code, sticky):
    save(tmp_path / "rehearsal" / "model", 1)
    n_calls = len(disk_calls(tmp_path / "rehearsal" / "model", monkeypatch))
    assert n_calls > 15
    for nth in range(1, n_calls + 1):
        path = tmp_path / str(nth) / "model"
        save(path, 1)
        failed = save_fails(path, monkeypatch, code, nth, sticky)
        # When only the sync of the parent folder fails, the new one is in place already, and
        # complete.
        assert version_of(path) == (1 if failed and nth < n_calls else 2)
        if not (
            sticky and renaming == "aside"
        ):  # there the old one could not be renamed back: readers find it aside
            assert leftovers(path) == []
        save(path, 3)
        assert version_of(path) == 3
        assert leftovers(path) == []


def test_a_failing_disk_leaves_nothing_where_nothing_was(tmp_path, monkeypatch):
    (tmp_path / "rehearsal").mkdir()
    n_calls = len(disk_calls(tmp_path / "rehearsal" / "model", monkeypatch))
    for nth in range(1, n_calls):
        path = tmp_path / str(nth) / "model"
        path.parent.mkdir()
        if save_fails(path, monkeypatch, errno.ENOSPC, nth, sticky=False):
            assert list(path.parent.iterdir()) == []


def test_whatever_else_fails_the_folder_is_complete(tmp_path, monkeypatch, renaming):
    for nth in range(1, 200):
        path = tmp_path / str(nth) / "model"
        save(path, 1)
        (durable.sibling(path, "tmp") / "encoder").mkdir(parents=True)
        with monkeypatch.context() as patch, contextlib.suppress(OSError):
            disk = FailingDisk(patch, path.parent, nth, only=THE_REST)
            save(path, 2)
        assert version_of(path) in (1, 2)
        save(path, 3)
        assert version_of(path) == 3
        assert leftovers(path) == []
        if len(disk.calls) < nth:
            break
    assert 30 < nth < 199


@pytest.mark.parametrize("existing", [False, True])
def test_everything_is_synced_before_the_folder_gets_its_name(
    tmp_path, monkeypatch, renaming, existing
):
    if existing:
        save(tmp_path / "model", 1)
    log = disk_calls(tmp_path / "model", monkeypatch)
    renames = [i for i, (call, _) in enumerate(log) if call in ("rename", "exchange")]
    before = [path for call, path in log[: renames[0]] if call == "fsync"]
    folder = before[-1]
    assert folder.name.startswith(".model.tmp-")
    assert set(before) == {
        folder,
        folder / "encoder",
        folder / "empty",
        *(folder / name for name in FILES),
    }
    assert before.index(folder / "manifest.json") == len(before) - 3, (
        "only the folders come after the manifest"
    )
    assert log[renames[-1] + 1 :] == [("fsync", tmp_path)]


def test_a_write_that_takes_only_a_part_is_gone_on_with(tmp_path, monkeypatch):
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: max(1, len(data) // 3)]))
        save(tmp_path / "model", 7)
    assert version_of(tmp_path / "model") == 7


def test_a_disk_that_cannot_be_read_is_told_from_damage(model, monkeypatch):
    def fail(file, algorithm):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("hashlib.file_digest", fail)
    refused(
        model,
        "config.json",
        "cannot be read .Input/output error.; check its permissions and the disk",
    )


# -------------------------------------------------------------------------------------------------
# kill -9, company

SAVER = """
import os, sys
sys.path[:0] = [sys.argv[3]]
import pytest
from longtail.store import durable
from failing_disk import DeadlyDisk
from saved_folders import save
from test_store_faults import CHANGES
from pathlib import Path
if sys.argv[2] == "aside":
    durable._exchange = lambda one, other: False
for line in sys.stdin:
    version, say_when_saved, die_at = map(int, line.split())
    pid = os.fork()
    if not pid:
        if die_at:
            DeadlyDisk(pytest.MonkeyPatch(), Path(sys.argv[1]).parent, die_at, only=CHANGES)
        while True:
            version += 1
            save(Path(sys.argv[1]), version, rows=4096)
            if say_when_saved:
                print("saved", flush=True)
                say_when_saved = False
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("dead", flush=True)
"""


@pytest.fixture
def saver(tmp_path, renaming):
    """A process that saves in children of its own, one after the other, until they die."""
    command = [
        sys.executable,
        "-c",
        SAVER,
        str(tmp_path / "model"),
        renaming,
        str(Path(__file__).parent),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield process
        process.stdin.close()


def test_kill_9_at_any_step_of_a_save_leaves_a_complete_folder(tmp_path, monkeypatch, saver):
    path = tmp_path / "model"
    save(path, 1)
    log = disk_calls(path, monkeypatch)
    first = next(
        i
        for i, (call, folder) in enumerate(log, 1)
        if call == "mkdir" and Path(folder).name.startswith(".")
    )
    assert len(log) > first + 10
    for nth in range(1, len(log) + 1):
        save(path, 1)
        assert leftovers(path) == []
        print(1, 0, nth, file=saver.stdin)
        assert int(saver.stdout.readline())
        assert saver.stdout.readline() == "dead\n"
        # The last call is the sync of the parent folder: the new one is in place by then.
        assert version_of(path) == (2 if nth == len(log) else 1)
        assert bool(leftovers(path)) == (nth > first), "not killed in the middle"


def test_kill_9_at_any_time_leaves_a_complete_folder(tmp_path, renaming, saver):
    path = tmp_path / "model"
    rng = random.Random(renaming)
    seen = 0
    save(path, seen)
    for round_ in range(25):
        after_a_save = round_ % 2
        print(seen, after_a_save, 0, file=saver.stdin)
        pid = int(saver.stdout.readline())
        assert not after_a_save or saver.stdout.readline() == "saved\n"
        time.sleep(rng.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        assert saver.stdout.readline() == "dead\n"
        result = version_of(path)
        assert result >= seen + after_a_save
        seen = result
    save(path, seen + 1)
    assert version_of(path) == seen + 1
    assert leftovers(path) == []


def test_readers_always_find_a_complete_folder_while_it_is_replaced(tmp_path, renaming):
    path = tmp_path / "model"
    versions = []
    saved = [0]
    save(path, 0)

    def write():
        while len(saved) < 40 or (len(set(versions)) < 2 and len(saved) < 2000):
            save(path, len(saved))
            saved.append(len(saved))

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        versions.append(version_of(path))
        store.open_folder(path, verify="size").read_bytes("config.json")
    writer.join()
    assert versions == sorted(versions)
    assert len(set(versions)) > 1
    assert version_of(path) == saved[-1]


def test_a_folder_replaced_while_sizes_are_looked_at_is_opened_again(model, monkeypatch):
    real = reading._open_once
    versions = [2]

    def replaced_meanwhile(*arguments):
        folder = real(*arguments)
        if versions:
            save(model, versions.pop())
        return folder

    monkeypatch.setattr(reading, "_open_once", replaced_meanwhile)
    assert store.open_folder(model, verify="size").manifest.config_hash == "2"


@pytest.mark.parametrize("verify", [True, "size"])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_folder_that_nobody_replaces_is_read_once(model, monkeypatch, verify, damaged):
    real = reading._open_once
    roots = []
    monkeypatch.setattr(
        reading, "_open_once", lambda root, *more: roots.append(root) or real(root, *more)
    )
    if damaged:
        (model / "config.json").unlink()
    with (
        pytest.raises(ModelFolderError, match="is missing") if damaged else contextlib.nullcontext()
    ):
        store.open_folder(model, verify)
    assert roots == [model]


def test_a_folder_replaced_while_it_is_checked_for_foreign_files_is_checked_again(
    model, monkeypatch
):
    real = writing._foreign_files
    calls = []

    def replaced_meanwhile(path):
        calls.append(path)
        if len(calls) == 1:
            save(path, 5)
            return [
                "ranker2.safetensors"
            ]  # of the newer folder, which the older manifest does not know
        return real(path)

    monkeypatch.setattr(writing, "_foreign_files", replaced_meanwhile)
    save(model, 2)
    assert version_of(model) == 2


def test_a_writer_that_comes_between_the_two_renames_is_replaced_too(model, monkeypatch):
    save(model.parent / "other" / "model", 5)
    real = durable._rename_or_restore
    others = [model.parent / "other" / "model"]

    def other_is_quicker(new, path, aside):
        if others:
            others.pop().rename(path)
        return real(new, path, aside)

    monkeypatch.setattr(durable, "_exchange", lambda one, other: False)
    monkeypatch.setattr(durable, "_rename_or_restore", other_is_quicker)
    save(model, 2)
    assert version_of(model) == 2
    assert leftovers(model) == ["other"]


def test_a_writer_that_is_always_too_late_gives_up_and_leaves_the_folder_of_the_others(
    model, monkeypatch
):
    monkeypatch.setattr(durable, "_rename_to_free", lambda new, path: False)
    monkeypatch.setattr(durable, "_exchange", lambda one, other: False)
    monkeypatch.setattr(
        durable, "_rename_or_restore", lambda new, path, aside: aside.rename(path) and False
    )
    with pytest.raises(OSError, match="other processes keep replacing this folder") as caught:
        save(model, 2)
    assert caught.value.errno == errno.EBUSY
    assert caught.value.filename == str(model)
    assert version_of(model) == 1
    assert leftovers(model) == []


def test_a_leftover_that_is_gone_before_it_is_looked_at_is_none(model, monkeypatch):
    gone = durable.sibling(model, "tmp")
    left = durable.sibling(model, "tmp")
    real = os.scandir

    @contextlib.contextmanager
    def late(path):
        with real(path) as entries:
            results = list(entries)
        gone.rmdir()
        yield results

    gone.mkdir(), left.mkdir()
    monkeypatch.setattr(os, "scandir", late)
    assert durable.siblings(model, "tmp") == [left]


def test_a_folder_that_another_writer_moves_while_it_is_looked_at_is_written(model, monkeypatch):
    real = os.lstat
    moved = []

    def moved_meanwhile(path, **options):
        result = real(path, **options)
        if Path(path) == model and not moved:
            moved.append(model.rename(model.with_name("aside")))
        return result

    monkeypatch.setattr(os, "lstat", moved_meanwhile)
    save(model, 2)
    assert moved
    assert version_of(model) == 2


def test_of_several_writers_one_wins_wholly(tmp_path, renaming):
    path = tmp_path / "model"
    failures = []

    def write(first):
        try:
            for version in range(first, first + 8):
                save(path, version)
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(first,)) for first in (100, 200, 300)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    assert version_of(path) in (107, 207, 307)
    assert leftovers(path) == []
