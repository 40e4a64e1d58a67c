"""Progress of long work, told from the inside, shown (or not) by whoever runs it.

Work says ``with stage("reading", total=bytes, unit="B"): … advance(n)``. The library shows nothing
by itself; the command line sets a :class:`Reporter` that draws a bar on a terminal or logs a line
every 30 s."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Reporter", "advance", "peak_memory_mb", "report_to", "stage", "whole_stage"]


class Reporter(Protocol):
    """What shows progress; calls come from one thread."""

    def start(self, name: str, total: int | None, unit: str) -> None:
        """Begin a stage of ``total`` units (None: not known)."""

    def advance(self, amount: int) -> None:
        """Note that ``amount`` more units of the innermost stage are done."""

    def finish(self) -> None:
        """End the innermost stage, also after an error."""


_reporter: Reporter | None = None


def report_to(reporter: Reporter | None) -> None:
    """Show progress of this process by ``reporter``; None shows nothing."""
    global _reporter
    _reporter = reporter


@contextmanager
def stage(name: str, total: int | None = None, unit: str = "") -> Iterator[None]:
    """Run the body as a named stage of ``total`` units."""
    if _reporter is not None:
        _reporter.start(name, total, unit)
    try:
        yield
    finally:
        if _reporter is not None:
            _reporter.finish()


@contextmanager
def whole_stage(
    name: str, total: int | None = None, unit: str = ""
) -> Iterator[Callable[[int], None]]:
    """Run the body as one stage that hides the stages inside; yield what notes that more units of
    it are done.
    """
    global _reporter
    outer = _reporter
    with stage(name, total, unit):
        _reporter = None
        try:
            yield _ignore if outer is None else outer.advance
        finally:
            _reporter = outer


def _ignore(amount: int) -> None:
    """Note nothing."""


def advance(amount: int) -> None:
    """Note that ``amount`` more units of the running stage are done."""
    if _reporter is not None:
        _reporter.advance(amount)


def peak_memory_mb() -> float:
    """Return the largest resident memory of this process so far, in MB; 0 where the system does not
    tell.
    """
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak / 1e6
    return peak * 1024 / 1e6
