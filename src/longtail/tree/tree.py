"""The label tree: which nodes lie below which, as ranges, so that going down is slicing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["LabelTree"]


@dataclass(frozen=True, eq=False)
class LabelTree:
    """Levels of nodes, the coarsest first; the last level is the labels, in an order that keeps
    siblings together.

    The children of node ``i`` of level ``t`` are the nodes ``offsets[t][i]:offsets[t][i + 1]`` of
    level ``t + 1``. The nodes of level 0 are the children of a root that is not stored. Nodes of
    one level never share a child."""

    order: NDArray[np.int32]  # (n_labels,) the label at each position of the last level
    # one array a level but the last, of one more than its nodes
    offsets: tuple[NDArray[np.int64], ...]

    @classmethod
    def from_borders(
        cls, order: NDArray[np.integer], borders: Sequence[NDArray[np.integer]]
    ) -> LabelTree:
        """Return the tree whose nodes begin and end at these positions of ``order``; one array a
        level but the last.
        """
        below = [*borders[1:], np.arange(len(order) + 1)]
        offsets = (
            np.searchsorted(fine, coarse) for coarse, fine in zip(borders, below, strict=False)
        )
        return cls(order.astype(np.int32), tuple(at.astype(np.int64) for at in offsets))

    @property
    def n_labels(self) -> int:
        """Labels, which are the nodes of the last level."""
        return len(self.order)

    @property
    def n_levels(self) -> int:
        """Levels, that of the labels among them."""
        return len(self.offsets) + 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes of each level, coarse to fine."""
        return (*(len(offsets) - 1 for offsets in self.offsets), self.n_labels)

    @cached_property
    def positions(self) -> NDArray[np.int32]:
        """The node of the last level that each label is: the inverse of ``order``."""
        positions = np.empty_like(self.order)
        positions[self.order] = np.arange(self.n_labels, dtype=np.int32)
        return positions

    def children(self, level: int, node: int) -> range:
        """Return the nodes of ``level + 1`` below a node."""
        return range(int(self.offsets[level][node]), int(self.offsets[level][node + 1]))

    def refine(self, level: int, nodes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the children of all ``nodes``, in their order (eq. 1 of CascadeXML)."""
        nodes = np.asarray(nodes, np.int64)  # a list of none has no type of its own
        starts = self.offsets[level][nodes]
        counts = self.offsets[level][nodes + 1] - starts
        before = np.cumsum(counts) - counts
        return np.repeat(starts - before, counts) + np.arange(counts.sum())

    def parents(self, level: int) -> NDArray[np.int32]:
        """Return the parent, on the level above, of every node of ``level`` ≥ 1."""
        if level < 1:
            raise IndexError(f"level {level}: only levels from 1 on have parents")
        offsets = self.offsets[level - 1]
        return np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))

    def ancestors(self, label: int) -> list[int]:
        """Return the path of nodes from level 0 to the label's own on the last."""
        path = [int(self.positions[label])]
        for offsets in reversed(self.offsets):
            path.append(int(np.searchsorted(offsets, path[-1], "right")) - 1)
        return path[::-1]

    def coarsen(self, label_matrix: sparse.csr_array) -> list[sparse.csr_array]:
        """Return the (n_documents, nodes) matrix of each level, coarse to fine; values add up from
        labels to nodes.

        That is R^(t) = R^(t+1) C^(t+1), eq. 6 of XR-Transformer; the last is the label matrix in
        the tree's order."""
        matrix = sparse.csr_array(label_matrix, copy=True)
        if matrix.shape[1] != self.n_labels:
            raise ValueError(
                f"label matrix: found {matrix.shape[1]} columns; "
                f"expected {self.n_labels}, one per label"
            )
        matrix.sum_duplicates()
        matrices = [_renamed(matrix, self.positions, self.n_labels)]
        for level in range(self.n_levels - 1, 0, -1):
            matrices.append(_renamed(matrices[-1], self.parents(level), self.widths[level - 1]))
        return matrices[::-1]

    def check(self) -> None:
        """Raise ValueError for a tree that is none, as a damaged file may hold."""
        below = self.n_labels
        if self.order.ndim != 1 or not np.array_equal(np.sort(self.order), np.arange(below)):
            raise ValueError("order: found something else than each label once")
        for level in range(self.n_levels - 2, -1, -1):
            offsets = self.offsets[level]
            if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != below:
                raise ValueError(
                    f"offsets of level {level}: expected to go from 0 to the {below} nodes below"
                )
            if (np.diff(offsets) < 1).any():
                raise ValueError(f"offsets of level {level}: found a node without children")
            below = len(offsets) - 1

    def describe(self) -> list[dict[str, Any]]:
        """Return one row per level but the last: its nodes, and the fewest, mean and most children
        and labels of one.
        """
        rows = []
        for level, offsets in enumerate(self.offsets):
            borders = offsets
            for finer in self.offsets[level + 1 :]:
                borders = finer[borders]
            row: dict[str, Any] = {"level": level, "nodes": len(offsets) - 1}
            for name, counts in (("children", np.diff(offsets)), ("labels", np.diff(borders))):
                row |= {f"{name}_min": int(counts.min()), f"{name}_mean": float(counts.mean())}
                row[f"{name}_max"] = int(counts.max())
            rows.append(row)
        return rows

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a model folder holds."""
        return {"order": self.order} | {
            f"offsets.{level}": offsets for level, offsets in enumerate(self.offsets)
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> LabelTree:
        """Return the tree of ``to_arrays``, checked."""
        names = ["order", *(f"offsets.{level}" for level in range(len(arrays) - 1))]
        if set(names) != set(arrays):
            raise ValueError(f"tree: found the arrays {sorted(arrays)}; expected {names}")
        for name in names:
            expected = np.int32 if name == "order" else np.int64
            if arrays[name].dtype != expected:
                raise ValueError(
                    f"{name}: found {arrays[name].dtype}; expected {np.dtype(expected)}"
                )
        tree = cls(arrays["order"], tuple(arrays[name] for name in names[1:]))
        tree.check()
        return tree

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelTree):
            return NotImplemented
        arrays = self.to_arrays()
        other_arrays = other.to_arrays()
        return arrays.keys() == other_arrays.keys() and all(
            np.array_equal(arrays[name], other_arrays[name]) for name in arrays
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LabelTree({' → '.join(map(str, self.widths))})"


def _renamed(matrix: sparse.csr_array, names: NDArray[np.integer], width: int) -> sparse.csr_array:
    """Return the matrix with column ``c`` called ``names[c]``; columns of one name are added up."""
    shape = (matrix.shape[0], width)
    renamed = sparse.csr_array(
        (matrix.data.copy(), names[matrix.indices], matrix.indptr.copy()), shape=shape
    )
    renamed.sum_duplicates()  # sorts, too
    return renamed
