"""The catalogue of methods: name → recipe, paper, settings, and presets for the benchmarks of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
    neural: bool = False  # a network ranks; linear classifiers may join it
    ranker: Literal["tree", "forest", "neighbours"] = "tree"  # what the linear ranker is


def _xr(levels: list[int], cost_positive: float, cost_negative: float) -> dict[str, Any]:
    costs = {"cost_positive": cost_positive, "cost_negative": cost_negative, "cost_sensitive": True}
    return {"tree": {"levels": levels}, "ranker": costs}


# 1 + ln tf beats tf, and ten passes rank as well as a hundred in about three quarters of the time (RESULTS.md)
_TEXT = {"0": {"sublinear_tf": True}}
_PASSES = 10


# like labels side by side, as many as are solved at a time
_FLAT = {"kind": "flat", "leaf_size": 16}
_NEWTON = {"solver": "newton", "prune": 0.01, "tolerance": 0.01}
_PROXIMAL = {
    "solver": "proximal",
    "penalty": 1.0,
    "cost_positive": 2.0,
    "prune": 0.0,
    "tolerance": 0.01,
    "max_passes": 200,
}


def _cascade(
    widths: list[int], layers: list[list[int]], kept: list[int], dropout: list[float], epochs: int, tokens: int
) -> dict[str, Any]:
    """Return a row of table 9; the sizes of its shortlists are ``kept`` nodes times their children."""
    return {
        "tree": {"levels": widths},
        "encoder": {"max_tokens": tokens},
        "cascade": {"layers": layers, "shortlist": kept, "dropout": dropout, "last_level": "shortlist"},
        "training": {"epochs": epochs, "encoder_rate": 1e-4, "head_rate": 1e-3},
    }


_THREE, _FOUR = [2**9, 2**12], [2**10, 2**13, 2**16]
_FOUR_LAYERS, _FOUR_KEPT = [[5, 6], [8], [10], [12]], [128, 256, 400]

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
    Method(
        "dismec",
        "one linear classifier a label over all documents, no tree",
        "Babbar and Schölkopf 2017, DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification",
        ("tf-idf", "PIFA", "none", "squared hinge, Newton", "all labels"),
        settings={"tfidf": _TEXT, "tree": _FLAT, "ranker": _NEWTON, "search": {"score": "sigmoid"}},
    ),
    Method(
        "proxml",
        "one sparse linear classifier a label, robust for labels with few documents",
        "Babbar and Schölkopf 2019, Data scarcity, robustness and extreme multi-label classification",
        ("tf-idf", "PIFA", "none", "squared hinge, L1, proximal Newton", "all labels"),
        settings={
            "tfidf": _TEXT,
            "tree": _FLAT,
            "ranker": _PROXIMAL,
            "search": {"score": "sigmoid"},
        },
    ),
    Method(
        "pfastrexml",
        "trees over documents that split for propensity-scored nDCG, and centroids that bring up rare labels",
        "Jain et al. 2016, Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking and Other Missing "
        "Label Applications",
        ("tf-idf", "none", "50 trees of documents", "leaves, centroids", "a leaf a tree"),
        settings={"tfidf": _TEXT},
        ranker="forest",
    ),
    Method(
        "annexml",
        "documents near each other in learnt embeddings vote with their labels",
        "Tagami 2017, AnnexML: Approximate Nearest Neighbor Search for Extreme Multi-label Classification",
        ("tf-idf", "label-kNN graph", "partitions of documents", "embeddings", "nearest neighbours"),
        settings={"tfidf": _TEXT},
        ranker="neighbours",
    ),
    Method(
        "cascadexml",
        "one pass through a transformer, a level of the label tree at each of some layers, trained end to end",
        "Kharbanda et al. 2022, CascadeXML: Rethinking Transformers for End-to-end Multi-resolution Training",
        ("tokens, tf-idf", "PIFA", "balanced 2-means", "transformer", "cascade of shortlists"),
        # rates and trees of the classifiers beside the network: those that ranked best (RESULTS.md)
        settings={
            "tfidf": _TEXT,
            "training": {"encoder_rate": 2e-4, "head_rate": 5e-4},
            "ranker": {"max_passes": _PASSES, "trees": 3},
        },
        presets={
            "wiki10-31k": _cascade(_THREE, [[9, 10], [11], [12]], [64, 64], [0.3, 0.3, 0.4], 15, 256),
            "amazoncat-13k": _cascade([2**8, 2**11], [[7, 8], [10], [12]], [32, 40], [0.2, 0.3, 0.4], 6, 256),
            "wiki-500k": _cascade(_FOUR, _FOUR_LAYERS, [128, 256, 512], [0.2, 0.25, 0.35, 0.5], 12, 128),
            "amazon-670k": _cascade(_FOUR, _FOUR_LAYERS, _FOUR_KEPT, [0.2, 0.25, 0.4, 0.5], 15, 128),
            "amazon-3m": _cascade(_FOUR, _FOUR_LAYERS, [128, 256, 96], [0.2, 0.25, 0.3, 0.5], 15, 128),
        },
        neural=True,
    ),
]

METHODS: dict[str, Method] = {entry.name: entry for entry in _CATALOGUE}


def method(name: str) -> Method:
    """Return the catalogue's entry, or name the nearest one."""
    if name not in METHODS:
        raise ConfigError(unknown_name("method", name, METHODS))
    return METHODS[name]


def _beside_a_network(classifier: str) -> Settings:
    """Return what makes the linear classifiers on Φcat this method's; text features stay, and one is enough."""
    own = METHODS[classifier].settings
    return {"tree": own["tree"], "search": own["search"], "ranker": {**own["ranker"], "trees": 1}}


def configure(name: str, preset: str | None = None, *overrides: Settings) -> Config:
    """Return the resolved settings of a method: its own, then the preset's, then each of ``overrides``."""
    entry = method(name)
    if preset is not None and preset not in entry.presets:
        if not entry.presets:
            raise ConfigError(f"unknown preset '{preset}'; {name} has none")
        raise ConfigError(unknown_name("preset", preset, entry.presets))
    sources = entry.presets.get(preset or "", {}), *overrides
    config = resolve({"method": name}, entry.settings, *sources)
    if entry.neural and config.cascade.classifier != "xr-linear":  # its settings, below those that were asked for
        config = resolve({"method": name}, entry.settings, _beside_a_network(config.cascade.classifier), *sources)
    if config.method != name:
        raise ConfigError(
            f"method: found '{config.method}' among the settings for '{name}'; expected '{name}' or nothing"
        )
    return config
