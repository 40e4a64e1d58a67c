"""XR-Transformer, X-Transformer and linear methods on an encoder's vectors as a person uses them."""

from __future__ import annotations

import json
import logging
import re
import signal
from dataclasses import replace

import numpy as np
import pytest

from folder_contents import contents

pytest.importorskip("torch")
pytest.importorskip("transformers")


import longtail as lt
from longtail.errors import ConfigError, UsageError
from longtail.methods import METHODS
from longtail.networks.recursive import Matcher, Resolution
from tiny_encoder import write_sample

WIDTH = 32
TRAINING = {
    "epochs": 3,
    "batch_size": 16,
    "head_rate": 3e-3,
    "encoder_rate": 1e-3,
    "checkpoint_steps": 5,
}
NETWORKS = ["xr-transformer", "x-transformer"]
FROZEN = [
    ("xr-linear", "cat"),
    ("xr-linear", "dnn"),
    ("parabel", "cat"),
    ("dismec", "cat"),
    ("dismec", "dnn"),
]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("data"), 300, 100, width=WIDTH)


@pytest.fixture(scope="module")
def data(files):
    train = lt.read(files / "train.jsonl")
    return train, lt.read(files / "test.jsonl", labels=train.labels, unknown="drop")


@pytest.fixture(scope="module")
def fit(files, data):
    """Train from Python; ``settings`` are groups on top of those of the tests."""

    def fit(method, documents=None, valid=None, parents=None, **settings):
        groups = {"encoder": {"name": str(files / "encoder"), "max_tokens": 24}}
        if METHODS[method].network:
            groups["training"] = TRAINING
        return lt.Longtail(method, **{**groups, **settings}).fit(
            documents or data[0], valid, parents
        )

    return fit


@pytest.fixture(scope="module")
def models(files, fit):
    """Return the model of a method and kind of features, its folder, and what its training said;
    trained once.
    """
    made = {}
    log = logging.getLogger("longtail")
    level = logging.getLogger("longtail").level

    def of(method, features="cat"):
        name = f"{method}-{features}"
        if name not in made:
            records = []
            handler = logging.Handler()
            handler.emit = lambda record: records.append(record.getMessage())
            log.addHandler(handler)
            log.setLevel(logging.INFO)
            try:
                fitted = fit(method, valid=lt.read(files / "test.jsonl"), features=features)
            finally:
                log.removeHandler(handler)
                log.setLevel(level)
            fitted.save(files / name)
            made[name] = fitted, files / name, records
        return made[name]

    return of


@pytest.fixture
def train_command(files):
    """The command that makes the same model, but for its folder."""

    def of(method, features="cat"):
        sets = []
        if METHODS[method].network:
            sets += [f"training.{name}={value}" for name, value in TRAINING.items()]
        sets += [
            f"encoder.name={files / 'encoder'}",
            "encoder.max_tokens=24",
            f"features={features}",
        ]
        options = [word for setting in sets for word in ("--set", setting)]
        return [
            "train",
            files / "train.jsonl",
            "--method",
            method,
            "--valid",
            files / "test.jsonl",
            *options,
        ]

    return of


def same(ours, theirs):
    return (ours.indices == theirs.indices).all() and (ours.data == theirs.data).all()


