from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.config import Training
from longtail.neural.training.schedule import Schedule


def factors(steps_per_epoch=10, **settings):
    schedule = Schedule.of(Training(**settings), steps_per_epoch)
    assert schedule.total == settings["epochs"] * steps_per_epoch
    return [schedule.factor(step) for step in range(schedule.total)]


def test_corners():
    got = factors(epochs=6, warmup_epochs=1.0, cooldown_epochs=3.0)
    assert got[0] == pytest.approx(0.1)
    assert got[5] == pytest.approx(0.55)  # half of the way up
    assert got[9] < got[10] == 1.0
    assert got[10:30] == [1.0] * 20
    assert got[30] == pytest.approx(1 - 0.99 * 0.00274, abs=1e-4)  # (1 − cos(π/30)) / 2
    assert got[44] == pytest.approx(0.505)  # half of the way down
    assert got[59] == pytest.approx(0.01)
    assert all(a < b for a, b in pairwise(got[:11]))
    assert all(a > b for a, b in pairwise(got[29:]))


def test_without_ends():
    assert factors(epochs=2, warmup_epochs=0.0, cooldown_epochs=0.0) == [1.0] * 20
    assert factors(epochs=1, warmup_epochs=0.5, cooldown_epochs=0.0)[5:] == [1.0] * 5
    assert factors(epochs=1, warmup_epochs=0.0, cooldown_epochs=0.5)[:5] == [1.0] * 5


def test_short_runs_shrink_both_ends_in_proportion():
    schedule = Schedule.of(Training(epochs=2, warmup_epochs=1.0, cooldown_epochs=3.0), 10)
    assert (schedule.warmup, schedule.cooldown) == (5.0, 15.0)
    got = factors(epochs=2, warmup_epochs=1.0, cooldown_epochs=3.0)
    assert got[0] == pytest.approx(0.1)
    assert max(got) == got[5]
    assert got[5] > 0.98
    assert got[19] == pytest.approx(0.01)


def test_just_fitting_ends_stay():
    schedule = Schedule.of(Training(epochs=4, warmup_epochs=1.0, cooldown_epochs=3.0), 10)
    assert (schedule.warmup, schedule.cooldown) == (10.0, 30.0)


@given(st.integers(1, 20), st.integers(1, 30), st.floats(0, 30), st.floats(0, 30))
def test_always_a_share_of_the_rate(epochs, steps_per_epoch, warmup, cooldown):
    got = factors(steps_per_epoch, epochs=epochs, warmup_epochs=warmup, cooldown_epochs=cooldown)
    assert all(0.0099 < factor <= 1.0 for factor in got)
