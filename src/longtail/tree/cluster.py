"""Label trees from label features: balanced k-means, and two orders without features to compare
with.

The shape of a balanced tree follows from numbers alone: settings say how many nodes each level has,
the labels are spread over the nodes of the last inner level as evenly as can be, and each coarser
level takes runs of these. Then every range of nodes is halved again and again, down to single
nodes, by balanced 2-means of the labels in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from longtail.config import Tree
from longtail.features.matrix import Features
from longtail.kernels import kmeans, pool
from longtail.kernels.kmeans import Block, Centres, Stopping
from longtail.kernels.splitmix import draw, random_bits
from longtail.reporting import advance, stage
from longtail.tree.tree import LabelTree

__all__ = ["build_tree", "level_widths"]

Array = NDArray[Any]
_TASKS = 32  # parts that are small enough to be one task each, down to their last nodes
_SCORED = 4096  # labels that join a centre at a time, in nodes with more labels than the sample
# halvings in the columns of one gathering, which costs as much as several rounds of k-means
_REGATHER = 2


def build_tree(
    features: Features, label_counts: NDArray[np.integer], settings: Tree, seed: int
) -> LabelTree:
    """Return the tree over the rows of ``features``, one per label, l2-normalised; the same bytes
    for any number of threads.

    ``label_counts`` are the documents of each label, of use for the kind "frequency" alone. The
    kind "flat" has no nodes above the labels, but like labels still stand side by side."""
    n_labels = len(features)
    if not (np.isfinite(features.sparse.data).all() and np.isfinite(features.dense).all()):
        raise ValueError("label features: found a number that is not finite")
    with stage("tree", n_labels, "labels"):
        if settings.kind == "unbalanced":
            return _unbalanced(_Rows(features, settings, seed), settings)
        borders = _borders(level_widths(n_labels, settings), n_labels)
        match settings.kind:
            case "balanced" | "flat":
                order = _Halving(_Rows(features, settings, seed), borders).order
            case "random":
                order = np.random.default_rng(seed).permutation(n_labels)
            case "frequency":
                order = np.argsort(-np.asarray(label_counts, np.int64), kind="stable")
            case _:
                assert_never(settings.kind)
        if settings.kind == "flat":
            borders = []
        return LabelTree.from_borders(order, borders)


def level_widths(n_labels: int, settings: Tree) -> list[int]:
    """Return the nodes of each level above the labels in a balanced tree, coarse to fine; none if
    one node would do.

    The last of them has 2^⌈log2(labels / leaf_size)⌉ nodes where ``branching`` is a power of two
    (the shape that PECOS gives), ⌈labels / leaf_size⌉ otherwise; each coarser one has ``branching``
    times fewer."""
    if settings.levels:
        widths = list(settings.levels)
    else:
        width = -(-n_labels // settings.leaf_size)
        branching = settings.branching
        if branching & (branching - 1) == 0:
            width = 1 << (width - 1).bit_length()
        widths = [width]
        while widths[0] > branching:
            widths.insert(0, -(-widths[0] // branching))
    return [width for width in widths if 1 < width < n_labels]


def _borders(widths: list[int], n_labels: int) -> list[Array]:
    """Return the positions of labels where the nodes of each level begin and end."""
    borders: list[Array] = []
    fine = n_labels
    positions = np.arange(n_labels + 1)
    for width in reversed(widths):
        positions = positions[-(-np.arange(width + 1) * fine // width)]
        borders.insert(0, positions)
        fine = width
    return borders


class _Rows:
    """The features of all labels, and k-means over some of them."""

    def __init__(self, features: Features, settings: Tree, seed: int) -> None:
        rows = features.sparse
        dense = features.dense
        self.all = Block(
            pointers=rows.indptr,
            columns=rows.indices.view(np.uint32),
            values=rows.data,
            lone_squares=np.zeros(len(features), np.float32),
            dense=dense,
            width=features.shape[1],
        )
        self.count = len(features)
        self.sample = settings.sample or len(features)
        self.stopping = Stopping(settings.max_iterations, settings.min_gain)
        self.seed = seed
        self._buffers = threading.local()

    def gathered(self, block: Block, rows: Array) -> tuple[Block, Array]:
        """Return some rows of a block in columns of their own, and these columns' names in the
        block.
        """
        if not hasattr(self._buffers, "number"):
            self._buffers.number = np.zeros(self.all.width, np.int32)
        pointers, columns, values, lone_squares, names = kmeans.gathered(
            block, rows, self._buffers.number
        )
        dense = block.dense[rows]
        width = dense.shape[1] + len(names)
        return Block(pointers, columns, values, lone_squares, dense, width), names

    def two_means(self, block: Block, rows: Array, n_first: int, state: int) -> tuple[Array, Array]:
        """Return which of ``rows`` are the first ``n_first``, and the axis between both centres."""
        first, axis = kmeans.two_means(block, rows, n_first, state, self.stopping)
        return first, axis

    def state(self, first: int, last: int) -> int:
        """Return the random state of the node with these positions."""
        return int(random_bits(self.seed, first, last))

    def drawn(self, rows: Array, state: int) -> Array:
        """Return the rows that k-means of a node looks at."""
        if len(rows) <= self.sample:
            return rows
        return np.sort(draw(rows, self.sample, state))


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of labels by position, the borders of the nodes it falls into on one level, and those
    of finer levels.
    """

    borders: Array  # inside of the run, with its two ends
    finer: list[Array]  # whole

    @property
    def run(self) -> slice:
        return slice(int(self.borders[0]), int(self.borders[-1]))

    @property
    def size(self) -> int:
        return int(self.borders[-1] - self.borders[0])

    def opened(self) -> _Part | None:
        """Return the part with the borders that it is cut at next; None where it is a node of the
        finest level.
        """
        borders = self.borders
        finer = self.finer
        while len(borders) == 2 and finer:
            inside = np.searchsorted(finer[0], borders)
            borders = finer[0][inside[0] : inside[1] + 1]
            finer = finer[1:]
        if len(borders) > 2:
            return _Part(borders, finer)
        return None

    def halves(self) -> tuple[_Part, _Part]:
        """Cut at the middle border."""
        middle = len(self.borders) // 2
        return _Part(self.borders[: middle + 1], self.finer), _Part(
            self.borders[middle:], self.finer
        )


