"""Levels, lengths and sizes that several families of networks share, for any number of labels."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from longtail.config import Attention, Recursive, Training
from longtail.errors import ConfigError

if TYPE_CHECKING:
    from longtail.forecast.sizes import DataSizes

__all__ = [
    "MANY_LABELS",
    "LevelLength",
    "LevelSettings",
    "cluster_widths",
    "documents_at_a_time",
    "level_epochs",
    "level_lengths",
    "level_passes",
    "level_stages",
    "scored_nodes",
    "scores_all_labels",
    "word_widths",
]

LevelSettings: TypeAlias = Recursive | Attention  # of networks trained level by level

MANY_LABELS = 200_000  # labels from which on the papers use three levels above them
_CPU_DOCUMENTS = 32  # more take memory, and gain no time
_CLUSTER_LABELS = 100  # LightXML's
# InceptionXML's authors have 8 to 10 (as the presets); 16 ranked better on 10,000 titles
# (docs/inceptionxml.md)
_WORD_CLUSTER_LABELS = 16
# labels of a cluster that stands for them, and the most such clusters
_SURROGATE_LABELS = 4
_SURROGATES = 2**16


def cluster_widths(n_labels: int, last_level: str) -> tuple[int, ...]:
    """Return the nodes of LightXML's one level above the labels, a power of two with at most 100
    labels each.

    None where all labels are scored, as on small sets (``last_level`` as in the settings), or fit
    into one node."""
    clusters = 1 << (-(-n_labels // _CLUSTER_LABELS) - 1).bit_length()
    if scores_all_labels(last_level, n_labels) or clusters == 1:
        return ()
    return (clusters,)


def word_widths(n_labels: int, last_level: str, phases: str = "one") -> tuple[int, ...]:
    """Return the nodes of the one level above the labels for encoders of words: a power of two, 16
    labels each.

    Where clusters stand for labels in a phase («surrogate») 4, so that the encoder learns what
    tells labels apart. None where all labels are scored, or fit into one node."""
    each = _WORD_CLUSTER_LABELS
    if phases == "surrogate":
        each = _SURROGATE_LABELS
    clusters = 1 << max(round(log2(max(n_labels, 1) / each)), 0)
    if phases == "surrogate":
        clusters = min(clusters, _SURROGATES)
    if last_level == "full" or clusters == 1:
        return ()
    return (clusters,)


def scores_all_labels(last_level: str, n_labels: int) -> bool:
    """Return whether labels are scored one-vs-all: that costs little beside the encoder as long as
    they are not many.
    """
    return last_level == "full" or (last_level == "auto" and n_labels < MANY_LABELS)


def documents_at_a_time(micro_batch: int, batch_size: int, on_gpu: bool) -> int:
    """Return the number of documents of a batch on the device at once: as set, else all, on a CPU
    32 of them.
    """
    if micro_batch:
        return min(micro_batch, batch_size)
    if on_gpu:
        return batch_size
    return min(_CPU_DOCUMENTS, batch_size)


def level_epochs(
    chosen: tuple[int, ...], epochs: int, n_levels: int, last: int = 3, group: str = "recursive"
) -> tuple[int, ...]:
    """Return the epochs of each level: those given, else ``epochs`` in all, ``last`` times as many
    for the last one; ``group`` is that of the settings.
    """
    if chosen:
        if len(chosen) != n_levels:
            expected = (
                f"{n_levels}, as many as are tuned on, or {group}.epochs=[] to have them chosen"
            )
            raise ConfigError(
                f"{group}.epochs: found numbers for {len(chosen)} levels; expected {expected}"
            )
        return chosen
    share = epochs / (n_levels - 1 + last)
    above = [max(1, round(share))] * (n_levels - 1)
    return *above, max(1, epochs - sum(above))


class LevelLength(NamedTuple):
    """The length of a level's training: epochs, or optimiser steps."""

    epochs: int
    steps: int = 0

    def passes(self, steps_per_epoch: int) -> float:
        """Return the passes over the documents, which are not whole where steps are given."""
        if self.steps:
            return self.steps / max(steps_per_epoch, 1)
        return self.epochs

    def __str__(self) -> str:
        if self.steps:
            return f"{self.steps:,} steps"
        return f"{self.epochs} epochs"


def level_lengths(
    settings: LevelSettings, epochs: int, n_levels: int, last: int = 3
) -> list[LevelLength]:
    """Return how long each level is trained, by the steps or epochs of the settings.

    Args:
        settings: say how many steps or epochs each level has, if they do.
        epochs: Those of all levels together, where neither is given.
        n_levels: Levels that are trained on.
        last: How many times the epochs of another level the last one has, where neither is given.
    """
    group = type(settings).__name__.lower()
    if settings.steps and len(settings.steps) != n_levels:
        expected = f"{n_levels}, as many as are tuned on, or {group}.steps=[] to have epochs"
        raise ConfigError(
            f"{group}.steps: found numbers for {len(settings.steps)} levels; expected {expected}"
        )
    if settings.steps:
        return [LevelLength(0, steps) for steps in settings.steps]
    by_level = level_epochs(settings.epochs, epochs, n_levels, last, group)
    return [LevelLength(n_epochs) for n_epochs in by_level]


def level_passes(
    settings: LevelSettings, sizes: DataSizes, training: Training, n_levels: int, last: int
) -> tuple[float, ...]:
    """Return the expected passes over the documents on each level, by the optimiser's steps where
    these are set.

    Numbers for another tree, as those of a preset, are taken as they are: training refuses them.

    Args:
        settings: of the levels.
        sizes: of the documents.
        training: of the network.
        n_levels: levels that are trained on.
        last: how many times the epochs of another level the last one has.
    """
    if settings.steps:
        documents = max(sizes.documents, 1)
        return tuple(steps * training.batch_size / documents for steps in settings.steps)
    return settings.epochs or level_epochs((), training.epochs, n_levels, last)


def level_stages(n_levels: int) -> tuple[str, ...]:
    """Return the stages of a training level by level, as the log calls them."""
    return tuple(f"level {t + 1} of {n_levels}, network" for t in range(n_levels))


def scored_nodes(widths: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return the nodes that are scored for a document on each level, given those kept of each but
    the last; training refuses settings for other levels.
    """
    scored = [widths[0]]
    for size, width, below in zip(kept, widths, widths[1:], strict=False):
        scored.append(min(size * ceil(below / width), below))
    return scored
