import math
import tomllib
from importlib.resources import files

import numpy as np
import pytest

from longtail.errors import UsageError
from longtail.metrics import choose_constants, inverse_propensities, propensity_constants
from longtail.metrics.propensity import FAMILIES


def test_propensities_by_hand():
    # A = 1/2, B = 3: C = 2 (ln 1000 - 1), divided by the root of 0+3, 1+3 and 6+3
    c = 2 * (math.log(1000) - 1)
    found = inverse_propensities(np.array([0, 1, 6]), 1000, a=0.5, b=3.0)
    np.testing.assert_allclose(found, [1 + c / math.sqrt(3), 1 + c / 2, 1 + c / 3], rtol=1e-14)
    assert found[1] == pytest.approx(math.log(1000))  # of a label seen once, whatever A and B


def test_without_constants_they_are_those_of_all_other_data():
    counts = np.array([0, 5], np.uint32)
    np.testing.assert_array_equal(
        inverse_propensities(counts, 50), inverse_propensities(counts, 50, 0.55, 1.5)
    )


def test_three_documents_are_enough():
    found = inverse_propensities(np.array([0, 3]), 3, a=1.0, b=1.0)
    np.testing.assert_allclose(
        found, [1 + 2 * (math.log(3) - 1), 1 + (math.log(3) - 1) / 2], rtol=1e-14
    )


def test_whole_numbers_as_constants():
    found = inverse_propensities(np.array([0, 1]), 1000, a=1, b=1)
    np.testing.assert_allclose(
        found, inverse_propensities(np.array([0, 1]), 1000, a=1.0, b=1.0), rtol=0
    )


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("wikipedia", (0.5, 0.4)),
        ("Wikipedia-500K", (0.5, 0.4)),
        ("wiki-500k", (0.5, 0.4)),
        ("WikiLSHTC-325K", (0.5, 0.4)),
        ("LF-WikiTitles-500K", (0.5, 0.4)),
        ("amazon", (0.6, 2.6)),
        ("Amazon-670K", (0.6, 2.6)),
        ("LF-AmazonTitles-1.3M", (0.6, 2.6)),
        ("AmazonCat-13K", (0.55, 1.5)),
        ("Wiki10-31K", (0.55, 1.5)),
        ("amazon-670k", (0.6, 2.6)),
        ("Amazon670K", (0.6, 2.6)),
        ("amazon_670k", (0.6, 2.6)),
        ("Amazon-3M", (0.6, 2.6)),
        ("LF-AmazonTitles-131K", (0.6, 2.6)),
        ("amazoncat-13k", (0.55, 1.5)),
        ("AmazonCat13K", (0.55, 1.5)),
        ("Wiki-500K", (0.5, 0.4)),
        ("Wiki500K", (0.5, 0.4)),
        ("WikiTitles-500K", (0.5, 0.4)),
        ("wiki10-31k", (0.55, 1.5)),
        ("Wiki10", (0.55, 1.5)),
        ("eurlex4k", (0.55, 1.5)),
        ("LF-WikiSeeAlsoTitles-320K", (0.55, 1.5)),
        ("LF-WikiSeeAlso-320K", (0.55, 1.5)),
        ("Eurlex-4K", (0.55, 1.5)),
        ("", (0.55, 1.5)),
    ],
)
def test_propensity_constants(name, constants):
    assert propensity_constants(name) == constants


def test_all_datasets_of_the_papers():
    """The file that the published tables are reproduced by names the family of each dataset."""
    content = (files("longtail.reproduction") / "datasets.toml").read_text("utf-8")
    published = tomllib.loads(content)
    found = {facts["title"]: facts["family"] for facts in _datasets(published)}
    assert len(found) >= 10
    for title, family in found.items():
        for spelling in (title, title.lower(), title.replace("-", ""), title.replace("-", "_")):
            assert propensity_constants(spelling) == FAMILIES[family], spelling


def _datasets(table):
    """Yield the tables of datasets, also of those with a dot in their names."""
    if "family" in table:
        yield table
    else:
        for inner in table.values():
            yield from _datasets(inner)


NAMES = ("test.jsonl", "Amazon-670K")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (((0.7, 2.0), NAMES, "wiki-500k"), (0.7, 2.0, "as given")),
        (("wikipedia", NAMES, "amazon-3m"), (0.5, 0.4, "family wikipedia")),
        (("default", NAMES, "amazon-3m"), (0.55, 1.5, "family default")),
        ((None, NAMES, "wiki-500k"), (0.6, 2.6, "by the name Amazon-670K")),
        (
            (None, ("eurlex_test.txt", "Amazon-670K"), ""),
            (0.55, 1.5, "by the name eurlex_test.txt"),
        ),
        ((None, ("AmazonCat-13K",), "amazon-670k"), (0.55, 1.5, "by the name AmazonCat-13K")),
        ((None, ("test.jsonl", "data"), "wiki-500k"), (0.5, 0.4, "by the preset wiki-500k")),
        ((None, ("test.jsonl", "data"), "eurlex-4k"), (0.55, 1.5, "by the preset eurlex-4k")),
        ((None, ("test.jsonl", "data"), ""), (0.55, 1.5, "default")),
        ((None,), (0.55, 1.5, "default")),
    ],
)
def test_what_decides(arguments, expected):
    found = choose_constants(*arguments)
    assert found == expected
    assert choose_constants(found, ("Wiki-500K",), "wiki-500k") is found


def test_an_unknown_family_is_refused():
    with pytest.raises(UsageError, match="unknown propensity 'amazn'; did you mean 'amazon'"):
        choose_constants("amazn")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(2), 9), "one integer count per label"),
        ((np.ones((2, 2), int), 9), r"of shape \(2, 2\)"),
        ((np.array([-1, 2]), 9), "from -1 to 2; expected 0 to n_train = 9"),
        ((np.array([3, 10]), 9), "from 3 to 10"),
        ((np.array([1]), 2), "at least 3 training documents"),
        ((np.array([1]), 9, 0.5, -2.0), "A=0.5, B=-2.0"),
        ((np.array([1]), 9, 0.0, 1.5), "A=0.0, B=1.5"),
        ((np.array([1]), 9, 0.5, 0.0), "A=0.5, B=0.0; expected both above 0"),
        (
            (np.array([1]), 9, 1000, 1000),
            "A=1000, B=1000, weights out of range; expected smaller ones",
        ),
        ((np.array([], int), 9, 1000.0, 1000.0), "A=1000.0, B=1000.0, weights out of range"),
        ((np.array([1, 0]), 9, 2.0, 1e-300), "A=2.0, B=1e-300, weights out of range"),
        ((np.array([1]), 9, math.nan, 1.5), "A=nan, B=1.5, weights"),
        ((np.array([1]), 9, 0.5, math.inf), "A=0.5, B=inf, weights"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        inverse_propensities(*arguments)
