"""Products of dense blocks: of documents with the siblings of a chunk, in search, and with a
block's w, in training.

A *panel* is the weights of 16 siblings, [column][sibling], which is what fits a register. In search
one document is multiplied with weights as they are stored, several ones with panels written out as
numbers, four documents at a time. Both ways add the same products in the same order, so that a
score never depends on which documents come together."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.row_products import (
    DOCUMENTS,
    PANEL,
    WINDOW,
    copy_lane,
    copy_panel,
    product_of_four,
    sums_of_lane,
    sums_of_panel,
    sums_of_window,
)

__all__ = ["decode", "inner_products", "panel_count", "sums_of_four", "sums_of_one"]


@kernel
def panel_count(width: int) -> Any:
    """Return how many panels hold ``width`` siblings; the last one begins 16 before the end and may
    overlap.
    """
    return (width + PANEL - 1) // PANEL


@kernel
def _panel_at(panel: int, width: int) -> Any:
    """Return the first sibling of a panel."""
    return max(min(panel * PANEL, width - PANEL), 0)


@kernel
def decode(
    weights: Any,  # IN  dense weights of the level, as stored
    table: Any,  # IN
    at: int,  # IN  where those of the chunk begin
    width: int,  # IN  siblings of the chunk
    depth: int,  # IN  dense columns
    out: Any,  # OUT (≥ panels * depth * 16,) panel after panel
) -> None:
    """Write out the panels of a chunk as numbers; one of fewer than 16 siblings has zeros at its
    end.
    """
    if width < PANEL:
        out[: depth * PANEL] = np.float32(0)
        for sibling in range(width):
            copy_lane(weights, table, at + sibling, width, depth, out, sibling)
        return
    for panel in range(panel_count(width)):
        copy_panel(
            weights, table, at + _panel_at(panel, width), width, depth, out, panel * depth * PANEL
        )


@kernel
def sums_of_one(
    weights: Any,  # IN  dense weights of the level, as stored
    table: Any,  # IN
    at: int,  # IN  where those of the chunk begin
    row: Any,  # IN  (dense_width,) the document
    sums: Any,  # OUT (n_siblings,)
) -> None:
    """Multiply one document with weights as they are stored."""
    width = sums.shape[0]
    sibling = 0
    while sibling + WINDOW * PANEL <= width:
        sums_of_window(weights, table, at + sibling, width, row, sums, sibling)
        sibling += WINDOW * PANEL
    while sibling < width:
        if width < PANEL:
            sums_of_lane(weights, table, at + sibling, width, row, sums, sibling)
            sibling += 1
        else:
            sibling = min(sibling, width - PANEL)
            sums_of_panel(weights, table, at + sibling, width, row, sums, sibling)
            sibling += PANEL


@kernel
def sums_of_four(
    numbers: Any,  # IN  panels, from `decode`
    rows: Any,  # IN  (n, dense_width)
    documents: Any,  # IN  (a multiple of 4,) rows
    width: int,  # IN  number of siblings
    sums: Any,  # OUT (≥ documents, ≥ max(width, 16))
) -> None:
    """Multiply documents with the panels of a chunk: a panel is read once for four, and stays in
    the cache for all.
    """
    depth = rows.shape[1]
    for panel in range(panel_count(width)):
        sibling = _panel_at(panel, width)
        for i in range(0, documents.shape[0], DOCUMENTS):
            product_of_four(numbers, panel * depth * PANEL, rows, documents, i, sums, sibling)


@kernel
def inner_products(rows: Any) -> Any:
    """Return rows · rowsᵀ (m, m) of the float32 ``rows`` (m, e)."""
    m, e = rows.shape
    products = np.empty((m, m), np.float32)
    panel = np.zeros(e * PANEL, np.float32)
    sums = np.empty((DOCUMENTS, PANEL), np.float32)
    documents = np.empty(DOCUMENTS, np.int64)
    for first in range(0, m, PANEL):
        width = min(PANEL, m - first)
        for sibling in range(width):
            for j in range(e):
                panel[j * PANEL + sibling] = rows[first + sibling, j]
        for i in range(first, m, DOCUMENTS):  # those above are known: x·y is y·x to the last bit
            for lane in range(DOCUMENTS):
                documents[lane] = min(i + lane, m - 1)
            product_of_four(panel, 0, rows, documents, 0, sums, 0)
            for lane in range(min(DOCUMENTS, m - i)):
                for sibling in range(width):
                    products[i + lane, first + sibling] = sums[lane, sibling]
                    products[first + sibling, i + lane] = sums[lane, sibling]
    return products
