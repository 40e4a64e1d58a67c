"""Settings that several methods share."""

from __future__ import annotations

from typing import Any

__all__ = [
    "FLAT",
    "NEWTON",
    "PASSES",
    "PROXIMAL",
    "RECURSIVE",
    "TEXT",
    "on_words",
    "surrogate",
]


# 1 + ln tf beats tf, and ten passes rank as well as a hundred in about three quarters of the time
# (RESULTS.md)
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


RECURSIVE: dict[str, Any] = {
    "features": "cat",
    "tfidf": TEXT,
    "encoder": {"weight": 1.0},
    "training": {"epochs": 5, "encoder_rate": 2e-4, "head_rate": 1e-3},
}


def on_words(kind: str, **settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a network on vectors of words; ``settings`` are groups that differ."""
    own: dict[str, Any] = {
        "features": "cat",  # where classifiers are to join the network
        "tfidf": TEXT,
        "encoder": {"kind": kind, "name": "learned", "max_tokens": 32},
        "cascade": {
            "last_level": "shortlist",
            "label_rows": "random",
            "rescale": False,
            "combine": "never",
        },
        # a small encoder is as fast as its batches are large, also on a CPU
        "training": {"epochs": 20, "encoder_rate": 3e-3, "head_rate": 3e-3, "micro_batch": 256},
    }
    for name, group in settings.items():
        own[name] = {**own.get(name, {}), **group}
    return own


def surrogate(**label_text: Any) -> dict[str, dict[str, Any]]:
    """Return the settings of DeepXML's phases: word vectors learn fast, on clusters, for most of
    the epochs.
    """
    return {
        "cascade": {"label_rows": "centroid", "dropout": [0.0, 0.0]},  # the encoder has its own
        "label_text": {"phases": "surrogate", "first_share": 0.6, **label_text},
        "training": {"epochs": 40, "encoder_rate": 2e-2, "head_rate": 5e-3},
    }
