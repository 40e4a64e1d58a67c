"""A Ray worker killed with −9 in the middle of its task costs that task; a killed driver, what was
not finished.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import longtail as lt
from folder_contents import contents
from longtail.methods import configure
from longtail.rankers import one_vs_all, spans, tree
from longtail.scale import ray as ray_module
from longtail.scale.ray import connected
from longtail.training_run import train_to_folder

ray = pytest.importorskip("ray")

SETTINGS = {"tree": {"branching": 4, "leaf_size": 4}}
CONFIGS = {method: configure(method, None, SETTINGS) for method in ("xr-linear", "dismec")}
# small, so that there are many
BATCH = 48
TASK = 1 << 10


@pytest.fixture(scope="module")
def cluster():
    """Start a cluster that ``connected`` takes as it finds it."""
    ray_module._start(ray_module._ray(), "local", 2)
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(one_vs_all, "BATCH", BATCH)
    monkeypatch.setattr(spans, "_TASK", TASK)


def documents():
    return lt.sample()[0].take(np.arange(400))


def killing(folder: Path, module: str, task: str, name, number: int, victim: int | None = None):
    """Return ``module.task``, which notes by ``name`` what it begins, and kills a process at the
    ``number``-th of them.

    The process is the worker itself, or ``victim``. Workers get the code of it, as they cannot
    import a test; what they import is the task as it is.
    """
    folder.mkdir()

    def noted(*arguments):
        known = {path.name.partition("-")[0] for path in folder.iterdir()}
        item = name(arguments)
        (folder / f"{item}-{os.getpid()}").touch()
        if len(known) == number - 1 and not (folder / "killed").exists():
            (folder / "killed").write_text(item)
            os.kill(victim or os.getpid(), signal.SIGKILL)
        return getattr(importlib.import_module(module), task)(*arguments)

    return noted


def begun(folder: Path) -> Counter:
    """Return how often each item was begun, by whichever process."""
    return Counter(
        path.name.partition("-")[0] for path in folder.iterdir() if path.name != "killed"
    )


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("method", "place", "task", "name"),
    [
        (
            "xr-linear",
            spans,
            "_train",
            lambda arguments: f"{arguments[0]} of {len(arguments[2])} spans",
        ),
        ("dismec", tree, "_solved_arrays", lambda arguments: str(arguments[1])),
    ],
    ids=["runs of nodes", "batches of labels"],
)
def test_a_killed_worker_costs_only_its_task(method, place, task, name, tmp_path, monkeypatch):
    config = CONFIGS[method]
    done = tmp_path / "done"
    train_to_folder(documents(), tmp_path / "threads", config)
    monkeypatch.setattr(place, task, killing(done, place.__name__, task, name, 4))
    with connected("local"):
        train_to_folder(documents(), tmp_path / "ray", config)
    assert contents(tmp_path / "ray") == contents(tmp_path / "threads")
    again = {item for item, count in begun(done).items() if count > 1}
    assert again == {(done / "killed").read_text()}
    assert len(begun(done)) > 8
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def outliving(folder: Path, victim: int):
    """Return the task of a batch of labels, which kills ``victim`` in the sixth batch and stops its
    own process.

    A process that is stopped does not notice that its driver has gone; it goes on when it gets a
    SIGCONT.
    """
    kill = killing(
        folder,
        "longtail.rankers.tree",
        "_solved_arrays",
        lambda arguments: str(arguments[1]),
        6,
        victim,
    )

    def task(*arguments):
        arrays = kill(*arguments)
        if (folder / "killed").exists() and not (folder / "stopped").exists():
            (folder / "stopped").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return arrays

    return task


DRIVER = """
import os, sys
from pathlib import Path
import test_ray_kills as test
folder = Path(sys.argv[1])
test.one_vs_all.BATCH = test.BATCH
test.tree._solved_arrays = test.outliving(folder / "done", os.getpid())
with test.connected("local", 2):
    test.train_to_folder(test.documents(), folder / "model", test.CONFIGS["dismec"])
"""


@pytest.fixture
def killed_driver(tmp_path):
    """Kill a driver in the middle of a training, and return the worker that is stopped in the
    middle of its task.
    """
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    killed = subprocess.run(
        [sys.executable, "-c", DRIVER, tmp_path],
        env=os.environ | {"PYTHONPATH": path},
        timeout=250,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    while (
        not (tmp_path / "done" / "stopped").exists()
        or not (tmp_path / "done" / "stopped").read_text()
    ):
        time.sleep(0.01)
    worker = int((tmp_path / "done" / "stopped").read_text())
    yield worker
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)


def go_on_to_the_end(worker: int) -> None:
    """Let a stopped process go on, and wait until it has ended, by whatever ends it; it is not a
    child of this one.
    """
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)
    while (
        Path(f"/proc/{worker}/cmdline").exists() and Path(f"/proc/{worker}/cmdline").read_bytes()
    ):  # no zombie
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for the end of a process")
def test_a_killed_driver_is_resumed_without_ray(tmp_path, caplog, killed_driver):
    config = CONFIGS["dismec"]
    with caplog.at_level(logging.INFO, "longtail"):
        train_to_folder(documents(), tmp_path / "model", config, resume=True)
    assert "stage ranker-0-batch-0: taken over" in caplog.text
    train_to_folder(documents(), tmp_path / "whole", config)
    assert contents(tmp_path / "model") == contents(tmp_path / "whole")
    go_on_to_the_end(killed_driver)  # into the work folder of a run that is over
    assert not list(tmp_path.glob("*.stages"))
    train_to_folder(documents(), tmp_path / "model", config, force=True)
