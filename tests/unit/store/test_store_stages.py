from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy import sparse

from longtail import store
from longtail.errors import LongtailError, UsageError
from longtail.store import durable, writing
from longtail.store import stages as stages_module


class Config(msgspec.Struct):
    branching: int
    name: str


# -------------------------------------------------------------------------------------------------
# hashes


def test_content_hash_tells_different_things_apart():
    matrix = sparse.csr_array(np.eye(3, dtype=np.float32))
    values = [
        None,
        True,
        1,
        1.0,
        "1",
        b"1",
        [1],
        ["1"],
        [[1]],
        [1, 1],
        {},
        [],
        "",
        {"a": 1},
        {"a": "1"},
        {"b": 1},
    ]
    values += [
        np.array([1]),
        np.array(1),
        np.array([1], np.int32),
        np.array([[1]]),
        np.array([]),
        np.array([1.0]),
    ]
    values += [
        Config(1, "a"),
        Config(2, "a"),
        matrix,
        matrix.tocsc(),
        2 * matrix,
        [matrix, 1],
        ["ab", "c"],
        ["a", "bc"],
    ]
    hashes = [store.content_hash(value) for value in values]
    assert len(set(hashes)) == len(values)
    assert store.content_hash("a", "b") != store.content_hash("ab")
    assert len(store.content_hash()) == 64


def test_content_hash_is_the_same_for_the_same_content():
    array = np.arange(12).reshape(3, 4)
    assert store.content_hash({"a": 1, "b": 2}) == store.content_hash({"b": 2, "a": 1})
    assert store.content_hash(array) == store.content_hash(np.asfortranarray(array))
    assert store.content_hash(Config(1, "ä"), 2.5) == store.content_hash(
        Config(1, "ä"), np.float64(2.5)
    )
    assert store.content_hash(True) == store.content_hash(np.True_)
    # Written down: it must not change between versions or machines, or --resume would start anew.
    known = store.content_hash(
        None, True, -5, 0.1, "ä", b"x", [1, {"a": np.arange(3, dtype=np.int32)}]
    )
    assert known == "9b593b8c131e0cd46ef80a1c05b2648aab9054a5f46f261620f11bbf658666b5"
    for bad, what in (
        (object(), "a value of type object"),
        ({1: 2}, "a mapping whose keys are not all strings"),
        (np.array([None]), "an array of Python objects"),
    ):
        with pytest.raises(TypeError, match=f"^{what} cannot be hashed by content$"):
            store.content_hash(bad)


# -------------------------------------------------------------------------------------------------
# stages


def test_a_stage_is_found_again_only_for_the_same_input(tmp_path, caplog):
    caplog.set_level("INFO", "longtail")
    with store.Stages(tmp_path / "model.work") as stages:
        assert stages.get("tree", "in-1") is None
        with stages.write("tree", "in-1") as folder:
            folder.write_arrays("tree.safetensors", {"parents": np.arange(5)})
    with store.Stages(tmp_path / "model.work") as stages:
        found = stages.get("tree", "in-1")
        assert found is not None
        assert found.arrays("tree.safetensors")["parents"].sum() == 10
        assert stages.get("tree", "in-2") is None
        assert caplog.messages == ["stage tree is made again: its input has changed"]
        assert stages.get("tree", "in-1") is None, "the mismatching one was not discarded"


@pytest.mark.parametrize("damage", ["flip", "manifest", "missing", "file"])
def test_a_damaged_stage_is_discarded_and_made_again(tmp_path, damage, caplog):
    with store.Stages(tmp_path / "work") as stages:
        with stages.write("level-1", "in") as folder:
            folder.write_bytes("a", b"1")
        place = tmp_path / "work" / "level-1"
        if damage == "flip":
            (place / "a").write_bytes(b"2")
        elif damage == "manifest":
            (place / "manifest.json").write_bytes(b"")
        elif damage == "missing":
            (place / "a").unlink()
        else:
            place.rename(tmp_path / "elsewhere")
            place.write_bytes(b"")
        assert stages.get("level-1", "in") is None
        assert not place.exists()
        assert [message.partition(": ")[0] for message in caplog.messages] == [
            "stage level-1 is made again"
        ]
        assert str(place.resolve()) in caplog.messages[0]
        with stages.write("level-1", "in") as folder:
            folder.write_bytes("a", b"3")
        again = stages.get("level-1", "in")
        assert again is not None
        assert again.read_bytes("a") == b"3"


