"""eXtremeText as a person uses it: precision, threads, resuming, explanations, the model card, and
wrong settings.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import longtail as lt
from folder_contents import contents
from longtail.rankers import extremetext
from longtail.server.label_path import label_path

TEXT = "A small editor for sound files, with a window for GNOME"
SMALL = {"dimensions": 48}
OPTIONS = ("--method", "extremetext", "--set", "extremetext.dimensions=16")


@pytest.fixture(scope="module")
def data():
    return lt.sample()


@pytest.fixture(scope="module")
def fitted(data):
    return lt.Longtail("extremetext", extremetext=SMALL, threads=2).fit(data[0])


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    lt.write(data[0].take(np.arange(300)), folder / "train.jsonl")
    return folder


@pytest.fixture
def blocks(monkeypatch):
    """Blocks of documents small enough for several threads."""
    monkeypatch.setattr(extremetext, "_BLOCK", 32)


def test_is_far_better_than_the_most_frequent_labels(fitted, data):
    counts = data[0].label_counts
    hits = data[1].with_labels(data[0].labels, unknown="drop").label_matrix
    frequent = hits[:, np.argmax(counts)].sum() / len(data[1])
    measured = fitted.evaluate(data[1])
    assert measured["P@1"] > 0.76 > frequent + 0.2
    assert measured["P@5"] > 0.38


def test_scores_are_probabilities_without_calibration(data):
    model = lt.Longtail("extremetext", extremetext=SMALL, calibration={"method": "none"})
    scores = model.fit(data[0]).predict(data[1], 1).matrix
    right = data[1].with_labels(data[0].labels, unknown="drop").label_matrix.multiply(scores > 0)
    assert abs(scores.data.mean() - right.sum() / len(data[1])) < 0.1


def test_an_explanation_adds_up_to_the_score(fitted):
    for best in fitted.predict([TEXT], 3)[0]:
        result = fitted.explain(TEXT, best.id)
        assert result.probability == pytest.approx(best.score, abs=1e-6)
        assert prod(step.score for step in result.steps) == pytest.approx(result.path_score)
        assert len(result.steps) == fitted.model.tree.n_levels
        for step in result.steps:
            total = sum(part.contribution for part in step.contributions)
            assert total == pytest.approx(step.margin, abs=1e-5)
    words = {part.feature for part in result.steps[-1].contributions}
    assert "gnome" in words


def test_the_path_through_the_tree_is_that_of_the_scores(data):
    model = lt.Longtail("extremetext", extremetext=SMALL, calibration={"method": "none"})
    fitted = model.fit(data[0].take(np.arange(600)))
    (best,) = fitted.predict([TEXT], 1)[0]
    levels = label_path(fitted.model, TEXT, best.id, 3)
    assert len(levels) == fitted.model.tree.n_levels
    scores = [node.score for level in levels for node in level.nodes if node.on_path]
    assert len(scores) == len(levels)
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] == pytest.approx(best.score)


def test_dense_features_beside_the_text_have_vectors(data):
    random = np.random.default_rng(0)
    train, test = (part.take(np.arange(n)) for part, n in zip(data, (600, 50), strict=True))
    dense = [random.normal(size=(len(part), 7)).astype(np.float32) for part in (train, test)]
    model = lt.Longtail("extremetext", extremetext=SMALL).fit(train.with_features(dense[0]))
    result = model.predict(test.with_features(dense[1]), 3).matrix
    other = model.predict(test.with_features(-dense[1]), 3).matrix
    assert np.isfinite(result.data).all()
    assert (result != other).nnz
    assert model.model.rankers[0].dense_width == 7


class TestThreads:
    def test_one_thread_gives_the_same_bytes_each_time(self, run, files, tmp_path, blocks):
        for name in ("one", "two"):
            done = run("train", files / "train.jsonl", "-o", tmp_path / name, "-j", "1", *OPTIONS)
            assert done.code == 0
        assert contents(tmp_path / "one") == contents(tmp_path / "two")
        assert "| trained on | one thread" in (tmp_path / "one" / "README.md").read_text()

    def test_several_are_named_in_the_model_card(self, run, files, tmp_path, blocks):
        done = run("train", files / "train.jsonl", "-o", tmp_path / "m", "-j", "3", *OPTIONS)
        assert done.code == 0
        card = (tmp_path / "m" / "README.md").read_text()
        assert "| trained on | 3 threads without locks: another training gives a slightly" in card
        assert "| label tree | 2 → 4 → " in card
        assert lt.load(tmp_path / "m").predict([TEXT], 1)[0]

    def test_resumed_it_is_the_same(self, run, files, tmp_path, monkeypatch, caplog):
        command = ("train", files / "train.jsonl", "-j", "1", *OPTIONS)
        assert run(*command, "-o", tmp_path / "whole").code == 0
        real = extremetext.train_documents
        calls = []

        def stops_in_the_third_epoch(*arguments):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(extremetext, "train_documents", stops_in_the_third_epoch)
            assert run(*command, "-o", tmp_path / "m").code == 130
        caplog.clear()
        assert run(*command, "-o", tmp_path / "m", "--resume").code == 0
        assert "stage words-and-nodes: taken over" in caplog.text
        assert "epoch 3 of " in caplog.text
        assert "epoch 2 of " not in caplog.text
        assert contents(tmp_path / "m") == contents(tmp_path / "whole")


class TestCommands:
    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("search.score=hinge-2", "search.score: found hinge-2 with extremetext"),
            ("extremetext.rate=0", "extremetext.rate"),
            ("extremetext.dims=20", "extremetext.dims"),
            ("ranker.loss=logistic", "ranker.loss: extremetext does not read this setting"),
            ("forest.trees=3", "forest.trees: extremetext does not read this setting"),
        ],
    )
    def test_wrong_settings_are_refused(self, fails, files, tmp_path, setting, message):
        command = ("train", files / "train.jsonl", "-o", tmp_path / "m", *OPTIONS)
        assert message in fails(2, *command, "--set", setting)
        assert not (tmp_path / "m").exists()

    def test_settings_say_what_they_are(self, run):
        shown = run("methods", "extremetext").out
        for line in ("dimensions = 200", "-j 1", "weights = "):
            assert line in shown

    def test_a_hierarchy_is_taken(self):
        texts = ["red apple", "green pear", "blue sky", "grey sea"] * 9
        documents = lt.Dataset.of(texts, [["a"], ["b"], ["c"], ["d"]] * 9)
        parents = {"a": ["fruit"], "b": ["fruit"], "c": ["nature"], "d": ["nature"]}
        model = lt.Longtail("extremetext", extremetext=SMALL).fit(documents, parents=parents)
        assert model.model.tree.widths == (2, 4)
        assert [label.id for label in model.predict(["red apple"], 1)[0]] == ["a"]
