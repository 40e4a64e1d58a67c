"""The ledger of problems: which are shown, which may be skipped, and how values are quoted in them."""

from __future__ import annotations

import logging

import pytest

from longtail.data.problems import Problems, quoted
from longtail.errors import DataError


@pytest.mark.parametrize("skip_bad", [0, 1, 5, 19, 20, 21, 40])
def test_skip_bad_is_an_exact_bound(skip_bad):
    def close_after(bad):
        problems = Problems("f", skip_bad)
        for number in range(bad):
            problems.add(number + 1, "x", "y")
        problems.close()

    close_after(skip_bad)
    with pytest.raises(DataError):
        close_after(skip_bad + 1)


@pytest.mark.parametrize(
    ("bad", "skip_bad", "shown", "last"),
    [
        (1, 0, 1, "1 bad record; correct the file, or go on with --skip-bad 1"),
        (5, 4, 5, "5 bad records; correct the file, or go on with --skip-bad 5"),
        (20, 0, 20, "20 bad records; correct the file, or go on with --skip-bad 20"),
        (21, 0, 20, "more than 20 bad records; correct the file, or go on with --skip-bad N"),
        (31, 30, 20, "more than 30 bad records; correct the file, or go on with --skip-bad N"),
        (2, None, 2, "2 bad records; correct the file: it is read whole or not at all"),
    ],
)
def test_at_most_20_are_shown_and_their_number_is_true(bad, skip_bad, shown, last):
    problems = Problems("f", skip_bad)

    def fail():
        for number in range(1, bad + 1):
            problems.add(number, f"found {number}", "better")
        problems.close()

    with pytest.raises(DataError) as caught:
        fail()
    each = [f"f:{number}: found {number}; expected better" for number in range(1, shown + 1)]
    assert str(caught.value).splitlines() == [*each, last]


def test_reading_stops_at_the_21st():
    problems = Problems("f")
    for number in range(20):
        problems.add(number, "x", "y")
    with pytest.raises(DataError):
        problems.add(20, "x", "y")


def test_fatal_comes_last_and_shows_what_was_found_before():
    problems = Problems("f", 100)
    for number in range(1, 31):
        problems.add(number, "x", "y")
    with pytest.raises(DataError) as caught:
        problems.fatal("the end", "more", 7, "other")
    assert len(caught.value.problems) == 20
    assert str(caught.value).splitlines()[-1] == "other:7: the end; expected more"
    assert str(caught.value).splitlines()[-2] == "f:19: x; expected y"


def test_what_was_left_out_is_said(caplog):
    problems = Problems("f", 2)
    with caplog.at_level(logging.WARNING, "longtail"):
        problems.close()
        assert not caplog.messages
        problems.add(4, "x", "y", "other")
        problems.add(5, "z", "y")
        problems.close()
    assert caplog.messages == ["2 bad records left out, the first: other:4: x; expected y"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\nb", "'a\\nb'"),
        (b"a\tb", "'a\\tb'"),
        (b"\xc3\xa9", "'é'"),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 58}…"),
        (["a", 1], "['a', 1]"),
        ("\x1b[31m", "'\\x1b[31m'"),
        ("é" * 10**6, f"'{'é' * 58}…"),
        ("é".encode() * 10**6, f"'{'é' * 58}…"),
    ],
)
def test_quoted_is_one_short_line(value, expected):
    assert quoted(value) == expected
