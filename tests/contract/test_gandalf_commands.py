"""Texts of labels as training documents, and the labels command, as a person uses them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import longtail as lt
from folder_contents import contents
from longtail import pipeline
from longtail.data.label_files import write_labels
from longtail.features import label_graph as graph_module
from longtail.methods import configure
from longtail.models.model_folder import load_model
from longtail.rankers.tree import TreeFamily
from small_methods import LINEAR, SMALL

LABEL = "Culture: Japanese"


@pytest.fixture(scope="module")
def data():
    train, test = lt.sample()
    return train.take(np.arange(600)), test.take(np.arange(200))


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    lt.write(data[0], folder / "train.jsonl")
    lt.write(data[1], folder / "test.jsonl")
    write_labels(data[0].labels, folder / "labels.jsonl")
    return folder


@pytest.mark.parametrize("method", LINEAR)
def test_every_linear_method_takes_label_points(method, data, tmp_path):
    train, test = data
    fitted = lt.Longtail(method, gandalf={"use": True}, **SMALL[method]).fit(train)
    most = data[1].label_matrix[:, np.argmax(train.label_counts)].sum() / len(test)
    assert fitted.evaluate(test)["P@1"] > 1.5 * most
    assert (
        fitted.model.facts.documents + fitted.model.facts.held_out == 600
    )  # label points are no documents
    assert fitted.model.label_counts.sum() == fitted.model.facts.pairs
    fitted.save(tmp_path / "model")
    ours, theirs = (
        model.predict(test, 3).matrix for model in (fitted, lt.load(tmp_path / "model"))
    )
    assert (ours.indices.tolist(), ours.data.tolist()) == (
        theirs.indices.tolist(),
        theirs.data.tolist(),
    )


def test_a_label_without_documents_can_be_found(data):
    train = data[0]
    unseen = lt.Dataset.of(
        train.texts, [[]] * 600, [*train.labels, lt.Label("new", text="Numismatics of Byzantium")]
    )
    padded = lt.Dataset(train.label_matrix, train.labels, train.texts).with_labels(unseen.labels)
    fitted = lt.Longtail("xr-linear", gandalf={"use": True}).fit(padded)
    assert fitted.predict(["numismatics of byzantium"], 1)[0][0].id == "new"
    plain = lt.Longtail("xr-linear").fit(padded)
    assert "new" not in [label.id for label in plain.predict(["numismatics of byzantium"], 5)[0]]


class TestTrain:
    def test_options_set_settings(self, run, files, tmp_path, caplog):
        where = [files / "train.jsonl", "--labels", files / "labels.jsonl", "-j", "2"]
        assert run("train", *where, "-o", tmp_path / "a", "--gandalf").code == 0
        assert "gandalf: texts of 501 labels as documents" in caplog.text
        done = run(
            "train",
            *where,
            "-o",
            tmp_path / "b",
            "--gandalf-share",
            "0.5",
            "--set",
            "gandalf.sample=tail",
        )
        assert done.code == 0
        found = [load_model(tmp_path / name).config.gandalf for name in "ab"]
        assert [(own.use, own.share, own.sample) for own in found] == [
            (True, 1.0, "random"),
            (True, 0.5, "tail"),
        ]
        result = run("evaluate", tmp_path / "b", files / "test.jsonl", "--json").json()
        assert result["evaluation"]["metrics"]["P@1"] > 0.5

    def test_a_share_out_of_range_is_refused(self, fails, files, tmp_path):
        said = fails(
            2, "train", files / "train.jsonl", "-o", tmp_path / "m", "--gandalf-share", "1.5"
        )
        assert "gandalf.share" in said

    def test_data_without_label_words_is_refused_at_once(self, fails, tmp_path):
        lines = [json.dumps({"text": f"text {at}", "labels": ["--"]}) for at in range(5)]
        (tmp_path / "t.jsonl").write_text("\n".join(lines))
        said = fails(2, "train", tmp_path / "t.jsonl", "-o", tmp_path / "m", "--gandalf")
        assert "no label with a word in its text, name or id" in said

    def test_resumed_it_is_the_same_and_the_graph_is_kept(self, data, files, tmp_path, monkeypatch):
        from longtail.training_run import train_to_folder

        config = configure(
            "xr-linear", None, {"gandalf": {"use": True}, "label_features": {"kind": "graph"}}
        )
        train_to_folder(data[0], tmp_path / "whole", config)
        with monkeypatch.context() as broken:
            broken.setattr(TreeFamily, "fit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                train_to_folder(data[0], tmp_path / "resumed", config)
        monkeypatch.setattr(
            graph_module, "walk_counts", interrupted
        )  # the walks are not done again
        train_to_folder(data[0], tmp_path / "resumed", config, resume=True)
        assert contents(tmp_path / "whole") == contents(tmp_path / "resumed")
        monkeypatch.undo()
        model = pipeline.train(data[0], config)  # without stages
        assert (
            pipeline.predict(model, ["chess"], 3)[0]
            == pipeline.predict(load_model(tmp_path / "whole"), ["chess"], 3)[0]
        )


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


class TestLabels:
    def test_vocabulary(self, run, files):
        where = files / "train.jsonl", "--labels", files / "labels.jsonl", "-k", "3"
        found = run("labels", *where, "--json").json()
        assert (found["labels"], found["with_text"], found["with_name"]) == (501, 501, 501)
        assert 300 < found["used"] < 501
        for part in ("most_frequent", "rarest"):
            assert len(found[part]) == 3
        assert found["most_frequent"][0]["name"] == "Software Development: Libraries"
        assert {label["documents"] for label in found["rarest"]} == {1}
        text = run("labels", *where).out
        assert text.startswith(
            f"501 labels, {found['used']} of them used; 501 have a text, 501 a name\n"
        )
        assert "most frequent" in text
        assert "rarest" in text
        bare = run("labels", files / "train.jsonl", "--json").json()
        assert (bare["with_text"], bare["with_name"], bare["labels"]) == (0, 0, found["used"])

    def test_neighbours(self, run, files, tmp_path):
        where = files / "train.jsonl", "--labels", files / "labels.jsonl", "--neighbours", LABEL
        done = run("labels", *where, "-k", "4", "--figure", tmp_path / "n.svg")
        assert done.code == 0
        assert done.out.startswith("Culture: Japanese: ")
        assert done.out.splitlines()[2].split() == ["neighbour", "value", "documents"]
        assert "<svg" in (tmp_path / "n.svg").read_text()
        found = run("labels", *where, "--json").json()
        values = [near["value"] for near in found["neighbours"]]
        assert values == sorted(values, reverse=True)
        assert all(0 < value < 1 for value in values)
        assert found["id"] not in [near["id"] for near in found["neighbours"]]
        assert done.out.splitlines()[3].startswith(found["neighbours"][0]["name"])
        same = run("labels", *where[:3], "--neighbours", found["id"], "--json").json()
        assert same == found
        more = run("labels", *where, "--json", "--set", "label_features.graph_keep=2").json()
        assert len(more["neighbours"]) == 1  # and the label itself

    def test_a_label_without_neighbours(self, run, files):
        where = (
            files / "train.jsonl",
            "--labels",
            files / "labels.jsonl",
            "--neighbours",
            "role::program",
        )
        done = run("labels", *where, "--set", "label_features.graph_max_documents=20")
        assert done.code == 0
        assert "more documents than the 20 of label_features.graph_max_documents" in done.err

    def test_refusals(self, fails, files, tmp_path):
        data = files / "train.jsonl"
        assert "did you mean 'role::program'?" in fails(
            2, "labels", data, "--neighbours", "role::programm"
        )
        assert "expected --neighbours NAME" in fails(
            2, "labels", data, "--figure", tmp_path / "a.png"
        )
        assert "cannot draw" in fails(
            2, "labels", data, "--neighbours", "role::program", "--figure", tmp_path / "a.gif"
        )

    def test_of_a_model(self, run, fails, files, data, tmp_path):
        lt.Longtail("xr-linear").fit(data[0]).save(tmp_path / "model")
        assert run("labels", tmp_path / "model", "--json").json()["labels"] == 501
        assert (
            "--labels has no effect"
            in run("labels", tmp_path / "model", "--labels", tmp_path / "none").err
        )
        said = fails(2, "labels", tmp_path / "model", "--neighbours", LABEL)
        assert "give its training data instead" in said
