"""Methods without a label tree, as a person uses them: one-vs-all, trees of documents, neighbours that vote."""

from __future__ import annotations

import sys
from math import prod

import numpy as np
import pytest

import longtail as lt
from folder_contents import contents
from longtail.cli.terminal import print_explanation
from longtail.errors import ConfigError, MissingExtra, UsageError
from longtail.methods import METHODS, configure
from longtail.models.model_folder import load_model
from longtail.rankers import forest, neighbours
from longtail.rankers.one_vs_all import LabelProblems
from small_methods import SMALL, WITHOUT_LABEL_TREE

TEXT = "A small editor for sound files, with a window for GNOME"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    train, test = lt.sample()
    train = train.take(np.arange(600))
    return train, test.take(np.arange(200)).with_labels(train.labels, unknown="drop")


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    lt.write(data[0], folder / "train.jsonl")
    return folder


def fit(method, documents, **more):
    return lt.Longtail(method, **SMALL[method], **more).fit(documents)


@pytest.fixture(scope="module", params=WITHOUT_LABEL_TREE)
def fitted(request, data):
    return fit(request.param, data[0])


def test_learns(fitted, data):
    by_frequency = data[1].label_matrix[:, np.argmax(data[0].label_counts)].sum() / len(data[1])
    assert fitted.evaluate(data[1])["P@1"] > 1.6 * by_frequency > 0.5


def test_saved_loaded_and_trained_on_other_threads_it_is_the_same(fitted, data, tmp_path):
    fitted.save(tmp_path / "one")
    loaded = lt.load(tmp_path / "one")
    ours, theirs = fitted.predict(data[1]).matrix, loaded.predict(data[1]).matrix
    assert ours.indices.tobytes() == theirs.indices.tobytes()
    assert ours.data.tobytes() == theirs.data.tobytes()
    loaded.save(tmp_path / "again")
    fit(fitted.config.method, data[0], threads=3).save(tmp_path / "three")
    assert (
        contents(tmp_path / "one") == contents(tmp_path / "again") == contents(tmp_path / "three")
    )
    assert "label tree" in (tmp_path / "one" / "README.md").read_text() or fitted.model.tree is None


def test_whatever_the_batch(fitted, data):
    whole = fitted.predict(data[1], 5)
    for row in range(0, 200, 31):
        alone = fitted.predict([data[1].texts[row]], 5)[0]
        assert [label.id for label in alone] == [label.id for label in whole[row]]
        assert [label.score for label in alone] == pytest.approx(
            [label.score for label in whole[row]], abs=1e-6
        )


def test_excluded_labels_give_their_places_to_others(fitted, data):
    texts = [data[1].texts[row] for row in range(20)]
    before = fitted.predict(texts, 4)
    banned = [[before[row][0].id] for row in range(20)]
    after = fitted.predict(texts, 3, exclude=banned)
    for row in range(20):
        assert [label.id for label in after[row]] == [label.id for label in before[row]][1:]


def test_an_explanation_adds_up_to_the_score(fitted):
    for best in fitted.predict([TEXT], 3)[0]:
        found = fitted.explain(TEXT, best.id)
        assert found.probability == pytest.approx(best.score, abs=1e-6)
        trees = {step.tree for step in found.steps}
        paths = [prod(step.score for step in found.steps if step.tree == tree) for tree in trees]
        assert np.mean(paths) == pytest.approx(found.path_score, rel=1e-5)
        for step in found.steps:
            total = sum(part.contribution for part in step.contributions) + step.bias + step.dense
            assert total == pytest.approx(step.margin, abs=1e-5)
            assert all(
                part.contribution == pytest.approx(part.value * part.weight)
                for part in step.contributions
            )
        assert any(step.contributions for step in found.steps)


