"""Parts that complete a paper's system: a method with and without each of them.

    python benchmarks/whole_systems.py FOLDER… --parts bonsai,… [--seeds 0,1,2] [--set A.B=C …]
        [--device cpu] [--threads 2]

A FOLDER holds train.jsonl and test.jsonl, or .gz, and may hold labels.jsonl. Prints a JSON line for
each run: P@k and PSP@k in percent, seconds of training and of the processor. The first row of a part
is the method without it. Kernels of methods without a network are compiled before.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from transformer_methods import read

from longtail.config import parse_assignment
from longtail.evaluation import evaluate_model
from longtail.kernels import pool
from longtail.methods import METHODS, configure
from longtail.pipeline import train

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


class Part(NamedTuple):
    """A part of a system: the method, and settings by the name of the row."""

    method: str
    without: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]]  # with the part

    @property
    def rows(self) -> dict[str, Mapping[str, Any]]:
        """All rows, the one without the part first."""
        return {"without": self.without, **self.variants}


def label_features(*kinds):
    """Return the settings of three trees by one kind of label features, or by one each."""
    if len(kinds) == 1:
        return {"label_features": {"kind": kinds[0]}}
    return {"label_features": {"tree_kinds": list(kinds)}}


PARTS = {
    "bonsai": Part(
        "bonsai",
        label_features("pifa"),
        {
            "output": label_features("output"),
            "joint": label_features("joint"),
            "pifa, output, joint": label_features("pifa", "output", "joint"),
        },
    ),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    with pool.threads(arguments.threads):
        for folder in arguments.folders:
            data = read(folder)
            for name in arguments.parts.split(","):
                for row in rows(name, data, arguments):
                    line = {"benchmark": "whole_systems", "data": folder.name, "part": name, **row}
                    print(json.dumps(line), flush=True)


def rows(name, data, arguments):
    """Yield a row for each variant of a part and each seed."""
    documents, test = data
    part = PARTS[name]
    assignments = [parse_assignment(setting) for setting in arguments.set]
    for variant, settings in part.rows.items():
        for seed in map(int, arguments.seeds.split(",")):
            config = configure(part.method, None, settings, {"seed": seed}, *assignments)
            if not METHODS[part.method].network:
                train(documents.take(range(min(300, len(documents)))), config)
            begin = time.perf_counter()
            cpu = time.process_time()
            model = train(documents, config, device=arguments.device)
            about = {"row": variant, "seed": seed, "settings": arguments.set}
            seconds = {
                "seconds": round(time.perf_counter() - begin, 1),
                "cpu_seconds": round(time.process_time() - cpu, 1),
            }
            measured = evaluate_model(model, test).evaluation
            yield about | {key: round(100 * measured[key], 2) for key in METRICS} | seconds


if __name__ == "__main__":
    main()
