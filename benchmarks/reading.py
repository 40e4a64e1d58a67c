"""Reading JSON lines: MB/s on one core, and peak memory over the memory of what is kept.

    python benchmarks/reading.py [FOLDER with one folder a dataset, each with train.jsonl.gz]
        [--megabytes 200]

Without FOLDER it is the bundled sample. Each dataset is written out plain and repeated to 200 MB
(--megabytes 0: as it is), because rate and memory matter for large files; every copy but the first
has labels of its own on a tenth of its documents, so that the vocabulary grows as it does in real
data. It is read on one core in a fresh process, two ways:

- the program is loaded: numba and the reading kernels count as part of it, as numpy and scipy do,
    and are in memory
  before the clock and the count of memory start. So it is in any process that trains, predicts or
      evaluates.
- cold: the first read of a process without numba; whatever it loads is counted as time and memory
    of the reading.

MB/s are of wall time, and of CPU time (median of 5), which other work on the machine disturbs less;
the file is in the page cache. Beside it the standard library's json into Python lists.
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
    cold_s, cold_cpu_s, cold_mb, dataset = timed_read(lt, path)
    kept_mb = dataset.nbytes / 1e6
    documents = len(dataset)
    labels = dataset.n_labels
    del dataset
    import numba  # noqa: F401  (part of the program from here on)

    small.write_text('{"text": "a", "labels": ["b"]}\n' * 300_000)  # enough to load the kernels
    lt.read(small)
    warm = [timed_read(lt, path)[:3] for _ in range(REPEATS)]
    wall_s, cpu_s = (statistics.median(times) for times in list(zip(*warm, strict=True))[:2])
    peak_mb = max(peak for _, _, peak in warm)
    peer = cpu_seconds(lambda: [json.loads(line) for line in path.open("rb")])
    return {
        "documents": documents,
        "labels": labels,
        "file_mb": round(megabytes, 1),
        "mb_per_s": round(megabytes / wall_s, 1),
        "mb_per_cpu_s": round(megabytes / cpu_s, 1),
        "cold_mb_per_s": round(megabytes / cold_s, 1),
        "cold_mb_per_cpu_s": round(megabytes / cold_cpu_s, 1),
        "stdlib_json_mb_per_cpu_s": round(megabytes / peer, 1),
        "kept_mb": round(kept_mb, 1),
        "peak_over_kept": round(peak_mb / kept_mb, 3),
        "cold_peak_over_kept": round(cold_mb / kept_mb, 3),
        "goal": {"mb_per_s": 150, "peak_over_kept": 1.3},
    }


def timed_read(lt, path: Path):
    """Return wall and CPU seconds, growth of resident memory in MB at its peak, and the dataset."""
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not be there for the taking
    before = resident_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    began = time.perf_counter()
    cpu_began = time.process_time()
    dataset = lt.read(path)
    wall_s = time.perf_counter() - began
    cpu_s = time.process_time() - cpu_began
    return wall_s, cpu_s, resident_mb("VmHWM") - before, dataset


def resident_mb(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    kib = int(
        next(line for line in status.splitlines() if line.startswith(field)).split()[1]
    )  # it says kB
    return kib * 1024 / 1e6


def cpu_seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
