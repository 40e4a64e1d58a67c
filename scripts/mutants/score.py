"""Counts what became of mutants: a table of modules, and the share that tests see."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from mutants.making import sample_of
from mutants.modules import EQUIVALENT, TESTS
from mutants.running import Copy

__all__ = ["measure", "table"]


def measure(copy: Copy, module: str, sample: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield what became of each mutant of a module's sample."""
    file = f"src/longtail/{module}.py"
    files = [os.path.normpath(f"tests/unit/{name}.py") for name in TESTS[module]]
    chosen, of = sample_of(copy.root / file, sample, seed)
    tests, left_out = copy.good_tests(files)
    if not tests or copy.outcome(file, (copy.root / file).read_text(), files, tests) != "survived":
        raise RuntimeError(f"the tests of {module} fail without a mutant")
    print(
        f"{module}: {len(chosen)} of {of} mutants, {len(tests)} tests ({left_out} left out)",
        flush=True,
    )
    equivalent = _equivalent(module)
    for number, mutant in chosen.items():
        outcome = copy.outcome(file, mutant.source, files, tests)
        if outcome == "survived" and mutant.lines in equivalent:
            outcome = "equivalent"
        result = {"module": module, "of": of, "number": number, "outcome": outcome}
        yield result | {"lines": mutant.lines, "diff": mutant.diff}


def _equivalent(module: str) -> set[tuple[str, ...]]:
    return {
        tuple(known["lines"])
        for known in json.loads(EQUIVALENT.read_text())
        if known["module"] == module
    }


def table(results: list[dict[str, Any]]) -> tuple[str, float]:
    """Return the rows of a table in Markdown, and the share of mutants that tests see."""
    rows = [
        "| module | tried | of | killed | timeout | equivalent | survived | score |",
        "|---|" + "--:|" * 7,
    ]
    score = 0.0
    for module in [*dict.fromkeys(result["module"] for result in results), "all"]:
        selected = [result for result in results if module in ("all", result["module"])]
        number = Counter(result["outcome"] for result in selected)
        of = sum({result["module"]: result["of"] for result in selected}.values())
        seen = number["killed"] + number["timeout"]
        score = seen / max(1, seen + number["survived"])
        counts = [number[outcome] for outcome in ("killed", "timeout", "equivalent", "survived")]
        rows.append(
            "| " + " | ".join(map(str, [module, len(selected), of, *counts, f"{score:.0%}"])) + " |"
        )
    return "\n".join(rows), score
