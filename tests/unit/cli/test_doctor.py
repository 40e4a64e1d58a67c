"""The examination of this machine: what is fine, what is absent, what is bad and how to mend it."""

from __future__ import annotations

import os
import platform
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import longtail
from longtail.cli import doctor
from longtail.cli.doctor import examine

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))[
    "project"
]


def required() -> list[str]:
    """The packages that the project needs with this Python."""
    wanted = map(Requirement, PROJECT["dependencies"])
    return [
        package.name for package in wanted if package.marker is None or package.marker.evaluate()
    ]


def found() -> dict[str, doctor.Symptom]:
    return {symptom.what: symptom for symptom in examine()}


def test_looks_at_everything():
    first = ["neural", "minilm", "server", "ray", "parquet", "skos", "tune", "faiss"]
    extras = [
        f"extra {extra}"
        for extra in [*first, "sklearn", "onnx", "mlflow", "wandb", "tensorboard", "annif"]
    ]
    others = ["cores", "memory", "kernel cache", *extras, "GPU", "Triton"]
    assert [symptom.what for symptom in examine()] == ["longtail", *required(), *others]


def test_this_machine_is_well():
    symptoms = found()
    assert all(symptom.state in ("ok", "absent") for symptom in symptoms.values())
    assert all(symptom.detail and "\n" not in symptom.detail for symptom in symptoms.values())
    assert symptoms["longtail"].detail.startswith(
        f"{longtail.__version__} on Python {platform.python_version()}, "
    )
    assert symptoms["numpy"] == doctor.Symptom("numpy", "ok", metadata.version("numpy"))
    assert 1 <= int(symptoms["cores"].detail) <= (os.cpu_count() or 1)


def test_core_packages_are_the_required_ones():
    assert list(doctor._CORE) == required()
    assert len(required()) >= 6


def test_extras_are_told_by_a_package_of_theirs():
    offered = PROJECT["optional-dependencies"]
    assert set(doctor._EXTRAS) == set(offered) - {"all", "dev", "docs"}
    for extra, package in doctor._EXTRAS.items():
        assert package in [Requirement(line).name for line in offered[extra]]


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
    assert symptoms["extra neural"] == doctor.Symptom(
        "extra neural", "absent", "pip install 'longtail[neural]'"
    )
    assert symptoms["Triton"].state == "absent"


class TestKernelCache:
    def test_beside_the_kernels(self, monkeypatch, tmp_path):
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        assert Path(doctor.pool.__file__).parent == Path(longtail.__file__).parent / "kernels"
        (tmp_path / "kernels").mkdir()  # the package folder may be read-only
        monkeypatch.setattr(doctor.pool, "__file__", str(tmp_path / "kernels" / "pool.py"))
        assert found()["kernel cache"] == doctor.Symptom(
            "kernel cache", "ok", str(tmp_path / "kernels")
        )

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
        for path in (file, file / "below"):
            monkeypatch.setenv("NUMBA_CACHE_DIR", str(path))
            symptom = found()["kernel cache"]
            assert symptom.state == "bad"
            assert (
                symptom.detail == f"{path} cannot be written; set NUMBA_CACHE_DIR to another folder"
            )

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


class TestGpu:
    H200 = (
        '{"cuda": "12.8", "devices": [["NVIDIA H200", 150000000000], ["NVIDIA A2", 16000000000]]}'
    )

    @pytest.fixture
    def gpu(self, monkeypatch):
        """Return the symptoms, given a driver, the installed packages, and what torch says or how
        it fails.
        """

        def of(
            *installed: str, driver: bool = True, out: str = "", err: str = ""
        ) -> dict[str, doctor.Symptom]:
            doctor._torch.cache_clear()
            monkeypatch.setattr(
                doctor.shutil, "which", lambda name: f"/usr/bin/{name}" if driver else None
            )
            monkeypatch.setattr(doctor.metadata, "version", _only(*installed))
            done = doctor.subprocess.CompletedProcess([], int(not out), out, err)
            monkeypatch.setattr(doctor.subprocess, "run", lambda *arguments, **options: done)
            return found()

        yield of
        doctor._torch.cache_clear()

    def test_seen_by_torch(self, gpu):
        symptoms = gpu("torch", "triton", out=f"a greeting\n{self.H200}\n")
        message = "NVIDIA H200 with 140 GiB, NVIDIA A2 with 15 GiB; torch uses it with CUDA 12.8"
        assert symptoms["GPU"] == doctor.Symptom("GPU", "ok", message)
        assert symptoms["extra neural"] == doctor.Symptom("extra neural", "ok", "torch 9.9")
        assert symptoms["Triton"] == doctor.Symptom("Triton", "ok", "9.9")
        assert gpu("torch", driver=False, out=self.H200)["GPU"].state == "ok"

    @pytest.mark.parametrize(
        ("cuda", "built"), [("null", "without CUDA"), ('"12.8"', "for CUDA 12.8")]
    )
    def test_not_seen_by_torch(self, gpu, cuda, built):
        symptom = gpu("torch", out=f'{{"cuda": {cuda}, "devices": []}}')["GPU"]
        assert symptom.state == "absent"
        assert (
            f"torch 9.9, built {built}, sees no device; install a build of torch" in symptom.detail
        )

    @pytest.mark.parametrize("installed", [(), ("torch",)])
    def test_without_a_torch_that_works(self, gpu, installed):
        message = "NVIDIA driver present; install torch to check the devices"
        assert gpu(*installed)["GPU"] == doctor.Symptom("GPU", "ok", message)

    def test_none(self, gpu):
        for installed in ((), ("torch",)):
            symptom = gpu(*installed, driver=False, out='{"cuda": null, "devices": []}')["GPU"]
            assert symptom == doctor.Symptom(
                "GPU", "absent", "no NVIDIA driver; networks run on the CPU"
            )

    @pytest.mark.parametrize(
        ("err", "told"),
        [("Traceback\nOSError: libgomp.so\n", "OSError: libgomp.so"), ("", "exit code 1")],
    )
    def test_broken_torch(self, gpu, err, told):
        symptoms = gpu("torch", err=err)
        told = f"torch 9.9 cannot be used: {told}; reinstall it"
        assert symptoms["extra neural"] == doctor.Symptom("extra neural", "bad", told)

    def test_torch_that_does_not_end(self, gpu, monkeypatch):
        def wait(command, timeout, **options):
            raise doctor.subprocess.TimeoutExpired(command, timeout)

        gpu("torch", out=self.H200)
        doctor._torch.cache_clear()
        monkeypatch.setattr(doctor.subprocess, "run", wait)
        assert "cannot be used: TimeoutExpired" in found()["extra neural"].detail

    def test_the_torch_of_this_machine(self):
        torch = pytest.importorskip("torch")
        message = doctor._torch()
        assert (message.error, message.cuda) == ("", torch.version.cuda)
        assert [name for name, _ in message.devices] == [
            torch.cuda.get_device_name(device) for device in range(torch.cuda.device_count())
        ]
