"""Whether a run fits in memory, by its forecast and what the machine, or its container, has."""

from __future__ import annotations

import os
from pathlib import Path

from longtail.errors import UsageError
from longtail.forecast.stages import StageMemory
from longtail.forecast.training import Forecast, size_in_words

__all__ = ["check_memory", "memory_limit"]

_MOST = 0.9  # of the memory that a run may take
_FOR_NETWORKS = (
    "a smaller training.micro_batch or encoder.max_tokens, training.head_optimiser=row-adam, "
    "training.head_weights=bfloat16"
)
_CGROUPS = Path("/sys/fs/cgroup")


def check_memory(expected: Forecast) -> None:
    """Refuse a run that would take more than nine tenths of the memory, the machine's or the GPU's."""
    limit = memory_limit()
    if limit is not None and expected.peak_bytes > _MOST * limit:
        largest = max(expected.stages, key=lambda stage: stage.peak_bytes, default=None)
        where = "" if largest is None else f", most of all in the stage {largest.name!r}"
        raise _refusal(f"about {size_in_words(expected.peak_bytes)} of memory{where}", limit, _ways(expected, largest))
    if expected.gpu_bytes and expected.network_bytes > _MOST * expected.gpu_bytes:
        needed = f"about {size_in_words(expected.network_bytes)} of the GPU's memory"
        raise _refusal(needed, expected.gpu_bytes, f"{_FOR_NETWORKS}, use --device cpu", f" ({expected.gpu})")


def _refusal(needed: str, limit: int, ways: str, of: str = "") -> UsageError:
    return UsageError(
        f"training needs {needed}; found {size_in_words(limit)}{of}, of which it may take {_MOST:.0%}; "
        f"set {ways}, or train all the same with --ignore-memory"
    )


def _ways(expected: Forecast, largest: StageMemory | None) -> str:
    """Return the settings that take less memory where the largest stage takes it."""
    name = "" if largest is None else largest.name
    if not expected.on_gpu and _is_of_a_network(name) and 2 * expected.network_bytes > expected.peak_bytes:
        return f"{_FOR_NETWORKS}, take a smaller encoder"
    if expected.on_gpu and _is_of_a_network(name):  # what begins with the vectors of all documents
        return "cascade.label_rows=random or recursive.bootstrap=false, take a narrower encoder"
    if name == "embeddings":
        return "cascade.combine=never where the network can rank by itself, take a narrower encoder"
    ways = "a larger ranker.prune"
    if any(stage.name == "features" for stage in expected.stages):  # they are made here
        ways = f"tfidf.0.max_features or {ways} or tfidf.0.min_df"
    if name.startswith("level") or name in ("labels", "learners", "trees of documents"):
        ways += ", use fewer threads (-j)"
    return ways


def _is_of_a_network(stage: str) -> bool:
    """Tell whether a stage is one of those that train a network."""
    return stage.startswith("network") or stage.endswith(", network")


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
