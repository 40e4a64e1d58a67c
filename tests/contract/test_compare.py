"""`longtail compare`: model folders and test data in, tables, a picture and numbers out."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import longtail as lt

FILES = ["compare.csv", "compare.png"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    train, test = lt.sample()
    for name, method in {"linear": "xr-linear", "trees": "bonsai"}.items():
        lt.Longtail(method, ranker={"max_passes": 3}).fit(train.take(np.arange(300))).save(
            folder / name
        )
    lt.Longtail("xr-linear").fit(train.take(np.arange(100))).save(folder / "small")
    lt.write(test.take(np.arange(100)), folder / "test.jsonl")
    return folder


def test_tables(run, place):
    done = run("compare", place / "linear", place / "trees", place / "test.jsonl", "-k", "1,5")
    assert (done.code, done.err) == (0, "")
    precision, propensity, over_labels, note, *recalls = done.out.rstrip("\n").split("\n\n")
    assert [line.split()[:2] for line in precision.splitlines()] == [
        ["model", "method"],
        ["linear", "xr-linear"],
        ["trees", "bonsai"],
    ]
    assert precision.splitlines()[0].split()[2:] == ["P@1", "P@5", "nDCG@1", "nDCG@5"]
    assert propensity.splitlines()[0].split()[2:] == ["PSP@1", "PSP@5", "PSnDCG@1", "PSnDCG@5"]
    assert over_labels.splitlines()[0].split()[2:] == [
        "coverage@1",
        "coverage@5",
        "macro-F1@1",
        "macro-F1@5",
    ]
    assert note.startswith("percent over 100 documents with ")
    assert [table.splitlines()[0] for table in recalls] == [
        "R@1 by label frequency",
        "R@5 by label frequency",
    ]
    heads, *bins = recalls[1].splitlines()[1:]
    assert heads.split() == ["in", "train", "labels", "positives", "linear", "trees"]
    assert [line.split()[0] for line in bins] == ["0", "1", "2–5", "6–20", "21–100", ">100"]


def test_numbers_are_those_of_evaluate(run, place):
    arguments = ("-k", "1,3", "--propensity", "wikipedia", "--json")
    result = run(
        "compare", place / "linear", place / "trees", place / "test.jsonl", *arguments
    ).json()
    assert [(model["name"], model["method"]) for model in result["models"]] == [
        ("linear", "xr-linear"),
        ("trees", "bonsai"),
    ]
    for model in result["models"]:
        assert (
            model["measured"]
            == run("evaluate", place / model["name"], place / "test.jsonl", *arguments).json()
        )
    assert result["notes"] == []


def test_files(run, place, tmp_path):
    out = tmp_path / "new" / "out"
    done = run(
        "compare", place / "trees", place / "linear", place / "test.jsonl", "-o", out, "-j", 1
    )
    assert (done.code, done.err) == (0, f"{out}: written\n")
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert (
        (out / "compare.csv").read_text("utf-8").startswith("model,metric,bin,value\ntrees,P@1,,0.")
    )
    done = run(
        "compare", place / "trees", place / "test.jsonl", "-o", tmp_path / "one.svg", "--json"
    )
    assert (done.code, done.err) == (0, f"{tmp_path / 'one.svg'}: written\n")
    assert len(json.loads(done.out)["models"]) == 1
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")


def test_the_same_twice_and_of_the_same_name(run, place, tmp_path):
    shutil.copytree(place / "linear", tmp_path / "linear")
    result = run(
        "compare",
        place / "linear",
        tmp_path / "linear",
        place / "linear",
        place / "test.jsonl",
        "--json",
    )
    names = [model["name"] for model in result.json()["models"]]
    assert names == [f"{place.name}/linear", f"{tmp_path.name}/linear", f"{place.name}/linear (2)"]
    measured = [model["measured"] for model in result.json()["models"]]
    assert measured[0] == measured[1] == measured[2]


def test_other_training_data(run, fails, place, tmp_path):
    done = run("compare", place / "linear", place / "small", place / "test.jsonl")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith(
        "small: other training data than linear (98 documents, "
    )
    foreign = lt.Dataset.of(
        ["wind turbines", "sea birds", "sea wind"], [["wind"], ["birds"], ["wind"]]
    )
    lt.Longtail("xr-linear").fit(foreign).save(tmp_path / "foreign")
    message = fails(2, "compare", place / "linear", tmp_path / "foreign", place / "test.jsonl")
    assert (
        message
        == "longtail: foreign: has no label in common with linear; expected models of the same labels"
    )


def test_refusals_before_any_work(fails, place, tmp_path):
    test = place / "test.jsonl"
    (tmp_path / "bare.jsonl").write_text('{"text": "words", "labels": []}\n')
    (tmp_path / "texts.jsonl").write_text('{"text": "words"}\n')
    way_out = "expected MODEL… TEST, test data after one model folder or more"
    assert way_out in fails(2, "compare", place / "linear")
    assert way_out in fails(2, "compare", place / "linear", place / "trees")
    assert "no such model folder" in fails(4, "compare", place / "linear", tmp_path / "none", test)
    assert "not a model folder" in fails(4, "compare", place / "linear", tmp_path, test)
    assert "no field 'labels'" in fails(3, "compare", place / "linear", tmp_path / "texts.jsonl")
    assert "1 documents without labels" in fails(
        3, "compare", place / "linear", tmp_path / "bare.jsonl"
    )
    assert "none.jsonl: no such file" in fails(
        2, "compare", place / "linear", tmp_path / "none.jsonl"
    )
    assert "found a file; expected a folder" in fails(
        2, "compare", place / "linear", test, "-o", test
    )
    assert "-k 'x'; expected" in fails(2, "compare", place / "linear", test, "-k", "x")
    assert "--propensity 'x'; expected" in fails(
        2, "compare", place / "linear", test, "--propensity", "x"
    )
