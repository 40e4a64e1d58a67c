"""Reports of work in progress: amounts done, stages of a run, and numbers of training steps.

Work reports without knowing who listens:

    with stage("reading", total=n_bytes, unit="B"):  # shown while it runs
        advance(4096)
    with logged_stage("tree") as note:               # logged, and recorded by the run's listeners
        note("8 → 64 labels")
    report("epoch", step, {"rate": 0.1})             # recorded by the run's listeners

The display of a process, a bar or lines in the log, is set by the command line with
:func:`show_on`. The listeners of a run, its run log and the loggers of ``--log-to``, are set with
:func:`listening`."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

__all__ = [
    "CompletedStage",
    "Display",
    "Listener",
    "advance",
    "listening",
    "logged_stage",
    "peak_memory_mb",
    "report",
    "report_settings",
    "show_on",
    "stage",
    "whole_stage",
]

log = logging.getLogger("longtail")


class Display(Protocol):
    """Shows progress; calls come from one thread."""

    def start(self, name: str, total: int | None, unit: str) -> None:
        """Begin a stage of ``total`` units (None: not known)."""

    def advance(self, amount: int) -> None:
        """Add ``amount`` units to the innermost stage."""

    def finish(self) -> None:
        """End the innermost stage, also after an error."""


class CompletedStage(NamedTuple):
    """A logged stage after its end."""

    name: str
    seconds: float
    memory_mb: float  # peak of the process until the end of the stage
    facts: str  # results, joined by semicolons


class Listener(Protocol):
    """Records a run."""

    def settings(self, values: Mapping[str, Any]) -> None:
        """Record the inputs of the run by dotted path."""

    def start_stage(self, name: str) -> None:
        """Enter a logged stage."""

    def end_stage(self, name: str) -> None:
        """Leave a logged stage, also after an error."""

    def complete_stage(self, stage: CompletedStage) -> None:
        """Record a stage that ended without an error."""

    def numbers(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Record values at a step."""


_display: Display | None = None
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("_listeners", default=())


def show_on(display: Display | None) -> None:
    """Show the progress of this process on ``display``; None shows nothing."""
    global _display
    _display = display


@contextmanager
def listening(*listeners: Listener) -> Iterator[None]:
    """Let ``listeners`` record the body, beside the ones that do so already."""
    token = _listeners.set((*_listeners.get(), *listeners))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def stage(name: str, total: int | None = None, unit: str = "") -> Iterator[None]:
    """Show the body as a stage of ``total`` units, counted by :func:`advance`."""
    if _display is not None:
        _display.start(name, total, unit)
    try:
        yield
    finally:
        if _display is not None:
            _display.finish()


@contextmanager
def whole_stage(
    name: str, total: int | None = None, unit: str = ""
) -> Iterator[Callable[[int], None]]:
    """Show the body as one stage without the stages inside it; yield the function that advances
    it.
    """
    global _display
    outer = _display
    with stage(name, total, unit):
        _display = None
        try:
            yield _ignore if outer is None else outer.advance
        finally:
            _display = outer


def _ignore(amount: int) -> None:
    """Advance nothing."""


def advance(amount: int) -> None:
    """Add ``amount`` units to the running stage."""
    if _display is not None:
        _display.advance(amount)


@contextmanager
def logged_stage(name: str) -> Iterator[Callable[[str], None]]:
    """Run the body as a stage of a training run; yield the function that notes a result.

    Its results, seconds and memory go to the log and to the listeners. It is not shown on the
    display, so that the body can log lines and show stages of its parts."""
    begin = time.perf_counter()
    facts: list[str] = []
    listeners = _listeners.get()
    for listener in listeners:
        listener.start_stage(name)
    try:
        yield facts.append
    finally:
        for listener in listeners:
            listener.end_stage(name)
    seconds = time.perf_counter() - begin
    completed = CompletedStage(name, seconds, peak_memory_mb(), "; ".join(facts))
    log.info("%s: %s (%.1f s)", name, completed.facts, seconds)
    for listener in listeners:
        listener.complete_stage(completed)


def report(event: str, step: int, values: Mapping[str, Any]) -> None:
    """Let the listeners record ``values``: numbers, texts, and mappings of these one level deep."""
    for listener in _listeners.get():
        listener.numbers(event, step, values)


def report_settings(values: Mapping[str, Any]) -> None:
    """Let the listeners record the inputs of a run, by dotted path."""
    for listener in _listeners.get():
        listener.settings(values)


def peak_memory_mb() -> float:
    """Return the largest resident memory of this process so far, in MB; 0 where the system does not
    report it.
    """
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak / 1e6
    return peak * 1024 / 1e6
