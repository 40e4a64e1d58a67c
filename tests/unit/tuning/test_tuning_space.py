"""What can be searched over, how it is written, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from longtail.config import settings
from longtail.errors import ConfigError, UsageError
from longtail.methods import METHODS, configure
from longtail.tuning.space import (
    Choice,
    Range,
    check_space,
    default_space,
    parse_dimension,
    read_space,
)

CONFIG = configure("xr-linear")


class TestParse:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("ranker.cost_positive=0.1..10:log", Range("ranker.cost_positive", 0.1, 10, True)),
            ("forest.tail_share = 0..1", Range("forest.tail_share", 0, 1)),
            ("ranker.tolerance=1e-3..1e-1:log", Range("ranker.tolerance", 1e-3, 0.1, True)),
            ("ranker.prune=.05 .. .5", Range("ranker.prune", 0.05, 0.5)),
            ("tree.branching=8,16,32", Choice("tree.branching", (8, 16, 32))),
            ("tree.levels=[4, 16],[8, 64]", Choice("tree.levels", ([4, 16], [8, 64]))),
            ("tfidf.0.sublinear_tf=true,false", Choice("tfidf.0.sublinear_tf", (True, False))),
            (
                "label_features.kind=pifa, pifa+text",
                Choice("label_features.kind", ("pifa", "pifa+text")),
            ),
            ("encoder.name=a..b,c", Choice("encoder.name", ("a..b", "c"))),
        ],
    )
    def test_texts(self, text, expected):
        assert parse_dimension(text) == expected

    def test_lists_without_end(self):
        deep = "[" * 5000
        assert parse_dimension(f"tree.levels=8,{deep}") == Choice("tree.levels", (8, deep))

    @pytest.mark.parametrize("text", ["tree.branching", "=1,2", "  =1..2"])
    def test_no_path(self, text):
        with pytest.raises(UsageError, match=r"expected PATH=LOW\.\.HIGH"):
            parse_dimension(text)

    def test_no_numbers(self):
        with pytest.raises(
            ConfigError, match=r"ranker\.prune: found '1e\.\.e2'; expected two numbers"
        ):
            parse_dimension("ranker.prune=1e..e2")

    def test_file(self, tmp_path):
        (tmp_path / "s.toml").write_text(
            '[ranker]\ncost_positive = "0.1..10:log"\n[tfidf.0]\nmin_df = [1, 2]\n[tree]\nlevels = [[4], [8, 64]]\n'
        )
        assert read_space(tmp_path / "s.toml") == [
            Range("ranker.cost_positive", 0.1, 10, True),
            Choice("tfidf.0.min_df", (1, 2)),
            Choice("tree.levels", ([4], [8, 64])),
        ]

    @pytest.mark.parametrize(
        "content", ["[tree]\nbranching = 16", "[[tfidf]]\nmin_df = [1, 2]", "seed = 'a'"]
    )
    def test_file_with_something_else(self, tmp_path, content):
        (tmp_path / "s.toml").write_text(content)
        with pytest.raises(ConfigError, match=r'expected "LOW\.\.HIGH"'):
            read_space(tmp_path / "s.toml")


class TestCheck:
    def checked(self, *texts):
        return check_space([*map(parse_dimension, texts)], CONFIG)

    def test_whole_numbers(self):
        assert self.checked("search.beam_size=2..50:log") == [
            Range("search.beam_size", 2, 50, True, True)
        ]
        assert self.checked("ranker.prune=0..1") == [Range("ranker.prune", 0, 1)]

    def test_the_last_one_of_a_path_counts(self):
        assert self.checked("tree.branching=2,4", "tree.leaf_size=9,10", "tree.branching=8,16") == [
            Choice("tree.branching", (8, 16)),
            Choice("tree.leaf_size", (9, 10)),
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "tree.branchin=2,4",
                "unknown setting 'tree.branchin'; did you mean 'tree.branching'?",
            ),
            (
                "tfidf.1.min_df=1,2",
                "unknown setting 'tfidf.1.min_df'; did you mean 'tfidf.0.min_df'?",
            ),
            ("tree=1,2", "unknown setting 'tree'"),
            ("method=bonsai,plt", "unknown setting 'method'"),
            ("tree.branching=1,2", "tree.branching: found 1; expected a whole number >= 2"),
            ("tree.branching=1..8", "tree.branching: found 1; expected a whole number >= 2"),
            ("tree.branching=2.5..8", "tree.branching: found 2.5; expected a whole number"),
            ("tree.kind=balanced,rand", "tree.kind: found 'rand'; expected one of balanced, "),
            ("tree.branching=8,x", "tree.branching: found 'x'; expected a whole number"),
            ("tree.kind=1..2", "tree.kind: found 1..2; expected a list of choices"),
            ("tfidf.0.sublinear_tf=0..1", "expected a list of choices"),
            ("tree.branching=8", "tree.branching: found one choice; expected two or more"),
            ("tree.branching=8,8", "found one choice"),
            ("ranker.prune=1..1", "expected LOW below HIGH"),
            ("ranker.prune=2..1", "expected LOW below HIGH"),
            ("ranker.prune=0..1:log", "above 0 on a log scale"),
            ("tfidf.0.max_df=0.5..1.5", "tfidf.0.max_df: found 1.5; expected a number <= 1"),
            ("forest.tail_share=0..1", "forest.tail_share: xr-linear does not read this setting"),
        ],
    )
    def test_refusals(self, text, message):
        with pytest.raises(ConfigError) as error:
            self.checked(text)
        assert message in str(error.value)

    def test_settings_that_hang_together_are_not_refused(self):
        """A shortest n-gram of 2 is fine beside a longest one of 2, which is searched over, too."""
        assert len(self.checked("tfidf.0.ngram_min=1,2", "tfidf.0.ngram_max=2,3")) == 2

    def test_nothing(self):
        with pytest.raises(UsageError, match="found nothing to search over"):
            check_space([], CONFIG)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_space_of_its_own(method):
    config = configure(method)
    space = check_space(default_space(config), config)
    assert len(space) >= 2
    own = {setting.path: setting.value for setting in settings(config)}
    outside = [dimension.path for dimension in space if not dimension.holds(own[dimension.path])]
    assert outside == []  # so that the first trial is the method as it is
    without = default_space(config, reads_text=False)
    assert not any(dimension.path.startswith("tfidf") for dimension in without)


def test_what_a_method_does_without_is_not_searched():
    paths = {
        name: [dimension.path for dimension in default_space(configure(name))]
        for name in ("fastxml", "pfastrexml")
    }
    assert "forest.tail_share" in paths["pfastrexml"]
    assert [path for path in paths["pfastrexml"] if path != "forest.tail_share"] == paths["fastxml"]


def test_holds():
    assert Range("a", 1, 2).holds(2)
    assert not Range("a", 0, 2).holds(True)
    assert not Range("a", 0, 2).holds(3)
    assert Choice("a", ([1, 2], [])).holds((1, 2))
    assert Choice("a", (0, 1)).position(1.0) == 1
    assert not Choice("a", (1, 2)).holds(3)
