"""Model folders against damage, hostile files, full disks, kill -9 and each other."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from failing_disk import FailingDisk

from longtail import store
from longtail.errors import ModelFolderError
from longtail.store import durable, reading, tensors, writing
from longtail.store.manifest import FileEntry, decode, encode

SHA = "0" * 64


def save(path, version, rows=64):
    with store.write_folder(path, config_hash=str(version)) as folder:
        folder.write_json("config.json", {"version": version})
        folder.write_arrays("ranker.safetensors", {"weights": np.full((rows, 8), version, np.float32)})
        folder.write_bytes("encoder/config.json", b'{"version": %d}' % version)
        folder.path("encoder/vocab.txt").write_text(f"{version}\n")
        folder.write_bytes("empty", b"")


def version_of(path):
    """The one version that all files of the folder are of."""
    folder = store.open_folder(path)
    versions = {int(folder.manifest.config_hash), folder.read_json("config.json", dict[str, int])["version"]}
    versions |= set(folder.arrays("ranker.safetensors")["weights"].ravel().astype(int).tolist())
    versions |= {int(folder.read_bytes("encoder/vocab.txt"))}
    assert len(versions) == 1, versions
    return versions.pop()


def leftovers(path):
    return [place.name for place in path.parent.iterdir() if place != path]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    """Whether fsync is called is tested; what it does is the disk's business, and slow."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def model(tmp_path):
    save(tmp_path / "model", 1)
    return tmp_path / "model"


@pytest.fixture(params=["exchange", "aside"])
def renaming(request, monkeypatch):
    if request.param == "aside":
        monkeypatch.setattr(durable, "_exchange", lambda one, other: False)
    return request.param


def refused(model, file, reason="."):
    with pytest.raises(ModelFolderError, match=reason) as caught:
        store.open_folder(model)
    assert caught.value.exit_code == 4
    message = str(caught.value)
    assert message.startswith(f"{model / file}: "), message
    assert "\n" not in message
    assert message.count("; ") >= 1, "no way out"


FILES = ["config.json", "ranker.safetensors", "encoder/config.json", "encoder/vocab.txt", "manifest.json"]


# ------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_refused(model, name):
    rng = random.Random(name)
    good = (model / name).read_bytes()
    positions = {0, 1, len(good) - 2, len(good) - 1} | {rng.randrange(len(good)) for _ in range(40)}
    for position in sorted(positions):
        bad = bytearray(good)
        bad[position] ^= 1 << rng.randrange(8)
        (model / name).write_bytes(bad)
        refused(model, name)
    (model / name).write_bytes(good)
    assert version_of(model) == 1


