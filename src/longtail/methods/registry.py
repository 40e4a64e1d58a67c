"""Registry of methods and of their families: rankers, networks and encoders of words, by name.

Longtail's families are named here as ``module:object`` and imported on first use. Another package
adds its families and methods with ``register_ranker``, ``register_network``, ``register_encoder``
and ``register_method``, in a function without arguments that it names as an entry point:

    [project.entry-points."longtail.methods"]
    my_package = "my_package:register"
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from longtail.errors import ConfigError
from longtail.methods.catalogue import CATALOGUE, Method

if TYPE_CHECKING:
    from longtail.rankers.base import RankerFamily

__all__ = [
    "METHODS",
    "load_plugins",
    "ranker_family",
    "register_method",
    "register_ranker",
]

ENTRY_POINTS = "longtail.methods"


class _Methods(dict[str, Method]):
    """Methods by name; those of other packages are looked for where a name is not known."""

    def __missing__(self, name: str) -> Method:
        load_plugins()
        if name not in self:
            raise KeyError(name)
        return self[name]


METHODS: dict[str, Method] = _Methods({entry.name: entry for entry in CATALOGUE})


class _Registry(NamedTuple):
    """The families of one kind: objects, or ``module:object`` to be imported on first use."""

    kind: str
    families: dict[str, Any]

    def add(self, family: Any) -> None:
        """Add a family; a name is given once."""
        known = self.families.get(family.name)
        if known is not None and known is not family and type(known) is not type(family):
            raise ConfigError(
                f"{self.kind} '{family.name}': is there already; expected another name"
            )
        self.families[family.name] = family

    def get(self, name: str) -> Any:
        """Return a family by name; import it, or the packages that register one, if need be."""
        if name not in self.families:
            load_plugins()
        if name not in self.families:
            expected = f"one of {', '.join(self.families)}, or a package that registers it"
            raise ConfigError(f"{self.kind} '{name}': not found; expected {expected}")
        family = self.families[name]
        if isinstance(family, str):
            module, _, attribute = family.partition(":")
            family = getattr(import_module(module), attribute)()
            self.families[name] = family
        return family


_RANKERS = _Registry(
    "ranker",
    {
        "tree": "longtail.rankers.tree:TreeFamily",
        "forest": "longtail.rankers.forest:ForestFamily",
        "neighbours": "longtail.rankers.neighbours:NeighboursFamily",
    },
)


def register_method(method: Method) -> None:
    """Add a method to the catalogue; it has the settings of its ranker and its network."""
    known = METHODS.get(method.name)
    if known is not None and known is not method:
        raise ConfigError(f"method '{method.name}': is there already; expected another name")
    METHODS[method.name] = method


def register_ranker(family: RankerFamily) -> None:
    """Add a family of linear rankers; methods name it in :attr:`longtail.methods.Method.ranker`."""
    _RANKERS.add(family)


def ranker_family(name: str) -> RankerFamily:
    """Return a family of linear rankers by name."""
    family: RankerFamily = _RANKERS.get(name)
    return family


@cache
def load_plugins() -> None:
    """Call the functions that installed packages name under ``longtail.methods``, once."""
    for entry_point in entry_points(group=ENTRY_POINTS):
        entry_point.load()()
