"""What is measured inside a network: attention against one document at a time, PWCCA against plain
matrices.
"""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import XLNetConfig  # noqa: E402

from longtail import config  # noqa: E402
from longtail.data.dataset import Dataset  # noqa: E402
from longtail.errors import UsageError  # noqa: E402
from longtail.features.encoder import Encoder  # noqa: E402
from longtail.features.tokens import Tokeniser, Tokens  # noqa: E402
from longtail.networks import analysis  # noqa: E402
from longtail.networks.analysis import analyse, class_attention, pwcca, untuned_encoder  # noqa: E402
from longtail.networks.cascade import CascadeXML  # noqa: E402
from longtail.networks.ranker import NeuralRanker  # noqa: E402
from longtail.tree.tree import LabelTree  # noqa: E402
from tiny_encoder import tiny_encoder, write_encoder  # noqa: E402

LENGTHS = [5, 9, 1, 17, 9, 30, 2, 5]
WORDS = [
    "wind",
    "sea",
    "sun",
    "fish",
    "solar",
    "cell",
    "boat",
    "net",
    "storm",
    "beach",
    "light",
    "water",
    "power",
]
WORDS += ["turbine", "panel"]


pytestmark = pytest.mark.usefixtures("one_thread")


def some_tokens(lengths=LENGTHS, pad_left=False) -> Tokens:
    ids = np.random.default_rng(3).integers(4, 200, sum(lengths)).astype(np.uint16)
    return Tokens(ids, np.concatenate([[0], np.cumsum(lengths)]), 0, pad_left, 64)


def xlnet() -> Encoder:
    sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "vocab_size": 200}
    return Encoder.from_config(XLNetConfig(**sizes, initializer_range=0.5, dropout=0.0))


def one_by_one(encoder: Encoder, tokens: Tokens, at: int) -> np.ndarray:
    """Return (layers, 4) numbers by loops over documents, layers and heads; nothing is padded."""
    itself, entropy, share = ([[] for _ in range(encoder.depth)] for _ in range(3))
    for start, end in zip(tokens.ends[:-1], tokens.ends[1:], strict=True):
        with torch.no_grad():
            maps, _ = encoder.attentions(
                torch.tensor(tokens.ids[None, start:end].astype(np.int64)), None
            )
        for layer, weights in enumerate(maps):
            for head in weights[0].double().numpy():
                row = head[at]
                itself[layer].append(row[at])
                entropy[layer].append(-sum(p * np.log(p) for p in row if p > 0))
                share[layer].append(entropy[layer][-1] / np.log(len(row)) if len(row) > 1 else 0)
    columns = [np.mean(itself, 1), np.max(itself, 1), np.mean(entropy, 1), np.mean(share, 1)]
    return np.stack(columns, 1)


def numbers(layers) -> np.ndarray:
    return np.array(
        [[own.self_mean, own.self_max, own.entropy, own.entropy_share] for own in layers]
    )


class TestAttention:
    @pytest.mark.parametrize("kind", ["bert", "xlnet"])
    def test_as_one_document_at_a_time(self, kind):
        encoder, at = (tiny_encoder(), 0) if kind == "bert" else (xlnet(), -1)
        tokens = some_tokens(pad_left=kind == "xlnet")
        found = class_attention(encoder, tokens)
        assert [own.layer for own in found] == list(range(1, encoder.depth + 1))
        expected = one_by_one(encoder, tokens, at)
        assert np.ptp(expected[:, 0]) > 1e-3  # a layer is not like the next
        np.testing.assert_allclose(numbers(found), expected, rtol=2e-5, atol=1e-7)

    def test_small_batches_and_training_mode_change_nothing(self, monkeypatch):
        encoder = tiny_encoder()
        sizes = []
        whole = numbers(class_attention(encoder, some_tokens()))
        for module in encoder.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.5
        attentions = encoder.attentions
        monkeypatch.setattr(analysis, "_MAPS", 3 * 2 * 32**2 * 3)  # three documents of 32 tokens
        monkeypatch.setattr(
            encoder, "attentions", lambda ids, mask: sizes.append(len(ids)) or attentions(ids, mask)
        )
        np.testing.assert_allclose(
            numbers(class_attention(encoder.train(), some_tokens())), whole, rtol=1e-5
        )
        assert sizes == [3, 3, 2]

    def test_even_attention_has_all_the_entropy_there_is(self):
        encoder = tiny_encoder()
        for layer in encoder.model.encoder.layer:
            torch.nn.init.zeros_(layer.attention.self.query.weight)
            torch.nn.init.zeros_(layer.attention.self.query.bias)
        lengths = np.array([length for length in LENGTHS if length > 1])
        found = numbers(class_attention(encoder, some_tokens(lengths)))
        expected = [np.mean(1 / lengths), 1 / 2, np.mean(np.log(lengths)), 1]
        np.testing.assert_allclose(found, [expected] * 3, rtol=1e-5)


