"""A model of 10 million labels, built shard by shard, memory-mapped and served; its memory is to
stay below 8 GiB.

Nobody has real data of that size at hand, so weights are drawn: pieces of synthetic documents whose
words follow Zipf's law, 75 a label in the mean with a long tail, siblings from the same documents;
a tree of four levels. What is measured is memory, disk and time, which depend on sizes, not
accuracy. The model folder is written, read and served by the code that real ones are: shards are
stages that become files of the folder by hard links.

    python benchmarks/ten_million.py --folder DIR [--labels 10000000] [--vocabulary 500000]
        [--shard-labels 250000]

Prints one JSON line a phase, each a process of its own, so that `peak_mib` (VmHWM, memory-mapped
pages included) is that of the phase. `build` makes the folder, if it is not there; `load` opens it,
answers batches and single documents; `serve` is `longtail serve`; `half` is a server that holds
every other shard. Other work on the machine shows in all times.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from longtail.config import Ranker
from longtail.data.labels import Labels
from longtail.data.strings import StringsBuilder
from longtail.features.tfidf import TfIdf
from longtail.methods import configure
from longtail.models.model import Facts, Model
from longtail.models.model_folder import load_model, save_model
from longtail.pipeline import predict
from longtail.rankers.tree import TreeRanker, fit_shards
from longtail.search.chunks import Chunks, Part
from longtail.search.shard_files import open_model_folder, shard_files
from longtail.search.shards import cut_parents
from longtail.steps.work import Work
from longtail.store import Stages
from longtail.tree.tree import LabelTree

GOAL_MIB = 8 << 10
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]  # 70
# of the synthetic corpus, and of each document
DOCUMENTS = 20_000
WORDS = 120
FANS = 76, 32, 64  # children of a node, from the labels upwards
WEIGHTS = 75, 600, 4000, 20_000  # of a node in the mean, the same way
BLOCK = 1 << 16


def word(number: int) -> str:
    """Return a word of its own for each number."""
    parts = []
    for _ in range(4):
        number, remainder = divmod(number, len(SYLLABLES))
        parts.append(SYLLABLES[remainder])
    return "".join(parts)


def texts(n: int, vocabulary: int, seed: int) -> list[str]:
    """Return documents of words by Zipf's law."""
    rng = np.random.default_rng(seed)
    ranks = (
        np.minimum(np.exp(rng.random((n, WORDS)) * np.log(vocabulary)).astype(np.int64), vocabulary)
        - 1
    )
    return [" ".join(map(word, row)) for row in ranks.tolist()]


