"""What a training run will take, told before it begins: time, memory and the size of the model.

Labels are counted exactly, n-grams extrapolated (``text.py``); seconds follow from how the solver
and each stage grow, by constants that were measured, and those of a network from its shape
(``networks.py``); bytes are those of the largest stage (``stages.py``)."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.features.encoder_folder import EncoderShape
from longtail.forecast.compilation import compilation_seconds
from longtail.forecast.gpus import Gpu, gpu_for
from longtail.forecast.levels import Level, label_numbers, pruned_weights, tree_levels
from longtail.forecast.networks import NetworkForecast, network_forecast
from longtail.forecast.sizes import DataSizes, PublishedDataset, shape_of
from longtail.forecast.stages import StageMemory, TrainingPlan, memory_of_stages
from longtail.forecast.text import TextForecast, text_forecast
from longtail.kernels import pool
from longtail.methods import ranks_alone, uses_encoder
from longtail.rankers import ranker_family
from longtail.rankers.one_vs_all import one_vs_all_seconds, one_vs_all_weights

__all__ = ["Forecast", "forecast", "forecast_of_sizes", "published_forecast", "size_in_words"]


class Costs(NamedTuple):
    """Constants measured on five sets of 6,000 to 182,000 documents, xr-linear, 2 threads; seconds
    are of one core.
    """

    tree_seconds: float = 300e-9  # a number of the label features
    # A pass of the solver over a document and 16 siblings costs its numbers and some 10 more;
    # passes grow with the documents of a parent, as its problem is harder: seconds = solver ×
    # documents^growth × numbers.
    solver_seconds: float = 14e-9
    solver_growth: float = 0.4
    solver_extra: float = 10.0
    logistic: float = 1.5  # times the seconds of the squared hinge
    spread: tuple[float, float] = (0.6, 2.0)  # low and high end, as multiples of the estimate


_COSTS = Costs()
_WEIGHT_BYTES = {"float32": 5.7, "float16": 3.7, "int8": 2.7}  # with their places, as stored


class Forecast(msgspec.Struct, frozen=True):
    """Estimates for one run.

    ``seconds`` are the low and the high end where kernels are compiled; ``compilation_seconds``
    come to them once, on a machine that has not compiled those of the method."""

    documents: int
    features: int  # columns
    nonzeros: int
    tree: tuple[int, ...]  # nodes of each level
    weights: int
    threads: int
    seconds: tuple[float, float]  # those of a GPU among them, if they are known
    peak_bytes: int  # of the machine's memory: that of the largest stage
    model_bytes: int
    network_bytes: int = 0  # of a network while it is trained
    on_gpu: bool = False  # then they are not among ``peak_bytes``
    gpu: str = ""  # name of the device
    gpu_bytes: int = 0  # of the device in all; 0: not known
    # of the network; None: there is no GPU, or nobody knows
    gpu_seconds: tuple[float, float] | None = None
    stages: tuple[StageMemory, ...] = ()  # in their order
    compilation_seconds: tuple[float, float] = (0.0, 0.0)

    def __str__(self) -> str:
        threads = f"{self.threads} threads"
        if self.threads == 1:
            threads = "1 thread"
        time = f"{_span(self._all_seconds())} on {threads}{self._beside()}{self._compiling()}"
        memory = f"{size_in_words(self.peak_bytes)} of memory"
        network = size_in_words(self.network_bytes)
        if self.on_gpu:
            memory += f", {network} of the GPU's"
        elif self.network_bytes:
            memory += f" (network {network})"
        return f"forecast: about {time}, {memory}, a model of {size_in_words(self.model_bytes)}"

    def _all_seconds(self) -> tuple[float, float]:
        """Return the seconds of the run, compilation among them."""
        low, high = self.seconds
        low_compilation, high_compilation = self.compilation_seconds
        return low + low_compilation, high + high_compilation

    def _compiling(self) -> str:
        if not any(self.compilation_seconds):
            return ""
        return f", {_span(self.compilation_seconds)} of it to compile kernels, once on this machine"

    def _beside(self) -> str:
        if not self.on_gpu:
            return ""
        if self.gpu_seconds is None:
            return " beside the network (whose time on this GPU is not known)"
        return f", {_span(self.gpu_seconds)} of it the network on {self.gpu}"

    def peaks(self) -> dict[str, int]:
        """Return the largest memory up to the end of each stage, by its name: what a run's log has
        as memory_mb.
        """
        peaks: dict[str, int] = {}
        most = 0
        for stage in self.stages:
            most = max(most, stage.peak_bytes)
            peaks[stage.name] = most
        return peaks

    def table(self) -> str:
        """Return a line for each stage with its own memory; of those of one name, as of several
        trees, the largest.
        """
        most: dict[str, int] = {}
        for stage in self.stages:
            most[stage.name] = max(most.get(stage.name, 0), stage.peak_bytes)
        width = max(map(len, most), default=0)
        return "\n".join(
            f"{name:<{width}}  {size_in_words(peak):>8}" for name, peak in most.items()
        )


def forecast(documents: Dataset, config: Config, device: str = "auto") -> Forecast:
    """Estimate a run with the threads that :func:`longtail.kernels.pool.threads` says, in some
    tenths of a second.
    """
    sizes = DataSizes.trained_on(documents, config)
    compilation = compilation_seconds(config)
    low, high = _COSTS.spread
    return msgspec.structs.replace(
        _on_device(sizes, config, device),
        compilation_seconds=(low * compilation, high * compilation),
    )


def published_forecast(dataset: PublishedDataset, config: Config, device: str = "auto") -> Forecast:
    """Estimate a run on a dataset of which only sizes are known, and whose encoder need not be on
    this machine.
    """
    sizes = DataSizes.published(dataset).with_label_texts(config)
    return _on_device(sizes, config, device, known=True)


def _on_device(sizes: DataSizes, config: Config, device: str, known: bool = False) -> Forecast:
    """Estimate a run with the device and the encoder's files that this machine has."""
    if not uses_encoder(config):
        return forecast_of_sizes(sizes, config, None, None)
    shape = shape_of(sizes, config, known=known)
    return forecast_of_sizes(sizes, config, shape, gpu_for(device))


