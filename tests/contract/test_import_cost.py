"""What is imported before it is needed: counted in modules, never in seconds."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

COMMANDS = {
    f"cli.{name}"
    for name in (
        "options",
        "hints",
        "data_commands",
        "ensemble_commands",
        "label_commands",
        "measure_commands",
        "model_commands",
        "reproduce_commands",
        "analysis_commands",
        "about_commands",
        "export_commands",
        "serve_commands",
        "shard_commands",
        "tune_commands",
    )
}
HEAVY = {
    "numpy",
    "scipy",
    "numba",
    "torch",
    "transformers",
    "matplotlib",
    "pyarrow",
    "rdflib",
    "fastapi",
    "ray",
}


def imported_by(*arguments: str) -> set[str]:
    """Return every module that ``python ARGUMENTS`` imports, builtin ones among them."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = set(
        re.findall(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", done.stderr, re.MULTILINE)
    )
    assert "encodings" in modules, "the format of -X importtime has changed"
    return modules


def heavy(modules: set[str]) -> set[str]:
    return HEAVY & {module.partition(".")[0] for module in modules}


def after(code: str) -> set[str]:
    """Return the modules that ``code`` brings into a bare process."""
    code = (
        f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_costs_nothing():
    modules = after("import longtail")
    assert {
        module for module in modules if module.partition(".")[0] not in sys.stdlib_module_names
    } == {"longtail"}
    assert len(modules) <= 40  # typing and importlib, and what they need


def test_looking_at_the_package_costs_nothing():
    modules = after("import longtail; dir(longtail); longtail.__version__; longtail.__all__")
    assert heavy(modules) == set()


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["check", "--help"], ["evaluate", "--help"]],
    ids=" ".join,
)
def test_help_needs_nothing_heavy(arguments):
    modules = imported_by("-m", "longtail", *arguments)
    assert "longtail.cli" in modules
    assert heavy(modules) == set()
    assert "msgspec" not in modules
    own = {module.removeprefix("longtail.") for module in modules if module.startswith("longtail.")}
    assert own <= {
        "cli",
        "errors",
        "reporting",
        "cli.address_space",
        "cli.progress_display",
        "kernels",
        "kernels.compilation",
        *COMMANDS,
    }
    assert (
        len(modules) <= 500
    )  # nearly all of them typer's, rich's and what those two try to import


@pytest.mark.parametrize(
    "arguments", [["methods"], ["methods", "plt"], ["formats"], ["doctor"]], ids=" ".join
)
def test_commands_without_data_need_no_arrays(arguments):
    found = heavy(imported_by("-m", "longtail", *arguments))
    assert found <= ({"numpy", "scipy"} if arguments == ["formats"] else set())


def test_reading_needs_only_what_it_uses(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"text": "words", "labels": ["a"]}))
    modules = after(f"import longtail as lt; assert len(lt.read({str(file)!r})) == 1")
    assert heavy(modules) == {"numpy", "scipy"}
    assert "longtail.data.jsonl" in modules
    assert (
        not {
            "longtail.data.tables",
            "longtail.data.skos",
            "longtail.kernels.ranking",
            "typer",
            "rich",
        }
        & modules
    )
