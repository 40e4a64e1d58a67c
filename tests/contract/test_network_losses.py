"""Losses of networks through the whole library: chosen by name, given from Python, refused where
none is read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from make_golden import MODELS, SETTINGS, _documents, unpack

import longtail as lt
from longtail.config.networks import loss_names
from longtail.errors import ConfigError, UsageError
from longtail.methods import METHODS, configure
from longtail.models.model_folder import load_model
from longtail.networks.losses import BinaryCrossEntropy, Focal
from longtail.training_run import train_to_folder
from page_blocks import blocks

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = loss_names()[:-1]  # without "custom"


def cross_entropy(scores, targets, counted):
    return BinaryCrossEntropy().value(scores, targets, counted)


def settings_of(method, **training):
    member = SETTINGS[method]
    return {**member, "training": {**member["training"], "epochs": 2, **training}}


def fitted(method, loss=None, **training):
    made = lt.Longtail(
        method, threads=1, device="cpu", loss=loss, **settings_of(method, **training)
    )
    return made.fit(_documents())


@pytest.mark.parametrize("method", ["xml-cnn", "inceptionxml-lf", "attentionxml"])
def test_each_loss_trains_a_network_that_differs(method):
    vectors = [fitted(method, loss).embed(["a small editor"]) for loss in (None, cross_entropy)]
    np.testing.assert_allclose(vectors[0], vectors[1], rtol=1e-3, atol=1e-4)
    vectors = [fitted(method, name).embed(["a small editor"]) for name in NAMES]
    assert np.isfinite(vectors).all()
    assert len(np.unique(np.concatenate(vectors), axis=0)) == len(NAMES)


def test_a_loss_with_other_parameters_trains_another_network():
    vectors = [fitted("xml-cnn", loss).embed(["a small editor"]) for loss in (Focal(), Focal(4.0))]
    np.testing.assert_array_equal(vectors[0], fitted("xml-cnn", "focal").embed(["a small editor"]))
    assert not np.array_equal(*vectors)


def test_a_model_of_a_function_saves_loads_and_is_trained_again_with_it_alone(tmp_path):
    model = fitted("xml-cnn", cross_entropy)
    model.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model", device="cpu")
    assert loaded.config.training.loss == "custom"
    expected = model.predict(["a small editor"], 3)[0]
    assert [(label.id, label.score) for label in loaded.predict(["a small editor"], 3)[0]] == [
        (label.id, label.score) for label in expected
    ]
    with pytest.raises(
        UsageError,
        match=r"training\.loss: found custom without a loss; expected the loss of the run",
    ):
        loaded.fit(_documents())


def test_resuming_needs_the_function_again(tmp_path, monkeypatch):
    config = lt.Longtail("xml-cnn", loss=cross_entropy, **settings_of("xml-cnn")).config
    documents = _documents()
    train_to_folder(
        documents, tmp_path / "whole", config, device="cpu", threads=1, loss=cross_entropy
    )
    from longtail import training_run

    def killed(model, output, check=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training_run, "save_model", killed)
        with pytest.raises(KeyboardInterrupt):
            train_to_folder(
                documents, tmp_path / "model", config, device="cpu", threads=1, loss=cross_entropy
            )
    with pytest.raises(UsageError, match="also to resume it"):
        train_to_folder(documents, tmp_path / "model", config, device="cpu", threads=1, resume=True)

    def trained(*arguments, **settings):
        raise AssertionError("the network was trained a second time")

    monkeypatch.setattr("longtail.networks.cascade_fitting.train_ranker", trained)
    train_to_folder(
        documents,
        tmp_path / "model",
        config,
        device="cpu",
        threads=1,
        resume=True,
        loss=cross_entropy,
    )
    head = "head-0.safetensors"
    assert (tmp_path / "model" / head).read_bytes() == (tmp_path / "whole" / head).read_bytes()


class TestRefused:
    @pytest.mark.parametrize(
        "method", [name for name, entry in METHODS.items() if not entry.network]
    )
    def test_where_no_network_is_trained(self, method):
        with pytest.raises(
            ConfigError,
            match=rf"^training\.loss: found focal with {method}, which trains no network",
        ):
            configure(method, None, {"training": {"loss": "focal"}})
        with pytest.raises(ConfigError, match="found custom"):
            lt.Longtail(method, loss=cross_entropy)

    def test_beside_another_loss(self, tmp_path):
        with pytest.raises(UsageError, match=r"found a loss beside training\.loss=focal"):
            lt.Longtail("xml-cnn", loss=cross_entropy, training={"loss": "focal"})
        config = configure("xml-cnn", None, settings_of("xml-cnn"))
        with pytest.raises(UsageError, match=r"found a loss beside training\.loss=bce"):
            train_to_folder(_documents(), tmp_path / "model", config, loss=cross_entropy)

    @pytest.mark.parametrize("loss", [3, ("focal",)])
    def test_what_is_no_function(self, loss):
        with pytest.raises(
            UsageError,
            match=f"^loss: found {re.escape(repr(loss))}; expected the name of a loss, a function",
        ):
            lt.Longtail("xml-cnn", loss=loss)

    def test_a_function_where_nodes_have_weights(self, tmp_path):
        from tiny_encoder import write_encoder

        documents = _documents()
        write_encoder(tmp_path / "encoder", documents.texts, width=8, depth=3, vocabulary=160)
        settings = {
            "encoder": {"name": str(tmp_path / "encoder")},
            "recursive": {"cost_sensitive": True},
        }
        with pytest.raises(UsageError, match="found true with a function as loss"):
            lt.Longtail("xr-transformer", loss=cross_entropy, device="cpu", **settings).fit(
                documents
            )

    def test_on_the_command_line_custom_says_where_to_give_it(self, tmp_path):
        lt.write(_documents(), tmp_path / "train.jsonl")
        words = [
            "train",
            "train.jsonl",
            "-o",
            "model",
            "--method",
            "xml-cnn",
            "--set",
            "training.loss=custom",
            "--resume",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "longtail", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == UsageError.exit_code
        assert "training.loss: found custom without a loss" in done.stderr

    def test_the_name_of_before_says_that_of_now(self):
        with pytest.raises(ConfigError, match=r"^recursive\.loss: is now called training\.loss"):
            configure("xr-transformer", None, {"recursive": {"loss": "bce"}})


class TestEarlierModels:
    def test_settings_are_those_of_now(self, tmp_path):
        for method, loss in {
            "x-transformer": "squared-hinge",
            "xr-transformer": "bce",
            "cascadexml": "bce",
        }.items():
            folder = unpack(MODELS, method, tmp_path)
            assert "loss" in json.loads((folder / "config.json").read_text())["recursive"]
            assert load_model(folder, "cpu").config.training.loss == loss


def test_the_page_about_losses_runs(tmp_path):
    (block,) = (text for language, text in blocks("docs/losses.md") if language == "python")
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\['\S+'\]\n", done.stdout), done.stdout