class TestCommands:
    def test_train_makes_the_same_bytes(self, run, train_command, models, tmp_path, caplog):
        _, model, _ = models("xr-transformer")
        done = run(*train_command("xr-transformer"), "-o", tmp_path / "new" / "model")
        assert (done.code, done.out) == (0, "")
        assert contents(tmp_path / "new" / "model") == contents(model)
        assert {path.name for path in (tmp_path / "new").iterdir()} == {"model", "model.run.jsonl"}
        for word in (
            "tree: 16 → 206",
            "level 1 of 2, network: 16 nodes",
            "level 2 of 2",
            "embeddings: 32 columns",
        ):
            assert word in caplog.text

    @pytest.mark.parametrize(
        ("method", "features"), [("x-transformer", "dnn"), ("xr-linear", "cat")]
    )
    def test_train_other_methods(self, run, train_command, models, tmp_path, method, features):
        done = run(*train_command(method, features), "-o", tmp_path / "m")
        assert (done.code, done.out) == (0, "")
        assert contents(tmp_path / "m") == contents(models(method, features)[1])

    @pytest.mark.parametrize(
        ("method", "features"), [("xr-transformer", "cat"), ("xr-linear", "dnn")]
    )
    def test_predict_and_evaluate(self, run, files, models, data, method, features):
        fitted, model, _ = models(method, features)
        done = run("predict", model, files / "test.jsonl", "-k", "3")
        lines = [json.loads(line) for line in done.out.splitlines()]
        assert (done.code, done.err) == (0, "")
        expected = fitted.predict(data[1], 3)
        for row, line in enumerate(lines):
            assert line["labels"] == [label.id for label in expected[row]]
            assert line["scores"] == pytest.approx(
                [label.score for label in expected[row]], abs=1e-4
            )
        result = run("evaluate", model, files / "test.jsonl", "--json").json()["evaluation"][
            "metrics"
        ]
        assert result["P@1"] == pytest.approx(fitted.evaluate(data[1])["P@1"])

    @pytest.mark.parametrize(
        ("method", "features"), [("xr-transformer", "cat"), ("xr-linear", "cat")]
    )
    def test_embed(self, run, files, models, data, tmp_path, method, features):
        fitted, model, _ = models(method, features)
        assert run("embed", model, files / "test.jsonl", "-o", tmp_path / "vectors.npy").code == 0
        result = np.load(tmp_path / "vectors.npy")
        assert (result.shape, result.dtype) == ((100, WIDTH), np.float32)
        np.testing.assert_allclose(result, fitted.embed(data[1]), rtol=1e-5, atol=1e-6)

    def test_tuned_vectors_are_others(self, models, data):
        tuned, frozen = (
            models(method)[0].embed(data[1]) for method in ("xr-transformer", "xr-linear")
        )
        assert abs(tuned - frozen).max() > 0.1

    def test_info_shows_the_card_and_all_files(self, run, models):
        done = run("info", models("xr-transformer")[1])
        assert done.code == 0
        for word in ("verified", "# xr-transformer: 206 labels", "encoder/model.safetensors"):
            assert word in done.out
        assert "head-" not in done.out

    @pytest.mark.parametrize("method", ["xr-transformer", "xr-linear"])
    def test_explain(self, run, models, data, method):
        """Sums over words, with what the network's vector adds as one more number."""
        fitted, model, _ = models(method)
        text = data[1].texts[0]
        label = fitted.predict([text], 1)[0][0].id
        result = run("explain", model, text, "--label", label, "--json").json()
        assert result["label"] == label
        steps = result["steps"]
        assert any(abs(step["dense"]) > 1e-3 for step in steps)
        for step in steps:
            words = sum(part["contribution"] for part in step["contributions"])
            assert words + step["bias"] + step["dense"] == pytest.approx(step["margin"], abs=1e-5)
        assert result["probability"] == pytest.approx(
            fitted.predict([text], 1)[0][0].score, abs=1e-4
        )

    def test_methods_and_presets(self, run):
        listed = {entry["name"]: entry for entry in run("methods", "--json").json()}
        assert "amazon-670k" in listed["xr-transformer"]["presets"]
        assert "x-transformer" in listed
        result = run(
            "methods", "xr-transformer", "--preset", "wiki10-31k", "--json"
        ).json()  # table 7
        assert (result["recursive"]["levels"], result["tree"]["levels"]) == (
            [128, 2048],
            [8, 128, 2048],
        )
        assert (result["encoder"]["max_tokens"], result["recursive"]["alpha"]) == (256, 0.25)


