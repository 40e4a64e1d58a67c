"""What a network adds to the forecast of a run: operations and bytes that follow from the shape of its encoder.

torch is not asked, as it may not be there and takes seconds to import: the encoder's files tell its shape.
"""

from __future__ import annotations

import shutil
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.config import Config, Training
from longtail.data.dataset import Dataset
from longtail.features.encoder_folder import EncoderShape, encoder_folder, encoder_shape, names_folder
from longtail.methods import METHODS
from longtail.neural.layout import (
    ATTENTION_HIDDEN,
    CNN_BOTTLENECK,
    CNN_CHUNKS,
    CNN_FILTERS,
    CNN_WORDS,
    LSTM_HIDDEN,
    TWO_LAYERS,
    documents_at_a_time,
    level_epochs,
    level_layers,
    scores_all_labels,
    shortlist_sizes,
    tuned_levels,
    vector_widths,
)
from longtail.steps.networks import network_widths

__all__ = ["NetworkForecast", "network_forecast"]


class NetworkCosts(NamedTuple):
    """Constants measured with MiniLM and five sets of documents; seconds are of one core."""

    text_bytes: float = 4.0  # a token: 3.7 to 4.5
    special: int = 2  # tokens of a document beside those of its text
    padding: float = 4.0  # tokens of a document, as lengths are rounded up to a multiple of 8
    flops: float = 30e9  # a core and second in float32, two at work; one alone does 60e9
    library_bytes: float = 330e6  # torch and transformers
    step_bytes: float = 8.0  # a parameter of the encoder, held for a moment by AdamW on the CPU
    word_bytes: float = 7.0  # a word of a text, with the space behind it
    words: float = 40.0  # different ones in a text of n words: these times √n
    spare: float = 1.2  # times the activations: what a pass backward holds for a moment, and gaps


_COSTS = NetworkCosts()
_TRAINED = 16.0  # bytes of a parameter: weight, gradient and two moments
_WITHOUT_TRAINING = {True: 512, False: 32}  # documents at a time on a GPU, or not


class NetworkForecast(NamedTuple):
    """Estimates for a network and its training."""

    width: int  # columns of its vectors
    tree: tuple[int, ...]  # nodes of each level, none of an encoder that stays as it is
    on_gpu: bool
    seconds: float  # of one core; 0 on a GPU, whose speed nobody knows
    training_bytes: float  # weights, gradients, optimisers and activations, where it works hardest
    resting_bytes: float  # weights that stay
    first_bytes: float  # vectors of all documents that the classifiers start from, in memory before training
    host_bytes: float  # tokens and libraries, in memory wherever it is trained
    kept_bytes: float = 0.0  # vectors of all documents, in memory while it is trained

    def peak(self, held: float, linear: float) -> float:
        """Return the largest memory but the GPU's, given what is held beside it and what the linear stages take."""
        resting = 0.0 if self.on_gpu else self.resting_bytes
        training = 0.0 if self.on_gpu else self.training_bytes
        return self.host_bytes + max(
            held + max(training + self.kept_bytes, resting + self.first_bytes), linear + resting
        )


class _Plan(NamedTuple):
    """What is done with an encoder; levels are (nodes, columns of what their classifiers read)."""

    tree: tuple[int, ...]
    width: int  # columns of the vectors of documents
    passes: float  # forward, over all documents; a step back counts as two
    products: float  # weights that a document is multiplied with, over all epochs
    together: tuple[tuple[tuple[int, int], ...], ...]  # levels that are in memory together, one of these after another
    stays: bool  # whether classifiers are part of the model
    first_vectors: float  # numbers of all vectors before training
    kept_vectors: float  # and while it lasts
    encoders: int = 1  # copies of the encoder in the model


def network_forecast(documents: Dataset, config: Config) -> NetworkForecast:
    """Estimate the network of a method that has one, or an encoder as it is; a GPU is there if its driver is."""
    shape, on_gpu = _shape(documents, config), shutil.which("nvidia-smi") is not None
    tokens, kind = _tokens(documents, config.encoder.max_tokens), METHODS[config.method].network
    plan = {"cascade": _cascade, "attention": _attention, "recursive": _recursive, "": _frozen}[kind](
        shape, documents, config
    )
    levels = [[_classifier_bytes(*level, config.training) for level in levels] for levels in plan.together]
    weights = max((sum(own for own, _ in level) for level in levels), default=0.0) if plan.stays else 0.0
    forward = _convolutions if config.encoder.kind == "cnn" else _forward
    operations = plan.passes * forward(shape, documents, config) + 2.0 * len(tokens) * plan.products
    return NetworkForecast(
        width=plan.width,
        tree=plan.tree,
        on_gpu=on_gpu,
        seconds=0.0 if on_gpu else operations / _COSTS.flops,
        training_bytes=_working_bytes(shape, tokens, bool(kind), on_gpu, config.training)
        + 4.0 * (plan.encoders - 1) * shape.parameters
        + max((sum(own + state for own, state in level) for level in levels), default=0.0),
        resting_bytes=4.0 * plan.encoders * shape.parameters + weights,
        first_bytes=4.0 * plan.first_vectors,
        host_bytes=_COSTS.library_bytes + (2 if shape.vocabulary < 1 << 16 else 4) * float(tokens.sum()),
        kept_bytes=4.0 * plan.kept_vectors,
    )


