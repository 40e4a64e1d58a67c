"""Ensembles of trained models: members that fit together, weights, and the calibration."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import DataError, Problem, UsageError, unknown_name
from longtail.estimator import Longtail
from longtail.kernels import pool
from longtail.models.ensemble_model import METHOD, Ensemble, Fusion, united_labels
from longtail.models.model import Model
from longtail.models.model_folder import load_model
from longtail.models.ranking_model import Facts
from longtail.reporting import advance, logged_stage, stage
from longtail.search.ensemble import FITTED, above_missing, fit_weights
from longtail.steps.held_out import calibrate, check_unseen
from longtail.store import Folder, check_replaceable, open_folder

__all__ = ["checked_fusion", "ensemble", "ensemble_to_folder"]

log = logging.getLogger("longtail")

_UNCALIBRATED = (
    "the ensemble is not calibrated, so its scores are not probabilities; "
    "--valid, or valid=, gives documents for that"
)


def ensemble(
    models: Sequence[Longtail | Path | str],
    fusion: Fusion = "mean",
    valid: Dataset | None = None,
    *,
    threads: int = 0,
    device: str = "auto",
) -> Longtail:
    """Return models, or model folders, as one: by the mean of scores, by ranks, or by weights
    fitted on ``valid``.

    ``valid`` are documents that no member has seen; the ensemble is calibrated on them, too.
    """
    fusion = checked_fusion(models, fusion, valid is not None)
    names = _names(models)
    with pool.threads(threads):
        trained, folders = _loaded(models, names, device)
        joined = _joined(trained, names, folders, fusion)
        if valid is not None:
            check_unseen(valid, joined.all_fingerprints)
            joined = _fitted(joined, valid)
        else:
            log.warning("%s", _UNCALIBRATED)
        return Longtail.of(joined, threads, device)


def checked_fusion(models: Sequence[Longtail | Path | str], fusion: str, has_valid: bool) -> Fusion:
    """Return the fusion; refuse before any work an unknown one, one without its documents, and too
    few models.
    """
    known: Fusion | None = next((name for name in get_args(Fusion) if name == fusion), None)
    if known is None:
        raise UsageError(unknown_name("fusion", fusion, get_args(Fusion)))
    if known == "weights" and not has_valid:
        raise UsageError(
            "the fusion by weights fits them on documents; "
            "give some with labels: --valid, or valid="
        )
    _names(models)
    for model in models:
        if not isinstance(model, Longtail):
            open_folder(model, verify="size")
    return known


def ensemble_to_folder(
    models: Sequence[Path],
    output: Path,
    fusion: Fusion = "mean",
    valid: Dataset | None = None,
    *,
    force: bool = False,
    threads: int = 0,
    device: str = "auto",
) -> None:
    """Write the ensemble of model folders as one; with ``force`` it may replace an older model, but
    no member.
    """
    if output.resolve() in {model.resolve() for model in models}:
        raise UsageError(f"{output}: is one of the models; give another folder for the ensemble")
    check_replaceable(output, force)  # now, not after a long validation
    ensemble(models, fusion, valid, threads=threads, device=device).save(output, force=force)


def _names(models: Sequence[Longtail | Path | str]) -> list[str]:
    """Return what errors call each model; refuse fewer than two, and one folder twice."""
    names = [f"model {n}" if isinstance(m, Longtail) else str(m) for n, m in enumerate(models, 1)]
    if len(models) < 2:
        raise UsageError(f"found {', '.join(names) or 'no model'}; expected at least two models")
    seen: list[object] = []
    for name, model in zip(names, models, strict=True):
        if isinstance(model, Longtail):
            identity: object = id(model.model)
        else:
            identity = Path(model).resolve()
        if identity in seen:
            raise UsageError(f"{name}: is given twice; expected different models")
        seen.append(identity)
    return names


def _loaded(
    models: Sequence[Longtail | Path | str], names: Sequence[str], device: str
) -> tuple[list[Model], list[Folder | None]]:
    """Return the members, and the files of those that have some."""
    trained: list[Model] = []
    folders: list[Folder | None] = []
    with stage("loading", len(models), "models"):
        for model, name in zip(models, names, strict=True):
            if isinstance(model, Longtail):
                folder = None
                single = model.model.single
            else:
                folder = open_folder(model)
                single = load_model(folder, device).single
            if single is None:
                raise UsageError(
                    f"{name}: is an ensemble itself; give its members, such as {name}/member-0"
                )
            trained.append(single)
            folders.append(folder)
            advance(1)
    return trained, folders


def _joined(
    members: Sequence[Model], names: Sequence[str], folders: Sequence[Folder | None], fusion: Fusion
) -> Ensemble:
    """Return the members as one, with equal weights."""
    _check_labels(members, names)
    _check_features(members, names)
    _check_scores(members, names, fusion)
    labels = united_labels([member.labels for member in members])
    counts = _counts(members, labels)
    # most ensembles are of models of the same documents; of others, the largest number stands for
    # all
    facts = Facts(max(member.facts.documents for member in members), int(counts.sum()), 0, 0, 0)
    weights = (1 / len(members),) * len(members)
    return Ensemble(
        Config(method=METHOD),
        labels,
        counts,
        facts,
        tuple(members),
        weights,
        fusion,
        tuple(folders),
    )


def _check_labels(members: Sequence[Model], names: Sequence[str]) -> None:
    for number, (member, name) in enumerate(zip(members, names, strict=True)):
        others = [other.labels for at, other in enumerate(members) if at != number]
        if not any(label in labels for labels in others for label in member.labels.ids):
            raise UsageError(
                f"{name}: has no label in common with the others; "
                "expected models of the same labels"
            )
    first = members[0].labels
    for member, name in zip(members[1:], names[1:], strict=True):
        common = sum(label in first for label in member.labels.ids)
        if not common == len(first) == len(member.labels):
            log.warning(
                "%s: has %s labels, %s of them among the %s of %s; "
                "a label that a member does not know gets a lower score",
                name,
                f"{len(member.labels):,}",
                f"{common:,}",
                f"{len(first):,}",
                names[0],
            )


def _check_features(members: Sequence[Model], names: Sequence[str]) -> None:
    """Refuse members that no document can suit all."""
    first = members[0]
    for member, name in zip(members, names, strict=True):
        if member.reads_text != first.reads_text:
            on_text = names[0]
            on_features = name
            if member.reads_text:
                on_text = name
                on_features = names[0]
            raise UsageError(
                f"{on_features}: was trained on ready-made features, and {on_text} on text; "
                "expected models that all read text, or all the same features"
            )
        if not member.reads_text and _widths(member) != _widths(first):
            raise UsageError(
                f"{name}: was trained on {_widths(member)} columns of features (sparse, dense), "
                f"and {names[0]} {_widths(first)}; expected models of the same features"
            )


def _check_scores(members: Sequence[Model], names: Sequence[str], fusion: Fusion) -> None:
    """Refuse to average margins and other scores, which have nothing in common."""
    if fusion == "rank" or all(member.calibration is not None for member in members):
        return
    for member, name in zip(members, names, strict=True):
        if member.missing_score != members[0].missing_score:
            by_margins = names[0]
            by_scores = name
            if member.missing_score:
                by_margins = name
                by_scores = names[0]
            raise UsageError(
                f"{by_margins}: ranks labels by their margins, and {by_scores} by scores "
                "from 0 to 1; expected calibrated models, --fusion rank, or the same "
                "search.last_level in all"
            )


def _widths(member: Model) -> tuple[int | None, int]:
    """Return the sparse and dense columns of the features that documents must have; None for text
    in place of sparse ones.
    """
    if member.vectoriser is not None:
        return None, member.facts.dense_width
    return member.facts.widths


def _counts(members: Sequence[Model], labels: Labels) -> NDArray[np.int64]:
    """Return the documents of each label, the most that any member has seen."""
    counts = np.zeros(len(labels), np.int64)
    for member in members:
        columns = np.fromiter(
            (labels.columns[label] for label in member.labels.ids), np.int64, len(member.labels)
        )
        counts[columns] = np.maximum(counts[columns], member.label_counts)
    return counts


def _fitted(joined: Ensemble, valid: Dataset) -> Ensemble:
    """Return the ensemble with its weights, where these are to be fitted, and calibrated."""
    if joined.fusion == "weights":
        known = valid.with_labels(joined.labels, unknown="drop")
        if not known.label_matrix.nnz:
            problem = f"{len(valid):,} documents without any label of the models"
            raise DataError([Problem("valid", 0, problem, "labels to fit weights by")])
        with logged_stage("weights") as note:
            scores = joined.member_scores(known, FITTED[-1], joined.config.search)
            above = [above_missing(ranked, joined.missing_score) for ranked in scores]
            weights, value = fit_weights(above, known.label_matrix)
            joined = replace(joined, weights=weights)
            shares = (
                f"{method} {weight:.3g}"
                for method, weight in zip(joined.methods, weights, strict=True)
            )
            note(f"{', '.join(shares)}: mean of P@1, P@3 and P@5 {value / len(FITTED):.1%}")
    facts = msgspec.structs.replace(joined.facts, held_out=len(valid))
    return calibrate(replace(joined, facts=facts), valid)
