"""How long a model takes for a document, and what a wider or narrower beam changes."""

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
_MOST = 2000  # documents that are timed
_UNTIMED = 500  # documents, where times are not wanted
_FIRST = 100  # of them to see how fast the model is
_SECONDS = 3.0  # that one beam size may take


class BeamPoint(NamedTuple):
    """What one beam size gives: precisions as fractions, and milliseconds a document where they are
    measured.
    """

    beam_size: int
    p1: float
    p5: float
    ms: float | None
    own: bool  # the size that the model uses where none is given


def beam_matters(model: RankingModel) -> bool:
    """Tell whether linear classifiers on a label tree have a say in what comes out."""
    return any(
        ranker.label_tree is not None and ranker.label_tree.n_levels > 1
        for member, _ in model.weighted_members()
        if member.facts.network_share < 1
        for ranker in member.rankers
    )


def timing_sample(model: RankingModel, test: Dataset, seed: int = 0) -> Dataset:
    """Return some labelled documents by chance, as many as the model can do in a few seconds; it is
    warm after.
    """
    rows = np.flatnonzero(np.diff(test.label_matrix.indptr))
    rows = np.sort(np.random.default_rng(seed).permutation(rows)[:_MOST])
    first = test.take(rows[:_FIRST])
    predict(model, first)  # kernels are compiled, weights are read
    most = int(_SECONDS * 1000 / max(ms_per_document(model, first), 1e-6))
    return test.take(rows[: max(most, _FIRST)])


def beam_sample(model: RankingModel, test: Dataset, seed: int = 0) -> Dataset:
    """Return some labelled documents by chance, the same on every machine."""
    ranks_by_network = any(member.facts.network_share > 0 for member, _ in model.weighted_members())
    rows = np.flatnonzero(np.diff(test.label_matrix.indptr))
    count = _FIRST if ranks_by_network else _UNTIMED
    return test.take(np.sort(np.random.default_rng(seed).permutation(rows)[:count]))


def ms_per_document(model: RankingModel, documents: Dataset) -> float:
    """Return the time from texts to labels, all documents at once, by one of them."""
    begin = time.perf_counter()
    predict(model, documents)
    return 1000 * (time.perf_counter() - begin) / len(documents)


def beam_points(model: RankingModel, sample: Dataset, timed: bool = True) -> list[BeamPoint]:
    """Return precision, and time if it is wanted, for some beam sizes, the model's own among them."""
    own_size = None
    sizes = {*_SIZES}
    if model.single is not None and not model.config.search.exact:
        own_size = model.config.search.beam_size
        sizes.add(own_size)
    points = []
    with stage("beam sizes", len(sizes), "sizes"):
        for size in sorted(sizes):
            begin = time.perf_counter()
            ranked = predict(model, sample, 5, beam_size=size).matrix
            ms = 1000 * (time.perf_counter() - begin) / len(sample)
            ranked = csr_of(ranked.data, ranked.indices, ranked.indptr, sample.n_labels)
            p1, p5 = (precision_at_k(ranked, sample.label_matrix, k) for k in (1, 5))
            points.append(BeamPoint(size, p1, p5, ms if timed else None, size == own_size))
            advance(1)
    return points
