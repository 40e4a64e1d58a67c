"""Inputs of stages: the settings, and the data beside the documents, that a stage is made from.

A step declares the inputs of its stages where it makes them, and hands them on with its result, so
that a later step adds its own: a label tree has the inputs of the features that it is clustered by.
Stages with the same inputs are the same, for ``--resume`` and for ``longtail tune``. The version,
the method and the documents are inputs of every stage and are not named."""

from __future__ import annotations

from typing import TypeAlias

from longtail.config import Config
from longtail.config.stage import Stage

__all__ = [
    "DOCUMENTS",
    "ENCODER",
    "EVERYTHING",
    "GIVEN_LOSS",
    "GRAPH_INPUTS",
    "HIERARCHY",
    "TRAINING",
    "VALIDATION",
    "WITHOUT_EFFECT",
    "Inputs",
    "input_of",
    "settings_in",
]

Inputs: TypeAlias = frozenset[str]

# data of a run, beside its settings
DOCUMENTS = "data: documents"
HIERARCHY = "data: hierarchy of the labels"
VALIDATION = "data: validation documents"  # choose the best epoch of a network
ENCODER = "data: pretrained encoder"
GIVEN_LOSS = "data: loss given from Python"
_DATA = frozenset({DOCUMENTS, HIERARCHY, VALIDATION, ENCODER, GIVEN_LOSS})

# settings of training that may change between a run and its resumption
WITHOUT_EFFECT = {"micro_batch": 0, "checkpoint_steps": 0, "compile": False}


def settings_in(*names: str) -> Inputs:
    """Return the paths of settings, and of all settings in groups, as inputs.

    The blocks of tf-idf are one input, ``tfidf``.
    """
    defaults = Config()
    paths = set[str]()
    for name in names:
        group, _, field = name.partition(".")
        value = getattr(defaults, group)
        if field:
            getattr(value, field)  # an AttributeError for a name that is no setting
            paths.add(name)
        elif isinstance(value, Stage):
            paths |= {f"{name}.{of_group}" for of_group in value.__struct_fields__}
        else:
            paths.add(name)
    return frozenset(paths)


def input_of(path: str) -> str:
    """Return the input that a setting belongs to: itself, or ``tfidf`` for those of its blocks."""
    group = path.partition(".")[0]
    return path if isinstance(getattr(Config(), group), Stage) else group


# of a stage that declares nothing
EVERYTHING: Inputs = settings_in(*Config.__struct_fields__) | _DATA

# how a network is trained
TRAINING: Inputs = settings_in("training") - {f"training.{name}" for name in WITHOUT_EFFECT}

# of the label graph
GRAPH_INPUTS: Inputs = settings_in(
    "label_features.graph_steps",
    "label_features.graph_reset",
    "label_features.graph_keep",
    "label_features.graph_max_documents",
    "seed",
)
