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

from longtail.config import ENCODER_KINDS, LabelFeatures
from longtail.errors import ConfigError
from longtail.methods.catalogue import CATALOGUE, Method

if TYPE_CHECKING:
    from longtail.networks.base import NetworkFamily
    from longtail.networks.encoders.kinds import EncoderKind, WordEncoderKind
    from longtail.rankers.base import RankerFamily

__all__ = [
    "METHODS",
    "encoder_kind",
    "encoder_kinds",
    "imported",
    "load_plugins",
    "network_family",
    "network_names",
    "ranker_family",
    "ranker_reads",
    "register_encoder",
    "register_method",
    "register_network",
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
            family = imported(family)()
            self.families[name] = family
        return family


def imported(name: str) -> Any:
    """Return the object that ``module:object`` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


_RANKERS = _Registry(
    "ranker",
    {
        "tree": "longtail.rankers.tree:TreeFamily",
        "forest": "longtail.rankers.forest:ForestFamily",
        "neighbours": "longtail.rankers.neighbours:NeighboursFamily",
        "extremetext": "longtail.rankers.extremetext:ExtremeTextFamily",
    },
)
# of a single label tree
_ONE_KIND = frozenset(
    f"label_features.{name}" for name in LabelFeatures.__struct_fields__ if name != "tree_kinds"
)
# of the rankers above, which load compiled code: settings are checked without it
_RANKER_READS = {
    "tree": frozenset({"label_features", "ranker", "search", "tree"}),
    "forest": frozenset({"forest"}),
    "neighbours": frozenset({"neighbours"}),
    "extremetext": _ONE_KIND | {"extremetext", "ranker.weights", "search", "tree"},
}
_NETWORKS = _Registry(
    "network",
    {
        "encoder": "longtail.networks.recursive_family:EncoderFamily",
        "label-vectors": "longtail.networks.recursive_family:LabelVectorsFamily",
        "cascade": "longtail.networks.cascade_family:CascadeFamily",
        "attention": "longtail.networks.attention_family:AttentionFamily",
        "recursive": "longtail.networks.recursive_family:RecursiveFamily",
    },
)
_ENCODERS = _Registry("encoder", ENCODER_KINDS)  # the settings know their names


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


def ranker_reads(name: str) -> frozenset[str]:
    """Return the groups and settings that a family of linear rankers reads."""
    if name in _RANKER_READS:
        return _RANKER_READS[name]
    return ranker_family(name).reads


def register_network(family: NetworkFamily) -> None:
    """Add a family of networks; methods name it in :attr:`longtail.methods.Method.network`."""
    _NETWORKS.add(family)


def network_family(name: str) -> NetworkFamily:
    """Return a family of networks by name."""
    family: NetworkFamily = _NETWORKS.get(name)
    return family


def network_names() -> list[str]:
    """Return the names of all families of networks."""
    return [*_NETWORKS.families]


def register_encoder(kind: WordEncoderKind) -> None:
    """Add an encoder on vectors of words; the setting ``encoder.kind`` names it."""
    _ENCODERS.add(kind)


def encoder_kind(name: str) -> EncoderKind:
    """Return a kind of encoder by name."""
    kind: EncoderKind = _ENCODERS.get(name)
    return kind


def encoder_kinds() -> list[EncoderKind]:
    """Return all kinds of encoders."""
    return [encoder_kind(name) for name in ENCODER_KINDS]


@cache
def load_plugins() -> None:
    """Call the functions that installed packages name under ``longtail.methods``, once."""
    for entry_point in entry_points(group=ENTRY_POINTS):
        entry_point.load()()
