"""GPU kernels of a network's heads: scores of shortlists, their gradient, updates in place of the
rows touched, and the cross-entropy over all nodes.

A shortlist's rows are read where they lie, so no (documents, slots, width) tensor exists; the
update groups the gradient by node, so no gradient of the weights exists either. All sums are
float32 and in a fixed order: the same input gives the same bytes. Loops have constant bounds or are
`while` loops, which the interpreter needs too.

The cross-entropy is one pass over the logits, then one over the true nodes, in place of a matrix of
targets: of some hundred thousand columns a document has a few dozen true ones."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

__all__ = [
    "ADAMW",
    "ROW_ADAM",
    "SGD",
    "gather_dot",
    "gather_sum",
    "negative_residuals",
    "positive_residuals",
    "update_all_rows",
    "update_touched_rows",
]

VARYING = ("first", "n_documents", "n_losses", "n_pairs", "n_positives", "n_slots", "seed")


def compiled(function: Any) -> Any:
    """Compiles once for all values of the arguments that vary, where Triton would do it anew for 1
    and multiples of 16.

    Arguments are annotated `tl.tensor` even where they are scalars: Triton reads annotations, and
    takes no `Any`."""
    return triton.jit(function, do_not_specialize=VARYING)


SGD = 0
ROW_ADAM = 1
ADAMW = 2


@compiled
def gather_dot(
    x: tl.tensor,  # IN (B, WIDTH)
    weight: tl.tensor,  # IN (K, WIDTH)
    bias: tl.tensor,  # IN (K,)
    candidates: tl.tensor,  # IN (B, n_slots) int32, -1 = padding
    logits: tl.tensor,  # OUT (B, n_slots) float32
    n_slots: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """Writes logits[b, s] = weight[candidates[b, s]] · x[b] + bias; a program is (document, block
    of slots).
    """
    document = tl.program_id(0).to(tl.int64)
    slots = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    nodes = tl.load(candidates + document * n_slots + slots, mask=slots < n_slots, other=-1)
    real = nodes >= 0
    rows = weight + tl.where(real, nodes, 0).to(tl.int64)[:, None] * WIDTH
    products = tl.zeros((BLOCK_S, BLOCK_D), tl.float32)
    for start in range(0, WIDTH, BLOCK_D):
        columns = start + tl.arange(0, BLOCK_D)
        inside = columns < WIDTH
        vector = tl.load(x + document * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
        block = tl.load(
            rows + columns[None, :], mask=real[:, None] & inside[None, :], other=0.0
        ).to(tl.float32)
        products += block * vector[None, :]
    total = tl.sum(products, axis=1) + tl.load(bias + nodes, mask=real, other=0.0)
    tl.store(logits + document * n_slots + slots, tl.where(real, total, 0.0), mask=slots < n_slots)


@compiled
def gather_sum(
    gradients: tl.tensor,  # IN (B, n_slots) float32
    weight: tl.tensor,  # IN (K, WIDTH)
    candidates: tl.tensor,  # IN (B, n_slots) int32, -1 = padding
    partial: tl.tensor,  # OUT (splits, B, WIDTH) float32
    n_slots: tl.tensor,
    n_documents: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """Sums gradients[b, s] · weight[candidates[b, s]] over SPLIT slots; a program is (document,
    split, columns).
    """
    document = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    columns = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    inside = columns < WIDTH
    total = tl.zeros((BLOCK_S, BLOCK_D), tl.float32)
    for start in range(0, SPLIT, BLOCK_S):
        slots = split * SPLIT + start + tl.arange(0, BLOCK_S)
        at = document * n_slots + slots
        nodes = tl.load(candidates + at, mask=slots < n_slots, other=-1)
        real = nodes >= 0
        gradient = tl.load(gradients + at, mask=real, other=0.0)
        rows = weight + tl.where(real, nodes, 0).to(tl.int64)[:, None] * WIDTH
        block = tl.load(
            rows + columns[None, :], mask=real[:, None] & inside[None, :], other=0.0
        ).to(tl.float32)
        total += block * gradient[:, None]
    row = (split.to(tl.int64) * n_documents + document) * WIDTH
    tl.store(partial + row + columns, tl.sum(total, axis=0), mask=inside)


@compiled
def _mixed(x: tl.tensor) -> tl.tensor:
    """A bijection of uint32 with output bits that look independent of the input's (lowbias32)."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    x ^= x >> 16
    return x


