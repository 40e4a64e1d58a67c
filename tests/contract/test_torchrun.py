"""`torchrun -m longtail train` as a person starts it: two processes make the model of one, and fail
as one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import longtail as lt
from longtail.steps.process_group import ProcessGroup
from tiny_encoder import write_sample

SETTINGS = [
    "encoder.max_tokens=24", "training.epochs=3", "training.batch_size=16", "training.head_rate=3e-3",
    "training.encoder_rate=1e-3", "cascade.dropout=[0,0,0]", "cascade.layers=[[1],[2],[3]]",
]  # fmt: skip
# one of the ranks fails in its first step
FAILING = """
import os, sys
from longtail import cli, errors
from longtail.networks.cascade import CascadeXML
if os.environ["RANK"] == "1":
    def losses(network, batch):
        raise errors.LongtailError("the roof is leaking")
    CascadeXML.losses = losses
cli.main()
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("data"), 300, 100, width=32)


@pytest.fixture
def command(files):
    """What follows `longtail` or stands in a script, but for the model folder."""
    sets = [
        word
        for setting in [*SETTINGS, f"encoder.name={files / 'encoder'}"]
        for word in ("--set", setting)
    ]
    return [
        "train",
        files / "train.jsonl",
        "--method",
        "cascadexml",
        "--valid",
        files / "test.jsonl",
        *sets,
    ]


def torchrun(*program: object) -> subprocess.CompletedProcess[str]:
    """Run a program in two processes of one thread each."""
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    path = os.pathsep.join([str(Path(lt.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launcher, *map(str, program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_model_of_two_processes_is_that_of_one(files, command, run, tmp_path):
    assert run(*command, "-o", tmp_path / "one").code == 0
    done = torchrun("-m", "longtail", *command, "-o", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.count("epoch 3: loss") == 1  # one rank speaks
    assert {path.name for path in tmp_path.iterdir()} == {
        "one",
        "one.run.jsonl",
        "two",
        "two.run.jsonl",
    }
    logs = [
        (tmp_path / name).read_text().splitlines() for name in ("one.run.jsonl", "two.run.jsonl")
    ]
    losses = [
        [event["losses"] for event in map(json.loads, log) if event["event"] == "epoch"]
        for log in logs
    ]
    assert len(losses[1]) == 3
    for one, two in zip(*losses, strict=True):
        assert two == pytest.approx(one, rel=1e-3)
    models = lt.load(tmp_path / "one"), lt.load(tmp_path / "two")
    test = lt.read(files / "test.jsonl", labels=models[0].model.labels, unknown="drop")
    metrics = [model.evaluate(test) for model in models]
    assert metrics[1]["P@1"] == pytest.approx(metrics[0]["P@1"], abs=0.03)
    assert metrics[1]["P@1"] > 0.4
    np.testing.assert_allclose(models[1].embed(test), models[0].embed(test), atol=0.02)


def test_attentionxml_of_two_processes_is_that_of_one(files, run, tmp_path):
    settings = [
        "encoder.width=16", "encoder.max_tokens=16", "attention.hidden=16", "attention.layers=[16,8]",
        "attention.word_dropout=0", "attention.levels=[8]", "attention.epochs=[2,2]",
        "training.batch_size=16", "calibration.method=none",
    ]  # fmt: skip
    sets = [word for setting in settings for word in ("--set", setting)]
    command = ["train", files / "train.jsonl", "--method", "attentionxml", "--seed", 1, *sets]
    assert run(*command, "-o", tmp_path / "one").code == 0
    done = torchrun("-m", "longtail", *command, "-o", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    models = lt.load(tmp_path / "one"), lt.load(tmp_path / "two")
    heads = [model.model.neural_ranker.network.heads for model in models]
    for one, two in zip(*heads, strict=True):
        np.testing.assert_allclose(two.weight, one.weight, atol=2e-3)
    texts = list(lt.read(files / "test.jsonl").texts)
    np.testing.assert_allclose(models[1].embed(texts), models[0].embed(texts), atol=2e-3)


def test_a_failing_rank_is_the_one_that_is_heard(command, tmp_path):
    script = tmp_path / "leaking.py"
    script.write_text(FAILING)
    done = torchrun(script, *command, "-o", tmp_path / "model")
    assert done.returncode == 1
    assert "longtail: the roof is leaking" in done.stderr
    assert not (tmp_path / "model").exists()


def test_a_method_without_a_network(files, fails, monkeypatch, tmp_path):
    class Two(ProcessGroup):
        size = 2

    @contextmanager
    def joined(device):
        yield Two(), device

    monkeypatch.setattr("longtail.scale.training.joined", joined)
    output = fails(2, "train", files / "train.jsonl", "-o", tmp_path / "model")
    assert (
        output
        == "longtail: torchrun with xr-linear, which trains no network; leave torchrun out, or try --ray"
    )
    assert not (tmp_path / "model").exists()
