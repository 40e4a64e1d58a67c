from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.kernels.ranked_lists import MemberRankings, fuse_rows
from longtail.search import ensemble
from longtail.search.ensemble import best_first, mean_scores


def ranking(rows, width):
    """Return (n, width) scores from lists of (label, score) in any order."""
    matrix = sparse.csr_array((len(rows), width), dtype=np.float32)
    matrix.indices = np.array([label for row in rows for label, _ in row], np.int32)
    matrix.data = np.array([score for row in rows for _, score in row], np.float32)
    matrix.indptr = np.cumsum([0, *map(len, rows)])
    return matrix


def listed(matrix):
    return [
        list(zip(matrix.indices[start:end].tolist(), matrix.data[start:end].tolist(), strict=True))
        for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    ]


def test_means_by_hand_a_missing_label_counts_as_0():
    one = ranking([[(3, 0.75), (0, 0.5)], [(1, 0.25)], []], 5)
    two = ranking([[(0, 1.0), (4, 0.875), (3, 0.25)], [], []], 5)
    mean = mean_scores([one, two], None)
    assert listed(mean) == [[(0, 0.75), (3, 0.5), (4, 0.4375)], [(1, 0.125)], []]
    assert mean.shape == (3, 5)
    assert mean.dtype == np.float32
    assert listed(mean_scores([one, two], 2)) == [[(0, 0.75), (3, 0.5)], [(1, 0.125)], []]
    assert listed(one) == [[(3, 0.75), (0, 0.5)], [(1, 0.25)], []]  # members stay as they are


def test_weights_are_shares_of_their_sum_and_without_one_a_member_has_no_say():
    one, two, three = (
        ranking([[(0, 0.5)]], 4),
        ranking([[(1, 0.5), (0, 0.25)]], 4),
        ranking([[(3, 1.0)]], 4),
    )
    assert listed(mean_scores([one, two, three], None, [3, 1, 0])) == [[(0, 0.4375), (1, 0.125)]]


def test_one_member_is_cut_and_ordered_too():
    one = ranking([[(3, 0.25), (0, 0.5), (2, 0.75)]], 5)
    assert listed(mean_scores([one], 2)) == [[(2, 0.75), (0, 0.5)]]
    assert listed(mean_scores([one], None)) == [[(2, 0.75), (0, 0.5), (3, 0.25)]]


def test_blocks_of_documents_are_as_large_as_their_rows(monkeypatch):
    rows = [[(label, 1.0) for label in range(row)] for row in (0, 1, 0, 5, 2)]
    monkeypatch.setattr(ensemble, "_BLOCK", 2)
    mean = mean_scores([ranking(rows, 6), ranking(rows[::-1], 6)], None)
    assert [len(row) for row in listed(mean)] == [2, 5, 0, 5, 2]


def test_no_documents_have_no_labels():
    assert mean_scores([ranking([], 4), ranking([], 4)], None).shape == (0, 4)


def test_a_block_has_its_rows_alone():
    one = ranking([[(0, 0.5)], [(1, 0.25)], [(2, 0.75)]], 3)
    pointers = one.indptr[None].astype(np.int64)
    members = MemberRankings(pointers, one.indices, one.data, np.ones(1))
    block = fuse_rows(1, 2, members, 5)
    assert [array.tolist() for array in block] == [[0, 1], [1], [0.25]]


def test_labels_of_one_slot_are_kept_apart():
    # multiples of 2^16 have few different hashes
    labels = [label << 16 for label in range(300)]
    members = [ranking([[(label, 0.5) for label in labels]], 1 << 25) for _ in range(2)]
    assert listed(mean_scores(members, 40)) == [[(label, 0.5) for label in labels[:40]]]


def test_ties_go_to_the_first_label():
    one, two = ranking([[(4, 0.5), (1, 0.25)]], 6), ranking([[(2, 0.5), (1, 0.25)]], 6)
    assert listed(mean_scores([one, two], None)) == [[(1, 0.25), (2, 0.25), (4, 0.25)]]
    assert listed(mean_scores([two, one], 2)) == [[(1, 0.25), (2, 0.25)]]


def test_members_are_added_up_in_their_order_and_ties_go_by_label_however_many_there_are():
    labels = np.random.default_rng(0).permutation(200).tolist()
    members = [
        ranking([[(label, score) for label in labels]], 200) for score in (2.0**90, 1.0, -(2.0**90))
    ]
    assert listed(mean_scores(members, None, [1, 1, 1])) == [
        [(label, 0.0) for label in range(200)]
    ]  # 1 is lost


@given(st.integers(0, 1000), st.integers(1, 4), st.sampled_from([None, 1, 3, 50]))
@settings(max_examples=30)
def test_means_are_those_of_dense_matrices(seed, count, k):
    random = np.random.default_rng(seed)
    dense = [
        (random.integers(1, 9, (4, 7)) / 8) * (random.random((4, 7)) < 0.5) for _ in range(count)
    ]
    members = [
        ranking([[(i, row[i]) for i in random.permutation(7) if row[i]] for row in block], 7)
        for block in dense
    ]
    mean = np.mean(dense, axis=0)
    expected = [
        [(i, row[i]) for i in np.argsort(-row, kind="stable")[:k] if row[i]] for row in mean
    ]
    found = listed(mean_scores(members, k))
    assert [[label for label, _ in row] for row in found] == [
        [label for label, _ in row] for row in expected
    ]
    for row, by_hand in zip(found, expected, strict=True):
        assert row == [(label, pytest.approx(score, rel=1e-6)) for label, score in by_hand]


def test_best_first_keeps_scores_of_0_and_types():
    ranked = best_first(ranking([[(2, 0.0), (1, 0.5)], []], 3), 5)
    assert listed(ranked) == [[(1, 0.5), (2, 0.0)], []]
    assert ranked.indices.dtype == np.int32
    assert ranked.indptr.tolist() == [0, 2, 2]
