"""How progress is shown, on stderr with all messages: a bar on a terminal, else a line every 30 s."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from longtail.kernels.compilation import observe
from longtail.reporting import peak_memory_mb, show_on

__all__ = ["BarReporter", "CompilationBar", "LineReporter", "show_progress"]

# below «longtail», so that it is heard where stages are kept quiet
log = logging.getLogger("longtail.progress")

_LINE_SECONDS = 30


class LineReporter:
    """Progress where there is no terminal: one log line every 30 s."""

    def __init__(self) -> None:
        self._stages: list[tuple[str, int | None, str, float]] = []
        self._done: list[int] = []
        self._next = 0.0

    def start(self, name: str, total: int | None, unit: str) -> None:
        """Begin a stage."""
        self._stages.append((name, total, unit, time.monotonic()))
        self._done.append(0)
        self._next = time.monotonic() + _LINE_SECONDS

    def advance(self, amount: int) -> None:
        """Count, and say something if it is time."""
        if not self._stages:
            return
        self._done[-1] += amount
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_SECONDS
            log.info("%s", self.line())

    def finish(self) -> None:
        """End the innermost stage."""
        self._stages.pop()
        self._done.pop()

    def line(self) -> str:
        """Return name, share done, rate, time left and memory of the innermost stage."""
        name, total, unit, _ = self._stages[-1]
        done = self._done[-1]
        rate = self._rate()
        left = f", {done / total:.0%}, {(total - done) / rate:.0f} s left" if total and rate else ""
        return f"{name}: {_amount(done, unit)}{left}, {self.speed()}"

    def speed(self) -> str:
        """Return rate and memory of the innermost stage."""
        return f"{_amount(self._rate(), self._stages[-1][2])}/s, {peak_memory_mb():,.0f} MB"

    def _rate(self) -> float:
        """Return units a second."""
        return self._done[-1] / max(time.monotonic() - self._stages[-1][3], 1e-9)


def _amount(units: float, unit: str) -> str:
    """Return an amount as people read it; bytes in MB from a million on."""
    if unit == "B" and units >= 1e6:
        return f"{units / 1e6:,.1f} MB"
    return f"{units:,.0f} {unit}"


class BarReporter(LineReporter):
    """Progress on a terminal: one bar a stage, redrawn in place."""

    def __init__(self) -> None:
        super().__init__()
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
        )
        speed = TextColumn("{task.fields[speed]}")
        self._bars = Progress(
            *columns, TimeRemainingColumn(), speed, transient=True, console=_stderr()
        )
        self._tasks: list[Any] = []

    def start(self, name: str, total: int | None, unit: str) -> None:
        """Begin a stage with a bar of its own."""
        super().start(name, total, unit)
        if not self._tasks:
            self._bars.start()
        self._tasks.append(self._bars.add_task(name, total=total, speed=""))

    def advance(self, amount: int) -> None:
        """Move the innermost bar."""
        if self._tasks:
            self._done[-1] += amount
            self._bars.update(self._tasks[-1], completed=self._done[-1], speed=self.speed())

    def finish(self) -> None:
        """Take the innermost bar away."""
        super().finish()
        self._bars.remove_task(self._tasks.pop())
        if not self._tasks:
            self._bars.stop()

    def compilation(self) -> CompilationBar:
        """Return what shows compilations among these bars."""
        return CompilationBar(self._bars)


class CompilationBar:
    """Shows on a terminal that a kernel is compiled, below the bars of the stages."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None
        self._is_alone = False

    def start(self, kernel: str) -> None:
        """Show a bar without an end."""
        self._is_alone = not self._bars.live.is_started
        if self._is_alone:
            self._bars.start()
        self._task = self._bars.add_task(f"compiling {kernel}", total=None, speed="")

    def step(self) -> None:
        """Show nothing new: how many kernels follow is not known."""

    def finish(self) -> None:
        """Take the bar away."""
        self._bars.remove_task(self._task)
        if self._is_alone:
            self._bars.stop()


def _stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def show_progress(quiet: bool = False) -> None:
    """Send messages to stderr, and progress to a bar on a terminal or to a line every 30 s."""
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    # not matplotlib's chatter
    logging.getLogger("longtail").setLevel(logging.WARNING if quiet else logging.INFO)
    if not quiet:
        if sys.stderr.isatty():
            _show_bars()
        else:
            show_on(LineReporter())


def _show_bars() -> None:
    reporter = BarReporter()
    show_on(reporter)
    observe(reporter.compilation())
