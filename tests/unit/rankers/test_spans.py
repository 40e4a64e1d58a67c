"""How the nodes of a level are divided into spans, tasks and chunks."""

from __future__ import annotations

import numpy as np

from longtail.rankers import spans
from longtail.rankers.spans import Spans


def test_spans_and_tasks_cover_all_nodes_once(monkeypatch):
    monkeypatch.setattr(spans, "_TASK", 100)
    offsets = np.array([0, 3, 40, 41, 60])
    sizes = np.array([7, 5, 0, 1000])
    found = Spans.below(sizes, offsets)
    parents, starts, stops, chunks = found
    nodes = [
        (parent, node)
        for parent, *ends in zip(parents, starts, stops, strict=True)
        for node in range(*ends)
    ]
    assert nodes == [
        (parent, node)
        for parent in range(4)
        for node in range(offsets[parent], offsets[parent + 1])
    ]
    assert (stops - starts)[parents == 1].tolist() == [16, 16, 5]
    assert (stops - starts)[parents == 3].tolist() == [8, 8, 3]
    assert chunks.tolist() == parents.tolist()
    tasks = found.tasks(sizes)
    assert [span for ends in tasks for span in range(*ends)] == list(range(len(parents)))
    assert len(tasks) > 3


def test_few_nodes_over_very_many_documents_are_spans_of_one(monkeypatch):
    monkeypatch.setattr(spans, "ALONE", 1000)
    offsets = np.array([0, 20, 40, 60])
    sizes = np.array([1000, 999, 2000])
    widths = [
        {
            group: set((found.stops - found.starts)[found.groups == group].tolist())
            for group in range(3)
        }
        for found in (Spans.below(sizes, offsets), Spans.below(sizes, offsets, True))
    ]
    assert widths[0] == {0: {20}, 1: {20}, 2: {20}}
    assert widths[1] == {0: {1}, 1: {20}, 2: {1}}
    many = Spans.below(np.array([1000, 1000]), np.array([0, 30, 65]), True)
    assert (many.stops - many.starts).tolist() == [30, 35]


def test_siblings_are_solved_by_frequency_within_their_span():
    found = Spans.of([(0, 2, 6, 0), (0, 6, 9, 0)])  # nodes 0 and 1 are in no span
    order = found.solving_order(np.array([9, 9, 1, 5, 3, 5, 0, 2, 7]))
    assert order[2:6].tolist() == [1, 3, 2, 0]
    assert order[6:9].tolist() == [2, 1, 0]
