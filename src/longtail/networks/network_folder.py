"""The network of a model inside its folder: the encoder in the layout of Hugging Face, and the
files of its family.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import torch

from longtail.config import Config
from longtail.errors import MissingExtra, ModelFolderError, printable
from longtail.features.encoder import Encoder
from longtail.features.tokens import Tokeniser
from longtail.networks.attention_folder import ATTENTION, load_attention, save_attention
from longtail.networks.cascade_folder import TREE, load_cascade, save_cascade
from longtail.networks.device import choose_device
from longtail.networks.embedder import Embedder, LastLayer
from longtail.networks.encoders.word_encoder import WordEncoder
from longtail.networks.first_encoder import load_text_encoder
from longtail.networks.label_vectors import LABEL_VECTORS, load_label_vectors, save_label_vectors
from longtail.store import Folder, FolderWriter

__all__ = ["load_network", "save_network"]

# of what a file may ask for before its weights are compared: none that people use has a tenth of it
_MOST = {
    **dict.fromkeys(
        ("num_hidden_layers", "n_layers", "n_layer", "num_hidden_groups", "inner_group_num"), 1000
    ),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head"), 1000),
    "max_tokens": 1 << 16,
}


class _Family(NamedTuple):
    """The files of a kind of network beside its encoder."""

    save: Callable[[Any, FolderWriter], None]
    load: Callable[[Folder, Config, Tokeniser, Any, torch.device], Embedder]


class _About(msgspec.Struct, frozen=True):
    """The content of ``network.json``."""

    family: str


_ABOUT = "network.json"


def save_network(network: Embedder, folder: FolderWriter) -> None:
    """Write ``encoder/``, the name of the network's family, and the label tree and classifiers if
    it has them.
    """
    encoder_folder = folder.path("encoder")
    network.network.encoder.save(encoder_folder)
    network.tokeniser.save(encoder_folder)
    folder.write_json(_ABOUT, _About(network.network.family))
    _FAMILIES[network.network.family].save(network, folder)


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
    """Tell whether memory, of the machine or of a GPU, did not suffice; for that of a CPU torch has
    no class.
    """
    while error is not None:
        if isinstance(
            error, MemoryError | torch.OutOfMemoryError
        ) or "can't allocate memory" in str(error):
            return True
        error = error.__cause__
    return False


def _load(folder: Folder, config: Config, where: torch.device) -> Embedder:
    family = _family_of(folder)
    encoder_folder = folder.path("encoder")
    encoder = load_text_encoder(encoder_folder, config.encoder)
    cleaning = config.encoder.cleaning if config.encoder.kind == "transformer" else "none"
    tokeniser = Tokeniser.load(encoder_folder, config.encoder.max_tokens, cleaning)
    _check_fit(encoder, tokeniser)
    return _FAMILIES[family].load(folder, config, tokeniser, encoder, where)


def _family_of(folder: Folder) -> str:
    """Return the name of the network's family; folders without it are told apart by their files."""
    if _ABOUT in folder.files:
        family = folder.read_json(_ABOUT, _About).family
        if family not in _FAMILIES:
            expected = ", ".join(_FAMILIES)
            raise ModelFolderError(
                f"{_ABOUT}: found the family {printable(family)!r}; expected one of {expected}"
            )
        return family
    if LABEL_VECTORS in folder.files:
        return "label-vectors"
    if any(name.startswith(ATTENTION) for name in folder.files):
        return "attention"
    return "cascade" if TREE in folder.files else "encoder"


def _save_encoder(embedder: Embedder, folder: FolderWriter) -> None:
    """Write nothing: the encoder is all."""


def _load_encoder(
    folder: Folder,
    config: Config,
    tokeniser: Tokeniser,
    encoder: Encoder | WordEncoder,
    device: torch.device,
) -> Embedder:
    """Return an encoder that gives vectors alone."""
    return Embedder(tokeniser, LastLayer(encoder).to(device), config.training.precision).freeze()


_FAMILIES = {
    "encoder": _Family(_save_encoder, _load_encoder),
    "label-vectors": _Family(save_label_vectors, load_label_vectors),
    "cascade": _Family(save_cascade, load_cascade),
    "attention": _Family(save_attention, load_attention),
}


def _check_fit(encoder: Encoder | WordEncoder, tokeniser: Tokeniser) -> None:
    """Refuse weights of other types than networks compute with, and tokens beyond the vectors of
    words.
    """
    kinds = {tensor.dtype for tensor in encoder.state_dict().values()}
    if not kinds <= {torch.float32, torch.int64}:
        raise ModelFolderError(
            f"encoder: found weights of {', '.join(map(str, kinds))}; expected float32"
        )
    if isinstance(encoder, WordEncoder):
        vectors = encoder.embedding
    else:
        vectors = encoder.model.get_input_embeddings()
    known = len(vectors.weight)
    if tokeniser.largest_id >= known:
        raise ModelFolderError(
            f"encoder: found the token {tokeniser.largest_id}; expected less than {known}"
        )


def _check_sizes(folder: Folder, config: Config) -> None:
    """Refuse an encoder that would be made, layer by layer, for hours, or fill the memory, before
    it can be wrong.
    """
    about = json.loads(folder.read_bytes("encoder/config.json"))
    sizes = {"max_tokens": config.encoder.max_tokens, **(about if isinstance(about, dict) else {})}
    for name, most in _MOST.items():
        size = sizes.get(name, 0)
        if isinstance(size, int) and size > most:
            raise ModelFolderError(
                f"encoder: found {str(size)[:20]} as {name}; expected at most {most}"
            )
