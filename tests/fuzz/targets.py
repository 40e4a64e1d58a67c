"""One function a parser: takes any bytes, returns None, raises only where Longtail has a defect.

A defect is an exception that is not a LongtailError, a message that is not fit to print, a result
that breaks what readers promise, or one that a second opinion contradicts. Parsers of several files
get them as one input, with ``SEPARATOR`` between; absent ones are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import document_targets
import numpy as np
import oracles
import readings
import safetensors.numpy
from document_targets import FREE_LABELS
from readings import MANY, VOCABULARY, seldom
from scratch import SEPARATOR, file, files, folder, parts

from longtail import config as settings
from longtail import store
from longtail.config import sources
from longtail.data import label_files, lines, skos, xmc_bow
from longtail.data.labels import Labels
from longtail.data.problems import Problems
from longtail.data.strings import Strings
from longtail.errors import DataError, LongtailError
from longtail.search import predictions
from longtail.store import manifest, tensors

__all__ = ["FREE_LABELS", "SEPARATOR", "TARGETS", "set_up"]


def set_up(one_in: int) -> None:
    """Make the parsers quick to fuzz for as long as the process lives."""
    readings.set_seldom(one_in)
    xmc_bow._FREE_LABELS = FREE_LABELS
    sources.get_type_hints = cache(sources.get_type_hints)  # where half of the time goes


def _fuzz_labels(data: bytes, name: str, suffixes: tuple[str, ...]) -> None:
    path = file(name, data)
    labels = oracles.outcome(label_files.read_labels, path, skip_bad=MANY)
    if seldom(data):
        strict = oracles.outcome(label_files.read_labels, path)
        assert isinstance(strict, LongtailError) or strict == labels
        with oracles.small_chunks(
            200 + zlib.crc32(data) % 40
        ):  # the kind is told from the first chunk
            cut = oracles.outcome(label_files.read_labels, path, skip_bad=MANY)
        assert (
            isinstance(cut, LongtailError) if isinstance(labels, LongtailError) else cut == labels
        )
    if isinstance(labels, LongtailError):
        return
    oracles.check_labels(labels)
    assert len(labels) > 0
    assert "" not in labels
    for suffix in suffixes if seldom(data) else ():
        out = folder() / f"out-labels{suffix}"
        label_files.write_labels(labels, out)
        assert label_files.read_labels(out) == labels, suffix


def fuzz_labels_jsonl(data: bytes) -> None:
    _fuzz_labels(data, "labels.jsonl", (".jsonl", ".csv"))


def fuzz_labels_tsv(data: bytes) -> None:
    _fuzz_labels(data, "labels.tsv", (".tsv",))


def fuzz_labels_plain(data: bytes) -> None:
    _fuzz_labels(data, "labels.txt", (".jsonl",))


def _fuzz_skos(data: bytes, suffix: str) -> None:
    labels = oracles.outcome(skos.read_skos, file(f"in{suffix}", data))
    if isinstance(labels, LongtailError):
        return
    oracles.check_labels(labels)
    assert len(labels) > 0
    if seldom(data):
        out = folder() / "out.ttl"
        if not isinstance(oracles.outcome(skos.write_skos, labels, out), LongtailError):
            assert _told(skos.read_skos(out)) == _told(labels)


def _told(labels: Labels) -> dict[str, tuple[str, str, set[str]]]:
    return {label.id: (label.name, label.text, set(label.aliases)) for label in labels}


def fuzz_skos_ttl(data: bytes) -> None:
    _fuzz_skos(data, ".ttl")


def fuzz_skos_xml(data: bytes) -> None:
    _fuzz_skos(data, ".rdf")


def fuzz_skos_nt(data: bytes) -> None:
    _fuzz_skos(data, ".nt")


def fuzz_skos_jsonld(data: bytes) -> None:
    _fuzz_skos(data, ".jsonld")


_TEST_IDS = Strings.of(["a", "b", "2"])


def fuzz_predictions(data: bytes) -> None:
    path = file("predictions.jsonl", data)
    for ids, count in ((_TEST_IDS, 0), (None, 2)):
        result = oracles.outcome(predictions.read_predictions, path, VOCABULARY, ids, count)
        if isinstance(result, LongtailError):
            continue
        n = count if ids is None else len(ids)
        oracles.check_labels(result.labels)
        oracles.check_matrix(_by_column(result.matrix), n, len(result.labels), dtype=np.float64)
        ends = result.matrix.indptr.tolist()
        for start, end in pairwise(ends):
            assert (np.diff(result.matrix.data[start:end]) <= 0).all(), "not from best to worst"
        out = folder() / "out-predictions.jsonl"
        predictions.write_predictions(result, out)
        again = predictions.read_predictions(out, VOCABULARY, ids, count)
        assert [again[row] for row in range(n)] == [result[row] for row in range(n)]


def _by_column(matrix: Any) -> Any:
    matrix = matrix.copy()
    matrix.sort_indices()
    return matrix


def fuzz_lines(data: bytes) -> None:
    """The bytes as they are, and compressed in members; in chunks of any size, with and without a
    limit a line.
    """
    _check_lines(data)
    if not seldom(data):
        return
    whole = data.replace(SEPARATOR, b"")
    packed = b"".join(gzip.compress(part, 1) for part in data.split(SEPARATOR))
    _check_lines(packed, whole)
    _check_lines(oracles.zstd.compress(whole), whole)
    path = file("lines.gz", packed)
    with oracles.small_chunks(16, MAX_EXPANSION=1, _EXPANSION_FREE=64):
        result = oracles.outcome(lambda: b"".join(lines.chunks(path, Problems(path))))
    assert isinstance(result, DataError) or result == whole


def _check_lines(data: bytes, plain: bytes | None = None) -> None:
    path = file("lines.bin", data)
    plain = oracles.reference_plain(data) if plain is None else plain
    for chunk, most in ((1 << 18, 64 << 20), (4 + len(data) % 23, 64 << 20), (16, 32)):
        problems = Problems(path, MANY)
        with oracles.small_chunks(chunk, MAX_LINE=most):
            result = oracles.outcome(
                lambda problems=problems: list(lines.text_lines(path, problems))
            )
        if plain is None or plain.startswith((b"\xff\xfe", b"\xfe\xff")):
            # libzstd holds a frame against the size that it claims only when it gets it in one
            # piece
            assert isinstance(result, DataError) or (
                plain is None and data.startswith(b"\x28\xb5\x2f\xfd")
            )
            continue
        expected = list(enumerate(plain.removeprefix(oracles.BOM).split(b"\n"), 1))
        if not expected[-1][1]:
            expected.pop()
        assert result == [
            (number, _decoded(line) if len(line) <= most else None) for number, line in expected
        ]
        assert problems.skipped == [text for _, text in result].count(None)


def _decoded(line: bytes) -> str | None:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return None


def fuzz_config(data: bytes) -> None:
    """A TOML file, and below the separator one --set a line."""
    toml, assignments = parts(data, 2)
    sources = [oracles.outcome(settings.read_toml, file("in.toml", toml or b""))]
    arguments = (assignments or b"").decode(
        "utf-8", "surrogateescape"
    )  # as the command line hands it over
    sources += [
        oracles.outcome(settings.parse_assignment, one) for one in arguments.split("\n") if one
    ]
    result = oracles.outcome(
        settings.resolve, *(source for source in sources if not isinstance(source, LongtailError))
    )
    if isinstance(result, LongtailError) or not seldom(data):
        return
    written = settings.to_toml(result)
    again = settings.resolve(settings.read_toml(file("out.toml", written.encode())))
    assert again == result
    assert settings.to_toml(again) == written


def fuzz_manifest(data: bytes) -> None:
    """The manifest as it is, and with the seal put right, above the files of a small folder."""
    oracles.outcome(manifest.decode, data, Path("manifest.json"))
    head = data[: manifest._SEAL.start]
    sealed = head + hashlib.sha256(head).hexdigest().encode() + manifest._END
    result = oracles.outcome(manifest.decode, sealed, Path("manifest.json"))
    if isinstance(result, LongtailError):
        return
    inside = files("model", {"manifest.json": sealed, "a.json": b"{}\n", "b.bin": b""})
    opened = oracles.outcome(store.open_folder, inside)
    if not isinstance(opened, LongtailError):
        assert [entry.path for entry in result.files] == ["a.json", "b.bin"]
        assert opened.read_json("a.json", dict) == {}
        again = manifest.decode(
            manifest.encode(result.producer, result.config_hash, result.files), inside
        )
        assert (again.files, again.producer, again.config_hash) == (
            result.files,
            result.producer,
            result.config_hash,
        )


def fuzz_tensors(data: bytes) -> None:
    result = oracles.outcome(tensors.read_arrays, memoryview(data), Path("a.safetensors"))
    metadata = oracles.outcome(tensors.read_metadata, memoryview(data), Path("a.safetensors"))
    if isinstance(result, LongtailError):
        return
    assert sum(array.nbytes for array in result.values()) <= len(data)
    if not isinstance(metadata, LongtailError):  # the library looks at both at once
        try:
            expected = safetensors.numpy.load(data)
        except safetensors.SafetensorError as error:
            if "duplicate field" not in str(
                error
            ):  # of a key that stands twice we take the last, as JSON has it
                raise
            return
        assert expected.keys() == result.keys()
        for name, array in result.items():
            assert array.dtype == expected[name].dtype
            assert array.tobytes() == expected[name].tobytes()
    if result and not isinstance(metadata, LongtailError):
        again = b"".join(map(bytes, tensors.array_pieces(result, metadata)))
        reread = tensors.read_arrays(memoryview(again), Path("a.safetensors"))
        assert {name: array.tobytes() for name, array in reread.items()} == {
            name: array.tobytes() for name, array in result.items()
        }


TARGETS: dict[str, Callable[[bytes], None]] = {
    name.removeprefix("fuzz_").replace("_", "-"): function
    for name, function in [*vars(document_targets).items(), *list(globals().items())]
    if name.startswith("fuzz_")
}