def plain_pwcca(x: np.ndarray, y: np.ndarray) -> float:
    """CCA by inverse square roots of covariances, then the weights one canonical variable at a
    time.
    """

    def inverse_root(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return vectors @ np.diag(values**-0.5) @ vectors.T

    x, y = x - x.mean(0), y - y.mean(0)
    root = inverse_root(x.T @ x)
    left, correlations, _ = np.linalg.svd(root @ x.T @ y @ inverse_root(y.T @ y))
    weights = []
    for variable in (x @ root @ left)[:, : len(correlations)].T:
        weights.append(sum(abs(float(variable @ column)) for column in x.T))
    return float(np.average(correlations, weights=weights))


class TestPwcca:
    @pytest.fixture
    def vectors(self):
        chance = np.random.default_rng(0)
        x = chance.normal(size=(400, 7)) * np.geomspace(1, 30, 7) + 5
        y = x[:, :5] @ chance.normal(size=(5, 5)) + 20 * chance.normal(size=(400, 5)) - 3
        return x, y

    def test_as_by_plain_matrices(self, vectors):
        x, y = vectors
        forth = pwcca(x, y)
        back = pwcca(y, x)
        assert forth == pytest.approx(plain_pwcca(x, y), rel=1e-9)
        assert back == pytest.approx(plain_pwcca(y, x), rel=1e-9)
        assert abs(forth - back) > 0.01  # the weights are the first one's
        assert 0.2 < forth < 0.9

    def test_a_linear_map_of_the_second_changes_nothing(self, vectors):
        x, y = vectors
        mapped = y @ np.random.default_rng(1).normal(size=(5, 5)) + 100
        assert pwcca(x, mapped) == pytest.approx(pwcca(x, y), rel=1e-9)

    def test_what_is_a_linear_map_of_the_other_is_alike(self, vectors):
        x, _ = vectors
        mapped = x @ np.random.default_rng(1).normal(size=(7, 7)) - 9
        for one, other in [(x, x), (x, mapped), (mapped, x), (x[:, :3], x)]:
            assert pwcca(one, other) == pytest.approx(1, abs=1e-9)

    def test_independent_vectors_are_not(self):
        chance = np.random.default_rng(0)
        assert pwcca(chance.normal(size=(5000, 4)), chance.normal(size=(5000, 4))) < 0.05

    def test_directions_made_of_rounding_do_not_count(self, vectors):
        x, y = (own.astype(np.float32) for own in vectors)
        chance = np.random.default_rng(2)
        same = np.full(
            (400, 1), np.float32(0.1)
        )  # after its mean is taken, what is left is rounding
        doubled = np.hstack([y, 3 * y[:, :2] + y[:, 2:4], same])
        noise = (doubled * (1 + 1e-8 * chance.normal(size=doubled.shape))).astype(np.float32)
        assert pwcca(x, noise) == pytest.approx(pwcca(x, y), rel=1e-5)

    def test_too_few_documents(self, vectors):
        x, y = vectors
        assert pwcca(x[:13], y[:13]) < 1
        message = (
            "found 12 documents; expected more than 12, the dimensions of both vectors together"
        )
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            pwcca(x[:12], y[:12])

    def test_one_vector_for_all(self, vectors):
        with pytest.raises(UsageError, match="found the same vector for every document"):
            pwcca(np.tile(np.float32([0.1, 0.7]), (400, 1)), vectors[1])


def documents(n: int, seed: int = 0) -> Dataset:
    chance = np.random.default_rng(seed)
    picked = [chance.choice(len(WORDS), chance.integers(2, 12)) for _ in range(n)]
    texts = [" ".join(WORDS[at] for at in own) for own in picked]
    return Dataset.of(
        texts, [sorted({WORDS[at] for at in own[:2]}) for own in picked], vocabulary=WORDS
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"), documents(50).texts, width=8)


@pytest.fixture(scope="module")
def ranker(folder):
    tree = LabelTree(
        np.arange(15, dtype=np.int32)[::-1].copy(),
        (np.array([0, 2, 3, 5]), np.array([0, 3, 6, 9, 12, 15])),
    )
    cascade = config.Cascade(layers=((1, 2), (2,), (3,)), shortlist=(2, 2))
    network = CascadeXML(Encoder.load(folder), tree, cascade, config.Training(), 0)
    return NeuralRanker(Tokeniser.load(folder, 24), network, tree)


class TestAnalyse:
    def test_all_of_it(self, ranker):
        untuned = tiny_encoder(8, seed=5)
        data = documents(90)
        found = analyse(ranker, untuned, data, 30)
        assert (found.documents, found.vector_documents, found.layers) == (30, 40, (2, 2, 3))
        assert [*found.attention] == [*found.likeness] == ["trained", "untuned"]
        rows = np.random.default_rng(0).permutation(90)
        tokens = ranker.tokeniser(data.take(rows[:30]).texts)
        assert found.attention["trained"] == class_attention(ranker.network.encoder, tokens)
        assert found.attention["untuned"] == class_attention(untuned, tokens)
        expected = ranker.shortlist_recall(tokens, data.take(rows[:30]).label_matrix)
        assert found.shortlist_recall == tuple(expected)
        assert 0 < expected[1] < expected[0] < 1
        vectors = ranker.tokeniser(data.take(rows[:40]).texts)
        for name, encoder in (("trained", ranker.network.encoder), ("untuned", untuned)):
            self.check_likeness(found.likeness[name], encoder, vectors)

    def check_likeness(self, pairs, encoder, tokens):
        ids, mask = map(torch.from_numpy, tokens.padded(np.arange(40)))
        with torch.no_grad():
            coarse, fine = (vectors.numpy() for vectors in encoder(ids, mask, [2, 3]))
        assert [pair.levels for pair in pairs] == [(1, 2), (1, 3), (2, 3)]
        assert [pair.layers for pair in pairs] == [(2, 2), (2, 3), (2, 3)]
        alike = (pwcca(coarse, fine) + pwcca(fine, coarse)) / 2
        assert [pair.similarity for pair in pairs] == pytest.approx([1, alike, alike], rel=1e-4)
        shuffled = fine[np.random.default_rng(0).permutation(40)]
        chance = (pwcca(coarse, shuffled) + pwcca(shuffled, coarse)) / 2
        assert pairs[1].chance == pytest.approx(chance, rel=1e-4)
        assert chance < 0.8 * alike

    def test_what_cannot_be_measured_is_left_out(self, ranker, caplog):
        data = documents(14)
        plain = Dataset.of(data.texts, [[] for _ in range(14)], vocabulary=WORDS)
        found = analyse(ranker, None, plain, 1000)
        assert (found.documents, found.vector_documents) == (14, 14)
        assert ([*found.attention], found.likeness, found.shortlist_recall) == (["trained"], {}, ())
        assert (
            "PWCCA is left out: found 14 documents; expected more than 16, the dim" in caplog.text
        )


class TestUntuned:
    def test_the_folder_of_the_settings(self, ranker, folder):
        found = untuned_encoder(
            config.Encoder(name=str(folder), pooling="mean"), ranker.network.encoder
        )
        assert found is not ranker.network.encoder
        assert found.pooling == "mean"
        assert found.state_dict().keys() == ranker.network.encoder.state_dict().keys()

    def test_a_folder_that_is_gone(self, ranker, tmp_path, caplog):
        with caplog.at_level(logging.INFO):
            assert (
                untuned_encoder(config.Encoder(name=str(tmp_path / "gone")), ranker.network.encoder)
                is None
            )
        assert "the encoder before training is left out: encoder " in caplog.text
        assert "gone': found no such folder" in caplog.text

    def test_another_encoder_in_its_place(self, ranker, tmp_path, caplog):
        other = write_encoder(tmp_path / "other", WORDS, width=8, depth=2)
        assert untuned_encoder(config.Encoder(name=str(other)), ranker.network.encoder) is None
        assert (
            "found 2 layers of width 8 for 200 tokens; expected 3 layers of width 8 for 200 tokens"
            in caplog.text
        )
