"""JSON lines and what all record-by-record readers share: the builder of datasets and the ledger of problems."""

from __future__ import annotations

import gzip
import io
import json
import logging
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import builder as builder_module
from longtail.data import lines
from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.jsonl import read_jsonl, write_jsonl
from longtail.data.labels import Label, Labels
from longtail.data.output import zstd
from longtail.data.problems import Problems, quoted
from longtail.errors import DataError

quick = settings(deadline=None, max_examples=150)
GOOD = b'{"text": "wind", "labels": ["a"]}'


@contextmanager
def chunk_size(size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK", size)
        patch.setattr(lines, "_ARCHIVE_CHUNK", size)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("jsonl") / "data.jsonl"


def read(file, content, **settings):
    file.write_bytes(content)
    return read_jsonl(file, Reading(**settings))


def content(dataset):
    """Everything a dataset read from records holds, as plain Python values."""
    matrix = dataset.label_matrix
    assert matrix.shape == (len(dataset), dataset.n_labels)
    assert matrix.dtype == np.float32
    return {
        "texts": list(dataset.texts),
        "ids": None if dataset.ids is None else list(dataset.ids),
        "labels": list(dataset.labels),
        "rows": [list(zip(*row, strict=True)) for row in zip(*halves(matrix), strict=True)],
        "merged": dataset.merged_duplicates,
        "dropped": dataset.dropped_unknown,
    }


def halves(matrix):
    cuts = matrix.indptr[1:-1]
    return (
        [part.tolist() for part in np.split(matrix.indices, cuts)],
        [part.tolist() for part in np.split(matrix.data, cuts)],
    )


def outcome(call):
    """What ``call`` gives, or the text of its DataError."""
    try:
        return content(call())
    except DataError as error:
        return str(error)


def message(content_or_file, *more, **settings):
    with pytest.raises(DataError) as caught:
        read(content_or_file, *more, **settings)
    return str(caught.value)


# --- the builder -------------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "ä", ""])
floats = st.sampled_from([1.0, 0.5, 3.0, 2.0**-149, 0.0, -1.0, 1e39, 1e-60, float("inf"), float("nan")])
plain_records = st.builds(
    Record,
    text=st.sampled_from(["", "wind", "sol", None]),
    title=st.sampled_from([None, None, "", "title"]),
    labels=st.none() | st.lists(names, max_size=4),
    id=st.none() | st.sampled_from(["x", "0", 7]),
)


@st.composite
def records(draw):
    """Records of which few are bad, with ids and relevance in some of the later ones."""
    found = draw(st.lists(plain_records, max_size=10))
    for record in found:
        if draw(st.booleans()):
            record.id = None
        if record.labels is not None and not draw(st.integers(0, 3)):
            record.relevance = [1.0] * len(record.labels)
        if not draw(st.integers(0, 5)):
            record.relevance = draw(st.lists(floats, max_size=3))
    return found


readings = st.builds(
    Reading,
    labels=st.none() | st.sampled_from([Labels.of([]), Labels.of(["b"]), Labels.of([Label("c", "C"), "ä", "a"])]),
    unknown=st.sampled_from(["error", "drop", "add"]),
    labelled=st.booleans(),
    skip_bad=st.sampled_from([0, 2, 100]),
)


def expected_content(records, reading):
    """The builder's contract, said slowly; None where more records are bad than may be."""
    given = list(reading.labels or [])
    columns = {label.id: column for column, label in enumerate(given)}
    closed = reading.labels is not None and reading.unknown != "add"
    taken, rows, merged, dropped, bad = [], [], 0, 0, 0
    for record in records:
        labels, relevance = record.labels or [], record.relevance
        unknown = [label for label in labels if closed and label not in columns]
        if (
            (record.text is None and record.title is None)
            or (record.labels is None and reading.labelled)
            or (unknown and reading.unknown == "error")
            or (relevance is not None and len(relevance) != len(labels))
            or any(not 0 < np.float32(value) < np.inf for value in relevance or [])
        ):
            bad += 1
            continue
        row = {}
        for label, value in zip(labels, relevance or [1.0] * len(labels), strict=True):
            if label in unknown:
                dropped += 1
            elif columns.setdefault(label, len(columns)) in row:
                merged += 1
            else:
                row[columns[label]] = value
        taken.append(record)
        rows.append(sorted(row.items()))
    if bad > reading.skip_bad or not taken:
        return None
    ids = [str(row if record.id is None else record.id) for row, record in enumerate(taken)]
    return {
        "texts": ["\n".join(part for part in (record.title, record.text) if part) for record in taken],
        "ids": ids if any(record.id is not None for record in taken) else None,
        "labels": given + [Label(label) for label in list(columns)[len(given) :]],
        "rows": rows,
        "merged": merged,
        "dropped": dropped,
    }


@settings(quick, max_examples=200)
@given(records(), readings, st.data())
def test_one_by_one_and_many_at_once_build_the_same(found, reading, data):
    def one_by_one():
        builder = Builder("f", reading)
        for number, record in enumerate(found, 1):
            builder.add(number, record)
        return builder.finish()

    def many_at_once():
        builder, first = Builder("f", reading), 0
        while first < len(found):
            some = found[first : first + data.draw(st.integers(1, 4))]
            before = len(builder)
            if not builder.extend(some):
                assert len(builder) == before
                for number, record in enumerate(some, first + 1):
                    builder.add(number, record)
            first += len(some)
        return builder.finish()

    with np.errstate(over="ignore"):
        expected = expected_content(found, reading)
    built = outcome(one_by_one)
    assert built == outcome(many_at_once)
    assert isinstance(built, str) if expected is None else built == expected


def test_plain_records_are_taken_at_once():
    builder = Builder("f", Reading())
    assert builder.extend([Record(text="x", labels=["a"]), Record(title="t", labels=[], id=3)])
    assert builder.extend([])
    assert builder.extend([Record(text="y", title="", labels=["a"])])
    assert len(builder) == 3
    assert list(builder.finish().ids) == ["0", "3", "2"]


@pytest.mark.parametrize(
    ("record", "found", "expected"),
    [
        (Record(labels=[]), "no field 'text' or 'title'", 'a document such as {"text": "…", "labels": ["…"]}'),
        (Record(text="x"), "no field 'labels'", "a list of strings, [] for none"),
        (Record(text="x", labels=["a"], relevance=[]), "0 relevances for 1 labels", "one relevance a label"),
        (Record(text="x", labels=["a"], relevance=[0.0]), "relevance [0.0]", "finite numbers above 0"),
        (Record(text="x", labels=["a"], relevance=[float("nan")]), "relevance [nan]", "finite numbers above 0"),
        (Record(text="x", labels=["a"], relevance=[1e300]), "relevance [1e+300]", "finite numbers above 0"),
        (Record(text="x", labels=["a"], relevance=[1e-300]), "relevance [1e-300]", "finite numbers above 0"),
    ],
)
def test_what_is_wrong_with_a_record(record, found, expected):
    builder = Builder("f", Reading())
    builder.add(5, record)
    with pytest.raises(DataError) as caught:
        builder.finish()
    assert str(caught.value).splitlines()[0] == f"f:5: {found}; expected {expected}"


def test_relevance_without_labels_is_bad_also_where_labels_may_be_missing():
    builder = Builder("f", Reading(labelled=False))
    builder.add(1, Record(text="x"))
    builder.add(2, Record(text="y", relevance=[1.0, 2.0]))
    with pytest.raises(DataError, match="f:2: 2 relevances for 0 labels; expected one relevance a label"):
        builder.finish()


def unknown_label(label, vocabulary):
    builder = Builder("f", Reading(labels=Labels.of(vocabulary)))
    builder.add(3, Record(text="x", labels=[label]))
    with pytest.raises(DataError) as caught:
        builder.finish()
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("Wind powr", "unknown label 'Wind powr' (did you mean 'Wind power'?)"),
        ("zzz", "unknown label 'zzz'"),
        ("a; known: b", "unknown label 'a; known: b'"),
        ("line\nbreak", "unknown label 'line\\nbreak'"),
        ("long " * 10_000, "unknown label 'long long long long long long long long long long long lon…"),
    ],
)
def test_an_unknown_label_is_quoted_in_one_line_with_the_nearest(label, found):
    problem = unknown_label(label, ["Wind power", "Solar power"])
    assert problem.found == found
    assert str(problem) == f"f:3: {found}; expected a label of the given vocabulary"


