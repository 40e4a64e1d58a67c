"""`longtail check` and `longtail convert`: documents of any format in, what is in them or another
format out.
"""

from __future__ import annotations

import json

import pytest
from few_documents import TEST, TRAIN, put, records

from longtail.data.sample import FOLDER

SAMPLE = str(FOLDER)


class TestCheck:
    def test_sample(self, run):
        done = run("check", SAMPLE)
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[0].startswith("documents  6,000, ")
        assert lines[1] == "labels     501, 501 of them used"
        assert lines[2].startswith("pairs      22,395: 3.73 labels per document, ")
        assert any(line.startswith("         1  █") and line.endswith("█ 1,999") for line in lines)

    def test_json(self, run):
        result = run("check", SAMPLE, "--split", "test", "--json").json()
        assert set(result) == {"description", "findings", "forecast"}
        counts = {name: result["description"][name] for name in ("documents", "labels", "pairs")}
        assert counts == {"documents": 1500, "labels": 501, "pairs": 5529}
        (finding,) = (f for f in result["findings"] if f["what"] == "labels without a document")
        assert (finding["level"], finding["count"], len(finding["examples"])) == ("warning", 135, 5)

    @pytest.mark.parametrize(
        ("suffix", "magic"), [(".png", b"\x89PNG\r\n\x1a\n"), (".svg", b"<?xml")]
    )
    def test_report(self, run, train, tmp_path, suffix, magic):
        picture = tmp_path / f"curve{suffix}"
        done = run("check", train, "--report", picture)
        assert (done.code, done.err) == (0, f"{picture}: written\n")
        assert picture.read_bytes().startswith(magic)

    def test_report_of_another_kind(self, run, train, tmp_path):
        done = run("check", train, "--report", tmp_path / "a.bmp")
        assert done.code == 2
        assert (
            done.err
            == f"longtail: {tmp_path / 'a.bmp'}: cannot draw a .bmp; expected .png, .svg, .pdf\n"
        )

    def test_report_into_a_folder_that_does_not_exist(self, run, train, tmp_path):
        done = run("check", train, "--report", tmp_path / "no" / "a.png")
        way_out = f"the folder {tmp_path / 'no'} does not exist; make it first"
        assert (done.code, done.out, done.err) == (
            2,
            "",
            f"longtail: {tmp_path / 'no' / 'a.png'}: {way_out}\n",
        )

    def test_standard_input(self, run, train):
        done = run("check", "-", "--json", stdin=train.read_bytes())
        assert done.json()["description"]["documents"] == 4

    def test_findings(self, run, tmp_path):
        twice = put(tmp_path / "a.jsonl", [*TRAIN, TRAIN[0]])
        done = run("check", twice)
        assert done.code == 0
        assert "warning  1 document id that stands more than once: 1\n" in done.out
        assert "warning  1 text that stands more than once: wind turbines at sea\n" in done.out

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
        assert (
            json.loads(run("check", bad, "--skip-bad", 1, "--json").out)["description"]["documents"]
            == 4
        )
        assert run("check", bad, "--skip-bad", 0).code == 3

    def test_label_file_fixes_the_labels(self, run, fails, train, tmp_path):
        labels = put(tmp_path / "labels.jsonl", [{"id": "wind"}, {"id": "sea"}])
        assert f"{train}:4: unknown label 'sun'" in fails(3, "check", train, "--labels", labels)
        put(
            labels,
            [{"id": name} for name in ("wind", "sea", "sun", "a label, with a comma", "moon")],
        )
        assert (
            run("check", train, "--labels", labels, "--json").json()["description"]["labels"] == 5
        )

    def test_no_such_file(self, fails, tmp_path):
        assert (
            fails(2, "check", tmp_path / "no.jsonl")
            == f"longtail: {tmp_path}/no.jsonl: no such file or folder"
        )

    def test_unknown_format(self, fails, train):
        assert fails(2, "check", train, "--format", "jsnl") == (
            "longtail: unknown format 'jsnl'; did you mean 'jsonl'?"
        )

    def test_unknown_split(self, fails):
        assert "no tset.jsonl" in fails(2, "check", SAMPLE, "--split", "tset")


class TestConvert:
    def test_to_csv_and_back(self, run, train, tmp_path):
        table = tmp_path / "a.csv"
        back = tmp_path / "back.jsonl"
        assert run("convert", train, table) == (0, "", f"{table}: 4 documents, 4 labels\n")
        assert table.read_text().startswith("id,")
        assert run("convert", table, back).code == 0
        assert records(back) == TRAIN

    def test_compressed(self, run, train, tmp_path):
        packed = tmp_path / "a.jsonl.gz"
        back = tmp_path / "back.jsonl"
        assert run("convert", train, packed).code == 0
        assert packed.read_bytes().startswith(b"\x1f\x8b")
        run("convert", packed, back)
        assert records(back) == TRAIN

    def test_to_stdout(self, run, train):
        done = run("convert", train, "-")
        assert [json.loads(line) for line in done.out.splitlines()] == TRAIN
        assert (done.code, done.err) == (0, "-: 4 documents, 4 labels\n")

    def test_to_stdout_in_another_format(self, run, train):
        assert run("convert", train, "-", "--to", "fasttext").out.startswith(
            "__label__wind __label__sea wind turbines"
        )

    def test_from_stdin(self, run, train, tmp_path):
        assert run("convert", "-", tmp_path / "a.csv", stdin=train.read_bytes()).code == 0

    def test_split(self, run, tmp_path):
        done = run("convert", SAMPLE, tmp_path / "a.csv", "--split", "test")
        assert done.err == f"{tmp_path / 'a.csv'}: 1,500 documents, 501 labels\n"

    def test_split_of_a_folder(self, run, truth, tmp_path):
        folder = tmp_path / "folder"
        back = tmp_path / "back.jsonl"
        done = run("convert", truth, folder, "--to", "attentionxml", "--split", "test")
        assert (done.code, done.out) == (0, "")
        assert {path.name for path in folder.iterdir()} >= {"test_raw_texts.txt", "test_labels.txt"}
        assert run("convert", folder, back, "--split", "test").code == 0
        texts_and_labels = [(record["text"], record["labels"]) for record in records(back)]
        assert texts_and_labels == [(record["text"], record["labels"]) for record in TEST]

    def test_labels_output(self, run, tmp_path):
        done = run(
            "convert", SAMPLE, tmp_path / "a.jsonl", "--labels-output", tmp_path / "labels.jsonl"
        )
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
        bad = tmp_path / "bad.jsonl"
        out = tmp_path / "out.csv"
        bad.write_text("?\n")
        out.write_text("precious")
        fails(3, "convert", bad, out)
        assert out.read_text() == "precious"
