"""Experiments of the published rows, from ``experiments.toml``, and their list with forecasts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from longtail.config import Config, nested
from longtail.errors import LongtailError, UsageError, unknown_name
from longtail.forecast import published_forecast
from longtail.kernels import pool
from longtail.methods import METHODS, configure
from longtail.reproduction.published import Cell, PublishedDataset, published_dataset, read_tables

__all__ = [
    "Entry",
    "Experiment",
    "Fusion",
    "LeftOut",
    "Member",
    "Need",
    "PublishedRow",
    "entries",
    "experiment",
    "experiments",
    "left_out",
    "parse_experiments",
]

_FILE = files("longtail.reproduction") / "experiments.toml"

Fusion = Literal["mean", "sigmoid", "softmax", "rank"]


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model of an experiment."""

    name: str
    encoder: str = ""  # empty: the preset's
    seed: int = 0
    settings: dict[str, Any] = {}  # by dotted path; they override the experiment's
    missing: str = ""  # parts that Longtail lacks to train it; empty: none


class RowReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published row of one system; empty fields match anything."""

    table: str
    system: str
    features: str = ""
    setting: str = ""

    def fits(self, cell: Cell) -> bool:
        """Return whether a printed number belongs to this row."""
        features = self.features in ("", cell.features)
        return cell.system == self.system and features and self.setting in ("", cell.setting)


class PublishedRow(msgspec.Struct, frozen=True):
    """The numbers of one table for one system on one dataset, in percent or hours."""

    table: str
    system: str
    models: int
    setting: str
    values: dict[str, float]  # by metric


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Published rows without an experiment, and the reason."""

    tables: tuple[str, ...]
    reason: str
    systems: tuple[str, ...] = ()  # empty: all systems of these tables


class Experiment(msgspec.Struct, frozen=True):
    """The models of a published row, their fusion, and the published numbers."""

    name: str
    method: str
    dataset: str
    variant: str
    preset: str  # empty: none
    members: tuple[Member, ...]
    fusion: Fusion
    labels: int  # length of each member's list
    settings: dict[str, Any]  # by dotted path; they override the preset
    references: tuple[RowReference, ...]
    note: str = ""

    @property
    def published_dataset(self) -> PublishedDataset:
        """The dataset with its published sizes."""
        return published_dataset(self.dataset)

    def published_rows(self) -> list[PublishedRow]:
        """Return the published rows of this experiment, one per table and number of models."""
        rows: dict[tuple[str, str, int, str], dict[str, float]] = {}
        for reference in self.references:
            for cell in read_tables()[reference.table].cells():
                if cell.dataset != self.dataset or not reference.fits(cell):
                    continue
                if isinstance(cell.value, int | float):
                    row = (reference.table, cell.system, cell.models, cell.setting)
                    rows.setdefault(row, {})[cell.metric] = float(cell.value)
        return [PublishedRow(*row, values) for row, values in rows.items()]

    def config(
        self, member: Member, overrides: Sequence[Mapping[str, Any]] = (), repeat: int = 0
    ) -> Config:
        """Return the settings of a member: preset, experiment, member, then ``overrides``.

        ``repeat`` counts repetitions; all models of an experiment have different seeds.
        """
        seeds = 1 + max(other.seed for other in self.members)
        member_settings: dict[str, Any] = {"seed": member.seed + repeat * seeds}
        if member.encoder:
            member_settings["encoder.name"] = member.encoder
        layers = (self.settings, member_settings, member.settings)
        return configure(self.method, self.preset or None, *map(nested, layers), *overrides)


@cache
def experiments() -> Mapping[str, Experiment]:
    """Return all experiments by name, in the order of their file."""
    return parse_experiments(_FILE.read_text("utf-8"))


@cache
def left_out() -> tuple[LeftOut, ...]:
    """Return the published rows without an experiment."""
    return msgspec.convert(tomllib.loads(_FILE.read_text("utf-8"))["left_out"], tuple[LeftOut, ...])


def experiment(name: str) -> Experiment:
    """Return an experiment; an error names the most similar one."""
    known = experiments()
    if name not in known:
        raise UsageError(
            f"{unknown_name('experiment', name, known)}; longtail reproduce --list shows all"
        )
    return known[name]


def parse_experiments(text: str) -> dict[str, Experiment]:
    """Return the experiments of a file's text; ValueError for inconsistent ones."""
    content = tomllib.loads(text)
    result: dict[str, Experiment] = {}
    for block in content["experiments"]:
        for entry in _of_block(block, content):
            if entry.name in result:
                raise ValueError(f"{entry.name}: is in two blocks")
            result[entry.name] = entry
    return result


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
    listed = _listed(content, "members", block.members)
    members = msgspec.convert(listed, tuple[Member, ...]) or _ONE
    listed = _listed(content, "published", block.published)
    references = msgspec.convert(listed, tuple[RowReference, ...])
    suffix = ""
    if block.variant:
        suffix = f"+{block.variant}"
    for dataset in block.datasets:
        yield Experiment(
            name=f"{block.method}/{dataset}{suffix}",
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
    """Return a list of the file by its name; empty without a name."""
    if not name:
        return []
    if name not in content[kind]:
        raise ValueError(f"unknown list {kind}.{name}; expected one of {', '.join(content[kind])}")
    listed: list[Any] = content[kind][name]
    return listed


# The list of experiments


class Need(msgspec.Struct, frozen=True):
    """Forecast time and memory for training all members one after another."""

    hours: tuple[float, float] | None = None  # low and high end
    memory: int | None = None  # peak, bytes
    gpu_memory: int | None = None  # bytes of the GPU, for networks trained on one
    note: str = ""  # on parts of the forecast that are missing


class Entry(msgspec.Struct, frozen=True):
    """An experiment in the list."""

    experiment: str
    dataset: str
    members: tuple[str, ...]
    fusion: str
    not_yet: tuple[str, ...]  # members that cannot be trained
    published: tuple[PublishedRow, ...]
    need: Need


def entries(device: str = "auto", threads: int = 0) -> Iterator[Entry]:
    """Yield all experiments, with a forecast for a device and a number of threads."""
    with pool.threads(threads):
        for entry in experiments().values():
            yield Entry(
                experiment=entry.name,
                dataset=entry.published_dataset.title,
                members=tuple(member.name for member in entry.members),
                fusion=entry.fusion if len(entry.members) > 1 else "",
                not_yet=tuple(member.name for member in entry.members if member.missing),
                published=tuple(entry.published_rows()),
                need=_need(entry, device),
            )


def _need(entry: Experiment, device: str) -> Need:
    """Return the forecast for all members; each counts as large as the first."""
    if entry.preset and entry.preset not in METHODS[entry.method].presets:
        return Need(note="no preset")
    try:
        expected = published_forecast(
            entry.published_dataset, entry.config(entry.members[0]), device
        )
    except LongtailError as error:  # an encoder of unknown shape
        return Need(note=str(error))
    count = len(entry.members)
    low, high = (count * seconds / 3600 for seconds in expected.seconds)
    if not expected.on_gpu:
        return Need((low, high), expected.peak_bytes)
    note = ""
    if expected.gpu_seconds is None:
        note = "without the network, whose time on this GPU is not known"
    return Need((low, high), expected.peak_bytes, expected.network_bytes, note)
