import threading
import time
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.features.tokens import Tokens
from longtail.networks.batches import Batches, prefetched

N_LABELS = 30


def make_tokens(lengths, pad=0):
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Tokens(np.arange(1, ends[-1] + 1, dtype=np.uint32), ends, pad, False)


def make_labels(n, seed=0, density=0.1):
    chance = np.random.default_rng(seed)
    dense = (chance.random((n, N_LABELS)) < density) * chance.uniform(0.1, 1, (n, N_LABELS))
    return sparse.csr_array(dense.astype(np.float32))


def make_batches(n=333, batch_size=4, seed=5):
    lengths = np.random.default_rng(seed).integers(1, 40, n)
    return Batches(make_tokens(lengths), make_labels(n), batch_size, seed)


def rows_of(batches):
    return [batch.rows.tolist() for batch in batches]


class TestEpoch:
    def test_every_labelled_document_once(self):
        batches = make_batches()
        rows = rows_of(batches.epoch(0))
        labelled = np.flatnonzero(np.diff(make_labels(333).indptr))
        assert 0 < len(labelled) < 333
        assert sorted(chain(*rows)) == labelled.tolist()
        assert len(rows) == len(batches) == -(-len(labelled) // 4)
        assert batches.n_documents == len(labelled)
        assert sorted(map(len, rows))[1:] == [4] * (len(rows) - 1)  # one partial batch at most

    def test_order_is_of_seed_and_epoch(self):
        assert rows_of(make_batches().epoch(3)) == rows_of(make_batches().epoch(3))
        assert rows_of(make_batches().epoch(3)) != rows_of(make_batches().epoch(4))
        lengths = np.full(50, 3)
        labels = make_labels(50, density=1.0)
        one, other = (
            rows_of(Batches(make_tokens(lengths), labels, 4, seed).epoch(0)) for seed in (1, 2)
        )
        assert one != other

    @pytest.mark.parametrize("start", [1, 17, 1000])
    def test_from_any_position(self, start):
        batches = make_batches()
        assert rows_of(batches.epoch(2, start)) == rows_of(batches.epoch(2))[start:]

    def test_documents_of_a_batch_are_of_like_length(self):
        n = 2000
        lengths = np.random.default_rng(0).integers(1, 512, n)
        batches = Batches(make_tokens(lengths), make_labels(n, density=1.0), 8, 0)
        spread = [np.ptp(lengths[batch.rows]) for batch in batches.epoch(0)]
        assert np.mean(spread) < 512 / 50 * 1.5  # a window of 50 batches is sorted
        first = [lengths[rows].mean() for rows in rows_of(batches.epoch(0))[:50]]
        assert np.any(np.diff(first) < 0)  # and the batches themselves come in random order

    def test_one_window_does_not_hold_all(self):
        lengths = np.arange(1000) + 1
        batches = Batches(make_tokens(lengths), make_labels(1000, density=1.0), 2, 0)
        assert (
            max(np.ptp(batch.rows) for batch in batches.epoch(0)) > 2
        )  # else it was sorted as a whole

    @settings(max_examples=30)
    @given(
        st.lists(
            st.lists(st.integers(0, N_LABELS - 1), max_size=9, unique=True), min_size=1, max_size=20
        )
    )
    def test_positives(self, labels):
        ends = np.cumsum([0, *map(len, labels)])
        columns = np.array([*chain(*labels)], np.int32)
        values = np.linspace(0.1, 1, len(columns), dtype=np.float32)
        matrix = sparse.csr_array((values, columns, ends), shape=(len(labels), N_LABELS))
        for batch in Batches(make_tokens([2] * len(labels)), matrix, 3, 0).epoch(0):
            assert batch.positives.dtype == torch.int32
            assert batch.values.dtype == torch.float32
            longest = max(len(labels[row]) for row in batch.rows)
            assert batch.positives.shape == batch.values.shape == (len(batch), -(-longest // 4) * 4)
            for row, own, value in zip(
                batch.rows, batch.positives.tolist(), batch.values.numpy(), strict=True
            ):
                count = len(labels[row])
                assert own == labels[row] + [-1] * (len(own) - count)
                assert value.tolist() == values[ends[row] : ends[row + 1]].tolist() + [0] * (
                    len(own) - count
                )


class TestTokens:
    def test_padding_and_mask(self):
        tokens = make_tokens([3, 8, 1])
        (batch,) = Batches.in_order(tokens, 5)
        assert batch.rows.tolist() == [1, 0, 2]  # longest first
        assert batch.ids.dtype == torch.int64
        assert batch.ids.tolist() == [
            [4, 5, 6, 7, 8, 9, 10, 11],
            [1, 2, 3] + [0] * 5,
            [12] + [0] * 7,
        ]
        assert batch.mask.tolist() == [[True] * 8, [True] * 3 + [False] * 5, [True] + [False] * 7]
        assert batch.positives.shape == (3, 0)

    def test_no_mask_where_nothing_is_padded(self):
        (batch,) = Batches.in_order(make_tokens([8, 8]), 2)
        assert batch.mask is None
        assert [len(part) for part in batch.split(1)] == [1, 1]

    def test_in_order_has_each_document_once(self):
        lengths = np.random.default_rng(0).integers(1, 40, 100)
        batches = list(Batches.in_order(make_tokens(lengths), 7))
        rows = np.concatenate([batch.rows for batch in batches])
        assert sorted(rows) == list(range(100))
        assert (np.diff(lengths[rows]) <= 0).all()
        assert [len(batch) for batch in batches] == [7] * 14 + [2]

    def test_no_documents(self):
        assert list(Batches.in_order(make_tokens([]), 7)) == []
        assert len(Batches(make_tokens([1]), make_labels(1, density=0), 2, 0)) == 0

    def test_split(self):
        (batch,) = Batches(make_tokens(range(1, 8)), make_labels(7, density=1.0), 7, 0).epoch(0)
        parts = batch.split(3)
        assert [len(part) for part in parts] == [3, 3, 1]
        for name in ("ids", "mask", "positives", "values"):
            assert torch.equal(
                torch.cat([getattr(part, name) for part in parts]), getattr(batch, name)
            )
        assert np.concatenate([part.rows for part in parts]).tolist() == batch.rows.tolist()
        assert batch.split(7) == [batch]
        moved = batch.to(torch.device("meta"))
        assert moved.ids.is_meta
        assert moved.mask.is_meta
        assert moved.values.is_meta


class TestPrefetched:
    def test_made_ahead_by_one_thread_and_bounded(self):
        made = []
        threads = set()

        def make(item):
            threads.add(threading.current_thread())
            made.append(item)
            return item * 2

        items = prefetched(make, range(100), ahead=3)
        assert next(items) == 0
        for _ in range(200):
            if len(made) >= 4:
                break
            time.sleep(0.01)
        time.sleep(0.02)
        assert made == [0, 1, 2, 3]
        assert list(items) == [2 * item for item in range(1, 100)]
        assert len(threads) == 1
        assert threading.current_thread() not in threads
        assert not threads.pop().is_alive()

    def test_a_lone_item_is_made_by_the_caller(self):
        assert list(prefetched(lambda _: threading.current_thread(), [1])) == [
            threading.current_thread()
        ]

    def test_closed_early(self):
        before = threading.active_count()
        items = make_batches().epoch(0)
        next(items)
        items.close()
        assert threading.active_count() == before

    def test_errors_are_raised_by_the_caller(self):
        before = threading.active_count()
        items = prefetched(lambda item: 1 // item, [2, 1, 0, 3])
        assert [next(items), next(items)] == [0, 1]
        with pytest.raises(ZeroDivisionError):
            next(items)
        assert threading.active_count() == before
