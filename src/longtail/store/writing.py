"""Writing a model folder: into a temporary folder beside it, synced, then put in its place in one
step.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np

from longtail import __version__
from longtail.errors import ModelFolderError, UsageError, place_at
from longtail.store import durable
from longtail.store.manifest import (
    MANIFEST,
    FileEntry,
    begins_like_ours,
    check_name,
    decode,
    encode,
)
from longtail.store.reading import Folder
from longtail.store.refusal import refusal
from longtail.store.tensors import array_pieces

__all__ = [
    "FolderWriter",
    "check_outside",
    "check_replaceable",
    "clear_leftovers",
    "holds_a_model",
    "remove_abandoned",
    "write_folder",
    "write_new_folder",
]


class FolderWriter:
    """Puts files into a folder that ``write_folder`` makes; names are relative, with ``/`` between
    parts.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._entries: dict[str, FileEntry] = {}

    def write_pieces(self, name: str, pieces: Iterable[durable.Buffer]) -> None:
        """Write a file from pieces that come one after the other, none of which is kept."""
        size, sha256 = durable.create_file(self.path(name), pieces)
        self._entries[name] = FileEntry(name, size, sha256)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file from bytes."""
        self.write_pieces(name, [data])

    def write_json(self, name: str, value: object) -> None:
        """Write what msgspec can encode as indented JSON, keys of dicts sorted: the same value, the
        same bytes.
        """
        self.write_bytes(
            name,
            msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2)
            + b"\n",
        )

    def write_arrays(
        self, name: str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Write arrays as a safetensors file, with strings beside them if wanted."""
        self.write_pieces(name, array_pieces(arrays, metadata))

    def take(self, name: str, folder: Folder, source: str) -> None:
        """Let the file ``source`` of another verified folder be a file of this one, too: a hard
        link, else a copy.

        Its bytes are read once more, and refused where they are no longer those of that folder's
        manifest."""
        target = self.path(name)
        expected = folder.files[source]
        try:
            os.link(folder.path(source), target)
        except OSError:  # another file system, or one without links
            durable.create_file(target, [folder.view(source)])
        if durable.sync_file(target) != (expected.size, expected.sha256):
            target.unlink()
            raise refusal(
                folder.path(source), "was altered since it was opened", "train with --resume"
            )
        self._entries[name] = FileEntry(name, expected.size, expected.sha256)

    def path(self, name: str) -> Path:
        """Return where something else, an encoder say, may write the file or subfolder ``name``
        before the end.
        """
        check_name(name)
        self._entries.pop(name, None)
        folder = self._root  # never made again: whoever has removed it wants nothing more in it
        for part in name.split("/")[:-1]:
            folder /= part
            folder.mkdir(exist_ok=True)
        return self._root / name

    def seal(self, producer: str, config_hash: str) -> None:
        """Sync what others wrote, write the manifest last, and sync the folders."""
        folders, files = self._contents()
        raw = encode(producer, config_hash, tuple(self._entry(file) for file in files))
        decode(raw, self._root / MANIFEST)  # what could not be opened must not replace what can
        durable.create_file(self._root / MANIFEST, [raw])
        for folder in folders:
            durable.sync_folder(folder)

    def _contents(self) -> tuple[list[Path], list[Path]]:
        """Return the folders, inner ones first, and the files; empty folders go, as no manifest can
        tell of them.
        """
        folders = []
        files = []
        for name, _, _ in os.walk(self._root, topdown=False, onerror=_raise):
            folder = Path(name)
            inside = list(Path(name).iterdir())
            if inside or folder == self._root:
                folders.append(folder)
                files += [path for path in inside if path.is_symlink() or not path.is_dir()]
            else:
                folder.rmdir()
        return folders, files

    def _entry(self, file: Path) -> FileEntry:
        name = file.relative_to(self._root).as_posix()
        if name in self._entries:
            return self._entries[name]
        check_name(name)
        if file.is_symlink() or not file.is_file():
            raise ValueError(f"'{name}' is not a plain file, and a model folder holds only those")
        return FileEntry(name, *durable.sync_file(file))


@contextmanager
def write_folder(
    path: str | Path,
    *,
    config_hash: str = "",
    version: str = __version__,
    parents: bool = True,
    check: Callable[[Path], None] | None = None,
) -> Iterator[FolderWriter]:
    """Make a model folder of what the body of the ``with`` writes; an older model folder at
    ``path`` is replaced.

    When the body or the writing fails, what was at ``path`` stays as it was. Refuses to replace
    anything that is not an empty folder or a model folder, or that holds files of somebody else.

    Args:
        path: The folder.
        config_hash: Hash of the settings, for the manifest.
        version: Version of the producer.
        parents: Whether missing parents of the folder are made; FileNotFoundError is raised
        otherwise.
        check: Called with the complete folder right before it is put in its place; its exception
            keeps the folder out and an older one in.
    """
    target = Path(path).resolve()
    check_replaceable(target)
    if parents:
        _make_parents(target)
    with _temporary_folder(target) as temporary:
        writer = FolderWriter(temporary)
        yield writer
        writer.seal(f"longtail {version}", config_hash)
        check_replaceable(target)
        if check is not None:
            check(temporary)
        durable.put_in_place(temporary, target)


@contextmanager
def write_new_folder(path: str | Path) -> Iterator[Path]:
    """Make a folder of the files that the body writes into a temporary one beside it: whole or not
    at all.

    The place must be free, or an empty folder.
    """
    target = Path(path).resolve()
    _check_free(target)
    with _temporary_folder(target) as temporary:
        yield temporary
        if hasattr(os, "sync"):  # once: to sync many small files one by one takes minutes
            os.sync()
        _check_free(target)
        durable.put_where_free(temporary, target)


