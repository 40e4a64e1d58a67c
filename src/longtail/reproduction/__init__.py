"""The papers' experiments: published datasets and tables, and runs that reproduce their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.reproduction.running import reproduce

__all__ = ["reproduce"]


def __getattr__(name: str) -> Any:
    if name != "reproduce":
        raise AttributeError(f"module 'longtail.reproduction' has no attribute {name!r}")
    from longtail.reproduction.running import reproduce

    return reproduce
