"""Speed of two processes under torchrun against one: the part of a step that the encoder bounds.

``python -m benchmarks.torchrun`` starts both runs itself, on the CPU with a thread a process, on
texts of the same length and a small tree, so that the classifiers cost next to nothing. It prints a
JSON line for each, and one with the ratio to the ideal (``processes`` times the speed of one; at
most 1.3 is the aim).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np


def measure(arguments: argparse.Namespace) -> None:
    """Time steps in this process, or in this rank of torchrun; the first rank prints."""
    import torch
    from scipy import sparse

    from longtail.config import Cascade, Training
    from longtail.features.encoder import Encoder, encoder_folder
    from longtail.features.tokens import Tokens
    from longtail.networks.batches import Batches
    from longtail.networks.cascade import CascadeXML
    from longtail.networks.training.schedule import Schedule
    from longtail.networks.training.stepper import Stepper
    from longtail.scale.training import joined
    from longtail.tree.tree import LabelTree

    torch.set_num_threads(1)
    size = arguments.batch
    tokens = arguments.tokens
    labels = 1024
    with joined("cpu") as (ranks, device):
        batch_size = size * ranks.size if arguments.batch_a_process else size
        n = batch_size * (arguments.steps + arguments.warm_up)
        random = np.random.default_rng(0)
        ids = random.integers(1000, 20000, n * tokens).astype(np.uint16)
        truth = sparse.csr_array(
            (np.ones(n, np.float32), (np.arange(n), random.integers(0, labels, n))), (n, labels)
        )
        batches = Batches(Tokens(ids, np.arange(n + 1) * tokens, 0, False), truth, batch_size, 0)
        training = Training(batch_size=batch_size, micro_batch=arguments.batch)
        tree = LabelTree(np.arange(labels, dtype=np.int32), (np.arange(0, labels + 1, 32),))
        encoder = Encoder.load(encoder_folder("minilm"), "auto")
        network = CascadeXML(encoder, tree, Cascade(last_level="full"), training, 0, device).train()
        stepper = Stepper(network, training, Schedule.of(training, len(batches)), 0)
        seconds = []
        for number, batch in enumerate(batches.epoch(0)):
            ranks.barrier()
            begin = time.perf_counter()
            stepper.step(batch, number)
            seconds.append(time.perf_counter() - begin)
        if ranks.is_first:
            usual = float(np.median(seconds[arguments.warm_up :]))
            facts = {
                "processes": ranks.size,
                "batch": batch_size,
                "tokens": tokens,
                "step_s": round(usual, 4),
            }
            print(
                json.dumps(
                    {"what": "torchrun", **facts, "samples_per_s": round(batch_size / usual, 2)}
                ),
                flush=True,
            )


def compare(arguments: argparse.Namespace) -> None:
    """Run both and print the ratio."""
    speeds = []
    command = ["-m", "benchmarks.torchrun", "--measure", *sys.argv[1:]]
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(arguments.processes),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    for words in (command, [*launcher, *command]):
        done = subprocess.run(
            [sys.executable, *words], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
        print(line, flush=True)
        speeds.append(json.loads(line)["samples_per_s"])
    ratio = arguments.processes * speeds[0] / speeds[1]
    print(
        json.dumps(
            {
                "what": "torchrun against ideal",
                "ratio": round(ratio, 3),
                "speed_up": speeds[1] / speeds[0],
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument(
        "--batch-a-process",
        action="store_true",
        help="each process has a batch, as usual; else they share one",
    )
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    (measure if arguments.measure else compare)(arguments)


if __name__ == "__main__":
    main()
