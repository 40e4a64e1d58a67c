"""Counts of style: print them for the tree, or check them against limits (part of ``make lint``).

    python scripts/style_counts.py            # tables and, on the last line, JSON
    python scripts/style_counts.py --json     # JSON alone
    python scripts/style_counts.py --check    # file and line of each finding over a limit

Rates are per 1,000 lines that are not blank. CONTRIBUTING.md explains the rules. The definitions:

packed assignment
    ``a, b = x, y``: a tuple of targets and a tuple of as many values. Exchanges, where a value
    reads one of the targets (``a, b = b, a``), do not count.
conditional expression
    ``x if condition else y``; a statement may have one. The body of a compound statement and
    the body of a lambda count for themselves.
forbidden name
    a variable, parameter, attribute, function, class or import that is bound to one of
    ``FORBIDDEN``, leading and trailing underscores aside.
module with one importer
    a module of ``src`` that exactly one other module imports, late imports included. A name that
    a package re-exports counts for the modules that import it from the package.
test of a method's kind
    outside ``methods/``, ``rankers/`` and ``networks/``: reading ``network``, ``ranker`` or
    ``network_ranks`` of an entry of ``METHODS``. Anywhere in ``src``: ``isinstance`` with a class
    of ``FAMILY_FOLDERS`` in a file outside the folder that defines it.
parameters
    of a function, ``self`` and ``cls`` aside. Verbs of the command line and Triton kernels are
    left out, as their callers are a terminal and a GPU.
statements
    in a function, its docstring aside. An inner function is one statement, and counts for itself.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

__all__ = ["Finding", "Source", "check", "count", "main"]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Counts: TypeAlias = dict[str, float]

ROOT = Path(__file__).resolve().parent.parent
AREAS = ("src", "tests", "benchmarks", "scripts")
COLUMNS = 100
FORBIDDEN = frozenset(
    "own told tell say said found rest given place begun chance mend".split()  # noqa: SIM905
)
KIND_ATTRIBUTES = frozenset(["network", "ranker", "network_ranks"])
FAMILY_FOLDERS = (
    "rankers",
    "networks",
    "networks/encoders",
    "networks/heads",
    "networks/losses",
    "models",
)

# The most that `--check` accepts; a measure that is not listed is not checked. Lower them as the
# code improves, never raise them.
LIMITS: dict[str, Counts] = {
    "src": {
        "packed assignments": 0.1,
        "conditional expressions": 4.8,
        "crowded statements": 1,
        "lines over 100 columns": 1,
        "forbidden names": 4,
        "modules with one importer": 40,
        "tests of a method's kind": 3,
        "parameters": 8,
        "statements": 50,
    },
    "tests": {
        "packed assignments": 3.2,
        "conditional expressions": 7.2,
        "crowded statements": 5,
        "lines over 100 columns": 410,
        "forbidden names": 910,
    },
    "benchmarks": {
        "packed assignments": 0.5,
        "conditional expressions": 8.0,
        "crowded statements": 0,
        "lines over 100 columns": 15,
        "forbidden names": 0,
        "parameters": 8,
    },
    "scripts": {
        "packed assignments": 0.5,
        "conditional expressions": 10.5,
        "crowded statements": 0,
        "lines over 100 columns": 36,
        "forbidden names": 0,
        "parameters": 8,
    },
}


class Finding(NamedTuple):
    """A place in the code that a rule counts."""

    measure: str
    file: str
    line: int
    message: str
    size: int = 0  # of a function: its parameters or statements

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class Source(NamedTuple):
    """A Python file: its path from the root of the repository, text and syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, path: str, text: str) -> Source:
        """Parse the text of a file."""
        return cls(path, text, ast.parse(text, path))

    @property
    def lines(self) -> int:
        """Number of lines that are not blank."""
        return sum(1 for line in self.text.splitlines() if line.strip())

    @property
    def folder(self) -> str:
        """Folder of the file below ``src/longtail``, or from the root."""
        return self.path.removeprefix("src/longtail/").rpartition("/")[0]


