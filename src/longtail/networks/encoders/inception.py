"""Encoders of InceptionXML and InceptionXML-LF, Φ_q = (E, θ): convolutions along the numbers of
word vectors.

Kharbanda et al. 2023, InceptionXML: A Lightweight Framework with Synchronized Negative Sampling for
Short Text Extreme Classification. Word vectors are enhanced by self-attention over words and over
their numbers (h_sa), then words are the channels of three convolutions of width 4, 8 and 16 with
stride 4 (h1, an inception module), whose maps a second convolution reads (h2, flat: h_f). h_f is
read by two task layers: one for the meta task (layer 1 of the encoder), one for the extreme task
(layer 2).

Kharbanda et al., Gandalf, appendix A.1 (InceptionXML-LF): the maps of the three are a mixture of
experts rather than side by side, weighted for each instance by a route function, with an average
pool as a down-sampling residual connection; and the second convolution is decoupled: each task has
its own before its task layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, batch_norm, dropout, gelu
from torch.nn.utils.parametrizations import spectral_norm

from longtail.errors import UsageError
from longtail.networks.encoders.word_encoder import SpectralResidual, WordEncoder

__all__ = ["EmbeddingEnhancement", "InceptionEncoder", "RoutedInceptionEncoder", "mixture"]

_CHANNELS = 32
_FILTERS = (4, 8, 16)
_STRIDE = 4
_SECOND = 16  # width of the second convolution
_COLUMNS = 480  # numbers of h_f, or somewhat more
_DROPOUT = 0.25
_LEAST = 16  # dimensions, as the widest filter
_TASKS = 2  # meta and extreme


class EmbeddingEnhancement(nn.Module):
    """h_sa of (B, T, D) vectors x: self-attention over the T words, then over the D numbers.

    Both are γ·(x yᵀ)·(W x) + x, where W has no singular value above 1 and γ starts at 0 (Zhang et
    al. 2019, SAGAN, in the linear form). W of words is cut to as many as the batch has: rows of
    padding are zero on both sides of it."""

    def __init__(self, max_tokens: int, dimensions: int) -> None:
        super().__init__()
        self.over_words = _square(max_tokens)
        self.over_numbers = _square(dimensions)
        self.gamma = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, D)."""
        n = x.shape[1]
        W_x = _of_each(self.over_words.weight[:n, :n], x)
        h_x = self.gamma[0] * ((x @ x.transpose(1, 2)) @ W_x) + x
        # as (h_xᵀ x)(W h_xᵀ), transposed, and multiplied from the right, for T² numbers in place of
        # D²
        W_h = self.over_numbers(h_x)  # (B, T, D)
        h_sa: Tensor = self.gamma[1] * ((W_h @ x.transpose(1, 2)) @ h_x) + h_x
        return h_sa


