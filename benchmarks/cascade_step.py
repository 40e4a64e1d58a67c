"""Speed and memory of CascadeXML at the size of the papers' largest sets, with random weights and
data.

    python benchmarks/cascade_step.py --labels 670091 --levels 10 13 16 --topk 128 256 400 --batch
        64 --tokens 128

The shape is BERT-base. Training runs the steps of the real loop, from batches in host memory;
``encoder_samples_per_s`` is the same encoder with a plain sum as its loss, in the same arithmetic,
by AdamW, in the same process. Latency is that of one document and throughput that of batches, from
token ids in host memory to ranked labels in host memory. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time

import numpy as np
import torch
from scipy import sparse
from transformers import BertConfig

from longtail.config import Cascade, Training
from longtail.features.encoder import Encoder
from longtail.features.tokens import Tokens
from longtail.networks.batches import Batches
from longtail.networks.cascade import CascadeXML
from longtail.networks.device import arithmetic, choose_device
from longtail.networks.ranker import NeuralRanker
from longtail.networks.training.schedule import Schedule
from longtail.networks.training.stepper import Stepper
from longtail.tree.tree import LabelTree

VOCABULARY = 30522


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=int, default=670_091)
    parser.add_argument("--levels", type=int, nargs="+", default=[10, 13, 16], help="powers of two")
    parser.add_argument("--topk", type=int, nargs="+", default=[128, 256, 400])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--positives", type=int, default=5, help="labels of a document")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--head-weights", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument(
        "--head-optimiser", default="row-adam", choices=["adamw", "row-adam", "sgd"]
    )
    parser.add_argument("--last-level", default="shortlist", choices=["shortlist", "full"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    result = {"benchmark": "cascade_step", **vars(arguments), **training(arguments, device)}
    if not arguments.train_only:
        result |= inference(arguments, device)
    print(json.dumps(result), flush=True)


def network_of(arguments, device):
    borders = [
        np.linspace(0, arguments.labels, 2**power + 1).astype(np.int64)
        for power in arguments.levels
    ]
    tree = LabelTree.from_borders(np.arange(arguments.labels), borders)
    shape = BertConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=arguments.layers,
        hidden_size=arguments.width,
        num_attention_heads=arguments.width // 64,
        intermediate_size=4 * arguments.width,
    )
    settings = Cascade(shortlist=tuple(arguments.topk), last_level=arguments.last_level)
    return CascadeXML(
        Encoder.from_config(shape), tree, settings, training_settings(arguments), 0, device
    ), tree


def training_settings(arguments):
    return Training(
        batch_size=arguments.batch,
        head_optimiser=arguments.head_optimiser,
        head_weights=arguments.head_weights,
        compile=arguments.compile,
    )


def random_tokens(n, arguments):
    ids = (
        np.random.default_rng(0).integers(1000, VOCABULARY, n * arguments.tokens).astype(np.uint16)
    )
    return Tokens(ids, np.arange(n + 1) * arguments.tokens, 0, False, arguments.tokens)


def training(arguments, device):
    """Return the rate of the loop's own steps, its peak memory, and the rate of the encoder alone."""
    n = arguments.batch * arguments.steps
    random = np.random.default_rng(1)
    columns = np.sort(random.integers(0, arguments.labels, (n, arguments.positives)), axis=1)
    ends = np.arange(n + 1) * arguments.positives
    positives = sparse.csr_array(
        (np.ones(columns.size, np.float32), columns.ravel(), ends), (n, arguments.labels)
    )
    batches = Batches(random_tokens(n, arguments), positives, arguments.batch, 0)
    network, _ = network_of(arguments, device)
    settings = training_settings(arguments)
    stepper = Stepper(network, settings, Schedule.of(settings, len(batches)), 0)
    network.train()
    rate = samples_per_s(stepper.step, batches, arguments.batch, device)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    del network, stepper
    if device.type == "cuda":
        torch.cuda.empty_cache()
    alone, _ = network_of(argparse.Namespace(**{**vars(arguments), "labels": 2**16 + 1}), device)
    adamw = torch.optim.AdamW(alone.encoder.parameters(), lr=1e-6, fused=device.type == "cuda")

    def step(batch, _):
        with arithmetic(settings.precision, device):
            vectors = alone.vectors(batch.to(device).ids, None)
            loss = sum(vector.float().sum() for vector in vectors)
        loss.backward()
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    encoder = samples_per_s(step, batches, arguments.batch, device)
    return {
        "samples_per_s": rate,
        "peak_gib": round(peak, 2),
        "encoder_samples_per_s": encoder,
        "share_of_encoder": round(rate / encoder, 3),
    }


def samples_per_s(step, batches, batch, device):
    """Return the median rate over the last three quarters of an epoch."""
    times = []
    number = 0
    for number, part in enumerate(batches.epoch(0)):
        if number >= len(batches) // 4 and number % 5 == 0:
            wait(device)
            times.append((number, time.perf_counter()))
        step(part, number)
    wait(device)
    times.append((number + 1, time.perf_counter()))
    rates = [batch * (b[0] - a[0]) / (b[1] - a[1]) for a, b in itertools.pairwise(times)]
    return round(statistics.median(rates), 1)


def inference(arguments, device):
    """Return the milliseconds of one document and the documents a second of many."""
    without_state = argparse.Namespace(**{**vars(arguments), "head_optimiser": "sgd"})
    network, tree = network_of(without_state, device)
    tokeniser = argparse.Namespace(max_tokens=arguments.tokens, pad_left=False)
    ranker = NeuralRanker(tokeniser, network, tree).freeze()
    one = random_tokens(1, arguments)
    many = random_tokens(8192, arguments)
    for tokens in (one, one, many):
        ranker.search(tokens, 5)
    singles = sorted(timed(lambda: ranker.search(one, 5), device) for _ in range(200))
    batch = statistics.median(timed(lambda: ranker.search(many, 5), device) for _ in range(3))
    return {
        "latency_ms": round(1e3 * singles[100], 3),
        "latency_p95_ms": round(1e3 * singles[190], 3),
        "documents_per_s": round(len(many) / batch, 1),
    }


def timed(run, device):
    begin = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - begin


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
