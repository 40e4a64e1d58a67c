"""All experiments with their published numbers, and what each would take on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import msgspec

from longtail.config import Config
from longtail.errors import LongtailError
from longtail.kernels import pool
from longtail.methods import METHODS
from longtail.reproduction.experiments import Experiment, PublishedRow, experiments

__all__ = ["Entry", "Need", "entries"]


class Need(msgspec.Struct, frozen=True):
    """What the training of all members would take here; ``note`` says why nothing is known."""

    hours: tuple[float, float] | None = None  # low and high end
    memory: int | None = None  # bytes, the most at a time
    note: str = ""


class Entry(msgspec.Struct, frozen=True):
    """One experiment of the list."""

    experiment: str
    dataset: str
    members: tuple[str, ...]
    fusion: str
    not_yet: tuple[str, ...]  # members that cannot be trained
    published: tuple[PublishedRow, ...]
    need: Need


def entries(threads: int = 0) -> Iterator[Entry]:
    """Yield all experiments, with a forecast for ``threads`` threads where the recipe and its encoders are at hand."""
    with pool.threads(threads):
        for entry in experiments().values():
            yield Entry(
                experiment=entry.name,
                dataset=entry.published_dataset.title,
                members=tuple(member.name for member in entry.members),
                fusion=entry.fusion if len(entry.members) > 1 else "",
                not_yet=tuple(member.name for member in entry.members if member.missing),
                published=tuple(entry.published_rows()),
                need=_need(entry),
            )


def _need(entry: Experiment) -> Need:
    """Return what the members take together, one after another; all of them are as large as the first."""
    if entry.preset and entry.preset not in METHODS[entry.method].presets:
        return Need(note="no preset")
    forecast = _forecast()
    if forecast is None:
        return Need(note="no forecast")
    try:
        expected = forecast(entry.dataset, entry.config(entry.members[0]))
    except LongtailError as error:  # an encoder that is not on this machine
        return Need(note=str(error))
    count = len(entry.members)
    low, high = (count * seconds / 3600 for seconds in expected.seconds)
    return Need((low, high), expected.peak_bytes)


def _forecast() -> Callable[[str, Config], Any] | None:
    """Return the forecast for a dataset of published sizes."""
    found: Callable[[str, Config], Any] | None = getattr(import_module("longtail.forecast"), "published_forecast", None)
    return found