class _Norm(nn.BatchNorm1d):
    """Batch normalisation that takes its running means where a batch is one number a channel, which
    has no variance.
    """

    def forward(self, h: Tensor) -> Tensor:
        if self.training and h.shape[0] * h.shape[2] > 1:
            return super().forward(h)
        return batch_norm(
            h, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


class InceptionEncoder(WordEncoder):
    """InceptionXML: the maps of all convolutions side by side. ``width`` 480 with vectors of 300,
    ``depth`` 2.

    Its two layers share all but their task layers. Version 0.1 wrote encoders with one
    ``task_layers``, which both
    tasks read: ``depth`` 1.
    """

    kind: ClassVar[str] = "inception"
    routed: ClassVar[bool] = False

    def __init__(
        self, vectors: Tensor, idf: Tensor, pad: int, max_tokens: int, task_layers: int = _TASKS
    ) -> None:
        super().__init__(vectors, idf, pad, max_tokens)
        if self.dimensions < _LEAST:
            problem = f"vectors of {self.dimensions} numbers"
            raise UsageError(
                f"encoder {self.kind!r}: found {problem}; expected {_LEAST} or more; set "
                "encoder.width"
            )
        self.enhancement = EmbeddingEnhancement(max_tokens, self.dimensions)
        self.first = nn.Linear(max_tokens, _CHANNELS)  # a convolution of width 1 over words
        self.first_norm = _Norm(_CHANNELS)
        self.convolutions = nn.ModuleList(_convolution(width) for width in _FILTERS)
        maps = _CHANNELS
        convolutions = task_layers
        if not self.routed:
            maps *= len(_FILTERS)
            convolutions = 1
        self.norm = _Norm(maps)
        second = min(_SECOND, self.dimensions // _STRIDE)
        places = (self.dimensions // _STRIDE - second) // _STRIDE + 1
        channels = -(-_COLUMNS // places)  # 32 of 15 places with vectors of 300
        self.width = channels * places
        if self.routed:
            self.width = self.dimensions
        self.depth = task_layers
        self.second = nn.ModuleList(
            nn.Conv1d(maps, channels, second, _STRIDE) for _ in range(convolutions)
        )
        self.second_norm = nn.ModuleList(_Norm(channels) for _ in range(convolutions))
        hidden = (
            SpectralResidual(channels * places, self.width, nn.GELU(), _DROPOUT)
            for _ in range(task_layers)
        )
        self.hidden = nn.ModuleList(hidden)
        for module in (self.first, *self.convolutions, *self.second):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

    def options(self) -> dict[str, int]:
        """Return the number of task layers."""
        return {"task_layers": self.depth}

    @classmethod
    def from_config(
        cls, about: Mapping[str, Any], vectors: Tensor, idf: Tensor
    ) -> InceptionEncoder:
        """Return an encoder as config.json describes it; folders that name no task layers have
        one.
        """
        task_layers = about.get("task_layers", 1)
        if task_layers not in (1, _TASKS):
            problem = f"{str(task_layers)[:60]!r} as task_layers"
            raise UsageError(
                f"encoder {cls.kind!r}: config.json: found {problem}; expected 1 or {_TASKS}"
            )
        return cls(vectors, idf, about["pad"], about["max_tokens"], task_layers)

    def read(self, ids: Tensor) -> Tensor:
        """Return h_f, (B, channels · places)."""
        return self.flat(self.maps(ids), 0)

    def maps(self, ids: Tensor) -> Tensor:
        """Return h1, the maps of the inception module: (B, 96, D / 4), or (B, 32, D / 4) of a
        mixture.
        """
        x = dropout(self.embedding(ids), _DROPOUT, self.training)  # (B, T, D)
        h_sa = self.enhancement(x)
        # padding is zero in h_sa, so the columns of its channels need not be read
        # (B, 32, D)
        h0 = _of_each(self.first.weight[:, : ids.shape[1]], h_sa) + self.first.bias[:, None]
        h0 = self.first_norm(gelu(h0))
        h1 = self.joined(h0, [convolution(h0) for convolution in self.convolutions])
        return dropout(h1, _DROPOUT, self.training)

    def joined(self, h0: Tensor, maps: Sequence[Tensor]) -> Tensor:
        """Return the (B, 32, D / 4) ``maps`` of ``h0`` as one: side by side."""
        h1: Tensor = self.norm(gelu(torch.cat(list(maps), 1)))
        return h1

    def flat(self, h1: Tensor, at: int) -> Tensor:
        """Return h_f of the second convolution ``at``, counted from 0."""
        h2: Tensor = self.second_norm[at](gelu(self.second[at](h1)))
        return h2.flatten(1)

    def layer(self, hidden: Tensor, number: int) -> Tensor:
        """Return GELU(R·h_f) + h_f of the task layer ``number``; ``hidden`` is h_f."""
        vector: Tensor = self.hidden[number - 1](hidden)
        return vector


class RoutedInceptionEncoder(InceptionEncoder):
    """InceptionXML-LF: a mixture of the convolutions. ``width`` is that of the vectors, ``depth``
    2.

    Its two layers share the maps h1; each has a second convolution and a task layer of its own.
    """

    kind: ClassVar[str] = "routed-inception"
    routed: ClassVar[bool] = True

    def __init__(self, vectors: Tensor, idf: Tensor, pad: int, max_tokens: int) -> None:
        super().__init__(vectors, idf, pad, max_tokens, _TASKS)
        self.route = nn.Linear(_CHANNELS, len(_FILTERS))
        nn.init.xavier_uniform_(self.route.weight)
        nn.init.zeros_(self.route.bias)

    def routing(self, h0: Tensor) -> Tensor:
        """Return the weights (B, experts) of the route function, which sum to 1, from the means of
        h0's channels.
        """
        return self.route(h0.mean(2)).softmax(1)  # type: ignore[no-any-return]

    def options(self) -> dict[str, int]:
        """Return nothing: there always were two task layers."""
        return {}

    @classmethod
    def from_config(
        cls, about: Mapping[str, Any], vectors: Tensor, idf: Tensor
    ) -> RoutedInceptionEncoder:
        """Return an encoder as config.json describes it."""
        return cls(vectors, idf, about["pad"], about["max_tokens"])

    def read(self, ids: Tensor) -> Tensor:
        """Return h1, (B, 32, D / 4)."""
        return self.maps(ids)

    def layer(self, hidden: Tensor, number: int) -> Tensor:
        """Return GELU(R·h_f) + h_f, h_f being that of the second convolution ``number``; ``hidden``
        is h1.
        """
        return super().layer(self.flat(hidden, number - 1), number)

    def joined(self, h0: Tensor, maps: Sequence[Tensor]) -> Tensor:
        """Return the mixture of the ``maps``, and h0 averaged down to their length."""
        h1: Tensor = self.norm(gelu(mixture(self.routing(h0), maps)))
        return h1 + avg_pool1d(h0, _STRIDE)


def mixture(weights: Tensor, maps: Sequence[Tensor]) -> Tensor:
    """Return Σ_e weights_e · maps_e for weights (B, experts) and as many maps (B, C, n)."""
    weighted = zip(weights.unbind(1), maps, strict=True)
    return sum(weight[:, None, None] * h for weight, h in weighted)  # type: ignore[return-value]


def _of_each(W: Tensor, x: Tensor) -> Tensor:
    """Return W x of each document, (C, T) x (B, T, D) -> (B, C, D); ``@`` would copy x before and
    after.
    """
    return torch.bmm(W.expand(x.shape[0], -1, -1), x)


def _square(size: int) -> nn.Linear:
    """Return a spectrally normed (size, size) map without bias."""
    linear = nn.Linear(size, size, bias=False)
    nn.init.xavier_normal_(linear.weight)
    spectral_norm(linear)
    return linear


def _convolution(width: int) -> nn.Conv1d:
    """Return a convolution around the ends of a row, so that maps of all widths have D / 4
    columns.
    """
    padding = (width - _STRIDE) // 2
    return nn.Conv1d(_CHANNELS, _CHANNELS, width, _STRIDE, padding, padding_mode="circular")
