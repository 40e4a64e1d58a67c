"""Each rule of style finds what it is for, with file and line, and lets ordinary code pass."""

from __future__ import annotations

import pytest

import style_counts
from style_counts import Area, Source

GOOD = '''"""A module."""


def scale(rows, factor):
    """Multiply rows by a factor."""
    first, last = rows.bounds()
    first, last = last, first
    width = 1 if factor else 2
    return first * width + last
'''

BAD = {
    "packed assignments": "low, high = start, end\n",
    "conditional expressions": "x = 1 if a else 2\n",
    "crowded statements": "x = (1 if a else 2) + (3 if b else 4)\n",
    "lines over 100 columns": "x = '" + "a" * 100 + "'\n",
    "forbidden names": "own = 1\n",
}


def measures(text):
    findings = style_counts.findings(Source.parse("src/longtail/bad.py", text))
    return {finding.measure: finding for finding in findings}


@pytest.mark.parametrize("measure", BAD)
def test_a_bad_line_is_found_with_its_number(measure):
    finding = measures("import os\n\n" + BAD[measure])[measure]
    assert str(finding).startswith("src/longtail/bad.py:3: ")


def test_ordinary_code_passes():
    assert set(measures(GOOD)) == {"conditional expressions"}  # these are counted, not refused


@pytest.mark.parametrize(
    "text",
    [
        "def own(): pass",
        "class rest: pass",
        "def f(told): pass",
        "def f(*, given=1): pass",
        "import os as place",
        "for found in []: pass",
        "x = [say for say in y]",
        "self.mend = 1",
        "_own = 1",
        "lambda chance: 1",
        "class A:\n    begun: int",
        "with open('x') as said: pass",
    ],
)
def test_every_way_to_bind_a_forbidden_name_is_found(text):
    assert "forbidden names" in measures(text)


@pytest.mark.parametrize("text", ["x.tell()", "f(given=1)", "owner = place_of(1)", "import rest.x"])
def test_uses_of_names_that_others_chose_pass(text):
    assert measures(text) == {}


def test_conditions_of_inner_statements_and_lambdas_count_for_themselves():
    inner = "if (1 if a else 2):\n    x = 1 if b else 2\n"
    assert "crowded statements" not in measures(inner)
    assert "crowded statements" not in measures("f(1 if a else 2, lambda: 1 if b else 2)\n")


def sized(text):
    source = Source.parse("src/longtail/cli/bad.py", text)
    return source, next(style_counts.functions(source))


def test_parameters_and_statements_of_a_function():
    text = '''def f(self, a, /, b, *c, d, **e):
    """Say it."""
    if a:
        x = 1
    def inner():
        y = 1
        return y
    return x
'''
    _, function = sized(text)
    assert style_counts.parameters(function) == 5
    assert style_counts.statements(function) == 4


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


PACKAGE = {
    "src/longtail/__init__.py": "",
    "src/longtail/rankers/__init__.py": "",
    "src/longtail/rankers/tree.py": "class TreeRanker:\n    pass\n",
    "src/longtail/store/__init__.py": (
        "from longtail.store.one import once\nfrom longtail.store.two import twice\n"
    ),
    "src/longtail/store/one.py": "once = 1\n",
    "src/longtail/store/two.py": "twice = 2\n",
    "src/longtail/a.py": (
        "from longtail.methods import METHODS\n"
        "from longtail.rankers.tree import TreeRanker\n"
        "from longtail.store import once, twice\n\n"
        "if METHODS['x'].network:\n    pass\n"
        "entry = METHODS['x']\n"
        "if entry.ranker == 'tree' or isinstance(entry, TreeRanker | str):\n    pass\n"
        "ranker.network.heads\n"
    ),
    "src/longtail/b.py": (
        "from longtail.rankers import tree\n\n\n"
        "def f():\n    from longtail.store.two import twice\n    return twice\n"
    ),
}


def test_modules_with_one_importer(tmp_path):
    write(tmp_path, PACKAGE)
    area = style_counts.count(tmp_path, "src")
    alone = {f.file for f in area.findings if f.measure == "modules with one importer"}
    assert alone == {"src/longtail/store/one.py"}


def test_tests_of_a_methods_kind(tmp_path):
    write(tmp_path, PACKAGE)
    area = style_counts.count(tmp_path, "src")
    kinds = [f"{f.file}:{f.line}" for f in area.findings if f.measure == "tests of a method's kind"]
    assert sorted(kinds) == [
        "src/longtail/a.py:5",
        "src/longtail/a.py:8",
        "src/longtail/a.py:8",
    ]


def test_a_count_over_its_limit_lists_the_findings(tmp_path):
    text = "def f(a, b):\n    own = a\n    x, y = a, b\n    return own, x, y\n"
    write(tmp_path, {"src/longtail/bad.py": text})
    areas = {"src": style_counts.count(tmp_path, "src")}
    limits = {"src": {"forbidden names": 0, "parameters": 1, "packed assignments": 500.0}}
    assert list(style_counts.check(areas, limits)) == [
        "src/longtail/bad.py:2: the name `own` says nothing; expected what the thing is",
        "src: forbidden names: 1; expected at most 0",
        "src/longtail/bad.py:1: `f` has 2 parameters",
        "src: parameters: 2; expected at most 1",
    ]
    assert list(style_counts.check(areas, {"src": {"forbidden names": 1}})) == []


@pytest.mark.parametrize(
    ("decorator", "path", "expected"),
    [
        ("app.command()", "src/longtail/cli/x.py", 0),
        ("app.command()", "src/longtail/data/x.py", 1),
        ("compiled", "src/longtail/kernels/triton_x.py", 0),
        ("compiled", "src/longtail/kernels/x.py", 1),
    ],
)
def test_verbs_and_triton_kernels_may_have_more_parameters(tmp_path, decorator, path, expected):
    write(tmp_path, {path: f"@{decorator}\ndef f(a):\n    pass\n"})
    assert style_counts.count(tmp_path, "src").counts["parameters"] == expected


def test_every_limit_is_of_a_measure():
    measures = style_counts.count(style_counts.ROOT, "scripts").counts
    assert set(style_counts.LIMITS) == set(style_counts.AREAS)
    assert all(set(limits) <= set(measures) for limits in style_counts.LIMITS.values())


def test_the_table_has_a_row_per_measure_and_a_column_per_area():
    area = Area({"files": 2, "lines": 3.5}, [])
    assert style_counts.table({"src": area, "tests": area}) == (
        "| | src | tests |\n|---|--:|--:|\n| files | 2 | 2 |\n| lines | 3.5 | 3.5 |"
    )
