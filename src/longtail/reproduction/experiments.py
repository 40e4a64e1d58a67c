"""The experiments behind the published rows, from ``experiments.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from longtail.config import Config, nested
from longtail.errors import UsageError, unknown_name
from longtail.methods import configure
from longtail.reproduction.datasets import PublishedDataset, published_dataset
from longtail.reproduction.tables import Cell, read_tables

__all__ = [
    "Experiment",
    "Fusion",
    "LeftOut",
    "Member",
    "PublishedRow",
    "experiment",
    "experiments",
    "left_out",
    "parse_experiments",
]

_FILE = files("longtail.reproduction") / "experiments.toml"

Fusion = Literal["mean", "sigmoid", "softmax", "rank"]


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the models of an experiment."""

    name: str
    encoder: str = ""  # empty: that of the preset
    seed: int = 0
    settings: dict[str, Any] = {}  # by dotted path, on top of the experiment's
    missing: str = ""  # what this software lacks to train it; empty: nothing


class RowReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published row of one system; what is empty may be anything."""

    table: str
    system: str
    features: str = ""
    setting: str = ""

    def fits(self, cell: Cell) -> bool:
        """Tell whether a printed number is one of this row's."""
        features = self.features in ("", cell.features)
        return cell.system == self.system and features and self.setting in ("", cell.setting)


class PublishedRow(msgspec.Struct, frozen=True):
    """The numbers that one table prints of one system on one dataset, in percent or hours."""

    table: str
    system: str
    models: int
    setting: str
    values: dict[str, float]  # by metric


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Published rows that no experiment stands beside, and why."""

    tables: tuple[str, ...]
    reason: str
    systems: tuple[str, ...] = ()  # empty: all of these tables


class Experiment(msgspec.Struct, frozen=True):
    """The models of a published row, how they become one, and the published numbers beside them."""

    name: str
    method: str
    dataset: str
    variant: str
    preset: str  # empty: none, the method's own settings
    members: tuple[Member, ...]
    fusion: Fusion
    labels: int  # of each member's list
    settings: dict[str, Any]  # by dotted path, on top of the preset
    references: tuple[RowReference, ...]
    note: str = ""

    @property
    def published_dataset(self) -> PublishedDataset:
        """The dataset with its published sizes."""
        return published_dataset(self.dataset)

    def published_rows(self) -> list[PublishedRow]:
        """Return the published rows beside the result, one for each table and number of models."""
        found: dict[tuple[str, str, int, str], dict[str, float]] = {}
        for reference in self.references:
            for cell in read_tables()[reference.table].cells():
                if cell.dataset != self.dataset or not reference.fits(cell):
                    continue
                if isinstance(cell.value, int | float):
                    row = (reference.table, cell.system, cell.models, cell.setting)
                    found.setdefault(row, {})[cell.metric] = float(cell.value)
        return [PublishedRow(*row, values) for row, values in found.items()]

    def config(
        self, member: Member, overrides: Sequence[Mapping[str, Any]] = (), repeat: int = 0
    ) -> Config:
        """Return the settings of a member: preset, experiment, member, then ``overrides``.

        ``repeat`` counts repetitions; no two models of an experiment have the same seed.
        """
        seeds = 1 + max(other.seed for other in self.members)
        own: dict[str, Any] = {"seed": member.seed + repeat * seeds}
        if member.encoder:
            own["encoder.name"] = member.encoder
        layers = (self.settings, own, member.settings)
        return configure(self.method, self.preset or None, *map(nested, layers), *overrides)


@cache
def experiments() -> Mapping[str, Experiment]:
    """Return all experiments by name, in the order of their file."""
    return parse_experiments(_FILE.read_text("utf-8"))


@cache
def left_out() -> tuple[LeftOut, ...]:
    """Return the published rows that no experiment stands beside."""
    return msgspec.convert(tomllib.loads(_FILE.read_text("utf-8"))["left_out"], tuple[LeftOut, ...])


def experiment(name: str) -> Experiment:
    """Return an experiment, or name the nearest one."""
    known = experiments()
    if name not in known:
        raise UsageError(
            f"{unknown_name('experiment', name, known)}; longtail reproduce --list shows all"
        )
    return known[name]


def parse_experiments(text: str) -> dict[str, Experiment]:
    """Return the experiments of a file's text; ValueError for what does not fit together."""
    content = tomllib.loads(text)
    found: dict[str, Experiment] = {}
    for block in content["experiments"]:
        for entry in _of_block(block, content):
            if entry.name in found:
                raise ValueError(f"{entry.name}: stands in two blocks")
            found[entry.name] = entry
    return found


class _Block(msgspec.Struct, forbid_unknown_fields=True):
    """A block of the file: one method and variant on several datasets."""

    method: str
    datasets: list[str]
    variant: str = ""
    preset: str = "{dataset}"
    members: str = ""
    fusion: Fusion = "mean"
    labels: int = 100
    settings: dict[str, Any] = {}
    published: str = ""
    note: str = ""


_ONE = (Member("model"),)


def _of_block(raw: dict[str, Any], content: Mapping[str, Any]) -> Iterator[Experiment]:
    block = msgspec.convert(raw, _Block)
    members = (
        msgspec.convert(_listed(content, "members", block.members), tuple[Member, ...]) or _ONE
    )
    references = msgspec.convert(
        _listed(content, "published", block.published), tuple[RowReference, ...]
    )
    for dataset in block.datasets:
        variant = f"+{block.variant}" if block.variant else ""
        yield Experiment(
            name=f"{block.method}/{dataset}{variant}",
            method=block.method,
            dataset=dataset,
            variant=block.variant,
            preset=block.preset.format(dataset=dataset),
            members=members,
            fusion=block.fusion,
            labels=block.labels,
            settings=block.settings,
            references=references,
            note=block.note,
        )


def _listed(content: Mapping[str, Any], kind: str, name: str) -> list[Any]:
    """Return a list of the file by its name; the one without a name is empty."""
    if not name:
        return []
    if name not in content[kind]:
        raise ValueError(f"unknown list {kind}.{name}; expected one of {', '.join(content[kind])}")
    listed: list[Any] = content[kind][name]
    return listed
