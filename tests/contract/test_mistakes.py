"""What a newcomer gets wrong is answered before any work, with what was found and the way out."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import typer

from longtail.cli import app

BOOKS = [
    {
        "id": "b1",
        "text": "Offshore wind turbines in the Baltic Sea",
        "labels": ["Wind power", "Baltic Sea"],
    },
    {"id": "b2", "text": "A field guide to Baltic sea birds", "labels": ["Birds", "Baltic Sea"]},
    {"id": "b3", "text": "Small wind turbines for farms", "labels": ["Wind power", "Agriculture"]},
]
COMMANDS = typer.main.get_command(app).commands


@pytest.fixture
def books(tmp_path):
    path = tmp_path / "books.jsonl"
    path.write_text("".join(json.dumps(book) + "\n" for book in BOOKS))
    return path


@pytest.fixture
def model(run, books, tmp_path):
    assert run("-q", "train", books, "-o", tmp_path / "model").code == 0
    return tmp_path / "model"


def test_data_and_model_in_each_other_s_place(fails, books, model):
    message = fails(4, "predict", books, model)
    assert (
        message
        == f"longtail: {books}: is a file; expected a model folder; give what `longtail train -o` has written"
    )
    assert fails(2, "train", model, "-o", model).startswith(
        f"longtail: {model}: is a model folder; expected data"
    )


@pytest.mark.parametrize("command", ["predict", "embed", "export"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(fails, tmp_path, command):
    data = [] if command == "export" else [tmp_path / "no.jsonl"]
    output = tmp_path / "no" / ("out.onnx" if command == "export" else "out.npy")
    message = fails(
        2, command, tmp_path / "no-model", *data, "-o", output
    )  # neither model nor data was looked for
    assert message.endswith("does not exist; make it first")


def test_vectors_are_written_as_npy_alone(fails, tmp_path):
    assert "expected a name that ends in .npy" in fails(
        2, "embed", tmp_path, tmp_path, "-o", tmp_path / "vectors.csv"
    )


def test_documents_and_labels_are_not_written_to_one_file(fails, books, tmp_path):
    out = tmp_path / "out.csv"
    assert "expected two different files" in fails(2, "convert", books, out, "--labels-output", out)
    assert not out.exists()


@pytest.mark.parametrize(
    "command", ["predict MODEL BOOKS -o BOOKS", "convert BOOKS BOOKS", "merge BOOKS -o BOOKS"]
)
def test_what_is_read_is_not_written_over(fails, books, model, command):
    before = books.read_bytes()
    words = [{"MODEL": model, "BOOKS": books}.get(word, word) for word in command.split()]
    assert (
        fails(2, *words)
        == f"longtail: {books}: is read, and would be written over; give another file to write"
    )
    assert books.read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        "predict MODEL BOOKS -o MODEL/predictions.jsonl",
        "evaluate MODEL BOOKS --report MODEL/report.html",
        "compare MODEL MODEL BOOKS -o MODEL",
        "compare MODEL MODEL BOOKS -o MODEL/compare.csv",
        "convert BOOKS MODEL/labels.jsonl",
        "convert BOOKS MODEL --to annif-folder",
        "train BOOKS -o MODEL/inner",
    ],
)
def test_nothing_is_written_into_a_model_folder(run, fails, books, model, command):
    words = [
        word.replace("MODEL", str(model)).replace("BOOKS", str(books)) for word in command.split()
    ]
    message = fails(2, *words)
    assert (
        message
        == f"longtail: {model}: is a model folder, which more in it would damage; write elsewhere"
    )
    assert run("info", model).code == 0


def test_a_misspelt_device_is_refused_also_by_a_method_that_uses_none(fails, books, tmp_path):
    message = fails(2, "train", books, "-o", tmp_path / "model", "--device", "gpu")
    assert message == "longtail: --device 'gpu'; expected auto, cpu, cuda or cuda:N"


def test_a_hierarchy_of_other_labels_is_refused(fails, books, tmp_path):
    message = fails(2, "train", books, "-o", tmp_path / "model", "--tree", books)
    assert "--tree: found no label of the documents in it" in message
    assert not (tmp_path / "model").exists()


def test_test_data_of_other_labels_is_told_of(run, books, model, tmp_path, caplog):
    assert run("evaluate", model, books).code == 0
    assert "is one of the model's" not in caplog.text
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({**book, "labels": ["Whaling"]}) + "\n" for book in BOOKS))
    assert run("evaluate", model, other).code == 0
    assert "no label of the test documents is one of the model's" in caplog.text


def test_training_data_beside_a_model_is_told_of(run, books, model):
    assert "--train has no effect" in run("evaluate", model, books, "--train", books).err


def test_a_file_in_place_of_a_text_is_told_of(run, books, model):
    done = run("explain", model, books)
    assert done.code == 0
    assert (
        done.err
        == f"{books} is a file, but its name is explained; for its content: longtail explain {model} - < {books}\n"
    )
    assert run("explain", model, "wind").err == ""
    for text in (
        "wind " * 2000,
        "ветер " * 40 + "wind",
        "wind\x00",
    ):  # no names that a file could have
        done = run("explain", model, text)
        assert (done.code, done.err) == (0, "")


def test_a_file_in_place_of_the_demo_s_folder_is_refused(fails, books):
    assert (
        fails(2, "demo", "-o", books)
        == f"longtail: {books}: is a file; expected a folder, or the name of a new one"
    )


def test_too_few_documents_to_hold_some_out_of_tuning(fails, books, tmp_path):
    message = fails(2, "tune", books, "-o", tmp_path / "study")
    assert message.endswith(
        "0 of 3 documents; expected at least 1 on each side; or give documents to measure on, with --valid"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example_of_it_that_can_be_given(name):
    command = COMMANDS[name]
    example = re.fullmatch(rf"Example: longtail {name}( .*)?", command.epilog)
    words = shlex.split((example[1] or "").partition(" > ")[0])
    assert command.make_context(
        name, words
    ).params  # an option or argument that is not there would be refused