class _Halving:
    """Brings labels into an ``order`` in which the nodes between ``borders`` hold what is alike."""

    def __init__(self, rows: _Rows, borders: list[Array]) -> None:
        self.rows = rows
        self.order = np.arange(rows.count)
        parts = [_Part(np.array([0, rows.count]), borders)]
        tasks: list[_Part] = []
        while parts:
            tasks += [part for part in parts if part.size <= rows.count // _TASKS]
            parts = self._cut_large([part for part in parts if part.size > rows.count // _TASKS])
        for size in pool.run(self._finish, tasks):
            advance(size)

    def _cut_large(self, parts: list[_Part]) -> list[_Part]:
        """Halve each part once, one task each; labels beyond the sample then join by blocks."""
        opened = [part for part in map(_Part.opened, parts) if part is not None]
        advance(sum(part.size for part in parts) - sum(part.size for part in opened))
        halves = [part.halves() for part in opened]
        for (left, right), (first, axis) in zip(halves, pool.run(self._cut, halves), strict=True):
            both = slice(left.run.start, right.run.stop)
            rows = self.order[both]
            if axis is not None:
                first = kmeans.halves(self._scores(rows, axis), left.size)
            self.order[both] = np.concatenate([rows[first], rows[~first]])
        return [part for pair in halves for part in pair]

    def _cut(self, pair: tuple[_Part, _Part]) -> tuple[Array, Array | None]:
        """Return which labels go left, or those of a sample and the axis, in all columns, for all
        to be scored on.
        """
        left, right = pair
        rows = self.order[left.run.start : right.run.stop]
        state = self.rows.state(left.run.start, right.run.stop)
        drawn = self.rows.drawn(rows, state)
        n_first = max(1, len(drawn) * left.size // len(rows))
        block, names = self.rows.gathered(self.rows.all, drawn)
        first, short = self.rows.two_means(block, np.arange(len(drawn)), n_first, state)
        if len(drawn) == len(rows):
            return first, None
        axis = np.zeros(self.rows.all.width, np.float32)
        n_dense = block.dense.shape[1]
        axis[:n_dense] = short[:n_dense]
        axis[n_dense + names.astype(np.int64)] = short[n_dense:]
        return first, axis

    def _scores(self, rows: Array, axis: Array) -> Array:
        def score(some: tuple[int, int]) -> Array:
            scores: Array = kmeans.axis_scores(self.rows.all, rows[slice(*some)], axis)
            return scores

        return np.concatenate(list(pool.run(score, pool.row_blocks(len(rows), _SCORED))))

    def _finish(self, part: _Part) -> int:
        """Halve a part down to the last nodes; returns its size."""
        labels = self.order[part.run].copy()
        block, _ = self.rows.gathered(self.rows.all, labels)
        # rows of the block, whose labels these are
        stack = [(part, block, labels, np.arange(len(labels)), 0)]
        while stack:
            above, block, labels, rows, age = stack.pop()
            opened = above.opened()
            if opened is None:
                self.order[above.run] = labels[rows]
                continue
            if age == _REGATHER:
                block = self.rows.gathered(block, rows)[0]
                labels = labels[rows]
                rows = np.arange(len(rows))
                age = 0
            left, right = opened.halves()
            state = self.rows.state(left.run.start, right.run.stop)
            first, _ = self.rows.two_means(block, rows, left.size, state)
            stack += [
                (right, block, labels, rows[~first], age + 1),
                (left, block, labels, rows[first], age + 1),
            ]
        return part.size


def _unbalanced(rows: _Rows, settings: Tree) -> LabelTree:
    """Return the tree of free k-means (Bonsai, section 3.2); nodes that end early are padded with
    single children.
    """
    nodes = [np.arange(rows.count)]
    offsets = list[Array]()
    for depth in range(settings.max_depth):
        children = list(_children(rows, nodes, settings))
        if all(len(clusters) == 1 for clusters in children):
            break
        if depth:
            offsets.append(np.cumsum([0, *map(len, children)]))
        nodes = [child for clusters in children for child in clusters]
    if len(nodes) > 1:
        offsets.append(np.cumsum([0, *map(len, nodes)]))
    advance(rows.count)
    return LabelTree(np.concatenate(nodes).astype(np.int32), tuple(offsets))


def _children(rows: _Rows, nodes: list[Array], settings: Tree) -> Iterator[list[Array]]:
    """Yield, for each node of a level, the labels of each child; a node that is small enough is its
    own child.
    """
    ends = np.cumsum([len(labels) for labels in nodes]).tolist()

    def cluster(node: tuple[int, Array]) -> Array | Centres | None:
        end, labels = node
        if len(labels) <= settings.leaf_size:
            return None
        return _clustered(rows, labels, settings.branching, rows.state(end - len(labels), end))

    results = pool.run(cluster, zip(ends, nodes, strict=True))
    for labels, clustered in zip(nodes, results, strict=True):
        if clustered is None:
            yield [labels]
            continue
        near = clustered
        if isinstance(clustered, Centres):
            near = _joined(rows, labels, clustered)
        yield [labels[near == c] for c in np.unique(near)]


def _clustered(rows: _Rows, labels: Array, branching: int, state: int) -> Array | Centres:
    """Return the nearest centre of each label, or the centres, in all columns, for labels to join
    where only a sample of them was clustered.
    """
    drawn = rows.drawn(labels, state)
    block, names = rows.gathered(rows.all, drawn)
    k = min(branching, len(drawn))
    near, values = kmeans.k_means(block, np.arange(len(drawn)), k, state, rows.stopping)
    if len(drawn) == len(labels):
        return np.asarray(near)
    centre_rows = np.full(rows.all.width, block.width, np.uint32)
    centre_rows[names] = np.arange(block.dense.shape[1], block.width)
    return Centres(centre_rows, values)


def _joined(rows: _Rows, labels: Array, centres: Centres) -> Array:
    """Return the nearest centre of each label."""

    def join(block: tuple[int, int]) -> Array:
        some = labels[slice(*block)]
        near = np.full(len(some), -1, np.int32)
        kmeans.nearest(rows.all, some, centres, rows.all.lone_squares, near)
        return near

    return np.concatenate(list(pool.run(join, pool.row_blocks(len(labels), _SCORED))))
