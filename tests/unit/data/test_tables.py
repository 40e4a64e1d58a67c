"""CSV, TSV and Parquet: what is read, what is refused and where, and that writing and reading
agree.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import lines, parquet, tables
from longtail.data.builder import Builder, Reading, Record
from longtail.data.labels import Labels
from longtail.data.parquet import read_parquet, write_parquet
from longtail.data.tables import read_csv, read_tsv, write_csv, write_tsv
from longtail.errors import DataError, MissingExtra, UsageError

READ = {"csv": read_csv, "tsv": read_tsv, "parquet": read_parquet}
WRITE = {"csv": write_csv, "tsv": write_tsv, "parquet": write_parquet}

strings = st.one_of(
    st.text(max_size=12), st.text(alphabet=';"[],\t\r\n\\ <>_%x\ufeff\0\u2028\xa0', max_size=12)
)
given_strings = strings.filter(bool)


@st.composite
def datasets(draw, texts=strings, labels=given_strings, ids=strings):
    """Documents with labels as wild as the strategies make them, some with ids, some with
    relevances.
    """
    member = st.lists(labels, max_size=4, unique=True)
    rows = draw(st.lists(st.tuples(texts, member), min_size=1, max_size=6))
    given_ids = draw(st.one_of(st.none(), st.lists(ids, min_size=len(rows), max_size=len(rows))))
    graded = draw(st.booleans())
    builder = Builder("made", Reading())
    for row, (text, row_labels) in enumerate(rows):
        relevance = (
            [draw(st.floats(0.125, 8, width=32)) for _ in row_labels]
            if graded and row_labels
            else None
        )
        made_id = given_ids[row] if given_ids else None
        builder.add(row, Record(text=text, labels=row_labels, id=made_id, relevance=relevance))
    return builder.finish()


def contents(dataset, relevance=True, ids=True):
    """Everything a dataset holds, as plain values that do not depend on the columns' order."""
    graded = [
        dataset.relevance_of(row) or [1.0] * len(dataset.labels_of(row))
        for row in range(len(dataset))
    ]
    labels = [
        dict(zip(dataset.labels_of(row), graded[row], strict=True)) for row in range(len(dataset))
    ]
    given_ids = None if dataset.ids is None or not ids else list(dataset.ids)
    return (
        list(dataset.document_texts()),
        labels if relevance else [set(row) for row in labels],
        given_ids,
    )


def problems_of(caught):
    return [(problem.line, problem.found, problem.expected) for problem in caught.value.problems]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.mark.parametrize("kind", READ)
@given(datasets())
@settings(deadline=None, max_examples=150)
def test_what_is_written_is_read_back(folder, kind, dataset):
    WRITE[kind](dataset, folder / f"x.{kind}")
    assert contents(READ[kind](folder / f"x.{kind}", Reading())) == contents(dataset)


@pytest.mark.parametrize("kind", READ)
def test_the_same_dataset_gives_the_same_bytes(tmp_path, kind):
    dataset = READ["csv"](made(tmp_path, "text,labels\na,x;y\nb,\n"), Reading())
    for name in ("1", "2"):
        WRITE[kind](dataset, tmp_path / f"{name}.{kind}")
    assert (tmp_path / f"1.{kind}").read_bytes() == (tmp_path / f"2.{kind}").read_bytes()


def made(folder, content, name="x.csv"):
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_a_file_as_a_spreadsheet_saves_it(tmp_path):
    content = (
        "\ufeffID,Title,Comment,TEXT, Labels \r\n"
        '7,Wind,"x, y","Turbines ""offshore"",\r\nin the Baltic",energy; wind power ;\r\n'
        "\r\n"
        '8,,,Solar,"[""a;b"", "" c""]"\r\n'
        "9,Only a title,,,\r\n"
    )
    dataset = read_csv(made(tmp_path, content), Reading())
    texts = ['Wind\nTurbines "offshore",\r\nin the Baltic', "Solar", "Only a title"]
    labels = [{"energy", "wind power"}, {"a;b", " c"}, set()]
    assert contents(dataset, relevance=False) == (texts, labels, ["7", "8", "9"])


