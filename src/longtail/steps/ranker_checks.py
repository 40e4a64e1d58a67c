"""What is refused before training because of the linear classifiers' settings."""

from __future__ import annotations

from longtail.config import Config
from longtail.errors import ConfigError
from longtail.linear.level_settings import check_level_settings
from longtail.methods import METHODS, ranks_alone
from longtail.tree.cluster import level_widths

__all__ = ["check_ranker"]


def check_ranker(config: Config, n_labels: int, has_hierarchy: bool) -> None:
    """Refuse settings for another number of levels than the classifiers' tree, and margins beside a network's scores.

    Where the depth of the tree is not known before it is built (a given hierarchy, unbalanced k-means), the number of
    levels is checked when the tree is there.
    """
    entry = METHODS[config.method]
    if entry.ranker != "tree" or ranks_alone(config):
        return
    if config.search.last_level == "margin" and entry.network_ranks and config.cascade.combine != "only":
        found = f"search.last_level: found margin with cascade.combine={config.cascade.combine}"
        raise ConfigError(
            f"{found}, which averages scores of a network and of the classifiers; expected path, or "
            "cascade.combine=only"
        )
    if config.tree.kind == "flat":
        check_level_settings(config.ranker, (n_labels,))
    elif config.tree.kind != "unbalanced" and (not has_hierarchy or entry.network == "recursive"):
        check_level_settings(config.ranker, (*level_widths(n_labels, config.tree), n_labels))
