"""The page of an evaluation: whole in itself, escaped, the same bytes, and with what was measured in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from longtail.errors import UsageError
from longtail.evaluation import Measured
from longtail.metrics import Evaluation, FrequencyTable
from longtail.metrics.analysis import FrequencyBin
from longtail.report import (
    calibration_error,
    check_report_path,
    reliability_in_words,
    reliability_rows,
    write_report,
)
from longtail.search.calibration import ReliabilityBin


def a_bin(*values) -> FrequencyBin:
    return FrequencyBin(**dict(zip(FrequencyBin.__struct_fields__, values, strict=True)))


EVALUATION = Evaluation(
    n_documents=200,
    n_without_labels=3,
    n_test_labels=50,
    ks=(1, 3),
    a=0.55,
    b=1.5,
    metrics={"P@1": 0.81234, "P@3": 0.5, "coverage@1": 0.125, "coverage@3": 0.25},
    hits=(162, 300),
    intervals={"P@1": (0.78, 0.85), "P@3": (0.45, 0.55)},
    n_resamples=1000,
)
TABLE = FrequencyTable(
    200,
    (1, 3),
    (
        a_bin(0, 0, 10, 0, (0, 0), (0.0, 0.0), (None, None)),
        a_bin(1, 5, 1234, 40, (10, 20), (0.05, 0.0333), (0.25, 0.5)),
        a_bin(6, None, 20, 100, (90, 95), (0.45, 0.158), (0.9, 0.95)),
    ),
)
BINS = (
    ReliabilityBin(0.1, 0.2, 3000, 0.15, 0.25),
    ReliabilityBin(0.5, 0.6, 1234, 0.54, 0.55),
    ReliabilityBin(0.9, 1.0, 766, 0.95, 0.85),
)
WHOLE = Measured(EVALUATION, TABLE, BINS)
VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Collects tags, text, table rows and ids, and sees to it that every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def named(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


def page(measured: Measured, tmp_path, title: str = "a model on a test") -> Page:
    write_report(measured, tmp_path / "a.html", title)
    return Page((tmp_path / "a.html").read_text("utf-8"))


class TestPath:
    @pytest.mark.parametrize(
        ("name", "what"),
        [
            ("a.htm", ".htm"),
            ("a", "file without suffix"),
            ("a.html.gz", ".gz"),
            ("a.HTML", ".HTML"),
        ],
    )
    def test_other_kinds(self, tmp_path, name, what):
        expected = f"{tmp_path / name}: cannot write a {what}; expected .html"
        with pytest.raises(UsageError, match=f"^{re.escape(expected)}$"):
            check_report_path(tmp_path / name)
        with pytest.raises(UsageError):
            write_report(WHOLE, tmp_path / name, "t")
        assert list(tmp_path.iterdir()) == []

    def test_no_folder(self, tmp_path):
        with pytest.raises(UsageError, match=r"does not exist; make it first$"):
            check_report_path(tmp_path / "no" / "a.html")

    def test_fine(self, tmp_path, monkeypatch):
        check_report_path(str(tmp_path / "a.html"))
        monkeypatch.chdir(tmp_path)
        check_report_path("a.html")


class TestPage:
    def test_metrics(self, tmp_path):
        found = page(WHOLE, tmp_path)
        assert found.rows[:3] == [
            ["", "@1", "@3"],
            ["P", "81.23 78.00–85.00", "50.00 45.00–55.00"],
            ["coverage", "12.50", "25.00"],
        ]
        text = "".join(found.texts)
        assert (
            "200 documents with 50 labels; 3 documents without labels left out; propensity A=0.55 B=1.5"
            in text
        )
        assert "intervals of 1000 resamples" in text

    def test_frequencies(self, tmp_path):
        rows = page(WHOLE, tmp_path).rows
        assert rows[3:7] == [
            ["in train", "labels", "positives", "P@1", "P@3", "R@1", "R@3"],
            ["0", "10", "0", "0.00", "0.00", "–", "–"],
            ["1–5", "1,234", "40", "5.00", "3.33", "25.00", "50.00"],
            [">5", "20", "100", "45.00", "15.80", "90.00", "95.00"],
        ]

    def test_reliability(self, tmp_path):
        found = page(WHOLE, tmp_path)
        assert found.rows[7:] == [
            ["probability", "suggestions", "mean", "right"],
            ["0.1–0.2", "3,000", "15.0\xa0%", "25.0\xa0%"],
            ["0.5–0.6", "1,234", "54.0\xa0%", "55.0\xa0%"],
            ["0.9–1.0", "766", "95.0\xa0%", "85.0\xa0%"],
        ]
        text = "".join(found.texts).replace("\xa0", " ")
        assert "Of the 1,234 suggestions with a probability of 0.5–0.6, 55 % were correct." in text
        assert "7.8 percentage points" in text

    def test_what_is_not_known_is_not_there(self, tmp_path):
        found = page(Measured(EVALUATION), tmp_path)
        assert len(found.rows) == 3
        assert len(found.named("svg")) == 1  # metrics with their intervals
        assert len(page(Measured(EVALUATION, None, BINS), tmp_path).named("svg")) == 2

    def test_without_intervals(self, tmp_path):
        plain = msgspec.structs.replace(EVALUATION, intervals={})
        found = page(Measured(plain), tmp_path)
        assert found.rows[1] == ["P", "81.23", "50.00"]
        assert found.named("svg") == []

    def test_text_is_escaped(self, tmp_path):
        title = "<script>alert('x')</script> & \x1b[31m"
        found = page(WHOLE, tmp_path, title)
        assert found.named("script") == []
        assert (
            "".join(found.texts).count("<script>alert('x')</script> & \\x1b[31m") == 2
        )  # title and heading

    def test_nothing_is_fetched(self, tmp_path):
        found = page(WHOLE, tmp_path)
        outside = [
            value
            for _, attributes in found.tags
            for name, value in attributes.items()
            if value and ("//" in value or name in ("src", "action"))
        ]
        assert outside == []
        assert "@import" not in (tmp_path / "a.html").read_text()

    def test_phone_and_dark(self, tmp_path):
        text = (page(WHOLE, tmp_path), (tmp_path / "a.html").read_text())[1]
        assert 'name="viewport" content="width=device-width' in text
        assert "prefers-color-scheme: dark" in text

    def test_same_bytes(self, tmp_path, monkeypatch):
        for second, name in enumerate(["a.html", "b.html"]):
            monkeypatch.setenv("SOURCE_DATE_EPOCH", str(1_000_000_000 + second))
            write_report(WHOLE, tmp_path / name, "t")
        assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


class TestPictures:
    def test_alternatives_and_colours(self, tmp_path):
        found = page(WHOLE, tmp_path)
        pictures = found.named("svg")
        assert [picture["role"] for picture in pictures] == ["img", "img", "img"]
        assert "with their intervals" in pictures[0]["aria-label"]
        assert "recall of labels" in pictures[1]["aria-label"]
        assert "correct, by probability" in pictures[2]["aria-label"]
        assert all(
            set(picture) == {"viewbox", "role", "aria-label"} for picture in pictures
        )  # as wide as the page
        text = (tmp_path / "a.html").read_text()
        assert "currentColor" in text
        assert "#010203" not in text

    def test_ids_stand_once_and_are_found(self, tmp_path):
        found = page(WHOLE, tmp_path)
        ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
        text = (tmp_path / "a.html").read_text()
        assert len(ids) == len(set(ids)) > 10
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', text)) <= set(ids)

    def test_what_is_drawn(self, tmp_path, monkeypatch):
        from matplotlib.figure import Figure

        drawn, save = [], Figure.savefig
        monkeypatch.setattr(
            Figure, "savefig", lambda figure, *a, **o: drawn.append(figure) or save(figure, *a, **o)
        )
        page(WHOLE, tmp_path)
        (bands,), (bars,), (dots,) = (figure.axes for figure in drawn)
        assert [label.get_text() for label in bands.get_xticklabels()] == ["P@1", "P@3"]
        (marks, _, (lines,)) = bands.containers[0]
        assert marks.get_ydata().tolist() == pytest.approx([81.234, 50])
        assert [[y for _, y in ends] for ends in lines.get_segments()] == [
            pytest.approx([78, 85]),
            pytest.approx([45, 55]),
        ]
        assert [patch.get_height() for patch in bars.patches] == pytest.approx([25, 90, 50, 95])
        assert [label.get_text() for label in bars.get_xticklabels()] == ["1–5", ">5"]
        assert [label.get_text() for label in bars.get_legend().get_texts()] == ["R@1", "R@3"]
        assert dots.lines[1].get_xydata().ravel().tolist() == pytest.approx(
            [15, 25, 54, 55, 95, 85]
        )
        sizes = dots.collections[0].get_sizes()
        assert list(sizes) == sorted(sizes, reverse=True)

    def test_edges(self, tmp_path):
        empty = FrequencyTable(1, (1,), (a_bin(0, None, 0, 0, (0,), (0.0,), (None,)),))
        one = (ReliabilityBin(0.0, 0.1, 1, 0.0, 0.0),)
        assert len(page(Measured(EVALUATION, empty, one), tmp_path).named("svg")) == 3


def test_calibration_error_is_weighted_by_size():
    assert calibration_error(BINS) == pytest.approx((3000 * 0.1 + 1234 * 0.01 + 766 * 0.1) / 5000)
    assert calibration_error(BINS[:1]) == pytest.approx(0.1)


def test_words_are_about_what_one_would_act_on():
    first, second = reliability_in_words(BINS)
    assert first == "Of the 1,234 suggestions with a probability of 0.5–0.6, 55 % were correct."
    assert second == "Mean gap between probability and share correct: 7.8 percentage points."
    assert reliability_in_words(BINS[:1])[0].startswith(
        "Of the 3,000 suggestions with a probability of 0.1–0.2, 25 %"
    )


def test_rows_are_for_people():
    assert reliability_rows(BINS[1:2]) == [["0.5–0.6", "1,234", "54.0 %", "55.0 %"]]