def test_the_nearest_label_is_looked_for_only_where_it_is_quick(monkeypatch):
    asked = []
    monkeypatch.setattr(builder_module, "unknown_name", lambda *given: asked.append(given) or "unknown")
    assert unknown_label("l7x", [f"l{number}" for number in range(10_001)]).found == "unknown label 'l7x'"
    assert not asked
    builder = Builder("f", Reading(labels=Labels.of(["a"]), skip_bad=1000))
    for number in range(1000):
        builder.add(number, Record(text="x", labels=[f"b{number}"]))
    assert len(asked) == 20


def test_a_bad_record_leaves_no_trace():
    builder = Builder("f", Reading(skip_bad=3))
    builder.add(1, Record(text="x", labels=["bad"], relevance=[1.0, 1.0]))
    builder.add(2, Record(labels=["bad"], id="i"))
    builder.add(3, Record(text="y", labels=["a"]))
    dataset = builder.finish()
    assert list(dataset.labels.ids) == ["a"]
    assert (dataset.ids, len(dataset)) == (None, 1)


def test_the_given_vocabulary_is_not_changed():
    given = Labels.of(["a"])
    builder = Builder("f", Reading(labels=given, unknown="add"))
    builder.add(1, Record(text="x", labels=["b", "a"]))
    dataset = builder.finish()
    assert list(dataset.labels.ids) == ["a", "b"]
    assert list(given.columns) == ["a"]
    closed = Builder("f", Reading(labels=given))
    closed.add(1, Record(text="x", labels=["a"]))
    assert closed.finish().labels is given


