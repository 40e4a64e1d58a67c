"""From documents to a model and back, as a person does it: train, predict, evaluate, explain, info."""

from __future__ import annotations

import json
import re
from math import prod

import numpy as np
import pytest

import longtail as lt
from folder_contents import contents
from longtail import pipeline
from longtail.errors import DataError, UsageError
from longtail.forecast.memory import MemoryLimit
from longtail.kernels import pool
from longtail.methods import configure
from longtail.models import model_folder
from longtail.models.model_folder import load_model
from longtail.rankers.level_problems import LevelProblems
from small_methods import WITH_LABEL_TREE

TEXT = "A small editor for sound files, with a window for GNOME"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    train, test = lt.sample()
    lt.write(train.take(np.arange(600)), folder / "train.jsonl")
    lt.write(test.take(np.arange(200)), folder / "test.jsonl")
    return folder


@pytest.fixture(scope="module")
def data(files):
    train = lt.read(files / "train.jsonl")
    return train, lt.read(files / "test.jsonl", labels=train.labels, unknown="drop")


@pytest.fixture(scope="module")
def fitted(data):
    return lt.Longtail("xr-linear").fit(data[0])


@pytest.fixture(scope="module")
def model(fitted, files):
    fitted.save(files / "model")
    return files / "model"


class TestCommands:
    def test_train_writes_a_model_its_log_and_nothing_else(self, run, files, tmp_path, caplog):
        done = run(
            "train",
            files / "train.jsonl",
            "-o",
            tmp_path / "new" / "model",
            "--seed",
            "3",
            "-j",
            "2",
        )
        assert (done.code, done.out) == (0, "")
        for word in (
            "forecast: ",
            "features: 588 documents",
            "tree: ",
            "level 1 of ",
            "held out: P@1",
            "written",
        ):
            assert word in caplog.text
        assert {path.name for path in (tmp_path / "new").iterdir()} == {"model", "model.run.jsonl"}
        lines = (tmp_path / "new" / "model.run.jsonl").read_text().splitlines()
        expected, *stages = (json.loads(line) for line in lines)
        assert (expected["event"], expected["gpu_memory_mb"]) == ("forecast", 0)
        assert {stage["name"] for stage in stages} <= set(expected["stages"])
        assert max(expected["stages"].values()) == expected["memory_mb"]
        trained = load_model(tmp_path / "new" / "model")
        assert (trained.config.seed, trained.facts.documents, trained.facts.held_out) == (
            3,
            588,
            12,
        )

    def test_predict(self, run, files, model, fitted, data):
        done = run("predict", model, files / "test.jsonl", "-k", "3")
        assert done.code == 0
        lines = [json.loads(line) for line in done.out.splitlines()]
        assert [line["id"] for line in lines] == list(data[1].ids)
        expected = fitted.predict(data[1], 3)
        for row, line in enumerate(lines):
            assert line["labels"] == [label.id for label in expected[row]]
            assert line["scores"] == pytest.approx([label.score for label in expected[row]])
            assert sorted(line["scores"], reverse=True) == line["scores"]

    def test_predict_counts_the_documents_that_it_cannot_read(self, run, model, tmp_path, caplog):
        texts = ["a sound editor", "猫は屋根の上で寝ている", "?", "qqqq", "window manager"]
        file = tmp_path / "new.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        done = run("-q", "predict", model, file, "-k", "3")
        assert (
            done.err
            == "3 of 5 documents hold nothing that the model knows, and have the same labels\n"
        )
        assert done.out.count("\n") == 5
        file.write_text(json.dumps({"text": "a sound editor"}) + "\n")
        assert run("-q", "predict", model, file).err == ""
        assert caplog.text == ""

    def test_threshold_leaves_out_what_is_unlikely(self, run, files, model):
        every = run("predict", model, files / "test.jsonl", "-k", "5").out.splitlines()
        likely = run(
            "predict", model, files / "test.jsonl", "-k", "5", "-t", "0.5"
        ).out.splitlines()
        for all_, some in zip(map(json.loads, every), map(json.loads, likely), strict=True):
            assert some["scores"] == [score for score in all_["scores"] if score >= 0.5]
            assert some["labels"] == all_["labels"][: len(some["scores"])]

    def test_predict_from_standard_input_to_a_file(self, run, model, tmp_path):
        stdin = json.dumps({"id": "mine", "text": TEXT}).encode()
        done = run("predict", model, "-", "-k", "2", "-o", tmp_path / "out.jsonl", stdin=stdin)
        assert (done.code, done.out) == (0, "")
        line = json.loads((tmp_path / "out.jsonl").read_text())
        assert line["id"] == "mine"
        assert len(line["labels"]) == 2

    def test_evaluate_equals_evaluating_its_predictions(self, run, files, model, tmp_path):
        ours = run("evaluate", model, files / "test.jsonl", "--json").json()
        run("predict", model, files / "test.jsonl", "-k", "10", "-o", tmp_path / "out.jsonl")
        train = ["--train", str(files / "train.jsonl")]
        theirs = run(
            "evaluate",
            "--predictions",
            tmp_path / "out.jsonl",
            files / "test.jsonl",
            *train,
            "--json",
        ).json()
        for name in ("P@1", "P@5", "nDCG@3", "R@5"):
            assert ours["evaluation"]["metrics"][name] == pytest.approx(
                theirs["evaluation"]["metrics"][name]
            )
        assert ours["evaluation"]["metrics"]["P@1"] > 0.5
        assert (
            sum(
                part["count"] if isinstance(part, dict) else part[2] for part in ours["reliability"]
            )
            == 2000
        )

    def test_evaluate_writes_a_report(self, run, files, model, tmp_path):
        done = run(
            "evaluate",
            model,
            files / "test.jsonl",
            "--bootstrap",
            "50",
            "--report",
            tmp_path / "r.html",
        )
        assert done.code == 0
        assert "P " in done.out
        assert "<svg" in (tmp_path / "r.html").read_text()

    @pytest.mark.parametrize("paths", [["only"], ["a", "b", "c"]])
    def test_evaluate_needs_a_model_and_a_test(self, fails, paths):
        assert "expected MODEL TEST, or --predictions FILE TEST" in fails(2, "evaluate", *paths)

    def test_explain_adds_up(self, run, model):
        found = run("explain", model, TEXT, "--json").json()
        for step in found["steps"]:
            parts = sum(part["contribution"] for part in step["contributions"])
            assert parts + step["bias"] + step["dense"] == pytest.approx(step["margin"])
            assert step["score"] == pytest.approx(np.exp(-(max(0, 1 - step["margin"]) ** 3)))
        assert prod(step["score"] for step in found["steps"]) == pytest.approx(found["path_score"])
        best = json.loads(
            run("predict", model, "-", "-k", "1", stdin=json.dumps({"text": TEXT}).encode()).out
        )
        assert (best["labels"][0], best["scores"][0]) == (
            found["label"],
            pytest.approx(found["probability"], abs=1e-4),
        )

    def test_explain_by_name_and_for_people(self, run, model, fails):
        done = run("explain", model, TEXT, "--label", "role::program")
        assert done.code == 0
        assert "role::program" in done.out
        assert "editor" in done.out
        assert "nearest" in (
            message := fails(2, "explain", model, TEXT, "--label", "role::progam")
        ) or ("role::program" in message)

    def test_info_shows_the_card(self, run, model):
        done = run("info", model)
        assert "verified" in done.out
        assert "# xr-linear: 304 labels" in done.out
        assert "Measured on the documents held out" in done.out

    def test_given_tree(self, run, files, tmp_path):
        train, _ = lt.sample()
        pairs = [
            f"{label}\t{label.partition('::')[0]}" for label in train.labels.ids if "::" in label
        ]
        (tmp_path / "tree.tsv").write_text("\n".join(pairs) + "\n")
        done = run(
            "train", files / "train.jsonl", "-o", tmp_path / "m", "--tree", tmp_path / "tree.tsv"
        )
        assert done.code == 0, done.err
        tree = load_model(tmp_path / "m").rankers[0].tree
        assert tree.widths[0] == len(
            {label.partition("::")[0] for label in load_model(tmp_path / "m").labels.ids}
        )

    def test_second_training_into_the_same_folder_replaces_it(self, run, files, tmp_path):
        for seed in ("1", "2"):
            assert (
                run(
                    "train", files / "train.jsonl", "-o", tmp_path / "m", "--seed", seed, "--force"
                ).code
                == 0
            )
        assert load_model(tmp_path / "m").config.seed == 2

    def test_a_model_that_does_not_open_never_replaces_one_that_does(
        self, run, fails, files, tmp_path, monkeypatch
    ):
        run("train", files / "test.jsonl", "-o", tmp_path / "m", "-j", "1")
        before = contents(tmp_path / "m")
        with monkeypatch.context() as patch:
            patch.setattr(
                model_folder,
                "write_labels",
                lambda labels, file: file.write_bytes(b'{"id": ""}\n'),
            )
            said = fails(
                1, "train", files / "train.jsonl", "-o", tmp_path / "m", "-j", "1", "--force"
            )
        assert "m: the model was trained but cannot be opened (m" in said
        assert "m/labels.jsonl:1: an empty id;" in said
        assert "finished stages are kept" in said
        assert contents(tmp_path / "m") == before
        assert (tmp_path / "m.stages").is_dir()
        run("train", files / "train.jsonl", "-o", tmp_path / "m", "-j", "1", "--resume")
        assert contents(tmp_path / "m") != before
        assert not (tmp_path / "m.stages").exists()


