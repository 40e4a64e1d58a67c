"""Pictures and tables of what was measured inside a network: the numbers that went in, and the same bytes."""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import dataclass, field, replace

import pytest

from longtail.errors import UsageError
from longtail.report.analysis_figures import prepare_folder, summary, write_analysis

MAGIC = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Layer:
    """As LayerAttention, without torch."""

    layer: int
    self_mean: float
    self_max: float
    entropy: float
    entropy_share: float


@dataclass(frozen=True)
class Pair:
    """As Likeness."""

    levels: tuple[int, int]
    layers: tuple[int, int]
    similarity: float
    chance: float


@dataclass(frozen=True)
class Measured:
    """As Analysis."""

    documents: int = 1000
    vector_documents: int = 1920
    layers: tuple[int, ...] = (2, 3, 3)
    attention: dict = field(default_factory=dict)
    likeness: dict = field(default_factory=dict)
    shortlist_recall: tuple[float, ...] = (0.9829, 0.9193)


TRAINED = (
    Layer(1, 0.25, 0.5, 1.5, 0.75),
    Layer(2, 0.125, 0.625, 1.25, 0.5),
    Layer(3, 0.0625, 1.0, 3.0, 1.0),
)
UNTUNED = (
    Layer(1, 0.375, 0.875, 2.5, 0.8),
    Layer(2, 0.3, 0.9, 2.0, 0.6),
    Layer(3, 0.2, 0.7, 1.0, 0.4),
)
PAIRS = (
    Pair((1, 2), (2, 3), 0.75, 0.25),
    Pair((1, 3), (2, 3), 0.5, 0.125),
    Pair((2, 3), (3, 3), 1.0, 0.375),
)
OTHERS = (
    Pair((1, 2), (2, 3), 0.7, 0.2),
    Pair((1, 3), (2, 3), 0.6, 0.1),
    Pair((2, 3), (3, 3), 1.0, 0.3),
)
WHOLE = Measured(
    attention={"trained": TRAINED, "untuned": UNTUNED},
    likeness={"trained": PAIRS, "untuned": OTHERS},
)
ALONE = replace(WHOLE, attention={"trained": TRAINED}, likeness={}, shortlist_recall=())
NAMES = ["cls_self_attention", "attention_entropy", "pwcca", "shortlist_recall"]


@pytest.fixture
def figures(monkeypatch, tmp_path):
    """Return the figures that are drawn, by name."""
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))

    def draw(measured):
        drawn.clear()
        written = write_analysis(measured, tmp_path / "out")
        return dict(
            zip([path.stem for path in written if path.suffix == ".png"], drawn, strict=True)
        )

    return draw


def rows_of(path) -> list[dict]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_files_and_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # no display is needed
    first, second = tmp_path / "new" / "first", tmp_path / "second"
    written = write_analysis(WHOLE, first)
    assert written == [first / f"{name}{suffix}" for name in NAMES for suffix in (".csv", ".png")]
    write_analysis(WHOLE, second)
    for path in written:
        assert path.read_bytes() == (second / path.name).read_bytes()
        assert path.suffix == ".csv" or path.read_bytes().startswith(MAGIC)


def test_numbers(tmp_path):
    write_analysis(WHOLE, tmp_path)
    itself, entropy, likeness, recall = (rows_of(tmp_path / f"{name}.csv") for name in NAMES)
    expected = {"encoder": "trained", "layer": "3", "levels": "2, 3"}
    assert itself[2] == expected | {"mean": "0.0625", "maximum": "1.0"}
    assert itself[3] == {
        "encoder": "untuned",
        "layer": "1",
        "levels": "",
        "mean": "0.375",
        "maximum": "0.875",
    }
    assert entropy[2] == expected | {"nats": "3.0", "share_of_log_tokens": "1.0"}
    assert [len(itself), len(entropy), len(likeness)] == [6, 6, 6]
    assert [*likeness[1].values()] == ["trained", "1", "3", "2", "3", "0.5", "0.125"]
    assert [*likeness[1]] == [
        "encoder",
        "level",
        "other_level",
        "layer",
        "other_layer",
        "similarity",
        "chance",
    ]
    assert recall == [{"level": "1", "recall": "0.9829"}, {"level": "2", "recall": "0.9193"}]