def test_relevance_of_one_document_only():
    builder = Builder("f", Reading())
    builder.extend([Record(text="x", labels=["a", "b"])])
    builder.add(2, Record(text="y", labels=["b", "a", "b"], relevance=[0.5, 2.0, 9.0]))
    builder.add(3, Record(text="z", labels=["b"]))
    dataset = builder.finish()
    assert [dataset.relevance_of(row) for row in range(3)] == [None, [2.0, 0.5], None]
    assert dataset.merged_duplicates == 1


# --- the ledger of problems --------------------------------------------------------------------------------------


@pytest.mark.parametrize("skip_bad", [0, 1, 5, 19, 20, 21, 40])
def test_skip_bad_is_an_exact_bound(skip_bad):
    def close_after(bad):
        problems = Problems("f", skip_bad)
        for number in range(bad):
            problems.add(number + 1, "x", "y")
        problems.close()

    close_after(skip_bad)
    with pytest.raises(DataError):
        close_after(skip_bad + 1)


@pytest.mark.parametrize(
    ("bad", "skip_bad", "shown", "last"),
    [
        (1, 0, 1, "1 bad record; mend the file, or go on with --skip-bad 1"),
        (5, 4, 5, "5 bad records; mend the file, or go on with --skip-bad 5"),
        (20, 0, 20, "20 bad records; mend the file, or go on with --skip-bad 20"),
        (21, 0, 20, "more than 20 bad records; mend the file, or go on with --skip-bad N"),
        (31, 30, 20, "more than 30 bad records; mend the file, or go on with --skip-bad N"),
        (2, None, 2, "2 bad records; mend the file: it is read whole or not at all"),
    ],
)
def test_at_most_20_are_shown_and_their_number_is_true(bad, skip_bad, shown, last):
    problems = Problems("f", skip_bad)

    def fail():
        for number in range(1, bad + 1):
            problems.add(number, f"found {number}", "better")
        problems.close()

    with pytest.raises(DataError) as caught:
        fail()
    each = [f"f:{number}: found {number}; expected better" for number in range(1, shown + 1)]
    assert str(caught.value).splitlines() == [*each, last]


def test_reading_stops_at_the_21st():
    problems = Problems("f")
    for number in range(20):
        problems.add(number, "x", "y")
    with pytest.raises(DataError):
        problems.add(20, "x", "y")


def test_fatal_comes_last_and_shows_what_was_found_before():
    problems = Problems("f", 100)
    for number in range(1, 31):
        problems.add(number, "x", "y")
    with pytest.raises(DataError) as caught:
        problems.fatal("the end", "more", 7, "other")
    assert len(caught.value.problems) == 20
    assert str(caught.value).splitlines()[-1] == "other:7: the end; expected more"
    assert str(caught.value).splitlines()[-2] == "f:19: x; expected y"


