"""The base of every group of settings, and the ranges that many of them share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["Count", "NotNegative", "Positive", "Stage", "check_levels"]

Count = Annotated[int, Meta(ge=1)]
# the upper end keeps out inf, which TOML can write and JSON cannot
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
NotNegative = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every group of settings."""


def check_levels(levels: Sequence[int]) -> None:
    """Raise ValueError unless a setting ``levels`` goes from coarse to fine."""
    if any(coarse >= fine for coarse, fine in pairwise(levels)):
        raise ValueError(f"levels: found {list(levels)}; expected rising numbers, coarse to fine")
