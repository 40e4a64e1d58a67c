"""The label vocabulary: columns that may be missing, and one column a label."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data.labels import Label, LabelIndex, Labels
from longtail.data.strings import Strings
from longtail.errors import UsageError

quick = settings(deadline=None, max_examples=80)
short = st.text(max_size=3)
label = st.builds(
    Label,
    id=st.text(min_size=1, max_size=3),
    name=short,
    text=short,
    aliases=st.lists(short, max_size=2).map(tuple),
    uri=short,
)
label_lists = st.lists(label, max_size=6, unique_by=lambda one: one.id)

WIND = Label(
    "w1",
    "Wind power",
    "energy from moving air",
    ("wind energy", "turbines"),
    "http://example.org/w1",
)


@quick
@given(label_lists)
def test_comes_back_as_given(given):
    labels = Labels.of(given)
    assert len(labels) == len(given)
    assert list(labels) == given
    assert [labels[at] for at in range(-len(given), 0)] == given
    assert labels == Labels.of(iter(given))
    assert labels.columns == {one.id: column for column, one in enumerate(given)}


def test_columns_that_no_label_fills_are_none():
    labels = Labels.of(["a", Label("b", name="B")])
    assert labels.ids == Strings.of(["a", "b"])
    assert labels.names == Strings.of(["", "B"])
    assert (labels.texts, labels.aliases, labels.uris) == (None, None, None)
    assert list(labels) == [Label("a"), Label("b", "B")]


@pytest.mark.parametrize("given", [["a", "b", "a"], ["a", Label("a", "A")]])
def test_ids_are_unique(given):
    with pytest.raises(ValueError, match="label ids must be unique"):
        Labels.of(given)


def test_no_labels():
    assert list(Labels.of([])) == []
    assert Labels.of([]) == Labels.of([])
    assert "" not in Labels.of([])


def test_an_unknown_label_is_not_made_by_asking():
    labels = Labels.of(["a", "b"])
    with pytest.raises(KeyError):
        labels.columns["c"]
    assert "c" not in labels
    assert ("a" in labels, 0 in labels) == (True, False)
    assert len(labels.columns) == 2


def test_the_index_gives_an_unknown_label_the_next_column():
    index = LabelIndex({"a": 0})
    assert [index[one] for one in ("b", "a", "c", "b")] == [1, 0, 2, 1]
    assert index.get("d") is None
    assert index == {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (WIND, "Wind power"),
        (Label("x", "X"), "X"),
        (Label("y", text="why"), "y"),
        (Label("z"), "z"),
    ],
)
@pytest.mark.parametrize("others", [[], [WIND]])
def test_what_is_shown_falls_back(one, name, others):
    labels = Labels.of([one, *(other for other in others if other != one)])
    assert labels.name(0) == name


def test_a_label_is_found_by_its_id_or_a_name_of_its_own():
    labels = Labels.of(
        [Label("a", text="red apple"), Label("b", "pear tree"), Label("plum"), Label("c", "a")]
    )
    assert [labels.find(given) for given in ("a", "b", "pear tree", "plum")] == [0, 1, 1, 2]
    with pytest.raises(UsageError, match="unknown label 'Plums'; did you mean 'plum'"):
        labels.find("Plums")
    with pytest.raises(UsageError, match=r"expected the id or name of a label$"):
        labels.find("0000")
    twice = Labels.of([*labels, Label("d", name="pear tree")])
    with pytest.raises(
        UsageError, match="found 2 labels of this name; give an id, such as 'b', 'd'"
    ):
        twice.find("pear tree")


@quick
@given(label_lists, st.lists(short.filter(bool), max_size=5))
def test_extended_keeps_what_is_there_and_appends_the_new_in_order(given, more):
    labels = Labels.of(given)
    known = {one.id for one in given}
    new = [Label(one) for one in dict.fromkeys(more) if one not in known]
    extended = labels.extended(more)
    assert list(extended) == given + new
    assert list(labels) == given
    assert (extended is labels) == (not new)


@pytest.mark.parametrize("field", ["id", "name", "text", "aliases", "uri"])
def test_equality_looks_at_every_column(field):
    other = msgspec.structs.replace(WIND, **{field: ("other",) if field == "aliases" else "other"})
    assert Labels.of([WIND]) != Labels.of([other])


def test_equality_with_another_order_or_thing():
    assert Labels.of(["a", "b"]) != Labels.of(["b", "a"])
    assert Labels.of(["a"]) != Labels.of([Label("a", "A")])
    assert Labels.of(["a"]) != ["a"]
    with pytest.raises(TypeError):
        hash(Labels.of([]))


def test_memory_counts_all_columns():
    bare = Labels.of(["a"])
    full = Labels.of([WIND])
    assert bare.nbytes >= bare.ids.nbytes
    assert full.nbytes >= sum(
        column.nbytes for column in (full.ids, full.names, full.texts, full.uris)
    )


def test_as_json_only_what_is_there():
    assert msgspec.json.encode(Label("a", "A")) == b'{"id":"a","name":"A"}'
    assert msgspec.json.decode(b'{"id":"w","aliases":["x"]}', type=Label) == Label(
        "w", aliases=("x",)
    )