@dataclass
class Level:
    """Draws the weights of a level; stands where the problems of a level do in training."""

    columns: np.ndarray  # of all words of all documents, one after the other
    values: np.ndarray
    n_columns: int
    offsets: np.ndarray  # (parents + 1,)
    mean: int  # weights of a node
    ranker: Ranker
    seed: int

    def shards(self) -> list[tuple[int, int]]:
        """Return the first and the last (exclusive) parent of each shard."""
        return list(pairwise(cut_parents(self.offsets, self.ranker.shard_labels).tolist()))

    def solve(self, parents: tuple[int, int]) -> Chunks:
        """Return drawn weights of the children of these parents."""
        first, last = parents
        offsets = self.offsets[first : last + 1]
        rng = np.random.default_rng([self.seed, first])
        parts = (self._part(rng, int(width)) for width in np.diff(offsets))
        return Chunks.build(offsets - offsets[0], parts, self.n_columns, 0, self.ranker.weights)

    def _part(self, rng: np.random.Generator, width: int) -> Part:
        """Each sibling has a run of words somewhere in the documents that are the parent's, and a
        bias.
        """
        counts = np.minimum(self.mean / 3 * (1 + rng.pareto(1.5, width)), 20 * self.mean).astype(
            np.int64
        )
        room = min(20 * self.mean, len(self.columns) // 2)
        start = rng.integers(0, len(self.columns) - room - counts.max())
        starts = start + rng.integers(0, room, width)
        siblings = np.repeat(np.arange(width), counts)
        at = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - starts, counts)
        keys, where = np.unique(self.columns[at] * width + siblings, return_index=True)
        weights = (
            8
            * self.values[at[where]]
            * np.where(rng.random(len(keys)) < 0.3, -1, 1).astype(np.float32)
        )
        rows, sizes = np.unique(keys // width, return_counts=True)
        return Part(
            np.append(rows, self.n_columns),
            np.concatenate([[0], np.cumsum(sizes), [len(keys) + width]]),
            np.concatenate([keys % width, np.arange(width)]),
            np.concatenate([weights, rng.normal(-0.7, 0.2, width)]).astype(np.float32),
            np.zeros((width, 0), np.float32),
        )


def tree_of(n_labels: int, seed: int) -> LabelTree:
    """Return a tree of four levels, labels in it by chance."""
    widths = [n_labels]
    for fan in FANS:
        widths.append(max(-(-widths[-1] // fan), 2))
    borders = [np.linspace(0, n_labels, width + 1).astype(np.int64) for width in widths[:0:-1]]
    nested = [borders[-1]]
    for coarse in borders[-2::-1]:  # the nodes of a level end where some of the next one do
        nested.insert(0, nested[0][np.searchsorted(nested[0], coarse)])
    return LabelTree.from_borders(np.random.default_rng(seed).permutation(n_labels), nested)


def labels_of(n: int) -> Labels:
    ids = StringsBuilder()
    names = StringsBuilder()
    for first in range(0, n, BLOCK):
        numbers = range(first, min(first + BLOCK, n))
        ids.extend([f"L{number:09}" for number in numbers])
        names.extend([f"{word(number * 7)} {word(number * 13 + 5)}" for number in numbers])
    return Labels(ids.finish(), names.finish())


def build(folder: Path, options: argparse.Namespace) -> dict:
    begin = time.perf_counter()
    config = configure("xr-linear", None, {"ranker": {"shard_labels": options.shard_labels}})
    every = [
        " ".join(map(word, range(first, min(first + 500, options.vocabulary))))
        for first in range(0, options.vocabulary, 500)
    ]
    vectoriser, rows = TfIdf.fit_transform(
        texts(DOCUMENTS, options.vocabulary, 0) + every, config.tfidf
    )
    tree = tree_of(options.labels, 1)
    n_columns = vectoriser.n_features
    drawn = rows.indices.astype(np.int64), rows.data, n_columns
    levels = []
    seconds = {}
    with Stages(folder.with_name(f"{folder.name}.stages")) as stages:
        for depth in range(tree.n_levels):
            start = time.perf_counter()
            offsets = tree.offsets[depth - 1] if depth else np.array([0, tree.widths[0]])
            level = Level(
                *drawn, offsets, WEIGHTS[tree.n_levels - 1 - depth], config.ranker, 2 + depth
            )
            if depth < tree.n_levels - 1:
                levels.append(level.solve((0, len(offsets) - 1)))
            else:
                levels.append(fit_shards(level, f"ranker-0-{depth}", Work(stages)))
            seconds[f"level_{depth + 1}_s"] = round(time.perf_counter() - start, 1)
        start = time.perf_counter()
        counts = (
            np.random.default_rng(9).zipf(2.0, options.labels).clip(max=100_000).astype(np.int64)
        )
        facts = Facts(options.labels * 2, int(counts.sum()), 0, n_columns, 0)
        ranker = TreeRanker(tree, tuple(levels), config.ranker.bias)
        save_model(
            Model(config, labels_of(options.labels), counts, facts, vectoriser, (ranker,)), folder
        )
        stages.remove()
    seconds["save_s"] = round(time.perf_counter() - start, 1)
    return (
        {
            "labels": options.labels,
            "tree": list(tree.widths),
            "n_grams": n_columns,
            "weights": sum(level.nnz for level in levels),
            "shards": levels[-1].n_shards,
            "seconds": round(time.perf_counter() - begin, 1),
        }
        | seconds
        | disk(folder)
    )


def disk(folder: Path) -> dict:
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    shards = sum(size for name, size in sizes.items() if "-shard-" in name)
    return {
        "disk_mib": round(sum(sizes.values()) / 2**20),
        "shards_mib": round(shards / 2**20),
        "levels_above_mib": round(
            sum(size for name, size in sizes.items() if re.fullmatch(r"ranker-0-\d\..*", name))
            / 2**20
        ),
        "labels_mib": round(sizes["labels.jsonl"] / 2**20),
    }


def load(folder: Path, options: argparse.Namespace) -> dict:
    begin = time.perf_counter()
    opened = open_model_folder(folder)
    verified = time.perf_counter()
    model = load_model(opened)
    loaded = time.perf_counter()
    predict(model, ["warm up"], 5)
    predict(model, ["warm up", "again"], 5)
    resting = memory("VmHWM")
    documents = texts(options.documents, options.vocabulary, 77)
    start = time.perf_counter()
    predict(model, documents, 5)
    batch = time.perf_counter() - start
    singles = []
    for text in texts(500, options.vocabulary, 78):
        start = time.perf_counter()
        predict(model, [text], 5)
        singles.append(1000 * (time.perf_counter() - start))
    return {
        "verify_s": round(verified - begin, 1),
        "load_s": round(loaded - verified, 1),
        "loaded_mib": round(resting),
        "documents_s": round(len(documents) / batch),
        **percentiles(singles),
    }


def percentiles(milliseconds: list[float]) -> dict:
    p50, p99 = np.percentile(milliseconds, [50, 99])
    return {"single_p50_ms": round(p50, 2), "single_p99_ms": round(p99, 2)}


def memory(field: str, process: int | str = "self") -> float:
    """Return VmHWM (peak), VmRSS or another field of a process, in MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


@contextmanager
def served(folder: Path, *more: str):
    """Yield the process of a server, its port, and the seconds until it was ready."""
    begin = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "longtail",
        "serve",
        str(folder),
        "--port",
        "0",
        "--timeout",
        "60",
        *more,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if match := re.match(r"page: http://127\.0\.0\.1:(\d+)/", line):
                break
        else:
            raise SystemExit(f"the server ended with {process.wait()}")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield process.pid, int(match[1]), time.perf_counter() - begin
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@dataclass
class Client:
    """One connection that stays open."""

    port: int

    @cached_property
    def connection(self) -> http.client.HTTPConnection:
        """The connection, made when first used."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(self, method: str, path: str, body: dict | None = None) -> tuple[dict, float]:
        """Return the answer and its milliseconds."""
        start = time.perf_counter()
        raw = None if body is None else json.dumps(body)
        self.connection.request(method, path, raw, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {answer[:300]!r}")
        return json.loads(answer), 1000 * (time.perf_counter() - start)


def serve(folder: Path, options: argparse.Namespace, *more: str) -> dict:
    with served(folder, *more) as (process, port, ready):
        started = memory("VmHWM", process)
        client = Client(port)
        singles = [
            client.ask("POST", "/v1/predict", body(text))[1]
            for text in texts(500, options.vocabulary, 79)
        ]
        start = time.perf_counter()
        several = texts(options.documents, options.vocabulary, 80)
        ask_together(port, several)
        seconds = time.perf_counter() - start
        predicting = memory("VmHWM", process)
        _, excluded = client.ask("POST", "/v1/predict", body("word") | {"exclude": ["L000000001"]})
        _, label = client.ask("GET", "/v1/label?id=L000000002")
        _, searched = client.ask("GET", "/v1/labels?query=mama")
        return {
            "ready_s": round(ready, 1),
            "started_mib": round(started),
            "predicting_mib": round(predicting),
            "documents_s": round(len(several) / seconds),
            **percentiles(singles),
            "exclude_ms": round(excluded, 1),
            "label_ms": round(label, 1),
            "first_label_search_ms": round(searched),
            "peak_mib": round(memory("VmHWM", process)),
        }


def body(text: str) -> dict:
    return {"documents": [{"text": text}], "k": 5}


def ask_together(port: int, several: list[str], threads: int = 8) -> None:
    def work(texts: list[str]) -> None:
        client = Client(port)
        for text in texts:
            client.ask("POST", "/v1/predict", body(text))

    running = [threading.Thread(target=work, args=(several[at::threads],)) for at in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def half(folder: Path, options: argparse.Namespace) -> dict:
    count = len(shard_files(open_model_folder(folder, verify="size")))
    return serve(folder, options, "--shards", ",".join(map(str, range(0, count, 2))))


PHASES = {"build": build, "load": load, "serve": serve, "half": half}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the model folder goes")
    parser.add_argument("--labels", type=int, default=10_000_000)
    parser.add_argument("--vocabulary", type=int, default=500_000)
    parser.add_argument("--shard-labels", type=int, default=250_000)
    parser.add_argument("--documents", type=int, default=2000, help="that are answered in batches")
    parser.add_argument("--phase", choices=PHASES, help="this phase alone, in this process")
    options = parser.parse_args()
    if options.phase is None:
        for phase in PHASES:
            if phase != "build" or not options.folder.exists():
                subprocess.run(
                    [sys.executable, *sys.argv, "--phase", phase], check=True, env=os.environ
                )
        return
    result = {"phase": options.phase} | PHASES[options.phase](options.folder, options)
    result.setdefault("peak_mib", round(memory("VmHWM")))
    print(
        json.dumps(result | {"goal_mib": GOAL_MIB, "reached": result["peak_mib"] <= GOAL_MIB}),
        flush=True,
    )


if __name__ == "__main__":
    main()
