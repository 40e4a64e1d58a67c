"""Where classifiers start: near their own documents, and on average at the share of true ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from longtail.networks.heads.initial_rows import centroid_rows, prior_logit

N = 60
K = 6
WIDTH = 8


@pytest.fixture(scope="module")
def clusters():
    """Documents around one point for each label, off the origin; the last label has none."""
    chance = np.random.default_rng(0)
    own = np.arange(N) % (K - 1)
    points = 2 * np.eye(K, WIDTH) + 1
    vectors = (points[own] + chance.normal(0, 0.2, (N, WIDTH))).astype(np.float32)
    relevance = sparse.csr_array((np.ones(N, np.float32), (np.arange(N), own)), shape=(N, K))
    return vectors, relevance, own, points.astype(np.float32)


def logits(rows, vectors):
    return vectors @ rows.weights.T + rows.bias


class TestCentroids:
    def test_own_documents_score_higher(self, clusters):
        vectors, relevance, own, _ = clusters
        rows = centroid_rows(vectors, relevance, -2.0)
        assert (rows.weights.dtype, rows.bias.dtype) == (np.float32, np.float32)
        found = logits(rows, vectors)
        for label in range(K - 1):
            assert found[own == label, label].min() > found[own != label, label].max()
        assert (found[:, : K - 1].argmax(1) == own).all()

    def test_an_average_document_scores_the_prior(self, clusters):
        vectors, relevance, _, _ = clusters
        rows = centroid_rows(vectors, relevance, -2.0)
        assert logits(rows, vectors.mean(0)[None]) == pytest.approx(-2.0, abs=1e-4)

    def test_all_are_as_strong(self, clusters):
        vectors, relevance, _, _ = clusters
        lengths = np.linalg.norm(centroid_rows(vectors, relevance, 0.0).weights, axis=1)
        assert lengths[:-1] * spread(vectors) == pytest.approx(5, rel=1e-4)

    def test_scale_of_the_vectors_does_not_matter(self, clusters):
        vectors, relevance, _, _ = clusters
        ours = logits(centroid_rows(vectors, relevance, -1.0), vectors)
        theirs = logits(centroid_rows(vectors * 64, relevance, -1.0), vectors * 64)
        assert ours == pytest.approx(theirs, abs=1e-3)

    def test_a_label_without_documents_is_at_the_prior(self, clusters):
        vectors, relevance, _, _ = clusters
        rows = centroid_rows(vectors, relevance, -3.0)
        assert (rows.weights[-1] == 0).all()
        assert rows.bias[-1] == -3.0

    def test_its_text_stands_for_the_documents(self, clusters):
        vectors, relevance, own, points = clusters
        rows = centroid_rows(vectors, relevance, -3.0, points)
        unseen = points[-1:] + np.float32(0.01)
        assert logits(rows, unseen)[0].argmax() == K - 1
        assert (logits(rows, vectors).argmax(1) == own).all()

    def test_text_counts_as_much_as_documents(self):
        vectors = np.array([[1, 0], [-1, 0]], np.float32)
        relevance = sparse.csr_array(np.eye(2, dtype=np.float32))
        rows = centroid_rows(vectors, relevance, 0.0, np.array([[0, 3], [0, -3]], np.float32))
        assert rows.weights[0] == pytest.approx([5 / 2**0.5, 5 / 2**0.5])
        assert rows.weights[1] == pytest.approx([-5 / 2**0.5, -5 / 2**0.5])

    def test_relevance_weighs(self):
        vectors = np.array([[1, 0], [0, 1], [-1, -1]], np.float32)
        relevance = sparse.csr_array(np.array([[1.0], [0.25], [0]], np.float32))
        centre = np.array([1, 0.25]) / np.hypot(1, 0.25)  # the mean of all documents is the origin
        assert centroid_rows(vectors, relevance, 0.0).weights[0] == pytest.approx(
            centre * 5 / spread(vectors)
        )

    def test_documents_that_hardly_differ(self, clusters):
        """Their differences are not blown up: what all have in common will move by more than those
        are.
        """
        vectors, relevance, own, _ = clusters
        far = vectors + 100
        rows = centroid_rows(far, relevance, -2.0)
        lengths = np.linalg.norm(rows.weights, axis=1)[:-1]
        assert lengths * np.linalg.norm(far.mean(0)) == pytest.approx(5 / 0.3, rel=1e-3)
        assert (logits(rows, far)[:, : K - 1].argmax(1) == own).all()

    def test_documents_that_are_all_the_same(self):
        rows = centroid_rows(
            np.ones((4, 3), np.float32), sparse.csr_array(np.eye(4, 2, dtype=np.float32)), -1.0
        )
        assert np.isfinite(rows.weights).all()
        assert logits(rows, np.ones((1, 3), np.float32)) == pytest.approx(-1.0)


def spread(vectors):
    return np.linalg.norm(vectors - vectors.mean(0), axis=1).mean()


class TestPrior:
    def test_is_the_share_of_true_ones(self):
        relevance = sparse.csr_array(np.eye(10, 50, dtype=np.float32))  # one true node a document
        for size in (4, 20, 50):
            assert 1 / (1 + np.exp(-prior_logit(relevance, size))) == pytest.approx(1 / size)

    @pytest.mark.parametrize("filled", [0, 1])
    def test_stays_finite(self, filled):
        relevance = sparse.csr_array(np.full((3, 4), filled, np.float32))
        assert -14 < prior_logit(relevance, 4) <= 0
