"""The network of a model inside its folder: the encoder in the layout of Hugging Face, and what ranks, if it does."""

from __future__ import annotations

from longtail.config import Config
from longtail.features.tokens import Tokeniser
from longtail.neural.attention_folder import load_attention, save_attention
from longtail.neural.device import choose_device
from longtail.neural.embedder import Embedder, LastLayer
from longtail.neural.first_encoder import load_text_encoder
from longtail.neural.lstm import LstmEncoder
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
        save = save_attention if isinstance(network.network.encoder, LstmEncoder) else save_ranker
        save(network, folder)


def load_network(folder: Folder, config: Config, device: str = "auto") -> Embedder:
    """Read a network for use; on the CPU its classifiers stay memory-mapped."""
    place, where = folder.path("encoder"), choose_device(device)
    encoder = load_text_encoder(place, config.encoder)
    tokeniser = Tokeniser.load(place, config.encoder.max_tokens)
    if isinstance(encoder, LstmEncoder):
        return load_attention(folder, config, tokeniser, encoder, where)
    if TREE in {entry.path for entry in folder.manifest.files}:
        return load_ranker(folder, config, tokeniser, encoder, where)
    return Embedder(tokeniser, LastLayer(encoder).to(where), config.training.precision).freeze()
