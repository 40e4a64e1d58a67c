"""What a job says of its progress, written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from longtail import progress


class _Reporter:
    def __init__(self) -> None:
        self.told: list[object] = []

    def start(self, name: str, total: int | None, unit: str) -> None:
        self.told.append((name, total, unit))

    def advance(self, amount: int) -> None:
        self.told.append(amount)

    def finish(self) -> None:
        self.told.append("end")


@contextmanager
def told_progress() -> Iterator[list[object]]:
    """Give a list that grows: (name, total, unit) where a stage begins, amounts, and "end" where it ends."""
    reporter = _Reporter()
    progress.report_to(reporter)
    try:
        yield reporter.told
    finally:
        progress.report_to(None)
