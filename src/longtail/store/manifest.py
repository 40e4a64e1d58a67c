"""The manifest of a model folder: which files it holds, and how big and what they are.

It is JSON that ends with a seal, the SHA-256 of every byte before the seal itself, so that a
manifest with any byte changed is refused like any other damaged file."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import Path
from typing import Annotated

import msgspec

from longtail.store.refusal import refusal

__all__ = [
    "FORMAT",
    "JSON_ERRORS",
    "MANIFEST",
    "MAX_MANIFEST_BYTES",
    "FileEntry",
    "Manifest",
    "begins_like_ours",
    "check_name",
    "decode",
    "encode",
]

FORMAT = 1  # raised when an older Longtail could no longer read what is written
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 16 << 20
# what decoding of untrusted JSON may raise
JSON_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)

_MAX_NAME_BYTES = 1024
_END = b'"\n}\n'  # what follows the seal
_SEAL = slice(-len(_END) - 64, -len(_END))
_REFUSED_PARTS = frozenset({"", ".", ".."})  # of a path
_REFUSED_CHARACTERS = re.compile(r"[\\:\x00-\x1f\x7f]")
_BEGINNING = re.compile(rb'\{\s*"format":\s*\d+,\s*"producer":\s*"longtail ')

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file: its path inside the folder (``/`` between parts), size in bytes, and SHA-256 in
    hexadecimal.
    """

    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Sha256


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a folder says of itself; ``files`` are sorted by path, ``sha256`` is the seal."""

    format: int
    producer: str
    config_hash: str
    files: tuple[FileEntry, ...]
    sha256: Sha256


class _AnyVersion(msgspec.Struct):
    format: int


def encode(producer: str, config_hash: str, files: tuple[FileEntry, ...]) -> bytes:
    """Return the sealed manifest, the same bytes for the same arguments."""
    unsealed = Manifest(
        FORMAT, producer, config_hash, tuple(sorted(files, key=lambda entry: entry.path)), ""
    )
    head = msgspec.json.format(msgspec.json.encode(unsealed), indent=2).removesuffix(b'"\n}')
    return head + hashlib.sha256(head).hexdigest().encode() + _END


def decode(raw: bytes, file: Path) -> Manifest:
    """Return the manifest that ``raw`` holds; ``file`` is named when it is refused."""
    _check_version(raw, file)
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except JSON_ERRORS as error:
        raise refusal(file, f"is damaged ({error})") from None
    seal = raw[_SEAL].decode("ascii", "replace")
    if (
        manifest.sha256 != seal
        or hashlib.sha256(raw[: _SEAL.start]).hexdigest() != seal
        or not raw.endswith(_END)
    ):
        raise refusal(file, "is damaged or was edited: its own SHA-256 does not match")
    _check_names(manifest, file)
    return manifest


def begins_like_ours(raw: bytes) -> bool:
    """Tell whether ``raw`` starts as a manifest of ours does, be the rest damaged or not."""
    return _BEGINNING.match(raw) is not None


def check_name(name: str) -> None:
    """Raise ValueError unless ``name`` is a plain relative path that means the same file on every
    system.
    """
    if not _REFUSED_PARTS.isdisjoint(name.split("/")):
        raise ValueError(f"'{name}' is not a plain relative path")
    if _REFUSED_CHARACTERS.search(name):
        raise ValueError(f"'{name}' has a backslash, colon or control character in it")
    # a lone surrogate raises UnicodeEncodeError, a ValueError too
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise ValueError(f"'{name}' is longer than {_MAX_NAME_BYTES} bytes")
    if unicodedata.normalize("NFC", name) != name:
        raise ValueError(f"'{name}' is not in Unicode normal form C")
    if name == MANIFEST:
        raise ValueError(f"'{name}' is the manifest itself")


def _check_version(raw: bytes, file: Path) -> None:
    # Apart and lenient: a newer format may have other fields, and must still be told from damage.
    try:
        version = msgspec.json.decode(raw, type=_AnyVersion).format
    except JSON_ERRORS as error:
        raise refusal(file, f"is damaged ({error})") from None
    if version > FORMAT:
        problem = f"format {version} was made by a newer version of longtail"
        problem += f"; this one reads up to format {FORMAT}"
        raise refusal(file, problem, "upgrade longtail")
    if version < 1:
        raise refusal(file, f"is damaged (format {version}, expected 1 to {FORMAT})")


def _check_names(manifest: Manifest, file: Path) -> None:
    before = ""
    for entry in manifest.files:
        try:
            check_name(entry.path)
        except ValueError as error:
            raise refusal(file, f"the file name {error}") from None
        if entry.path <= before:
            raise refusal(file, f"the file name '{entry.path}' is listed twice or out of order")
        before = entry.path