def test_a_tsv_with_relevances_and_another_separator(tmp_path):
    content = 'labels\trelevance\ttext\na|b\t2|0.5\tone\nc\t\ttwo\n["d"]\t[3]\tthree "3"\n'
    dataset = read_tsv(made(tmp_path, content), Reading(label_separator="|"))
    expected = ["one", "two", 'three "3"'], [{"a": 2.0, "b": 0.5}, {"c": 1.0}, {"d": 3.0}], None
    assert contents(dataset) == expected


def test_the_written_csv_is_what_other_programs_read(tmp_path):
    dataset = read_csv(
        made(tmp_path, 'id,text,labels\n1,"a\r\n""b"", c",x;y\n2,d,"[""p;q""]"\n'), Reading()
    )
    write_csv(dataset, tmp_path / "y.csv")
    with open(tmp_path / "y.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["id", "text", "labels"],
            ["1", 'a\r\n"b", c', "x;y"],
            ["2", "d", '["p;q"]'],
        ]


def test_compressed_tables_are_read_and_written(tmp_path):
    dataset = read_csv(made(tmp_path, gzip.compress(b"text,labels\na,b\n"), "x.csv.gz"), Reading())
    write_csv(dataset, tmp_path / "y.csv.zst")
    assert contents(read_csv(tmp_path / "y.csv.zst", Reading())) == (["a"], [{"b": 1.0}], None)


