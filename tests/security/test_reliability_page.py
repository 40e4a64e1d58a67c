"""The page of guarantees names tests that exist, and every test of faults and of security stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs/reliability.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`((?:tests|scripts|benchmarks)/[^`]+)`", TEXT)))


@pytest.mark.parametrize("path", NAMED)
def test_what_it_names_exists(path):
    assert (ROOT / path).is_file()


def test_every_line_of_a_table_names_a_test():
    rows = [
        line
        for line in TEXT.splitlines()
        if line.startswith("| ") and not line.startswith("| guarantee")
    ]
    assert len(rows) > 15
    for row in rows:
        assert re.search(r"`tests/[^`]+\.py` \|$|`tests/[^`]+\.py`[^|]*\|$", row), row


def test_tests_of_faults_and_of_security_are_named():
    own = {f"tests/{part}/{file.name}" for part in ("faults", "security") for file in _tests(part)}
    assert own - set(NAMED) == {"tests/security/test_reliability_page.py"}


def test_make_security_runs_the_second_and_the_third_table():
    tables = re.search(r"## No code in files(.*)## Compatibility", TEXT, re.DOTALL)[1]
    run = re.search(
        r"^HOSTILE := (.*?[^\\])\n", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL
    )[1].split()
    for path in re.findall(r"`(tests/[^`]+)`", tables):
        assert any(Path(path).is_relative_to(part) for part in run), path


def _tests(part):
    return (ROOT / "tests" / part).glob("test_*.py")
