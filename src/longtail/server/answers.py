"""Response bodies as frozen Structs; the OpenAPI document takes its schemas from them."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "Example",
    "ExplainResponse",
    "FoundLabel",
    "Highlight",
    "LabelResponse",
    "LabelsResponse",
    "Latency",
    "ModelInfo",
    "ModelName",
    "NeighbourLabel",
    "PathLevel",
    "PathNode",
    "PathResponse",
    "PredictResponse",
    "Prediction",
    "ReloadResponse",
    "StatusResponse",
    "SuggestedLabel",
]


class SuggestedLabel(msgspec.Struct, frozen=True, gc=False):
    """A label suggested for a document."""

    id: str
    name: str
    score: float


class Prediction(msgspec.Struct, frozen=True):
    """The labels of one document, best first."""

    id: str | None
    labels: list[SuggestedLabel]


class ModelName(msgspec.Struct, frozen=True):
    """Name and version of the model that answered."""

    name: str
    version: str


class PredictResponse(msgspec.Struct, frozen=True):
    """One prediction per document, in the order of the request."""

    predictions: list[Prediction]
    model: ModelName


class Highlight(msgspec.Struct, frozen=True):
    """A span of the text in Unicode code points, with the summed weight of its n-grams."""

    start: int
    end: int
    weight: float


class ExplainResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Explanation of a label: the fields of ``longtail explain --json`` and the words behind it.

    A single model fills ``steps`` and ``path_score``, an ensemble ``members`` and ``score``.
    """

    label: str
    name: str
    probability: float | None
    highlights: list[Highlight]
    path_score: float | None = None
    network_share: float | None = None
    steps: list[dict[str, Any]] | None = None
    score: float | None = None
    members: list[dict[str, Any]] | None = None


class PathNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of the label tree; ``score`` is the product along its path, before calibration."""

    node: int
    score: float
    labels: int
    names: list[str]
    on_path: bool
    label: str | None = None  # on the last level only


class PathLevel(msgspec.Struct, frozen=True):
    """Nodes that the beam kept on a level, best first."""

    level: int
    nodes: list[PathNode]


class PathResponse(msgspec.Struct, frozen=True):
    """The path to a label from the root down; empty for a model without a label tree."""

    levels: list[PathLevel]


class Latency(msgspec.Struct, frozen=True):
    """Latency of the predictions answered in the last five minutes."""

    requests: int
    p50_ms: float | None
    p99_ms: float | None


class ModelInfo(msgspec.Struct, frozen=True):
    """The served model: method, size, metrics, abilities and limits."""

    name: str
    version: str
    method: str
    labels: int
    documents: int
    metrics: dict[str, float]
    measured_on: str
    calibrated: bool
    has_tree: bool
    has_text: bool
    has_examples: bool
    card: str
    latency: Latency
    limits: dict[str, float]
    shards: list[int] | None  # shards of the labels that are loaded; null: all


class FoundLabel(msgspec.Struct, frozen=True):
    """A label with its number of training documents."""

    id: str
    name: str
    documents: int


class LabelsResponse(msgspec.Struct, frozen=True):
    """The first matching labels, and the number of all matches."""

    labels: list[FoundLabel]
    total: int


class NeighbourLabel(msgspec.Struct, frozen=True):
    """A related label; ``weight`` is null for siblings in the label tree."""

    id: str
    name: str
    weight: float | None


class Example(msgspec.Struct, frozen=True):
    """The beginning of a training document."""

    id: str | None
    text: str


class LabelResponse(msgspec.Struct, frozen=True):
    """A label with its text, aliases, frequency, related labels and example documents."""

    id: str
    name: str
    text: str | None
    aliases: list[str]
    uri: str | None
    documents: int
    neighbours: list[NeighbourLabel]
    examples: list[Example]


class ReloadResponse(msgspec.Struct, frozen=True):
    """The version that is served after a reload."""

    version: str


class StatusResponse(msgspec.Struct, frozen=True):
    """``live`` or ``ready``."""

    status: str