def test_what_was_left_out_is_said(caplog):
    problems = Problems("f", 2)
    with caplog.at_level(logging.WARNING, "longtail"):
        problems.close()
        assert not caplog.messages
        problems.add(4, "x", "y", "other")
        problems.add(5, "z", "y")
        problems.close()
    assert caplog.messages == ["2 bad records left out, the first: other:4: x; expected y"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\nb", "'a\\nb'"),
        (b"a\tb", "'a\\tb'"),
        (b"\xc3\xa9", "'é'"),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 58}…"),
        (["a", 1], "['a', 1]"),
        ("\x1b[31m", "'\\x1b[31m'"),
        ("é" * 10**6, f"'{'é' * 58}…"),
        ("é".encode() * 10**6, f"'{'é' * 58}…"),
    ],
)
def test_quoted_is_one_short_line(value, expected):
    assert quoted(value) == expected


# --- reading JSON lines ------------------------------------------------------------------------------------------


def test_every_field(file):
    dataset = read(
        file,
        b'{"id": "d1", "title": "Wind", "text": "blows", "labels": ["a", "b"], "relevance": [1, 0.5], "year": 2}\n'
        b'{"labels": [], "text": "no title", "id": 17}\n'
        b'{"title": "only title", "labels": ["b", "b"]}\n',
    )
    assert content(dataset) == {
        "texts": ["Wind\nblows", "no title", "only title"],
        "ids": ["d1", "17", "2"],
        "labels": [Label("a"), Label("b")],
        "rows": [[(0, 1.0), (1, 0.5)], [], [(1, 1.0)]],
        "merged": 1,
        "dropped": 0,
    }


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD + b"\n",
        GOOD + b"\r\n",
        b"\xef\xbb\xbf" + GOOD,
        b"\n\n  \n" + GOOD + b"\n\n\r\n \t",
        b"  " + GOOD + b"  ",
        gzip.compress(GOOD, mtime=0),
        zstd.compress(GOOD),
        gzip.compress(GOOD[:9], mtime=0) + gzip.compress(GOOD[9:], mtime=0) + bytes(9),
    ],
)
def test_ends_of_lines_marks_and_archives(file, text):
    dataset = read(file, text)
    assert (list(dataset.texts), list(dataset.labels.ids)) == (["wind"], ["a"])


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(GOOD + b"\n{}\n")))
    assert len(read_jsonl("-", Reading(skip_bad=1))) == 1
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(GOOD + b"\n{}\n")))
    with pytest.raises(DataError, match=r"^-:2: no field 'text' or 'title'; expected a document such as"):
        read_jsonl("-", Reading())


LINES = [
    GOOD,
    GOOD + b"\r",
    b'{"title": "t", "labels": ["b", "a", "b"]}',
    '{"text": "日本 😀", "labels": ["é"], "id": 5}'.encode(),
    rb'{"text": "\ud83d\ude00", "labels": []}',
    b'{"text": "r", "labels": ["a", "c"], "relevance": [2, 0.5]}',
    b"",
    b" \r",
    GOOD + b" " + GOOD,  # two in one line
    b'{"text": "over two lines",',
    b' "labels": []}',
    b'{"text": "no labels"}',
    b'{"text": 3, "labels": []}',
    b'{"text": "\xff", "labels": []}',
    b"[]",
    b"{",
]


@settings(quick, max_examples=120)
@given(
    st.lists(st.sampled_from(LINES[:7]) | st.sampled_from(LINES), max_size=12),
    st.integers(1, 90),
    st.sampled_from([0, 3, 100]),
    st.sampled_from([bytes, gzip.compress]),
    st.booleans(),
)
def test_the_chunk_size_changes_nothing(file, found, chunk, skip_bad, pack, ended):
    text = b"\n".join(found) + (b"\n" if ended else b"")
    reading = Reading(skip_bad=skip_bad)
    file.write_bytes(text)
    whole = outcome(lambda: read_jsonl(file, reading))
    file.write_bytes(pack(text))
    with chunk_size(chunk):
        assert outcome(lambda: read_jsonl(file, reading)) == whole
    bad = sum(line in LINES[8:] for line in found)
    assert isinstance(whole, str) == (bad > skip_bad or not set(found) & set(LINES[:6]))
    if isinstance(whole, dict):
        assert len(whole["texts"]) == sum(line in LINES[:6] for line in found)


