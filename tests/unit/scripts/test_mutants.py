"""``make mutants`` counts apart only what is still there and has a reason, and its score is that of
all others.
"""

from __future__ import annotations

import json

import pytest

from mutants.modules import EQUIVALENT, ROOT, TESTS
from mutants.score import table


@pytest.mark.parametrize(
    "known", json.loads(EQUIVALENT.read_text()), ids=lambda known: known["module"]
)
def test_a_mutant_that_makes_no_difference_is_of_a_line_that_is_there(known):
    source = " ".join((ROOT / "src" / "longtail" / f"{known['module']}.py").read_text().split())
    assert known["module"] in TESTS
    assert " ".join(known["lines"][0].split()) in source
    assert known["reason"]


def test_the_score_leaves_out_what_makes_no_difference():
    outcomes = ["killed"] * 5 + ["timeout", "equivalent", "equivalent", "survived", "survived"]
    results = [{"module": "search/beam", "of": 70, "outcome": outcome} for outcome in outcomes]
    results.append({"module": "store/hashing", "of": 30, "outcome": "killed"})
    rows, score = table(results)
    assert rows.splitlines()[2:] == [
        "| search/beam | 10 | 70 | 5 | 1 | 2 | 2 | 75% |",
        "| store/hashing | 1 | 30 | 1 | 0 | 0 | 0 | 100% |",
        "| all | 11 | 100 | 6 | 1 | 2 | 2 | 78% |",
    ]
    assert score == pytest.approx(7 / 9)


def test_every_module_and_test_file_is_there():
    for module, files in TESTS.items():
        assert (ROOT / "src" / "longtail" / f"{module}.py").is_file()
        assert all((ROOT / "tests" / "unit" / f"{name}.py").is_file() for name in files)
