"""`longtail ensemble`: model folders in, one model folder out that every command takes."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import longtail as lt


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    train, test = lt.sample()
    lt.write(train.take(np.arange(300)), folder / "train.jsonl")
    lt.write(test.take(np.arange(60)), folder / "valid.jsonl")
    lt.write(test.take(np.arange(60, 120)), folder / "test.jsonl")
    return folder


@pytest.fixture
def models(run, place):
    """Two models, trained when they are first asked for, and their ensemble."""
    if not (place / "both").exists():
        for name, method in {"linear": "xr-linear", "flat": "dismec"}.items():
            done = run("-q", "train", place / "train.jsonl", "-o", place / name, "--method", method)
            assert done.code == 0
        done = run("-q", "ensemble", place / "linear", place / "flat", "-o", place / "both")
        assert (done.code, done.out) == (0, "")
        assert done.err == f"{place / 'both'}: written\n"
    return place


def test_predictions_and_measures(run, models):
    lines = run("-q", "predict", models / "both", models / "test.jsonl", "-k", "3").out.splitlines()
    both = lt.ensemble([models / "linear", models / "flat"])
    expected = both.predict(lt.read(models / "test.jsonl"), 3)
    assert [json.loads(line)["labels"] for line in lines] == [
        [label.id for label in row] for row in expected
    ]
    result = run("-q", "evaluate", models / "both", models / "test.jsonl", "--json").json()[
        "evaluation"
    ]["metrics"]
    assert result == both.evaluate(lt.read(models / "test.jsonl")).metrics


def test_weights_and_probabilities_from_documents(run, models, tmp_path, caplog):
    out = tmp_path / "new" / "fitted"
    arguments = (
        "--valid",
        models / "valid.jsonl",
        "--fusion",
        "weights",
        "-j",
        1,
        "--device",
        "cpu",
    )
    done = run("ensemble", models / "linear", models / "flat", "-o", out, *arguments)
    assert done.code == 0
    assert "mean of P@1, P@3 and P@5" in caplog.text
    assert "calibration: 60 documents given for it" in caplog.text
    loaded = lt.load(out).model
    assert (loaded.fusion, loaded.calibration is not None) == ("weights", True)
    result = run("-q", "evaluate", out, models / "test.jsonl", "--json").json()
    assert result["reliability"]


def test_compare_takes_it_beside_its_members(run, models):
    done = run("-q", "compare", models / "linear", models / "both", models / "test.jsonl")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[:2] for line in done.out.splitlines()[1:3]] == [
        ["linear", "xr-linear"],
        ["both", "ensemble"],
    ]


def test_info_lists_members_with_method_and_weight(run, models):
    done = run("-q", "info", models / "both")
    assert done.code == 0
    assert "# Ensemble of 2 models" in done.out
    assert "| member 0 | xr-linear, weight 0.50," in done.out
    assert "| member 1 | dismec, weight 0.50," in done.out
    assert "member-1/config.json" in done.out


def test_explanation(run, models):
    text = lt.read(models / "test.jsonl").texts[0]
    done = run("-q", "explain", models / "both", text, "--top", 2)
    assert done.code == 0
    head, first, *_ = done.out.split("\n\n")
    best = lt.load(models / "both").predict([text], 1)[0][0]
    assert head.startswith(f"{best.name}")
    assert f": score {best.score:.3f}, not calibrated\n= 0.50 × " in head
    assert first.startswith("member 0, xr-linear: 0.50 × ")
    assert "member 1, dismec: 0.50 × " in done.out
    assert done.out.count("over all steps: ") == 2
    result = run("-q", "explain", models / "both", text, "--json").json()
    assert result["score"] == pytest.approx(
        sum(member["weight"] * member["score"] for member in result["members"])
    )


def test_an_older_model_is_replaced_and_a_file_is_not(run, fails, models, tmp_path):
    shutil.copytree(models / "flat", tmp_path / "old")
    arguments = ("-q", "ensemble", models / "linear", models / "flat", "--force", "-o")
    assert run(*arguments, tmp_path / "old").code == 0
    assert (tmp_path / "old/ensemble.json").exists()
    (tmp_path / "file").touch()
    assert "is a file" in fails(2, *arguments, tmp_path / "file")
    (tmp_path / "old/mine.txt").touch()
    assert "mine.txt: is not part of the model" in fails(2, *arguments, tmp_path / "old")


def test_refusals(fails, models, tmp_path):
    one = models / "linear"
    two = models / "flat"
    out = tmp_path / "out"
    assert "expected at least two models" in fails(2, "ensemble", one, "-o", out)
    assert f"{one}: is given twice" in fails(2, "ensemble", one, two, one, "-o", out)
    assert "give some with labels: --valid" in fails(
        2, "ensemble", one, two, "-o", out, "--fusion", "weights"
    )
    assert "unknown fusion 'sum'" in fails(2, "ensemble", one, two, "-o", out, "--fusion", "sum")
    assert "is one of the models" in fails(2, "ensemble", one, two, "-o", one)
    assert "is an ensemble itself; give its members" in fails(
        2, "-q", "ensemble", one, models / "both", "-o", out
    )
    assert "is missing: this is not a model folder" in fails(4, "ensemble", one, models, "-o", out)
    assert "no such model folder" in fails(4, "ensemble", one, tmp_path / "none", "-o", out)
    assert "no member with a network" in fails(
        2, "-q", "embed", models / "both", models / "test.jsonl", "-o", tmp_path / "vectors.npy"
    )
    assert not out.exists()
    assert list(tmp_path.iterdir()) == []


def test_an_altered_member_is_refused(run, models, tmp_path, fails):
    shutil.copytree(models / "both", tmp_path / "both")
    with open(tmp_path / "both/member-0/vocabulary.safetensors", "r+b") as file:
        file.write(b"x")
    for command in (("predict",), ("evaluate",)):
        output = fails(4, "-q", *command, tmp_path / "both", models / "test.jsonl")
        assert "member-0/vocabulary.safetensors: is damaged or was altered" in output
    assert "member-0/vocabulary.safetensors" in fails(4, "-q", "info", tmp_path / "both")
