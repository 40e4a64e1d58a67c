"""Stages are told to whoever asked, and to nobody otherwise."""

from __future__ import annotations

import pytest

import longtail as lt
from longtail import reporting


class Noted:
    def __init__(self):
        self.calls = []

    def start(self, name, total, unit):
        self.calls.append(("start", name, total, unit))

    def advance(self, amount):
        self.calls.append(("advance", amount))

    def finish(self):
        self.calls.append(("finish",))


@pytest.fixture
def noted():
    reporter = Noted()
    reporting.show_on(reporter)
    yield reporter
    reporting.show_on(None)


def test_nothing_is_shown_by_itself(capsys, caplog):
    with reporting.stage("reading", 3, "B"):
        reporting.advance(3)
    assert (*capsys.readouterr(), caplog.text) == ("", "", "")


def test_a_stage_within_a_stage(noted):
    with reporting.stage("outer"):
        with reporting.stage("reading", total=10, unit="B"):
            reporting.advance(4)
        reporting.advance(1)
    assert noted.calls == [
        ("start", "outer", None, ""),
        ("start", "reading", 10, "B"),
        ("advance", 4),
        ("finish",),
        ("advance", 1),
        ("finish",),
    ]


def test_an_error_ends_the_stage_and_goes_on(noted):
    with pytest.raises(ValueError, match="bad"), reporting.stage("reading"):
        raise ValueError("bad")
    assert noted.calls[-1] == ("finish",)


def test_reporting_can_be_ended(noted):
    reporting.show_on(None)
    with reporting.stage("reading"):
        reporting.advance(1)
    assert noted.calls == []


@pytest.mark.parametrize("method", ["xr-linear", "pfastrexml", "annexml"])
def test_predicting_tells_how_many_documents_are_done(noted, method):
    documents = lt.Dataset.of(["wind at sea", "sea birds", "birds of farms"], [["a"], ["b"], ["c"]])
    model = lt.Longtail(method, threads=2).fit(documents)
    noted.calls.clear()
    model.predict(["wind"] * 700)
    began = noted.calls.index(("start", "searching", 700, "documents"))
    assert sum(call[1] for call in noted.calls[began:] if call[0] == "advance") == 700


def test_a_whole_stage_hides_those_inside(noted):
    with reporting.whole_stage("outer", 5, "kernels") as advance:
        with reporting.stage("inner"):
            reporting.advance(1)
        advance(2)
    with reporting.stage("after"):
        pass
    outer = [("start", "outer", 5, "kernels"), ("advance", 2), ("finish",)]
    assert noted.calls == [*outer, ("start", "after", None, ""), ("finish",)]


def test_a_whole_stage_that_nobody_looks_at():
    with reporting.whole_stage("outer") as advance:
        advance(2)
