"""Folders of published datasets at the command line: what is read of them, and what can be left
out.
"""

from __future__ import annotations

import json

import pytest
from few_documents import TRAIN, put

import published_layouts as made


@pytest.fixture
def folder(tmp_path):
    """Twelve documents and four, with features of which the test part lacks the last columns."""
    folder = tmp_path / "Amazon-670K"
    folder.mkdir()
    for part, count, name in (("train", 12, "train_v1.txt"), ("test", 4, "test.txt")):
        numbers = range(count)
        files = {
            f"{part}_raw_texts.txt": "".join(f"thing{n % 3} /SEP/ word{n}\n" for n in numbers),
            f"{part}_labels.txt": "".join(f"L{n % 3}\n" for n in numbers),
            name: "".join(f"0 {n % 3}:1 {3 + n}:0.5\n" for n in numbers),
        }
        for file, content in files.items():
            (folder / file).write_text(content)
    return folder


SETTINGS = ("--set", "calibration.method=none")


class TestFeatures:
    def test_train_evaluate_and_predict_use_those_of_the_folder(
        self, run, folder, tmp_path, caplog
    ):
        assert run("train", folder, "-o", tmp_path / "m", *SETTINGS).code == 0
        read = "Amazon-670K: read as attentionxml: texts, labels, "
        assert (
            caplog.messages[0]
            == f"{read}features of train_v1.txt: 15 columns, numbers from 0 to 14"
        )
        caplog.clear()
        done = run("evaluate", tmp_path / "m", folder, "--json")
        assert caplog.messages == [
            f"{read}features of test.txt: 7 columns, numbers from 0 to 6",
            "4 of the 4 documents (100.0%) are training documents of the model, so the numbers are "
            "higher than for new documents",
        ]
        assert json.loads(done.out)["evaluation"]["metrics"]["P@1"] == 1
        done = run("predict", tmp_path / "m", folder, "-k", 1)
        result = [json.loads(line)["labels"] for line in done.out.splitlines()]
        assert result == [["L0"], ["L1"], ["L2"], ["L0"]]
        assert run("predict", tmp_path / "m", folder / "test.txt", "-k", 1).out == done.out

    def test_without_them(self, run, fails, folder, tmp_path, caplog):
        run("train", folder, "-o", tmp_path / "features", *SETTINGS)
        caplog.clear()
        run("train", folder, "-o", tmp_path / "texts", "--no-features", *SETTINGS)
        assert caplog.messages[0] == "Amazon-670K: read as attentionxml: texts, labels"
        output = fails(3, "evaluate", tmp_path / "features", folder, "--no-features")
        assert "0 columns of sparse features; expected 15, as in training" in output
        for option in ((), ("--no-features",)):
            assert json.loads(run("evaluate", tmp_path / "texts", folder, "--json", *option).out)

    def test_a_wider_file_is_named(self, run, fails, folder, tmp_path):
        run("train", folder, "-o", tmp_path / "m", *SETTINGS)
        (folder / "test.txt").write_text("0 15:1\n" * 4)
        output = fails(3, "predict", tmp_path / "m", folder)
        assert (
            f"{folder / 'test.txt'}: feature 15; expected a number below 15, the columns of"
            in output
        )

    def test_both_options(self, fails, folder):
        output = fails(2, "check", folder, "--features", folder / "train_v1.txt", "--no-features")
        assert output == "longtail: found --features and --no-features; expected one of them"

    def test_check_counts_them(self, run, folder):
        done = run("check", folder)
        assert "features   15 columns, 2.0 per document\n" in done.out
        assert (
            json.loads(run("check", folder, "--json").out)["description"]["feature_columns"] == 15
        )
        assert "features" not in run("check", folder, "--no-features").out

    def test_convert_keeps_them(self, run, folder, tmp_path):
        assert run("convert", folder, tmp_path / "out", "--to", "pecos").code == 0
        assert "features   15 columns, 2.0 per document\n" in run("check", tmp_path / "out").out


class TestFields:
    def test_convert(self, run, tmp_path, caplog):
        folder = made.label_features(tmp_path / "LF-AmazonTitles-131K")
        done = run("convert", folder, "-", "--labels-output", tmp_path / "labels.jsonl")
        assert [json.loads(line)["text"] for line in done.out.splitlines()] == [
            "Red Tutu",
            "Black Shoes",
        ]
        assert "titles only, as the folder is called LF-AmazonTitles-131K" in caplog.text
        assert json.loads((tmp_path / "labels.jsonl").read_text().splitlines()[0]) == {
            "id": "L0",
            "name": "Tutu",
        }
        done = run("convert", folder, "-", "--fields", "title,content")
        assert json.loads(done.out.splitlines()[0])["text"] == "Red Tutu\nFor ballet."

    def test_of_other_data(self, fails, tmp_path):
        data = put(tmp_path / "a.jsonl", TRAIN)
        output = fails(2, "check", data, "--fields", "title")
        assert output.endswith(f"title, content or both; {data} is read as jsonl")

    def test_unknown(self, fails, tmp_path):
        output = fails(2, "check", made.label_features(tmp_path / "set"), "--fields", "titles")
        assert output == "longtail: unknown field 'titles'; did you mean 'title'?"
