"""An encoder behind the face of an embedder: the vectors are those of its last layer, however texts
are batched.
"""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from longtail import reporting
from longtail.config import Encoder
from longtail.data.strings import Strings
from longtail.networks import embedder as module
from longtail.networks.embedder import LastLayer, pretrained_embedder
from tiny_encoder import tiny_encoder, write_encoder

TEXTS = [f"w{at}{' lorem ipsum dolor' * (at % 5)}" for at in range(70)] + ["", "dolor"]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"), TEXTS)


@pytest.fixture(params=["cls", "mean"])
def embedder(folder, request):
    return pretrained_embedder(
        Encoder(name=str(folder), max_tokens=12, pooling=request.param), device="cpu"
    )


def slow_vectors(embedder, texts):
    """Return the vectors of the last layer, each text by itself."""
    encoder = embedder.network.encoder.eval()
    found = []
    for text in texts:
        tokens = embedder.tokeniser([text])
        ids = torch.tensor(np.asarray(tokens.ids, np.int64))[None]
        with torch.no_grad():
            found.append(encoder(ids, None, [encoder.depth])[0][0].numpy())
    return np.stack(found)


class TestVectors:
    def test_are_those_of_the_last_layer(self, embedder):
        found = embedder.embed(TEXTS)
        assert (found.shape, found.dtype) == ((72, embedder.width), np.float32)
        np.testing.assert_allclose(found, slow_vectors(embedder, TEXTS), rtol=1e-4, atol=1e-5)
        assert len(np.unique(found[:70].round(4), axis=0)) == 70

    def test_whatever_the_batch(self, embedder, monkeypatch):
        whole = embedder.embed(TEXTS)
        monkeypatch.setattr(module, "_BATCH", {"cpu": 7})
        np.testing.assert_allclose(embedder.embed(TEXTS), whole, rtol=1e-4, atol=1e-5)

    def test_whatever_holds_the_texts(self, embedder):
        whole = embedder.embed(TEXTS)
        for texts in (Strings.of(TEXTS), embedder.tokeniser(TEXTS), iter(TEXTS)):
            np.testing.assert_array_equal(embedder.embed(texts), whole)

    def test_no_texts(self, embedder):
        assert embedder.embed([]).shape == (0, embedder.width)

    def test_of_the_one_level(self, embedder):
        (found,) = embedder.level_vectors(embedder.tokeniser(TEXTS))
        np.testing.assert_array_equal(found, embedder.embed(TEXTS))

    def test_says_how_far_it_is(self, embedder):
        heard = Mock()
        tokens = embedder.tokeniser(TEXTS)
        reporting.show_on(heard)
        try:
            embedder.embed(tokens)
        finally:
            reporting.show_on(None)
        heard.start.assert_called_once_with("vectors", 72, "documents")
        assert sum(call.args[0] for call in heard.advance.call_args_list) == 72


class TestState:
    def test_dropout_is_off_and_back_on(self, embedder):
        embedder.network.train()
        for module_ in embedder.network.modules():
            if isinstance(module_, torch.nn.Dropout):
                module_.p = 0.5
        np.testing.assert_array_equal(embedder.embed(TEXTS), embedder.embed(TEXTS))
        assert embedder.network.training

    def test_frozen(self, embedder):
        embedder.network.train()
        before = embedder.embed(TEXTS)
        assert embedder.freeze() is embedder
        assert not embedder.network.training
        np.testing.assert_array_equal(embedder.embed(TEXTS), before)
        assert embedder.freeze().ranker is None

    def test_numbers(self, embedder):
        encoder = embedder.network.encoder
        assert embedder.n_parameters == sum(parameter.numel() for parameter in encoder.parameters())
        assert (embedder.width, embedder.network.widths) == (encoder.width, (encoder.width,))
        assert embedder.device == torch.device("cpu")

    def test_a_copy_in_half_leaves_the_encoder_as_it_is(self):
        network = LastLayer(tiny_encoder())
        half = network.in_half()
        assert next(half.parameters()).dtype == torch.bfloat16
        assert next(network.parameters()).dtype == torch.float32
        ids = torch.arange(4, 12)[None]
        with torch.no_grad():
            ours = network.eval().vectors(ids, None)[0]
            theirs = half.vectors(ids, None)[0].float()
        torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.1)
