"""CascadeXML and its kin as a ranker: also one that takes labels which it was not trained on, by
their words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from longtail.config import Cascade, Config
from longtail.data.csr import csr_of_nothing
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokeniser
from longtail.methods.registry import encoder_kind
from longtail.networks.cascade import CascadeXML
from longtail.networks.cascade_family import ranking_settings
from longtail.networks.heads.head import Head
from longtail.networks.heads.initial_rows import Rows
from longtail.networks.heads.label_text import Combine, LabelText
from longtail.networks.heads.text_head import TextHead
from longtail.networks.ranker import TREE, NeuralRanker, map_rows
from longtail.store import Folder, FolderWriter
from longtail.tree.tree import LabelTree

__all__ = ["CascadeRanker", "load_cascade", "no_words", "save_cascade"]

_MERGES = "merges.safetensors"
_LABEL_TEXT = "label-text.safetensors"
_ADDED = "added"  # labels after training


class CascadeRanker(NeuralRanker):
    """A ranker whose classifiers read the encoder's vectors.

    ``label_text`` has no labels: it composes classifiers of further ones, where words make those of
    labels."""

    network: CascadeXML
    label_text: LabelText | None = None

    @property
    def composer(self) -> CascadeRanker | None:
        """This network, if label words made its classifiers, and can make those of further
        labels.
        """
        if self.label_text is None:
            return None
        return self

    def compose_label_head(self) -> None:
        """Turn classifiers that label words make into plain ones, and keep their composition for
        labels to come.
        """
        text = self.network.heads[-1].text
        if text is not None:
            label_head = cast(TextHead, self.network.heads[-1])
            self.network.heads[-1] = label_head.as_head()  # type: ignore[index]
            self.label_text = _same_weights(text, no_words(text.embedding))

    def composed(self, words: sparse.csr_array) -> NDArray[np.float32]:
        """Return classifiers (n, d) of labels that were never trained on, made of their words (n,
        V).
        """
        if self.label_text is None:
            raise ValueError("classifiers of new labels: found none that words make")
        rows: NDArray[np.float32] = self.label_text.new_rows(words).numpy(force=True)
        return rows

    def extended(
        self, tree: LabelTree, rows: Mapping[int, Rows], settings: Cascade
    ) -> CascadeRanker:
        """Return a ranker of a tree with n labels more, the last ones; what does not change is
        shared with this one.

        ``rows`` are the new classifiers (n, d) and biases (n,) of each level that has a node a
        label."""
        old = self.network
        # no optimiser's state in memory
        training = replace(old.training_settings, head_optimiser="sgd")
        network = CascadeXML(
            old.encoder, tree, settings, training, seed=0, device=self.device, std=0
        )
        network.merges = old.merges
        for level, head in enumerate(old.heads):
            if level in rows:
                head = _joined(head, rows[level], self.tree, tree)
            network.heads[level] = head  # type: ignore[index]
        ranker = CascadeRanker(self.tokeniser, network, tree)
        ranker.label_text = self.label_text
        ranker.n_added = self.n_added + tree.n_labels - self.tree.n_labels
        return ranker.freeze()


def no_words(embedding: nn.Embedding) -> sparse.csr_array:
    """Return (0, V) words of no labels."""
    return csr_of_nothing(0, embedding.num_embeddings)


def _same_weights(text: LabelText, words: sparse.csr_array) -> LabelText:
    """Return Φ_l, Φ_g and 𝒜 of ``text`` for the labels of other words (n, V)."""
    combine: Combine = "attention"
    if text.attention is None:
        combine = "sum"
    # each its only neighbour
    alone = sparse.csr_array(sparse.eye_array(words.shape[0], dtype=np.float32))
    same = LabelText(text.embedding, words, alone, text.parts, combine, seed=0).eval()
    same.start_from(text)
    return same


def _joined(head: Head | TextHead, new: Rows, before: LabelTree, after: LabelTree) -> Head:
    """Return a head of the nodes of ``after``, one a label: those of ``before`` and new ones."""
    known = np.minimum(after.order, before.n_labels - 1)
    source = torch.from_numpy(
        np.where(after.order == known, before.positions[known], after.order)
    ).to(head.bias.device)
    weight = torch.cat([head.weight, torch.from_numpy(new.weights).to(head.weight)])
    bias = torch.cat([head.bias, torch.from_numpy(new.bias).to(head.bias)])
    joined = Head(*weight.shape, optimiser="sgd", dtype=weight.dtype, std=0, device=weight.device)
    joined.set_rows(weight[source], bias[source])
    return joined


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
        map_rows(cast(Head, head), folder.arrays(f"head-{level}.safetensors"))
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
    if not encoder_kind(encoder.kind).reads_words:
        raise ValueError(f"{_LABEL_TEXT}: found it beside an encoder without vectors of words")
    settings = config.label_text
    vectors = encoder.token_vectors()
    none = no_words(vectors)
    text = LabelText(vectors, none, none[:, :0], settings.parts, settings.combine, seed=0).eval()
    try:
        text.load_state_dict(
            {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        )
    except RuntimeError as error:
        raise ValueError(f"{_LABEL_TEXT}: {' '.join(str(error).split())[:200]}") from error
    return text
