"""Linear rankers as the pipeline fits them, of arrays and without stages."""

from __future__ import annotations

from longtail.config import Config, Ranker, Search
from longtail.rankers.tree import fit_labels, fit_ranker
from longtail.steps.work import Work

_RANKER, _SEARCH = Ranker(), Search()


def fit_tree_ranker(features, label_matrix, tree, ranker=_RANKER, search=_SEARCH, seed=0):
    return fit_ranker(
        features,
        label_matrix,
        tree,
        Config(ranker=ranker, search=search, seed=seed),
        0,
        Work(),
    )


def solved(problems):
    """Return the weights of all labels."""
    return fit_labels(problems, 0, Work())
