"""The linear classifiers of one level of a network, trained without a gradient matrix.

`scores` and `full_loss` are differentiable in x alone; `gathered` returns rows for other modules to
compute with. The backward pass leaves a record with the head, and `step` turns the records of a
batch into one optimiser step, in place, on the rows they touch (`row_training.py`, by the formulas
of `updates.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from longtail.config import Training
from longtail.errors import ModelFolderError
from longtail.networks.heads.gathers import as_written, gather_dot, gather_sum, product
from longtail.networks.heads.random_rows import draw_xavier
from longtail.networks.heads.row_training import (
    CandidateScores,
    FullLosses,
    FullScores,
    Record,
    RowGradients,
    Targets,
    losses_and_gradient,
    node_chunks,
    with_normaliser,
)
from longtail.networks.heads.updates import (
    BETA1,
    EPSILON,
    HeadRows,
    Optimiser,
    new_state,
    sum_dtype,
)
from longtail.networks.losses import NodeLoss

if TYPE_CHECKING:
    from longtail.networks.heads.label_text import LabelText

__all__ = ["Head", "HeadKeywords", "HeadSettings", "NodeScores", "bits_of", "head_settings"]

# logits (B, S) from states of tokens (B, T, d), their mask (B, T) and candidates (B, S)
NodeScores: TypeAlias = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


@dataclass(frozen=True)
class HeadSettings:
    """Settings of the optimiser of a head's rows, and the type of their weights."""

    optimiser: Optimiser = "row-adam"
    dtype: torch.dtype = torch.float32
    weight_decay: float = 0.0
    epsilon: float = EPSILON


class HeadKeywords(TypedDict, total=False):
    """The fields of :class:`HeadSettings` as keyword arguments."""

    optimiser: Optimiser
    dtype: torch.dtype
    weight_decay: float
    epsilon: float


def head_settings(training: Training) -> HeadKeywords:
    """Return the settings of every head, as `Head` takes them."""
    return {
        "optimiser": training.head_optimiser,
        "dtype": getattr(torch, training.head_weights),
        "weight_decay": training.head_decay,
        "epsilon": training.epsilon,
    }


