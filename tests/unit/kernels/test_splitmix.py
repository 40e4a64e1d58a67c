"""Random bits are those of splitmix64, differ by what they belong to, and draw without repeating."""

from __future__ import annotations

from itertools import product

import numpy as np

from longtail.kernels.splitmix import GOLDEN, draw, finalised, random_bits


def whole_number_splitmix(counter):
    """splitmix64 as it is published, by whole numbers of any size."""
    bits = (counter ^ (counter >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)


def test_bits_are_those_of_splitmix64():
    # The published first outputs for seed 0.
    counters = [int(GOLDEN), 2 * int(GOLDEN) % 2**64]
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    with np.errstate(
        over="ignore"
    ):  # wraps around on purpose; numpy says so when kernels run uncompiled
        assert [int(finalised(np.uint64(counter))) for counter in counters] == expected
    assert [whole_number_splitmix(counter) for counter in counters] == expected


def test_bits_of_three_numbers_are_chained():
    for numbers in ((0, 0, 0), (1, 2, 3), (2**63 - 1, 0, 5)):
        state = 0
        for number in numbers:
            state = whole_number_splitmix(((state ^ number) + int(GOLDEN)) % 2**64)
        with np.errstate(over="ignore"):
            assert int(random_bits(*numbers)) == state >> 1


def test_bits_differ_by_seed_and_numbers():
    with np.errstate(over="ignore"):
        states = {int(random_bits(*numbers)) for numbers in product(range(10), repeat=3)}
    assert len(states) == 1000
    assert all(0 <= state < 2**63 for state in states)


def test_draws_are_different_rows_and_every_row_is_drawn():
    rows = np.arange(100, 110)
    seen = set()
    with np.errstate(over="ignore"):
        for state in range(200):
            drawn = draw(rows, 3, state).tolist()
            assert len(set(drawn)) == 3
            seen.add(drawn[0])
        assert sorted(draw(rows, 10, 1).tolist()) == rows.tolist()
    assert seen == set(rows.tolist())
    assert rows.tolist() == list(range(100, 110))
