"""A model as a folder: written whole or not at all, read without a copy."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from longtail.config import Config
from longtail.data.csr import csr_arrays, csr_of_arrays
from longtail.data.label_files import read_labels, write_labels
from longtail.ensemble_folder import ENSEMBLE, read_ensemble, save_ensemble
from longtail.ensemble_model import Ensemble
from longtail.errors import DataError, MissingExtra, ModelFolderError
from longtail.features.tfidf import TfIdf
from longtail.linear.explanation import LinearRanker
from longtail.linear.forest import Forest
from longtail.linear.neighbours import Neighbours
from longtail.linear.tree_ranker import TreeRanker
from longtail.metrics import Evaluation
from longtail.model import Facts, Model
from longtail.model_card import model_card
from longtail.search.calibration import Calibration
from longtail.search.chunks import Chunks
from longtail.store import Folder, content_hash, open_folder, write_folder
from longtail.tree.tree import LabelTree

__all__ = ["load_model", "save_model"]

_GRAPH = "label-graph.safetensors"


def save_model(model: Model | Ensemble, path: str | Path) -> None:
    """Write the model; nothing in the folder depends on when or where it was made."""
    if isinstance(model, Ensemble):
        return save_ensemble(model, path, save_model)
    with write_folder(path, config_hash=content_hash(model.config)) as folder:
        folder.write_json("config.json", model.config)
        folder.write_json("training.json", model.facts)
        write_labels(model.labels, folder.path("labels.jsonl"))
        folder.write_arrays("label_counts.safetensors", {"counts": model.label_counts})
        if model.vectoriser is not None:
            folder.write_arrays("vocabulary.safetensors", model.vectoriser.to_arrays())
        for number, ranker in enumerate(model.rankers):
            for name, arrays in _files(ranker, number).items():
                folder.write_arrays(name, arrays)
        if model.label_graph is not None:
            folder.write_arrays(_GRAPH, csr_arrays(model.label_graph))
        if model.network is not None:
            from longtail.neural.network_folder import save_network

            save_network(model.network, folder)
        if model.calibration is not None:
            folder.write_arrays("calibration.safetensors", model.calibration.to_arrays())
        if model.metrics is not None:
            folder.write_json("metrics.json", model.metrics)
        folder.write_bytes("README.md", model_card(model).encode())


def _files(ranker: LinearRanker, number: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of each file of a ranker."""
    if isinstance(ranker, Forest):
        return {f"forest-{number}.safetensors": ranker.to_arrays()}
    if isinstance(ranker, Neighbours):
        return {f"neighbours-{number}.safetensors": ranker.to_arrays()}
    levels = {f"ranker-{number}-{level}.safetensors": own.to_arrays() for level, own in enumerate(ranker.levels)}
    return {f"tree-{number}.safetensors": ranker.tree.to_arrays()} | levels


def load_model(path: str | Path | Folder, device: str = "auto") -> Model | Ensemble:
    """Return the model, or the ensemble, of a folder whose every byte verifies; weights are memory-mapped.

    ``device`` is where a network runs, if the model has one.
    """
    folder = path if isinstance(path, Folder) else open_folder(path)
    path = folder.root if isinstance(path, Folder) else path
    try:
        if ENSEMBLE in folder.files:
            return read_ensemble(folder, lambda member: _read(member, device))
        return _read(folder, device)
    except ModelFolderError as error:
        raise ModelFolderError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, DataError) as error:  # verified, yet no model: made by something else
        found = f"no array {error}" if isinstance(error, KeyError) else str(error)
        raise ModelFolderError(f"{path}: {found}; train the model again, or get another copy") from None


def _read(folder: Folder, device: str) -> Model:
    config = folder.read_json("config.json", Config)
    names = {entry.path for entry in folder.manifest.files}
    labels = read_labels(folder.path("labels.jsonl"))
    calibration = None
    if "calibration.safetensors" in names:
        calibration = Calibration.from_arrays(folder.arrays("calibration.safetensors"))
    vectoriser = None
    if "vocabulary.safetensors" in names:
        vectoriser = TfIdf.from_arrays(folder.arrays("vocabulary.safetensors"), config.tfidf)
    rankers = tuple(_rankers(folder, config, names))
    network = None
    if "encoder/config.json" in names:
        try:
            from longtail.neural.network_folder import load_network  # torch only where there is a network
        except ImportError:
            raise MissingExtra(f"a model of {config.method}", "neural") from None
        network = load_network(folder, config, device)
    if not rankers and network is None:
        raise ValueError("neither linear classifiers nor a network")
    counts = np.array(folder.arrays("label_counts.safetensors")["counts"])
    ranking = rankers if network is None or network.tree is None else (*rankers, network.tree)
    for ranker in ranking:
        if ranker.n_labels != len(labels) or len(counts) != len(labels):
            raise ValueError(f"a ranker of {ranker.n_labels} labels beside {len(labels)} labels")
    facts = folder.read_json("training.json", Facts)
    metrics = folder.read_json("metrics.json", Evaluation) if "metrics.json" in names else None
    graph = csr_of_arrays(folder.arrays(_GRAPH), len(labels)) if _GRAPH in names else None
    if graph is not None and graph.shape[0] != len(labels):
        raise ValueError(f"a label graph of {graph.shape[0]} labels beside {len(labels)} labels")
    parts = config, labels, counts, facts, vectoriser, rankers, network, graph
    return Model(*parts, calibration=calibration, metrics=metrics)


def _rankers(folder: Folder, config: Config, names: Collection[str]) -> Iterator[LinearRanker]:
    for number in range(config.ranker.trees):
        if f"tree-{number}.safetensors" in names:
            yield _tree_ranker(folder, number, config.ranker.bias)
        if f"forest-{number}.safetensors" in names:
            yield Forest.from_arrays(folder.arrays(f"forest-{number}.safetensors"))
        if f"neighbours-{number}.safetensors" in names:
            yield Neighbours.from_arrays(folder.arrays(f"neighbours-{number}.safetensors"), config.neighbours.index)


def _tree_ranker(folder: Folder, number: int, bias: float) -> TreeRanker:
    tree = LabelTree.from_arrays(folder.arrays(f"tree-{number}.safetensors"))
    levels = [
        Chunks.from_arrays(folder.arrays(f"ranker-{number}-{level}.safetensors")) for level in range(tree.n_levels)
    ]
    for width, chunks in zip(tree.widths, levels, strict=True):
        if chunks.n_nodes != width:
            raise ValueError(f"a ranker of {chunks.n_nodes} nodes on a level of {width}")
    return TreeRanker(tree, tuple(levels), bias)
