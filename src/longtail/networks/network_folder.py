"""Encoders and networks from files: the encoder that training begins with, and the network of a
model inside its folder.

A model folder has the encoder in the layout of Hugging Face, and beside it the files of the
network's family, whose name is in ``network.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from longtail.config import Config
from longtail.config import Encoder as Settings
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, MissingExtra, ModelFolderError, printable
from longtail.features.encoder import Encoder, encoder_folder
from longtail.features.encoder_folder import is_pretrained, names_folder
from longtail.features.encoder_search import find_word_vectors
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Cleaning, Tokeniser, Tokens
from longtail.features.word_tokens import (
    idf_of,
    minilm_vectors,
    read_word_vectors,
    word_tokeniser,
    words_of,
)
from longtail.methods.registry import encoder_kind, network_family, network_names
from longtail.networks.base import NetworkFamily
from longtail.networks.device import choose_device
from longtail.networks.embedder import Embedder
from longtail.networks.encoders.kinds import WordEncoderKind
from longtail.networks.encoders.word_encoder import MODEL_TYPE, WordEncoder, make_word_encoder
from longtail.networks.label_vectors import LABEL_VECTORS
from longtail.networks.ranker import TREE
from longtail.store import Folder, FolderWriter

__all__ = ["first_encoder", "load_network", "save_network", "tokeniser_for"]

# of what a file may ask for before its weights are compared: none that people use has a tenth of it
_MOST = {
    **dict.fromkeys(
        ("num_hidden_layers", "n_layers", "n_layer", "num_hidden_groups", "inner_group_num"), 1000
    ),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head"), 1000),
    "max_tokens": 1 << 16,
}


class _About(msgspec.Struct, frozen=True):
    """The content of ``network.json``."""

    family: str


_ABOUT = "network.json"


def save_network(network: Embedder, folder: FolderWriter) -> None:
    """Write ``encoder/``, the name of the network's family, and the label tree and classifiers if
    it has them.
    """
    files = folder.path("encoder")
    network.network.encoder.save(files)
    network.tokeniser.save(files)
    folder.write_json(_ABOUT, _About(network.network.family))
    network_family(network.network.family).save(network, folder)


def load_network(folder: Folder, config: Config, device: str = "auto") -> Embedder:
    """Read a network for use; on the CPU its classifiers stay memory-mapped."""
    where = choose_device(device)
    try:
        _check_sizes(folder, config)
        return _load(folder, config, where)
    except (MissingExtra, ModelFolderError):
        raise
    except Exception as error:
        # what torch, transformers and tokenizers raise over hostile files is anything
        if _wants_memory(error):
            way_out = (
                "use a larger machine, or on a GPU --device cpu; if it should fit, get another copy"
            )
            raise ModelFolderError(f"network: not enough memory to load it; {way_out}") from error
        reason = printable(" ".join(str(error).split())[:300]) or type(error).__name__
        raise ModelFolderError(
            f"network: {reason}; train the model again, or get another copy"
        ) from error


def _wants_memory(error: BaseException | None) -> bool:
    """Return whether memory, of the machine or of a GPU, did not suffice; for that of a CPU torch
    has no class.
    """
    while error is not None:
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        if "can't allocate memory" in str(error):
            return True
        error = error.__cause__
    return False


def _load(folder: Folder, config: Config, where: torch.device) -> Embedder:
    family = _family_of(folder)
    encoder_folder = folder.path("encoder")
    encoder = _load_encoder(encoder_folder, config.encoder)
    tokeniser = Tokeniser.load(encoder_folder, config.encoder.max_tokens, _cleaning(config.encoder))
    _check_fit(encoder, tokeniser)
    return family.load(folder, config, tokeniser, encoder, where)


def _family_of(folder: Folder) -> NetworkFamily:
    """Return the network's family; folders without its name are told apart by their files."""
    names = folder.files
    if _ABOUT not in names:
        if LABEL_VECTORS in names:
            return network_family("label-vectors")
        if any(name.startswith("attention-") for name in names):
            return network_family("attention")
        if TREE in names:
            return network_family("cascade")
        return network_family("encoder")
    name = folder.read_json(_ABOUT, _About).family
    try:
        return network_family(name)
    except ConfigError:
        expected = ", ".join(network_names())
        problem = f"{_ABOUT}: found the family {printable(name)!r}"
        raise ModelFolderError(f"{problem}; expected one of {expected}") from None