class Head(torch.nn.Module):
    """Scores the nodes of one level: weight (n_nodes, width) and bias (n_nodes,), buffers that
    `step` updates.

    dtype: float32, bfloat16 (half the memory, written with stochastic rounding) or float64 (torch
    path only). Rows start normal with deviation `std`, from `seed`; the optimisers' formulas are in
    `updates.py`."""

    weight: Tensor
    bias: Tensor
    text: LabelText | None = None  # composes the rows, where they are not learnt by themselves

    def __init__(
        self,
        n_nodes: int,
        width: int,
        *,
        seed: int = 0,
        std: float = 0.02,
        device: torch.device | str = "cpu",
        **settings: Unpack[HeadKeywords],
    ) -> None:
        super().__init__()
        chosen = HeadSettings(**settings)
        self.optimiser: Optimiser = chosen.optimiser
        self.weight_decay = chosen.weight_decay
        self.epsilon = chosen.epsilon
        weight = torch.empty(n_nodes, width, dtype=chosen.dtype, device=device)
        if std:  # otherwise the caller sets the rows, and their memory is not touched here
            weight.normal_(0, std, generator=torch.Generator(device).manual_seed(seed))
        bias = torch.zeros(n_nodes, dtype=sum_dtype(chosen.dtype), device=device)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        state = new_state(chosen.optimiser, weight, bias)
        self._state_names = tuple(state)
        for name, tensor in state.items():
            self.register_buffer(name, tensor)
        self._records: list[Record] = []

    def drop_optimiser_state(self) -> None:
        """Drop the optimiser's state: the head is trained."""
        for name in self._state_names:
            delattr(self, name)
        self._state_names = ()
        self.optimiser = "sgd"

    def learnt(self) -> tuple[Tensor, ...]:
        """Return the tensors that `step` changes beside the optimiser's state."""
        return self.weight, self.bias

    def optimiser_parameters(self) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
        """Return the parameters for AdamW, with and without weight decay: none, as rows are not."""
        return [], []

    @property
    def nodes(self) -> slice:
        """The nodes whose rows are here: all of them."""
        return slice(0, len(self.bias))

    @property
    def n_level_nodes(self) -> int:
        """Nodes of the level, of which ``nodes`` are a part or all."""
        return len(self.bias)

    @property
    def rows(self) -> HeadRows:
        """Weight, bias and optimiser state as the update functions take them."""
        state = {name: self.get_buffer(name) for name in self._state_names}
        return HeadRows(
            self.weight, self.bias, state, self.optimiser, self.weight_decay, epsilon=self.epsilon
        )

    def scores(self, x: Tensor, candidates: Tensor | None) -> Tensor:
        """Logits w·x + b, float32: x (B, d), candidates (B, S) int32 with −1 for padding, or None
        for all nodes.

        Padding has logit 0 and no gradient. In training mode the backward pass records what `step`
        needs."""
        if candidates is not None:
            candidates = candidates.to(torch.int32).contiguous()
        half = candidates is None and self._multiplies_in_half(x)
        with as_written(x):
            result: Tensor = _Scores.apply(  # type: ignore[no-untyped-call]
                x, self._anchor(), self, candidates, half
            )
        return result

    def full_loss(self, x: Tensor, positives: Tensor, values: Tensor, loss: NodeLoss) -> Tensor:
        """The loss of each document (B,) over all nodes. In training mode the backward pass records
        what `step` needs.

        Args:
            x: Vectors (B, d) of the documents.
            positives: True nodes (B, P) int32, a node at most once a document, −1 for padding.
            values: Their targets (B, P); all other nodes have target 0.
            loss: Trains x and, through the record, the rows.
        """
        targets = Targets(
            positives.to(torch.int32).contiguous(), values.to(self.bias.dtype).contiguous(), loss
        )
        half = self._multiplies_in_half(x)
        with as_written(x):
            losses: Tensor = _FullLosses.apply(  # type: ignore[no-untyped-call]
                x, self._anchor(), self, targets, half
            )
        return losses

    def gathered(self, nodes: Tensor) -> Tensor:
        """The rows (U, d) of nodes (U,) int64, each at most once, in float32 (in float64 for a head
        of that type).

        In training mode the backward pass records the gradient of these rows for `step`."""
        return self.local_rows(nodes)

    def scores_by(
        self, score: NodeScores, states: Tensor, mask: Tensor | None, candidates: Tensor | None
    ) -> Tensor:
        """Logits (B, S) of candidates, or of all nodes, by another function than w·x + b, which
        takes rows by :meth:`local_rows`.

        Args:
            score: Computes logits from states, mask and candidates.
            states: Of the tokens (B, T, d).
            mask: Which tokens there are (B, T), or None for all.
            candidates: Nodes (B, S), −1 for padding, whose logit means nothing; None for all.
        """
        return score(states, mask, candidates)

    def local_rows(self, nodes: Tensor) -> Tensor:
        """As :meth:`gathered`; of several processes, nodes are counted from the first of this
        one.
        """
        result: Tensor = _Gathered.apply(  # type: ignore[no-untyped-call]
            self._anchor(), self, nodes
        )
        return result

    @torch.no_grad()
    def step(self, lr: float, seed: int, beta1: float = BETA1) -> None:
        """Take one optimiser step by all records since the last one, as one batch, and drop them.

        Args:
            lr: Learning rate.
            seed: Seed of the stochastic rounding; different in every step.
            beta1: β₁ of AdamW.
        """
        records = self._records
        self._records = []
        if not records:
            return
        kinds = {record.kind for record in records}
        if len(kinds) > 1:
            raise ValueError(
                f"records of one step: found {' and '.join(sorted(kinds))}; "
                "expected one kind in a batch"
            )
        with as_written(self.weight):
            records[0].update(replace(self.rows, beta1=beta1), records, lr, seed)

    def forget(self) -> None:
        """Drop the records of a batch that is not to be learnt from."""
        self._records = []

    @torch.no_grad()
    def best(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of all nodes for x (B, d): logits and nodes (int32), (B, min(k, n_nodes))
        each, best first.
        """
        operand = _operand(x, self, self._multiplies_in_half(x), True)
        top = torch.empty(len(x), 0, dtype=self.bias.dtype, device=x.device)
        nodes = torch.empty(len(x), 0, dtype=torch.int64, device=x.device)
        with as_written(operand):
            for chunk in node_chunks(self.weight, len(x)):
                logits = product(operand, self.weight[chunk].T).add_(self.bias[chunk])
                best_logits, columns = logits.topk(min(k, logits.shape[1]), 1)
                top = torch.cat([top, best_logits], 1)
                nodes = torch.cat([nodes, columns + chunk.start], 1)
                top, order = top.topk(min(k, top.shape[1]), 1)
                nodes = nodes.gather(1, order)
        return top, nodes.to(torch.int32)

    @torch.no_grad()
    def set_rows(
        self, weight: Tensor | NDArray[Any], bias: Tensor | NDArray[Any] | None = None
    ) -> None:
        """Set initial values: weight (n_nodes, width), and bias (n_nodes,) or None for zeros."""
        self.weight.copy_(torch.as_tensor(weight))
        if bias is None:
            self.bias.zero_()
        else:
            self.bias.copy_(torch.as_tensor(bias))

    @torch.no_grad()
    def set_xavier_rows(self, seed: int) -> None:
        """Draw Xavier uniform weights, the same for any number of processes."""
        draw_xavier(self.weight, self.nodes, self.n_level_nodes, seed)

    def set_bias(self, value: float) -> None:
        """Set the bias of all nodes."""
        self.bias.fill_(value)

    def to_arrays(self, state: bool = True) -> dict[str, NDArray[Any]]:
        """Copies of weight and bias by name, and with `state` the optimiser's; bf16 weights as
        their uint16 bits.
        """
        tensors = self._tensors(state)
        return {name: bits_of(tensor).numpy(force=True).copy() for name, tensor in tensors.items()}

    @torch.no_grad()
    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `to_arrays` returned, exactly; without the optimiser's state, reset that.

        The head must have the same shape and weight type and, where state is given, the same
        optimiser."""
        for name, tensor in self._tensors().items():
            if name in self._state_names and "count" not in arrays:
                tensor.zero_()
                continue
            bits = bits_of(tensor)
            expected = f"{tuple(bits.shape)} {str(bits.dtype).removeprefix('torch.')}"
            actual = "nothing"
            if name in arrays:
                actual = f"{arrays[name].shape} {arrays[name].dtype}"
            if actual != expected:
                raise ModelFolderError(
                    f"head, {name}: found {actual}; expected {expected}; were the settings changed?"
                )
            bits.copy_(torch.from_numpy(np.array(arrays[name])))

    def _tensors(self, state: bool = True) -> dict[str, Tensor]:
        """Return weight and bias by name, and with `state` the optimiser's state."""
        tensors = {"weight": self.weight, "bias": self.bias}
        if state:
            tensors |= self.rows.state
        return tensors

    def _multiplies_in_half(self, x: Tensor) -> bool:
        """Whether products with all nodes are taken in bf16: the weights or x are, or autocast asks
        for it.
        """
        if self.bias.dtype == torch.float64:
            return False
        return torch.bfloat16 in (self.weight.dtype, x.dtype) or torch.is_autocast_enabled(
            x.device.type
        )

    def _anchor(self) -> Tensor | None:
        """An input that wants a gradient, so that a backward pass comes here even where x needs
        none.
        """
        if self.training and torch.is_grad_enabled():
            return torch.zeros((), requires_grad=True)
        return None

    def _record(self, record: Record) -> None:
        self._records.append(record)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor | None,
        head: Head,
        candidates: Tensor | None,
        half: bool,
    ) -> Tensor:
        ctx.head = head
        ctx.candidates = candidates
        ctx.records = anchor is not None
        ctx.dtype = x.dtype
        ctx.x = x = _operand(x.detach(), head, half, candidates is None)
        if candidates is None:
            return product(x, head.weight.T).add_(head.bias)
        return gather_dot(x, head.weight, head.bias, candidates)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        head = ctx.head
        candidates = ctx.candidates
        if ctx.records:
            if candidates is None:
                head._record(FullScores(ctx.x, gradients))
            else:
                head._record(CandidateScores(ctx.x, candidates, gradients))
        if not ctx.needs_input_grad[0]:
            return None, None, None, None, None
        with as_written(gradients):
            if candidates is None:
                gradient = product(gradients.to(ctx.x.dtype), head.weight)
            else:
                gradient = gather_sum(gradients, head.weight, candidates)
        return gradient.to(ctx.dtype), None, None, None, None


