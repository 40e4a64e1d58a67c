from __future__ import annotations

import logging

import numpy as np
import pytest

from longtail.errors import LongtailError
from longtail.steps.inputs import DOCUMENTS
from longtail.steps.work import Work, _write_stage
from longtail.store import StageAddress, Stages


class Maker:
    """Makes arrays and counts how often."""

    def __init__(self, value=1):
        self.calls, self.value = 0, value

    def __call__(self):
        self.calls += 1
        return {
            "a": np.full(3, self.value, np.float32),
            "b": np.arange(4, dtype=np.int64).reshape(2, 2),
        }


def assert_made(arrays, value=1):
    assert sorted(arrays) == ["a", "b"]
    np.testing.assert_array_equal(arrays["a"], np.full(3, value, np.float32))
    np.testing.assert_array_equal(arrays["b"], [[0, 1], [2, 3]])
    assert arrays["a"].dtype == np.float32
    assert arrays["b"].dtype == np.int64
    assert all(array.flags.writeable for array in arrays.values())


def test_without_stages_everything_is_made_each_time():
    make, work = Maker(), Work()
    assert_made(work.arrays("tree", make))
    assert_made(work.arrays("tree", make))
    assert make.calls == 2


def test_what_is_held_is_made_once_also_without_stages():
    make, work = Maker(), Work()
    first = work.arrays("label-graph", make, hold=True)
    assert_made(first)
    assert work.arrays("label-graph", make, hold=True) is first
    assert_made(work.arrays("tree", make, hold=True))
    assert make.calls == 2
    assert_made(Work().arrays("label-graph", make, hold=True))
    assert make.calls == 3


def test_a_stage_is_made_once_and_taken_over_by_the_next_run(tmp_path, caplog):
    make, never = Maker(), Maker(2)
    with Stages(tmp_path / "work") as stages:
        assert_made(Work(stages, {DOCUMENTS: 1}).arrays("tree", make))
    assert make.calls == 1
    with Stages(tmp_path / "work") as stages, caplog.at_level(logging.INFO, "longtail"):
        assert_made(Work(stages, {DOCUMENTS: 1}).arrays("tree", never))
        assert "stage tree: taken over from the interrupted run" in caplog.text
        assert never.calls == 0
        assert_made(Work(stages, {DOCUMENTS: 1}).arrays("ranker-0-1", never), 2)  # another stage
        assert never.calls == 1


def test_a_stage_of_the_same_run_is_not_taken_over_from_another(tmp_path, caplog):
    make = Maker()
    with Stages(tmp_path / "work") as stages, caplog.at_level(logging.INFO, "longtail"):
        work = Work(stages, {DOCUMENTS: 1})
        assert_made(work.arrays("label-graph", make))
        assert_made(work.arrays("label-graph", make))
    assert make.calls == 1
    assert "taken over" not in caplog.text


def test_other_input_makes_a_stage_anew(tmp_path):
    with Stages(tmp_path / "work") as stages:
        Work(stages, {DOCUMENTS: 1}).arrays("tree", Maker())
        assert_made(Work(stages, {DOCUMENTS: 2}).arrays("tree", Maker(5)), 5)
        assert_made(Work(stages, {DOCUMENTS: 2}).arrays("tree", Maker(6)), 5)


class Rounds:
    """Adds the number of each round to an array, and fails in one of them."""

    def __init__(self, fails_in=None):
        self.calls, self.fails_in = [], fails_in

    def __call__(self, arrays, number):
        if number == self.fails_in:
            raise KeyboardInterrupt
        self.calls.append(number)
        if arrays is None:
            arrays = {"sums": np.zeros(2)}
        arrays["sums"] += 10**number
        return arrays


def test_rounds_are_made_one_after_another():
    rounds = Rounds()
    arrays = Work().rounds("epochs", rounds, 3)
    assert arrays.keys() == {"sums"}
    np.testing.assert_array_equal(arrays["sums"], [111, 111])
    assert rounds.calls == [0, 1, 2]


def test_rounds_go_on_after_the_last_one_kept(tmp_path, caplog):
    with Stages(tmp_path / "work") as stages, pytest.raises(KeyboardInterrupt):
        Work(stages, {DOCUMENTS: 1}).rounds("epochs", Rounds(fails_in=2), 4)
    rounds = Rounds()
    with Stages(tmp_path / "work") as stages, caplog.at_level(logging.INFO, "longtail"):
        arrays = Work(stages, {DOCUMENTS: 1}).rounds("epochs", rounds, 4)
        assert "stage epochs: taken over from the interrupted run" in caplog.text
        assert [path.name for path in stages.root.iterdir() if path.is_dir()] == ["epochs"]
    np.testing.assert_array_equal(arrays["sums"], [1111, 1111])
    assert rounds.calls == [2, 3]
    whole = Rounds()
    with Stages(tmp_path / "work") as stages:
        again = Work(stages, {DOCUMENTS: 1}).rounds("epochs", whole, 4)
    assert again.keys() == {"sums"}
    np.testing.assert_array_equal(again["sums"], [1111, 1111])
    assert whole.calls == []


def test_rounds_of_other_input_begin_anew(tmp_path):
    rounds = Rounds()
    for value in (1, 2):
        with Stages(tmp_path / "work") as stages:
            Work(stages, {DOCUMENTS: value}).rounds("epochs", rounds, 2)
    assert rounds.calls == [0, 1, 0, 1]


def test_an_error_in_the_making_leaves_no_stage(tmp_path):
    def fail():
        raise KeyboardInterrupt

    with Stages(tmp_path / "work") as stages:
        work = Work(stages, {DOCUMENTS: 1})
        with pytest.raises(KeyboardInterrupt):
            work.arrays("tree", fail)
        assert_made(work.arrays("tree", Maker(3)), 3)


@pytest.mark.parametrize("resumed", [False, True], ids=["nothing runs", "another run"])
def test_a_worker_that_outlives_its_run_writes_nothing(tmp_path, resumed):
    """The work folder is removed, or another run has it, while the worker makes the arrays of a stage."""
    work, later = tmp_path / "work", []
    stages = Stages(work)

    def make(number):
        stages.close()  # as when its process is killed
        later.append(Stages(work))
        if not resumed:
            later[0].remove()
        return {"a": np.full(3, number)}

    with pytest.raises(LongtailError, match="work: found no lock of this training"):
        _write_stage((StageAddress("ranker-0-batch-5", "1"), 1), make, stages.run)
    if resumed:
        assert [path.name for path in work.iterdir()] == ["longtail.lock"]
        later[0].remove()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_begins_nothing_for_a_run_that_is_over(tmp_path):
    make, stages = Maker(), Stages(tmp_path / "work")
    stages.close()
    with (
        Stages(tmp_path / "work"),
        pytest.raises(LongtailError, match="found no lock of this training"),
    ):
        _write_stage((StageAddress("tree", "1"), 1), lambda _: make(), stages.run)
    assert make.calls == 0
