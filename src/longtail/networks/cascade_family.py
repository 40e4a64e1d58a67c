"""CascadeXML and its kin as a family of networks: one network for all levels of a label tree, which
ranks labels by itself.

Levels, layers and sizes are those of table 9 of CascadeXML where the settings leave them open and
several layers become one vector (merge "mean"), and those of LightXML where they stand side by side
("concat"). The network is in ``cascade.py``, its training in ``cascade_fitting.py``."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from longtail.config import Cascade, Config, Tree
from longtail.errors import ConfigError, UsageError
from longtail.features.encoder_folder import EncoderShape, encoder_folder, encoder_shape
from longtail.methods import encoder_of, ranks_alone
from longtail.methods.registry import encoder_kinds
from longtail.networks.base import (
    NetworkFamily,
    NetworkPlan,
    NetworkRun,
    classifiers_space,
    not_shared,
)
from longtail.networks.layout import (
    MANY_LABELS,
    cluster_widths,
    scored_nodes,
    scores_all_labels,
    word_widths,
)
from longtail.steps.inputs import GRAPH_INPUTS, Inputs, settings_in

if TYPE_CHECKING:
    import torch

    from longtail.features.text_encoder import TextEncoder
    from longtail.features.tokens import Tokeniser
    from longtail.forecast.sizes import DataSizes
    from longtail.networks.cascade_ranker import CascadeRanker
    from longtail.store import Folder, FolderWriter

__all__ = [
    "CascadeFamily",
    "check_depth",
    "check_levels",
    "dropouts",
    "has_bottleneck",
    "level_layers",
    "level_widths",
    "phase_epochs",
    "ranking_settings",
    "shortlist_sizes",
    "vector_widths",
]

# nodes; shortlists of the levels below
_LARGE_WIDTHS = (2**10, 2**13, 2**16)
_LARGE_SIZES = (2**10, 2**11, 2**12)
_KEPT = 64
_DROPOUTS = {2: (0.3, 0.4), 3: (0.3, 0.3, 0.4), 4: (0.2, 0.25, 0.4, 0.5)}
# LightXML's
_LAST_LAYERS = 5
_CONCAT_DROPOUT = 0.5
_AFTER_TRAINING = settings_in("cascade.classifier", "cascade.combine", "cascade.warm_start")


class CascadeFamily(NetworkFamily):
    """CascadeXML, LightXML, and the methods with encoders on vectors of words."""

    name = "cascade"
    reads = frozenset(
        {"cascade", "encoder", "label_features", "label_text", "phases", "training", "tree"}
    )
    ranks = True

    def check(self, config: Config) -> None:
        """Refuse an encoder that classifiers made of label words cannot have, and phases without
        their parts.
        """
        encoder = encoder_of(config)
        text = config.label_text
        phases = config.phases.kind
        if encoder.name == "lstm":
            problem = f"encoder.kind: found lstm with {config.method}"
            raise ConfigError(f"{problem}; expected another, or the method attentionxml")
        if phases == "surrogate":
            _check_surrogate(config)
            reader = "surrogate phases"
        else:
            reader = f"label_text.parts={list(text.parts)}"
        reads_label_words = phases == "surrogate" or text.parts != ("free",)
        if reads_label_words and not encoder.reads_label_words:
            expected = " or ".join(kind.name for kind in encoder_kinds() if kind.reads_label_words)
            raise ConfigError(
                f"encoder.kind: found {encoder.name} with {reader}; expected {expected}"
            )
        if phases == "tied" and ("free" not in text.parts or len(text.parts) == 1):
            problem = f"label_text.parts: found {list(text.parts)} with phases.kind=tied"
            raise ConfigError(f"{problem}; expected free beside words")

    def check_levels(self, config: Config, n_labels: int | None = None) -> None:
        """Refuse layers that a transformer does not have, and settings for another number of
        levels.
        """
        if not encoder_of(config).reads_words:
            depth = encoder_shape(encoder_folder(config.encoder.name)).depth
            check_depth(config.cascade.layers, depth)
        if config.phases.kind != "one":  # phases have trees of their own
            return
        levels = config.cascade.levels or config.tree.levels
        if n_labels is not None:
            check_levels(self.widths(config, n_labels), config.cascade)
        elif levels:
            check_levels((*levels, "labels"), config.cascade)

    def check_processes(self, config: Config) -> None:
        """Refuse classifiers of label words, phases, losses and encoders that are not shared."""
        from longtail.networks.losses import loss_named

        if config.label_text.parts != ("free",) or config.phases.kind != "one":
            raise not_shared(config, "classifiers of label words or phases")
        last_level = config.cascade.last_level
        if loss_named(config.training.loss).has_normaliser and last_level != "shortlist":
            problem = f"training.loss={config.training.loss} with cascade.last_level={last_level}"
            why = "its normaliser over all labels is not shared among processes"
            expected = "expected cascade.last_level=shortlist"
            raise UsageError(f"torchrun with {config.method}: found {problem}; {why}; {expected}")
        encoder = encoder_of(config)
        if encoder.normalises_over_batch:
            raise not_shared(config, f"encoder.kind={encoder.name}, which normalises over a batch")
        if not encoder.trains_in_processes:
            raise not_shared(config, f"encoder.kind={encoder.name}, which is not shared yet")

    def reads_label_texts(self, config: Config) -> bool:
        """Return whether initial rows, or classifiers, are made of the labels' words."""
        return config.cascade.label_rows == "centroid+text" or config.label_text.parts != ("free",)

    def inputs(self, config: Config) -> Inputs:
        """Return the settings but for those that are read after the training."""
        inputs = settings_in("cascade", "label_text", "phases") - _AFTER_TRAINING
        if "graph" in config.label_text.parts:
            inputs |= GRAPH_INPUTS
        return inputs

    def level_inputs(self) -> Inputs:
        """Return the settings that :meth:`levels` and :meth:`tree_settings` read."""
        cascade = settings_in("cascade.last_level", "cascade.levels", "cascade.merge")
        return cascade | settings_in("encoder.kind", "phases.kind")

    def levels(self, config: Config, n_labels: int) -> tuple[int, ...]:
        """Return ``cascade.levels``, else those of the linear classifiers' tree, else as the number
        of labels asks.

        LightXML has labels alone where all of them are scored."""
        cascade = config.cascade
        levels = cascade.levels or config.tree.levels
        if levels:
            return levels
        if encoder_of(config).reads_words:
            return word_widths(n_labels, cascade.last_level, config.phases.kind)
        if cascade.merge == "concat":
            return cluster_widths(n_labels, cascade.last_level)
        return level_widths(n_labels)

    def tree_settings(self, config: Config, n_labels: int) -> Tree:
        """Return the settings of the tree, which is balanced where ``cascade.levels`` are given."""
        tree = super().tree_settings(config, n_labels)
        if tree.kind == "unbalanced" and config.cascade.levels:
            return replace(tree, kind="balanced")
        return tree

    def fit(self, run: NetworkRun) -> CascadeRanker:
        """Train in one phase, or in two; the weights are a stage per phase, and the training has
        checkpoints.
        """
        from longtail.networks.cascade_fitting import CascadeTraining

        training = CascadeTraining(run)
        phases = {
            "one": training.in_one_phase,
            "tied": training.tied,
            "surrogate": training.surrogate,
        }
        ranker = phases[run.config.phases.kind]()
        ranker.compose_label_head()  # from here on a label's words cost nothing
        return ranker.freeze()

    def save(self, embedder: Any, folder: FolderWriter) -> None:
        """Write tree, merging layers, and the classifiers of each level."""
        from longtail.networks.cascade_ranker import save_cascade

        save_cascade(embedder, folder)

    def load(
        self,
        folder: Folder,
        config: Config,
        tokeniser: Tokeniser,
        encoder: TextEncoder,
        device: torch.device,
    ) -> CascadeRanker:
        """Read the same; on the CPU classifiers stay memory-mapped."""
        from longtail.networks.cascade_ranker import load_cascade

        return load_cascade(folder, config, tokeniser, encoder, device)

    def plan(self, shape: EncoderShape, sizes: DataSizes, config: Config) -> NetworkPlan:
        """Return the plan of a network that is trained on all levels together."""
        widths = self.widths(config, sizes.n_labels)
        cascade = config.cascade
        epochs = config.training.epochs
        layers = cascade.layers or level_layers(shape.depth, len(widths), cascade.merge)
        width = encoder_of(config).vector_width(shape)
        columns = vector_widths(layers, width, cascade.merge, cascade.bottleneck)
        scored = scored_nodes(widths, cascade.shortlist or shortlist_sizes(widths))
        if scores_all_labels(cascade.last_level, widths[-1]):
            scored[-1] = widths[-1]
        # settings for another number of levels are refused by training, so zip takes what there is
        levels = tuple(zip(widths, columns, strict=False))
        weights = sum(nodes * width for nodes, width in zip(scored, columns, strict=False))
        texts = 0
        if cascade.label_rows == "centroid+text":
            texts = sizes.documents + sizes.n_labels
        elif cascade.label_rows == "centroid":
            texts = sizes.documents
        stages: tuple[str, ...] = ("network-0", "network-1")
        if config.phases.kind == "one":
            stages = ("network",)
        return NetworkPlan(
            tree=widths,
            width=columns[-1],
            passes=3 * epochs + (texts > 0) + (not ranks_alone(config)),
            products=3.0 * epochs * weights,
            level_groups=(levels,),
            keeps_classifiers=True,
            first_vectors=texts * sum(columns),
            stages=stages,
        )

    def tuning_space(self, config: Config) -> Sequence[str]:
        """Return what decides the linear classifiers beside the network, if there are any."""
        if config.cascade.combine == "never":
            return ()
        return classifiers_space(config)


