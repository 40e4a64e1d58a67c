"""Walks against a plain walker and exact probabilities; sums and the largest numbers of rows against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.kernels.feature_rows import FeatureRows, Incidence
from longtail.kernels.walks import (
    WalkSettings,
    WeightedMembers,
    keep_largest,
    walk_counts,
    weighted_sums,
)

MASK = 2**64 - 1


def sides(matrix):
    """The arrays of a 0/1 matrix of documents and labels, by label and by document."""
    rows = sparse.csr_array(matrix)
    by_label = rows.tocsc()
    return Incidence(
        *(
            a.astype(t)
            for m in (by_label, rows)
            for a, t in ((m.indptr, np.int64), (m.indices, np.int32))
        )
    )


def walked(matrix, first=0, last=None, steps=400, reset=0.8, keep=10, seed=0):
    n_labels = matrix.shape[1]
    last = n_labels if last is None else last
    walk_settings = WalkSettings(steps, reset, keep)
    ptr, labels, counts = walk_counts(first, last, sides(matrix), walk_settings, seed)
    return sparse.csr_array((counts, labels, ptr), (last - first, n_labels))


def random_pairs(rng, documents, labels, density=0.3):
    return (rng.random((documents, labels)) < density).astype(np.float32)


def splitmix(*numbers):
    state = 0
    for number in numbers:
        state = ((state ^ number) + 0x9E3779B97F4A7C15) & MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state >> 1


def plain_walk(matrix, start, steps, reset, seed):
    """How often each label is met, step by step."""
    counts = np.zeros(matrix.shape[1], int)
    label = start
    for step in range(steps if matrix[:, start].any() else 0):
        bits = splitmix(seed, 2 * step, start)
        documents = np.flatnonzero(matrix[:, label])
        labels = np.flatnonzero(matrix[documents[(bits >> 32) * len(documents) >> 31]])
        label = int(labels[(bits % 2**31) * len(labels) >> 31])
        counts[label] += 1
        if splitmix(seed, 2 * step + 1, start) < reset * 2**63:
            label = start
    return counts


def plain_row(counts, start, keep):
    """The largest counts, of equal ones the lower labels, and the start."""
    counts[start] = max(counts[start], 1)
    best = sorted(np.flatnonzero(counts).tolist(), key=lambda label: (-counts[label], label))[:keep]
    return {label: counts[label] for label in {*best, start}}


@given(
    st.integers(0, 2**31),
    st.integers(1, 12),
    st.integers(1, 100),
    st.integers(0, 60),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.3, 0.8, 1.0]),
)
@settings(deadline=None, max_examples=60)
def test_walks_are_those_of_a_plain_walker(seed, documents, labels, steps, keep, reset):
    matrix = random_pairs(np.random.default_rng(seed), documents, labels)
    first, last = labels // 3, max(labels // 3 + 1, labels // 2)
    found = walked(matrix, first, last, steps, reset, keep, seed)
    for row, start in enumerate(range(first, last)):
        own = slice(found.indptr[row], found.indptr[row + 1])
        assert (np.diff(found.indices[own]) > 0).all()
        expected = plain_row(plain_walk(matrix, start, steps, reset, seed), start, keep)
        assert (
            dict(zip(found.indices[own].tolist(), found.data[own].tolist(), strict=True))
            == expected
        )


@pytest.mark.parametrize("reset", [0.0, 0.5, 0.8])
def test_frequencies_are_the_probabilities_of_the_chain(reset):
    matrix = np.maximum(
        random_pairs(np.random.default_rng(2), 12, 7), np.eye(12, 7, dtype=np.float32)
    )
    matrix = matrix[matrix.any(1)]
    steps = 20_000
    found = walked(matrix, steps=steps, reset=reset, keep=7).toarray()
    step = (matrix / matrix.sum(0)).T @ (
        matrix / matrix.sum(1, keepdims=True)
    )  # label → document → label
    place, expected = (
        np.eye(7),
        np.zeros((7, 7)),
    )  # row l: where the walk from l is, and how often it meets what
    for _ in range(steps):
        met = place @ step
        expected += met
        place = reset * np.eye(7) + (1 - reset) * met
    assert np.abs(found - expected).max() / steps < 0.015
    assert (found.sum(1) == steps).all()


def test_the_seed_and_the_start_make_the_walk():
    matrix = np.ones((3, 6), np.float32)
    assert (walked(matrix, seed=1) != walked(matrix, seed=2)).nnz
    rows = walked(matrix, seed=1).toarray()
    assert len({tuple(row) for row in rows}) == 6
    assert (rows[2:4] == walked(matrix, 2, 4, seed=1).toarray()).all()  # blocks do not matter


def test_a_label_without_documents_has_itself():
    assert walked(np.array([[1.0, 0, 0]])).toarray().tolist() == [[400, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_the_start_stays_without_being_among_the_most_met():
    found = walked(np.ones((1, 300), np.float32), steps=100, keep=1)
    assert (np.diff(found.indptr) == 2).all()  # the one that was met most, and the start
    assert {1.0, 2.0} <= set(found.diagonal().tolist())


def largest(row, keep):
    """The row with only its ``keep`` largest magnitudes, the first of equal ones."""
    order = np.argsort(-np.abs(row), kind="stable")[:keep]
    kept = np.zeros_like(row)
    kept[order] = row[order]
    return kept


def few_values(rng, rows, columns, density=0.6):
    """Many ties, both signs."""
    block = rng.integers(1, 5, (rows, columns)) * rng.choice([-1, 1], (rows, columns))
    return sparse.csr_array((block * (rng.random((rows, columns)) < density)).astype(np.float32))


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 200), st.integers(1, 60))
@settings(deadline=None, max_examples=60)
def test_the_largest_of_each_row(seed, rows, columns, keep):
    block = few_values(np.random.default_rng(seed), rows, columns)
    ptr, indices, values = (
        block.indptr.astype(np.int64),
        block.indices.astype(np.int32),
        block.data.copy(),
    )
    filled = keep_largest(ptr, indices, values, keep)
    assert filled == ptr[-1]
    found = sparse.csr_array((values[:filled], indices[:filled], ptr), block.shape)
    assert found.has_canonical_format
    assert (found.toarray() == np.apply_along_axis(largest, 1, block.toarray(), keep)).all()
    assert np.diff(ptr).max(initial=0) <= keep


@given(
    st.integers(0, 2**32),
    st.integers(1, 8),
    st.integers(1, 9),
    st.sampled_from([1, 70, 9000]),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=60)
def test_weighted_sums_are_the_product(seed, rows, members, columns, dense_columns):
    rng = np.random.default_rng(seed)
    weights, block = few_values(rng, rows, members), few_values(rng, members, columns, 0.1)
    dense = rng.integers(-3, 4, (members, dense_columns)).astype(np.float32)
    keep = int(rng.integers(1, 40))
    sums = WeightedMembers(
        weights.indptr.astype(np.int64), weights.indices.astype(np.int32), weights.data
    )
    pointers, indices = block.indptr.astype(np.int64), block.indices.astype(np.int32)
    features = FeatureRows(pointers, indices, block.data, dense, columns)
    ptr, found_columns, values, found_dense = weighted_sums(sums, features, keep)
    found = sparse.csr_array((values, found_columns, ptr), (rows, columns))
    assert (found_columns.dtype, values.dtype, found_dense.dtype) == (
        np.int32,
        np.float32,
        np.float32,
    )
    expected = weights.toarray() @ block.toarray()
    assert found.has_canonical_format
    assert (found.toarray() == np.apply_along_axis(largest, 1, expected, keep)).all()
    assert (found_dense == weights.toarray() @ dense).all()
