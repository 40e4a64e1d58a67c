"""Label trees from a hierarchy: parent lists or SKOS broader, brought to levels of one depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.data.json_lines import json_blocks
from longtail.data.labels import LabelIndex, Labels
from longtail.data.lines import text_lines, uncompressed
from longtail.data.problems import Problems, quoted
from longtail.data.skos import SKOS_SUFFIXES, skos_broader
from longtail.errors import DataError, Problem
from longtail.tree.tree import LabelTree

__all__ = ["MAX_DEPTH", "Parents", "read_parents", "tree_from_parents"]

Parents = Mapping[str, Sequence[str]]  # of each label, by id, those above it

MAX_DEPTH = 64  # far above any thesaurus; each level costs a number per label
_ORPHANS = ""  # no label and no node has the empty id


class _Entry(msgspec.Struct):
    id: str
    parents: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(_Entry)


def read_parents(path: Path | str) -> dict[str, list[str]]:
    """Read the parents of each label or inner node, in the order of the file.

    By the suffix of the file: JSON lines ``{"id": …, "parents": […]}``, a SKOS vocabulary, else
    lines ``child<TAB>parent``."""
    suffix = uncompressed(path).suffix.lower()
    if suffix in SKOS_SUFFIXES:
        pairs: Iterator[tuple[str, str]] = iter(skos_broader(path))
    else:
        problems = Problems(path)
        if suffix in (".jsonl", ".ndjson", ".json"):
            pairs = _from_json(path, problems)
        else:
            pairs = _from_lines(path, problems)
    parents: dict[str, list[str]] = {}
    for child, parent in pairs:
        parents_of_child = parents.setdefault(child, [])
        if parent not in parents_of_child:
            parents_of_child.append(parent)
    return parents


def _from_json(path: Path | str, problems: Problems) -> Iterator[tuple[str, str]]:
    for block in json_blocks(path, _decoder, problems):
        for number, entry in block:
            if not entry.id or not all(entry.parents):
                problems.add(number, "an empty id", "ids with at least one character")
            yield from ((entry.id, parent) for parent in entry.parents)
    problems.close()


def _from_lines(path: Path | str, problems: Problems) -> Iterator[tuple[str, str]]:
    for number, line in text_lines(path, problems):
        if not line or line.isspace():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) == 2 and all(cells):
            yield cells[0], cells[1]
        else:
            problems.add(number, quoted(line), "child<TAB>parent")
    problems.close()


def tree_from_parents(labels: Labels, parents: Parents) -> LabelTree:
    """Return the tree over ``labels`` in which each is under the first of its ``parents``.

    Ids that are no labels are inner nodes; those with no label below are left out. A label that has
    children is a leaf under a node of its own. Labels with neither parents nor children share one
    extra node. Where branches end early, the last node is repeated as a single child. Levels that
    split nothing are left out."""
    first = [next(iter(parents.get(label, ())), _ORPHANS) for label in labels.ids]
    numbers = LabelIndex()
    lineages = dict[str, list[int]]()
    for parent in first:
        if parent:
            _lineage(parent, parents, numbers, lineages)
    inner = set(lineages)
    above = (
        label if label in inner else parent for label, parent in zip(labels.ids, first, strict=True)
    )
    ways = [_lineage(node, parents, numbers, lineages) for node in above]
    depth = max(map(len, ways), default=0)
    paths = np.array([way + way[-1:] * (depth - len(way)) for way in ways], np.int32)
    return _tree_of(paths.reshape(len(labels), depth))


def _lineage(
    node: str,
    parents: Mapping[str, Sequence[str]],
    numbers: LabelIndex,
    known: dict[str, list[int]],
) -> list[int]:
    """Return the numbers of the nodes from the top to ``node``."""
    path: dict[str, None] = {}
    above = node
    while above not in known and above not in path:
        path[above] = None
        if above == _ORPHANS or not parents.get(above):
            known[above] = [numbers[above]]
            break
        above = parents[above][0]
    else:
        if above in path:
            _refuse_cycle([*path][[*path].index(above) :])
    for below in reversed(path):
        if below not in known:
            known[below] = [*known[parents[below][0]], numbers[below]]
            if len(known[below]) > MAX_DEPTH:
                _refuse(f"{quoted(below)} below {MAX_DEPTH} others", f"at most {MAX_DEPTH} levels")
    return known[node]


def _refuse_cycle(cycle: list[str]) -> NoReturn:
    shown = [*cycle, cycle[0]]
    if len(cycle) > 8:
        shown = [*cycle[:8], "…", cycle[0]]
    _refuse(f"the cycle {' → '.join(shown)} (child → parent)", "parents that lead to a top node")


def _refuse(content: str, expected: str) -> NoReturn:
    raise DataError([Problem("label hierarchy", 0, content, expected)])


def _tree_of(paths: NDArray[np.int32]) -> LabelTree:
    """Return the tree of the (n_labels, depth) numbers of each label's nodes, coarse to fine."""
    order = np.arange(len(paths))
    if paths.shape[1]:
        order = np.lexsort(paths.T[::-1])  # keeps the order of equals
    borders: list[NDArray[Any]] = []
    for level in paths[order].T:
        starts = np.flatnonzero(np.diff(level, prepend=-1))
        if 1 < len(starts) < len(paths) and (not borders or len(starts) > len(borders[-1]) - 1):
            borders.append(np.append(starts, len(paths)))
    return LabelTree.from_borders(order, borders)
