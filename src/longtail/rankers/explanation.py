"""Why a label: the contribution of each feature to the margin of every node on the way from the
root to it.

The effect of leaving a word out on the score of a network (:mod:`longtail.networks.ranker`) is a
step of its own kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.config import Search
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.features.matrix import Features
from longtail.rankers.base import Node, Ranker
from longtail.search.calibration import Calibration

__all__ = ["Contribution", "Explanation", "RawExplanation", "Step", "explain_label"]

_EXAMPLES = 3  # labels that stand for a node


class Contribution(msgspec.Struct, frozen=True):
    """One feature of the document: its value, its weight at the node, and their product.

    Of a word left out: its count in the text, the effect of one occurrence, and the fall of the
    margin."""

    feature: str
    value: float
    weight: float
    contribution: float


class Step(msgspec.Struct, frozen=True):
    """One node on the way: contributions, bias and dense part add up to the margin, which gives the
    score.

    In a forest a step is all trees together, or the label's centroid; of neighbours it is one
    learner's vote. Of the kind ``left-out`` it is a network: the margin is the logit of its score,
    contributions are how much that falls without each word, and these do not add up."""

    tree: int
    level: int
    node: str  # the label itself, or some labels below
    margin: float
    score: float
    bias: float
    dense: float
    contributions: tuple[Contribution, ...]  # the largest, by absolute value, first
    kind: Literal["sum", "left-out"] = "sum"
    place: str = ""  # of a step that is no node of a label tree: a forest, a learner


class Explanation(msgspec.Struct, frozen=True):
    """The way to a label: the product of a tree's scores is its path score, their mean over trees
    the label's.

    Where labels are ranked by their margins, the path score is the margin of the last step, of
    several trees the mean. With a network that ranks it is ``network_share`` times the score of the
    network's step, plus the remaining share of the mean."""

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

    def weighted(self) -> list[tuple[float, Explanation | None]]:
        """Return this explanation as that of the only member, with its weight."""
        return [(1.0, self)]

    def summed(self) -> list[tuple[str, float]]:
        """Return what each feature adds over all steps that are sums, or a network alone by falls,
        largest first.
        """
        totals: dict[str, float] = {}
        for step in self.sums or self.steps:
            for part in step.contributions:
                totals[part.feature] = totals.get(part.feature, 0.0) + part.contribution
        return sorted(totals.items(), key=lambda item: (-abs(item[1]), item[0]))


@dataclass(frozen=True)
class RawExplanation:
    """An explanation in columns of the features, before they have names."""

    label: int
    path_score: float
    nodes: tuple[Node, ...]

    def named(
        self,
        labels: Labels,
        label_counts: NDArray[np.integer],
        vocabulary: Strings,
        calibration: Calibration | None,
        network: Step | None = None,
        share: float = 0.0,
    ) -> Explanation:
        """Put names in place of numbers.

        Args:
            labels: of the model.
            label_counts: training documents per label.
            vocabulary: names of the sparse columns.
            calibration: map from scores to probabilities.
            network: the step of a network that ranks, put before all others.
            share: the network's share of the score.
        """
        score = self.path_score
        steps = tuple(_step(node, labels, label_counts, vocabulary) for node in self.nodes)
        if network is not None:
            score = share * network.score + (1 - share) * self.path_score
            steps = (network, *steps)
        probability = None
        if calibration is not None:
            probability = float(calibration(np.array([score]))[0])
        return Explanation(
            labels.ids[self.label], labels.name(self.label), score, probability, steps, share
        )


def explain_label(
    rankers: Sequence[Ranker], features: Features, label: int, search: Search
) -> RawExplanation:
    """Explain one label for the first row of ``features``; the score is the mean over rankers."""
    explanations = [
        ranker.explain(features, label, search, number) for number, ranker in enumerate(rankers)
    ]
    nodes = tuple(node for explanation in explanations for node in explanation.nodes)
    scores = [explanation.score for explanation in explanations]
    return RawExplanation(label, float(np.mean(scores or [0.0])), nodes)


def _step(
    node: Node, labels: Labels, label_counts: NDArray[np.integer], vocabulary: Strings
) -> Step:
    products = node.values * node.weights
    order = np.argsort(-np.abs(products), kind="stable")
    columns = (
        array[order].tolist() for array in (node.columns, node.values, node.weights, products)
    )
    contributions = tuple(
        Contribution(vocabulary[column], value, weight, product)
        for column, value, weight, product in zip(*columns, strict=True)
        if product != 0
    )
    return Step(
        tree=node.tree,
        level=node.level,
        node=node.name or _node_name(node, labels, label_counts),
        margin=node.margin,
        score=node.score,
        bias=node.bias,
        dense=node.dense,
        contributions=contributions,
        place=node.location,
    )


def _node_name(node: Node, labels: Labels, label_counts: NDArray[np.integer]) -> str:
    """Return the names of the most frequent labels of a node, and how many labels it has."""
    frequent = node.labels[np.argsort(-label_counts[node.labels], kind="stable")[:_EXAMPLES]]
    name = ", ".join(labels.name(int(label)) for label in frequent)
    if len(node.labels) <= _EXAMPLES:
        return name
    return f"{name} … ({len(node.labels):,} labels)"
