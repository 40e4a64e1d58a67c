"""AttentionXML as a family of networks: a network per level of the label tree, which looks at all
words of a text for each node that it scores.

The network is in ``attention.py``, that of several label trees, and the files of both, in
``attention_trees.py``, and their training in ``attention_fitting.py``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

from longtail.config import Attention, Config
from longtail.errors import ConfigError
from longtail.features.encoder_folder import EncoderShape
from longtail.networks.base import NetworkFamily, NetworkPlan, NetworkRun
from longtail.networks.layout import (
    level_lengths,
    level_passes,
    level_stages,
    scored_nodes,
    word_widths,
)
from longtail.steps.inputs import Inputs, settings_in

if TYPE_CHECKING:
    import torch

    from longtail.features.text_encoder import TextEncoder
    from longtail.features.tokens import Tokeniser
    from longtail.forecast.sizes import DataSizes
    from longtail.networks.ranker import NeuralRanker
    from longtail.store import Folder, FolderWriter

__all__ = ["AttentionFamily", "averaged_shares", "kept_nodes"]

# settings that earlier versions had in other groups, by group
_MOVED = {
    "cascade": ("last_level", "levels"),
    "recursive": ("dropout", "epochs", "shortlist", "steps", "warmup_steps"),
}


class AttentionFamily(NetworkFamily):
    """AttentionXML."""

    name = "attention"
    reads = frozenset(
        {
            "attention",
            "cascade.classifier",
            "cascade.combine",
            "cascade.warm_start",
            "encoder",
            "label_features",
            "training",
            "tree",
        }
    )
    ranks = True

    def check(self, config: Config) -> None:
        """Refuse all encoders but the LSTM, and two settings of averaged weights."""
        kind = config.encoder.kind
        if kind != "lstm":
            problem = f"encoder.kind: found {kind} with {config.method}"
            raise ConfigError(f"{problem}; expected lstm")
        average_from = config.attention.average_from
        if average_from and config.training.average:
            problem = f"attention.average_from: found {list(average_from)}"
            other = f"beside training.average={config.training.average:g}"
            raise ConfigError(f"{problem} {other}; expected one of them, the other [] or 0")

    def check_levels(self, config: Config, n_labels: int | None = None) -> None:
        """Refuse epochs, steps, shortlists or averages for another number of levels than the tree
        has.
        """
        if n_labels is None:
            return
        n_levels = len(self.widths(config, n_labels))
        kept_nodes(config.attention, n_levels)
        lengths = level_lengths(config.attention, config.training.epochs, n_levels, last=1)
        if not config.attention.steps:  # passes are known when documents are counted
            averaged_shares(config, [length.epochs for length in lengths])

    def check_processes(self, config: Config) -> None:
        """Refuse nothing: attention vectors are shared among processes."""

    def upgraded(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings with a group ``attention``, which earlier versions had in the groups
        ``recursive`` and ``cascade``.
        """
        if "attention" in settings:
            return settings
        moved = dict[str, Any]()
        for group, names in _MOVED.items():
            values = settings.get(group)
            if isinstance(values, dict):
                moved |= {name: values[name] for name in names if name in values}
        if moved.get("last_level") == "auto":  # had the same effect
            moved["last_level"] = "shortlist"
        return {**settings, "attention": moved}

    def inputs(self, config: Config) -> Inputs:
        """Return the settings of the levels."""
        return settings_in("attention")

    def level_inputs(self) -> Inputs:
        """Return the settings that :meth:`levels` reads."""
        return settings_in("attention.last_level", "attention.levels")

    def n_trees(self, config: Config) -> int:
        """Return ``attention.trees``."""
        return config.attention.trees

    def levels(self, config: Config, n_labels: int) -> tuple[int, ...]:
        """Return ``attention.levels``, else those of ``tree.levels``, else as the number of labels
        asks.
        """
        levels = config.attention.levels or config.tree.levels
        return levels or word_widths(n_labels, config.attention.last_level)

    def fit(self, run: NetworkRun) -> NeuralRanker:
        """Train one level after the other; each is two stages."""
        from longtail.networks.attention_fitting import fit_attention

        return fit_attention(run)

    def save(self, embedder: Any, folder: FolderWriter) -> None:
        """Write the tree, and the network of each level."""
        from longtail.networks.attention_trees import save_attention

        save_attention(embedder, folder)

    def load(
        self,
        folder: Folder,
        config: Config,
        tokeniser: Tokeniser,
        encoder: TextEncoder,
        device: torch.device,
    ) -> NeuralRanker:
        """Read the same; on the CPU attention vectors stay memory-mapped."""
        from longtail.networks.attention_trees import load_attention

        return load_attention(folder, config, tokeniser, encoder, device)

    def plan(self, shape: EncoderShape, sizes: DataSizes, config: Config) -> NetworkPlan:
        """Return the plan of a network per level."""
        widths = self.widths(config, sizes.n_labels)
        passes = level_passes(config.attention, sizes, config.training, len(widths), last=1)
        settings = config.attention
        shortlists = settings.level_shortlists or [settings.shortlist] * (len(widths) - 1)
        kept = [size + ceil(sizes.true_labels) for size in shortlists]
        scored = scored_nodes(widths, kept)
        nodes = sum(number * times for number, times in zip(scored, passes, strict=False))
        # α_tl, the sum of W_1 H_t that they weigh, and the layers above W_1
        words = sizes.tokens(config.encoder.max_tokens).mean
        layers = config.attention.layers
        node_products = words * (shape.width + layers[0])
        node_products += sum(columns * rows for columns, rows in pairwise((*layers, 1)))
        matches = sum(range(len(widths)))  # the candidates of a level are those of all above it
        trees = config.attention.trees
        return NetworkPlan(
            tree=widths,
            width=shape.width,
            passes=trees * (3 * sum(passes) + matches),
            products=3.0 * trees * node_products * nodes,
            level_groups=(trees * tuple((number, shape.width) for number in widths),),
            keeps_classifiers=True,
            stages=level_stages(len(widths)),
            encoders=trees * len(widths),
            averages=bool(config.attention.average_from),
        )

    def tuning_space(self, config: Config) -> Sequence[str]:
        """Return dropout."""
        return ("attention.dropout=0..0.6",)


