"""Lists of several models as one, against a slow reading of the authors' code."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from longtail.errors import UsageError
from longtail.reproduction.results import fused


def lists_of(rows, width):
    """Return (n, width) scores from lists of (label, score), best first."""
    labels = np.array([label for row in rows for label, _ in row], np.int32)
    scores = np.array([score for row in rows for _, score in row], np.float32)
    matrix = sparse.csr_array((len(rows), width), dtype=np.float32)
    matrix.data, matrix.indices = scores, labels
    matrix.indptr = np.cumsum([0, *map(len, rows)])
    return matrix


def random_lists(rng, n, width, most, low):
    rows = []
    for _ in range(n):
        labels = rng.choice(width, rng.integers(0, most + 1), replace=False)
        scores = np.sort(rng.uniform(low, 2, len(labels)))[::-1]
        rows.append(list(zip(labels.tolist(), scores.tolist(), strict=True)))
    return rows


def slow(members, fusion):
    """Fuse as PECOS and LightXML do: a dictionary a document."""
    longest = max(len(row) for rows in members for row in rows)
    for documents in zip(*members, strict=True):
        sums = {}
        for row in documents:
            total = sum(math.exp(score) for _, score in row)
            for rank, (label, score) in enumerate(row):
                value = {
                    "mean": score,
                    "sigmoid": 1 / (1 + math.exp(-score)),
                    "softmax": math.exp(score) / total,
                    "rank": longest - rank,
                }[fusion]
                sums[label] = sums.get(label, 0.0) + value / len(members)
        yield sums


@pytest.mark.parametrize("fusion", ["mean", "sigmoid", "softmax", "rank"])
@pytest.mark.parametrize("k", [3, 50])
def test_lists_are_fused_as_by_the_slow_way(fusion, k):
    rng = np.random.default_rng(3)
    low = 0 if fusion == "mean" else -4
    members = [random_lists(rng, 60, 30, 8, low) for _ in range(3)]
    found = fused([lists_of(rows, 30) for rows in members], fusion, k)
    assert found.shape == (60, 30)
    for row, expected in enumerate(slow(members, fusion)):
        start, end = found.indptr[row : row + 2]
        labels, scores = found.indices[start:end].tolist(), found.data[start:end].tolist()
        assert len(labels) == min(k, len(expected))
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([expected[label] for label in labels], rel=1e-5)
        assert scores == pytest.approx(sorted(expected.values(), reverse=True)[:k], rel=1e-5)


def test_margins_have_no_mean():
    margins = lists_of([[(0, 1.0), (1, -0.5)]], 3)
    with pytest.raises(UsageError, match=r"a score of -0\.5 with the fusion mean"):
        fused([margins, margins], "mean", 3)


@pytest.mark.parametrize("fusion", ["mean", "sigmoid", "softmax", "rank"])
def test_empty_lists_stay_empty(fusion):
    none = lists_of([[], []], 4)
    assert fused([none, none], fusion, 5).nnz == 0
