"""AttentionXML: each label attends to the words it is about; one network a level of a shallow, wide
label tree.

You et al. 2019, AttentionXML: Label Tree-based Attention-Aware Deep Model for High-Performance
Extreme Multi-Label Text Classification. The names are those of its section 3: H the states of a
BiLSTM, w_l the attention vector of a node, α_tl = softmax_t(H w_l), m_l = Σ_t α_tl H_t, and ŷ_l =
σ(W_o ReLU(W_n ... ReLU(W_1 m_l))) with W_1 to W_n and W_o shared by all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from longtail.config import Attention, Training
from longtail.networks.attention_family import kept_nodes
from longtail.networks.base import Ranked
from longtail.networks.batches import Batch
from longtail.networks.encoders.lstm import LstmEncoder, mean_state
from longtail.networks.heads.head import Head
from longtail.networks.label_vectors import LabelVectors
from longtail.networks.losses import Loss
from longtail.networks.ranker import DistributedRanking
from longtail.networks.recursive import Resolution
from longtail.networks.shortlist import best_nodes
from longtail.steps.process_group import current_group
from longtail.tree.tree import LabelTree

__all__ = ["AttentionLevel", "AttentionXML", "Candidates"]

# of first attention vectors: all nodes share W_1 to W_o, so where all attend alike none learns for
# long
_STD = 0.3
# numbers of a chunk of slots: attention, rows and hidden layers
_ELEMENTS = {"cpu": 1 << 24, "cuda": 1 << 28}


class AttentionLevel(Resolution):
    """The network of one level: a BiLSTM, an attention vector w_l of each node, and W_1 to W_o.

    The rows of its head are the attention vectors; its biases are not used.
    """

    encoder: LstmEncoder
    settings: Attention

    def __init__(
        self,
        encoder: LstmEncoder,
        tree: LabelTree,
        level: int,
        settings: Attention,
        training: Training,
        seed: int,
        std: float = _STD,
        loss: Loss | None = None,
    ) -> None:
        """Make the network of a level where the encoder is, as :class:`Resolution`."""
        super().__init__(encoder, tree, level, settings, training, seed, std, loss)
        sizes = settings.layers
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Linear(encoder.width, sizes[0])  # W_1
            further = [nn.Linear(*columns_and_rows) for columns_and_rows in pairwise(sizes)]
            self.further = nn.ModuleList(further)  # W_2 to W_n
            self.output = nn.Linear(sizes[-1], 1)  # W_o
        nn.init.zeros_(self.output.bias)
        self.to(next(encoder.parameters()).device)

    @property
    def shared(self) -> dict[str, nn.Linear]:
        """W_1 to W_o, which all nodes share, by their names in files."""
        further = {f"further.{at}": layer for at, layer in enumerate(self.further)}
        layers: dict[str, Any] = {"first": self.first, **further, "second": self.output}
        return layers

    @torch.no_grad()
    def start(self, above: AttentionLevel | None, shift: float) -> None:
        """Take W_1 to W_o from the level above, if there is one, and add ``shift`` to the logit of
        every node.
        """
        if above is not None:
            for name, layer in self.shared.items():
                layer.load_state_dict(above.shared[name].state_dict())
        self.output.bias.add_(shift)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss, binary cross-entropy in the paper, as its mean over the candidates of
        each document.

        The batch's positives are nodes of this level, their values what σ is to be.
        """
        candidates = self.shortlist(batch)
        _, p = self.scores(batch.ids, batch.mask, candidates.nodes)
        counted = candidates.counted(p)
        loss = self.loss.value(p, candidates.targets, counted) / counted.sum(1)
        return {f"level {self.level + 1}": loss.mean()}

    def scores(
        self, ids: Tensor, mask: Tensor | None, nodes: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean of H (B, 2h), and the logits of ``nodes`` (B, S), None standing for all
        of the level.
        """
        H = self.dropout(self.encoder.states(ids, mask))  # (B, T, 2h)
        return mean_state(H, mask), self.heads[0].scores_by(self._logits, H, mask, nodes)

    def _logits(self, H: Tensor, mask: Tensor | None, nodes: Tensor | None) -> Tensor:
        """Return (B, S), made in chunks of slots; if there are several, the backward pass makes
        each a second time. Of several processes, nodes are those of this one.
        """
        # W_1 Σ_t α_tl H_t = Σ_t α_tl (W_1 H_t): tokens are fewer than nodes, so W_1 is taken first
        W1_H = functional.linear(H, self.first.weight)  # (B, T, rows of W_1)
        w, at = self._attention_vectors(nodes)
        slots = at
        if slots is None:
            slots = torch.arange(len(w), device=w.device)
        slot_numbers = len(H) * (H.shape[1] + H.shape[2] + sum(self.settings.layers))
        chunk_slots = max(1, _ELEMENTS[H.device.type] // max(slot_numbers, 1))
        chunks = torch.split(slots, chunk_slots, -1)
        attend: Any = self._attended
        if len(chunks) > 1 and torch.is_grad_enabled():
            attend = partial(
                checkpoint, self._attended, use_reentrant=False, preserve_rng_state=False
            )
        logits: list[Tensor] = [attend(H, W1_H, mask, w, chunk) for chunk in chunks]
        if len(logits) == 1:
            return logits[0]
        return torch.cat(logits, 1)

    def _attention_vectors(self, nodes: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return rows (U, 2h), and which of them each slot has (B, S), None where all nodes are
        scored.

        In training each node of the batch is one row, through which its gradient comes back to the
        head."""
        head = self.heads[0]
        if not torch.is_grad_enabled():  # no `unique`, for whose size the host would wait
            return head.weight, None if nodes is None else nodes.clamp(min=0).long()
        if nodes is None:
            return head.local_rows(torch.arange(len(head.weight), device=head.weight.device)), None
        unique, at = torch.unique(nodes, return_inverse=True)
        padding = int((unique < 0).sum())
        return head.local_rows(unique[padding:].long()), (at - padding).clamp(min=0)

    def _attended(
        self, H: Tensor, W1_H: Tensor, mask: Tensor | None, w: Tensor, slots: Tensor
    ) -> Tensor:
        """Return the logits (B, S) of the rows of ``w`` that ``slots`` names, (B, S), or (S,) for
        all documents.
        """
        rows = functional.embedding(slots, w).to(W1_H.dtype)
        logits = rows @ H.to(W1_H.dtype).mT  # (B, S, 2h) x (B, 2h, T) -> (B, S, T)
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, :], torch.finfo(logits.dtype).min)
        alpha = logits.softmax(-1)
        hidden = alpha.to(W1_H.dtype) @ W1_H + self.first.bias.to(W1_H.dtype)
        for layer in self.further:
            hidden = layer(hidden.relu())
        logit: Tensor = self.output(hidden.relu()).squeeze(-1)  # (B, S, rows) -> (B, S)
        if logit.dtype == torch.float64:
            return logit
        return logit.float()

    def in_half(self) -> AttentionLevel:
        """Return a network for ranking that shares the attention vectors; the rest is bfloat16
        there.
        """
        half = copy(self)
        in_bfloat16 = {
            name: deepcopy(getattr(self, name)).bfloat16()
            for name in ("encoder", "first", "further", "output")
        }
        half._modules = self._modules | in_bfloat16
        return half.eval()

    def optimiser_groups(self) -> list[dict[str, Any]]:
        """Return the parameters that AdamW trains; attention vectors train themselves."""
        decayed, plain = super().optimiser_groups()
        layers = self.shared.values()
        weights = [layer.weight for layer in layers]
        biases = [layer.bias for layer in layers]
        return [
            decayed | {"params": decayed["params"] + weights},
            plain | {"params": plain["params"] + biases},
        ]

    def trained(self) -> dict[str, Tensor]:
        """Return the tensors that AdamW trains, by name."""
        maps = {
            f"{layer}.{name}": tensor
            for layer, linear in self.shared.items()
            for name, tensor in linear.state_dict().items()
        }
        return super().trained() | maps