def test_a_second_training_on_the_same_folder_is_refused(tmp_path):
    with store.Stages(tmp_path / "work") as stages:
        with pytest.raises(
            UsageError, match=rf"work: process {os.getpid()} is training into this folder"
        ):
            store.Stages(tmp_path / "work")
        with stages.write("a", "in") as folder:
            folder.write_bytes("a", b"")
        kept = stages.get("a", "in")
        stages.remove()
    assert kept is not None
    assert kept.read_bytes("a") == b""
    assert not (tmp_path / "work").exists()
    with store.Stages(tmp_path / "work"):
        pass


def test_a_stage_that_is_a_link_goes_without_what_it_leads_to(tmp_path):
    with store.write_folder(tmp_path / "model", config_hash="other") as folder:
        folder.write_bytes("a", b"1")
    with store.Stages(tmp_path / "work") as stages:
        (tmp_path / "work" / "tree").symlink_to(tmp_path / "model")
        assert stages.get("tree", "in") is None
        assert not (tmp_path / "work" / "tree").is_symlink()
    assert store.open_folder(tmp_path / "model").read_bytes("a") == b"1"


def test_what_a_killed_run_was_writing_goes_as_soon_as_the_next_begins(tmp_path):
    with store.Stages(tmp_path / "work") as stages, stages.write("tree", "in") as folder:
        folder.write_bytes("a", b"1")
    (durable.sibling(tmp_path / "work" / "ranker", "tmp") / "deep").mkdir(parents=True)
    (tmp_path / "work" / "notes.tmp-mine").mkdir()
    with store.Stages(tmp_path / "work") as stages:
        names = sorted(place.name for place in (tmp_path / "work").iterdir())
        assert names == ["longtail.lock", "notes.tmp-mine", "tree"]
        assert stages.clear() == 1
        assert sorted(place.name for place in (tmp_path / "work").iterdir()) == [
            "longtail.lock",
            "notes.tmp-mine",
        ]


