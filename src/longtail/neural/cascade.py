"""CascadeXML: one forward pass through the encoder, one level of the label tree at each of some layers.

Kharbanda et al. 2022, CascadeXML: Rethinking Transformers for End-to-end Multi-resolution Training in Extreme
Multi-label Classification. The names are those of its algorithm 1: ϑ, S, y, p, α.

LightXML (Jiang et al. 2021) is the same way down with other settings: every level reads the last five layers side by
side, there is one level above the labels or none, and no loss is rescaled. So are InceptionXML, XML-CNN and the methods
with label text, on encoders that read vectors of words: their clusters of labels are the one level above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from longtail.config import Cascade as Settings
from longtail.config import Training
from longtail.features.encoder import Encoder
from longtail.features.text_encoder import TextEncoder
from longtail.neural.batches import Batch
from longtail.neural.heads.head import Head, head_settings
from longtail.neural.heads.sharded_head import new_head
from longtail.neural.heads.text_head import TextHead
from longtail.neural.layout import (
    check_depth,
    check_levels,
    dropouts,
    level_layers,
    scores_all_labels,
    shortlist_sizes,
    vector_widths,
)
from longtail.neural.losses import Loss, NodeLoss, loss_named
from longtail.neural.merging import merged, merging_layers
from longtail.neural.networks import Ranked
from longtail.neural.ranks import current_ranks
from longtail.neural.shortlist import Shortlist, TreeTables, best_nodes
from longtail.neural.training.stepper import adamw_groups
from longtail.neural.words.encoder_graphs import EncoderGraphs
from longtail.neural.words.word_encoder import WordEncoder
from longtail.tree.tree import LabelTree

__all__ = ["CascadeXML"]


class CascadeXML(nn.Module):
    """Encoder, label tree and one :class:`Head` a level."""

    heads: Sequence[Head | TextHead]

    def __init__(
        self,
        encoder: TextEncoder,
        tree: LabelTree,
        settings: Settings,
        training: Training,
        seed: int,
        device: torch.device | str = "cpu",
        std: float = 0.02,
        of_labels: TextHead | None = None,
        fixed: int = 0,
        loss: Loss | None = None,
    ) -> None:
        """Make a network whose classifiers are normal with deviation ``std``, or as ``settings.label_rows`` says.

        With ``std`` 0 they are still to be set. ``of_labels`` are those of the labels if their words make them; the
        first ``fixed`` levels do not learn. ``loss`` stands in the place of ``training.loss``.
        """
        super().__init__()
        self.loss = loss or loss_named(training.loss)
        self.encoder, self.tables, self.settings, self.training_settings = encoder, TreeTables(tree), settings, training
        check_levels(tree.widths, settings)
        self.layers = settings.layers or level_layers(encoder.depth, tree.n_levels, settings.merge)
        self.kept = settings.shortlist or shortlist_sizes(tree.widths)
        rates = settings.dropout or dropouts(tree.n_levels, settings.merge)
        self.last = tree.n_levels - 1
        self.full = scores_all_labels(settings.last_level, tree.n_labels)
        check_depth(self.layers, encoder.depth)
        self.merges, self.dropouts = merging_layers(self.layers, encoder.width, settings, rates, seed)
        self.widths = list(vector_widths(self.layers, encoder.width, settings.merge, settings.bottleneck))
        self.fixed, self.ranks = fixed, current_ranks()
        own_rows = tree.widths[: self.last] if of_labels is not None else tree.widths
        heads = _heads(own_rows, self.widths, settings, training, seed, device, std)
        self.heads = nn.ModuleList([*heads, *([] if of_labels is None else [of_labels])])  # type: ignore[assignment]
        self.to(device)
        if training.compile and isinstance(encoder, Encoder):
            encoder.model.compile()
        self.graphs = EncoderGraphs(encoder, training.batch_size) if isinstance(encoder, WordEncoder) else None

    @property
    def slots(self) -> list[int]:
        """Slots of each level's shortlist without true labels added: all nodes, then the children of those kept."""
        slots = [self.tables.widths[0]]
        for kept, most in zip(self.kept, self.tables.most_children, strict=True):
            slots.append(min(kept, slots[-1]) * most)
        return [*slots[:-1], self.tables.widths[-1]] if self.full else slots

    def vectors(self, ids: Tensor, mask: Tensor | None, detached: bool = False) -> list[Tensor]:
        """Return ϑ^(t), the (B, d_t) vector that each level reads.

        With ``detached`` the labels train only what in the encoder is theirs alone, and their merging layer.
        """
        if not len(ids):  # a rank without documents, which takes part in the exchanges of heads all the same
            learns = torch.is_grad_enabled()
            return [torch.zeros(0, width, device=ids.device, requires_grad=learns) for width in self.widths]
        wanted = sorted({layer for own in self.layers for layer in own})
        above = {layer for own in self.layers[:-1] for layer in own}
        alone = [layer for layer in wanted if layer not in above] if detached else []
        encode = self.graphs if self.graphs is not None and self.graphs.serve(ids) else self.encoder
        at = dict(zip(wanted, encode(ids, mask, wanted, alone), strict=True))
        parts = [[at[layer] for layer in own] for own in self.layers]
        if detached:  # layers that levels above read as well have nothing that is the labels' alone
            parts[-1] = [at[layer] if layer in alone else at[layer].detach() for layer in self.layers[-1]]
        return [merged(merge, own) for merge, own in zip(self.merges, parts, strict=True)]

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss of each level, α_t·L^(t): algorithm 1, whose last line is the training loop's."""
        detached = self.last > 0 and batch.epoch < self.settings.detach_epochs  # a level above learns
        theta = self.vectors(batch.ids, batch.mask, detached)  # forward pass through the transformer
        losses, sizes, top = [], [], None
        for t, head in enumerate(self.heads):
            y, values = self.tables.cover(t, batch.positives, batch.values)  # ground-truth (meta-)labels
            vector = self.dropouts[t](theta[t])
            if self._full(t) and isinstance(self.loss, NodeLoss):
                losses.append(head.full_loss(vector, y, values, self.loss))
                sizes.append(y.new_full((len(y),), self.tables.widths[t]))
                break
            shortlist = self._shortlist(t, top, y, values)  # S^(t), the true ones among them
            p = head.scores(vector, shortlist.nodes)  # sparse prediction: ⟨w_i, ϑ^(t)⟩ for i in S^(t)
            counted = shortlist.counted(p)
            if t >= self.fixed:
                losses.append(self.loss.value(p, shortlist.targets, counted))
                sizes.append(counted.sum(1))
            top, _ = best_nodes(p, shortlist.nodes, self.kept[t]) if t < self.last else (None, None)  # S_top
        return self._weighted(losses, torch.stack(sizes).float())

    def _shortlist(self, t: int, top: Tensor | None, y: Tensor, values: Tensor) -> Shortlist:
        if top is None or self._full(t):
            return self.tables.all_nodes(t, y, values)
        return self.tables.refine_with(t - 1, top, y, values)

    def _weighted(self, losses: list[Tensor], sizes: Tensor) -> dict[str, Tensor]:
        """Return α_t / |S^(t)| · Σ_l L(p_l, y_l), the mean over documents (eq. 4, 5); ``sizes`` (levels, B)."""
        alpha = sizes / sizes.min(0).values if self.settings.rescale else torch.ones_like(sizes)
        return {f"level {self.fixed + t + 1}": (alpha[t] / sizes[t] * loss).mean() for t, loss in enumerate(losses)}

    def _full(self, t: int) -> bool:
        return self.full and t == self.last

    @torch.no_grad()
    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        """Return the ``k`` best labels: the same way down without the true labels.

        Several ranks are given the same documents, rank their parts of them, and have all results.
        """
        if self.ranks.count == 1:
            return self._rank(ids, mask, k)
        own, lengths = self.ranks.part(len(ids)), self.ranks.lengths(len(ids))
        found = self._rank(ids[own], None if mask is None else mask[own], k)
        parts = found.scores.float(), found.nodes, found.vectors.float(), *found.kept
        scores, nodes, vectors, *kept = (self.ranks.gathered(part, lengths) for part in parts)
        return Ranked(scores, nodes, vectors, tuple(kept))

    def _rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        theta = self.vectors(ids, mask)
        nodes, above, kept = None, None, list[Tensor]()
        for t, head in enumerate(self.heads):
            if self._full(t):
                logits, nodes = head.best(theta[t], k)
                return Ranked(logits.sigmoid(), nodes, theta[t], tuple(kept))
            logits = head.scores(theta[t], nodes)  # (B, S)
            own = logits.sigmoid()
            scores = own if above is None else own * above.repeat_interleave(self.tables.most_children[t - 1], 1)
            if t < self.last:
                top, at = best_nodes(logits, nodes, self.kept[t])
                kept.append(top)
                above = self._carried(own, scores).gather(1, at)
                nodes = self.tables.refine(t, top)
        nodes, at = best_nodes(scores, nodes, k, ordered=True)
        return Ranked(scores.gather(1, at).masked_fill(nodes < 0, 0), nodes, theta[-1], tuple(kept))

    @torch.no_grad()
    def path_scores(self, ids: Tensor, mask: Tensor | None, path: Sequence[int]) -> Tensor:
        """Return (B,) the score of the label with this path of nodes, one a level, whether it is ranked or not.

        It is the product of those σ that a label's score is made of, in float64: some are near 1.
        """
        theta = self.vectors(ids, mask)
        above = 0 if self.full else {"level": 0, "weighted": 1, "path": self.last}[self.settings.score]
        scores: Tensor = theta[-1].new_ones(len(theta[-1]), dtype=torch.float64)
        for t in range(max(self.last - above, 0), self.last + 1):
            node = torch.full((len(scores), 1), path[t], dtype=torch.int32, device=scores.device)
            scores *= self.heads[t].scores(theta[t], node)[:, 0].double().sigmoid()
        return scores

    def _carried(self, own: Tensor, scores: Tensor) -> Tensor:
        """Return what a label's score is multiplied by: 1, σ of the parent, or the product of all σ above."""
        return {"level": torch.ones_like(own), "weighted": own, "path": scores}[self.settings.score]

    def in_half(self) -> CascadeXML:
        """Return a network for ranking that shares all but encoder and merging layers, which are bfloat16 there."""
        half = copy(self)
        half._modules = dict(self._modules)
        half.encoder, half.merges = deepcopy(self.encoder).bfloat16(), deepcopy(self.merges).bfloat16()
        return half.eval()

    def optimiser_groups(self) -> list[dict[str, Any]]:
        """Return the parameters that AdamW trains; classifiers train themselves."""
        own = self.heads[-1]
        text = own.optimiser_parameters() if isinstance(own, TextHead) else ([], [])
        decayed, plain = (
            [parameter for parameter in [*of_encoder, *of_text] if parameter.requires_grad]
            for of_encoder, of_text in zip(self.encoder.decay_groups(), text, strict=True)
        )
        if self.settings.merge_training == "encoder":
            return adamw_groups(decayed, [*plain, *self.merges.parameters()], self.training_settings)
        return adamw_groups(decayed, plain, self.training_settings) + self._merging_groups()

    def _merging_groups(self) -> list[dict[str, Any]]:
        """Return the parameters of the merging layers at the rate and decay of classifiers; biases do not decay."""
        rate, decay = self.training_settings.head_rate, self.training_settings.head_decay
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
            own = f"heads.{t}."
            head.load_arrays({name.removeprefix(own): arrays[name] for name in arrays if name.startswith(own)})

    def _trained(self) -> dict[str, Tensor]:
        """Return what AdamW trains, by name."""
        parts = {"encoder": self.encoder, "merges": self.merges}
        return {f"{name}.{key}": tensor for name, part in parts.items() for key, tensor in part.state_dict().items()}


def _heads(
    nodes: Sequence[int],
    widths: Sequence[int],
    settings: Settings,
    training: Training,
    seed: int,
    device: torch.device | str,
    std: float,
) -> list[Head]:
    """Return the classifiers of some levels with random rows, or with ``std`` 0 rows that are still to be set.

    Args:
        nodes: Nodes of each level.
        widths: Columns of the vector that each level reads.
        settings: Say which random rows.
        training: Says how the classifiers are trained.
        seed: Of the first level; each further one has the next.
        device: Where the classifiers are.
        std: Deviation of rows that are normal.
    """
    xavier = settings.label_rows == "xavier" and std > 0
    heads = []
    for level, count in enumerate(nodes):
        normal = 0.0 if xavier else std
        own = head_settings(training)
        head = new_head(count, widths[level], seed=seed + level, std=normal, device=device, **own)
        if xavier:
            head.set_xavier_rows(seed + level)
        heads.append(head)
    return heads
