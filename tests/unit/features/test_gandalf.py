"""Label points: whose text, with which targets and features, which labels; and what linear parts
make of soft rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.config import Forest, Gandalf, Neighbours, Ranker, Search
from longtail.data.dataset import Dataset
from longtail.data.labels import Label, Labels
from longtail.errors import UsageError
from longtail.features.gandalf import (
    _bins,
    check_gandalf,
    chosen_labels,
    label_points,
    real_documents,
    soft_rows,
    spoken_texts,
)
from longtail.features.label_features import label_features
from longtail.features.label_graph import neighbours
from longtail.features.matrix import Features
from longtail.rankers.forest import fit_tree
from longtail.rankers.neighbours import Neighbours as Voting
from longtail.rankers.neighbours import learner_seeds
from longtail.rankers.partitions import document_graph, fit_learner
from longtail.rankers.spans import positives_of

ON = Gandalf(use=True)
VOCABULARY = [
    Label("a", text="red apple"),
    Label("b", name="pear tree"),
    Label("plum"),
    Label("--", text="…"),
]
GRAPH = sparse.csr_array(
    np.array(
        [[0.7, 0.3, 0.05, 0], [0.1, 0.9, 0.2, 0], [0, 0.0999, 0.5, 0], [0, 0, 0, 1]], np.float32
    )
)


@pytest.fixture
def documents():
    return Dataset.of(["one", "two"], [["a", "b"], ["plum"]], VOCABULARY)


class TestLabelPoints:
    def test_documents_stay_and_labels_follow(self, documents):
        result = label_points(documents, GRAPH, ON, seed=0)
        assert list(result.texts) == [
            "one",
            "two",
            "red apple",
            "pear tree",
            "plum",
        ]  # «--» has no word
        expected = [[1, 1, 0, 0], [0, 0, 1, 0], [1, 0.3, 0, 0], [0.1, 1, 0.2, 0], [0, 0, 1, 0]]
        assert np.allclose(result.label_matrix.toarray(), expected)
        assert result.label_matrix.has_sorted_indices
        assert result.label_matrix.dtype == np.float32
        assert (result.ids, result.labels, result.n_real) == (None, documents.labels, 2)
        assert len(documents) == 2

    def test_real_documents_come_back(self, documents):
        result = real_documents(label_points(documents, GRAPH, ON, seed=0))
        assert list(result.texts) == ["one", "two"]
        assert result.label_matrix.toarray().tolist() == documents.label_matrix.toarray().tolist()
        assert type(result) is Dataset
        assert real_documents(documents) is documents

    def test_ids_are_those_of_labels(self, documents):
        numbered = replace(documents, ids=Labels.of(["x", "y"]).ids)
        assert list(label_points(numbered, GRAPH, ON, seed=0).ids) == ["x", "y", "a", "b", "plum"]

    def test_features_are_those_of_labels(self, documents):
        member = sparse.csr_array(np.array([[1, 0], [0, 2], [0, 0], [3, 3]], np.float32))
        member.eliminate_zeros()
        given_features = replace(
            documents, texts=None, features=sparse.csr_array(np.eye(2, dtype=np.float32))
        )
        result = label_points(replace(given_features, label_features=member), GRAPH, ON, seed=0)
        assert result.texts is None
        assert result.features.toarray().tolist() == [
            [1, 0],
            [0, 1],
            [1, 0],
            [0, 2],
            [3, 3],
        ]  # the third has none
        assert result.label_matrix.toarray()[4].tolist() == [0, 0, 0, 1]
        with pytest.raises(UsageError, match="none of labels; give both"):
            label_points(given_features, GRAPH, ON, seed=0)

    def test_what_cannot_be_read_is_refused(self, documents):
        with pytest.raises(UsageError, match="dense features"):
            check_gandalf(replace(documents, dense=np.zeros((2, 3), np.float32)))
        with pytest.raises(UsageError, match="no label with a word"):
            check_gandalf(Dataset.of(["one"], [["--"]]))
        check_gandalf(Dataset.of(["one"], [["an id is a text"]]))

    def test_texts_then_names_then_ids(self):
        assert list(spoken_texts(Labels.of(VOCABULARY))) == ["red apple", "pear tree", "plum", "…"]
        assert list(spoken_texts(Labels.of(["a b", "c"]))) == ["a b", "c"]


class TestSoftRows:
    def test_threshold_is_kept_and_own_place_is_1(self):
        graph = sparse.csr_array(
            np.array([[0.01, 0.2, 0.5], [0, 0.5, 0], [0.2, 0.1, 0.3]], np.float32)
        )
        result = soft_rows(graph, np.array([0, 2]), 0.2)
        assert np.allclose(result.toarray(), [[1, 0.2, 0.5], [0.2, 0, 1]])
        assert soft_rows(graph, np.array([0, 1, 2]), 1.0).toarray().tolist() == np.eye(3).tolist()
        assert soft_rows(graph, np.array([2]), 0.0).nnz == 3


class TestChoice:
    @given(
        st.lists(st.integers(0, 30), min_size=1, max_size=60),
        st.integers(0, 9),
        st.sampled_from(["random", "tail"]),
    )
    @settings(max_examples=40, deadline=None)
    def test_shares_are_nested(self, counts, seed, sample):
        documents = of_counts(counts)
        chosen = [
            chosen_labels(documents, Gandalf(use=True, share=share, sample=sample), seed)
            for share in (0.2, 0.5, 1.0)
        ]
        assert [len(member) for member in chosen] == [
            max(round(share * len(counts)), 1) for share in (0.2, 0.5, 1.0)
        ]
        assert set(chosen[0]) <= set(chosen[1]) <= set(chosen[2])
        assert all((np.diff(member) > 0).all() for member in chosen)

    def test_rare_labels_come_first(self):
        counts = np.array([50, 1, 40, 1, 3, 1, 60, 2] * 5)
        documents = of_counts(counts)
        tail = chosen_labels(documents, Gandalf(use=True, share=0.5, sample="tail"), 1)
        assert counts[tail].max() <= 3
        by_chance = [
            chosen_labels(documents, Gandalf(use=True, share=0.5), seed) for seed in (1, 1, 2)
        ]
        assert counts[by_chance[0]].max() > 3
        assert by_chance[0].tolist() == by_chance[1].tolist() != by_chance[2].tolist()

    def test_bins_have_like_mass_and_do_not_part_equals(self):
        counts = np.arange(1, 201)
        bins = _bins(counts)
        assert (np.diff(bins) >= 0).all()
        masses = np.bincount(bins, counts)
        assert len(masses) == 10
        assert masses.max() - masses.min() <= 2 * counts.max()
        assert len(set(_bins(np.array([1] * 90 + [7]))[:90])) == 1
        assert _bins(np.array([0, 0])).tolist() == [0, 0]


class TestSoftTargets:
    def test_positives_weigh_by_relevance_up_to_1(self):
        relevance = sparse.csr_array(np.array([[1.0, 0.25], [1.7, 0], [0, 2.0]], np.float32))
        assert positives_of(relevance, Ranker()).relevance.tolist() == [1, 1, 0.25, 1]
        shares = positives_of(relevance, Ranker(cost_sensitive=True)).relevance
        assert shares == pytest.approx([0.8, 1, 0.2, 1])
        below_1 = sparse.csr_array(np.array([[0.25, 0.5], [0, 0.125]], np.float32))
        assert positives_of(below_1, Ranker(cost_sensitive=True)).relevance.tolist() == [
            0.25,
            0.5,
            0.125,
        ]

    def test_label_features_weigh_by_relevance(self):
        rng = np.random.default_rng(0)
        block = sparse.random_array((30, 20), density=0.3, format="csr", dtype=np.float32, rng=rng)
        matrix = sparse.random_array((30, 6), density=0.3, format="csr", dtype=np.float32, rng=rng)
        features = Features.of(block, rng.standard_normal((30, 2)).astype(np.float32))
        result = label_features(features, matrix, "pifa")
        expected = matrix.toarray().T @ np.hstack([features.dense, block.toarray()])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        assert np.allclose(np.hstack([result.dense, result.sparse.toarray()]), expected, atol=1e-5)

    def test_leaves_gain_by_relevance(self):
        features = Features.of(sparse.csr_array(np.eye(2, dtype=np.float32)))
        propensities = np.array([0.5, 1.0])
        soft = sparse.csr_array(np.array([[1, 0.5], [0, 3]], np.float32))
        tree = fit_tree(features, soft, propensities, Forest(), 0, 0)
        assert dict(zip(tree["labels"].tolist(), tree["gains"], strict=True)) == pytest.approx(
            {0: (0.5 / 0.5) / 2, 1: (0.5 * 0.5 + 0.5) / 2}
        )

    def test_neighbours_vote_by_relevance(self):
        rng = np.random.default_rng(0)
        features = Features.of(sparse.csr_array(rng.random((12, 5)).astype(np.float32)))
        plain = sparse.csr_array((rng.random((12, 4)) < 0.5).astype(np.float32))
        plan = Neighbours(learners=1, dimensions=4, epochs=2, voters=12)
        graph = document_graph(plain, 3, 0)
        learners = [fit_learner(features, plain, graph, plan, seed) for seed in learner_seeds(1, 0)]
        full = Voting.of(learners, features, plain, plan)
        half = Voting.of(learners, features, sparse.csr_array(plain * np.float32(0.5)), plan)
        ours, theirs = (
            voting.search(features, Search(), None).toarray() for voting in (half, full)
        )
        assert ours == pytest.approx(theirs / 2, rel=1e-6)
        label = int(ours[0].argmax())
        assert half.explain_votes(features, label).score == pytest.approx(ours[0, label], rel=1e-5)
        assert "label_values" not in full.to_arrays()
        again = Voting.from_arrays(half.to_arrays())
        assert (
            again.search(features, Search(), 2).data.tolist()
            == half.search(features, Search(), 2).data.tolist()
        )


class TestNeighboursOfALabel:
    def test_nearest_first_without_itself(self):
        labels = Labels.of(VOCABULARY)
        result = neighbours(GRAPH, labels, "pear tree")
        assert [(near.id, near.name) for near in result] == [("plum", "plum"), ("a", "a")]
        assert [near.value for near in result] == pytest.approx([0.2, 0.1])
        assert len(neighbours(GRAPH, labels, "b", k=1)) == 1
        assert neighbours(GRAPH, labels, "--") == []


def of_counts(counts):
    """Documents with one label each, so many of each label."""
    rows = np.repeat(np.arange(len(counts)), counts)
    matrix = sparse.csr_array(
        (np.ones(len(rows), np.float32), (np.arange(len(rows)), rows)), (len(rows), len(counts))
    )
    return Dataset(matrix, Labels.of(f"label {at}" for at in range(len(counts))))
