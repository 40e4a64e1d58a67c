"""A model as a folder: written whole or not at all, read without a copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from scipy import sparse

from longtail.config import Config
from longtail.data.csr import csr_arrays, csr_of_arrays, rows_fit
from longtail.errors import DataError, MissingExtra, ModelFolderError, printable
from longtail.features.tfidf import TfIdf
from longtail.methods import METHODS, load_plugins
from longtail.methods.registry import network_family
from longtail.models.ensemble_folder import ENSEMBLE, read_ensemble, save_ensemble
from longtail.models.ensemble_model import Ensemble
from longtail.models.model import Facts, Model
from longtail.models.model_card import model_card
from longtail.models.ranking_folder import read_parts, write_parts
from longtail.rankers import Ranker, ranker_family
from longtail.search.shard_files import open_model_folder
from longtail.store import Folder, content_hash, write_folder
from longtail.store.tensors import check_kinds

__all__ = ["load_model", "save_model"]

_GRAPH = "label-graph.safetensors"
# settings of ``phases`` by the names that they had in ``label_text``
_PHASES = {
    "first_rate": "first_rate",
    "first_share": "first_share",
    "phases": "kind",
    "shortlist": "shortlist",
}


def save_model(
    model: Model | Ensemble, path: str | Path, check: Callable[[Path], None] | None = None
) -> None:
    """Write the model; nothing in the folder depends on when or where it was made.

    ``check`` is called with the complete folder of a model before it replaces an older one.
    """
    if isinstance(model, Ensemble):
        return save_ensemble(model, path, save_model)
    with write_folder(path, config_hash=content_hash(model.config), check=check) as folder:
        folder.write_json("config.json", model.config)
        write_parts(model, folder)
        if model.vectoriser is not None:
            folder.write_arrays("vocabulary.safetensors", model.vectoriser.to_arrays())
        for number, ranker in enumerate(model.rankers):
            ranker.write(folder, number)
        if model.label_graph is not None:
            folder.write_arrays(_GRAPH, csr_arrays(model.label_graph))
        if model.network is not None:
            from longtail.networks.network_folder import save_network

            save_network(model.network, folder)
        folder.write_bytes("README.md", model_card(model).encode())


def load_model(
    path: str | Path | Folder, device: str = "auto", shards: Collection[int] | None = None
) -> Model | Ensemble:
    """Return the model, or the ensemble, of a verified folder; weights are memory-mapped.

    Args:
        path: a model folder, or one that is open already, with the same ``shards``.
        device: where a network runs, if the model has one.
        shards: those of the labels to load. The model then knows all labels and predicts those of
            these shards; the files of others are not read.
    """
    if isinstance(path, Folder):
        folder = path
        path = folder.root
    else:
        folder = open_model_folder(path, shards)
    try:
        if ENSEMBLE in folder.files:
            return read_ensemble(folder, lambda member: _read(member, device))
        return _read(folder, device, shards)
    except ModelFolderError as error:
        message = str(error)
        if str(path) not in message:
            message = f"{path}: {message}"
        raise ModelFolderError(message) from None
    except (ValueError, KeyError, TypeError, DataError) as error:
        # verified, yet no model: made by something else
        problem = printable(str(error).partition("\n")[0])
        if isinstance(error, KeyError):
            problem = f"no array {error}"
        raise ModelFolderError(
            f"{path}: {problem}; train the model again, or get another copy"
        ) from None


def _read(folder: Folder, device: str, shards: Collection[int] | None = None) -> Model:
    config = _config(folder)
    names = folder.files
    parts = read_parts(folder)
    vectoriser = None
    if "vocabulary.safetensors" in names:
        vectoriser = TfIdf.from_arrays(folder.arrays("vocabulary.safetensors"), config.tfidf)
    rankers = tuple(ranker_family(config).load(folder, config, shards))
    network = None
    if "encoder/config.json" in names:
        try:
            # torch only where there is a network
            from longtail.networks.network_folder import load_network
        except ImportError:
            raise MissingExtra(f"a model of {config.method}", "neural") from None
        network = load_network(folder, config, device)
    if not rankers and network is None:
        raise ValueError("neither linear classifiers nor a network")
    ranking: list[Any] = [*rankers]
    if network is not None and network.ranker is not None:
        ranking.append(network.ranker)
    for ranker in ranking:
        if ranker.n_labels != len(parts.labels):
            raise ValueError(
                f"a ranker of {ranker.n_labels} labels beside {len(parts.labels)} labels"
            )
    graph = None
    if _GRAPH in names:
        graph = _label_graph(folder, len(parts.labels))
    _check_widths(vectoriser, rankers, parts.facts)
    return Model(
        config,
        parts.labels,
        parts.label_counts,
        parts.facts,
        vectoriser=vectoriser,
        rankers=rankers,
        network=network,
        label_graph=graph,
        calibration=parts.calibration,
        metrics=parts.metrics,
        fingerprints=parts.fingerprints,
    )


def _config(folder: Folder) -> Config:
    """Return the settings; those that the folder does not have are what they were when it was
    written.

    Models trained before there was ``normalise_features`` took given features as they were.
    ``recursive.loss`` is ``training.loss`` now, for the networks that read it;
    ``training.tensorboard`` is no longer a setting. The phases of a training were in
    ``label_text``, and the settings of AttentionXML in ``recursive`` and ``cascade``."""
    load_plugins()  # their methods and encoders are known by name
    config = folder.read_json("config.json", Config, _upgraded)
    if config.method not in METHODS:
        name = printable(config.method)
        raise ModelFolderError(
            f"trained with the method '{name}', which is not known here; "
            "install the package that adds it, or a newer longtail"
        )
    return config


def _upgraded(settings: Any) -> Any:
    """Return the settings of an earlier version as this one has them; what is no table is refused
    later.
    """
    if not isinstance(settings, dict):
        return settings
    upgraded = {"normalise_features": False, **settings}
    recursive = settings.get("recursive")
    training = settings.get("training")
    if isinstance(training, dict):  # --log-to tensorboard has taken its place
        training = {name: value for name, value in training.items() if name != "tensorboard"}
        upgraded["training"] = training
    label_text = settings.get("label_text")
    if isinstance(label_text, dict) and "phases" not in settings:
        names = label_text.keys() & _PHASES.keys()
        upgraded["phases"] = {_PHASES[name]: label_text[name] for name in names}
        upgraded["label_text"] = {
            name: value for name, value in label_text.items() if name not in _PHASES
        }
    entry = METHODS.get(str(settings.get("method")))
    if entry is not None and entry.network:
        upgraded = network_family(entry.network).upgraded(upgraded)
    if isinstance(recursive, dict) and isinstance(training, dict):  # other networks did not read it
        upgraded["recursive"] = {name: value for name, value in recursive.items() if name != "loss"}
    return upgraded


def _label_graph(folder: Folder, n_labels: int) -> sparse.csr_array:
    arrays = folder.arrays(_GRAPH)
    check_kinds(arrays, {"values": "f", "columns": "i", "ends": "i"})
    columns = arrays["columns"]
    ends = arrays["ends"]
    if len(ends) != n_labels + 1:
        raise ValueError(f"a label graph of {len(ends) - 1} labels beside {n_labels} labels")
    if len(arrays["values"]) != len(columns) or not rows_fit(ends, columns, n_labels):
        raise ValueError(
            f"a label graph whose rows are not neighbours, from 0 to {n_labels - 1}, "
            "of one label each"
        )
    return csr_of_arrays(arrays, n_labels)


def _check_widths(vectoriser: TfIdf | None, rankers: Sequence[Ranker], facts: Facts) -> None:
    """Refuse rankers of other features than documents will have: found now, not at the first
    document.
    """
    expected = facts.widths
    if min(expected) < 0 or not 0 <= facts.network_share <= 1:
        raise ValueError(
            f"training.json: {expected} columns, a network's share of {facts.network_share:g}"
        )
    if not rankers and facts.network_share != 1:
        raise ValueError(
            f"training.json: a network's share of {facts.network_share:g}, and nothing beside it"
        )
    if rankers and vectoriser is not None and vectoriser.n_features != facts.n_columns:
        raise ValueError(
            f"a vocabulary of {vectoriser.n_features} n-grams for {facts.n_columns} columns"
        )
    if not all(ranker.check_widths(*expected) for ranker in rankers):
        raise ValueError(
            f"a ranker of other features than the {expected[0]} sparse and {expected[1]} dense ones"
        )
