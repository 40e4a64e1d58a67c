"""Settings of the classifiers that differ from level to level of a label tree."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from longtail.config import Ranker
from longtail.errors import ConfigError

__all__ = ["check_level_settings", "level_ranker", "uses_matcher"]


def level_ranker(ranker: Ranker, level: int) -> Ranker:
    """Return the settings of one level, 0 being the coarsest: its own costs and negatives, where levels have any."""
    own = ranker
    if level < len(ranker.level_costs):
        cost_positive, cost_negative = ranker.level_costs[level]
        own = replace(own, cost_positive=cost_positive, cost_negative=cost_negative)
    if level < len(ranker.level_negatives):
        own = replace(own, negatives=ranker.level_negatives[level])
    return replace(own, level_costs=(), level_negatives=())


def uses_matcher(ranker: Ranker) -> bool:
    """Return whether negatives of any level come from a search down the levels above."""
    first, *below = ranker.level_negatives or (ranker.negatives, ranker.negatives)
    return any(negatives != "tfn" for negatives in below) or (not below and first != "tfn")


def check_level_settings(ranker: Ranker, widths: Sequence[int]) -> None:
    """Refuse settings for another number of levels than the tree has, whose nodes on each level are ``widths``."""
    given = {"level_costs": len(ranker.level_costs), "level_negatives": len(ranker.level_negatives)}
    for name, count in given.items():
        if count not in (0, len(widths)):
            levels = "level" if count == 1 else "levels"
            tree = " → ".join(f"{width:,}" for width in widths)
            raise ConfigError(
                f"ranker.{name}: found settings for {count} {levels}; expected {len(widths)}, as the tree of the "
                f"classifiers has ({tree}), or [] for the same on all"
            )
