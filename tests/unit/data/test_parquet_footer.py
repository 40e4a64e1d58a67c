"""The footer's claims are those that pyarrow tells, and no bytes in its place do more than raise
ValueError.
"""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pytest
from pyarrow import parquet

from longtail.data.parquet import ColumnChunk, column_chunks

TABLE = pa.table(
    {
        "text": ["one", "zwei", None] * 50,
        "labels": [["a", "b"], [], None] * 50,
        "a.b": list(range(150)),
        "flag": [True, False, None] * 50,
        "weight": [0.5] * 150,
        "nested": [{"x": [{"y": 1}]}] * 150,
    }
)


def written(**settings) -> bytes:
    out = io.BytesIO()
    parquet.write_table(TABLE, out, row_group_size=40, **settings)
    return out.getvalue()


@pytest.mark.parametrize(
    "settings", [{}, {"write_page_index": True, "compression": "zstd"}, {"store_schema": False}]
)
def test_chunks_are_those_of_pyarrow(tmp_path, settings):
    file = tmp_path / "a.parquet"
    file.write_bytes(written(**settings))
    metadata = parquet.read_metadata(file)
    names = ["text", "labels", "a.b", "flag", "weight", "nested"]
    expected = []
    for group in range(metadata.num_row_groups):
        for path, name in enumerate(names):
            message = metadata.row_group(group).column(path)
            expected.append(ColumnChunk(name, message.num_values, message.total_uncompressed_size))
    assert list(column_chunks(file)) == expected
    assert len(expected) == 24


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        b"PAR1\0\0\0\0PAR1",
        b"PAR1" + b"\x15\x02\0" + b"\x03\0\0\0PAR1",  # no row groups
        b"PAR1" + b"\x49\x9c\x19\x1c\0\0\0" + b"\x07\0\0\0PAR1",  # no columns
        b"PAR1" + b"\x19" * 5000 + b"\x88\x13\0\0PAR1",  # lists in lists
        b"PAR1" + b"\x49\xf5\xff\xff\xff\xff\x0f\0" + b"\x08\0\0\0PAR1",  # a list without end
        b"PAR1" + b"\x18\xff\xff\xff\xff\x0fa" + b"\x07\0\0\0PAR1",  # a string without end
        b"PAR1" + b"\x15" + b"\xff" * 20 + b"\0" + b"\x16\0\0\0PAR1",  # a number without end
        b"PAR1" + b"\xff\xff\xff\x7fPAR1",
    ],
)
def test_a_footer_that_cannot_be_read(tmp_path, data):
    file = tmp_path / "a.parquet"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"footer|64 bits"):
        list(column_chunks(file))


def test_damage_does_no_more_than_raise(tmp_path):
    file = tmp_path / "a.parquet"
    data = written()
    rng = random.Random(0)
    footer = int.from_bytes(data[-8:-4], "little")
    for _ in range(1000):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            damaged[len(data) - 8 - rng.randint(1, footer)] = rng.randrange(256)
        file.write_bytes(damaged)
        try:
            chunks = list(column_chunks(file))
        except ValueError:
            continue
        assert all(isinstance(value, int) for chunk in chunks for value in chunk[1:])
