"""What may be replaced by a model folder, and what dead writers left is cleared."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from longtail import store
from longtail.errors import UsageError
from longtail.store import durable


def beside(path):
    return sorted(entry.name for entry in path.parent.iterdir() if entry != path)


def test_only_model_folders_and_empty_ones_are_replaced(tmp_path, monkeypatch):
    def refused(path, match):
        with pytest.raises(UsageError, match=match), store.write_folder(path):
            pytest.fail("the body ran")

    (tmp_path / "empty").mkdir()
    with store.write_folder(tmp_path / "empty") as folder:
        folder.write_bytes("a", b"1")
    (tmp_path / "file").write_bytes(b"")
    refused(tmp_path / "file", "file: is a file; give a folder")
    for below in ("file/model", "file/deep/model"):
        refused(
            tmp_path / below, "file: is a file, which can hold no model folder; give another place"
        )
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "manifest.json").write_text('{"name": "my web page"}')
    refused(tmp_path / "thesis", "thesis: is not a model folder and not empty")
    (tmp_path / "empty" / "notes.txt").write_text("mine")
    refused(tmp_path / "empty", r"notes\.txt: is not part of the model, and would be lost")
    (tmp_path / "empty" / "notes.txt").unlink()
    refused(tmp_path / "empty" / "inner", "empty: is a model folder, which more in it would damage")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "manifest.json").symlink_to(tmp_path / "empty" / "manifest.json")
    refused(tmp_path / "linked", "linked: is not a model folder and not empty")
    monkeypatch.chdir(tmp_path / "empty")
    refused(".", "is the current folder")
    refused("..", "is the current folder, which cannot be replaced")
    refused("/", "is a mount point")
    assert (tmp_path / "thesis" / "manifest.json").exists()


def test_a_folder_whose_manifest_cannot_be_read_is_not_replaced(tmp_path, monkeypatch):
    with store.write_folder(tmp_path / "model"):
        pass
    real = open

    def refused(file, *more, **options):
        if Path(file).name == "manifest.json":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(file, *more, **options)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refused)
        with pytest.raises(UsageError, match="model: is not a model folder and not empty"):
            store.check_replaceable(tmp_path / "model")
    assert store.open_folder(tmp_path / "model").files == {}


@pytest.mark.parametrize("damage", [200, 600])
def test_a_damaged_model_folder_is_replaced(tmp_path, damage):
    for version in range(2):
        with store.write_folder(tmp_path / "model") as folder:
            for i in range(4):
                folder.write_json(f"{i}.json", version)
        if version == 0:
            manifest = tmp_path / "model" / "manifest.json"
            manifest.write_bytes(manifest.read_bytes()[:damage])
    assert store.open_folder(tmp_path / "model").read_json("0.json", int) == 1


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    dead = durable.sibling(tmp_path / "model", "tmp")
    (dead / "encoder").mkdir(parents=True)
    other = tmp_path / ".model2.tmp-1-00000000"
    other.mkdir()
    with store.write_folder(tmp_path / "model") as slow:
        assert not dead.exists()
        with store.write_folder(tmp_path / "model") as quick:
            quick.write_json("who.json", "quick")
        slow.write_json("who.json", "slow")
    assert store.open_folder(tmp_path / "model").read_json("who.json", str) == "slow"
    assert beside(tmp_path / "model") == [other.name]


def test_only_folders_of_that_very_name_are_leftovers(tmp_path):
    own = durable.sibling(tmp_path / "v1.0", "tmp")
    for name in (own.name, ".v1x0.tmp-1-0123abcd", ".v1.0.tmp-1-0123abcde", ".v1.0.old-1-0123abcd"):
        (tmp_path / name).mkdir()
    (tmp_path / ".v1.0.tmp-2-0123abcd").write_bytes(b"")
    (tmp_path / ".v1.0.tmp-3-0123abcd").symlink_to(tmp_path)
    assert durable.siblings(tmp_path / "v1.0", "tmp") == [own]
    assert str(os.getpid()) in own.name
    assert durable.siblings(tmp_path / "nowhere" / "model", "tmp") == []


def test_the_folder_put_aside_last_comes_first(tmp_path):
    asides = [tmp_path / f".model.old-{number}-0123abcd" for number in (2, 1, 3)]
    for aside in asides:
        aside.mkdir()
        time.sleep(0.02)  # more than the clock of a file system ticks
    assert durable.siblings(tmp_path / "model", "old") == asides[::-1]


def test_a_folder_is_written_though_the_current_one_was_deleted(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    for content in (b"1", b"2"):
        with store.write_folder(tmp_path / "model") as folder:
            folder.write_bytes("a", content)
    assert store.open_folder(tmp_path / "model").read_bytes("a") == b"2"


def test_a_failing_disk_is_told_by_the_name_of_the_folder(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("mkdir", "write"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with (
                pytest.raises(OSError, match="No space left") as caught,
                store.write_folder(tmp_path / "model") as folder,
            ):
                folder.write_bytes("a", b"1")
        assert caught.value.filename == str(tmp_path.resolve() / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_written_where_nothing_can_be_locked(tmp_path, monkeypatch):
    def no_locks(fd):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(durable, "lock", no_locks)
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")
    assert store.open_folder(tmp_path / "model").read_bytes("a") == b"1"
    assert beside(tmp_path / "model") == []


def test_a_temporary_folder_that_another_clears_is_made_anew(tmp_path, monkeypatch):
    tried = []
    lock = durable.lock

    def cleared_at_first(fd):
        tried.append(fd)
        if len(tried) == 1:
            raise BlockingIOError
        lock(fd)

    monkeypatch.setattr(durable, "lock", cleared_at_first)
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")
    assert store.open_folder(tmp_path / "model").read_bytes("a") == b"1"
    assert len(tried) > 1


def test_a_temporary_folder_that_goes_before_it_is_opened_is_made_anew(tmp_path, monkeypatch):
    gone = []
    real = os.open

    def cleared_at_first(path, *more, **options):
        if not gone and ".tmp-" in Path(path).name:
            gone.append(path)
            Path(path).rmdir()
        return real(path, *more, **options)

    monkeypatch.setattr(os, "open", cleared_at_first)
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")
    assert gone
    assert store.open_folder(tmp_path / "model").read_bytes("a") == b"1"


def test_a_folder_put_aside_by_a_dead_writer_is_found_and_brought_back(tmp_path):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_json("who.json", "old")
    aside = (tmp_path / "model").rename(durable.sibling(tmp_path / "model", "old"))
    assert store.open_folder(tmp_path / "model").read_json("who.json", str) == "old"
    with pytest.raises(ZeroDivisionError), store.write_folder(tmp_path / "model"):
        _ = 1 / 0
    assert not aside.exists()
    assert store.open_folder(tmp_path / "model").root == tmp_path / "model"
    (durable.sibling(tmp_path / "model", "old")).mkdir()
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_json("who.json", "new")
    assert beside(tmp_path / "model") == []
