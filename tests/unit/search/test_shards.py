"""A level in shards against the same level in one piece: the same bytes, whoever holds which
shards.
"""

from dataclasses import replace
from functools import reduce
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from searching import beam_search, exact_search

from longtail.config import Search
from longtail.errors import UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.ranked_lists import merge_ranked
from longtail.kernels.search import Beam
from longtail.search.beam import Descent, SearchTree, shortlist
from longtail.search.chunks import Chunks, Part
from longtail.search.shards import Shards, checked_shards, cut_parents
from longtail.tree.tree import LabelTree

COLUMNS = 30
BIAS = 0.5


def packed(rng, offsets, dense_width=0, dtype="float16"):
    def part(width):
        # few different weights, so that scores tie
        weights = rng.integers(-2, 3, (COLUMNS + 1, width)) * (
            rng.random((COLUMNS + 1, width)) < 0.3
        )
        rows = np.flatnonzero(weights.any(axis=1))
        held = sparse.csr_array(weights[rows].astype(np.float32))
        return Part(
            rows,
            held.indptr,
            held.indices,
            held.data,
            rng.normal(size=(width, dense_width)).astype(np.float32),
        )

    return Chunks.build(
        offsets, [part(b - a) for a, b in pairwise(offsets)], COLUMNS, dense_width, dtype
    )


def model(seed=0, fans=(4, 5, 6), **options):
    """A tree of random fan-outs, and its levels in one piece each."""
    rng = np.random.default_rng(seed)
    size = 1
    all_offsets = []
    levels = []
    for fan in fans:
        all_offsets.append(
            np.concatenate([[0], np.cumsum(rng.integers(1, fan + 1, size))]).astype(np.int64)
        )
        levels.append(packed(rng, all_offsets[-1], **options))
        size = int(all_offsets[-1][-1])
    return LabelTree(rng.permutation(size).astype(np.int32), tuple(all_offsets[1:])), levels


def documents(seed=1, n=12, dense_width=0):
    rng = np.random.default_rng(seed)
    block = sparse.random_array((n, COLUMNS), density=0.3, rng=rng, dtype=np.float32)
    return Features.of(block.tocsr(), rng.normal(size=(n, dense_width)).astype(np.float32))


def excluded(tree, n, seed=2):
    drawn = sparse.random_array(
        (n, tree.n_labels), density=0.1, rng=np.random.default_rng(seed), dtype=np.float32
    )
    return drawn.tocsr()


def assert_same(one, other):
    assert one.shape == other.shape
    for name in ("indptr", "indices", "data"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def in_shards(levels, shard_labels):
    return [*levels[:-1], Shards.cut(levels[-1], shard_labels)]


def only(shards, numbers):
    """Return the level of which some shards alone are held."""
    parts = (part if number in numbers else None for number, part in enumerate(shards.parts))
    return replace(shards, parts=tuple(parts))


@pytest.mark.parametrize("shard_labels", [1, 4, 9, 25, 10_000])
@pytest.mark.parametrize("score", ["hinge-3", "sigmoid"])
def test_search_in_shards_finds_what_search_in_one_piece_does(shard_labels, score):
    tree, levels = model()
    features = documents()
    exclude = excluded(tree, 12)
    sharded = in_shards(levels, shard_labels)
    common = {"score": score, "bias": BIAS}
    for k, own, last_level in product((1, 5, None), (None, exclude), ("path", "margin")):
        asked = {"beam_size": 3, "k": k, "exclude": own, "last_level": last_level}
        whole = beam_search(features, tree, levels, **asked, **common)
        assert_same(beam_search(features, tree, sharded, **asked, **common), whole)
    one = documents(n=1)
    whole = beam_search(one, tree, levels, beam_size=3, k=2, last_level="margin", **common)
    assert_same(
        beam_search(one, tree, sharded, beam_size=3, k=2, last_level="margin", **common), whole
    )
    for k, own in product((4, tree.n_labels), (None, exclude)):
        whole = exact_search(features, tree, levels, k=k, exclude=own, **common)
        assert_same(exact_search(features, tree, sharded, k=k, exclude=own, **common), whole)
    whole = shortlist(features, tree, levels, beam_size=4, **common)
    assert_same(shortlist(features, tree, sharded, beam_size=4, **common), whole)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("fans", [(20,), (3, 8), (3, 3, 3, 3)])
def test_all_types_of_weights_dense_blocks_and_depths(dtype, fans):
    tree, levels = model(fans=fans, dtype=dtype, dense_width=3)
    if len(fans) == 1:  # labels alone, in batches
        offsets = np.array([0, 6, 12, 18, tree.n_labels]).clip(max=tree.n_labels)
        levels = [packed(np.random.default_rng(5), np.unique(offsets), 3, dtype)]
    features = documents(dense_width=3)
    for own in (
        features,
        Features(features.sparse[[0]], features.dense[:1]),
    ):  # one document has a way of its own
        whole = beam_search(own, tree, levels, beam_size=4, k=5, score="hinge-2", bias=BIAS)
        found = beam_search(
            own, tree, in_shards(levels, 7), beam_size=4, k=5, score="hinge-2", bias=BIAS
        )
        assert_same(found, whole)


def test_threads_and_blocks_change_no_byte(monkeypatch):
    tree, levels = model(fans=(4, 6))
    monkeypatch.setattr("longtail.search.beam._SMALLEST_BLOCK", 2)
    features = documents(n=40)
    sharded = in_shards(levels, 5)
    with pool.threads(1):
        one = beam_search(features, tree, sharded, beam_size=3, k=5, score="hinge-3", bias=BIAS)
    with pool.threads(3):
        assert_same(
            beam_search(features, tree, sharded, beam_size=3, k=5, score="hinge-3", bias=BIAS), one
        )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    shard_labels=st.integers(1, 12),
    k=st.integers(1, 8),
    way=st.sampled_from(["beam", "exact", "margin"]),
    data=st.data(),
)
def test_the_best_of_all_holders_are_the_best_of_the_whole(seed, shard_labels, k, way, data):
    tree, levels = model(seed, fans=(3, 4, 4))
    features = documents(seed, 5)
    exclude = excluded(tree, 5, seed)
    sharded = in_shards(levels, shard_labels)

    def best(last):
        last_level = "margin" if way == "margin" else "path"
        search = Search(3, "hinge-3", last_level, exact=way == "exact")
        search_tree = SearchTree.of([*levels[:-1], last], BIAS, tree.order)
        return Descent.of(features, search_tree, search, exclude).run(k)

    shards = sharded[-1]
    holders = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=shards.n_shards, max_size=shards.n_shards))
    )
    parts = [best(only(shards, np.flatnonzero(holders == holder))) for holder in np.unique(holders)]
    merged = reduce(lambda own, other: merge_ranked(own, other, 0, k), parts)
    for found, whole in zip(merged, best(levels[-1]), strict=True):
        assert found.tobytes() == whole.tobytes()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.booleans()), max_size=9),
        max_size=5,
    ),
    st.integers(1, 12),
)
def test_two_rankings_are_merged_as_sorting_both_would(documents, limit):
    rows = [
        {node: (-score, node, first) for score, node, first in own}.values() for own in documents
    ]

    def ranked(wanted):
        kept = [sorted(own[:2] for own in row if own[2] in wanted) for row in rows]
        ends = np.cumsum([0, *map(len, kept)])
        pairs = np.array([pair for own in kept for pair in own]).reshape(-1, 2)
        return Beam(ends, pairs[:, 1].astype(np.int32), -pairs[:, 0].astype(np.float32))

    ends, nodes, scores = merge_ranked(ranked([True]), ranked([False]), 0, limit)
    whole_ends, whole_nodes, whole_scores = ranked([True, False])
    at = [i for a, b in pairwise(whole_ends.tolist()) for i in range(a, min(b, a + limit))]
    assert nodes.tolist() == whole_nodes[at].tolist()
    assert scores.tolist() == whole_scores[at].tolist()
    assert np.diff(ends).tolist() == np.minimum(np.diff(whole_ends), limit).tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 20))
