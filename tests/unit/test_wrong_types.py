"""Python callers who give a value of another type get an error that names it, before anything is
read or written.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import sparse

import longtail
from longtail.data.filter_files import find_filter
from longtail.errors import UsageError
from longtail.metrics import choose_constants
from longtail.reproduction import reproduce
from published_layouts import label_features, pecos


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": 5}, "method: found 5; expected a name, one of: annexml, astec"),
        ({"preset": 5}, "preset: found 5; expected a name, one of: amazon-3m"),
        ({"preset": ["eurlex-4k"]}, "preset: found ['eurlex-4k']; expected a name"),
    ],
)
def test_a_name_that_is_no_text(given, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        longtail.Longtail(**given)


@pytest.mark.parametrize("fields", [3, b"title", {"title": 1}])
def test_fields_of_another_type(fields, tmp_path):
    folder = label_features(tmp_path / "LF-Amazon-131K")
    with pytest.raises(
        UsageError, match=re.escape(f"fields: found {fields!r}; expected title, content or")
    ):
        longtail.read(folder, fields=fields)


def test_a_field_that_is_no_text(tmp_path):
    folder = label_features(tmp_path / "LF-Amazon-131K")
    with pytest.raises(UsageError, match="field: found 3; expected a name, one of: content, title"):
        longtail.read(folder, fields=[3])


@pytest.mark.parametrize("propensity", [3, (1,), ("a", "b"), (0.5, 1.5, 2.0)])
def test_propensities_that_are_no_pair_of_numbers(propensity):
    message = re.escape(
        f"propensity: found {propensity!r}; expected (A, B) such as (0.55, 1.5), or one of "
    )
    with pytest.raises(UsageError, match=message):
        choose_constants(propensity)


def test_numbers_of_numpy_are_propensities():
    a, b, source = choose_constants((np.float64(0.6), np.float32(2.5)))
    assert (a, b, source) == (0.6, 2.5, "as given")


@pytest.mark.parametrize("mask", [7, [(0, 1)], np.zeros((2, 2))])
def test_a_mask_that_is_no_path(mask):
    documents = longtail.Dataset(
        sparse.csr_array(np.eye(2, dtype=np.float32)), longtail.Labels(["a", "b"])
    )
    with pytest.raises(
        UsageError, match=f"mask: found {type(mask).__name__}; expected the path of a filter file"
    ):
        find_filter(mask, documents)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": 5}, "experiment: found 5; expected a name"),
        ({"data": 5}, "data: found 5; expected the path of a folder"),
        ({"output": 5}, "output: found 5; expected the path of a folder"),
        ({"share": "a"}, "--share: found 'a'; expected a number"),
        ({"share": True}, "--share: found True; expected a number"),
        ({"seeds": "2"}, "--seeds: found '2'; expected a whole number"),
        ({"encoder_folder": 3}, "encoder_folder: found 3; expected the path of a folder"),
        ({"threads": -1}, "threads: found -1; expected a whole number"),
        ({"seeds": 1.5}, "--seeds: found 1.5; expected a whole number"),
    ],
)
def test_arguments_of_reproduce(given, message, tmp_path):
    folder = pecos(tmp_path / "eurlex-4k")
    arguments = {"name": "dismec/eurlex-4k", "data": folder, "output": tmp_path / "out"} | given
    with pytest.raises(UsageError, match=re.escape(message)):
        reproduce(**arguments)
    assert not (tmp_path / "out").exists()


def test_a_file_as_output_is_refused_before_the_data_are_read(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(
        UsageError, match="out: is a file; expected a folder for the models and the result"
    ):
        reproduce("dismec/eurlex-4k", tmp_path / "not-there", tmp_path / "out")


@pytest.mark.parametrize("threads", ["2", -1, 1.5])
def test_threads_that_are_no_count(threads):
    documents = longtail.Dataset.of(["a b", "b c", "c d"], [["x"], ["y"], ["x"]])
    with pytest.raises(
        UsageError, match=re.escape(f"threads: found {threads!r}; expected a whole number")
    ):
        longtail.Longtail(threads=threads).fit(documents)
