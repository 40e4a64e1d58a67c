"""The page on reproducing the papers is what its script gives, and names every experiment."""

from __future__ import annotations

import re
from pathlib import Path

from longtail.reproduction.experiments import experiments
from longtail.reproduction.published import published_datasets
from reproducing_page import reproducing_page

PAGE = Path(__file__).parents[3] / "docs/reproducing.md"


def test_the_page_is_what_the_script_gives():
    assert PAGE.read_text("utf-8") == reproducing_page(), (
        "python scripts/reproducing_page.py > docs/reproducing.md"
    )


def test_the_page_names_every_experiment_and_dataset():
    text = reproducing_page()
    for name in experiments():
        assert f"`{name}`" in text
    for name, dataset in published_datasets().items():
        assert f"({name!r})".replace("'", "`") in text
        assert f"### {dataset.title}\n" in text


def test_published_numbers_stand_beside_their_experiment():
    line = "| `cascadexml/amazon-670k` | cascadexml-2 | CascadeXML | 3 | 50.22 | 45.20 | 41.45 |"
    assert line in reproducing_page()
    assert "| cascadexml-4 | CascadeXML | 1 | 48.5 | 43.7 | 40.0 |" in reproducing_page()


def test_tables_have_as_many_cells_in_every_row():
    for block in re.findall(r"(?:^\|.*\n)+", reproducing_page(), re.MULTILINE):
        assert (
            len(
                {
                    line.count(" | ") + line.count("---|")
                    for line in block.splitlines()
                    if "---" not in line
                }
            )
            == 1
        )
