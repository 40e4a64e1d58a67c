"""Bytes become numbered lines: the same for any chunk size and compression, and within limits for
any input.
"""

from __future__ import annotations

import errno
import gzip
import io
import sys
import tracemalloc
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import reporting
from longtail.data import lines as module
from longtail.data.lines import blocks, chunks
from longtail.data.output import zstd
from longtail.data.problems import Problems
from longtail.errors import DataError, Problem, UsageError

quick = settings(deadline=None, max_examples=120)
PACK = {"plain": bytes, "gzip": gzip.compress, "zstd": zstd.compress}
BOM = b"\xef\xbb\xbf"


def lines(path, problems):
    """(line number, line) of every block."""
    for block in blocks(path, problems):
        for number, line in enumerate(block.data.split(b"\n")[:-1], block.first_line):
            yield number, line.removesuffix(b"\r")


@contextmanager
def limits(**values):
    if "_CHUNK" in values:
        values["_ARCHIVE_CHUNK"] = values["_CHUNK"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(module, name, value)
        yield


@contextmanager
def memory_below(most):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("lines") / "file"


def read(file, content, skip_bad=10**6):
    file.write_bytes(content)
    return list(lines(file, Problems(file, skip_bad)))


# --- lines
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [(1, b"")]),
        (b"a", [(1, b"a")]),
        (b"a\n", [(1, b"a")]),
        (b"a\r\nb\r\n", [(1, b"a"), (2, b"b")]),
        (b"a\r\r\n\r", [(1, b"a\r"), (2, b"")]),
        (b"\n\na\n\nb", [(1, b""), (2, b""), (3, b"a"), (4, b""), (5, b"b")]),
        (BOM + b"a\n" + BOM + b"b\n", [(1, b"a"), (2, BOM + b"b")]),
        (BOM, []),
        (BOM + b"\n", [(1, b"")]),
        (b"a\0b\x0bc\x0cd\x85e\n", [(1, b"a\0b\x0bc\x0cd\x85e")]),
    ],
)
def test_lines_and_their_numbers(file, content, expected):
    assert read(file, content) == expected


@st.composite
def contents(draw):
    """Bytes full of line ends, with or without a byte order mark."""
    parts = st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bcd", "é".encode(), BOM, b"0123456789"])
    return draw(st.sampled_from([b"", BOM])) + b"".join(draw(st.lists(parts, max_size=14)))


@quick
@given(contents(), st.integers(1, 12), st.sampled_from(sorted(PACK)))
def test_the_chunk_size_and_compression_change_nothing(file, content, chunk, packing):
    whole = content.removeprefix(BOM).split(b"\n")
    expected = [(number, line.removesuffix(b"\r")) for number, line in enumerate(whole, 1)]
    if not whole[-1]:
        expected.pop()
    packed = PACK[packing](content)
    with limits(_CHUNK=chunk):
        assert read(file, packed) == expected


@quick
@given(contents(), st.integers(1, 10), st.sampled_from(["plain", "gzip"]))
def test_overlong_lines_are_left_out_and_the_numbers_stay_right(file, content, chunk, packing):
    whole = content.removeprefix(BOM).split(b"\n")
    if not whole[-1]:
        whole.pop()
    file.write_bytes(PACK[packing](content))
    with limits(MAX_LINE=10, _CHUNK=chunk):
        problems = Problems("f", 10**6)
        whole_lines = list(blocks(file, problems))
        numbers = [number for number, _ in lines(file, Problems("f", 10**6))]
    found = [line for block in whole_lines for line in block.data.split(b"\n")[:-1]]
    assert found == [line for line in whole if len(line) <= 10]
    assert (
        not whole
        or whole_lines[-1].first_line + whole_lines[-1].data.count(b"\n") == len(whole) + 1
    )
    assert numbers == [number for number, line in enumerate(whole, 1) if len(line) <= 10]
    assert problems.skipped == sum(len(line) > 10 for line in whole)


def test_an_overlong_line_is_named(file):
    file.write_bytes(b"a\n" + b"x" * ((3 << 20) + 1) + b"\nb")
    problems = Problems("ledger")
    with limits(MAX_LINE=3 << 20, _CHUNK=1 << 20):
        assert [number for number, _ in lines(file, problems)] == [1, 3]
    with pytest.raises(DataError) as caught:
        problems.close()
    assert caught.value.problems == [
        Problem(str(file), 2, "a line of more than 3 MiB", "one document a line")
    ]


def test_a_line_without_end_does_not_fill_the_memory(file):
    file.write_bytes(b"x" * 3_000_000)
    with limits(MAX_LINE=10_000, _CHUNK=1_000), memory_below(100_000):
        assert not any(block.data for block in blocks(file, Problems("f", 1)))


@quick
@given(contents(), st.integers(1, 12))
def test_blocks_are_whole_lines_that_follow_each_other(file, content, chunk):
    file.write_bytes(content)
    with limits(_CHUNK=chunk):
        found = list(blocks(file, Problems("f")))
    line = 1
    for block in found:
        assert block.first_line == line
        assert block.data.endswith(b"\n")
        line += block.data.count(b"\n")
    ended = content.removeprefix(BOM)
    assert b"".join(block.data for block in found) == (
        ended if ended.endswith(b"\n") or not ended else ended + b"\n"
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("chunk", [2, 1 << 18])
def test_utf_16_is_refused(file, encoding, chunk):
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    with (
        limits(_CHUNK=chunk),
        pytest.raises(DataError, match=r":1: UTF-16 text; expected UTF-8; convert it with: iconv"),
    ):
        read(file, mark + "a\n".encode(encoding))


# --- where bytes come from
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", PACK)
def test_standard_input(monkeypatch, packing):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(PACK[packing](b"a\nb"))))
    assert list(lines("-", Problems("-"))) == [(1, b"a"), (2, b"b")]
    assert not sys.stdin.buffer.closed


