"""What ranks labels inside a model folder, beside the encoder: tree, merging layers and classifiers as arrays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray

from longtail.config import Config
from longtail.features.encoder import Encoder
from longtail.features.tokens import Tokeniser
from longtail.neural.cascade import CascadeXML
from longtail.neural.heads import Head
from longtail.neural.ranker import NeuralRanker
from longtail.store import Folder, FolderWriter
from longtail.tree.tree import LabelTree

__all__ = ["TREE", "load_ranker", "save_ranker"]

TREE, _MERGES = "tree-network.safetensors", "merges.safetensors"


def save_ranker(ranker: NeuralRanker, folder: FolderWriter) -> None:
    """Write the tree, the merging layers, and the classifiers of each level."""
    folder.write_arrays(TREE, ranker.tree.to_arrays())
    merges = ranker.network.merges.state_dict()
    if merges:
        folder.write_arrays(_MERGES, {name: tensor.cpu().numpy() for name, tensor in merges.items()})
    for level, head in enumerate(ranker.network.heads):
        folder.write_arrays(f"head-{level}.safetensors", head.to_arrays(state=False))


def load_ranker(
    folder: Folder, config: Config, tokeniser: Tokeniser, encoder: Encoder, device: torch.device
) -> NeuralRanker:
    """Read what makes a ranker of an encoder; on the CPU its classifiers stay memory-mapped."""
    tree = LabelTree.from_arrays(folder.arrays(TREE))
    training = replace(config.training, head_optimiser="sgd")  # no optimiser's state in memory
    network = CascadeXML(encoder, tree, config.cascade, training, config.seed, std=0)
    names = {entry.path for entry in folder.manifest.files}
    if _MERGES in names:
        arrays = folder.arrays(_MERGES)
        network.merges.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
    for level, head in enumerate(network.heads):
        _map_rows(head, folder.arrays(f"head-{level}.safetensors"))
    return NeuralRanker(tokeniser, network.to(device), tree).freeze()


def _map_rows(head: Head, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Let the classifiers be the file's own pages, not a copy."""
    for name in ("weight", "bias"):
        known, found = getattr(head, name), arrays[name]
        if found.shape != tuple(known.shape):
            raise ValueError(f"a head of {found.shape} for a level of {tuple(known.shape)}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the pages cannot be written to
            tensor = torch.from_numpy(found)
        setattr(head, name, tensor.view(torch.bfloat16) if found.dtype == np.uint16 else tensor)
