"""The forecast of memory against what training takes, stage by stage.

Trains in a fresh process for each case and prints, for each stage of the run's log, the largest
memory that was measured, that of the forecast, and their ratio. On Linux the peak is set back after
each stage, so that a small stage behind a large one is seen; elsewhere both are largest values so
far.

    python benchmarks/forecast_memory.py --data DIR [--case NAME ...]

DIR holds a folder a set with `train.jsonl.gz`, as debian-tags and debian-depends (made from
Debian's package descriptions), gutenberg-lcsh (titles of books and their subject headings) and
tib-sid-kw (library records and keywords). Where a case has `vectors`, random numbers of that width
stand beside the text features, as an encoder's would: the classifiers take the same memory, and no
encoder has to read the texts. Each case should have run once before, so that its kernels are
compiled: compiling them takes 100 to 300 MB, which no forecast counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from longtail import reporting
from longtail.data.reading import read
from longtail.forecast import Forecast, forecast
from longtail.kernels import pool
from longtail.methods import configure
from longtail.run_log import run_log_path
from longtail.training_run import train_to_folder


class Case(NamedTuple):
    """A training run: a set, the first documents of it (0: all), a method with settings, threads,
    width of vectors.
    """

    data: str
    method: str
    documents: int = 0
    threads: int = 2
    vectors: int = 0
    settings: Mapping[str, Any] = MappingProxyType({})


_SMALL = {"encoder": {"max_tokens": 64}, "training": {"epochs": 1}}
_ONCE = {"ranker": {"max_passes": 2}}
CASES = {
    "tags": Case("debian-tags", "xr-linear"),
    "tags-forest": Case("debian-tags", "fastxml", threads=4, settings={"forest": {"trees": 8}}),
    "depends": Case("debian-depends", "xr-linear"),
    "keywords": Case("tib-sid-kw", "xr-linear"),
    "keywords-8-threads": Case("tib-sid-kw", "xr-linear", threads=8),
    "keywords-bigrams": Case(
        "tib-sid-kw", "xr-linear", 30_000, settings={"tfidf": {"0": {"ngram_max": 2}}}
    ),
    "keywords-vectors": Case("tib-sid-kw", "xr-linear", 30_000, vectors=384, settings=_ONCE),
    "keywords-vectors-8-threads": Case("tib-sid-kw", "xr-linear", 30_000, 8, 384, _ONCE),
    "titles-vectors": Case("gutenberg-lcsh", "xr-linear", 0, 4, 768, _ONCE),
    "tags-one-vs-all": Case("debian-tags", "dismec", 0, 1, 384, _ONCE),
    "tags-one-vs-all-8-threads": Case("debian-tags", "dismec", 0, 8, 384, _ONCE),
    "network-alone": Case(
        "debian-tags", "cascadexml", 1500, settings={**_SMALL, "cascade": {"combine": "never"}}
    ),
    "network-and-classifiers": Case("debian-tags", "cascadexml", 1500, settings=_SMALL),
    "levels": Case("debian-tags", "xr-transformer", 800, settings=_SMALL),
    "frozen": Case(
        "debian-tags",
        "dismec",
        2000,
        settings={"features": "cat", "encoder": {"max_tokens": 64}, **_ONCE},
    ),
    "words": Case("gutenberg-lcsh", "inceptionxml", 5000, settings={"training": {"epochs": 1}}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the sets")
    parser.add_argument(
        "--case", action="append", choices=CASES, help="one of them; repeatable; all otherwise"
    )
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)  # what a fresh process does
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(_measured(CASES[arguments.one], arguments.data)))
        return
    ratios = [_compared(name, arguments.data) for name in arguments.case or CASES]
    print(f"\n{len(ratios)} runs: forecast / measured {min(ratios):.2f} to {max(ratios):.2f}")


def _compared(name: str, data: Path) -> float:
    """Run a case in a process of its own, print what it took, and return forecast / measured in
    all.
    """
    command = [sys.executable, __file__, "--data", str(data), "--one", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured, expected = json.loads(done.stdout.splitlines()[-1])
    print(f"\n{name}: {CASES[name]._asdict()}")
    print(f"{'stage':32}{'measured MB':>12}{'forecast MB':>12}{'ratio':>8}")
    for stage, peak in measured.items():
        if stage in expected:
            print(f"{stage:32}{peak:12.0f}{expected[stage]:12.0f}{expected[stage] / peak:8.2f}")
        else:
            print(f"{stage:32}{peak:12.0f}{'-':>12}")
    ratio = max(expected.values()) / max(measured.values())
    print(
        f"{'in all':32}{max(measured.values()):12.0f}{max(expected.values()):12.0f}{ratio:8.2f}",
        flush=True,
    )
    return ratio


def _measured(case: Case, data: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return the measured and the expected MB of each stage of a run in this process."""
    reporting.peak_memory_mb = _peak_of_stage
    documents = read(data / case.data / "train.jsonl.gz")
    if case.documents:
        documents = documents.take(np.arange(case.documents))
    peaks = {"documents": _peak_of_stage()}
    if case.vectors:
        vectors = np.random.default_rng(0).standard_normal(
            (len(documents), case.vectors), np.float32
        )
        documents = replace(documents, dense=vectors)
    config = configure(case.method, None, case.settings)
    with pool.threads(case.threads):
        expected = forecast(documents, config, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "model"
        train_to_folder(
            documents, output, config, threads=case.threads, ignore_memory=True, device="cpu"
        )
        for line in run_log_path(output).read_bytes().splitlines():
            event = json.loads(line)
            if event.get("event") == "stage":
                peaks[event["name"]] = max(peaks.get(event["name"], 0.0), event["memory_mb"])
    peaks["model"] = _peak_of_stage()
    return peaks, _expected(expected)


def _expected(forecast: Forecast) -> dict[str, float]:
    peaks: dict[str, float] = {}
    for stage in forecast.stages:
        peaks[stage.name] = max(peaks.get(stage.name, 0.0), stage.peak_bytes / 1e6)
    return peaks


def _peak_of_stage() -> float:
    """Return the largest memory since the last call, in MB."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return _PEAK_SO_FAR()
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM back to what is resident now
    return int(fields["VmHWM"].split()[0]) * 1024 / 1e6


_PEAK_SO_FAR = reporting.peak_memory_mb

if __name__ == "__main__":
    main()