@pytest.mark.parametrize("method", WITHOUT_LABEL_TREE)
def test_resumes_within_its_stages(method, run, files, data, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("longtail.rankers.one_vs_all.BATCH", 64)
    home, name, stage = {
        "forest": (forest, "fit_tree", "document-tree-0"),
        "neighbours": (neighbours, "fit_learner", "learner-0"),
        "tree": (LabelProblems, "solve", "ranker-0-batch-0"),
    }[METHODS[method].ranker]
    real, calls = getattr(home, name), []

    def stops_at_the_second(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    given = [
        f"{group}.{key}={value}"
        for group, own in SMALL[method].items()
        for key, value in own.items()
    ]
    options = [
        "--method",
        method,
        "-j",
        "1",
        *(part for setting in given for part in ("--set", setting)),
    ]
    assert run("train", files / "train.jsonl", "-o", tmp_path / "whole", *options).code == 0
    with monkeypatch.context() as patch:
        patch.setattr(home, name, stops_at_the_second)
        assert run("train", files / "train.jsonl", "-o", tmp_path / "m", *options).code == 130
    caplog.clear()
    assert run("train", files / "train.jsonl", "-o", tmp_path / "m", *options, "--resume").code == 0
    assert f"stage {stage}: taken over" in caplog.text
    assert contents(tmp_path / "m") == contents(tmp_path / "whole")


@pytest.mark.parametrize("method", WITHOUT_LABEL_TREE)
class TestUnusualData:
    def fit(self, method, texts, labels):
        return fit(method, lt.Dataset.of(texts, labels))

    def test_one_label(self, method):
        model = self.fit(
            method, ["red apple", "green pear", "blue sky"], [["fruit"], ["fruit"], []]
        )
        assert [label.id for label in model.predict(["red pear"], 5)[0]] == ["fruit"]

    def test_a_label_in_every_document(self, method):
        texts = [f"word{n % 4} text{n % 3}" for n in range(40)]
        model = self.fit(method, texts, [["all", f"label{n % 4}"] for n in range(40)])
        assert {label.id for label in model.predict(["word2 text1"], 2)[0]} == {"all", "label2"}

    def test_a_document_without_known_words(self, method):
        model = self.fit(method, ["red apple", "green pear"] * 9, [["a"], ["b"]] * 9)
        for found in (model.predict(["zzz", ""], 2)[row] for row in range(2)):
            assert {label.id for label in found} <= {"a", "b"}
            assert all(0 <= label.score <= 1 for label in found)

    def test_k_larger_than_the_number_of_labels(self, method):
        model = self.fit(method, ["red apple", "green pear"] * 9, [["a"], ["b"]] * 9)
        found = model.predict(["red apple"], 99)[0]
        assert found[0].id == "a"
        assert len(found) <= 2

    def test_a_hierarchy_is_refused(self, method):
        documents = lt.Dataset.of(["red apple", "green pear"] * 9, [["a"], ["b"]] * 9)
        with pytest.raises(UsageError, match="has no label tree"):
            lt.Longtail(method, **SMALL[method]).fit(
                documents, parents={"a": ["parent"], "b": ["parent"]}
            )


def test_trees_that_rank_alone_have_no_centroids(data):
    fitted = fit("fastxml", data[0])
    (forest,) = fitted.model.rankers
    assert forest.centroids.columns.size == 0
    (step,) = fitted.explain(TEXT, fitted.predict([TEXT], 1)[0][0].id).steps
    assert (step.place, step.node) == ("forest", "the ways through 4 trees")


def test_an_explanation_names_learners_where_there_is_no_tree(data, capsys):
    fitted = fit("annexml", data[0])
    explanation = fitted.explain(TEXT, fitted.predict([TEXT], 1)[0][0].id)
    learners = len(fitted.model.rankers[0].learners)
    assert [step.place for step in explanation.steps] == [
        f"learner {number + 1}" for number in range(learners)
    ]
    print_explanation(explanation, 3)
    shown = capsys.readouterr().out
    assert "\nlearner 2: " in shown
    assert "tree" not in shown


def test_an_explanation_names_documents_by_their_number_in_the_training_data(data, tmp_path):
    fitted = fit("annexml", data[0])
    assert fitted.model.facts.held_out > 0
    fitted.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    named = set()
    for label in fitted.predict([TEXT], 5)[0]:
        steps = fitted.explain(TEXT, label.id).steps
        assert [step.node for step in loaded.explain(TEXT, label.id).steps] == [
            step.node for step in steps
        ]
        for step in steps:
            _, _, numbers = step.node.partition(": training documents ")
            rows = [int(number) - 1 for number in numbers.split(", ") if number]
            column = data[0].labels.column(label.id)
            assert all(column in data[0].label_matrix[[row]].indices for row in rows)
            named.update(rows)
    assert max(named) > fitted.model.rankers[0].document_rows.searchsorted(max(named))


def test_what_cannot_be_had_is_said_before_training(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match="faiss"):
        lt.Longtail("annexml", neighbours={"index": "faiss"}).fit(data[0])
    two = lt.Dataset.of(["red apple", "green pear"], [["a"], ["b"]])
    with pytest.raises(UsageError, match="found 2 documents; expected at least 3"):
        lt.Longtail("pfastrexml").fit(two)
    assert len(fit("fastxml", two).predict(["red apple"], 2)[0]) == 2  # has no propensities
    with pytest.raises(ConfigError, match="solver: found newton with the logistic loss"):
        lt.Longtail("dismec", ranker={"loss": "logistic"})


def test_settings_of_dismec_beside_a_network_give_way_to_those_asked_for():
    plain = configure("cascadexml", None, {"cascade": {"classifier": "dismec"}})
    assert (plain.tree.kind, plain.ranker.solver, plain.ranker.prune, plain.ranker.trees) == (
        "flat",
        "newton",
        0.01,
        1,
    )
    asked = configure(
        "cascadexml", None, {"cascade": {"classifier": "dismec"}, "ranker": {"prune": 0.05}}
    )
    assert (asked.ranker.solver, asked.ranker.prune) == ("newton", 0.05)


def test_weights_of_one_vs_all_are_packed_a_batch_at_a_time(data, monkeypatch, tmp_path):
    monkeypatch.setattr("longtail.rankers.one_vs_all.BATCH", 64)
    fit("dismec", data[0]).save(tmp_path / "m")
    (chunks,) = load_model(tmp_path / "m").rankers[0].levels
    assert chunks.n_chunks == -(-data[0].n_labels // 64)
