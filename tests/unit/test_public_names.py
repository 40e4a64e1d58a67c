"""What `import longtail as lt` offers: exactly the names of `__all__`, imported when first used."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
import types

import pytest

import longtail as lt


def test_all_is_what_can_be_reached():
    assert lt.__all__ == sorted([*lt._HOME, *lt._MODULES, "__version__"])


def test_all_is_written_out():
    assert lt.__all__ == [
        "Comparison",
        "Dataset",
        "Features",
        "Label",
        "LabelTree",
        "Labels",
        "Longtail",
        "Predictions",
        "TfIdf",
        "__version__",
        "compare",
        "ensemble",
        "errors",
        "extend",
        "load",
        "metrics",
        "read",
        "read_labels",
        "read_predictions",
        "sample",
        "sklearn",
        "write",
        "write_labels",
        "write_predictions",
    ]


@pytest.mark.parametrize("name", lt.__all__)
def test_each_name_can_be_used(name):
    assert getattr(lt, name) is not None
    assert getattr(lt, name) is getattr(lt, name)


@pytest.mark.parametrize(("name", "home"), lt._HOME.items())
def test_each_name_is_public_where_it_lives(name, home):
    module = importlib.import_module(home)
    assert getattr(lt, name) is getattr(module, name)
    assert name in module.__all__
    assert getattr(lt, name).__doc__


@pytest.mark.parametrize("name", lt._MODULES)
def test_modules(name):
    assert isinstance(getattr(lt, name), types.ModuleType)
    assert getattr(lt, name).__name__ == f"longtail.{name}"


def test_dir_is_all():
    assert dir(lt) == lt.__all__


def test_star_import_brings_all():
    names: dict[str, object] = {}
    exec("from longtail import *", names)
    assert set(lt.__all__) <= set(names)


@pytest.mark.parametrize("name", ["reed", "numpy", "Longtail2", "_HOMES"])
def test_unknown_name(name):
    with pytest.raises(AttributeError, match=f"^module 'longtail' has no attribute '{name}'$"):
        getattr(lt, name)


def test_unknown_import():
    with pytest.raises(ImportError, match="nothing_of_the_kind"):
        from longtail import nothing_of_the_kind  # noqa: F401


def test_version_is_a_version():
    assert all(part.isdecimal() for part in lt.__version__.split("."))
    assert len(lt.__version__.split(".")) == 3


def test_version_is_that_of_the_installed_package():
    try:
        installed = importlib.metadata.version("longtail")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("runs from a source tree")
    assert installed == lt.__version__


def test_a_name_is_looked_up_once():
    code = """
import longtail as lt
assert "read" not in vars(lt)
lt.read
assert "read" in vars(lt)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
