from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.config import Training
from longtail.networks.training.schedule import Schedule


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


def test_linear_is_that_of_bert():
    """Against the formula of transformers: s/W up to W steps, then (T − s)/(T − W)."""
    got = factors(epochs=4, warmup_epochs=1.0, cooldown_epochs=3.0, schedule="linear")
    expected = [step / 10 for step in range(10)] + [(40 - step) / 30 for step in range(10, 40)]
    assert got == pytest.approx(expected)
    assert got[0] == 0.0
    assert got[39] == pytest.approx(1 / 30)


def test_linear_with_a_constant_part_and_without_ends():
    got = factors(epochs=4, warmup_epochs=1.0, cooldown_epochs=1.0, schedule="linear")
    assert got[10:31] == [1.0] * 21
    assert got[31:] == pytest.approx([(40 - step) / 10 for step in range(31, 40)])
    assert (
        factors(epochs=2, warmup_epochs=0.0, cooldown_epochs=0.0, schedule="linear") == [1.0] * 20
    )


def test_one_cycle_ends_lower_and_moves_the_first_moment():
    settings = {"epochs": 6, "warmup_epochs": 1.0, "cooldown_epochs": 3.0}
    cosine = factors(**settings)
    cycle = factors(**settings, schedule="one-cycle")
    assert cycle[:30] == cosine[:30]
    assert cycle[59] == pytest.approx(0.001)
    schedule = Schedule.of(Training(**settings, schedule="one-cycle"), 10)
    betas = [schedule.beta1(step) for step in range(60)]
    assert betas[0] == pytest.approx(0.95)
    assert betas[5] == pytest.approx(0.9)  # half of the way
    assert betas[10:30] == [0.85] * 20
    assert betas[44] == pytest.approx(0.9)
    assert betas[59] == pytest.approx(0.95)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_first_moment_is_constant_otherwise(schedule):
    made = Schedule.of(Training(epochs=4, schedule=schedule), 10)
    assert {made.beta1(step) for step in range(40)} == {0.9}


@pytest.mark.parametrize("shape", ["cosine", "linear", "one-cycle"])
def test_steps_in_place_of_epochs(shape):
    whole = Schedule.of(
        Training(epochs=3, warmup_epochs=1.0, cooldown_epochs=2.0, schedule=shape), 10
    )
    settings = Training(epochs=9, warmup_epochs=1.0, cooldown_epochs=2.0, schedule=shape)
    assert Schedule.of(settings, 10, 30) == whole
    odd = Schedule.of(settings, 10, 25)  # shorter than both ends
    assert odd.total == 25
    assert (odd.warmup, odd.cooldown) == pytest.approx((25 / 3, 50 / 3))


@given(st.integers(1, 20), st.integers(1, 30), st.floats(0, 30), st.floats(0, 30))
def test_always_a_share_of_the_rate(epochs, steps_per_epoch, warmup, cooldown):
    got = factors(steps_per_epoch, epochs=epochs, warmup_epochs=warmup, cooldown_epochs=cooldown)
    assert all(0.0099 < factor <= 1.0 for factor in got)