class TestSameBytes:
    @pytest.mark.parametrize("method", WITH_LABEL_TREE)
    def test_for_any_number_of_threads(self, data, tmp_path, method):
        for threads in (1, 3):
            lt.Longtail(method, threads=threads).fit(data[0]).save(tmp_path / str(threads))
        assert contents(tmp_path / "1") == contents(tmp_path / "3")

    def test_after_loading(self, fitted, model, data, tmp_path):
        loaded = lt.load(model)
        loaded.save(tmp_path / "again")
        assert contents(tmp_path / "again") == contents(model)
        ours, theirs = fitted.predict(data[1]).matrix, loaded.predict(data[1]).matrix
        assert (ours.indices == theirs.indices).all()
        assert (ours.data == theirs.data).all()

    def test_whatever_the_batch(self, fitted, data):
        whole = fitted.predict(data[1], 5)
        for row in range(0, 200, 17):
            assert fitted.predict([data[1].texts[row]], 5)[0] == whole[row]


class TestResume:
    def test_goes_on_where_it_stopped(self, run, files, model, tmp_path, monkeypatch, caplog):
        real, calls = LevelProblems.solve_all, []

        def stops_at_the_second(*arguments):
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(*arguments)

        monkeypatch.setattr(LevelProblems, "solve_all", stops_at_the_second)
        assert run("train", files / "train.jsonl", "-o", tmp_path / "m").code == 130
        assert not (tmp_path / "m").exists()
        monkeypatch.setattr(LevelProblems, "solve_all", real)
        done = run("train", files / "train.jsonl", "-o", tmp_path / "m", "--resume")
        assert done.code == 0
        assert caplog.text.count("taken over") == 3  # features, tree and the first level
        assert contents(tmp_path / "m") == contents(model)
        assert {path.name for path in tmp_path.iterdir()} == {"m", "m.run.jsonl"}

    @pytest.mark.parametrize(
        ("change", "kept"),
        [
            (["--seed", "5"], []),  # other documents are held out
            (["--set", "tree.branching=4"], ["features"]),
            (["--set", "label_features.kind=joint"], ["features"]),
            (["--set", 'label_features.tree_kinds=["output"]'], ["features"]),
            (["--set", "ranker.cost_positive=2"], ["features", "tree-0"]),
            (["--set", "search.beam_size=3"], ["features", "tree-0", "ranker-0-0", "ranker-0-1"]),
        ],
    )
    def test_what_does_not_depend_on_a_changed_setting_is_kept(
        self, run, files, tmp_path, monkeypatch, caplog, change, kept
    ):
        with monkeypatch.context() as patch:
            patch.setattr(
                pipeline,
                "calibrate",
                lambda *_, **options: (_ for _ in ()).throw(KeyboardInterrupt),
            )
            assert run("train", files / "train.jsonl", "-o", tmp_path / "m").code == 130
        done = run("train", files / "train.jsonl", "-o", tmp_path / "m", "--resume", *change)
        assert done.code == 0
        assert re.findall(r"stage (\S+): taken over", caplog.text) == kept
        again = re.findall(r"stage (\S+) is made again: its input has changed", caplog.text)
        assert kept + again == ["features", "tree-0", "ranker-0-0", "ranker-0-1"]
        assert run("train", files / "train.jsonl", "-o", tmp_path / "alone", *change).code == 0
        assert contents(tmp_path / "m") == contents(tmp_path / "alone")

    def test_not_unless_asked(self, run, files, tmp_path, monkeypatch, caplog):
        with monkeypatch.context() as patch:
            patch.setattr(
                pipeline,
                "calibrate",
                lambda *_, **options: (_ for _ in ()).throw(KeyboardInterrupt),
            )
            run("train", files / "train.jsonl", "-o", tmp_path / "m")
        assert "let go" not in caplog.text
        assert run("train", files / "train.jsonl", "-o", tmp_path / "m").code == 0
        assert "taken over" not in caplog.text
        assert "4 stages of an interrupted run are let go, as --resume was not given" in caplog.text