def _shape(documents: Dataset, config: Config) -> EncoderShape:
    """Return the shape of the encoder; one on vectors of words is mostly these, by Heaps' law for their number."""
    settings = config.encoder
    if settings.kind == "transformer":
        return encoder_shape(encoder_folder(settings.name))
    if names_folder(settings.name):
        pretrained = encoder_shape(encoder_folder(settings.name))
        width, vocabulary = pretrained.width, pretrained.vocabulary
    else:
        words = (0 if documents.texts is None else float(documents.texts.lengths.sum())) / _COSTS.word_bytes
        width, vocabulary = settings.width, int(_COSTS.words * words**0.5) + 1
    if settings.kind == "lstm":  # four gates of a state, in both directions
        state = 2 * LSTM_HIDDEN
        return EncoderShape(state, 1, 1, state, vocabulary, vocabulary * width + 4 * state * (width + LSTM_HIDDEN))
    depth = 2 if settings.kind in TWO_LAYERS else 1
    parameters = vocabulary * width + 8 * width * width
    return EncoderShape(width, depth, 1, 2 * width, vocabulary, parameters)


def _cascade(shape: EncoderShape, documents: Dataset, config: Config) -> _Plan:
    """Return the plan of a network that is trained on all levels together and ranks by itself."""
    widths, cascade, epochs = network_widths(config, documents.n_labels), config.cascade, config.training.epochs
    layers = cascade.layers or level_layers(shape.depth, len(widths), cascade.merge)
    width = CNN_BOTTLENECK if config.encoder.kind == "cnn" else shape.width
    columns = vector_widths(layers, width, cascade.merge, cascade.bottleneck)
    scored = _scored(widths, cascade.shortlist or shortlist_sizes(widths))
    if scores_all_labels(cascade.last_level, widths[-1]):
        scored[-1] = widths[-1]
    # settings for another number of levels are refused by training, so zip takes what there is
    levels = tuple(zip(widths, columns, strict=False))
    products = 3.0 * epochs * sum(own * width for own, width in zip(scored, columns, strict=False))
    centroids = cascade.label_rows != "random"
    texts = len(documents) + (documents.n_labels if cascade.label_rows == "centroid+text" else 0)
    passes = 3 * epochs + centroids + (cascade.combine != "never")
    return _Plan(widths, columns[-1], passes, products, (levels,), True, centroids * texts * sum(columns), 0)


def _attention(shape: EncoderShape, documents: Dataset, config: Config) -> _Plan:
    """Return the plan of a network a level, which looks at all words of a text for each node that it scores."""
    widths, settings = network_widths(config, documents.n_labels), config.recursive
    epochs = settings.epochs or level_epochs((), config.training.epochs, len(widths), last=1)
    scored = _scored(widths, (settings.shortlist + _true_labels(documents),) * (len(widths) - 1))
    words = float(_tokens(documents, config.encoder.max_tokens).mean()) if len(documents) else 0.0
    each = words * (shape.width + ATTENTION_HIDDEN)  # α_tl, and the sum of W_1 H_t that they weigh
    products = 3.0 * each * sum(own * times for own, times in zip(scored, epochs, strict=False))
    matches = sum(range(len(widths)))  # the candidates of a level are those of all levels above it
    levels = tuple((nodes, shape.width) for nodes in widths)
    return _Plan(widths, shape.width, 3 * sum(epochs) + matches, products, (levels,), True, 0, 0, len(widths))


def _recursive(shape: EncoderShape, documents: Dataset, config: Config) -> _Plan:
    """Return the plan of an encoder that is tuned on one level after another, and whose vectors alone are kept."""
    widths, settings = network_widths(config, documents.n_labels), config.recursive
    tuned = widths[: tuned_levels(widths, settings.finest)]
    epochs = settings.epochs or level_epochs((), config.training.epochs, len(tuned))
    scored = _scored(tuned, (settings.shortlist + _true_labels(documents),) * (len(tuned) - 1))
    products = 3.0 * shape.width * sum(own * times for own, times in zip(scored, epochs, strict=False))
    passes = 3 * sum(epochs) + settings.bootstrap + len(tuned)  # the last of them is that of the embeddings
    vectors = float(len(documents) * shape.width)
    levels = tuple(((nodes, shape.width),) for nodes in tuned)
    return _Plan(widths, shape.width, passes, products, levels, False, 2 * vectors, vectors)


