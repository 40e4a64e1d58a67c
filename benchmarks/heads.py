"""Heads on a GPU: milliseconds of scores, gradient and step, and the memory they take, at sizes of
large label sets.

    python benchmarks/heads.py [--batch 256] [--width 768] [--repeat 20] [--shapes 670k 3m]
        [--dtypes …]

Shortlists are runs of consecutive nodes, the children of 400 random nodes above, with each
document's positives at the end. The encoder is not run: x is random. Times are medians between CUDA
events; `memory_gib` is the peak with weights and optimiser state, `extra_gib` that without them.
One JSON line a measurement.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics

import torch

from longtail.networks.heads.head import Head
from longtail.networks.losses import BinaryCrossEntropy

SHAPES = {  # nodes, parents, parents kept, positives
    "670k": (670_091, 1 << 16, 400, 0),
    "3m": (2_812_281, 1 << 16, 400, 36),
}
GIB = 1 << 30
LOSS = BinaryCrossEntropy()


def shortlists(n_nodes, parents, kept, positives, batch, generator):
    """(B, S) int32: the children of `kept` random parents, −1 where a parent has one child fewer,
    then positives.
    """
    edges = torch.linspace(0, n_nodes, parents + 1, device="cuda", dtype=torch.float64).long()
    most = int((edges[1:] - edges[:-1]).max())
    chosen = (
        torch.rand(batch, parents, device="cuda", generator=generator)
        .topk(kept, 1)
        .indices.sort(1)
        .values
    )
    nodes = edges[chosen][:, :, None] + torch.arange(most, device="cuda")
    nodes = torch.where(nodes < edges[chosen + 1][:, :, None], nodes, -1).flatten(1)
    true = torch.randint(n_nodes, (batch, positives), device="cuda", generator=generator)
    return torch.cat([nodes, true], 1).to(torch.int32)


def milliseconds(work, repeat):
    """Median of each stage that `work` yields after, and the peak of memory."""
    times = []
    for turn in range(repeat + 3):
        if turn == 3:  # compiled and warm
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        marks = []
        for _ in work(turn):
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
        torch.cuda.synchronize()
        times.append([one.elapsed_time(next_) for one, next_ in itertools.pairwise(marks)])
    return [round(statistics.median(column), 3) for column in zip(*times[3:], strict=True)]


def shortlist_turns(head, x, candidates):
    targets = torch.zeros(candidates.shape, device="cuda")

    def turn(seed):
        x.grad = None
        yield
        logits = head.scores(x, candidates)
        yield
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
        gradient = torch.autograd.grad(loss, logits)[0]
        yield
        logits.backward(gradient)
        yield
        head.step(1e-3, seed)
        yield

    return turn, ("scores_ms", "loss_ms", "gradient_ms", "step_ms")


def full_turns(head, x, positives):
    values = torch.ones(positives.shape, device="cuda")

    def turn(seed):
        x.grad = None
        yield
        loss = head.full_loss(x, positives, values, LOSS).sum()
        yield
        loss.backward()
        yield
        head.step(1e-3, seed)
        yield

    return turn, ("loss_and_gradient_ms", "backward_ms", "step_ms")


def measure(shape, kind, optimiser, dtype, args):
    n_nodes, parents, kept, positives = SHAPES[shape]
    torch.cuda.empty_cache()
    generator = torch.Generator("cuda").manual_seed(0)
    head = Head(
        n_nodes, args.width, optimiser=optimiser, dtype=getattr(torch, dtype), device="cuda"
    )
    x = torch.randn(args.batch, args.width, device="cuda", generator=generator)
    x = x.to(getattr(torch, args.x)).requires_grad_()
    if kind == "shortlist":
        candidates = shortlists(n_nodes, parents, kept, positives, args.batch, generator)
        turn, stages = shortlist_turns(head, x, candidates)
    else:
        true = torch.randint(n_nodes, (args.batch, 36), device="cuda", generator=generator).to(
            torch.int32
        )
        turn, stages = full_turns(head, x, true)
    held = torch.cuda.memory_allocated()
    times = milliseconds(turn, args.repeat)
    peak = torch.cuda.max_memory_allocated()
    sizes = (
        {"slots": candidates.shape[1], "nodes_touched": int(candidates.unique().numel())}
        if kind == "shortlist"
        else {}
    )
    row = {
        "shape": shape,
        "kind": kind,
        "optimiser": optimiser,
        "weights": dtype,
        "batch": args.batch,
        **sizes,
    }
    row |= dict(zip(stages, times, strict=True)) | {"total_ms": round(sum(times), 3)}
    print(
        json.dumps(
            row | {"memory_gib": round(peak / GIB, 2), "extra_gib": round((peak - held) / GIB, 3)}
        ),
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument(
        "--x", default="bfloat16", choices=["float32", "bfloat16"], help="type of the vectors"
    )
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument(
        "--kinds", nargs="+", default=["shortlist", "full"], choices=["shortlist", "full"]
    )
    parser.add_argument("--optimisers", nargs="+", default=["sgd", "row-adam", "adamw"])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    args = parser.parse_args()
    for shape in args.shapes:
        for kind in args.kinds:
            for dtype in args.dtypes:
                for optimiser in args.optimisers:
                    measure(shape, kind, optimiser, dtype, args)


if __name__ == "__main__":
    main()
