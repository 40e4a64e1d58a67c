"""What a setting of xr-linear does: precision, CPU seconds of training and size of the weights, one
line a variant.

    python benchmarks/linear_settings.py FOLDER VARIANT… [--method xr-linear]

FOLDER holds train.jsonl.gz and test.jsonl.gz; a VARIANT is settings joined by commas, such as
ranker.max_passes=100,tfidf.0.sublinear_tf=false, or «default». No documents are held out. 2
threads, seed 0.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import longtail as lt
from longtail.config import parse_assignment
from longtail.evaluation import evaluate_model
from longtail.kernels import pool
from longtail.methods import configure
from longtail.pipeline import train


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--method", default="xr-linear")
    arguments = parser.parse_args()
    documents, test = (
        lt.read(arguments.folder / f"{split}.jsonl.gz") for split in ("train", "test")
    )
    with pool.threads(2):
        train(
            documents.take(range(min(1000, len(documents)))), configure(arguments.method)
        )  # loads the kernels
        for variant in arguments.variants:
            print(json.dumps(measured(documents, test, arguments.method, variant)), flush=True)


def measured(documents, test, method, variant):
    chosen = [] if variant == "default" else variant.split(",")
    config = configure(method, None, *map(parse_assignment, ["calibration.method=none", *chosen]))
    begin = time.process_time()
    model = train(documents, config)
    seconds = time.process_time() - begin
    metrics = evaluate_model(model, test).evaluation
    size = sum(chunks.nbytes for ranker in model.rankers for chunks in ranker.levels)
    result = {name: round(100 * metrics[name], 2) for name in ("P@1", "P@3", "P@5")}
    return {
        "benchmark": "linear_settings",
        "variant": variant,
        **result,
        "cpu_s": round(seconds, 1),
        "mb": size / 1e6,
    }


if __name__ == "__main__":
    main()
