"""The ablations of XR-Transformer on real data: tables 5, 6 and 9 and figure 2 of its paper, with
our numbers.

    python benchmarks/xr_ablations.py FOLDER [--rows full,no-cost,…] [--encoder minilm] [--seed 0]
        [--set A.B=C …]

Each row is one encoder, tuned or not, and one line for each kind of features that its linear
classifiers read: tf-idf (Φtfidf), the encoder's vectors (Φdnn), both (Φcat). Rows: «tfidf» and
«pretrained» tune nothing (table 5); «full» is xr-transformer, «cost» and «no-cost» with and without
cost-sensitive learning (tables 6 and 9, with «tfidf-cost» for xr-linear), «no-bootstrap» with
classifiers that start at random (eq. 11); «clusters-N» is tuned on one level of clusters of N
labels (figure 2). Prints a JSON line each with P@k, R@k and PSP@k in percent.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from pathlib import Path

from msgspec.structs import replace as replace_settings
from transformer_methods import read

from longtail.config import parse_assignment
from longtail.evaluation import evaluate_model
from longtail.kernels import pool
from longtail.methods import configure, network_of
from longtail.models.model import Facts, Model
from longtail.networks.fitting import (
    combined_features,
    network_run,
    network_trees,
    pretrained_encoder,
    untrained_network,
)
from longtail.rankers import ranker_family
from longtail.rankers.base import TrainingPoints
from longtail.steps.held_out import hold_out
from longtail.steps.run import Run
from longtail.steps.text import text_features
from longtail.steps.work import Work

METRICS = ("P@1", "P@3", "P@5", "R@1", "R@3", "R@5", "PSP@1", "PSP@3", "PSP@5")
NO_COST = {"recursive": {"cost_sensitive": False}, "ranker": {"cost_sensitive": False}}
COST = {"recursive": {"cost_sensitive": True}, "ranker": {"cost_sensitive": True}}
ROWS = {
    "tfidf": ("xr-linear", {}, ["tfidf"]),
    "tfidf-cost": ("xr-linear", {"ranker": {"cost_sensitive": True}}, ["tfidf"]),
    "pretrained": ("xr-linear", {"features": "cat"}, ["dnn", "cat"]),
    "full": ("xr-transformer", {}, ["dnn", "cat"]),
    "no-cost": ("xr-transformer", NO_COST, ["cat"]),
    "cost": ("xr-transformer", COST, ["cat"]),
    "no-bootstrap": ("xr-transformer", {"recursive": {"bootstrap": False}}, ["dnn", "cat"]),
}
SIZES = (16, 64, 256)  # labels of a cluster, for figure 2


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--rows", default=",".join([*ROWS, *(f"clusters-{size}" for size in SIZES)])
    )
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with pool.threads(arguments.threads):
        measure(arguments)


def measure(arguments):
    """Print the lines of each row."""
    documents, test = read(arguments.folder)
    for row in arguments.rows.split(","):
        for line in measured(row, documents, test, arguments):
            about = {
                "data": arguments.folder.name,
                "row": row,
                "seed": arguments.seed,
                "settings": arguments.set,
            }
            print(json.dumps({"benchmark": "xr_ablations", **about, **line}), flush=True)


def measured(row, documents, test, arguments):
    """Yield a line for each kind of features, all on one encoder."""
    method, settings, kinds = recipe(row, documents.n_labels)
    encoder = {"encoder": {"name": arguments.encoder}, "seed": arguments.seed}
    config = configure(method, None, encoder, settings, *map(parse_assignment, arguments.set))
    fitted, held_out, _ = hold_out(documents, config)
    run = Run(config, Work(), device=arguments.device)
    begin = time.perf_counter()
    vectoriser, features = text_features(fitted, run)
    network_family = network_of(config)
    if network_family is None:
        network = pretrained_encoder(run)
    else:
        untrained = untrained_network(fitted, run)
        trees = network_trees(fitted, features, vectoriser, network_family, run)
        network = network_family.fit(network_run(fitted, untrained, trees, network_family, run))
    seconds = time.perf_counter() - begin
    for kind in kinds:
        asked = replace_settings(config, features=kind)
        combined = combined_features(fitted, features, network, run._replace(config=asked))
        points = TrainingPoints(fitted, combined, vectoriser)
        family = ranker_family(asked)
        trees = family.label_trees(points, run._replace(config=asked))
        rankers = family.fit(points._replace(trees=trees), run._replace(config=asked))
        widths = combined.sparse.shape[1], combined.dense.shape[1]
        facts = Facts(len(fitted), fitted.label_matrix.nnz, len(held_out or ()), *widths)
        words = None if kind == "dnn" else vectoriser
        model = Model(asked, fitted.labels, fitted.label_counts, facts, words, rankers, network)
        evaluation = evaluate_model(model, test).evaluation
        metrics = {name: round(100 * evaluation[name], 2) for name in METRICS}
        yield {"features": kind, "network_s": round(seconds, 1), **metrics}


def recipe(row, n_labels):
    """Return method, settings and kinds of features of a row."""
    if not row.startswith("clusters-"):
        return ROWS[row]
    clusters = 1 << (n_labels // int(row.removeprefix("clusters-"))).bit_length() - 1
    return (
        "xr-transformer",
        {"recursive": {"levels": [clusters], "finest": "clusters"}},
        ["dnn", "cat"],
    )


if __name__ == "__main__":
    main()
