"""Linear rankers by families: trees of labels, trees of documents, nearest documents, and those of
other packages.
"""

from __future__ import annotations

from longtail.config import Config
from longtail.errors import ConfigError
from longtail.methods import METHODS
from longtail.rankers.base import Ranker, RankerFamily
from longtail.rankers.forest import ForestFamily
from longtail.rankers.neighbours import NeighboursFamily
from longtail.rankers.tree import TreeFamily

__all__ = ["Ranker", "RankerFamily", "ranker_family", "register"]

_FAMILIES: dict[str, RankerFamily] = {
    family.name: family for family in (TreeFamily(), ForestFamily(), NeighboursFamily())
}


def register(family: RankerFamily) -> None:
    """Add a family of rankers; methods name it in :attr:`longtail.methods.Method.ranker`."""
    known = _FAMILIES.get(family.name)
    if known is not None and type(known) is not type(family):
        raise ConfigError(f"ranker '{family.name}': is there already; expected another name")
    _FAMILIES[family.name] = family


def ranker_family(config: Config) -> RankerFamily:
    """Return the family of the method's linear rankers."""
    name = METHODS[config.method].ranker
    if name not in _FAMILIES:
        expected = "longtail.rankers.register(…) before the method is used"
        raise ConfigError(
            f"method '{config.method}': found no ranker '{name}'; expected {expected}"
        )
    return _FAMILIES[name]
