"""JSON lines: what is read of good and bad ones, and what is written."""

from __future__ import annotations

import gzip
import io
import json
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import pytest
from dataset_content import content, outcome
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from longtail.data import lines
from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.jsonl import read_jsonl, write_jsonl
from longtail.data.labels import Label, Labels
from longtail.data.output import zstd
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


def message(content_or_file, *more, **settings):
    with pytest.raises(DataError) as caught:
        read(content_or_file, *more, **settings)
    return str(caught.value)


# --- reading JSON lines
# ------------------------------------------------------------------------------------------


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
    with pytest.raises(
        DataError, match=r"^-:2: no field 'text' or 'title'; expected a document such as"
    ):
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
    assume(text.split()[:1] != [b"{"])  # an object over several lines, which ends the reading
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
        (
            b'{"text": "x", "labels": [], "id": true}',
            "true or false in 'id'",
            "a whole number or a string",
        ),
        (b"[1]", "a list", LIST),
        (b"3", "a whole number", "a JSON object"),
        (b"null", "null", "a JSON object"),
        (
            b'{"text": "x\xff", "labels": []}',
            r"a byte that is not UTF-8 ('\xff')",
            "UTF-8; text in Latin-1 is converted with: iconv -f LATIN1 -t UTF-8",
        ),
        (rb'{"text": "\ud800", "labels": []}', PAIR, "whole characters"),
        (rb'{"text": "\udc00", "labels": []}', PAIR, "whole characters"),
        (rb'{"text": "\ud83d\ude00', "JSON that ends too early near ", "one JSON object a line"),
        (
            rb'{"text": "\ud83d\ude00", "labels": [}',
            "invalid character (byte 36) near ",
            "one JSON object a line",
        ),
        (b'{"text": "x", "labels": []', "JSON that ends too early near ", "one JSON object a line"),
        (b'{"text" "x"}', "no ':' (byte 8) near ", "one JSON object a line"),
        (b'{"text": "x", "labels": [], "y": NaN}', "NaN (byte 33)", "a finite number"),
        (
            b'{"text": "", "labels": [""], "relevance": [1e999]}',
            "a number too large in 'relevance[0]'",
            "a finite number",
        ),
        (
            b'{"text": "x", "labels": [], "id": ' + b"9" * 5000 + b"}",
            "a number too large in 'id'",
            "a finite number",
        ),
        (
            b'{"text": "x", "labels": ["a"], "relevance": [-1]}',
            "relevance [-1.0]",
            "finite numbers above 0",
        ),
        (b'{"x":' + b"[" * 9000, "JSON nested too deeply", "a flat JSON object"),
        (GOOD + b" " + GOOD, "trailing characters (byte 35) near ", "one JSON object a line"),
        (
            b'{"text": "a\0b", "labels": []}',
            "invalid character (byte 11) near ",
            "one JSON object a line",
        ),
        (b"x" * 100_000, "invalid character (byte 0) near ", "one JSON object a line"),
    ],
)
def test_a_bad_line_is_named(file, line, found, expected):
    first, last = message(file, b"\n" + GOOD + b"\r\n" + line + b"\n" + GOOD).splitlines()
    assert first.startswith(
        f"{file}:3: {found}" + ("" if found.endswith("near ") else "; expected ")
    )
    assert first.endswith(f"; expected {expected}")
    assert len(first) < 250
    assert last == "1 bad record; correct the file, or go on with --skip-bad 1"
    assert len(read(file, GOOD + b"\n" + line + b"\n" + GOOD, skip_bad=1)) == 2


@pytest.mark.parametrize("text", [b"", b"\n \n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_no_document(file, text):
    assert message(file, text) == f"{file}: no document; expected at least one"


def test_no_document_left_after_skipping(file):
    assert (
        message(file, b"{}\n", skip_bad=1).splitlines()[-1]
        == f"{file}: no document; expected at least one"
    )


def test_skip_bad_to_the_record(file):
    text = b"\n".join([b"{}", GOOD] * 25)
    dataset = read(file, text, skip_bad=25)
    assert len(dataset) == 25
    assert message(file, text, skip_bad=24).splitlines()[-1].startswith("more than 24 bad records")
    assert message(file, text).count("\n") == 20


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_cut_at_any_byte_it_is_refused(file, pack):
    packed = pack(
        b"\n".join(b'{"text": "wind %d", "labels": ["a"]}' % number for number in range(30))
    )
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
    assert message(file, text, labels=labels).startswith(
        f"{file}:2: unknown label 'q'; expected a label of the given"
    )
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


# --- writing
# -----------------------------------------------------------------------------------------------------

good_records = st.lists(
    st.tuples(
        st.text(max_size=5),
        st.lists(st.text(min_size=1, max_size=3), max_size=4),
        st.none() | st.text(max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@settings(quick, max_examples=50)  # each one waits for the disk
@given(good_records, st.sampled_from(["", ".gz", ".zst"]), st.booleans())
def test_there_and_back(file, found, suffix, relevant):
    builder = Builder("f", Reading())
    for number, (text, labels, given_id) in enumerate(found, 1):
        relevance = (
            [0.1 * (folder + 1) for folder in range(len(labels))]
            if relevant and number % 2
            else None
        )
        builder.add(number, Record(text=text, labels=labels, id=given_id, relevance=relevance))
    dataset = builder.finish()
    path = file.with_name(f"written.jsonl{suffix}")
    write_jsonl(dataset, path)
    back = read_jsonl(path, Reading())
    assert content(back) == content(dataset) | {"merged": 0}
    closed = (
        Labels.of([*reversed(list(dataset.labels)), "never"])
        if "never" not in dataset.labels
        else dataset.labels
    )
    assert content(read_jsonl(path, Reading(labels=closed))) == content(
        dataset.with_labels(closed)
    ) | {"merged": 0}


def test_written_as_anyone_would(file):
    write_jsonl(Dataset.of(['naïve "x"\n', ""], [["b", "a"], []]), file)
    assert (
        file.read_bytes()
        == '{"text":"naïve \\"x\\"\\n","labels":["b","a"]}\n{"text":"","labels":[]}\n'.encode()
    )
    assert json.loads(file.read_bytes().splitlines()[0])["text"] == 'naïve "x"\n'


def test_relevance_and_ids_are_written_where_they_are(file):
    dataset = read(
        file,
        b'{"id": 4, "text": "x", "labels": ["a"], "relevance": [2]}\n{"text": "y", "labels": ["a"]}',
    )
    write_jsonl(dataset, file)
    assert [msgspec.json.decode(line) for line in file.read_bytes().splitlines()] == [
        {"id": "4", "text": "x", "labels": ["a"], "relevance": [2.0]},
        {"id": "1", "text": "y", "labels": ["a"]},
    ]