def _check_surrogate(config: Config) -> None:
    """Refuse first rows by which no label is found, and levels that no phase would look at."""
    if (rows := config.cascade.label_rows) in ("random", "xavier"):
        problem = f"cascade.label_rows: found {rows} with surrogate phases"
        raise ConfigError(
            f"{problem}, which find labels by centroids; expected centroid or centroid+text"
        )
    name = "tree.levels"
    levels = config.tree.levels
    if config.cascade.levels:
        name = "cascade.levels"
        levels = config.cascade.levels
    if len(levels) > 1:
        expected = "one number, that of the clusters, or [] to have it chosen"
        raise ConfigError(
            f"{name}: found {list(levels)} with surrogate phases; expected {expected}"
        )


def ranking_settings(config: Config, n_labels: int) -> Cascade:
    """Return how the trained network ranks: where a surrogate came first, labels among the nearest
    ones.
    """
    if config.phases.kind != "surrogate":
        return config.cascade
    kept = (min(config.phases.shortlist, n_labels),)
    return replace(config.cascade, layers=((1,), (2,)), shortlist=kept, last_level="shortlist")


def level_widths(n_labels: int) -> tuple[int, ...]:
    """Return the nodes of each level above the labels: 1/64 and 1/8 of them, or 2¹⁰, 2¹³ and 2¹⁶ if
    they are many.
    """
    if n_labels >= MANY_LABELS:
        return _LARGE_WIDTHS
    depth = round(log2(max(n_labels, 2)))
    return tuple(2**power for power in (depth - 6, depth - 3) if power >= 2)


