"""The model that is served now, and how another one takes its place without a request that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from longtail.search.shard_files import open_model_folder
from longtail.server.service import Service
from longtail.store.manifest import MANIFEST

__all__ = ["Reloader"]

log = logging.getLogger("longtail")


class Reloader:
    """Holds the current service. A new one is loaded and warmed up on a thread, then put in its
    place.

    Requests keep the service that they began with, and the old one is freed with the last of them.
    """

    def __init__(
        self,
        path: Path,
        service: Service,
        load: Callable[[], Service],
        shards: Collection[int] | None = None,
    ) -> None:
        self.current = service
        self.on_change: Callable[[Service], None] = lambda service: None
        self._path = path
        self._load = load
        self._shards = shards
        self._one_at_a_time = asyncio.Lock()

    async def reload(self) -> Service:
        """Serve what the folder holds now; where that cannot be loaded, say why, and the old one
        goes on.
        """
        async with self._one_at_a_time:
            try:
                service = await asyncio.to_thread(self._load_changed)
            except Exception as error:  # want of memory, too: the watch must outlive it
                why = str(error) or type(error).__name__
                log.warning("not reloaded, version %s goes on: %s", self.current.name.version, why)
                raise
            if service is not self.current:
                log.info(
                    "reloaded: version %s in place of %s",
                    service.name.version,
                    self.current.name.version,
                )
                self.current = service
                self.on_change(service)
            return service

    def _load_changed(self) -> Service:
        """Return the service of the folder; of the same model the current one, once all files are
        what they were.
        """
        manifest = open_model_folder(self._path, self._shards, verify="size").manifest
        if not manifest.sha256.startswith(self.current.name.version):
            return self._load()  # which verifies every file
        open_model_folder(self._path, self._shards)
        return self.current

    async def watch(self, seconds: float) -> None:
        """Look at the manifest every so often, and reload when it is another."""
        seen = _identity(self._path)
        while True:
            await asyncio.sleep(seconds)
            now = _identity(self._path)
            if now is not None and now != seen:
                seen = now
                await self.reload_quietly()

    async def reload_quietly(self) -> None:
        """Reload where nobody waits for the result; the log says what became of it."""
        with suppress(Exception):  # said already
            await self.reload()


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with the manifest; None while there is none, as between two renames."""
    try:
        found = (path / MANIFEST).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
