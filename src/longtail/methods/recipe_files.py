"""Presets: the recipes of the papers as data files, every value with the place it was taken from.

``presets/METHOD.toml`` lists the names of the presets and, in blocks, settings with their source::

    datasets = ["wiki10-31k", "amazon-670k", "wiki10-31k+tfidf", "amazon-670k+tfidf"]

    [[settings]]                                   # of all presets
    source = "CascadeXML, appendix A.2.1"
    "training.encoder_rate" = 1e-4

    [[settings]]
    datasets = ["amazon-670k*"]
    source = "CascadeXML, appendix, table 9"
    "training.epochs" = 15

    [[deviation]]                                  # what the recipe has and this software has not
    what = "β₁ is constant; the authors' code cycles it"

A preset is called like its dataset, with ``+VARIANT`` behind it where the papers have another
recipe for the same one. Blocks name presets as file names are matched: ``*`` stands for anything. A
setting stands once for each preset, so that each value has one source."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from longtail.config import Config, nested, settings

__all__ = ["Preset", "parse_presets", "read_presets"]

_ABOUT = ("source", "datasets")  # the keys of a block that are no settings


class Preset(msgspec.Struct, frozen=True):
    """The recipe of a paper for one dataset: settings by dotted path, their sources, and what
    differs from it.
    """

    name: str
    values: dict[str, Any]
    sources: dict[str, str]
    deviations: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as the nested mapping that a config is resolved from."""
        return nested(self.values)

    def sources_in(self, config: Config) -> dict[str, str]:
        """Return, by path, the sources of those values that ``config`` has from this preset."""
        held = {setting.path: _listed(setting.value) for setting in settings(config)}
        return {
            path: source
            for path, source in self.sources.items()
            if held.get(path) == self.values[path]
        }


@cache
def read_presets(method: str) -> Mapping[str, Preset]:
    """Return the presets of a method by their names; none where no paper has one."""
    file = files("longtail.methods") / "presets" / f"{method}.toml"
    if not file.is_file():
        return {}
    return parse_presets(file.read_text("utf-8"))


def parse_presets(text: str) -> dict[str, Preset]:
    """Return the presets of a file's text; ValueError for a setting with two sources, or an unknown
    preset.
    """
    content = tomllib.loads(text)
    names = content["datasets"]
    return {name: _preset(name, content, names) for name in names}


def _preset(name: str, content: Mapping[str, Any], names: Sequence[str]) -> Preset:
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for block in _blocks_of(name, content.get("settings", []), names):
        source = block["source"]
        for path, value in block.items():
            if path in _ABOUT:
                continue
            if path in values:
                raise ValueError(
                    f"{name}: {path} stands in two blocks, {sources[path]!r} and {source!r}"
                )
            values[path] = value
            sources[path] = source
    deviations = tuple(
        block["what"] for block in _blocks_of(name, content.get("deviation", []), names)
    )
    return Preset(name, values, sources, deviations)


def _listed(value: Any) -> Any:
    """Return a setting as TOML has it, with lists in place of tuples."""
    if isinstance(value, tuple):
        return [_listed(part) for part in value]
    return value


def _blocks_of(
    name: str, blocks: Sequence[dict[str, Any]], names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the blocks that hold for the preset ``name``: those that list it, and those without a
    list.
    """
    for block in blocks:
        listed = block.get("datasets", ["*"])
        for pattern in listed:
            if not any(fnmatchcase(other, pattern) for other in names):
                raise ValueError(f"unknown dataset {pattern!r}; expected one of {', '.join(names)}")
        if any(fnmatchcase(name, pattern) for pattern in listed):
            yield block