def level_layers(depth: int, n_levels: int, merge: str = "mean") -> tuple[tuple[int, ...], ...]:
    """Return the encoder's layers that each level reads: the last for labels, every ⌊depth/6⌋-th
    one before it.

    The first level reads two layers, so {5, 6}, 8, 10, 12 of twelve for four levels, and {3, 4}, 5,
    6 of six for three. With ``merge`` "concat" every level reads the last five."""
    if merge == "concat":
        return (tuple(range(max(1, depth - _LAST_LAYERS + 1), depth + 1)),) * n_levels
    step = max(1, depth // 6)
    layers = [max(1, depth - step * (n_levels - 1 - level)) for level in range(n_levels)]
    first: tuple[int, ...] = (layers[0],)
    if n_levels > 1 and layers[0] > 1:
        first = (layers[0] - 1, layers[0])
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
        problem = f"cascade.{wrong[0]}: found settings for {levels[wrong[0]]} levels"
        raise ConfigError(
            f"{problem}; expected {len(widths)}, as the tree has ({tree_widths}), {way_out}"
        )


def check_depth(layers: Sequence[Sequence[int]], depth: int) -> None:
    """Refuse layers beyond an encoder's ``depth``, such as those of a preset for twelve with
    MiniLM's six.
    """
    deepest = max((layer for level in layers for layer in level), default=0)
    if deepest > depth:
        expected = f"at most {depth}, the encoder's depth, or cascade.layers=[] to have them chosen"
        raise ConfigError(f"cascade.layers: found {deepest}; expected {expected}")


def vector_widths(
    layers: Sequence[Sequence[int]], encoder_width: int, merge: str, bottleneck: int
) -> tuple[int, ...]:
    """Return the columns of the vector that each level's classifiers read; ``layers`` are those of
    each level.
    """
    widths = [encoder_width] * len(layers)
    if merge == "concat":
        widths = [len(read) * encoder_width for read in layers]
    if has_bottleneck(len(layers), bottleneck):
        widths[-1] = bottleneck
    return tuple(widths)


def has_bottleneck(n_levels: int, bottleneck: int) -> bool:
    """Return whether the labels read a narrower vector than the levels above: only if there are
    any.
    """
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


def phase_epochs(share: float, epochs: int) -> tuple[int, int]:
    """Return the epochs of two phases, ``share`` of all for the first one, and at least one for
    each.
    """
    first = min(max(round(share * epochs), 1), max(epochs - 1, 1))
    return first, max(epochs - first, 1)
