"""Documents that several tasks read are prepared once, whatever the number of threads."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from fitting import fit_tree_ranker, solved
from scipy import sparse

from longtail.config import Ranker
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.rankers import one_vs_all, spans
from longtail.rankers.one_vs_all import LabelProblems, label_batches
from longtail.rankers.shared_documents import SharedDocuments
from longtail.tree.tree import LabelTree

N = 120
D = 40
E = 6
L = 96


def documents(seed=0):
    random = np.random.default_rng(seed)
    x = random.random((N, D)) * (random.random((N, D)) < 0.2)
    y = random.random((N, L)) < 0.06
    return Features.of(sparse.csr_array(x), random.normal(size=(N, E))), sparse.csr_array(
        y.astype(np.float32)
    )


@pytest.fixture
def prepared(monkeypatch):
    """Return a list of all that is prepared, and cut the work of every group into several tasks."""
    found = []
    prepare = spans.prepare

    def watched(*arguments):
        found.append(prepare(*arguments))
        return found[-1]

    monkeypatch.setattr(spans, "prepare", watched)
    monkeypatch.setattr(spans, "_TASK", 400)
    monkeypatch.setattr(one_vs_all, "BATCH", 32)
    monkeypatch.setattr(one_vs_all, "_SPAN", 8)
    return found


def memory_of(group, features):
    """Return the bytes of what was prepared that are not the features' own."""
    arrays = [
        array
        for array in (*group.documents, *group.columns, *group.column_index)
        if isinstance(array, np.ndarray)
    ]
    return sum(array.nbytes for array in arrays if not np.shares_memory(array, features.dense))


@pytest.mark.parametrize("solver", ["dual", "newton", "proximal"])
@pytest.mark.parametrize("kind", ["root", "one-vs-all"])
def test_memory_and_bytes_do_not_depend_on_threads(prepared, solver, kind):
    features, y = documents()
    offsets = () if kind == "one-vs-all" else (np.arange(0, L + 1, 2),)
    tree = LabelTree(np.arange(L, dtype=np.int32), offsets)
    ranker = Ranker(solver=solver, max_passes=8, prune=0.0, weights="float32")
    runs = []
    for threads in (1, 2, 8):
        prepared.clear()
        with pool.threads(threads):
            fitted = fit_tree_ranker(features, y, tree, ranker)
        shared = [group for group in prepared if len(group.documents.dense_rows) == N]
        size = sum(memory_of(group, features) for group in shared)
        runs.append((len(shared), size, [level.to_arrays() for level in fitted.levels]))
        assert len(shared) == 1  # of 12 tasks, in one-vs-all of 3 batches
        assert size < 2 * features.nbytes
        dense = [shared[0].documents.dense, shared[0].column_index.dense]
        assert all(np.shares_memory(block, features.dense) for block in dense if block.size)
    first = runs[0]
    for count, size, levels in runs[1:]:
        assert (count, size) == first[:2]  # no more with more threads
        for own, other in zip(levels, first[2], strict=True):
            assert all(own[name].tobytes() == other[name].tobytes() for name in other)


def test_all_tasks_get_the_very_same_arrays(prepared, monkeypatch):
    features, y = documents()
    seen = []
    train = spans.train_spans

    def watched(ends, shared, spans, data, settings):
        seen.append((shared, data))
        return train(ends, shared, spans, data, settings)

    monkeypatch.setattr(spans, "train_spans", watched)
    with pool.threads(4):
        solved(LabelProblems.of(features, y, Ranker(solver="newton", max_passes=2), 0))
    assert len(seen) == 12
    assert len({id(shared.documents.values) for shared, _ in seen}) == 1
    for _, data in seen:
        assert np.shares_memory(data.features.dense, features.dense)


def test_groups_below_the_root_are_released(prepared):
    features, y = documents()
    tree = LabelTree(np.arange(L, dtype=np.int32), (np.array([0, 48, 96]),))
    held = []
    borrowed = SharedDocuments.borrowed

    class Watched(SharedDocuments):
        def borrowed(self, *given):
            held.append(self)
            return borrowed(self, *given)

    spans_shared = spans.SharedDocuments
    try:
        spans.SharedDocuments = Watched
        with pool.threads(2):
            fit_tree_ranker(features, y, tree, Ranker(max_passes=3))
    finally:
        spans.SharedDocuments = spans_shared
    assert held
    assert {len(own) for own in held} == {0}


def test_a_scaled_dense_block_is_one_copy_for_all_batches():
    features, y = documents()
    problems = LabelProblems.of(features, y, Ranker(dense_penalty=4.0), 0)
    scaled = problems.shared.dense_block(features.dense, np.float32(0.5))
    np.testing.assert_array_equal(scaled, features.dense / 2)
    assert problems.shared.dense_block(features.dense, np.float32(0.5)) is scaled
    assert problems.shared.dense_block(features.dense, np.float32(1)) is features.dense
    assert problems.shared.dense_block(features.dense, np.float32(2)) is not scaled


def test_what_is_prepared_stays_in_its_process():
    features, y = documents()
    problems = LabelProblems.of(features, y, Ranker(max_passes=3), 0)
    problems.solve(label_batches(L)[0])
    sent = pickle.loads(pickle.dumps(problems))  # noqa: S301, made here
    assert len(sent.shared) == 0
    one, other = (problem.solve(label_batches(L)[0]).to_arrays() for problem in (problems, sent))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_the_first_prepares_while_others_wait():
    shared = SharedDocuments()
    begun = Barrier(4)
    made = []

    def borrow(_):
        begun.wait()
        with shared.borrowed(7, 4, lambda: made.append("once") or "documents") as found:
            return found

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(borrow, range(4))) == ["documents"] * 4
    assert made == ["once"]
    assert len(shared) == 0


def test_an_error_of_the_first_reaches_all():
    shared = SharedDocuments()

    def fail():
        raise MemoryError("too large")

    for prepare in (fail, lambda: "unused"):
        with pytest.raises(MemoryError, match="too large"), shared.borrowed(0, 3, prepare):
            pass


def test_a_task_that_has_a_part_of_a_group_has_no_other(monkeypatch):
    monkeypatch.setattr(spans, "_TASK", 100)
    sizes = np.array([3, 50, 2, 2, 30])
    found = spans.Spans.below(sizes, np.array([0, 4, 12, 16, 20, 44]))
    tasks = found.tasks(sizes)
    assert [span for ends in tasks for span in range(*ends)] == list(range(len(found.groups)))
    groups = [found.groups[first:last].tolist() for first, last in tasks]
    assert sum(4 in own for own in groups) > 1
    assert all(set(own) == {4} for own in groups if 4 in own)
    assert any(len(set(own)) > 1 for own in groups)
