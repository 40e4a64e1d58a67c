"""AttentionXML on several label trees, networks whose scores of a label are averaged; and the files
of one or several in a model folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, cast

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.config import Config
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokeniser
from longtail.networks.attention import AttentionLevel, AttentionXML
from longtail.networks.base import Ranked
from longtail.networks.encoders.lstm import LstmEncoder
from longtail.networks.heads.head import Head
from longtail.networks.label_vectors import LabelVectors
from longtail.networks.ranker import TREE, NeuralRanker, map_rows
from longtail.networks.shortlist import best_nodes
from longtail.store import Folder, FolderWriter
from longtail.tree.tree import LabelTree

__all__ = ["AttentionTrees", "load_attention", "mean_scores", "save_attention"]

_ENCODER = "encoder."
_HEAD = "head."


class AttentionTrees(nn.Module):
    """Networks of several label trees. The score of a label is the mean over the trees, in which a
    tree that does not have it among its candidates counts as 0.

    Nodes, vectors, widths and kept nodes are those of the first tree.
    """

    family: ClassVar[str] = "attention"
    networks: Sequence[AttentionXML]
    positions: Tensor

    def __init__(self, networks: Sequence[AttentionXML], trees: Sequence[LabelTree]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)  # type: ignore[assignment]
        self.trees = tuple(trees)
        self.training_settings = networks[0].training_settings
        first = trees[0].positions
        # (trees, L) the position in the first tree of each position in a tree
        positions = [torch.from_numpy(first[tree.order]).int() for tree in trees]
        device = next(networks[0].parameters()).device
        self.register_buffer("positions", torch.stack(positions).to(device), persistent=False)

    @property
    def encoder(self) -> LstmEncoder:
        """The encoder of the first level of the first tree."""
        return self.networks[0].encoder

    @property
    def heads(self) -> list[Head]:
        """The attention vectors of each level; those of the first tree are the last ones."""
        others = [head for network in self.networks[1:] for head in network.heads]
        return [*others, *self.networks[0].heads]

    @property
    def widths(self) -> list[int]:
        """Columns of the vectors of each level of the first tree."""
        return self.networks[0].widths

    @property
    def slots(self) -> list[int]:
        """Nodes that are scored on each level of the first tree, of labels those of all trees."""
        first = self.networks[0].slots
        n_labels = sum(network.slots[-1] for network in self.networks)
        return [*first[:-1], min(n_labels, self.positions.shape[1])]

    def vectors(self, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the mean of H of each level of the first tree, (B, 2h)."""
        return self.networks[0].vectors(ids, mask)

    @torch.no_grad()
    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        """Return the ``k`` labels with the best mean scores, as positions in the first tree."""
        scored = [network.scored_labels(ids, mask) for network in self.networks]
        labels = list[Tensor]()
        for candidates, position in zip(scored, self.positions, strict=True):
            if candidates.nodes is None:
                labels.append(position.expand(len(ids), -1))
                continue
            known = position[candidates.nodes.clamp(min=0).long()]
            labels.append(known.masked_fill(candidates.nodes < 0, -1))
        scores = torch.cat([candidates.scores for candidates in scored], 1)
        scores, nodes = mean_scores(scores, torch.cat(labels, 1), len(scored))
        nodes, at = best_nodes(scores, nodes, k, ordered=True)
        scores = scores.gather(1, at).masked_fill(nodes < 0, 0)
        return Ranked(scores, nodes, scored[0].vectors, scored[0].kept)

    @torch.no_grad()
    def path_scores(self, ids: Tensor, mask: Tensor | None, path: Sequence[int]) -> Tensor:
        """Return (B,) float64 the mean score of the label with this path in the first tree, whether
        ranked or not.
        """
        label = int(self.trees[0].order[path[-1]])
        scores = [
            network.path_scores(ids, mask, tree.ancestors(label))
            for network, tree in zip(self.networks, self.trees, strict=True)
        ]
        return torch.stack(scores).mean(0)

    def in_half(self) -> AttentionTrees:
        """Return networks for ranking that share the attention vectors; the rest is bfloat16
        there.
        """
        return AttentionTrees([network.in_half() for network in self.networks], self.trees).eval()

    def label_vectors(self) -> LabelVectors:
        """Return the encoder of the last level of the first tree."""
        return self.networks[0].label_vectors()


