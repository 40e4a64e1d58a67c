"""Settings that several methods share, and how a row of a paper's table of settings becomes a preset."""

from __future__ import annotations

from typing import Any

__all__ = [
    "FLAT",
    "FOUR",
    "FOUR_KEPT",
    "FOUR_LAYERS",
    "NEWTON",
    "PASSES",
    "PROXIMAL",
    "RECURSIVE",
    "TEXT",
    "THREE",
    "cascade_preset",
    "light_preset",
    "on_words",
    "recursive_preset",
    "surrogate",
    "xr_preset",
]


def xr_preset(levels: list[int], cost_positive: float, cost_negative: float) -> dict[str, Any]:
    """Return a row of XR-Transformer's table 7 for its linear rankers: refined tree and costs."""
    costs = {"cost_positive": cost_positive, "cost_negative": cost_negative, "cost_sensitive": True}
    return {"tree": {"levels": levels}, "ranker": costs}


# 1 + ln tf beats tf, and ten passes rank as well as a hundred in about three quarters of the time (RESULTS.md)
TEXT = {"0": {"sublinear_tf": True}}
PASSES = 10


# like labels side by side, as many as are solved at a time
FLAT = {"kind": "flat", "leaf_size": 16}
NEWTON = {"solver": "newton", "prune": 0.01, "tolerance": 0.01}
PROXIMAL = {
    "solver": "proximal",
    "penalty": 1.0,
    "cost_positive": 2.0,
    "prune": 0.0,
    "tolerance": 0.01,
    "max_passes": 200,
}


def cascade_preset(
    widths: list[int], layers: list[list[int]], kept: list[int], dropout: list[float], epochs: int, tokens: int
) -> dict[str, Any]:
    """Return a row of table 9; the sizes of its shortlists are ``kept`` nodes times their children."""
    return {
        "tree": {"levels": widths},
        "encoder": {"max_tokens": tokens},
        "cascade": {"layers": layers, "shortlist": kept, "dropout": dropout, "last_level": "shortlist"},
        "training": {"epochs": epochs, "encoder_rate": 1e-4, "head_rate": 1e-3},
    }


def light_preset(epochs: int, tokens: int, average: float, kept: int = 0, bottleneck: int = 0) -> dict[str, Any]:
    """Return the settings of a set as LightXML's code has them; without clusters all labels are trained."""
    large = {"last_level": "shortlist", "shortlist": [kept], "bottleneck": bottleneck}
    rates = {"encoder_rate": 1e-4, "head_rate": 1e-4, "head_optimiser": "adamw"}
    return {
        "tree": {"levels": [2**13] if kept else []},
        "encoder": {"max_tokens": tokens},
        "cascade": {**(large if kept else {"last_level": "full"}), "label_rows": "random"},
        "training": {"epochs": epochs, "average": average, "cooldown_epochs": 0.0, "batch_size": 16, **rates},
    }


RECURSIVE: dict[str, Any] = {
    "features": "cat",
    "tfidf": TEXT,
    "encoder": {"weight": 1.0},
    "training": {"epochs": 5, "encoder_rate": 2e-4, "head_rate": 1e-3},
}


def recursive_preset(
    coarse: list[int],
    refined: list[int],
    epochs: list[int],
    rate: float,
    tokens: int,
    alpha: float | None,
    cost_positive: float,
    cost_negative: float,
) -> dict[str, Any]:
    """Return a row of table 7 of XR-Transformer; without ``alpha`` nothing is cost-sensitive."""
    sensitive = {"cost_sensitive": alpha is not None}  # the rankers' costs have α in them
    return {
        "tree": {"levels": refined},
        "recursive": {"levels": coarse, "epochs": epochs, "loss": "squared-hinge", **sensitive, "alpha": alpha or 1.0},
        "training": {"encoder_rate": rate},
        "encoder": {"max_tokens": tokens},
        "ranker": {**sensitive, "cost_positive": cost_positive, "cost_negative": cost_negative, "trees": 1},
    }


def on_words(kind: str, **settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a network on vectors of words; ``settings`` are groups that differ."""
    own: dict[str, Any] = {
        "features": "cat",  # where classifiers are to join the network
        "tfidf": TEXT,
        "encoder": {"kind": kind, "name": "learned", "max_tokens": 32},
        "cascade": {"last_level": "shortlist", "label_rows": "random", "rescale": False, "combine": "never"},
        # a small encoder is as fast as its batches are large, also on a CPU
        "training": {"epochs": 20, "encoder_rate": 3e-3, "head_rate": 3e-3, "micro_batch": 256},
    }
    for name, group in settings.items():
        own[name] = {**own.get(name, {}), **group}
    return own


def surrogate(**label_text: Any) -> dict[str, dict[str, Any]]:
    """Return the settings of DeepXML's phases: word vectors learn fast, on clusters, for most of the epochs."""
    return {
        "cascade": {"label_rows": "centroid", "dropout": [0.0, 0.0]},  # the encoder has its own
        "label_text": {"phases": "surrogate", "first_share": 0.6, **label_text},
        "training": {"epochs": 40, "encoder_rate": 2e-2, "head_rate": 5e-3},
    }


THREE, FOUR = [2**9, 2**12], [2**10, 2**13, 2**16]
FOUR_LAYERS, FOUR_KEPT = [[5, 6], [8], [10], [12]], [128, 256, 400]
