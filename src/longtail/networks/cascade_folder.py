"""A cascade inside a model folder, beside the encoder: tree, merging layers and classifiers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray

from longtail.config import Cascade, Config
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokeniser
from longtail.networks.cascade import CascadeXML
from longtail.networks.cascade_ranker import CascadeRanker, no_words
from longtail.networks.encoders.word_encoder import WordEncoder
from longtail.networks.heads.head import Head
from longtail.networks.heads.label_text import LabelText
from longtail.store import Folder, FolderWriter
from longtail.tree.tree import LabelTree

__all__ = ["TREE", "load_cascade", "map_rows", "ranking_settings", "save_cascade"]

TREE = "tree-network.safetensors"
_MERGES = "merges.safetensors"
_LABEL_TEXT = "label-text.safetensors"
_ADDED = "added"  # labels after training


def save_cascade(ranker: CascadeRanker, folder: FolderWriter) -> None:
    """Write the tree, the merging layers, the classifiers of each level, and what makes those of
    further labels.
    """
    folder.write_arrays(TREE, ranker.tree.to_arrays())
    merges = ranker.network.merges.state_dict()
    if merges:
        folder.write_arrays(
            _MERGES, {name: tensor.cpu().numpy() for name, tensor in merges.items()}
        )
    for level, head in enumerate(ranker.network.heads):
        folder.write_arrays(f"head-{level}.safetensors", head.to_arrays(state=False))
    if ranker.label_text is not None:
        arrays = {
            name: tensor.numpy(force=True)
            for name, tensor in ranker.label_text.state_dict().items()
        }
        folder.write_arrays(_LABEL_TEXT, arrays | {_ADDED: np.array(ranker.n_added)})


def ranking_settings(config: Config, n_labels: int) -> Cascade:
    """Return how the trained network ranks: where a surrogate came first, labels among the nearest
    ones.
    """
    if config.label_text.phases != "surrogate":
        return config.cascade
    kept = (min(config.label_text.shortlist, n_labels),)
    return replace(config.cascade, layers=((1,), (2,)), shortlist=kept, last_level="shortlist")


def load_cascade(
    folder: Folder, config: Config, tokeniser: Tokeniser, encoder: TextEncoder, device: torch.device
) -> CascadeRanker:
    """Read what makes a ranker of an encoder; on the CPU its classifiers stay memory-mapped."""
    tree = LabelTree.from_arrays(folder.arrays(TREE))
    training = replace(config.training, head_optimiser="sgd")  # no optimiser's state in memory
    network = CascadeXML(
        encoder, tree, ranking_settings(config, tree.n_labels), training, config.seed, std=0
    )
    if _MERGES in folder.files:
        arrays = folder.arrays(_MERGES)
        network.merges.load_state_dict(
            {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        )
    for level, head in enumerate(network.heads):
        assert isinstance(head, Head)  # label words have done their work
        map_rows(head, folder.arrays(f"head-{level}.safetensors"))
    ranker = CascadeRanker(tokeniser, network.to(device), tree).freeze()
    if _LABEL_TEXT in folder.files:
        arrays = folder.arrays(_LABEL_TEXT)
        ranker.n_added = int(arrays[_ADDED])
        ranker.label_text = _label_text(
            encoder, config, {name: arrays[name] for name in arrays if name != _ADDED}
        )
    return ranker


def _label_text(
    encoder: TextEncoder, config: Config, arrays: Mapping[str, NDArray[Any]]
) -> LabelText:
    """Return the composition of classifiers of further labels; the vectors of words are the
    encoder's.
    """
    if not isinstance(encoder, WordEncoder):
        raise ValueError(f"{_LABEL_TEXT}: found it beside an encoder without vectors of words")
    settings = config.label_text
    none = no_words(encoder.embedding)
    text = LabelText(
        encoder.embedding, none, none[:, :0], settings.parts, settings.combine, seed=0
    ).eval()
    try:
        text.load_state_dict(
            {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        )
    except RuntimeError as error:
        raise ValueError(f"{_LABEL_TEXT}: {' '.join(str(error).split())[:200]}") from error
    return text


def map_rows(head: Head, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Map the classifiers from the file's pages, without a copy."""
    for name in ("weight", "bias"):
        known = getattr(head, name)
        array = arrays[name]
        if array.shape != tuple(known.shape):
            raise ValueError(f"a head of {array.shape} for a level of {tuple(known.shape)}")
        if array.dtype not in (np.float32, np.uint16):  # uint16: the bits of bfloat16
            raise ValueError(f"a head of {array.dtype}; expected float32, or bfloat16 as uint16")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the pages cannot be written to
            tensor = torch.from_numpy(array)
        setattr(head, name, tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor)
