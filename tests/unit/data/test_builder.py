"""The builder of datasets, which all record-by-record readers share."""

from __future__ import annotations

import numpy as np
import pytest
from dataset_content import outcome
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import builder as builder_module
from longtail.data.builder import Builder, Reading, Record
from longtail.data.labels import Label, Labels
from longtail.errors import DataError

names = st.sampled_from(["a", "b", "c", "ä", ""])
floats = st.sampled_from(
    [1.0, 0.5, 3.0, 2.0**-149, 0.0, -1.0, 1e39, 1e-60, float("inf"), float("nan")]
)
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
    result = draw(st.lists(plain_records, max_size=10))
    for record in result:
        if draw(st.booleans()):
            record.id = None
        if record.labels is not None and not draw(st.integers(0, 3)):
            record.relevance = [1.0] * len(record.labels)
        if not draw(st.integers(0, 5)):
            record.relevance = draw(st.lists(floats, max_size=3))
    return result


readings = st.builds(
    Reading,
    labels=st.none()
    | st.sampled_from([Labels.of([]), Labels.of(["b"]), Labels.of([Label("c", "C"), "ä", "a"])]),
    unknown=st.sampled_from(["error", "drop", "add"]),
    labelled=st.booleans(),
    skip_bad=st.sampled_from([0, 2, 100]),
)


def expected_content(records, reading):
    """The builder's contract, said slowly; None where more records are bad than may be."""
    given = list(reading.labels or [])
    columns = {label.id: column for column, label in enumerate(given)}
    closed = reading.labels is not None and reading.unknown != "add"
    taken = []
    rows = []
    merged = 0
    dropped = 0
    bad = 0
    for record in records:
        labels = record.labels or []
        relevance = record.relevance
        unknown = [label for label in labels if closed and label not in columns]
        if (
            (record.text is None and record.title is None)
            or (record.labels is None and reading.labelled)
            or "" in labels
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
        "texts": [
            "\n".join(part for part in (record.title, record.text) if part) for record in taken
        ],
        "ids": ids if any(record.id is not None for record in taken) else None,
        "labels": given + [Label(label) for label in list(columns)[len(given) :]],
        "rows": rows,
        "merged": merged,
        "dropped": dropped,
    }


@settings(deadline=None, max_examples=200)
@given(records(), readings, st.data())
def test_one_by_one_and_many_at_once_build_the_same(found, reading, data):
    def one_by_one():
        builder = Builder("f", reading)
        for number, record in enumerate(found, 1):
            builder.add(number, record)
        return builder.finish()

    def many_at_once():
        builder = Builder("f", reading)
        first = 0
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
        (
            Record(labels=[]),
            "no field 'text' or 'title'",
            'a document such as {"text": "…", "labels": ["…"]}',
        ),
        (Record(text="x"), "no field 'labels'", "a list of strings, [] for none"),
        (
            Record(text="x", labels=["a"], relevance=[]),
            "0 relevances for 1 labels",
            "one relevance a label",
        ),
        (
            Record(text="x", labels=["a"], relevance=[0.0]),
            "relevance [0.0]",
            "finite numbers above 0",
        ),
        (
            Record(text="x", labels=["a"], relevance=[float("nan")]),
            "relevance [nan]",
            "finite numbers above 0",
        ),
        (
            Record(text="x", labels=["a"], relevance=[1e300]),
            "relevance [1e+300]",
            "finite numbers above 0",
        ),
        (
            Record(text="x", labels=["a"], relevance=[1e-300]),
            "relevance [1e-300]",
            "finite numbers above 0",
        ),
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
    with pytest.raises(
        DataError, match="f:2: 2 relevances for 0 labels; expected one relevance a label"
    ):
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
        (
            "long " * 10_000,
            "unknown label 'long long long long long long long long long long long lon…",
        ),
    ],
)
def test_an_unknown_label_is_quoted_in_one_line_with_the_nearest(label, found):
    problem = unknown_label(label, ["Wind power", "Solar power"])
    assert problem.found == found
    assert str(problem) == f"f:3: {found}; expected a label of the given vocabulary"


def test_the_nearest_label_is_looked_for_only_where_it_is_quick(monkeypatch):
    asked = []
    monkeypatch.setattr(
        builder_module, "unknown_name", lambda *given: asked.append(given) or "unknown"
    )
    assert (
        unknown_label("l7x", [f"l{number}" for number in range(10_001)]).found
        == "unknown label 'l7x'"
    )
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
