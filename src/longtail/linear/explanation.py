"""Why a label: what each feature adds to the margin of every node on the way from the root to it.

What leaving a word out does to the score of a network (:mod:`longtail.neural.occlusion`) is a step of its own kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import special

from longtail.config import Search
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.features.matrix import Features
from longtail.linear.forest import Forest, ForestExplanation
from longtail.linear.neighbours import Neighbours, NeighboursExplanation
from longtail.linear.tree_ranker import TreeRanker
from longtail.search.calibration import Calibration

__all__ = ["Contribution", "Explanation", "LinearRanker", "RawExplanation", "Step", "explain_label"]

LinearRanker = TreeRanker | Forest | Neighbours

_EXAMPLES = 3  # labels that stand for a node


class Contribution(msgspec.Struct, frozen=True):
    """One feature of the document: its value, its weight at the node, and their product.

    Of a word left out: how often it stands in the text, what one time comes to, and how much the margin falls.
    """

    feature: str
    value: float
    weight: float
    contribution: float


class Step(msgspec.Struct, frozen=True):
    """One node on the way: contributions, bias and dense part add up to the margin, which gives the score.

    In a forest a step is all trees together, or the label's centroid; of neighbours it is what one learner says. Of the
    kind ``left-out`` it is a network: the margin is the logit of its score, contributions are how much that falls
    without each word, and these do not add up.
    """

    tree: int
    level: int
    node: str  # the label itself, or some labels below
    margin: float
    score: float
    bias: float
    dense: float
    contributions: tuple[Contribution, ...]  # the largest, by absolute value, first
    kind: Literal["sum", "left-out"] = "sum"
    place: str = ""  # where it stands if it is no node of a label tree: a forest, a learner


class Explanation(msgspec.Struct, frozen=True):
    """The way to a label: the product of a tree's scores is its path score, their mean over trees the label's.

    Where labels are ranked by their margins, the path score is the margin of the last step, of several trees the mean.
    With a network that ranks it is ``network_share`` times the score of the network's step, and the rest of the mean.
    """

    label: str
    name: str
    path_score: float
    probability: float | None  # None: the model is not calibrated
    steps: tuple[Step, ...]
    network_share: float = 0.0

    @property
    def sums(self) -> tuple[Step, ...]:
        """The steps that are sums over features, those of linear rankers."""
        return tuple(step for step in self.steps if step.kind == "sum")

    def summed(self) -> list[tuple[str, float]]:
        """Return what each feature adds over all steps that are sums, or a network alone by falls, largest first."""
        totals: dict[str, float] = {}
        for step in self.sums or self.steps:
            for part in step.contributions:
                totals[part.feature] = totals.get(part.feature, 0.0) + part.contribution
        return sorted(totals.items(), key=lambda item: (-abs(item[1]), item[0]))


@dataclass(frozen=True)
class _Node:
    tree: int
    level: int
    labels: NDArray[np.int32]  # labels below, where it is a node of a label tree
    margin: float
    score: float
    bias: float
    dense: float
    columns: NDArray[np.integer]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    name: str = ""  # in place of that of its labels
    place: str = ""


@dataclass(frozen=True)
class RawExplanation:
    """An explanation in columns of the features, before they have names."""

    label: int
    path_score: float
    nodes: tuple[_Node, ...]

    def named(
        self,
        labels: Labels,
        label_counts: NDArray[np.integer],
        vocabulary: Strings,
        calibration: Calibration | None,
        network: Step | None = None,
        share: float = 0.0,
    ) -> Explanation:
        """Put names in place of numbers, and before all else the step of a network that has this share of the score."""
        score = self.path_score if network is None else share * network.score + (1 - share) * self.path_score
        probability = None if calibration is None else float(calibration(np.array([score]))[0])
        steps = tuple(_step(node, labels, label_counts, vocabulary) for node in self.nodes)
        steps = steps if network is None else (network, *steps)
        return Explanation(labels.ids[self.label], labels.name(self.label), score, probability, steps, share)


def explain_label(rankers: Sequence[LinearRanker], features: Features, label: int, search: Search) -> RawExplanation:
    """Explain one label for the first row of ``features``."""
    nodes = [node for tree, ranker in enumerate(rankers) for node in _steps(tree, ranker, features, label, search)]
    by_margin = search.last_level == "margin" and all(isinstance(ranker, TreeRanker) for ranker in rankers)
    paths: list[float] = []
    for tree in sorted({node.tree for node in nodes}):
        own = [node.score for node in nodes if node.tree == tree]
        paths.append(own[-1] if by_margin else float(np.prod(own)))
    return RawExplanation(label, float(np.mean(paths)) if paths else 0.0, tuple(nodes))


def _steps(tree: int, ranker: LinearRanker, features: Features, label: int, search: Search) -> list[_Node]:
    if isinstance(ranker, Forest):
        return _forest_steps(ranker.explain(features, label), features)
    if isinstance(ranker, Neighbours):
        return _voting_steps(ranker.explain(features, label), features, len(ranker.learners))
    return _path(tree, ranker, features, label, search)


def _forest_steps(found: ForestExplanation, features: Features) -> list[_Node]:
    """Return what spoke for the ways taken at all splits, the mean over trees, P^α; and the centroid, if it counts."""
    splits = [split for path in found.trees for split in path.splits]
    signs = [(1.0 if split.margin > 0 else -1.0) / len(found.trees) for split in splits]
    products = np.zeros(features.shape[1])
    for split, sign in zip(splits, signs, strict=True):
        np.add.at(products, split.products.columns, sign * split.products.values * split.products.weights)
    bias = sum(sign * split.bias for split, sign in zip(splits, signs, strict=True))
    name, score = f"the ways through {len(found.trees)} trees", found.gain ** (1 - found.tail_share)
    trees = _sum_step(("forest", 0, 0), products, features, score if found.score else 0.0, bias, name)
    if found.tail_share == 0:
        return [trees]
    products = np.zeros(features.shape[1])
    products[found.products.columns] = found.products.values * found.products.weights
    tail = _sum_step(
        ("forest", 0, 1), products, features, found.nearness**found.tail_share, 0.0, "the label's centroid"
    )
    return [trees, tail]


def _voting_steps(found: NeighboursExplanation, features: Features, learners: int) -> list[_Node]:
    """Return a step a learner: the cosines of the voters that have the label, times their shares of its votes."""
    steps = []
    for learner in range(learners):
        voters = [voter for voter in found.voters if voter.learner == learner]
        products, share = np.zeros(features.shape[1]), 0.0
        for voter in voters:
            products[voter.columns] += learners * voter.vote * voter.contributions
            share += learners * voter.vote
        rows = ", ".join(str(voter.document + 1) for voter in voters[:_EXAMPLES])
        name = f"{len(voters)} neighbours have it" + (f": training documents {rows}" if rows else "")
        place = f"learner {learner + 1}", learner, 0
        steps.append(_sum_step(place, products, features, share, 0.0, name))
    return steps


def _sum_step(
    place: tuple[str, int, int],
    products: NDArray[np.float64],
    features: Features,
    score: float,
    bias: float,
    name: str,
) -> _Node:
    """Return a step whose margin is the sum of ``products``, one a column of both blocks, and the bias.

    ``place`` is its place in words, tree and level.
    """
    start, end = features.sparse.indptr[:2]
    columns, values = features.sparse.indices[start:end], features.sparse.data[start:end].astype(np.float64)
    width = features.dense.shape[1]
    own, dense = products[width + columns], float(products[:width].sum())
    weights = np.divide(own, values, out=np.zeros_like(own), where=values != 0)
    margin = float(own.sum()) + dense + bias
    where, tree, level = place
    return _Node(tree, level, np.zeros(0, np.int32), margin, score, bias, dense, columns, values, weights, name, where)


def _path(tree: int, ranker: TreeRanker, features: Features, label: int, search: Search) -> list[_Node]:
    start, end = features.sparse.indptr[:2]
    columns, values = features.sparse.indices[start:end], features.sparse.data[start:end].astype(np.float64)
    dense = features.dense[0].astype(np.float64)
    nodes = []
    for level, node in enumerate(ranker.tree.ancestors(label)):
        own, weights, dense_weights = ranker.levels[level].weights(node)
        known = dict(zip(own.tolist(), weights.astype(np.float64).tolist(), strict=True))
        bias = known.get(features.sparse.shape[1], 0.0) * ranker.bias
        mine = np.array([known.get(column, 0.0) for column in columns.tolist()])
        dense_part = float(dense @ dense_weights)
        margin = float(values @ mine) + bias + dense_part
        below = _labels_below(ranker, level, node)
        is_label = level == ranker.tree.n_levels - 1
        score = margin if is_label and search.last_level == "margin" else _score(margin, search.score)
        nodes.append(_Node(tree, level, below, margin, score, bias, dense_part, columns, values, mine))
    return nodes


def _score(margin: float, score: str) -> float:
    """Return exp(−max(0, 1 − v)^p) or σ(v), as the search does."""
    if score == "sigmoid":
        return float(special.expit(margin))
    return float(np.exp(-(max(0.0, 1.0 - margin) ** (2 if score == "hinge-2" else 3))))


def _labels_below(ranker: TreeRanker, level: int, node: int) -> NDArray[np.int32]:
    first, last = node, node + 1
    for offsets in ranker.tree.offsets[level:]:
        first, last = int(offsets[first]), int(offsets[last])
    return ranker.tree.order[first:last]


def _step(node: _Node, labels: Labels, label_counts: NDArray[np.integer], vocabulary: Strings) -> Step:
    products = node.values * node.weights
    order = np.argsort(-np.abs(products), kind="stable")
    contributions = tuple(
        Contribution(vocabulary[column], value, weight, product)
        for column, value, weight, product in zip(
            *(array[order].tolist() for array in (node.columns, node.values, node.weights, products)), strict=True
        )
        if product != 0
    )
    name = node.name or _node_name(node, labels, label_counts)
    numbers = node.margin, node.score, node.bias, node.dense
    return Step(node.tree, node.level, name, *numbers, contributions, place=node.place)


def _node_name(node: _Node, labels: Labels, label_counts: NDArray[np.integer]) -> str:
    """Return the most frequent labels of a node of the label tree, by name, and how many there are."""
    frequent = node.labels[np.argsort(-label_counts[node.labels], kind="stable")[:_EXAMPLES]]
    name = ", ".join(labels.name(int(label)) for label in frequent)
    return name if len(node.labels) <= _EXAMPLES else f"{name} … ({len(node.labels):,} labels)"
