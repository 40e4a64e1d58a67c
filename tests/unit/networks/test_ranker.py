"""A ranker of texts: what it gives does not depend on how texts are put together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from longtail.config import Cascade, Training
from longtail.data.csr import csr_of
from longtail.data.strings import Strings
from longtail.features.encoder import Encoder
from longtail.features.tokens import Tokeniser
from longtail.networks import embedder as module
from longtail.networks.cascade import CascadeXML
from longtail.networks.ranker import NeuralRanker
from longtail.tree.tree import LabelTree
from tiny_encoder import write_encoder

CHANCE = np.random.default_rng(7)
WORDS = ["red", "green", "blue", "apple", "pear", "sky", "window", "editor", "sound", "file"]
TEXTS = [" ".join(CHANCE.choice(WORDS, CHANCE.integers(1, 30))) for _ in range(70)]
TREE = LabelTree(
    CHANCE.permutation(20).astype(np.int32),
    (np.array([0, 2, 3, 7]), np.array([0, 3, 6, 7, 11, 14, 17, 20])),  # 3 → 7 → 20
)
L = TREE.n_labels
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"), TEXTS)


def ranker_of(folder, kept=(2, 3), tree=TREE, **settings):
    cascade = Cascade(**{"shortlist": kept, "last_level": "shortlist", **settings})
    network = CascadeXML(Encoder.load(folder), tree, cascade, Training(head_optimiser="sgd"), 3)
    for head in network.heads:
        head.set_rows(head.weight * 30)
    return NeuralRanker(Tokeniser.load(folder, 32), network, tree)


@pytest.fixture(scope="module")
def ranker(folder):
    return ranker_of(folder)


@pytest.fixture(scope="module")
def exhaustive(folder):
    return ranker_of(folder, kept=(3, 7))


@pytest.fixture(scope="module")
def truth():
    dense = np.where(np.random.default_rng(2).random((70, L)) < 0.2, np.float32(0.5), np.float32(0))
    dense[3] = 0
    return sparse.csr_array(dense)


def row(matrix, at):
    begin, end = matrix.indptr[at : at + 2]
    return matrix.indices[begin:end].tolist(), matrix.data[begin:end]


class TestSearch:
    def test_does_not_depend_on_the_other_texts(self, ranker):
        whole, vectors = ranker.search(TEXTS, 4)
        assert whole.shape == (70, L)
        for at in (0, 31, 32, 69):
            alone, vector = ranker.search([TEXTS[at]], 4)
            assert row(alone, 0)[0] == row(whole, at)[0]
            np.testing.assert_allclose(row(alone, 0)[1], row(whole, at)[1], **CLOSE)
            np.testing.assert_allclose(vector[0], vectors[at], **CLOSE)

    @pytest.mark.parametrize("size", [1, 7])
    def test_nor_on_how_many_go_at_a_time(self, ranker, monkeypatch, size):
        expected, vectors = ranker.search(TEXTS, 4)
        monkeypatch.setitem(module._BATCH, "cpu", size)
        found, others = ranker.search(Strings.of(TEXTS), 4)
        np.testing.assert_allclose(found.toarray(), expected.toarray(), **CLOSE)
        np.testing.assert_allclose(others, vectors, **CLOSE)

    def test_columns_are_labels(self, exhaustive):
        """Classifiers that fire for all on the way to a label: it comes first, under its own name."""
        heads = exhaustive.network.heads
        label = 11
        biases = [head.bias.clone() for head in heads]
        try:
            for head, node in zip(heads, TREE.ancestors(label), strict=True):
                head.bias[node] += 100
            assert (exhaustive.search(TEXTS[:9], 1)[0].indices == label).all()
        finally:
            for head, bias in zip(heads, biases, strict=True):
                head.bias.copy_(bias)

    def test_best_first(self, ranker):
        found, _ = ranker.search(TEXTS, 6)
        for at in range(70):
            labels, scores = row(found, at)
            assert len(labels) == len(set(labels)) == 6
            assert (np.diff(scores) <= 0).all()
            assert ((scores > 0) & (scores < 1)).all()

    def test_k_of_all_labels(self, exhaustive):
        found, _ = exhaustive.search(TEXTS[:5], 99)
        assert all(sorted(row(found, at)[0]) == list(range(L)) for at in range(5))

    def test_fewer_labels_than_k_below_the_nodes_that_were_kept(self, folder):
        found, _ = ranker_of(folder, kept=(1, 1)).search(TEXTS[:9], 10)
        assert all(1 <= count <= 4 for count in np.diff(found.indptr))

    def test_every_label_is_scored_where_the_last_level_is_full(self, folder):
        """However few nodes were kept above."""
        full = ranker_of(folder, kept=(1, 1), last_level="full")
        found, vectors = full.search(TEXTS[:9], 99)
        head = full.network.heads[-1]
        logits = torch.from_numpy(vectors) @ head.weight.T + head.bias
        np.testing.assert_allclose(
            found.toarray()[:, TREE.order], logits.sigmoid().numpy(), **CLOSE
        )

    def test_exclude(self, exhaustive):
        first, _ = exhaustive.search(TEXTS[:8], L)
        counts = [0, 1, 2, 3, 5, 8, 16, 20]
        banned = [sorted(row(first, at)[0][:count]) for at, count in enumerate(counts)]
        ends = np.cumsum([0, *counts])
        exclude = csr_of(
            np.ones(ends[-1], np.float32), np.concatenate(banned).astype(np.int32), ends, L
        )
        found, _ = exhaustive.search(TEXTS[:8], 4, exclude)
        for at, count in enumerate(counts):
            assert row(found, at)[0] == row(first, at)[0][count : count + 4]
            np.testing.assert_allclose(
                row(found, at)[1], row(first, at)[1][count : count + 4], **CLOSE
            )

    def test_no_texts(self, ranker):
        none = csr_of(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(1, np.int64), L)
        for exclude in (None, none):
            found, vectors = ranker.search([], 3, exclude)
            assert (found.shape, found.nnz, vectors.shape) == ((0, L), 0, (0, 16))
        assert ranker.embed([]).shape == (0, 16)

    def test_empty_texts(self, ranker):
        found, vectors = ranker.search(["", TEXTS[0], " \n"], 3)
        assert np.diff(found.indptr).tolist() == [3, 3, 3]
        np.testing.assert_allclose(vectors[0], vectors[2], **CLOSE)
        np.testing.assert_allclose(vectors[1], ranker.embed([TEXTS[0]])[0], **CLOSE)
        assert np.isfinite(vectors).all()

    def test_mode_of_the_network_is_left_as_it_was(self, ranker):
        for training in (True, False):
            ranker.network.train(training)
            ranker.search(TEXTS[:2], 1)
            assert ranker.network.training is training

    def test_dropout_is_off(self, ranker):
        ranker.network.train()
        ours, theirs = (ranker.search(TEXTS[:9], 3)[0] for _ in range(2))
        assert (ours != theirs).nnz == 0


class TestVectors:
    def test_are_those_of_search(self, ranker):
        tokens = ranker.tokeniser(TEXTS)
        _, expected = ranker.search(tokens, 2)
        np.testing.assert_array_equal(ranker.embed(TEXTS), expected)
        np.testing.assert_array_equal(ranker.level_vectors(tokens)[-1], expected)

    def test_of_each_level(self, ranker):
        levels = ranker.level_vectors(ranker.tokeniser(TEXTS[:6]))
        assert [vectors.shape for vectors in levels] == [(6, 16)] * 3
        assert not np.allclose(levels[0], levels[1])


class TestRecall:
    def test_is_one_where_all_is_kept(self, exhaustive, truth):
        assert exhaustive.shortlist_recall(exhaustive.tokeniser(TEXTS), truth) == [1, 1]

    @pytest.mark.parametrize("kept", [(1, 1), (2, 3), (3, 2)])
    def test_is_the_mean_over_documents_of_the_share_of_true_nodes(self, folder, truth, kept):
        ranker = ranker_of(folder, kept=kept)
        truth = truth.copy()
        truth.data[::3] = 0.25  # relevances do not count
        labels = [np.flatnonzero(own) for own in truth.toarray()]
        assert len({len(own) for own in labels}) > 2  # else the mean over pairs would be the same
        tokens = ranker.tokeniser(TEXTS)
        recalls = [[], []]
        for at, own in enumerate(labels):
            ids, _ = tokens.padded(np.array([at]), 1)
            with torch.inference_mode():
                kept_nodes = ranker.network.eval().rank(torch.from_numpy(ids), None, 1).kept
            for level in range(2):
                true = {TREE.ancestors(label)[level] for label in own}
                if true:
                    recalls[level].append(
                        len(true & set(kept_nodes[level][0].tolist())) / len(true)
                    )
        expected = [np.mean(own) for own in recalls]
        assert ranker.shortlist_recall(tokens, truth) == pytest.approx(expected)

    def test_documents_without_labels_do_not_count(self, folder, truth):
        ranker = ranker_of(folder, kept=(1, 2))
        tokens = ranker.tokeniser(TEXTS)
        dense = truth.toarray()
        dense[::2] = 0
        some = ranker.tokeniser(TEXTS[1::2])
        expected = ranker.shortlist_recall(some, sparse.csr_array(dense[1::2]))
        assert ranker.shortlist_recall(tokens, sparse.csr_array(dense)) == pytest.approx(expected)

    def test_without_labels(self, ranker):
        none = sparse.csr_array((2, L), dtype=np.float32)
        assert ranker.shortlist_recall(ranker.tokeniser(TEXTS[:2]), none) == [0, 0]

    def test_of_a_single_level(self, folder):
        single = ranker_of(folder, kept=(), tree=LabelTree(np.arange(5, dtype=np.int32), ()))
        assert (
            single.shortlist_recall(single.tokeniser(TEXTS[:2]), sparse.csr_array(np.eye(2, 5)))
            == []
        )
        assert single.search(TEXTS[:2], 9)[0].nnz == 10


class TestPadding:
    def test_a_text_of_any_length_gives_what_it_gives_alone(self, ranker):
        """Lengths around multiples of 8 and around the most tokens, in one batch with a long one."""
        texts = [
            " ".join(["pear"] * count) for count in (1, 5, 6, 7, 8, 13, 14, 15, 29, 30, 31, 60)
        ]
        together = ranker.embed(texts)
        for at, text in enumerate(texts):
            np.testing.assert_allclose(ranker.embed([text])[0], together[at], **CLOSE)
        np.testing.assert_allclose(together[-1], together[-3], **CLOSE)  # cut to 30 words
