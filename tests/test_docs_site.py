"""What the site of the documentation is made of, without building it: nav, generated pages, pictures, numbers."""

import html
import inspect
import pydoc
import re
import tomllib
from pathlib import Path

import msgspec
import pytest
import typer.main

import longtail
from architecture_pictures import FLOW, PICTURES, layers
from cli_reference import cli_reference
from docs_site import COPIED, GENERATED, site_links
from longtail.cli import app
from longtail.config import Config, settings
from settings_reference import settings_reference

ROOT = Path(__file__).parent.parent
SITE = (ROOT / "mkdocs.yml").read_text("utf-8")
COMMANDS = typer.main.get_command(app).commands


def rows(text):
    """Return the cells of each row of the tables of a text."""
    return [
        [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


class TestNav:
    listed = re.findall(r"[\w-]+\.md$", SITE.partition("\nnav:")[2], re.M)

    def test_it_has_every_page_once(self):
        pages = [page.name for page in (ROOT / "docs").glob("*.md")]
        assert sorted(self.listed) == sorted([*pages, *COPIED, *GENERATED])

    def test_no_page_of_docs_is_hidden_by_a_made_one(self):
        assert not [page for page in (*COPIED, *GENERATED) if (ROOT / "docs" / page).exists()]

    def test_its_groups_are_those_of_the_start(self):
        groups = re.findall(r"^  - ([^:\n]+):", SITE.partition("\nnav:")[2], re.M)
        assert groups == [
            *[
                "Start here",
                "Choose a method",
                "Data",
                "Methods",
                "Server and tools",
                "Scale and reliability",
            ],
            *["Reference", "Inside"],
        ]


def test_nothing_is_loaded_from_elsewhere():
    assert "font: false" in SITE
    assert "- offline" in SITE
    assert "://" not in SITE
    assert "repo_url" not in SITE  # the theme would ask its host for stars
    for page in ROOT.glob("docs/*.md"):
        assert "```mermaid" not in page.read_text("utf-8"), (
            page
        )  # the theme would load what draws it
    for file in [*ROOT.glob("docs/javascripts/*"), *ROOT.glob("docs/stylesheets/*")]:
        assert not re.search(r"https?:|url\(", file.read_text("utf-8")), file


class TestLinks:
    @pytest.mark.parametrize(
        ("origin", "link", "there"),
        [
            ("docs/gandalf.md", "../benchmarks/RESULTS.md#serving", "results.md#serving"),
            ("docs/index.md", "../SECURITY.md", "security.md"),
            ("docs/index.md", "formats.md", "formats.md"),
            ("benchmarks/RESULTS.md", "../docs/gandalf.md", "gandalf.md"),
            ("SECURITY.md", "docs/ray.md", "ray.md"),
            ("CONTRIBUTING.md", "benchmarks/RESULTS.md", "results.md"),
            ("benchmarks/RESULTS.md", "#serving", "#serving"),
            ("docs/index.md", "https://example.org/a.md", "https://example.org/a.md"),
        ],
    )
    def test_they_lead_to_the_page_of_the_site(self, origin, link, there):
        assert site_links(f"see [it]({link}), or", origin) == f"see [it]({there}), or"

    @pytest.mark.parametrize("page", COPIED)
    def test_what_is_copied_links_only_to_pages_of_the_site(self, page):
        text = site_links((ROOT / COPIED[page]).read_text("utf-8"), COPIED[page])
        for target in re.findall(r"\]\(([^)#:]+)[)#]", text):
            assert target in TestNav.listed, target


class TestCommands:
    text = cli_reference()

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_a_section_with_every_option(self, name):
        section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", self.text, re.M | re.S)[1]
        named = {word for row in rows(section) for word in re.findall(r"`([^`]+)`", row[0])}
        for param in COMMANDS[name].params:
            words = (
                param.opts
                if param.param_type_name == "option"
                else [param.metavar or param.name.upper()]
            )
            assert named.issuperset(words), param.name

    def test_each_one_has_help(self):
        bare = [row[0] for row in rows(self.text) if not row[-1].strip(" |")]
        assert set(bare) <= {"command", "argument or option"}  # the heads of tables

    def test_defaults_and_what_is_required_are_told(self):
        assert "| `-k` `N` | `5` | Labels per document, at most. |" in self.text
        assert "| `-o`, `--output` `MODEL` | required | Model folder to write. |" in self.text
        assert "$ longtail train [OPTIONS] DATA -o MODEL\n" in self.text

    def test_what_looks_like_html_is_text(self):
        assert "child&lt;TAB&gt;parent" in self.text


class TestSettings:
    text = settings_reference()

    def test_every_setting_has_one_row_with_its_default_and_line(self):
        found = {row[0]: row for row in rows(self.text)}
        for path, value, doc in settings(Config()):
            _, _, default, what = found[f"`{path}`"]
            assert default == f"`{msgspec.json.encode(value).decode()}`", path
            assert doc in html.unescape(what), path

    def test_ranges_are_told(self):
        assert "| `tree.branching` | whole number ≥ 2 | `16` |" in self.text
        assert "| `gandalf.share` | number > 0, ≤ 1 | `1.0` |" in self.text
        assert "| `search.score` | `hinge-2`, `hinge-3`, `sigmoid` |" in self.text
        assert "| `cascade.dropout` | list of: number ≥ 0, < 1 | `[]` |" in self.text

    def test_methods_that_differ_are_named(self):
        assert (
            "children of an inner node<br>`2`: parabel, plt, extremetext; `100`: bonsai |"
            in self.text
        )


class TestPictures:
    @pytest.mark.parametrize("name", PICTURES)
    def test_they_are_what_the_script_draws(self, name):
        drawn = PICTURES[name]()
        assert (ROOT / name).read_text("utf-8") == drawn, (
            "run python scripts/architecture_pictures.py"
        )
        assert f"({Path(name).name})" in (ROOT / "docs/architecture.md").read_text("utf-8")

    def test_the_layers_are_those_of_the_contract(self):
        contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
            "importlinter"
        ]["contracts"]
        contract = next(contract for contract in contracts if contract["type"] == "layers")
        shown = [name for layer in layers() for name in layer]
        assert shown == re.findall(r"\w+", " ".join(contract["layers"]))
        picture = (ROOT / "docs/import-direction.svg").read_text("utf-8")
        assert re.findall(r'font-family="monospace"[^>]*>(\w+)<', picture) == shown

    def test_the_modules_of_the_flow_exist(self):
        for box in FLOW.values():
            for module in box.modules:
                assert (ROOT / "src/longtail" / module).exists(), module


class TestPython:
    text = "".join(page.read_text("utf-8") for page in sorted(ROOT.glob("docs/api*.md")))
    shown = re.findall(r"^::: (\S+)", text, re.M)

    def test_every_public_name_is_there_once(self):
        public = [f"longtail.{name}" for name in longtail.__all__ if name != "__version__"]
        assert set(public) <= set(self.shown)
        assert len(self.shown) == len(set(self.shown))

    @pytest.mark.parametrize("name", shown)
    def test_docstrings_speak_markdown(self, name):
        for where, text in docstrings(pydoc.locate(name)):
            assert not re.search(r":\w+:`", text), f"{where}: {text}"


def docstrings(thing):
    """Yield the docstrings of a class, function or module, and of what is public in it."""
    yield getattr(thing, "__name__", str(thing)), inspect.getdoc(thing) or ""
    inner = [getattr(thing, name) for name in thing.__all__] if inspect.ismodule(thing) else []
    inner += (
        [value for name, value in vars(thing).items() if name[0] != "_"]
        if inspect.isclass(thing)
        else []
    )
    for value in inner:
        yield from (
            docstrings(value)
            if inspect.isclass(value)
            else [(str(value), inspect.getdoc(value) or "")]
        )


def test_every_measured_row_of_choosing_is_one_of_the_results():
    results = [
        {cell.replace("*", "") for cell in row}
        for row in rows((ROOT / "benchmarks/RESULTS.md").read_text("utf-8"))
    ]
    measured = (ROOT / "docs/choosing.md").read_text("utf-8").partition("## Measurements")[2]
    checked = 0
    for name, *numbers in rows(measured):
        numbers = {number for number in numbers if re.match(r"\d", number)}
        if numbers:
            at = [place for place, row in enumerate(results) if numbers <= row]
            assert at, f"{name}: {numbers} are not in one row of the results"
            base = name.removesuffix(" with Gandalf")
            names = set().union(*(results[place] | results[place - 1] for place in at))
            assert base in names, f"{name} is not the row of {numbers}"
            checked += 1
    assert checked > 40
