"""The published tables against rows typed from the papers once more, and against what any such table must be."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from longtail.reproduction.published import (
    parse_table,
    published_datasets,
    read_papers,
    read_tables,
)

TABLES = read_tables()

# Typed from the papers as they are printed, without a look at the data files: for each table some rows, what they
# are called (* an ensemble of 3 models, ** of 9) and their numbers from left to right (-: not run).
PINNED = {
    "cascadexml-2": [
        ("XR-Linear", "65.59 46.72 36.46 43.38 38.40 34.77 47.40 44.15 41.87"),
        ("LightXML*", "77.89 58.98 45.71 49.32 44.17 40.25 - - -"),
        ("CascadeXML* dnn", "78.39 59.86 46.49 50.22 45.20 41.45 52.75 50.83 48.90"),
        ("X-Transformer**", "77.09 57.51 45.28 48.07 42.96 39.12 51.20 47.81 45.07"),
        ("CascadeXML* dnn+tfidf", "81.13 62.43 49.12 52.15 46.54 42.44 53.91 51.24 49.52"),
    ],
    "cascadexml-3": [
        ("eXtremeText", "83.66 73.28 64.51 92.50 78.12 63.51"),
        ("CascadeXML* dnn", "89.74 80.13 70.75 96.90 84.13 68.78"),
        ("XR-Transformer*", "88.69 80.17 70.91 96.79 83.66 68.04"),
        ("CascadeXML* dnn+tfidf", "89.18 79.71 71.19 96.71 84.07 68.69"),
    ],
    "cascadexml-4": [
        ("wiki10-31k CascadeXML", "88.4 78.3 68.9 0.3 0.1"),
        ("wiki-500k LightXML", "76.3 57.3 44.2 89.6 -"),
        ("amazon-670k AttentionXML", "45.7 40.7 36.9 - 8.1"),
        ("amazon-670k XR-Transformer", "49.1 43.8 40.0 8.1 3.4"),
    ],
    "cascadexml-5": [
        ("wiki10-31k", "20.0 48.1 39.1 27.1 12.8"),
        ("wiki-500k", "80.1 48.1 33.9 27.3 16.0"),
        ("amazon-3m", "130.5 50.2 35.2 - 16.9"),
    ],
    "cascadexml-6": [
        ("ProXML", "17.17 16.07 16.38 61.92 66.93 68.36 30.31 32.31 34.43 - - -"),
        ("Bonsai", "11.85 13.44 14.75 51.30 64.60 72.48 27.08 30.79 34.11 27.46 32.25 35.48"),
        ("AttentionXML", "16.20 17.05 17.93 53.52 68.73 76.26 29.30 32.36 35.12 30.05 37.31 41.74"),
        ("AttentionXML*", "15.57 16.80 17.82 53.76 68.72 76.38 30.29 33.85 37.13 30.85 39.23 44.34"),
        ("CascadeXML", "13.22 14.70 16.10 52.08 67.46 76.19 30.23 34.93 38.79 31.25 39.35 43.29"),
        ("XR-Transformer*", "12.25 15.00 16.75 50.72 65.66 75.95 29.77 34.05 38.29 32.70 40.44 45.02"),
        ("CascadeXML* dnn+tfidf", "13.32 15.35 17.45 51.39 66.81 77.58 30.77 35.78 40.52 32.12 43.15 49.37"),
    ],
    "cascadexml-7": [
        ("amazon-670k CascadeXML default", "48.5 43.7 40.0"),
        ("wiki-500k CascadeXML 32768 clusters", "76.6 58.1 44.9"),
        ("amazon-3m CascadeXML no rescaling", "50.9 48.6 46.6"),
    ],
    "cascadexml-8": [
        ("wiki10-31k", "101938 30938 14146 6616 18.64 8.52"),
        ("wiki-500k", "2381304 501070 1779881 769421 4.75 16.86"),
        ("amazon-3m", "337067 2812281 1717899 742507 36.04 22.02"),
    ],
    "cascadexml-10": [
        ("amazoncat-13k", "24.3 147.6 310.6 13.2 9.8"),
        ("amazon-670k", "24.2 514.8 159.0 10.5 9.0"),
        ("amazon-3m", "54.8 542.0 - 29.3 30.0"),
    ],
    "cascadexml-11": [
        ("amazon-670k CascadeXML", "98.29 91.93 83.1"),
        ("wiki-500k CascadeXML", "99.54 96.53 93.12"),
    ],
    "xr-transformer-2": [
        ("AnnexML", "79.66 64.94 53.52 86.46 74.28 64.20 93.54 78.36 63.30 "
                    "64.22 43.15 32.79 42.09 36.61 32.75 49.30 45.55 43.11"),
        ("XML-CNN", "75.32 60.14 49.21 81.41 66.23 56.11 93.26 77.06 61.40 - - - 33.41 30.00 27.42 - - -"),
        ("X-Transformer**", "87.61 75.39 63.05 88.26 78.51 69.68 96.48 83.41 68.19 "
                            "77.09 57.51 45.28 48.07 42.96 39.12 51.20 47.81 45.07"),
        ("XR-Transformer*", "88.41 75.97 63.18 88.69 80.17 70.91 96.79 83.66 68.04 "
                            "79.40 59.02 46.25 50.11 44.56 40.64 54.20 50.81 48.26"),
    ],
    "xr-transformer-3": [
        ("eurlex-4k", "0.9 7.5 16.9"),
        ("wiki-500k", "37.6 557.1 271.3"),
        ("amazon-3m", "54.8 542.0 -"),
    ],
    "xr-transformer-4": [
        ("wiki10-31k X-Transformer", "87.5 77.2 67.1 - 3.5"),
        ("wiki-500k X-Transformer", "44.8 40.1 34.6 - 56.0"),
        ("wiki-500k XR-Transformer", "78.1 57.6 45.0 29.2 12.5"),
        ("amazon-670k LightXML", "47.3 42.2 38.5 53.0 -"),
    ],
    "xr-transformer-5": [
        ("tf-idf", "84.14 72.05 60.97 85.75 75.79 66.69 94.64 79.98 64.79 "
                   "65.59 46.72 36.46 43.38 38.40 34.77 47.40 44.15 41.87"),
        ("word2vec + tf-idf", "84.35 71.27 59.10 86.11 76.92 66.45 94.53 79.44 63.94 "
                              "68.21 48.16 37.54 44.04 39.07 35.35 47.51 44.49 42.19"),
        ("Pre-trained + tf-idf*", "84.92 71.40 59.36 85.78 78.30 68.33 95.05 80.12 64.53 "
                                  "70.18 49.82 38.75 44.55 38.91 34.77 49.66 46.41 43.96"),
    ],
    "xr-transformer-6": [
        ("wiki10-31k XR-Transformer not cost-sensitive", "86.8 77.6 68.8 5.2 13.6 19.8"),
        ("amazon-670k XR-Transformer cost-sensitive", "49.0 43.7 39.9 10.4 25.7 37.7"),
        ("amazon-3m XR-Transformer cost-sensitive", "52.6 49.4 46.9 3.8 9.3 13.6"),
    ],
    "xr-transformer-8": [
        ("eurlex-4k", "0.9 7.5 16.9 0.8"),
        ("wiki-500k", "37.6 557.1 271.3 38.0"),
        ("amazon-3m", "54.8 542.0 - 29.3"),
    ],
    "xr-transformer-9": [
        ("wiki-500k XR-Linear cost-sensitive", "67.7 48.4 37.6 22.2 40.4 48.6"),
        ("amazon-670k XR-Linear not cost-sensitive", "44.0 39.2 35.4 9.2 22.7 33.2"),
        ("amazon-3m XR-Linear cost-sensitive", "50.1 46.6 44.0 3.4 8.4 12.2"),
        ("amazon-3m XR-Transformer not cost-sensitive", "50.2 47.6 45.4 3.4 8.4 12.4"),
    ],
    "xr-transformer-10": [
        ("eurlex-4k", "12.7 48.2 24.7 22.3"),
        ("amazon-670k", "76.0 48.0 23.3 30.9"),
        ("amazon-3m", "130.5 50.2 - 35.2"),
    ],
    "xr-transformer-11": [
        ("PfastreXML", "32.02 29.75 30.19 20.30 30.80 32.43 21.38 23.22 24.52"),
        ("AttentionXML*", "30.69 38.92 44.00 30.25 33.88 37.18 15.42 18.32 20.48"),
        ("XR-Transformer*", "35.76 42.22 46.36 36.16 38.39 40.99 20.52 23.64 25.79"),
    ],
}  # fmt: skip


def pinned_row(table, name):
    """Return the one row of a table that is called so: dataset, system, setting, and features where it has to be."""
    stars = {0: "", 1: "", 3: "*", 9: "**"}
    found = []
    for row in table.rows:
        parts = [row.dataset, row.system + stars[row.models], row.setting]
        if name in (" ".join(filter(None, parts)), " ".join(filter(None, [*parts, row.features]))):
            found.append(row)
    assert len(found) == 1, (name, found)
    return found[0]


@pytest.mark.parametrize(
    ("table", "name", "numbers"), [(t, *row) for t, rows in PINNED.items() for row in rows]
)
def test_rows_are_those_of_the_paper(table, name, numbers):
    typed = tuple(None if number == "-" else float(number) for number in numbers.split())
    assert pinned_row(TABLES[table], name).values == typed


def test_hyper_parameters_are_those_of_the_papers():
    cascade = {row.dataset: row.values for row in TABLES["cascadexml-9"].rows}
    assert cascade["wiki10-31k"] == (
        "9+10 | 11 | 12", "512 | 4096 | 30938", "512 | 512 | 512", 15, 256, "0.3 | 0.3 | 0.4",
    )  # fmt: skip
    assert cascade["amazoncat-13k"] == (
        "7+8 | 10 | 12", "256 | 2048 | 13330", "256 | 256 | 256", 6, 256, "0.2 | 0.3 | 0.4",
    )  # fmt: skip
    assert cascade["wiki-500k"][3:] == (12, 128, "0.2 | 0.25 | 0.35 | 0.5")
    assert cascade["amazon-3m"][1:] == (
        "1024 | 8192 | 65536 | 2812281", "1024 | 1024 | 2048 | 4096", 15, 128, "0.2 | 0.25 | 0.3 | 0.5",
    )  # fmt: skip
    recursive = {row.dataset: row.values for row in TABLES["xr-transformer-7"].rows}
    assert recursive["eurlex-4k"] == ("16-256-3956", "4-32-256-3956", 5e-5, 2400, 128, 1.0, 0.5)
    assert recursive["wiki-500k"] == (
        "64-512-4096-32768",
        "8-256-8192-501070",
        1e-4,
        60000,
        128,
        0.25,
        0.25,
    )
    assert recursive["amazon-670k"] == (
        "128-2048-32768",
        "8-256-8192-670091",
        1e-4,
        20000,
        128,
        None,
        1.0,
    )


def test_every_table_of_both_papers_is_there_and_pinned():
    assert [t for t in TABLES if t.startswith("cascadexml")] == [
        f"cascadexml-{n}" for n in range(2, 12)
    ]
    assert [t for t in TABLES if t.startswith("xr-")] == [
        f"xr-transformer-{n}" for n in range(2, 12)
    ]
    assert {*PINNED, "cascadexml-9", "xr-transformer-7"} == set(TABLES)


def test_papers_say_which_tables_are_left_out():
    papers = read_papers()
    assert {table.paper for table in TABLES.values()} == {"cascadexml", "xr-transformer"}
    assert papers["gandalf"].tables == "none"
    assert "no metrics" in papers["gandalf"].left_out


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_tables_are_sound(table):
    assert table.rows
    datasets = published_datasets()
    for cell in table.cells():
        assert cell.dataset in datasets
        assert cell.metric
        if (
            table.unit == "percent"
            and cell.value is not None
            and not cell.metric.startswith("hours")
        ):
            assert 0 < cell.value < 100
        if table.unit in ("hours", "milliseconds") and cell.value is not None:
            assert cell.value > 0


@pytest.mark.parametrize(("metric", "falls"), [("P", True), ("R", False)])
def test_metrics_fall_or_rise_with_k(metric, falls):
    series = {}
    for table in TABLES.values():
        for cell in table.cells():
            name, _, k = cell.metric.partition("@")
            if name == metric and cell.value is not None:
                key = (
                    table.id,
                    cell.dataset,
                    cell.system,
                    cell.models,
                    cell.features,
                    cell.setting,
                )
                series.setdefault(key, {})[int(k)] = cell.value
    assert series
    for key, values in series.items():
        assert sorted(values) == [1, 3, 5], key
        ordered = [values[k] for k in sorted(values)]
        assert all((one >= two) is falls for one, two in pairwise(ordered)), key


def test_tables_that_repeat_others_agree():
    """The same runs in several tables: a number typed or parsed wrongly in one of them would stand out."""
    found = {}
    for table in ("cascadexml-2", "cascadexml-3", "xr-transformer-2", "xr-transformer-5"):
        for cell in TABLES[table].cells():
            if cell.system not in ("CascadeXML", "tf-idf") and cell.value is not None:
                found.setdefault((cell.dataset, cell.system, cell.metric), set()).add(cell.value)
    assert {key for key, values in found.items() if len(values) > 1} == set()
    hours = {}
    for table in ("cascadexml-10", "xr-transformer-3", "xr-transformer-8"):
        for cell in TABLES[table].cells():
            hours.setdefault((cell.dataset, cell.system), set()).add(cell.value)
    assert {key for key, values in hours.items() if len(values) > 1} == set()
    milliseconds = {}
    for table in ("cascadexml-5", "xr-transformer-10"):
        for cell in TABLES[table].cells():
            milliseconds.setdefault((cell.dataset, cell.system), set()).add(cell.value)
    assert {key for key, values in milliseconds.items() if len(values) > 1} == set()


def test_sizes_of_datasets_are_those_of_the_tables():
    for row in TABLES["cascadexml-8"].rows:
        known = published_datasets()[row.dataset]
        sizes = (known.features, known.labels, known.train, known.test)
        assert row.values == (*sizes, known.labels_per_document, known.documents_per_label)


SMALL = """
paper = "small"
number = 1
title = "A table"
unit = "percent"
[columns]
dataset = ["eurlex-4k", "wiki10-31k"]
metric = ["P@1", "P@1"]
[[rows]]
system = "DiSMEC"
values = [80.0, "-"]
"""


def test_a_file_becomes_cells():
    cells = list(parse_table("small-1", SMALL).cells())
    assert [(c.dataset, c.system, c.metric, c.value) for c in cells] == [
        ("eurlex-4k", "DiSMEC", "P@1", 80.0),
        ("wiki10-31k", "DiSMEC", "P@1", None),
    ]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("small-2", ("", ""), "expected the file's name to say so"),
        ("small-1", ('[80.0, "-"]', "[80.0]"), "found 1 values in the row of DiSMEC; expected 2"),
        (
            "small-1",
            ('system = "DiSMEC"', 'system = "DiSMEC"\ndataset = "eurlex-4k"'),
            "dataset at a row and at its",
        ),
    ],
)
def test_files_that_do_not_fit_together_are_refused(name, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_table(name, SMALL.replace(*change))