class TestFeatures:
    def test_sparse_in_place_of_text(self, data):
        train, test = data
        vectoriser, rows = lt.TfIdf.fit_transform(train.texts, configure("xr-linear").tfidf)
        ours = lt.Longtail("xr-linear", calibration={"method": "none"}).fit(train)
        theirs = lt.Longtail("xr-linear", calibration={"method": "none"}).fit(
            train.with_features(rows)
        )
        given = test.with_features(vectoriser.transform(test.texts))
        assert (ours.predict(test).matrix != theirs.predict(given).matrix).nnz == 0
        with pytest.raises(UsageError, match="ready-made features"):
            theirs.predict(["text"])
        with pytest.raises(DataError, match="columns of sparse features"):
            theirs.predict(test.with_features(rows[: len(test), :-1]))

    def test_dense_beside_text(self, data, tmp_path):
        train, test = data
        hint = np.zeros((len(train), 304), np.float32)
        hint[:, :] = train.label_matrix.toarray()
        told = lt.Longtail("xr-linear").fit(train.with_features(hint))
        told.save(tmp_path / "m")
        truth = np.ascontiguousarray(test.label_matrix.toarray(), dtype=np.float32)
        better = lt.load(tmp_path / "m").evaluate(test.with_features(truth))
        assert better["P@1"] > 0.95 > lt.Longtail("xr-linear").fit(train).evaluate(test)["P@1"]

    def test_dense_file_on_the_command_line(self, run, files, data, tmp_path):
        rng = np.random.default_rng(0)
        np.save(tmp_path / "train.npy", rng.random((len(data[0]), 7)))
        np.save(tmp_path / "test.npy", rng.random((len(data[1]), 7)))
        done = run(
            "train", files / "train.jsonl", "-o", tmp_path / "m", "--features", tmp_path / "train.npy", "--set",
            "calibration.method=none",
        )  # fmt: skip
        assert done.code == 0, done.err
        assert load_model(tmp_path / "m").facts.dense_width == 7
        done = run(
            "evaluate", tmp_path / "m", files / "test.jsonl", "--features", tmp_path / "test.npy"
        )
        assert done.code == 0, done.err

    @pytest.mark.parametrize("kind", ["text", "pifa+text"])
    def test_label_texts(self, data, kind):
        found = (
            lt.Longtail("xr-linear", label_features={"kind": kind}).fit(data[0]).evaluate(data[1])
        )
        assert found["P@1"] > 0.5


