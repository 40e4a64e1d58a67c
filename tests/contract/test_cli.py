"""The command line as a person uses it: results on stdout, everything else on stderr, exit codes that tell."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import longtail
from longtail.config import Config
from longtail.data.sample import FOLDER
from longtail.methods import METHODS, configure

SAMPLE = str(FOLDER)
TRAIN = [
    {"id": "1", "text": "wind turbines at sea", "labels": ["wind", "sea"]},
    {"id": "2", "text": "fish", "labels": ["sea"]},
    {"id": "3", "text": "wind", "labels": ["wind"]},
    {"id": "4", "text": "solar cells; “new”, and\tcheap", "labels": ["sun", "a label, with a comma"]},
]
TEST = [
    {"id": "x", "text": "a windy beach", "labels": ["wind", "sea"]},
    {"id": "y", "text": "sunshine", "labels": ["sun"]},
]
PREDICTIONS = [
    {"id": "y", "labels": ["wind", "sun", "moon"], "scores": [0.9, 0.8, 0.7]},
    {"id": "x", "labels": ["sun", "wind"], "scores": [0.1, 0.6]},
]


def spawn(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """Run ``python -m longtail`` as a process of its own."""
    command = [sys.executable, "-m", "longtail", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.run(command, check=False, timeout=60, **options)


def put(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


@pytest.fixture
def train(tmp_path):
    return put(tmp_path / "train.jsonl", TRAIN)


@pytest.fixture
def truth(tmp_path):
    return put(tmp_path / "test.jsonl", TEST)


@pytest.fixture
def predictions(tmp_path):
    return put(tmp_path / "out.jsonl", PREDICTIONS)


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class TestFront:
    def test_version(self, run):
        assert run("--version") == (0, f"longtail {longtail.__version__}\n", "")

    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_help_names_every_verb(self, run, flag):
        done = run(flag)
        assert (done.code, done.err) == (0, "")
        for verb in ("demo", "check", "convert", "evaluate", "info", "methods", "formats", "doctor"):
            assert re.search(rf"\b{verb}\b", done.out)

    @pytest.mark.parametrize("verb", ["demo", "check", "convert", "evaluate", "info", "methods", "formats", "doctor"])
    def test_every_verb_has_help(self, run, verb):
        done = run(verb, "--help")
        assert (done.code, done.err) == (0, "")
        assert "Usage: " in done.out

    def test_nothing_at_all_shows_help(self, run):
        done = run()
        assert done.code == 2
        assert "Usage: " in done.out + done.err

    @pytest.mark.parametrize(("verb", "near"), [("chek", "check"), ("evalute", "evaluate"), ("method", "methods")])
    def test_unknown_verb(self, fails, verb, near):
        message = fails(2, verb)
        assert f"No such command '{verb}'" in message
        assert f"Did you mean '{near}'" in message or f"'{near}'" in message

    def test_unknown_option(self, fails):
        assert "--jsn" in fails(2, "check", SAMPLE, "--jsn")

    def test_missing_argument(self, fails):
        assert "DATA" in fails(2, "check")


class TestCheck:
    def test_sample(self, run):
        done = run("check", SAMPLE)
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[0].startswith("documents  6,000, ")
        assert lines[1] == "labels     501, 501 of them used"
        assert lines[2].startswith("pairs      22,395: 3.73 labels a document, ")
        assert any(line.startswith("         1  █") and line.endswith("█ 1,999") for line in lines)

    def test_json(self, run):
        result = run("check", SAMPLE, "--split", "test", "--json").json()
        assert set(result) == {"description", "findings", "forecast"}
        counts = {name: result["description"][name] for name in ("documents", "labels", "pairs")}
        assert counts == {"documents": 1500, "labels": 501, "pairs": 5529}
        (finding,) = (f for f in result["findings"] if f["what"] == "labels without a document")
        assert (finding["level"], finding["count"], len(finding["examples"])) == ("warning", 135, 5)

    @pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG\r\n\x1a\n"), (".svg", b"<?xml")])
    def test_report(self, run, train, tmp_path, suffix, magic):
        picture = tmp_path / f"curve{suffix}"
        done = run("check", train, "--report", picture)
        assert (done.code, done.err) == (0, f"{picture}: written\n")
        assert picture.read_bytes().startswith(magic)

    def test_report_of_another_kind(self, run, train, tmp_path):
        done = run("check", train, "--report", tmp_path / "a.bmp")
        assert done.code == 2
        assert done.err == f"longtail: {tmp_path / 'a.bmp'}: cannot draw a .bmp; expected .png, .svg, .pdf\n"

    def test_report_into_a_folder_that_does_not_exist(self, run, train, tmp_path):
        done = run("check", train, "--report", tmp_path / "no" / "a.png")
        way_out = f"the folder {tmp_path / 'no'} does not exist; make it first"
        assert (done.code, done.out, done.err) == (2, "", f"longtail: {tmp_path / 'no' / 'a.png'}: {way_out}\n")

    def test_standard_input(self, run, train):
        done = run("check", "-", "--json", stdin=train.read_bytes())
        assert done.json()["description"]["documents"] == 4

    def test_findings(self, run, tmp_path):
        twice = put(tmp_path / "a.jsonl", [*TRAIN, TRAIN[0]])
        done = run("check", twice)
        assert done.code == 0
        assert "warning  1 document ids that stand more than once: 1\n" in done.out
        assert "warning  1 texts that stand more than once: wind turbines at sea\n" in done.out

    def test_nothing_to_learn_is_an_error(self, run, tmp_path):
        done = run("check", put(tmp_path / "a.jsonl", [{"text": "words", "labels": []}]), "--json")
        assert (done.code, done.err) == (3, "")
        assert json.loads(done.out)["findings"][0]["level"] == "error"

    def test_bad_records(self, fails, tmp_path):
        bad = tmp_path / "bad.jsonl"
        bad.write_text('{"text": "a", "labels": []}\n{"text": 1, "labels": []}\n?\n')
        message = fails(3, "check", bad)
        assert message.startswith(f"{bad}:2: ")
        assert f" in 'text'; expected a string {bad}:3: " in message
        assert "--skip-bad" in message

    def test_skip_bad(self, run, train, tmp_path):
        bad = tmp_path / "bad.jsonl"
        bad.write_text(train.read_text() + "?\n")
        assert json.loads(run("check", bad, "--skip-bad", 1, "--json").out)["description"]["documents"] == 4
        assert run("check", bad, "--skip-bad", 0).code == 3

    def test_label_file_fixes_the_labels(self, run, fails, train, tmp_path):
        labels = put(tmp_path / "labels.jsonl", [{"id": "wind"}, {"id": "sea"}])
        assert f"{train}:4: unknown label 'sun'" in fails(3, "check", train, "--labels", labels)
        put(labels, [{"id": name} for name in ("wind", "sea", "sun", "a label, with a comma", "moon")])
        assert run("check", train, "--labels", labels, "--json").json()["description"]["labels"] == 5

    def test_no_such_file(self, fails, tmp_path):
        assert fails(2, "check", tmp_path / "no.jsonl") == f"longtail: {tmp_path}/no.jsonl: no such file or folder"

    def test_unknown_format(self, fails, train):
        assert fails(2, "check", train, "--format", "jsnl") == (
            "longtail: unknown format 'jsnl'; did you mean 'jsonl'?"
        )

    def test_unknown_split(self, fails):
        assert "no tset.jsonl" in fails(2, "check", SAMPLE, "--split", "tset")


class TestConvert:
    def test_to_csv_and_back(self, run, train, tmp_path):
        table, back = tmp_path / "a.csv", tmp_path / "back.jsonl"
        assert run("convert", train, table) == (0, "", f"{table}: 4 documents, 4 labels\n")
        assert table.read_text().startswith("id,")
        assert run("convert", table, back).code == 0
        assert records(back) == TRAIN

    def test_compressed(self, run, train, tmp_path):
        packed, back = tmp_path / "a.jsonl.gz", tmp_path / "back.jsonl"
        assert run("convert", train, packed).code == 0
        assert packed.read_bytes().startswith(b"\x1f\x8b")
        run("convert", packed, back)
        assert records(back) == TRAIN

    def test_to_stdout(self, run, train):
        done = run("convert", train, "-")
        assert [json.loads(line) for line in done.out.splitlines()] == TRAIN
        assert (done.code, done.err) == (0, "-: 4 documents, 4 labels\n")

    def test_to_stdout_in_another_format(self, run, train):
        assert run("convert", train, "-", "--to", "fasttext").out.startswith("__label__wind __label__sea wind turbines")

    def test_from_stdin(self, run, train, tmp_path):
        assert run("convert", "-", tmp_path / "a.csv", stdin=train.read_bytes()).code == 0

    def test_split(self, run, tmp_path):
        done = run("convert", SAMPLE, tmp_path / "a.csv", "--split", "test")
        assert done.err == f"{tmp_path / 'a.csv'}: 1,500 documents, 501 labels\n"

    def test_split_of_a_folder(self, run, truth, tmp_path):
        folder, back = tmp_path / "folder", tmp_path / "back.jsonl"
        done = run("convert", truth, folder, "--to", "attentionxml", "--split", "test")
        assert (done.code, done.out) == (0, "")
        assert {path.name for path in folder.iterdir()} >= {"test_raw_texts.txt", "test_labels.txt"}
        assert run("convert", folder, back, "--split", "test").code == 0
        texts_and_labels = [(record["text"], record["labels"]) for record in records(back)]
        assert texts_and_labels == [(record["text"], record["labels"]) for record in TEST]

    def test_labels_output(self, run, tmp_path):
        done = run("convert", SAMPLE, tmp_path / "a.jsonl", "--labels-output", tmp_path / "labels.jsonl")
        assert done.code == 0
        labels = records(tmp_path / "labels.jsonl")
        assert len(labels) == 501
        assert all(label["id"] for label in labels)

    def test_name_that_tells_nothing(self, fails, train, tmp_path):
        message = fails(2, "convert", train, tmp_path / "a.xyz")
        assert "the name does not tell the format" in message
        assert "jsonl" in message
        assert list(tmp_path.iterdir()) == [train]

    def test_folder_that_does_not_exist(self, fails, train, tmp_path):
        message = fails(2, "convert", train, tmp_path / "no" / "a.csv")
        assert "does not exist; make it first" in message

    def test_bad_input_leaves_the_output_alone(self, fails, tmp_path):
        bad, out = tmp_path / "bad.jsonl", tmp_path / "out.csv"
        bad.write_text("?\n")
        out.write_text("precious")
        fails(3, "convert", bad, out)
        assert out.read_text() == "precious"


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
        assert {part["low"]: part["n_labels"] for part in table["bins"]} == {0: 1, 1: 2, 2: 2, 6: 0, 21: 0, 101: 0}
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
        twice, once = 1 + c / 3, 1 + c / 2  # wind and sea have 2 documents, sun has 1
        assert metrics["PSP@1"] == pytest.approx(twice / (twice + once))

    @pytest.mark.parametrize(
        ("name", "a", "b"), [("wikipedia", 0.5, 0.4), ("amazon", 0.6, 2.6), ("default", 0.55, 1.5), ("0.7,2", 0.7, 2)]
    )
    def test_propensity(self, run, truth, predictions, train, name, a, b):
        arguments = ("evaluate", truth, "--predictions", predictions, "--train", train, "--propensity", name, "--json")
        evaluation = run(*arguments).json()["evaluation"]
        assert (evaluation["a"], evaluation["b"]) == (a, b)

    @pytest.mark.parametrize("name", ["wikipdia", "0.5", "1,2,3", "a,b", ""])
    def test_unknown_propensity(self, fails, truth, predictions, name):
        message = fails(2, "evaluate", truth, "--predictions", predictions, "--propensity", name)
        expected = "expected wikipedia, amazon, default, or A,B such as 0.55,1.5"
        assert message == f"longtail: --propensity {name!r}; {expected}"

    @pytest.mark.parametrize("name", ["0,1", "nan,1", "1,inf", "-1,1"])
    def test_propensity_out_of_range(self, fails, truth, predictions, name):
        message = fails(2, "evaluate", truth, "--predictions", predictions, "--propensity", name)
        assert message == f"longtail: --propensity {name!r}; expected A and B above 0, such as 0.55,1.5"

    @pytest.mark.parametrize("k", ["x", "", "1,,3", "1.5", "1;3"])
    def test_cutoffs_that_are_no_numbers(self, fails, truth, predictions, k):
        message = fails(2, "evaluate", truth, "--predictions", predictions, "-k", k)
        assert message == f"longtail: -k {k!r}; expected whole numbers such as 1,3,5"

    @pytest.mark.parametrize("k", ["0", "1,-3"])
    def test_cutoffs_out_of_range(self, fails, truth, predictions, k):
        message = fails(2, "evaluate", truth, "--predictions", predictions, "-k", k)
        assert "expected whole numbers of at least 1" in message

    def test_labels_of_the_test_data_that_train_does_not_have(self, run, truth, tmp_path, predictions):
        small = put(tmp_path / "small.jsonl", [*TRAIN[:3], TRAIN[1]])  # no sun
        done = run("evaluate", truth, "--predictions", predictions, "--train", small, "-k", "2", "--json").json()
        assert done["evaluation"]["metrics"]["R@2"] == 0.75
        assert done["by_frequency"]["bins"][0]["hits"] == [1]

    def test_filter(self, run, truth, predictions, tmp_path):
        mask = tmp_path / "filter.txt"
        mask.write_text("1 0\n")  # y may not score with wind, the first label of the test data
        arguments = ("evaluate", truth, "--predictions", predictions, "--filter", mask, "-k", "1", "--json")
        assert run(*arguments).json()["evaluation"]["metrics"]["P@1"] == 1

    def test_filter_also_by_frequency(self, run, truth, predictions, train, tmp_path):
        mask = tmp_path / "filter.txt"
        mask.write_text("1 0\n")
        arguments = ("evaluate", truth, "--predictions", predictions, "--train", train, "--filter", mask, "-k", "1")
        bins = run(*arguments, "--json").json()["by_frequency"]["bins"]
        assert {part["low"]: part["hits"] for part in bins if any(part["hits"])} == {1: [1], 2: [1]}  # sun, wind

    def test_bootstrap(self, run, truth, predictions):
        arguments = ("evaluate", truth, "--predictions", predictions, "--bootstrap", "50", "--seed", "3", "--json")
        evaluation = run(*arguments).json()["evaluation"]
        low, high = evaluation["intervals"]["P@1"]
        assert low <= 0.5 <= high
        assert (evaluation["n_resamples"], evaluation["seed"]) == (50, 3)

    def test_missing_files(self, fails, truth, predictions, tmp_path):
        none = tmp_path / "none.jsonl"
        assert "none.jsonl: no such file" in fails(2, "evaluate", truth, "--predictions", none)
        assert "none.jsonl: no such file" in fails(2, "evaluate", none, "--predictions", predictions)
        assert "none.jsonl: no such file" in fails(2, "evaluate", truth, "--predictions", predictions, "--train", none)
        assert "none.jsonl: no such file" in fails(2, "evaluate", truth, "--predictions", predictions, "--filter", none)

    def test_predictions_must_be_given(self, fails, truth):
        assert "--predictions" in fails(2, "evaluate", truth)

    def test_unknown_document(self, fails, truth, tmp_path):
        file = put(tmp_path / "out.jsonl", [{"id": "q", "labels": []}])
        assert f"{file}:1: an unknown document id 'q'" in fails(3, "evaluate", truth, "--predictions", file)

    def test_predictions_in_order_without_ids(self, run, fails, truth, tmp_path):
        file = put(tmp_path / "out.jsonl", [{"labels": ["sea"]}, {"labels": ["sun"]}])
        done = run("evaluate", truth, "--predictions", file, "-k", "1", "--json").json()
        assert done["evaluation"]["metrics"]["P@1"] == 1
        put(file, [{"labels": ["sea"]}])
        assert "1 predictions for 2 documents" in fails(3, "evaluate", truth, "--predictions", file)

    def test_sample_predicted_by_its_own_labels(self, run):
        file = FOLDER / "test.jsonl.gz"
        done = run("evaluate", SAMPLE, "--predictions", file, "--train", SAMPLE, "-k", "1", "--json").json()
        assert done["evaluation"]["metrics"]["P@1"] == 1
        assert done["evaluation"]["n_documents"] == 1500


class TestMethods:
    def test_list(self, run):
        done = run("methods")
        assert (done.code, done.err) == (0, "")
        assert [line.split()[0] for line in done.out.splitlines()] == ["method", *METHODS]

    def test_list_as_json(self, run):
        entries = run("methods", "--json").json()
        assert [entry["name"] for entry in entries] == list(METHODS)
        assert {"what", "paper", "recipe", "settings", "presets"} <= set(entries[0])

    def test_one_is_toml_for_c(self, run, tmp_path):
        done = run("methods", "xr-linear", "--preset", "eurlex-4k", "--set", "tfidf.1.unit=char")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("# linear one-vs-rest classifiers")
        file = tmp_path / "my.toml"
        file.write_text(done.out, "utf-8")
        again = run("methods", "xr-linear", "-c", file)
        assert again.out == done.out

    def test_one_as_json(self, run):
        settings = run("methods", "plt", "--json").json()
        assert settings["method"] == "plt"
        assert set(settings) == set(Config.__struct_fields__)

    def test_order_of_sources(self, run, tmp_path):
        file = tmp_path / "my.toml"
        file.write_text("[tree]\nlevels = [5, 50]\nbranching = 3\n[ranker]\nprune = 0.5\n")
        arguments = ["methods", "xr-linear", "--preset", "eurlex-4k", "-c", file]
        arguments += ["--set", "tree.branching=4", "--set", "seed=1", "--set", "tree.branching=5", "--json"]
        settings = run(*arguments).json()
        assert settings["tree"]["levels"] == [5, 50]  # file over preset
        assert settings["tree"]["branching"] == 5  # --set over file, the last one wins
        assert (settings["ranker"]["prune"], settings["ranker"]["cost_negative"]) == (0.5, 4)
        assert configure("xr-linear", "eurlex-4k").ranker.cost_negative == 4

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["xr-liner"], "unknown method 'xr-liner'; did you mean 'xr-linear'?"),
            (["xr-linear", "--preset", "eurlex4k"], "unknown preset 'eurlex4k'; did you mean 'eurlex-4k'?"),
            (["plt", "--preset", "eurlex-4k"], "unknown preset 'eurlex-4k'; plt has none"),
            (["plt", "--set", "tree"], "--set 'tree'; expected PATH=VALUE such as tree.branching=32"),
            (["plt", "--set", "tree.branchin=3"], "unknown setting 'tree.branchin'; did you mean 'tree.branching'?"),
            (["plt", "--set", "tree.branching=1"], "tree.branching: found 1; expected a whole number >= 2"),
            (["plt", "-c", "none.toml"], "none.toml: no such file"),
        ],
    )
    def test_errors(self, fails, monkeypatch, tmp_path, arguments, message):
        monkeypatch.chdir(tmp_path)
        assert fails(2, "methods", *arguments) == f"longtail: {message}"

    def test_settings_of_another_method(self, fails, run, tmp_path):
        file = tmp_path / "my.toml"
        file.write_text(run("methods", "bonsai").out, "utf-8")
        assert fails(2, "methods", "plt", "-c", file).startswith("longtail: method: found 'bonsai' among the settings")

    @pytest.mark.parametrize("option", [["--preset", "eurlex-4k"], ["-c", "my.toml"], ["--set", "seed=1"]])
    def test_settings_without_a_method(self, fails, option):
        assert "settings of one method" in fails(2, "methods", *option)

    def test_broken_file(self, fails, tmp_path):
        file = tmp_path / "my.toml"
        file.write_text("[tree\n")
        assert f"{file}: not a TOML file" in fails(2, "methods", "plt", "-c", file)


class TestFormats:
    def test_table(self, run):
        done = run("formats")
        assert (done.code, done.err) == (0, "")
        names = [line.split()[0] for line in done.out.splitlines()]
        assert names[:3] == ["format", "jsonl", "csv"]
        assert len(names) == 14

    def test_every_format_can_be_read_and_written(self, run):
        from longtail.data.formats import FORMATS

        listed = run("formats", "--json").json()
        assert [set(entry) for entry in listed] == [{"name", "what"}] * len(FORMATS)
        for entry in listed:
            assert callable(FORMATS[entry["name"]].function("read"))
            assert callable(FORMATS[entry["name"]].function("write"))


class TestDoctor:
    def test_table(self, run):
        done = run("doctor")
        assert (done.code, done.err) == (0, "")
        assert re.search(r"^numba +ok +\d", done.out, re.MULTILINE)

    def test_json(self, run):
        symptoms = run("doctor", "--json").json()
        assert symptoms[0]["what"] == "longtail"
        assert {symptom["state"] for symptom in symptoms} <= {"ok", "absent"}

    def test_something_bad(self, run, monkeypatch, tmp_path):
        file = tmp_path / "file"
        file.write_text("")
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(file))
        done = run("doctor")
        assert done.code == 1
        assert re.search(r"^kernel cache +bad +\S+ cannot be written; set NUMBA_CACHE_DIR", done.out, re.MULTILINE)


class TestInfo:
    @pytest.fixture
    def model(self, tmp_path):
        import numpy as np

        from longtail.store import write_folder

        with write_folder(tmp_path / "model", config_hash="0" * 64) as folder:
            folder.write_json("config.json", {"seed": 0})
            folder.write_arrays("tree.safetensors", {"parents": np.arange(300, dtype=np.uint32)})
        return tmp_path / "model"

    def test_table(self, run, model):
        done = run("info", model)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"{model}: longtail {longtail.__version__}, format 1, verified\n\nfile ")
        assert re.search(r"^tree\.safetensors  1,\d\d\d  [0-9a-f]{16}$", done.out, re.MULTILINE)

    def test_json(self, run, model):
        manifest = run("info", model, "--json").json()
        assert {"format", "producer", "config_hash", "files"} <= set(manifest)
        assert [entry["path"] for entry in manifest["files"]] == ["config.json", "tree.safetensors"]

    def test_altered(self, fails, model):
        file = model / "tree.safetensors"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        assert "tree.safetensors" in fails(4, "info", model)

    def test_incomplete(self, fails, model):
        (model / "config.json").unlink()
        assert "config.json" in fails(4, "info", model)

    @pytest.mark.skipif(sys.platform != "linux", reason="names are text here")
    def test_name_that_is_no_text(self, run, model, tmp_path):
        place = model.rename(tmp_path / os.fsdecode(b"m\xff"))
        done = run("info", place)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"{tmp_path}/m\\udcff: longtail ")

    def test_not_a_model(self, fails, tmp_path):
        fails(4, "info", tmp_path)
        assert "no such model folder" in fails(4, "info", tmp_path / "none")


def test_demo(run, tmp_path):
    folder = tmp_path / "new" / "demo"
    done = run("demo", "-o", folder)
    assert done.code == 0
    assert (folder / "labels.png").read_bytes().startswith(b"\x89PNG")
    assert f"$ longtail check {SAMPLE}\n" in done.out
    assert "documents  6,000" in done.out
    assert f"$ longtail train {SAMPLE} -o {folder / 'model'}\n" in done.out
    assert re.search(r"^P +\d\d\.\d\d \[", done.out, re.MULTILINE)
    assert "margin" in done.out
    assert (folder / "model" / "README.md").is_file()
    assert "<svg" in (folder / "report.html").read_text()
    assert f"longtail serve {folder / 'model'} --documents {SAMPLE}\n" in done.out


class TestProcess:
    """What only a process of its own can show."""

    def test_results_on_stdout_and_the_rest_on_stderr(self, train, tmp_path):
        done = spawn("check", train, "--json", "--report", tmp_path / "a.png")
        assert done.returncode == 0
        assert json.loads(done.stdout)["description"]["documents"] == 4
        assert done.stderr.endswith(f"{tmp_path / 'a.png'}: written\n")

    def test_an_error_is_one_line_without_traceback(self, tmp_path):
        done = spawn("check", tmp_path / "none.jsonl")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"longtail: {tmp_path / 'none.jsonl'}: no such file or folder\n"

    def test_results_are_utf8_in_every_locale(self, tmp_path):
        file = put(tmp_path / "a.jsonl", [{"id": "ü", "text": "→", "labels": []}, *TRAIN])
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = spawn("check", file, env=environment, text=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert "█ 2\n" in done.stdout.decode()
        assert "documents without a label: ü\n" in done.stdout.decode()

    @pytest.mark.parametrize("lines", [1, 20_000])
    def test_closed_pipe(self, tmp_path, lines):
        file = put(tmp_path / "a.jsonl", [TRAIN[1]] * lines)
        reader, writer = os.pipe()
        os.close(reader)  # as `| head -1` does once it has its line
        done = spawn("convert", file, "-", stdout=writer)
        os.close(writer)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        assert done.returncode != 0

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_signals(self, tmp_path, number, code):
        # a test run in the background may have SIGINT ignored, which a child inherits
        start = "import signal as s; s.signal(s.SIGINT, s.default_int_handler); from longtail.cli import main; main()"
        command = [sys.executable, "-c", start, "convert", "-", str(tmp_path / "out.csv")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as process:
            line = json.dumps(TRAIN[0]).encode() + b"\n"
            process.stdin.write(line * (3_000_000 // len(line)))  # more than a pipe holds: it is reading
            process.stdin.flush()
            assert insist(process, number) == code
            assert process.stdout.read() == b""
            assert b"Traceback" not in process.stderr.read()
        assert list(tmp_path.iterdir()) == []

    def test_a_signal_while_something_is_let_go_is_not_lost(self):
        start = """if True:
            import os, signal, time
            from longtail import cli

            class Last:
                def __del__(self):
                    os.kill(os.getpid(), signal.SIGTERM)
                    time.sleep(0.01)  # the signal is handled here, where Python ignores errors

            def work():
                Last()
                time.sleep(60)

            cli.app = work
            cli.main()
        """
        done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stderr) == (143, "")

    @pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals here")
    @pytest.mark.parametrize("quiet", [False, True])
    def test_progress_on_a_terminal(self, tmp_path, quiet):
        screen, stderr = os.openpty()
        command = [sys.executable, "-m", "longtail", *(["-q"] if quiet else []), "check", "-", "--json"]
        environment = {**os.environ, "TERM": "xterm"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, stderr=stderr, env=environment, **pipes) as process:
            os.close(stderr)
            process.stdin.write(json.dumps(TRAIN[0]).encode() + b"\n")
            process.stdin.flush()
            drawn = b"" if quiet else read_until(screen, b"reading -")  # the bar is there before the data is
            process.stdin.close()
            drawn += read_until(screen, None)
            assert json.load(process.stdout)["description"]["documents"] == 1
        os.close(screen)
        assert process.returncode == 0
        assert (drawn == b"") == quiet


def insist(process: subprocess.Popen[bytes], number: int) -> int:
    """Send a signal until it is heard: one that comes just before a read blocks is only seen after that read."""
    for _ in range(20):
        time.sleep(0.2)
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(3)
    raise AssertionError(f"signal {number} is not heard")


def read_until(screen: int, wanted: bytes | None) -> bytes:
    """Read from a terminal until ``wanted`` has come, or to its end."""
    seen = b""
    while wanted is None or wanted not in seen:
        try:
            more = os.read(screen, 4096)
        except OSError:  # Linux says so when the last writer is gone
            more = b""
        if not more:
            break
        seen += more
    assert wanted is None or wanted in seen
    return seen
