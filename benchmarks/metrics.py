"""Times every metric at k = 1, 3, 5 over a million documents with their top 100 of 500,000 labels,
on one core.

Prints JSON lines: `evaluate` without and with 1000 bootstrap resamples, and a vectorised
numpy/scipy implementation of the same metrics on a slice, with the ratio of the times per document.

    python benchmarks/metrics.py [--documents 1000000]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time

import numpy as np
from scipy import sparse

from longtail.metrics import evaluate, inverse_propensities

# numpy's BLAS and numba start their threads on first use; the affinity set in main() holds them all
# to one core.
TOP = 100
LABELS = 500_000
TRUE = 5
TRAIN = 1_500_000
KS = (1, 3, 5)
GOAL_S = 10
CHUNK = 50_000


def strata():
    """Cut the labels into TOP ranges of Zipf-like mass: one label from each makes a row of distinct
    labels.
    """
    bounds = np.floor(LABELS ** np.linspace(0, 1, TOP + 1)).astype(np.int64)
    bounds = np.maximum.accumulate(bounds - np.arange(TOP + 1)) + np.arange(TOP + 1) - bounds[0]
    bounds[-1] = LABELS
    return bounds[:-1], np.diff(bounds)


def synthetic(n_documents, seed=0):
    """Make predictions with entries in label order, and a label matrix about half of which they
    hold.
    """
    rng = np.random.default_rng(seed)
    low, width = strata()
    labels = np.empty((n_documents, TOP), np.int32)
    scores = np.empty((n_documents, TOP), np.float32)
    true = np.empty((n_documents, TRUE), np.int32)
    for first in range(0, n_documents, CHUNK):
        rows = slice(first, min(first + CHUNK, n_documents))
        n = rows.stop - rows.start
        labels[rows] = low + rng.random((n, TOP), np.float32) * width
        scores[rows] = rng.random((n, TOP), np.float32)
        slots = (rng.integers(TOP, size=(n, 1)) + 17 * np.arange(TRUE)) % TOP
        is_true = rng.random((n, TRUE)) < 0.5
        fresh = low[slots] + (rng.random((n, TRUE)) * width[slots]).astype(np.int64)
        true[rows] = np.where(is_true, np.take_along_axis(labels[rows], slots, 1), fresh)
        lifted = np.take_along_axis(scores[rows], slots, 1) + 0.5 * is_true
        np.put_along_axis(scores[rows], slots, lifted.astype(np.float32), 1)
    return csr(scores, labels), csr(np.ones_like(true, np.float32), np.sort(true, axis=1))


def csr(data, labels):
    offsets = np.arange(0, labels.size + 1, labels.shape[1], dtype=np.int32)
    return sparse.csr_array((data.ravel(), labels.ravel(), offsets), shape=(len(labels), LABELS))


def peer(predictions, label_matrix, weights):
    """Do the same with argpartition, sparse indexing and bincount; unlike `evaluate` it needs rows
    of equal length.
    """
    n = predictions.shape[0]
    deepest = max(KS)
    scores = predictions.data.reshape(n, -1)
    labels = predictions.indices.reshape(n, -1)
    best = np.sort(
        np.argpartition(-scores, deepest, axis=1)[:, :deepest], axis=1
    )  # in label order: ties too
    best = np.take_along_axis(
        best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable"), 1
    )
    top = np.take_along_axis(labels, best, 1)
    rows = np.repeat(np.arange(n), deepest)
    hit = np.asarray(label_matrix[rows, top.ravel()], np.float64).reshape(n, deepest)
    discount = 1 / np.log2(np.arange(2, deepest + 2))
    n_true = np.diff(label_matrix.indptr)
    heaviest = -np.sort(-weights[label_matrix.indices.reshape(n, -1)], axis=1)[:, :deepest]
    ideal = np.cumsum(discount)
    counts = np.bincount(label_matrix.indices, minlength=LABELS)
    values = {}
    for k in KS:
        h = hit[:, :k]
        w = weights[top[:, :k]]
        d = discount[:k]
        values[f"P@{k}"] = (h.sum(axis=1) / k).mean()
        values[f"nDCG@{k}"] = ((h * d).sum(axis=1) / ideal[np.minimum(n_true, k) - 1]).mean()
        values[f"R@{k}"] = (h.sum(axis=1) / n_true).mean()
        values[f"PSP@{k}"] = (h * w).sum() / heaviest[:, :k].sum()
        values[f"PSnDCG@{k}"] = (h * w * d).sum() / (heaviest[:, :k] * d).sum()
        hits = np.bincount(top[:, :k].ravel(), weights=h.ravel(), minlength=LABELS)[counts > 0]
        predicted = np.bincount(top[:, :k].ravel(), minlength=LABELS)[counts > 0]
        values[f"coverage@{k}"] = (hits > 0).mean()
        values[f"macro-F1@{k}"] = (2 * hits / (predicted + counts[counts > 0])).mean()
    return values


def median_seconds(work, repeats=3):
    seconds = []
    result = None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def report(**fields):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fields = {
        name: round(value, 3) if name.endswith("seconds") else value
        for name, value in fields.items()
    }
    print(json.dumps({"benchmark": "metrics", **fields, "peak_rss_mb": round(peak)}), flush=True)


def main(n_documents):
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    counts = np.maximum(TRAIN // np.arange(1, LABELS + 1), 1)
    options = {"ks": KS, "label_counts": counts, "n_train": TRAIN}
    evaluate(*synthetic(1_000, seed=1), **options, bootstrap=10)  # compiles
    predictions, label_matrix = synthetic(n_documents)
    data_mb = (
        sum(m.data.nbytes + m.indices.nbytes + m.indptr.nbytes for m in (predictions, label_matrix))
        / 2**20
    )
    size = {
        "documents": n_documents,
        "top": TOP,
        "labels": LABELS,
        "data_mb": round(data_mb),
        "cores": 1,
    }
    seconds, result = median_seconds(lambda: evaluate(predictions, label_matrix, **options))
    report(case="evaluate", seconds=seconds, goal_s=GOAL_S, **size)
    full, _ = median_seconds(
        lambda: evaluate(predictions, label_matrix, **options, bootstrap=1000), repeats=1
    )
    report(case="evaluate, bootstrap=1000", seconds=full, bootstrap_seconds=full - seconds, **size)
    n_slice = min(n_documents, 50_000)
    part = predictions[:n_slice]
    part_true = label_matrix[:n_slice]
    weights = inverse_propensities(counts, TRAIN)
    slow, expected = median_seconds(lambda: peer(part, part_true, weights))
    fast, result = median_seconds(lambda: evaluate(part, part_true, **options))
    worst = max(abs(result[name] - value) for name, value in expected.items())
    report(case="numpy/scipy peer", seconds=slow, longtail_seconds=fast, documents=n_slice, top=TOP, labels=LABELS,
           times_faster=round(slow / fast, 2), largest_difference=float(f"{worst:.1e}"))  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=1_000_000)
    main(parser.parse_args().documents)
