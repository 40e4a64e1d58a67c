"""Settings: their documentation, the order in which sources win, and what is said of a wrong one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import msgspec
import pytest

from longtail import config as module
from longtail.config import (
    Config,
    SettingsFile,
    Stage,
    TfIdf,
    merge,
    nested,
    parse_assignment,
    read_toml,
    resolve,
    settings,
    to_toml,
)
from longtail.errors import ConfigError, UsageError
from longtail.methods import METHODS, configure, method_toml

STAGES = [
    value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Stage)
]
FIELDS = [(stage, name) for stage in STAGES for name in stage.__struct_fields__]
RESOLVED = [(name, preset) for name, entry in METHODS.items() for preset in (None, *entry.presets)]


def said(*sources) -> str:
    """Return the message of the config error that the sources cause."""
    with pytest.raises(ConfigError) as caught:
        resolve(*sources)
    message = str(caught.value)
    assert "\n" not in message
    assert "`" not in message, "msgspec's own words"
    return message


def set_(*assignments: str) -> Config:
    return resolve(*map(parse_assignment, assignments))


def said_of(assignment: str) -> str:
    return said(parse_assignment(assignment))


class TestDocumentation:
    @pytest.mark.parametrize(
        ("stage", "name"), FIELDS, ids=lambda x: x if isinstance(x, str) else x.__name__
    )
    def test_every_field_has_one_line(self, stage, name):
        hint = get_type_hints(stage, include_extras=True)[name]
        if isinstance(hint, type) and issubclass(hint, Stage):
            assert hint.__doc__
            return
        assert get_origin(hint) is Annotated
        lines = [meta.description for meta in get_args(hint)[1:] if meta.description]
        assert len(lines) == 1
        assert lines[0].strip()
        assert "\n" not in lines[0]
        assert not lines[0].endswith(".")

    def test_settings_carry_the_line(self):
        found = {setting.path: setting for setting in settings(Config())}
        assert found["tree.branching"] == ("tree.branching", 16, "children of an inner node")
        assert found["tfidf.0.unit"].doc == "count words or characters"
        assert found["ranker.tolerance"].doc.startswith(
            "where the solver stops"
        )  # not that of the reused Positive
        assert found["tree.levels"].value == ()
        assert all(setting.doc for setting in found.values())

    def test_settings_are_all_fields_once(self):
        leaves = sum(len(stage.__struct_fields__) for stage in STAGES if stage is not Config)
        assert (
            len(list(settings(Config()))) == leaves + 6
        )  # method, preset, seed, features, normalise_features and custom
        twice = Config(tfidf=(TfIdf(), TfIdf()))
        paths = [setting.path for setting in settings(twice)]
        assert len(set(paths)) == len(paths) == leaves + 6 + len(TfIdf.__struct_fields__)

    def test_a_config_cannot_be_changed(self):
        with pytest.raises(AttributeError):
            Config().seed = 1  # type: ignore[misc]


class TestOrder:
    def test_defaults(self):
        assert resolve() == Config()

    def test_later_sources_win_key_by_key(self):
        merged = resolve(
            {"tree": {"branching": 2, "leaf_size": 7}}, {"tree": {"branching": 4}}, {"seed": 3}
        )
        assert (merged.tree.branching, merged.tree.leaf_size, merged.seed) == (4, 7, 3)
        assert merged.tree.kind == "balanced"

    def test_method_preset_file_set(self, tmp_path):
        def levels(preset=None, *overrides):
            return configure("xr-transformer", preset, *overrides).tree.levels

        file = tmp_path / "my.toml"
        file.write_text("[tree]\nlevels = [5, 50]\n")
        assert levels() == ()
        assert levels("wiki10-31k") == (8, 128, 2048)
        assert levels("wiki10-31k", read_toml(file)) == (5, 50)
        assert levels("wiki10-31k", read_toml(file), parse_assignment("tree.levels=[6]")) == (6,)
        assert configure("parabel").tree.branching == 2  # method over default
        assert configure("parabel", None, {"tree": {"branching": 3}}).tree.branching == 3

    def test_a_list_replaces_a_list(self):
        assert resolve({"tree": {"levels": [1, 2, 3]}}, {"tree": {"levels": [9]}}).tree.levels == (
            9,
        )

    def test_blocks_of_a_file_stand_for_all_blocks_each_from_defaults(self):
        two = {"tfidf": [{"unit": "char", "min_df": 9}, {}]}
        assert resolve(two).tfidf == (TfIdf(unit="char", min_df=9), TfIdf())
        assert resolve(two, {"tfidf": [{"weight": 2}]}).tfidf == (TfIdf(weight=2),)

    def test_one_setting_of_one_block(self):
        two = {"tfidf": [{"unit": "char", "min_df": 9}, {}]}
        changed = resolve(two, parse_assignment("tfidf.1.min_df=4"))
        assert changed.tfidf == (TfIdf(unit="char", min_df=9), TfIdf(min_df=4))

    def test_the_next_block_is_appended(self):
        assert set_("tfidf.1.unit=char").tfidf == (TfIdf(), TfIdf(unit="char"))
        both = set_("tfidf.1.unit=char", "tfidf.1.ngram_max=3", "tfidf.2.min_df=2")
        assert both.tfidf == (TfIdf(), TfIdf(unit="char", ngram_max=3), TfIdf(min_df=2))

    def test_a_list_of_numbers_by_place(self):
        assert set_("tree.levels=[8,64]", "tree.levels.1=128", "tree.levels.2=512").tree.levels == (
            8,
            128,
            512,
        )

    def test_sources_are_left_alone(self):
        source = {"tfidf": [{"unit": "char"}], "tree": {"branching": 2}}
        resolve(source, {"tfidf": {"0": {"min_df": 2}, "1": {}}, "tree": {"branching": 3}})
        assert source == {"tfidf": [{"unit": "char"}], "tree": {"branching": 2}}
        base = {"a": {"b": 1}}
        assert merge(base, {"a": {"b": 2}}, "") == {"a": {"b": 2}}
        assert base == {"a": {"b": 1}}


class TestToml:
    @pytest.mark.parametrize(("name", "preset"), RESOLVED)
    def test_parses_back(self, name, preset):
        resolved = configure(name, preset)
        assert configure(name, None, tomllib.loads(method_toml(resolved))) == resolved

    def test_parses_back_with_everything_unusual(self, tmp_path):
        odd = set_(
            "tfidf.1.unit=char", "tfidf.1.ngram_max=5", "tfidf.1.max_df=0.25", "tree.levels=[8,64]",
            "ranker.tolerance=1e-300", "ranker.prune=0", "search.exact=true", f"seed={2**63 - 1}",
        )  # fmt: skip
        file = tmp_path / "odd.toml"
        file.write_text(to_toml(odd), "utf-8")
        assert resolve(read_toml(file)) == odd

    def test_every_setting_stands_with_its_line(self):
        text = to_toml(configure("xr-linear", None, {"tree": {"levels": [4, 32, 256]}}))
        assert "[tree]" in text.splitlines()
        assert text.count("[[tfidf]]") == 1
        assert "branching = 16  # children of an inner node" in text.splitlines()
        assert (
            "levels = [4,32,256]  # nodes on each level, coarse to fine; empty = branching"
            in text.splitlines()
        )
        assert all(" # " in line for line in text.splitlines() if " = " in line)

    def test_a_source_stands_behind_the_line_of_its_setting(self):
        text = to_toml(
            configure("xr-linear"),
            {"tree.branching": "a paper, table 1", "tfidf.0.min_df": "its code"},
        )
        assert "branching = 16  # children of an inner node [a paper, table 1]" in text.splitlines()
        assert (
            "min_df = 1  # leave out n-grams in fewer documents than this [its code]"
            in text.splitlines()
        )
        assert text.count(" [a paper, table 1]") == text.count(" [its code]") == 1

    def test_each_block_is_a_table(self):
        assert to_toml(Config(tfidf=(TfIdf(), TfIdf(unit="char")))).count("[[tfidf]]") == 2

    def test_json_keeps_a_config(self):
        resolved = set_("tfidf.1.unit=char", f"seed={2**63 - 1}", "tree.levels=[8]")
        assert msgspec.json.decode(msgspec.json.encode(resolved), type=Config) == resolved

    def test_missing_file(self, tmp_path):
        with pytest.raises(UsageError, match=r"none\.toml: no such file"):
            read_toml(tmp_path / "none.toml")

    @pytest.mark.parametrize(
        "content", [b"tree = ", b"[tree\n", b"\xff\xfe", b"a = 1\na = 2\n", b"{}"]
    )
    def test_not_toml(self, tmp_path, content):
        file = tmp_path / "bad.toml"
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=r"bad\.toml: not a TOML file \(.+\)"):
            read_toml(file)

    def test_a_folder_is_not_toml(self, tmp_path):
        with pytest.raises(UsageError, match=r"is a folder; expected a TOML file of settings$"):
            read_toml(tmp_path)

    def test_a_byte_order_mark_is_read_over(self, tmp_path):
        file = tmp_path / "from-windows.toml"
        file.write_bytes(b"\xef\xbb\xbf[tree]\r\nbranching = 8\r\n")
        assert read_toml(file) == {"tree": {"branching": 8}}


class TestAssignment:
    @pytest.mark.parametrize(
        ("assignment", "value"),
        [
            ("a.b=1", 1),
            ("a.b=1.5", 1.5),
            ("a.b=1e-4", 1e-4),
            ("a.b=true", True),
            ("a.b=[8,64]", [8, 64]),
            ("a.b=[ 8, 64 ]", [8, 64]),
            ("a.b=char", "char"),
            ("a.b= char ", "char"),
            ("a.b=pifa+text", "pifa+text"),
            ('a.b="char"', "char"),
            ("a.b='char'", "char"),
            ("a.b=x=y", "x=y"),
            ("a.b=", ""),
            ("a.b=True", "True"),
            (" a.b =1", 1),
        ],
    )
    def test_value(self, assignment, value):
        assert parse_assignment(assignment) == {"a": {"b": value}}

    def test_without_a_dot(self):
        assert parse_assignment("seed=1") == {"seed": 1}

    @pytest.mark.parametrize("assignment", ["tree.branching", "", "=3", "  =3", "="])
    def test_not_an_assignment(self, assignment):
        with pytest.raises(UsageError) as caught:
            parse_assignment(assignment)
        assert (
            str(caught.value)
            == f"--set {assignment!r}; expected PATH=VALUE such as tree.branching=32"
        )

    def test_bytes_that_are_not_text(self):
        with pytest.raises(UsageError, match=r"^--set 'tree\.kind=\\udcff'; expected UTF-8$"):
            parse_assignment("tree.kind=\udcff")  # as a shell passes the byte ff
        assert parse_assignment("a=\ufffd ü") == {"a": "\ufffd ü"}

    def test_reaches_the_config(self):
        resolved = set_(
            "tree.levels=[8,64]",
            "tree.kind='random'",
            "search.exact=true",
            "ranker.bias=0",
            "seed=7",
        )
        assert resolved.tree.levels == (8, 64)
        assert (resolved.tree.kind, resolved.search.exact, resolved.ranker.bias, resolved.seed) == (
            "random",
            True,
            0,
            7,
        )


class TestUnknown:
    @pytest.mark.parametrize(
        ("assignment", "given", "near"),
        [
            ("tree.branchin=2", "tree.branchin", "tree.branching"),
            ("branching=2", "branching", "tree.branching"),
            ("ranker.branching=2", "ranker.branching", "tree.branching"),
            ("tres.kind=random", "tres", "tree"),
            ("sed=1", "sed", "seed"),
            ("tfidf.0.unitt=char", "tfidf.0.unitt", "tfidf.0.unit"),
            ("tfidf.1.unitt=char", "tfidf.1.unitt", "tfidf.1.unit"),
            ("tfidf=[{min_dff=2}]", "tfidf.0.min_dff", "tfidf.0.min_df"),
            ("tree={branchin=2}", "tree.branchin", "tree.branching"),
        ],
    )
    def test_nearest(self, assignment, given, near):
        assert said_of(assignment) == f"unknown setting '{given}'; did you mean '{near}'?"

    def test_in_a_table_of_a_file(self, tmp_path):
        file = tmp_path / "my.toml"
        file.write_text("[[tfidf]]\nunit = 'word'\n\n[[tfidf]]\nngram_mx = 3\n")
        assert (
            said(read_toml(file))
            == f"{file}: unknown setting 'tfidf.1.ngram_mx'; did you mean 'tfidf.1.ngram_max'?"
        )

    def test_nothing_near_lists_what_is_known(self):
        message = said_of("zzzzzz=1")
        assert message.startswith("unknown setting 'zzzzzz'; known: ")
        assert "tree.branching" in message

    @pytest.mark.parametrize("key", ["2", "x", "-1", "1.5"])
    def test_a_block_that_is_not_next(self, key):
        message = said({"tfidf": {key: {"unit": "char"}}})
        assert message == f"unknown setting 'tfidf.{key}'; expected one of tfidf.0, tfidf.1"


class TestWrong:
    @pytest.mark.parametrize(
        ("assignment", "message"),
        [
            ("tree.branching=x", "tree.branching: found 'x'; expected a whole number"),
            ("tree.branching=2.5", "tree.branching: found 2.5; expected a whole number"),
            ("tree.branching=true", "tree.branching: found True; expected a whole number"),
            ("tree.branching=1", "tree.branching: found 1; expected a whole number >= 2"),
            ("tree.branching.x=1", "tree.branching: found {'x': 1}; expected a whole number"),
            ("tree.kind.x=1", "tree.kind: found {'x': 1}; expected a string"),
            (
                "tree.kind=kmeans",
                "tree.kind: found 'kmeans'; expected one of balanced, unbalanced, random, frequency, flat",
            ),
            ("tfidf.0.unit=chr", "tfidf.0.unit: found 'chr'; expected one of word, char"),
            ("tfidf.1.unit=chr", "tfidf.1.unit: found 'chr'; expected one of word, char"),
            ("tfidf.1.min_df=0", "tfidf.1.min_df: found 0; expected a whole number >= 1"),
            ("tfidf.0.max_df=1.01", "tfidf.0.max_df: found 1.01; expected a number <= 1.0"),
            ("tfidf.0.max_df=0", "tfidf.0.max_df: found 0; expected a number > 0.0"),
            (
                "tfidf.0.max_features=-1",
                "tfidf.0.max_features: found -1; expected a whole number >= 0",
            ),
            ("tfidf=[]", "tfidf: found []; expected a list of length >= 1"),
            ("tfidf=3", "tfidf: found 3; expected a list"),
            ("tfidf.0=3", "tfidf.0: found 3; expected a table of settings"),
            ("tree=3", "tree: found 3; expected a table of settings"),
            ("tree.levels=8,64", "tree.levels: found '8,64'; expected a list"),
            ("tree.levels=[8,0]", "tree.levels.1: found 0; expected a whole number >= 1"),
            ("tree.levels.0.x=8", "tree.levels.0: found {'x': 8}; expected a whole number"),
            (
                "ranker.cost_sensitive=yes",
                "ranker.cost_sensitive: found 'yes'; expected true or false",
            ),
            ("ranker.cost_positive=0", "ranker.cost_positive: found 0; expected a number > 0.0"),
            ("ranker.prune=-0.1", "ranker.prune: found -0.1; expected a number >= 0.0"),
            ("seed=-1", "seed: found -1; expected a whole number >= 0"),
            (f"seed={2**63}", f"seed: found {2**63}; expected a whole number <= {2**63 - 1}"),
            ("method=1", "method: found 1; expected a string"),
        ],
    )
    def test_says_place_found_and_expected(self, assignment, message):
        assert said_of(assignment) == message

    @pytest.mark.parametrize("value", ["inf", "nan", "-inf"])
    @pytest.mark.parametrize(
        "path",
        [
            "tfidf.0.weight",
            "tfidf.0.max_df",
            "tree.min_gain",
            "ranker.bias",
            "ranker.prune",
            "ranker.tolerance",
        ],
    )
    def test_only_finite_numbers(self, path, value):
        assert said_of(f"{path}={value}").startswith(f"{path}: found {value}; expected a number ")

    def test_shortest_and_longest_ngram(self):
        assert (
            said_of("tfidf.0.ngram_min=3")
            == "tfidf.0.ngram_min: found 3; expected at most ngram_max (1)"
        )
        assert said({"tfidf": [{}, {"ngram_min": 2}]}).startswith("tfidf.1.ngram_min: ")
        assert set_("tfidf.0.ngram_max=3", "tfidf.0.ngram_min=3").tfidf[0].ngram_min == 3

    @pytest.mark.parametrize("levels", ["[64, 8]", "[8, 8]", "[1, 2, 2]"])
    def test_levels_go_from_coarse_to_fine(self, levels):
        message = said_of(f"tree.levels={levels}")
        assert message == f"tree.levels: found {levels}; expected rising numbers, coarse to fine"


class TestFile:
    """Errors about what stands in a file begin with its name, those of other sources do not."""

    @pytest.fixture
    def given(self, tmp_path, monkeypatch):
        """Return the message of the error that a file of this content causes, with ``--set`` behind it."""
        monkeypatch.chdir(tmp_path)

        def given(content: str, *assignments: str) -> str:
            Path("my.toml").write_text(content)
            return said(read_toml("my.toml"), *map(parse_assignment, assignments))

        return given

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                "[tree]\nbranchin = 2",
                "unknown setting 'tree.branchin'; did you mean 'tree.branching'?",
            ),
            ("tree = 3", "tree: found 3; expected a table of settings"),
            ("seed = 'x'", "seed: found 'x'; expected a whole number"),
            ("[tree]\nbranching = 1", "tree.branching: found 1; expected a whole number >= 2"),
            ("[tree]\nlevels = [8, 0]", "tree.levels.1: found 0; expected a whole number >= 1"),
            (
                "[tree]\nlevels = [8, 8]",
                "tree.levels: found [8, 8]; expected rising numbers, coarse to fine",
            ),
            (
                "[[tfidf]]\n[[tfidf]]\nmin_df = 0",
                "tfidf.1.min_df: found 0; expected a whole number >= 1",
            ),
            ("[tfidf.0]\nmin_df = 0", "tfidf.0.min_df: found 0; expected a whole number >= 1"),
            (
                "[tfidf.0]\nngram_min = 3",
                "tfidf.0.ngram_min: found 3; expected at most ngram_max (1)",
            ),
        ],
    )
    def test_is_named(self, given, content, message):
        assert given(content, "tree.kind=flat", "tfidf.0.weight=2") == f"my.toml: {message}"

    @pytest.mark.parametrize(
        ("content", "assignment", "message"),
        [
            ("seed = 1", "sed=1", "unknown setting 'sed'; did you mean 'seed'?"),
            ("seed = 1", "seed=x", "seed: found 'x'; expected a whole number"),
            ("seed = 'y'", "seed=x", "seed: found 'x'; expected a whole number"),
            (
                "[tree]\nlevels = [8, 64]",
                "tree.levels.1=0",
                "tree.levels.1: found 0; expected a whole number >= 1",
            ),
            (
                "[tfidf.0]\nngram_min = 2\nngram_max = 3",
                "tfidf.0.ngram_max=1",
                "tfidf.0.ngram_min: found 2; expected at most ngram_max (1)",
            ),
        ],
    )
    def test_is_not_named_for_what_stands_elsewhere(self, given, content, assignment, message):
        assert given(content, assignment) == message

    def test_a_wrong_value_may_be_overridden(self, tmp_path):
        file = tmp_path / "my.toml"
        file.write_text("seed = 'x'")
        assert resolve(read_toml(file), {"seed": 3}).seed == 3

    def test_what_does_not_go_with_the_method(self):
        file = SettingsFile({"ranker": {"loss": "logistic"}}, "my.toml")
        with pytest.raises(
            ConfigError, match=r"^my\.toml: ranker\.solver: found newton with the logistic loss; "
        ):
            configure("dismec", None, file, {"seed": 1})

    def test_the_method(self):
        file = SettingsFile({"method": "plx"}, "my.toml")
        for asked, message in {
            "plx": r"^my\.toml: unknown method 'plx'; did you mean 'plt'\?$",
            "bonsay": r"^unknown method 'bonsay'; did you mean 'bonsai'\?$",
            "plt": r"^my\.toml: method: found 'plx' among the settings for 'plt'; expected 'plt' or nothing$",
        }.items():
            with pytest.raises(ConfigError, match=message):
                configure(asked, None, file)


def test_nested():
    found = nested({"tree.branching": 2, "tfidf.0.min_df": 3, "tree.kind": "flat", "seed": 1})
    assert found == {
        "tree": {"branching": 2, "kind": "flat"},
        "tfidf": {"0": {"min_df": 3}},
        "seed": 1,
    }


def test_a_removed_setting_names_the_option_in_its_place():
    with pytest.raises(
        ConfigError, match=r"^training\.tensorboard: .* --log-to tensorboard\[:DIR\]"
    ):
        resolve({"training": {"tensorboard": "runs"}})