def forecast_of_sizes(
    sizes: DataSizes, config: Config, shape: EncoderShape | None, gpu: Gpu | None
) -> Forecast:
    """Estimate a run by the sizes of what is trained on, and the shape of the encoder if there is
    one.
    """
    plan = _plan(sizes, config, shape, gpu)
    stages = memory_of_stages(plan)
    joined = plan.joined
    network = plan.network
    low, high = _COSTS.spread
    seconds = _host_seconds(plan)
    model_bytes = plan.trees * sum(plan.stored) + 10 * joined.columns + 2 * sizes.label_bytes
    if plan.other is not None:
        model_bytes += plan.other.stored
    if network is not None:
        seconds += network.gpu_seconds or 0.0
        model_bytes += network.resting_bytes
    tree = tuple(level.nodes for level in plan.levels)
    if network is not None and not plan.levels:
        tree = network.tree
    expected = Forecast(
        documents=sizes.documents,
        features=joined.columns + joined.dense_width,
        nonzeros=joined.numbers + joined.dense_width * sizes.documents,
        tree=tree,
        weights=int(plan.trees * sum(plan.weights)),
        threads=plan.threads,
        seconds=(low * seconds, high * seconds),
        peak_bytes=max(stage.peak_bytes for stage in stages),
        model_bytes=int(model_bytes),
        stages=stages,
    )
    return _with_network(expected, network, gpu)


def _with_network(expected: Forecast, network: NetworkForecast | None, gpu: Gpu | None) -> Forecast:
    """Return the forecast with the memory of the network, and the device that trains it."""
    if network is not None:
        expected = msgspec.structs.replace(expected, network_bytes=int(network.training_bytes))
    if gpu is None:
        return expected
    seconds: float | None = 0.0
    if network is not None:
        seconds = network.gpu_seconds
    span = None
    if seconds is not None:
        low, high = _COSTS.spread
        span = (low * seconds, high * seconds)
    return msgspec.structs.replace(
        expected, on_gpu=True, gpu=gpu.name, gpu_bytes=gpu.memory, gpu_seconds=span
    )


