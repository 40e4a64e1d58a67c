"""Networks of which an encoder's vectors alone are kept: a pretrained encoder as it is, that of a
ranking network without its classifiers, and XR-Transformer and X-Transformer, which tune it on one
level of a label tree after the other.

The network of a level is in ``recursive.py``, the training in ``recursive_fitting.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import TYPE_CHECKING, Any

from longtail.config import Config
from longtail.errors import ConfigError, UsageError
from longtail.features.encoder_folder import EncoderShape
from longtail.methods import encoder_of, network_of
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
    level_lengths,
    level_passes,
    level_stages,
    scored_nodes,
)
from longtail.steps.inputs import Inputs, settings_in

if TYPE_CHECKING:
    import torch

    from longtail.features.text_encoder import TextEncoder
    from longtail.features.tokens import Tokeniser
    from longtail.forecast.sizes import DataSizes
    from longtail.networks.embedder import Embedder
    from longtail.store import Folder, FolderWriter

__all__ = [
    "EncoderFamily",
    "LabelVectorsFamily",
    "RecursiveFamily",
    "resolution_widths",
    "tuned_levels",
]


class EncoderFamily(NetworkFamily):
    """An encoder as it is, whose last layer's vector is the document's."""

    name = "encoder"
    reads = frozenset({"encoder", "training.precision"})

    def check(self, config: Config) -> None:
        """Refuse encoders that are not pretrained."""
        if encoder_of(config).reads_words:
            what = config.method
            if network_of(config) is None:
                what = f"{config.method} with features={config.features}"
            problem = f"encoder.kind: found {config.encoder.kind} with {what}"
            raise ConfigError(f"{problem}; expected transformer")

    def fit(self, run: NetworkRun) -> Embedder:
        """Return the encoder, untrained."""
        return run.embedder.freeze()

    def load(
        self,
        folder: Folder,
        config: Config,
        tokeniser: Tokeniser,
        encoder: TextEncoder,
        device: torch.device,
    ) -> Embedder:
        """Return the encoder: a model folder has nothing beside it."""
        from longtail.networks.embedder import Embedder, LastLayer

        network = LastLayer(encoder).to(device)
        return Embedder(tokeniser, network, config.training.precision).freeze()

    def plan(self, shape: EncoderShape, sizes: DataSizes, config: Config) -> NetworkPlan:
        """Return the plan of an encoder that only gives its vectors."""
        return NetworkPlan(tree=(), width=shape.width, passes=1)


class LabelVectorsFamily(EncoderFamily):
    """An encoder whose vectors are made of the layers that the classifiers of labels read."""

    name = "label-vectors"

    def save(self, embedder: Any, folder: FolderWriter) -> None:
        """Write which layers are read, and the map that merges them."""
        from longtail.networks.label_vectors import save_label_vectors

        save_label_vectors(embedder, folder)

    def load(
        self,
        folder: Folder,
        config: Config,
        tokeniser: Tokeniser,
        encoder: TextEncoder,
        device: torch.device,
    ) -> Embedder:
        """Read the same."""
        from longtail.networks.label_vectors import load_label_vectors

        return load_label_vectors(folder, config, tokeniser, encoder, device)


class RecursiveFamily(EncoderFamily):
    """XR-Transformer and X-Transformer; a model folder has the tuned encoder."""

    name = "recursive"
    reads = frozenset({"encoder", "label_features", "ranker", "recursive", "training", "tree"})
    takes_hierarchy = True

    def check(self, config: Config) -> None:
        """Refuse to leave the vectors unread, and encoders on vectors of words."""
        if config.features == "tfidf":
            problem = f"features: found tfidf with {config.method}"
            raise ConfigError(f"{problem}; expected cat or dnn, or the method xr-linear")
        super().check(config)

    def check_levels(self, config: Config, n_labels: int | None = None) -> None:
        """Refuse epochs or steps for another number of levels than is tuned on."""
        settings = config.recursive
        if n_labels is not None:
            tuned = tuned_levels(self.widths(config, n_labels), settings.finest)
        elif settings.levels and settings.finest != "auto":
            tuned = len(settings.levels) + (settings.finest == "labels")
        else:
            return
        level_lengths(settings, config.training.epochs, tuned)

    def check_loss(self, config: Config, loss: Callable[..., Any]) -> None:
        """Refuse a function where nodes have weights, which no function is given."""
        if not config.recursive.cost_sensitive:
            return
        from longtail.networks.losses import loss_of

        if loss_of(loss).by_node is None:
            problem = "recursive.cost_sensitive: found true with a function as loss"
            why = "which is given no weights"
            raise UsageError(
                f"{problem}, {why}; expected false, or a loss of longtail.networks.losses"
            )

    def check_processes(self, config: Config) -> None:
        """Refuse to be trained by several processes."""
        raise not_shared(config, "a network that is trained level by level")

    def upgraded(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings with ``recursive.loss``, as it was called, as ``training.loss``."""
        recursive = settings.get("recursive")
        training = settings.get("training")
        if isinstance(recursive, dict) and isinstance(training, dict) and "loss" in recursive:
            return {**settings, "training": {"loss": recursive["loss"], **training}}
        return settings

    def inputs(self, config: Config) -> Inputs:
        """Return the settings of the levels, and of the solver of their first classifiers."""
        inputs = settings_in("recursive")
        if config.recursive.bootstrap:
            inputs |= settings_in("ranker") - settings_in("ranker.trees")
        return inputs

    def level_inputs(self) -> Inputs:
        """Return the settings that :meth:`levels` reads."""
        return settings_in("recursive.levels", "recursive.resolutions")

    def levels(self, config: Config, n_labels: int) -> tuple[int, ...]:
        """Return ``recursive.levels``, else those of the resolutions."""
        settings = config.recursive
        return settings.levels or resolution_widths(n_labels, settings.resolutions)

    def fit(self, run: NetworkRun) -> Embedder:
        """Tune the encoder; each level is two stages."""
        from longtail.networks.recursive_fitting import fit_recursive

        return fit_recursive(run, tuned_levels(run.tree.widths, run.config.recursive.finest))

    def plan(self, shape: EncoderShape, sizes: DataSizes, config: Config) -> NetworkPlan:
        """Return the plan of an encoder that is tuned on one level after another."""
        widths = self.widths(config, sizes.n_labels)
        settings = config.recursive
        tuned = widths[: tuned_levels(widths, settings.finest)]
        passes = level_passes(settings, sizes, config.training, len(tuned), last=3)
        kept = settings.shortlist + ceil(sizes.true_labels)
        scored = scored_nodes(tuned, [kept] * (len(tuned) - 1))
        nodes = sum(number * times for number, times in zip(scored, passes, strict=False))
        vectors = float(sizes.documents * shape.width)
        return NetworkPlan(
            tree=widths,
            width=shape.width,
            # the last of them is that of the embeddings
            passes=3 * sum(passes) + settings.bootstrap + len(tuned),
            products=3.0 * shape.width * nodes,
            level_groups=tuple(((number, shape.width),) for number in tuned),
            first_vectors=2 * vectors,
            kept_vectors=vectors,
            stages=level_stages(len(tuned)),
            bootstraps=settings.bootstrap and settings.bootstrap_root,
        )

    def tuning_space(self, config: Config) -> Sequence[str]:
        """Return what decides the linear classifiers on the vectors."""
        return classifiers_space(config)


def resolution_widths(n_labels: int, resolutions: str) -> tuple[int, ...]:
    """Return the nodes of each level above the labels for XR-Transformer: 1/256 and 1/16 of them,
    as in its table 7.

    From 200,000 labels on they are 2⁷, 2¹¹ and 2¹⁵. With «one» resolution, that of X-Transformer,
    1/100 or more."""
    if resolutions == "one":
        return cluster_widths(n_labels, "shortlist")
    if n_labels >= MANY_LABELS:
        return 2**7, 2**11, 2**15
    depth = round(log2(max(n_labels, 2)))
    return tuple(2**power for power in (depth - 8, depth - 4) if power >= 2)


def tuned_levels(widths: tuple[int, ...], finest: str) -> int:
    """Return the number of levels that XR-Transformer tunes on; the last of ``widths``, the labels,
    may be too many.
    """
    labels = finest == "labels" or (finest == "auto" and widths[-1] < MANY_LABELS)
    if labels:
        return len(widths)
    return max(len(widths) - 1, 1)
