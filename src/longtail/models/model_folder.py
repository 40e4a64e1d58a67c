"""A model as a folder: written whole or not at all, read without a copy.

An ensemble is one model folder, with each member in a model folder inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config
from longtail.data.csr import csr_arrays, csr_of_arrays, rows_fit
from longtail.data.fingerprints import Fingerprints
from longtail.data.label_files import read_labels, write_labels
from longtail.data.labels import Labels
from longtail.errors import DataError, MissingExtra, ModelFolderError, printable
from longtail.features.tfidf import TfIdf
from longtail.methods import METHODS, load_plugins
from longtail.methods.registry import network_family
from longtail.metrics import Evaluation
from longtail.models.ensemble_model import METHOD, Ensemble, Fusion
from longtail.models.model import Model
from longtail.models.model_card import model_card, scores_in_words
from longtail.models.ranking_model import Facts, RankingModel
from longtail.rankers import Ranker, ranker_family
from longtail.search.calibration import Calibration
from longtail.search.shard_files import open_model_folder
from longtail.store import Folder, FolderWriter, content_hash, write_folder
from longtail.store.manifest import MANIFEST, encode
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
_ENSEMBLE = "ensemble.json"  # only folders of ensembles have it


def save_model(
    model: Model | Ensemble, path: str | Path, check: Callable[[Path], None] | None = None
) -> None:
    """Write the model; nothing in the folder depends on when or where it was made.

    ``check`` is called with the complete folder of a model before it replaces an older one.
    """
    if isinstance(model, Ensemble):
        return _save_ensemble(model, path)
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
        if _ENSEMBLE in folder.files:
            return _read_ensemble(folder, device)
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


# Ensembles


class _Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    method: str
    weight: Annotated[float, Meta(ge=0, le=1)]


class _Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``ensemble.json``."""

    fusion: Fusion
    members: Annotated[tuple[_Member, ...], Meta(min_length=2)]


def _save_ensemble(ensemble: Ensemble, path: str | Path) -> None:
    """Write the ensemble with its members in one folder; the files of a member that has some are
    copied as they are.
    """
    members = tuple(map(_Member, ensemble.methods, ensemble.weights))
    described = _Described(ensemble.fusion, members)
    configs = [member.config for member in ensemble.members]
    with write_folder(path, config_hash=content_hash([described, configs])) as folder:
        folder.write_json(_ENSEMBLE, described)
        write_parts(ensemble, folder)
        for number, (member, files) in enumerate(
            zip(ensemble.members, ensemble.folders, strict=True)
        ):
            if files is None:
                save_model(member, folder.path(_member_path(number)))
            else:
                _copy(files, folder, _member_path(number))
        folder.write_bytes("README.md", _ensemble_card(ensemble).encode())


def _member_path(number: int) -> str:
    return f"member-{number}"


def _copy(source: Folder, target: FolderWriter, path: str) -> None:
    """Write the verified bytes of a model folder, and its manifest, as the subfolder ``path``."""
    for name in source.files:
        target.write_pieces(f"{path}/{name}", [source.view(name)])
    # it is one of the files where a folder is a subfolder of another
    if MANIFEST not in source.files:
        manifest = source.manifest
        content = encode(manifest.producer, manifest.config_hash, manifest.files)
        target.write_bytes(f"{path}/{MANIFEST}", content)


def _read_ensemble(folder: Folder, device: str) -> Ensemble:
    """Return the ensemble of a verified folder, its members read one after another."""
    described = folder.read_json(_ENSEMBLE, _Described)
    parts = read_parts(folder)
    paths = map(_member_path, range(len(described.members)))
    folders = tuple(map(folder.inside, paths))
    members = tuple(_read(member, device) for member in folders)
    for member in members:
        if not all(label in parts.labels for label in member.labels.ids):
            raise ValueError(f"{_ENSEMBLE}: a member has labels that are not those of the ensemble")
    weights = tuple(member.weight for member in described.members)
    if abs(sum(weights) - 1) > 1e-6:
        raise ValueError(f"{_ENSEMBLE}: found weights of sum {sum(weights):g}; expected 1")
    return Ensemble(
        Config(method=METHOD),
        parts.labels,
        parts.label_counts,
        parts.facts,
        members,
        weights,
        described.fusion,
        folders,
        calibration=parts.calibration,
        metrics=parts.metrics,
    )


