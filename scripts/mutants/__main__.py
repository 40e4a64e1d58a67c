"""The command: measures modules, tells of survivors, and prints the table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mutants.modules import GOAL, TESTS
from mutants.running import Copy, load
from mutants.score import measure, table


def main() -> int:
    """Measure modules; return the exit code."""
    asked = _asked()
    load()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for module in asked.modules or TESTS:
            for result in measure(copy, module, asked.sample, asked.seed):
                results.append(result)
                _print_result(result, asked.results)
    rows, score = table(results)
    print(f"{rows}\nseed {asked.seed}")
    return int(score < GOAL)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser("mutants", description="Share of mutants that tests see")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(TESTS))
    parser.add_argument("--sample", type=int, default=20, help="mutants a module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--results", type=Path, help="a file of JSON lines, one a mutant, written as they come"
    )
    asked = parser.parse_args()
    if unknown := set(asked.modules) - set(TESTS):
        parser.error(f"no module with tests: {', '.join(sorted(unknown))}")
    return asked


def _print_result(result: dict[str, Any], kept: Path | None) -> None:
    if kept:
        with kept.open("a") as file:
            file.write(json.dumps(result) + "\n")
    if result["outcome"] == "survived":
        print(f"{result['module']} {result['number']} survived\n{result['diff']}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
