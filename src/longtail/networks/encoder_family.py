"""Networks that are an encoder alone: pretrained, tuned level by level, or a ranking network
without its classifiers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longtail.config import Config
from longtail.errors import ConfigError
from longtail.features.encoder_folder import EncoderShape
from longtail.methods import encoder_of, network_of
from longtail.networks.base import NetworkFamily, NetworkPlan, NetworkRun

if TYPE_CHECKING:
    import torch

    from longtail.features.text_encoder import TextEncoder
    from longtail.features.tokens import Tokeniser
    from longtail.forecast.sizes import DataSizes
    from longtail.networks.embedder import Embedder
    from longtail.store import Folder, FolderWriter

__all__ = ["EncoderFamily", "LabelVectorsFamily"]


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
