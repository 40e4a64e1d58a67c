"""Counts of n-grams of units in blocks of documents, merged into one vocabulary.

N-grams are compared by 64-bit hashes alone. Of n different ones, some two share a hash with a
probability of about n² / 2^65: 3e-6 for ten million, 3e-4 for a hundred million. Two such n-grams
are counted as one.

A hash table is a row of pairs (hash, number + 1), open addressing; (0, 0) is free. Hashes are
spread over shards by their highest bits, so that shards are merged side by side, each in a table
that fits the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.code_points import decode, hash_bytes, mix
from longtail.kernels.jit import kernel

__all__ = [
    "BEGIN",
    "DF",
    "SHARDS",
    "SIZE",
    "TF",
    "count_ngrams",
    "empty_table",
    "fill_table",
    "find",
    "follow",
    "hash_ngrams",
    "merge_counts",
    "number_ngrams",
]

SHARDS = 16
_SHARD_SHIFT = np.uint64(60)
_MULTIPLIER = np.uint64(0xD1B54A32D192ED03)
_PLACE = np.uint64(32)
_NUMBER = np.uint64(0xFFFFFFFF)
_BLANK = 32
# columns of ``facts``: where the n-gram begins, its bytes, documents, occurrences
BEGIN = 0
SIZE = 1
DF = 2
TF = 3


def empty_table(room: int) -> NDArray[np.uint64]:
    """Return a table that is at most half full when it holds ``room`` n-grams."""
    return np.zeros((1 << max(2 * room - 1, 1).bit_length(), 2), np.uint64)


@kernel
def follow(h: Any, unit: Any) -> Any:
    """Return the hash of an n-gram and the unit behind it."""
    return mix(h * _MULTIPLIER + unit)


@kernel
def find(table: Any, mask: int, h: Any) -> Any:
    """Return the pair of ``h``, or the free one where it belongs."""
    pair = np.int64(h & np.uint64(mask))
    while table[pair, 1] and table[pair, 0] != h:
        pair = (pair + 1) & mask
    return pair


@kernel
def fill_table(hashes: Any, count: int, table: Any) -> None:
    """Put ``count`` different hashes into an empty table of (a power of 2, 2)."""
    mask = table.shape[0] - 1
    for number in range(count):
        pair = find(table, mask, hashes[number])
        table[pair, 0] = hashes[number]
        table[pair, 1] = number + 1


@kernel
def hash_ngrams(arena: NDArray[np.uint8], offsets: NDArray[np.int64], words: bool) -> Any:
    """Return the hash of each string as an n-gram: words separated by spaces, or characters."""
    hashes = np.empty(offsets.shape[0] - 1, np.uint64)
    for number in range(hashes.shape[0]):
        at = offsets[number]
        end = offsets[number + 1]
        h = np.uint64(0)
        units = 0
        while at < end:
            if words:
                stop = at
                while stop < end and arena[stop] != _BLANK:
                    stop += 1
                unit = hash_bytes(arena, at, stop)
                at = stop + 1
            else:
                code_point, at = decode(arena, at)
                unit = mix(np.uint64(code_point))
            if units:
                unit = follow(h, unit)
            h = unit
            units += 1
        hashes[number] = h
    return hashes


@kernel
def _occurrences(units: Any, shortest: int, longest: int) -> int:
    """Return the number of n-grams in all documents, with repetitions."""
    total = 0
    for document in range(units.shape[0] - 1):
        size = units[document + 1] - units[document]
        for n in range(shortest, min(longest, size) + 1):
            total += size - n + 1
    return total


@kernel
def count_ngrams(
    starts: NDArray[np.uint32],  # IN  of units in the buffer
    hashes: NDArray[np.uint64],  # IN  of units
    units: NDArray[np.int64],  # IN  (documents + 1,) units of each document
    gap: int,  # IN  bytes between units
    shortest: int,  # IN  n-gram
    longest: int,  # IN
) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
    """Number the n-grams of a block in order of appearance.

    Returns their hashes and facts (BEGIN, SIZE, DF, TF); their numbers in the order of shards and
    where each shard begins; and the documents as rows: where they begin, numbers, and occurrences.
    """
    most = _occurrences(units, shortest, longest)
    keys = np.empty(most, np.uint64)
    facts = np.empty((most, 4), np.uint32)
    numbers = np.empty(most, np.uint32)
    tfs = np.empty(most, np.uint32)
    rows = np.zeros(units.shape[0], np.int64)
    table = np.zeros((4096, 2), np.uint64)  # above the number: its last position in the rows
    mask = table.shape[0] - 1
    count = 0
    end = 0
    for document in range(units.shape[0] - 1):
        row = end
        last = units[document + 1]
        for unit in range(units[document], last):
            h = hashes[unit]
            for n in range(1, min(longest, last - unit) + 1):
                if n > 1:
                    h = follow(h, hashes[unit + n - 1])
                if n < shortest:
                    continue
                pair = find(table, mask, h)
                known = table[pair, 1]
                if known == 0:
                    keys[count] = h
                    facts[count, BEGIN] = starts[unit]
                    facts[count, SIZE] = starts[unit + n] - gap - starts[unit]
                    count += 1
                    table[pair, 0] = h
                    known = np.uint64(count)
                elif np.int64(known >> _PLACE) >= row:
                    tfs[known >> _PLACE] += 1
                    continue
                number = known & _NUMBER
                numbers[end] = number - np.uint64(1)
                tfs[end] = 1
                table[pair, 1] = np.uint64(end) << _PLACE | number
                end += 1
                if 2 * count > mask:
                    table = _twice_as_large(table)
                    mask = table.shape[0] - 1
        rows[document + 1] = end
    _add_up(numbers[:end], tfs, facts[:count])
    members, shards = _by_shard(keys, count)
    return (
        keys[:count].copy(),
        facts[:count].copy(),
        members,
        shards,
        rows,
        numbers[:end].copy(),
        tfs[:end].copy(),
    )


@kernel
def _twice_as_large(table: Any) -> Any:
    larger = np.zeros((2 * table.shape[0], 2), np.uint64)
    for old in range(table.shape[0]):
        if table[old, 1]:
            new = find(larger, larger.shape[0] - 1, table[old, 0])
            larger[new, 0] = table[old, 0]
            larger[new, 1] = table[old, 1]
    return larger


@kernel
def _add_up(numbers: Any, tfs: Any, facts: Any) -> None:
    """Fill in DF and TF of each n-gram from the rows."""
    for number in range(facts.shape[0]):
        facts[number, DF] = 0
        facts[number, TF] = 0
    for i in range(numbers.shape[0]):
        facts[numbers[i], DF] += 1
        facts[numbers[i], TF] += tfs[i]


@kernel
def _by_shard(keys: Any, count: int) -> tuple[Any, Any]:
    """Return the numbers of all hashes, shard after shard, and where each shard begins."""
    shards = np.zeros(SHARDS + 1, np.int64)
    for number in range(count):
        shards[np.int64(keys[number] >> _SHARD_SHIFT) + 1] += 1
    for shard in range(SHARDS):
        shards[shard + 1] += shards[shard]
    members = np.empty(count, np.uint32)
    ends = shards.copy()
    for number in range(count):
        shard_of = np.int64(keys[number] >> _SHARD_SHIFT)
        members[ends[shard_of]] = number
        ends[shard_of] += 1
    return members, shards


@kernel
def merge_counts(
    keys: NDArray[np.uint64],  # IN  hashes of a block
    facts: NDArray[np.uint32],  # IN  of a block, BEGIN, SIZE, DF, TF
    members: NDArray[np.uint32],  # IN  numbers in the block of what belongs to this shard
    table: NDArray[np.uint64],  # IN/OUT of the shard, at least twice as many pairs as n-grams
    all_keys: NDArray[np.uint64],  # IN/OUT of the shard
    # IN/OUT of the shard; BEGIN stays that of the first block that has the n-gram
    all_facts: NDArray[np.int64],
    count: int,  # IN  n-grams of the shard so far
    merged: NDArray[np.uint32],  # OUT (members,) their numbers in the shard
) -> int:
    """Add the counts of one block to those of a shard; return how many n-grams the shard has."""
    mask = table.shape[0] - 1
    for i in range(members.shape[0]):
        member = members[i]
        pair = find(table, mask, keys[member])
        number: Any = np.int64(table[pair, 1]) - 1
        if number < 0:
            number = count
            count += 1
            table[pair, 0] = keys[member]
            table[pair, 1] = count
            all_keys[number] = keys[member]
            all_facts[number, BEGIN] = facts[member, BEGIN]
            all_facts[number, SIZE] = facts[member, SIZE]
            all_facts[number, DF] = 0
            all_facts[number, TF] = 0
        all_facts[number, DF] += facts[member, DF]
        all_facts[number, TF] += facts[member, TF]
        merged[i] = number
    return count


@kernel
def number_ngrams(
    members: NDArray[np.uint32],  # IN  numbers in a block, shard after shard
    shards: NDArray[np.int64],  # IN  (SHARDS + 1,) where each shard begins in ``members``
    merged: NDArray[np.uint32],  # IN  numbers in the shard, beside ``members``
    firsts: NDArray[np.int64],  # IN  (SHARDS,) where each shard begins in ``columns``
    columns: NDArray[np.int32],  # IN  column of each n-gram of all shards, −1: left out
) -> Any:
    """Return the column of each n-gram of a block."""
    column_of = np.empty(members.shape[0], np.int32)
    for shard in range(SHARDS):
        for i in range(shards[shard], shards[shard + 1]):
            column_of[members[i]] = columns[firsts[shard] + merged[i]]
    return column_of