def _plan(
    sizes: DataSizes, config: Config, shape: EncoderShape | None, gpu: Gpu | None
) -> TrainingPlan:
    """Return the parts of a run, each with its own forecast."""
    text = text_forecast(sizes, config)
    joined = text
    network = None
    network_labels = 0.0
    if shape is not None:
        network = network_forecast(sizes, config, shape, gpu)
        if not ranks_alone(config):
            joined = _beside(text, network.width, config)
        if len(network.tree) > 1:  # a tree over labels that look like the text features
            settings = config.label_features
            network_labels = label_numbers(sizes, text, settings, settings.kind)
    other = ranker_family(config).forecast(sizes, joined, config)
    levels: list[Level] = []
    labels = list[float]()
    if other is None and not ranks_alone(config):
        levels = tree_levels(sizes, config)
    if levels:
        settings = config.label_features
        labels = [
            label_numbers(sizes, joined, settings, settings.kind_of_tree(number))
            for number in range(config.ranker.trees)
        ]
    weights = _weights(sizes, joined, levels, config)
    weight_bytes = _WEIGHT_BYTES[config.ranker.weights]
    return TrainingPlan(
        sizes=sizes,
        config=config,
        threads=pool.thread_count(),
        text=text,
        joined=joined,
        network=network,
        network_labels=network_labels,
        levels=levels,
        labels=labels,
        weights=weights,
        stored=[weight_bytes * count for count in weights],
        other=other,
    )


def _beside(text: TextForecast, width: int, config: Config) -> TextForecast:
    """Return what linear classifiers read: text features, vectors beside them (Φcat), or these
    alone.
    """
    if config.features == "tfidf":
        return text
    if config.features == "dnn":
        text = text._replace(columns=0, numbers=0)
    return text._replace(dense_width=text.dense_width + width)


def _weights(
    sizes: DataSizes, joined: TextForecast, levels: list[Level], config: Config
) -> list[float]:
    """Return the weights of each level: what pruning, or an L1 penalty, leaves of sparse ones, and
    all dense ones.
    """
    sparse = [pruned_weights(joined, [level], config.ranker.prune) for level in levels]
    if config.tree.kind == "flat":
        of_labels = one_vs_all_weights(sizes, config)
        if of_labels is not None:
            sparse = [of_labels] * len(levels)
    return [
        number + joined.dense_width * level.nodes
        for number, level in zip(sparse, levels, strict=True)
    ]


def _host_seconds(plan: TrainingPlan) -> float:
    """Return the seconds of all that is done on the machine's own cores."""
    seconds = plan.text.seconds + _COSTS.tree_seconds * plan.network_labels
    seconds += _COSTS.tree_seconds * sum(plan.labels) + plan.trees * _solver_seconds(plan)
    if plan.network is not None:
        seconds += plan.network.seconds
    if plan.other is not None:
        seconds += plan.other.seconds
    return seconds / plan.threads + 0.5


def _solver_seconds(plan: TrainingPlan) -> float:
    """Return the seconds of one core: documents × blocks of siblings × numbers of a document, at
    every parent.
    """
    config = plan.config
    text = plan.joined
    levels = plan.levels
    if config.tree.kind == "flat" and levels:
        alone = one_vs_all_seconds(plan.sizes, text, config, levels[0].parent_documents)
        if alone is not None:
            return alone
    each = text.each + text.dense_width / 4 + _COSTS.solver_extra
    seconds = 0.0
    for level in levels:
        # blocks of 16 siblings, or 8 where these will do
        halves = math.ceil(level.nodes / level.parents / 8) / 2
        seconds += (
            level.parents * halves * each * level.parent_documents ** (1 + _COSTS.solver_growth)
        )
    if config.ranker.loss == "logistic":
        seconds *= _COSTS.logistic
    return seconds * _COSTS.solver_seconds


def _span(seconds: tuple[float, float]) -> str:
    """Return the low and the high end in words, or one where they are alike."""
    low, high = map(_time, seconds)
    if low == high:
        return low
    return f"{low} to {high}"


def _time(seconds: float) -> str:
    """Return a time of one or two digits."""
    if seconds < 90:
        return f"{max(_two_digits(seconds), 1):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{_two_digits(seconds / 3600):g} h"


def size_in_words(count: float) -> str:
    """Return bytes as MB or GB of two digits."""
    if count < 1e9:
        return f"{_two_digits(count / 1e6):.0f} MB"
    return f"{_two_digits(count / 1e9):g} GB"


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