def mean_scores(scores: Tensor, labels: Tensor, n_trees: int) -> tuple[Tensor, Tensor]:
    """Return scores and labels (B, N) in which a label occurs once per document, with the sum of
    its scores over ``n_trees``; further slots have label −1.

    Args:
        scores: of the candidates of all trees (B, N).
        labels: these candidates (B, N), −1 for padding; a label at most once per tree.
        n_trees: number of trees.
    """
    labels, at = labels.sort(dim=1, stable=True)
    scores = scores.gather(1, at)
    totals = scores.clone()
    # equal labels are neighbours, at most one per tree
    for step in range(1, n_trees):
        same = labels[:, step:] == labels[:, :-step]
        totals[:, :-step] += scores[:, step:].masked_fill(~same, 0)
    repeated = torch.zeros_like(labels, dtype=torch.bool)
    repeated[:, 1:] = labels[:, 1:] == labels[:, :-1]
    return totals / n_trees, labels.masked_fill(repeated, -1)


def save_attention(ranker: NeuralRanker, folder: FolderWriter) -> None:
    """Write each tree, and the network of each of its levels; the encoder of the first level of the
    first tree is written by others.
    """
    network = ranker.network
    if isinstance(network, AttentionTrees):
        networks = list(network.networks)
        trees = network.trees
    else:
        networks = [cast(AttentionXML, network)]
        trees = (ranker.tree,)
    for number, (of_tree, tree) in enumerate(zip(networks, trees, strict=True)):
        folder.write_arrays(_tree_file(number), tree.to_arrays())
        for level in of_tree.levels:
            arrays = level.to_arrays()
            if _is_first(number, level):
                arrays = {name: arrays[name] for name in arrays if not name.startswith(_ENCODER)}
            folder.write_arrays(_level_file(number, level.level), arrays)


def load_attention(
    folder: Folder, config: Config, tokeniser: Tokeniser, encoder: TextEncoder, device: torch.device
) -> NeuralRanker:
    """Read the trees, and the levels below an encoder, which becomes the first one's; on the CPU
    attention vectors stay mapped.
    """
    if encoder.kind != "lstm":
        raise ValueError(f"attention: found an encoder {type(encoder).__name__}; expected an LSTM")
    encoder = cast(LstmEncoder, encoder)
    trees = [
        LabelTree.from_arrays(folder.arrays(_tree_file(number)))
        for number in range(config.attention.trees)
    ]
    if len({tree.n_labels for tree in trees}) > 1:
        raise ValueError(f"{_tree_file(1)}: found other labels than in {TREE}")
    networks = [
        _load_network(folder, config, tree, encoder, number) for number, tree in enumerate(trees)
    ]
    if len(networks) == 1:
        return NeuralRanker(tokeniser, networks[0].to(device), trees[0]).freeze()
    return NeuralRanker(tokeniser, AttentionTrees(networks, trees).to(device), trees[0]).freeze()


def _load_network(
    folder: Folder, config: Config, tree: LabelTree, encoder: LstmEncoder, number: int
) -> AttentionXML:
    """Read the levels of the tree ``number``."""
    training = replace(config.training, head_optimiser="sgd")  # no optimiser's state in memory
    levels = list[AttentionLevel]()
    for t in range(tree.n_levels):
        level_encoder = encoder
        if number or t:
            level_encoder = deepcopy(encoder)
        level = AttentionLevel(
            level_encoder, tree, t, config.attention, training, config.seed, std=0
        )
        _load_level(level, folder.arrays(_level_file(number, t)), number)
        levels.append(level)
    return AttentionXML(levels)


def _load_level(level: AttentionLevel, arrays: Mapping[str, NDArray[Any]], number: int) -> None:
    """Read what was trained; the encoder of the first level is the folder's."""
    file = _level_file(number, level.level)
    for name, tensor in level.trained().items():
        if name.startswith(_ENCODER) and _is_first(number, level):
            continue
        array = arrays.get(name)
        if array is None or array.shape != tuple(tensor.shape):
            shape = getattr(array, "shape", "nothing")
            expected = tuple(tensor.shape)
            raise ValueError(f"{file}, {name}: found {shape}; expected {expected}")
        tensor.copy_(torch.from_numpy(np.array(array)))
    map_rows(level.heads[0], {name: arrays[_HEAD + name] for name in ("weight", "bias")})


def _is_first(number: int, level: AttentionLevel) -> bool:
    """Return whether the encoder of a level is the one in ``encoder/``."""
    return number == 0 and level.level == 0


def _tree_file(number: int) -> str:
    if not number:
        return TREE
    return f"tree-network-{number}.safetensors"


def _level_file(number: int, level: int) -> str:
    if not number:
        return f"attention-{level}.safetensors"
    return f"attention-tree-{number}-{level}.safetensors"
