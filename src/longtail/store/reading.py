"""Opening a model folder: everything in the manifest is verified before any of it is used."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from longtail.errors import ModelFolderError
from longtail.store import tensors
from longtail.store.durable import identity, siblings
from longtail.store.manifest import (
    JSON_ERRORS,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    FileEntry,
    Manifest,
    decode,
)
from longtail.store.refusal import WAY_OUT, refusal

__all__ = ["Folder", "open_folder"]

T = TypeVar("T")
Verify = Literal[True, "size"]

_ONLY_PLAIN = "a model folder holds only plain files"
_OTHER_VERSION = f"read it with the version that wrote it, or {WAY_OUT}"
_TRIES = 20  # of opening a folder that is being replaced all the time
_THREADS = 4  # hashing lets go of the GIL


class Folder:
    """A verified model folder. It stays readable, as it was, when the folder is replaced or
    deleted.

    ``path`` is the exception: it is for libraries that open files themselves.
    """

    def __init__(
        self, root: Path, manifest: Manifest, maps: Mapping[str, mmap.mmap | bytes]
    ) -> None:
        self.root = root
        self.manifest = manifest
        self.files: Mapping[str, FileEntry] = MappingProxyType(
            {entry.path: entry for entry in manifest.files}
        )
        self._maps = maps

    def __repr__(self) -> str:
        return f"Folder({str(self.root)!r}, {len(self.files)} files, {self.size} bytes)"

    @property
    def size(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(entry.size for entry in self.manifest.files)

    def path(self, name: str) -> Path:
        """Return where the file or subfolder ``name`` lies."""
        return self.root / name

    def inside(self, name: str) -> Folder:
        """Return the subfolder ``name`` as a folder of its own, verified with the whole."""
        members = {path: entry for path, entry in self.files.items() if path.startswith(f"{name}/")}
        files = tuple(
            msgspec.structs.replace(entry, path=path[len(name) + 1 :])
            for path, entry in members.items()
        )
        maps = {path[len(name) + 1 :]: self._maps[path] for path in members if path in self._maps}
        return Folder(self.path(name), msgspec.structs.replace(self.manifest, files=files), maps)

    def holds(self, name: str) -> bool:
        """Tell whether a file can be read: it is in the manifest, and was not left out."""
        return name in self._maps

    def view(self, name: str) -> memoryview:
        """Return the bytes of a file where they lie, read-only."""
        if name not in self._maps:
            raise refusal(self.path(name), "is not in this model folder, and is needed")
        return memoryview(self._maps[name])

    def read_bytes(self, name: str) -> bytes:
        """Return a copy of the bytes of a file."""
        return bytes(self.view(name))

    def read_json(self, name: str, type: type[T], upgrade: Callable[[Any], Any] | None = None) -> T:
        """Return the JSON in a file as ``type``, checked by msgspec; ``upgrade`` changes that of
        earlier versions.
        """
        try:
            if upgrade is not None:
                return msgspec.convert(upgrade(msgspec.json.decode(self.view(name))), type)
            return msgspec.json.decode(self.view(name), type=type)
        except JSON_ERRORS as error:
            problem = f"written by {self.manifest.producer}"
            problem += f", does not hold what this version expects ({error})"
            raise refusal(self.path(name), problem, _OTHER_VERSION) from None

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a safetensors file, memory-mapped and read-only."""
        return tensors.read_arrays(self.view(name), self.path(name))

    def array_metadata(self, name: str) -> dict[str, str]:
        """Return the strings that a safetensors file holds beside its arrays."""
        return tensors.read_metadata(self.view(name), self.path(name))


def open_folder(
    path: str | Path, verify: Verify = True, leave_out: Callable[[str], bool] | None = None
) -> Folder:
    """Open the model folder at ``path``; ModelFolderError names the first file that does not
    verify.

    ``verify="size"`` checks the manifest, the names and the sizes and trusts the rest, for folders
    so big that reading them through takes too long. Files whose names ``leave_out`` picks are not
    looked at: they may be missing, and cannot be read."""
    if verify not in (True, "size"):
        raise ValueError(f"verify is True or 'size', not {verify!r}")
    tries_left = _TRIES
    while True:
        tries_left -= 1
        root = _locate(Path(path))
        before = identity(root)
        try:
            folder = _open_once(root, verify, leave_out or (lambda name: False))
        except ModelFolderError:
            if not tries_left or identity(_locate(Path(path))) == before:
                raise
        else:
            # With every hash checked it is one consistent folder, whatever happened meanwhile.
            if verify is True or not tries_left or identity(root) == before:
                return folder


