"""One step of training: the gradient of a batch, in parts that fit in memory and on several ranks,
and the updates.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from longtail.config import Training
from longtail.errors import LongtailError
from longtail.networks.batches import Batch
from longtail.networks.device import allow_tf32, arithmetic
from longtail.networks.layout import documents_at_a_time
from longtail.networks.training.checkpoints import Weights
from longtail.networks.training.schedule import Schedule
from longtail.steps.process_group import ProcessGroup, all_reduce_gradients, current_group

__all__ = ["Network", "OutOfMemory", "Stepper", "adamw_groups"]

log = logging.getLogger("longtail")


class OutOfMemory(LongtailError):
    """The memory of the device does not suffice, and fewer documents at a time do not help, or
    cannot be tried now.
    """


class Network(Weights, Protocol):
    """A network that can be trained: parameters by AdamW, and heads that update themselves."""

    @property
    def heads(self) -> Iterable[Any]:
        """The :class:`~longtail.networks.heads.head.Head` of each level."""

    def optimiser_groups(self) -> list[dict[str, Any]]:
        """Return groups for AdamW: ``params``, ``lr`` and ``weight_decay``; always in the same
        order.
        """

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss of each level, the mean over the documents of the batch, which is on the
        device.
        """

    def train(self, mode: bool = True) -> Any:
        """Switch dropout and the recording of heads on or off."""


def adamw_groups(decayed: list[Any], plain: list[Any], settings: Training) -> list[dict[str, Any]]:
    """Return the groups of an encoder's parameters: those with weight decay, and those without."""
    return [
        {"params": decayed, "lr": settings.encoder_rate, "weight_decay": settings.encoder_decay},
        {"params": plain, "lr": settings.encoder_rate, "weight_decay": 0.0},
    ]


