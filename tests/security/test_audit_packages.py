"""What is made of pip-audit's report."""

from __future__ import annotations

import json

import pytest
from audit_packages import UNREACHABLE, verdict


@pytest.mark.parametrize(
    "report",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        json.dumps({"dependencies": [{"name": "a", "skip_reason": "not found"}]}),
    ],
)
def test_not_reachable(report):
    assert verdict(report) == (0, [UNREACHABLE])


def test_a_hole_is_told():
    hole = {"id": "PYSEC-1", "fix_versions": ["2", "3"]}
    packages = [
        {"name": "a", "version": "1", "vulns": [hole]},
        {"name": "b", "version": "1", "vulns": []},
    ]
    code, lines = verdict(json.dumps({"dependencies": packages}))
    assert code == 1
    assert lines == ["a 1: PYSEC-1; fixed in 2, 3", "pip-audit: 2 packages audited, 1 known holes"]


def test_none_is_told():
    packages = [{"name": "b", "version": "1", "vulns": []}]
    assert verdict(json.dumps({"dependencies": packages})) == (
        0,
        ["pip-audit: 1 packages audited, 0 known holes"],
    )
