"""Reproduction of a published experiment: training, fusion, evaluation and comparison."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from scipy import sparse

from longtail import __version__
from longtail.checks import check_encoder, check_threads
from longtail.config import Config
from longtail.data.csr import csr_arrays, csr_of_arrays
from longtail.errors import ModelFolderError, UsageError
from longtail.evaluation import evaluate_predictions
from longtail.features.encoder_search import search_encoders_in
from longtail.kernels import pool
from longtail.methods import METHODS, ranks_alone, uses_encoder
from longtail.models.model_folder import load_model
from longtail.reproduction.experiments import Experiment, Member, experiment
from longtail.reproduction.published import Documents, read_documents
from longtail.reproduction.results import (
    ENSEMBLE,
    Measure,
    Result,
    RunFolder,
    comparable_settings,
    compared,
    data_hash,
    fused,
    refuse_file,
    write_json,
)
from longtail.search.predictions import Predictions
from longtail.store import content_hash, open_folder, write_folder
from longtail.training_run import is_interrupted, train_to_folder

__all__ = ["reproduce"]

log = logging.getLogger("longtail")

_KS = (1, 3, 5)
_ARRAYS = "predictions.safetensors"
_RESULT = "result"


@dataclass(frozen=True)
class _Training:
    """A model to train: the member, its name in the folder, and its settings."""

    member: Member
    name: str
    repeat: int
    config: Config


class TrainingOptions(TypedDict, total=False):
    """Options of training that do not change the models."""

    device: str
    threads: int
    ignore_memory: bool
    encoder_folder: Path | str | None


@dataclass(frozen=True)
class _Options:
    """:class:`TrainingOptions` with defaults."""

    device: str = "auto"
    threads: int = 0
    ignore_memory: bool = False
    encoder_folder: Path | str | None = None


def reproduce(
    name: str,
    data: Path | str,
    output: Path | str,
    *,
    single: bool = False,
    seeds: int = 1,
    share: float = 1.0,
    overrides: Sequence[Mapping[str, Any]] = (),
    **training_options: Unpack[TrainingOptions],
) -> Result:
    """Run a published experiment and return its metrics beside the published numbers.

    The folder ``output`` gets a model folder per member, the members' predictions, ``result.json``
    and ``result.txt``. A folder of an interrupted run is resumed.

    Args:
        name: the experiment, such as ``cascadexml/amazon-670k``.
        data: the folder of the dataset, train and test, as its authors publish it.
        output: a new folder, or the folder of the run to resume.
        single: train the first member only.
        seeds: number of repetitions, each with other seeds.
        share: share of the documents that is used, for a quick trial.
        overrides: nested settings that replace those of the recipe; later ones win.
        training_options: ``device`` of networks (auto, cpu, cuda or cuda:N), ``threads`` (0: all
            cores), ``ignore_memory`` (train whatever the forecast of memory is), and
            ``encoder_folder`` with pretrained encoders, each in a folder of its name.
    """
    options = _Options(**training_options)
    _check_numbers(seeds, share)
    _check_paths(data, output)
    check_threads(options.threads)
    entry = experiment(name)
    members = _members(entry, single)
    trainings = [
        _training(entry, member, repeat, overrides) for repeat in range(seeds) for member in members
    ]
    with search_encoders_in(options.encoder_folder):
        for training in trainings:
            if uses_encoder(training.config):
                check_encoder(training.config, options.device)
        reads_features = any(_reads_tfidf(training.config) for training in trainings)
        whole = read_documents(Path(data), entry.published_dataset, reads_features)
        documents = whole.share(share)
        folder = RunFolder(
            Path(output), entry.name, share, data_hash(documents.train, documents.test)
        )
        return _run(entry, trainings, documents, folder, overrides, options, share)


def _check_numbers(seeds: int, share: float) -> None:
    """Refuse numbers out of range and other types; True would be a share in run.json."""
    if isinstance(seeds, bool) or not isinstance(seeds, int):
        raise UsageError(f"--seeds: found {seeds!r}; expected a whole number, at least 1")
    if seeds < 1:
        raise UsageError(f"--seeds: found {seeds}; expected at least 1")
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise UsageError(
            f"--share: found {share!r}; expected a number above 0 and at most 1, such as 0.01"
        )
    if not 0 < share <= 1:
        raise UsageError(
            f"--share: found {share:g}; expected more than 0 and at most 1, such as 0.01"
        )


def _check_paths(data: Path | str, output: Path | str) -> None:
    """Refuse values that are not paths, and a file as output, before anything is read."""
    for argument, path in (("data", data), ("output", output)):
        if not isinstance(path, str | Path):
            raise UsageError(f"{argument}: found {path!r}; expected the path of a folder")
    refuse_file(Path(output))


def _members(entry: Experiment, single: bool) -> Sequence[Member]:
    """Return the members to train; refuse those that Longtail cannot train."""
    members = entry.members
    if single:
        members = members[:1]
    missing = [member for member in members if member.missing]
    if missing:
        lacking = sorted({member.missing for member in missing})
        raise UsageError(
            f"{entry.name}: {len(missing)} of its {len(members)} models need parts that Longtail "
            f"does not have yet ({', '.join(lacking)}); train only the first model with --single"
        )
    return members


def _reads_tfidf(config: Config) -> bool:
    """Return whether linear classifiers read tf-idf, which the published datasets contain."""
    return config.features != "dnn" and not ranks_alone(config)


def _training(
    entry: Experiment, member: Member, repeat: int, overrides: Sequence[Mapping[str, Any]]
) -> _Training:
    name = member.name
    if repeat:
        name += f"-repeat-{repeat + 1}"
    return _Training(member, name, repeat, entry.config(member, overrides, repeat))


def _run(
    entry: Experiment,
    trainings: Sequence[_Training],
    documents: Documents,
    folder: RunFolder,
    overrides: Sequence[Mapping[str, Any]],
    options: _Options,
    share: float,
) -> Result:
    """Train missing models, evaluate, write the result and return it.

    Args:
        entry: the experiment.
        trainings: the models, repeat by repeat.
        documents: the training and test documents.
        folder: the folder of the run.
        overrides: settings that replace those of the recipe.
        options: device, threads and so on.
        share: the share of all documents that ``documents`` have.
    """
    mask = documents.filter_file(folder.root)
    measures: list[Measure] = []
    for training in trainings:  # all of them before the first is loaded
        _train(training, documents, folder, options)
    for repeat in dict.fromkeys(training.repeat for training in trainings):
        members = [training for training in trainings if training.repeat == repeat]
        lists = []
        for training in members:
            ranked = _predictions(training, documents, folder, entry.labels, options)
            hours = folder.seconds(training.name) / 3600
            measures.append(
                _measure(training.member.name, repeat, ranked, documents, entry, mask, hours)
            )
            lists.append(ranked)
        if len(members) > 1:
            hours = sum(folder.seconds(training.name) for training in members) / 3600
            with pool.threads(options.threads):
                joined = fused(lists, entry.fusion, entry.labels)
            measures.append(_measure(ENSEMBLE, repeat, joined, documents, entry, mask, hours))
    reasons = tuple(_reasons(entry, trainings[0], documents, overrides, share))
    result = _result(entry, measures, documents, share, mask, reasons)
    write_json(folder.root / f"{_RESULT}.json", result)
    (folder.root / f"{_RESULT}.txt").write_text(f"{result}\n", "utf-8")
    return result


def _train(training: _Training, documents: Documents, folder: RunFolder, options: _Options) -> None:
    """Train a model into its folder, unless the folder exists."""
    path = folder.model(training.name)
    folder.begin(training.name, training.config)
    if path.exists():
        open_folder(path)  # refuses a damaged one
        log.info("%s: exists and is not trained again", path)
        return
    begin = time.perf_counter()
    try:
        train_to_folder(
            documents.train,
            path,
            training.config,
            threads=options.threads,
            resume=is_interrupted(path),
            ignore_memory=options.ignore_memory,
            device=options.device,
        )
    finally:
        folder.add_seconds(training.name, time.perf_counter() - begin)


def _predictions(
    training: _Training, documents: Documents, folder: RunFolder, k: int, options: _Options
) -> sparse.csr_array:
    """Return the (n, L) raw scores of each test document's ``k`` best labels, best first."""
    path = folder.predictions(training.name)
    n_labels = documents.train.n_labels
    made_from = content_hash(open_folder(folder.model(training.name), verify="size").manifest, k)
    try:
        kept = open_folder(path)
    except ModelFolderError:
        kept = None
    if kept is not None and kept.manifest.config_hash == made_from:
        return csr_of_arrays(kept.arrays(_ARRAYS), n_labels)
    model = load_model(folder.model(training.name), options.device)
    with pool.threads(options.threads):
        ranked = model.raw_scores(documents.test, min(k, n_labels), model.config.search)
    with write_folder(path, config_hash=made_from) as writer:
        writer.write_arrays(_ARRAYS, csr_arrays(ranked))
    return ranked


