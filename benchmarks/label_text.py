"""Short texts and label text: each method with and without Gandalf on real data.

    python benchmarks/label_text.py FOLDER… [--rows inceptionxml,astec,…] [--gandalf both] [--seeds
        0,1,2]
        [--vectors GLOVE.txt] [--set A.B=C …] [--curve FILE.jsonl]

A FOLDER holds train.jsonl, test.jsonl and labels.jsonl, or .gz. Prints a JSON line a run: P@k and
PSP@k in percent, seconds of training, the largest memory of the GPU, milliseconds of one document
by itself and documents a second. ``--vectors`` is a file of GloVe or word2vec text that networks on
words begin with. With ``--share`` Gandalf takes that part of the labels, ``--sample tail`` rare
ones first (figure 6 of the paper).

With ``--curve`` the networks are measured on the test documents after each epoch, and lines of P@1
and PSP@5 by step are added to FILE (figure 5 of the paper) in place of results: the model that
remains is the epoch best on these very documents. Labels that training does not have are left out
there, and documents with no others; results count both. label_text_figures.py draws all lines, or
makes tables of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from transformer_methods import measured, read

from longtail.config import parse_assignment
from longtail.kernels import pool
from longtail.methods import METHODS, configure
from longtail.methods.reads import is_read, settings_read
from longtail.metrics import evaluate
from longtail.pipeline import train
from longtail.reporting import listening
from longtail.run_log import RunLog

ROWS = (
    "xr-linear",
    "dismec",
    "xml-cnn",
    "attentionxml",
    "astec",
    "decaf",
    "eclare",
    "inceptionxml",
    "inceptionxml-lf",
)
CURVE = ("P@1", "P@3", "P@5", "PSP@5")  # the first three tell which epoch is the best


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--gandalf", choices=("with", "without", "both"), default="both")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--sample", choices=("random", "tail"), default="random")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--vectors", default="learned")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--curve", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    other = [row for row in arguments.rows.split(",") if METHODS[row].network != "cascade"]
    if arguments.curve and other:
        parser.error(
            f"--curve: found {', '.join(other)}; expected --rows with networks whose labels learn "
            "at all steps"
        )
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with pool.threads(arguments.threads):
        for folder in arguments.folders:
            compare(folder, arguments)


def compare(folder, arguments):
    """Print a line for each method, seed, and with or without Gandalf."""
    documents, test = read(folder)
    ways = {"with": [True], "without": [False], "both": [False, True]}[arguments.gandalf]
    for method, seed, gandalf in product(
        arguments.rows.split(","), arguments.seeds.split(","), ways
    ):
        about = {
            "data": folder.name,
            "method": method,
            "gandalf": gandalf,
            "seed": int(seed),
            "set": arguments.set,
        }
        about["vectors"] = Path(arguments.vectors).name if METHODS[method].network else ""
        if gandalf:
            about |= {"share": arguments.share, "sample": arguments.sample}
        config = settings(method, gandalf, int(seed), arguments)
        if arguments.curve:
            add_lines(
                arguments.curve,
                [about | point for point in curve(documents, test, config, arguments.device)],
            )
        else:
            line = about | run(documents, test, config, arguments.device)
            print(json.dumps({"benchmark": "label_text", **line}), flush=True)


def settings(method, gandalf, seed, arguments):
    """Return the settings of one model."""
    changes = {
        "seed": seed,
        "gandalf": {"use": gandalf, "share": arguments.share, "sample": arguments.sample},
    }
    if METHODS[method].network:
        changes["encoder"] = {"name": arguments.vectors}
    readable = settings_read(configure(method, None, changes))
    assignments = [text for text in arguments.set if is_read(text.partition("=")[0], readable)]
    return configure(method, None, changes, *map(parse_assignment, assignments))


def run(documents, test, config, device):
    """Train and measure one model."""
    begin = time.perf_counter()
    model = train(documents, config, device=device)
    seconds = time.perf_counter() - begin
    return {"seconds": round(seconds, 1), "gpu_gib": peak_gib(), **measured(model, test)}


def curve(documents, test, config, device):
    """Return the metrics on the test documents after each epoch, by steps, those of an earlier
    phase counted in.
    """
    measure = partial(evaluate, label_counts=documents.label_counts, n_train=len(documents))
    with TemporaryDirectory() as folder:
        log_file = Path(folder, "run.jsonl")
        with (
            patch.multiple("longtail.networks.cascade_fitting", evaluate=measure, BEST_BY=CURVE),
            listening(RunLog(log_file)),
        ):
            train(documents, config, valid=test, device=device)
        events = [json.loads(line) for line in log_file.read_text().splitlines()]
    return points([event for event in events if event["event"] == "epoch"])


def points(epochs):
    """Return a point for each epoch that was measured; where steps begin anew, a phase ended
    before.
    """
    ended = [
        before["step"] if after["step"] <= before["step"] else 0
        for before, after in pairwise(epochs)
    ]
    results = []
    for number, epoch in enumerate(epochs):
        values = {
            name: round(100 * epoch["valid"][name], 2) for name in CURVE if name in epoch["valid"]
        }
        if values:
            results.append(
                {"epoch": number + 1, "step": sum(ended[:number]) + epoch["step"], **values}
            )
    return results


def add_lines(file, lines):
    """Write JSON lines at the end of ``file``."""
    with open(file, "a") as out:
        out.writelines(
            json.dumps({"benchmark": "label_text_curve", **line}) + "\n" for line in lines
        )


def peak_gib():
    """Return the most memory that tensors had on the GPU since the last call, 0 without one."""
    try:
        import torch
    except ImportError:
        return 0.0
    if not torch.cuda.is_available():
        return 0.0
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return round(peak, 2)


if __name__ == "__main__":
    main()
