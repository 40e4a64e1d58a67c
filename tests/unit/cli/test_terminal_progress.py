"""How progress is shown: lines, bars, and which of them."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from longtail import reporting
from longtail.cli import terminal
from longtail.cli.terminal import BarReporter, LineReporter


@pytest.fixture(autouse=True)
def no_traces():
    """Leave the process's reporter and logger as they were."""
    log = logging.getLogger("longtail")
    before = reporting._display
    level = log.level
    yield
    reporting.show_on(before)
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
        assert type(reporting._display) is LineReporter
        assert logging.getLogger("longtail").level == logging.INFO

    def test_bars_on_a_terminal(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", Terminal())
        terminal.show_progress()
        assert type(reporting._display) is BarReporter

    def test_quiet(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", Terminal())
        reporting.show_on(None)
        terminal.show_progress(quiet=True)
        assert reporting._display is None
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


class TestCompilationBar:
    @pytest.mark.parametrize("inside", [False, True])
    def test_a_kernel_is_shown_while_it_is_compiled(self, inside):
        bars = BarReporter()
        bar = bars.compilation()
        if inside:
            bars.start("training", 10, "nodes")
        bar.start("train_spans")
        shown = [task.description for task in bars._bars.tasks]
        assert shown == [*(["training"] if inside else []), "compiling train_spans"]
        assert bars._bars.live.is_started
        bar.step()
        bar.finish()
        assert [task.description for task in bars._bars.tasks] == shown[:-1]
        assert bars._bars.live.is_started == inside
        if inside:
            bars.finish()
        assert not bars._bars.live.is_started
