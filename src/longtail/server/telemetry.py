"""What Prometheus is told, and the latency of the last minutes for the page."""

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
_FILES = ".counts"  # Prometheus has others beside them
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class RecentLatency:
    """Latencies of the last five minutes, counted in classes 10 % wide and slots of ten seconds.

    With a ``folder``, each process counts in a file of its own there, and sums up those of all.
    """

    _SLOT_SECONDS = 10
    _SLOTS = 30
    # seconds; up to 9
    _CLASSES = 120
    _WIDTH = math.log(1.1)
    _LEAST = 1e-4

    def __init__(self, folder: Path | None = None) -> None:
        shape = self._SLOTS, 1 + self._CLASSES  # of each row first, which ten seconds it is of
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
            row[:], row[0] = 0, now
        number = int(math.log(max(seconds, self._LEAST) / self._LEAST) / self._WIDTH)
        row[1 + min(number, self._CLASSES - 1)] += 1

    def summary(self) -> Latency:
        """Return how many there were, their median and their 99th percentile."""
        oldest = int(monotonic() // self._SLOT_SECONDS) - self._SLOTS
        rows = self._rows()
        counts = rows[rows[:, 0] > oldest, 1:].sum(0).tolist()
        return Latency(sum(counts), self._at(counts, 0.5), self._at(counts, 0.99))

    def _rows(self) -> NDArray[np.int64]:
        """Return the rows of all processes, those of one that has ended among them."""
        if self._folder is None:
            return self._counts
        files = [np.fromfile(file, np.int64) for file in self._folder.glob(f"latency-*{_FILES}")]
        return np.concatenate(
            [own.reshape(-1, 1 + self._CLASSES) for own in files if own.size == self._counts.size]
        )

    def _at(self, counts: list[int], share: float) -> float | None:
        """Return the middle of the class, in ms, that the answer at this share of all falls into."""
        left = share * sum(counts)
        for number, count in enumerate(counts):
            left -= count
            if count and left <= 0:
                return round(1e3 * self._LEAST * math.exp((number + 0.5) * self._WIDTH), 3)
        return None


class Telemetry:
    """The metrics of this process; with several workers they are added up by files that all of them
    share.
    """

    def __init__(self, known_paths: frozenset[str], several: bool = False) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        registry = CollectorRegistry()
        self._registry = registry
        self._several = several
        self._known = known_paths
        name = "longtail_stage_seconds"
        text = "Seconds of a prediction by stage."
        stages = Histogram(name, text, ["stage"], buckets=_SECONDS, registry=registry)
        self._read, self._queue, self._model, self._write = (
            stages.labels(stage) for stage in ("read", "queue", "model", "write")
        )
        name = "longtail_batch_documents"
        text = "Documents of a batch."
        self._batch = Histogram(name, text, buckets=_BATCHES, registry=registry)
        self._shed = Counter(
            "longtail_shed_total", "Requests refused as the queue was full.", registry=registry
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
        self._length = Gauge("longtail_queue_documents", "Documents that wait.", **sums)
        self._waiting = Gauge("longtail_queue_seconds", "Estimated wait of a new document.", **most)
        self._info = Gauge(
            "longtail_model_info", "The model served.", ["name", "version", "method"], **most
        )
        self._served: Any = None
        self.latency = RecentLatency(
            Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]) if several else None
        )

    def batch(self, documents: int) -> None:
        """Count a batch."""
        self._batch.observe(documents)

    def predicted(self, read: float, queue: float, model: float, write: float) -> None:
        """Count the seconds of each stage of an answered prediction."""
        self._read.observe(read)
        self._queue.observe(queue)
        self._model.observe(model)
        self._write.observe(write)
        self.latency.add(read + queue + model + write)

    def shed(self) -> None:
        """Count a request that was refused as the queue was full."""
        self._shed.inc()

    def refused_connection(self, reason: str) -> None:
        """Count a connection that was refused or cut off, or an upgrade of one."""
        self._refused.labels(reason).inc()

    def request(self, path: str, status: int) -> None:
        """Count a request; paths that there are none of are one."""
        key = path if path in self._known else "other", status
        counter = self._by_path.get(key)
        if counter is None:
            counter = self._by_path[key] = self._requests.labels(*map(str, key))
        counter.inc()

    def serves(self, name: ModelName, method: str) -> None:
        """Note which model is served."""
        if self._served is not None:
            self._served.set(0)
        self._served = self._info.labels(name.name, name.version, method)
        self._served.set(1)

    def queue(self, batcher: Batcher[Any, Any]) -> None:
        """Note how much waits now."""
        self._length.set(batcher.documents)
        self._waiting.set(batcher.waiting_seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if not self._several:
            return generate_latest(self._registry)
        # not this process's own: its files are among those that the collector reads
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
