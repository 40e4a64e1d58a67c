"""The ranker of a level in shards: runs of whole parents, each packed, stored and memory-mapped by
itself.

Every holder of some shards knows all levels above and so goes down to the same parents; it scores
those children that it holds. Scores of a child depend on nothing else, so the best of the best of
all shards are the best of the level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from longtail.errors import UsageError
from longtail.kernels.descent import SearchRules
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.ranked_lists import merge_ranked, pairs_below, raised_floors
from longtail.kernels.search import MARGIN, Beam, Candidates, step_down
from longtail.search.chunks import Chunks, WeightType
from longtail.store import Folder

__all__ = ["Shards", "checked_shards", "cut_parents", "step_down_shards"]

_NONE = np.zeros(0, np.int32)


def cut_parents(offsets: NDArray[np.integer], shard_labels: int) -> NDArray[np.int64]:
    """Return the first parent of each shard, and the end: runs of whole parents with
    ``shard_labels`` children at most.

    Parent p has the nodes ``offsets[p]:offsets[p + 1]``; one with more children than that is a
    shard by itself."""
    # a setting may be any number
    borders = [0]
    n_parents = len(offsets) - 1
    most = min(shard_labels, int(offsets[-1]))
    while borders[-1] < n_parents:
        end = int(np.searchsorted(offsets, offsets[borders[-1]] + most, side="right")) - 1
        borders.append(max(min(end, n_parents), borders[-1] + 1))
    return np.array(borders, np.int64)


def checked_shards(chosen: Iterable[int], n_shards: int) -> set[int]:
    """Return the numbers of some of ``n_shards`` shards; refuse others, and none."""
    kept = set(chosen)
    if not kept or not 0 <= min(kept) <= max(kept) < n_shards:
        numbers = ", ".join(map(str, sorted(kept))) or "none"
        raise UsageError(
            f"shards: found {numbers}; expected some of 0 to {n_shards - 1}, which this model has"
        )
    return kept


@dataclass(frozen=True, eq=False)
class Shards:
    """Weights of one level, of which some may be held elsewhere; the face of :class:`Chunks`."""

    parts: tuple[Chunks | None, ...]  # None: not held here
    parents: NDArray[np.int64]  # (shards + 1,) first parent of each
    nodes: NDArray[np.int64]  # (shards + 1,) first node of each
    # where the very bytes of each lie already: stages of training
    files: tuple[tuple[Folder, str], ...] = ()
    # of the manifest of the model folder that they were read from, which says what all of them are
    seal: str = ""

    @classmethod
    def of(
        cls, parts: Sequence[Chunks | None], offsets: NDArray[np.integer], shard_labels: int
    ) -> Shards:
        """Put shards together that were cut at :func:`cut_parents`; ValueError where one does not
        fit its place.
        """
        parents = cut_parents(offsets, shard_labels)
        shards = cls(tuple(parts), parents, np.asarray(offsets, np.int64)[parents])
        if len(parts) != shards.n_shards:
            raise ValueError(f"{len(parts)} shards of a level that has {shards.n_shards}")
        for number, part in enumerate(parts):
            parents_here, nodes_here = (
                int(ends[number + 1] - ends[number]) for ends in (shards.parents, shards.nodes)
            )
            if part is not None and (part.n_chunks, part.n_nodes) != (parents_here, nodes_here):
                raise ValueError(
                    f"shard {number} of {part.n_nodes} nodes below {part.n_chunks} parents; "
                    f"expected {nodes_here} below {parents_here}"
                )
        if len({(part.n_columns, part.dense_width, part.dtype) for part in shards.held}) > 1:
            raise ValueError("shards of other columns or other types of weights than each other")
        return shards

    @classmethod
    def cut(cls, level: Chunks, shard_labels: int) -> Shards:
        """Return a level in shards, whose arrays are views of it; all have its codes where weights
        are int8.
        """
        offsets = level.level.offsets
        return cls.of(
            [level.run(*ends) for ends in pairwise(cut_parents(offsets, shard_labels))],
            offsets,
            shard_labels,
        )

    @property
    def n_shards(self) -> int:
        """Shards of the level, here or elsewhere."""
        return len(self.parents) - 1

    @property
    def numbers(self) -> list[int]:
        """Shards that are held here."""
        return [number for number, part in enumerate(self.parts) if part is not None]

    @property
    def held(self) -> list[Chunks]:
        """What is held here; at least one shard."""
        return [part for part in self.parts if part is not None]

    @property
    def n_chunks(self) -> int:
        """Number of parents, of all shards."""
        return int(self.parents[-1])

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the level, of all shards."""
        return int(self.nodes[-1])

    @property
    def n_columns(self) -> int:
        """Columns of the sparse block."""
        return self.held[0].n_columns

    @property
    def dense_width(self) -> int:
        """Columns of the dense block."""
        return self.held[0].dense_width

    @property
    def dtype(self) -> WeightType:
        """How weights are stored."""
        return self.held[0].dtype

    @property
    def nnz(self) -> int:
        """Weights that are held here."""
        return sum(part.nnz for part in self.held)

    @property
    def nbytes(self) -> int:
        """Bytes, as stored, that are held here."""
        return sum(part.nbytes for part in self.held)

    def weights(
        self, node: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """Return what :meth:`Chunks.weights` does; UsageError where the node is held elsewhere."""
        number = int(np.searchsorted(self.nodes, node, side="right")) - 1
        part = self.parts[number]
        if part is None:
            raise UsageError(
                f"the label is in shard {number}, which is not held here; "
                "ask where it is, or load all shards"
            )
        return part.weights(node - int(self.nodes[number]))


def step_down_shards(
    shards: Shards,
    features: FeatureRows,
    beam: Beam,
    rules: SearchRules,
    candidates: Candidates,
) -> Beam:
    """Return the result of ``step_down`` on the whole level, the last one.

    Shard after shard: nodes no better than the best so far need not be looked at in the next one.

    Args:
        shards: the ranker of the children.
        features: of the documents.
        beam: parents.
        rules: how children are scored, and how many of them are kept.
        candidates: which children may be kept.
    """
    score = rules.last_score
    limit = rules.last_limit
    n = len(beam.pointers) - 1
    owners = np.searchsorted(shards.parents, beam.nodes, side="right") - 1
    numbers = np.unique(owners).tolist()
    if n == 1:  # the shard of the best parent first, after which most of the others are done with
        numbers = list(dict.fromkeys(owners.tolist()))
    best = Beam(np.zeros(n + 1, np.int64), _NONE, np.zeros(0, np.float32))
    no_floors = np.full(n, -np.inf, np.float32)
    for number in numbers:
        part = shards.parts[number]
        if part is None:
            continue
        floors = candidates.floors
        if score == MARGIN:  # a margin may be above the score of its parent
            floors = no_floors
        below = pairs_below(beam, floors, *shards.parents[number : number + 2])
        if len(below.nodes):
            first, last = shards.nodes[number : number + 2]
            here = candidates._replace(labels=candidates.labels[first:last])
            ranked = Beam(*step_down(part.level, features, below, rules.bias, score, limit, here))
            best = merge_ranked(best, ranked, first, limit)
            raised = raised_floors(candidates.floors, best, limit)
            candidates = candidates._replace(floors=raised)
    return best
