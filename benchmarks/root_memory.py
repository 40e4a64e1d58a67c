"""Memory and time of classifiers over all documents: one-vs-all, and the root of a label tree.

    python benchmarks/root_memory.py [--documents 40000] [--nodes 1024] [--threads 1 2 8] [--cases
        dismec root]

Documents are synthetic: a dense block of ``width`` columns beside tf-idf-like rows whose columns
have a Zipf tail. Each case and number of threads is a process of its own, which prints the memory
of the features, the peak of its resident set above what it held before training, and seconds of
wall clock and of the processor. Memory must not grow by a copy of the features with each thread.
Cases: ``dismec`` (Newton's method, one classifier a label) and ``root`` (dual, the first level of a
tree).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from longtail.config import Ranker, Search
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.rankers.level_problems import LevelProblems
from longtail.rankers.one_vs_all import LabelProblems, label_batches
from longtail.tree.tree import LabelTree

COLUMNS = 60_000
RANKERS = {
    "dismec": Ranker(solver="newton", tolerance=0.01, prune=0.01, max_passes=3),
    "root": Ranker(max_passes=10),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=40_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--nonzeros", type=int, default=76)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--cases", nargs="+", choices=sorted(RANKERS), default=sorted(RANKERS))
    parser.add_argument("--own-process", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.own_process:
        print(json.dumps(measured(arguments)), flush=True)
        return
    for case in arguments.cases:
        for threads in arguments.threads:
            options = [
                f"--{name}={getattr(arguments, name)}"
                for name in ("documents", "width", "nonzeros", "nodes")
            ]
            case_options = ["--own-process", "--cases", case, "--threads", str(threads)]
            subprocess.run([sys.executable, __file__, *options, *case_options], check=True)


def measured(arguments):
    case = arguments.cases[0]
    threads = arguments.threads[0]
    train(case, *synthetic(300, arguments.width, arguments.nonzeros, 32))  # compiles the kernels
    features, labels = synthetic(
        arguments.documents, arguments.width, arguments.nonzeros, arguments.nodes
    )
    reset_peak()
    before = memory("VmRSS")
    begin = time.perf_counter()
    cpu = time.process_time()
    with pool.threads(threads):
        digest = train(case, features, labels)
    return {
        "benchmark": "root_memory",
        "case": case,
        "documents": arguments.documents,
        "width": arguments.width,
        "nodes": arguments.nodes,
        "threads": threads,
        "features_mb": round(features.nbytes / 1e6),
        "dense_mb": round(features.dense.nbytes / 1e6),
        "peak_above_mb": round((memory("VmHWM") - before) / 1e6),
        "seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "digest": digest,
    }


def train(case, features, labels):
    """Return a digest of the weights."""
    ranker = RANKERS[case]
    digest = hashlib.sha256()
    if case == "dismec":
        problems = LabelProblems.of(features, labels, ranker, 0)
        levels = (problems.solve(batch) for batch in label_batches(labels.shape[1]))
    else:
        tree = LabelTree(np.arange(labels.shape[1], dtype=np.int32), ())
        problems = LevelProblems.of(features, tree.coarsen(labels), tree, [], ranker, Search(), 0)
        levels = iter([problems.solve()])
    for level in levels:
        for array in level.to_arrays().values():
            digest.update(array.tobytes())
    return digest.hexdigest()[:12]


def synthetic(documents, width, nonzeros, nodes):
    """Return Φcat, of which a document's nodes can be learnt, and five nodes of each document."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(nodes, width)).astype(np.float32)
    columns = zipf(random, documents * nonzeros, COLUMNS)
    values = random.random(documents * nonzeros, dtype=np.float32) / np.float32(
        np.sqrt(nonzeros / 3)
    )
    rows = sparse.csr_array(
        (values, columns, np.arange(0, len(values) + 1, nonzeros)), shape=(documents, COLUMNS)
    )
    parents = random.integers(0, nodes, (documents, 5), dtype=np.int32)
    dense = np.empty((documents, width), np.float32)
    for first in range(0, documents, 1024):
        block = centres[parents[first : first + 1024]].sum(axis=1)
        block += 2 * random.normal(size=block.shape).astype(np.float32)
        dense[first : first + 1024] = block / np.linalg.norm(block, axis=1, keepdims=True)
    marks = np.ones(parents.size, np.float32)
    labels = sparse.csr_array(
        (marks, parents.ravel(), np.arange(0, parents.size + 1, 5)), shape=(documents, nodes)
    )
    labels.sum_duplicates()
    labels.data[:] = 1
    return Features.of(rows, dense), labels


def zipf(random, count, columns):
    """Return columns whose frequencies fall with their number."""
    return np.floor(columns ** random.random(count, dtype=np.float32)).astype(np.int32) - 1


def memory(field):
    """Return a field of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def reset_peak():
    """Let the peak begin with what is in memory now."""
    with open(f"/proc/{os.getpid()}/clear_refs", "w") as clear:
        clear.write("5")


if __name__ == "__main__":
    main()
