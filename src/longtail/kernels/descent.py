"""Beam search down all levels of a label tree in one call.

From Python it takes longer to pass the arrays of a level than to search it for a single document.
So the levels of a model lie in a list of numba, which is passed as one argument."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.typed import List

from longtail.kernels.chunks import Level
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import kernel
from longtail.kernels.search import Beam, Candidates, step_down

__all__ = ["SearchRules", "add_level", "descend", "first_beam", "list_of_level", "path_scores"]


class SearchRules(NamedTuple):
    """How nodes are scored, and how many of them are kept."""

    n_roots: int  # parents of the nodes of the first level, which every document visits
    bias: Any  # float32, value of the bias feature
    score: int  # of nodes above the last level: HINGE_2, HINGE_3 or SIGMOID
    beam_size: int  # nodes kept per document above the last level
    last_score: int  # of nodes of the last level, which may be MARGIN
    last_limit: int  # nodes of the last level kept per document


@kernel
def first_beam(n_documents: int, n_roots: int) -> Any:
    """Return the fields of a Beam of all parents of the first level, each with a log score of 0."""
    nodes = np.empty(n_documents * n_roots, np.int32)
    for pair in range(nodes.shape[0]):
        nodes[pair] = pair % n_roots
    pointers = np.arange(n_documents + 1) * n_roots
    return pointers, nodes, np.zeros(nodes.shape[0], np.float32)


@kernel
def descend(
    levels: Any,  # IN  list of Level, of which each has the children of the one before
    features: FeatureRows,  # IN  of all documents
    candidates: Candidates,  # IN  of all documents; labels are excluded from the last level alone
    rules: SearchRules,  # IN
    first: int,  # IN  documents from here
    last: int,  # IN  to before here
) -> Any:
    """Search some documents down all levels; return the fields of the Beam of the last one."""
    n_documents = last - first
    block = FeatureRows(
        features.pointers[first : last + 1],
        features.columns,
        features.values,
        features.dense[first:last],
        features.n_columns,
    )
    floors = candidates.floors[first:last]
    excluded_pointers = np.zeros(n_documents + 1, np.int64)
    score = rules.score
    limit = rules.beam_size
    beam = first_beam(n_documents, rules.n_roots)
    for depth in range(len(levels)):
        if depth == len(levels) - 1:
            excluded_pointers = candidates.pointers[first : last + 1]
            score = rules.last_score
            limit = rules.last_limit
        allowed = Candidates(floors, candidates.labels, excluded_pointers, candidates.excluded)
        parents = Beam(*beam)
        beam = step_down(levels[depth], block, parents, rules.bias, score, limit, allowed)
    return beam


@kernel
def list_of_level(level: Level) -> Any:
    """Return a list of one level, as :func:`descend` reads it."""
    levels = List()
    levels.append(level)
    return levels


@kernel
def add_level(levels: Any, level: Level) -> None:
    """Append a level whose weights are stored as those of the others."""
    levels.append(level)


@kernel
def path_scores(log_scores: Any) -> Any:
    """Return the products along the paths.

    In float64 on the way, so that a value never depends on its position.
    """
    scores = np.empty(log_scores.shape[0], np.float32)
    for i in range(log_scores.shape[0]):
        scores[i] = math.exp(np.float64(log_scores[i]))
    return scores
