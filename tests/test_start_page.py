"""Every block of the first page of the documentation is run, as those of the README are."""

import pytest

from page_blocks import blocks, run_blocks

PAGE = "docs/index.md"


@pytest.mark.timeout(600)
def test_every_block_runs_and_prints_what_the_page_shows(tmp_path):
    printed = run_blocks(PAGE, tmp_path)
    reader = tmp_path / "reader"
    assert '"labels":["' in printed
    assert (reader / "demo" / "report.html").stat().st_size > 0
    assert {folder.name for folder in reader.iterdir() if (folder / "manifest.json").exists()} == {
        "tagger",
        "from-python",
    }


def test_it_begins_with_two_commands():
    first, second = blocks(PAGE)[:2]
    assert first == ("bash", "make demo\n")
    assert second[0] == "bash"
    assert "longtail predict demo/model" in second[1]
