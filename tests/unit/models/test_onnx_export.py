"""Encoders as ONNX: onnxruntime gives the vectors that torch gives, for any batch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from tokenizers import Tokenizer  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import longtail as lt  # noqa: E402
from longtail.cli import app  # noqa: E402
from longtail.errors import MissingExtra, UsageError  # noqa: E402
from longtail.models.onnx_export import _traced, export_encoder  # noqa: E402
from tiny_encoder import write_encoder  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = {"training": {"epochs": 1, "batch_size": 64}}
WORDS = {"encoder": {"name": "learned", "width": 20, "max_tokens": 40}, **QUICK}


@pytest.fixture(scope="module")
def documents():
    return lt.sample()[0].take(np.arange(120))


@pytest.fixture(scope="module")
def tagger(documents, tmp_path_factory):
    """Return a model with a tiny transformer."""
    folder = write_encoder(tmp_path_factory.mktemp("encoder"), documents.texts)
    return lt.Longtail("cascadexml", encoder={"name": str(folder), "max_tokens": 60}, **QUICK).fit(
        documents
    )


def vectors_of(file, texts):
    """Return what a program without torch would compute, with the tokeniser that lies beside
    ``file``.
    """
    tokenizer = Tokenizer.from_file(str(file.with_suffix(".tokenizer.json")))
    encoded = tokenizer.encode_batch(texts)
    feed = {
        "input_ids": np.array([own.ids for own in encoded], np.int64),
        "attention_mask": np.array([own.attention_mask for own in encoded], np.int64),
    }
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run(["vectors"], feed)[0]


def assert_same(model, file, texts):
    for batch in (texts[:1], texts[3:10], texts):
        assert np.abs(vectors_of(file, batch) - model.embed(batch)).max() < 1e-4
    assert np.std(vectors_of(file, texts), axis=0).max() > 1e-3  # documents differ


class TestTransformer:
    def test_vectors_are_those_of_torch(self, tagger, documents, tmp_path):
        export_encoder(tagger.model, tmp_path / "encoder.onnx")
        texts = list(documents.texts)[:24]
        assert_same(tagger, tmp_path / "encoder.onnx", [*texts, " ".join(texts)])

    def test_what_the_file_says_of_itself(self, tagger, tmp_path):
        beside = export_encoder(tagger.model, tmp_path / "encoder.onnx")
        made = onnx.load(tmp_path / "encoder.onnx")
        onnx.checker.check_model(made)
        about = {entry.key: entry.value for entry in made.metadata_props}
        expected = {"longtail": lt.__version__, "method": "cascadexml", "max_tokens": "60"}
        assert about == {**expected, "pad_id": "0", "pad_side": "right"}
        assert made.opset_import[0].version >= 17
        assert [own.name for own in made.graph.input] == ["input_ids", "attention_mask"]
        assert beside == tmp_path / "encoder.tokenizer.json"

    def test_the_command(self, tagger, documents, tmp_path):
        tagger.save(tmp_path / "model")
        told = CliRunner().invoke(
            app, ["export", str(tmp_path / "model"), "-o", str(tmp_path / "encoder.onnx")]
        )
        assert told.exit_code == 0, told.output
        assert "encoder.onnx: written, with encoder.tokenizer.json beside it" in told.stderr
        assert_same(tagger, tmp_path / "encoder.onnx", list(documents.texts)[:12])

    def test_vectors_that_differ_are_refused(self, tagger, tmp_path, monkeypatch):
        monkeypatch.setattr("longtail.models.onnx_export._DIFFERENCE", 0.0)
        with pytest.raises(
            UsageError, match=r"export: Encoder has a step .*its vectors would differ by"
        ):
            export_encoder(tagger.model, tmp_path / "encoder.onnx")
        assert not list(tmp_path.iterdir())

    def test_too_many_weights(self, tagger, tmp_path, monkeypatch):
        monkeypatch.setattr("longtail.models.onnx_export._LARGEST", 1000)
        with pytest.raises(UsageError, match="GB of weights; expected at most"):
            export_encoder(tagger.model, tmp_path / "encoder.onnx")


class TestWords:
    @pytest.mark.parametrize("method", ["astec", "attentionxml"])
    def test_vectors_are_those_of_torch(self, method, documents, tmp_path):
        model = lt.Longtail(method, **WORDS).fit(documents)
        texts = list(documents.texts)[:24]
        before = model.embed(texts)
        export_encoder(model.model, tmp_path / "encoder.onnx")
        assert_same(model, tmp_path / "encoder.onnx", texts)
        assert (model.embed(texts) == before).all()  # the network is left as it was

    def test_the_pooling_of_xml_cnn(self, documents, tmp_path):
        model = lt.Longtail("xml-cnn", **WORDS).fit(documents)
        with pytest.raises(
            UsageError, match="found the pooling of XML-CNN, which ONNX does not have"
        ):
            export_encoder(model.model, tmp_path / "encoder.onnx")
        assert not list(tmp_path.iterdir())

    def test_a_step_that_onnx_does_not_have(self, documents, capfd):
        model = lt.Longtail("xml-cnn", **WORDS).fit(documents).model
        with pytest.raises(
            UsageError, match=r"ConvolutionEncoder .* ONNX cannot say .*adaptive_max_pool1d"
        ):
            _traced(model.network)
        assert not capfd.readouterr().out


class TestRefused:
    def test_no_network(self, documents, tmp_path):
        model = lt.Longtail().fit(documents).model
        with pytest.raises(
            UsageError, match="found xr-linear, which has no network; expected an encoder"
        ):
            export_encoder(model, tmp_path / "encoder.onnx")

    def test_an_ensemble(self, documents, tmp_path):
        several = lt.ensemble([lt.Longtail(seed=seed).fit(documents) for seed in (0, 1)])
        with pytest.raises(UsageError, match="found an ensemble; expected one model"):
            export_encoder(several.model, tmp_path / "encoder.onnx")

    def test_another_suffix(self, tmp_path):
        told = CliRunner().invoke(app, ["export", str(tmp_path), "-o", "encoder.pt"])
        assert isinstance(told.exception, UsageError)
        assert "expected a name that ends in .onnx" in str(told.exception)

    def test_missing_package(self, tagger, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(MissingExtra, match=r"longtail\[onnx\]"):
            export_encoder(tagger.model, tmp_path / "encoder.onnx")

    def test_importing_it_needs_no_torch(self):
        code = "import longtail.models.onnx_export, sys; assert not {'torch', 'onnx'} & sys.modules.keys()"
        subprocess.run([sys.executable, "-c", code], check=True)
