"""Time per document of a model, and precision and time for several beam sizes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from longtail.data.csr import csr_of
from longtail.metrics import precision_at_k
from longtail.pipeline import predict
from longtail.reporting import advance, stage

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset
    from longtail.models.ranking_model import RankingModel

__all__ = [
    "BeamPoint",
    "beam_matters",
    "beam_points",
    "beam_sample",
    "ms_per_document",
    "timing_sample",
]

_SIZES = (1, 2, 5, 10, 20, 50)
_MOST = 2000  # documents of a timed sample, at most
_UNTIMED = 500  # documents of a sample that is not timed
_FIRST = 100  # documents for a first measurement of the speed
_SECONDS = 3.0  # time of one beam size


class BeamPoint(NamedTuple):
    """Precision (a fraction) and time of one beam size."""

    beam_size: int
    p1: float
    p5: float
    ms: float | None  # milliseconds per document; None: not measured
    is_default: bool  # the model's beam size


def beam_matters(model: RankingModel) -> bool:
    """Return whether linear classifiers on a label tree contribute to the scores."""
    return any(
        ranker.label_tree is not None and ranker.label_tree.n_levels > 1
        for member, _ in model.weighted_members()
        if member.facts.network_share < 1
        for ranker in member.rankers
    )


def timing_sample(model: RankingModel, test: Dataset, seed: int = 0) -> Dataset:
    """Return a random sample of labelled documents that takes a few seconds; warm up the model."""
    rows = np.flatnonzero(np.diff(test.label_matrix.indptr))
    rows = np.sort(np.random.default_rng(seed).permutation(rows)[:_MOST])
    first = test.take(rows[:_FIRST])
    predict(model, first)  # kernels are compiled, weights are read
    most = int(_SECONDS * 1000 / max(ms_per_document(model, first), 1e-6))
    return test.take(rows[: max(most, _FIRST)])


def beam_sample(model: RankingModel, test: Dataset, seed: int = 0) -> Dataset:
    """Return a random sample of labelled documents, the same on every machine."""
    ranks_by_network = any(member.facts.network_share > 0 for member, _ in model.weighted_members())
    rows = np.flatnonzero(np.diff(test.label_matrix.indptr))
    count = _FIRST if ranks_by_network else _UNTIMED
    return test.take(np.sort(np.random.default_rng(seed).permutation(rows)[:count]))


def ms_per_document(model: RankingModel, documents: Dataset) -> float:
    """Return the time per document from texts to labels, for all documents at once."""
    begin = time.perf_counter()
    predict(model, documents)
    return 1000 * (time.perf_counter() - begin) / len(documents)


def beam_points(model: RankingModel, sample: Dataset, timed: bool = True) -> list[BeamPoint]:
    """Return precision, and time if ``timed``, for several beam sizes, the model's among them."""
    default = None
    sizes = {*_SIZES}
    if model.single is not None and not model.config.search.exact:
        default = model.config.search.beam_size
        sizes.add(default)
    points = []
    with stage("beam sizes", len(sizes), "sizes"):
        for size in sorted(sizes):
            begin = time.perf_counter()
            ranked = predict(model, sample, 5, beam_size=size).matrix
            ms = 1000 * (time.perf_counter() - begin) / len(sample)
            ranked = csr_of(ranked.data, ranked.indices, ranked.indptr, sample.n_labels)
            p1, p5 = (precision_at_k(ranked, sample.label_matrix, k) for k in (1, 5))
            points.append(BeamPoint(size, p1, p5, ms if timed else None, size == default))
            advance(1)
    return points
