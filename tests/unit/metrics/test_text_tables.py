"""Tables of text: columns set left or right, and nothing lost."""

from __future__ import annotations

import pytest

from longtail.metrics.layout import in_columns


def test_the_first_columns_are_set_left_the_others_right():
    rows = [["", "@1", "@3"], ["P", "38.48", "9.5"], ["nDCG", "1", "23.56"]]
    assert in_columns(rows, n_left=1) == "\n".join(
        ["         @1     @3", "P     38.48    9.5", "nDCG      1  23.56"]
    )


def test_no_line_ends_in_spaces():
    assert in_columns([["a", "b"], ["long", ""]], n_left=2) == "a     b\nlong"


@pytest.mark.parametrize(
    ("rows", "n_left"),
    [([["a", "b"], ["c"]], 0), ([["a"], ["b", "c"]], 0), ([["a"]], 2)],
    ids=["a cell too few", "a cell too many", "more columns set left than there are"],
)
def test_a_cell_is_never_left_out(rows, n_left):
    with pytest.raises(ValueError, match="zip"):
        in_columns(rows, n_left)
