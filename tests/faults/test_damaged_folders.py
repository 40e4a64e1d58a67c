"""Model folders against damage and hostile files."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tracemalloc
from pathlib import Path

import pytest
from saved_folders import FILES, refused, save, version_of

from longtail import store
from longtail.errors import ModelFolderError
from longtail.store import tensors
from longtail.store.manifest import FileEntry, decode, encode

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")
SHA = "0" * 64


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
    "name",
    ["notes.txt", "encoder/notes.txt", "encoder/.hidden", "manifest.json.bak", "a\nb\x1b[2J"],
)
def test_an_added_file_is_refused(model, name):
    (model / name).write_bytes(b"")
    refused(model, name.encode("unicode_escape").decode(), "is not in the manifest; remove it")


@pytest.mark.parametrize("name", ["more", "encoder/more"])
def test_an_added_folder_is_refused(model, name):
    (model / name).mkdir()
    refused(model, name, "is a folder that is not in the manifest")


def test_swapped_files_are_refused(model):
    for one, other in [
        ("config.json", "ranker.safetensors"),
        ("config.json", "encoder/config.json"),
    ]:
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


# -------------------------------------------------------------------------------------------------
# hostility


@pytest.mark.parametrize(
    "name",
    [
        *[
            "../secret",
            "/etc/passwd",
            "encoder/../../secret",
            "a//b",
            "./a",
            "a/.",
            "",
            "a/",
            "..\\a",
            "C:\\a",
            "C:a",
        ],
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
    head = (
        (model / "manifest.json")
        .read_bytes()[:-68]
        .replace(b'"producer"', b'"run": "x",\n  "producer"')
    )
    (model / "manifest.json").write_bytes(
        head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n'
    )
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
        (
            raw_tensors({"a": tensor([1], 0, 4, dtype="object")}, bytes(4)),
            "has dtype 'object', expected one of BOOL",
        ),
        (raw_tensors({"a": tensor([1], 0, 2, dtype="BF16")}, bytes(2)), "has dtype 'BF16'"),
        (raw_tensors({"a": tensor([-1], 0, 4)}, bytes(4)), "not readable"),
        (raw_tensors({"a": tensor([1.0], 0, 4)}, bytes(4)), "not readable"),
        (raw_tensors({"a": tensor([1], -4, 0)}, bytes(4)), "not readable"),
        (raw_tensors({"a": tensor([1] * 9, 0, 4)}, bytes(4)), "not readable"),
        (raw_tensors({"a": tensor([2], 0, 4)}, bytes(4)), "does not fill bytes 0 to 4"),
        (
            raw_tensors({"a": tensor([2**62, 4], 0, 0)}),
            "does not fill",
        ),  # 2**66 bytes are 0 in 64 bits
        (raw_tensors({"a": tensor([2**31, 2**31, 2**31], 0, 4)}, bytes(4)), "does not fill"),
        (raw_tensors({"a": tensor([2**62, 0, 2**62], 0, 0)}), "absurd shape"),
        (raw_tensors({"a": tensor([10**30], 0, 4 * 10**30)}, bytes(4)), "absurd shape"),
        (raw_tensors({"a": tensor([1], 0, 4)}), "holds 0 bytes of arrays, and its header says 4"),
        (
            raw_tensors({"a": tensor([1], 0, 4)}, bytes(5)),
            "holds 5 bytes of arrays, and its header says 4",
        ),
        (raw_tensors({"a": tensor([1], 4, 8)}, bytes(8)), "starts at byte 4, expected 0: a hole"),
        (
            raw_tensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)),
            "starts at byte 4, expected 8",
        ),
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
