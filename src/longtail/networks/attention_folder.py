"""AttentionXML inside a model folder: the label tree, and the network of each level as arrays.

The encoder of the first level is the folder's encoder/; the other levels' are among their arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray

from longtail.config import Config
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokeniser
from longtail.networks.attention import AttentionLevel, AttentionXML
from longtail.networks.cascade_folder import TREE, map_rows
from longtail.networks.encoders.lstm import LstmEncoder
from longtail.networks.ranker import NeuralRanker
from longtail.store import Folder, FolderWriter
from longtail.tree.tree import LabelTree

__all__ = ["ATTENTION", "load_attention", "save_attention"]

ATTENTION = "attention-"  # beginning of the names of the levels' files
_ENCODER = "encoder."
_HEAD = "head."


def save_attention(ranker: NeuralRanker, folder: FolderWriter) -> None:
    """Write the tree and attention-N.safetensors of each level; the first level's encoder is
    written by others.
    """
    folder.write_arrays(TREE, ranker.tree.to_arrays())
    for level in cast(AttentionXML, ranker.network).levels:
        arrays = level.to_arrays()
        written = {
            name: array
            for name, array in arrays.items()
            if level.level or not name.startswith(_ENCODER)
        }
        folder.write_arrays(_file(level.level), written)


def load_attention(
    folder: Folder, config: Config, tokeniser: Tokeniser, encoder: TextEncoder, device: torch.device
) -> NeuralRanker:
    """Read the levels below an encoder, which becomes the first one's; on the CPU attention vectors
    stay mapped.
    """
    if not isinstance(encoder, LstmEncoder):
        raise ValueError(f"attention: found an encoder {type(encoder).__name__}; expected an LSTM")
    tree = LabelTree.from_arrays(folder.arrays(TREE))
    training = replace(config.training, head_optimiser="sgd")  # no optimiser's state in memory
    levels = []
    for t in range(tree.n_levels):
        level_encoder = deepcopy(encoder) if t else encoder
        level = AttentionLevel(
            level_encoder, tree, t, config.recursive, training, config.seed, std=0
        )
        _load(level, folder.arrays(_file(t)))
        levels.append(level)
    return NeuralRanker(tokeniser, AttentionXML(levels).to(device), tree).freeze()


def _load(level: AttentionLevel, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, tensor in level.trained().items():
        if name.startswith(_ENCODER) and not level.level:
            continue
        if name not in arrays or arrays[name].shape != tuple(tensor.shape):
            shape = arrays[name].shape if name in arrays else "nothing"
            raise ValueError(
                f"{_file(level.level)}, {name}: found {shape}; expected {tuple(tensor.shape)}"
            )
        tensor.copy_(torch.from_numpy(np.array(arrays[name])))
    map_rows(level.heads[0], {name: arrays[_HEAD + name] for name in ("weight", "bias")})


def _file(level: int) -> str:
    return f"{ATTENTION}{level}.safetensors"
