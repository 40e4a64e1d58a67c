"""The page: how data flows, from files to figures.

    documents ─→ text features ─┐
                                ├─→ label features ─→ label tree ─→ model ─→ search ─→ predictions ─→ metrics
    labels ─→ label matrix ─────┘

In this version the two ends of the line exist: reading, and measuring predictions of any system.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
from scipy import sparse

from longtail.data.dataset import Dataset
from longtail.data.xmc_bow import read_filter
from longtail.metrics import Evaluation, FrequencyTable, by_frequency, evaluate
from longtail.search.predictions import read_predictions

__all__ = ["Measured", "evaluate_predictions"]


class Measured(msgspec.Struct, frozen=True):
    """The metrics of one set of predictions and, where the training data is known, where the hits come from."""

    evaluation: Evaluation
    by_frequency: FrequencyTable | None = None


def evaluate_predictions(
    predictions: Path | str,
    test: Dataset,
    train: Dataset | None = None,
    *,
    ks: Iterable[int] = (1, 3, 5),
    propensity: tuple[float, float] = (0.55, 1.5),
    mask: Path | str | None = None,
    bootstrap: int = 0,
    seed: int = 0,
) -> Measured:
    """Measure a file of predictions against ``test``, whose label columns begin with those of ``train``.

    ``train`` gives the label frequencies for the propensity metrics; ``mask`` is a filter file of (document, label)
    pairs that no prediction may score with; ``propensity`` is (A, B).
    """
    ranked = read_predictions(predictions, test.labels, test.ids, len(test))
    n_labels = len(ranked.labels)
    y = test.label_matrix
    truth = sparse.csr_array((y.data, y.indices, y.indptr), shape=(len(test), n_labels))
    pairs = None if mask is None else read_filter(mask, len(test), n_labels)
    ks = tuple(ks)
    if train is None:
        return Measured(evaluate(ranked.matrix, truth, ks, mask=pairs, bootstrap=bootstrap, seed=seed))
    counts = np.zeros(n_labels, np.int64)
    counts[: train.n_labels] = train.label_counts
    evaluation = evaluate(
        ranked.matrix,
        truth,
        ks,
        label_counts=counts,
        n_train=len(train),
        a=propensity[0],
        b=propensity[1],
        mask=pairs,
        bootstrap=bootstrap,
        seed=seed,
    )
    return Measured(evaluation, by_frequency(ranked.matrix, truth, counts, ks, mask=pairs))