def test_every_changed_byte_of_a_manifest_is_refused(model):
    good = (model / "manifest.json").read_bytes()
    assert decode(good, Path("m")).config_hash == "1"
    for position, byte in enumerate(good):
        for other in {*b" \t\r\n", *(byte ^ (1 << bit) for bit in range(8))} - {byte}:
            bad = bytearray(good)
            bad[position] = other
            with pytest.raises(ModelFolderError):
                decode(bytes(bad), Path("m"))


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_or_grown_is_refused(model, name):
    good = (model / name).read_bytes()
    for bad in [b"", good[:1], good[: len(good) // 2], good[:-1], good + b"\n", good + good]:
        (model / name).write_bytes(bad)
        refused(model, name)


def test_a_removed_file_is_refused(model):
    for name in [*FILES, "empty"]:
        (model / name).rename(model.parent / "away")
        refused(model, name, "missing")
        (model.parent / "away").rename(model / name)
    shutil.rmtree(model / "encoder")
    refused(model, "encoder/config.json", "missing")


@pytest.mark.parametrize(
    "name", ["notes.txt", "encoder/notes.txt", "encoder/.hidden", "manifest.json.bak", "a\nb\x1b[2J"]
)
def test_an_added_file_is_refused(model, name):
    (model / name).write_bytes(b"")
    refused(model, name.encode("unicode_escape").decode(), "is not in the manifest; remove it")


@pytest.mark.parametrize("name", ["more", "encoder/more"])
def test_an_added_folder_is_refused(model, name):
    (model / name).mkdir()
    refused(model, name, "is a folder that is not in the manifest")


def test_swapped_files_are_refused(model):
    for one, other in [("config.json", "ranker.safetensors"), ("config.json", "encoder/config.json")]:
        (model / one).rename(model / "x")
        (model / other).rename(model / one)
        (model / "x").rename(model / other)
        refused(model, one)
        (model / one).rename(model / "x")
        (model / other).rename(model / one)
        (model / "x").rename(model / other)
    assert version_of(model) == 1


def test_a_manifest_of_another_model_is_refused(model):
    save(model.parent / "other", 2)
    shutil.copy(model.parent / "other" / "manifest.json", model / "manifest.json")
    refused(model, "config.json", "SHA-256")


# ------------------------------------------------------------------------------------------------- hostility


@pytest.mark.parametrize(
    "name",
    [
        *["../secret", "/etc/passwd", "encoder/../../secret", "a//b", "./a", "a/.", "", "a/", "..\\a", "C:\\a", "C:a"],
        *["\0", "a\nb", "manifest.json", "u\u0308", "a/" * 500 + "ä" * 30],
    ],
)
def test_a_manifest_with_a_path_out_of_the_folder_is_refused(model, name):
    (model.parent / "secret").write_bytes(b"")
    (model / "manifest.json").write_bytes(encode("longtail 1", "", (FileEntry(name, 0, SHA),)))
    refused(model, "manifest.json", "the file name")


def test_a_manifest_that_lists_a_file_twice_is_refused(model):
    entry = FileEntry("empty", 0, SHA)
    (model / "manifest.json").write_bytes(encode("longtail 1", "", (entry, entry)))
    refused(model, "manifest.json", "listed twice")


def test_a_manifest_with_an_unknown_field_is_refused_though_its_seal_holds(model):
    head = (model / "manifest.json").read_bytes()[:-68].replace(b'"producer"', b'"run": "x",\n  "producer"')
    (model / "manifest.json").write_bytes(head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n')
    refused(model, "manifest.json", "unknown field `run`")


@pytest.mark.parametrize("name", FILES)
def test_links_and_pipes_are_refused(model, name):
    away = (model / name).rename(model.parent / "away")
    (model / name).symlink_to(away)
    refused(model, name, "link")
    (model / name).unlink()
    os.mkfifo(model / name)
    refused(model, name, "not a plain file")


def test_a_linked_subfolder_is_refused(model):
    (model / "encoder").rename(model.parent / "away")
    (model / "encoder").symlink_to(model.parent / "away")
    refused(model, "encoder", "is a symbolic link")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"format": "1"}', "is damaged"),
        (b'{"format": 0}', "format 0, expected 1"),
        (b'{"format": 1}', "missing required field"),
        (b'{"format": 2, "anything": [1]}', "newer version of longtail; .*; upgrade longtail"),
        (b'{"format": 1, "x": ' + b"[" * 100_000, "is damaged"),
        (b"\xff\xfe{", "is damaged"),
        (b'{"format": 1, "' + b"x" * 10_000 + b'": 1}', "is damaged"),
    ],
)
def test_manifests_that_are_not_ours_are_refused(model, content, reason):
    (model / "manifest.json").write_bytes(content)
    refused(model, "manifest.json", reason)
    with pytest.raises(ModelFolderError) as caught:
        store.open_folder(model)
    assert len(str(caught.value)) < 1000


def test_a_huge_manifest_is_refused_unread(model):
    os.truncate(model / "manifest.json", 1 << 40)  # sparse
    refused(model, "manifest.json", "is 1099511627776 bytes long")


