"""The files of presets: which blocks hold for which preset, and how sources are told."""

from __future__ import annotations

import tomllib

import pytest

from longtail.methods import METHODS, configure, method_toml
from longtail.methods.recipe_files import parse_presets

FILE = """
datasets = ["a", "b", "a+x"]

[[settings]]
source = "paper, table 1"
"training.epochs" = 3

[[settings]]
datasets = ["a*"]
source = "code"
"tree.levels" = [2, 8]

[[deviation]]
datasets = ["*+x"]
what = "something else"
"""


class TestFiles:
    def test_blocks_hold_for_the_presets_that_they_name(self):
        presets = parse_presets(FILE)
        assert list(presets) == ["a", "b", "a+x"]
        assert presets["b"].values == {"training.epochs": 3}
        assert presets["a+x"].settings == {"training": {"epochs": 3}, "tree": {"levels": [2, 8]}}
        assert presets["a"].sources == {"training.epochs": "paper, table 1", "tree.levels": "code"}
        assert [presets[name].deviations for name in presets] == [(), (), ("something else",)]

    def test_a_setting_has_one_source(self):
        twice = '\n[[settings]]\ndatasets = ["b"]\nsource = "blog"\n"training.epochs" = 4\n'
        with pytest.raises(
            ValueError,
            match=r"b: training\.epochs stands in two blocks, 'paper, table 1' and 'blog'",
        ):
            parse_presets(FILE + twice)

    def test_a_name_that_is_none(self):
        with pytest.raises(ValueError, match=r"unknown dataset 'c\*'; expected one of a, b, a\+x"):
            parse_presets(FILE + '\n[[settings]]\ndatasets = ["c*"]\nsource = "s"\nseed = 1\n')

    def test_sources_of_what_was_changed_are_not_told(self):
        preset = METHODS["cascadexml"].presets["amazon-670k"]
        config = configure(
            "cascadexml", "amazon-670k", {"training": {"epochs": 2}}, {"cascade": {"levels": [9]}}
        )
        told = preset.sources_in(config)
        assert set(preset.sources) - set(told) == {"training.epochs", "cascade.levels"}

    @pytest.mark.parametrize(
        ("method", "name"), [("cascadexml", "wiki-500k+tfidf"), ("xr-transformer", "eurlex-4k")]
    )
    def test_printed_settings_resolve_to_the_same(self, method, name):
        config = configure(method, name)
        text = method_toml(config, METHODS[method].presets[name].sources_in(config))
        assert configure(method, None, tomllib.loads(text)) == config
        lines = text.splitlines()
        assert sum(line.endswith("]") and " [" in line for line in lines) >= len(
            METHODS[method].presets[name].sources
        )
