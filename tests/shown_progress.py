"""Records what a job reports of its progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from longtail import reporting


class _Recorder:
    def __init__(self) -> None:
        self.shown: list[object] = []

    def start(self, name: str, total: int | None, unit: str) -> None:
        self.shown.append((name, total, unit))

    def advance(self, amount: int) -> None:
        self.shown.append(amount)

    def finish(self) -> None:
        self.shown.append("end")


@contextmanager
def shown_progress() -> Iterator[list[object]]:
    """Give a list that grows: (name, total, unit) where a stage begins, amounts, and "end" where it
    ends.
    """
    recorder = _Recorder()
    reporting.show_on(recorder)
    try:
        yield recorder.shown
    finally:
        reporting.show_on(None)
