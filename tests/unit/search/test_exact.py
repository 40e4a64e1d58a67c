"""The exact k best labels are those of an exhaustive search, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from searching import beam_search, exact_search

from longtail.errors import UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.search.chunks import Chunks, Part
from longtail.tree.tree import LabelTree

N_COLUMNS = 30


def random_model(seed, fans, density):
    rng = np.random.default_rng(seed)
    levels = []
    all_offsets = []
    size = 1
    for fan in fans:
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, fan + 1, size))]).astype(np.int64)
        parts = []
        for width in np.diff(offsets):
            held = sparse.random_array(
                (N_COLUMNS + 1, int(width)), density=density, rng=rng
            ).tocsr()
            values = rng.normal(size=held.nnz).astype(np.float32)
            no_dense = np.zeros((width, 0), np.float32)
            parts.append(
                Part(np.arange(N_COLUMNS + 1), held.indptr, held.indices, values, no_dense)
            )
        levels.append(Chunks.build(offsets, parts, N_COLUMNS))
        all_offsets.append(offsets)
        size = int(offsets[-1])
    return LabelTree(rng.permutation(size).astype(np.int32), tuple(all_offsets[1:])), levels


def documents(seed, n):
    block = sparse.random_array(
        (n, N_COLUMNS), density=0.4, rng=np.random.default_rng(seed), dtype=np.float32
    )
    return Features.of(block.tocsr())


def same(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("data", "indices", "indptr")
    )


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    fans=st.sampled_from([(4,), (3, 4, 5), (2, 2, 2, 2, 2), (9, 9)]),
    density=st.sampled_from([0.0, 0.1, 0.5]),
    score=st.sampled_from(["hinge-2", "hinge-3", "sigmoid"]),
    k=st.sampled_from([1, 3, 1000]),
    excluded=st.sampled_from([None, 0.0, 0.3, 1.0]),
)
def test_equals_exhaustive_search(seed, fans, density, score, k, excluded):
    (tree, levels) = random_model(seed, fans, density)
    features = documents(seed, 40)
    exclude = None
    if excluded is not None:
        exclude = sparse.csr_array(
            np.random.default_rng(seed).random((40, tree.n_labels)) < excluded
        )
    options = {"k": k, "score": score, "bias": 1.0, "exclude": exclude}
    found = exact_search(features, tree, levels, **options)
    assert same(found, beam_search(features, tree, levels, beam_size=10_000, **options))


def test_finds_what_a_beam_misses():
    (tree, levels) = random_model(1, (6, 6, 6), 0.3)
    features = documents(2, 200)
    options = {"k": 1, "score": "sigmoid", "bias": 1.0}
    best = exact_search(features, tree, levels, **options)
    greedy = beam_search(features, tree, levels, beam_size=1, **options)
    assert np.all(best.data >= greedy.data)
    assert np.any(best.data > greedy.data)


def test_same_bytes_for_any_threads():
    (tree, levels) = random_model(3, (4, 4, 4), 0.3)
    features = documents(4, 300)
    options = {"k": 5, "score": "hinge-3", "bias": 1.0}
    with pool.threads(1):
        found = exact_search(features, tree, levels, **options)
    with pool.threads(3):
        assert same(found, exact_search(features, tree, levels, **options))


def test_k_below_one_is_refused():
    tree, levels = random_model(5, (4,), 0.3)
    with pytest.raises(UsageError, match="at least 1"):
        exact_search(documents(6, 2), tree, levels, k=0, score="sigmoid", bias=1.0)