def _check_free(target: Path) -> None:
    """Refuse a place of a new folder where something else is."""
    if os.path.ismount(target):
        raise UsageError(
            f"{target}: is a mount point, which cannot be replaced; give a folder inside it"
        )
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target}: is a file; expected an empty or a new folder")
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target}: is not empty; expected an empty or a new folder")


@contextmanager
def _temporary_folder(target: Path) -> Iterator[Path]:
    """Make a temporary folder beside ``target``, which is locked while it is filled, and deleted on
    an error.
    """
    clear_leftovers(target)
    temporary, fd = _claim_temporary(target)
    try:
        yield temporary
    except BaseException as error:
        if isinstance(error, OSError):
            place_at(error, target, temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        if fd is not None:
            os.close(fd)


def _raise(error: OSError) -> None:
    raise error


def holds_a_model(folder: Path) -> bool:
    """Tell whether ``folder`` is a model folder, be it damaged."""
    manifest = folder / MANIFEST
    if manifest.is_symlink() or not manifest.is_file():
        return False
    with suppress(OSError), open(manifest, "rb") as file:
        return begins_like_ours(file.read(4096))
    return False


def check_outside(folder: Path) -> None:
    """Refuse to put anything into a model folder, or below one: it would not open any more."""
    folder = folder.resolve()
    for parent in (folder, *folder.parents):
        if holds_a_model(parent):
            raise UsageError(
                f"{parent}: is a model folder, which more in it would damage; write elsewhere"
            )


def check_replaceable(path: str | Path, force: bool = True) -> None:
    """Refuse a place where a model folder may not be written, for what is there would be lost.

    Without ``force`` an older model folder is refused as well.
    """
    target = Path(path).resolve()
    if not force and holds_a_model(target):
        raise UsageError(
            f"{path}: holds a model already; "
            "give another folder, or replace it: --force, or force=True"
        )
    check_outside(target.parent)
    while True:
        before = durable.identity(target)
        problem = _why_not_replaceable(target)
        if problem is None:
            return
        # else another writer has replaced it while it was looked at
        if durable.identity(target) == before:
            raise UsageError(problem)


def _why_not_replaceable(target: Path) -> str | None:
    # pathlib's raises where another writer has just renamed the folder away
    if os.path.ismount(target):
        return f"{target}: is a mount point, which cannot be replaced; give a folder inside it"
    if not target.exists():
        above = next(folder for folder in target.parents if folder.exists())
        if above.is_dir():
            return None
        return f"{above}: is a file, which can hold no model folder; give another place"
    if not target.is_dir():
        return f"{target}: is a file; give a folder that is new, empty, or holds a model"
    if _current_folder().is_relative_to(target):
        problem = f"{target}: is the current folder, which cannot be replaced"
        return f"{problem}; give another one, or go elsewhere first"
    with suppress(FileNotFoundError):  # it is gone since
        if any(target.iterdir()) and not holds_a_model(target):
            problem = f"{target}: is not a model folder and not empty, so it is not replaced"
            return f"{problem}; give another folder"
    for name in _foreign_files(target):
        problem = f"{target / name}: is not part of the model, and would be lost"
        return f"{problem}; move it to another folder"
    return None


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # deleted under our feet
        return Path("/")


def _foreign_files(target: Path) -> list[str]:
    """Return the files in a model folder that its manifest does not know; of a damaged manifest,
    none.
    """
    try:
        known = {
            entry.path
            for entry in decode((target / MANIFEST).read_bytes(), target / MANIFEST).files
        }
    except (OSError, ModelFolderError):
        return []
    present = (Path(folder, file) for folder, _, files in os.walk(target) for file in files)
    return sorted({file.relative_to(target).as_posix() for file in present} - known - {MANIFEST})


def _make_parents(target: Path) -> None:
    missing = [parent for parent in target.parents if not parent.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    for parent in reversed(missing):
        durable.sync_folder(parent.parent)


def _claim_temporary(target: Path) -> tuple[Path, int | None]:
    """Make a temporary folder and lock it, so that other writers can tell it from one of a dead
    process.
    """
    while True:
        temporary = durable.sibling(target, "tmp")
        try:
            temporary.mkdir()
        except OSError as error:
            place_at(error, target, temporary)
            raise
        try:
            fd = os.open(temporary, os.O_RDONLY)
        except FileNotFoundError:  # cleared before it was locked
            continue
        except PermissionError:  # Windows opens no folders
            return temporary, None
        except OSError:
            temporary.rmdir()
            raise
        with suppress(OSError):
            try:
                durable.lock(fd)
            except BlockingIOError:  # being cleared
                os.close(fd)
                continue
        with suppress(FileNotFoundError):
            if os.path.samestat(temporary.stat(), os.fstat(fd)):
                return temporary, fd
        os.close(fd)


def clear_leftovers(path: str | Path) -> None:
    """Delete what writers of ``path`` left when they died; bring back a folder one of them had put
    aside.
    """
    target = Path(path).resolve()
    for leftover in durable.siblings(target, "tmp"):
        remove_abandoned(leftover)
    for aside in durable.siblings(target, "old"):
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            with suppress(OSError):
                aside.rename(target)


def remove_abandoned(temporary: Path) -> None:
    """Delete a temporary folder whose writer has died."""
    with suppress(OSError):  # a live writer holds its lock, or there are no locks here: leave it
        fd = os.open(temporary, os.O_RDONLY)
        try:
            durable.lock(fd)
            shutil.rmtree(temporary, ignore_errors=True)
        finally:
            os.close(fd)
