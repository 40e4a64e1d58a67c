"""Trees that someone made: what becomes of every kind of hierarchy, and the files they are read
from.
"""

from __future__ import annotations

import gzip
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data.labels import Labels
from longtail.errors import DataError
from longtail.tree.given import MAX_DEPTH, read_parents, tree_from_parents


def nested(tree, ids, level=0, nodes=None):
    """Return the tree as nested lists of label ids."""
    nodes = range(tree.widths[0]) if nodes is None else nodes
    if level == tree.n_levels - 1:
        return [ids[tree.order[node]] for node in nodes]
    return [nested(tree, ids, level + 1, tree.children(level, node)) for node in nodes]


def made(labels, parents):
    tree = tree_from_parents(Labels.of(labels), parents)
    tree.check()
    return nested(tree, labels)


@pytest.mark.parametrize(
    ("labels", "parents", "expected"),
    [
        (["a", "b", "c"], {"a": ["x"], "b": ["y"], "c": ["x"]}, [["a", "c"], ["b"]]),
        # two levels, the upper from nodes that are no labels
        (
            ["a", "b", "c", "d"],
            {"a": ["x"], "b": ["x"], "c": ["y"], "d": ["z"], "x": ["r"], "y": ["r"], "z": ["s"]},
            [[["a", "b"], ["c"]], [["d"]]],
        ),
        # a single top node and nodes without labels tell nothing apart
        (
            ["a", "b", "c"],
            {"a": ["x"], "b": ["x"], "c": ["y"], "x": ["r"], "y": ["r"], "q": ["c"]},
            [["a", "b"], ["c"]],
        ),
        # a label with children is a leaf under its own node
        (["p", "a", "b", "c"], {"a": ["p"], "b": ["p"], "c": ["q"]}, [["p", "a", "b"], ["c"]]),
        # labels with neither parents nor children share one node
        (["o", "a", "b", "n"], {"a": ["x"], "b": ["x"]}, [["a", "b"], ["o", "n"]]),
        # the first parent wins
        (["a", "b", "c"], {"a": ["x", "y"], "b": ["y", "x"], "c": ["x"]}, [["a", "c"], ["b"]]),
        # branches of unequal depth: the labels of x itself stay together beside its children
        (
            ["a", "b", "c", "d", "e"],
            {"a": ["x"], "b": ["x"], "c": ["y"], "d": ["y"], "y": ["x"], "e": ["z"]},
            [[["a", "b"], ["c", "d"]], [["e"]]],
        ),
        # p and o end above the level of s and t, and stay apart
        (
            ["a", "b", "c", "d", "e", "f"],
            {"a": ["p"], "b": ["p"], "c": ["o"], "p": ["x"], "o": ["x"]}
            | {"d": ["s"], "e": ["s"], "f": ["t"], "s": ["u"], "t": ["u"], "u": ["y"]},
            [[[["a", "b"]], [["c"]]], [[["d", "e"], ["f"]]]],
        ),
        (["a", "b"], {}, ["a", "b"]),
        (["a", "b"], {"a": ["x"], "b": ["y"]}, ["a", "b"]),
        (["a"], {"a": ["x"], "x": ["y"]}, ["a"]),
        (["a"], {"a": []}, ["a"]),
        ([], {"a": ["x"]}, []),
    ],
)
def test_hierarchies(labels, parents, expected):
    assert made(labels, parents) == expected


@pytest.mark.parametrize(
    ("parents", "cycle"),
    [
        ({"a": ["a"]}, "a → a"),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, "b → c → b"),
        ({"a": ["b"], "b": ["a"]}, "b → a → b"),
        ({"a": ["n0"]} | {f"n{i}": [f"n{(i + 1) % 20}"] for i in range(20)}, "n0 → n1 → n2"),
    ],
)
def test_a_cycle_is_named(parents, cycle):
    with pytest.raises(DataError) as caught:
        tree_from_parents(Labels.of(["a"]), parents)
    assert str(caught.value).startswith(f"label hierarchy: the cycle {cycle}")
    assert len(str(caught.value)) < 200


