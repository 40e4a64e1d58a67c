"""A :class:`~longtail.networks.heads.head.Head` whose label classifiers are composed from the
labels' words.

In training, the rows of the labels of a batch are composed once per call, and the gradient flows on
to the words, which AdamW updates; free rows w_l are updated as those of a head. Outside training a
plain head is used, whose rows are composed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from longtail.errors import ModelFolderError
from longtail.networks.heads.gathers import as_written, product
from longtail.networks.heads.head import Head
from longtail.networks.heads.label_text import LabelText
from longtail.networks.heads.row_training import (
    Targets,
    losses_and_gradient,
    node_chunks,
    residuals_and_losses,
    with_normaliser,
)
from longtail.networks.heads.updates import BETA1, EPSILON, HeadRows, Optimiser
from longtail.networks.losses import NodeLoss

__all__ = ["TextHead"]

_FREE = "free."
_Plain = tuple[tuple[tuple[int, int], ...], Head]  # what it was made of, and the head


class TextHead(nn.Module):
    """Scores labels by W_e of ``text`` and a bias (L,) each; ``free`` are the w_l, if these are a
    part.

    The settings are those of :class:`Head`, for w_l, whose own bias is not used.
    """

    def __init__(
        self,
        text: LabelText,
        *,
        optimiser: Optimiser = "row-adam",
        dtype: torch.dtype = torch.float32,
        weight_decay: float = 0.0,
        epsilon: float = EPSILON,
        seed: int = 0,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        self.text = text
        E = text.embedding.weight
        self.bias = nn.Parameter(torch.zeros(text.shape[0], dtype=E.dtype, device=E.device))
        self.free: Head | None = None
        if "free" in text.parts:
            settings: dict[str, Any] = {
                "optimiser": optimiser,
                "dtype": dtype,
                "weight_decay": weight_decay,
            }
            settings["epsilon"] = epsilon
            self.free = Head(*text.shape, seed=seed, std=std, device=E.device, **settings)
        # in a tuple, so that torch does not register it as a submodule
        self._plain: _Plain | None = None

    @property
    def weight(self) -> Tensor:
        """W_e of all labels, (L, D), composed anew after each change; without gradient."""
        return self._as_it_is().weight

    def learnt(self) -> tuple[Tensor, ...]:
        """Return the tensors that `step` changes beside the optimiser's state."""
        if self.free is None:
            return ()
        return (self.free.weight,)

    def optimiser_parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Return the parameters with and without weight decay; E belongs to the encoder."""
        parameters = [*self.text.parameters(), self.bias]
        matrices = [parameter for parameter in parameters if parameter.ndim > 1]
        biases = [parameter for parameter in parameters if parameter.ndim <= 1]
        return matrices, biases

    def scores(self, x: Tensor, candidates: Tensor | None) -> Tensor:
        """Logits W_e·x + b, as :meth:`Head.scores`: x (B, D), candidates (B, S) with −1 for
        padding, or None for all.

        Labels that are candidates of several documents are composed once, and scored for all of the
        batch."""
        if not self.training:
            return self._as_it_is().scores(x, candidates)
        half = candidates is None and self._multiplies_in_half(x)
        with as_written(x):
            if candidates is None:
                logits: Tensor = _Logits.apply(  # type: ignore[no-untyped-call]
                    x, self._rows(None), self.bias, None, half
                )
                return logits
            labels, slots = self._different(candidates)
            if not len(labels):  # padding alone, which learns nothing
                return (0 * x[:, :1]).to(self.bias.dtype).expand(candidates.shape)
            logits = _Logits.apply(  # type: ignore[no-untyped-call]
                x, self._rows(labels), self.bias[labels], slots, half
            )
            return logits.masked_fill(candidates < 0, 0)

    def full_loss(self, x: Tensor, positives: Tensor, values: Tensor, loss: NodeLoss) -> Tensor:
        """The loss of each document (B,) over all labels, as :meth:`Head.full_loss`; no (B, L)
        tensor exists.
        """
        if not self.training:
            return self._as_it_is().full_loss(x, positives, values, loss)
        targets = Targets(
            positives.to(torch.int32).contiguous(), values.to(self.bias.dtype).contiguous(), loss
        )
        half = self._multiplies_in_half(x)
        with as_written(x):
            losses: Tensor = _FullLosses.apply(  # type: ignore[no-untyped-call]
                x, self._rows(None), self.bias, targets, half
            )
        return losses

    def best(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of all labels, as :meth:`Head.best`."""
        return self._as_it_is().best(x, k)

    def step(self, lr: float, seed: int, beta1: float = BETA1) -> None:
        """One step of the free rows that were composed since the last one; AdamW does that of all
        else.
        """
        if self.free is not None:
            self.free.step(lr, seed, beta1)

    def forget(self) -> None:
        """Drops the records of a batch that is not to be learnt from."""
        if self.free is not None:
            self.free.forget()

    def drop_optimiser_state(self) -> None:
        """Drop the optimiser's state: the head is trained."""
        if self.free is not None:
            self.free.drop_optimiser_state()

    def set_free(self, rows: Tensor | NDArray[Any]) -> None:
        """Set w_l to rows (L, D), where there is such a part: phase II starts them at z¹."""
        if self.free is not None:
            self.free.set_rows(rows)

    @torch.no_grad()
    def set_bias(self, bias: Tensor | NDArray[Any] | float) -> None:
        """Set the biases to (L,) numbers, or all to one."""
        self.bias.copy_(torch.as_tensor(bias))

    @torch.no_grad()
    def as_head(self) -> Head:
        """Return a plain head with these very classifiers, on the same device, for inference and
        model folders.
        """
        free = None
        if self.free is not None:
            free = self.free.weight.to(self.bias.dtype)
        with _in_eval_mode(self.text), as_written(self.bias):
            rows = self.text(None, free)
        head = Head(*rows.shape, optimiser="sgd", dtype=self.bias.dtype, std=0, device=rows.device)
        head.set_rows(rows, self.bias)
        return head.eval()

    def to_arrays(self, state: bool = True) -> dict[str, NDArray[Any]]:
        """Copies of all trained tensors but E, and with `state` of the optimiser state of w_l."""
        arrays = {name: tensor.numpy(force=True).copy() for name, tensor in self._tensors().items()}
        if self.free is not None:
            arrays |= {_FREE + name: array for name, array in self.free.to_arrays(state).items()}
        return arrays

    @torch.no_grad()
    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `to_arrays` returned, exactly; without the optimiser's state, reset that."""
        for name, tensor in self._tensors().items():
            shape = getattr(arrays.get(name), "shape", "nothing")
            if shape != tensor.shape:
                expected = f"expected {tuple(tensor.shape)}; were the settings changed?"
                raise ModelFolderError(f"head, {name}: found {shape}; {expected}")
            tensor.copy_(torch.from_numpy(np.array(arrays[name])))
        if self.free is not None:
            free = {
                name.removeprefix(_FREE): array
                for name, array in arrays.items()
                if name.startswith(_FREE)
            }
            self.free.load_arrays(free)
        self._plain = None

    def train(self, mode: bool = True) -> TextHead:
        """Switch training on or off; the plain head is let go, as it may take much memory."""
        self._plain = None
        return super().train(mode)

    def _different(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """The labels (U,) among candidates (B, S), sorted, and which of them each slot is; padding
        is the first one.
        """
        nodes = candidates.long() + 1
        there = torch.zeros(len(self.bias) + 1, dtype=torch.int64, device=nodes.device)
        there[nodes] = 1
        there[0] = 0  # padding
        slots = (there.cumsum(0) - 1)[nodes].clamp_(min=0)
        return there[1:].nonzero()[:, 0], slots

    def _rows(self, labels: Tensor | None) -> Tensor:
        """W_e of labels (U,), of all if None, with all gradients."""
        if self.free is None:
            return self.text(labels, None)  # type: ignore[no-any-return]
        if labels is None:
            composed = torch.arange(len(self.bias), device=self.bias.device)
        else:
            composed = labels
        return self.text(labels, self.free.gathered(composed))  # type: ignore[no-any-return]

    def _as_it_is(self) -> Head:
        """The plain head of this moment, kept outside training until a number that it is made of
        changes.
        """
        if self.training:
            return self.as_head()
        made_of = [*self._tensors().values(), *self.learnt(), self.text.embedding.weight]
        key = tuple((tensor.data_ptr(), tensor._version) for tensor in made_of)
        if self._plain is None or self._plain[0] != key:
            self._plain = None  # before the new one is made: not both at once
            with torch.inference_mode(False):  # it may be asked for gradients of x later
                self._plain = key, self.as_head()
        return self._plain[1]

    def _tensors(self) -> dict[str, Tensor]:
        of_text = {f"text.{name}": tensor for name, tensor in self.text.state_dict().items()}
        return {"bias": self.bias.detach(), **of_text}

    def _multiplies_in_half(self, x: Tensor) -> bool:
        """Whether products with all labels are taken in bf16, as in :class:`Head`."""
        if self.bias.dtype == torch.float64:
            return False
        return x.dtype == torch.bfloat16 or torch.is_autocast_enabled(x.device.type)


def _operand(x: Tensor, bias: Tensor, half: bool) -> Tensor:
    """x in the type of the products: bfloat16, or the type of the biases."""
    if half:
        return x.to(torch.bfloat16)
    return x.to(bias.dtype)


class _Logits(torch.autograd.Function):
    """x·Wᵀ + b (B, U), or of each document the columns ``slots`` (B, S) of it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, rows: Tensor, bias: Tensor, slots: Tensor | None, half: bool
    ) -> Tensor:
        operand = _operand(x, bias, half)
        ctx.save_for_backward(operand, rows)
        ctx.slots = slots
        ctx.dtype = x.dtype
        logits = product(operand, rows.T).add_(bias)  # (B, D) · (D, U)
        if slots is None:
            return logits
        return logits.gather(1, slots)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, rows = ctx.saved_tensors
        if ctx.slots is not None:
            gradients = gradients.new_zeros(len(x), len(rows)).scatter_add_(1, ctx.slots, gradients)
        with as_written(x):
            share = gradients.to(x.dtype)
            of_x = product(share, rows)
            of_rows = product(share.T, x)
        return of_x.to(ctx.dtype), of_rows, gradients.sum(0), None, None


class _FullLosses(torch.autograd.Function):
    """The loss of each document (B,) over all labels; logits are made again for the gradient of the
    rows.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, rows: Tensor, bias: Tensor, targets: Targets, half: bool
    ) -> Tensor:
        operand = _operand(x, bias, half)
        head = HeadRows(rows, bias, {}, "sgd", 0.0)
        ctx.targets = with_normaliser(head, operand, targets)
        ctx.dtype = x.dtype
        losses, gradient = losses_and_gradient(head, operand, ctx.targets)
        ctx.save_for_backward(operand, rows, bias, gradient)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, rows, bias, gradient = ctx.saved_tensors
        scale = scale.contiguous()  # kernels read it; of a sum it is one number with stride 0
        of_rows = torch.empty_like(rows)
        of_bias = torch.empty_like(bias)
        head = HeadRows(rows, bias, {}, "sgd", 0.0)
        with as_written(x):
            for chunk in node_chunks(rows, max(x.shape)):
                residuals, _ = residuals_and_losses(head, x, ctx.targets, scale, chunk)
                of_rows[chunk] = product(residuals.T, x)
                of_bias[chunk] = residuals.sum(0, dtype=of_bias.dtype)
        return (gradient * scale[:, None]).to(ctx.dtype), of_rows, of_bias, None, None


@contextmanager
def _in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Looking at classifiers must not change them: the spectral norm iterates in training mode."""
    before = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(before)
