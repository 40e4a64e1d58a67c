"""CascadeXML: one forward pass through the encoder, one level of the label tree at each of some
layers.

Kharbanda et al. 2022, CascadeXML: Rethinking Transformers for End-to-end Multi-resolution Training
in Extreme Multi-label Classification. The names are those of its algorithm 1: ϑ, S, y, p, α.

LightXML (Jiang et al. 2021) is the same way down with other settings: every level reads the last
five layers side by side, there is one level above the labels or none, and no loss is rescaled. So
are InceptionXML, XML-CNN and the methods with label text, on encoders that read vectors of words:
their clusters of labels are the one level above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from longtail.config import Cascade as Settings
from longtail.config import Training
from longtail.features.encoder import Encoder
from longtail.features.text_encoder import TextEncoder
from longtail.networks.base import Ranked
from longtail.networks.batches import Batch
from longtail.networks.cascade_family import (
    check_depth,
    check_levels,
    dropouts,
    level_layers,
    shortlist_sizes,
    vector_widths,
)
from longtail.networks.graphs import BatchReader
from longtail.networks.heads.head import Head, head_settings
from longtail.networks.heads.sharded_head import new_head
from longtail.networks.heads.text_head import TextHead
from longtail.networks.label_vectors import LabelVectors
from longtail.networks.layout import scores_all_labels
from longtail.networks.losses import Loss, loss_named
from longtail.networks.merging import merged, merging_layers
from longtail.networks.shortlist import Shortlist, TreeTables, best_nodes
from longtail.networks.training.stepper import adamw_groups
from longtail.tree.tree import LabelTree

__all__ = ["CascadeXML"]


@dataclass(frozen=True)
class CascadeOptions:
    """Options of a network beside its settings; :class:`CascadeXML` documents them."""

    std: float = 0.02
    label_head: TextHead | None = None
    frozen_levels: int = 0
    loss: Loss | None = None


class CascadeKeywords(TypedDict, total=False):
    """The fields of :class:`CascadeOptions` as keyword arguments."""

    std: float
    label_head: TextHead | None
    frozen_levels: int
    loss: Loss | None


class CascadeXML(nn.Module):
    """Encoder, label tree and one :class:`Head` per level."""

    family: ClassVar[str] = "cascade"
    heads: Sequence[Head | TextHead]

    def __init__(
        self,
        encoder: TextEncoder,
        tree: LabelTree,
        settings: Settings,
        training: Training,
        seed: int,
        device: torch.device | str = "cpu",
        **options: Unpack[CascadeKeywords],
    ) -> None:
        """Make a network that is still to be trained.

        Args:
            encoder: Φ.
            tree: The label tree; each of its levels has classifiers.
            settings: Those of CascadeXML.
            training: How encoder and classifiers are trained.
            seed: Of all that is random; each level has another one.
            device: Where the network is.
            **options: Fields of ``CascadeOptions``, below.

        Keyword Args:
            std: Deviation of the initial classifiers where ``settings.label_rows`` leaves them
                normal; with 0 they are still to be set.
            label_head: The classifiers of the labels, if the labels' words make them.
            frozen_levels: Levels, the first ones, that do not learn.
            loss: L(p, y), in the place of ``training.loss``.
        """
        super().__init__()
        asked = CascadeOptions(**options)
        check_levels(tree.widths, settings)
        self.encoder = encoder
        self.tables = TreeTables(tree)
        self.settings = settings
        self.training_settings = training
        self.loss = asked.loss or loss_named(training.loss)
        self.layers = settings.layers or level_layers(encoder.depth, tree.n_levels, settings.merge)
        self.kept = settings.shortlist or shortlist_sizes(tree.widths)
        self.last = tree.n_levels - 1
        self.full = scores_all_labels(settings.last_level, tree.n_labels)
        self.frozen_levels = asked.frozen_levels
        check_depth(self.layers, encoder.depth)
        rates = settings.dropout or dropouts(tree.n_levels, settings.merge)
        self.merges, self.dropouts = merging_layers(
            self.layers, encoder.width, settings, rates, seed
        )
        self.widths = list(
            vector_widths(self.layers, encoder.width, settings.merge, settings.bottleneck)
        )
        n_nodes = tree.widths
        if asked.label_head is not None:
            n_nodes = n_nodes[: self.last]
        heads: list[Head | TextHead] = [
            *_heads(n_nodes, self.widths, settings, training, seed, device, asked.std)
        ]
        if asked.label_head is not None:
            heads.append(asked.label_head)
        self.heads = nn.ModuleList(heads)  # type: ignore[assignment]
        self.to(device)
        if training.compile and isinstance(encoder, Encoder):
            encoder.model.compile()
        self.read = BatchReader(encoder, training.batch_size)

    @property
    def slots(self) -> list[int]:
        """Slots of each level's shortlist without true labels added: all nodes, then the children
        of those kept.
        """
        slots = [self.tables.widths[0]]
        for kept, most in zip(self.kept, self.tables.most_children, strict=True):
            slots.append(min(kept, slots[-1]) * most)
        if self.full:
            return [*slots[:-1], self.tables.widths[-1]]
        return slots

    def vectors(self, ids: Tensor, mask: Tensor | None, detached: bool = False) -> list[Tensor]:
        """Return ϑ^(t), the (B, d_t) vector that each level reads.

        With ``detached`` the labels train only the layers that they alone read, and their merging
        layer."""
        layers = sorted({layer for read in self.layers for layer in read})
        above = {layer for read in self.layers[:-1] for layer in read}
        alone = [layer for layer in layers if detached and layer not in above]
        by_layer = dict(zip(layers, self.read(self.encoder, ids, mask, layers, alone), strict=True))
        parts = [[by_layer[layer] for layer in read] for read in self.layers]
        if detached:  # layers that levels above read as well have nothing that is the labels' alone
            parts[-1] = [
                by_layer[layer] if layer in alone else by_layer[layer].detach()
                for layer in self.layers[-1]
            ]
        return [
            merged(merge, level_parts)
            for merge, level_parts in zip(self.merges, parts, strict=True)
        ]

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss of each level, α_t·L^(t): algorithm 1, whose last line is the training
        loop's.
        """
        losses: list[Tensor] = []
        sizes: list[Tensor] = []  # |S^(t)| of each document
        top = None  # S_top of the level above
        # ϑ^(t), in one forward pass
        theta = self.vectors(batch.ids, batch.mask, self._is_detached(batch.epoch))
        for t, head in enumerate(self.heads):
            vector = self.dropouts[t](theta[t])
            # R^(t)(y): true (meta-)labels
            y, values = self.tables.cover(t, batch.positives, batch.values)
            if self._scores_all(t) and self.loss.by_node is not None:
                # Σ_l L(p_l, y_l), l in all labels
                losses.append(head.full_loss(vector, y, values, self.loss.by_node))
                sizes.append(y.new_full((len(y),), self.tables.widths[t]))
                continue
            shortlist = self._shortlist(t, top, y, values)  # S^(t), eq. 3
            p = head.scores(vector, shortlist.nodes)  # p_i = ⟨w_i, ϑ^(t)⟩ for i in S^(t)
            top = self._top(t, p, shortlist.nodes)  # S_top, eq. 2
            if t >= self.frozen_levels:
                counted = shortlist.counted(p)
                # Σ_l L(p_l, y_l), l in S^(t)
                losses.append(self.loss.value(p, shortlist.targets, counted))
                sizes.append(counted.sum(1))
        return self._weighted(losses, torch.stack(sizes).float())

    def _is_detached(self, epoch: int) -> bool:
        """Return whether labels leave the encoder to the levels above, if there are any, in this
        epoch.
        """
        return self.last > 0 and epoch < self.settings.detach_epochs

    def _scores_all(self, t: int) -> bool:
        """Return whether the level is that of the labels, and all of them are scored,
        one-vs-all.
        """
        return self.full and t == self.last

    def _shortlist(self, t: int, top: Tensor | None, y: Tensor, values: Tensor) -> Shortlist:
        """Return S^(t): all nodes, or R↓(S_top) ∪ R^(t)(y) (eq. 3)."""
        if top is None or self._scores_all(t):
            return self.tables.all_nodes(t, y, values)
        return self.tables.refine_with(t - 1, top, y, values)

    def _top(self, t: int, p: Tensor, nodes: Tensor | None) -> Tensor | None:
        """Return S_top, the k best nodes (eq. 2); None below the last level."""
        if t < self.last:
            return best_nodes(p, nodes, self.kept[t])[0]
        return None

    def _weighted(self, losses: list[Tensor], sizes: Tensor) -> dict[str, Tensor]:
        """Return α_t / |S^(t)| · Σ_l L(p_l, y_l), the mean over documents (eq. 4, 5); ``sizes``
        (levels, B).
        """
        alpha = torch.ones_like(sizes)
        if self.settings.rescale:
            alpha = sizes / sizes.min(0).values
        return {
            f"level {self.frozen_levels + t + 1}": (alpha[t] / sizes[t] * loss).mean()
            for t, loss in enumerate(losses)
        }

    @torch.no_grad()
    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        """Return the ``k`` best labels: the same way down without the true labels."""
        theta = self.vectors(ids, mask)
        nodes: Tensor | None = None
        factor: Tensor | None = None  # of a node's score, by its parent
        kept: list[Tensor] = []
        for t, head in enumerate(self.heads):
            if self._scores_all(t):
                p, nodes = head.best(theta[t], k)
                return Ranked(p.sigmoid(), nodes, theta[t], tuple(kept))
            p = head.scores(theta[t], nodes)  # (B, S)
            sigma = p.sigmoid()
            scores = sigma
            if factor is not None:
                scores = sigma * factor.repeat_interleave(self.tables.most_children[t - 1], 1)
            if t < self.last:
                top, slots = best_nodes(p, nodes, self.kept[t])
                kept.append(top)
                factor = self._factor(sigma, scores).gather(1, slots)
                nodes = self.tables.refine(t, top)
        nodes, slots = best_nodes(scores, nodes, k, ordered=True)
        return Ranked(
            scores.gather(1, slots).masked_fill(nodes < 0, 0), nodes, theta[-1], tuple(kept)
        )

    @torch.no_grad()
    def path_scores(self, ids: Tensor, mask: Tensor | None, path: Sequence[int]) -> Tensor:
        """Return (B,) the score of the label with this path of nodes, one a level, whether it is
        ranked or not.

        It is the product of those σ that a label's score is made of, in float64: some are near 1.
        """
        theta = self.vectors(ids, mask)
        if self.full:
            above = 0
        else:
            above = {"level": 0, "weighted": 1, "path": self.last}[self.settings.score]
        scores: Tensor = theta[-1].new_ones(len(theta[-1]), dtype=torch.float64)
        for t in range(max(self.last - above, 0), self.last + 1):
            node = torch.full((len(scores), 1), path[t], dtype=torch.int32, device=scores.device)
            scores *= self.heads[t].scores(theta[t], node)[:, 0].double().sigmoid()
        return scores

    def _factor(self, sigma: Tensor, scores: Tensor) -> Tensor:
        """Return the factor of the children's scores: 1, σ of their parent, or the product of all σ
        above.
        """
        return {"level": torch.ones_like(sigma), "weighted": sigma, "path": scores}[
            self.settings.score
        ]

    def in_half(self) -> CascadeXML:
        """Return a network for ranking that shares all but encoder and merging layers, which are
        bfloat16 there.
        """
        half = copy(self)
        half._modules = dict(self._modules)
        half.encoder = deepcopy(self.encoder).bfloat16()
        half.merges = deepcopy(self.merges).bfloat16()
        return half.eval()

    def optimiser_groups(self) -> list[dict[str, Any]]:
        """Return the parameters that AdamW trains; classifiers train themselves."""
        decayed, plain = self.encoder.decay_groups()
        label_weights, label_biases = self.heads[-1].optimiser_parameters()
        decayed = [weight for weight in (*decayed, *label_weights) if weight.requires_grad]
        plain = [vector for vector in (*plain, *label_biases) if vector.requires_grad]
        if self.settings.merge_training == "encoder":
            return adamw_groups(
                decayed, [*plain, *self.merges.parameters()], self.training_settings
            )
        return adamw_groups(decayed, plain, self.training_settings) + self._merging_groups()

    def _merging_groups(self) -> list[dict[str, Any]]:
        """Return the parameters of the merging layers at the rate and decay of classifiers; biases
        do not decay.
        """
        rate = self.training_settings.head_rate
        decay = self.training_settings.head_decay
        weights = [parameter for parameter in self.merges.parameters() if parameter.ndim > 1]
        biases = [parameter for parameter in self.merges.parameters() if parameter.ndim <= 1]
        if not weights:  # each level reads one layer
            return []
        return [
            {"params": weights, "lr": rate, "weight_decay": decay},
            {"params": biases, "lr": rate, "weight_decay": 0.0},
        ]

    def to_arrays(self, state: bool = False) -> dict[str, np.ndarray]:
        """Return all weights; with ``state`` those of the classifiers' optimisers, too."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in self._trained().items()}
        for t, head in enumerate(self.heads):
            arrays |= {f"heads.{t}.{name}": array for name, array in head.to_arrays(state).items()}
        return arrays

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the weights of :meth:`to_arrays`."""
        with torch.no_grad():
            for name, tensor in self._trained().items():
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))
        for t, head in enumerate(self.heads):
            prefix = f"heads.{t}."
            head.load_arrays(
                {
                    name.removeprefix(prefix): arrays[name]
                    for name in arrays
                    if name.startswith(prefix)
                }
            )

    def _trained(self) -> dict[str, Tensor]:
        """Return the tensors that AdamW trains, by name."""
        parts = {"encoder": self.encoder, "merges": self.merges}
        return {
            f"{name}.{key}": tensor
            for name, part in parts.items()
            for key, tensor in part.state_dict().items()
        }

    def label_vectors(self) -> LabelVectors:
        """Return the encoder with what merges the layers that labels read."""
        return LabelVectors(self.encoder, self.layers[-1], self.merges[-1])


def _heads(
    nodes: Sequence[int],
    widths: Sequence[int],
    settings: Settings,
    training: Training,
    seed: int,
    device: torch.device | str,
    std: float,
) -> list[Head]:
    """Return the classifiers of some levels at random initial weights, or with ``std`` 0 still to
    be set.

    Args:
        nodes: Nodes of each level.
        widths: Columns of the vector that each level reads.
        settings: Their ``label_rows`` are Xavier uniform or normal.
        training: How the classifiers are trained.
        seed: Of the first level; each further one has the next.
        device: Where the classifiers are.
        std: Deviation of rows that are normal.
    """
    xavier = settings.label_rows == "xavier" and std > 0
    heads = []
    for level, count in enumerate(nodes):
        normal = 0.0 if xavier else std
        head = new_head(
            count,
            widths[level],
            seed=seed + level,
            std=normal,
            device=device,
            **head_settings(training),
        )
        if xavier:
            head.set_xavier_rows(seed + level)
        heads.append(head)
    return heads