class TestPredict:
    def test_excluded_labels_never_come_out(self, fitted, data):
        test = data[1].take(np.arange(20))
        first = fitted.predict(test, 3)
        banned = [[label.id for label in first[row][:2]] for row in range(20)]
        second = fitted.predict(test, 3, exclude=banned)
        for row in range(20):
            assert not {label.id for label in second[row]} & set(banned[row])
            assert second[row][0].id == first[row][2].id
        with pytest.raises(UsageError, match="expected one a document"):
            fitted.predict(test, exclude=[[]])

    def test_results_are_matrices_that_scipy_can_work_with(self, fitted, data):
        for matrix in (
            fitted.predict(data[1], 3).matrix,
            fitted.model.vectoriser.transform(data[1].texts),
        ):
            assert (matrix.tocoo().toarray() == matrix.toarray()).all()
            assert (
                matrix.sorted_indices().max(axis=1).toarray().ravel()
                == matrix.toarray().max(axis=1)
            ).all()

    def test_wide_beam_is_exhaustive(self, fitted, data):
        ranked = fitted.predict(data[1], 304, beam_size=304).matrix
        assert ranked.nnz == 200 * 304
        assert (np.diff(ranked.indptr) == 304).all()

    @pytest.mark.parametrize(
        ("options", "message"), [({"k": 0}, "at least 1"), ({"beam_size": 0}, "at least 1")]
    )
    def test_bad_numbers(self, fitted, options, message):
        with pytest.raises(UsageError, match=message):
            fitted.predict(["a"], **options)

    def test_one_string_is_not_a_list(self, fitted):
        with pytest.raises(UsageError, match="expected a list of texts"):
            fitted.predict("text")

    def test_without_a_model(self):
        with pytest.raises(UsageError, match="no model yet"):
            lt.Longtail().predict(["a"])