BAD = {
    "empty file": ("", 0, "no header row"),
    "blank lines only": ("\n\r\n", 0, "no header row"),
    "header only": ("text,labels\n", 0, "no document"),
    "no labels": (
        "id,text,label\n1,a,b\n",
        1,
        "no column 'labels' (did you mean 'label'?) in ['id', 'text', 'label']",
    ),
    "no text": ("id,labels\n1,a\n", 1, "no column 'text' in ['id', 'labels']"),
    "two texts": ("text,Text,labels\na,b,c\n", 1, "two columns 'text'"),
    "too few cells": ("text,labels\na\n", 2, "1 cells"),
    "too many cells": ('text,labels\n"a\nb",x\na,b,c\n', 4, "3 cells"),
    "open quote": ('text,labels\na,b\n"c,d\ne,f\ng,h\n', 3, "a quote that is never closed"),
    "text after a quote": ('text,labels\n"a\nb"c,d\n', 2, "text after the closing quote of a cell"),
    "lone carriage return": ("text,labels\na\rb,c\n", 2, "a carriage return outside quotes"),
    "old Mac line ends": ("text,labels\ra,b\r", 1, "a carriage return outside quotes"),
    "not UTF-8": (b'text,labels\n"a\n\xff",b\n', 2, "a byte that is not UTF-8 ('\\xff')"),
    "JSON that is none": ("text,labels\na,\"['x', 'y']\"\n", 2, "\"['x', 'y']\" as a list"),
    "JSON of numbers": ('text,labels\na,"[1, 2]"\n', 2, "'[1, 2]' as a list"),
    "half a surrogate": ('text,labels\na,"[""\\ud800""]"\n', 2, "'[\"\\\\ud800\"]' as a list"),
    "nested too deeply": ("text,labels\na," + "[" * 10000 + "\n", 2, "'[[["),
    "relevance without number": ("text,labels,relevance\na,b,x\n", 2, "'x' as a list"),
    "relevance of nothing": ("text,labels,relevance\na,b;c,1\n", 2, "1 relevances for 2 labels"),
    "relevance not finite": ("text,labels,relevance\na,b,nan\n", 2, "relevance [nan]"),
    "UTF-16": ("text,labels\na,b\n".encode("utf-16"), 1, "UTF-16 text"),
    "truncated gzip": (
        gzip.compress(b"text,labels\na,b\n", mtime=0)[:-9],
        0,
        "gzip data that ends too early",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused_with_the_line(tmp_path, case):
    content, line, result = BAD[case]
    with pytest.raises(DataError) as caught:
        read_csv(made(tmp_path, content), Reading())
    first = problems_of(caught)[0]
    assert first[0] == line
    assert first[1].startswith(result)


def test_several_bad_records_are_named_and_may_be_left_out(tmp_path):
    file = made(tmp_path, b'text,labels\ngood,a\nx\n"q"r,b\n\xfe,c\nalso good,"b"\n')
    with pytest.raises(DataError) as caught:
        read_csv(file, Reading())
    assert [line for line, _, _ in problems_of(caught)] == [3, 4, 5]
    dataset = read_csv(file, Reading(skip_bad=3))
    assert contents(dataset) == (["good", "also good"], [{"a": 1.0}, {"b": 1.0}], None)


def test_unlabelled_reading_needs_no_labels_column(tmp_path):
    assert contents(read_csv(made(tmp_path, "text\na\nb\n"), Reading(labelled=False))) == (
        ["a", "b"],
        [{}, {}],
        None,
    )
    with pytest.raises(DataError):
        read_csv(made(tmp_path, "text\na\n"), Reading())


def test_nul_is_a_character_and_an_empty_id_is_none(tmp_path):
    assert contents(read_csv(made(tmp_path, "text,labels,id\na\0b,c,x\nd,,\n"), Reading()))[
        ::2
    ] == (
        ["a\0b", "d"],
        ["x", "1"],
    )


def test_unknown_labels_follow_the_reading(tmp_path):
    file = made(tmp_path, "text,labels\na,x;y\n")
    with pytest.raises(DataError, match=r"x\.csv:2: unknown label 'y'"):
        read_csv(file, Reading(labels=Labels.of(["x"])))
    assert contents(read_csv(file, Reading(labels=Labels.of(["x"]), unknown="drop")))[1] == [
        {"x": 1.0}
    ]


def test_a_separator_must_be_something(tmp_path):
    with pytest.raises(UsageError, match="label_separator"):
        read_csv(made(tmp_path, "text,labels\na,b\n"), Reading(label_separator=""))


def test_cells_above_the_default_limit_of_the_csv_module_are_read(tmp_path):
    csv.field_size_limit(131072)
    long = "x" * 200_000
    assert contents(read_csv(made(tmp_path, f"text,labels\n{long},b\n"), Reading()))[0] == [long]


def test_records_above_the_limit_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_LINE", 1 << 20)
    rows = '"' + "x\n" * (1 << 19) + 'x",b\n'
    file = made(tmp_path, f"text,labels\na,b\n{rows}c,d\n")
    with pytest.raises(DataError) as caught:
        read_csv(file, Reading())
    assert problems_of(caught)[0] == (3, "a record of more than 1 MiB", "quotes that are closed")


def test_a_cell_that_lost_an_overlong_line_is_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 1 << 20)
    content = 'text,labels\n"begins\n' + "x" * (3 << 20) + '\nends",b\nc,d\n'
    dataset = read_csv(made(tmp_path, content), Reading(skip_bad=1))
    assert contents(dataset)[0] == ["c"]


@given(st.binary(max_size=80), st.sampled_from(["csv", "tsv"]))
@settings(deadline=None, max_examples=200)
def test_any_bytes_are_read_or_refused(folder, content, kind):
    with contextlib.suppress(DataError):
        READ[kind](made(folder, b"text,labels\n" + content, "any"), Reading(skip_bad=1))


# --- Parquet
# -----------------------------------------------------------------------------------------------------


def parquet_file(folder, columns, **options):
    pq.write_table(pa.table(columns), folder / "x.parquet", **options)
    return folder / "x.parquet"


def test_every_kind_of_string_and_list_is_read(tmp_path):
    columns = {
        "extra": pa.array([{"a": 1}] * 3),
        "ID": pa.array([3, None, 5]),
        "Title": pa.array(["t", None, "t"]).dictionary_encode(),
        "text": pa.array(["a", "b", None], pa.large_string()),
        "labels": pa.array(
            [["x", "y"], [], ["x"]], pa.large_list(pa.dictionary(pa.int32(), pa.string()))
        ),
        "relevance": pa.array([[1, 2], None, [3]], pa.list_(pa.int64())),
    }
    expected = ["t\na", "b", "t"], [{"x": 1.0, "y": 2.0}, {}, {"x": 3.0}], ["3", "1", "5"]
    assert contents(read_parquet(parquet_file(tmp_path, columns), Reading())) == expected
    cells = {"text": ["a", "b"], "labels": pa.array(["x; y", '["p;q"]'], pa.string_view())}
    assert contents(read_parquet(parquet_file(tmp_path, cells), Reading()))[1] == [
        {"x": 1.0, "y": 1.0},
        {"p;q": 1.0},
    ]


def test_bad_rows_of_parquet_are_named_by_number(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_BATCH", 2)
    not_utf8 = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    texts = pa.concat_arrays([pa.array(["a", None, "c", "d", "e"]), not_utf8])
    labels = pa.array([["x"], ["x"], None, [None], ["x"], ["y"]])
    file = parquet_file(tmp_path, {"text": texts, "labels": labels})
    with pytest.raises(DataError) as caught:
        read_parquet(file, Reading())
    assert [problem[:2] for problem in problems_of(caught)] == [
        (2, "no field 'text' or 'title'"),
        (3, "no field 'labels'"),
        (4, "a null in 'labels'"),
        (6, "a byte that is not UTF-8 ('\\xff')"),
    ]
    assert contents(read_parquet(file, Reading(skip_bad=4)))[0] == ["a", "e"]
    assert contents(read_parquet(file, Reading(skip_bad=3, labelled=False)))[0] == ["a", "c", "e"]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"text": ["a"], "labels": [1]}, "column 'labels' of type int64"),
        ({"text": ["a"], "labels": [[1]]}, "column 'labels' of type list<"),
        ({"text": [b"a"], "labels": ["x"]}, "column 'text' of type binary"),
        ({"text": [["a"]], "labels": ["x"]}, "column 'text' of type list<"),
        ({"text": ["a"], "labels": ["x"], "id": [1.5]}, "column 'id' of type double"),
        (
            {"text": ["a"], "labels": ["x"], "relevance": [["1"]]},
            "column 'relevance' of type list<",
        ),
        ({"text": ["a"], "lables": ["x"]}, "no column 'labels' (did you mean 'lables'?)"),
        ({"body": ["a"], "labels": ["x"]}, "no column 'text' in ['body', 'labels']"),
        ({"text": pa.array([], pa.string()), "labels": pa.array([], pa.string())}, "no document"),
    ],
)
def test_parquet_columns_of_the_wrong_type_or_name_are_refused(tmp_path, columns, found):
    with pytest.raises(DataError) as caught:
        read_parquet(parquet_file(tmp_path, columns), Reading())
    assert problems_of(caught)[0][1].startswith(found)


