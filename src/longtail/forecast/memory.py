"""Whether a run fits in memory, by its forecast and what the machine, or its container, has."""

from __future__ import annotations

import os
from pathlib import Path

from longtail.errors import UsageError
from longtail.forecast.training import Forecast, size_in_words

__all__ = ["check_memory", "memory_limit"]

_MOST = 0.9  # of the memory that a run may take
_CGROUPS = Path("/sys/fs/cgroup")


def check_memory(expected: Forecast) -> None:
    """Refuse a run that would take more than nine tenths of the memory."""
    limit = memory_limit()
    if limit is None or expected.peak_bytes <= _MOST * limit:
        return
    ways = "tfidf.0.max_features or a larger ranker.prune or tfidf.0.min_df, use fewer threads (-j)"
    if not expected.on_gpu and 2 * expected.network_bytes > expected.peak_bytes:
        ways = "a smaller training.micro_batch or encoder.max_tokens, take a smaller encoder"
    raise UsageError(
        f"training needs about {size_in_words(expected.peak_bytes)} of memory; found {size_in_words(limit)}, of which "
        f"it may take {_MOST:.0%}; set {ways}, or train all the same with --ignore-memory"
    )


def memory_limit() -> int | None:
    """Return the bytes of the machine, or of the container where it has fewer; None where nobody knows."""
    limits = [int(text) for place in _limit_files() if (text := _read(place)).isdecimal()]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def _limit_files() -> list[Path]:
    """Return where a limit may stand, version 2 and 1: in the group of this process, or in any above it."""
    places = [_CGROUPS / "memory" / "memory.limit_in_bytes"]
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        group = line.split(":", 2)[-1].strip("/")
        places += [_CGROUPS / part / "memory.max" for part in (Path(group), *Path(group).parents)]
    return [*places, _CGROUPS / "memory.max"]


def _read(place: Path) -> str:
    try:
        return place.read_text().strip()
    except (OSError, ValueError):
        return ""
