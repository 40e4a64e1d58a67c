"""The exact k best labels: probabilities only shrink along a path, so what falls below k found
labels can be left.
"""

from __future__ import annotations

import numpy as np

from longtail.search.beam import ALL, Beam, Descent

__all__ = ["exact_best"]

_BLOCK = 64  # documents at a time: one with flat scores visits most of the tree


def exact_best(descent: Descent, k: int) -> Beam:
    """Return the k best of all nodes of the last level.

    A beam of k gives k labels; a second descent visits all nodes that score no less than the worst
    of them. Up to ties these are the nodes that a priority queue would take out (Dembczyński et al.
    2016), but level by level, so that documents of a block share the reading of chunks."""
    above = len(descent.levels) - 1
    taken = 0 if descent.excluded is None else int(np.diff(descent.excluded[0]).max(initial=0))
    ptr, _, scores = descent.run([k + taken] * above + [k], largest_block=_BLOCK)
    floors = np.full(len(descent.features), -np.inf, np.float32)
    full = np.diff(ptr) == k
    floors[full] = scores[ptr[1:][full] - 1]
    return descent.run([ALL] * above + [k], floors, _BLOCK)
