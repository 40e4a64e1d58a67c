"""XR-Transformer: the encoder is tuned on one level of a label tree after the other, from coarse to
fine.

Zhang et al. 2021, Fast Multi-Resolution Transformer Fine-tuning for Extreme Multi-label Text
Classification. The names are those of its equations 5 to 11: Θ the encoder, W the classifiers of a
level, R̂ relevances, P matched nodes, M what is trained on. With one level above the labels it is
X-Transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from longtail.config import Recursive, Training
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokens
from longtail.networks.base import VectorNetwork
from longtail.networks.batches import Batch
from longtail.networks.embedder import Embedder, LastLayer
from longtail.networks.heads.head import Head, head_settings
from longtail.networks.heads.sharded_head import new_head
from longtail.networks.layout import LevelSettings
from longtail.networks.losses import Loss, NodeLoss, loss_named
from longtail.networks.shortlist import Shortlist, TreeTables, best_nodes
from longtail.networks.training.stepper import adamw_groups
from longtail.tree.tree import LabelTree

__all__ = ["Matcher", "Resolution", "joined_nodes"]

Nodes = NDArray[np.int32]  # (n, k) nodes of a level for each document, −1 where there are fewer


class Resolution(LastLayer):
    """The encoder, whose last layer is Φ_dnn(x, Θ), and the classifiers W^(t) of one level: they
    learn together.
    """

    heads: Sequence[Head]

    def __init__(
        self,
        encoder: TextEncoder,
        tree: LabelTree,
        level: int,
        settings: LevelSettings,
        training: Training,
        seed: int,
        std: float = 0.02,
        loss: Loss | None = None,
    ) -> None:
        """Make the network of a level where the encoder is; ``parents`` are to be set before it
        learns.

        Args:
            encoder: Θ.
            tree: The label tree.
            level: The level of the tree.
            settings: Those of XR-Transformer, or of AttentionXML.
            training: Says how the encoder and the classifiers are trained.
            seed: Of the random initial classifiers; each level has another one.
            std: Deviation of the initial classifiers, which are normal; with 0, they are still to
            be set.
            loss: L of a node, in the place of ``training.loss``.
        """
        super().__init__(encoder)
        self.loss = loss or loss_named(training.loss)
        self.tables = TreeTables(tree)
        self.level = level
        self.settings = settings
        self.training_settings = training
        device = next(encoder.parameters()).device
        settings_of_head = head_settings(training)
        head = new_head(
            tree.widths[level],
            encoder.width,
            seed=seed + level,
            std=std,
            device=device,
            **settings_of_head,
        )
        self.heads = nn.ModuleList([head])  # type: ignore[assignment]
        self.dropout = nn.Dropout(settings.dropout)
        # of every document, those above M^(t); None: all nodes are trained on
        self.parents: Nodes | None = None
        self.to(device)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the mean over M of R̂ · L(y, Wᵀ Φ_dnn), eq. 9; λ‖W‖² is the weight decay of the
        classifiers.

        The batch's positives are nodes of this level, their values R (eq. 6): how many of the
        document's labels lie below a node, or the sum of these labels' values where labels are
        soft."""
        m = self.shortlist(batch)
        _, p = self.scores(batch.ids, batch.mask, m.nodes)
        counted = m.counted(p)
        loss = self.loss.by_node
        if loss is not None:
            positive, negative = self._relevances(
                loss, m.targets, batch.values.sum(1, keepdim=True)
            )
            total = loss.weighted(p, positive, negative, counted)
        else:
            total = self.loss.value(p, m.targets.clamp(max=1), counted)
        return {f"level {self.level + 1}": (total / counted.sum(1)).mean()}

    def _relevances(
        self, loss: NodeLoss, relevance: Tensor, totals: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return R̂, the weights (B, S) of the nodes as positives and as negatives of their
        document.

        A node's target is y = min(R, 1), the capped sum of the values of the document's labels
        below it.

        - As a positive it weighs y, or with ``cost_sensitive`` R̂ = R / max(ΣR, 1), where ΣR adds
          up the document's nodes. Hard labels add up to 1 or more, so that this is eq. 6; and a
          value below 1 is not made larger.
        - As a negative it weighs as the loss says, with ``cost_sensitive`` times α: 1 − y with
          ``bce``, which is the cross-entropy with the soft target y; with ``squared-hinge`` [y =
          0].

        Args:
            loss: L of a node.
            relevance: R (B, S), 0 at nodes without a label of the document.
            totals: ΣR (B, 1).
        """
        positive, negative = loss.weights(relevance.clamp(max=1))
        settings = self.settings
        if isinstance(settings, Recursive) and settings.cost_sensitive:
            return relevance / totals.clamp(min=1), settings.alpha * negative
        return positive, negative

    def scores(
        self, ids: Tensor, mask: Tensor | None, nodes: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return vectors (B, d), and the scores of ``nodes`` (B, S), None standing for all of the
        level.
        """
        x = self.dropout(self.vectors(ids, mask)[0])
        return x, self.heads[0].scores(x, nodes)

    def shortlist(self, batch: Batch) -> Shortlist:
        """Return M^(t): the children of the parents set (eq. 8)."""
        if self.parents is None:
            return self.tables.all_nodes(self.level, batch.positives, batch.values)
        batch_parents = self.parents[batch.rows]
        batch_parents = batch_parents[
            :, : (batch_parents >= 0).sum(1).max(initial=1)
        ]  # as wide as the batch needs, not all documents
        parents = torch.from_numpy(batch_parents).to(batch.positives.device)
        return self.tables.refine_with(self.level - 1, parents, batch.positives, batch.values)

    def best(
        self, ids: Tensor, mask: Tensor | None, parents: Tensor | None, k: int
    ) -> tuple[Tensor, Tensor]:
        """Return vectors (B, d), and the ``k`` best nodes below ``parents`` (B, m), best first."""
        nodes = None
        if parents is not None:
            nodes = self.tables.refine(self.level - 1, parents)
        x, scores = self.scores(ids, mask, nodes)
        return x, best_nodes(scores, nodes, k, ordered=True)[0]

    def optimiser_groups(self) -> list[dict[str, Any]]:
        """Return the parameters that AdamW trains; classifiers train themselves."""
        return adamw_groups(*self.encoder.decay_groups(), self.training_settings)

    def to_arrays(self, state: bool = False) -> dict[str, np.ndarray]:
        """Return all weights; with ``state`` those of the classifiers' optimiser, too."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in self.trained().items()}
        return arrays | {
            f"head.{name}": array for name, array in self.heads[0].to_arrays(state).items()
        }

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the weights of :meth:`to_arrays`."""
        with torch.no_grad():
            for name, tensor in self.trained().items():
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))
        of_head = {
            name.removeprefix("head."): array
            for name, array in arrays.items()
            if name.startswith("head.")
        }
        self.heads[0].load_arrays(of_head)

    def trained(self) -> dict[str, Tensor]:
        """Return the tensors that AdamW trains, by name."""
        return {f"encoder.{name}": tensor for name, tensor in self.encoder.state_dict().items()}


