"""The command line as a person uses it: results on stdout, everything else on stderr, exit codes
that tell.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import typer

import longtail
from longtail.cli import app
from longtail.config import Config
from longtail.data.sample import FOLDER
from longtail.methods import METHODS, configure

SAMPLE = str(FOLDER)
VERBS = list(typer.main.get_command(app).commands)


class TestFront:
    def test_version(self, run):
        assert run("--version") == (0, f"longtail {longtail.__version__}\n", "")

    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_help_names_every_verb(self, run, flag):
        done = run(flag)
        assert (done.code, done.err) == (0, "")
        for verb in VERBS:
            assert re.search(rf"\b{verb}\b", done.out)

    @pytest.mark.parametrize("verb", VERBS)
    def test_every_verb_has_help(self, run, verb):
        done = run(verb, "--help")
        assert (done.code, done.err) == (0, "")
        assert "Usage: " in done.out

    def test_nothing_at_all_shows_help(self, run):
        done = run()
        assert done.code == 2
        assert "Usage: " in done.out + done.err

    @pytest.mark.parametrize(
        ("verb", "near"), [("chek", "check"), ("evalute", "evaluate"), ("method", "methods")]
    )
    def test_unknown_verb(self, fails, verb, near):
        message = fails(2, verb)
        assert f"No such command '{verb}'" in message
        assert f"Did you mean '{near}'" in message or f"'{near}'" in message

    def test_unknown_option(self, fails):
        assert "--jsn" in fails(2, "check", SAMPLE, "--jsn")

    def test_missing_argument(self, fails):
        assert "DATA" in fails(2, "check")


class TestMethods:
    def test_list(self, run):
        done = run("methods")
        assert (done.code, done.err) == (0, "")
        assert [line.split()[0] for line in done.out.splitlines()] == ["method", *METHODS]

    def test_list_as_json(self, run):
        entries = run("methods", "--json").json()
        assert [entry["name"] for entry in entries] == list(METHODS)
        assert {"what", "paper", "recipe", "settings", "presets"} <= set(entries[0])
        presets = {entry["name"]: entry["presets"] for entry in entries}
        assert presets["parabel"]["amazon-670k"]["ranker"]["trees"] == 3
        assert presets["fastxml"] == {}

    def test_one_is_toml_for_c(self, run, tmp_path):
        done = run("methods", "xr-linear", "--preset", "eurlex-4k", "--set", "tfidf.1.unit=char")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("# linear one-vs-rest classifiers")
        file = tmp_path / "my.toml"
        file.write_text(done.out, "utf-8")
        again = run("methods", "xr-linear", "-c", file)
        assert again.out == done.out

    def test_a_preset_has_the_source_of_each_value(self, run, tmp_path):
        done = run("methods", "cascadexml", "--preset", "amazon-670k", "--set", "training.epochs=2")
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert (
            "max_tokens = 128  # texts are cut after this many tokens [CascadeXML, appendix, table 9]"
            in lines
        )
        assert "epochs = 2  # passes over the documents" in lines  # asked for, so not the paper's
        assert lines.index("# Deviations from the authors' recipe:") == len(lines) - 4
        assert all(line.startswith("# - ") for line in lines[-2:])
        file = tmp_path / "my.toml"
        file.write_text(done.out, "utf-8")
        assert run("methods", "cascadexml", "-c", file).out == done.out

    def test_sources_as_json(self, run):
        result = run(
            "methods",
            "cascadexml",
            "--preset",
            "amazon-670k",
            "--set",
            "training.epochs=2",
            "--json",
        ).json()
        assert result["sources"]["encoder.max_tokens"] == "CascadeXML, appendix, table 9"
        assert "training.epochs" not in result["sources"]
        assert len(result["deviations"]) == 3
        assert set(result) == {*Config.__struct_fields__, "sources", "deviations"}

    def test_one_as_json(self, run):
        settings = run("methods", "plt", "--json").json()
        assert settings["method"] == "plt"
        assert set(settings) == set(Config.__struct_fields__)

    def test_order_of_sources(self, run, tmp_path):
        file = tmp_path / "my.toml"
        file.write_text("[tree]\nlevels = [5, 50]\nbranching = 3\n[ranker]\nprune = 0.5\n")
        arguments = ["methods", "xr-transformer", "--preset", "eurlex-4k", "-c", file]
        arguments += [
            "--set",
            "tree.branching=4",
            "--set",
            "seed=1",
            "--set",
            "tree.branching=5",
            "--json",
        ]
        settings = run(*arguments).json()
        assert settings["tree"]["levels"] == [5, 50]  # file over preset
        assert settings["tree"]["branching"] == 5  # --set over file, the last one wins
        assert (settings["ranker"]["prune"], settings["ranker"]["cost_negative"]) == (0.5, 4)
        assert configure("xr-transformer", "eurlex-4k").ranker.cost_negative == 4

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["xr-liner"], "unknown method 'xr-liner'; did you mean 'xr-linear'?"),
            (
                ["xr-linear", "--preset", "eurlex4k"],
                "unknown preset 'eurlex4k'; did you mean 'eurlex-4k'?",
            ),
            (["fastxml", "--preset", "eurlex-4k"], "unknown preset 'eurlex-4k'; fastxml has none"),
            (
                ["plt", "--set", "tree"],
                "--set 'tree'; expected PATH=VALUE such as tree.branching=32",
            ),
            (
                ["plt", "--set", "tree.branchin=3"],
                "unknown setting 'tree.branchin'; did you mean 'tree.branching'?",
            ),
            (
                ["plt", "--set", "tree.branching=1"],
                "tree.branching: found 1; expected a whole number >= 2",
            ),
            (["plt", "-c", "none.toml"], "none.toml: no such file"),
        ],
    )
    def test_errors(self, fails, monkeypatch, tmp_path, arguments, message):
        monkeypatch.chdir(tmp_path)
        assert fails(2, "methods", *arguments) == f"longtail: {message}"

    def test_settings_of_another_method(self, fails, run, tmp_path):
        file = tmp_path / "my.toml"
        file.write_text(run("methods", "bonsai").out, "utf-8")
        result = "method: found 'bonsai' among the settings for 'plt'; expected 'plt' or nothing"
        assert fails(2, "methods", "plt", "-c", file) == f"longtail: {file}: {result}"

    @pytest.mark.parametrize(
        "command",
        [["methods", "plt"], ["train", "x.jsonl", "-o", "x"], ["tune", "x.jsonl", "-o", "x"]],
    )
    def test_a_wrong_setting_is_told_with_its_file(self, fails, monkeypatch, tmp_path, command):
        monkeypatch.chdir(tmp_path)
        Path("x.jsonl").write_text('{"text": "a", "labels": ["b"]}\n')
        Path("my.toml").write_text("[tree]\nbranching = 1\n")
        wrong = "tree.branching: found 1; expected a whole number >= 2"
        assert fails(2, *command, "-c", "my.toml") == f"longtail: my.toml: {wrong}"
        assert (
            fails(2, *command, "-c", "my.toml", "--set", "tree.branching=1") == f"longtail: {wrong}"
        )

    @pytest.mark.parametrize(
        "option", [["--preset", "eurlex-4k"], ["-c", "my.toml"], ["--set", "seed=1"]]
    )
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
        assert re.search(
            r"^kernel cache +bad +\S+ cannot be written; set NUMBA_CACHE_DIR",
            done.out,
            re.MULTILINE,
        )


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
        assert done.out.startswith(
            f"{model}: longtail {longtail.__version__}, format 1, verified\n\nfile "
        )
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
        path = model.rename(tmp_path / os.fsdecode(b"m\xff"))
        done = run("info", path)
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
