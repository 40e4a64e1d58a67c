"""Levels, layers and sizes of a network where the settings leave them open, for any size and depth.

Table 9 of CascadeXML where several layers become one vector (merge "mean"), LightXML where they
stand side by side ("concat")."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import NamedTuple

from longtail.config import Cascade, Recursive
from longtail.errors import ConfigError

__all__ = [
    "ATTENTION_HIDDEN",
    "CNN_BOTTLENECK",
    "CNN_CHUNKS",
    "CNN_FILTERS",
    "CNN_WORDS",
    "LABEL_WORD_ENCODERS",
    "LSTM_HIDDEN",
    "TWO_LAYERS",
    "LevelLength",
    "check_depth",
    "check_levels",
    "cluster_widths",
    "documents_at_a_time",
    "dropouts",
    "has_bottleneck",
    "level_epochs",
    "level_layers",
    "level_lengths",
    "level_widths",
    "phase_epochs",
    "resolution_widths",
    "scores_all_labels",
    "shortlist_sizes",
    "tuned_levels",
    "vector_widths",
    "word_widths",
]

LSTM_HIDDEN = 256  # numbers of a state in each direction
ATTENTION_HIDDEN = 256  # rows of W_1, AttentionXML's hidden layer
# that a filter of XML-CNN reads, and filters of each
CNN_WORDS = (2, 4, 8)
CNN_FILTERS = 128
# p, and numbers between its chunks and the labels
CNN_CHUNKS = 8
CNN_BOTTLENECK = 512
TWO_LAYERS = ("bag", "inception", "routed-inception")  # encoders on words with two layers
# those whose layers are as wide as the vectors of words
LABEL_WORD_ENCODERS = ("bag", "routed-inception")
_LARGE = 200_000  # labels from which on the papers use three levels above them
# nodes; shortlists of the levels below
_LARGE_WIDTHS = (2**10, 2**13, 2**16)
_LARGE_SIZES = (2**10, 2**11, 2**12)
_KEPT = 64
_CPU_DOCUMENTS = 32  # more take memory, and gain no time
_DROPOUTS = {2: (0.3, 0.4), 3: (0.3, 0.3, 0.4), 4: (0.2, 0.25, 0.4, 0.5)}
# LightXML's
_LAST_LAYERS = 5
_CONCAT_DROPOUT = 0.5
_CLUSTER_LABELS = 100
# InceptionXML's authors have 8 to 10 (as the presets); 16 ranked better on 10,000 titles
# (docs/inceptionxml.md)
_WORD_CLUSTER_LABELS = 16
# labels of a cluster that stands for them, and the most such clusters
_SURROGATE_LABELS = 4
_SURROGATES = 2**16


def level_widths(n_labels: int) -> tuple[int, ...]:
    """Return the nodes of each level above the labels: 1/64 and 1/8 of them, or 2¹⁰, 2¹³ and 2¹⁶ if
    they are many.
    """
    if n_labels >= _LARGE:
        return _LARGE_WIDTHS
    depth = round(log2(max(n_labels, 2)))
    return tuple(2**power for power in (depth - 6, depth - 3) if power >= 2)


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
    each = _SURROGATE_LABELS if phases == "surrogate" else _WORD_CLUSTER_LABELS
    clusters = 1 << max(round(log2(max(n_labels, 1) / each)), 0)
    if phases == "surrogate":
        clusters = min(clusters, _SURROGATES)
    if last_level == "full" or clusters == 1:
        return ()
    return (clusters,)


def level_layers(depth: int, n_levels: int, merge: str = "mean") -> tuple[tuple[int, ...], ...]:
    """Return the encoder's layers that each level reads: the last for labels, every ⌊depth/6⌋-th
    one before it.

    The first level reads two layers, so {5, 6}, 8, 10, 12 of twelve for four levels, and {3, 4}, 5,
    6 of six for three. With ``merge`` "concat" every level reads the last five."""
    if merge == "concat":
        return (tuple(range(max(1, depth - _LAST_LAYERS + 1), depth + 1)),) * n_levels
    step = max(1, depth // 6)
    layers = [max(1, depth - step * (n_levels - 1 - level)) for level in range(n_levels)]
    first = (layers[0] - 1, layers[0]) if n_levels > 1 and layers[0] > 1 else (layers[0],)
    return (first, *((layer,) for layer in layers[1:]))


def shortlist_sizes(widths: tuple[int, ...]) -> tuple[int, ...]:
    """Return the nodes kept on each level above the labels: 64, or for many labels what table 9's
    shortlists hold.
    """
    kept = [_KEPT] * (len(widths) - 1)
    if widths[:-1] == _LARGE_WIDTHS:  # a shortlist is the kept nodes' children
        kept = [
            round(size * width / below)
            for size, width, below in zip(_LARGE_SIZES, widths, widths[1:], strict=False)
        ]
    return tuple(max(1, min(k, width)) for k, width in zip(kept, widths[:-1], strict=True))


def check_levels(widths: Sequence[int | str], settings: Cascade) -> None:
    """Refuse settings that were made for a tree of another depth, as those of a preset.

    ``widths`` are the nodes of each level, or what stands for their number in a message.
    """
    by_name = {
        "layers": settings.layers,
        "shortlist": settings.shortlist,
        "dropout": settings.dropout,
    }
    # labels have no shortlist
    levels = {
        name: len(values) + (name == "shortlist") for name, values in by_name.items() if values
    }
    if wrong := [name for name, count in levels.items() if count != len(widths)]:
        tree_widths = " → ".join(map(str, widths))
        way_out = f"or {', '.join(f'cascade.{name}=[]' for name in wrong)} to have them chosen"
        found = f"cascade.{wrong[0]}: found settings for {levels[wrong[0]]} levels"
        raise ConfigError(
            f"{found}; expected {len(widths)}, as the tree has ({tree_widths}), {way_out}"
        )


def check_depth(layers: Sequence[Sequence[int]], depth: int) -> None:
    """Refuse layers beyond an encoder's ``depth``, such as those of a preset for twelve with
    MiniLM's six.
    """
    deepest = max((layer for level in layers for layer in level), default=0)
    if deepest > depth:
        way_out = "or cascade.layers=[] to have them chosen"
        raise ConfigError(
            f"cascade.layers: found {deepest}; expected at most {depth}, the encoder's depth, {way_out}"
        )


def vector_widths(
    layers: Sequence[Sequence[int]], encoder_width: int, merge: str, bottleneck: int
) -> tuple[int, ...]:
    """Return the columns of the vector that each level's classifiers read; ``layers`` are those of
    each level.
    """
    widths = [len(read) * encoder_width if merge == "concat" else encoder_width for read in layers]
    return (*widths[:-1], bottleneck if has_bottleneck(len(layers), bottleneck) else widths[-1])


def has_bottleneck(n_levels: int, bottleneck: int) -> bool:
    """Tell whether the labels read a narrower vector than the levels above: only if there are any."""
    return bottleneck > 0 and n_levels > 1


def dropouts(n_levels: int, merge: str = "mean") -> tuple[float, ...]:
    """Return the dropout before each level's classifiers, rising to the labels'; with ``merge``
    "concat" 0.5.
    """
    if merge == "concat":
        return (_CONCAT_DROPOUT,) * n_levels
    if n_levels in _DROPOUTS:
        return _DROPOUTS[n_levels]
    return tuple(0.2 + 0.3 * level / max(n_levels - 1, 1) for level in range(n_levels))


def scores_all_labels(last_level: str, n_labels: int) -> bool:
    """Tell whether labels are scored one-vs-all: that costs little beside the encoder as long as
    they are not many.
    """
    return last_level == "full" or (last_level == "auto" and n_labels < _LARGE)


def documents_at_a_time(micro_batch: int, batch_size: int, on_gpu: bool) -> int:
    """Return the number of documents of a batch on the device at once: as set, else all, on a CPU
    32 of them.
    """
    return min(micro_batch or (batch_size if on_gpu else _CPU_DOCUMENTS), batch_size)


def resolution_widths(n_labels: int, resolutions: str) -> tuple[int, ...]:
    """Return the nodes of each level above the labels for XR-Transformer: 1/256 and 1/16 of them,
    as in its table 7.

    From 200,000 labels on they are 2⁷, 2¹¹ and 2¹⁵. With «one» resolution, that of X-Transformer,
    1/100 or more."""
    if resolutions == "one":
        return cluster_widths(n_labels, "shortlist")
    if n_labels >= _LARGE:
        return 2**7, 2**11, 2**15
    depth = round(log2(max(n_labels, 2)))
    return tuple(2**power for power in (depth - 8, depth - 4) if power >= 2)


def tuned_levels(widths: tuple[int, ...], finest: str) -> int:
    """Return the number of levels that XR-Transformer tunes on; the last of ``widths``, the labels,
    may be too many.
    """
    labels = finest == "labels" or (finest == "auto" and widths[-1] < _LARGE)
    if labels:
        return len(widths)
    return max(len(widths) - 1, 1)


def level_epochs(
    chosen: tuple[int, ...], epochs: int, n_levels: int, last: int = 3
) -> tuple[int, ...]:
    """Return the epochs of each level: those given, else ``epochs`` in all, ``last`` times as many
    for the last one.
    """
    if chosen:
        if len(chosen) != n_levels:
            expected = (
                f"{n_levels}, as many as are tuned on, or recursive.epochs=[] to have them chosen"
            )
            raise ConfigError(
                f"recursive.epochs: found numbers for {len(chosen)} levels; expected {expected}"
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
    settings: Recursive, epochs: int, n_levels: int, last: int = 3
) -> list[LevelLength]:
    """Return how long each level is trained, by the steps or epochs of the settings.

    Args:
        settings: Say how many steps or epochs each level has, if they do.
        epochs: Those of all levels together, where neither is given.
        n_levels: Levels that are trained on.
        last: How many times the epochs of another level the last one has, where neither is given.
    """
    if settings.steps and len(settings.steps) != n_levels:
        expected = f"{n_levels}, as many as are tuned on, or recursive.steps=[] to have epochs"
        raise ConfigError(
            f"recursive.steps: found numbers for {len(settings.steps)} levels; expected {expected}"
        )
    if settings.steps:
        return [LevelLength(0, steps) for steps in settings.steps]
    return [
        LevelLength(n_epochs) for n_epochs in level_epochs(settings.epochs, epochs, n_levels, last)
    ]


def phase_epochs(share: float, epochs: int) -> tuple[int, int]:
    """Return the epochs of two phases, ``share`` of all for the first one, and at least one for
    each.
    """
    first = min(max(round(share * epochs), 1), max(epochs - 1, 1))
    return first, max(epochs - first, 1)