def test_a_cycle_away_from_all_labels_does_no_harm():
    assert made(["a", "b", "c"], {"a": ["x"], "b": ["x"], "c": ["y"], "q": ["r"], "r": ["q"]}) == [
        ["a", "b"],
        ["c"],
    ]


def test_depth_has_an_end():
    chain = {f"n{i}": [f"n{i + 1}"] for i in range(MAX_DEPTH - 1)}
    labels = Labels.of(["a", "b"])
    assert tree_from_parents(labels, chain | {"a": ["n0"], "b": ["z"]}).widths == (2,)
    with pytest.raises(DataError, match=f"at most {MAX_DEPTH} levels"):
        tree_from_parents(labels, chain | {"a": ["n"], "n": ["n0"]})


@given(
    st.dictionaries(st.integers(1, 25), st.integers(0, 24)), st.sets(st.integers(0, 25), min_size=1)
)
@settings(deadline=None, max_examples=80)
def test_any_forest_becomes_a_tree_that_keeps_it(above, labels):
    parents = {str(child): [str(parent)] for child, parent in above.items() if parent < child}
    ids = [str(label) for label in sorted(labels)]
    tree = tree_from_parents(Labels.of(ids), parents)
    tree.check()

    def line(node):
        return [node, *line(parents[node][0])] if node in parents else [node]

    # labels below each node, and those right below
    below = defaultdict(set)
    direct = defaultdict(set)
    for label in ids:
        for node in line(label)[1:]:
            below[node].add(label)
    for label in ids:
        direct[label if label in below else parents.get(label, [""])[0]].add(label)
        if label in below:
            below[label].add(label)
    nodes = []
    for level in range(tree.n_levels):
        paths = [(tree.ancestors(at)[level], label) for at, label in enumerate(ids)]
        nodes += [
            {label for at, label in paths if at == node} for node in range(tree.widths[level])
        ]
    for labels_of_node in nodes:
        assert len(labels_of_node) == 1 or labels_of_node in [*below.values(), *direct.values()]
    for labels_of_node in [*below.values(), direct[""] or set(ids)]:
        assert labels_of_node in [*nodes, set(ids)]


def test_lines(tmp_path):
    file = tmp_path / "parents.tsv"
    file.write_text("a\tx\nb\tx\n\na\ty\na\tx\r\n x \tr", "utf-8")
    assert read_parents(file) == {"a": ["x", "y"], "b": ["x"], "x": ["r"]}


def test_json_lines(tmp_path):
    file = tmp_path / "parents.jsonl.gz"
    file.write_bytes(
        gzip.compress(
            b'{"id": "a", "parents": ["x", "y", "x"]}\n{"id": "b"}\n{"id": "c", "parents": ["a"]}'
        )
    )
    assert read_parents(file) == {"a": ["x", "y"], "c": ["a"]}


def test_skos(tmp_path):
    pytest.importorskip("rdflib")
    file = tmp_path / "v.ttl"
    file.write_text(
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix e: <http://e.org/> .\n"
        "e:a a skos:Concept ; skos:broader e:b . e:b a skos:Concept ; skos:narrower e:c . e:c a skos:Concept ."
    )
    assert read_parents(file) == {
        "http://e.org/a": ["http://e.org/b"],
        "http://e.org/c": ["http://e.org/b"],
    }


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("p.tsv", "a\tb\na\n", ":2: 'a'; expected child<TAB>parent"),
        ("p.tsv", "a\tb\tc\n", ":1: 'a\\tb\\tc'; expected child<TAB>parent"),
        ("p.tsv", "a\t \n", ":1: 'a\\t '; expected child<TAB>parent"),
        ("p.jsonl", '{"id": "a", "parents": "b"}\n', ":1: a string in 'parents'"),
        ("p.jsonl", '{"id": "a", "parents": [""]}\n', ":1: an empty id"),
        ("p.jsonl", '{"id": "", "parents": ["a"]}\n', ":1: an empty id"),
    ],
)
def test_bad_lines_are_named(tmp_path, name, content, problem):
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(DataError) as caught:
        read_parents(file)
    assert f"{file}{problem}" in str(caught.value)
