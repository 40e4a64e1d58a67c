"""What methods without a label tree will take: each setting moves it the right way."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from longtail.data.dataset import Dataset
from longtail.data.sample import sample
from longtail.forecast import Forecast, forecast
from longtail.kernels import pool
from longtail.methods import configure
from small_methods import WITHOUT_LABEL_TREE


@cache
def train() -> Dataset:
    return sample()[0]


def expected(method: str, documents: Dataset | None = None, **settings) -> Forecast:
    with pool.threads(2):
        return forecast(
            train() if documents is None else documents, configure(method, None, settings)
        )


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("pfastrexml", {"forest": {"trees": 100}}),
        ("pfastrexml", {"forest": {"leaf_size": 2}}),
        ("annexml", {"neighbours": {"learners": 30}}),
        ("annexml", {"neighbours": {"epochs": 20}}),
        ("annexml", {"neighbours": {"dimensions": 100}}),
        ("extremetext", {"extremetext": {"epochs": 90}}),
        ("extremetext", {"extremetext": {"dimensions": 600}}),
        ("extremetext", {"tree": {"leaf_size": 300}}),
        ("extremetext", {"tree": {"kind": "flat"}}),
    ],
)
def test_more_work_takes_longer(method, more):
    assert expected(method, **more).seconds > expected(method).seconds


@pytest.mark.parametrize("method", ["pfastrexml", "annexml"])
def test_more_of_them_are_larger(method):
    group, name = {"pfastrexml": ("forest", "trees"), "annexml": ("neighbours", "learners")}[method]
    small, large = (expected(method, **{group: {name: count}}) for count in (5, 50))
    assert large.model_bytes > 5 * small.model_bytes
    assert large.peak_bytes > small.peak_bytes


def test_vectors_of_more_dimensions_are_larger():
    small, large = (expected("extremetext", extremetext={"dimensions": n}) for n in (100, 1000))
    assert large.model_bytes > 5 * small.model_bytes
    assert large.peak_bytes > 1.5 * small.peak_bytes
    stored = [
        expected("extremetext", ranker={"weights": weights}).model_bytes
        for weights in ("float32", "float16", "int8")
    ]
    assert stored == sorted(stored, reverse=True)
    assert len(set(stored)) == 3


def test_the_label_tree_below_vectors_is_that_of_plt():
    result = expected("extremetext")
    assert result.tree == expected("plt").tree
    assert [stage.name for stage in result.stages][2:4] == ["tree", "words and nodes"]
    assert expected("extremetext", tree={"kind": "flat"}).tree == (501,)


@pytest.mark.parametrize("method", ["dismec", "proxml"])
def test_one_vs_all_grows_with_labels(method):
    whole = train()
    some = whole.take(np.arange(1500))
    assert expected(method, whole).tree == (whole.n_labels,)
    assert expected(method, some).seconds < expected(method, whole).seconds


def test_centroids_take_room():
    settings = {"trees": 1, "cost": 1.0}
    with_them, without = (expected(method, forest=settings) for method in ("pfastrexml", "fastxml"))
    assert with_them.model_bytes > 1.5 * without.model_bytes


def test_an_l1_penalty_leaves_few_weights():
    assert expected("proxml").weights < 0.3 * expected("dismec").weights


@pytest.mark.parametrize("classifier", ["xr-linear", "dismec"])
def test_beside_a_network_the_classifiers_are_those_of_their_method(classifier):
    pytest.importorskip("torch")
    result = expected("cascadexml", cascade={"classifier": classifier})
    assert (len(result.tree) == 1) == (classifier == "dismec")


@pytest.mark.parametrize("method", WITHOUT_LABEL_TREE)
def test_a_few_documents(method):
    few = Dataset.of([f"one two word{i}" for i in range(4)], [["a", f"b{i % 3}"] for i in range(4)])
    result = expected(method, few)
    assert 0 < result.seconds[0] < 30
    assert result.model_bytes > 0
