"""Classifiers of one level whose rows are split among processes: a level may be larger than one
device.

Each rank has a contiguous range of the nodes. An all-gather sends the vectors of a rank's documents
to all ranks, each rank scores the candidates of its range, and an all-reduce adds the scores, which
is exact because all other ranks contribute 0. The two exchanges are each other's adjoint (`_ToAll`,
`_FromAll`); between them is a `Head` of the local rows: the products, records and optimisers of one
process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from longtail.networks.heads.head import Head, NodeScores, bits_of
from longtail.networks.heads.random_rows import draw_rows
from longtail.networks.heads.updates import HeadRows, sum_dtype
from longtail.networks.losses import NodeLoss
from longtail.steps.process_group import ProcessGroup, Shard, current_group, run_of

__all__ = ["ShardedHead", "new_head"]

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def new_head(n_nodes: int, width: int, **settings: Any) -> Head:
    """Return the classifiers of a level by the settings of `Head`; with several processes, the
    local ones.
    """
    group = current_group()
    if group.size > 1:
        return ShardedHead(n_nodes, width, group, **settings)
    return Head(n_nodes, width, **settings)


class ShardedHead(Head):
    """The local rows of a head, with the interface of a head of all nodes; all ranks call its
    methods in the same order.

    ``scores``, ``scores_by``, ``full_loss`` and ``best`` take and give this rank's documents, which
    may be none.
    """

    def __init__(
        self,
        n_nodes: int,
        width: int,
        group: ProcessGroup,
        *,
        seed: int = 0,
        std: float = 0.02,
        **settings: Any,
    ) -> None:
        self.shard = Shard(group, n_nodes)
        nodes = self.shard.nodes
        super().__init__(nodes.stop - nodes.start, width, std=0, **settings)
        self.group = group
        self.n_nodes = n_nodes
        if std:
            draw_rows(
                self.weight,
                nodes,
                n_nodes,
                seed,
                lambda drawn, rng: drawn.normal_(0, std, generator=rng),
            )

    @property
    def nodes(self) -> slice:
        """The nodes whose rows are here."""
        return self.shard.nodes

    @property
    def n_level_nodes(self) -> int:
        """Nodes of the level, on all ranks."""
        return self.n_nodes

    @property
    def rows(self) -> HeadRows:
        """Local weight, bias and optimiser state; stochastic rounding depends on the nodes' numbers
        among all.
        """
        return replace(super().rows, first=self.nodes.start)

    def scores(self, x: Tensor, candidates: Tensor | None) -> Tensor:
        """Logits of candidates (B, S) on any rank, or of all nodes; see `Head.scores`."""
        everywhere, lengths, slots = self._to_all(x, candidates)
        if candidates is None:
            columns = self.nodes.start, self.n_nodes - self.nodes.stop
            return self._added(pad(super().scores(everywhere, None), columns), lengths)
        spread = self.group.all_gather(_widened(candidates.to(torch.int32), slots), lengths)
        spread = spread - self.nodes.start
        local = spread.masked_fill((spread < 0) | (spread >= len(self.bias)), -1)
        if not len(self.bias):  # more ranks than nodes: this one has none to look up
            local = local[:, :0]
        scored = super().scores(everywhere, local)
        return self._added(pad(scored, (0, slots - local.shape[1])), lengths)[
            :, : candidates.shape[1]
        ]

    def full_loss(self, x: Tensor, positives: Tensor, values: Tensor, loss: NodeLoss) -> Tensor:
        """The loss over the nodes of all ranks; see `Head.full_loss`. A normaliser would need all
        of them at once.
        """
        if loss.has_normaliser:
            raise NotImplementedError(f"{loss.name} over a head that is split among ranks")
        everywhere, lengths, slots = self._to_all(x, positives)
        targets = (
            self.group.all_gather(_widened(positives.to(torch.int32), slots), lengths)
            - self.nodes.start
        )
        targets = targets.masked_fill((targets < 0) | (targets >= len(self.bias)), -1)
        values = self.group.all_gather(pad(values, (0, slots - values.shape[1])), lengths)
        return self._added(super().full_loss(everywhere, targets, values, loss), lengths)

    def gathered(self, nodes: Tensor) -> Tensor:
        """Refused: rows of other ranks are never here."""
        raise NotImplementedError("rows of a head that is split among ranks are not handed out")

    def scores_by(
        self, score: NodeScores, states: Tensor, mask: Tensor | None, candidates: Tensor | None
    ) -> Tensor:
        """Logits (B, S) of this rank's documents by ``score``, which is given the states of all
        ranks' documents and, of each, the candidates on this rank, counted from its first node;
        see `Head.scores_by`.
        """
        everywhere, lengths, slots = self._to_all(states, candidates)
        if mask is not None:
            mask = self.group.all_gather(mask, lengths)
        if candidates is None:
            columns = self.nodes.start, self.n_nodes - self.nodes.stop
            return self._added(pad(score(everywhere, mask, None), columns), lengths)
        spread = self.group.all_gather(_widened(candidates.to(torch.int32), slots), lengths)
        spread = spread - self.nodes.start
        local = spread.masked_fill((spread < 0) | (spread >= len(self.bias)), -1)
        # local candidates first, so that no rank computes more slots than the document with the
        # most of them has
        order = (local < 0).int().argsort(dim=1, stable=True)
        most = 0
        if local.numel():
            most = int((local >= 0).sum(1).max())
        order = order[:, :most]
        compact = local.gather(1, order)
        scored = score(everywhere, mask, compact).masked_fill(compact < 0, 0)
        partial = scored.new_zeros(local.shape).scatter(1, order, scored)
        return self._added(partial, lengths)[:, : candidates.shape[1]]

    @torch.no_grad()
    def best(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of the nodes of all ranks; see `Head.best`."""
        everywhere, lengths, _ = self._to_all(x, None)
        logits, nodes = super().best(everywhere, k)
        widest = self.group.all_reduce_max(logits.shape[1])
        logits = pad(logits, (0, widest - logits.shape[1]), value=-torch.inf)
        nodes = pad(nodes + self.nodes.start, (0, widest - nodes.shape[1]), value=-1)
        alike = [len(logits)] * self.group.size
        by_rank = [
            self.group.all_gather(tensor, alike).view(self.group.size, *tensor.shape)
            for tensor in (logits, nodes)
        ]
        logits, nodes = (
            tensor[:, run_of(lengths, self.group.rank)].transpose(0, 1).flatten(1)
            for tensor in by_rank
        )
        top, places = logits.topk(min(k, self.n_nodes), 1)
        return top, nodes.gather(1, places)

    def to_arrays(self, state: bool = True) -> dict[str, NDArray[Any]]:
        """The arrays of all nodes at the first rank; elsewhere nothing of use."""
        return {
            name: self.shard.whole(bits_of(tensor)) for name, tensor in self._tensors(state).items()
        }

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the local rows from the arrays of all nodes."""
        super().load_arrays({name: self.shard.local_rows(array) for name, array in arrays.items()})

    def _to_all(self, x: Tensor, nodes: Tensor | None) -> tuple[Tensor, list[int], int]:
        """The vectors of all ranks, their numbers of documents, and the largest S of nodes (B, S).

        A rank without documents does not know the type of the others' vectors.
        """
        kind = 0
        if len(x):
            kind = _TYPES.index(x.dtype)
        slots = 0
        if nodes is not None:
            slots = nodes.shape[1]
        sizes = self.group.all_gather_numbers(len(x), slots, kind)
        lengths = [length for length, _, _ in sizes]
        x = x.to(_TYPES[max(kind for *_, kind in sizes)])
        everywhere: Tensor = _ToAll.apply(x, self.group, lengths)  # type: ignore[no-untyped-call]
        return everywhere, lengths, max(slots for _, slots, _ in sizes)

    def _added(self, partial: Tensor, lengths: Sequence[int]) -> Tensor:
        result: Tensor = _FromAll.apply(  # type: ignore[no-untyped-call]
            partial, self.group, lengths
        )
        return result


class _ToAll(torch.autograd.Function):
    """The rows of all ranks; backward, the sum over ranks of the gradients of the local rows."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, group: ProcessGroup, lengths: Sequence[int]) -> Tensor:
        ctx.group = group
        ctx.lengths = lengths
        return group.all_gather(local.detach(), lengths)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None]:
        return _summed(ctx.group, ctx.lengths, gradients), None, None


class _FromAll(torch.autograd.Function):
    """The sum over ranks for the local rows; backward, the gradients of the rows of all ranks."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, group: ProcessGroup, lengths: Sequence[int]) -> Tensor:
        ctx.group = group
        ctx.lengths = lengths
        return _summed(group, lengths, partial.detach())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.group.all_gather(gradients, ctx.lengths), None, None


def _summed(group: ProcessGroup, lengths: Sequence[int], partial: Tensor) -> Tensor:
    wide = sum_dtype(partial.dtype)
    total = group.all_reduce(partial.to(wide, copy=True, memory_format=torch.contiguous_format))
    return total[run_of(lengths, group.rank)].to(partial.dtype)


def _widened(candidates: Tensor, slots: int) -> Tensor:
    return pad(candidates, (0, slots - candidates.shape[1]), value=-1)
