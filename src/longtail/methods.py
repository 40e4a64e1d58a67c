"""The catalogue of methods: name → recipe, paper, settings, and presets for the benchmarks of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longtail.config import Config, resolve
from longtail.errors import ConfigError, unknown_name

__all__ = ["METHODS", "Method", "configure", "method"]

Settings = Mapping[str, Any]


class Method(msgspec.Struct, frozen=True):
    """A recipe: what each step of the pipeline uses, and the settings that make it this method."""

    name: str
    what: str
    paper: str
    recipe: tuple[str, ...]  # text features → label features → tree → ranker → search
    settings: Settings = {}
    presets: Mapping[str, Settings] = {}


def _xr(levels: list[int], cost_positive: float, cost_negative: float) -> dict[str, Any]:
    costs = {"cost_positive": cost_positive, "cost_negative": cost_negative, "cost_sensitive": True}
    return {"tree": {"levels": levels}, "ranker": costs}


# 1 + ln tf beats tf, and ten passes rank as well as a hundred in about three quarters of the time (RESULTS.md)
_TEXT = {"0": {"sublinear_tf": True}}
_PASSES = 10

_CATALOGUE = [
    Method(
        "xr-linear",
        "linear one-vs-rest classifiers on a balanced label tree, beam search",
        "Yu et al. 2022, PECOS: Prediction for Enormous and Correlated Output Spaces",
        ("tf-idf", "PIFA", "balanced k-means", "squared hinge", "beam"),
        settings={"tfidf": _TEXT, "ranker": {"max_passes": _PASSES}},
        # levels: the refined trees of XR-Transformer's table 7; costs: its rankers
        presets={
            "eurlex-4k": _xr([4, 32, 256], 2, 4),
            "wiki10-31k": _xr([8, 128, 2048], 4, 1),
            "amazoncat-13k": _xr([128, 1024], 0.25, 0.5),
            "wiki-500k": _xr([8, 256, 8192], 4, 1),
            "amazon-670k": {"tree": {"levels": [8, 256, 8192]}},
            "amazon-3m": _xr([8, 256, 8192], 8, 1),
        },
    ),
    Method(
        "parabel",
        "three balanced binary label trees, scores averaged",
        "Prabhu et al. 2018, Parabel: Partitioned Label Trees for Extreme Classification",
        ("tf-idf", "PIFA", "balanced 2-means", "squared hinge", "beam"),
        settings={
            "tfidf": _TEXT,
            "tree": {"branching": 2},
            "ranker": {"trees": 3, "max_passes": 20},
            "search": {"score": "hinge-2"},
        },
    ),
    Method(
        "bonsai",
        "three shallow, free 100-ary label trees",
        "Khandagale et al. 2020, Bonsai: diverse and shallow trees for extreme multi-label classification",
        ("tf-idf", "PIFA", "free k-means", "squared hinge", "beam"),
        settings={
            "tfidf": _TEXT,
            "tree": {"kind": "unbalanced", "branching": 100},
            "ranker": {"trees": 3, "max_passes": _PASSES},
            "search": {"score": "hinge-2"},
        },
    ),
    Method(
        "plt",
        "probabilistic label tree (eXtremeText): the score of a label is a true probability",
        "Wydmuch et al. 2018, A no-regret generalization of hierarchical softmax to extreme multi-label classification",
        ("tf-idf", "PIFA", "balanced 2-means", "logistic", "exact"),
        settings={
            "tfidf": _TEXT,
            "tree": {"branching": 2},
            "ranker": {"loss": "logistic", "cost_positive": 20.0, "cost_negative": 20.0},
            "search": {"score": "sigmoid", "exact": True},
        },
    ),
]

METHODS: dict[str, Method] = {entry.name: entry for entry in _CATALOGUE}


def method(name: str) -> Method:
    """Return the catalogue's entry, or name the nearest one."""
    if name not in METHODS:
        raise ConfigError(unknown_name("method", name, METHODS))
    return METHODS[name]


def configure(name: str, preset: str | None = None, *overrides: Settings) -> Config:
    """Return the resolved settings of a method: its own, then the preset's, then each of ``overrides``."""
    entry = method(name)
    if preset is not None and preset not in entry.presets:
        if not entry.presets:
            raise ConfigError(f"unknown preset '{preset}'; {name} has none")
        raise ConfigError(unknown_name("preset", preset, entry.presets))
    config = resolve({"method": name}, entry.settings, entry.presets.get(preset or "", {}), *overrides)
    if config.method != name:
        raise ConfigError(
            f"method: found '{config.method}' among the settings for '{name}'; expected '{name}' or nothing"
        )
    return config
