"""Arrays as the bytes of safetensors."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.store import tensors

DTYPES = ["?", "u1", "i1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<c8", "<f8", "<i8", "<u8"]
ARRAYS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=5).filter(lambda name: name != "__metadata__"),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
        )
    ),
    max_size=6,
)


def bytes_of(arrays, metadata=None):
    return b"".join(tensors.array_pieces(arrays, metadata))


@settings(max_examples=60, deadline=None)
@given(ARRAYS)
def test_arrays_are_written_and_read_as_the_safetensors_library_does(arrays):
    ours = bytes_of(arrays, {"k": "v"})
    theirs = safetensors.numpy.save(arrays, {"k": "v"})
    assert ours == theirs
    for read in (safetensors.numpy.load(ours), tensors.read_arrays(memoryview(theirs), "file")):
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array, strict=True)


def test_strided_and_big_endian_arrays_are_stored_straight():
    strided = np.arange(12).reshape(3, 4).T[::2]
    big = np.arange(3, dtype=">i4")
    read = tensors.read_arrays(memoryview(bytes_of({"strided": strided, "big": big})), "file")
    np.testing.assert_array_equal(read["strided"], strided, strict=True)
    np.testing.assert_array_equal(read["big"], big.astype("=i4"), strict=True)


def test_arrays_at_odd_places_are_copied_to_even_ones():
    first = b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    second = b'"b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}'
    header = b"{" + first + b"," + second + b"}"
    raw = len(header).to_bytes(8, "little") + header + b"\x07" + np.float64(2.5).tobytes()
    read = tensors.read_arrays(memoryview(raw), "file")
    assert (read["a"][0], read["b"][0]) == (7, 2.5)
    assert read["b"].flags.aligned
    assert not read["b"].flags.writeable
