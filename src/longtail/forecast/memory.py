"""Whether a run fits in memory, by its forecast and what the machine, or its container, has."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from longtail.errors import UsageError
from longtail.forecast.training import Forecast, size_in_words

__all__ = ["MemoryLimit", "check_memory", "memory_limit"]

_MOST = 0.9  # of the memory that a run may take
_FOR_NETWORKS = (
    "a smaller training.micro_batch or encoder.max_tokens, training.head_optimiser=row-adam, "
    "training.head_weights=bfloat16"
)
_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


class MemoryLimit(NamedTuple):
    """Bytes of memory that this process may have, and which limit it is."""

    nbytes: int
    name: str


class _ProcessSizes(NamedTuple):
    """Bytes of this process: of its address space, and of that what is in memory."""

    mapped: int
    resident: int


def check_memory(expected: Forecast) -> None:
    """Refuse a run that would take more than nine tenths of the smallest limit of memory, or of the
    GPU's memory.
    """
    limit = memory_limit()
    if limit is not None and expected.peak_bytes > _MOST * limit.nbytes:
        largest = max(expected.stages, key=lambda stage: stage.peak_bytes, default=None)
        needed = f"about {size_in_words(expected.peak_bytes)} of memory"
        name = ""
        if largest is not None:
            name = largest.name
            needed += f", most of all in the stage {name!r}"
        raise _refusal(needed, limit, _ways(expected, name))
    if expected.gpu_bytes and expected.network_bytes > _MOST * expected.gpu_bytes:
        needed = f"about {size_in_words(expected.network_bytes)} of the GPU's memory"
        limit = MemoryLimit(expected.gpu_bytes, expected.gpu)
        raise _refusal(needed, limit, f"{_FOR_NETWORKS}, use --device cpu")


def _refusal(needed: str, limit: MemoryLimit, ways: str) -> UsageError:
    there = f"{size_in_words(limit.nbytes)} ({limit.name})"
    return UsageError(
        f"training needs {needed}; found {there}, of which it may take {_MOST:.0%}; "
        f"set {ways}, or train all the same with --ignore-memory"
    )


def _ways(expected: Forecast, name: str) -> str:
    """Return the settings that take less memory where the stage ``name`` takes most."""
    network_takes_most = 2 * expected.network_bytes > expected.peak_bytes
    if not expected.on_gpu and _is_of_a_network(name) and network_takes_most:
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
    """Return whether a stage is one of those that train a network."""
    return stage.startswith("network") or stage.endswith(", network")


def memory_limit() -> MemoryLimit | None:
    """Return the smallest limit of the memory that this process may have; None where nothing is
    known.
    """
    return min(_limits(), default=None)


def _limits() -> list[MemoryLimit]:
    """Return every limit that can be found: of the machine, of control groups, and of the address
    space.
    """
    status = _process_sizes()
    limits = [_limit_of_the_group(file) for file in _limit_files()]
    limits += [_installed_memory(), _available_memory(status), _address_space(status)]
    return [limit for limit in limits if limit is not None]


def _installed_memory() -> MemoryLimit | None:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return MemoryLimit(
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "the memory of this machine"
    )


def _available_memory(process: _ProcessSizes | None) -> MemoryLimit | None:
    """Return what Linux says is available now, and the part of this process, which a forecast
    counts.
    """
    available = re.search(r"^MemAvailable:\s+(\d+) kB", _read(_PROC / "meminfo"), re.MULTILINE)
    if available is None or process is None:
        return None
    return MemoryLimit(
        1024 * int(available[1]) + process.resident,
        "the memory of this machine that is available now",
    )


def _address_space(process: _ProcessSizes | None) -> MemoryLimit | None:
    """Return what ``ulimit -v`` leaves for data, beside what is mapped but not in memory."""
    if sys.platform == "win32" or process is None:
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    mapped = process.mapped - process.resident
    return MemoryLimit(max(0, limit - mapped), "the limit of the address space, ulimit -v")


def _process_sizes() -> _ProcessSizes | None:
    numbers = _read(_PROC / "self" / "statm").split()
    if len(numbers) < 2:
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    return _ProcessSizes(page * int(numbers[0]), page * int(numbers[1]))


def _limit_of_the_group(file: Path) -> MemoryLimit | None:
    text = _read(file)
    if text.isdecimal():
        return MemoryLimit(int(text), f"the limit of the container or control group, {file}")
    return None


def _limit_files() -> list[Path]:
    """Return where limits of control groups stand, of version 1 and 2: this process's group, and
    all above it.
    """
    files: dict[Path, None] = {}
    for line in ["0::/", "0:memory:/", *_read(_PROC / "self" / "cgroup").splitlines()]:
        _, _, named = line.partition(":")
        controllers, _, group = named.partition(":")
        if not controllers:
            files |= dict.fromkeys(_files_upwards(_CGROUPS, group, "memory.max"))
            files |= dict.fromkeys(_files_upwards(_CGROUPS / "unified", group, "memory.max"))
        elif "memory" in controllers.split(","):
            files |= dict.fromkeys(
                _files_upwards(_CGROUPS / "memory", group, "memory.limit_in_bytes")
            )
    return list(files)


def _files_upwards(root: Path, group: str, name: str) -> list[Path]:
    """Return the file ``name`` of a group below ``root``, and of each group above it."""
    relative = Path(group.strip("/"))
    return [root / part / name for part in (relative, *relative.parents)]


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""
