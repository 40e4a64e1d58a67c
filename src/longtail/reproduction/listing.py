"""All experiments with their published numbers, and what each would take on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from longtail.errors import LongtailError
from longtail.forecast import published_forecast
from longtail.kernels import pool
from longtail.methods import METHODS
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
    try:
        expected = published_forecast(
            entry.published_dataset, entry.config(entry.members[0]), device
        )
    except LongtailError as error:  # an encoder of unknown shape
        return Need(note=str(error))
    count = len(entry.members)
    low, high = (count * seconds / 3600 for seconds in expected.seconds)
    unknown = expected.on_gpu and expected.gpu_seconds is None
    return Need(
        hours=(low, high),
        memory=expected.peak_bytes,
        gpu_memory=expected.network_bytes if expected.on_gpu else None,
        note="without the network, whose time on this GPU is not known" if unknown else "",
    )
