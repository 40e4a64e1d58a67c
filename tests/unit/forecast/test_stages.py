"""Memory of the solvers: what threads share, and what each has for itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from longtail.data.dataset import Dataset
from longtail.data.sample import sample
from longtail.forecast import Forecast, forecast
from longtail.kernels import pool
from longtail.methods import configure


def peaks(result: Forecast) -> dict[str, int]:
    return {stage.name: stage.peak_bytes for stage in result.stages}


def with_vectors(width: int, copies: int = 1) -> Dataset:
    documents = sample()[0]
    documents = documents.take(np.tile(np.arange(len(documents)), copies))
    return dataclasses.replace(documents, dense=np.zeros((len(documents), width), np.float32))


def expected(
    documents: Dataset, method: str = "xr-linear", threads: int = 1, **settings: dict
) -> Forecast:
    with pool.threads(threads):
        return forecast(documents, configure(method, None, settings))


@pytest.mark.parametrize(("method", "stage"), [("dismec", "labels"), ("xr-linear", "level 1 of 2")])
def test_threads_do_not_copy_dense_vectors_of_all_documents(method, stage):
    """What a thread more takes does not grow with the columns of the vectors, but for 16 siblings'
    weights.
    """
    more = []
    for width in (64, 512):
        one, eight = (
            peaks(expected(with_vectors(width), method, threads))[stage] for threads in (1, 8)
        )
        more.append(eight - one)
    siblings = 8 * 2.5 * 64 * (512 - 64)
    assert more[1] - more[0] <= siblings
    assert 10 * siblings < 8 * 4 * 6000 * (512 - 64)  # which a copy for each thread would take


def test_a_thread_of_one_vs_all_has_its_own_targets_and_weights():
    one, five, eight = (
        expected(sample()[0], "dismec", threads).peaks()["labels"] for threads in (1, 5, 8)
    )
    assert one < five
    assert five <= eight  # 501 labels are four tasks of 128


def test_a_method_without_label_tree_counts_its_own_threads_alone():
    result = peaks(expected(sample()[0], "fastxml", 8))
    assert list(result) == ["documents", "features", "trees of documents", "calibration", "model"]
    assert (
        peaks(expected(sample()[0], "fastxml", 1))["trees of documents"]
        < result["trees of documents"]
    )


def test_each_tree_adds_its_weights():
    one, three = (expected(sample()[0], ranker={"trees": trees}) for trees in (1, 3))
    stored = peaks(three)["model"] - peaks(one)["model"]
    assert stored == pytest.approx(2 * 3.7 * one.weights, rel=0.1)
    assert [stage.name for stage in three.stages].count("level 2 of 2") == 3
    assert [stage.name for stage in three.stages].count("tree") == 3


def test_hard_negatives_are_fewer_documents():
    documents = with_vectors(64, copies=4)
    every, hard = (
        expected(documents, "dismec", ranker={"hard_negatives": count}) for count in (0, 1)
    )
    assert hard.seconds[1] < every.seconds[1]


def test_documents_that_a_beam_finds_take_memory():
    documents = with_vectors(16, copies=4)
    true, both = (
        expected(documents, tree={"branching": 4, "leaf_size": 5}, ranker={"negatives": negatives})
        for negatives in ("tfn", "tfn+man")
    )
    last = f"level {len(true.tree)} of {len(true.tree)}"
    assert peaks(both)[last] > peaks(true)[last]


def test_a_dense_penalty_scales_a_copy():
    documents = with_vectors(256)
    plain, scaled = (
        expected(documents, ranker={"dense_penalty": penalty}) for penalty in (1.0, 2.0)
    )
    more = peaks(scaled)["level 1 of 2"] - peaks(plain)["level 1 of 2"]
    assert more == pytest.approx(4 * 256 * len(documents), rel=0.05)
