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
from longtail.reproduction.datasets import PublishedDataset
from longtail.reproduction.experiments import Experiment, PublishedRow, experiments

__all__ = ["Entry", "Need", "entries"]


class Need(msgspec.Struct, frozen=True):
    """What training all members takes here, one after another; ``note`` says what is not known."""

    hours: tuple[float, float] | None = None  # low and high end
    memory: int | None = None  # bytes, the most at a time
    gpu_memory: int | None = None  # bytes of the GPU, where a network would be trained on one
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
    """Return what the members take together; all of them are as large as the first."""
    if entry.preset and entry.preset not in METHODS[entry.method].presets:
        return Need(note="no preset")
    forecast = _forecast()
    if forecast is None:
        return Need(note="no forecast")
    try:
        expected = forecast(entry.published_dataset, entry.config(entry.members[0]), device)
    except LongtailError as error:  # an encoder of unknown shape
        return Need(note=str(error))
    count = len(entry.members)
    low, high = (count * seconds / 3600 for seconds in expected.seconds)
    on_gpu = bool(expected.on_gpu)
    unknown = on_gpu and getattr(expected, "gpu_seconds", None) is None
    return Need(
        hours=(low, high),
        memory=expected.peak_bytes,
        gpu_memory=expected.network_bytes if on_gpu else None,
        note="without the network, whose time on this GPU is not known" if unknown else "",
    )


def _forecast() -> Callable[[PublishedDataset, Config, str], Any] | None:
    """Return the forecast for a dataset of which the published sizes are known."""
    return getattr(import_module("longtail.forecast"), "published_forecast", None)
