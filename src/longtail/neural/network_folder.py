"""The network of a model inside its folder: the encoder in the layout of Hugging Face, and what ranks, if it does."""

from __future__ import annotations

from longtail.config import Config
from longtail.features.encoder import Encoder
from longtail.features.tokens import Tokeniser
from longtail.neural.device import choose_device
from longtail.neural.embedder import Embedder, LastLayer
from longtail.neural.ranker import NeuralRanker
from longtail.neural.ranker_folder import TREE, load_ranker, save_ranker
from longtail.store import Folder, FolderWriter

__all__ = ["load_network", "save_network"]


def save_network(network: Embedder, folder: FolderWriter) -> None:
    """Write ``encoder/``, and the label tree and classifiers of a network that has them."""
    place = folder.path("encoder")
    network.network.encoder.save(place)
    network.tokeniser.save(place)
    if isinstance(network, NeuralRanker):
        save_ranker(network, folder)


def load_network(folder: Folder, config: Config, device: str = "auto") -> Embedder:
    """Read a network for use; on the CPU its classifiers stay memory-mapped."""
    place, where = folder.path("encoder"), choose_device(device)
    encoder = Encoder.load(place, config.encoder.pooling)
    tokeniser = Tokeniser.load(place, config.encoder.max_tokens)
    if TREE in {entry.path for entry in folder.manifest.files}:
        return load_ranker(folder, config, tokeniser, encoder, where)
    return Embedder(tokeniser, LastLayer(encoder).to(where), config.training.precision).freeze()
