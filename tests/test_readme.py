"""Every block of the README is run, in order, in one folder, as a reader would."""

import re

import pytest

from page_blocks import blocks, made, run_blocks

BLOCKS = blocks("README.md")
EPOCH = re.compile(r"^epoch \d+: loss .*, P@1 ([\d.]+)%", re.M)


@pytest.mark.timeout(1800)  # a network is trained
def test_every_block_runs_and_prints_what_the_readme_shows(tmp_path):
    printed = run_blocks("README.md", tmp_path)
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
