"""Ray on one machine beside threads: seconds of training a tree of labels and one-vs-all, as a
ratio.

    python benchmarks/ray_overhead.py FOLDER… [--runs 5] [--threads 0] [--documents 0] [--labels
        16384]

FOLDER holds train.jsonl.gz. Both ways train the same model from the same documents, one after the
other in each run, after one of each that is not counted. `ratio` is the median over runs of Ray's
seconds over those of threads, from documents to the model folder. What a command pays once,
whatever the data, stands beside it: `connect_seconds` to start the cluster, and by how much
`first_seconds`, those of the first training, are above the others (workers import the package and
load kernels). DiSMEC is trained on the `--labels` most frequent labels. Bytes of both folders are
compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextvars import Context
from pathlib import Path

import numpy as np

import longtail as lt
from longtail.data.dataset import Dataset
from longtail.kernels import pool
from longtail.methods import configure
from longtail.scale.ray import connected
from longtail.training_run import train_to_folder


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--documents", type=int, default=0, help="the first ones alone; 0: all")
    parser.add_argument("--labels", type=int, default=16384, help="of DiSMEC; 0: leave it out")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        documents = lt.read(folder / "train.jsonl.gz")
        if arguments.documents:
            documents = documents.take(np.arange(min(arguments.documents, len(documents))))
        for method in ("xr-linear", "dismec") if arguments.labels else ("xr-linear",):
            subset = (
                documents if method == "xr-linear" else most_frequent(documents, arguments.labels)
            )
            result = measured(subset, method, arguments.threads, arguments.runs)
            print(
                json.dumps(
                    {"benchmark": "ray_overhead", "data": folder.name, "method": method, **result}
                ),
                flush=True,
            )


def most_frequent(documents, count):
    """Return the documents with the ``count`` most frequent labels alone, those that have none left
    out.
    """
    kept = np.sort(np.argsort(-documents.label_counts, kind="stable")[:count])
    matrix = documents.label_matrix.tocsc()[:, kept].tocsr()
    rows = np.flatnonzero(np.diff(matrix.indptr))
    names = [documents.labels.ids[column] for column in kept.tolist()]
    labels = ([names[column] for column in matrix[[row]].indices.tolist()] for row in rows.tolist())
    texts = documents.document_texts()
    return Dataset.of((texts[row] for row in rows.tolist()), labels)


def measured(documents, method, threads, runs):
    config = configure(method)
    with tempfile.TemporaryDirectory() as scratch:
        one = Path(scratch, "threads")
        other = Path(scratch, "ray")
        trained(documents, one, config, threads)  # compiles the kernels
        begin = time.perf_counter()
        with connected("local", threads):
            connect = time.perf_counter() - begin
            first = trained(documents, other, config, threads)
            pairs = [
                # an empty context knows nothing of Ray
                (
                    Context().run(trained, documents, one, config, threads),
                    trained(documents, other, config, threads),
                )
                for _ in range(runs)
            ]
        same = contents(one) == contents(other)
    by_threads, by_ray = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    ratios = [ray / alone for alone, ray in pairs]
    with pool.threads(threads):
        cores = pool.thread_count()
    return {
        "documents": len(documents),
        "labels": documents.n_labels,
        "threads": cores,
        "runs": runs,
        "seconds": {"threads": round(by_threads, 2), "ray": round(by_ray, 2)},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "connect_seconds": round(connect, 2),
        "first_seconds": round(first, 2),
        "same_bytes": same,
        "goal": {"ratio": 1.15},
    }


def trained(documents, folder, config, threads):
    """Return the seconds of a training; a model of the run before is replaced."""
    begin = time.perf_counter()
    train_to_folder(documents, folder, config, threads=threads)
    return time.perf_counter() - begin


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


if __name__ == "__main__":
    main()
