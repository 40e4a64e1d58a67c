"""Training and searching a label tree in plain numpy: the entrance to the fast kernels, and their
oracle.

This is XR-Linear (Yu et al. 2022, PECOS), which goes back to Parabel (Prabhu et al. 2018), without
what makes it fast. Nothing in the package calls it; the tests of the kernels compare with it.

    tree = build_tree(label_features, leaf_size=4, random=np.random.default_rng(0))
    weights = train_tree(x, y, tree, cost=1.0, tolerance=1e-4, threshold=0.1)
    labels, scores = search_tree(x[0], tree, weights, beam_size=10, power=3)

A tree is a list of levels, coarse to fine. Level t is a list of arrays: the children, among the
nodes of the level, of each node of the level above; the first level has the children of the root
alone. The nodes of the last level are the labels. Features are dense here; their last column may be
a constant 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["build_tree", "objective", "search_tree", "solve_svm", "train_tree", "two_means"]

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]
Level = list[Nodes]
Tree = list[Level]


def two_means(rows: Array, random: np.random.Generator, passes: int = 20) -> NDArray[np.bool_]:
    """Return which half each row belongs to: balanced spherical 2-means (Prabhu et al. 2018)."""
    centres = rows[random.choice(len(rows), 2, replace=False)]
    right = np.zeros(len(rows), bool)
    for _ in range(passes):
        leaning = rows @ (centres[1] - centres[0])
        # the half that leans most to the second centre: sizes differ by one at most
        order = np.argsort(leaning, kind="stable")
        before = right
        right = np.zeros(len(rows), bool)
        right[order[len(rows) // 2 :]] = True
        if (right == before).all():
            break
        sums = np.stack([rows[~right].sum(axis=0), rows[right].sum(axis=0)])
        centres = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    return right


def build_tree(rows: Array, leaf_size: int, random: np.random.Generator) -> Tree:
    """Return a binary label tree: clusters of labels are halved until none has more than
    ``leaf_size``.

    ``rows`` are the labels' features, such as PIFA: the mean of the features of their documents.
    """
    clusters = [np.arange(len(rows))]
    tree: Tree = []
    while max(map(len, clusters)) > leaf_size:
        halves: list[Nodes] = []
        for labels in clusters:
            right = two_means(rows[labels], random)
            halves += [labels[~right], labels[right]]
        tree.append([np.arange(2 * i, 2 * i + 2) for i in range(len(clusters))])
        clusters = halves
    tree.append(clusters)
    return tree


def objective(w: Array, x: Array, y: Array, cost: float) -> float:
    """Return ½‖w‖² + C Σ max(0, 1 − y w·x)², the L2-regularised squared hinge loss."""
    return float(w @ w / 2 + cost * (np.maximum(0, 1 - y * (x @ w)) ** 2).sum())


def solve_svm(x: Array, y: Array, cost: float, tolerance: float, max_passes: int = 10_000) -> Array:
    """Return the weights of least objective by dual coordinate descent (Hsieh et al. 2008,
    algorithm 1).

    The dual is min ½‖Σ α y x‖² + Σ α² / (4 C) − Σ α over α ≥ 0, with w = Σ α y x. Each step
    minimises it along the α of one document. Solved where the projected gradients of a pass lie
    within ``tolerance``."""
    alpha = np.zeros(len(x))
    w = np.zeros(x.shape[1])
    diagonal = 1 / (2 * cost)
    curvature = (x**2).sum(axis=1) + diagonal
    for _ in range(max_passes):
        gradients = np.zeros(len(x))
        for i in range(len(x)):
            gradient = y[i] * (x[i] @ w) - 1 + diagonal * alpha[i]
            # at the bound α = 0, only a step upwards is possible
            gradients[i] = gradient if alpha[i] > 0 else min(gradient, 0)
            new = max(alpha[i] - gradient / curvature[i], 0)
            w += (new - alpha[i]) * y[i] * x[i]
            alpha[i] = new
        if np.ptp(gradients) <= tolerance:
            break
    return w


def train_tree(
    x: Array, y: NDArray[np.bool_], tree: Tree, cost: float, tolerance: float, threshold: float
) -> list[Array]:
    """Return the weights (nodes, columns) of each level; ``y`` (n, labels) has the labels of
    documents.

    Teacher-forcing negatives (TFN): a node is trained on the documents that have a label below its
    parent. Weights of less than ``threshold`` are pruned (Babbar and Schölkopf 2017, DiSMEC),
    but for the last column.
    """
    # documents of each node, from the labels up: they are those of its children
    members = [y]
    for level in reversed(tree):
        members.append(np.stack([members[-1][:, children].any(axis=1) for children in level], 1))
    members.reverse()
    members[0][:] = True  # the root has all documents
    weights = []
    for depth, level in enumerate(tree):
        level_weights = np.zeros((members[depth + 1].shape[1], x.shape[1]))
        for parent, children in enumerate(level):
            documents = members[depth][:, parent]
            for node in children:
                signs = np.where(members[depth + 1][documents, node], 1.0, -1.0)
                level_weights[node] = solve_svm(x[documents], signs, cost, tolerance)
        small = np.abs(level_weights) < threshold
        small[:, -1] = False
        weights.append(np.where(small, 0.0, level_weights))
    return weights


def search_tree(
    x: Array, tree: Tree, weights: list[Array], beam_size: int, power: int
) -> tuple[Nodes, Array]:
    """Return the labels that beam search finds for a document, best first, and their scores.

    A node scores exp(−max(0, 1 − v)^p) of its margin v times the score of its parent (Yu et al.
    2022); the ``beam_size`` best nodes of each level are kept."""
    beam = np.array([0])
    scores = np.array([1.0])
    for level, level_weights in zip(tree, weights, strict=True):
        nodes = np.concatenate([level[parent] for parent in beam])
        paths = np.repeat(scores, [len(level[parent]) for parent in beam])
        margins = level_weights[nodes] @ x
        paths = paths * np.exp(-(np.maximum(0, 1 - margins) ** power))
        best = np.lexsort((nodes, -paths))[:beam_size]
        beam = nodes[best]
        scores = paths[best]
    return beam, scores