def _measure(
    name: str,
    repeat: int,
    ranked: sparse.csr_array,
    documents: Documents,
    entry: Experiment,
    mask: Path | None,
    hours: float,
) -> Measure:
    """Return the metrics of predictions in percent.

    Args:
        name: name of the member, or "ensemble".
        repeat: number of the repetition.
        ranked: the predictions for the test documents.
        documents: the test documents, and the training documents for the propensities.
        entry: the experiment, for the constants of the propensities.
        mask: the filter file.
        hours: training time.
    """
    measured = evaluate_predictions(
        Predictions(ranked, documents.train.labels),
        documents.test,
        documents.train,
        ks=_KS,
        propensity=entry.published_dataset.propensity,
        mask=mask,
    )
    metrics = {metric: 100 * value for metric, value in measured.evaluation.metrics.items()}
    return Measure(name, repeat, metrics, hours)


def _reasons(
    entry: Experiment,
    first: _Training,
    documents: Documents,
    overrides: Sequence[Mapping[str, Any]],
    share: float,
) -> list[str]:
    """Return the reasons why measured and published numbers cannot be compared, as sentences."""
    reasons = list(documents.differences)
    if share < 1:
        reasons.append(f"a share of {share:g} of the documents")
    recipe = comparable_settings(entry.config(first.member))
    used = comparable_settings(first.config)
    changed = [path for path in used if recipe.get(path) != used[path]]
    if overrides and changed:
        reasons.append(f"settings other than the recipe's: {', '.join(changed)}")
    return reasons


def _result(
    entry: Experiment,
    measures: Sequence[Measure],
    documents: Documents,
    share: float,
    mask: Path | None,
    reasons: tuple[str, ...],
) -> Result:
    deviations = []
    if entry.note:
        deviations.append(entry.note)
    preset = METHODS[entry.method].presets.get(entry.preset)
    if preset is not None:
        deviations += preset.deviations
    return Result(
        experiment=entry.name,
        dataset=entry.published_dataset.title,
        preset=entry.preset,
        longtail=__version__,
        documents={
            "train": len(documents.train),
            "test": len(documents.test),
            "labels": documents.test.n_labels,
        },
        share=share,
        propensity=entry.published_dataset.propensity,
        filter="" if mask is None else mask.name,
        fusion=entry.fusion,
        repeats=1 + max(measure.repeat for measure in measures),
        measures=tuple(measures),
        comparisons=tuple(compared(entry, measures)),
        not_comparable=reasons,
        deviations=tuple(deviations),
    )
