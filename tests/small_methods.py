"""Which methods are linear, and settings with which each trains in a moment: a new one joins by its
catalogue entry.
"""

from __future__ import annotations

from typing import Any

from longtail.methods import METHODS, configure

__all__ = ["LINEAR", "SMALL", "WITHOUT_LABEL_TREE", "WITH_LABEL_TREE"]

LINEAR = [name for name, entry in METHODS.items() if not entry.network]
WITHOUT_LABEL_TREE = [
    name for name in LINEAR if METHODS[name].ranker != "tree" or configure(name).tree.kind == "flat"
]
WITH_LABEL_TREE = [name for name in LINEAR if name not in WITHOUT_LABEL_TREE]

_SMALL_RANKERS: dict[str, dict[str, Any]] = {
    "tree": {},
    "forest": {"forest": {"trees": 4}},
    "neighbours": {"neighbours": {"learners": 2, "epochs": 3, "dimensions": 16, "index": "exact"}},
}
SMALL = {name: _SMALL_RANKERS[METHODS[name].ranker] for name in LINEAR}
