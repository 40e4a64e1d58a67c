import math

import numpy as np
import pytest

from longtail.errors import UsageError
from longtail.metrics import inverse_propensities, propensity_constants


def test_propensities_by_hand():
    # A = 1/2, B = 3: C = 2 (ln 1000 - 1), divided by the root of 0+3, 1+3 and 6+3
    c = 2 * (math.log(1000) - 1)
    found = inverse_propensities(np.array([0, 1, 6]), 1000, a=0.5, b=3.0)
    np.testing.assert_allclose(found, [1 + c / math.sqrt(3), 1 + c / 2, 1 + c / 3], rtol=1e-14)
    assert found[1] == pytest.approx(math.log(1000))  # of a label seen once, whatever A and B


def test_without_constants_they_are_those_of_all_other_data():
    counts = np.array([0, 5], np.uint32)
    np.testing.assert_array_equal(inverse_propensities(counts, 50), inverse_propensities(counts, 50, 0.55, 1.5))


def test_three_documents_are_enough():
    found = inverse_propensities(np.array([0, 3]), 3, a=1.0, b=1.0)
    np.testing.assert_allclose(found, [1 + 2 * (math.log(3) - 1), 1 + (math.log(3) - 1) / 2], rtol=1e-14)


def test_whole_numbers_as_constants():
    found = inverse_propensities(np.array([0, 1]), 1000, a=1, b=1)
    np.testing.assert_allclose(found, inverse_propensities(np.array([0, 1]), 1000, a=1.0, b=1.0), rtol=0)


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
        ("LF-WikiSeeAlso-320K", (0.55, 1.5)),
        ("Eurlex-4K", (0.55, 1.5)),
        ("", (0.55, 1.5)),
    ],
)
def test_propensity_constants(name, constants):
    assert propensity_constants(name) == constants


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
        ((np.array([1]), 9, 1000, 1000), "A=1000, B=1000, weights out of range; expected smaller ones"),
        ((np.array([], int), 9, 1000.0, 1000.0), "A=1000.0, B=1000.0, weights out of range"),
        ((np.array([1, 0]), 9, 2.0, 1e-300), "A=2.0, B=1e-300, weights out of range"),
        ((np.array([1]), 9, math.nan, 1.5), "A=nan, B=1.5, weights"),
        ((np.array([1]), 9, 0.5, math.inf), "A=0.5, B=inf, weights"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        inverse_propensities(*arguments)
