"""The network of a model inside its folder: the encoder in the layout of Hugging Face, and the
files of its family.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import torch

from longtail.config import Config
from longtail.errors import ConfigError, MissingExtra, ModelFolderError, printable
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokeniser
from longtail.methods.registry import network_family, network_names
from longtail.networks.base import NetworkFamily
from longtail.networks.device import choose_device
from longtail.networks.embedder import Embedder
from longtail.networks.first_encoder import cleaning_of, load_text_encoder
from longtail.networks.label_vectors import LABEL_VECTORS
from longtail.networks.ranker import TREE
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
    encoder = load_text_encoder(encoder_folder, config.encoder)
    tokeniser = Tokeniser.load(
        encoder_folder, config.encoder.max_tokens, cleaning_of(config.encoder)
    )
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
        return network_family("cascade" if TREE in names else "encoder")
    name = folder.read_json(_ABOUT, _About).family
    try:
        return network_family(name)
    except ConfigError:
        expected = ", ".join(network_names())
        found = f"{_ABOUT}: found the family {printable(name)!r}"
        raise ModelFolderError(f"{found}; expected one of {expected}") from None


def _check_fit(encoder: TextEncoder, tokeniser: Tokeniser) -> None:
    """Refuse weights of other types than networks compute with, and tokens beyond the vectors of
    tokens.
    """
    kinds = {tensor.dtype for tensor in encoder.state_dict().values()}
    if not kinds <= {torch.float32, torch.int64}:
        found = ", ".join(map(str, kinds))
        raise ModelFolderError(f"encoder: found weights of {found}; expected float32")
    known = len(encoder.token_vectors().weight)
    if tokeniser.largest_id >= known:
        found = f"the token {tokeniser.largest_id}"
        raise ModelFolderError(f"encoder: found {found}; expected less than {known}")


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
            found = f"{str(size)[:20]} as {name}"
            raise ModelFolderError(f"encoder: found {found}; expected at most {most}")
