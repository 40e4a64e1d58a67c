"""Beam search against a dense product over all nodes; and what must never change a byte."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from searching import beam_search

from longtail.errors import ModelFolderError, UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.descent import descend, first_beam
from longtail.search.beam import shortlist
from longtail.search.chunks import Chunks, Part
from longtail.tree.tree import LabelTree
from shown_progress import shown_progress

SCORES = ("hinge-2", "hinge-3", "sigmoid")
BIAS = 0.5


class Model:
    """A random tree with random weights, packed, and the same as dense matrices."""

    def __init__(
        self, seed, fans=(3, 4, 5), n_columns=40, dense_width=0, density=0.3, dtype="float32"
    ):
        rng = np.random.default_rng(seed)
        sizes = [1]
        all_offsets = []
        self.levels = []
        self.weights = []
        for fan in fans:
            offsets = np.concatenate([[0], np.cumsum(rng.integers(1, fan + 1, sizes[-1]))]).astype(
                np.int64
            )
            all_offsets.append(offsets)
            sizes.append(int(offsets[-1]))
            weights = rng.normal(size=(n_columns + 1, sizes[-1])) * (
                rng.random((n_columns + 1, sizes[-1])) < density
            )
            dense = rng.normal(size=(sizes[-1], dense_width)).astype(np.float32)
            parts = [
                self._part(weights[:, a:b].astype(np.float32), dense[a:b])
                for a, b in pairwise(offsets)
            ]
            chunks = Chunks.build(offsets, parts, n_columns, dense_width, dtype)
            self.levels.append(chunks)
            self.weights.append(self._held(chunks))
        self.offsets = all_offsets
        self.tree = LabelTree(rng.permutation(sizes[-1]).astype(np.int32), tuple(all_offsets[1:]))

    @staticmethod
    def _part(weights, dense):
        rows = np.flatnonzero(np.any(weights != 0, axis=1))
        held = sparse.csr_array(weights[rows])
        return Part(rows, held.indptr, held.indices, held.data, dense)

    @staticmethod
    def _held(chunks):
        """What the level holds, (n_columns + 1 + dense_width, n_nodes), after rounding to its type."""
        held = np.zeros((chunks.n_columns + 1 + chunks.dense_width, chunks.n_nodes))
        for node in range(chunks.n_nodes):
            columns, values, dense = chunks.weights(node)
            held[columns, node] = values
            held[chunks.n_columns + 1 :, node] = dense
        return held

    def log_scores(self, features, score):
        """The log scores of all nodes of each level, dense."""
        x = np.hstack(
            [features.sparse.toarray(), np.full((len(features), 1), BIAS), features.dense]
        ).astype(float)
        above = np.zeros((len(features), 1))
        found = []
        for weights, offsets in zip(self.weights, self.offsets, strict=True):
            v = x @ weights
            cost = (
                np.log1p(np.exp(-v))
                if score == "sigmoid"
                else np.maximum(0, 1 - v) ** int(score[-1])
            )
            above = np.repeat(above, np.diff(offsets), axis=1) - cost
            found.append(above)
        return found


def documents(seed, n, n_columns=40, dense_width=0, density=0.3):
    rng = np.random.default_rng(seed)
    block = sparse.random_array((n, n_columns), density=density, rng=rng, dtype=np.float32)
    return Features.of(block.tocsr(), rng.normal(size=(n, dense_width)).astype(np.float32))


def rows_of(matrix):
    return [(matrix.indices[a:b].tolist(), matrix.data[a:b]) for a, b in pairwise(matrix.indptr)]


def same_bytes(one, other):
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("data", "indices", "indptr")
    )


def assert_ranked(found, log_scores, columns, k):
    """The k best of a dense row, up to the order of what differs by rounding only."""
    labels, scores = found
    best = np.sort(log_scores)[::-1][:k]
    assert len(set(labels)) == len(labels) == len(best)
    assert np.allclose(scores, np.exp(best), rtol=1e-3, atol=1e-30)
    assert np.allclose(log_scores[np.argsort(columns)[labels]], best, rtol=1e-4, atol=1e-4)
    assert np.all(np.diff(scores) <= 0)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    fans=st.sampled_from([(5,), (3, 4, 5), (1, 1, 2), (2, 2, 2, 2), (2, 200)]),
    n=st.sampled_from([1, 2, 30]),
    dense_width=st.sampled_from([0, 3]),
    density=st.sampled_from([0.0, 0.05, 0.5]),
    score=st.sampled_from(SCORES),
    k=st.sampled_from([1, 5, None]),
)
def test_a_beam_of_all_nodes_is_exhaustive_search(seed, fans, n, dense_width, density, score, k):
    model = Model(seed, fans, dense_width=dense_width)
    features = documents(seed, n, dense_width=dense_width, density=density)
    found = beam_search(
        features, model.tree, model.levels, beam_size=10_000, k=k, score=score, bias=BIAS
    )
    assert found.shape == (n, model.tree.n_labels)
    assert found.data.dtype == np.float32
    wanted = model.log_scores(features, score)[-1]
    for row, found_row in enumerate(rows_of(found)):
        assert_ranked(found_row, wanted[row], model.tree.order, k)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_narrow_beam_keeps_the_best_nodes_of_each_level(dtype):
    model = Model(1, (6, 6, 6), dtype=dtype)
    features = documents(2, 50)
    found = beam_search(
        features, model.tree, model.levels, beam_size=2, k=4, score="hinge-3", bias=BIAS
    )
    for row, scores in enumerate(zip(*model.log_scores(features, "hinge-3"), strict=True)):
        beam = np.argsort(-scores[0], kind="stable")[:2]
        for level in (1, 2):
            candidates = model.tree.refine(level - 1, beam)
            beam = candidates[np.argsort(-scores[level][candidates], kind="stable")][
                : 2 if level == 1 else 4
            ]
        assert rows_of(found)[row][0] == model.tree.order[beam].tolist()


def test_without_k_all_candidates_come_out():
    model = Model(3, (4, 4, 4))
    features = documents(4, 20)
    nodes = shortlist(
        features, model.tree, model.levels[:2], beam_size=3, score="sigmoid", bias=BIAS
    )
    found = beam_search(
        features, model.tree, model.levels, beam_size=3, k=None, score="sigmoid", bias=BIAS
    )
    for (beam, _), (labels, _) in zip(rows_of(nodes), rows_of(found), strict=True):
        assert sorted(labels) == sorted(model.tree.order[model.tree.refine(1, beam)])


def test_shortlist_has_nodes_of_the_last_level_given():
    model = Model(5)
    features = documents(6, 20)
    for depth in (1, 2):
        found = shortlist(
            features, model.tree, model.levels[:depth], beam_size=3, score="hinge-2", bias=BIAS
        )
        assert found.shape == (20, model.tree.widths[depth - 1])
        scores = model.log_scores(features, "hinge-2")[depth - 1]
        if depth == 1:
            for row, (nodes, _) in enumerate(rows_of(found)):
                assert nodes == np.argsort(-scores[row], kind="stable")[:3].tolist()


@pytest.mark.parametrize("score", SCORES)
def test_ties_go_by_position(score):
    model = Model(7, (4, 6), density=0.0)
    found = beam_search(
        documents(8, 3), model.tree, model.levels, beam_size=2, k=3, score=score, bias=BIAS
    )
    for labels, scores in rows_of(found):
        assert labels == model.tree.order[:3].tolist()
        assert len(set(scores)) == 1


def test_excluded_labels_give_their_places_to_others():
    model = Model(9, (3, 8))
    features = documents(10, 40)
    options = {"beam_size": 2, "score": "hinge-3", "bias": BIAS}
    whole = beam_search(features, model.tree, model.levels, k=None, **options)
    rng = np.random.default_rng(11)
    exclude = rng.random(whole.shape) < 0.5
    exclude[0] = True
    exclude[1] = False
    unsorted = sparse.csr_array(exclude)
    for a, b in pairwise(unsorted.indptr):
        unsorted.indices[a:b] = unsorted.indices[a:b][::-1].copy()
    unsorted.has_sorted_indices = False
    found = beam_search(features, model.tree, model.levels, k=3, exclude=unsorted, **options)
    for row, (labels, _) in enumerate(rows_of(whole)):
        assert rows_of(found)[row][0] == [label for label in labels if not exclude[row, label]][:3]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_threads_blocks_and_one_document_at_a_time_give_the_same_bytes(dtype):
    model = Model(12, (8, 8, 8), dense_width=4, dtype=dtype)
    features = documents(13, 1500, dense_width=4)
    options = {"beam_size": 4, "k": 5, "score": "hinge-3", "bias": BIAS}
    with pool.threads(1):
        found = beam_search(features, model.tree, model.levels, **options)
    with pool.threads(3):
        assert same_bytes(found, beam_search(features, model.tree, model.levels, **options))
    for row, (labels, scores) in list(enumerate(rows_of(found)))[::97]:
        one = beam_search(features.take(slice(row, row + 1)), model.tree, model.levels, **options)
        assert one.indices.tolist() == labels
        assert one.data.tobytes() == scores.tobytes()


@pytest.mark.parametrize("score", ["hinge-3", "sigmoid"])
def test_excluded_labels_are_those_of_each_document_in_every_block(score):
    model = Model(20, (4, 6))
    features = documents(21, 600)
    exclude = np.random.default_rng(22).random((600, model.tree.n_labels)) < 0.4
    options = {"beam_size": 3, "k": 4, "score": score, "bias": BIAS}
    with pool.threads(3):
        ranked = beam_search(
            features, model.tree, model.levels, exclude=sparse.csr_array(exclude), **options
        )
    for row in (0, 255, 256, 599):
        alone = beam_search(
            features.take(slice(row, row + 1)),
            model.tree,
            model.levels,
            exclude=sparse.csr_array(exclude[row : row + 1]),
            **options,
        )
        labels, scores = rows_of(ranked)[row]
        assert alone.indices.tolist() == labels
        assert alone.data.tobytes() == scores.tobytes()


def test_the_first_beam_has_all_roots_for_every_document():
    pointers, nodes, scores = first_beam(2, 3)
    assert pointers.tolist() == [0, 3, 6]
    assert nodes.tolist() == [0, 1, 2, 0, 1, 2]
    assert scores.tolist() == [0] * 6
    assert [array.dtype for array in (pointers, nodes, scores)] == [np.int64, np.int32, np.float32]
    assert [array.tolist() for array in first_beam(0, 3)] == [[0], [], []]


def test_levels_stored_as_different_types_are_refused():
    model = Model(23)
    model.levels[1] = model.levels[1].astype("float16")
    with pytest.raises(ModelFolderError, match="stored as float16 and float32"):
        beam_search(
            documents(24, 1),
            model.tree,
            model.levels,
            beam_size=2,
            k=1,
            score="sigmoid",
            bias=BIAS,
        )


def test_blocks_of_documents_are_told_as_they_are_done():
    model = Model(3)
    features = documents(4, 300)
    with pool.threads(2), shown_progress() as told:
        beam_search(
            features, model.tree, model.levels, beam_size=2, k=2, score="sigmoid", bias=BIAS
        )
    assert (told[0], sum(told[1:-1]), told[-1]) == (("searching", 300, "documents"), 300, "end")
    assert len(told) > 3


def test_scores_that_round_to_zero_are_still_ranked():
    model = Model(14, (3, 3, 3))
    features = documents(15, 5)
    features.sparse.data[:] *= 100
    found = beam_search(
        features, model.tree, model.levels, beam_size=9, k=9, score="hinge-3", bias=BIAS
    )
    wanted = model.log_scores(features, "hinge-3")[-1]
    for row, (labels, scores) in enumerate(rows_of(found)):
        assert np.all(np.isfinite(scores))
        ranked = wanted[row][np.argsort(model.tree.order)[labels]]
        assert np.all(np.diff(ranked) <= 1e-3 * np.abs(ranked[1:]))


def test_no_documents_and_a_document_without_features():
    model = Model(16)
    options = {"beam_size": 3, "k": 2, "score": "sigmoid", "bias": BIAS}
    assert beam_search(documents(0, 0), model.tree, model.levels, **options).shape == (
        0,
        model.tree.n_labels,
    )
    assert beam_search(documents(0, 1, density=0.0), model.tree, model.levels, **options).nnz == 2


def test_arrays_of_a_file_need_no_second_compilation(tmp_path):
    model = Model(17)
    features = documents(18, 5)
    options = {"beam_size": 3, "k": 2, "score": "sigmoid", "bias": BIAS}
    found = beam_search(features, model.tree, model.levels, **options)
    known = len(getattr(descend, "signatures", []))
    mapped = []
    for level, chunks in enumerate(model.levels):
        arrays = {}
        for name, array in chunks.to_arrays().items():
            np.save(tmp_path / f"{name}-{level}.npy", array)
            arrays[name] = np.load(
                tmp_path / f"{name}-{level}.npy", mmap_mode="r" if array.size else None
            )
        mapped.append(Chunks.from_arrays(arrays))
    features.sparse.data.flags.writeable = False
    assert same_bytes(found, beam_search(features, model.tree, mapped, **options))
    assert len(getattr(descend, "signatures", [])) == known


def test_what_does_not_fit_is_refused():
    model = Model(19)
    options = {"beam_size": 3, "k": 2, "score": "sigmoid", "bias": BIAS}
    with pytest.raises(
        UsageError, match="features of 41 sparse and 0 dense columns, expected 40 and 0"
    ):
        beam_search(documents(0, 1, n_columns=41), model.tree, model.levels, **options)
    with pytest.raises(UsageError, match="expected 40 and 0"):
        beam_search(documents(0, 1, dense_width=1), model.tree, model.levels, **options)
    with pytest.raises(UsageError, match="at least 1"):
        beam_search(documents(0, 1), model.tree, model.levels, **(options | {"k": 0}))
    with pytest.raises(UsageError, match="exclude of shape"):
        beam_search(
            documents(0, 1), model.tree, model.levels, **options, exclude=sparse.csr_array((1, 1))
        )
