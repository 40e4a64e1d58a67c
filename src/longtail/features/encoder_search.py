"""Where encoders and word vectors are looked for by name: folders given for it, and the cache of
Hugging Face.

Nothing is downloaded. A preset names its encoder as the hub does, ``bert-base-uncased``; the name
is found as a local folder, in a folder of :func:`search_encoders_in` (``--encoder-folder``), or in
the cache where an earlier download of another program left it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from longtail.errors import UsageError

__all__ = ["find_encoder", "find_word_vectors", "search_encoders_in", "searched_places"]

# the owners of repositories that the hub also knows by their bare names, as bert-base-uncased
_OWNERS = ("google-bert", "FacebookAI", "xlnet")
_VECTOR_ENDINGS = ("", ".txt", ".vec", ".txt.gz", ".vec.gz", ".gz", ".txt.zst", ".vec.zst")

_folders: ContextVar[tuple[Path, ...]] = ContextVar("encoder folders", default=())


@contextmanager
def search_encoders_in(*folders: Path | str | None) -> Iterator[None]:
    """Look for encoders and word vectors in these folders as well, in the body; None stands for no
    folder.
    """
    for folder in folders:
        if folder is not None and not isinstance(folder, str | Path):
            raise UsageError(f"encoder_folder: found {folder!r}; expected the path of a folder")
    paths = tuple(Path(folder).expanduser() for folder in folders if folder is not None)
    for path in paths:
        if not path.is_dir():
            raise UsageError(
                f"--encoder-folder {path}: no such folder; expected one that holds encoders by name"
            )
    token = _folders.set((*paths, *_folders.get()))
    try:
        yield
    finally:
        _folders.reset(token)


def find_encoder(name: str) -> Path | None:
    """Return the folder of a pretrained encoder: ``name`` itself, or one of those searched."""
    local = Path(name).expanduser()
    if local.is_dir():
        return local
    for folder in _folders.get():
        for candidate in (folder / name, folder / name.replace("/", "--")):
            if candidate.is_dir():
                return candidate
        if folder.name == Path(name).name and (folder / "config.json").is_file():
            return folder
    return _cached(name)


def find_word_vectors(name: str) -> Path | None:
    """Return a file of word vectors: ``name`` itself, or in a folder that is searched, also with an
    ending added.
    """
    local = Path(name).expanduser()
    if local.is_file():
        return local
    candidates = (
        folder / f"{name}{ending}" for folder in _folders.get() for ending in _VECTOR_ENDINGS
    )
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def searched_places() -> str:
    """Return what was searched beside the current folder, for a message."""
    return ", ".join(
        [*(str(folder) for folder in _folders.get()), f"{_cache()} (the cache of Hugging Face)"]
    )


def _cached(name: str) -> Path | None:
    """Return the snapshot of the main branch in the cache of Hugging Face, where there is one."""
    owned = [name]
    if "/" not in name:
        owned += [f"{owner}/{name}" for owner in _OWNERS]
    for repository in owned:
        folder = _cache() / f"models--{repository.replace('/', '--')}"
        try:
            commit = (folder / "refs" / "main").read_text("utf-8").strip()
        except (OSError, ValueError):
            continue
        snapshot = folder / "snapshots" / commit
        if commit and snapshot.is_dir():
            return snapshot
    return None


def _cache() -> Path:
    """Return the folder of the downloads of huggingface_hub, by its environment variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    return Path(home).expanduser() / "hub"