class TestModel:
    @pytest.mark.parametrize(
        ("method", "features"),
        [*((method, "cat") for method in NETWORKS), ("x-transformer", "dnn"), *FROZEN],
        ids=str,
    )
    def test_loaded_and_saved_again(self, models, data, tmp_path, method, features):
        fitted, model, _ = models(method, features)
        loaded = lt.load(model)
        assert same(fitted.predict(data[1], 5).matrix, loaded.predict(data[1], 5).matrix)
        assert fitted.model.features(["sound"]).dense.shape == (1, WIDTH)
        loaded.save(tmp_path / "again")
        assert contents(tmp_path / "again") == contents(model)

    @pytest.mark.parametrize(("features", "length"), [("cat", 0.5), ("dnn", 1.0)])
    def test_features(self, models, features, length):
        result = models("xr-linear", features)[0].model.features(["a sound editor"])
        assert np.linalg.norm(result.dense) == pytest.approx(length)
        assert (result.sparse.nnz > 0) == (features == "cat")

    def test_whatever_the_batch(self, models, data):
        fitted = models("xr-transformer")[0]
        whole = fitted.predict(data[1], 5)
        for row in (0, 40, 99):
            alone = fitted.predict([data[1].texts[row]], 5)[0]
            assert [label.score for label in alone] == pytest.approx(
                [label.score for label in whole[row]], abs=1e-3
            )

    def test_no_texts_and_an_empty_one(self, models):
        fitted = models("xr-transformer")[0]
        assert len(fitted.predict([], 3)) == 0
        assert len(fitted.predict([""], 3)[0]) == 3

    def test_words_as_ready_made_features_beside_an_encoder(self, files, data):
        """Such a model needs both: a text alone is refused, and so are members that read text."""
        documents = replace(data[0], features=lt.TfIdf.fit_transform(data[0].texts)[1])
        encoder = {"name": str(files / "encoder"), "max_tokens": 24}
        arguments = lt.Longtail("xr-linear", features="cat", encoder=encoder).fit(documents)
        assert len(arguments.predict(documents.take(np.arange(3)), 2)[0]) == 2
        with pytest.raises(UsageError, match="ready-made features"):
            arguments.predict(["a sound editor"])
        with pytest.raises(
            UsageError, match="was trained on ready-made features, and model 2 on text"
        ):
            lt.ensemble([arguments, lt.Longtail("xr-linear").fit(data[0])])

    def test_vectors_alone_pass_over_ready_made_features(self, models, data):
        """As in training: folders of published data bring features beside the texts."""
        fitted = models("xr-linear", "dnn")[0]
        arguments = replace(data[1], features=lt.TfIdf.fit_transform(data[1].texts)[1])
        assert same(fitted.predict(arguments, 5).matrix, fitted.predict(data[1], 5).matrix)

    def test_explain_has_no_words_to_explain_by(self, fails, models):
        model = models("xr-linear", "dnn")[1]
        message = fails(2, "explain", model, "a sound editor", "--label", "role::program")
        assert "a network's vectors, which have no words" in message


class TestLearning:
    def test_each_level_learns(self, models):
        losses = {1: [], 2: []}
        for line in models("xr-transformer")[2]:
            if result := re.match(r"epoch \d: loss level (\d) ([\d.]+)", line):
                losses[int(result[1])].append(float(result[2]))
        assert [len(member) for member in losses.values()] == [
            1,
            2,
        ]  # of three epochs the last level has the most
        assert losses[2][1] < losses[2][0]

    def test_on_its_own_documents(self, fit, data):
        """Tuned, an encoder with random weights says most of what few documents say; as it is, much
        less.
        """
        few = data[0].take(np.arange(60))
        settings = {"search": {"beam_size": 50}, "features": "dnn"}
        training = {**TRAINING, "epochs": 15, "loss": "squared-hinge"}
        tuned = fit("xr-transformer", few, **settings, training=training).evaluate(few)["P@1"]
        frozen = fit("xr-linear", few, **settings).evaluate(few)["P@1"]
        assert tuned > max(frozen + 0.1, 0.75)

    def test_levels_choose_below_what_those_above_chose(self, fit, data, monkeypatch):
        """For the documents of training (eq. 7) as for those of validation; every level has its own
        epochs.
        """
        real = Matcher.match
        matches = []

        def match(matcher, tokens, parents, k):
            vectors, nodes = real(matcher, tokens, parents, k)
            matches.append((matcher.network, len(tokens), parents, nodes))
            return vectors, nodes

        monkeypatch.setattr(Matcher, "match", match)
        settings = {"recursive": {"levels": [4, 32], "shortlist": 3, "epochs": [1, 2, 1]}}
        fit("xr-transformer", data[0].take(np.arange(80)), data[1], **settings)
        assert [(network.level, n, nodes.shape[1]) for network, n, _, nodes in matches] == [
            # measured after the epoch; handed on; handed on to be measured
            (0, 100, 4), (0, 80, 3), (0, 100, 3),
            (1, 100, 5), (1, 100, 5), (1, 80, 3), (1, 100, 3),
            (2, 100, 5),
        ]  # fmt: skip
        handed = {
            (network.level, n): nodes for network, n, _, nodes in matches if nodes.shape[1] == 3
        }
        for network, n, parents, _ in matches:
            if network.level:
                np.testing.assert_array_equal(parents, handed[network.level - 1, n])
            else:
                assert parents is None
        assert matches[-1][0].parents.shape[0] == 80
        chosen = handed[1, 80]
        assert all(
            set(member) <= set(arguments)
            for member, arguments in zip(chosen, matches[-1][0].parents, strict=True)
        )

    def test_settings_of_the_ablations_change_the_network(self, fit, data):
        base = {"calibration": {"method": "none"}, "ranker": {"trees": 1}}

        def embedded(loss="squared-hinge", **settings):
            recursive = {"cost_sensitive": True, **settings}
            training = {**TRAINING, "epochs": 2, "loss": loss}
            few = data[0].take(np.arange(80))
            return fit("xr-transformer", few, **base, recursive=recursive, training=training).embed(
                ["a b"]
            )

        result = [
            embedded(**settings)
            for settings in (
                {}, {"bootstrap": False}, {"cost_sensitive": False}, {"loss": "bce"}, {"resolutions": "one"},
                {"finest": "clusters"}, {"shortlist": 0}, {"alpha": 0.5}, {"bootstrap_root": False},
                {"steps": [3, 8]}, {"warmup_steps": 4},
            )
        ]  # fmt: skip
        assert len(np.unique(np.concatenate(result), axis=0)) == len(result)

    def test_a_hierarchy_is_the_networks_tree(self, fit, data, caplog):
        """The classifiers on Φcat have the refined tree."""
        caplog.set_level(logging.INFO, "longtail")
        parents = {label: [label.partition("::")[0]] for label in data[0].labels.ids}
        settings = {"training": {**TRAINING, "epochs": 2}, "recursive": {"epochs": [1, 1]}}
        fit("xr-transformer", data[0].take(np.arange(80)), parents=parents, **settings)
        assert (
            f"level 1 of 2, network: {len({name for (name,) in parents.values()})} nodes"
            in caplog.text
        )

    def test_valid_without_known_labels(self, fit, data):
        other = lt.Dataset.of(["a small editor"], [["new label"]])
        result = fit(
            "x-transformer", data[0].take(np.arange(80)), other, training={**TRAINING, "epochs": 1}
        )
        assert result.predict(["editor"], 1)[0]


