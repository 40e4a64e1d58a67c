"""Labels that were never trained on, by their words: a model that is given them beside the same
model without.

    python benchmarks/new_labels.py FOLDER… [--rows inceptionxml-lf,decaf,eclare] [--documents N]
        [--seeds 0,1,2]
        [--vectors GLOVE.txt] [--gandalf] [--set A.B=C …]

A FOLDER holds train.jsonl, test_all_labels.jsonl, whose labels are not all in train, and
labels.jsonl, or .gz. Prints a JSON line a run, all numbers in percent: P@k and recall R@k over all
labels of the test documents, and the recall of labels that train does not have, among the k best of
all labels. «new among 5» is how many of the five best are new. A new label's text is its id without
« -- », as labels.jsonl has it for others. ``--documents`` trains on the first N.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from itertools import product
from pathlib import Path

import numpy as np
from linear_vs_peers import data_file
from scipy import sparse

import longtail as lt
from longtail.config import parse_assignment
from longtail.data.csr import csr_of
from longtail.kernels import pool
from longtail.methods import configure
from longtail.metrics import evaluate
from longtail.pipeline import train

ROWS = ("inceptionxml-lf", "decaf", "eclare")
KS = (1, 3, 5, 20, 100)
SHOWN = ("P@1", "P@3", "P@5", "R@5", "R@20", "R@100")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--documents", type=int, default=0, help="of training; 0 = all")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--vectors", default="learned")
    parser.add_argument("--gandalf", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with pool.threads(arguments.threads):
        for folder in arguments.folders:
            documents, test, new = read(folder, arguments.documents)
            for method, seed in product(arguments.rows.split(","), arguments.seeds.split(",")):
                about = {
                    "data": folder.name,
                    "method": method,
                    "seed": int(seed),
                    "gandalf": arguments.gandalf,
                }
                line = about | run(documents, test, new, method, int(seed), arguments)
                print(
                    json.dumps({"benchmark": "new_labels", **line, "set": arguments.set}),
                    flush=True,
                )


def read(folder, n_documents):
    """Return documents with the labels that they use, test documents with all of theirs, and labels
    of these alone.
    """
    documents = lt.read(data_file(folder, "train"), labels=data_file(folder, "labels"))
    documents = documents.take(np.arange(min(n_documents or len(documents), len(documents))))
    used = np.flatnonzero(documents.label_counts).tolist()
    documents = documents.with_labels(lt.Labels.of([documents.labels[at] for at in used]))
    test = lt.read(data_file(folder, "test_all_labels"))
    unknown = [label for label in test.labels.ids if label not in documents.labels]
    return (
        documents,
        test,
        lt.Labels.of([lt.Label(label, text=label.replace(" -- ", " ")) for label in unknown]),
    )


def run(documents, test, new, method, seed, arguments):
    """Train a model, and measure it without and with the new labels."""
    settings = {
        "seed": seed,
        "encoder": {"name": arguments.vectors},
        "gandalf": {"use": arguments.gandalf},
    }
    config = configure(method, None, settings, *map(parse_assignment, arguments.set))
    model = lt.Longtail.of(train(documents, config, device=arguments.device))
    begin = time.perf_counter()
    extended = lt.extend(model, new)
    seconds = time.perf_counter() - begin
    known = len(documents.labels)
    test = test.with_labels(
        extended.model.labels.extended(new.ids)
    )  # those without a known word behind all others
    facts = {"documents": len(documents), "labels": known, "new": len(new)}
    facts["added"] = len(extended.model.labels) - known
    facts["of_new"] = percent(
        test.label_matrix[:, known:].nnz / test.label_matrix.nnz
    )  # share of all true labels
    before, after = (measured(row, test, known) for row in (model, extended))
    return {**facts, "extend_s": round(seconds, 2), "without": before, "with": after}


def measured(model, test, known):
    """Return metrics over all labels, and of those from ``known`` on, which were not trained on,
    the recall alone.
    """
    predictions = model.predict(test.texts, KS[-1]).matrix
    ranked = csr_of(
        predictions.data, predictions.indices, predictions.indptr, test.n_labels
    )  # labels that were added are the last
    metrics = evaluate(ranked, test.label_matrix, ks=KS).metrics
    values = {name: metrics[name] for name in SHOWN}
    rows = np.flatnonzero(
        np.diff(new_of(test.label_matrix, known).indptr)
    )  # documents with a new label
    for k in KS[2:]:
        best = new_of(first(ranked, k), known)
        values[f"R@{k} of new"] = evaluate(
            best[rows], new_of(test.label_matrix, known)[rows], ks=(k,)
        ).metrics[f"R@{k}"]
        if k == 5:
            values["new among 5"] = best.nnz / (k * len(test))
    return {name: percent(value) for name, value in values.items()}


def first(ranked, k):
    """Return the ``k`` best of each row, which is best first."""
    rows = np.repeat(np.arange(ranked.shape[0]), np.diff(ranked.indptr))
    kept = np.arange(ranked.nnz) - ranked.indptr[rows] < k
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=ranked.shape[0]))])
    return csr_of(ranked.data[kept], ranked.indices[kept], ends, ranked.shape[1])


def new_of(matrix, known):
    """Return the columns from ``known`` on."""
    return sparse.csr_array(matrix[:, known:])


def percent(share):
    return round(100 * float(share), 2)


if __name__ == "__main__":
    main()
