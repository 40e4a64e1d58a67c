"""Model folders: what was written is what is read, and what was damaged is refused."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from longtail import __version__, store
from longtail.errors import ModelFolderError
from longtail.store import durable, reading
from longtail.store.manifest import check_name, decode, encode
from longtail.store.refusal import refusal


class Config(msgspec.Struct):
    branching: int
    name: str


def beside(path):
    return sorted(entry.name for entry in path.parent.iterdir() if entry != path)


def test_a_folder_gives_back_what_was_written(tmp_path):
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    with store.write_folder(tmp_path / "deep" / "model", config_hash="c0ffee") as folder:
        folder.write_json("config.json", Config(32, "ö"))
        folder.write_bytes("README.md", b"# A model\n")
        folder.write_pieces("labels.jsonl", (b"%d\n" % i for i in range(3)))
        folder.write_pieces("wide", [memoryview(np.arange(3)), b"", memoryview(np.arange(2))])
        folder.write_arrays("ranker.safetensors", {"weights": weights}, {"level": "0"})
        folder.write_bytes("empty", b"")
        folder.path("encoder/vocab.txt").write_text("wind\n")
        folder.write_bytes("trees/0/order", b"\0")
    opened = store.open_folder(tmp_path / "deep" / "model")
    assert opened.read_json("config.json", Config) == Config(32, "ö")
    assert opened.read_bytes("labels.jsonl") == b"0\n1\n2\n"
    assert opened.read_bytes("wide") == np.array([0, 1, 2, 0, 1]).tobytes()
    assert opened.read_bytes("empty") == b""
    assert opened.read_bytes("encoder/vocab.txt") == b"wind\n"
    assert opened.read_bytes("trees/0/order") == b"\0"
    assert opened.path("encoder/vocab.txt").read_text() == "wind\n"
    assert opened.array_metadata("ranker.safetensors") == {"level": "0"}
    np.testing.assert_array_equal(
        opened.arrays("ranker.safetensors")["weights"], weights, strict=True
    )
    assert opened.manifest.producer == f"longtail {__version__}"
    assert opened.manifest.config_hash == "c0ffee"
    names = [
        "config.json",
        "README.md",
        "labels.jsonl",
        "ranker.safetensors",
        "wide",
        "empty",
        "encoder/vocab.txt",
    ]
    assert sorted(opened.files) == sorted([*names, "trees/0/order"])
    assert opened.size == sum(opened.path(name).stat().st_size for name in opened.files)
    assert beside(tmp_path / "deep" / "model") == []


def test_the_same_content_is_the_same_bytes(tmp_path):
    for name, keys in [("one", "abc"), ("two", "cba")]:
        with store.write_folder(tmp_path / name) as folder:
            for key in keys:
                folder.write_json(f"{key}.json", dict.fromkeys(keys, 1.5))
            folder.write_arrays("x", {key: np.ones(3) for key in keys}, dict.fromkeys(keys, "v"))
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]
    assert (
        tmp_path / "one" / "a.json"
    ).read_bytes() == b'{\n  "a": 1.5,\n  "b": 1.5,\n  "c": 1.5\n}\n'


def test_arrays_are_mapped_and_read_only(tmp_path):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_arrays("x", {"x": np.arange(1 << 16)})
    array = store.open_folder(tmp_path / "model").arrays("x")["x"]
    assert not array.flags.owndata
    assert array.flags.aligned
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_what_was_opened_stays_when_the_folder_is_replaced_or_deleted(tmp_path):
    for version in range(3):
        with store.write_folder(tmp_path / "model") as folder:
            folder.write_arrays("x", {"x": np.full(100_000, version)})
            folder.write_json("late.json", version)
        if version == 0:
            first = store.open_folder(tmp_path / "model")
            mapped = first.arrays("x")["x"]
    assert first.read_json("late.json", int) == 0
    assert (mapped == 0).all()
    assert (first.arrays("x")["x"] == 0).all()
    assert store.open_folder(tmp_path / "model").read_json("late.json", int) == 2


def test_names_may_be_unicode_and_the_folder_may_be_a_link(tmp_path):
    with store.write_folder(tmp_path / "mödel 模型") as folder:
        folder.write_bytes("größe/索引.bin", b"1")
    (tmp_path / "link").symlink_to(tmp_path / "mödel 模型")
    assert store.open_folder(tmp_path / "link").read_bytes("größe/索引.bin") == b"1"
    with store.write_folder(tmp_path / "link") as folder:
        folder.write_bytes("a", b"2")
    assert (tmp_path / "link").is_symlink()
    assert store.open_folder(tmp_path / "mödel 模型").read_bytes("a") == b"2"


NO_NAMES = {
    "is not a plain relative path": ["", "/a", "a/", "a//b", ".", "./a", "..", "../a", "a/../b"],
    "has a backslash, colon or control character in it": ["a\\b", "C:a", "a\nb", "a\x7f"],
    "is the manifest itself": ["manifest.json"],
    "surrogates not allowed": ["\udc80"],
    "is not in Unicode normal form C": ["u\u0308"],
    "is longer than 1024 bytes": ["ä" * 513],
}


@pytest.mark.parametrize(
    ("name", "message"), [(name, what) for what, names in NO_NAMES.items() for name in names]
)
def test_names_that_are_not_plain_are_refused_when_writing(tmp_path, name, message):
    with pytest.raises(ValueError, match=f"{message}$"):
        check_name(name)
    with (
        pytest.raises(ValueError, match=f"{message}$"),
        store.write_folder(tmp_path / "model") as folder,
    ):
        folder.write_bytes(name, b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("there", "instead", "message"),
    [
        (b'"abc"', b'"abd"', "is damaged or was edited: its own SHA-256 does not match"),
        (b'"format": 1', b'"format": 0', r"is damaged \(format 0, expected 1 to 1\)"),
        (b'"format": 1', b'"format": 2', "format 2 was made by a newer version of longtail"),
    ],
)
def test_a_changed_manifest_is_refused_with_its_place(there, instead, message):
    raw = encode("longtail 0", "abc", ())
    assert decode(raw, Path("model/manifest.json")).config_hash == "abc"
    with pytest.raises(ModelFolderError, match=rf"^model/manifest\.json: {message}"):
        decode(raw.replace(there, instead), Path("model/manifest.json"))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["../a"], r"the file name '\.\./a' is not a plain relative path; train again"),
        (["a", "a"], "the file name 'a' is listed twice or out of order; train again"),
    ],
)
def test_names_that_a_manifest_may_not_have_are_refused_with_its_place(paths, message):
    raw = encode("longtail 0", "abc", tuple(store.FileEntry(path, 0, "0" * 64) for path in paths))
    with pytest.raises(ModelFolderError, match=rf"^model/manifest\.json: {message}"):
        decode(raw, Path("model/manifest.json"))


def test_a_failing_body_changes_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), store.write_folder(tmp_path / "model") as folder:
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")
    with contextlib.suppress(ZeroDivisionError), store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"2")
        _ = 1 / 0
    assert store.open_folder(tmp_path / "model").read_bytes("a") == b"1"
    assert beside(tmp_path / "model") == []


def test_half_a_file_does_not_get_into_the_manifest(tmp_path):
    def pieces():
        yield b"half"
        raise ZeroDivisionError

    with store.write_folder(tmp_path / "model") as folder:
        with pytest.raises(ZeroDivisionError):
            folder.write_pieces("a", pieces())
        with pytest.raises(TypeError, match="'x' of dtype object"):
            folder.write_arrays("b", {"x": np.array([None])})
        folder.path("gone/deeper").mkdir()
    assert list(store.open_folder(tmp_path / "model").files) == []
    assert [entry.name for entry in (tmp_path / "model").iterdir()] == ["manifest.json"]


def test_a_file_is_written_whole_with_its_hash_and_over_no_other(tmp_path):
    pieces = [np.random.default_rng(0).bytes(size) for size in (3, (5 << 19) + 1, 0, 1 << 20)]
    whole = b"".join(pieces)
    expected = len(whole), hashlib.sha256(whole).hexdigest()
    assert durable.create_file(tmp_path / "a", pieces) == expected
    assert durable.sync_file(tmp_path / "a") == expected
    with pytest.raises(FileExistsError):
        durable.create_file(tmp_path / "a", [b"other"])
    assert (tmp_path / "a").read_bytes() == whole


@pytest.mark.parametrize(("code", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_its_file_system_cannot_sync_is_no_failure(
    tmp_path, monkeypatch, code, fails
):
    def answer(fd):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", answer)
    with pytest.raises(OSError, match="Input") if fails else contextlib.nullcontext():
        durable.sync_folder(tmp_path)


def test_a_file_written_again_by_something_else_is_hashed_again(tmp_path):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"first")
        folder.path("a").write_bytes(b"second")
    assert store.open_folder(tmp_path / "model").read_bytes("a") == b"second"


@pytest.mark.parametrize("linked", [True, False])
def test_a_file_of_another_folder_is_taken_over(tmp_path, monkeypatch, linked):
    if not linked:

        def other_disk(source, place):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        monkeypatch.setattr(os, "link", other_disk)
    with store.write_folder(tmp_path / "first") as folder:
        folder.write_bytes("a", b"123")
    first = store.open_folder(tmp_path / "first")
    with store.write_folder(tmp_path / "second") as folder:
        folder.take("deep/b", first, "a")
    second = store.open_folder(tmp_path / "second")
    assert second.read_bytes("deep/b") == b"123"
    assert (second.files["deep/b"].size, second.files["deep/b"].sha256) == (
        3,
        first.files["a"].sha256,
    )
    assert second.path("deep/b").samefile(first.path("a")) == linked


def test_a_file_that_was_altered_is_not_taken_over(tmp_path):
    with store.write_folder(tmp_path / "first") as folder:
        folder.write_bytes("a", b"123")
    first = store.open_folder(tmp_path / "first")
    first.path("a").write_bytes(b"124")
    message = rf"^{re.escape(str(first.path('a')))}: was altered since it was opened; train with --resume$"
    with (
        pytest.raises(ModelFolderError, match=message),
        store.write_folder(tmp_path / "second") as folder,
    ):
        folder.take("b", first, "a")
    assert not (tmp_path / "second").exists()


def test_a_pipe_that_something_else_made_is_refused(tmp_path):
    with (
        pytest.raises(ValueError, match=r"'pipe' is not a plain file, and"),
        store.write_folder(tmp_path / "a") as folder,
    ):
        os.mkfifo(folder.path("pipe"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["file", "folder"])
def test_a_link_that_something_else_wrote_is_refused(tmp_path, target):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="'sub/link' is not a plain file"):  # noqa: SIM117
        with store.write_folder(tmp_path / "model") as folder:
            folder.path("sub/link").symlink_to(tmp_path / target)
    assert not (tmp_path / "model").exists()


def test_reading_what_is_not_there_or_of_another_type(tmp_path):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_json("config.json", {"branching": "many", "name": ""})
    opened = store.open_folder(tmp_path / "model")
    with pytest.raises(
        ModelFolderError, match=r"model/tree\.safetensors: is not in this model folder"
    ):
        opened.arrays("tree.safetensors")
    other = r"config\.json: written by longtail .*, does not .*`int`, got `str` - at `\$\.branching`.*; read it with"
    with pytest.raises(ModelFolderError, match=other):
        opened.read_json("config.json", Config)
    with pytest.raises(ModelFolderError, match=r"nowhere: no such model folder; check the path"):
        store.open_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="verify is True or 'size'"):
        store.open_folder(tmp_path / "model", verify=False)


def test_a_subfolder_is_a_folder_of_its_own(tmp_path):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")
        folder.write_bytes("member-0/a", b"22")
        folder.write_bytes("member-0/deep/b", b"333")
        folder.write_bytes("member-01/c", b"4")
    inner = store.open_folder(tmp_path / "model", leave_out=lambda name: name.endswith("b")).inside(
        "member-0"
    )
    assert [entry.path for entry in inner.manifest.files] == ["a", "deep/b"]
    assert inner.read_bytes("a") == b"22"
    assert inner.path("deep/b").read_bytes() == b"333"
    assert inner.size == 5
    assert not inner.holds("deep/b")  # it was left out of the whole


def damaged(folder, how):
    if how == "no manifest":
        (folder / "manifest.json").unlink()
    elif how == "folder":
        (folder / "more").mkdir()
    else:
        (folder / "more").write_bytes(b"")


@pytest.mark.parametrize("files", [[], ["a"]])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            "no manifest",
            "manifest.json: is missing: this is not a model folder, or an incomplete one; train again",
        ),
        ("folder", "more: is a folder that is not in the manifest; remove it"),
        ("file", "more: is not in the manifest; remove it"),
    ],
)
def test_what_a_folder_lacks_or_has_too_much_is_named(tmp_path, files, how, message):
    with store.write_folder(tmp_path / "model") as folder:
        for name in files:
            folder.write_bytes(name, b"1")
    damaged(tmp_path / "model", how)
    with pytest.raises(
        ModelFolderError, match=f"^{re.escape(str(tmp_path.resolve() / 'model'))}/{message}"
    ):
        store.open_folder(tmp_path / "model")


def test_a_refusal_is_one_short_line_whatever_was_found():
    way_out = "train again or restore the folder from a backup"
    assert str(refusal("model/a", "x" * 300)) == f"model/a: {'x' * 300}; {way_out}"
    assert (
        str(refusal("model/\x1b", "y\n" + "x" * 299, "go")) == f"model/\\x1b: y\\n{'x' * 298}…; go"
    )


def test_a_missing_file_is_named(tmp_path):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")
    (tmp_path / "model" / "a").unlink()
    with pytest.raises(ModelFolderError, match=r"model/a: is missing; "):
        store.open_folder(tmp_path / "model")


def test_a_manifest_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    with store.write_folder(tmp_path / "model"):
        pass

    def broken(file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(reading, "_open_plain", broken)
    with pytest.raises(
        ModelFolderError, match=r"manifest\.json: cannot be read \(Input/output error\); "
    ):
        store.open_folder(tmp_path / "model")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")

    def refused(place):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(
        ModelFolderError,
        match=r"model: cannot be read \(Permission denied\); check its permissions",
    ):
        store.open_folder(tmp_path / "model")


def test_a_pipe_put_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path, monkeypatch):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")
    (tmp_path / "model" / "a").unlink()
    os.mkfifo(tmp_path / "model" / "a")
    with pytest.raises(
        ModelFolderError,
        match="model/a: is not a plain file; a model folder holds only plain files",
    ):
        store.open_folder(tmp_path / "model")
    monkeypatch.setattr(
        reading, "_check_listing", lambda *arguments: None
    )  # it was put there since
    with pytest.raises(
        ModelFolderError, match=r"model/a: cannot be read \(it is not a plain file\); check its"
    ):
        store.open_folder(tmp_path / "model")


def test_a_file_where_a_folder_should_be_is_no_model(tmp_path):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("deep/a", b"1")
    with pytest.raises(
        ModelFolderError,
        match="a: is a file; expected a model folder; give what `longtail train -o`",
    ):
        store.open_folder(tmp_path / "model" / "deep" / "a")
    (tmp_path / "model" / "deep" / "a").unlink()
    (tmp_path / "model" / "deep").rmdir()
    with pytest.raises(ModelFolderError, match="model/deep/a: is missing; "):
        store.open_folder(tmp_path / "model")
    with pytest.raises(
        ModelFolderError, match=r"no such model folder \(.*null.*\); check the path$"
    ):
        store.open_folder("a\0b")


def test_a_file_cut_short_while_it_is_opened_is_named(tmp_path, monkeypatch):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"1")

    def cut(*arguments, **options):
        raise ValueError("mmap length is greater than file size")

    monkeypatch.setattr("mmap.mmap", cut)
    with pytest.raises(
        ModelFolderError,
        match=r"model/a: cannot be read \(mmap length is greater than file size\); ",
    ):
        store.open_folder(tmp_path / "model")


def test_quick_verification_looks_at_sizes_only(tmp_path):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_bytes("a", b"12")
    (tmp_path / "model" / "a").write_bytes(b"21")
    with pytest.raises(
        ModelFolderError,
        match=r"model/a: is damaged or was altered: its SHA-256 is not the one in the",
    ):
        store.open_folder(tmp_path / "model")
    assert store.open_folder(tmp_path / "model", verify="size").read_bytes("a") == b"21"
    (tmp_path / "model" / "a").write_bytes(b"2")
    with pytest.raises(ModelFolderError, match=r"model/a: is 1 bytes long; the manifest says 2"):
        store.open_folder(tmp_path / "model", verify="size")


def test_opening_writes_nothing(tmp_path, monkeypatch):
    with store.write_folder(tmp_path / "model") as folder:
        folder.write_arrays("x", {"x": np.ones(3)})
    real_open = os.open

    def open_to_read(path, flags, *args, **kwargs):
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT), path
        return real_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_to_read)
    for name in ("mkdir", "rename", "replace", "unlink", "rmdir", "utime", "chmod", "fsync"):
        monkeypatch.setattr(os, name, None)
    assert store.open_folder(tmp_path / "model").arrays("x")["x"].sum() == 3


def test_public_names():
    assert all(hasattr(store, name) for name in store.__all__)
