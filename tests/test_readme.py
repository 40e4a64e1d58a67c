"""Every block of the README is run, in order, in one folder, as a reader would."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import longtail

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
EPOCH = re.compile(r"^epoch \d+: loss .*, P@1 ([\d.]+)%", re.M)


@pytest.fixture
def environment(tmp_path):
    """The variables with which ``python`` and ``longtail`` are those under test, installed or not."""
    command = tmp_path / "bin" / "longtail"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m longtail "$@"\n')
    command.chmod(0o755)
    path = [str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    ours = {"PATH": os.pathsep.join(path), "PYTHONPATH": str(Path(longtail.__file__).parents[1])}
    return {"OMP_NUM_THREADS": "1", **os.environ, **ours}  # torch's threads wait for each other on a busy machine


@pytest.fixture
def run(environment, tmp_path):
    (tmp_path / "reader").mkdir()

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path / "reader", env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def made(block):
    """What ``make`` runs for a block, but for making the environment: that is the one of this test."""
    make, target = block.split()
    assert make == "make"
    recipe = re.search(rf"^{target}: \$\(READY\)[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.M)[1]
    assert all(line.startswith("\t$(BIN)/longtail ") for line in recipe.splitlines()), recipe
    return recipe.replace("\t$(BIN)/", "")


def shape(text):
    """Return a text without the values of its numbers, which are a machine's own."""
    return re.sub(r"\d[\d.,]*(?:e-?\d+)?", "#", text)


@pytest.mark.timeout(600)  # a network is trained
def test_every_block_runs_and_prints_what_the_readme_shows(run, tmp_path):
    printed = ""
    for language, block in BLOCKS:
        if language == "bash":
            script = made(block) if block.startswith("make ") else block
            printed += run("bash", "-euo", "pipefail", "-c", script)
        elif language == "python":
            printed += run(sys.executable, "-c", block)
        else:
            alike = {"text": str, "log": shape}[language]
            for line in block.splitlines():
                assert alike(line) in alike(printed), f"the README shows {line!r}, which no block above printed"
    assert (tmp_path / "reader" / "demo" / "labels.png").stat().st_size > 0
    assert rises(printed)
    assert (tmp_path / "reader" / "figures" / "shortlist_recall.png").stat().st_size > 0


def rises(printed):
    """Tell whether the network of the README is better on validation data after each of its epochs."""
    values = [float(value) for value in EPOCH.findall(printed)]
    return len(values) == 3 and values[0] < values[1] < values[2]


def test_the_readme_shows_a_network_that_improves():
    assert rises("".join(block for language, block in BLOCKS if language == "log"))


def test_make_demo_is_the_demo_command():
    assert made("make demo") == "longtail demo\n"


def test_there_are_blocks_of_every_kind():
    assert {"bash", "python", "text", "log"} == {language for language, _ in BLOCKS}
    assert ("bash", "make demo\n") in BLOCKS