class Candidates(NamedTuple):
    """The nodes of a level that a document is compared with."""

    scores: Tensor  # (B, S) σ, times that of the parent
    nodes: Tensor | None  # (B, S) int32, −1 for padding; None: all nodes of the level
    vectors: Tensor  # (B, 2h) mean of H
    kept: tuple[Tensor, ...]  # the best nodes of each level above, (B, C) int32


class AttentionXML(nn.Module):
    """The levels from the first down to that of the labels, or while they are trained, to the last
    that there is.
    """

    family: ClassVar[str] = "attention"
    levels: Sequence[AttentionLevel]

    def __init__(self, levels: Sequence[AttentionLevel]) -> None:
        super().__init__()
        self.levels = nn.ModuleList(levels)  # type: ignore[assignment]
        self.tables = levels[-1].tables
        self.training_settings = levels[-1].training_settings
        self.level = len(levels) - 1

    @property
    def encoder(self) -> LstmEncoder:
        """The encoder of the first level; each level has its own."""
        return self.levels[0].encoder

    @property
    def heads(self) -> list[Head]:
        """The attention vectors of each level."""
        return [level.heads[0] for level in self.levels]

    @property
    def widths(self) -> list[int]:
        """Columns of the vectors of each level."""
        return [level.encoder.width for level in self.levels]

    @property
    def kept(self) -> list[int]:
        """C: how many nodes are kept on each level but the last."""
        most = kept_nodes(self.levels[-1].settings, len(self.tables.widths))
        widths = self.tables.widths[: self.level]
        return [min(kept, width) for kept, width in zip(most, widths, strict=False)]

    @property
    def slots(self) -> list[int]:
        """Nodes that are scored on each level: all of the first, then the children of those
        kept.
        """
        slots = [self.tables.widths[0]]
        for kept, most in zip(self.kept, self.tables.most_children, strict=False):
            slots.append(min(kept, slots[-1]) * most)
        return slots

    def vectors(self, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the mean of H of each level, (B, 2h)."""
        return [level.vectors(ids, mask)[0] for level in self.levels]

    @torch.no_grad()
    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        """Return the ``k`` best nodes of the last level; a score is σ, times that of the parent."""
        candidates = self.scored_labels(ids, mask)
        nodes, at = best_nodes(candidates.scores, candidates.nodes, k, ordered=True)
        scores = candidates.scores.gather(1, at).masked_fill(nodes < 0, 0)
        return Ranked(scores, nodes, candidates.vectors, candidates.kept)

    @torch.no_grad()
    def scored_labels(self, ids: Tensor, mask: Tensor | None) -> Candidates:
        """Return all nodes of the last level below the best ones of those above, with their
        scores.
        """
        nodes = None
        above = None
        kept = list[Tensor]()
        for t, level in enumerate(self.levels):
            x, logits = level.scores(ids, mask, nodes)
            scores = logits.sigmoid()
            if above is not None:
                scores = scores * above.repeat_interleave(self.tables.most_children[t - 1], 1)
            if t < self.level:
                top, at = best_nodes(scores, nodes, self.kept[t])
                kept.append(top)
                above = scores.gather(1, at)
                nodes = self.tables.refine(t, top)
        return Candidates(scores, nodes, x, tuple(kept))

    def best(
        self, ids: Tensor, mask: Tensor | None, parents: Tensor | None, k: int
    ) -> tuple[Tensor, Tensor]:
        """Return vectors (B, 2h), and the ``k`` best nodes of the last level; the parents are those
        it finds itself. Of several processes each ranks its part of the documents.
        """
        ranking: Any = self
        group = current_group()
        if group.size > 1:
            ranking = DistributedRanking(self, group)
        ranked = ranking.rank(ids, mask, k)
        return ranked.vectors, ranked.nodes

    @torch.no_grad()
    def path_scores(self, ids: Tensor, mask: Tensor | None, path: Sequence[int]) -> Tensor:
        """Return (B,) float64 the score of the label with this path of nodes, one a level, whether
        ranked or not.
        """
        scores = torch.ones(len(ids), dtype=torch.float64, device=ids.device)
        for level, node in zip(self.levels, path, strict=True):
            nodes = torch.full((len(ids), 1), node, dtype=torch.int32, device=ids.device)
            scores *= level.scores(ids, mask, nodes)[1][:, 0].double().sigmoid()
        return scores

    def in_half(self) -> AttentionXML:
        """Return a network for ranking that shares the attention vectors; the rest is bfloat16
        there.
        """
        return AttentionXML([level.in_half() for level in self.levels]).eval()

    def label_vectors(self) -> LabelVectors:
        """Return the encoder of the last level: each level has its own."""
        encoder = self.levels[-1].encoder
        return LabelVectors(encoder, (encoder.depth,), nn.Identity())
