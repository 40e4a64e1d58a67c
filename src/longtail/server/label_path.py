"""The way through the label tree: on each level the nodes that the search kept, and those on the
way to a label.
"""

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

_NAMES = 5  # labels that stand for a node
_FOUND = 100  # labels of a network whose nodes are looked at


class _Level(NamedTuple):
    """Nodes that the search kept on a level, best first, and the score of the one on the way to the
    label.
    """

    nodes: NDArray[np.integer]
    scores: NDArray[np.floating]
    own: float


def tree_of(model: Model | Ensemble, label: str | None = None) -> tuple[Model, LabelTree] | None:
    """Return the label tree to show, and whose it is: of an ensemble, the heaviest member's that
    knows the label.
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
    """Return each level's nodes, at most ``alternatives``, the label's own among them; empty
    without a label tree.
    """
    found = tree_of(model, label)
    if found is None:
        return []
    owner, tree = found
    column = owner.labels.column(label)
    by_network = owner.neural_ranker is not None and tree is owner.neural_ranker.tree
    if by_network:
        levels = _network_levels(owner, text, column)
    else:
        levels = _linear_levels(owner, text, column)
    way = tree.ancestors(column)
    return [
        PathLevel(depth + 1, _nodes(owner, tree, depth, level, way[depth], alternatives))
        for depth, level in enumerate(levels)
    ]


def _linear_levels(model: Model, text: str, column: int) -> list[_Level]:
    """Return what the beam keeps on each level; scores are products from the root down, of labels
    perhaps margins.
    """
    ranker = model.rankers[0]
    search = model.config.search
    assert isinstance(ranker, TreeRanker)
    features = model.features([text])
    steps = explain_label((ranker,), features, column, search).nodes
    own = np.cumprod([step.score for step in steps]).tolist()
    if search.last_level == "margin":
        own[-1] = steps[-1].score
    levels = []
    for depth in range(ranker.tree.n_levels):
        above = ranker.levels[: depth + 1]
        last_level = search.last_level if depth == ranker.tree.n_levels - 1 else "path"
        kept = shortlist(
            features,
            ranker.tree,
            above,
            beam_size=search.beam_size,
            score=search.score,
            bias=ranker.bias,
            last_level=last_level,
        )
        levels.append(_Level(kept.indices, kept.data, own[depth]))
    return levels


def _network_levels(model: Model, text: str, column: int) -> list[_Level]:
    """Return the nodes above the best labels of a network; a node's score is that of the best label
    found below it.
    """
    ranker = model.neural_ranker
    assert ranker is not None
    ranked, _ = ranker.search([text], min(_FOUND, ranker.n_labels))
    scores = dict(zip(ranked.indices.tolist(), ranked.data.tolist(), strict=True))
    scores[column] = float(ranker.label_scores([text], column)[0])
    ways = {label: ranker.tree.ancestors(label) for label in scores}
    levels = []
    for depth in range(ranker.tree.n_levels):
        best: dict[int, float] = {}
        for label, way in ways.items():
            best[way[depth]] = max(best.get(way[depth], 0.0), scores[label])
        nodes = sorted(best, key=lambda node: (-best[node], node))
        values = np.array([best[node] for node in nodes])
        levels.append(_Level(np.array(nodes), values, best[ways[column][depth]]))
    return levels


def _nodes(
    model: Model, tree: LabelTree, depth: int, level: _Level, own: int, alternatives: int
) -> list[PathNode]:
    """Return the best nodes of a level, the last of them replaced by the label's own where it is
    not among them.
    """
    pairs = list(zip(level.nodes.tolist(), level.scores.tolist(), strict=True))[:alternatives]
    if own not in (node for node, _ in pairs):
        pairs = [*pairs[: alternatives - 1], (own, level.own)]
    return [_node(model, tree, depth, node, score, node == own) for node, score in pairs]


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
    label = model.labels.ids[frequent[0]] if depth == tree.n_levels - 1 else None
    return PathNode(node, score, len(below), names, on_path, label)
