"""The settings of AttentionXML: which are refused, and which train a network anew."""

from __future__ import annotations

import pytest

import longtail as lt
from longtail.errors import ConfigError
from longtail.methods import configure
from longtail.networks.attention_family import AttentionFamily
from longtail.networks.fitting import network_inputs


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"hidden": 0}, r"attention\.hidden"),
            ({"hidden": -4}, r"attention\.hidden"),
            ({"hidden": 9000}, r"attention\.hidden"),
            ({"layers": []}, r"attention\.layers"),
            ({"layers": [256, 0]}, r"attention\.layers"),
            ({"word_dropout": 1.0}, r"attention\.word_dropout"),
            ({"word_dropout": -0.1}, r"attention\.word_dropout"),
            ({"dropout": 1}, r"attention\.dropout"),
            ({"average_from": [-1]}, r"attention\.average_from"),
            ({"level_shortlists": [4, 0]}, r"attention\.level_shortlists"),
            ({"trees": 0}, r"attention\.trees"),
            ({"trees": 101}, r"attention\.trees"),
        ],
    )
    def test_wrong_values_are_refused(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            configure("attentionxml", None, {"attention": settings})
        with pytest.raises(ConfigError, match=message):
            lt.Longtail("attentionxml", attention=settings)

    def test_two_settings_of_averages_are_refused(self):
        settings = {"attention": {"average_from": [2, 1]}, "training": {"average": 0.5}}
        message = r"average_from: found \[2.0, 1.0\] beside training.average=0.5; expected one of"
        with pytest.raises(ConfigError, match=message):
            AttentionFamily().check(configure("attentionxml", None, settings))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"level_shortlists": [4, 4]},
                r"level_shortlists: found numbers for 2 levels; expected 1, as many as are above",
            ),
            (
                {"average_from": [1]},
                r"average_from: found numbers for 1 levels; expected 2, as many",
            ),
            (
                {"average_from": [1, 3]},
                r"average_from: found 3 for level 2; expected less than its 3",
            ),
        ],
    )
    def test_values_of_other_levels_are_refused(self, settings, message):
        settings = {"attention": settings | {"epochs": [2, 3], "levels": [4]}}
        config = configure("attentionxml", None, settings)
        AttentionFamily().check_levels(config)
        with pytest.raises(ConfigError, match=message):
            AttentionFamily().check_levels(config, 20)

    @pytest.mark.parametrize(
        "name", ["hidden", "layers", "word_dropout", "average_from", "level_shortlists", "trees"]
    )
    def test_inputs_of_the_network(self, name):
        """A run with another value trains anew."""
        config = configure("attentionxml")
        assert f"attention.{name}" in network_inputs(config, AttentionFamily())
        assert f"attention.{name}" not in AttentionFamily().level_inputs()
