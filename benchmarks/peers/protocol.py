"""What every measured system shares: how it is called, what it reads, and what it reports.

    python run_SYSTEM.py train|predict SETTINGS.json

`train` makes a model in the folder `work` from documents that lie in memory as a list of strings;
`predict`, another process, loads it from there. Each writes what it measured to `work`/train.json
or predict.json. Only numpy, scipy and the standard library are used here, because each system has
its own Python.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import statistics
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy import sparse

# labels a document, width of the beam, documents predicted one at a time
TOP = 10
BEAM = 10
SINGLE = 300


class Settings:
    """Names of data folder, working folder, system, number of threads, and ready-made features
    where there are any.
    """

    def __init__(self, path):
        settings = json.loads(Path(path).read_text())
        self.data = Path(settings["data"])
        self.work = Path(settings["work"])
        self.system = settings["system"]
        self.threads = settings["threads"]
        self.features = Path(settings["features"]) if settings.get("features") else None
        self.model = self.work / "model"


class Clock(dict):
    """Seconds by name: `with clock("train"): …`."""

    @contextmanager
    def __call__(self, name):
        """Time the block."""
        began = time.perf_counter()
        yield
        self[name] = round(time.perf_counter() - began, 4)


def main(train, predict):
    """Run one half of a system, held to as many cores as it has threads, and write down what it
    returns.
    """
    half = sys.argv[1]
    settings = Settings(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])
    result = (train if half == "train" else predict)(settings)
    result = {"peak_mb": peak_mb(), **result}
    (settings.work / f"{half}.json").write_text(json.dumps(result))


def documents(folder, split):
    """Return texts and label lists of a split: train.jsonl or train.jsonl.gz; title and text are
    joined.
    """
    plain = Path(folder) / f"{split}.jsonl"
    texts = []
    labels = []
    with plain.open("rb") if plain.exists() else gzip.open(f"{plain}.gz") as lines:
        for line in lines:
            record = json.loads(line)
            texts.append(
                "\n".join(part for part in (record.get("title"), record.get("text")) if part)
            )
            labels.append(record["labels"])
    return texts, labels


def label_matrix(labels):
    """Return the label names, in order of first appearance, and a float32 csr_matrix (documents,
    labels).
    """
    column = {}
    rows = [sorted({column.setdefault(name, len(column)) for name in names}) for names in labels]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter((c for row in rows for c in row), np.int32, indptr[-1])
    y = sparse.csr_matrix(
        (np.ones(indptr[-1], np.float32), indices, indptr), shape=(len(rows), len(column))
    )
    return list(column), y


def load_features(settings, split):
    """Return the ready-made features of a split as a float32 csr_matrix."""
    return sparse.csr_matrix(sparse.load_npz(settings.features / f"{split}.npz"), dtype=np.float32)


def save_labels(settings, names):
    (settings.work / "labels.json").write_text(json.dumps(names))


def load_labels(settings):
    return json.loads((settings.work / "labels.json").read_text())


def write_predictions(settings, names, ranked):
    """Write JSON lines from one list of (label, score) pairs a document, best first."""
    with (settings.work / "predictions.jsonl").open("w") as out:
        for pairs in ranked:
            line = {
                "labels": [names[label] for label, _ in pairs],
                "scores": [float(score) for _, score in pairs],
            }
            out.write(json.dumps(line) + "\n")


def pairs_of(matrix):
    """Yield each row of a csr matrix as (column, value) pairs, highest value first."""
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        order = start + np.argsort(-matrix.data[start:end], kind="stable")
        yield list(zip(matrix.indices[order].tolist(), matrix.data[order].tolist(), strict=True))


def single_ms(predict, items):
    """Return the median milliseconds of `predict(item)` over the first SINGLE items, after ten to
    warm up.
    """
    if isinstance(items, list):
        items = items[:SINGLE]
    else:
        items = [items[i] for i in range(min(SINGLE, items.shape[0]))]
    for item in items[:10]:
        predict(item)
    taken = []
    for item in items:
        began = time.perf_counter()
        predict(item)
        taken.append(time.perf_counter() - began)
    return round(1e3 * statistics.median(taken), 4)


def folder_mb(folder):
    return round(
        sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6, 3
    )


def text_mb(texts):
    return round(sum(len(text.encode()) for text in texts) / 1e6, 3)


def resident_mb():
    """Return the resident memory of this process now, in MB."""
    return _status("VmRSS") or peak_mb()


def peak_mb():
    """Return the highest resident memory of this process, in MB.

    On Linux ru_maxrss counts the process that started this one as well, up to the exec; VmHWM does
    not.
    """
    return _status("VmHWM") or round(
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1.024e-3, 1
    )


def _status(field):
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return round(int(line.split()[1]) * 1.024e-3, 1)  # it says kB and means KiB
