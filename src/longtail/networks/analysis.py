"""Inner quantities of a network: attention of the class token, likeness of levels, recall of
shortlists.

The measurements of appendix B of CascadeXML (figures 2, 3 and 4, table 11), beside the encoder
before training."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple, cast

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail import reporting
from longtail.config import Encoder as EncoderSettings
from longtail.data.dataset import Dataset
from longtail.errors import UsageError
from longtail.features.encoder import Encoder, encoder_folder
from longtail.features.tokens import Tokens
from longtail.networks.batches import Batch, Batches
from longtail.networks.cascade import CascadeXML
from longtail.networks.ranker import NeuralRanker

__all__ = [
    "Analysis",
    "LayerAttention",
    "Likeness",
    "analyse",
    "class_attention",
    "pwcca",
    "transformer_of",
    "untuned_encoder",
]

_BATCH = 64  # documents at a time
_MAPS = 1 << 26  # numbers of attention that are in memory at a time: 256 MiB
# documents for each dimension of the vectors that PWCCA compares, where there are so many
_PER_DIMENSION = 5
_NULL = 1e-6  # share of all length below which a direction is rounding: float32 has 7 digits

log = logging.getLogger("longtail")


class LayerAttention(msgspec.Struct, frozen=True):
    """Attention from the class token in one layer, over all heads and documents."""

    layer: int
    self_mean: float  # to itself
    self_max: float
    entropy: float  # mean entropy of the attention to all tokens, in nats
    entropy_share: float  # the same as a share of ln(tokens), which is the most there can be


class Likeness(msgspec.Struct, frozen=True):
    """PWCCA of the vectors that two levels read."""

    levels: tuple[int, int]
    layers: tuple[int, int]
    similarity: float  # 0 to 1: the mean of weighing by either level
    # what the same vectors give when those of the second level are shuffled over the documents
    chance: float


class Analysis(msgspec.Struct, frozen=True):
    """All measurements; levels and layers count from 1, and the keys of dicts are «trained» and
    «untuned».
    """

    documents: int  # whose attention and shortlists were looked at
    vector_documents: int  # those of PWCCA
    layers: tuple[int, ...]  # the layer of each level, the last one where a level reads several
    attention: dict[str, tuple[LayerAttention, ...]]
    likeness: dict[str, tuple[Likeness, ...]]  # empty where PWCCA has too few documents
    # of each level above the labels, mean over documents; empty without labels
    shortlist_recall: tuple[float, ...]


def analyse(
    ranker: NeuralRanker, untuned: Encoder | None, documents: Dataset, most: int, seed: int = 0
) -> Analysis:
    """Measure up to ``most`` documents, taken by chance; PWCCA takes more where its vectors are
    wide.

    ``documents`` have texts, and their labels are those of the ranker's tree.
    """
    order = np.random.default_rng(seed).permutation(len(documents))
    some = documents.take(order[:most])
    tokens = ranker.tokeniser(some.document_texts())
    wide = documents.take(order[: max(most, _PER_DIMENSION * ranker.width)])
    vector_tokens = ranker.tokeniser(wide.document_texts())
    encoder = transformer_of(ranker)
    # the network on a transformer
    layers = tuple(max(read) for read in cast(CascadeXML, ranker.network).layers)
    encoders = {"trained": encoder} | ({"untuned": untuned} if untuned is not None else {})
    return Analysis(
        len(tokens),
        len(vector_tokens),
        layers,
        {name: class_attention(encoder, tokens) for name, encoder in encoders.items()},
        _likenesses(encoders, vector_tokens, layers, seed),
        tuple(ranker.shortlist_recall(tokens, some.label_matrix)) if some.label_matrix.nnz else (),
    )


def transformer_of(ranker: NeuralRanker) -> Encoder:
    """Return the encoder of a network, or say that it has no attention to look at."""
    encoder = ranker.network.encoder
    if not isinstance(encoder, Encoder):
        raise UsageError(
            "found a network on vectors of words, without [CLS] and its attention; expected a "
            "transformer"
        )
    return encoder


def untuned_encoder(settings: EncoderSettings, trained: Encoder) -> Encoder | None:
    """Return the encoder that training began with, beside ``trained``; None, and a line in the log,
    if it is gone.
    """
    try:
        untuned = Encoder.load(encoder_folder(settings.name), settings.pooling)
    except UsageError as error:
        log.warning("the encoder before training is left out: %s", error)
        return None
    untuned_shape = _shape(untuned)
    expected = _shape(trained)
    if untuned_shape != expected:
        log.warning(
            "the encoder before training is left out: encoder %r: found %s; expected %s, as in "
            "the model",
            settings.name,
            untuned_shape,
            expected,
        )
        return None
    return untuned.to(next(trained.parameters()).device)


def _shape(encoder: Encoder) -> str:
    vocabulary = encoder.model.config.vocab_size
    return f"{encoder.depth} layers of width {encoder.width} for {vocabulary} tokens"


@torch.inference_mode()
def class_attention(encoder: Encoder, tokens: Tokens) -> tuple[LayerAttention, ...]:
    """Return the attention of the class token in each layer (figures 2 and 3); padding is no
    token.
    """
    sums = torch.zeros(3, encoder.depth, dtype=torch.float64)
    most = torch.zeros(encoder.depth, dtype=torch.float64)
    for batch in _batches(encoder, tokens, "attention", maps=True):
        itself, entropy = _class_rows(encoder, batch, -1 if tokens.pad_left else 0)
        if batch.mask is None:
            lengths = torch.full((len(batch),), batch.ids.shape[1])
        else:
            lengths = batch.mask.sum(1)
        # a single token has an entropy of 0
        share = entropy / lengths.to(entropy).clamp(min=2).log()
        sums += torch.stack([itself.mean(2).sum(1), entropy.sum(1), share.sum(1)]).cpu()
        most = torch.maximum(most, itself.amax((1, 2)).cpu())
    means = (sums / len(tokens)).T.tolist()
    return tuple(
        LayerAttention(layer, mean, high, entropy, share)
        for layer, ((mean, entropy, share), high) in enumerate(
            zip(means, most.tolist(), strict=True), 1
        )
    )


def _class_rows(encoder: Encoder, batch: Batch, at: int) -> tuple[Tensor, Tensor]:
    """Return the attention of the token ``at`` to itself (layers, B, heads), and its entropy
    (layers, B).
    """
    maps, _ = encoder.attentions(batch.ids, batch.mask)
    rows = torch.stack([weights[:, :, at] for weights in maps]).double()  # (layers, B, heads, T)
    itself = rows[..., at]
    if batch.mask is not None:
        rows = rows.masked_fill(~batch.mask[:, None], 0)
    rows = rows / rows.sum(-1, keepdim=True)
    return itself, torch.special.entr(rows).sum(-1).mean(2)


def _batches(encoder: Encoder, tokens: Tokens, name: str, maps: bool = False) -> Iterator[Batch]:
    """Yield batches on the encoder's device; with ``maps`` so small that all attention of one fits
    into memory.
    """
    encoder.eval()
    device = next(encoder.parameters()).device
    heads = int(encoder.model.config.num_attention_heads)
    with reporting.stage(name, len(tokens), "documents"):
        for whole in Batches.in_order(tokens, _BATCH):
            size = _MAPS // (encoder.depth * heads * whole.ids.shape[1] ** 2) if maps else _BATCH
            for batch in whole.split(max(size, 1)):
                yield batch.to(device)
                reporting.advance(len(batch))


@torch.inference_mode()
def _layer_vectors(
    encoder: Encoder, tokens: Tokens, layers: Sequence[int]
) -> dict[int, NDArray[np.float32]]:
    """Return the pooled (n, d) vectors after each of ``layers``."""
    vectors = {
        layer: np.zeros((len(tokens), encoder.width), np.float32) for layer in sorted(set(layers))
    }
    for batch in _batches(encoder, tokens, "vectors"):
        for vectors_of_layer, pooled in zip(
            vectors.values(), encoder(batch.ids, batch.mask, list(vectors)), strict=True
        ):
            vectors_of_layer[batch.rows] = pooled.float().cpu()
    return vectors


def _likenesses(
    encoders: dict[str, Encoder], tokens: Tokens, layers: Sequence[int], seed: int
) -> dict[str, tuple[Likeness, ...]]:
    """Return PWCCA of each pair of levels (figure 4), or nothing, and a line in the log, for too
    few documents.
    """
    shuffled = np.random.default_rng(seed).permutation(len(tokens))
    try:
        return {
            name: _pairs(_layer_vectors(encoder, tokens, layers), layers, shuffled)
            for name, encoder in encoders.items()
        }
    except UsageError as error:
        log.warning("PWCCA is left out: %s", error)
        return {}


def _pairs(
    vectors: dict[int, NDArray[np.float32]], layers: Sequence[int], shuffled: NDArray[np.int64]
) -> tuple[Likeness, ...]:
    spans = {layer: _span(layer_vectors) for layer, layer_vectors in vectors.items()}
    likenesses = []
    for (level, layer), (other_level, other_layer) in combinations(enumerate(layers, 1), 2):
        one = spans[layer]
        other = spans[other_layer]
        unrelated = _Span(other.directions[shuffled], other.coordinates)
        similarities = [float(np.mean(_weighted(one, second))) for second in (other, unrelated)]
        likenesses.append(Likeness((level, other_level), (layer, other_layer), *similarities))
    return tuple(likenesses)


class _Span(NamedTuple):
    """Centred vectors of documents as a product."""

    directions: NDArray[np.float64]  # (n, rank) orthonormal columns
    coordinates: NDArray[np.float64]  # (rank, d)


def pwcca(x: NDArray[np.floating], y: NDArray[np.floating]) -> float:
    """Return the projection weighted CCA of (n, d) and (n, e) vectors of the same documents,
    weighed by ``x``.

    1 where ``x`` is a linear function of ``y``; linear maps of ``y`` change nothing. Morcos et al.
    2018, eq. 2 and 3."""
    return _weighted(_span(x), _span(y))[0]


def _span(x: NDArray[np.floating]) -> _Span:
    """Return the SVD of the centred ``x`` without the directions that only rounding has put
    there.
    """
    exact = x.astype(np.float64)
    directions, lengths, axes = np.linalg.svd(exact - exact.mean(0), full_matrices=False)
    kept = lengths > _NULL * np.linalg.norm(exact)
    if not kept.any():
        raise UsageError("found the same vector for every document; expected different ones")
    return _Span(directions[:, kept], lengths[kept, None] * axes[kept])


def _weighted(x: _Span, y: _Span) -> tuple[float, float]:
    """Return Σ αᵢ ρᵢ / Σ αᵢ weighed by ``x`` and by ``y``: αᵢ = Σⱼ |⟨hᵢ, xⱼ⟩| of the canonical
    variable hᵢ.

    The canonical correlations ρ are the singular values of the product of the two orthonormal
    bases."""
    n = len(x.directions)
    # subspaces that meet for want of room would be alike
    if n <= x.directions.shape[1] + y.directions.shape[1]:
        needed = x.coordinates.shape[1] + y.coordinates.shape[1]
        raise UsageError(
            f"found {n} documents; expected more than {needed}, the dimensions of both vectors "
            "together"
        )
    left, correlations, right = np.linalg.svd(x.directions.T @ y.directions, full_matrices=False)
    correlations = np.clip(correlations, 0, 1)
    by_x = np.abs(left.T @ x.coordinates).sum(1)
    by_y = np.abs(right @ y.coordinates).sum(1)
    return float(by_x @ correlations / by_x.sum()), float(by_y @ correlations / by_y.sum())
