"""The search of a label tree as a ranker does it, given levels in place of a trained one."""

from __future__ import annotations

from longtail.config import Search
from longtail.rankers.tree import TreeRanker


def beam_search(
    features, tree, levels, *, beam_size, k, score, bias, exclude=None, last_level="path"
):
    search = Search(beam_size=beam_size, score=score, last_level=last_level)
    return TreeRanker(tree, tuple(levels), bias).search(features, search, k, exclude)


def exact_search(features, tree, levels, *, k, score, bias, exclude=None):
    return TreeRanker(tree, tuple(levels), bias).search(
        features, Search(score=score, exact=True), k, exclude
    )
