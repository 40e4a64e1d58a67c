"""The datasets of the papers' tables, with the sizes that were published for them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from longtail.errors import UsageError, unknown_name
from longtail.metrics import propensity_constants

__all__ = ["PublishedDataset", "published_dataset", "published_datasets"]


class PublishedDataset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dataset of the papers: its published sizes, layout, and family of propensities."""

    title: str
    train: int
    test: int
    labels: int
    labels_per_document: float
    documents_per_label: float
    features: int
    words: float
    layout: str  # the name of the format that the authors' download has
    family: Literal["wikipedia", "amazon", "default"]
    source: str
    fields: tuple[str, ...] = ()  # of label-feature sets: what is read of a record

    @property
    def propensity(self) -> tuple[float, float]:
        """A and B of the propensities."""
        return propensity_constants(self.family)


@cache
def published_datasets() -> Mapping[str, PublishedDataset]:
    """Return the datasets by name, in the order of their file."""
    content = tomllib.loads((files("longtail.reproduction") / "datasets.toml").read_text("utf-8"))
    return msgspec.convert(content, dict[str, PublishedDataset])


def published_dataset(name: str) -> PublishedDataset:
    """Return a dataset, or name the nearest one."""
    known = published_datasets()
    if name not in known:
        raise UsageError(unknown_name("dataset", name, known))
    return known[name]
