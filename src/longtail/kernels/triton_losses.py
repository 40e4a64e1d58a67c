"""GPU kernels of the cross-entropy over all nodes: one pass over the logits, then one over the true
nodes.

Two kernels instead of a matrix of targets: of some hundred thousand columns a document has a few
dozen true ones."""

from __future__ import annotations

import triton.language as tl

from longtail.kernels.triton_jit import compiled

__all__ = ["negative_residuals", "positive_residuals"]


@compiled
def negative_residuals(
    logits: tl.tensor,  # IN (B, n_columns) float32, without the bias
    bias: tl.tensor,  # IN (n_columns,)
    scale: tl.tensor,  # IN (B,)
    residuals: tl.tensor,  # OUT (B, n_columns)
    losses: tl.tensor,  # OUT (B, blocks + 1) float32, all but the last column
    n_columns: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Cross-entropy as if every target were 0: residual = scale · σ(z), loss = Σ softplus(z); a
    program is a block.
    """
    document = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    z = tl.load(logits + document * n_columns + columns, mask=inside, other=0.0)
    z += tl.load(bias + columns, mask=inside, other=0.0)
    small = tl.exp(-tl.abs(z))
    loss = tl.where(inside, tl.maximum(z, 0.0) + tl.log(1.0 + small), 0.0)
    residual = tl.load(scale + document) * tl.where(z >= 0, 1.0, small) / (1.0 + small)
    tl.store(
        residuals + document * n_columns + columns,
        residual.to(residuals.dtype.element_ty),
        mask=inside,
    )
    tl.store(losses + document * (tl.num_programs(1) + 1) + tl.program_id(1), tl.sum(loss, axis=0))


@compiled
def positive_residuals(
    logits: tl.tensor,  # IN (B, n_columns) float32, without the bias
    bias: tl.tensor,  # IN (n_columns,)
    scale: tl.tensor,  # IN (B,)
    positives: tl.tensor,  # IN (B, n_positives) int32: nodes, of which `first` is column 0
    values: tl.tensor,  # IN (B, n_positives) float32
    residuals: tl.tensor,  # OUT (B, n_columns), at the positives
    losses: tl.tensor,  # OUT (B, n_losses) float32, the last column
    n_columns: tl.tensor,
    n_positives: tl.tensor,
    n_losses: tl.tensor,
    first: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """What targets y change of it: residual = scale · (σ(z) − y), loss − Σ y z; a program is a
    document.
    """
    document = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, BLOCK)
    known = places < n_positives
    columns = tl.load(positives + document * n_positives + places, mask=known, other=-1) - first
    inside = known & (columns >= 0) & (columns < n_columns)
    y = tl.load(values + document * n_positives + places, mask=inside, other=0.0)
    at = document * n_columns + columns
    z = tl.load(logits + at, mask=inside, other=0.0) + tl.load(
        bias + columns, mask=inside, other=0.0
    )
    small = tl.exp(-tl.abs(z))
    residual = tl.load(scale + document) * (tl.where(z >= 0, 1.0, small) / (1.0 + small) - y)
    tl.store(residuals + at, residual.to(residuals.dtype.element_ty), mask=inside)
    tl.store(losses + document * n_losses + n_losses - 1, -tl.sum(y * z, axis=0))
