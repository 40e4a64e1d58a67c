"""Targets for parsers of documents and matrices; see :mod:`targets`."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
import zlib
from typing import Any
from unittest import mock

import numpy as np
import oracles
import readings
from readings import Reader, Writer, seldom, written
from scratch import file, files, folder, parts

from longtail.data import (
    annif,
    attentionxml,
    fasttext,
    headers,
    json_lines,
    jsonl,
    lf,
    npz,
    parquet,
    pecos,
    tables,
    xmc_bow,
)
from longtail.data.builder import Reading
from longtail.data.dataset import Dataset
from longtail.data.reading import read
from longtail.errors import LongtailError

FREE_LABELS = (
    10_000  # for xmc_bow, where ten million that a header may claim for free take a second
)


def fuzz_jsonl(data: bytes) -> None:
    path = file("in.jsonl", data)
    dataset = readings.read(jsonl.read_jsonl, path, data)
    if dataset is not None and seldom(data):
        bad = readings.without_bad_lines(jsonl.read_jsonl, path, data, dataset)
        if bad is not None:
            _compare_jsonl(dataset, oracles.reference_plain(data) or b"", bad)
        written(jsonl.read_jsonl, jsonl.write_jsonl, dataset, folder() / "out.jsonl", exact=True)


def _compare_jsonl(dataset: Dataset, plain: bytes, bad: set[int]) -> None:
    """Ask the standard library what stands in each line that was taken."""
    numbered = enumerate(plain.removeprefix(oracles.BOM).split(b"\n"), 1)
    taken = [line for number, line in numbered if number not in bad and line.strip()]
    assert len(taken) == len(dataset)
    for row, line in enumerate(taken):
        expected = oracles.reference_jsonl(line)
        if expected is None:
            continue
        text, given, graded = expected
        assert dataset.texts is not None
        assert dataset.texts[row] == text
        assert dataset.document_id(row) == (given if given is not None else str(row))
        labels = dataset.labels_of(row)
        assert (
            dict(zip(labels, dataset.relevance_of(row) or [1.0] * len(labels), strict=True))
            == graded
        )


def fuzz_jsonl_lines(data: bytes) -> None:
    """Compare the blocks of lines that are decoded at once with reading line by line."""
    path = file("in.jsonl", data)
    reading = Reading(skip_bad=readings.MANY)
    at_once = oracles.outcome(jsonl.read_jsonl, path, reading)
    with mock.patch.object(json_lines.JsonBlock, "objects", None):
        by_line = oracles.outcome(jsonl.read_jsonl, path, reading)
    if isinstance(by_line, Dataset):
        assert oracles.same(at_once, by_line), "blocks are read otherwise than lines"
    else:
        assert str(at_once) == str(by_line)


def _fuzz_table(data: bytes, kind: str, read: Reader, write: Writer, exact: bool = True) -> None:
    dataset = readings.read(read, file(f"in.{kind}", data), data)
    if dataset is not None and kind != "parquet":
        assert "\ufffd" not in "".join(dataset.texts or ()) or "\ufffd".encode() in (
            oracles.reference_plain(data) or b""
        )
    if dataset is not None and seldom(data):
        written(read, write, dataset, folder() / f"out.{kind}", exact=exact)


def fuzz_csv(data: bytes) -> None:
    _fuzz_table(data, "csv", tables.read_csv, tables.write_csv)


def fuzz_tsv(data: bytes) -> None:
    _fuzz_table(data, "tsv", tables.read_tsv, tables.write_tsv)


def fuzz_parquet(data: bytes) -> None:
    _fuzz_table(data, "parquet", parquet.read_parquet, parquet.write_parquet)


def _fuzz_lines(data: bytes, name: str, read: Reader, write: Writer) -> None:
    path = file(f"in.{name}", data)
    dataset = readings.read(read, path, data)
    if dataset is not None and seldom(data):
        readings.without_bad_lines(read, path, data, dataset)
        written(read, write, dataset, folder() / f"out.{name}", exact=False)


def fuzz_fasttext(data: bytes) -> None:
    _fuzz_lines(data, "fasttext.txt", fasttext.read_fasttext, fasttext.write_fasttext)


def fuzz_annif_tsv(data: bytes) -> None:
    _fuzz_lines(data, "annif.tsv", annif.read_annif_tsv, annif.write_annif_tsv)


def fuzz_annif_csv(data: bytes) -> None:
    _fuzz_table(data, "annif.csv", annif.read_annif_csv, annif.write_annif_csv, exact=False)


def fuzz_annif_folder(data: bytes) -> None:
    """Two documents with subjects, one without, and one whose name is the last part."""
    *known, name = parts(data, 6)
    contents = dict(zip(("a.txt", "a.tsv", "b.txt", "b.key", "c.txt"), known, strict=True))
    if name and (stem := name.translate(None, b"/\0")[:100]):
        contents |= {os.fsdecode(stem) + end: b"blue" for end in (".txt", ".key")}
    dataset = readings.read(annif.read_annif_folder, files("annif", contents), data)
    if dataset is not None and seldom(data):
        out = folder() / "annif-out"
        shutil.rmtree(out, ignore_errors=True)
        assert (
            readings.rewritten(annif.read_annif_folder, annif.write_annif_folder, dataset, out)
            is not None
        )


def fuzz_sniff(data: bytes) -> None:
    """A file whose name says nothing of its format."""
    found = oracles.outcome(read, file("in.txt", data), skip_bad=readings.MANY)
    if isinstance(found, Dataset):
        oracles.check_dataset(found)


def fuzz_bow(data: bytes) -> None:
    path = file("in.bow.txt", data)
    dataset = readings.read(xmc_bow.read_bow, path, data)
    plain = oracles.reference_plain(data)
    if plain is not None and not plain.startswith((b"\xff\xfe", b"\xfe\xff")):
        if headers.is_headerless(plain.removeprefix(oracles.BOM)):
            _compare_headerless(dataset, oracles.reference_headerless(plain))
        else:
            _compare_bow(dataset, oracles.reference_bow(plain))
    if dataset is not None and seldom(data):
        written(xmc_bow.read_bow, xmc_bow.write_bow, dataset, folder() / "out.bow.txt", exact=True)


def _compare_bow(dataset: Dataset | None, expected: Any) -> None:
    """Hold what the kernel read against what a slow parser did."""
    header, rows = expected or ((0, 0, 0), [])
    if header[2] > FREE_LABELS:  # more labels than so few bytes are believed to have
        return
    _compare_rows(dataset, [row for row in rows if row is not None], header[1:])


def _compare_rows(dataset: Dataset | None, good: list[Any], widths: tuple[int, int]) -> None:
    assert (dataset is None) == (not good)
    if dataset is None or dataset.features is None:
        return
    assert (dataset.features.shape[1], dataset.n_labels) == widths
    own, pairs = dataset.label_matrix, dataset.features
    assert [len(labels) for labels, _ in good] == np.diff(own.indptr).tolist()
    assert [label for labels, _ in good for label in labels] == own.indices.tolist()
    assert [len(values) for _, values in good] == np.diff(pairs.indptr).tolist()
    flat = [pair for _, values in good for pair in sorted(values.items())]
    assert flat == list(zip(pairs.indices.tolist(), pairs.data.tolist(), strict=True))


def fuzz_headerless(data: bytes) -> None:
    """Lines of svmlight; a header may come about by chance."""
    fuzz_bow(data)


def _compare_headerless(dataset: Dataset | None, rows: list[Any]) -> None:
    good = [row for row in rows if row is not None]
    n_labels = 1 + max((label for labels, _ in good for label in labels), default=-1)
    if n_labels <= FREE_LABELS:
        n_columns = 1 + max((column for _, values in good for column in values), default=-1)
        _compare_rows(dataset, good, (n_columns, n_labels))


def fuzz_xmc_split(data: bytes) -> None:
    names = ("trn_X_Xf.txt", "trn_X_Y.txt", "lbl_X_Xf.txt", "Yf.txt", "labels.txt")
    inside = files("xmc", dict(zip(names, parts(data, 5), strict=True)))
    dataset = readings.read(xmc_bow.read_xmc_split, inside, data)
    if dataset is not None and seldom(data):
        written(
            xmc_bow.read_xmc_split,
            xmc_bow.write_xmc_split,
            dataset,
            files("xmc-out", {}),
            exact=True,
        )


def fuzz_lf(data: bytes) -> None:
    """Labels, documents of two splits, and names of labels for the files that have no labels."""
    names = ("lbl.json", "trn.json", "tst.json", "Yf.txt")
    contents = dict(zip(names, parts(data, 4), strict=True))
    inside = files("lf", contents | {"lbl.json": contents["lbl.json"] or None})
    dataset = readings.read(lf.read_lf, inside, data)
    if dataset is not None and seldom(data):
        out = files("lf-out", {})
        written(lf.read_lf, lf.write_lf, dataset, out, exact=False)


def fuzz_attentionxml(data: bytes) -> None:
    """Texts, labels and features."""
    names = ("train_raw_texts.txt", "train_labels.txt", "train_v1.txt")
    inside = files("attention", dict(zip(names, parts(data, 3), strict=True)))
    dataset = readings.read(attentionxml.read_attentionxml, inside, data)
    if dataset is not None and seldom(data):
        out = files("attention-out", {})
        written(
            attentionxml.read_attentionxml,
            attentionxml.write_attentionxml,
            dataset,
            out,
            exact=False,
        )


def fuzz_pecos(data: bytes) -> None:
    """Texts, items, and the members of Y.trn.npz."""
    texts, items, members = parts(data, 3)
    contents = {
        "X.trn.txt": texts,
        "output-items.txt": items or None,
        "Y.trn.npz": _archive(members),
    }
    dataset = readings.read(pecos.read_pecos, files("pecos", contents), data)
    if dataset is not None and seldom(data):
        written(pecos.read_pecos, pecos.write_pecos, dataset, files("pecos-out", {}), exact=False)


def _archive(members: bytes | None) -> bytes | None:
    """Return an archive with right checksums of the arrays between separators, unless it is an archive already."""
    if members is None or members.startswith(b"PK"):
        return members
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in zip(
            ("indices", "indptr", "format", "shape", "data"), parts(members, 5), strict=True
        ):
            if content is not None:
                archive.writestr(f"{name}.npy", content)
    return out.getvalue()


def fuzz_npz(data: bytes) -> None:
    matrix = oracles.outcome(npz.read_csr_npz, file("in.npz", _archive(data) or b""))
    if isinstance(matrix, LongtailError):
        return
    oracles.check_matrix(matrix, *matrix.shape)
    if seldom(data):
        out = folder() / "out.npz"
        npz.write_csr_npz(matrix, out)
        again = npz.read_csr_npz(out)
        assert oracles.same_matrix(matrix, again)


def fuzz_filter(data: bytes) -> None:
    path = file("filter.txt", data)
    pairs = oracles.outcome(xmc_bow.read_filter, path, 5, 7)
    with oracles.small_chunks(4 + zlib.crc32(data) % 40):
        cut = oracles.outcome(xmc_bow.read_filter, path, 5, 7)
    assert type(pairs) is type(cut)
    if isinstance(pairs, LongtailError):
        return
    plain = (oracles.reference_plain(data) or b"").removeprefix(oracles.BOM)
    expected = [
        [int(token) for token in line.split()] for line in plain.split(b"\n") if line.strip()
    ]
    assert pairs.tolist() == cut.tolist() == expected
    assert all(0 <= document < 5 and 0 <= label < 7 for document, label in expected)
