"""Initial weights of classifiers: centroids of their documents' vectors, so that rare labels are
not left at random.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.features.matrix import unit_vectors

__all__ = ["Rows", "centroid_rows", "prior_logit"]

_ALL = slice(None)
# score of a document that points just where a classifier does, above that of an average document
_STRENGTH = 5.0
# Vectors count as this far from x̄ at least, by ‖x̄‖: those of [CLS] in early layers hardly differ
# (0.01), and the first steps of training move them all by more than that. MiniLM's means of tokens
# are 0.4 and more.
_LEAST_LENGTH = 0.3


class Rows(NamedTuple):
    """Classifiers of the nodes of one level."""

    weights: NDArray[np.float32]  # (K, d)
    bias: NDArray[np.float32]  # (K,)


def centroid_rows(
    vectors: NDArray[np.floating],
    relevance: sparse.csr_array,
    prior: float,
    texts: NDArray[np.floating] | None = None,
    text_mean: NDArray[np.float32] | None = None,
    nodes: slice = _ALL,
) -> Rows:
    """Return w_l = s·c_l/‖c_l‖, c_l the mean of the label's documents less that of all, and b_l =
    ``prior`` − w_l·x̄.

    ``vectors`` (N, d) of documents, ``relevance`` (N, K), ``texts`` (K, d) vectors of the nodes'
    own texts, which count as much as the documents do. Where only the rows of some ``nodes`` are
    wanted, ``texts`` are theirs, and ``text_mean`` (d,) that of all."""
    mean = vectors.mean(0, dtype=np.float64).astype(np.float32)
    centred = vectors.astype(np.float32) - mean
    length = max(
        float(np.linalg.norm(centred, axis=1).mean()),
        _LEAST_LENGTH * float(np.linalg.norm(mean)),
        1e-6,
    )
    directions = unit_vectors(relevance.T.tocsr()[nodes].astype(np.float32) @ centred)
    if texts is not None:
        if text_mean is None:
            text_mean = texts.mean(0, dtype=np.float64).astype(np.float32)
        directions = unit_vectors(directions + unit_vectors(texts.astype(np.float32) - text_mean))
    weights = directions * np.float32(_STRENGTH / length)
    return Rows(weights, (prior - weights @ mean).astype(np.float32))


def prior_logit(relevance: sparse.csr_array, shortlist_size: int) -> float:
    """Return log(π/(1 − π)), π the share of true ones among the nodes that are scored for a
    document.
    """
    share = min(max(relevance.nnz / max(relevance.shape[0], 1) / shortlist_size, 1e-6), 0.5)
    return float(np.log(share / (1 - share)))
