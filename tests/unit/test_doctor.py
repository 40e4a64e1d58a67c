"""The examination of this machine: what is fine, what is absent, what is bad and how to mend it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import pytest

import longtail
from longtail import doctor
from longtail.doctor import examine


def found() -> dict[str, doctor.Symptom]:
    return {symptom.what: symptom for symptom in examine()}


def test_looks_at_everything():
    extras = [f"extra {extra}" for extra in ("neural", "minilm", "server", "ray", "parquet", "skos", "tune")]
    core = ["numpy", "scipy", "numba", "msgspec", "matplotlib"]
    assert [s.what for s in examine()] == ["longtail", *core, "cores", "memory", "kernel cache", *extras, "GPU"]


def test_this_machine_is_well():
    symptoms = found()
    assert all(symptom.state in ("ok", "absent") for symptom in symptoms.values())
    assert all(symptom.detail and "\n" not in symptom.detail for symptom in symptoms.values())
    assert symptoms["longtail"].detail.startswith(f"{longtail.__version__} on Python {platform.python_version()}, ")
    assert symptoms["numpy"] == doctor.Symptom("numpy", "ok", metadata.version("numpy"))
    assert 1 <= int(symptoms["cores"].detail) <= (os.cpu_count() or 1)


def test_core_packages_are_the_required_ones():
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    text = pyproject.read_text("utf-8")
    required = text.partition("\ndependencies = [")[2].partition("]")[0]
    assert all(f'"{package}>=' in required for package in doctor._CORE)
    offered = text.partition("[project.optional-dependencies]")[2]
    for extra, package in doctor._EXTRAS.items():
        line = next(line for line in offered.splitlines() if line.startswith(f"{extra} = "))
        assert f'"{package}' in line


def _only(*installed: str):
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return "9.9"

    return version


def test_missing_core_package_is_bad(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", _only("numpy"))
    symptoms = found()
    assert symptoms["numpy"].state == "ok"
    assert symptoms["scipy"].state == "bad"
    assert "pip install" in symptoms["scipy"].detail


def test_missing_extra_is_absent_and_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", _only("pyarrow"))
    symptoms = found()
    assert symptoms["extra parquet"] == doctor.Symptom("extra parquet", "ok", "pyarrow 9.9")
    assert symptoms["extra neural"] == doctor.Symptom("extra neural", "absent", "pip install 'longtail[neural]'")


class TestKernelCache:
    def test_beside_the_kernels(self, monkeypatch):
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        symptom = found()["kernel cache"]
        assert symptom.state == "ok"
        assert Path(symptom.detail) == Path(longtail.__file__).parent / "kernels"

    def test_given(self, monkeypatch, tmp_path):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
        assert found()["kernel cache"] == doctor.Symptom("kernel cache", "ok", str(tmp_path))

    def test_one_that_numba_will_make_is_fine_and_is_not_made(self, monkeypatch, tmp_path):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "new" / "cache"))
        assert found()["kernel cache"].state == "ok"
        assert list(tmp_path.iterdir()) == []

    def test_relative_to_the_current_folder(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("NUMBA_CACHE_DIR", "cache")
        assert found()["kernel cache"] == doctor.Symptom("kernel cache", "ok", "cache")
        assert list(tmp_path.iterdir()) == []

    def test_not_a_folder(self, monkeypatch, tmp_path):
        file = tmp_path / "file"
        file.write_text("")
        for place in (file, file / "below"):
            monkeypatch.setenv("NUMBA_CACHE_DIR", str(place))
            symptom = found()["kernel cache"]
            assert symptom.state == "bad"
            assert symptom.detail == f"{place} cannot be written; set NUMBA_CACHE_DIR to another folder"

    @pytest.mark.parametrize(("given", "state"), [("cache", "bad"), (None, "ok")])
    def test_cannot_be_written(self, monkeypatch, given, state):
        def refuse(**options):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        if given:
            monkeypatch.setenv("NUMBA_CACHE_DIR", given)
        assert found()["kernel cache"].state == state


def test_memory(monkeypatch):
    sizes = {"SC_PHYS_PAGES": 3 * 2**18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert found()["memory"] == doctor.Symptom("memory", "ok", "3.0 GiB")


@pytest.mark.parametrize(("driver", "state"), [("/usr/bin/nvidia-smi", "ok"), (None, "absent")])
def test_gpu(monkeypatch, driver, state):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: driver)
    assert found()["GPU"].state == state