def _ensemble_card(ensemble: Ensemble) -> str:
    """Return the model card as Markdown: the members with their weights, the data, metrics, how to
    use it.
    """
    facts = ensemble.facts
    rows = {}
    for number, (member, weight) in enumerate(ensemble.weighted_members()):
        size = f"{len(member.labels):,} labels"
        rows[f"member {number}"] = f"{member.config.method}, weight {weight:.2f}, {size}"
    rows |= {
        "documents": f"{facts.documents:,}, and {facts.held_out:,} to weigh or calibrate by",
        "labels": f"{len(ensemble.labels):,}, of all members",
        "averaged": averaged_in_words(ensemble),
        "scores": scores_in_words(ensemble),
    }
    lines = [
        f"# Ensemble of {len(ensemble.members)} models: {len(ensemble.labels):,} labels",
        "Each member is a model folder of its own, in `member-N`.",
        "| | |\n|---|---|" + "".join(f"\n| {name} | {value} |" for name, value in rows.items()),
    ]
    if ensemble.metrics is not None:
        note = ""
        if ensemble.fusion == "weights":
            note = "The weights were fitted on them, too."
        heading = "## Measured on the documents given to calibrate by"
        lines.append(f"{heading}\n\n{note}\n\n```\n{ensemble.metrics}\n```")
    lines.append("## Use\n\n```\nlongtail predict THIS_FOLDER documents.jsonl -k 5\n```")
    return "\n\n".join(filter(None, lines)) + "\n"


def averaged_in_words(ensemble: Ensemble) -> str:
    """Return the scores of the members that are averaged, and their weights."""
    if ensemble.fusion == "rank":
        return "reciprocal ranks, 61 / (60 + rank)"
    scores = "probabilities" if ensemble.calibrated_members else "raw scores"
    if ensemble.fusion == "weights":
        return f"{scores}, by weights fitted on documents"
    return scores


# Files in the folders of models and of ensembles alike

_FACTS = "training.json"
_LABELS = "labels.jsonl"
_COUNTS = "label_counts.safetensors"
_CALIBRATION = "calibration.safetensors"
_METRICS = "metrics.json"
_FINGERPRINTS = "fingerprints.safetensors"


class RankingParts(NamedTuple):
    """The fields that all trained models have in common, except the settings."""

    labels: Labels
    label_counts: NDArray[np.int64]
    facts: Facts
    calibration: Calibration | None
    metrics: Evaluation | None
    fingerprints: Fingerprints | None


def write_parts(model: RankingModel, folder: FolderWriter) -> None:
    """Write the files that every trained model has."""
    folder.write_json(_FACTS, model.facts)
    write_labels(model.labels, folder.path(_LABELS))
    folder.write_arrays(_COUNTS, {"counts": model.label_counts})
    if model.calibration is not None:
        folder.write_arrays(_CALIBRATION, model.calibration.to_arrays())
    if model.metrics is not None:
        folder.write_json(_METRICS, model.metrics)
    if model.fingerprints is not None:
        hashes = model.fingerprints.hashes
        complete = np.array([model.fingerprints.complete], np.uint8)
        folder.write_arrays(_FINGERPRINTS, {"hashes": hashes, "complete": complete})


def read_parts(folder: Folder) -> RankingParts:
    """Return what :func:`write_parts` wrote, checked."""
    folder.view(_LABELS)  # refuses a folder without labels
    labels = read_labels(folder.path(_LABELS))
    return RankingParts(
        labels,
        _label_counts(folder, len(labels)),
        folder.read_json(_FACTS, Facts),
        _calibration(folder),
        _metrics(folder),
        _fingerprints(folder),
    )


def _calibration(folder: Folder) -> Calibration | None:
    if _CALIBRATION not in folder.files:
        return None
    return Calibration.from_arrays(folder.arrays(_CALIBRATION))


def _metrics(folder: Folder) -> Evaluation | None:
    if _METRICS not in folder.files:
        return None
    return folder.read_json(_METRICS, Evaluation)


def _fingerprints(folder: Folder) -> Fingerprints | None:
    if _FINGERPRINTS not in folder.files:
        return None
    arrays = folder.arrays(_FINGERPRINTS)
    check_kinds(arrays, {"hashes": "u", "complete": "u"})
    hashes = arrays["hashes"]
    complete = arrays["complete"]
    if hashes.dtype != np.uint64 or len(complete) != 1:
        raise ValueError(
            f"fingerprints: found {hashes.dtype} and {len(complete)} marks; "
            "expected uint64 and 1 mark"
        )
    if (hashes[1:] <= hashes[:-1]).any():
        raise ValueError("fingerprints: found hashes in another order; expected rising ones")
    return Fingerprints(hashes, bool(complete[0]))


def _label_counts(folder: Folder, n_labels: int) -> NDArray[np.int64]:
    arrays = folder.arrays(_COUNTS)
    check_kinds(arrays, {"counts": "i"})
    if len(arrays["counts"]) != n_labels:
        raise ValueError(f"label counts of {len(arrays['counts'])} labels beside {n_labels} labels")
    if (arrays["counts"] < 0).any():
        raise ValueError("label counts below 0")
    return np.array(arrays["counts"], np.int64)
