"""What a person sees: tables, the frequency plot, and progress."""

from __future__ import annotations

import io
import json
import logging
import sys

import msgspec
import pytest

from longtail import progress, terminal
from longtail.data.description import Description, Finding
from longtail.evaluation import Measured
from longtail.linear.explanation import Contribution, Explanation, Step
from longtail.metrics import Evaluation, FrequencyBin, FrequencyTable
from longtail.search.calibration import ReliabilityBin
from longtail.terminal import (
    BarReporter,
    LineReporter,
    frequency_plot,
    print_description,
    print_explanation,
    print_json,
    print_measured,
    print_table,
)


@pytest.fixture(autouse=True)
def no_traces():
    """Leave the process's reporter and logger as they were."""
    log, before = logging.getLogger("longtail"), progress._reporter
    level = log.level
    yield
    progress.report_to(before)
    log.setLevel(level)


class Clock:
    """Stands in for time.monotonic."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(terminal.time, "monotonic", clock)
    monkeypatch.setattr(terminal, "peak_memory_mb", lambda: 1234.5)
    return clock


class TestTable:
    def test_columns_are_as_wide_as_they_need(self, capsys):
        print_table(["a", "state"], [["long name", "ok"], ["b", "absent"]])
        assert capsys.readouterr().out == "a          state\nlong name  ok\nb          absent\n"

    def test_heads_may_be_wider(self, capsys):
        print_table(["method", "x"], [["a", "1"]])
        assert capsys.readouterr().out == "method  x\na       1\n"

    def test_no_spaces_at_the_end(self, capsys):
        print_table(["a", "b", "c"], [["1", "", ""], ["22", "333", ""]])
        assert capsys.readouterr().out.splitlines() == ["a   b    c", "1", "22  333"]

    def test_without_rows(self, capsys):
        print_table(["a", "b"], [])
        assert capsys.readouterr().out == "a  b\n"

    def test_a_short_row_is_a_bug(self):
        with pytest.raises(ValueError, match="shorter"):
            print_table(["a", "b"], [["1"]])


def test_json_is_one_line(capsys):
    print_json([Finding("note", "größer\nthan", 2)])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == [{"level": "note", "what": "größer\nthan", "count": 2, "examples": []}]


class TestFrequencyPlot:
    def test_nothing(self):
        assert frequency_plot([]) == ""

    def test_one_label(self):
        assert frequency_plot([(1, 7)], width=10).splitlines() == [
            "label rank  documents (log scale)",
            f"         1  {'█' * 10} 7",
        ]

    def test_bars_are_logarithms(self):
        bars = frequency_plot([(1, 255), (2, 15), (1500, 3)], width=16).splitlines()[1:]
        assert bars == [f"         1  {'█' * 16} 255", f"         2  {'█' * 8} 15", f"     1,500  {'█' * 4} 3"]

    def test_the_smallest_bar_can_be_seen(self):
        assert "█ 1" in frequency_plot([(1, 10**9), (2, 1)], width=8).splitlines()[2]

    @pytest.mark.parametrize("length", [1, 2, 11, 12, 13, 24, 25, 50])
    def test_few_rows_from_the_first_rank_to_the_last(self, length):
        curve = [(rank, 2000 - rank) for rank in range(1, length + 1)]
        bars = frequency_plot(curve, rows=12).splitlines()[1:]
        ranks = [int(bar.split()[0]) for bar in bars]
        assert (ranks[0], ranks[-1]) == (1, length)
        assert ranks == sorted(set(ranks))
        assert len(bars) <= 12
        assert length > 12 or len(bars) == length

    def test_ends_with_an_empty_line(self):
        assert frequency_plot([(1, 1)]).endswith("1\n")


class TestDescription:
    DESCRIPTION = Description(
        documents=12345,
        labels=2000,
        labels_used=1900,
        pairs=50000,
        labels_per_document=4.05,
        documents_per_label=26.32,
        median_documents_per_label=3.5,
        most_documents_per_label=900,
        share_of_labels_with_1=0.25,
        share_of_labels_with_at_most_5=0.5,
        share_of_pairs_in_top_1_percent=0.125,
        words_per_document=30.25,
        memory_mb=1234.56,
        frequency_curve=[(1, 900), (1900, 1)],
    )

    def test_lines(self, capsys):
        findings = [Finding("error", "of these", 1), Finding("warning", "of those", 1234, ["a", "b"])]
        print_description(self.DESCRIPTION, findings)
        assert capsys.readouterr().out.splitlines() == [
            "documents  12,345, 30.2 words each",
            "labels     2,000, 1,900 of them used",
            "pairs      50,000: 4.05 labels a document, 26.32 documents a label (median 3.5)",
            "tail       25.0 % of labels have 1 document, 50.0 % at most 5; the top 1 % hold 12.5 % of pairs",
            "memory     1,234.6 MB",
            "",
            "label rank  documents (log scale)",
            f"         1  {'█' * 48} 900",
            f"     1,900  {'█' * 5} 1",
            "",
            "error    1 of these",
            "warning  1,234 of those: a, b",
        ]

    def test_without_texts(self, capsys):
        print_description(msgspec.structs.replace(self.DESCRIPTION, words_per_document=None), [])
        assert capsys.readouterr().out.startswith("documents  12,345\n")


class TestMeasured:
    EVALUATION = Evaluation(
        n_documents=20, n_without_labels=0, n_test_labels=5, ks=(1,), a=None, b=None, metrics={"P@1": 0.5}, hits=(10,)
    )
    TABLE = FrequencyTable(
        20,
        (1,),
        (FrequencyBin(low=1, high=None, n_labels=5, n_positives=40, hits=(10,), precision=(0.5,), recall=(0.25,)),),
    )
    BINS = (ReliabilityBin(0.1, 0.2, 6000, 0.15, 0.25), ReliabilityBin(0.5, 0.6, 1234, 0.54, 0.5512))

    def test_all_there_is(self, capsys):
        print_measured(Measured(self.EVALUATION, self.TABLE, self.BINS))
        assert capsys.readouterr().out.splitlines() == [
            "      @1",
            "P  50.00",
            "percent over 20 documents with 5 labels",
            "",
            "in train  labels  positives    P@1    R@1",
            "      >0       5         40  50.00  25.00",
            "",
            "probability  suggestions    mean   right",
            "    0.1–0.2        6,000  15.0 %  25.0 %",
            "    0.5–0.6        1,234  54.0 %  55.1 %",
            "Of the 1,234 suggestions with a probability of 0.5–0.6, 55 % were right.",
            "Mean gap between probability and share right: 8.5 percentage points.",
        ]

    def test_metrics_alone(self, capsys):
        print_measured(Measured(self.EVALUATION))
        assert capsys.readouterr().out.splitlines() == [
            "      @1",
            "P  50.00",
            "percent over 20 documents with 5 labels",
        ]


class TestExplanation:
    WORDS = (
        Contribution("sound", 0.5, 1.0, 0.5),
        Contribution("cut", 0.5, -0.5, -0.25),
        Contribution("a", 1, 0.1, 0.1),
    )
    STEPS = (
        Step(0, 0, "Audio, Video, Text … (60 labels)", 1.05, 1.0, 0.7, 0.0, WORDS),
        Step(0, 1, "Audio", 0.45, 0.8, 0.0, 0.2, WORDS[:2]),
    )
    EXPLANATION = Explanation("use::audio", "Audio", 0.8, 0.61234, STEPS)

    def test_lines(self, capsys):
        print_explanation(self.EXPLANATION, 2)
        assert capsys.readouterr().out.splitlines() == [
            "Audio (use::audio): path score 0.800, probability 0.612",
            "",
            "level 1 of 2: Audio, Video, Text … (60 labels)",
            "  score 1.000, margin +1.050 = words +0.350, bias +0.700",
            f"  +0.500  {'█' * 24}  sound",
            f"  −0.250  {'░' * 12}{' ' * 12}  cut",
            f"  +0.100  {' ' * 24}  (1 other words)",
            "",
            "level 2 of 2: Audio",
            "  score 0.800, margin +0.450 = words +0.250, bias +0.000, dense +0.200",
            f"  +0.500  {'█' * 24}  sound",
            f"  −0.250  {'░' * 12}{' ' * 12}  cut",
            "",
            "over all steps: sound +1.000  cut −0.500",
        ]

    def test_several_trees_and_no_calibration(self, capsys):
        steps = (*self.STEPS, msgspec.structs.replace(self.STEPS[1], tree=1, level=0))
        print_explanation(Explanation("a", "a", 0.5, None, steps), 1)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "a: path score 0.500, not calibrated"
        assert [line for line in lines if line.startswith("tree")] == [
            "tree 1, level 1 of 2: Audio, Video, Text … (60 labels)",
            "tree 1, level 2 of 2: Audio",
            "tree 2, level 1 of 1: Audio",
        ]

    def test_nothing_acts_on_a_terminal_and_lines_are_not_too_long(self, capsys):
        evil = "\x1b[31mred\n" + "x" * 200
        words = (Contribution(evil, 1.0, 1.0, 1.0), Contribution("w" * 99, 1.0, 1e-9, 1e-9))
        step = Step(0, 0, evil, 1.0, 1.0, 0.0, 0.0, words)
        print_explanation(Explanation(evil, evil, 1.0, 0.5, (step,)), 8)
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\\x1b[31mred\\nxxx" in out
        assert max(map(len, out.splitlines())) == 100
        assert out.splitlines()[0].endswith("x…: path score 1.000, probability 0.500")
        assert "  +0.000  █  " in out.replace(" " * 23, "")  # the smallest bar can be seen

    def test_no_word_has_a_weight(self, capsys):
        step = Step(0, 0, "a", -1.0, 0.1, -1.0, 0.0, ())
        print_explanation(Explanation("a", "a", 0.1, 0.0, (step,)), 8)
        assert capsys.readouterr().out.splitlines()[2:] == [
            "level 1 of 1: a",
            "  score 0.100, margin −1.000 = words +0.000, bias −1.000",
            "",
            "over all steps: no word of the text has a weight",
        ]


class TestLineReporter:
    def test_rate_and_time_left(self, clock):
        reporter = LineReporter()
        reporter.start("reading a.jsonl", 4000, "B")
        clock.now += 10
        reporter.advance(600)
        reporter.advance(400)
        assert reporter.line() == "reading a.jsonl: 1,000 B, 25%, 30 s left, 100 B/s, 1,234 MB"

    def test_unknown_total(self, clock):
        reporter = LineReporter()
        reporter.start("reading -", None, "B")
        clock.now += 2
        reporter.advance(3000)
        assert reporter.line() == "reading -: 3,000 B, 1,500 B/s, 1,234 MB"

    @pytest.mark.parametrize("total", [0, 100])
    def test_nothing_done_yet(self, clock, total):
        reporter = LineReporter()
        reporter.start("reading", total, "B")
        assert reporter.line() == "reading: 0 B, 0 B/s, 1,234 MB"

    @pytest.mark.parametrize(
        ("units", "unit", "said"),
        [
            (999_999, "B", "999,999 B"),
            (1_000_000, "B", "1.0 MB"),
            (2_345_678_901, "B", "2,345.7 MB"),
            (2e6, "x", "2,000,000 x"),
        ],
    )
    def test_bytes_are_said_in_megabytes(self, units, unit, said):
        assert terminal._amount(units, unit) == said

    def test_one_line_every_30_s(self, clock, caplog):
        caplog.set_level(logging.INFO, "longtail")
        reporter = LineReporter()
        reporter.start("fitting", 100, "nodes")
        for seconds in (1, 28.9, 0.1, 1, 28.9, 0.2):  # at 30.0 and at 60.1 s
            clock.now += seconds
            reporter.advance(5)
        assert [record.getMessage().split(" MB")[0] for record in caplog.records] == [
            "fitting: 15 nodes, 15%, 170 s left, 0 nodes/s, 1,234",
            "fitting: 30 nodes, 30%, 140 s left, 0 nodes/s, 1,234",
        ]

    def test_stages_within_stages(self, clock):
        reporter = LineReporter()
        reporter.start("outer", 10, "levels")
        clock.now += 5
        reporter.advance(1)
        reporter.start("inner", 100, "nodes")
        clock.now += 5
        reporter.advance(50)
        assert reporter.line().startswith("inner: 50 nodes, 50%, 5 s left, 10 nodes/s")
        reporter.finish()
        assert reporter.line().startswith("outer: 1 levels, 10%, 90 s left")

    def test_advance_outside_a_stage(self):
        LineReporter().advance(5)


class TestBarReporter:
    @pytest.fixture
    def screen(self, monkeypatch):
        from rich.console import Console

        screen = io.StringIO()
        console = Console(file=screen, force_terminal=True, width=100, color_system=None)
        monkeypatch.setattr(terminal, "_stderr", lambda: console)
        return screen

    def test_draws_and_takes_away(self, screen, clock):
        reporter = BarReporter()
        reporter.start("reading books", 200, "B")
        reporter.advance(50)
        reporter.start("inner", 4, "x")
        reporter.advance(1)
        reporter.finish()
        reporter.advance(100)
        reporter._bars.refresh()
        drawn = screen.getvalue()
        assert "reading books" in drawn
        assert " 75 %" in drawn
        assert "1,234 MB" in drawn
        reporter.finish()
        assert reporter._bars.finished
        assert not reporter._bars.live.is_started
        assert reporter._bars.tasks == []

    def test_can_start_again(self, screen, clock):
        reporter = BarReporter()
        for name in ("first", "second"):
            reporter.start(name, None, "B")
            reporter.advance(1)
            reporter._bars.refresh()
            reporter.finish()
        assert "first" in screen.getvalue()
        assert "second" in screen.getvalue()

    def test_advance_outside_a_stage(self, screen):
        BarReporter().advance(5)
        assert screen.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestShowProgress:
    def test_lines_where_there_is_no_terminal(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        terminal.show_progress()
        assert type(progress._reporter) is LineReporter
        assert logging.getLogger("longtail").level == logging.INFO

    def test_bars_on_a_terminal(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", Terminal())
        terminal.show_progress()
        assert type(progress._reporter) is BarReporter

    def test_quiet(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", Terminal())
        progress.report_to(None)
        terminal.show_progress(quiet=True)
        assert progress._reporter is None
        assert logging.getLogger("longtail").level == logging.WARNING

    def test_other_libraries_stay_silent(self, monkeypatch):
        stderr = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setattr(logging.root, "handlers", [])  # those of pytest
        monkeypatch.setattr(logging.root, "level", logging.WARNING)
        terminal.show_progress()
        logging.getLogger("matplotlib.font_manager").info("generated new fontManager")
        logging.getLogger("longtail").info("reading")
        logging.getLogger("longtail.data").warning("3 bad records left out")
        assert stderr.getvalue() == "reading\n3 bad records left out\n"


def test_peak_memory_is_that_of_this_process():
    assert 10 < terminal.peak_memory_mb() < 100_000
