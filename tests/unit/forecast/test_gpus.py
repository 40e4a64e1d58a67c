"""The GPU of this machine, as its driver tells of it."""

from __future__ import annotations

import subprocess

import pytest

from longtail.forecast import gpus
from longtail.forecast.gpus import Gpu, find_gpu, gpu_for, nominal_flops, parse_gpu

TWO = "NVIDIA H200, 143771 MiB\nTesla T4, 15360 MiB\n"


@pytest.fixture
def driver(monkeypatch):
    """Let nvidia-smi print a text, or fail with an error."""

    def says(output: str | Exception) -> None:
        def run(command, **options):
            assert options["timeout"] <= 10
            if isinstance(output, Exception):
                raise output
            return subprocess.CompletedProcess(command, 0, output)

        monkeypatch.setattr(gpus.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
        monkeypatch.setattr(gpus.subprocess, "run", run)

    monkeypatch.setattr(gpus, "version", lambda package: "2.9.0+cu128")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    find_gpu.cache_clear()
    yield says
    find_gpu.cache_clear()


def test_the_first_device_or_the_one_that_is_named(driver):
    driver(TWO)
    assert gpu_for("auto") == gpu_for("cuda") == Gpu("NVIDIA H200", 143771 << 20)
    assert gpu_for("cuda:1") == Gpu("Tesla T4", 15360 << 20)
    assert gpu_for("cuda:2") is None
    assert gpu_for("cpu") is None


def test_devices_that_are_visible(driver, monkeypatch):
    driver(TWO)
    for visible, name in (("1", "Tesla T4"), ("1,0", "Tesla T4"), ("GPU-8d3f", "NVIDIA H200")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpu_for("auto").name == name
    for visible in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpu_for("auto") is None


@pytest.mark.parametrize(
    "error",
    [
        subprocess.TimeoutExpired("nvidia-smi", 10),
        subprocess.CalledProcessError(9, "nvidia-smi"),
        OSError("cannot be started"),
    ],
)
def test_a_driver_that_fails_has_no_device(driver, error):
    driver(error)
    assert gpu_for("auto") is None


def test_torch_for_the_cpu_alone_uses_none(driver, monkeypatch):
    driver(TWO)
    monkeypatch.setattr(gpus, "version", lambda package: "2.9.0+cpu")
    assert gpu_for("auto") is None


def test_no_driver(driver, monkeypatch):
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    assert gpu_for("auto") is None


def test_memory_that_is_not_told():
    assert parse_gpu("NVIDIA GB10, [N/A]") == Gpu("NVIDIA GB10", 0)


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("Tesla V100-SXM2-16GB", 15.7),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("Tesla T4", 8.1),
        ("NVIDIA GeForce RTX 4090", 165),
    ],
)
def test_nominal_throughput(name, tera):
    assert nominal_flops(Gpu(name, 0), "bfloat16") == pytest.approx(tera * 1e12)
    assert nominal_flops(Gpu(name, 0), "float32") <= nominal_flops(Gpu(name, 0), "bfloat16")


def test_a_device_that_nobody_knows():
    assert nominal_flops(Gpu("NVIDIA GeForce RTX 4080", 0), "bfloat16") is None