def test_network_storage_is_looked_at_for_half_a_minute(monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    assert len(list(stages_module.looks())) == len(slept) + 1  # nobody waits after the last look
    assert sum(slept) == pytest.approx(30, abs=0.5)


def test_a_lock_names_the_process_that_has_it_and_no_longer_the_one_before(tmp_path):
    file = tmp_path / "work" / "longtail.lock"
    file.parent.mkdir()
    file.write_text("4194304999\n")
    with store.Stages(tmp_path / "work"):
        assert file.read_text().splitlines()[0] == str(os.getpid())
        file.write_text("")
        with pytest.raises(
            UsageError,
            match="work: process unknown is training into this folder; wait for it or give",
        ):
            store.Stages(tmp_path / "work")


def test_a_lock_that_says_no_process_is_a_lock_all_the_same(tmp_path):
    with store.Stages(tmp_path / "work"):
        (tmp_path / "work" / "longtail.lock").write_bytes(b"\xff" * 30)
        with pytest.raises(
            UsageError, match=r"work: process \ufffd{20} is training into this folder"
        ):
            store.Stages(tmp_path / "work")


def test_a_lock_that_cannot_be_written_names_its_place(tmp_path, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left") as caught:
            store.Stages(tmp_path / "work")
    assert caught.value.errno == errno.ENOSPC
    assert Path(caught.value.filename) == (tmp_path / "work" / "longtail.lock").resolve()
    with store.Stages(tmp_path / "work"):  # nobody holds the lock
        pass


def test_a_work_folder_that_cannot_be_locked_is_used_with_a_warning(tmp_path, monkeypatch, caplog):
    def no_locks(fd):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(durable, "lock", no_locks)
    with store.Stages(tmp_path / "deep" / "work") as stages, stages.write("a", "in") as folder:
        folder.write_bytes("a", b"1")
    file = (tmp_path / "deep" / "work" / "longtail.lock").resolve()
    why = f"[Errno {errno.ENOLCK}] {os.strerror(errno.ENOLCK)}"
    assert caplog.messages == [
        f"{file}: cannot be locked ({why}); make sure that no other training writes there"
    ]


def test_what_is_half_deleted_keeps_its_name(tmp_path, monkeypatch):
    left = durable.sibling(tmp_path / "work" / "tree", "tmp")
    with store.Stages(tmp_path / "work") as stages:
        left.mkdir()
        deleted = []
        rmtree = shutil.rmtree
        monkeypatch.setattr(
            shutil, "rmtree", lambda place: deleted.append(place.name) or rmtree(place)
        )
        assert stages.clear() == 0
    assert deleted == [left.name]


def test_a_file_where_stages_go_is_refused(tmp_path):
    (tmp_path / "work").write_text("mine")
    with pytest.raises(
        UsageError,
        match=r"work: is a file where the stages of training go; remove it or give another",
    ):
        store.Stages(tmp_path / "work")
    assert (tmp_path / "work").read_text() == "mine"


def test_a_stage_has_a_name_of_ours_while_it_is_deleted(tmp_path, monkeypatch):
    deleted = []
    rmtree = shutil.rmtree
    with store.Stages(tmp_path / "work") as stages:
        with stages.write("tree", "in-1") as folder:
            folder.write_bytes("a", b"1")
        with monkeypatch.context() as patch:
            patch.setattr(
                shutil, "rmtree", lambda place: deleted.append(place.name) or rmtree(place)
            )
            stages.get("tree", "in-2")
    (name,) = deleted
    assert name.startswith(".tree.tmp-")


def test_a_training_may_begin_while_another_removes_the_folder(tmp_path, monkeypatch):
    begun = []
    rmdir = Path.rmdir
    real_open = os.open

    def after_the_other(folder):
        begun.append(store.Stages(folder))
        return rmdir(folder)

    with monkeypatch.context() as patch, store.Stages(tmp_path / "work") as stages:
        patch.setattr(Path, "rmdir", after_the_other)
        stages.remove()
    with pytest.raises(UsageError, match="is training into this folder"):
        store.Stages(tmp_path / "work")
    begun.pop().remove()

    def folder_gone(path, *more, **options):
        monkeypatch.setattr(os, "open", real_open)
        rmdir(Path(path).parent)
        return real_open(path, *more, **options)

    monkeypatch.setattr(os, "open", folder_gone)
    with store.Stages(tmp_path / "work"):
        assert (tmp_path / "work").is_dir()


def test_a_lock_that_a_run_removes_as_it_ends_is_taken_anew(tmp_path, monkeypatch):
    file = tmp_path / "work" / "longtail.lock"
    lock = durable.lock
    locked = []

    def removed_at_first(fd):
        locked.append(fd)
        if len(locked) == 1:
            file.unlink()
        lock(fd)

    monkeypatch.setattr(durable, "lock", removed_at_first)
    with store.Stages(tmp_path / "work"):
        assert file.read_text().splitlines()[0] == str(os.getpid())
        with pytest.raises(UsageError, match="is training into this folder"):
            store.Stages(tmp_path / "work")


def test_a_work_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match=r"work: .* holds something else; move it away"):
        store.Stages(tmp_path / "work")
    with store.Stages(tmp_path / "other") as stages:
        (tmp_path / "other" / "thesis.tex").write_text("mine")
        durable.sibling(tmp_path / "other" / "a", "tmp").mkdir()
        stages.remove()
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_stage_is_not_written_into_a_folder_that_another_run_has_taken(tmp_path):
    first = store.Stages(tmp_path / "work")
    first.close()  # its process was killed, and one of its workers was not
    with store.Stages(tmp_path / "work") as second:
        with pytest.raises(LongtailError, match="work: found no lock of this training") as caught:
            first.run.write("tree", "in").__enter__()
        assert caught.value.exit_code == 1
        with second.write("tree", "in") as folder:
            folder.write_bytes("a", b"1")
        second.run.check()


@pytest.mark.parametrize(
    "event", ["another run has begun", "that run has ended", "the folder is removed"]
)
def test_a_stage_that_is_being_written_when_its_run_is_over_is_dropped(tmp_path, event):
    work = tmp_path / "work"
    stages = store.Stages(tmp_path / "work")

    def write_while_the_run_ends():
        with stages.run.write("tree", "in") as folder:
            folder.write_bytes("a", b"1")
            stages.close()
            if event == "another run has begun":
                return store.Stages(work)
            if event == "that run has ended":
                store.Stages(work).remove()
            else:
                shutil.rmtree(work)
            for name in ("b", "deep/c"):
                with pytest.raises(FileNotFoundError):
                    folder.write_bytes(name, b"2")

    with pytest.raises(LongtailError, match="found no lock of this training"):
        write_while_the_run_ends()
    left = [path.name for path in work.iterdir()] if work.exists() else None
    assert left == (["longtail.lock"] if event == "another run has begun" else None)


def test_no_folder_is_made_for_a_stage_whose_run_ends_after_the_first_look(tmp_path, monkeypatch):
    check = writing.check_replaceable

    def removed_first(path):
        shutil.rmtree(tmp_path / "work")
        monkeypatch.setattr(writing, "check_replaceable", check)
        check(path)

    with store.Stages(tmp_path / "work") as stages:
        monkeypatch.setattr(writing, "check_replaceable", removed_first)
        with pytest.raises(LongtailError, match="found no lock of this training"):
            stages.write("tree", "in").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_only_left_over_stages_is_taken(tmp_path):
    work = tmp_path / "work"
    with store.write_folder(work / "tree", config_hash="in") as folder:
        folder.write_arrays("arrays.safetensors", {"parents": np.arange(5)})
    (durable.sibling(work / "ranker-0", "tmp") / "deep").mkdir(parents=True)
    with store.Stages(work) as stages:
        assert stages.get("tree", "other") is None
        stages.remove()
    assert not work.exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_folder_of_models_is_not_taken_for_one_of_stages(tmp_path, damaged):
    with store.write_folder(tmp_path / "work" / "model", config_hash="in") as folder:
        folder.write_arrays("tree.safetensors", {"parents": np.arange(5)})
        folder.write_json("config.json", {})
    manifest = tmp_path / "work" / "model" / "manifest.json"
    if damaged:
        manifest.write_bytes(manifest.read_bytes()[:-3])
    with pytest.raises(UsageError, match="holds something else; move it away"):
        store.Stages(tmp_path / "work")
    assert manifest.exists()


@pytest.mark.parametrize("then", ["written into", "removed"])
def test_stages_are_deleted_while_a_worker_of_another_run_writes(tmp_path, monkeypatch, then):
    """The worker puts a file into a folder, or removes its folder, between two steps of the
    deletion.
    """
    deleted = []
    rmtree = shutil.rmtree

    def interfered(folder):
        deleted.append(folder)
        if len(deleted) > 1:
            rmtree(folder)
        elif then == "removed":
            rmtree(folder)
            rmtree(folder)
        else:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))

    with store.Stages(tmp_path / "work") as stages:
        durable.sibling(tmp_path / "work" / "tree", "tmp").mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", interfered)
            stages.remove()
    assert len(deleted) == (2 if then == "written into" else 1)
    assert not (tmp_path / "work").exists()


def test_stages_that_cannot_be_deleted_end_with_the_reason(tmp_path, monkeypatch):
    def fails(folder):
        raise OSError(code, os.strerror(code), str(folder))

    with store.Stages(tmp_path / "work") as stages:
        durable.sibling(tmp_path / "work" / "tree", "tmp").mkdir()
        monkeypatch.setattr(shutil, "rmtree", fails)
        for code in (errno.EACCES, errno.ENOTEMPTY):
            with pytest.raises(OSError, match=re.escape(os.strerror(code))):
                stages.clear()


@pytest.mark.parametrize("name", ["", "a/b", "..", "longtail.lock", ".a", "ä"])
def test_stage_names_are_plain(tmp_path, name):
    with (
        store.Stages(tmp_path / "work") as stages,
        pytest.raises(ValueError, match="is no name for a stage"),
    ):
        stages.get(name, "in")