def _frozen(shape: EncoderShape, documents: Dataset, config: Config) -> _Plan:
    """Return the plan of a pretrained encoder that only gives its vectors."""
    return _Plan((), shape.width, 1, 0.0, (), False, 0.0, 0.0)


def _true_labels(documents: Dataset) -> int:
    """Return how many labels a document has in the mean."""
    return ceil(documents.label_matrix.nnz / max(len(documents), 1))


def _tokens(documents: Dataset, most: int, text_bytes: float = _COSTS.text_bytes) -> NDArray[np.float64]:
    """Return how many tokens each document will have, of so many bytes each."""
    lengths = np.zeros(len(documents)) if documents.texts is None else documents.texts.lengths
    return np.minimum(_COSTS.special + lengths / text_bytes, most)


def _classifier_bytes(n_nodes: int, width: int, training: Training) -> tuple[float, float]:
    """Return the bytes of a level's weights, and of their optimiser's state and average in training."""
    weights = n_nodes * (width * (2.0 if training.head_weights == "bfloat16" else 4.0) + 4)
    state = {"sgd": 0.0, "row-adam": 12.0, "adamw": 8.0 * width + 12}[training.head_optimiser]
    return weights, n_nodes * (state + (4.0 * width + 4 if training.average else 0.0))


def _working_bytes(
    shape: EncoderShape, tokens: NDArray[np.float64], trained: bool, on_gpu: bool, training: Training
) -> float:
    """Return the bytes of an encoder and of the activations of a batch: of all layers if it is trained, else of one."""
    longest = float(tokens.max(initial=0))
    activations = _COSTS.spare * longest * _token_bytes(shape, longest, on_gpu, training)
    if not trained:
        return 4.0 * shape.parameters + min(_WITHOUT_TRAINING[on_gpu], len(tokens)) * activations / shape.depth
    at_a_time = min(documents_at_a_time(training.micro_batch, training.batch_size, on_gpu), len(tokens))
    each = _TRAINED + (0 if on_gpu else _COSTS.step_bytes) + (4 if training.average else 0)
    return shape.parameters * each + at_a_time * activations


def _token_bytes(shape: EncoderShape, length: float, on_gpu: bool, training: Training) -> float:
    """Return the activations of a token of a text of ``length`` that all layers keep for the backward pass.

    In numbers, a layer keeps its input, queries, keys, values, what attention gives, the input of both norms, the
    input of the feed-forward part (8 widths) and its middle before and after the activation function; also what two
    dropouts left. A CPU keeps the dropouts as numbers, and attention three times: as it is, its dropout, and their
    product. In bfloat16 the norms stay float32.
    """
    if not on_gpu:
        layer = 40 * shape.width + 8 * shape.inner + 12 * shape.heads * length
    elif training.precision == "float32":
        layer = 34 * shape.width + 8 * shape.inner
    else:
        layer = 30 * shape.width + 4 * shape.inner
    return shape.depth * layer


def _forward(shape: EncoderShape, documents: Dataset, config: Config) -> float:
    """Return the floating-point operations of a pass forward over all documents: 2 a weight and token."""
    tokens = _tokens(documents, config.encoder.max_tokens)
    padded = np.minimum(tokens + _COSTS.padding, config.encoder.max_tokens)
    layer = 4 * shape.width**2 + 2 * shape.width * shape.inner
    return 2 * shape.depth * float((padded * (layer + 2 * padded * shape.width)).sum())


def _convolutions(shape: EncoderShape, documents: Dataset, config: Config) -> float:
    """Return the same of XML-CNN's: batches are not of like length, so that each text is padded to the longest."""
    most = config.encoder.max_tokens
    words = _tokens(documents, most, _COSTS.word_bytes)
    padded = min(_longest(words, config.training.batch_size) + _COSTS.padding, most)
    filters = shape.width * CNN_FILTERS * sum(CNN_WORDS)
    bottleneck = len(CNN_WORDS) * CNN_FILTERS * min(CNN_CHUNKS, most) * CNN_BOTTLENECK
    return 2.0 * len(words) * (padded * filters + bottleneck)


def _longest(lengths: NDArray[np.float64], batch_size: int) -> float:
    """Return the expected length of the longest of so many texts, each drawn at random."""
    below = np.arange(len(lengths) + 1) / max(len(lengths), 1)  # share of texts up to each, in order of length
    return float(np.sort(lengths) @ np.diff(below**batch_size))


def _scored(widths: tuple[int, ...], kept: tuple[int, ...]) -> list[int]:
    """Return the nodes that are scored for a document on each level, given those kept of each but the last."""
    scored = [widths[0]]
    for size, own, below in zip(kept, widths, widths[1:], strict=False):  # training tells of settings for other levels
        scored.append(min(size * ceil(below / own), below))
    return scored
