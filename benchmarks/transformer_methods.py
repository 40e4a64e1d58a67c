"""The methods with an encoder side by side on real data: accuracy, training time, speed of
prediction.

    python benchmarks/transformer_methods.py FOLDER… [--rows xr-linear,frozen,…] [--encoder minilm]
        [--set A.B=C …]
        [--keep FOLDER]

A FOLDER holds train.jsonl and test.jsonl, or .gz. Prints a JSON line a row: P@k and PSP@k in
percent, seconds of training, milliseconds of one document by itself (median of 100) and documents a
second of all test documents at once. Rows of CascadeXML come from one training: its network by
itself, and with linear classifiers on Φcat. The ensemble is the mean of the probabilities of those
rows named by --members that are among the rows. With --keep models are saved, and those that lie
there already are measured again without training.
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
from longtail.kernels import pool
from longtail.methods import METHODS, configure
from longtail.models.model_folder import load_model, save_model
from longtail.pipeline import predict, train

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
ROWS = {
    "xr-linear": ("xr-linear", {}),
    "frozen": ("xr-linear", {"features": "cat"}),
    "lightxml": ("lightxml", {}),
    "x-transformer": ("x-transformer", {}),
    "xr-transformer": ("xr-transformer", {}),
    "cascadexml": ("cascadexml", {"cascade": {"combine": "always"}}),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--members", default="lightxml,xr-transformer,cascadexml+Φcat")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--name", default="")
    parser.add_argument(
        "--keep", type=Path, help="a folder for models, which later runs take from there"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with pool.threads(arguments.threads):
        measure(arguments)


def measure(arguments):
    """Print the rows of each dataset."""
    for folder in arguments.folders:
        for row in rows(folder, arguments):
            print(
                json.dumps(
                    {"benchmark": "transformer_methods", "name": arguments.name, **row},
                    ensure_ascii=False,
                ),
                flush=True,
            )


def rows(folder, arguments):
    """Yield the measured rows of a dataset, the ensemble last."""
    documents, test = read(folder)
    trained = {}
    for name in arguments.rows.split(","):
        model, seconds = kept_or_fitted(documents, name, folder, arguments)
        about = {
            "data": folder.name,
            "seed": arguments.seed,
            "settings": arguments.set,
            "seconds": round(seconds, 1),
        }
        for row, member in variants(name, model):
            trained[row] = member
            yield {"row": row, **about, **measured(member, test)}
    members = [
        lt.Longtail.of(trained[name]) for name in arguments.members.split(",") if name in trained
    ]
    if len(members) > 1:
        about = {"data": folder.name, "seed": arguments.seed, "members": arguments.members}
        yield {"row": "ensemble", **about, **measured(lt.ensemble(members).model, test)}


def read(folder):
    """Return training documents, with label texts where there are some, and test documents."""
    labels = [
        path for path in (folder / "labels.jsonl", folder / "labels.jsonl.gz") if path.exists()
    ]
    documents = lt.read(data_file(folder, "train"), labels=labels[0] if labels else None)
    return documents, lt.read(data_file(folder, "test"))


def kept_or_fitted(documents, name, folder, arguments):
    """Return the model of a row and the seconds of its training, from where --keep has it or by
    training it.
    """
    kept = arguments.keep and arguments.keep / f"{folder.name}-{name}-{arguments.seed}"
    if kept and kept.exists():
        return load_model(kept, device=arguments.device), float(
            (kept.parent / f"{kept.name}.seconds").read_text()
        )
    model, seconds = fitted(documents, *ROWS[name], arguments)
    if kept:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        (kept.parent / f"{kept.name}.seconds").write_text(str(seconds))
        save_model(model, kept)
    return model, seconds


def fitted(documents, method, settings, arguments):
    """Return the model and the seconds of its training."""
    given_settings = {"seed": arguments.seed}
    if METHODS[method].network or settings:
        given_settings["encoder"] = {"name": arguments.encoder}
    assignments = map(parse_assignment, arguments.set)
    config = configure(method, None, settings, given_settings, *assignments)
    begin = time.perf_counter()
    model = train(documents, config, device=arguments.device)
    return model, time.perf_counter() - begin


def variants(name, model):
    """Yield the rows that one training gives."""
    if name != "cascadexml":
        yield name, model
        return
    alone = replace(
        model, rankers=(), facts=replace_settings(model.facts, network_share=1.0), calibration=None
    )
    yield name, alone
    yield f"{name}+Φcat", model


def measured(model, test):
    """Return the metrics and the speed of a model."""
    result = {key: round(100 * value, 2) for key, value in metrics(model, test).items()}
    texts = [test.texts[at] for at in range(min(len(test), 130))]
    singles = []
    for at, text in enumerate(texts):
        begin = time.perf_counter()
        predict(model, [text], 5)
        if at >= 30:  # kernels are compiled and recorded by then
            singles.append(1000 * (time.perf_counter() - begin))
    begin = time.perf_counter()
    predict(model, test, 5)
    speed = len(test) / (time.perf_counter() - begin)
    return result | {
        "single_ms": round(float(np.median(singles)), 3),
        "documents_per_s": round(speed),
    }


def metrics(model, test):
    """Return the metrics of the table."""
    evaluation = evaluate_model(model, test).evaluation
    return {key: evaluation[key] for key in METRICS}


if __name__ == "__main__":
    main()
