"""`longtail evaluate --predictions`: test data and predictions of any system in, metrics out."""

from __future__ import annotations

import re

import pytest
from few_documents import PREDICTIONS, TRAIN, put

from longtail.data.sample import FOLDER

SAMPLE = str(FOLDER)


@pytest.fixture
def predictions(tmp_path):
    return put(tmp_path / "out.jsonl", PREDICTIONS)


class TestEvaluate:
    def test_table(self, run, truth, predictions):
        done = run("evaluate", truth, "--predictions", predictions, "-k", "1,2")
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[0].split() == ["@1", "@2"]
        assert lines[1].split() == ["P", "50.00", "50.00"]
        assert lines[-1] == "percent over 2 documents with 3 labels"
        assert "PSP" not in done.out

    def test_json(self, run, truth, predictions):
        result = run("evaluate", truth, "--predictions", predictions, "-k", "1,2", "--json").json()
        assert set(result) == {"evaluation", "by_frequency", "reliability"}
        assert result["by_frequency"] is None
        evaluation = result["evaluation"]
        assert evaluation["ks"] == [1, 2]
        # x: wind hit, sun missed, sea not found; y: wind missed, sun hit
        wanted = {"P@1": 0.5, "P@2": 0.5, "R@1": 0.25, "R@2": 0.75, "coverage@2": 2 / 3}
        assert {name: evaluation["metrics"][name] for name in wanted} == pytest.approx(wanted)
        assert evaluation["a"] is None

    def test_a_report_reads_the_predictions_once(self, run, truth, predictions, tmp_path, caplog):
        predictions.write_text(predictions.read_text().splitlines()[0] + "\n")
        done = run("evaluate", truth, "--predictions", predictions, "--report", tmp_path / "r.html")
        assert (done.code, done.err) == (0, f"{tmp_path / 'r.html'}: written\n")
        assert caplog.text.count("no line for 1 of 2 documents: all misses") == 1

    def test_with_train(self, run, truth, predictions, train):
        arguments = ("evaluate", truth, "--predictions", predictions, "--train", train, "-k", "1")
        done = run(*arguments)
        assert (done.code, done.err) == (0, "")
        assert re.search(r"^PSP +\d", done.out, re.MULTILINE)
        assert "propensity A=0.55 B=1.5" in done.out
        assert "\n\nin train  labels" in done.out
        table = run(*arguments, "--json").json()["by_frequency"]
        assert sum(part["n_positives"] for part in table["bins"]) == 3
        assert {part["low"]: part["n_labels"] for part in table["bins"]} == {
            0: 1,
            1: 2,
            2: 2,
            6: 0,
            21: 0,
            101: 0,
        }
        assert sum(sum(part["hits"]) for part in table["bins"]) == 1

    def test_psp_by_hand(self, run, truth, predictions, train):
        arguments = (
            "evaluate",
            truth,
            "--predictions",
            predictions,
            "--train",
            train,
            "-k",
            "1",
            "--propensity",
            "1,1",
        )
        metrics = run(*arguments, "--json").json()["evaluation"]["metrics"]
        c = (1.3862943611198906 - 1) * 2  # (ln 4 − 1)(B + 1)^A
        # wind and sea have 2 documents, sun has 1
        twice = 1 + c / 3
        once = 1 + c / 2
        assert metrics["PSP@1"] == pytest.approx(twice / (twice + once))

    @pytest.mark.parametrize(
        ("name", "a", "b"),
        [("wikipedia", 0.5, 0.4), ("amazon", 0.6, 2.6), ("default", 0.55, 1.5), ("0.7,2", 0.7, 2)],
    )
    def test_propensity(self, run, truth, predictions, train, name, a, b):
        arguments = (
            "evaluate",
            truth,
            "--predictions",
            predictions,
            "--train",
            train,
            "--propensity",
            name,
            "--json",
        )
        evaluation = run(*arguments).json()["evaluation"]
        assert (evaluation["a"], evaluation["b"]) == (a, b)

    @pytest.mark.parametrize("name", ["wikipdia", "0.5", "1,2,3", "a,b", ""])
    def test_unknown_propensity(self, fails, truth, predictions, name):
        message = fails(2, "evaluate", truth, "--predictions", predictions, "--propensity", name)
        expected = "expected auto, wikipedia, amazon, default, or A,B such as 0.55,1.5"
        assert message == f"longtail: --propensity {name!r}; {expected}"

    @pytest.mark.parametrize("name", ["0,1", "nan,1", "1,inf", "-1,1"])
    def test_propensity_out_of_range(self, fails, truth, predictions, name):
        message = fails(2, "evaluate", truth, "--predictions", predictions, "--propensity", name)
        assert (
            message
            == f"longtail: --propensity {name!r}; expected A and B above 0, such as 0.55,1.5"
        )

    @pytest.mark.parametrize("k", ["x", "", "1,,3", "1.5", "1;3"])
    def test_cutoffs_that_are_no_numbers(self, fails, truth, predictions, k):
        message = fails(2, "evaluate", truth, "--predictions", predictions, "-k", k)
        assert message == f"longtail: -k {k!r}; expected whole numbers such as 1,3,5"

    @pytest.mark.parametrize("k", ["0", "1,-3"])
    def test_cutoffs_out_of_range(self, fails, truth, predictions, k):
        message = fails(2, "evaluate", truth, "--predictions", predictions, "-k", k)
        assert "expected whole numbers of at least 1" in message

    def test_labels_of_the_test_data_that_train_does_not_have(
        self, run, truth, tmp_path, predictions
    ):
        small = put(tmp_path / "small.jsonl", [*TRAIN[:3], TRAIN[1]])  # no sun
        done = run(
            "evaluate", truth, "--predictions", predictions, "--train", small, "-k", "2", "--json"
        ).json()
        assert done["evaluation"]["metrics"]["R@2"] == 0.75
        assert done["by_frequency"]["bins"][0]["hits"] == [1]

    def test_filter(self, run, truth, predictions, tmp_path):
        mask = tmp_path / "filter.txt"
        mask.write_text("1 0\n")  # y may not score with wind, the first label of the test data
        arguments = (
            "evaluate",
            truth,
            "--predictions",
            predictions,
            "--filter",
            mask,
            "-k",
            "1",
            "--json",
        )
        assert run(*arguments).json()["evaluation"]["metrics"]["P@1"] == 1

    def test_filter_also_by_frequency(self, run, truth, predictions, train, tmp_path):
        mask = tmp_path / "filter.txt"
        mask.write_text("1 0\n")
        arguments = (
            "evaluate",
            truth,
            "--predictions",
            predictions,
            "--train",
            train,
            "--filter",
            mask,
            "-k",
            "1",
        )
        bins = run(*arguments, "--json").json()["by_frequency"]["bins"]
        assert {part["low"]: part["hits"] for part in bins if any(part["hits"])} == {
            1: [1],
            2: [1],
        }  # sun, wind

    def test_bootstrap(self, run, truth, predictions):
        arguments = (
            "evaluate",
            truth,
            "--predictions",
            predictions,
            "--bootstrap",
            "50",
            "--seed",
            "3",
            "--json",
        )
        evaluation = run(*arguments).json()["evaluation"]
        low, high = evaluation["intervals"]["P@1"]
        assert low <= 0.5 <= high
        assert (evaluation["n_resamples"], evaluation["seed"]) == (50, 3)

    def test_missing_files(self, fails, truth, predictions, tmp_path):
        none = tmp_path / "none.jsonl"
        assert "none.jsonl: no such file" in fails(2, "evaluate", truth, "--predictions", none)
        assert "none.jsonl: no such file" in fails(
            2, "evaluate", none, "--predictions", predictions
        )
        assert "none.jsonl: no such file" in fails(
            2, "evaluate", truth, "--predictions", predictions, "--train", none
        )
        assert "none.jsonl: no such file" in fails(
            2, "evaluate", truth, "--predictions", predictions, "--filter", none
        )

    def test_predictions_must_be_given(self, fails, truth):
        assert "--predictions" in fails(2, "evaluate", truth)

    def test_unknown_document(self, fails, truth, tmp_path):
        file = put(tmp_path / "out.jsonl", [{"id": "q", "labels": []}])
        assert f"{file}:1: an unknown document id 'q'" in fails(
            3, "evaluate", truth, "--predictions", file
        )

    def test_predictions_in_order_without_ids(self, run, fails, truth, tmp_path):
        file = put(tmp_path / "out.jsonl", [{"labels": ["sea"]}, {"labels": ["sun"]}])
        done = run("evaluate", truth, "--predictions", file, "-k", "1", "--json").json()
        assert done["evaluation"]["metrics"]["P@1"] == 1
        put(file, [{"labels": ["sea"]}])
        assert "1 predictions for 2 documents" in fails(3, "evaluate", truth, "--predictions", file)

    def test_sample_predicted_by_its_own_labels(self, run):
        file = FOLDER / "test.jsonl.gz"
        done = run(
            "evaluate", SAMPLE, "--predictions", file, "--train", SAMPLE, "-k", "1", "--json"
        ).json()
        assert done["evaluation"]["metrics"]["P@1"] == 1
        assert done["evaluation"]["n_documents"] == 1500
