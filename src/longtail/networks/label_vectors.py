"""A network without its classifiers: the encoder, and how its layers become the vector that they
read.

Linear classifiers on Φcat that rank in the network's place (``cascade.combine`` "only") need these
vectors alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.config import Config
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokeniser
from longtail.networks.embedder import Embedder, LastLayer
from longtail.networks.merging import merged
from longtail.store import Folder, FolderWriter
from longtail.store.tensors import check_kinds

if TYPE_CHECKING:
    from longtail.networks.ranker import NeuralRanker

__all__ = [
    "LABEL_VECTORS",
    "LabelVectors",
    "load_label_vectors",
    "save_label_vectors",
    "without_classifiers",
]

LABEL_VECTORS = "label-vectors.safetensors"


class LabelVectors(LastLayer):
    """An encoder whose vector of a document is made of some layers, as the classifiers of labels
    read it.
    """

    family: ClassVar[str] = "label-vectors"

    def __init__(self, encoder: TextEncoder, layers: Sequence[int], merge: nn.Module) -> None:
        """Take the encoder, the layers that are read, counted from 1, and what merges their
        vectors.
        """
        super().__init__(encoder)
        self.layers = tuple(layers)
        self.merge = merge

    @property
    def linear(self) -> nn.Linear | None:
        """The map of the merged layers, if there is one."""
        maps = (module for module in self.merge.modules() if isinstance(module, nn.Linear))
        return next(maps, None)

    @property
    def widths(self) -> tuple[int]:
        """Columns of the vectors."""
        linear = self.linear
        if linear is None:
            return (len(self.layers) * self.encoder.width,)
        return (linear.out_features,)

    def vectors(self, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the one (B, d) vector."""
        return [merged(self.merge, self.encoder(ids, mask, self.layers))]

    def in_half(self) -> LastLayer:
        """Return a copy whose encoder and map are bfloat16."""
        half = super().in_half()
        half._modules["merge"] = deepcopy(self.merge).bfloat16()
        return half.eval()


def without_classifiers(ranker: NeuralRanker) -> Embedder:
    """Return an embedder with the vectors of ``ranker``, ready for use, without classifiers and
    label tree.
    """
    return Embedder(ranker.tokeniser, ranker.network.label_vectors(), ranker.precision).freeze()


def save_label_vectors(embedder: Embedder, folder: FolderWriter) -> None:
    """Write which layers are read, and the map that merges them; the encoder is written by
    others.
    """
    network = cast(LabelVectors, embedder.network)
    arrays: dict[str, NDArray[Any]] = {"layers": np.array(network.layers, np.int64)}
    linear = network.linear
    if linear is not None:
        arrays |= {name: tensor.numpy(force=True) for name, tensor in linear.state_dict().items()}
    folder.write_arrays(LABEL_VECTORS, arrays)


def load_label_vectors(
    folder: Folder, config: Config, tokeniser: Tokeniser, encoder: TextEncoder, device: torch.device
) -> Embedder:
    """Read what makes vectors of an encoder's layers."""
    arrays = folder.arrays(LABEL_VECTORS)
    check_kinds(arrays, {"layers": "i"})
    layers = [int(layer) for layer in arrays["layers"]]
    if not layers or not all(1 <= layer <= encoder.depth for layer in layers):
        raise ValueError(
            f"{LABEL_VECTORS}: found layers {layers}; expected some from 1 to {encoder.depth}"
        )
    merge: nn.Module = nn.Identity()
    if "weight" in arrays:
        merge = _loaded_map(arrays, len(layers) * encoder.width)
    network = LabelVectors(encoder, layers, merge).to(device)
    return Embedder(tokeniser, network, config.training.precision).freeze()


def _loaded_map(arrays: Mapping[str, NDArray[Any]], columns: int) -> nn.Linear:
    weight = arrays["weight"]
    bias = arrays["bias"]
    if (
        weight.dtype != np.float32
        or weight.ndim != 2
        or weight.shape[1] != columns
        or bias.shape != weight.shape[:1]
    ):
        raise ValueError(
            f"{LABEL_VECTORS}: found a map of {weight.shape}; expected float32 of {columns} columns"
        )
    linear = nn.Linear(columns, len(weight), device="meta")  # draws nothing
    linear.weight = nn.Parameter(torch.from_numpy(np.array(weight)))
    linear.bias = nn.Parameter(torch.from_numpy(np.array(bias, np.float32)))
    return linear