class TestResume:
    """A run that Ctrl-C came to goes on where it was, to the bytes of one that it did not come to."""

    @pytest.fixture
    def interrupted(self, monkeypatch, train_command, run, tmp_path):
        def interrupted(owner, name, after):
            real = getattr(owner, name)
            calls = []

            def counting(*arguments):
                calls.append(1)
                if len(calls) == after:
                    signal.raise_signal(signal.SIGINT)
                return real(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(owner, name, counting)
                done = run(*train_command("xr-transformer"), "-o", tmp_path / "m")
            assert done.code == 130
            assert not (tmp_path / "m").exists()
            return tmp_path / "m"

        return interrupted

    def resumed(self, run, train_command, folder, models, caplog):
        caplog.clear()
        assert run(*train_command("xr-transformer"), "-o", folder, "--resume").code == 0
        assert contents(folder) == contents(models("xr-transformer")[1])
        assert {path.name for path in folder.parent.iterdir()} == {"m", "m.run.jsonl"}
        events = [
            json.loads(line) for line in folder.with_name("m.run.jsonl").read_text().splitlines()
        ]
        assert [event["number"] for event in events if event["event"] == "epoch"] == [1, 1, 2]
        return caplog.text

    def test_inside_a_level(self, run, train_command, interrupted, models, caplog):
        folder = interrupted(Resolution, "losses", 19 + 27)  # 19 batches an epoch
        assert (folder.with_name("m.stages") / "checkpoint-1").is_dir()
        output = self.resumed(run, train_command, folder, models, caplog)
        assert "stage network-0: taken over" in output
        assert "stage matched-0: taken over" in output
        assert "training: goes on from epoch 2, step 27" in output

    def test_between_levels(self, run, train_command, interrupted, models, caplog):
        folder = interrupted(Matcher, "match", 2)  # the first one measures the epoch
        assert not (folder.with_name("m.stages") / "matched-0").exists()
        output = self.resumed(run, train_command, folder, models, caplog)
        assert "stage network-0: taken over" in output
        assert "goes on from" not in output


class TestSteps:
    """Optimiser steps on each level in place of epochs: 19 batches are an epoch."""

    @pytest.fixture
    def command(self, files):
        sets = [
            f"training.{name}={value}" for name, value in {**TRAINING, "schedule": "linear"}.items()
        ]
        sets += [
            f"encoder.name={files / 'encoder'}",
            "encoder.max_tokens=24",
            "calibration.method=none",
        ]
        sets += [
            "recursive.steps=[7, 26]",
            "recursive.warmup_steps=3",
            "recursive.bootstrap_root=false",
        ]
        options = [word for setting in sets for word in ("--set", setting)]
        return ["train", files / "train.jsonl", "--method", "xr-transformer", *options]

    def test_each_level_has_exactly_so_many_also_after_an_interruption(
        self, run, command, tmp_path, monkeypatch, caplog
    ):
        real = Resolution.losses
        calls = []
        stop_at = 7 + 22

        def counting(network, batch):
            calls.append(network.level)
            if len(calls) == stop_at:
                signal.raise_signal(signal.SIGINT)
            return real(network, batch)

        monkeypatch.setattr(Resolution, "losses", counting)
        assert run(*command, "-o", tmp_path / "stopped" / "m").code == 130
        assert calls == [0] * 7 + [1] * 22
        done = run(*command, "-o", tmp_path / "stopped" / "m", "--resume")
        assert done.code == 0
        assert calls == [0] * 7 + [1] * 26
        calls.clear()
        stop_at = 0
        assert run(*command, "-o", tmp_path / "whole" / "m").code == 0
        assert calls == [0] * 7 + [1] * 26
        assert contents(tmp_path / "stopped" / "m") == contents(tmp_path / "whole" / "m")
        assert "16 nodes, 7 steps" in caplog.text


class TestErrors:
    """One line, the right exit code, and before any long work."""

    @pytest.fixture
    def fails_early(self, fails, files, tmp_path, caplog):
        def check(method, *options, data=files / "train.jsonl", encoder=files / "encoder"):
            arguments = [
                "--method",
                method,
                "--set",
                f"encoder.name={encoder}",
                "--set",
                "encoder.max_tokens=24",
                *options,
            ]
            message = fails(2, "train", data, "-o", tmp_path / "m", *arguments)
            assert "features: " not in caplog.text
            assert not (tmp_path / "m").exists()
            return message

        return check

    @pytest.mark.parametrize("method", NETWORKS)
    def test_a_network_without_use(self, fails_early, method):
        message = fails_early(method, "--set", "features=tfidf")
        assert f"features: found tfidf with {method}; expected cat or dnn" in message

    def test_labels_that_have_texts_alone(self, fails_early):
        for kind in ("text", "pifa+text"):
            message = fails_early(
                "xr-linear", "--set", "features=dnn", "--set", f"label_features.kind={kind}"
            )
            assert (
                f"label_features.kind: found {kind} with features=dnn; expected pifa or graph"
                in message
            )
        message = fails_early(
            "bonsai", "--set", "features=dnn",
            "--set", 'label_features.tree_kinds=["pifa", "text", "output"]',
        )  # fmt: skip
        assert "label_features.tree_kinds: found text with features=dnn; expected pifa" in message

    def test_unknown_features(self, fails_early):
        assert "features" in fails_early("xr-linear", "--set", "features=bert")

    @pytest.mark.parametrize("method", ["xr-transformer", "xr-linear"])
    def test_no_texts(self, fails_early, tmp_path, method):
        (tmp_path / "data.txt").write_text("2 3 2\n0 0:1.0\n1 1:1.0\n")
        options = ["--set", "features=cat"]
        assert "features but no text" in fails_early(method, *options, data=tmp_path / "data.txt")

    @pytest.mark.parametrize("method", ["xr-transformer", "dismec"])
    def test_unknown_encoder(self, fails_early, tmp_path, method):
        message = fails_early(method, "--set", "features=cat", encoder=tmp_path / "nowhere")
        assert "found no such folder" in message

    def test_epochs_for_other_levels(self, fit, data):
        message = (
            r"recursive.epochs: found numbers for 3 levels; expected 2, as many as are tuned on"
        )
        with pytest.raises(ConfigError, match=message):
            fit("xr-transformer", data[0].take(np.arange(80)), recursive={"epochs": [1, 1, 1]})

    def test_steps_for_other_levels(self, fit, data):
        message = (
            r"recursive.steps: found numbers for 3 levels; expected 2, as many as are tuned on"
        )
        with pytest.raises(ConfigError, match=message):
            fit("xr-transformer", data[0].take(np.arange(80)), recursive={"steps": [1, 1, 1]})

    def test_steps_beside_epochs(self, fails_early):
        message = fails_early(
            "xr-transformer", "--set", "recursive.steps=[4]", "--set", "recursive.epochs=[1]"
        )
        assert "steps: found [4] beside epochs=[1]; expected one of them, the other []" in message

    def test_dense_features_of_their_own(self, fit, data):
        few = data[0].take(np.arange(40))
        arguments = replace(few, dense=np.ones((40, 2), np.float32))
        with pytest.raises(
            UsageError, match="xr-linear with features=cat makes its own dense features"
        ):
            fit("xr-linear", arguments, features="cat")
