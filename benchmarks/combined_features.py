"""Rankers on a dense block, a sparse one, and both (Φcat): seconds to train and to search, and ns a
multiply-add.

    python benchmarks/combined_features.py FOLDER… [--columns 384] [--dense FILE.npz] [--repeat 3]
        [--documents N]

FOLDER holds train.jsonl.gz and test.jsonl.gz; --documents takes the first N of each. The dense
block is `train` and `test` of FILE.npz, or else the tf-idf rows times a random matrix; rows are
brought to a length of 1/4. Label tree and settings are xr-linear's, on one thread, seconds are the
least CPU time of --repeat runs. A multiply-add of training is a feature of a document times a
classifier trained on that document, however many passes are made; one of search is a feature times
a child of the beam. `gemm` is what numpy's matrix product reaches on one core for chunks of the
last level and the documents that visit one; `panels` is our kernel on the same. JSON lines on
stdout, a table on stderr.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is loaded

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

import longtail as lt
from longtail.features.label_features import label_features
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.kernels import pool
from longtail.kernels.dense_block import PANEL, decode, panel_count, sums_of_four
from longtail.kernels.simd import cache_aligned
from longtail.methods import configure
from longtail.rankers.tree import fit_ranker
from longtail.search.beam import shortlist
from longtail.search.weight_codes import half_floats
from longtail.steps.work import Work
from longtail.tree.cluster import build_tree

CONFIG = configure("xr-linear")
BLOCKS = ("sparse", "dense", "both")
K = 10


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--columns", type=int, default=384)
    parser.add_argument("--dense", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--documents", type=int)
    arguments = parser.parse_args()
    print(
        f"{'data':16} {'block':6} {'train s':>8} {'ns':>6} {'search s':>8} {'ns':>6} {'docs/s':>8}",
        file=sys.stderr,
    )
    with pool.threads(1):
        for folder in arguments.folders:
            measure(folder, arguments)


def measure(folder, arguments):
    train, test, labels = features(folder, arguments)
    rows = label_features(
        train, labels, CONFIG.label_features.kind, None, None, CONFIG.label_features.graph_features
    )
    tree = build_tree(rows, np.bincount(labels.indices, minlength=labels.shape[1]), CONFIG.tree, 0)
    for name in BLOCKS:
        result = measured(only(train, name), only(test, name), labels, tree, arguments.repeat)
        print(
            json.dumps(
                {"benchmark": "combined_features", "data": folder.name, "block": name, **result}
            ),
            flush=True,
        )
        print(
            f"{folder.name:16} {name:6} {result['train_s']:8.2f} {result['train_ns']:6.3f} "
            f"{result['search_s']:8.3f} {result['search_ns']:6.3f} "
            f"{result['documents_per_s']:8.0f}",
            file=sys.stderr,
        )
    speeds = gemm(tree, train.dense.shape[1])
    print(json.dumps({"benchmark": "combined_features", "data": folder.name, **speeds}), flush=True)
    print(f"{folder.name:16} {json.dumps(speeds)}", file=sys.stderr)


def features(folder, arguments):
    """Return features of both blocks for train and test, and the label matrix."""
    train, test = (lt.read(folder / f"{part}.jsonl.gz") for part in ("train", "test"))
    vectoriser, rows = TfIdf.fit_transform(train.texts, CONFIG.tfidf)
    blocks = rows, vectoriser.transform(test.texts)
    if arguments.dense:
        dense = [np.load(arguments.dense)[part] for part in ("train", "test")]
    else:
        matrix = (
            np.random.default_rng(0)
            .normal(size=(rows.shape[1], arguments.columns))
            .astype(np.float32)
        )
        dense = [block @ matrix for block in blocks]
    n = slice(arguments.documents)
    x, y = (
        Features.of(block[n], quarter(vectors[n]))
        for block, vectors in zip(blocks, dense, strict=True)
    )
    return x, y, train.label_matrix[n]


def quarter(rows):
    return rows / (4 * np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9))


def only(both, name):
    return {"sparse": Features.of(both.sparse), "dense": Features.of(both.dense), "both": both}[
        name
    ]


def measured(train, test, labels, tree, repeat):
    few = slice(0, 300)
    options = tree, CONFIG, 0, Work()
    fit_ranker(train.take(few), labels[few], *options).search(test.take(few), CONFIG.search, K)
    train_s, ranker = least(lambda: fit_ranker(train, labels, *options), repeat)
    search_s, _ = least(lambda: ranker.search(test, CONFIG.search, K), 3 * repeat)
    trained = training_products(train, labels, tree)
    searched = search_products(test, ranker)
    return {
        "documents": len(train),
        "nonzeros": int(train.sparse.nnz + train.dense.size),
        "weights": sum(level.nnz for level in ranker.levels),
        "train_s": round(train_s, 3),
        "train_ns": round(1e9 * train_s / trained, 4),
        "test_documents": len(test),
        "search_s": round(search_s, 4),
        "search_ns": round(1e9 * search_s / searched, 4),
        "documents_per_s": round(len(test) / search_s),
    }


def least(work, repeat):
    """Return the least CPU time and the last result."""
    seconds = []
    for _ in range(repeat):
        begin = time.process_time()
        result = work()
        seconds.append(time.process_time() - begin)
    return min(seconds), result


def sizes(rows):
    """Features of each document."""
    return np.diff(rows.sparse.indptr) + rows.dense.shape[1]


def training_products(train, labels, tree):
    relevance = tree.coarsen(labels)
    total = 0
    for level, width in enumerate(tree.widths):
        classifiers = np.full(len(train), width)
        if level:
            children = np.diff(tree.offsets[level - 1])
            classifiers = (relevance[level - 1] > 0) @ children
        total += int((sizes(train) * classifiers).sum())
    return total


def search_products(test, ranker):
    tree = ranker.tree
    total = 0
    beam_size = CONFIG.search.beam_size
    score = CONFIG.search.score
    for level, width in enumerate(tree.widths):
        scored = np.full(len(test), width)
        if level:
            above = ranker.levels[:level]
            beam = shortlist(test, tree, above, beam_size=beam_size, score=score, bias=ranker.bias)
            scored = np.add.reduceat(
                np.diff(tree.offsets[level - 1])[beam.indices], beam.indptr[:-1]
            )
        total += int((sizes(test) * scored).sum())
    return total


def gemm(tree, depth, documents=256):
    """Return GFLOP/s for a chunk of mean width and ``documents`` that visit it."""
    width = max(tree.n_labels // tree.widths[-2], 1)
    random = np.random.default_rng(0)
    rows = random.normal(size=(documents, depth))
    weights = random.normal(size=(depth, width)).astype(np.float16)
    rows, stored = rows.astype(np.float32), weights.view(np.uint16).ravel()
    panels = cache_aligned(panel_count(width) * depth * PANEL)
    sums = np.empty((16, max(width, PANEL)), np.float32)

    def ours():
        decode(stored, half_floats(), 0, width, depth, panels)
        for first in range(0, documents, 16):
            sums_of_four(panels, rows, np.arange(first, first + 16), width, sums)

    numbers = weights.astype(np.float32)
    flops = 2e-9 * documents * depth * width
    speeds = {"gemm": fastest(lambda: rows @ numbers), "panels": fastest(ours)}
    return {
        "width": width,
        "gflops": {name: round(flops / seconds, 1) for name, seconds in speeds.items()},
    }


def fastest(work, repeat=200):
    """Return the least seconds of many short runs: a busy machine disturbs some of them, not all."""
    seconds = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


if __name__ == "__main__":
    main()
