"""All linear methods on the same data: four metrics at 1, 3 and 5, time, peak memory and size of the model.

    python benchmarks/linear_methods.py FOLDER… [--methods xr-linear dismec …] [--set A.B=C …] [--memory MB]

A FOLDER holds train.jsonl.gz and test.jsonl.gz. Each method runs in a process of its own, with its defaults, 2 threads
and seed 0, kernels compiled before; 2 % of the documents, at most 500, are held out for the calibration. Prints a JSON
line a run, then a table a folder. --memory limits the address space of a process: what needs more fails.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import longtail as lt
from longtail.config import parse_assignment
from longtail.evaluation import evaluate_model
from longtail.kernels import pool
from longtail.methods import METHODS, configure
from longtail.models.model_folder import load_model, save_model
from longtail.pipeline import predict, train

LINEAR = [name for name, entry in METHODS.items() if not entry.network]
SHOWN = [f"{metric}@{k}" for metric in ("P", "nDCG", "PSP", "PSnDCG") for k in (1, 3, 5)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--methods", nargs="+", default=LINEAR)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--memory", type=int, default=0, metavar="MB")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process
    arguments = parser.parse_args()
    if arguments.here:
        if arguments.memory:
            resource.setrlimit(resource.RLIMIT_AS, (arguments.memory * 10**6,) * 2)
        print(json.dumps(measured(arguments.folders[0], arguments.methods[0], arguments.set)))
        return
    for folder in arguments.folders:
        results = []
        for method in arguments.methods:
            command = [
                sys.executable,
                __file__,
                str(folder),
                "--here",
                "--methods",
                method,
                "--memory",
                str(arguments.memory),
            ]
            command += [part for setting in arguments.set for part in ("--set", setting)]
            line = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True
            ).stdout.splitlines()[-1]
            print(line, flush=True)
            results.append(json.loads(line))
        print(table(folder.name, results), flush=True)


def measured(folder, method, settings):
    documents, test = (lt.read(folder / f"{split}.jsonl.gz") for split in ("train", "test"))
    config = configure(method, None, *map(parse_assignment, settings))
    with pool.threads(2), tempfile.TemporaryDirectory() as place:
        warm = train(documents.take(range(300)), config)
        predict(warm, test.take(range(3)), 5)  # compiles and loads the kernels
        begin, cpu = time.perf_counter(), time.process_time()
        model = train(documents, config)
        spent = time.perf_counter() - begin, time.process_time() - cpu
        save_model(model, Path(place) / "model")
        size = sum(
            file.stat().st_size for file in (Path(place) / "model").rglob("*") if file.is_file()
        )
        model = load_model(Path(place) / "model")
        metrics = evaluate_model(model, test).evaluation
    result = {
        "benchmark": "linear_methods",
        "data": folder.name,
        "method": method,
        "settings": settings,
    }
    result |= {name: round(100 * metrics[name], 2) for name in SHOWN}
    result |= {"train_s": round(spent[0], 1), "train_cpu_s": round(spent[1], 1)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return result | {"model_mb": round(size / 1e6, 1), "peak_mb": round(peak)}


def table(name, results):
    lines = [
        f"\n{name}\n",
        "| method | P@1/3/5 | nDCG@1/3/5 | PSP@1/3/5 | PSnDCG@1/3/5 | train s | model MB | peak MB |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in results:
        metrics = [
            " / ".join(f"{row[f'{metric}@{k}']:.2f}" for k in (1, 3, 5))
            for metric in ("P", "nDCG", "PSP", "PSnDCG")
        ]
        costs = [row["train_s"], row["model_mb"], row["peak_mb"]]
        lines.append("| " + " | ".join(map(str, [row["method"], *metrics, *costs])) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
