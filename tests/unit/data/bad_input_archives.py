"""Bad inputs below the formats: archives cut short, damaged or grown to bombs, and lines without
end.
"""

# fmt: off
from __future__ import annotations

import gzip
import sys
import zlib

import pyarrow
from bad_input import Case, LongLine, npz, parquet
from bad_input_benchmarks import X, Y, bow, lf, xs, ys
from bad_input_labels import CONCEPT
from bad_input_labels import bare as label_lines
from bad_input_labels import jsonl as labels
from bad_input_labels import tsv as label_table
from bad_input_texts import SEA, WIND, annif, annif_csv, csv, fasttext, jsonl, tsv

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GOOD = jsonl.before + jsonl.after
GZIP = gzip.compress(GOOD, mtime=0)
ZSTD = zstd.compress(GOOD)
TRUNCATED = "{0} data that ends too early; expected a whole {0} file; copy it again"
BOMB = "{} data that grows more than 200 times; expected text; if it is meant, decompress it first"
DAMAGED = "bad.jsonl: damaged {0} data ({1}); expected a whole {0} file"
ZLIB = "Error -3 while decompressing data"
LONG = "a line of more than 64 MiB; expected one document a line"
MAX_LINE = 64 << 20


def gzip_bomb(byte: bytes) -> bytes:
    """Return the first 300 MiB of a gzip file of one byte: a thousandth of that."""
    packer = zlib.compressobj(9, wbits=31)
    first, other = (packer.compress(byte * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + other * 299


def flipped(data: bytes, at: int) -> bytes:
    """Return ``data`` with one bit of the byte at ``at`` changed."""
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def archive(kind, id, content, result, **more):
    """Return the case of an archive of JSON lines."""
    if isinstance(result, list):
        return Case(kind, id, "jsonl", {"bad.jsonl": content}, documents=result, **more)
    return Case(kind, id, "jsonl", {"bad.jsonl": content}, problems=tuple(result.splitlines()), **more)


ARCHIVES = [
    *(archive("truncated", f"gzip {cut}", GZIP[:cut], "bad.jsonl: " + TRUNCATED.format("gzip"))
      for cut in (2, 9, 10, 11, 30, len(GZIP) - 8, len(GZIP) - 4, len(GZIP) - 1)),
    *(archive("truncated", f"zstd {cut}", ZSTD[:cut], "bad.jsonl: " + TRUNCATED.format("zstd"))
      for cut in (4, 6, 20, len(ZSTD) - 4, len(ZSTD) - 1)),
    archive("truncated", "second member", GZIP + GZIP[:20], "bad.jsonl: " + TRUNCATED.format("gzip")),
    archive("truncated", "after a bad record", gzip.compress(b"x\n" + GOOD)[:-8],
            "bad.jsonl:1: invalid character (byte 0) near 'x'; expected one JSON object a line\n"
            "bad.jsonl: " + TRUNCATED.format("gzip")),
    archive("truncated", "one byte", GZIP[:1],
            "bad.jsonl:1: invalid character (byte 0) near '\\x1f'; expected one JSON object a line"),
    archive("damaged", "members", b"".join(map(gzip.compress, [jsonl.before, b"", jsonl.after])), [SEA, WIND]),
    archive("damaged", "zeros after", GZIP + bytes(512), [SEA, WIND]),
    archive("damaged", "words after", GZIP + b"words", DAMAGED.format("gzip", f"{ZLIB}: incorrect header check")),
    archive("damaged", "checksum", flipped(GZIP, -6), DAMAGED.format("gzip", f"{ZLIB}: incorrect data check")),
    archive("damaged", "method", flipped(GZIP, 2), DAMAGED.format("gzip", f"{ZLIB}: unknown compression method")),
    archive("damaged", "zstd", flipped(ZSTD, 4),
            DAMAGED.format("zstd", "Unable to decompress Zstandard data: Dictionary mismatch")),
    archive("BOM", "in an archive", gzip.compress(b"\xef\xbb\xbf") + GZIP, [SEA, WIND]),
    archive("bomb", "gzip zeros", lambda: gzip_bomb(b"\0"), "bad.jsonl: " + BOMB.format("gzip")),
    archive("bomb", "gzip lines", lambda: gzip_bomb(b"\n"), "bad.jsonl: " + BOMB.format("gzip")),
    archive("bomb", "zstd zeros", lambda: zstd.compress(bytes(300 << 20)), "bad.jsonl: " + BOMB.format("zstd")),
    archive("bomb", "zstd lines", lambda: zstd.compress(b"\n" * (300 << 20)), "bad.jsonl: " + BOMB.format("zstd")),
    archive("bomb", "records", lambda: gzip.compress(jsonl.after * 200_000), "bad.jsonl: " + BOMB.format("gzip")),
    archive("bomb", "none", gzip.compress(jsonl.after * 30_000), [WIND] * 30_000),
]

# (format, file, its content, the files beside it): every format but Parquet, which packs in its own
# way
STREAMS = [
    ("csv", "bad.csv", csv.before + csv.after, {}),
    ("tsv", "bad.tsv", tsv.before + tsv.after, {}),
    ("fasttext", "bad.txt", fasttext.before + fasttext.after, {}),
    ("annif-tsv", "bad.tsv", annif.before + annif.after, {}),
    ("annif-csv", "bad.csv", annif_csv.before + annif_csv.after, {}),
    ("bow", "bad.txt", b"2 3 2\n0 0:1\n0 1:1\n", {}),
    ("xmc-split", "set/trn_X_Xf.txt", X, {"set/trn_X_Y.txt": Y}),
    ("xmc-split", "set/trn_X_Y.txt", Y, {"set/trn_X_Xf.txt": X}),
    ("lf", "set/trn.json", lf.before + lf.after, lf.beside),
    ("lf", "set/lbl.json", lf.beside["set/lbl.json"], {"set/trn.json": lf.after}),
    ("attentionxml", "set/train_raw_texts.txt", b"sea\nwind\n", {"set/train_labels.txt": b"b\na\n"}),
    ("attentionxml", "set/train_labels.txt", b"b\na\n", {"set/train_raw_texts.txt": b"sea\nwind\n"}),
    ("pecos", "set/X.trn.txt", b"sea\nwind\n", {"set/Y.trn.npz": npz()}),
    ("annif-folder", "set/1.txt", b"sea", {"set/1.key": b"b\n"}),
    ("labels", "labels.jsonl", labels.before + labels.after, {}),
    ("labels", "labels.tsv", b"a\tA\nb\tB\n", {}),
    ("labels", "labels.txt", b"a\nb\n", {}),
    ("labels", "labels.ttl", CONCEPT % b"A", {}),
    ("predictions", "out.jsonl", b'{"id": 1, "labels": ["b"]}\n', {}),
    ("filter", "bad.filter", b"0 1\n", {}),
]


def streams(kind, problem, made):
    """Return the same case for every format that is read as a stream of bytes."""
    return [
        Case(kind, f"in {file}", format, {file: made(content), **beside}, problems=(f"{file}: {problem}",))
        for format, file, content, beside in STREAMS
    ]


def bomb_after(content: bytes):
    return lambda: gzip.compress(content) + gzip_bomb(b"\0")


IN_ALL = [
    *streams("truncated", TRUNCATED.format("gzip"), lambda content: gzip.compress(content)[:-5]),
    *streams("bomb", BOMB.format("gzip"), bomb_after),
]


def long(format, file, before, after, rest, beside=None, size=MAX_LINE + 1):
    """Return the case of a line that is longer than may be, between good ones."""
    files = {file: LongLine(before, size, b"\n" + after), **(beside or {})}
    path = f"{file}:{before.count(10) + 1}"
    return Case("long line", f"in {file}", format, files, problems=(f"{path}: {LONG}",), rest=rest)


PLAIN = [("sea", ["b"]), ("wind", ["a"])]
LONG_LINES = [
    long("jsonl", "bad.jsonl", jsonl.before, jsonl.after, [SEA, WIND], size=10 << 30),
    *(long(frame.format, frame.file, frame.before, frame.after, list(frame.around), frame.beside)
      for frame in (csv, tsv, fasttext, annif, annif_csv, bow, xs, ys, lf, labels, label_table, label_lines)),
    long("attentionxml", "set/train_raw_texts.txt", b"sea\n", b"wind\n", PLAIN, {"set/train_labels.txt": b"b\nx\na\n"}),
    long("attentionxml", "set/train_labels.txt", b"b\n", b"a\n", PLAIN, {"set/train_raw_texts.txt": b"sea\nx\nwind\n"}),
    long("pecos", "set/X.trn.txt", b"sea\n", b"", [("sea", ["0"])], {"set/Y.trn.npz": npz()}),
    long("predictions", "out.jsonl", b'{"id": 1, "labels": ["b"]}\n', b"", None),
    long("filter", "bad.filter", b"0 1\n", b"1 2\n", None),
    Case("long line", "in a document", "annif-folder",
         {"set/1.txt": b"sea", "set/1.key": b"b\n", "set/2.txt": LongLine(b"", 10 << 30, b""), "set/2.key": b"a\n"},
         problems=("set/2.txt: more than 64 MiB; expected one document a file",), rest=[SEA]),
    Case("malformed table", "long record", "csv",
         {"bad.csv": LongLine(b'text,labels\nsea,b\n"', MAX_LINE - 9, b'\n1234567890",a\nwind,a\n')},
         problems=("bad.csv:3: a record of more than 64 MiB; expected quotes that are closed",)),
]

PARQUET = [
    Case("bomb", id, "parquet", {"bad.parquet": made}, problems=(
        "bad.parquet: data that grows more than 200 times; expected a table of texts",))
    for id, made in {
        "a page": lambda: parquet("zstd", text=["a" * (66 << 20)], labels=["x"]),
        "a dictionary": lambda: parquet(text=["a" * (1 << 20)] * 100, labels=["x"] * 100),
        "rows": lambda: parquet(text=pyarrow.repeat("a", 5_000_000), labels=pyarrow.repeat("x", 5_000_000)),
        "labels": lambda: parquet(text=["a"], labels=pyarrow.array([["x"] * 10_000_000])),
    }.items()
]

CASES = [*ARCHIVES, *IN_ALL, *LONG_LINES, *PARQUET]
