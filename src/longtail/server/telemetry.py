"""Metrics for Prometheus, and the latency of the last five minutes for the page."""

from __future__ import annotations

import math
import os
from pathlib import Path
from tempfile import mkstemp
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.server.answers import Latency, ModelName
from longtail.server.batching import Batcher

__all__ = ["RecentLatency", "Telemetry"]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_FILES = ".counts"  # the folder also has Prometheus's files
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class RecentLatency:
    """Histogram of the latencies of the last five minutes, in slots of ten seconds.

    Classes are 10 % wide. With a ``folder``, each process counts in its own file there, and
    summaries add up the files of all processes.
    """

    _SLOT_SECONDS = 10
    _SLOTS = 30
    _CLASSES = 120  # from 0.1 ms to 9 s
    _WIDTH = math.log(1.1)
    _LEAST = 1e-4  # seconds

    def __init__(self, folder: Path | None = None) -> None:
        shape = self._SLOTS, 1 + self._CLASSES  # a row begins with the number of its slot
        self._folder = folder
        self._counts: NDArray[np.int64] = np.zeros(shape, np.int64)
        if folder is not None:
            handle, name = mkstemp(_FILES, "latency-", folder)
            os.close(handle)
            self._counts = np.memmap(name, np.int64, "w+", shape=shape)

    def add(self, seconds: float) -> None:
        """Count one answer."""
        now = int(monotonic() // self._SLOT_SECONDS)
        row = self._counts[now % self._SLOTS]
        if row[0] != now:
            row[:] = 0
            row[0] = now
        number = int(math.log(max(seconds, self._LEAST) / self._LEAST) / self._WIDTH)
        row[1 + min(number, self._CLASSES - 1)] += 1

    def summary(self) -> Latency:
        """Return the number of latencies, their median and 99th percentile."""
        oldest = int(monotonic() // self._SLOT_SECONDS) - self._SLOTS
        rows = self._rows()
        counts = rows[rows[:, 0] > oldest, 1:].sum(0).tolist()
        return Latency(sum(counts), self._at(counts, 0.5), self._at(counts, 0.99))

    def _rows(self) -> NDArray[np.int64]:
        """Return the rows of all processes, ended ones included."""
        if self._folder is None:
            return self._counts
        files = [np.fromfile(file, np.int64) for file in self._folder.glob(f"latency-*{_FILES}")]
        whole = [counts for counts in files if counts.size == self._counts.size]
        return np.concatenate([counts.reshape(-1, 1 + self._CLASSES) for counts in whole])

    def _at(self, counts: list[int], share: float) -> float | None:
        """Return a quantile in milliseconds: the middle of its class."""
        remaining = share * sum(counts)
        for number, count in enumerate(counts):
            remaining -= count
            if count and remaining <= 0:
                return round(1e3 * self._LEAST * math.exp((number + 0.5) * self._WIDTH), 3)
        return None


class Telemetry:
    """The metrics of this process; several workers add them up through shared files."""

    def __init__(self, known_paths: frozenset[str], several: bool = False) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        registry = CollectorRegistry()
        self._registry = registry
        self._several = several
        self._known = known_paths
        name = "longtail_stage_seconds"
        text = "Seconds of a prediction by stage."
        stages = Histogram(name, text, ["stage"], buckets=_SECONDS, registry=registry)
        self._stages = [stages.labels(stage) for stage in ("read", "queue", "model", "write")]
        name = "longtail_batch_documents"
        text = "Documents of a batch."
        self._batch = Histogram(name, text, buckets=_BATCHES, registry=registry)
        self._shed = Counter(
            "longtail_shed_total", "Requests refused because the queue was full.", registry=registry
        )
        name = "longtail_connections_refused_total"
        text = "Connections refused or cut off, by reason."
        self._refused = Counter(name, text, ["reason"], registry=registry)
        name = "longtail_requests_total"
        text = "Requests by path and status."
        self._requests = Counter(name, text, ["path", "status"], registry=registry)
        self._by_path: dict[tuple[str, int], Any] = {}
        sums: dict[str, Any] = {"registry": registry, "multiprocess_mode": "livesum"}
        most: dict[str, Any] = {"registry": registry, "multiprocess_mode": "livemax"}
        self._length = Gauge("longtail_queue_documents", "Waiting documents.", **sums)
        self._waiting = Gauge("longtail_queue_seconds", "Estimated wait of a new document.", **most)
        self._info = Gauge(
            "longtail_model_info", "The model served.", ["name", "version", "method"], **most
        )
        self._served: Any = None
        folder = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]) if several else None
        self.latency = RecentLatency(folder)

    def batch(self, documents: int) -> None:
        """Count a batch."""
        self._batch.observe(documents)

    def predicted(self, read: float, queue: float, model: float, write: float) -> None:
        """Count the seconds of each stage of an answered prediction."""
        for stage, seconds in zip(self._stages, (read, queue, model, write), strict=True):
            stage.observe(seconds)
        self.latency.add(read + queue + model + write)

    def shed(self) -> None:
        """Count a request that was refused because the queue was full."""
        self._shed.inc()

    def refused_connection(self, reason: str) -> None:
        """Count a connection that was refused or closed, or an ignored upgrade of one."""
        self._refused.labels(reason).inc()

    def request(self, path: str, status: int) -> None:
        """Count a request; unknown paths count as "other"."""
        if path not in self._known:
            path = "other"
        key = path, status
        counter = self._by_path.get(key)
        if counter is None:
            counter = self._by_path[key] = self._requests.labels(*map(str, key))
        counter.inc()

    def serves(self, name: ModelName, method: str) -> None:
        """Set the name and version of the served model."""
        if self._served is not None:
            self._served.set(0)
        self._served = self._info.labels(name.name, name.version, method)
        self._served.set(1)

    def queue(self, batcher: Batcher[Any, Any]) -> None:
        """Set the length of the queue and the expected wait."""
        self._length.set(batcher.documents)
        self._waiting.set(batcher.waiting_seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if not self._several:
            return generate_latest(self._registry)
        # the collector reads the files of all processes, this one's included
        all_processes = CollectorRegistry()
        MultiProcessCollector(all_processes)  # type: ignore[no-untyped-call]
        return generate_latest(all_processes)
