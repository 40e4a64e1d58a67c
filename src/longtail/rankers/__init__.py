"""Linear rankers by families: trees of labels, trees of documents, nearest documents, vectors of
words, and those of other packages.
"""

from __future__ import annotations

from longtail.config import Config
from longtail.methods import METHODS, registry
from longtail.rankers.base import Ranker, RankerFamily

__all__ = ["Ranker", "RankerFamily", "ranker_family"]


def ranker_family(config: Config) -> RankerFamily:
    """Return the family of the method's linear rankers."""
    return registry.ranker_family(METHODS[config.method].ranker)
