"""What families of rankers and families of networks have in common."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, TypeVar

import msgspec

from longtail.config import Config
from longtail.errors import ConfigError

__all__ = ["Family", "around"]

CustomSettings = TypeVar("CustomSettings", bound=msgspec.Struct)


class Family(ABC):
    """One kind of ranker or network: its name, and the settings that it reads."""

    name: ClassVar[str]
    reads: ClassVar[frozenset[str]] = frozenset()  # groups and settings of `Config`, by name

    def custom_settings(self, config: Config, kind: type[CustomSettings]) -> CustomSettings:
        """Return the settings under ``custom``, checked against a family's own ``msgspec.Struct``.

        Args:
            config: resolved settings.
            kind: the struct, whose fields have defaults and types.
        """
        try:
            return msgspec.convert(config.custom, kind)
        except msgspec.ValidationError as error:
            raise ConfigError(f"custom: {error}; expected settings of {self.name}") from None


def around(path: str, value: float, times: float = 4) -> str:
    """Return a dimension of ``longtail tune``: on a log scale from a quarter of the method's own
    value to some times of it.
    """
    return f"{path}={value / 4:.3g}..{value * times:.3g}:log"
