"""Reading JSON lines: MB/s on one core, and peak memory over the memory of what is kept.

    python benchmarks/reading.py [FOLDER] [--megabytes 200]

FOLDER has one folder per dataset, each with train.jsonl.gz; without it, the bundled sample is read.
Each dataset is written out uncompressed and repeated to 200 MB (--megabytes 0: as it is), because
rate and memory matter for large files; every copy but the first has labels of its own on a tenth of
its documents, so that the vocabulary grows as it does in real data. A fresh process per dataset
reads it on one core, with the file in the page cache.

MB/s are of wall time and of CPU time (medians of 5); other work on the machine disturbs the second
less. Beside them stands the standard library's json into Python lists.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument(
        "--megabytes", type=int, default=200, help="repeat each file to at least this size"
    )
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        for name, data in corpora(arguments.folder):
            plain = Path(scratch) / "train.jsonl"
            copies = 1 + arguments.megabytes * 1_000_000 // len(data) if arguments.megabytes else 1
            with plain.open("wb") as out:
                for copy in range(copies):
                    out.write(data if copy == 0 else with_new_labels(data, copy))
            command = [sys.executable, __file__, "--measure", str(plain)]
            result = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            print(json.dumps({"benchmark": "reading", "data": name, **result}), flush=True)


def corpora(folder: Path | None):
    if folder is None:
        from longtail.data.sample import FOLDER

        data = gzip.decompress((FOLDER / "train.jsonl.gz").read_bytes())
        yield "sample", data
        return
    for file in sorted(folder.glob("*/train.jsonl.gz")):
        yield file.parent.name, gzip.decompress(file.read_bytes())


def with_new_labels(data: bytes, copy: int) -> bytes:
    """Return the lines with one label more, seen in this copy only, on every tenth."""
    lines = data.splitlines(keepends=True)
    for number in range(0, len(lines), 10):
        lines[number] = lines[number].replace(
            b'"labels": [', b'"labels": ["new %d %d", ' % (copy, number), 1
        )
        lines[number] = lines[number].replace(b", ]", b"]")
    return b"".join(lines)


def measure(path: Path) -> dict[str, object]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import longtail as lt

    megabytes = path.stat().st_size / 1e6
    small = path.with_name("small.jsonl")
    small.write_text('{"text": "a", "labels": ["b"]}\n')
    lt.read(small)  # imports what every reading needs
    readings = [timed_read(lt, path) for _ in range(REPEATS)]
    wall_s = statistics.median(reading.wall_s for reading in readings)
    cpu_s = statistics.median(reading.cpu_s for reading in readings)
    peak_mb = max(reading.peak_mb for reading in readings)
    dataset = lt.read(path)
    kept_mb = dataset.nbytes / 1e6
    peer = cpu_seconds(lambda: [json.loads(line) for line in path.open("rb")])
    return {
        "documents": len(dataset),
        "labels": dataset.n_labels,
        "file_mb": round(megabytes, 1),
        "mb_per_s": round(megabytes / wall_s, 1),
        "mb_per_cpu_s": round(megabytes / cpu_s, 1),
        "stdlib_json_mb_per_cpu_s": round(megabytes / peer, 1),
        "kept_mb": round(kept_mb, 1),
        "peak_over_kept": round(peak_mb / kept_mb, 3),
        "goal": {"mb_per_s": 100},
    }


class TimedRead(NamedTuple):
    """Seconds of one reading, and the growth of resident memory at its peak in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def timed_read(lt, path: Path) -> TimedRead:
    """Read a file once, from a heap without free pages."""
    ctypes.CDLL(None).malloc_trim(0)
    before = resident_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    wall_start = time.perf_counter()
    cpu_start = time.process_time()
    lt.read(path)
    wall_s = time.perf_counter() - wall_start
    cpu_s = time.process_time() - cpu_start
    return TimedRead(wall_s, cpu_s, resident_mb("VmHWM") - before)


def resident_mb(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6  # from KiB


def cpu_seconds(work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