def test_damaged_parquet_is_refused(tmp_path):
    whole = parquet_file(
        tmp_path, {"text": ["some text"] * 300, "labels": ["x"] * 300}
    ).read_bytes()
    for content in (
        b"",
        b"PAR1",
        whole[:-20],
        whole[200:],
        b"text,labels\na,b\n",
        whole[:40] + b"\xff" * 40 + whole[80:],
    ):
        with pytest.raises(DataError, match="damaged Parquet data"):
            read_parquet(made(tmp_path, content, "y.parquet"), Reading())


@given(st.integers(0, 10**6), st.integers(0, 255))
@settings(deadline=None, max_examples=100)
def test_parquet_with_any_byte_changed_is_read_or_refused(folder, place, value):
    content = bytearray(
        parquet_file(folder, {"text": ["one", "two"], "labels": [["x"], []]}).read_bytes()
    )
    content[place % len(content)] = value
    with contextlib.suppress(DataError):
        read_parquet(made(folder, bytes(content), "any.parquet"), Reading())


def test_a_parquet_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_EXPANSION_FREE", 1 << 20)
    file = parquet_file(tmp_path, {"text": ["x" * 10_000] * 2000, "labels": ["x"] * 2000})
    with pytest.raises(DataError, match="grows more than 200 times"):
        read_parquet(file, Reading())


def test_parquet_needs_its_package_and_a_file(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no such file"):
        read_parquet(tmp_path / "none.parquet", Reading())
    with pytest.raises(UsageError, match="standard input"):
        read_parquet("-", Reading())
    dataset = read_csv(made(tmp_path, "text,labels\na,b\n"), Reading())
    with pytest.raises(UsageError, match="compressed inside"):
        write_parquet(dataset, tmp_path / "x.parquet.gz")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (
        lambda: read_parquet(tmp_path / "x.csv", Reading()),
        lambda: write_parquet(dataset, tmp_path / "y"),
    ):
        with pytest.raises(MissingExtra, match=r"longtail\[parquet\]"):
            call()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    dataset = read_csv(made(tmp_path, "text,labels\na,b\n"), Reading())
    for kind in WRITE:
        made(tmp_path, "old", f"y.{kind}")
        with monkeypatch.context() as patch:
            patch.setattr(type(dataset), "labels_of", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                WRITE[kind](dataset, tmp_path / f"y.{kind}")
        assert (tmp_path / f"y.{kind}").read_bytes() == b"old"
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "x.csv",
        "y.csv",
        "y.parquet",
        "y.tsv",
    ]