class Stepper:
    """One optimiser step: micro-batches forward and backward, then AdamW and the heads."""

    def __init__(self, network: Network, settings: Training, schedule: Schedule, seed: int) -> None:
        self.network = network
        self.settings = settings
        self.schedule = schedule
        self.seed = seed
        self.group = current_group()
        groups = network.optimiser_groups()
        self.parameters: list[Tensor] = [
            parameter for group in groups for parameter in group["params"]
        ]
        self.device = self.parameters[0].device
        on_gpu = self.device.type == "cuda"
        self.micro_batch = documents_at_a_time(settings.micro_batch, settings.batch_size, on_gpu)
        self.adamw = torch.optim.AdamW(
            groups, eps=settings.epsilon, fused=True
        )  # faster than the plain one, on a CPU as well
        self.rates = [float(group["lr"]) for group in self.adamw.param_groups]
        # now: no step is the first to need the memory, and a checkpoint finds them
        for parameter in self.parameters:
            counter_device = self.device if self.device.type == "cuda" else None
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self.adamw.state[parameter] = {
                "step": torch.tensor(0.0, device=counter_device),
                **moments,
            }

    def step(self, batch: Batch, number: int) -> tuple[list[str], Tensor]:
        """Train on a batch; return the names of the levels, and their losses followed by the
        gradient's norm.

        All chance comes from (seed, number), so a step that is run again, or in a resumed run, is
        the same one."""
        heads = list(self.network.heads)
        # int32 for kernels
        seeds = np.random.SeedSequence((self.seed, number)).generate_state(1 + len(heads)) >> 1
        with allow_tf32(self.settings.precision, self.device):
            while (done := self._gradients(batch, int(seeds[0]))) is None:
                self._shrink(batch, number)
        names, losses = done
        if self.group.size > 1:
            learns = self.group.lengths(len(batch))[self.group.rank] > 0
            losses = all_reduce_gradients(self.group, self.parameters, losses, learns)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip or math.inf)
        factor = self.schedule.factor(number)
        beta1 = self.schedule.beta1(number)
        for group, rate in zip(self.adamw.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
            group["betas"] = (beta1, group["betas"][1])
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        try:
            for head, head_seed in zip(heads, seeds[1:].tolist(), strict=True):
                head.step(self.settings.head_rate * factor, head_seed, beta1)
        except torch.OutOfMemoryError:  # some rows may be updated, so the step cannot be run again
            ways = ["a smaller training.batch_size", *_savings(heads, self.settings)]
            message = f"out of memory while the classifiers are updated; try {', or '.join(ways)}"
            raise OutOfMemory(message) from None
        return names, torch.cat([losses, norm.to(losses)[None]])

    def rate(self, number: int) -> float:
        """Return the learning rate of the first group at a step."""
        return self.rates[0] * self.schedule.factor(number)

    def _gradients(self, batch: Batch, seed: int) -> tuple[list[str], Tensor] | None:
        """Leave the gradient of the batch in parameters and heads; None if memory did not suffice
        for it.
        """
        torch.manual_seed(seed + self.group.rank)
        names = list[str]()
        total = torch.zeros((), device=self.device)
        try:
            for whole in batch.split(self.micro_batch * self.group.size):
                part = _part_of(whole, self.group)
                with arithmetic(self.settings.precision, self.device):
                    losses = self.network.losses(part.to(self.device))
                names = list(losses)
                shares = torch.stack(list(losses.values())) * (len(part) / len(batch))
                if not len(part):
                    shares = shares.nan_to_num()  # the mean of nothing
                torch.autograd.backward(shares.sum())
                total = total + shares.detach()
        except torch.OutOfMemoryError:
            return None
        return names, total

    def _shrink(self, batch: Batch, number: int) -> None:
        """Forget a half-made gradient and halve the micro-batch."""
        self.adamw.zero_grad(set_to_none=True)
        for head in self.network.heads:
            head.forget()
        if self.device.type == "cuda":
            gc.collect()  # cycles may hold tensors of the failed attempt
            torch.cuda.empty_cache()
        at_a_time = min(self.micro_batch, -(-len(batch) // self.group.size))
        advice = _savings(list(self.network.heads), self.settings)
        # the others are in the middle of the step, and cannot run it again
        if self.group.size > 1 and at_a_time > 1:
            ways = [f"training.micro_batch={at_a_time // 2} and --resume", *advice]
            position = f"step {number + 1}, rank {self.group.rank}"
            problem = f"{position}: out of memory with {at_a_time} documents at a time"
            raise OutOfMemory(f"{problem}; try {', or '.join(ways)}")
        if at_a_time == 1:
            ways = ["a smaller encoder.max_tokens, shortlist or encoder", *advice]
            raise OutOfMemory(
                f"step {number + 1}: out of memory with 1 document of {batch.ids.shape[1]} tokens; "
                f"try {', or '.join(ways)}"
            )
        self.micro_batch = at_a_time // 2
        problem = f"step {number + 1}: out of memory with {at_a_time} documents at a time"
        now = (
            f"going on with {self.micro_batch} (training.micro_batch={self.micro_batch} begins so)"
        )
        log.warning("%s", "; ".join([problem, now, *advice]))


def _savings(heads: Sequence[Any], settings: Training) -> list[str]:
    """Return the settings that would make the classifiers smaller, with what each saves."""
    n_weights = sum(tensor.numel() for head in heads for tensor in head.learnt())
    ways = []
    if settings.head_optimiser == "adamw":
        ways.append(f"training.head_optimiser=row-adam saves {8 * n_weights / 2**30:.1f} GiB")
    if settings.head_weights == "float32":
        ways.append(f"training.head_weights=bfloat16 saves {2 * n_weights / 2**30:.1f} GiB")
    return ways


def _part_of(batch: Batch, group: ProcessGroup) -> Batch:
    """Return this rank's documents of a batch, which may be none; padded as the whole is."""
    if group.size == 1:
        return batch
    part = group.part(len(batch))
    mask = batch.mask
    if mask is not None:
        mask = mask[part]
    return Batch(
        batch.ids[part],
        mask,
        batch.positives[part],
        batch.values[part],
        batch.rows[part],
        batch.epoch,
    )
