"""The documentation points only at what exists, and names every format, method and module."""

import re
import tomllib
from pathlib import Path

import pytest

from longtail.data.formats import FORMATS
from longtail.methods import METHODS

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_every_format_is_described():
    text = (ROOT / "docs/formats.md").read_text("utf-8")
    for name in FORMATS:
        assert f"`{name}`" in text


def test_every_method_is_in_the_table():
    rows = re.findall(
        r"^\| `([^`]+)` \|", (ROOT / "docs/methods.md").read_text("utf-8"), re.MULTILINE
    )
    assert rows == list(METHODS)


def test_every_method_is_in_the_readme():
    text = (ROOT / "README.md").read_text("utf-8").lower()
    assert [name for name in METHODS if not re.search(rf"\b{name}\b", text)] == []


def test_the_architecture_describes_every_package():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    described = re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)
    source = ROOT / "src/longtail"
    assert sorted(described) == sorted(path.parent.name for path in source.glob("*/__init__.py"))


def test_the_architecture_lists_packages_in_the_order_of_the_import_contract():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    described = re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    levels = {
        name: level for level, names in enumerate(layers) for name in re.findall(r"\w+", names)
    }
    assert [levels[name] for name in described] == sorted(
        (levels[name] for name in described), reverse=True
    )


def test_the_architecture_names_only_files_that_exist():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    source = ROOT / "src/longtail"
    names = re.findall(r"`([\w/]+\.py)`", text)
    assert names
    for name in names:
        inside = [*source.rglob(name), ROOT / name]
        assert any(path.exists() for path in inside), name


def test_every_benchmark_has_results():
    text = (ROOT / "benchmarks/RESULTS.md").read_text("utf-8")
    for script in (ROOT / "benchmarks").glob("*.py"):
        assert f"benchmarks/{script.name}" in text


def extras_with_torch():
    """Return the extras that bring torch, by themselves or by another extra."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    names = {"torch"}
    while True:
        more = {
            extra
            for extra, needed in extras.items()
            if any(names & set(re.findall(r"[\w-]+", line.partition(">")[0])) for line in needed)
        }
        if more <= names:
            return names - {"torch"}
        names |= more


def test_extras_with_torch():
    extras = extras_with_torch()
    assert {"neural", "minilm", "onnx", "tensorboard", "all", "dev"} <= extras
    assert not extras & {"server", "parquet", "skos", "tune", "ray", "annif"}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "Makefile"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_an_install_with_torch_is_constrained(page):
    text = page.read_text("utf-8").replace(
        "$(PIP)", re.search(r"^PIP .*", MAKEFILE, re.MULTILINE)[0]
    )
    for command in re.findall(r"pip\b[^`\n]*\binstall\b[^`\n]*", text):
        names = set(re.findall(r"[\w-]+", "".join(re.findall(r"\[([^\]]*)\]", command))))
        names |= set(re.findall(r"\btorch\b", command))
        if names & {*extras_with_torch(), "torch"}:
            assert re.search(r"(-c|--constraint) constraints\.txt", command), command


def test_the_pages_install_extras_with_torch():
    commands = re.findall(r"pip install [^`\n]*", (ROOT / "README.md").read_text("utf-8"))
    assert "pip install ." in commands
    assert any("minilm" in command for command in commands)
