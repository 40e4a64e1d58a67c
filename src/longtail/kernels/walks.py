"""Random walks between labels and documents, and weighted sums of sparse rows; of both only the
largest are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.feature_rows import FeatureRows, Incidence
from longtail.kernels.jit import kernel
from longtail.kernels.sparse import emptied
from longtail.kernels.splitmix import random_bits

__all__ = ["WalkSettings", "WeightedMembers", "keep_largest", "walk_counts", "weighted_sums"]

Array = NDArray[Any]
_ONE = np.uint64(1)
_LOW = np.uint64(63)
_BITS = 31  # random bits for each choice: two of them come out of one number


class WalkSettings(NamedTuple):
    """Settings of random walks."""

    steps: int
    reset: float  # probability to go back to the start after a step
    keep: int  # labels that are kept per walk


class WeightedMembers(NamedTuple):
    """The rows that make up each weighted sum."""

    pointers: Any  # (sums + 1,) int64
    members: Any  # int32
    weights: Any  # float32


class _Walk(NamedTuple):
    """A walk; each is an array (steps,)."""

    returns: Any  # bool, whether the walk goes back to the start after each step
    labels: Any  # int32, the label after each step
    active: Any  # int32 buffer: steps that are taken together
    bits: Any  # int64 buffer: their random bits
    documents: Any  # int64 buffer: the documents they lead to


class _HashTable(NamedTuple):
    """Counts of labels, small enough for the nearest cache."""

    labels: Any  # (a power of two,) int32, −1 where a slot is free
    counts: Any  # int64, 0 where a slot is free


@kernel
def walk_counts(
    first: int,  # IN  the labels first..last - 1 start a walk each
    last: int,
    incidence: Incidence,  # IN
    settings: WalkSettings,  # IN
    seed: int,
) -> Any:
    """Return the labels that the walk from each label met most: (pointers, sorted labels, counts as
    float32).

    A step goes to a random document of the label and on to a random label of that one, which is
    counted (label correlation graph of ECLARE, Mittal et al. 2021; Gandalf, C.1). ``keep`` labels
    stay, of equal counts the lower ones, and the start in any case, with its count or 1. A label
    without documents has its start alone."""
    label_pointers = incidence.label_pointers
    steps = settings.steps
    most = (last - first) * (min(settings.keep, steps) + 1)
    table = _hash_table(steps + 1)
    keys = np.empty(steps + 1, np.int64)
    walk = _Walk(
        np.empty(steps, np.bool_),
        np.empty(steps, np.int32),
        np.empty(steps, np.int32),
        np.empty(steps, np.int64),
        np.empty(steps, np.int64),
    )
    pointers = np.zeros(last - first + 1, np.int64)
    filled = 0
    bound = np.int64(settings.reset * 2.0**53)
    labels = np.empty(most, np.int32)
    counts = np.empty(most, np.float32)
    for start in range(first, last):
        taken = 0
        if label_pointers[start] < label_pointers[start + 1]:
            taken = steps
        for step in range(taken):
            walk.returns[step] = random_bits(seed, 2 * step + 1, start) >> 10 < bound
        _walk(start, taken, incidence, seed, walk)
        n_keys = _counted(walk.labels[:taken], start, table, keys)
        filled = _most_met(keys[:n_keys], settings.keep, start, labels, counts, filled)
        pointers[start - first + 1] = filled
    return pointers, labels[:filled], counts[:filled]


@kernel
def _hash_table(entries: int) -> _HashTable:
    """Return an empty table, at most half of which is used by ``entries`` labels."""
    slots = 4
    while slots < 2 * entries:
        slots *= 2
    return _HashTable(np.full(slots, -1, np.int32), np.zeros(slots, np.int64))


@kernel
def _walk(start: int, steps: int, incidence: Incidence, seed: int, walk: _Walk) -> None:
    """Walk from one label; steps that do not wait for each other are taken together, so that their
    memory accesses overlap.

    First all that begin at the start, then all one step behind these, and so on. Where a step leads
    to is determined by (seed, step, start) alone, so neither the order of steps nor threads matter.
    """
    label_pointers, label_documents, document_pointers, document_labels = incidence
    returns, labels, active, bits, documents = walk
    count = 0
    depth = 0
    for step in range(steps):
        active[count] = step
        count += step == 0 or returns[step - 1]
    while count:
        for at in range(count):
            bits[at] = random_bits(seed, 2 * active[at], start)
        for at in range(count):
            label = np.int64(start if depth == 0 else labels[active[at] - 1])
            documents[at] = _chosen(label_pointers, label_documents, label, bits[at] >> 32)
        for at in range(count):
            labels[active[at]] = _chosen(
                document_pointers, document_labels, documents[at], bits[at] & 0x7FFFFFFF
            )
        more = 0
        for at in range(count):
            step = active[at]
            active[more] = step + 1
            more += step + 1 < steps and not returns[step]
        count = more
        depth = depth + 1


@kernel
def _counted(
    met: Array,  # IN  labels
    start: int,  # IN
    table: _HashTable,  # buffer, left empty
    keys: Array,  # OUT
) -> int:
    """Write a key for each label met and for the start; return how many. Larger counts, then lower
    labels, are larger.

    A hash table stays in the nearest cache, where a count for every label would not."""
    slots, counts = table
    mask = len(slots) - 1
    n_keys = 0
    for at in range(len(met) + 1):
        label = met[at] if at < len(met) else np.int32(start)
        slot = (np.int64(label) * 0x9E3779B1 >> 12) & mask
        while slots[slot] != label and slots[slot] != -1:
            slot = (slot + 1) & mask
        if slots[slot] == -1:
            slots[slot] = label
            keys[n_keys] = slot
            n_keys += 1
            counts[slot] += 1
        else:
            counts[slot] += at < len(met)
    for at in range(n_keys):
        slot = keys[at]
        # of equal counts, the lower label is larger
        keys[at] = counts[slot] << 32 | (0x7FFFFFFF - slots[slot])
        slots[slot] = -1
        counts[slot] = 0
    return n_keys


@kernel
def _most_met(
    keys: Array, keep: int, start: int, out_labels: Array, out_counts: Array, filled: int
) -> int:
    """Write labels and counts of the ``keep`` largest keys and of the start, labels rising; return
    the new filled.
    """
    least = np.int64(0)
    if len(keys) > keep:
        least = _quick_select(keys, keep - 1)
    kept = keys[: keep + 1]
    count = 0
    for key in keys:
        label = 0x7FFFFFFF - (key & 0x7FFFFFFF)
        if key >= least or label == start:
            kept[count] = label << 32 | key >> 32  # what is written lies before what is read
            count += 1
    for key in np.sort(kept[:count]):
        out_labels[filled] = key >> 32
        out_counts[filled] = key & 0x7FFFFFFF
        filled += 1
    return filled


@kernel
def weighted_sums(sums: WeightedMembers, features: FeatureRows, keep: int) -> Any:
    """Return weights @ rows: (pointers, sorted columns, values, dense), the ``keep`` largest
    |values| of each sparse row.

    Only the row that is being added up is ever whole.
    """
    row_pointers, members, weights = sums
    pointers, columns, values, dense, n_columns = features
    rows = len(row_pointers) - 1
    bounds = np.zeros(rows, np.int64)
    for row in range(rows):
        for at in range(row_pointers[row], row_pointers[row + 1]):
            bounds[row] += pointers[members[at] + 1] - pointers[members[at]]
        bounds[row] = min(bounds[row], n_columns)
    longest = bounds.max() if rows else 0
    row_columns = np.empty(longest, np.int32)
    row_values = np.empty(longest, np.float32)
    scratch = np.empty(longest, np.float32)
    most = np.minimum(bounds, keep).sum()
    out_pointers = np.zeros(rows + 1, np.int64)
    out_dense = np.zeros((rows, dense.shape[1]), np.float32)
    out_columns = np.empty(most, np.int32)
    out_values = np.empty(most, np.float32)
    totals, words, pages = _accumulator(n_columns)
    filled = 0
    for row in range(rows):
        for at in range(row_pointers[row], row_pointers[row + 1]):
            member = members[at]
            weight = weights[at]
            for column in range(dense.shape[1]):
                out_dense[row, column] += weight * dense[member, column]
            for k in range(pointers[member], pointers[member + 1]):
                _add(totals, words, pages, columns[k], weight * values[k])
        count = emptied(totals, words, pages, row_columns, row_values, 0)
        filled = _keep_row(
            row_columns[:count], row_values[:count], keep, out_columns, out_values, filled, scratch
        )
        out_pointers[row + 1] = filled
    return out_pointers, out_columns[:filled], out_values[:filled], out_dense


@kernel
def keep_largest(pointers: Array, columns: Array, values: Array, keep: int) -> int:
    """Close up, in place, the ``keep`` largest |values| of each row, columns in order; return how
    many are left.
    """
    scratch = np.empty(len(values), np.float32)
    filled = 0
    begin = pointers[0]
    for row in range(len(pointers) - 1):
        end = pointers[row + 1]
        # what is written lies before what is read: never more than was read so far
        filled = _keep_row(
            columns[begin:end], values[begin:end], keep, columns, values, filled, scratch
        )
        begin = end
        pointers[row + 1] = filled
    return filled


@kernel
def _accumulator(width: int) -> Any:
    """Return a sum for each column, a bit for each column in use, and a bit for each word of such
    bits.
    """
    words = np.zeros(width // 64 + 1, np.uint64)
    return np.zeros(width, np.float32), words, np.zeros(len(words) // 64 + 1, np.uint64)


@kernel
def _add(sums: Array, words: Array, pages: Array, column: int, value: Any) -> None:
    # always, not only where the sum is 0: a branch that is taken at random costs more than both
    # writes
    words[column >> 6] |= _ONE << (np.uint64(column) & _LOW)
    pages[column >> 12] |= _ONE << (np.uint64(column >> 6) & _LOW)
    sums[column] += value


@kernel
def _chosen(pointers: Array, members: Array, row: Any, bits: Any) -> Any:
    """Return a member of the row by 31 random bits: a product, not a modulo (Lemire 2019)."""
    begin = pointers[row]
    return np.int64(members[begin + ((bits * (pointers[row + 1] - begin)) >> _BITS)])


@kernel
def _keep_row(
    columns: Array,  # IN  of one row
    values: Array,  # IN
    keep: int,  # IN
    out_columns: Array,  # OUT from ``filled`` on
    out_values: Array,  # OUT
    filled: int,  # IN
    scratch: Array,  # buffer, at least as long as the row
) -> int:
    """Write the ``keep`` largest |values|, of equal ones the first, in their order; return the new
    ``filled``.
    """
    least = np.float32(-1)
    ties = 0
    if len(values) > keep:
        sizes = scratch[: len(values)]
        for at in range(len(values)):
            sizes[at] = abs(values[at])
        least = _quick_select(sizes, keep - 1)
        ties = keep
        for size in sizes:
            ties -= size > least
    for at in range(len(values)):
        size = abs(values[at])
        tie = size == least and ties > 0
        if size > least or tie:
            ties -= tie
            out_columns[filled] = columns[at]
            out_values[filled] = values[at]
            filled += 1
    return filled


@kernel
def _quick_select(values: Array, rank: int) -> Any:
    """Return the value with this rank, 0 for the largest; reorders ``values`` (Hoare 1961)."""
    low = 0
    high = len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left = low
        right = high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left = left + 1
                right = right - 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return values[rank]
