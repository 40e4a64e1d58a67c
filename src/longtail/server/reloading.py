"""Replacement of the served model without failing requests."""

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
    """Holds the current service; loads and warms up a new one on a thread before it replaces it.

    Requests keep the service that they began with; the previous one is freed with the last of them.
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
        """Load and serve the model in the folder.

        If it cannot be loaded, the reason is logged and raised, and the previous model is kept.
        """
        async with self._one_at_a_time:
            try:
                service = await asyncio.to_thread(self._load_changed)
            except Exception as error:  # MemoryError, too: the watch continues
                reason = str(error) or type(error).__name__
                version = self.current.name.version
                log.warning("not reloaded, version %s is still served: %s", version, reason)
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
        """Return the service of the folder: the current one if its files are unchanged."""
        manifest = open_model_folder(self._path, self._shards, verify="size").manifest
        if not manifest.sha256.startswith(self.current.name.version):
            return self._load()  # verifies every file
        open_model_folder(self._path, self._shards)
        return self.current

    async def watch(self, seconds: float) -> None:
        """Check the manifest every ``seconds``, and reload when it has changed."""
        seen = _identity(self._path)
        while True:
            await asyncio.sleep(seconds)
            now = _identity(self._path)
            if now is not None and now != seen:
                seen = now
                await self.reload_quietly()

    async def reload_quietly(self) -> None:
        """Reload without raising; :meth:`reload` logs the result."""
        with suppress(Exception):
            await self.reload()


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return inode, time and size of the manifest; None while it is missing between two renames."""
    try:
        status = (path / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