DOCUMENT = 'a document such as {"text": "…", "labels": ["…"]}'
PAIR = r"half of a surrogate pair (\ud800 to \udfff alone)"
LIST = "one JSON object a line; jq -c '.[]' makes lines of a list"


@pytest.mark.parametrize(
    ("line", "found", "expected"),
    [
        (b"{}", "no field 'text' or 'title'", DOCUMENT),
        (b'{"text": null, "labels": []}', "no field 'text' or 'title'", DOCUMENT),
        (b'{"text": "x"}', "no field 'labels'", "a list of strings, [] for none"),
        (b'{"text": 3, "labels": []}', "a whole number in 'text'", "a string"),
        (b'{"text": {}, "labels": []}', "a JSON object in 'text'", "a string"),
        (b'{"text": "x", "labels": "a"}', "a string in 'labels'", "a list"),
        (b'{"text": "x", "labels": ["a", 1.5]}', "a number in 'labels[1]'", "a string"),
        (b'{"text": "x", "labels": [null]}', "null in 'labels[0]'", "a string"),
        (b'{"text": "x", "labels": [], "id": true}', "true or false in 'id'", "a whole number or a string"),
        (b"[1]", "a list", LIST),
        (b"3", "a whole number", "a JSON object"),
        (b"null", "null", "a JSON object"),
        (b'{"text": "x\xff", "labels": []}', r"a byte that is not UTF-8 ('\\xff')", "UTF-8 text"),
        (rb'{"text": "\ud800", "labels": []}', PAIR, "whole characters"),
        (rb'{"text": "\udc00", "labels": []}', PAIR, "whole characters"),
        (rb'{"text": "\ud83d\ude00', "JSON that ends too early near ", "one JSON object a line"),
        (rb'{"text": "\ud83d\ude00", "labels": [}', "invalid character (byte 36) near ", "one JSON object a line"),
        (b'{"text": "x", "labels": []', "JSON that ends too early near ", "one JSON object a line"),
        (b'{"text" "x"}', "no ':' (byte 8) near ", "one JSON object a line"),
        (b'{"text": "x", "labels": [], "y": NaN}', "NaN (byte 33)", "a finite number"),
        (
            b'{"text": "", "labels": [""], "relevance": [1e999]}',
            "a number too large in 'relevance[0]'",
            "a finite number",
        ),
        (b'{"text": "x", "labels": [], "id": ' + b"9" * 5000 + b"}", "a number too large in 'id'", "a finite number"),
        (b'{"text": "x", "labels": ["a"], "relevance": [-1]}', "relevance [-1.0]", "finite numbers above 0"),
        (b'{"x":' + b"[" * 9000, "JSON nested too deeply", "a flat JSON object"),
        (GOOD + b" " + GOOD, "trailing characters (byte 35) near ", "one JSON object a line"),
        (b'{"text": "a\0b", "labels": []}', "invalid character (byte 11) near ", "one JSON object a line"),
        (b"x" * 100_000, "invalid character (byte 0) near ", "one JSON object a line"),
    ],
)
def test_a_bad_line_is_named(file, line, found, expected):
    first, last = message(file, b"\n" + GOOD + b"\r\n" + line + b"\n" + GOOD).splitlines()
    assert first.startswith(f"{file}:3: {found}" + ("" if found.endswith("near ") else "; expected "))
    assert first.endswith(f"; expected {expected}")
    assert len(first) < 250
    assert last == "1 bad record; mend the file, or go on with --skip-bad 1"
    assert len(read(file, GOOD + b"\n" + line + b"\n" + GOOD, skip_bad=1)) == 2


