"""The documentation points only at what exists, and names every format, method and module."""

import re
from pathlib import Path

import pytest

from longtail.data.formats import FORMATS
from longtail.methods import METHODS

ROOT = Path(__file__).parent.parent
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
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/methods.md").read_text("utf-8"), re.MULTILINE)
    assert rows == list(METHODS)


def test_every_method_is_in_the_readme():
    text = (ROOT / "README.md").read_text("utf-8").lower()
    assert [name for name in METHODS if not re.search(rf"\b{name}\b", text)] == []


def test_the_map_names_every_module_in_its_room():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    rooms = dict(re.findall(r"^### ([\w/]+)/\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
    source = ROOT / "src/longtail"
    for file in source.rglob("*.py"):
        if file.name not in ("__init__.py", "__main__.py"):
            room = file.parent.relative_to(source).as_posix()
            assert f"`{file.name}`" in (text if room == "." else rooms[room]), file


def test_every_benchmark_has_results():
    text = (ROOT / "benchmarks/RESULTS.md").read_text("utf-8")
    for script in (ROOT / "benchmarks").glob("*.py"):
        assert f"benchmarks/{script.name}" in text
