"""`Embedder`, an encoder with its tokeniser: texts in, a vector of each document out (Φ_dnn)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail import reporting
from longtail.config import Encoder as Settings
from longtail.data.strings import Strings
from longtail.features.encoder import Encoder, encoder_folder
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokeniser, Tokens
from longtail.networks.base import Ranked, VectorNetwork
from longtail.networks.batches import Batch, Batches
from longtail.networks.device import arithmetic, choose_device, computes_in_half, pool_threads
from longtail.networks.encoders.word_encoder import without_norms
from longtail.networks.graphs import LARGEST_BATCH, RankGraphs

if TYPE_CHECKING:
    from longtail.networks.ranker import NeuralRanker

__all__ = ["Embedder", "LastLayer", "pretrained_embedder"]

T = TypeVar("T")

_BATCH = {"cuda": 512, "cpu": 32}  # documents at a time


class LastLayer(nn.Module):
    """An encoder alone: its last layer's vector is the document's."""

    family: ClassVar[str] = "encoder"

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads: Sequence[Any] = ()

    @property
    def widths(self) -> tuple[int]:
        """Columns of the vectors."""
        return (self.encoder.width,)

    def vectors(self, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the one (B, d) vector."""
        return self.encoder(ids, mask, [self.encoder.depth])  # type: ignore[no-any-return]

    def in_half(self) -> LastLayer:
        """Return a copy whose encoder is bfloat16."""
        half = copy(self)
        half._modules = self._modules | {"encoder": deepcopy(self.encoder).bfloat16()}
        return half.eval()


class Embedder:
    """Tokeniser and network; ``precision`` is the arithmetic of the encoder, as in the settings of
    training.
    """

    network: VectorNetwork

    def __init__(
        self, tokeniser: Tokeniser, network: VectorNetwork, precision: str = "auto"
    ) -> None:
        self.tokeniser = tokeniser
        self.network = network
        self.precision = precision
        # what computes: the network itself, or once it is frozen a copy that is quicker
        self._running: Any = network
        self._in_half = False  # whether that copy is bfloat16
        self._graphs: RankGraphs | None = None

    def freeze(self) -> Self:
        """Make the network ready for inference alone: no optimiser; on a GPU bfloat16 and graphs,
        else norms made once.

        Weights are not to change from here on.
        """
        self.network.train(False)
        for head in self.network.heads:
            head.drop_optimiser_state()
        if self.device.type == "cuda":
            self._in_half = computes_in_half(self.precision, self.device)
            self._running = self.network
            if self._in_half:
                self._running = self.network.in_half()
            self._graphs = RankGraphs(
                self._ranked, self.device, self.tokeniser.max_tokens, self.tokeniser.pad_left
            )
        else:
            with self._arithmetic():  # norms are rounded as they were in every pass
                self._running = without_norms(self.network)
        return self

    @property
    def ranker(self) -> NeuralRanker | None:
        """This network, if it ranks labels by itself."""
        return None

    @property
    def n_parameters(self) -> int:
        """Numbers of the encoder, and of the classifiers on it."""
        classifiers = int(sum(head.weight.numel() for head in self.network.heads))
        return sum(p.numel() for p in self.network.parameters()) + classifiers

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.network.parameters()).device

    @property
    def width(self) -> int:
        """Columns of the vectors of documents."""
        return int(self.network.widths[-1])

    def embed(self, texts: Strings | Iterable[str] | Tokens) -> NDArray[np.float32]:
        """Return (n, d) vectors of the documents, those that labels' classifiers read."""
        tokens = self._tokens(texts)
        if self._graphs is not None and 0 < len(tokens) <= LARGEST_BATCH:
            with torch.inference_mode():
                return self._graphs(*tokens.padded(np.arange(len(tokens))), 0)[2]
        return self._vectors(tokens, slice(-1, None), "documents")[0]

    def level_vectors(self, tokens: Tokens, unit: str = "documents") -> list[NDArray[np.float32]]:
        """Return the vectors that each level reads, (n, d); ``unit`` is what progress calls the
        texts.
        """
        return self._vectors(tokens, slice(None), unit)

    def _vectors(self, tokens: Tokens, wanted: slice, unit: str) -> list[NDArray[np.float32]]:
        """Return the vectors of some of the levels; those of the others are not kept."""
        levels = [
            np.zeros((len(tokens), width), np.float32) for width in self.network.widths[wanted]
        ]
        for rows, theta in self._each(
            tokens, lambda batch: self._running.vectors(batch.ids, batch.mask), unit
        ):
            for level, vectors in zip(levels, theta[wanted], strict=True):
                level[rows] = vectors.float().cpu()
        return levels

    def _tokens(self, texts: Strings | Iterable[str] | Tokens) -> Tokens:
        if isinstance(texts, Tokens):
            return texts
        return self.tokeniser(texts)

    def _ranked(self, ids: Tensor, mask: Tensor, k: int) -> Ranked:
        """Return the vectors, with no labels."""
        vectors = self._running.vectors(ids, mask)[-1]
        return Ranked(
            ids.new_zeros(len(ids), 0).float(), ids.new_zeros(len(ids), 0).int(), vectors, ()
        )

    def _each(
        self, tokens: Tokens, run: Callable[[Batch], T], unit: str = "documents"
    ) -> Iterator[tuple[NDArray[np.int64], T]]:
        """Yield the rows of each batch and what ``run`` gives for it, in the arithmetic and state
        of inference.
        """
        was_training = self.network.training
        device = self.device
        size = _BATCH[device.type]
        self.network.train(False)
        try:
            with reporting.stage("vectors", len(tokens), unit), pool_threads():
                for batch in Batches.in_order(tokens, size):
                    with torch.inference_mode(), self._arithmetic():
                        result = run(batch.to(device))
                    yield batch.rows, result
                    reporting.advance(len(batch.rows))
        finally:
            self.network.train(was_training)

    def _arithmetic(self) -> AbstractContextManager[object]:
        if self._in_half:
            return nullcontext()
        return arithmetic(self.precision, self.device)


def pretrained_embedder(
    settings: Settings, precision: str = "auto", device: str = "auto"
) -> Embedder:
    """Return the pretrained encoder of the settings as it is, not frozen."""
    folder = encoder_folder(settings.name)
    network = LastLayer(Encoder.load(folder, settings.pooling)).to(choose_device(device))
    return Embedder(
        Tokeniser.load(folder, settings.max_tokens, settings.cleaning), network, precision
    )
