"""The dense block: one document and four at a time, beside a product in float64."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.kernels.dense_block import DOCUMENTS, decode, sums_of_four, sums_of_one
from longtail.search.weight_codes import half_floats

NONE = np.zeros(0, np.float32)


@pytest.mark.parametrize("width", [1, 7, 16, 130])
@pytest.mark.parametrize("e", [1, 2, 9])
def test_four_documents_get_the_bytes_of_one_each(width, e):
    random = np.random.default_rng(0)
    weights, rows = random.normal(size=e * width).astype(np.float32), random.normal(size=(9, e)).astype(np.float32)
    documents, four = np.array([8, 0, 3, 3]), np.full((DOCUMENTS, width + 5), np.nan, np.float32)
    sums_of_four(weights, rows, documents, width, four)
    one = np.full(width, np.nan, np.float32)
    for lane, document in enumerate(documents):
        sums_of_one(weights, NONE, 0, rows[document], one)
        assert one.tobytes() == four[lane, :width].tobytes()
        np.testing.assert_allclose(one, rows[document].astype(float) @ weights.reshape(e, width), rtol=1e-4, atol=1e-5)


def test_weights_are_decoded_from_their_place_on():
    stored = np.array([0.5, -2.0, 7.0, 1.25], np.float16)
    out = np.zeros(2, np.float32)
    decode(stored.view(np.uint16), half_floats(), 1, out)
    assert out.tolist() == [-2.0, 7.0]
