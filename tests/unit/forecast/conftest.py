"""Forecasts of a machine that has compiled all kernels, unless a test says otherwise."""

from __future__ import annotations

import pytest

from longtail.forecast import compilation
from longtail.kernels.compilation import CompilationRecord


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The record of a machine that has compiled nothing."""
    record = CompilationRecord(tmp_path / "cache", "numba")
    monkeypatch.setattr(compilation, "compilation_record", lambda: record)
    return record


@pytest.fixture(autouse=True)
def compiled(record):
    """Note every group of kernels as compiled."""
    dense = [f"{group} with dense features" for group in compilation._COSTS]
    record.add(*compilation._COSTS, *dense)