def raw_tensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(shape, begin, end, dtype="F32", **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is cut short"),
        (b"\x02\0\0\0\0\0\0", "is cut short"),
        (raw_tensors({}, length=3), "is cut short"),
        (raw_tensors({}, length=2**64 - 1), "is cut short"),
        (raw_tensors(b"[]"), "header is not readable"),
        (raw_tensors(b"\xff\xff"), "header is not readable"),
        (raw_tensors(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "not readable"),
        (raw_tensors({"a": 1}), "entry of array 'a' is not readable"),
        (raw_tensors({"a": tensor([1], 0, 4, extra=1)}, bytes(4)), "unknown field"),
        (raw_tensors({"a": tensor([1], 0, 4, dtype="object")}, bytes(4)), "has dtype 'object', expected one of BOOL"),
        (raw_tensors({"a": tensor([1], 0, 2, dtype="BF16")}, bytes(2)), "has dtype 'BF16'"),
        (raw_tensors({"a": tensor([-1], 0, 4)}, bytes(4)), "not readable"),
        (raw_tensors({"a": tensor([1.0], 0, 4)}, bytes(4)), "not readable"),
        (raw_tensors({"a": tensor([1], -4, 0)}, bytes(4)), "not readable"),
        (raw_tensors({"a": tensor([1] * 9, 0, 4)}, bytes(4)), "not readable"),
        (raw_tensors({"a": tensor([2], 0, 4)}, bytes(4)), "does not fill bytes 0 to 4"),
        (raw_tensors({"a": tensor([2**62, 4], 0, 0)}), "does not fill"),  # 2**66 bytes are 0 in 64 bits
        (raw_tensors({"a": tensor([2**31, 2**31, 2**31], 0, 4)}, bytes(4)), "does not fill"),
        (raw_tensors({"a": tensor([2**62, 0, 2**62], 0, 0)}), "absurd shape"),
        (raw_tensors({"a": tensor([10**30], 0, 4 * 10**30)}, bytes(4)), "absurd shape"),
        (raw_tensors({"a": tensor([1], 0, 4)}), "holds 0 bytes of arrays, and its header says 4"),
        (raw_tensors({"a": tensor([1], 0, 4)}, bytes(5)), "holds 5 bytes of arrays, and its header says 4"),
        (raw_tensors({"a": tensor([1], 4, 8)}, bytes(8)), "starts at byte 4, expected 0: a hole"),
        (raw_tensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)), "starts at byte 4, expected 8"),
        (raw_tensors({"a": tensor([1], 4, 0)}, bytes(4)), "does not fill"),
    ],
)
def test_absurd_arrays_are_refused(tmp_path, content, reason):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("x.safetensors", content)
    opened = store.open_folder(tmp_path / "model")
    with pytest.raises(ModelFolderError, match=reason) as caught:
        opened.arrays("x.safetensors")
    assert str(caught.value).startswith(f"{tmp_path / 'model' / 'x.safetensors'}: ")


