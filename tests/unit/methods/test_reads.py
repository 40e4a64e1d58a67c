"""Settings that a method does not read are refused, with the methods that do."""

from __future__ import annotations

import tomllib

import pytest

from longtail.config import Config, SettingsFile, settings
from longtail.errors import ConfigError
from longtail.methods import METHODS, configure, is_read, method_toml, settings_read
from longtail.methods.reads import check_settings_are_read
from longtail.methods.registry import network_family, ranker_family, ranker_reads

PRESETS = [(name, preset) for name, entry in METHODS.items() for preset in (None, *entry.presets)]


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("xr-linear", {"cascade": {"layers": [[1]]}}, "cascade.layers: xr-linear does not read"),
        ("xr-linear", {"forest": {"trees": 5}}, r"reads it \(fastxml, pfastrexml\)"),
        ("fastxml", {"tree": {"branching": 8}}, "tree.branching: fastxml does not read"),
        ("fastxml", {"search": {"beam_size": 8}}, "search.beam_size: fastxml does not read"),
        ("annexml", {"forest": {"trees": 5}}, "forest.trees: annexml does not read"),
        ("xr-linear", {"encoder": {"name": "e"}}, "leave it out, or set features=cat, or choose"),
        ("fastxml", {"label_features": {"graph_keep": 3}}, "or set gandalf.use=true, or choose"),
        ("fastxml", {"label_features": {"tree_kinds": ["pifa"]}}, "tree_kinds: fastxml does not"),
        ("xr-transformer", {"cascade": {"combine": "never"}}, "xr-transformer does not read"),
        ("cascadexml", {"recursive": {"alpha": 2.0}}, r"\(xr-transformer, x-transformer\)$"),
        ("attentionxml", {"cascade": {"layers": [[1]]}}, "cascade.layers: attentionxml does not"),
        ("attentionxml", {"cascade": {"levels": [8]}}, "or set attention.levels in its place, or"),
        ("attentionxml", {"recursive": {"dropout": 0.5}}, "or set attention.dropout in its place"),
        ("xr-linear", {"custom": {"anything": 1}}, "custom.anything: xr-linear does not read"),
    ],
)
def test_refused(method, given, message):
    with pytest.raises(ConfigError, match=message):
        configure(method, None, {"seed": 1}, given)


@pytest.mark.parametrize(
    ("setting", "now"),
    [
        ("phases", "kind"),
        ("first_share", "first_share"),
        ("first_rate", "first_rate"),
        ("shortlist", "shortlist"),
    ],
)
def test_settings_of_phases_are_refused_by_their_former_names(setting, now):
    message = rf"^label_text\.{setting}: is now called phases\.{now}; rename it$"
    with pytest.raises(ConfigError, match=message):
        configure("astec", None, {"label_text": {setting: 1}})


def test_the_default_of_a_setting_is_refused_as_well():
    with pytest.raises(ConfigError, match="xr-linear does not read"):
        configure("xr-linear", None, {"forest": {"trees": Config().forest.trees}})


def test_the_file_is_named():
    file = SettingsFile({"seed": 1, "forest": {"trees": 5}}, "settings.toml")
    with pytest.raises(ConfigError, match=r"^settings\.toml: forest\.trees: xr-linear does not"):
        configure("xr-linear", None, file)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("xr-linear", {"features": "cat", "encoder": {"max_tokens": 32}}),
        ("fastxml", {"gandalf": {"use": True}, "label_features": {"graph_keep": 3}}),
        ("xr-linear", {"forest": {}}),
        ("dismec", {"ranker": {"hard_negatives": 3}}),
        ("lightxml", {"cascade": {"combine": "always"}, "ranker": {"trees": 2}}),
    ],
)
def test_taken(method, given):
    configure(method, None, given)


@pytest.mark.parametrize(("method", "preset"), PRESETS)
def test_methods_and_presets_have_no_settings_that_are_not_read(method, preset):
    config = configure(method, preset)
    if method != "attentionxml":  # whose settings are those of all networks on vectors of words
        check_settings_are_read(config, [METHODS[method].settings])
    printed = tomllib.loads(method_toml(config))
    assert configure(method, None, printed) == config
    assert configure(method, preset, printed) == config
    assert {"method", "seed", "tfidf", "calibration"} <= printed.keys()


def test_every_setting_is_read_by_a_method():
    """``custom`` aside, which is for families of other packages."""
    reads = [settings_read(configure(name)) for name in METHODS]
    unread = {
        setting.path
        for setting in settings(Config())
        if not any(is_read(setting.path, names) for names in reads)
    }
    assert unread == {"custom"}


@pytest.mark.parametrize("name", ["tree", "forest", "neighbours"])
def test_families_read_settings_that_there_are(name):
    assert ranker_family(name).reads == ranker_reads(name)


@pytest.mark.parametrize("name", ["encoder", "cascade", "attention", "recursive"])
def test_networks_read_settings_that_there_are(name):
    paths = {setting.path for setting in settings(Config())}
    for read in network_family(name).reads:
        assert any(path == read or path.startswith(f"{read}.") for path in paths), read
