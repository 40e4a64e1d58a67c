"""What most tests of the page do: write a text, and look at its labels."""

from __future__ import annotations

import pytest

__all__ = ["JSON", "WIND", "expect", "first", "names", "tag"]

expect = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: see `make browser-test`"
).expect
expect.set_options(timeout=10_000)

WIND = "Offshore turbines: a rotor and its blade, seen from a vineyard."
JSON = "application/json"


def names(page):
    return page.locator("#suggestions .name").all_text_contents()


def first(page):
    return page.locator("#suggestions .name").first


def tag(page, text, best):
    """Write a text and wait for its labels."""
    page.fill("#text", text)
    expect(first(page)).to_have_text(best)