class TestUnusualData:
    """Whatever the data, there is a defined result."""

    def fit(self, texts, labels, method="xr-linear", **settings):
        return lt.Longtail(method, **settings).fit(lt.Dataset.of(texts, labels))

    def test_no_document(self):
        with pytest.raises(DataError, match="no documents"):
            lt.Longtail().fit(lt.Dataset.of(["a"], [["b"]]).take(np.arange(0)))

    def test_no_labels(self):
        with pytest.raises(DataError, match="without labels"):
            self.fit(["a text", "another"], [[], []])

    def test_no_words(self):
        with pytest.raises(DataError, match="n-gram"):
            self.fit([".", "!"], [["a"], ["b"]])

    @pytest.mark.parametrize("method", WITH_LABEL_TREE)
    def test_one_label(self, method):
        model = self.fit(
            ["red apple", "green pear", "blue sky"], [["fruit"], ["fruit"], []], method
        )
        assert [label.id for label in model.predict(["red pear"], 5)[0]] == ["fruit"]

    @pytest.mark.parametrize("method", WITH_LABEL_TREE)
    def test_a_label_in_every_document(self, method):
        texts = [f"word{n % 4} text{n % 3}" for n in range(40)]
        model = self.fit(texts, [["all", f"label{n % 4}"] for n in range(40)], method)
        found = model.predict(["word2 text1"], 2)[0]
        assert {label.id for label in found} == {"all", "label2"}

    @pytest.mark.parametrize("method", WITH_LABEL_TREE)
    def test_a_document_without_known_words(self, fitted, method):
        model = self.fit(["red apple", "green pear"] * 9, [["a"], ["b"]] * 9, method)
        found = model.predict(["zzz", ""], 2)
        assert [len(found[row]) for row in range(2)] == [2, 2]
        assert all(0 <= label.score <= 1 for row in range(2) for label in found[row])

    @pytest.mark.parametrize("method", WITH_LABEL_TREE)
    def test_more_children_than_labels(self, method):
        settings = {"tree": {"branching": 64, "leaf_size": 1}}
        model = self.fit(
            [f"word{n}" for n in range(5)], [[f"l{n}"] for n in range(5)], method, **settings
        )
        assert [model.predict([f"word{n}"], 1)[0][0].id for n in range(5)] == [
            f"l{n}" for n in range(5)
        ]

    @pytest.mark.parametrize("method", WITH_LABEL_TREE)
    def test_k_larger_than_the_number_of_labels(self, method):
        model = self.fit(["red apple", "green pear"] * 3, [["a"], ["b"]] * 3, method)
        assert {label.id for label in model.predict(["red"], 99)[0]} == {"a", "b"}

    def test_labels_without_documents(self):
        data = lt.Dataset.of(
            ["red apple", "green pear"] * 5, [["a"], ["b"]] * 5, ["never", "a", "b", "nor this"]
        )
        found = lt.Longtail().fit(data).predict(["red apple"], 4)[0]
        assert found[0].id == "a"
        assert {label.id for label in found[2:]} == {"never", "nor this"}

    def test_labels_of_valid_that_train_has_not(self, data):
        valid = lt.Dataset.of(["a small editor"], [["new label"]])
        assert lt.Longtail().fit(data[0], valid=valid).predict(["editor"], 1)[0]

    def test_levels_wider_than_the_labels(self):
        settings = {"tree": {"levels": [2, 50, 900]}}
        model = self.fit([f"word{n}" for n in range(5)], [[f"l{n}"] for n in range(5)], **settings)
        assert model.predict(["word3"], 1)[0][0].id == "l3"

    def test_documents_that_are_all_the_same(self):
        model = self.fit(["same words"] * 6, [["a"], ["b"], ["a"], ["c"], ["a"], ["b"]])
        assert model.predict(["same words"], 1)[0][0].id == "a"


