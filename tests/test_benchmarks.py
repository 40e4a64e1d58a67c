"""Every benchmark still runs: each once on a little of the bundled sample, so that a change cannot
break one unseen.

What is measured there means nothing; that a line of numbers comes out does.
"""

import gzip
import json
import os
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from longtail.data.sample import FOLDER
from tiny_encoder import write_encoder

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
CPU = ["--device", "cpu"]
EPOCH = ["--set", "training.epochs=1"]

# Arguments: DATA is a folder of a few documents, ABOVE the one it is in, FILE one of its files,
# MADE a new folder, ENCODER a tiny one
RUNS = {
    "cascade_accuracy": ["DATA", "--encoder", "ENCODER", *CPU, *EPOCH],
    "cascade_step": [
        *CPU, "--labels", "256", "--levels", "3", "5", "--topk", "4", "8", "--batch", "4", "--tokens", "8",
        "--steps", "12", "--layers", "3", "--width", "64", "--head-weights", "float32",
    ],
    "combined_features": ["DATA", "--columns", "8", "--repeat", "1"],
    "inception_step": [
        *CPU, "--labels", "64", "--clusters", "16", "--shortlist", "4", "--batch", "4", "--tokens", "8",
        "--vocabulary", "50", "--width", "16", "--steps", "12", "--repeats", "1",
    ],
    "label_graph": ["--share", "0.0005"],
    "label_text": ["DATA", "--rows", "xr-linear,astec", *CPU, *EPOCH],
    "linear_methods": ["DATA", "--methods", "xr-linear", "--here"],
    "linear_settings": ["DATA", "ranker.weights=int8"],
    "metrics": ["--documents", "2000"],
    "new_labels": ["DATA", "--rows", "decaf", *CPU, *EPOCH],
    "ova": ["DATA", "--labels", "16"],
    "reading": ["ABOVE", "--megabytes", "1"],
    "root_memory": [
        "--own-process", "--documents", "300", "--nodes", "40", "--width", "16", "--threads", "1", "--cases", "root",
    ],
    "synthetic_corpus": ["eurlex-4k", "MADE", "--share", "0.01"],
    "tfidf": ["FILE", "--repeat", "1", "--variants", "word"],
    "transformer_methods": ["DATA", "--rows", "xr-transformer", "--members", "", "--encoder", "ENCODER", *CPU],
    "whole_systems": ["DATA", "--parts", "bonsai", *CPU],
    "xr_ablations": ["DATA", "--rows", "clusters-16", "--encoder", "ENCODER", *CPU],
}  # fmt: skip
ELSEWHERE = {
    "forecast_memory": "starts a process for each of its trainings",
    "heads": "its kernels need a GPU",
    "label_text_figures": "draws what label_text has printed",
    "linear_vs_peers": "needs an environment with PECOS, omikuji and napkinXC",
    "ray_overhead": "starts a cluster",
    "rehearsal": "writes a corpus of the published size, and trains on it in a process of its own",
    "serving": "needs wrk, and the whole machine for minutes",
    "ten_million": "starts a process for each of its phases",
    "torchrun": "starts processes for each of its cases",
    "xr_transformer_vs_peer": "needs an environment with PECOS",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmarks") / "data"
    folder.mkdir()
    for name, documents in (("train", 300), ("test", 60)):
        lines = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).splitlines(
            keepends=True
        )
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[:documents])))
    shutil.copy(folder / "test.jsonl.gz", folder / "test_all_labels.jsonl.gz")
    shutil.copy(FOLDER / "labels.jsonl.gz", folder)
    return folder


@pytest.fixture(scope="module")
def encoder(data):
    return write_encoder(
        data.parent / "encoder",
        gzip.decompress((data / "train.jsonl.gz").read_bytes()).decode().splitlines(),
    )


@pytest.mark.parametrize("name", RUNS)
def test_it_prints_what_it_measured(name, data, encoder, monkeypatch, capfd, one_thread):
    places = {
        "DATA": data,
        "ABOVE": data.parent,
        "MADE": data.parent / "made",
        "FILE": data / "train.jsonl.gz",
        "ENCODER": encoder,
    }
    script = BENCHMARKS / f"{name}.py"
    monkeypatch.setattr(
        sys, "argv", [str(script), *(str(places.get(word, word)) for word in RUNS[name])]
    )
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda *_: None, raising=False
    )  # of this process, which goes on
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    runpy.run_path(str(script), run_name="__main__")
    lines = [
        json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")
    ]
    assert lines
    assert all(
        any(isinstance(value, int | float | dict) for value in line.values()) for line in lines
    )


def test_every_benchmark_is_run_or_there_is_a_reason():
    assert {script.stem for script in BENCHMARKS.glob("*.py")} == RUNS.keys() | ELSEWHERE.keys()
    assert not RUNS.keys() & ELSEWHERE.keys()
