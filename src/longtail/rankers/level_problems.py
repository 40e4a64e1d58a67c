"""The training problems of one level of a label tree, and the settings that differ from level to
level.

The children of each node are trained on the node's documents (teacher-forcing negatives, TFN), on
those that the levels above would send there (matcher-aware negatives, MAN), or on both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
from longtail.config import Ranker, Search
from longtail.errors import ConfigError
from longtail.features.matrix import Features
from longtail.kernels.node_training import GroupDocuments, Positives
from longtail.rankers.spans import Spans, positives_of, train_chunks
from longtail.search.beam import LevelWeights, shortlist
from longtail.search.chunks import Chunks, Part
from longtail.search.shards import cut_parents
from longtail.tree.tree import LabelTree

__all__ = ["LevelProblems", "check_level_settings", "fit_rows", "level_ranker", "uses_matcher"]

# dense columns from which on a node alone is solved about as fast as its share of a block
_WIDE = 64


@dataclass(frozen=True)
class LevelProblems:
    """The problems of all nodes of a level below others: what is common to its shards."""

    features: Features
    documents: GroupDocuments  # of each parent
    positives: Positives
    offsets: NDArray[np.int64]  # (parents + 1,) first child of each parent
    ranker: Ranker
    seed: int
    name: str

    @classmethod
    def of(
        cls,
        features: Features,
        relevance: Sequence[sparse.csr_array],
        tree: LabelTree,
        above: Sequence[LevelWeights],
        ranker: Ranker,
        search: Search,
        seed: int,
    ) -> LevelProblems:
        """Take the level below the levels ``above``; ``relevance`` is the tree's coarsened label
        matrix.
        """
        level = len(above)
        settings = level_ranker(ranker, level)
        parents = _parents(features, relevance, tree, above, settings, search)
        return cls.of_parents(features, relevance[level], tree, level, parents, settings, seed)

    @classmethod
    def of_parents(
        cls,
        features: Features,
        relevance: sparse.csr_array,
        tree: LabelTree,
        level: int,
        parents: sparse.csr_array | None,
        ranker: Ranker,
        seed: int,
    ) -> LevelProblems:
        """Take a level and its ``relevance`` (n, nodes); each document is trained on the children
        of its ``parents`` (n, parents), None: all.

        Costs are those of ``ranker`` for all levels.
        """
        documents = _documents(parents, len(features))
        positives = positives_of(relevance, ranker)
        offsets = np.array([0, tree.widths[0]])
        if level:
            offsets = tree.offsets[level - 1]
        return cls(
            features,
            documents,
            positives,
            offsets,
            ranker,
            seed,
            f"level {level + 1} of {tree.n_levels}",
        )

    def shards(self) -> list[tuple[int, int]]:
        """Return the first and the last (exclusive) parent of each shard."""
        return list(pairwise(cut_parents(self.offsets, self.ranker.shard_labels).tolist()))

    def solve(self, parents: tuple[int, int] | None = None) -> Chunks:
        """Return the weights of the children of the parents from the first to before the last;
        None: of all.
        """
        if parents is None:
            parents = self.all_parents
        offsets = self.offsets[parents[0] : parents[1] + 1]
        with reporting.stage(self.name, total=int(offsets[-1] - offsets[0]), unit="nodes"):
            return Chunks.build(
                offsets - offsets[0],
                self.parts(parents),
                *self.features.widths,
                self.ranker.weights,
            )

    @property
    def all_parents(self) -> tuple[int, int]:
        """The first parent, 0, and behind the last."""
        return 0, len(self.offsets) - 1

    def parts(self, parents: tuple[int, int]) -> Iterator[Part]:
        """Yield the trained children of each parent from the first to before the last."""
        first, last = parents
        alone = self.ranker.solver == "dual" and self.features.dense.shape[1] >= _WIDE
        spans = Spans.below(
            np.diff(self.documents.pointers)[first:last], self.offsets[first : last + 1], alone
        )
        spans = spans._replace(groups=spans.groups + first)
        return train_chunks(
            self.features, spans, self.documents, self.positives, self.ranker, self.seed
        )


def fit_rows(
    features: NDArray[np.float32],
    relevance: sparse.csr_array,
    tree: LabelTree,
    level: int,
    parents: sparse.csr_array | None,
    ranker: Ranker,
    seed: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Train the nodes of a level on dense ``features`` (n, e); return weights (K, e) and biases
    (K,).

    ``relevance`` (n, K) is the level's; ``parents`` (n, parents) has the parents whose children
    each document is trained on, None: all.
    """
    problems = LevelProblems.of_parents(
        Features.of(features), relevance, tree, level, parents, ranker, seed
    )
    nodes = tree.widths[level]
    weights = np.zeros((nodes, features.shape[1]), np.float32)
    bias = np.zeros(nodes, np.float32)
    with reporting.stage(f"first classifiers of level {level + 1}", total=nodes, unit="nodes"):
        for part, start in zip(
            problems.parts(problems.all_parents), problems.offsets, strict=False
        ):
            weights[start : start + len(part.dense)] = part.dense
            # the only column without a dense one
            bias[start + part.siblings] = part.values * np.float32(ranker.bias)
    return weights, bias


