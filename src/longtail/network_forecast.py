"""What a network adds to the forecast of a run: operations and bytes that follow from the shape of its encoder.

torch is not asked, as it may not be there and takes seconds to import: the encoder's files tell its shape.
"""

from __future__ import annotations

import shutil
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.config import Cascade, Config, Training
from longtail.data.dataset import Dataset
from longtail.features.encoder_folder import EncoderShape, encoder_folder, encoder_shape
from longtail.neural.layout import documents_at_a_time, level_widths, scores_all_labels, shortlist_sizes

__all__ = ["NetworkForecast", "network_forecast"]


class NetworkCosts(NamedTuple):
    """Constants measured with MiniLM and five sets of documents; seconds are of one core."""

    text_bytes: float = 4.0  # a token: 3.7 to 4.5
    special: int = 2  # tokens of a document beside those of its text
    padding: float = 4.0  # tokens of a document, as lengths are rounded up to a multiple of 8
    flops: float = 30e9  # a core and second in float32, two at work; one alone does 60e9
    library_bytes: float = 330e6  # torch and transformers
    step_bytes: float = 8.0  # a parameter of the encoder, held for a moment by AdamW on the CPU
    spare: float = 1.2  # times the activations: what a pass backward holds for a moment, and gaps


_COSTS = NetworkCosts()
_TRAINED = 16.0  # bytes of a parameter: weight, gradient and two moments


class NetworkForecast(NamedTuple):
    """Estimates for a network and its training."""

    width: int  # columns of its vectors
    tree: tuple[int, ...]  # nodes of each level
    on_gpu: bool
    seconds: float  # of one core; 0 on a GPU, whose speed nobody knows
    training_bytes: float  # weights, gradients, optimisers and activations, where it is trained
    resting_bytes: float  # weights alone
    first_bytes: float  # vectors of all documents that the classifiers start from, in memory before training
    host_bytes: float  # tokens and libraries, in memory wherever it is trained

    def peak(self, held: float, linear: float) -> float:
        """Return the largest memory but the GPU's, given what is held beside it and what the linear stages take."""
        resting = 0.0 if self.on_gpu else self.resting_bytes
        training = 0.0 if self.on_gpu else self.training_bytes
        return self.host_bytes + max(held + max(training, resting + self.first_bytes), linear + resting)


def network_forecast(documents: Dataset, config: Config) -> NetworkForecast:
    """Estimate the network of a method that has one; a GPU is there if its driver is."""
    shape, on_gpu = encoder_shape(encoder_folder(config.encoder.name)), shutil.which("nvidia-smi") is not None
    tokens = _tokens(documents, config.encoder.max_tokens)
    widths = (*(config.tree.levels or level_widths(documents.n_labels)), documents.n_labels)
    training = config.training
    at_a_time = min(documents_at_a_time(training.micro_batch, training.batch_size, on_gpu), len(tokens))
    longest = float(tokens.max(initial=0))
    encoder = shape.parameters * (_TRAINED + (0 if on_gpu else _COSTS.step_bytes))
    weights, state = _classifier_bytes(shape.width, sum(widths), config.training)
    activations = _COSTS.spare * at_a_time * longest * _token_bytes(shape, longest, on_gpu, config.training)
    vectors = len(tokens) + (documents.n_labels if config.cascade.label_rows == "centroid+text" else 0)
    first = 0 if config.cascade.label_rows == "random" else 4.0 * shape.width * len(widths) * vectors
    return NetworkForecast(
        width=shape.width,
        tree=widths,
        on_gpu=on_gpu,
        seconds=0.0 if on_gpu else _operations(shape, widths, tokens, config) / _COSTS.flops,
        training_bytes=encoder + weights + state + activations,
        resting_bytes=4.0 * shape.parameters + weights,
        first_bytes=first,
        host_bytes=_COSTS.library_bytes + (2 if shape.vocabulary < 1 << 16 else 4) * float(tokens.sum()),
    )


def _tokens(documents: Dataset, most: int) -> NDArray[np.float64]:
    """Return how many tokens each document will have."""
    lengths = np.zeros(len(documents)) if documents.texts is None else documents.texts.lengths
    return np.minimum(_COSTS.special + lengths / _COSTS.text_bytes, most)


def _classifier_bytes(width: int, n_nodes: int, training: Training) -> tuple[float, float]:
    """Return the bytes of all levels' weights, and of their optimisers' state."""
    weights = n_nodes * (width * (2.0 if training.head_weights == "bfloat16" else 4.0) + 4)
    return weights, n_nodes * {"sgd": 0.0, "row-adam": 12.0, "adamw": 8.0 * width + 12}[training.head_optimiser]


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


def _operations(shape: EncoderShape, widths: tuple[int, ...], tokens: NDArray[np.float64], config: Config) -> float:
    """Return all floating-point operations: 2 a weight and token of a pass forward, and twice these of one backward."""
    padded = np.minimum(tokens + _COSTS.padding, config.encoder.max_tokens)
    layer = 4 * shape.width**2 + 2 * shape.width * shape.inner
    forward = 2 * shape.depth * float((padded * (layer + 2 * padded * shape.width)).sum())
    cascade, epochs = config.cascade, config.training.epochs
    passes = 3 * epochs + (cascade.label_rows != "random") + (cascade.combine != "never")
    classifiers = 6.0 * epochs * len(tokens) * shape.width * sum(_scored(widths, cascade))
    return passes * forward + classifiers


def _scored(widths: tuple[int, ...], cascade: Cascade) -> list[int]:
    """Return the nodes that are scored for a document on each level."""
    kept = cascade.shortlist or shortlist_sizes(widths)
    scored = [widths[0]]
    for size, own, below in zip(kept, widths, widths[1:], strict=False):  # training tells of settings for other levels
        scored.append(min(size * ceil(below / own), below))
    if scores_all_labels(cascade.last_level, widths[-1]):
        scored[-1] = widths[-1]
    return scored
