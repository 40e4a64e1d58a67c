"""Which methods are linear, and settings with which each trains in a moment: a new one joins by its
catalogue entry.
"""

from __future__ import annotations

from typing import Any

from longtail.methods import METHODS, configure
from longtail.rankers import ranker_family

__all__ = ["LINEAR", "LOCK_FREE", "SMALL", "WITHOUT_LABEL_TREE", "WITH_LABEL_TREE"]

LINEAR = [name for name, entry in METHODS.items() if not entry.network]
WITHOUT_LABEL_TREE = [
    name
    for name in LINEAR
    if not ranker_family(configure(name)).has_label_tree or configure(name).tree.kind == "flat"
]
WITH_LABEL_TREE = [name for name in LINEAR if name not in WITHOUT_LABEL_TREE]
# whose threads share weights without locks: the same bytes with one thread alone
LOCK_FREE = ["extremetext"]

_SMALL_RANKERS: dict[str, dict[str, Any]] = {
    "tree": {},
    "forest": {"forest": {"trees": 4}},
    "neighbours": {"neighbours": {"learners": 2, "epochs": 3, "dimensions": 16, "index": "exact"}},
    "extremetext": {
        "extremetext": {"dimensions": 16, "epochs": 60},
        "tree": {"leaf_size": 12},
    },
}
SMALL = {name: _SMALL_RANKERS[METHODS[name].ranker] for name in LINEAR}
