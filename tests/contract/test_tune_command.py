"""`longtail tune`, and the pages of `evaluate --report` and `compare --report`: commands in, files
out.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import longtail as lt

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    train, test = lt.sample()
    lt.write(train.take(np.arange(150)), folder / "train.jsonl")
    lt.write(test.take(np.arange(40)), folder / "test.jsonl")
    return folder


@pytest.fixture(scope="module")
def models(place):
    train = lt.read(place / "train.jsonl")
    for name, passes in {"one": 2, "two": 5}.items():
        lt.Longtail("xr-linear", ranker={"max_passes": passes}).fit(train).save(place / name)
    return [place / "one", place / "two"]


SEARCH = ("--search", "tree.branching=2,4", "--search", "ranker.cost_positive=0.5..2:log")
PASSES = ("--set", "ranker.max_passes=2", "-j", 1)


class TestTune:
    def test_from_search_to_model(self, run, fails, place, tmp_path):
        out = tmp_path / "study"
        method = "--method", "parabel", "--set", "ranker.trees=1"
        done = run(
            "tune",
            place / "train.jsonl",
            "-o",
            out,
            *SEARCH,
            "--trials",
            3,
            "--metric",
            "P@1",
            *method,
            *PASSES,
        )
        assert done.code == 0
        heads, *rows = done.out.splitlines()
        assert heads.split() == ["trial", "P@1", "s", "tree.branching", "ranker.cost_positive"]
        values = [float(row.split()[1]) for row in rows]
        assert len(rows) == 3
        assert values == sorted(values, reverse=True)
        lines = done.err.splitlines()
        assert [line.split(":")[0] for line in lines[:3]] == [
            f"trial {number} of 3" for number in (1, 2, 3)
        ]
        assert lines[3].startswith(
            f"{out / 'best.toml'}: written; to train with it: longtail train "
        )
        command = (
            lines[3].partition("longtail ")[2].replace("MODEL", str(tmp_path / "model")).split()
        )
        assert run(*command).code == 0
        model = lt.load(tmp_path / "model")
        assert str(model.config.tree.branching) == rows[0].split()[3]
        assert (model.config.method, model.config.ranker.max_passes) == ("parabel", 2)
        assert "found 'parabel' among the settings for 'plt'" in fails(
            2, *command, "--method", "plt"
        )

    def test_json_space_and_resume(self, run, place, tmp_path):
        (tmp_path / "space.toml").write_text(
            '[ranker]\ncost_positive = "0.5..2:log"\n[tree]\nbranching = [2, 4]\n'
        )
        command = [
            "tune",
            place / "train.jsonl",
            "-o",
            tmp_path / "s",
            "--method",
            "parabel",
            "--valid",
        ]
        command += [
            place / "test.jsonl",
            "--space",
            tmp_path / "space.toml",
            "--search",
            "tree.leaf_size=10,20",
        ]
        command += ["--set", "ranker.trees=1", "--json", "-j", 1, "--seed", 2, "--time", "1h"]
        done = run(*command, "--trials", 1)
        assert done.code == 0
        assert 'method = "parabel"' in (tmp_path / "s" / "best.toml").read_text()
        again = run(
            "tune", tmp_path / "no-data.jsonl", "-o", tmp_path / "s"
        )  # told before data are read
        assert (again.code, "found a study; go on with --resume" in again.err) == (2, True)
        done = run(*command, "--trials", 2, "--resume")
        result = json.loads(done.out)
        assert set(result["best"]["params"]) == {
            "ranker.cost_positive",
            "tree.branching",
            "tree.leaf_size",
        }
        assert [trial["number"] for trial in result["trials"]] == [1, 2]
        assert result["config"]["seed"] == 2
        assert done.err.count("trial 1 of") == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["--search", "tree.branchin=2,4"],
                "unknown setting 'tree.branchin'; did you mean 'tree.branching'?",
            ),
            (["--search", "tree.branching"], "expected PATH=LOW..HIGH[:log] or PATH=A,B,C"),
            (
                ["--time", "soon"],
                "--time 'soon'; expected a number and a unit, such as 90s, 30m or 2h",
            ),
            (["--metric", "accuracy@1"], "unknown metric 'accuracy'"),
            (["--space", "missing.toml"], "missing.toml: no such file"),
        ],
    )
    def test_refusals(self, run, place, tmp_path, arguments, message):
        done = run("tune", place / "train.jsonl", "-o", tmp_path / "s", *arguments)
        assert done.code == 2
        assert message in done.err
        assert not (tmp_path / "s").exists()


class TestReports:
    def test_evaluate(self, run, place, models, tmp_path):
        done = run(
            "evaluate", models[0], place / "test.jsonl", "--report", tmp_path / "r.html", "--json"
        )
        assert (done.code, done.err) == (0, f"{tmp_path / 'r.html'}: written\n")
        page = (tmp_path / "r.html").read_text()
        assert f"<title>{models[0]} on {place / 'test.jsonl'}</title>" in page
        assert json.loads(done.out)["evaluation"]["n_resamples"] == 1000
        assert len(re.findall("<h2>", page)) == 10
        plain = run("evaluate", models[0], place / "test.jsonl", "--json").json()
        assert plain["evaluation"]["n_resamples"] == 0
        assert plain["reliability"] == json.loads(done.out)["reliability"]

    def test_evaluate_predictions(self, run, place, models, tmp_path):
        run("predict", models[0], place / "test.jsonl", "-o", tmp_path / "p.jsonl")
        arguments = (
            "--train",
            place / "train.jsonl",
            "--report",
            tmp_path / "r.html",
            "--bootstrap",
            0,
        )
        done = run(
            "evaluate", "--predictions", tmp_path / "p.jsonl", place / "test.jsonl", *arguments
        )
        assert done.code == 0
        assert "only predictions are known" in (tmp_path / "r.html").read_text()

    def test_compare(self, run, place, models, tmp_path):
        done = run("compare", *models, place / "test.jsonl", "--report", tmp_path / "c.html")
        assert done.err == f"{tmp_path / 'c.html'}: written\n"
        page = (tmp_path / "c.html").read_text()
        assert "Against one" in page
        assert "<title>one, two on " in page
        assert run("compare", *models, place / "test.jsonl").out == done.out

    @pytest.mark.parametrize("command", ["evaluate", "compare"])
    def test_refused_before_any_work(self, run, place, models, tmp_path, command):
        done = run(
            command, models[0], place / "missing.jsonl", "--report", tmp_path / "no" / "c.html"
        )
        assert done.code == 2
        assert "does not exist; make it first" in done.err
        done = run(command, models[0], place / "missing.jsonl", "--report", tmp_path / "c.pdf")
        assert "expected .html" in done.err