def _check_fit(encoder: TextEncoder, tokeniser: Tokeniser) -> None:
    """Refuse weights of other types than networks compute with, and tokens beyond the vectors of
    tokens.
    """
    kinds = {tensor.dtype for tensor in encoder.state_dict().values()}
    if not kinds <= {torch.float32, torch.int64}:
        problem = ", ".join(map(str, kinds))
        raise ModelFolderError(f"encoder: found weights of {problem}; expected float32")
    known = len(encoder.token_vectors().weight)
    if tokeniser.largest_id >= known:
        problem = f"the token {tokeniser.largest_id}"
        raise ModelFolderError(f"encoder: found {problem}; expected less than {known}")


def _check_sizes(folder: Folder, config: Config) -> None:
    """Refuse an encoder that would be made, layer by layer, for hours, or fill the memory, before
    it can be wrong.
    """
    about = json.loads(folder.read_bytes("encoder/config.json"))
    sizes: dict[str, Any] = {"max_tokens": config.encoder.max_tokens}
    if isinstance(about, dict):
        sizes |= about
    for name, most in _MOST.items():
        size = sizes.get(name, 0)
        if isinstance(size, int) and size > most:
            problem = f"{str(size)[:20]} as {name}"
            raise ModelFolderError(f"encoder: found {problem}; expected at most {most}")


def tokeniser_for(documents: Dataset, settings: Settings) -> Tokeniser:
    """Return the tokeniser of a pretrained encoder, else one of the words of documents and
    labels.
    """
    if is_pretrained(settings.kind, settings.name):
        folder = encoder_folder(settings.name)
        return Tokeniser.load(folder, settings.max_tokens, _cleaning(settings))
    texts = documents.document_texts(), documents.labels.described()
    return word_tokeniser(texts, settings.max_tokens, settings.min_count)


def _cleaning(settings: Settings) -> Cleaning:
    """Return how a transformer's tokeniser cleans texts; words are read as they are."""
    if encoder_kind(settings.kind).reads_words:
        return "none"
    return settings.cleaning


def first_encoder(tokeniser: Tokeniser, tokens: Tokens, config: Config) -> Encoder | WordEncoder:
    """Return the encoder that training begins with; ``tokens`` are those of all documents."""
    settings = config.encoder
    kind = encoder_kind(settings.kind)
    if not kind.reads_words:
        return Encoder.load(encoder_folder(settings.name), settings.pooling)
    vectors = _word_vectors(tokeniser, settings, config.seed)
    return make_word_encoder(
        kind.name,
        vectors,
        idf_of(tokens, len(vectors)),
        tokeniser.pad,
        settings.max_tokens,
        config.seed,
        cast(WordEncoderKind, kind).options(config),
    )


def _word_vectors(tokeniser: Tokeniser, settings: Settings, seed: int) -> NDArray[np.float32]:
    """Return (V, D): those of a pretrained encoder or a file; what it does not have, words or
    numbers, by chance.
    """
    if names_folder(settings.name):
        return minilm_vectors(encoder_folder(settings.name))
    words = words_of(tokeniser)
    if settings.name == "learned":
        vectors = np.zeros((len(words), settings.width), np.float32)
        known = np.zeros(len(words), bool)
    else:
        vectors, known = read_word_vectors(find_word_vectors(settings.name) or settings.name, words)
    scale = settings.width**-0.5
    if known.any():
        scale = float(vectors[known].std())
    read = vectors.shape[1]
    shape = (len(words), max(read, settings.width))
    drawn = np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)
    drawn[known, :read] = vectors[known]
    drawn[tokeniser.pad] = 0
    return drawn


def _load_encoder(folder: Path, settings: Settings) -> Encoder | WordEncoder:
    """Read the encoder of a model folder."""
    try:
        about = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        about = {}
    if isinstance(about, dict) and about.get("model_type") == MODEL_TYPE:
        return WordEncoder.load(folder)
    return Encoder.load(folder, settings.pooling)
