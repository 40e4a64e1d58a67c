"""What a network adds to the forecast of a run: operations and bytes that follow from the shape of
its encoder.

torch is not asked, as it may not be there and takes seconds to import: the encoder's files tell its
shape."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from longtail.config import Config, Training
from longtail.features.encoder_folder import EncoderShape
from longtail.forecast.encoders import WORD_BYTES
from longtail.forecast.gpus import Gpu, nominal_flops
from longtail.forecast.sizes import DataSizes, Distribution
from longtail.methods import METHODS, ranks_alone
from longtail.networks.fitting import network_widths
from longtail.networks.layout import (
    ATTENTION_HIDDEN,
    CNN_BOTTLENECK,
    CNN_CHUNKS,
    CNN_FILTERS,
    CNN_WORDS,
    documents_at_a_time,
    level_epochs,
    level_layers,
    scores_all_labels,
    shortlist_sizes,
    tuned_levels,
    vector_widths,
)

__all__ = ["NetworkForecast", "network_forecast"]


class NetworkCosts(NamedTuple):
    """Constants measured with MiniLM and five sets of documents; seconds are of one core."""

    special: int = 2  # tokens of a document beside those of its text
    padding: float = 4.0  # tokens of a document, as lengths are rounded up to a multiple of 8
    token_seconds: float = 4e-6  # to tokenise the text of a token
    flops: float = 30e9  # a core and second in float32, two at work; one alone does 60e9
    # Of a device's nominal throughput; with BERT-base on an H200 4,120 documents/s of 128 tokens in
    # training are 0.28 of it, and 5,027 of 72 tokens, with 410,000 labels in shortlists, 0.20.
    gpu_share: float = 0.24
    library_bytes: float = 330e6  # torch and transformers
    # of the host's memory that CUDA, its libraries and pinned batches take
    cuda_bytes: float = 2.5e9
    step_bytes: float = 8.0  # a parameter of the encoder, held for a moment by AdamW on the CPU
    spare: float = 1.2  # times the activations: what a pass backward holds for a moment, and gaps


_COSTS = NetworkCosts()
_TRAINED = 16.0  # bytes of a parameter: weight, gradient and two moments
_WITHOUT_TRAINING = {True: 512, False: 32}  # documents at a time on a GPU, or not


class NetworkForecast(NamedTuple):
    """Estimates for a network and its training."""

    width: int  # columns of its vectors
    tree: tuple[int, ...]  # nodes of each level, none of an encoder that stays as it is
    stages: tuple[str, ...]  # of its training, as the log of a run calls them
    on_gpu: bool
    seconds: float  # of one core
    gpu_seconds: float | None  # None where nobody knows
    training_bytes: float  # weights, gradients, optimisers and activations, where it works hardest
    resting_bytes: float  # weights that stay
    reading_bytes: float  # encoder and activations where documents are only read
    # vectors of all documents that the classifiers start from, in memory before training
    first_bytes: float
    library_bytes: float  # in memory from the tokens on, wherever it is trained
    token_bytes: float  # until it is trained
    kept_bytes: float = 0.0  # vectors of all documents, in memory while it is trained


class _Plan(NamedTuple):
    """What is done with an encoder; levels are (nodes, columns of what their classifiers read)."""

    tree: tuple[int, ...]
    width: int  # columns of the vectors of documents
    passes: float  # forward, over all documents; a step back counts as two
    products: float  # weights that a document is multiplied with, over all epochs
    # levels that are in memory together, one of these after another
    together: tuple[tuple[tuple[int, int], ...], ...]
    stays: bool  # whether classifiers are part of the model
    first_vectors: float  # numbers of all vectors before training
    kept_vectors: float  # and while it lasts
    stages: tuple[str, ...]  # of the training
    encoders: int = 1  # copies of the encoder in the model


def network_forecast(
    sizes: DataSizes, config: Config, shape: EncoderShape, gpu: Gpu | None
) -> NetworkForecast:
    """Estimate the network of a method that has one, or an encoder as it is; on the CPU where there
    is no GPU.
    """
    on_gpu = gpu is not None
    tokens = _tokens(sizes, config.encoder.max_tokens)
    kind = METHODS[config.method].network
    plan = {"cascade": _cascade, "attention": _attention, "recursive": _recursive, "": _frozen}[
        kind
    ](shape, sizes, config)
    levels = [
        [_classifier_bytes(*level, config.training) for level in levels] for levels in plan.together
    ]
    if plan.stays:
        weights = max((sum(own for own, _ in level) for level in levels), default=0.0)
    else:
        weights = 0.0
    forward = _convolutions if config.encoder.kind == "cnn" else _forward
    operations = plan.passes * forward(shape, sizes, config) + 2.0 * tokens.size * plan.products
    seconds = _COSTS.token_seconds * tokens.sum
    reading = _working_bytes(shape, tokens, False, on_gpu, config.training)
    training = _working_bytes(shape, tokens, True, on_gpu, config.training) if kind else reading
    others = 4.0 * (plan.encoders - 1) * shape.parameters
    return NetworkForecast(
        width=plan.width,
        tree=plan.tree,
        stages=plan.stages,
        on_gpu=on_gpu,
        seconds=seconds if on_gpu else seconds + operations / _COSTS.flops,
        gpu_seconds=0.0 if gpu is None else _gpu_seconds(operations, gpu, config),
        training_bytes=training
        + others
        + max((sum(own + state for own, state in level) for level in levels), default=0.0),
        resting_bytes=4.0 * plan.encoders * shape.parameters + weights,
        reading_bytes=reading + others + weights,
        first_bytes=4.0 * plan.first_vectors,
        library_bytes=_COSTS.library_bytes + (_COSTS.cuda_bytes if on_gpu else 0.0),
        token_bytes=(2 if shape.vocabulary < 1 << 16 else 4) * tokens.sum + 8.0 * tokens.size,
        kept_bytes=4.0 * plan.kept_vectors,
    )


def _gpu_seconds(operations: float, gpu: Gpu, config: Config) -> float | None:
    """Return the seconds of a GPU; None for an unknown device, and for small encoders, which wait
    for memory.
    """
    flops = nominal_flops(gpu, "float32" if config.training.precision == "float32" else "bfloat16")
    if flops is None or config.encoder.kind != "transformer":
        return None
    return operations / (_COSTS.gpu_share * flops)


def _cascade(shape: EncoderShape, sizes: DataSizes, config: Config) -> _Plan:
    """Return the plan of a network that is trained on all levels together and ranks by itself."""
    widths = network_widths(config, sizes.n_labels)
    cascade = config.cascade
    epochs = config.training.epochs
    layers = cascade.layers or level_layers(shape.depth, len(widths), cascade.merge)
    width = CNN_BOTTLENECK if config.encoder.kind == "cnn" else shape.width
    columns = vector_widths(layers, width, cascade.merge, cascade.bottleneck)
    scored = _scored(widths, cascade.shortlist or shortlist_sizes(widths))
    if scores_all_labels(cascade.last_level, widths[-1]):
        scored[-1] = widths[-1]
    # settings for another number of levels are refused by training, so zip takes what there is
    levels = tuple(zip(widths, columns, strict=False))
    products = 3.0 * epochs * sum(own * width for own, width in zip(scored, columns, strict=False))
    centroids = cascade.label_rows in ("centroid", "centroid+text")
    texts = sizes.documents + (sizes.n_labels if cascade.label_rows == "centroid+text" else 0)
    passes = 3 * epochs + centroids + (not ranks_alone(config))
    stages = ("network",) if config.label_text.phases == "one" else ("network-0", "network-1")
    first = centroids * texts * sum(columns)
    return _Plan(widths, columns[-1], passes, products, (levels,), True, first, 0, stages)


def _attention(shape: EncoderShape, sizes: DataSizes, config: Config) -> _Plan:
    """Return the plan of a network a level, which looks at all words of a text for each node that
    it scores.
    """
    widths = network_widths(config, sizes.n_labels)
    settings = config.recursive
    epochs = _level_passes(sizes, config, len(widths), last=1)
    scored = _scored(widths, (settings.shortlist + ceil(sizes.true_labels),) * (len(widths) - 1))
    words = _tokens(sizes, config.encoder.max_tokens).mean
    each = words * (shape.width + ATTENTION_HIDDEN)  # α_tl, and the sum of W_1 H_t that they weigh
    products = 3.0 * each * sum(own * times for own, times in zip(scored, epochs, strict=False))
    matches = sum(range(len(widths)))  # the candidates of a level are those of all levels above it
    levels = tuple((nodes, shape.width) for nodes in widths)
    passes = 3 * sum(epochs) + matches
    stages = _level_stages(len(widths))
    return _Plan(
        widths, shape.width, passes, products, (levels,), True, 0, 0, stages, encoders=len(widths)
    )


def _recursive(shape: EncoderShape, sizes: DataSizes, config: Config) -> _Plan:
    """Return the plan of an encoder that is tuned on one level after another, and whose vectors
    alone are kept.
    """
    widths = network_widths(config, sizes.n_labels)
    settings = config.recursive
    tuned = widths[: tuned_levels(widths, settings.finest)]
    epochs = _level_passes(sizes, config, len(tuned), last=3)
    scored = _scored(tuned, (settings.shortlist + ceil(sizes.true_labels),) * (len(tuned) - 1))
    products = (
        3.0 * shape.width * sum(own * times for own, times in zip(scored, epochs, strict=False))
    )
    # the last of them is that of the embeddings
    passes = 3 * sum(epochs) + settings.bootstrap + len(tuned)
    vectors = float(sizes.documents * shape.width)
    levels = tuple(((nodes, shape.width),) for nodes in tuned)
    stages = _level_stages(len(tuned))
    return _Plan(widths, shape.width, passes, products, levels, False, 2 * vectors, vectors, stages)


def _level_passes(sizes: DataSizes, config: Config, n_levels: int, last: int) -> tuple[float, ...]:
    """Return the passes over the documents on each level, by the optimiser's steps where these are
    set.

    Numbers for another tree, as those of a preset, are taken as they are: training refuses them.
    """
    settings = config.recursive
    if settings.steps:
        return tuple(
            steps * config.training.batch_size / max(sizes.documents, 1) for steps in settings.steps
        )
    return settings.epochs or level_epochs((), config.training.epochs, n_levels, last)


def _frozen(shape: EncoderShape, sizes: DataSizes, config: Config) -> _Plan:
    """Return the plan of a pretrained encoder that only gives its vectors."""
    return _Plan((), shape.width, 1, 0.0, (), False, 0.0, 0.0, ())


def _level_stages(n_levels: int) -> tuple[str, ...]:
    return tuple(f"level {t + 1} of {n_levels}, network" for t in range(n_levels))


def _tokens(sizes: DataSizes, most: int, text_bytes: float = 0.0) -> Distribution:
    """Return how many tokens documents will have, of so many bytes each; 0: of subwords."""
    lengths = sizes.text_lengths
    tokens = np.minimum(_COSTS.special + lengths.values / (text_bytes or sizes.token_bytes), most)
    return Distribution(tokens, lengths.counts)


def _classifier_bytes(n_nodes: int, width: int, training: Training) -> tuple[float, float]:
    """Return the bytes of a level's weights, and of their optimiser's state and average in
    training.
    """
    weights = n_nodes * (width * (2.0 if training.head_weights == "bfloat16" else 4.0) + 4)
    state = {"sgd": 0.0, "row-adam": 12.0, "adamw": 8.0 * width + 12}[training.head_optimiser]
    return weights, n_nodes * (state + (4.0 * width + 4 if training.average else 0.0))


def _working_bytes(
    shape: EncoderShape, tokens: Distribution, trained: bool, on_gpu: bool, training: Training
) -> float:
    """Return the bytes of an encoder and of the activations of a batch: of all layers if it is
    trained, else of one.
    """
    longest = tokens.largest
    activations = _COSTS.spare * longest * _token_bytes(shape, longest, on_gpu, training)
    if not trained:
        return (
            4.0 * shape.parameters
            + min(_WITHOUT_TRAINING[on_gpu], tokens.size) * activations / shape.depth
        )
    at_a_time = min(
        documents_at_a_time(training.micro_batch, training.batch_size, on_gpu), tokens.size
    )
    each = _TRAINED + (0 if on_gpu else _COSTS.step_bytes) + (4 if training.average else 0)
    return shape.parameters * each + at_a_time * activations


def _token_bytes(shape: EncoderShape, length: float, on_gpu: bool, training: Training) -> float:
    """Return the activations of a token of a text of ``length`` that all layers keep for the
    backward pass.

    In numbers, a layer keeps its input, queries, keys, values, what attention gives, the input of
    both norms, the input of the feed-forward part (8 widths) and its middle before and after the
    activation function; also what two dropouts left. A CPU keeps the dropouts as numbers, and
    attention three times: as it is, its dropout, and their product. In bfloat16 the norms stay
    float32."""
    if not on_gpu:
        layer = 40 * shape.width + 8 * shape.inner + 12 * shape.heads * length
    elif training.precision == "float32":
        layer = 34 * shape.width + 8 * shape.inner
    else:
        layer = 30 * shape.width + 4 * shape.inner
    return shape.depth * layer


def _forward(shape: EncoderShape, sizes: DataSizes, config: Config) -> float:
    """Return the floating-point operations of a pass forward over all documents: 2 a weight and
    token.
    """
    tokens = _tokens(sizes, config.encoder.max_tokens)
    padded = np.minimum(tokens.values + _COSTS.padding, config.encoder.max_tokens)
    layer = 4 * shape.width**2 + 2 * shape.width * shape.inner
    return 2 * shape.depth * float((padded * (layer + 2 * padded * shape.width)) @ tokens.counts)


def _convolutions(shape: EncoderShape, sizes: DataSizes, config: Config) -> float:
    """Return the same of XML-CNN's: batches are not of like length, so that each text is padded to
    the longest.
    """
    most = config.encoder.max_tokens
    words = _tokens(sizes, most, WORD_BYTES)
    padded = min(_longest(words, config.training.batch_size) + _COSTS.padding, most)
    filters = shape.width * CNN_FILTERS * sum(CNN_WORDS)
    bottleneck = len(CNN_WORDS) * CNN_FILTERS * min(CNN_CHUNKS, most) * CNN_BOTTLENECK
    return 2.0 * words.size * (padded * filters + bottleneck)


def _longest(lengths: Distribution, batch_size: int) -> float:
    """Return the expected length of the longest of so many texts, each drawn at random."""
    # share of texts up to each length
    below = np.append(0.0, np.cumsum(lengths.counts)) / max(lengths.size, 1.0)
    return float(lengths.values @ np.diff(below**batch_size))


def _scored(widths: tuple[int, ...], kept: tuple[int, ...]) -> list[int]:
    """Return the nodes that are scored for a document on each level, given those kept of each but
    the last.
    """
    scored = [widths[0]]
    # training tells of settings for other levels
    for size, own, below in zip(kept, widths, widths[1:], strict=False):
        scored.append(min(size * ceil(below / own), below))
    return scored
