"""Fits one block of tf-idf features: n-grams are counted in blocks of text, merged, chosen and put
in order.

Blocks of text and shards of hashes are worked on side by side. Which n-grams are kept and their
columns follow from the texts alone, so the bytes never depend on the size of blocks or the number
of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail import config
from longtail.data.strings import Strings
from longtail.errors import DataError, Problem
from longtail.features.vocabulary import Vocabulary
from longtail.kernels import code_points, ngrams, pool, string_order, tfidf_rows
from longtail.kernels.jit import read_only
from longtail.reporting import advance, stage

__all__ = ["Rows", "count_and_weigh", "over_blocks", "split_units"]

R = TypeVar("R")
# ends from 0 on, columns, values
Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]

_BLOCK_BYTES = 1 << 19  # of text a task: its table of n-grams stays in the cache
_BLOCK_STRINGS = 1 << 16  # copied a task
_MOST_NGRAMS = 1 << 32  # of one document; places in a block are 32-bit


def over_blocks(
    name: str, documents: Strings, settings: config.TfIdf, task: Callable[[tuple[int, int]], R]
) -> Iterator[R]:
    """Yield ``task((first, last))`` of blocks of documents of some hundred kilobytes, in order."""
    blocks = list(_blocks(documents.offsets, settings.ngram_max - settings.ngram_min + 1))
    if len(blocks) == 1:  # a document that someone waits for has no time to start threads
        yield task(blocks[0])
        return
    with stage(name, int(documents.offsets[-1] - documents.offsets[0]), "B"):
        for (first, last), result in zip(blocks, pool.run(task, blocks), strict=True):
            advance(int(documents.offsets[last] - documents.offsets[first]))
            yield result


def _blocks(offsets: NDArray[np.int64], lengths: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of documents; ``lengths`` is how many lengths n-grams have."""
    first = 0
    most = _MOST_NGRAMS // (lengths + 1)
    while first < len(offsets) - 1:
        full = offsets[first] + min(_BLOCK_BYTES, most)
        last = max(first + 1, int(np.searchsorted(offsets, full, "right")) - 1)
        size = int(offsets[last] - offsets[first])
        if size > most:
            problem = f"document {first + 1} has {size} bytes"
            expected = f"at most {most}"
            raise DataError([Problem("tf-idf", 0, problem, expected)], "split it into several")
        yield first, last
        first = last


def split_units(documents: Strings, block: tuple[int, int], unit: str) -> tuple[Any, Any, Any, Any]:
    """Return (buffer, starts, hashes, units of each document), see
    :mod:`longtail.kernels.code_points`.
    """
    split = code_points.split_words if unit == "word" else code_points.split_characters
    return split(
        read_only(documents.arena),
        read_only(documents.offsets),
        *block,
        code_points.code_point_table(),
    )


@dataclass
class _Block:
    """Some documents and their n-grams, numbered from 0 on: see :func:`ngrams.count_ngrams`."""

    buffer: NDArray[np.uint8]
    keys: NDArray[np.uint64]
    facts: NDArray[np.uint32]
    members: NDArray[np.uint32]
    shards: NDArray[np.int64]
    rows: NDArray[np.int64]
    numbers: NDArray[np.uint32]
    tfs: NDArray[np.uint32]
    merged: NDArray[np.uint32]  # numbers in their shards, beside ``members``

    def forget_strings(self) -> None:
        """Free what only the vocabulary is made from."""
        self.buffer = self.buffer[:0].copy()
        self.keys = self.keys[:0].copy()
        self.facts = self.facts[:0].copy()


@dataclass
class _Shard:
    """A sixteenth of all n-grams, in the order in which blocks brought them."""

    facts: NDArray[np.int64]  # (n-grams, 4)
    ends: list[int]  # n-grams that were known after each block


def count_and_weigh(
    documents: Strings, settings: config.TfIdf, keep_rows: bool
) -> tuple[Vocabulary, list[Rows]]:
    """Return the vocabulary of ``documents`` and, if they are asked for, their rows, block after
    block.
    """

    def count(rows: tuple[int, int]) -> _Block:
        buffer, starts, hashes, units = split_units(documents, rows, settings.unit)
        gap = int(settings.unit == "word")
        counted = ngrams.count_ngrams(
            starts, hashes, units, gap, settings.ngram_min, settings.ngram_max
        )
        if not keep_rows:
            # views would keep the rows
            counted = (*counted[:5], counted[5][:0].copy(), counted[6][:0].copy())
        return _Block(buffer, *counted, merged=np.empty(len(counted[2]), np.uint32))

    def weigh(block: _Block) -> Rows:
        members = ngrams.number_ngrams(block.members, block.shards, block.merged, firsts, columns)
        idf = vocabulary.idf
        sublinear = settings.sublinear_tf
        rows: Rows = tfidf_rows.weigh_counts(
            block.rows, block.numbers, block.tfs, members, idf, sublinear
        )
        return rows

    blocks = deque(over_blocks("counting n-grams", documents, settings, count))
    shards = list(pool.run(lambda shard: _merge(blocks, shard), range(ngrams.SHARDS)))
    firsts = np.cumsum([0, *(len(shard.facts) for shard in shards)])[:-1]
    vocabulary, columns = _choose(blocks, shards, settings, len(documents))
    del shards
    for block in blocks:
        block.forget_strings()
    spent = (blocks.popleft() for _ in range(len(blocks)))  # each is freed as soon as it is done
    if not keep_rows:
        return vocabulary, []
    return vocabulary, list(pool.run(weigh, spent))


