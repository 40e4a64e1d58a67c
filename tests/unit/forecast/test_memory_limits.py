"""Every limit of memory there is, on made files of Linux, and which of them a refusal names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import longtail
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.errors import UsageError
from longtail.forecast import check_memory, forecast, memory
from longtail.forecast.memory import MemoryLimit, memory_limit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into files of Linux")

PAGE = os.sysconf("SC_PAGE_SIZE")
MACHINE = os.sysconf("SC_PHYS_PAGES") * PAGE
MAX_OF_VERSION_1 = 9223372036854771712  # where there is no limit


@pytest.fixture
def linux(tmp_path, monkeypatch):
    """Put files below a root of their own; the process maps 9,000 pages, of which 1,000 are in
    memory.
    """
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_PROC", tmp_path / "proc")

    def put(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    put("proc/self/statm", "9000 1000 500 1 0 800 0\n")
    return put


def test_the_machine(linux):
    assert memory_limit() == MemoryLimit(MACHINE, "the memory of this machine")


def test_what_is_available_now_and_what_this_process_has(linux):
    linux(
        "proc/meminfo",
        "MemTotal:       100000000 kB\nMemFree:           10 kB\nMemAvailable:     200000 kB\n",
    )
    expected = MemoryLimit(
        200_000 * 1024 + 1000 * PAGE, "the memory of this machine that is available now"
    )
    assert memory_limit() == expected


GROUPS = {
    "version 2": ("0::/user/session\n", "cgroup/user/session/memory.max"),
    "version 2, above": ("0::/user/session\n", "cgroup/user/memory.max"),
    "version 2, root": ("0::/user/session\n", "cgroup/memory.max"),
    "version 2 beside 1": ("1:cpu:/\n0::/user\n", "cgroup/unified/user/memory.max"),
    "version 1": ("4:memory:/job/7\n1:cpu:/job\n", "cgroup/memory/job/7/memory.limit_in_bytes"),
    "version 1, above": ("4:memory:/job/7\n", "cgroup/memory/job/memory.limit_in_bytes"),
    "version 1, root": ("4:memory:/docker/abc\n", "cgroup/memory/memory.limit_in_bytes"),
    "version 1, several controllers": (
        "4:cpu,memory:/a:b\n",
        "cgroup/memory/a:b/memory.limit_in_bytes",
    ),
    "unknown": ("", "cgroup/memory.max"),
}


@pytest.mark.parametrize("name", GROUPS)
def test_control_groups(linux, tmp_path, name):
    groups, file = GROUPS[name]
    linux("proc/self/cgroup", groups)
    linux(file, "123456789\n")
    assert memory_limit() == MemoryLimit(
        123_456_789, f"the limit of the container or control group, {tmp_path / file}"
    )
    for unlimited in ("max", str(MAX_OF_VERSION_1), "", "-1"):
        linux(file, f"{unlimited}\n")
        assert memory_limit().nbytes == MACHINE


def test_other_groups_do_not_count(linux):
    linux("proc/self/cgroup", "4:memory:/job/7\n0::/user\n")
    linux("cgroup/memory/job/8/memory.limit_in_bytes", "1000\n")
    linux("cgroup/user/session/memory.max", "1000\n")
    linux("cgroup/memory/user/memory.limit_in_bytes", "1000\n")
    assert memory_limit().nbytes == MACHINE


def test_the_smallest_along_the_path(linux):
    linux("proc/self/cgroup", "0::/user/session\n")
    linux("cgroup/user/session/memory.max", "900000000")
    assert memory_limit().nbytes == 900_000_000
    linux("cgroup/user/memory.max", "800000000")
    assert memory_limit().nbytes == 800_000_000


def test_a_refusal_names_the_limit(linux, tmp_path):
    linux("proc/self/cgroup", "0::/job\n")
    linux("cgroup/job/memory.max", "100000000")
    expected = forecast(Dataset.of(["wind power", "solar power"], [["a"], ["b"]]), Config())
    with pytest.raises(
        UsageError,
        match=r"found 100 MB \(the limit of the container or control group, .*job/memory.max",
    ):
        check_memory(expected)


PROGRAM = """
import resource
from pathlib import Path

resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

from longtail.forecast import memory

memory._CGROUPS = Path("/none")
memory._available_memory = lambda process: None
limit, sizes = memory.memory_limit(), memory._process_sizes()
print(limit.name)
print(limit.nbytes - ((3 << 30) - sizes.mapped + sizes.resident))
"""


@pytest.mark.skipif(MACHINE < 5 << 30, reason="this machine has little more memory than the limit")
def test_the_limit_of_the_address_space():
    environment = os.environ | {
        "PYTHONPATH": str(Path(longtail.__file__).parents[1]),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    name, difference = done.stdout.splitlines()
    assert name == "the limit of the address space, ulimit -v"
    assert abs(int(difference)) < 1 << 26  # what the process has taken since
