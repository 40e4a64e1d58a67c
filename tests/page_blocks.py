"""Runs the code blocks of a page in order, in one folder, as a reader would."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import longtail

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def blocks(page):
    """Return (language, text) of each block of a page, a path from the root of the repository."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.M | re.S)


def made(block):
    """What ``make`` runs for a block, but for making the environment: that is the one of this test."""
    make, target = block.split()
    assert make == "make"
    recipe = re.search(
        rf"^{target}: \$\((?:CORE|READY)\)[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.M
    )[1]
    assert all(line.startswith("\t$(BIN)/longtail ") for line in recipe.splitlines()), recipe
    return recipe.replace("\t$(BIN)/", "")


def shape(text):
    """Return a text without the values of its numbers, which are a machine's own."""
    return re.sub(r"\d[\d.,]*(?:e-?\d+)?", "#", text)


def run_blocks(page, folder):
    """Run every block of ``page`` in ``folder``/reader, see that it prints what is shown, and
    return all it printed.
    """
    run = _runner(folder)
    printed = ""
    for language, block in blocks(page):
        if language == "bash":
            script = made(block) if block.startswith("make ") else block
            printed += run("bash", "-euo", "pipefail", "-c", script)
        elif language == "python":
            printed += run(sys.executable, "-c", block)
        else:
            alike = {"text": str, "log": shape}[language]
            for line in block.splitlines():
                assert alike(line) in alike(printed), (
                    f"{page} shows {line!r}, which no block above printed"
                )
    return printed


def _runner(folder):
    """Return a function that runs commands; ``python`` and ``longtail`` are those under test,
    installed or not.
    """
    reader = folder / "reader"
    command = folder / "bin" / "longtail"
    reader.mkdir()
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m longtail "$@"\n')
    command.chmod(0o755)
    path = [str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    ours = {"PATH": os.pathsep.join(path), "PYTHONPATH": str(Path(longtail.__file__).parents[1])}
    environment = {
        "OMP_NUM_THREADS": "1",
        **os.environ,
        **ours,
    }  # torch's threads wait for each other on a busy machine

    def run(*words):
        done = subprocess.run(words, cwd=reader, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
