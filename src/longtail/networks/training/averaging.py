"""The mean of a network's weights over the last steps of a run, which generalises better than the
last weights.

Izmailov et al. 2018, Averaging Weights Leads to Wider Optima and Better Generalization (SWA,
algorithm 1): w_SWA ← (w_SWA · n_models + w) / (n_models + 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.steps.process_group import Shard

__all__ = ["Average"]

# at most, in a run: neighbouring steps tell the mean little, and each costs a pass over all weights
_UPDATES = 100


class Average:
    """The running mean of ``weights``, as many numbers again, over the last ``share`` of ``total``
    steps.

    With a share of 0 it takes no memory and does nothing. The mean of bfloat16 weights is float32,
    as it would otherwise stand still. A weight that is split among ranks has its ``shards`` entry,
    and is an array as a whole."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        share: float,
        total: int,
        shards: Sequence[Shard | None] = (),
    ) -> None:
        self._total = total
        self._last = round(share * total)
        self._every = max(1, -(-self._last // _UPDATES))
        self._weights = list(weights) if self._last else []
        self._shards = shards or [None] * len(weights)
        # now, so that no step in the middle of the run is the first to need the memory
        self._means = [torch.zeros_like(weight, dtype=_wide(weight)) for weight in self._weights]
        self.count = 0  # weights that the mean is of

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after ``step`` steps, if it is one that counts; the last step of a run
        is.
        """
        left = self._total - step
        if not self._means or left >= self._last or left % self._every:
            return
        self.count += 1
        share = 1 / self.count
        for mean, weight in zip(self._means, self._weights, strict=True):
            mean.mul_(1 - share).add_(weight, alpha=share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the mean as the network's weights in the body, if there is one yet; float32 ones are
        not copied.
        """
        if not self.count:
            yield
            return
        before = [weight.data for weight in self._weights]
        try:
            for weight, mean in zip(self._weights, self._means, strict=True):
                weight.data = mean.to(weight.dtype)
            yield
        finally:
            for weight, data in zip(self._weights, before, strict=True):
                weight.data = data

    @torch.no_grad()
    def apply(self) -> None:
        """Make the mean the network's weights for good, if there is one."""
        if self.count:
            for weight, mean in zip(self._weights, self._means, strict=True):
                weight.copy_(mean)

    def to_arrays(self, state: bool = False) -> dict[str, NDArray[Any]]:
        """Return ``count`` and the mean, by the weights' position; nothing without a mean."""
        if not self.count:
            return {}
        arrays = {"count": np.array(self.count)}
        for at, (mean, shard) in enumerate(zip(self._means, self._shards, strict=False)):
            if shard is None:
                arrays[str(at)] = mean.cpu().numpy()
            else:
                arrays[str(at)] = shard.whole(mean)
        return arrays

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`to_arrays` gave."""
        self.count = 0
        if not arrays:
            return
        self.count = int(arrays["count"])
        for at, (mean, shard) in enumerate(zip(self._means, self._shards, strict=False)):
            array = arrays[str(at)]
            if shard is not None:
                array = shard.local_rows(array)
            mean.copy_(torch.from_numpy(np.array(array)))


def _wide(weight: Tensor) -> torch.dtype:
    if weight.dtype == torch.bfloat16:
        return torch.float32
    return weight.dtype
