"""Exit codes, messages of one line, and the nearest known name."""

from __future__ import annotations

import copy

import pytest

from longtail import errors
from longtail.errors import DataError, LongtailError, MissingExtra, Problem, unknown_name


@pytest.mark.parametrize(
    ("name", "parent", "exit_code"),
    [
        ("LongtailError", Exception, 1),
        ("UsageError", errors.LongtailError, 2),
        ("ConfigError", errors.UsageError, 2),
        ("MissingExtra", errors.UsageError, 2),
        ("DataError", errors.LongtailError, 3),
        ("ModelFolderError", errors.LongtailError, 4),
    ],
)
def test_the_tree_is_as_drawn(name, parent, exit_code):
    error = getattr(errors, name)
    assert error.__bases__ == (parent,)
    assert error.exit_code == exit_code
    drawn = next(line for line in errors.__doc__.splitlines() if name in line)
    assert drawn.split(name)[1].split()[0] == str(exit_code)


def test_every_name_is_public():
    own = {
        name
        for name, value in vars(errors).items()
        if getattr(value, "__module__", None) == errors.__name__
    }
    assert set(errors.__all__) == own


def test_a_problem_reads_place_found_expected():
    assert str(Problem("a.jsonl", 7, "a number in 'text'", "a string")) == (
        "a.jsonl:7: a number in 'text'; expected a string"
    )
    assert (
        str(Problem("a.jsonl", 0, "no document", "at least one"))
        == "a.jsonl: no document; expected at least one"
    )


def test_a_problem_is_one_line_that_no_terminal_acts_on():
    assert str(Problem("a\nb", 1, "\x1b[31mred\r", "naïve «text» 日本")) == (
        r"a\nb:1: \x1b[31mred\r; expected naïve «text» 日本"
    )
    assert errors.printable("\u2028\ud800\U0001f600") == "\\u2028\\ud800\U0001f600"


def test_data_errors_are_one_line_each():
    problems = [Problem("f", 1, "x", "y"), Problem("f", 2, "z", "w")]
    assert str(DataError(problems)) == "f:1: x; expected y\nf:2: z; expected w"
    error = DataError(iter(problems), "do this")
    assert str(error) == "f:1: x; expected y\nf:2: z; expected w\ndo this"
    assert error.problems == problems
    assert isinstance(error, LongtailError)


def test_a_missing_extra_says_what_to_install():
    error = MissingExtra("reading Parquet", "parquet")
    assert (
        str(error)
        == "reading Parquet needs an optional package; install it with: pip install 'longtail[parquet]'"
    )
    assert error.extra == "parquet"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("jsnl", "did you mean 'jsonl'?"),
        ("branching", "did you mean 'tree.branching'?"),
        ("k", "did you mean 'search.shortlist.k'?"),
        ("zz.k", "did you mean 'search.shortlist.k'?"),
        ("zzz", "known: csv, jsonl, search.shortlist.k, tree.branching"),
        ("", "known: csv, jsonl, search.shortlist.k, tree.branching"),
    ],
)
def test_the_nearest_name(name, hint):
    known = iter(["jsonl", "csv", "tree.branching", "search.shortlist.k"])
    assert unknown_name("thing", name, known) == f"unknown thing '{name}'; {hint}"


@pytest.mark.parametrize(
    "error",
    [
        DataError([Problem("f", 1, "x", "y")], "do this"),
        MissingExtra("Parquet", "parquet"),
        LongtailError("x"),
    ],
)
def test_errors_come_back_whole_from_another_process(error):
    again = copy.copy(error)  # by the same way as pickle
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