def _locate(path: Path) -> Path:
    """Return ``path``, or its folder as put aside by a writer that died while replacing it."""
    try:
        path = path.resolve()
        if path.exists():
            return path
        return next(iter(siblings(path, "old")), path)
    except (OSError, RuntimeError, ValueError) as error:
        # no permission, a loop of symbolic links, a NUL
        raise refusal(path, f"no such model folder ({error})", "check the path") from None


def _open_once(root: Path, verify: Verify, leave_out: Callable[[str], bool]) -> Folder:
    if root.is_file():
        raise refusal(
            root, "is a file; expected a model folder", "give what `longtail train -o` has written"
        )
    if not root.is_dir():
        raise refusal(root, "no such model folder", "check the path, or train a model")
    manifest = decode(_read_manifest(root / MANIFEST), root / MANIFEST)
    wanted = [entry for entry in manifest.files if not leave_out(entry.path)]
    _check_listing(root, {entry.path for entry in manifest.files}, {entry.path for entry in wanted})
    with ThreadPoolExecutor(_THREADS) as pool:
        maps = list(pool.map(partial(_map_file, root, full=verify is True), wanted))
    return Folder(
        root, manifest, {entry.path: mapped for entry, mapped in zip(wanted, maps, strict=True)}
    )


def _read_manifest(file: Path) -> bytes:
    try:
        with _open_plain(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size > MAX_MANIFEST_BYTES:
                raise refusal(file, f"is {size} bytes long; at most {MAX_MANIFEST_BYTES} are read")
            return opened.read(MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise refusal(
            file, "is missing: this is not a model folder, or an incomplete one"
        ) from None
    except OSError as error:
        raise _unreadable(file, error) from None


def _check_listing(root: Path, names: set[str], wanted: set[str]) -> None:
    """Refuse anything on disk that is not in the manifest, and anything wanted that is missing.

    Looks into known subfolders only.
    """
    folders = {
        "/".join(name.split("/")[:depth]) for name in names for depth in range(name.count("/") + 1)
    }
    seen = {
        name for folder in sorted({"", *folders}) for name in _list(root, folder, names, folders)
    }
    for name in sorted(wanted - seen):
        raise refusal(root / name, "is missing")


def _list(root: Path, folder: str, names: set[str], folders: set[str]) -> list[str]:
    """Return the files of one subfolder that are in the manifest."""
    try:
        with os.scandir(root / folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(root / folder, error) from None
    files = []
    for entry in entries:
        name = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_symlink():
            raise refusal(root / name, f"is a symbolic link; {_ONLY_PLAIN}")
        if entry.is_dir(follow_symlinks=False):
            if name not in folders:
                raise refusal(root / name, "is a folder that is not in the manifest", "remove it")
        elif not entry.is_file(follow_symlinks=False):
            raise refusal(root / name, f"is not a plain file; {_ONLY_PLAIN}")
        elif name in names:
            files.append(name)
        elif name != MANIFEST:
            raise refusal(root / name, "is not in the manifest", "remove it")
    return files


def _map_file(root: Path, entry: FileEntry, full: bool) -> mmap.mmap | bytes:
    file = root / entry.path
    try:
        with _open_plain(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size != entry.size:
                raise refusal(file, f"is {size} bytes long; the manifest says {entry.size}")
            if full and hashlib.file_digest(opened, "sha256").hexdigest() != entry.sha256:
                raise refusal(
                    file, "is damaged or was altered: its SHA-256 is not the one in the manifest"
                )
            if size:
                return mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ)
            return b""
    except (OSError, ValueError) as error:
        # ValueError: cut short between looking at its size and mapping it
        raise _unreadable(file, error) from None


def _open_plain(file: Path) -> FileIO:
    # the callers close it
    opened = open(file, "rb", buffering=0, opener=_open_no_follow)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise OSError("it is not a plain file")
    return opened


def _open_no_follow(file: str, flags: int) -> int:
    # Not blocking: somebody may have put a named pipe there since the folder was listed.
    return os.open(file, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _unreadable(file: Path, error: OSError | ValueError) -> ModelFolderError:
    reason = getattr(error, "strerror", None) or str(error)
    return refusal(
        file,
        f"cannot be read ({reason})",
        "check its permissions and the disk, or restore a backup",
    )
