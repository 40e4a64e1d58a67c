"""The forecast of compilations: what a method calls, and what this machine has compiled already."""

from __future__ import annotations

import pytest

import longtail as lt
from longtail.config import Config
from longtail.forecast import compilation, compilation_kernels, forecast, note_compiled
from longtail.forecast.compilation import compilation_seconds, kernel_groups
from longtail.kernels.compilation import CompilationRecord
from longtail.methods import METHODS, configure


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine that has compiled nothing."""
    record = CompilationRecord(tmp_path / "bare", "numba")
    monkeypatch.setattr(compilation, "compilation_record", lambda: record)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_costs(bare, name):
    config = configure(name)
    assert compilation_seconds(config) > 5
    assert compilation_kernels(config) > 50
    note_compiled(config)
    assert compilation_seconds(config) == 0
    assert compilation_kernels(config) == 0


@pytest.mark.parametrize(
    ("name", "settings", "groups"),
    [
        ("xr-linear", {}, ["text", "tree", "squared-hinge", "search"]),
        ("xr-linear", {"ranker": {"loss": "logistic"}}, ["text", "tree", "logistic", "search"]),
        ("xr-linear", {"tree": {"kind": "random"}}, ["text", "squared-hinge", "search"]),
        (
            "xr-linear",
            {"gandalf": {"use": True}},
            ["text", "label graph", "tree", "squared-hinge", "search"],
        ),
        ("parabel", {}, ["text", "tree", "squared-hinge", "search", "several trees"]),
        ("dismec", {}, ["text", "newton", "search"]),
        ("proxml", {}, ["text", "proximal", "search"]),
        ("fastxml", {}, ["text", "forest"]),
        ("annexml", {}, ["text", "neighbours"]),
        ("extremetext", {}, ["text", "tree", "extremetext", "search with dense features"]),
        ("cascadexml", {"cascade": {"combine": "never"}}, ["text", "tree"]),
    ],
)
def test_groups_of_a_method(name, settings, groups):
    assert list(kernel_groups(configure(name, None, settings))) == groups


def test_dense_features_are_compiled_for_themselves(bare):
    note_compiled(Config())
    groups = kernel_groups(configure("xr-linear", None, {"features": "cat"}))
    assert groups == (
        "text",
        "tree",
        "squared-hinge with dense features",
        "search with dense features",
    )
    assert compilation_seconds(configure("xr-linear", None, {"features": "cat"})) > 0


def test_groups_of_another_method_are_not_compiled_again(bare):
    alone = compilation_seconds(configure("parabel"))
    note_compiled(Config())
    assert 0 < compilation_seconds(configure("parabel")) < alone / 5


def test_nothing_without_a_compiler(bare, monkeypatch):
    monkeypatch.setattr(compilation, "compiles", lambda: False)
    assert compilation_seconds(Config()) == 0


def test_the_forecast_of_a_run_has_it_once(bare):
    documents = lt.sample()[0]
    before = forecast(documents, Config())
    seconds = compilation_seconds(Config())
    note_compiled(Config())
    after = forecast(documents, Config())
    assert before.seconds == after.seconds
    low, high = before.compilation_seconds
    assert 0 < low < seconds < high
    assert "of it to compile kernels, once on this machine, " in str(before)
    assert after.compilation_seconds == (0, 0)
    assert "compile" not in str(after)
