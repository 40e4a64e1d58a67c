"""eXtremeText: training on planted topics, probabilities, threads, rounds, storage, and odd
documents.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest
from scipy import sparse, special

from longtail import reporting, store
from longtail.config import ExtremeText as Settings
from longtail.config import Search
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import ConfigError, LongtailError, ModelFolderError, UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.methods import configure
from longtail.methods.registry import ranker_family
from longtail.rankers import extremetext
from longtail.rankers.base import TrainingPoints
from longtail.rankers.extremetext import Trainer
from longtail.search.beam import shortlist
from longtail.steps.inputs import DOCUMENTS
from longtail.steps.run import Run
from longtail.steps.work import Work
from longtail.store import Stages
from longtail.store.writing import write_folder

TOPICS = 12
WORDS = 20
NOISE = 60
SETTINGS = {"dimensions": 24, "epochs": 12, "rate": 0.5, "penalty": 0.001}
SEARCH = Search(score="sigmoid", exact=True)
FAMILY = ranker_family("extremetext")


def planted(n=300, dense=0, seed=0):
    """Documents of 3 of the 20 words of each of their topics under 6 words of noise; labels are
    topics, some two.
    """
    random = np.random.default_rng(seed)
    y = np.zeros((n, TOPICS), np.float32)
    y[np.arange(n), random.integers(0, TOPICS, n)] = 1
    y[random.random(n) < 0.3, 0] = 1
    x = np.zeros((n, TOPICS * WORDS + NOISE), np.float32)
    for row in range(n):
        for topic in np.flatnonzero(y[row]):
            x[row, topic * WORDS + random.choice(WORDS, 3, replace=False)] = 1
        x[row, TOPICS * WORDS + random.choice(NOISE, 6, replace=False)] = 0.5
    block = random.normal(size=(n, dense)) * 0.1 if dense else None
    return Features.of(sparse.csr_array(x), block), sparse.csr_array(y)


def points_of(features, labels):
    ids = Labels.of(map(str, range(labels.shape[1])))
    return TrainingPoints(Dataset(labels, ids, features=features.sparse), features)


def fit(features, labels, stages=None, tree=None, weights="float32", **settings):
    groups = {
        "extremetext": {**SETTINGS, **settings},
        "tree": {"leaf_size": 3} | (tree or {}),
        "ranker": {"weights": weights},
    }
    config = configure("extremetext", None, groups)
    run = Run(config, Work.begin(stages, config, {DOCUMENTS: "documents"}))
    points = points_of(features, labels)
    trees = FAMILY.label_trees(points, run)
    (ranker,) = FAMILY.fit(points._replace(trees=trees), run)
    return ranker


@pytest.fixture(scope="module")
def data():
    return planted(dense=2)


@pytest.fixture(scope="module")
def model(data):
    with pool.threads(1):
        return fit(*data)


@pytest.fixture(scope="module")
def queries():
    """New documents; number 3 is empty but for its dense block, number 4 altogether."""
    features, labels = planted(n=60, dense=2, seed=1)
    rows = features.sparse.tolil()
    rows[3:5] = 0
    features.dense[4] = 0
    return Features.of(rows.tocsr(), features.dense), labels


def precision(ranker, features, labels):
    """P@1."""
    best = ranker.search(features, SEARCH, 1).indices
    return labels.toarray()[np.arange(len(features)), best].mean()


def probabilities(ranker, features):
    """(n, nodes) of each level by numpy, from the vectors and the weights of the nodes."""
    x = np.hstack([features.dense, features.sparse.toarray()]).astype(np.float64)
    totals = np.abs(x).sum(axis=1, keepdims=True)
    hidden = np.divide(x, totals, out=np.zeros_like(x), where=totals > 0) @ ranker.vectors
    levels = []
    for level, chunks in enumerate(ranker.levels):
        weights = np.array([chunks.weights(node)[2] for node in range(chunks.n_nodes)])
        conditional = special.expit(hidden @ weights.T)
        if level:
            conditional *= levels[-1][:, ranker.tree.parents(level)]
        levels.append(conditional)
    return levels


class TestTraining:
    def test_beats_the_most_frequent_label(self, model, queries):
        features, labels = queries
        known = np.delete(np.arange(60), [3, 4])
        frequent = labels.toarray()[known].mean(axis=0).max()
        assert precision(model, features.take(known), labels[known]) > 0.9 > 2 * frequent

    def test_one_thread_gives_the_same_numbers(self, data, model):
        with pool.threads(1):
            other = fit(*data)
        assert other.threads == model.threads == 1
        assert other.vectors.tobytes() == model.vectors.tobytes()
        for level, expected in zip(other.levels, model.levels, strict=True):
            assert level.level.dense.tobytes() == expected.level.dense.tobytes()

    @pytest.mark.parametrize("change", [{"rate": 0.25}, {"penalty": 0.1}, {"epochs": 11}])
    def test_settings_have_an_effect(self, data, model, change):
        with pool.threads(1):
            assert fit(*data, **change).vectors.tobytes() != model.vectors.tobytes()

    def test_a_penalty_keeps_nodes_small(self, data, model):
        norms = [
            np.linalg.norm(ranker.levels[-1].level.dense)
            for ranker in (fit(*data, penalty=0.1), model)
        ]
        assert norms[0] < 0.7 * norms[1]

    def test_several_threads_rank_as_well(self, data, queries, monkeypatch):
        monkeypatch.setattr(extremetext, "_BLOCK", 16)
        known = np.delete(np.arange(60), [3, 4])
        with pool.threads(3):
            ranker = fit(*data)
        assert ranker.threads == 3
        assert precision(ranker, queries[0].take(known), queries[1][known]) > 0.9
        (row,) = [
            value
            for name, value in FAMILY.card_rows([ranker], configure("extremetext")).items()
            if name == "trained on"
        ]
        assert row.startswith("3 threads without locks")

    def test_few_documents_are_one_threads_work(self, data, model):
        with pool.threads(3):
            ranker = fit(*data)
        assert ranker.threads == 1
        assert ranker.vectors.tobytes() == model.vectors.tobytes()
        card = FAMILY.card_rows([ranker], configure("extremetext"))
        assert card["trained on"].startswith("one thread")

    def test_progress_is_reported(self, data, caplog):
        numbers = []

        class Listener:
            def numbers(self, event, step, values):
                numbers.append((event, step, values["loss"]))

            def settings(self, values): ...

            def start_stage(self, name): ...

            def end_stage(self, name): ...

            def complete_stage(self, stage): ...

        with caplog.at_level(logging.INFO, "longtail"), reporting.listening(Listener()):
            fit(*data, epochs=3)
        assert [(event, step) for event, step, _ in numbers] == [("epoch", n) for n in (1, 2, 3)]
        losses = [loss for _, _, loss in numbers]
        assert losses == sorted(losses, reverse=True)
        assert f"epoch 2 of 3: loss {losses[1]:.4f}" in caplog.text

    def test_divergence_is_an_error(self, data):
        with pytest.raises(LongtailError, match=r"extremetext\.rate: training diverged in epoch"):
            fit(*data, rate=1e30, penalty=0.0)

    @pytest.mark.parametrize("dense", [0, 2])
    def test_every_document_is_visited_once_an_epoch(self, dense):
        features, labels = planted(n=40, dense=dense)
        tree = FAMILY.label_trees(
            points_of(features, labels), Run(configure("extremetext"), Work())
        )[0]
        settings = Settings(dimensions=16, epochs=2)
        seen = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(extremetext, "_BLOCK", 7)
            patch.setattr(
                extremetext,
                "train_documents",
                lambda first, last, order, *others: seen.extend(order[first:last]) or 0.0,
            )
            with pool.threads(1):
                for seed, epoch in ((0, 0), (0, 1), (1, 0)):
                    Trainer.of(features, labels, tree, settings, seed).epoch(None, epoch)
        orders = [tuple(seen[first : first + 40]) for first in (0, 40, 80)]
        assert all(sorted(order) == list(range(40)) for order in orders)
        assert len({*orders, tuple(range(40))}) == 4

    def test_the_rate_falls_over_all_epochs(self, data, monkeypatch):
        schedules = []
        monkeypatch.setattr(
            extremetext, "train_documents", lambda *arguments: schedules.append(arguments[-1]) or 0
        )
        fit(*data, epochs=3, rate=0.4, penalty=0.01)
        assert schedules == [(0.4, 0.01, done, 900) for done in (0, 300, 600)]

    @pytest.mark.parametrize(("times", "diverged"), [(1.9, False), (2.1, True)])
    def test_a_loss_far_above_that_of_no_training_is_divergence(
        self, data, monkeypatch, times, diverged
    ):
        features, labels = data
        tree = FAMILY.label_trees(
            points_of(features, labels), Run(configure("extremetext"), Work())
        )[0]
        trainer = Trainer.of(features, labels, tree, Settings(dimensions=8, epochs=3), 0)
        visited = 0  # children of the root and of the positive nodes of each document
        children = [tree.widths[0], *(int(n) for offsets in tree.offsets for n in np.diff(offsets))]
        inner = sparse.hstack(tree.coarsen(labels)).tocsr()[:, : len(children) - 1]
        for row in range(300):
            at = inner.indices[inner.indptr[row] : inner.indptr[row + 1]]
            visited += children[0] + sum(children[node + 1] for node in at)
        no_training = visited / 300 * np.log(2)
        assert trainer.first_loss == pytest.approx(no_training)
        monkeypatch.setattr(
            extremetext, "train_documents", lambda *arguments: times * 300 * no_training
        )
        if diverged:
            with pytest.raises(LongtailError, match=r"diverged in epoch 2, found a loss of"):
                trainer.epoch(None, 1)
        else:
            trainer.epoch(None, 1)

    def test_another_seed_has_other_vectors(self, data):
        features, labels = data
        tree = FAMILY.label_trees(
            points_of(features, labels), Run(configure("extremetext"), Work())
        )[0]
        settings = Settings(dimensions=20, epochs=1)
        first, second = (
            Trainer.of(features, labels, tree, settings, seed).initial()["vectors"]
            for seed in (0, 1)
        )
        assert first.shape == (302, 32)
        assert not first[:, 20:].any()
        assert np.abs(first).max() == pytest.approx(1 / 20, rel=1e-2)
        assert abs(first[:, :20].mean()) < 2e-3
        assert (first[:, :20] != second[:, :20]).all()


class TestSearch:
    def test_scores_are_the_probabilities_of_paths(self, model, queries):
        expected = probabilities(model, queries[0])[-1]
        result = model.search(queries[0], SEARCH, TOPICS).toarray()
        np.testing.assert_allclose(result[:, model.tree.order], expected, rtol=1e-4)

    def test_no_node_is_more_probable_than_its_parent(self, model, queries):
        levels = [
            shortlist(
                model.level_features(queries[0]),
                model.tree,
                model.levels[: level + 1],
                beam_size=TOPICS,
                score="sigmoid",
                bias=model.bias,
            ).toarray()
            for level in range(model.tree.n_levels)
        ]
        assert len(levels) == 3
        for level in (1, 2):
            above = levels[level - 1][:, model.tree.parents(level)]
            assert (levels[level] <= above).all()
            assert (levels[level] > 0).all()
        np.testing.assert_allclose(levels[0], probabilities(model, queries[0])[0], rtol=1e-4)

    def test_a_document_without_features_scores_halves(self, model, queries):
        scores = model.search(queries[0].take(slice(4, 5)), SEARCH, TOPICS)
        np.testing.assert_allclose(scores.data, 0.5**model.tree.n_levels)
        assert scores.nnz == TOPICS

    def test_other_features_are_refused(self, model, queries):
        fewer = Features.of(queries[0].sparse[:, :50], queries[0].dense)
        with pytest.raises(UsageError, match=r"found \(50, 2\) sparse and dense columns"):
            model.search(fewer, SEARCH, 3)
        assert model.check_widths(*queries[0].widths)
        assert not model.check_widths(50, 2)

    @pytest.mark.parametrize("last_level", ["path", "margin"])
    def test_an_explanation_adds_up(self, model, queries, last_level):
        search = Search(score="sigmoid", last_level=last_level)
        row = queries[0].take(slice(0, 1))
        scores = model.search(row, search, TOPICS).toarray()[0]
        for label in range(TOPICS):
            explanation = model.explain(row, label, search, 0)
            if last_level == "path" or scores[label]:
                assert explanation.score == pytest.approx(scores[label], rel=1e-4)
            assert len(explanation.nodes) == model.tree.n_levels
            for node in explanation.nodes:
                total = node.values @ node.weights + node.dense + node.bias
                assert total == pytest.approx(node.margin, abs=1e-5)
                assert node.bias == 0
                assert label in node.labels
            assert explanation.nodes[-1].labels.tolist() == [label]
            assert any(node.dense for node in explanation.nodes)


class TestRounds:
    def test_an_interrupted_training_goes_on_with_the_same_bytes(
        self, data, model, tmp_path, monkeypatch, caplog
    ):
        real = extremetext.train_documents
        calls = []

        def stops_in_the_fifth_epoch(*arguments):
            calls.append(1)
            if len(calls) == 5:
                raise KeyboardInterrupt
            return real(*arguments)

        with monkeypatch.context() as patch, Stages(tmp_path / "stages") as stages:
            patch.setattr(extremetext, "train_documents", stops_in_the_fifth_epoch)
            with pytest.raises(KeyboardInterrupt), pool.threads(1):
                fit(*data, stages=stages)
        counted = []
        monkeypatch.setattr(
            extremetext, "train_documents", lambda *args: counted.append(1) or real(*args)
        )
        with (
            caplog.at_level(logging.INFO, "longtail"),
            pool.threads(1),
            Stages(tmp_path / "stages") as stages,
        ):
            resumed = fit(*data, stages=stages)
        assert len(counted) == 12 - 4
        assert "stage words-and-nodes: taken over from the interrupted run" in caplog.text
        assert resumed.vectors.tobytes() == model.vectors.tobytes()
        for level, expected in zip(resumed.levels, model.levels, strict=True):
            assert level.level.dense.tobytes() == expected.level.dense.tobytes()

    def test_a_whole_training_is_taken_over(self, data, model, tmp_path, monkeypatch):
        with pool.threads(1):
            for _ in range(2):
                with Stages(tmp_path / "stages") as stages:
                    ranker = fit(*data, stages=stages)
                monkeypatch.setattr(extremetext, "train_documents", None)
        assert ranker.vectors.tobytes() == model.vectors.tobytes()

    def test_other_settings_begin_anew(self, data, tmp_path):
        with pool.threads(1):
            expected = fit(*data, rate=0.3)
            for rate in (0.5, 0.3):
                with Stages(tmp_path / "stages") as stages:
                    ranker = fit(*data, stages=stages, rate=rate)
        assert ranker.vectors.tobytes() == expected.vectors.tobytes()

    def test_the_most_threads_of_any_epoch_are_noted(self, data):
        features, labels = data
        tree = FAMILY.label_trees(
            points_of(features, labels), Run(configure("extremetext"), Work())
        )[0]
        trainer = Trainer.of(features, labels, tree, Settings(dimensions=8, epochs=3), 0)
        arrays = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(extremetext, "_BLOCK", 100)
            for number, threads in enumerate((1, 2, 1)):
                with pool.threads(threads):
                    arrays = trainer.epoch(arrays, number)
        assert arrays["threads"].tolist() == [2]


def written(ranker, folder):
    with write_folder(folder) as writer:
        ranker.write(writer, 0)
    return store.open_folder(folder)


class TestStorage:
    @pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
    def test_loaded_it_predicts_the_same(self, data, queries, tmp_path, weights):
        ranker = fit(*data, weights=weights)
        config = configure("extremetext")
        (loaded,) = FAMILY.load(written(ranker, tmp_path / "m"), config, None)
        ours, theirs = (one.search(queries[0], SEARCH, 5) for one in (ranker, loaded))
        assert ours.indices.tobytes() == theirs.indices.tobytes()
        assert ours.data.tobytes() == theirs.data.tobytes()
        assert loaded.threads == ranker.threads
        assert loaded.dense_width == 2
        expected = {"float32": np.float32}.get(weights, np.float16)
        assert loaded.vectors.dtype == ranker.vectors.dtype == expected

    def test_as_float16_scores_are_nearly_the_same(self, data, queries, model):
        ranker = fit(*data, weights="float16")
        ours, theirs = (one.search(queries[0], SEARCH, TOPICS).toarray() for one in (ranker, model))
        np.testing.assert_allclose(ours, theirs, atol=0.01)

    def test_a_folder_without_it_has_none(self, tmp_path):
        with write_folder(tmp_path / "m") as writer:
            writer.write_json("x.json", {})
        folder = store.open_folder(tmp_path / "m")
        assert list(FAMILY.load(folder, configure("extremetext"), None)) == []

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda a: a.pop("sizes"), "found the arrays vectors"),
            (lambda a: a.update(more=np.zeros(1)), "found the arrays more, sizes, vectors"),
            (lambda a: a.update(vectors=a["vectors"][0]), "found vectors as float32"),
            (lambda a: a.update(vectors=a["vectors"].astype(np.int32)), "found vectors as int32"),
            (lambda a: a.update(vectors=a["vectors"] * np.float32(np.nan)), "not finite"),
            (lambda a: a.update(vectors=a["vectors"][:, :9]), "nodes that read 9 dimensions"),
            (lambda a: a.update(sizes=np.array([2.0, 1.0])), "two sizes as int64"),
            (lambda a: a.update(sizes=np.array([2])), "two sizes as int64"),
            (lambda a: a.update(sizes=np.array([-1, 1])), "found sizes of"),
            (lambda a: a.update(sizes=np.array([9999, 1])), "found sizes of"),
            (lambda a: a.update(sizes=np.array([2, 0])), "found sizes of"),
        ],
    )
    def test_damaged_arrays_are_refused(self, model, tmp_path, change, message):
        folder = written(model, tmp_path / "m")
        with write_folder(tmp_path / "damaged") as writer:
            for name in folder.files:
                arrays = {key: np.array(array) for key, array in folder.arrays(name).items()}
                if name.startswith("word-vectors"):
                    change(arrays)
                writer.write_arrays(name, arrays)
        with pytest.raises(ModelFolderError, match=message):
            list(
                FAMILY.load(store.open_folder(tmp_path / "damaged"), configure("extremetext"), None)
            )


class TestShapes:
    def test_without_nodes_above_the_labels(self, data, queries):
        ranker = fit(*data, tree={"kind": "flat"})
        assert ranker.tree.n_levels == 1
        known = np.delete(np.arange(60), [3, 4])
        assert precision(ranker, queries[0].take(known), queries[1][known]) > 0.9

    def test_labels_by_less_than_one(self, data, queries):
        features, labels = data
        half = sparse.csr_array(labels * np.float32(0.5))
        plain, soft = (fit(features, matrix, epochs=30) for matrix in (labels, half))
        documents = queries[0].take(slice(5, 60))
        best = [one.search(documents, SEARCH, 1).data.mean() for one in (plain, soft)]
        assert best[1] < 0.7 * best[0]

    def test_labels_by_more_than_one_count_as_one(self, data, model):
        features, labels = data
        with pool.threads(1):
            ranker = fit(features, sparse.csr_array(labels * np.float32(3)))
        assert ranker.vectors.tobytes() == model.vectors.tobytes()

    def test_a_label_without_documents_is_improbable(self, data, queries):
        features, labels = data
        wider = sparse.csr_array(sparse.hstack([labels, sparse.csr_array((300, 1))], format="csr"))
        ranker = fit(features, wider.astype(np.float32))
        scores = ranker.search(queries[0].take(slice(5, 60)), SEARCH, TOPICS + 1).toarray()
        assert scores[:, TOPICS].mean() < scores.mean(axis=0)[:TOPICS].min()


class TestRefusals:
    @pytest.mark.parametrize("score", ["hinge-2", "hinge-3"])
    def test_scores_of_hinges(self, data, score):
        config = configure("extremetext", None, {"search": {"score": score}})
        documents = points_of(*data).documents
        message = rf"search\.score: found {score} with extremetext.*expected sigmoid"
        with pytest.raises(ConfigError, match=message):
            FAMILY.check(config, documents, None)
        FAMILY.check(configure("extremetext"), documents, None)

    def test_label_features_of_several_trees(self):
        with pytest.raises(ConfigError, match=r"tree_kinds: extremetext does not read"):
            configure("extremetext", None, {"label_features": {"tree_kinds": ["output"]}})

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"dimensions": 0}, "dimensions"),
            ({"epochs": 0}, "epochs"),
            ({"rate": 0.0}, "rate"),
            ({"rate": -1.0}, "rate"),
            ({"penalty": -0.1}, "penalty"),
            ({"rate": 2.0, "penalty": 0.5}, "penalty: found 0.5 with a rate of 2; expected less"),
            ({"dim": 10}, "dim"),
        ],
    )
    def test_wrong_settings(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            configure("extremetext", None, {"extremetext": settings})

    def test_settings_of_the_solvers(self):
        with pytest.raises(ConfigError, match=r"ranker\.prune: extremetext does not read"):
            configure("extremetext", None, {"ranker": {"prune": 0.2}})
