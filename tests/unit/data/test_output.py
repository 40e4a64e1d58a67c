"""Files appear whole or not at all, and the same content gives the same bytes."""

from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from longtail.data import output
from longtail.data.output import check_apart, check_output, open_output
from longtail.errors import UsageError
from longtail.store import open_folder, write_folder

UNPACK = {"plain.txt": bytes, "data.gz": gzip.decompress, "data.zst": output.zstd.decompress}


@pytest.mark.parametrize("name", UNPACK)
def test_compressed_by_suffix(tmp_path, name):
    with open_output(tmp_path / name) as out:
        out.write(b"one\n")
        out.write(b"two\n" * 1000)
    content = (tmp_path / name).read_bytes()
    assert UNPACK[name](content) == b"one\n" + b"two\n" * 1000
    assert len(content) < 200 or name == "plain.txt"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", UNPACK)
def test_nothing_written_is_an_empty_but_whole_file(tmp_path, name):
    with open_output(str(tmp_path / name)):
        pass
    assert UNPACK[name]((tmp_path / name).read_bytes()) == b""


@pytest.mark.parametrize("name", UNPACK)
def test_the_same_content_gives_the_same_bytes(tmp_path, name, monkeypatch):
    (tmp_path / "other").mkdir()
    written = []
    for folder, now in ((tmp_path, 1e9), (tmp_path / "other", 2e9)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        with open_output(folder / name) as out:
            out.write(b"text" * 100)
        written.append((folder / name).read_bytes())
    assert written[0] == written[1]
    if name.endswith(".gz"):
        assert written[0][3:8] == b"\0\0\0\0\0"  # no flags, so no name; time 0


@pytest.mark.parametrize("name", UNPACK)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, name, error):
    def fail(path):
        with open_output(path) as out:
            out.write(b"half" * 100_000)
            raise error

    (tmp_path / name).write_bytes(b"old")
    for path in (tmp_path / name, tmp_path / f"new-{name}"):
        with pytest.raises(error):
            fail(path)
        assert (tmp_path / name).read_bytes() == b"old"
        assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_old_file_stands_until_the_new_one_is_whole_and_on_disk(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    synced = []

    def fsync(handle):
        synced.append((os.fstat(handle).st_size, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    with open_output(path) as out:
        out.write(b"new content")
        assert path.read_bytes() == b"old"
    assert synced == [(len(b"new content"), b"old")]
    assert path.read_bytes() == b"new content"


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_another_writer_does_not_clear_a_file_that_is_being_put_in_place(tmp_path, monkeypatch):
    put = Path.replace

    def replace(temporary, folder):
        output._clear_leftovers(folder)
        return put(temporary, folder)

    monkeypatch.setattr(Path, "replace", replace)
    with open_output(tmp_path / "file.txt") as out:
        out.write(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
    assert (tmp_path / "file.txt").read_bytes() == b"whole"


def test_a_missing_folder(tmp_path):
    with pytest.raises(UsageError, match=r"the folder .*nowhere does not exist; make it first"):
        open_output(tmp_path / "nowhere" / "file").__enter__()


def test_a_folder_that_may_not_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != tmp_path
    )  # root may write everywhere
    with pytest.raises(PermissionError) as refused:
        check_output(tmp_path / "file")
    assert refused.value.filename == str(tmp_path / "file")


@pytest.mark.parametrize("name", ["part.json", "new.jsonl", "inner/new.jsonl"])
def test_a_model_folder_is_not_written_into(tmp_path, name):
    with write_folder(tmp_path / "model") as folder:
        folder.write_json("part.json", 1)
        folder.write_json("inner/part.json", 1)
    with pytest.raises(
        UsageError, match="model: is a model folder, which more in it would damage; write elsewhere"
    ):
        open_output(tmp_path / "model" / name).__enter__()
    assert open_folder(tmp_path / "model").read_json("part.json", int) == 1


def test_what_is_read_is_not_written_over(tmp_path):
    (tmp_path / "a").write_bytes(b"documents")
    (tmp_path / "link").symlink_to("a")
    for read in ("a", "link"):
        with pytest.raises(
            UsageError, match="a: is read, and would be written over; give another file to write"
        ):
            check_apart(tmp_path / "a", None, "-", tmp_path / "missing", tmp_path / read)
    check_apart(tmp_path / "b", tmp_path / "a")
    check_apart("-", "-")


def test_folders_and_devices_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(
            UsageError, match="a folder or device; expected a file, or - for standard output"
        ):
            open_output(path).__enter__()
    assert (tmp_path / "pipe").is_fifo()


def test_standard_output_is_flushed_and_left_open(monkeypatch):
    class Buffer(io.BytesIO):
        flushed = b""

        def flush(self):
            self.flushed = self.getvalue()

    buffer = Buffer()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=buffer))
    with open_output("-") as out:
        out.write(b"results")
    assert buffer.flushed == b"results"
    assert not buffer.closed
