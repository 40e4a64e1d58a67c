"""CascadeXML as a person uses it: train, predict, evaluate, embed, info; from the command line and
from Python.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import signal
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace as replace_settings

from folder_contents import contents

pytest.importorskip("torch")
pytest.importorskip("transformers")


import longtail as lt
from longtail.data.strings import Strings
from longtail.errors import MissingExtra, UsageError
from longtail.features.encoder_folder import POOLING
from longtail.features.tokens import Tokeniser
from longtail.methods import configure
from longtail.models.model_folder import load_model
from longtail.networks.cascade import CascadeXML
from tiny_encoder import write_sample

WIDTH = 32
TRAINING = {
    "epochs": 3, "batch_size": 16, "head_rate": 3e-3, "encoder_rate": 1e-3, "warmup_epochs": 0.5, "cooldown_epochs": 1,
    "checkpoint_steps": 10,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("data"), 400, 150, width=WIDTH)


@pytest.fixture(scope="module")
def data(files):
    train = lt.read(files / "train.jsonl")
    return train, lt.read(files / "test.jsonl", labels=train.labels, unknown="drop")


@pytest.fixture(scope="module")
def fit(files, data):
    """Train from Python; ``settings`` are groups on top of those of the tests."""

    def fit(documents=None, valid=None, parents=None, **settings):
        groups = {
            "encoder": {"name": str(files / "encoder"), "max_tokens": 24},
            "training": TRAINING,
        }
        return lt.Longtail("cascadexml", **{**groups, **settings}).fit(
            documents or data[0], valid, parents
        )

    return fit


@pytest.fixture(scope="module")
def logged(files, fit):
    """The model of all commands, and what its training said."""
    records = []
    log = logging.getLogger("longtail")
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        fitted = fit(valid=lt.read(files / "test.jsonl"))
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    fitted.save(files / "model")
    return fitted, records


@pytest.fixture(scope="module")
def fitted(logged):
    return logged[0]


@pytest.fixture(scope="module")
def model(files, logged):
    return files / "model"


@pytest.fixture(scope="module")
def mixed(files, fitted):
    """The model with a quarter of the score the network's, which share so few documents may choose
    or not.
    """
    facts = replace_settings(fitted.model.facts, network_share=0.25)
    made = lt.Longtail.of(replace(fitted.model, facts=facts))
    made.save(files / "mixed")
    return made


@pytest.fixture
def train_command(files):
    """The command that makes the model, but for its folder."""
    sets = [f"training.{name}={value}" for name, value in TRAINING.items()]
    sets += [f"encoder.name={files / 'encoder'}", "encoder.max_tokens=24"]
    options = [word for setting in sets for word in ("--set", setting)]
    return [
        "train",
        files / "train.jsonl",
        "--method",
        "cascadexml",
        "--valid",
        files / "test.jsonl",
        *options,
    ]


class TestCommands:
    def test_train_makes_the_same_bytes(
        self, run, train_command, model, tmp_path, caplog, monkeypatch
    ):
        read = []
        tokenise = Tokeniser.__call__
        monkeypatch.setattr(
            Tokeniser,
            "__call__",
            lambda self, texts: read.append(len(texts)) or tokenise(self, texts),
        )
        done = run(*train_command, "-o", tmp_path / "new" / "model")
        assert (done.code, done.out) == (0, "")
        assert read.count(400) == 1, (
            "the documents are tokenised for training, and not again for the classifiers"
        )
        assert contents(tmp_path / "new" / "model") == contents(model)
        assert {path.name for path in (tmp_path / "new").iterdir()} == {"model", "model.run.jsonl"}
        for word in (
            "tree: 4 → 32 → 243",
            "tokens: ",
            "epoch 3: loss level 1",
            "network",
            "embeddings: 32 columns",
        ):
            assert word in caplog.text

    def test_predict(self, run, files, model, fitted, data):
        done = run("predict", model, files / "test.jsonl", "-k", "3")
        lines = [json.loads(line) for line in done.out.splitlines()]
        assert (done.code, done.err) == (0, "")
        assert [line["id"] for line in lines] == list(data[1].ids)
        expected = fitted.predict(data[1], 3)
        for row, line in enumerate(lines):
            assert line["labels"] == [label.id for label in expected[row]]
            assert line["scores"] == pytest.approx(
                [label.score for label in expected[row]], abs=1e-4
            )

    def test_evaluate(self, run, files, model, fitted, data):
        result = run("evaluate", model, files / "test.jsonl", "--json").json()["evaluation"][
            "metrics"
        ]
        expected = fitted.evaluate(data[1])
        assert {name: result[name] for name in ("P@1", "P@5")} == pytest.approx(
            {name: expected[name] for name in ("P@1", "P@5")}
        )
        assert result["P@1"] > 0.6

    def test_embed(self, run, files, model, fitted, data, tmp_path):
        done = run("embed", model, files / "test.jsonl", "-o", tmp_path / "vectors.npy")
        assert (done.code, done.out) == (0, "")
        result = np.load(tmp_path / "vectors.npy")
        assert (result.shape, result.dtype) == ((150, WIDTH), np.float32)
        np.testing.assert_allclose(result, fitted.embed(data[1]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            result[:3], fitted.embed(list(data[1].texts)[:3]), rtol=1e-4, atol=1e-5
        )

    def test_explain(self, run, files, mixed, data):
        """The network by leaving out words, the linear classifiers beside it by sums, by their
        shares.
        """
        text = data[1].texts[0]
        share = 0.25
        best = mixed.predict([text], 1)[0][0]
        result = run("explain", files / "mixed", text, "--json").json()
        assert (result["label"], result["network_share"]) == (best.id, share)
        assert result["probability"] == pytest.approx(best.score, abs=1e-3)
        network, *linear = result["steps"]
        assert [step["kind"] for step in result["steps"]] == ["left-out", *["sum"] * len(linear)]
        ranked, others = mixed.model.both_scores(Strings.of([text]), 5, mixed.model.config.search)
        column = mixed.model.labels.columns[best.id]
        assert network["score"] == pytest.approx(ranked[0, column], rel=1e-3)
        assert network["contributions"]
        expected = share * network["score"] + (1 - share) * others[0, column]
        assert result["path_score"] == pytest.approx(expected, rel=1e-3)
        for step in linear:
            words = sum(part["contribution"] for part in step["contributions"])
            assert words + step["bias"] + step["dense"] == pytest.approx(step["margin"], abs=1e-4)

    @pytest.mark.usefixtures("mixed")
    def test_explain_for_people(self, run, files, data):
        lines = run("explain", files / "mixed", data[1].texts[0], "--top", "3").out.splitlines()
        assert re.match(
            r"= 0\.\d\d × 0\.\d{3} of the network \+ 0\.\d\d × 0\.\d{3} of the linear classifiers",
            lines[1],
        )
        assert lines[3] == "the network, with one word at a time left out"
        assert lines[8].endswith("other words with smaller decreases)")
        assert lines[10].startswith("tree 1, level 1 of ")
        assert lines[-1].startswith("over all steps but the network's: ")

    def test_info_shows_the_card_and_all_files(self, run, model):
        done = run("info", model)
        assert done.code == 0
        for word in (
            "verified",
            "# cascadexml: 243 labels",
            "encoder/model.safetensors",
            "head-2.safetensors",
            "network",
        ):
            assert word in done.out

    def test_methods(self, run):
        listed = {entry["name"]: entry for entry in run("methods", "--json").json()}
        assert "amazon-670k" in listed["cascadexml"]["presets"]

    def test_preset_is_table_9(self, run, fails, train_command, tmp_path):
        result = run("methods", "cascadexml", "--preset", "amazon-670k", "--json").json()
        assert result["cascade"]["levels"] == [2**10, 2**13, 2**16]
        assert result["cascade"]["layers"] == [[5, 6], [8], [10], [12]]
        assert result["cascade"]["dropout"] == [0.2, 0.25, 0.4, 0.5]
        assert (result["training"]["epochs"], result["encoder"]["max_tokens"]) == (15, 128)
        rates = {
            "batch_size": 256,
            "encoder_rate": 1e-4,
            "head_rate": 1e-3,
            "encoder_decay": 0.05,
            "head_decay": 0.005,
        }
        assert {name: result["training"][name] for name in rates} == rates
        message = fails(2, *train_command, "--preset", "amazon-670k", "-o", tmp_path / "m")
        assert "cascade.layers: found 12; expected at most 3, the encoder's depth" in message
        assert "or cascade.layers=[]" in message
        assert "tree:" not in message  # said before the work


class TestLearning:
    def test_each_epoch_is_better_than_the_one_before(self, logged):
        epochs = [line for line in logged[1] if line.startswith("epoch ")]
        assert len(epochs) == 3
        losses = [
            [float(value) for value in re.findall(r"level \d ([\d.]+)", line)] for line in epochs
        ]
        for before, after in pairwise(losses):
            assert all(new < old for old, new in zip(before, after, strict=True))
        first, *_, last = (float(re.search(r"P@1 ([\d.]+)%", line)[1]) for line in epochs)
        assert last > first + 3

    def test_on_its_own_documents(self, fit, data):
        """A network alone, which knows nothing at first, learns most of what few documents say."""
        few = data[0].take(np.arange(60))
        settings = {"training": {**TRAINING, "epochs": 30}, "cascade": {"combine": "never"}}
        assert fit(few, **settings).evaluate(few)["P@1"] > 0.8

    def test_best_epoch_is_kept(self, fit, data):
        """A rate so high that later epochs are worse: what is measured at the end is the best
        epoch's.
        """
        seen = []
        real = lt.metrics.evaluate
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "longtail.networks.cascade_fitting.evaluate",
                lambda *arguments: seen.append(real(*arguments)) or seen[-1],
            )
            settings = {
                "training": {**TRAINING, "head_rate": 0.5, "epochs": 4},
                "cascade": {"combine": "never"},
            }
            result = fit(data[0].take(np.arange(150)), valid=data[1], **settings)
        means = [np.mean([metrics[name] for name in ("P@1", "P@3", "P@5")]) for metrics in seen]
        measured = real(
            result.model.network.search(data[1].texts, 5)[0], seen_truth(result, data[1])
        )
        assert np.mean([measured[name] for name in ("P@1", "P@3", "P@5")]) == pytest.approx(
            max(means)
        )


def seen_truth(fitted, documents):
    return documents.with_labels(fitted.model.labels, unknown="drop").label_matrix


class TestModel:
    def test_loaded_it_predicts_the_same(self, fitted, model, data):
        ours, theirs = (tagger.predict(data[1], 5).matrix for tagger in (fitted, lt.load(model)))
        assert (ours.indices == theirs.indices).all()
        assert (ours.data == theirs.data).all()

    def test_saved_again_it_has_the_same_bytes(self, model, tmp_path):
        lt.load(model).save(tmp_path / "again")
        assert contents(tmp_path / "again") == contents(model)

    def test_whatever_the_batch(self, fitted, data):
        whole = fitted.predict(data[1], 5)
        for row in (0, 40, 149):
            alone = fitted.predict([data[1].texts[row]], 5)[0]
            assert [label.score for label in alone] == pytest.approx(
                [label.score for label in whole[row]], abs=1e-3
            )

    def test_excluded_labels_never_come_out(self, fitted, data):
        texts = list(data[1].texts)[:6]
        first = fitted.predict(texts, 3)
        banned = [[label.id for label in row[:2]] for row in first]
        for row, member in zip(fitted.predict(texts, 3, exclude=banned), banned, strict=True):
            assert len(row) == 3
            assert not {label.id for label in row} & set(member)

    def test_all_labels(self, fitted):
        assert len({label.id for label in fitted.predict(["sound editor"], 999)[0]}) == 243

    def test_no_texts_and_an_empty_one(self, fitted):
        assert len(fitted.predict([], 3)) == 0
        assert len(fitted.predict([""], 3)[0]) == 3
        assert fitted.embed([]).shape == (0, WIDTH)

    def test_without_torch(self, model, monkeypatch):
        monkeypatch.setitem(sys.modules, "longtail.networks.network_folder", None)
        with pytest.raises(MissingExtra, match=r"pip install 'longtail\[neural\]'"):
            load_model(model)


class TestCombine:
    def test_auto_takes_what_ranks_best(self, fitted, logged):
        line = next(line for line in logged[1] if line.startswith("network and linear classifiers"))
        values = {
            int(share): float(value)
            for share, value in re.findall(r"network (\d+)%: ([\d.]+)%", line)
        }
        assert sorted(values) == [0, 25, 50, 75, 100]
        assert values[round(100 * fitted.model.facts.network_share)] == max(values.values())
        assert fitted.model.features(["sound"]).dense.shape == (1, WIDTH)
        weight = fitted.model.config.encoder.weight
        assert np.linalg.norm(fitted.model.features(["sound"]).dense) == pytest.approx(weight)

    def test_never_has_a_network_alone(self, fit, data, tmp_path):
        settings = {"training": {**TRAINING, "epochs": 1}, "cascade": {"combine": "never"}}
        alone = fit(valid=data[1], **settings)
        assert alone.model.rankers == ()
        assert alone.model.facts.network_share == 1
        (step,) = alone.explain(data[1].texts[0], data[0].labels.ids[0]).steps
        assert (step.kind, bool(step.contributions)) == ("left-out", True)
        ranked = alone.model.network.search(data[1].texts, 4)[0]
        assert (alone.predict(data[1], 4).matrix.indices == ranked.indices).all()
        with pytest.raises(UsageError, match="network alone"):
            alone.model.features(["a"])
        alone.save(tmp_path / "m")
        assert not list((tmp_path / "m").glob("ranker-*"))
        loaded = lt.load(tmp_path / "m")
        assert (loaded.predict(data[1], 4).matrix != alone.predict(data[1], 4).matrix).nnz == 0

    @pytest.mark.parametrize(("combine", "best", "share", "rankers"), [
        ("auto", 1.0, 1.0, 0), ("always", 1.0, 0.5, 3), ("auto", 0.25, 0.25, 3), ("always", 0.25, 0.25, 3),
    ])  # fmt: skip
    def test_share(self, fit, data, monkeypatch, combine, best, share, rankers):
        monkeypatch.setattr("longtail.steps.held_out.best_share", lambda *_: (best, {best: 0.5}))
        settings = {"training": {**TRAINING, "epochs": 1}, "cascade": {"combine": combine}}
        result = fit(data[0].take(np.arange(80)), valid=data[1], **settings)
        assert (result.model.facts.network_share, len(result.model.rankers)) == (share, rankers)
        assert len(result.predict(["sound editor"], 3)[0]) == 3

    @pytest.mark.parametrize(("hard_negatives", "warm_start"), [(0, False), (3, True)])
    def test_one_vs_all_in_place_of_a_tree(self, fit, data, tmp_path, hard_negatives, warm_start):
        settings = {
            "training": {**TRAINING, "epochs": 1},
            "cascade": {"combine": "always", "classifier": "dismec", "warm_start": warm_start},
            "ranker": {"hard_negatives": hard_negatives},
        }
        result = fit(data[0].take(np.arange(80)), valid=data[1], **settings)
        (ranker,) = result.model.rankers
        assert ranker.tree.widths == (data[0].n_labels,)
        assert ranker.levels[0].dense_width == result.model.network.width
        result.save(tmp_path / "m")
        loaded = lt.load(tmp_path / "m")
        assert (loaded.predict(data[1], 4).matrix != result.predict(data[1], 4).matrix).nnz == 0

    def test_a_hierarchy_is_the_networks_where_the_classifiers_have_none(self, fit, data):
        parents = {label: [label.partition("::")[0]] for label in data[0].labels.ids}
        settings = {
            "training": {**TRAINING, "epochs": 1},
            "cascade": {"combine": "always", "classifier": "dismec"},
        }
        model = fit(data[0].take(np.arange(80)), data[1], parents, **settings).model
        assert model.network.tree.widths == (
            len({name for member in parents.values() for name in member}),
            data[0].n_labels,
        )
        assert [ranker.tree.widths for ranker in model.rankers] == [(data[0].n_labels,)]

    def test_without_documents_to_measure_by(self, fit, data):
        settings = {"training": {**TRAINING, "epochs": 1}, "calibration": {"method": "none"}}
        result = fit(data[0].take(np.arange(80)), **settings)
        assert (result.model.facts.network_share, result.model.facts.held_out) == (0.5, 0)

    def test_valid_without_known_labels(self, fit, data):
        other = lt.Dataset.of(["a small editor"], [["new label"]])
        result = fit(data[0].take(np.arange(80)), valid=other, training={**TRAINING, "epochs": 1})
        assert result.predict(["editor"], 1)[0]


class TestResume:
    @pytest.fixture
    def interrupted(self, monkeypatch, train_command, run, tmp_path):
        """A training run that Ctrl-C came to in the middle of the second epoch."""
        real = CascadeXML.losses
        calls = []

        def losses(network, batch):
            calls.append(1)
            if len(calls) == 33:
                signal.raise_signal(signal.SIGINT)
            return real(network, batch)

        with monkeypatch.context() as patch:
            patch.setattr(CascadeXML, "losses", losses)
            done = run(*train_command, "-o", tmp_path / "m")
        assert done.code == 130
        assert not (tmp_path / "m").exists()
        assert (tmp_path / "m.stages" / "checkpoint-0" / "state.json").is_file()
        return tmp_path / "m"

    def test_after_ctrl_c(self, run, train_command, interrupted, model, caplog):
        caplog.clear()
        assert run(*train_command, "-o", interrupted, "--resume").code == 0
        assert "training: goes on from epoch 2, step 33" in caplog.text
        assert "epoch 1:" not in caplog.text
        assert contents(interrupted) == contents(model)
        assert {path.name for path in interrupted.parent.iterdir()} == {"m", "m.run.jsonl"}
        events = [
            json.loads(line)
            for line in interrupted.with_name("m.run.jsonl").read_text().splitlines()
        ]
        assert [event["number"] for event in events if event["event"] == "epoch"] == [1, 2, 3]

    def test_not_with_other_validation_data(self, run, train_command, files, interrupted, caplog):
        """They choose the best epoch, so a network that others chose is another one."""
        other = interrupted.parent / "other.jsonl"
        lt.write(lt.sample()[1].take(np.arange(150, 200)), other)
        command = [other if word == files / "test.jsonl" else word for word in train_command]
        caplog.clear()
        assert run(*command, "-o", interrupted, "--resume").code == 0
        assert "goes on from" not in caplog.text


class TestErrors:
    """One line, the right exit code, and before any long work."""

    @pytest.fixture
    def fails_early(self, fails, files, tmp_path, caplog):
        def check(*options, data=files / "train.jsonl"):
            message = fails(
                2, "train", data, "-o", tmp_path / "m", "--method", "cascadexml", *options
            )
            assert "features: " not in caplog.text
            assert not (tmp_path / "m").exists()
            return message

        return check

    def encoder(self, files):
        return ["--set", f"encoder.name={files / 'encoder'}", "--set", "encoder.max_tokens=24"]

    def test_no_encoder(self, fails_early, tmp_path):
        arguments = "--set", f"encoder.name={tmp_path / 'nowhere'}"
        assert "found no such folder" in fails_early(*arguments)
        assert "found no such folder" in fails_early(*arguments, data=tmp_path / "not_read.jsonl")

    def test_a_folder_that_is_no_encoder(self, fails_early, tmp_path):
        assert "found no config.json" in fails_early("--set", f"encoder.name={tmp_path}")

    def test_half_a_copy_of_an_encoder(self, fails_early, files, tmp_path):
        copy = shutil.copytree(files / "encoder", tmp_path / "encoder")
        (copy / "modules.json").write_text(
            '[{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]'
        )
        (copy / POOLING).unlink(missing_ok=True)
        assert "take a whole copy, or set encoder.pooling" in fails_early(
            "--set", f"encoder.name={copy}"
        )

    @pytest.mark.parametrize("device", ["tpu", "cuda:99"])
    def test_unknown_device(self, fails_early, files, device):
        assert f"device '{device}'" in fails_early(*self.encoder(files), "--device", device)

    def test_too_many_tokens(self, fails_early, files):
        message = fails_early(*self.encoder(files)[:2], "--set", "encoder.max_tokens=4000")
        assert "max_tokens: found 4000; expected at most 128" in message

    def test_features_without_text(self, fails_early, files, tmp_path):
        (tmp_path / "data.txt").write_text("2 3 2\n0 0:1.0\n1 1:1.0\n")
        assert "features but no text" in fails_early(
            *self.encoder(files), data=tmp_path / "data.txt"
        )

    def test_without_torch(self, fails_early, files, monkeypatch):
        monkeypatch.setitem(sys.modules, "longtail.networks.device", None)
        assert "pip install 'longtail[neural]'" in fails_early(*self.encoder(files))

    def test_layers_that_the_encoder_has_not(self, fails, train_command, tmp_path):
        message = fails(
            2, *train_command, "--set", "cascade.layers=[[1], [2], [9]]", "-o", tmp_path / "m"
        )
        assert "cascade.layers: found 9; expected at most 3" in message

    def test_embed_with_a_linear_model(self, fails, files, data, tmp_path):
        lt.Longtail("xr-linear").fit(data[0].take(np.arange(50))).save(tmp_path / "linear")
        message = fails(
            2, "embed", tmp_path / "linear", files / "test.jsonl", "-o", tmp_path / "v.npy"
        )
        assert "xr-linear has no network, so no embeddings" in message
        assert not (tmp_path / "v.npy").exists()

    def test_unknown_device_of_a_model(self, fails, files, model):
        assert "device 'tpu'" in fails(2, "predict", model, files / "test.jsonl", "--device", "tpu")

    def test_a_damaged_head(self, fails, files, model, tmp_path):
        for name, content in contents(model).items():
            (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "m" / name).write_bytes(
                content if name != "head-1.safetensors" else content[:-1] + b"x"
            )
        assert "head-1.safetensors" in fails(4, "predict", tmp_path / "m", files / "test.jsonl")


def test_presets_name_what_they_set():
    """Every preset of the paper resolves, whatever encoder it is given."""
    for preset in ("wiki10-31k", "amazoncat-13k", "wiki-500k", "amazon-670k", "amazon-3m"):
        config = configure("cascadexml", preset, {"encoder": {"name": "anything"}})
        assert (
            len(config.cascade.layers)
            == len(config.cascade.dropout)
            == len(config.cascade.shortlist) + 1
        )
        assert len(config.cascade.levels) == len(config.cascade.shortlist)
