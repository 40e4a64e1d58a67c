"""Print the shape of the tree: files, lines, how long functions and files are, how much is typed, tests beside code.

    python scripts/tree_shape.py [FOLDER]

Lines are those with code or a comment on them; a function's are from ``def`` to its end, those of functions inside it
among them. A function is typed if every parameter but ``self`` and ``cls``, and what it returns, has an annotation.
"""

from __future__ import annotations

import ast
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def main(root: Path) -> None:
    """Print it as JSON."""
    source, tests = sizes(root / "src"), sizes(root / "tests")
    found = [(file, node) for file in source for node in functions(file)]
    lengths = {
        f"{file.name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1 for file, node in found
    }
    shape = {
        "source": {
            "files": len(source),
            "lines": sum(source.values()),
            "median_file": statistics.median(source.values()),
        },
        "longest_files": longest(
            {str(file.relative_to(root)): size for file, size in source.items()}
        ),
        "functions": {"count": len(found), "median_lines": statistics.median(lengths.values())},
        "longest_functions": longest(lengths),
        "over_50_lines": sum(length > 50 for length in lengths.values()),
        "typed_share": round(sum(typed(node) for _, node in found) / len(found), 4),
        "tests": {"files": len(tests), "lines": sum(tests.values())},
        "test_to_code": round(sum(tests.values()) / sum(source.values()), 2),
    }
    print(json.dumps(shape, indent=1))


def sizes(folder: Path) -> dict[Path, int]:
    """Return the lines that are not empty, of each file."""
    return {
        file: sum(map(bool, map(str.strip, file.read_text("utf-8").splitlines())))
        for file in folder.rglob("*.py")
    }


def functions(file: Path) -> Iterator[Function]:
    """Yield all of a file, methods and inner ones too."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def typed(node: Function) -> bool:
    """Tell whether nothing lacks an annotation."""
    given = [
        *node.args.posonlyargs,
        *node.args.args,
        *node.args.kwonlyargs,
        node.args.vararg,
        node.args.kwarg,
    ]
    named = [argument for argument in given if argument and argument.arg not in ("self", "cls")]
    return node.returns is not None and all(argument.annotation for argument in named)


def longest(lengths: dict[str, int], most: int = 5) -> dict[str, int]:
    """Return the ``most`` longest, falling."""
    return dict(sorted(lengths.items(), key=lambda item: -item[1])[:most])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
