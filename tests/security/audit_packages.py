"""Asks pip-audit about every version in constraints.txt; where its database cannot be reached, says
so and goes on.

python tests/security/audit_packages.py CONSTRAINTS: exit code 1 if a version with a known hole is
among them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

UNREACHABLE = "pip-audit: its database is not reachable; nothing was audited"


def verdict(report: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines to print for pip-audit's JSON, or for what it said in its
    place.
    """
    try:
        packages: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return 0, [UNREACHABLE]
    audited = [package for package in packages if "vulns" in package]
    if not audited:
        return 0, [UNREACHABLE]
    holes = [
        f"{package['name']} {package['version']}: {hole['id']}; fixed in {', '.join(hole['fix_versions']) or 'none'}"
        for package in audited
        for hole in package["vulns"]
    ]
    return min(len(holes), 1), [
        *holes,
        f"pip-audit: {len(audited)} packages audited, {len(holes)} known holes",
    ]


def main(constraints: Path) -> int:
    """Run pip-audit and print its verdict."""
    pinned = [
        line.partition(";")[0] for line in constraints.read_text().splitlines() if "==" in line
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pinned))
        file.flush()
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--no-deps",
            "--disable-pip",
            "--progress-spinner",
            "off",
        ]
        command += ["--format", "json", "--timeout", "10", "--requirement", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    code, lines = verdict(done.stdout)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
