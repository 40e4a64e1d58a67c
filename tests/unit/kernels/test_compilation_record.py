"""The record of what a machine has compiled: one version of the kernels, and never in the way of a
run.
"""

from __future__ import annotations

import pytest

from longtail.kernels import compilation
from longtail.kernels.compilation import CompilationRecord


@pytest.fixture
def record(tmp_path):
    return CompilationRecord(tmp_path / "cache", "numba 1")


def test_nothing_is_known_at_first(record):
    assert not record.announced()
    assert record.groups() == frozenset()


def test_an_announcement_alone(record):
    record.add()
    assert record.announced()
    assert record.groups() == frozenset()


def test_groups_come_together(record, tmp_path):
    record.add("text", "tree")
    record.add("forest", "text")
    again = CompilationRecord(tmp_path / "cache", "numba 1")
    assert again.announced()
    assert again.groups() == {"text", "tree", "forest"}
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["longtail-compiled.json"]


def test_another_compiler_begins_anew(record, tmp_path):
    record.add("text")
    other = CompilationRecord(tmp_path / "cache", "numba 2")
    assert not other.announced()
    other.add("tree")
    assert other.groups() == {"tree"}
    assert not record.announced()


def test_other_sources_begin_anew(record, monkeypatch, tmp_path):
    record.add("text")
    monkeypatch.setattr(compilation, "_digest", lambda: "of other sources")
    assert not CompilationRecord(tmp_path / "cache", "numba 1").announced()


@pytest.mark.parametrize("content", ["", "[]", "{}", "not JSON", '{"version": 1}', "\udcff"])
def test_a_damaged_record_is_empty_and_written_anew(record, tmp_path, content):
    (tmp_path / "cache").mkdir()
    file = tmp_path / "cache" / "longtail-compiled.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert not record.announced()
    record.add("text")
    assert record.groups() == {"text"}


@pytest.mark.parametrize("groups", [None, "text", [1], {"text": 1}])
def test_groups_that_are_no_names(record, tmp_path, groups):
    record.add("text")
    file = tmp_path / "cache" / "longtail-compiled.json"
    content = compilation.json.loads(file.read_text("utf-8"))
    file.write_text(compilation.json.dumps(content | {"groups": groups}), "utf-8")
    assert record.groups() == frozenset()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    record = CompilationRecord(tmp_path / "file", "numba 1")
    record.add("text")
    assert not record.announced()


def test_no_folder():
    record = CompilationRecord(None, "numba 1")
    record.add("text")
    assert not record.announced()
    assert record.groups() == frozenset()
