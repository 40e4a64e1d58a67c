"""The path to a label through the label tree, beside the nodes that the search kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.models.ensemble_model import Ensemble
from longtail.models.model import Model
from longtail.rankers.explanation import explain_label
from longtail.rankers.tree import TreeRanker
from longtail.search.beam import shortlist
from longtail.server.answers import PathLevel, PathNode
from longtail.tree.tree import LabelTree

__all__ = ["label_path", "tree_of"]

_NAMES = 5  # labels that describe a node
_BEST_LABELS = 100  # best labels of a network whose nodes are shown


class _Level(NamedTuple):
    """Nodes that the search kept on a level, best first, and the score of the label's ancestor."""

    nodes: NDArray[np.integer]
    scores: NDArray[np.floating]
    ancestor_score: float


def tree_of(model: Model | Ensemble, label: str | None = None) -> tuple[Model, LabelTree] | None:
    """Return the label tree to show and its model.

    Of an ensemble, that is the member with the largest weight that has the label.
    """
    for member, _ in sorted(model.weighted_members(), key=lambda pair: -pair[1]):
        tree = _tree(member)
        if tree is not None and tree.n_levels > 1 and (label is None or label in member.labels):
            return member, tree
    return None


def _tree(model: Model) -> LabelTree | None:
    if model.neural_ranker is not None and model.facts.network_share > 0:
        return model.neural_ranker.tree
    if model.rankers:
        return model.rankers[0].label_tree
    return None


def label_path(
    model: Model | Ensemble, text: str, label: str, alternatives: int
) -> list[PathLevel]:
    """Return up to ``alternatives`` nodes per level, the label's ancestor among them.

    Empty for a model without a label tree.
    """
    match = tree_of(model, label)
    if match is None:
        return []
    owner, tree = match
    column = owner.labels.column(label)
    by_network = owner.neural_ranker is not None and tree is owner.neural_ranker.tree
    if by_network:
        levels = _network_levels(owner, text, column)
    else:
        levels = _linear_levels(owner, text, column)
    ancestors = tree.ancestors(column)
    return [
        PathLevel(depth + 1, _nodes(owner, tree, depth, level, ancestors[depth], alternatives))
        for depth, level in enumerate(levels)
    ]


def _linear_levels(model: Model, text: str, column: int) -> list[_Level]:
    """Return the nodes that the beam keeps on each level.

    Scores are products along the path; those of labels may be margins.
    """
    ranker = model.rankers[0]
    search = model.config.search
    assert isinstance(ranker, TreeRanker)
    features = model.features([text])
    steps = explain_label((ranker,), features, column, search).nodes
    features = ranker.level_features(features)
    path_scores = np.cumprod([step.score for step in steps]).tolist()
    if search.last_level == "margin":
        path_scores[-1] = steps[-1].score
    levels = []
    for depth in range(ranker.tree.n_levels):
        above = ranker.levels[: depth + 1]
        is_last = depth == ranker.tree.n_levels - 1
        kept = shortlist(
            features,
            ranker.tree,
            above,
            beam_size=search.beam_size,
            score=search.score,
            bias=ranker.bias,
            last_level=search.last_level if is_last else "path",
        )
        levels.append(_Level(kept.indices, kept.data, path_scores[depth]))
    return levels


def _network_levels(model: Model, text: str, column: int) -> list[_Level]:
    """Return the ancestors of a network's best labels, scored by the best label below them."""
    ranker = model.neural_ranker
    assert ranker is not None
    ranked, _ = ranker.search([text], min(_BEST_LABELS, ranker.n_labels))
    scores = dict(zip(ranked.indices.tolist(), ranked.data.tolist(), strict=True))
    scores[column] = float(ranker.label_scores([text], column)[0])
    ancestors = {label: ranker.tree.ancestors(label) for label in scores}
    levels = []
    for depth in range(ranker.tree.n_levels):
        best: dict[int, float] = {}
        for label, nodes_above in ancestors.items():
            node = nodes_above[depth]
            best[node] = max(best.get(node, 0.0), scores[label])
        nodes = sorted(best, key=lambda node: (-best[node], node))
        values = np.array([best[node] for node in nodes])
        levels.append(_Level(np.array(nodes), values, best[ancestors[column][depth]]))
    return levels


def _nodes(
    model: Model, tree: LabelTree, depth: int, level: _Level, ancestor: int, alternatives: int
) -> list[PathNode]:
    """Return the best nodes of a level; the label's ancestor replaces the last if it is missing."""
    pairs = list(zip(level.nodes.tolist(), level.scores.tolist(), strict=True))[:alternatives]
    if ancestor not in (node for node, _ in pairs):
        pairs = [*pairs[: alternatives - 1], (ancestor, level.ancestor_score)]
    return [_node(model, tree, depth, node, score, node == ancestor) for node, score in pairs]


def _node(
    model: Model, tree: LabelTree, depth: int, node: int, score: float, on_path: bool
) -> PathNode:
    first = node
    last = node + 1
    for offsets in tree.offsets[depth:]:
        first = int(offsets[first])
        last = int(offsets[last])
    below = tree.order[first:last]
    frequent = below[np.argsort(-model.label_counts[below], kind="stable")[:_NAMES]].tolist()
    names = [model.labels.name(at) for at in frequent]
    label = None
    if depth == tree.n_levels - 1:
        label = model.labels.ids[frequent[0]]
    return PathNode(node, score, len(below), names, on_path, label)