def read_area(root: Path, area: str) -> list[Source]:
    """Read the Python files of ``src``, ``tests``, ``benchmarks`` or ``scripts``."""
    files = sorted((root / area).rglob("*.py"))
    return [
        Source.parse(file.relative_to(root).as_posix(), file.read_text("utf-8")) for file in files
    ]


# Rules of single files


def findings(source: Source) -> Iterator[Finding]:
    """Yield what the rules of single files find."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > COLUMNS:
            message = f"{len(line)} columns; expected at most {COLUMNS}"
            yield Finding("lines over 100 columns", source.path, number, message)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and _is_packed(node):
            message = "packed assignment; expected one statement per value"
            yield Finding("packed assignments", source.path, node.lineno, message)
        if isinstance(node, ast.IfExp):
            message = "conditional expression; an `if` statement is easier to read"
            yield Finding("conditional expressions", source.path, node.lineno, message)
        if isinstance(node, ast.stmt | ast.Lambda):
            conditions = sum(isinstance(inner, ast.IfExp) for inner in _of_statement(node))
            if conditions > 1:
                message = f"{conditions} conditional expressions in a statement; expected one"
                yield Finding("crowded statements", source.path, node.lineno, message)
        for name in _bound_names(node):
            if name.strip("_") in FORBIDDEN:
                message = f"the name `{name}` says nothing; expected what the thing is"
                line_number: int = node.lineno  # type: ignore[attr-defined]
                yield Finding("forbidden names", source.path, line_number, message)


def _is_packed(node: ast.Assign) -> bool:
    target = node.targets[0]
    if not isinstance(target, ast.Tuple | ast.List):
        return False
    if not isinstance(node.value, ast.Tuple | ast.List):
        return False
    if len(target.elts) != len(node.value.elts) or len(target.elts) < 2:
        return False
    written = {ast.unparse(element) for element in target.elts}
    read = {
        ast.unparse(inner)
        for inner in ast.walk(node.value)
        if isinstance(inner, ast.Name | ast.Attribute | ast.Subscript)
    }
    return not written & read


def _of_statement(node: ast.stmt | ast.Lambda) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, those of statements and lambdas inside it aside."""
    remaining = list(ast.iter_child_nodes(node))
    while remaining:
        inner = remaining.pop()
        if isinstance(inner, ast.stmt | ast.Lambda):
            continue
        yield inner
        remaining.extend(ast.iter_child_nodes(inner))


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname


def functions(source: Source) -> Iterator[Function]:
    """Yield all functions of a file, methods and inner ones included."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def statements(function: Function) -> int:
    """Count the statements of a function, its docstring aside."""
    number = -1 if ast.get_docstring(function) else 0
    remaining: list[ast.AST] = list(function.body)
    while remaining:
        node = remaining.pop()
        if isinstance(node, ast.stmt):
            number += 1
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            remaining.extend(ast.iter_child_nodes(node))
    return number


def parameters(function: Function) -> int:
    """Count the parameters of a function, ``self`` and ``cls`` aside."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if positional and positional[0].arg in ("self", "cls"):
        del positional[0]
    starred = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return len(positional) + len(arguments.kwonlyargs) + len(starred)


def _is_verb_or_triton(source: Source, function: Function) -> bool:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    if source.folder == "cli" and any("command" in decorator for decorator in decorators):
        return True
    return source.path.startswith("src/longtail/kernels/triton_") and bool(decorators)


def _is_typed(function: Function) -> bool:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    named = [argument for argument in every if argument.arg not in ("self", "cls")]
    return function.returns is not None and all(argument.annotation for argument in named)


# Rules of the package