def test_a_huge_header_is_refused_unread(tmp_path, monkeypatch):
    def parse(*args, **kwargs):
        pytest.fail("the header is parsed")

    with store.write_folder(tmp_path / "model") as folder, open(folder.path("x"), "wb") as file:
        file.write((100_000_000).to_bytes(8, "little"))
        file.truncate(100_000_008)
    opened = store.open_folder(tmp_path / "model", verify="size")
    monkeypatch.setattr(tensors.msgspec.json, "decode", parse)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFolderError, match="has a header of 100000000 bytes"):
            opened.arrays("x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20, "the header is copied"


# ------------------------------------------------------------------------------------------------- failing disks


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
        # When only the sync of the parent folder fails, the new one is in place already, and complete.
        assert version_of(path) == (1 if failed and nth < n_calls else 2)
        if not (sticky and renaming == "aside"):  # there the old one could not be renamed back: readers find it aside
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
def test_everything_is_synced_before_the_folder_gets_its_name(tmp_path, monkeypatch, renaming, existing):
    if existing:
        save(tmp_path / "model", 1)
    log = disk_calls(tmp_path / "model", monkeypatch)
    renames = [i for i, (call, _) in enumerate(log) if call in ("rename", "exchange")]
    before = [path for call, path in log[: renames[0]] if call == "fsync"]
    folder = before[-1]
    assert folder.name.startswith(".model.tmp-")
    assert set(before) == {folder, folder / "encoder", folder / "empty", *(folder / name for name in FILES)}
    assert before.index(folder / "manifest.json") == len(before) - 3, "only the folders come after the manifest"
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
    refused(model, "config.json", "cannot be read .Input/output error.; check its permissions and the disk")


# ------------------------------------------------------------------------------------------------- kill -9, company

SAVER = """
import os, sys
sys.path[:0] = [sys.argv[3]]
import pytest
from test_store_faults import CHANGES, durable, save
from failing_disk import DeadlyDisk
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
    command = [sys.executable, "-c", SAVER, str(tmp_path / "model"), renaming, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        yield process
        process.stdin.close()


def test_kill_9_at_any_step_of_a_save_leaves_a_complete_folder(tmp_path, monkeypatch, saver):
    path = tmp_path / "model"
    save(path, 1)
    log = disk_calls(path, monkeypatch)
    first = next(i for i, (call, place) in enumerate(log, 1) if call == "mkdir" and Path(place).name.startswith("."))
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
    path, rng, seen = tmp_path / "model", random.Random(renaming), 0
    save(path, seen)
    for round_ in range(25):
        after_a_save = round_ % 2
        print(seen, after_a_save, 0, file=saver.stdin)
        pid = int(saver.stdout.readline())
        assert not after_a_save or saver.stdout.readline() == "saved\n"
        time.sleep(rng.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        assert saver.stdout.readline() == "dead\n"
        found = version_of(path)
        assert found >= seen + after_a_save
        seen = found
    save(path, seen + 1)
    assert version_of(path) == seen + 1
    assert leftovers(path) == []


def test_readers_always_find_a_complete_folder_while_it_is_replaced(tmp_path, renaming):
    path, versions, saved = tmp_path / "model", [], [0]
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
    real, versions = reading._open_once, [2]

    def replaced_meanwhile(*arguments):
        folder = real(*arguments)
        if versions:
            save(model, versions.pop())
        return folder

    monkeypatch.setattr(reading, "_open_once", replaced_meanwhile)
    assert store.open_folder(model, verify="size").manifest.config_hash == "2"


def test_a_folder_replaced_while_it_is_checked_for_foreign_files_is_checked_again(model, monkeypatch):
    real, calls = writing._foreign_files, []

    def replaced_meanwhile(place):
        calls.append(place)
        if len(calls) == 1:
            save(place, 5)
            return ["ranker2.safetensors"]  # of the newer folder, which the older manifest does not know
        return real(place)

    monkeypatch.setattr(writing, "_foreign_files", replaced_meanwhile)
    save(model, 2)
    assert version_of(model) == 2


def test_a_writer_that_comes_between_the_two_renames_is_replaced_too(model, monkeypatch):
    save(model.parent / "other" / "model", 5)
    real, others = durable._rename_or_restore, [model.parent / "other" / "model"]

    def other_is_quicker(new, place, aside):
        if others:
            others.pop().rename(place)
        return real(new, place, aside)

    monkeypatch.setattr(durable, "_exchange", lambda one, other: False)
    monkeypatch.setattr(durable, "_rename_or_restore", other_is_quicker)
    save(model, 2)
    assert version_of(model) == 2
    assert leftovers(model) == ["other"]


def test_a_folder_that_another_writer_moves_while_it_is_looked_at_is_written(model, monkeypatch):
    real, moved = os.lstat, []

    def moved_meanwhile(path, **options):
        found = real(path, **options)
        if Path(path) == model and not moved:
            moved.append(model.rename(model.with_name("aside")))
        return found

    monkeypatch.setattr(os, "lstat", moved_meanwhile)
    save(model, 2)
    assert moved
    assert version_of(model) == 2


def test_of_several_writers_one_wins_wholly(tmp_path, renaming):
    path, failures = tmp_path / "model", []

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