class _FullLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, anchor: Tensor | None, head: Head, targets: Targets, half: bool
    ) -> Tensor:
        ctx.head = head
        ctx.records = anchor is not None
        ctx.dtype = x.dtype
        ctx.x = _operand(x.detach(), head, half, True)
        ctx.targets = with_normaliser(head.rows, ctx.x, targets)
        losses, ctx.gradient = losses_and_gradient(head.rows, ctx.x, ctx.targets)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, None, None, None, None]:
        if ctx.records:
            ctx.head._record(FullLosses(ctx.x, ctx.targets, scale))
        return (ctx.gradient * scale[:, None]).to(ctx.dtype), None, None, None, None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor | None, head: Head, nodes: Tensor) -> Tensor:
        ctx.head = head
        ctx.nodes = nodes
        return head.weight[nodes].to(head.bias.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[None, None, None]:
        ctx.head._record(RowGradients(ctx.nodes, gradients))
        return None, None, None


def _operand(x: Tensor, head: Head, half: bool, matrix: bool) -> Tensor:
    """x as the products take it: bf16, or the type of the sums; the gathers take bf16 and float32
    as they come.
    """
    if half:
        return x.to(torch.bfloat16)
    if matrix or head.bias.dtype == torch.float64:
        return x.to(head.bias.dtype)
    return x


def bits_of(tensor: Tensor) -> Tensor:
    """The tensor as numpy can hold it: bf16 as uint16."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16)
    return tensor