@compiled
def _stochastic_bf16(
    values: tl.tensor, row: tl.tensor, columns: tl.tensor, seed: tl.tensor
) -> tl.tensor:
    """Rounds float32 up or down, with a probability by distance; the same bits as
    updates.stochastic_bf16.
    """
    key = _mixed(row.to(tl.uint32) ^ seed.to(tl.uint32))
    random = _mixed(key + columns.to(tl.uint32) * 0x9E3779B9) & 0xFFFF
    bits = values.to(tl.uint32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    # a NaN stays one when its low bits go
    quiet = tl.where(magnitude > 0x7F800000, bits | 0x400000, bits)
    bits = tl.where(magnitude >= 0x7F800000, quiet, bits + random)
    return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@compiled
def _update_row(
    weight: tl.tensor,
    bias: tl.tensor,
    mean: tl.tensor,
    square: tl.tensor,
    bias_mean: tl.tensor,
    bias_square: tl.tensor,
    count: tl.tensor,
    row: tl.tensor,
    columns: tl.tensor,
    inside: tl.tensor,
    gradient: tl.tensor,
    bias_gradient: tl.tensor,
    lr: tl.tensor,
    decay: tl.tensor,
    seed: tl.tensor,
    beta1: tl.tensor,  # of adamw, with 1 − β₁ and ln β₁: they may be others in each step
    one_minus_beta1: tl.tensor,
    log_beta1: tl.tensor,
    WIDTH: tl.constexpr,
    OPTIMISER: tl.constexpr,
    BETA2: tl.constexpr,
    LOG_BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
) -> None:
    """Applies the formulas of heads/updates.py to one row, its bias and its state, in place.

    All is read before anything is written: a number that every warp reads is written by one of
    them, and without the barrier a late warp would read what an early one has written."""
    at = row.to(tl.int64) * WIDTH + columns
    old = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    old_bias = tl.load(bias + row)
    if OPTIMISER != 0:
        times = tl.load(count + row) + 1
        second_bias = (
            BETA2 * tl.load(bias_square + row) + (1.0 - BETA2) * bias_gradient * bias_gradient
        )
    if OPTIMISER == 1:
        second = BETA2 * tl.load(square + row) + (1.0 - BETA2) * (
            tl.sum(gradient * gradient, axis=0) / WIDTH
        )
    if OPTIMISER == 2:
        second = (
            BETA2 * tl.load(square + at, mask=inside, other=0.0)
            + (1.0 - BETA2) * gradient * gradient
        )
        first = beta1 * tl.load(mean + at, mask=inside, other=0.0) + one_minus_beta1 * gradient
        first_bias = beta1 * tl.load(bias_mean + row) + one_minus_beta1 * bias_gradient
    tl.debug_barrier()
    step = gradient
    bias_step = bias_gradient
    if OPTIMISER != 0:
        bias_correction = 1.0 - tl.exp(times.to(tl.float32) * LOG_BETA2)
        tl.store(count + row, times)
        tl.store(bias_square + row, second_bias)
        if OPTIMISER == 1:
            tl.store(square + row, second)
        else:
            mean_bias_correction = 1.0 - tl.exp(times.to(tl.float32) * log_beta1)
            tl.store(square + at, second, mask=inside)
            tl.store(mean + at, first, mask=inside)
            tl.store(bias_mean + row, first_bias)
            step = first / mean_bias_correction
            bias_step = first_bias / mean_bias_correction
        step = step / (tl.sqrt(second / bias_correction) + EPSILON)
        bias_step = bias_step / (tl.sqrt(second_bias / bias_correction) + EPSILON)
    new = old - lr * (step + decay * old)
    if weight.dtype.element_ty == tl.bfloat16:
        tl.store(weight + at, _stochastic_bf16(new, row, columns, seed), mask=inside)
    else:
        tl.store(weight + at, new, mask=inside)
    tl.store(bias + row, old_bias - lr * bias_step)


@compiled
def update_touched_rows(
    weight: tl.tensor,  # IN/OUT (K, WIDTH), with the state of the optimiser:
    bias: tl.tensor,
    mean: tl.tensor,
    square: tl.tensor,
    bias_mean: tl.tensor,
    bias_square: tl.tensor,
    count: tl.tensor,
    x: tl.tensor,  # IN (B, WIDTH)
    nodes: tl.tensor,  # IN (n_pairs,) int32 ascending; n_nodes = padding
    documents: tl.tensor,  # IN (n_pairs,) int32
    gradients: tl.tensor,  # IN (n_pairs,) float32
    n_pairs: tl.tensor,
    n_nodes: tl.tensor,
    lr: tl.tensor,
    decay: tl.tensor,
    seed: tl.tensor,
    beta1: tl.tensor,  # of adamw, with 1 − β₁ and ln β₁: they may be others in each step
    one_minus_beta1: tl.tensor,
    log_beta1: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    AHEAD: tl.constexpr,
    OPTIMISER: tl.constexpr,
    BETA2: tl.constexpr,
    LOG_BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
) -> None:
    """Sums the gradient of each node over its run of pairs and updates its row; a program has
    BLOCK_N pairs.

    A run belongs to the program in which it starts. AHEAD pairs are read at once, so that their
    loads overlap."""
    columns = tl.arange(0, BLOCK_D)
    inside = columns < WIDTH
    for offset in range(BLOCK_N):
        start = tl.program_id(0) * BLOCK_N + offset
        node = tl.load(nodes + start, mask=start < n_pairs, other=n_nodes)
        before = tl.load(nodes + start - 1, mask=(start > 0) & (start < n_pairs), other=-1)
        if (node != before) & (node < n_nodes):
            gradient = tl.zeros((BLOCK_D,), tl.float32)
            bias_gradient = 0.0
            pair = start
            last = node
            while last == node:
                for _ in tl.static_range(AHEAD):
                    last = tl.load(nodes + pair, mask=pair < n_pairs, other=n_nodes)
                    same = last == node
                    document = tl.load(documents + pair, mask=same, other=0).to(tl.int64)
                    share = tl.load(gradients + pair, mask=same, other=0.0)
                    vector = tl.load(
                        x + document * WIDTH + columns, mask=inside & same, other=0.0
                    ).to(tl.float32)
                    gradient += share * vector
                    bias_gradient += share
                    pair += 1
            _update_row(
                weight, bias, mean, square, bias_mean, bias_square, count,
                node, columns, inside, gradient, bias_gradient,
                lr, decay, seed, beta1, one_minus_beta1, log_beta1,
                WIDTH, OPTIMISER, BETA2, LOG_BETA2, EPSILON,
            )  # fmt: skip


@compiled
def update_all_rows(
    weight: tl.tensor,  # IN/OUT (K, WIDTH), with the state of the optimiser:
    bias: tl.tensor,
    mean: tl.tensor,
    square: tl.tensor,
    bias_mean: tl.tensor,
    bias_square: tl.tensor,
    count: tl.tensor,
    gradient: tl.tensor,  # IN (rows, WIDTH) float32
    bias_gradient: tl.tensor,  # IN (rows,) float32
    first: tl.tensor,  # the node of the gradient's first row
    lr: tl.tensor,
    decay: tl.tensor,
    seed: tl.tensor,
    beta1: tl.tensor,  # of adamw, with 1 − β₁ and ln β₁: they may be others in each step
    one_minus_beta1: tl.tensor,
    log_beta1: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK_D: tl.constexpr,
    OPTIMISER: tl.constexpr,
    BETA2: tl.constexpr,
    LOG_BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
) -> None:
    """Updates the rows from `first` on by a gradient that exists; a program is a row."""
    columns = tl.arange(0, BLOCK_D)
    inside = columns < WIDTH
    row = tl.program_id(0)
    row_gradient = tl.load(gradient + row.to(tl.int64) * WIDTH + columns, mask=inside, other=0.0)
    _update_row(
        weight, bias, mean, square, bias_mean, bias_square, count,
        first + row, columns, inside, row_gradient, tl.load(bias_gradient + row),
        lr, decay, seed, beta1, one_minus_beta1, log_beta1,
        WIDTH, OPTIMISER, BETA2, LOG_BETA2, EPSILON,
    )  # fmt: skip


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