class NodeNetwork(VectorNetwork, Protocol):
    """A network that ranks the nodes of a level, ``level`` of ``tables``."""

    tables: TreeTables
    level: int

    def best(
        self, ids: Tensor, mask: Tensor | None, parents: Tensor | None, k: int
    ) -> tuple[Tensor, Tensor]:
        """Return vectors (B, d), and the ``k`` best nodes below ``parents`` (B, m), best first."""


class Matcher(Embedder):
    """A tuned level behind the face of an embedder: it also says which of its nodes fit a
    document.
    """

    network: NodeNetwork

    def match(
        self, tokens: Tokens, parents: Nodes | None, k: int
    ) -> tuple[NDArray[np.float32], Nodes]:
        """Return (n, d) vectors, and P^(t), the ``k`` best nodes below ``parents`` (n, m), best
        first (eq. 7).
        """
        k = min(k, self.network.tables.widths[self.network.level])
        vectors = np.zeros((len(tokens), self.width), np.float32)
        nodes = np.full((len(tokens), k), -1, np.int32)

        def run(batch: Batch) -> tuple[Tensor, Tensor]:
            if parents is None:
                batch_parents = None
            else:
                batch_parents = torch.from_numpy(parents[batch.rows]).to(batch.ids.device)
            return self.network.best(batch.ids, batch.mask, batch_parents, k)

        for rows, (x, top) in self._each(tokens, run):
            vectors[rows], nodes[rows, : top.shape[1]] = x.float().cpu(), top.cpu()
        return vectors, nodes


def joined_nodes(matched: Nodes, true: sparse.csr_array) -> Nodes:
    """Return P ∪ Y of each document (the parents in eq. 8), (n, m) rising, −1 behind the last."""
    rows, slots = np.nonzero(matched >= 0)
    true_rows = np.repeat(np.arange(true.shape[0]), np.diff(true.indptr))
    keys = np.unique(
        np.concatenate([rows, true_rows]) * np.int64(true.shape[1])
        + np.concatenate([matched[rows, slots], true.indices])
    )
    rows, nodes = np.divmod(keys, true.shape[1])
    counts = np.bincount(rows, minlength=len(matched))
    joined = np.full((len(matched), int(counts.max(initial=1))), -1, np.int32)
    joined[rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)] = nodes
    return joined
