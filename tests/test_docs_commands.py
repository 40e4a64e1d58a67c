"""What pages of the documentation show can be done: commands have such options and settings, quick
Python runs.
"""

import re
import shlex
import subprocess
import sys

import pytest
import typer

from longtail.cli import app
from longtail.cli.options import overrides
from longtail.methods import configure
from page_blocks import ROOT, blocks

COMMANDS = typer.main.get_command(app).commands
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
SHOWN = re.compile(r"^(?:\$ | {4})(?:torchrun .*?-m )?longtail ([a-z]+) (.*)$", re.M)
QUICK = [
    "docs/gandalf.md",
    "docs/label-graph.md",
    "docs/ecosystem.md",
]  # whose Python takes a second or two
END = re.compile(
    r" {2,}\S| #|\||>| &$|…"
)  # a remark beside the command, or what the shell does with it


def shown(page):
    """Return (command, words) of each command in blocks that are shown, not run; «…» leaves
    something out.
    """
    text = (ROOT / page).read_text("utf-8").replace("\\\n", " ")
    lines = [
        (name, re.sub(r" {2,}(?=-)", " ", others))
        for name, others in SHOWN.findall(text)
        if "…" not in others
    ]
    return [(name, shlex.split(END.split(others)[0])) for name, others in lines if name in COMMANDS]


@pytest.mark.parametrize("page", [page for page in PAGES if shown(page)])
def test_commands_of_a_page_can_be_given(page):
    for name, words in shown(page):
        # refuses options that do not exist
        arguments = COMMANDS[name].make_context(name, words).params
        if name in ("train", "tune"):
            configure(
                arguments["method"] or "xr-linear",
                arguments["preset"],
                *overrides(None, arguments["set_"]),
            )


def test_commands_are_found():
    result = [name for page in PAGES for name, _ in shown(page)]
    assert len(result) > 50
    assert {
        "train",
        "predict",
        "ensemble",
        "tune",
        "serve",
        "merge",
        "extend",
        "labels",
        "export",
    } <= set(result)


def test_python_of_pages_where_it_is_quick_runs(tmp_path):
    result = [block for page in QUICK for language, block in blocks(page) if language == "python"]
    script = "\n".join(
        block for block in result if "encoder.onnx" not in block
    )  # a file of a network's
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^P +\d", done.stdout, re.M)  # the table of metrics
    assert re.search(r"^0\.\d\d  \w", done.stdout, re.M)  # neighbours of a label
    assert "[['energy" in done.stdout
