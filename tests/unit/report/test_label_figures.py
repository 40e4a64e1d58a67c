"""The picture of the label-frequency curve."""

from __future__ import annotations

import re
import sys

import pytest

from longtail.errors import UsageError
from longtail.report.label_figures import draw_frequency_curve

CURVE = [(1, 1000), (2, 400), (10, 50), (100, 3), (1000, 1)]
MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


@pytest.mark.parametrize("suffix", MAGIC)
def test_kind_by_suffix_and_same_curve_same_bytes(tmp_path, suffix, monkeypatch):
    places = [tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"]
    for second, place in enumerate(places):
        monkeypatch.setenv(
            "SOURCE_DATE_EPOCH", str(1_000_000_000 + second)
        )  # two seconds on the clock
        draw_frequency_curve(CURVE, place)
    first, second = (place.read_bytes() for place in places)
    assert first.startswith(MAGIC[suffix])
    assert len(first) > 5000
    assert first == second


def test_what_is_drawn(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    draw_frequency_curve(CURVE, tmp_path / "a.png")
    (axes,) = drawn[0].axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.lines[0].get_xydata().tolist() == [list(point) for point in CURVE]
    assert axes.get_xlabel() == "label, by falling frequency"
    assert axes.get_ylabel() == "documents"
    assert (
        axes.get_ylim()[0] < 1 < 1000 <= axes.get_ylim()[1]
    )  # also labels with one document are seen


@pytest.mark.parametrize("curve", [[], [(1, 1)], [(1, 7)], [(1, 1), (9, 1)]])
def test_short_and_flat_curves(tmp_path, curve):
    draw_frequency_curve(curve, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(MAGIC[".png"])


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.bmp", ".bmp"),
        ("a", "file without suffix"),
        ("a.png.gz", ".gz"),
        (".png", "file without suffix"),
    ],
)
def test_other_kinds(tmp_path, name, what):
    expected = f"{tmp_path / name}: cannot draw a {what}; expected .png, .svg, .pdf"
    with pytest.raises(UsageError, match=f"^{re.escape(expected)}$"):
        draw_frequency_curve(CURVE, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_no_display_is_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # its import would fail
    draw_frequency_curve(CURVE, str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(MAGIC[".png"])