class TestMistakes:
    def test_unknown_method_names_the_nearest(self, fails, files, tmp_path):
        message = fails(
            2, "train", files / "train.jsonl", "-o", tmp_path / "m", "--method", "xr-liner"
        )
        assert "xr-linear" in message

    def test_output_that_is_something_else(self, fails, files, tmp_path, monkeypatch):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.txt").write_text("precious")
        monkeypatch.setattr("longtail.training_run.train", None)  # said before the work, not after
        message = fails(2, "train", files / "train.jsonl", "-o", tmp_path / "mine")
        assert "not a model folder and not empty" in message
        assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"

    def test_predict_with_no_model(self, fails, files, tmp_path):
        fails(4, "predict", tmp_path / "nothing", files / "test.jsonl")

    def test_damaged_model(self, fails, files, model, tmp_path):
        import shutil

        shutil.copytree(model, tmp_path / "m")
        weights = tmp_path / "m" / "ranker-0-0.safetensors"
        raw = bytearray(weights.read_bytes())
        raw[len(raw) // 2] ^= 1
        weights.write_bytes(raw)
        assert "ranker-0-0.safetensors" in fails(4, "predict", tmp_path / "m", files / "test.jsonl")

    def test_not_enough_memory(self, fails, files, tmp_path, monkeypatch):
        monkeypatch.setattr(
            "longtail.forecast.memory.memory_limit", lambda: MemoryLimit(50_000_000, "made")
        )
        message = fails(2, "train", files / "train.jsonl", "-o", tmp_path / "m")
        assert "--ignore-memory" in message

    def test_features_of_another_number_of_documents(self, fails, files, tmp_path):
        np.save(tmp_path / "x.npy", np.ones((3, 2)))
        message = fails(
            3,
            "train",
            files / "train.jsonl",
            "-o",
            tmp_path / "m",
            "--features",
            tmp_path / "x.npy",
        )
        assert "3 rows of features for 600 documents" in message

    @pytest.mark.parametrize(
        ("array", "what"),
        [
            (np.ones(4), "shape"),
            (np.full((600, 1), np.nan), "finite"),
            (np.array([["a"]] * 600), "numbers"),
        ],
    )
    def test_bad_dense_features(self, fails, files, tmp_path, array, what):
        np.save(tmp_path / "x.npy", array)
        message = fails(
            3,
            "train",
            files / "train.jsonl",
            "-o",
            tmp_path / "m",
            "--features",
            tmp_path / "x.npy",
        )
        assert what in message


def test_threads_are_those_asked_for(data, monkeypatch):
    seen = set()
    real = pool.run
    monkeypatch.setattr(
        pool, "run", lambda task, items: seen.add(pool.thread_count()) or real(task, items)
    )
    lt.Longtail(threads=3).fit(data[0].take(np.arange(100)))
    assert seen == {3}