def _merge(blocks: Collection[_Block], shard: int) -> _Shard:
    """Add up the counts of all blocks for the n-grams of one shard."""
    keys = np.empty(0, np.uint64)
    facts = np.empty((0, 4), np.int64)
    table = ngrams.empty_table(0)
    count = 0
    ends = []
    for block in blocks:
        of_shard = slice(int(block.shards[shard]), int(block.shards[shard + 1]))
        members = block.members[of_shard]
        if count + len(members) > len(keys):
            room = 2 * (count + len(members))
            keys = _grown(keys, room)
            facts = _grown(facts, room)
            table = ngrams.empty_table(room)
            ngrams.fill_table(keys, count, table)
        count = ngrams.merge_counts(
            block.keys, block.facts, members, table, keys, facts, count, block.merged[of_shard]
        )
        ends.append(count)
    return _Shard(facts[:count].copy(), ends)


def _grown(array: NDArray[Any], room: int) -> NDArray[Any]:
    grown = np.empty((room, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _choose(
    blocks: Collection[_Block], shards: list[_Shard], settings: config.TfIdf, n_documents: int
) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Return the vocabulary, and the column of each n-gram of all shards (−1: left out)."""
    facts = np.concatenate([shard.facts for shard in shards])
    df = facts[:, ngrams.DF]
    tf = facts[:, ngrams.TF]
    kept = np.flatnonzero((df >= settings.min_df) & (df <= settings.max_df * n_documents))
    least = 0
    if 0 < settings.max_features < len(kept):
        least = -np.partition(-tf[kept], settings.max_features - 1)[settings.max_features - 1]
        kept = kept[tf[kept] >= least]
    if not len(kept):
        raise _nothing_left(settings, n_documents, len(facts))
    strings = _gather(blocks, shards, facts, kept)
    order = np.arange(len(kept), dtype=np.uint32)
    string_order.sort_strings(strings.arena, strings.offsets, order)
    if settings.max_features and len(order) > settings.max_features:
        last_ties = np.flatnonzero(tf[kept[order]] == least)[settings.max_features - len(order) :]
        order = np.delete(order, last_ties)
    columns = np.full(len(facts), -1, np.int32)
    columns[kept[order]] = np.arange(len(order), dtype=np.int32)
    return Vocabulary(settings, _reordered(strings, order), df[kept[order]], n_documents), columns


def _gather(
    blocks: Collection[_Block],
    shards: list[_Shard],
    facts: NDArray[np.int64],
    kept: NDArray[np.int64],
) -> Strings:
    """Copy the n-grams ``kept`` out of the blocks that brought them."""
    offsets = np.append(0, np.cumsum(facts[kept, ngrams.SIZE]))
    begins = facts[kept, ngrams.BEGIN]
    arena = np.empty(offsets[-1], np.uint8)
    firsts = accumulate((len(shard.facts) for shard in shards), initial=0)

    def copy(numbered: tuple[int, _Shard]) -> None:
        first, shard = numbered
        ends = np.searchsorted(kept, [first, *(first + end for end in shard.ends)]).tolist()
        for block, (at, end) in zip(blocks, pairwise(ends), strict=True):
            string_order.copy_ranges(block.buffer, begins[at:end], offsets[at : end + 1], arena)

    deque(pool.run(copy, zip(firsts, shards, strict=False)), maxlen=0)
    return Strings(arena, offsets)


def _reordered(strings: Strings, order: NDArray[np.uint32]) -> Strings:
    offsets = np.append(0, np.cumsum(strings.lengths[order]))
    begins = strings.offsets[order]
    arena = np.empty(offsets[-1], np.uint8)

    def copy(rows: tuple[int, int]) -> None:
        at, end = rows
        string_order.copy_ranges(strings.arena, begins[at:end], offsets[at : end + 1], arena)

    deque(pool.run(copy, pool.row_blocks(len(order), _BLOCK_STRINGS)), maxlen=0)
    return Strings(arena, offsets)


def _nothing_left(settings: config.TfIdf, n_documents: int, n_ngrams: int) -> DataError:
    asked = f"{settings.unit} n-grams of {settings.ngram_min} to {settings.ngram_max}"
    problem = f"no n-gram is left: {n_documents} documents have {n_ngrams} different {asked}"
    way_out = "give it texts, or choose shorter n-grams"
    if n_ngrams:
        problem += f", none in {settings.min_df} documents or more"
        problem += f" and {settings.max_df:.0%} of them or less"
        way_out = "lower min_df or raise max_df"
    return DataError([Problem("tf-idf", 0, problem, "at least one")], way_out)