@pytest.mark.parametrize("text", [b"", b"\n \n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_no_document(file, text):
    assert message(file, text) == f"{file}: no document; expected at least one"


def test_no_document_left_after_skipping(file):
    assert message(file, b"{}\n", skip_bad=1).splitlines()[-1] == f"{file}: no document; expected at least one"


def test_skip_bad_to_the_record(file):
    text = b"\n".join([b"{}", GOOD] * 25)
    dataset = read(file, text, skip_bad=25)
    assert len(dataset) == 25
    assert message(file, text, skip_bad=24).splitlines()[-1].startswith("more than 24 bad records")
    assert message(file, text).count("\n") == 20


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_cut_at_any_byte_it_is_refused(file, pack):
    packed = pack(b"\n".join(b'{"text": "wind %d", "labels": ["a"]}' % number for number in range(30)))
    for cut in range(len(packed)):
        with chunk_size(32):
            assert message(file, packed[:cut], skip_bad=10).startswith(f"{file}:")


def test_an_overlong_line_can_be_skipped(file, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 60)
    monkeypatch.setattr(lines, "_CHUNK", 50)
    text = GOOD + b'\n{"text": "' + b"x" * 200 + b'", "labels": []}\n' + GOOD + b"\n{}\n"
    assert len(read(file, text, skip_bad=2)) == 2
    first, second, _ = message(file, text, skip_bad=1).splitlines()
    assert first == f"{file}:2: a line of more than 0 MiB; expected one document a line"
    assert second.startswith(f"{file}:4: no field 'text'")


def test_closed_vocabulary(file):
    labels = Labels.of(["b", "a"])
    text = GOOD + b'\n{"text": "x", "labels": ["q", "b", "q"]}\n'
    assert message(file, text, labels=labels).startswith(f"{file}:2: unknown label 'q'; expected a label of the given")
    dropped = read(file, text, labels=labels, unknown="drop")
    assert [dropped.labels_of(row) for row in range(2)] == [["a"], ["b"]]
    assert (dropped.dropped_unknown, dropped.merged_duplicates, dropped.labels) == (2, 0, labels)
    added = read(file, text, labels=labels, unknown="add")
    assert list(added.labels.ids) == ["b", "a", "q"]
    assert (added.dropped_unknown, added.merged_duplicates) == (0, 1)


def test_unlabelled_documents(file):
    dataset = read(file, b'{"text": "x"}\n{"text": "y", "labels": ["a"]}', labelled=False)
    assert [dataset.labels_of(row) for row in range(2)] == [[], ["a"]]
    assert read(file, b'{"text": "x"}', labelled=False).label_matrix.shape == (1, 0)


# --- writing -----------------------------------------------------------------------------------------------------

good_records = st.lists(
    st.tuples(st.text(max_size=5), st.lists(st.text(max_size=3), max_size=4), st.none() | st.text(max_size=3)),
    min_size=1,
    max_size=6,
)


@settings(quick, max_examples=50)  # each one waits for the disk
@given(good_records, st.sampled_from(["", ".gz", ".zst"]), st.booleans())
def test_there_and_back(file, found, suffix, relevant):
    builder = Builder("f", Reading())
    for number, (text, labels, given_id) in enumerate(found, 1):
        relevance = [0.1 * (place + 1) for place in range(len(labels))] if relevant and number % 2 else None
        builder.add(number, Record(text=text, labels=labels, id=given_id, relevance=relevance))
    dataset = builder.finish()
    path = file.with_name(f"written.jsonl{suffix}")
    write_jsonl(dataset, path)
    back = read_jsonl(path, Reading())
    assert content(back) == content(dataset) | {"merged": 0}
    closed = Labels.of([*reversed(list(dataset.labels)), "never"]) if "never" not in dataset.labels else dataset.labels
    assert content(read_jsonl(path, Reading(labels=closed))) == content(dataset.with_labels(closed)) | {"merged": 0}


def test_written_as_anyone_would(file):
    write_jsonl(Dataset.of(['naïve "x"\n', ""], [["b", "a"], []]), file)
    assert file.read_bytes() == '{"text":"naïve \\"x\\"\\n","labels":["b","a"]}\n{"text":"","labels":[]}\n'.encode()
    assert json.loads(file.read_bytes().splitlines()[0])["text"] == 'naïve "x"\n'


def test_relevance_and_ids_are_written_where_they_are(file):
    dataset = read(file, b'{"id": 4, "text": "x", "labels": ["a"], "relevance": [2]}\n{"text": "y", "labels": ["a"]}')
    write_jsonl(dataset, file)
    assert [msgspec.json.decode(line) for line in file.read_bytes().splitlines()] == [
        {"id": "4", "text": "x", "labels": ["a"], "relevance": [2.0]},
        {"id": "1", "text": "y", "labels": ["a"]},
    ]