def averaged_shares(config: Config, passes: Sequence[float]) -> list[float]:
    """Return the share of each level's steps, at its end, with averaged weights.

    Args:
        config: resolved settings.
        passes: over the documents, of each level.
    """
    name = "attention.average_from"
    average_from = config.attention.average_from
    if not average_from:
        return [config.training.average] * len(passes)
    if len(average_from) != len(passes):
        problem = f"{name}: found numbers for {len(average_from)} levels"
        expected = f"{len(passes)}, as many as are tuned on, or {name}=[]"
        raise ConfigError(f"{problem}; expected {expected} to use training.average")
    for level, (start, epochs) in enumerate(zip(average_from, passes, strict=True), 1):
        if start >= epochs:
            problem = f"{name}: found {start:g} for level {level}"
            raise ConfigError(f"{problem}; expected less than its {epochs:g} epochs")
    return [1 - start / epochs for start, epochs in zip(average_from, passes, strict=True)]


def kept_nodes(settings: Attention, n_levels: int) -> list[int]:
    """Return C of each level above the labels: how many nodes have candidates below them.

    Args:
        settings: of the levels.
        n_levels: levels of the tree, labels included.
    """
    shortlists = settings.level_shortlists
    if not shortlists:
        return [max(settings.shortlist, 1)] * (n_levels - 1)
    if len(shortlists) != n_levels - 1:
        name = "attention.level_shortlists"
        problem = f"{name}: found numbers for {len(shortlists)} levels"
        expected = f"{n_levels - 1}, as many as are above the labels"
        raise ConfigError(
            f"{problem}; expected {expected}, or {name}=[] to use attention.shortlist"
        )
    return list(shortlists)
