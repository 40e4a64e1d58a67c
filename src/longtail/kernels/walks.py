"""Random walks between labels and documents, and weighted sums of sparse rows; of both only the
largest are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.sparse import emptied
from longtail.kernels.splitmix import random_bits

__all__ = ["keep_largest", "walk_counts", "weighted_sums"]

Array = NDArray[Any]
_ONE = np.uint64(1)
_LOW = np.uint64(63)
_BITS = 31  # random bits for each choice: two of them come out of one number


@kernel
def walk_counts(
    first: int,  # IN  the labels first..last - 1 start a walk each
    last: int,
    label_ptr: Array,  # IN  (n_labels + 1,)
    label_documents: Array,  # IN  the documents of each label
    document_ptr: Array,  # IN  (n_docs + 1,)
    document_labels: Array,  # IN  the labels of each document: the same pairs
    steps: int,
    reset: float,  # IN  probability to go back to the start after a step
    keep: int,
    seed: int,
) -> Any:
    """Return the labels that the walk from each label met most: (ptr, sorted labels, counts as
    float32).

    A step goes to a random document of the label and on to a random label of that one, which is
    counted (label correlation graph of ECLARE, Mittal et al. 2021; Gandalf, C.1). ``keep`` labels
    stay, of equal counts the lower ones, and the start in any case, with its count or 1. A label
    without documents has its start alone."""
    block = last - first
    most = (last - first) * (min(keep, steps) + 1)
    slots = 4
    while slots < 2 * (steps + 1):
        slots *= 2
    table = np.full(slots, -1, np.int32)
    counts = np.zeros(slots, np.int64)
    keys = np.empty(steps + 1, np.int64)
    bits = np.empty(steps, np.int64)
    places = np.empty(steps, np.int64)
    met = np.empty(steps, np.int32)
    active = np.empty(steps, np.int32)
    back = np.empty(steps, np.bool_)
    out_ptr = np.zeros(block + 1, np.int64)
    filled = 0
    bound = np.int64(reset * 2.0**53)
    out_labels = np.empty(most, np.int32)
    out_counts = np.empty(most, np.float32)
    for start in range(first, last):
        taken = steps if label_ptr[start] < label_ptr[start + 1] else 0
        for step in range(taken):
            back[step] = random_bits(seed, 2 * step + 1, start) >> 10 < bound
        _walk(start, taken, label_ptr, label_documents, document_ptr, document_labels, seed, back, active, bits,
              places, met)  # fmt: skip
        found = _counted(met[:taken], start, table, counts, keys)
        filled = _most_met(keys[:found], keep, start, out_labels, out_counts, filled)
        out_ptr[start - first + 1] = filled
    return out_ptr, out_labels[:filled], out_counts[:filled]


@kernel
def _walk(
    start: int,
    steps: int,
    label_ptr: Array,
    label_documents: Array,
    document_ptr: Array,
    document_labels: Array,
    seed: int,
    back: Array,  # IN  (steps,) whether the walk goes back to the start after each step
    active: Array,  # buffer (steps,)
    bits: Array,  # buffer
    places: Array,  # buffer
    met: Array,  # OUT (steps,) the label after each step
) -> None:
    """Walk from one label; steps that do not wait for each other are taken together, so that memory
    answers many.

    First all that begin at the start, then all one step behind these, and so on: where each leads
    to is fixed by (seed, step, start) alone, so the order of steps, like threads, does not enter.
    """
    count = 0
    depth = 0
    for step in range(steps):
        active[count] = step
        count += step == 0 or back[step - 1]
    while count:
        for at in range(count):
            bits[at] = random_bits(seed, 2 * active[at], start)
        for at in range(count):
            label = np.int64(start if depth == 0 else met[active[at] - 1])
            places[at] = _chosen(label_ptr, label_documents, label, bits[at] >> 32)
        for at in range(count):
            met[active[at]] = _chosen(
                document_ptr, document_labels, places[at], bits[at] & 0x7FFFFFFF
            )
        more = 0
        for at in range(count):
            step = active[at]
            active[more] = step + 1
            more += step + 1 < steps and not back[step]
        count = more
        depth = depth + 1


@kernel
def _counted(met: Array, start: int, table: Array, counts: Array, keys: Array) -> int:
    """Write a key for each label met and for the start; return how many. Larger counts, then lower
    labels, are larger.

    ``table`` (a power of two, -1: free) and ``counts`` (zeros) are a hash table that is small
    enough for the nearest cache, where a count for each label there is would not be; both are left
    as they were."""
    mask = len(table) - 1
    found = 0
    for at in range(len(met) + 1):
        label = met[at] if at < len(met) else np.int32(start)
        slot = (np.int64(label) * 0x9E3779B1 >> 12) & mask
        while table[slot] != label and table[slot] != -1:
            slot = (slot + 1) & mask
        if table[slot] == -1:
            table[slot], keys[found] = label, slot
            found += 1
            counts[slot] += 1
        else:
            counts[slot] += at < len(met)
    for at in range(found):
        slot = keys[at]
        # of equal counts, the lower label is larger
        keys[at] = counts[slot] << 32 | (0x7FFFFFFF - table[slot])
        table[slot], counts[slot] = -1, 0
    return found


@kernel
def _most_met(
    keys: Array, keep: int, start: int, out_labels: Array, out_counts: Array, filled: int
) -> int:
    """Write labels and counts of the ``keep`` largest keys and of the start, labels rising; return
    the new filled.
    """
    least = _quick_select(keys, keep - 1) if len(keys) > keep else np.int64(0)
    kept = keys[: keep + 1]
    count = 0
    for key in keys:
        label = 0x7FFFFFFF - (key & 0x7FFFFFFF)
        if key >= least or label == start:
            kept[count] = label << 32 | key >> 32  # what is written lies before what is read
            count += 1
    for key in np.sort(kept[:count]):
        out_labels[filled], out_counts[filled] = key >> 32, key & 0x7FFFFFFF
        filled += 1
    return filled


@kernel
def weighted_sums(
    row_ptr: Array,  # IN  (rows + 1,) the members of each row that comes out
    members: Array,  # IN  int32, rows of the two blocks below
    weights: Array,  # IN  float32, one a member
    ptr: Array,  # IN  sparse block
    columns: Array,
    values: Array,
    dense: Array,  # IN  dense block beside it
    width: int,  # IN  columns of the sparse block
    keep: int,
) -> Any:
    """Return weights @ rows: (ptr, sorted columns, values, dense), the ``keep`` largest |values| of
    each sparse row.

    No row is ever whole but the one that is being added up.
    """
    rows = len(row_ptr) - 1
    bounds = np.zeros(rows, np.int64)
    for row in range(rows):
        for at in range(row_ptr[row], row_ptr[row + 1]):
            bounds[row] += ptr[members[at] + 1] - ptr[members[at]]
        bounds[row] = min(bounds[row], width)
    longest = bounds.max() if rows else 0
    row_columns = np.empty(longest, np.int32)
    row_values = np.empty(longest, np.float32)
    scratch = np.empty(longest, np.float32)
    most = np.minimum(bounds, keep).sum()
    out_ptr = np.zeros(rows + 1, np.int64)
    out_dense = np.zeros((rows, dense.shape[1]), np.float32)
    out_columns = np.empty(most, np.int32)
    out_values = np.empty(most, np.float32)
    sums, words, pages = _accumulator(width)
    filled = 0
    for row in range(rows):
        for at in range(row_ptr[row], row_ptr[row + 1]):
            member = members[at]
            weight = weights[at]
            for column in range(dense.shape[1]):
                out_dense[row, column] += weight * dense[member, column]
            for place in range(ptr[member], ptr[member + 1]):
                _add(sums, words, pages, columns[place], weight * values[place])
        found = emptied(sums, words, pages, row_columns, row_values, 0)
        filled = _kept(
            row_columns, row_values, 0, found, keep, out_columns, out_values, filled, scratch
        )
        out_ptr[row + 1] = filled
    return out_ptr, out_columns[:filled], out_values[:filled], out_dense


@kernel
def keep_largest(ptr: Array, columns: Array, values: Array, keep: int) -> int:
    """Close up, in place, the ``keep`` largest |values| of each row, columns in order; return how
    many are left.
    """
    scratch = np.empty(len(values), np.float32)
    filled = 0
    begin = ptr[0]
    for row in range(len(ptr) - 1):
        end = ptr[row + 1]
        # what is written lies before what is read: never more than was read so far
        filled = _kept(columns, values, begin, end, keep, columns, values, filled, scratch)
        begin = end
        ptr[row + 1] = filled
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
def _chosen(ptr: Array, members: Array, row: Any, bits: Any) -> Any:
    """Return a member of the row by 31 random bits: a product in place of a modulo (Lemire 2019)."""
    return np.int64(members[ptr[row] + ((bits * (ptr[row + 1] - ptr[row])) >> _BITS)])


@kernel
def _kept(
    columns: Array,
    values: Array,
    begin: int,
    end: int,
    keep: int,
    out_columns: Array,  # OUT from ``filled`` on
    out_values: Array,  # OUT
    filled: int,
    scratch: Array,  # buffer (>= end - begin,)
) -> int:
    """Write the ``keep`` largest |values|, of equal ones the first, in their order; return the new
    ``filled``.
    """
    least = np.float32(-1)
    ties = 0
    if end - begin > keep:
        sizes = scratch[: end - begin]
        for at in range(begin, end):
            sizes[at - begin] = abs(values[at])
        least = _quick_select(sizes, keep - 1)
        ties = keep
        for size in sizes:
            ties -= size > least
    for at in range(begin, end):
        size = abs(values[at])
        tie = size == least and ties > 0
        if size > least or tie:
            ties -= tie
            out_columns[filled], out_values[filled] = columns[at], values[at]
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
