"""Times the label graph at the size of LF-AmazonTitles-1.3M: 1.3 million labels on 2.2 million
documents.

Prints one JSON line: seconds for the walks and for the normal form on 2 threads, seconds of all
cores together, which other work on the machine does not lengthen as much, and peak memory. The
label matrix is drawn by chance, seeded: documents of a label fall as 1 / (rank + 1000) from some
7,000 to 5, 50 million pairs in all (22 labels a document, as that set has), and which documents
they are is independent of all other labels, so that walks find nothing near: real labels that share
documents are kinder to the caches.

    python benchmarks/label_graph.py [--threads 2] [--share 1.0]
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np
from scipy import sparse

from longtail.data.csr import csr_of
from longtail.features.label_graph import label_graph, normalised
from longtail.kernels import pool

LABELS = 1_305_265
DOCUMENTS = 2_248_619
PER_DOCUMENT = 22.2
SHIFT = 1000  # of the ranks: the most frequent label has some 7,000 documents, not half of them
GOAL_S = 120


def synthetic(share=1.0, seed=0):
    """Return a label matrix, csr of shape (documents, labels), ``share`` of the full size."""
    rng = np.random.default_rng(seed)
    n_labels = round(LABELS * share)
    n_documents = round(DOCUMENTS * share)
    weights = 1 / (np.arange(n_labels) + SHIFT)
    counts = np.maximum(weights / weights.sum() * PER_DOCUMENT * n_documents, 1).astype(np.int64)
    labels = np.repeat(
        rng.permutation(n_labels).astype(np.int32), counts
    )  # ranks say nothing of where a label lies
    documents = rng.integers(0, n_documents, len(labels), np.int32)
    order = np.argsort(documents, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(documents, minlength=n_documents))])
    matrix = csr_of(np.ones(len(labels), np.float32), labels[order], ends, n_labels)
    matrix.has_canonical_format = matrix.has_sorted_indices = False
    matrix.sum_duplicates()
    return matrix


def measure(matrix, threads):
    """Return the seconds of the walks, of the normal form and of all cores, and how many entries
    the graph has.
    """
    with pool.threads(threads):
        begin = time.perf_counter()
        busy = time.process_time()
        graph = label_graph(matrix, seed=0)
        walked = time.perf_counter()
        entries = normalised(graph).nnz
    return walked - begin, time.perf_counter() - walked, time.process_time() - busy, entries


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0)
    arguments = parser.parse_args()
    small = sparse.random_array((50, 40), density=0.1, format="csr", dtype=np.float32, rng=0)
    normalised(label_graph(small, seed=0))  # compiled once
    matrix = synthetic(arguments.share)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    walks, form, cores, entries = measure(matrix, arguments.threads)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {
        "labels": matrix.shape[1],
        "documents": matrix.shape[0],
        "pairs": matrix.nnz,
        "threads": arguments.threads,
        "walks_s": round(walks, 1),
        "normal_form_s": round(form, 1),
        "cpu_s": round(cores, 1),
        "graph_entries": entries,
        "peak_mb": peak // 1024,
        "peak_mb_before": before // 1024,
        "goal_s": GOAL_S,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
