"""The bodies that the server answers with, as frozen Structs: also the schemas of the OpenAPI
document.
"""

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
    """One label of a document."""

    id: str
    name: str
    score: float


class Prediction(msgspec.Struct, frozen=True):
    """The labels of one document, best first."""

    id: str | None
    labels: list[SuggestedLabel]


class ModelName(msgspec.Struct, frozen=True):
    """Which model answered."""

    name: str
    version: str


class PredictResponse(msgspec.Struct, frozen=True):
    """One prediction a document, in the order of the request."""

    predictions: list[Prediction]
    model: ModelName


class Highlight(msgspec.Struct, frozen=True):
    """A span of the text in Unicode code points, and what the n-grams that touch it add."""

    start: int
    end: int
    weight: float


class ExplainResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a label: the fields of ``longtail explain --json``, and which words of the text did it.

    ``steps`` and ``path_score`` are those of one model; ``members`` and ``score`` of an ensemble.
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
    """A node of the label tree; ``score`` is the product of those from the root to it, before
    calibration.
    """

    node: int
    score: float
    labels: int
    names: list[str]
    on_path: bool
    label: str | None = None  # of the last level alone


class PathLevel(msgspec.Struct, frozen=True):
    """Nodes of a level that the beam kept, best first."""

    level: int
    nodes: list[PathNode]


class PathResponse(msgspec.Struct, frozen=True):
    """The way to a label, coarse to fine; empty where there is no label tree."""

    levels: list[PathLevel]


class Latency(msgspec.Struct, frozen=True):
    """Of answered predictions in the last five minutes."""

    requests: int
    p50_ms: float | None
    p99_ms: float | None


class ModelInfo(msgspec.Struct, frozen=True):
    """What is served."""

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
    shards: list[int] | None  # those of the labels that are answered with; null: all


class FoundLabel(msgspec.Struct, frozen=True):
    """A label, and how many training documents have it."""

    id: str
    name: str
    documents: int


class LabelsResponse(msgspec.Struct, frozen=True):
    """The first of all labels found."""

    labels: list[FoundLabel]
    total: int


class NeighbourLabel(msgspec.Struct, frozen=True):
    """A related label; ``weight`` is null where all that is known is that it is a sibling in the
    label tree.
    """

    id: str
    name: str
    weight: float | None


class Example(msgspec.Struct, frozen=True):
    """The beginning of a training document."""

    id: str | None
    text: str


class LabelResponse(msgspec.Struct, frozen=True):
    """All that is known of a label."""

    id: str
    name: str
    text: str | None
    aliases: list[str]
    uri: str | None
    documents: int
    neighbours: list[NeighbourLabel]
    examples: list[Example]


class ReloadResponse(msgspec.Struct, frozen=True):
    """The version that is served now."""

    version: str


class StatusResponse(msgspec.Struct, frozen=True):
    """live, ready, or not."""

    status: str
