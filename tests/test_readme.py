"""Every block of the README is run, in order, in one folder, as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)


def run(command, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_block_runs_and_prints_what_the_readme_shows(tmp_path):
    printed = ""
    for language, block in BLOCKS:
        if language == "bash" and block.startswith("make "):
            if not (ROOT / ".venv" / ".ready").exists():
                pytest.skip("make needs the project's own environment: make test")
            printed += run(["make", "-C", str(ROOT), *block.split()[1:]], tmp_path)
        elif language == "bash":
            printed += run(["bash", "-euo", "pipefail", "-c", block], tmp_path)
        elif language == "python":
            printed += run([sys.executable, "-c", block], tmp_path)
        else:
            assert language == "text"
            for line in block.splitlines():
                assert line in printed, f"the README shows {line!r}, which no block above printed"


def test_there_are_blocks_of_every_kind():
    assert {"bash", "python", "text"} == {language for language, _ in BLOCKS}