def importers(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return the modules that import each module of ``src``."""
    modules = {_module(source.path): source for source in sources}
    origins = {
        name: _imported_names(source)
        for name, source in modules.items()
        if source.path.endswith("__init__.py")
    }
    result: dict[str, set[str]] = {name: set() for name in modules}
    for name, source in modules.items():
        for imported, attribute in _imports(source):
            target = imported
            if f"{imported}.{attribute}" in modules:
                target = f"{imported}.{attribute}"
            elif imported in origins and attribute in origins[imported]:
                target = origins[imported][attribute]
            if target in result and target != name:
                result[target].add(name)
    for package, names in origins.items():  # a mere re-export is no use
        for attribute, target in names.items():
            if target in result and _only_re_exports(modules[package], attribute):
                result[target].discard(package)
    return result


def _module(path: str) -> str:
    dotted = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    return dotted.removesuffix(".__init__")


def _imports(source: Source) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import; the name is empty for ``import module``."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""


def _imported_names(source: Source) -> dict[str, str]:
    return {attribute: module for module, attribute in _imports(source) if attribute}


def _only_re_exports(package: Source, attribute: str) -> bool:
    return not any(
        isinstance(node, ast.Name) and node.id == attribute for node in ast.walk(package.tree)
    )


def single_importers(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yield the modules that exactly one other module imports."""
    paths = {_module(source.path): source.path for source in sources}
    for module, users in importers(sources).items():
        if len(users) == 1 and not paths[module].endswith(("__init__.py", "__main__.py")):
            message = f"only {min(users)} imports this module; could it be part of it?"
            yield Finding("modules with one importer", paths[module], 1, message)


def kind_tests(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yield tests of a method's kind outside ``methods/`` and the families."""
    sources = list(sources)
    homes = _family_classes(sources)
    for source in sources:
        in_family = source.folder.partition("/")[0] in ("methods", "rankers", "networks")
        entries = _names_of_entries(source)
        for node in ast.walk(source.tree):
            message = ""
            if isinstance(node, ast.Attribute) and not in_family and _is_kind(node, entries):
                message = f"`{ast.unparse(node)}` asks for the kind of a method"
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                names = {
                    inner.id for inner in ast.walk(node.args[1]) if isinstance(inner, ast.Name)
                }
                outside = {name for name in names & set(homes) if homes[name] != source.folder}
                if outside:
                    message = f"`{ast.unparse(node)}` asks for a kind outside its family"
            if message:
                line: int = node.lineno  # type: ignore[attr-defined]
                full = f"{message}; expected a method of the family's contract"
                yield Finding("tests of a method's kind", source.path, line, full)


def _family_classes(sources: Iterable[Source]) -> dict[str, str]:
    """Return the folder of each class that a family defines; the classes of contracts aside."""
    return {
        node.name: source.folder
        for source in sources
        if source.folder in FAMILY_FOLDERS
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases)
    }


def _names_of_entries(source: Source) -> set[str]:
    """Return the names that are bound to an entry of the catalogue of methods."""
    return {
        target.id
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and _is_entry(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_entry(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value) == "METHODS"
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "method"


def _is_kind(node: ast.Attribute, entries: set[str]) -> bool:
    if node.attr not in KIND_ATTRIBUTES:
        return False
    if isinstance(node.value, ast.Name):
        return node.value.id in entries
    return _is_entry(node.value)


# Counts, tables and limits


class Area(NamedTuple):
    """The counts of one area and the findings behind them."""

    counts: Counts
    findings: list[Finding]


def count(root: Path, area: str) -> Area:
    """Count everything in one area of the repository."""
    sources = read_area(root, area)
    results = [finding for source in sources for finding in findings(source)]
    if area == "src":
        results += [*single_importers(sources), *kind_tests(sources)]
    measured = [(source, function) for source in sources for function in functions(source)]
    for source, function in measured:
        results.append(_sized("statements", statements(function), source, function))
        if not _is_verb_or_triton(source, function):
            results.append(_sized("parameters", parameters(function), source, function))
    return Area(_rates(sources, results), results)


def _sized(measure: str, size: int, source: Source, function: Function) -> Finding:
    message = f"`{function.name}` has {size} {measure}"
    return Finding(measure, source.path, function.lineno, message, size)


def _rates(sources: list[Source], every: list[Finding]) -> Counts:
    """Return the number or rate of each measure; of sizes, the largest."""
    lines = sum(source.lines for source in sources)
    numbers = Counter(finding.measure for finding in every)
    all_functions = [function for source in sources for function in functions(source)]
    return {
        "files": len(sources),
        "lines": lines,
        "longest file": max((len(source.text.splitlines()) for source in sources), default=0),
        "packed assignments": round(1000 * numbers["packed assignments"] / max(lines, 1), 2),
        "conditional expressions": round(
            1000 * numbers["conditional expressions"] / max(lines, 1), 2
        ),
        "crowded statements": numbers["crowded statements"],
        "lines over 100 columns": numbers["lines over 100 columns"],
        "lines over 100 columns, %": round(
            100 * numbers["lines over 100 columns"] / max(lines, 1), 2
        ),
        "forbidden names": numbers["forbidden names"],
        "modules with one importer": numbers["modules with one importer"],
        "tests of a method's kind": numbers["tests of a method's kind"],
        "parameters": _most(every, "parameters"),
        "statements": _most(every, "statements"),
        "functions without types": sum(not _is_typed(function) for function in all_functions),
    }


def _most(every: list[Finding], measure: str) -> int:
    return max((finding.size for finding in every if finding.measure == measure), default=0)


def check(areas: dict[str, Area], limits: dict[str, Counts]) -> Iterator[str]:
    """Yield a line per finding of each measure that is over its limit, and one with the numbers."""
    for area, measured in areas.items():
        for measure, limit in limits[area].items():
            value = measured.counts[measure]
            if value <= limit:
                continue
            name = measure.removesuffix(", %")
            for finding in measured.findings:
                if finding.measure != name:
                    continue
                if name in ("parameters", "statements") and finding.size <= limit:
                    continue
                yield str(finding)
            yield f"{area}: {measure}: {value:g}; expected at most {limit:g}"


def table(areas: dict[str, Area]) -> str:
    """Return the counts as a Markdown table, one column per area."""
    rows = [f"| | {' | '.join(areas)} |", f"|---|{'--:|' * len(areas)}"]
    for measure in next(iter(areas.values())).counts:
        values = [f"{measured.counts[measure]:g}" for measured in areas.values()]
        rows.append(f"| {measure} | {' | '.join(values)} |")
    return "\n".join(rows)


def longest(measured: Area, measure: str, number: int = 5) -> list[str]:
    """Return the functions with the most parameters or statements."""
    chosen = [finding for finding in measured.findings if finding.measure == measure]
    chosen.sort(key=lambda finding: finding.size, reverse=True)
    return [str(finding) for finding in chosen[:number]]


def forbidden_by_name(measured: Area) -> dict[str, int]:
    """Return how often each forbidden name is bound."""
    numbers: defaultdict[str, int] = defaultdict(int)
    for finding in measured.findings:
        if finding.measure == "forbidden names":
            numbers[finding.message.split("`")[1].strip("_")] += 1
    return dict(sorted(numbers.items(), key=lambda item: -item[1]))


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print the counts, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description="Counts of style.")
    parser.add_argument("--check", action="store_true", help="fail where a limit is exceeded")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--list", metavar="MEASURE", help="print each finding of a measure")
    options = parser.parse_args(arguments)
    areas = {area: count(root, area) for area in AREAS}
    if options.check:
        problems = list(check(areas, LIMITS))
        print("\n".join(problems) or "style counts are within their limits")
        return min(len(problems), 1)
    if options.list:
        for area in areas.values():
            for finding in area.findings:
                if finding.measure == options.list:
                    print(finding)
        return 0
    if not options.json:
        print(table(areas))
        print("\nforbidden names in src:", forbidden_by_name(areas["src"]))
        for measure in ("parameters", "statements"):
            print(f"\nmost {measure}:", *longest(areas["src"], measure), sep="\n  ")
        print()
    print(json.dumps({name: area.counts for name, area in areas.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
