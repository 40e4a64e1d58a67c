"""Several processes and one output folder: a second training is refused, and what the dead left is
cleaned up.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

import pytest
from failing_disk import DeadlyDisk
from trainings import end_of, here, left_behind, start, training

from folder_contents import contents
from longtail import pipeline, store, training_run
from longtail.models.model_folder import load_model, save_model
from longtail.store import durable

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="forks, and looks into /proc for what is open"
)


@pytest.fixture
def own(tmp_path):
    """A training, and the model it gives in ``whole``."""
    made = training("xr-linear", tmp_path / "data")
    made.whole(tmp_path / "whole")
    return made


@pytest.fixture
def first(own, tmp_path, monkeypatch):
    """A process that trains into ``model``, and waits before its end until there is a file ``go``."""
    real = pipeline.calibrate

    def waiting(*arguments, **options):
        (tmp_path / "waits").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "calibrate", waiting)
        process = start(own.arguments(tmp_path / "model"), tmp_path / "first")
    while not (tmp_path / "waits").exists():
        time.sleep(0.01)
    yield process
    (tmp_path / "go").touch()  # whatever became of the test, it must not wait for ever


def test_the_second_is_refused_and_the_first_not_disturbed(own, first, tmp_path):
    before = contents(tmp_path / "model.stages")
    assert before
    for options in ([], ["--resume"]):
        second = here(own.arguments(tmp_path / "model", *options), tmp_path / "said")
        assert second.code == 2
        message = f"model.stages: process {first} is training into this folder; wait for it or give another"
        assert message in second.said.splitlines()[-1]
        assert contents(tmp_path / "model.stages") == before
    (tmp_path / "go").touch()
    assert end_of(first, tmp_path / "first").code == 0
    assert contents(tmp_path / "model") == contents(tmp_path / "whole")
    assert left_behind(tmp_path / "model") == []


def test_the_lock_of_a_killed_one_is_free(own, first, tmp_path):
    os.kill(first, signal.SIGKILL)
    assert end_of(first, tmp_path / "first").code == -signal.SIGKILL
    second = here(own.arguments(tmp_path / "model", "--resume"), tmp_path / "said")
    assert second.code == 0
    assert second.said.count("taken over from the interrupted run") > 3
    assert contents(tmp_path / "model") == contents(tmp_path / "whole")
    assert left_behind(tmp_path / "model") == []


def test_others_may_write_the_model_meanwhile_and_the_last_one_is_there_wholly(
    own, first, tmp_path
):
    model = tmp_path / "model"
    whole = tmp_path / "whole"
    shutil.copytree(whole, tmp_path / "twin")
    joined = ["ensemble", str(whole), str(tmp_path / "twin"), "-o", str(model)]
    assert here(joined, tmp_path / "said").code == 0
    assert len(load_model(model).members) == 2
    save_model(load_model(whole), model)
    assert contents(model) == contents(whole)
    assert here([*joined, "--force"], tmp_path / "said").code == 0
    (tmp_path / "go").touch()
    assert end_of(first, tmp_path / "first").code == 0
    assert contents(model) == contents(whole)
    assert left_behind(model) == []


def test_at_its_start_training_removes_what_dead_processes_left_and_nothing_else(
    own, tmp_path, monkeypatch
):
    model = tmp_path / "model"
    stages = tmp_path / "model.stages"
    seen = {}
    dead = [durable.sibling(model, "tmp"), durable.sibling(stages / "features", "tmp")]
    real = training_run.train

    def looks(*arguments, **options):
        seen.update(dead=[folder for folder in dead if folder.exists()], live=live.exists())
        return real(*arguments, **options)

    monkeypatch.setattr(training_run, "train", looks)
    with store.write_folder(model) as writer:
        live = writer.path("a").parent
        for folder in dead:
            folder.mkdir(parents=True)
            (folder / "half").write_bytes(b"half")
        (stages / "longtail.lock").touch()
        assert here(own.arguments(model, "--resume"), tmp_path / "said").code == 0
        writer.write_bytes("a", b"")
    assert seen == {"dead": [], "live": True}
    assert store.open_folder(model).read_bytes("a") == b""
    assert left_behind(model) == []


def _stages_of_a_run_that_ends(work):
    with store.Stages(work) as stages:
        for name in ("features", "tree-0"):
            with stages.write(name, "in") as folder:
                for file in (
                    "a",
                    "b",
                    "n",
                    "y",
                    "z",
                ):  # before and after the manifest, in whatever order they go
                    folder.write_bytes(file, b"1")
    return store.Stages(work)


def test_what_is_left_of_stages_when_their_removal_is_killed_goes_with_the_next_run(tmp_path):
    """Half of a stage that is being deleted must not look like a folder of somebody else."""
    for nth in range(1, 100):
        work = tmp_path / str(nth) / "work"
        stages = _stages_of_a_run_that_ends(work)
        process = os.fork()
        if process == 0:
            DeadlyDisk(pytest.MonkeyPatch(), work.parent, nth)
            stages.remove()
            os._exit(0)
        ended = end_of(process, tmp_path / "said")
        stages.close()
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL
        with store.Stages(
            work
        ) as again:  # of a run of other settings, say, that has no stage of these names
            again.remove()
        assert list(work.parent.iterdir()) == []
    assert nth > 12, "not killed in the middle"
