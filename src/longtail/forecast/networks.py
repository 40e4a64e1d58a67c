"""Time and memory of a network: operations and bytes that follow from the plan of its family and
the shape of its encoder.

The shape is read from the encoder's files, without torch, which may not be installed."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from longtail.config import Config, Training
from longtail.features.encoder_folder import EncoderShape
from longtail.forecast.gpus import Gpu, nominal_flops
from longtail.forecast.sizes import DataSizes, Distribution
from longtail.methods import encoder_of, network_of
from longtail.methods.registry import network_family
from longtail.networks.base import NetworkPlan
from longtail.networks.layout import documents_at_a_time

__all__ = ["NetworkForecast", "network_forecast"]


class NetworkCosts(NamedTuple):
    """Constants measured with MiniLM and five sets of documents; seconds are of one core."""

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
    bootstraps: bool = False  # a linear solver finds the first classifiers of the first level


def network_forecast(
    sizes: DataSizes, config: Config, shape: EncoderShape, gpu: Gpu | None
) -> NetworkForecast:
    """Estimate the network of a method that has one, or an encoder as it is; on the CPU where there
    is no GPU.
    """
    on_gpu = gpu is not None
    tokens = sizes.tokens(config.encoder.max_tokens)
    plan = (network_of(config) or network_family("encoder")).plan(shape, sizes, config)
    settings = config.training
    if plan.averages and not settings.average:
        settings = replace(settings, average=1.0)
    classifiers = _classifiers(plan, settings)
    operations = plan.passes * encoder_of(config).operations(shape, sizes, config)
    operations += 2.0 * tokens.size * plan.products
    seconds = _COSTS.token_seconds * tokens.sum
    if not on_gpu:
        seconds += operations / _COSTS.flops
    reading = _working_bytes(shape, tokens, False, on_gpu, settings)
    training = reading
    if plan.stages:
        training = _working_bytes(shape, tokens, True, on_gpu, settings)
    others = 4.0 * (plan.encoders - 1) * shape.parameters
    return NetworkForecast(
        width=plan.width,
        tree=plan.tree,
        stages=plan.stages,
        on_gpu=on_gpu,
        seconds=seconds,
        gpu_seconds=_gpu_seconds(operations, gpu, config),
        training_bytes=training + others + classifiers.training,
        resting_bytes=4.0 * plan.encoders * shape.parameters + classifiers.kept,
        reading_bytes=reading + others + classifiers.kept,
        first_bytes=4.0 * plan.first_vectors,
        library_bytes=_COSTS.library_bytes + on_gpu * _COSTS.cuda_bytes,
        token_bytes=_id_bytes(shape) * tokens.sum + 8.0 * tokens.size,
        kept_bytes=4.0 * plan.kept_vectors,
        bootstraps=plan.bootstraps,
    )


def _gpu_seconds(operations: float, gpu: Gpu | None, config: Config) -> float | None:
    """Return the seconds of a GPU, 0 without one; None for an unknown device, and for small
    encoders, which wait for memory.
    """
    if gpu is None:
        return 0.0
    precision = "bfloat16"
    if config.training.precision == "float32":
        precision = "float32"
    flops = nominal_flops(gpu, precision)
    if flops is None or encoder_of(config).reads_words:
        return None
    return operations / (_COSTS.gpu_share * flops)


def _id_bytes(shape: EncoderShape) -> int:
    """Return the bytes of a token's id."""
    if shape.vocabulary < 1 << 16:
        return 2
    return 4


class _Classifiers(NamedTuple):
    """Bytes of the classifiers of all levels that are in memory together."""

    kept: float  # weights, of those that are part of the model
    training: float  # weights, the state of their optimiser, and their average


def _classifiers(plan: NetworkPlan, training: Training) -> _Classifiers:
    kept = 0.0
    most = 0.0
    for levels in plan.level_groups:
        weights = sum(_weight_bytes(*level, training) for level in levels)
        most = max(most, weights + sum(_state_bytes(*level, training) for level in levels))
        if plan.keeps_classifiers:
            kept = max(kept, weights)
    return _Classifiers(kept, most)


def _weight_bytes(n_nodes: int, width: int, training: Training) -> float:
    """Return the bytes of a level's weights."""
    number = {"bfloat16": 2.0, "float32": 4.0}[training.head_weights]
    return n_nodes * (width * number + 4)


def _state_bytes(n_nodes: int, width: int, training: Training) -> float:
    """Return the bytes of a level's optimiser in training, and of the average of its weights."""
    state = {"sgd": 0.0, "row-adam": 12.0, "adamw": 8.0 * width + 12}[training.head_optimiser]
    if training.average:
        state += 4.0 * width + 4
    return n_nodes * state


def _working_bytes(
    shape: EncoderShape, tokens: Distribution, trained: bool, on_gpu: bool, training: Training
) -> float:
    """Return the bytes of an encoder and of the activations of a batch: of all layers if it is
    trained, else of one.
    """
    longest = tokens.largest
    activations = _COSTS.spare * longest * _token_bytes(shape, longest, on_gpu, training)
    if not trained:
        at_a_time = min(_WITHOUT_TRAINING[on_gpu], tokens.size)
        return 4.0 * shape.parameters + at_a_time * activations / shape.depth
    documents = documents_at_a_time(training.micro_batch, training.batch_size, on_gpu)
    parameter_bytes = _TRAINED
    if not on_gpu:
        parameter_bytes += _COSTS.step_bytes
    if training.average:
        parameter_bytes += 4
    return shape.parameters * parameter_bytes + min(documents, tokens.size) * activations


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
