"""An ensemble as one model folder, with each member in a model folder inside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from longtail.config import Config
from longtail.models.ensemble_model import METHOD, Ensemble, Fusion
from longtail.models.model import Model
from longtail.models.model_card import scores_in_words
from longtail.models.ranking_folder import read_parts, write_parts
from longtail.store import Folder, FolderWriter, content_hash, write_folder
from longtail.store.manifest import MANIFEST, encode

__all__ = ["ENSEMBLE", "read_ensemble", "save_ensemble"]

ENSEMBLE = "ensemble.json"  # only folders of ensembles have it


class _Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    method: str
    weight: Annotated[float, Meta(ge=0, le=1)]


class _Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``ensemble.json``."""

    fusion: Fusion
    members: Annotated[tuple[_Member, ...], Meta(min_length=2)]


def save_ensemble(
    ensemble: Ensemble, path: str | Path, save_member: Callable[[Model, Path], None]
) -> None:
    """Write the ensemble with its members in one folder; the files of a member that has some are
    copied as they are.
    """
    members = tuple(map(_Member, ensemble.methods, ensemble.weights))
    described = _Described(ensemble.fusion, members)
    configs = [member.config for member in ensemble.members]
    with write_folder(path, config_hash=content_hash([described, configs])) as folder:
        folder.write_json(ENSEMBLE, described)
        write_parts(ensemble, folder)
        for number, (member, files) in enumerate(
            zip(ensemble.members, ensemble.folders, strict=True)
        ):
            if files is None:
                save_member(member, folder.path(_member_path(number)))
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


def read_ensemble(folder: Folder, read_member: Callable[[Folder], Model]) -> Ensemble:
    """Return the ensemble of a verified folder, its members read one after another."""
    described = folder.read_json(ENSEMBLE, _Described)
    parts = read_parts(folder)
    paths = map(_member_path, range(len(described.members)))
    folders = tuple(map(folder.inside, paths))
    members = tuple(map(read_member, folders))
    for member in members:
        if not all(label in parts.labels for label in member.labels.ids):
            raise ValueError(f"{ENSEMBLE}: a member has labels that are not those of the ensemble")
    weights = tuple(member.weight for member in described.members)
    if abs(sum(weights) - 1) > 1e-6:
        raise ValueError(f"{ENSEMBLE}: found weights of sum {sum(weights):g}; expected 1")
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
