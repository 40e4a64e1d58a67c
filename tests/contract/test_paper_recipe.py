"""A network by the recipe of a paper: every setting that is not our own default, from training to
prediction.
"""

from __future__ import annotations

import numpy as np
import pytest

from folder_contents import contents

pytest.importorskip("torch")
pytest.importorskip("transformers")

import longtail as lt
from longtail.features.tokens import Tokeniser
from longtail.kernels import pool
from longtail.networks.cascade import CascadeXML
from tiny_encoder import write_sample

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = {
    "encoder": {"max_tokens": 24, "pooling": "cls", "cleaning": "attentionxml"},
    "cascade": {
        "levels": [8, 32],
        "layers": [[1, 2], [2], [3]],
        "shortlist": [4, 8],
        "dropout": [0.2, 0.3, 0.4],
        "last_level": "shortlist",
        "label_rows": "xavier",
        "prior_bias": False,
        "merge_training": "classifiers",
        "combine": "never",
    },
    "training": {
        "epochs": 3,
        "batch_size": 32,
        "encoder_rate": 1e-3,
        "head_rate": 1e-2,
        "head_optimiser": "adamw",
        "schedule": "one-cycle",
        "cooldown_epochs": 1.0,
        "epsilon": 1e-6,
        "clip": 0.0,
        "checkpoint_steps": 4,
    },
    "calibration": {"method": "none"},
}
BATCHES = 7  # an epoch


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("data"), 200, 60, width=16)


def titled(documents):
    """Return the documents with a line break behind the second word of each, and an underscore for
    the next space.
    """
    texts = []
    for text in documents.texts:
        words = text.split(" ")
        texts.append(" ".join(words[:2]) + "\n" + "_".join(words[2:4]) + " " + " ".join(words[4:]))
    matrix = documents.label_matrix
    ids = documents.labels.ids
    rows = np.split(matrix.indices, matrix.indptr[1:-1])
    return lt.Dataset.of(texts, [[ids[column] for column in row] for row in rows], list(ids))


@pytest.fixture(scope="module")
def data(files):
    train = titled(lt.read(files / "train.jsonl"))
    test = titled(lt.read(files / "test.jsonl", labels=train.labels, unknown="drop"))
    return train, test.with_labels(train.labels, unknown="drop")


def fit(files, documents, threads=1, **groups):
    settings = {name: {**RECIPE[name], **groups.get(name, {})} for name in RECIPE}
    settings["encoder"]["name"] = str(files / "encoder")
    with pool.threads(threads):
        return lt.Longtail("cascadexml", **settings).fit(documents)


@pytest.fixture(scope="module")
def fitted(files, data):
    return fit(files, data[0])


class TestRecipe:
    def test_learns(self, fitted, data):
        assert fitted.evaluate(data[0])["P@1"] > 0.25
        assert fitted.model.facts.network_share == 1
        assert fitted.model.network.tree.widths == (8, 32, data[0].n_labels)

    def test_same_settings_same_bytes_for_any_number_of_threads(
        self, files, data, fitted, tmp_path
    ):
        fitted.save(tmp_path / "one")
        fit(files, data[0], threads=2).save(tmp_path / "two")
        assert contents(tmp_path / "one") == contents(tmp_path / "two")

    def test_comes_back_with_its_cleaning(self, fitted, data, tmp_path):
        fitted.save(tmp_path / "m")
        loaded = lt.load(tmp_path / "m")
        assert loaded.model.network.tokeniser.cleaning == "attentionxml"
        assert (loaded.predict(data[1], 5).matrix != fitted.predict(data[1], 5).matrix).nnz == 0
        np.testing.assert_array_equal(loaded.embed(data[1]), fitted.embed(data[1]))

    def test_a_line_break_is_read_as_a_separator(self, fitted):
        broken, spaced, separated = fitted.embed(
            ["wind power\nthe sea", "wind power the sea", "wind power[SEP] the sea"]
        )
        np.testing.assert_allclose(broken, separated, atol=1e-5)
        assert np.abs(broken - spaced).max() > 1e-3
        explained = fitted.explain("wind_power\nsea", fitted.model.labels.ids[0])
        assert explained.steps[0].kind == "left-out"

    @pytest.mark.parametrize("groups", [
        {"cascade": {"label_rows": "random"}}, {"cascade": {"prior_bias": True}},
        {"cascade": {"merge_training": "encoder"}}, {"cascade": {"levels": [8, 16]}},
        {"training": {"schedule": "linear"}}, {"training": {"schedule": "cosine"}}, {"training": {"epsilon": 1e-8}},
        {"encoder": {"cleaning": "none"}},
    ], ids=str)  # fmt: skip
    def test_each_setting_counts(self, files, data, fitted, groups):
        other = fit(files, data[0], **groups)
        result = other.predict(data[1], 5).matrix
        expected = fitted.predict(data[1], 5).matrix
        assert (result != expected).nnz

    def test_goes_on_to_the_same_bytes(self, files, data, fitted, tmp_path, monkeypatch, run):
        lt.write(data[0], tmp_path / "train.jsonl")
        sets = [f"encoder.name={files / 'encoder'}"]
        for group, settings in RECIPE.items():
            sets += [f"{group}.{name}={_written(value)}" for name, value in settings.items()]
        options = [word for setting in sets for word in ("--set", setting)]
        command = [
            "train",
            tmp_path / "train.jsonl",
            "--method",
            "cascadexml",
            *options,
            "-o",
            tmp_path / "m",
        ]
        real = CascadeXML.losses
        calls = []

        def stopping(network, batch):
            calls.append(1)
            if len(calls) == BATCHES + 5:
                raise KeyboardInterrupt
            return real(network, batch)

        with monkeypatch.context() as patch:
            patch.setattr(CascadeXML, "losses", stopping)
            assert run(*command).code == 130
        assert run(*command, "--resume").code == 0
        fitted.save(tmp_path / "whole")
        assert contents(tmp_path / "m") == contents(tmp_path / "whole")


class TestCleaning:
    def test_of_an_encoder_as_it_is(self, files, data, tmp_path):
        """A linear method on the vectors of a pretrained encoder reads texts the same way."""
        groups = {
            "encoder": {
                "name": str(files / "encoder"),
                "max_tokens": 24,
                "cleaning": "attentionxml",
            }
        }
        model = lt.Longtail("xr-linear", features="dnn", **groups).fit(data[0])
        model.save(tmp_path / "m")
        loaded = lt.load(tmp_path / "m")
        vectors = loaded.embed(["wind power\nthe_sea", "wind power[SEP] the sea"])
        np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)

    def test_is_not_that_of_words(self, data):
        groups = {
            "encoder": {"width": 16, "min_count": 1, "cleaning": "attentionxml"},
            "training": {"epochs": 1},
        }
        model = lt.Longtail("xml-cnn", **groups).fit(data[0]).model
        assert isinstance(model.network.tokeniser, Tokeniser)
        assert model.network.tokeniser.cleaning == "none"


def _written(value):
    return str(value).lower() if isinstance(value, bool) else value