def _documents(parents: sparse.csr_array | None, n: int) -> GroupDocuments:
    """Return the documents of each parent; all ``n`` of the root."""
    if parents is None:
        return GroupDocuments(np.array([0, n], np.int64), np.arange(n, dtype=np.int32))
    by_parent = parents.tocsc()
    by_parent.sort_indices()
    return GroupDocuments(by_parent.indptr.astype(np.int64), by_parent.indices.astype(np.int32))


def _parents(
    features: Features,
    relevance: Sequence[sparse.csr_array],
    tree: LabelTree,
    above: Sequence[LevelWeights],
    ranker: Ranker,
    search: Search,
) -> sparse.csr_array | None:
    """Return the parents whose children each document is trained on; None is the root."""
    if not above:
        return None
    true = relevance[len(above) - 1]
    if ranker.negatives == "tfn":
        return true
    matched = shortlist(
        features, tree, above, beam_size=search.beam_size, score=search.score, bias=ranker.bias
    )
    matched.data = np.ones_like(matched.data)  # a score of 0 is a match, too
    if ranker.negatives == "tfn+man":
        matched = matched + true
    return matched


def level_ranker(ranker: Ranker, level: int) -> Ranker:
    """Return the settings of one level, 0 being the coarsest, with the costs and negatives of the
    level where levels have any.
    """
    settings = ranker
    if level < len(ranker.level_costs):
        cost_positive, cost_negative = ranker.level_costs[level]
        settings = replace(settings, cost_positive=cost_positive, cost_negative=cost_negative)
    if level < len(ranker.level_negatives):
        settings = replace(settings, negatives=ranker.level_negatives[level])
    return replace(settings, level_costs=(), level_negatives=())


def uses_matcher(ranker: Ranker) -> bool:
    """Return whether negatives of any level come from a search down the levels above."""
    first, *below = ranker.level_negatives or (ranker.negatives, ranker.negatives)
    return any(negatives != "tfn" for negatives in below) or (not below and first != "tfn")


def check_level_settings(ranker: Ranker, widths: Sequence[int]) -> None:
    """Refuse settings for another number of levels than the tree has, whose nodes on each level are
    ``widths``.
    """
    for name in ("level_costs", "level_negatives"):
        count = len(getattr(ranker, name))
        if count not in (0, len(widths)):
            levels = "level" if count == 1 else "levels"
            tree = " → ".join(f"{width:,}" for width in widths)
            raise ConfigError(
                f"ranker.{name}: found settings for {count} {levels}; expected {len(widths)}, "
                f"as the tree of the classifiers has ({tree}), or [] for the same on all"
            )
