"""Text to tf-idf features: MB/s of raw text for fit and transform together, beside PECOS's
vectoriser in C++.

    python benchmarks/tfidf.py train.jsonl.gz … [--peer-python PYTHON] [--repeat 3] [--threads 2]
        [--variants word char]

Each measurement is a fresh process that has the texts as a list of strings before the clock starts;
ours and the peer's take turns, and medians are told. «CPU» is the time of all threads, which a busy
machine disturbs less than the clock. The peer parts words at white space and keeps case, so its
vocabulary is a larger one. JSON lines on stdout, a table on stderr. --peer-python is the Python of
an environment with libpecos; without it only ours is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

VARIANTS = {"word": ("word", 1, 1), "word-1-2": ("word", 1, 2), "char-3-5": ("char", 3, 5)}
GOAL = 1.5  # times the peer's MB/s, words

CLOCK = """
import json, sys, time, pathlib
path, unit, shortest, longest, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
texts = json.loads(pathlib.Path(path).read_text())

def timed(work):
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return (time.perf_counter() - wall, time.process_time() - cpu), result

def tell(seconds, features, disk_bytes):
    print(json.dumps({"wall_s": seconds[0], "cpu_s": seconds[1], "columns": features.shape[1],
                      "nonzeros": int(features.nnz), "disk_bytes": disk_bytes}))
"""

OURS = """
from longtail import config
from longtail.features.tfidf import TfIdf
from longtail.kernels import pool
blocks = [config.TfIdf(unit=unit, ngram_min=shortest, ngram_max=longest)]
with pool.threads(threads):
    TfIdf.fit_transform(texts[:1000], blocks)  # loads the kernels
    seconds, (fitted, features) = timed(lambda: TfIdf.fit_transform(texts, blocks))
tell(seconds, features, sum(array.nbytes for array in fitted.to_arrays().values()))
"""

PEER = """
import tempfile
from pecos.utils.featurization.text.vectorizers import Tfidf
settings = {"ngram_range": [shortest, longest], "analyzer": unit, "threads": threads}

def fit_transform(texts):
    fitted = Tfidf.train(texts, settings)
    return fitted, fitted.predict(texts, threads=threads)

fit_transform(texts[:1000])
seconds, (fitted, features) = timed(lambda: fit_transform(texts))
with tempfile.TemporaryDirectory() as folder:
    fitted.save(folder)
    tell(seconds, features, sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file()))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--peer-python", help="Python of an environment with libpecos")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for path in arguments.paths:
            texts = Path(scratch) / "texts.json"
            megabytes = write_texts(path, texts)
            for variant in arguments.variants:
                result = {
                    "benchmark": "tfidf",
                    "data": path.parent.name,
                    "text_mb": round(megabytes, 1),
                }
                result |= {"variant": variant, "threads": arguments.threads}
                result |= compare(texts, megabytes, VARIANTS[variant], arguments)
                print(json.dumps(result), flush=True)
                results.append(result)
    print_table(results)


def write_texts(path: Path, target: Path) -> float:
    import longtail as lt

    texts = lt.read(path).texts
    target.write_text(json.dumps(list(texts)))
    return float(texts.lengths.sum()) / 1e6


def compare(
    texts: Path, megabytes: float, variant: tuple[str, int, int], arguments
) -> dict[str, object]:
    pythons = {"ours": (sys.executable, OURS)}
    if arguments.peer_python:
        pythons["peer"] = (arguments.peer_python, PEER)
    runs: dict[str, list[dict]] = {name: [] for name in pythons}
    for _ in range(arguments.repeat):
        for name, (python, script) in pythons.items():
            command = [
                python,
                "-c",
                CLOCK + script,
                str(texts),
                *map(str, variant),
                str(arguments.threads),
            ]
            runs[name].append(
                json.loads(
                    subprocess.run(command, check=True, capture_output=True, text=True).stdout
                )
            )
    result: dict[str, object] = {
        name: summary(seconds, megabytes) for name, seconds in runs.items()
    }
    if arguments.peer_python:
        ours = result["ours"]
        peer = result["peer"]
        result["ratio"] = round(ours["mb_per_s"] / peer["mb_per_s"], 2)
        result["cpu_ratio"] = round(peer["cpu_s"] / ours["cpu_s"], 2)
        result["disk_ratio"] = round(ours["disk_mb"] / peer["disk_mb"], 3)
        result["goal"] = {"ratio": GOAL}
    return result


def summary(runs: list[dict], megabytes: float) -> dict[str, float]:
    wall, cpu = (statistics.median(run[key] for run in runs) for key in ("wall_s", "cpu_s"))
    return {
        "mb_per_s": round(megabytes / wall, 2),
        "wall_s": round(wall, 3),
        "cpu_s": round(cpu, 3),
        "columns": runs[0]["columns"],
        "nonzeros": runs[0]["nonzeros"],
        "disk_mb": round(runs[0]["disk_bytes"] / 1e6, 3),
    }


def print_table(results: list[dict]) -> None:
    heads = ("data", "n-grams", "MB", "MB/s", "peer's", "times", "CPU times", "disk MB", "peer's")
    line = "{:<16} {:<9} {:>7} {:>8} {:>8} {:>6} {:>9} {:>8} {:>8}"
    print(line.format(*heads), file=sys.stderr)
    for result in results:
        ours = result["ours"]
        peer = result.get("peer", {})
        cells = [
            result["data"],
            result["variant"],
            result["text_mb"],
            ours["mb_per_s"],
            peer.get("mb_per_s", ""),
        ]
        cells += [
            result.get("ratio", ""),
            result.get("cpu_ratio", ""),
            ours["disk_mb"],
            peer.get("disk_mb", ""),
        ]
        print(line.format(*map(str, cells)), file=sys.stderr)


if __name__ == "__main__":
    main()
