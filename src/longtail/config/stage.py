"""The base of every group of settings, and the ranges that many of them share."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["Count", "NotNegative", "Positive", "Stage"]

Count = Annotated[int, Meta(ge=1)]
# the upper end keeps out inf, which TOML can write and JSON cannot
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
NotNegative = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every group of settings."""