def test_shards_are_runs_of_whole_parents_as_long_as_may_be(widths, most):
    offsets = np.concatenate([[0], np.cumsum(widths)])
    borders = cut_parents(offsets, most)
    assert borders[0] == 0
    assert borders[-1] == len(widths)
    for first, last in pairwise(borders.tolist()):
        assert last > first
        assert offsets[last] - offsets[first] <= most or last == first + 1
        assert last == len(widths) or offsets[last + 1] - offsets[first] > most


def test_a_run_of_chunks_is_packed_as_if_alone():
    level = model(dense_width=2)[1][-1]
    for first, last in pairwise(cut_parents(level.level.offsets, 9).tolist()):
        own = level.run(first, last)
        start = int(level.level.offsets[first])
        assert Chunks.from_arrays(own.to_arrays()).n_nodes == own.n_nodes
        for node in range(own.n_nodes):
            for mine, theirs in zip(own.weights(node), level.weights(start + node), strict=True):
                np.testing.assert_array_equal(mine, theirs)


def test_the_face_of_a_level():
    level = model(dense_width=2)[1][-1]
    shards = Shards.cut(level, 9)
    assert shards.n_shards > 2
    for name in ("n_chunks", "n_nodes", "nnz", "n_columns", "dense_width", "dtype"):
        assert getattr(shards, name) == getattr(level, name), name
    for node in range(level.n_nodes):
        for mine, theirs in zip(shards.weights(node), level.weights(node), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert shards.nbytes == sum(part.nbytes for part in shards.held)


def test_a_subset_knows_what_it_lacks():
    shards = Shards.cut(model()[1][-1], 9)
    some = only(shards, [1])
    assert some.numbers == [1]
    assert (some.n_nodes, some.n_chunks, some.n_shards) == (
        shards.n_nodes,
        shards.n_chunks,
        shards.n_shards,
    )
    some.weights(int(shards.nodes[1]))
    with pytest.raises(UsageError, match="shard 0, which is not held here"):
        some.weights(0)


def test_numbers_of_shards_are_checked():
    assert checked_shards([2, 0, 2], 3) == {0, 2}
    for wrong, found in (([], "none"), ([3], "3"), ([0, -1], "-1, 0")):
        with pytest.raises(UsageError, match=f"shards: found {found}; expected some of 0 to 2"):
            checked_shards(wrong, 3)


def test_shards_that_do_not_fit_are_refused():
    level = model()[1][-1]
    parts = list(Shards.cut(level, 9).parts)
    with pytest.raises(
        ValueError, match=f"{len(parts) - 1} shards of a level that has {len(parts)}"
    ):
        Shards.of(parts[:-1], level.level.offsets, 9)
    with pytest.raises(ValueError, match="shard 0 of"):
        Shards.of([parts[-1], *parts[1:]], level.level.offsets, 9)
    for other in ({"n_columns": parts[0].n_columns - 1}, {"dense_width": parts[0].dense_width + 1}):
        with pytest.raises(ValueError, match="other columns"):  # kernels would read beyond the end
            Shards.of([replace(parts[0], **other), *parts[1:]], level.level.offsets, 9)


def test_as_large_a_shard_as_one_likes():
    assert cut_parents(np.array([0, 3, 7]), 10**30).tolist() == [0, 2]
