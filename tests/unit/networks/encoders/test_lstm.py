"""The LSTM over words against PyTorch's own, one text at a time and without padding."""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from longtail.errors import UsageError
from longtail.networks.encoders.lstm import mean_state
from longtail.networks.encoders.word_encoder import WordEncoder, make_word_encoder

LENGTHS = [5, 1, 9, 3]
V = 40
D = 6

pytestmark = pytest.mark.usefixtures("one_thread")


def encoder_of(seed=0, **options):
    vectors = np.random.default_rng(1).normal(size=(V, D)).astype(np.float32)
    options = {"hidden": 4} | options
    made = make_word_encoder("lstm", vectors, np.ones(V, np.float32), 0, 16, seed, options)
    return made.double().eval()


def texts(width=9, filler=0):
    """Return ids and mask of the same texts, padded to ``width`` with ``filler``."""
    mask = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    words = torch.randint(1, V, (len(LENGTHS), 9), generator=torch.Generator().manual_seed(2))
    ids = torch.full(mask.shape, filler)
    ids[:, :9] = words
    return ids.masked_fill(~mask, filler), mask


def both_ways(encoder):
    """Return PyTorch's bidirectional LSTM with the encoder's weights."""
    known = nn.LSTM(D, 4, batch_first=True, bidirectional=True).double()
    state = dict(encoder.forwards.named_parameters())
    state |= {f"{name}_reverse": tensor for name, tensor in encoder.backwards.named_parameters()}
    known.load_state_dict(state)
    return known


class TestStates:
    def test_are_those_of_each_text_alone(self):
        encoder = encoder_of()
        (ids, mask) = texts()
        H = encoder.states(ids, mask)
        known = both_ways(encoder)
        assert H.shape == (4, 9, encoder.width) == (4, 9, 8)
        assert encoder.depth == 1
        for row, length in enumerate(LENGTHS):
            expected = known(encoder.embedding(ids[row : row + 1, :length]))[0][0]
            torch.testing.assert_close(H[row, :length], expected)
            assert not H[row, length:].any()

    def test_padding_has_no_influence(self):
        encoder = encoder_of()
        (ids, mask) = texts()
        wider, wider_mask = texts(14, filler=7)
        H = encoder.states(ids, mask)
        wide = encoder.states(wider, wider_mask)
        torch.testing.assert_close(H, wide[:, :9], rtol=0, atol=1e-14)
        assert not wide[:, 9:].any()
        for own, other in zip(
            encoder(ids, mask, [1]), encoder(wider, wider_mask, [1]), strict=True
        ):
            torch.testing.assert_close(own, other)

    def test_without_a_mask_all_are_tokens(self):
        encoder = encoder_of()
        (ids, _) = texts()
        torch.testing.assert_close(
            encoder.states(ids, None), encoder.states(ids, torch.ones_like(ids, dtype=bool))
        )

    def test_gradients_are_the_sum_of_the_texts(self):
        encoder = encoder_of()
        (ids, mask) = texts(12, filler=3)
        weights = torch.randn(9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        whole = torch.autograd.grad(
            (encoder.states(ids, mask)[:, :9] * weights).sum(), list(encoder.parameters())
        )
        known = both_ways(encoder)
        alone = sum(
            (known(encoder.embedding(ids[row : row + 1, :length]))[0] * weights[:length]).sum()
            for row, length in enumerate(LENGTHS)
        )
        names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
        oracles = [getattr(known, name + way) for way in ("", "_reverse") for name in names]
        expected = torch.autograd.grad(alone, [encoder.embedding.weight, *oracles])
        for found, known_gradient in zip(whole, expected, strict=True):
            torch.testing.assert_close(found, known_gradient)

    def test_a_text_of_padding_alone(self):
        encoder = encoder_of()
        (ids, mask) = texts()
        mask[1] = False
        assert not encoder(ids, mask, [1])[0][1].any()


class TestEncoder:
    def test_vector_is_the_mean_of_the_states(self):
        encoder = encoder_of()
        (ids, mask) = texts()
        (x,) = encoder(ids, mask, [1])
        H = encoder.states(ids, mask)
        for row, length in enumerate(LENGTHS):
            torch.testing.assert_close(x[row], H[row, :length].mean(0).to(x.dtype))
        torch.testing.assert_close(mean_state(H, None), H.float().mean(1))

    def test_words_are_dropped_in_training_alone(self):
        encoder = encoder_of(word_dropout=0.2)
        (ids, mask) = texts()
        assert torch.equal(encoder.states(ids, mask), encoder.states(ids, mask))
        encoder.train()
        torch.manual_seed(0)
        assert not torch.equal(encoder.states(ids, mask), encoder.states(ids, mask))

    def test_in_half(self):
        encoder = encoder_of()
        (ids, mask) = texts()
        (half,) = deepcopy(encoder).bfloat16()(ids, mask, [1])
        assert half.dtype == torch.float32
        torch.testing.assert_close(
            half.double(), encoder(ids, mask, [1])[0].double(), rtol=0.05, atol=0.02
        )

    def test_seed_decides(self):
        ours, same, other = (encoder_of(seed).backwards.weight_hh_l0 for seed in (1, 1, 2))
        assert torch.equal(ours, same)
        assert not torch.equal(ours, other)

    def test_there_and_back(self, tmp_path):
        encoder = encoder_of().float()
        (ids, mask) = texts()
        encoder.save(tmp_path)
        loaded = WordEncoder.load(tmp_path).eval()
        assert loaded.kind == "lstm"
        assert torch.equal(loaded.states(ids, mask), encoder.states(ids, mask))


class TestOptions:
    def test_folder_has_the_width_of_a_state(self, tmp_path):
        ours = encoder_of(hidden=3, word_dropout=0.5)
        ours.float().save(tmp_path)
        read = WordEncoder.load(tmp_path)
        assert (read.hidden, read.width) == (3, 6)
        (ids, mask) = texts()
        torch.testing.assert_close(ours.states(ids, mask), read.states(ids, mask))

    def test_folder_without_the_width_has_256(self, tmp_path):
        encoder_of(hidden=256).float().save(tmp_path)
        about = json.loads((tmp_path / "config.json").read_text())
        assert about.pop("hidden") == 256
        (tmp_path / "config.json").write_text(json.dumps(about))
        assert WordEncoder.load(tmp_path).width == 512

    @pytest.mark.parametrize("hidden", [0, -4, 8193, 2.0, True, "4", None])
    def test_a_wrong_width_is_refused(self, tmp_path, hidden):
        encoder_of().float().save(tmp_path)
        about = json.loads((tmp_path / "config.json").read_text()) | {"hidden": hidden}
        (tmp_path / "config.json").write_text(json.dumps(about))
        with pytest.raises(
            UsageError, match=r"config\.json: found .* as hidden; expected 1 to 8192"
        ):
            WordEncoder.load(tmp_path)

    def test_weights_of_another_width_are_refused(self, tmp_path):
        encoder_of().float().save(tmp_path)
        about = json.loads((tmp_path / "config.json").read_text()) | {"hidden": 5}
        (tmp_path / "config.json").write_text(json.dumps(about))
        with pytest.raises(UsageError, match="weights that do not fit"):
            WordEncoder.load(tmp_path)

    def test_nothing_is_dropped_where_the_share_is_0(self):
        (ids, mask) = texts()
        kept = encoder_of(word_dropout=0.0).train().states(ids, mask)
        torch.testing.assert_close(kept, encoder_of().states(ids, mask))
