"""The settings that a method reads, and the refusal of those that it does not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from longtail.config import Config, file_of, to_toml
from longtail.errors import ConfigError
from longtail.methods.registry import METHODS, network_family, ranker_reads

__all__ = ["check_settings_are_read", "is_read", "method_toml", "settings_read", "unread_message"]

# groups and settings that the pipeline reads, whatever is trained
_PIPELINE = frozenset(
    {
        "calibration",
        "features",
        "gandalf",
        "method",
        "normalise_features",
        "preset",
        "seed",
        "tfidf",
    }
)
_LABEL_GRAPH = frozenset(
    f"label_features.{name}"
    for name in ("graph_keep", "graph_max_documents", "graph_reset", "graph_steps")
)


# settings that the methods of a network have in another group, where they may be looked for
_ELSEWHERE = {
    "cascade.last_level": "attention.last_level",
    "cascade.levels": "attention.levels",
    "recursive.dropout": "attention.dropout",
    "recursive.epochs": "attention.epochs",
    "recursive.shortlist": "attention.shortlist",
    "recursive.steps": "attention.steps",
    "recursive.warmup_steps": "attention.warmup_steps",
}


def settings_read(config: Config) -> frozenset[str]:
    """Return the groups and single settings that the method reads, some of them only together with
    certain values of others.
    """
    entry = METHODS[config.method]
    names = _PIPELINE | ranker_reads(entry.ranker)
    if entry.network:
        names |= network_family(entry.network).reads
    elif config.features != "tfidf":
        names |= network_family("encoder").reads
    if config.gandalf.use:
        names |= _LABEL_GRAPH
    return names


def is_read(path: str, names: Collection[str]) -> bool:
    """Return whether a setting is one of ``names``, or in a group that is."""
    parts = path.split(".")
    return any(".".join(parts[:end]) in names for end in range(1, len(parts) + 1))


def check_settings_are_read(config: Config, sources: Sequence[Mapping[str, Any]]) -> None:
    """Refuse settings that the method does not read.

    Args:
        config: resolved settings.
        sources: what they were resolved from, but for defaults and the method's own.
    """
    names = settings_read(config)
    for source in sources:
        for path in _paths(source, ""):
            if not is_read(path, names):
                raise ConfigError(file_of(sources, path) + unread_message(path, config))


def method_toml(config: Config, sources: Mapping[str, str] | None = None) -> str:
    """Return the settings that the method reads as TOML, with documentation and ``sources`` by
    path: a file for ``-c``.
    """
    names = settings_read(config)
    return to_toml(config, sources, lambda path: is_read(path, names))


def unread_message(path: str, config: Config) -> str:
    """Return the message about a setting that the method of ``config`` does not read."""
    ways = ["leave it out"]
    elsewhere = _ELSEWHERE.get(path)
    if elsewhere and is_read(elsewhere, settings_read(config)):
        ways.append(f"set {elsewhere} in its place")
    others = {
        "features=cat": replace(config, features="cat"),
        "gandalf.use=true": replace(config, gandalf=replace(config.gandalf, use=True)),
    }
    ways += [f"set {way}" for way, other in others.items() if is_read(path, settings_read(other))]
    able = [name for name in METHODS if is_read(path, settings_read(Config(method=name)))]
    if able:
        ways.append(f"choose a method that reads it ({', '.join(able)})")
    return f"{path}: {config.method} does not read this setting; {', or '.join(ways)}"


def _paths(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Yield the path of each setting that has a value."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{path}.")
        else:
            yield path