def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path, message in [
        (tmp_path / "nowhere", "nowhere: no such file"),
        (tmp_path, "cannot be read, as it is a folder; expected a file"),
        (tmp_path / "file" / "below", "below: cannot be read"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ]:
        with pytest.raises(UsageError, match=message):
            list(chunks(path, Problems(path)))


def test_what_may_not_be_read(tmp_path, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)  # root may read all
    with pytest.raises(
        UsageError, match=r"cannot be read \(Permission denied\); check its permissions$"
    ):
        next(chunks(tmp_path / "file", Problems("file")))


class Counted:
    total = 0

    def start(self, name, total, unit): ...

    def finish(self): ...

    def advance(self, amount):
        self.total += amount


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("members", [1, 5])
def test_progress_adds_up_to_the_size_of_the_file(file, packing, members):
    file.write_bytes(
        PACK[packing](b"some text\n" * 100) * members + (b"" if packing == "plain" else bytes(50))
    )
    counted = Counted()
    reporting.show_on(counted)
    try:
        with limits(_CHUNK=16):
            list(chunks(file, Problems("f")))
    finally:
        reporting.show_on(None)
    assert counted.total == file.stat().st_size


# --- archives
# ----------------------------------------------------------------------------------------------------

TEXT = b"".join(b"line %d of some length\n" % number for number in range(40))


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize("chunk", [7, 100, 1 << 18])
@pytest.mark.parametrize("padding", [b"", b"\0", bytes(300)])
def test_several_members_and_padding(file, packing, chunk, padding):
    pack = PACK[packing]
    content = pack(b"") + pack(BOM + TEXT[:100]) + padding + pack(b"") + pack(TEXT[100:]) + padding
    with limits(_CHUNK=chunk):
        assert b"\n".join(line for _, line in read(file, content)) + b"\n" == TEXT


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_cut_anywhere_it_is_refused(file, packing):
    packed = PACK[packing](TEXT)
    for cut in range(4, len(packed)):
        with (
            limits(_CHUNK=64),
            pytest.raises(
                DataError, match=rf"^{file}: {packing} data that ends too early; expected"
            ),
        ):
            read(file, packed[:cut])


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_the_second_member_cut_anywhere_is_refused(file, packing):
    first = PACK[packing](b"a\n")
    second = PACK[packing](b"b\n")
    for cut in range(1, len(second)):
        with pytest.raises(DataError, match=rf"{packing} data that ends too early"):
            read(file, first + second[:cut])


def test_damage_is_told(file):
    packed = gzip.compress(TEXT)
    for place in (3, 20, len(packed) // 2, len(packed) - 6):
        damaged = bytearray(packed)
        damaged[place] ^= 0xFF
        with pytest.raises(
            DataError, match=rf"^{file}: (damaged gzip data|gzip data that ends too early)"
        ):
            read(file, bytes(damaged))
    with pytest.raises(DataError, match="damaged zstd data"):
        read(file, zstd.compress(TEXT)[:4] + b"\xff" * 30)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize("rest", [b"garbage", b"\0\0garbage", b"\x1f"])
def test_garbage_after_the_archive_is_refused(file, packing, rest):
    with pytest.raises(
        DataError, match=f"damaged {packing} data|{packing} data that ends too early"
    ):
        read(file, PACK[packing](TEXT) + rest)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_bomb_is_refused_before_it_goes_off(file, packing):
    file.write_bytes(PACK[packing](bytes(3_000_000)))
    limit = 20 * file.stat().st_size
    sizes = []
    # 400 kB are a decompressor's window; the whole would be 3 MB
    strict = limits(_CHUNK=1_000, MAX_EXPANSION=20, _EXPANSION_FREE=5_000)
    with strict, memory_below(400_000), pytest.raises(DataError) as caught:
        sizes.extend(len(chunk) for chunk in chunks(file, Problems("f")))
    found = f"{packing} data that grows more than 20 times; expected text; if it is meant, decompress it first"
    assert str(caught.value) == f"{file}: {found}"
    assert 4_000 < sum(sizes) <= max(limit, 5_000)
    assert max(sizes) <= 1_000


def test_many_small_bombs_are_one(file):
    file.write_bytes(gzip.compress(bytes(3_000)) * 100)
    with (
        limits(MAX_EXPANSION=20, _EXPANSION_FREE=5_000, _CHUNK=1_000),
        pytest.raises(DataError, match="grows more than"),
    ):
        list(chunks(file, Problems("f")))


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_small_archives_may_grow_as_they_like(file, packing):
    file.write_bytes(PACK[packing](bytes(5_000)))
    with limits(_CHUNK=1_000, MAX_EXPANSION=1, _EXPANSION_FREE=5_000):
        assert sum(map(len, chunks(file, Problems("f")))) == 5_000
    file.write_bytes(PACK[packing](bytes(5_001)))
    with limits(_CHUNK=1_000, MAX_EXPANSION=1, _EXPANSION_FREE=5_000), pytest.raises(DataError):
        list(chunks(file, Problems("f")))


def test_the_limits_are_far_from_real_text_and_near_enough_for_bombs(file):
    assert module.MAX_LINE == 64 << 20
    assert module.MAX_EXPANSION >= 100
    file.write_bytes(gzip.compress(bytes(30 << 20)))
    sizes = []
    with pytest.raises(DataError, match="grows more than"):
        sizes.extend(map(len, chunks(file, Problems("f"))))
    assert sum(sizes) < 16 << 20