def test_what_an_earlier_analysis_left_goes_away(tmp_path):
    (tmp_path / "mine.csv").write_text("kept")
    write_analysis(WHOLE, tmp_path)
    written = write_analysis(ALONE, tmp_path)
    assert [path.stem for path in written] == ["cls_self_attention"] * 2 + ["attention_entropy"] * 2
    assert sorted(tmp_path.iterdir()) == sorted([*written, tmp_path / "mine.csv"])


def test_a_file_in_the_place_of_the_folder(tmp_path):
    path = tmp_path / "out"
    path.write_text("mine")
    with pytest.raises(
        UsageError, match=f"^{re.escape(str(path))}: found a file; expected a folder"
    ):
        prepare_folder(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "left", "right", "labels"),
    [
        ("cls_self_attention", [25, 12.5, 6.25], [50, 62.5, 100], ["attention, %"] * 2),
        ("attention_entropy", [1.5, 1.25, 3.0], [75, 50, 100], ["entropy, nats", "entropy, %"]),
    ],
)
def test_curves(figures, name, left, right, labels):
    figure = figures(WHOLE)[name]
    assert [axes.get_ylabel() for axes in figure.axes] == labels
    for axes, values in zip(figure.axes, (left, right), strict=True):
        assert axes.lines[0].get_xydata().tolist() == [
            [1, values[0]],
            [2, values[1]],
            [3, values[2]],
        ]
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2\nL1", "3\nL2, 3"]
        low, high = axes.get_ylim()
        assert low == 0
        assert high >= max(max(line.get_ydata()) for line in axes.lines)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["trained", "untuned"]


def test_only_the_trained_one(figures):
    drawn = figures(ALONE)
    assert [*drawn] == NAMES[:2]
    for figure in drawn.values():
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["trained"]


def test_bars(figures):
    drawn = figures(WHOLE)
    (axes,) = drawn["pwcca"].axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [[0.75, 0.5, 1.0], [0.7, 0.6, 1.0]]
    chances = [[segment[0][1] for segment in lines.get_segments()] for lines in axes.collections]
    assert chances == [[0.25, 0.125, 0.375], [0.2, 0.1, 0.3]]
    assert [tick.get_text() for tick in axes.get_xticklabels()][1] == "1–3\nlayers 2, 3"
    (axes,) = drawn["shortlist_recall"].axes
    assert [bar.get_height() for bar in axes.containers[0]] == pytest.approx([98.29, 91.93])
    assert [text.get_text() for text in axes.texts] == ["98.3", "91.9"]


def test_summary():
    layers, pairs, recalls = summary(WHOLE)
    assert layers.heads[:4] == ["layer", "level", "to itself", "to itself, untuned"]
    assert layers.heads[4:] == ["maximum", "maximum, untuned", "entropy", "entropy, untuned"]
    assert layers.rows[0] == ["1", "", "25.0 %", "37.5 %", "50.0 %", "87.5 %", "75.0 %", "80.0 %"]
    assert layers.rows[2][:3] == ["3", "2, 3", "6.2 %"]
    assert pairs.heads == ["levels", "PWCCA", "PWCCA, untuned", "random vectors"]
    assert pairs.rows[1] == ["1–3", "50.0 %", "60.0 %", "12.5 %"]
    assert recalls == (["level", "shortlist recall"], [["1", "98.3 %"], ["2", "91.9 %"]])
    (alone,) = summary(ALONE)
    assert alone.heads == ["layer", "level", "to itself", "maximum", "entropy"]
