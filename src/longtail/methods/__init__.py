"""The methods by name, and the settings of each: the catalogue, and how what was asked for is laid over it."""

from __future__ import annotations

from longtail.methods.catalogue import Method
from longtail.methods.resolving import METHODS, configure, method, ranks_alone, uses_encoder

__all__ = ["METHODS", "Method", "configure", "method", "ranks_alone", "uses_encoder"]
