"""CascadeXML on real data: accuracy of the network, of linear classifiers on Φcat, and of both,
with speed and recall.

    python benchmarks/cascade_accuracy.py FOLDER… [--encoder minilm] [--set training.epochs=13 …]
        [--combine]

A FOLDER holds train.jsonl and test.jsonl, or .gz. Without --combine only the network is trained.
Prints a JSON line a run: P@1, P@3, P@5 in percent, documents a second in training, the share of
true labels that each level's shortlist keeps (on the test documents), and seconds.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from linear_vs_peers import data_file
from msgspec.structs import replace as replace_settings

import longtail as lt
from longtail.config import parse_assignment
from longtail.evaluation import evaluate_model
from longtail.methods import configure
from longtail.pipeline import train

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--combine", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--name", default="")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for folder in arguments.folders:
        print(
            json.dumps(
                {
                    "benchmark": "cascade_accuracy",
                    "name": arguments.name,
                    **measure(folder, arguments),
                }
            )
        )


def measure(folder, arguments):
    settings = {
        "encoder": {"name": arguments.encoder},
        "cascade": {"combine": "always" if arguments.combine else "never"},
    }
    config = configure("cascadexml", None, settings, *map(parse_assignment, arguments.set))
    labels = folder / "labels.jsonl.gz"
    documents = lt.read(data_file(folder, "train"), labels=labels if labels.exists() else None)
    test = lt.read(data_file(folder, "test"))
    clock = EpochClock()
    logging.getLogger("longtail").addHandler(clock)
    begin = time.perf_counter()
    model = train(documents, config, device=arguments.device)
    result = {
        "data": folder.name,
        "settings": arguments.set,
        "seconds": round(time.perf_counter() - begin, 1),
    }
    result["samples_per_s"] = clock.rate()
    tokens = model.network.tokeniser(test.texts)
    known = test.with_labels(model.labels, unknown="drop")
    recalls = model.network.shortlist_recall(tokens, known.label_matrix)
    result["shortlist_recall"] = [round(100 * recall, 2) for recall in recalls]
    shares = {"network": 1.0}
    if model.rankers:
        shares |= {"linear": 0.0, "model": model.facts.network_share}
    for name, share in shares.items():
        tried = replace(
            model, facts=replace_settings(model.facts, network_share=share), calibration=None
        )
        begin = time.perf_counter()
        measured = evaluate_model(tried, test).evaluation
        result[name] = {key: round(100 * measured[key], 2) for key in METRICS}
        result[name] |= {"share": share, "predict_s": round(time.perf_counter() - begin, 2)}
    return result


class EpochClock(logging.Handler):
    """Takes the documents a second from the lines that end an epoch."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.rates = []

    def emit(self, record):
        """Note the rate of an epoch."""
        text = record.getMessage()
        if text.startswith("epoch ") and " documents/s" in text:
            self.rates.append(
                float(text.rpartition(" documents/s")[0].rpartition(" ")[2].replace(",", ""))
            )

    def rate(self):
        """Return the median over epochs."""
        if not self.rates:
            return None
        return float(np.median(self.rates))


if __name__ == "__main__":
    main()
