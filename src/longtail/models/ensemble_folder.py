"""An ensemble as one model folder: what it adds, and every member in a folder that is a model of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from longtail.config import Config
from longtail.models.ensemble_model import METHOD, Ensemble, Fusion
from longtail.models.model import Model
from longtail.models.ranking_folder import read_parts, write_parts
from longtail.store import Folder, FolderWriter, content_hash, write_folder
from longtail.store.manifest import MANIFEST, encode

__all__ = ["ENSEMBLE", "read_ensemble", "save_ensemble"]

ENSEMBLE = "ensemble.json"  # which tells the folder of an ensemble from that of a model


class _Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    method: str
    weight: Annotated[float, Meta(ge=0, le=1)]


class _Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``ensemble.json`` says."""

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
                save_member(member, folder.path(_place(number)))
            else:
                _copy(files, folder, _place(number))
        folder.write_bytes("README.md", _ensemble_card(ensemble).encode())


def _place(number: int) -> str:
    return f"member-{number}"


def _copy(source: Folder, target: FolderWriter, place: str) -> None:
    """Write the verified bytes of a model folder, and its manifest, as the subfolder ``place``."""
    for name in source.files:
        target.write_pieces(f"{place}/{name}", [source.view(name)])
    # it is one of the files where a folder is a subfolder of another
    if MANIFEST not in source.files:
        own = source.manifest
        target.write_bytes(f"{place}/{MANIFEST}", encode(own.producer, own.config_hash, own.files))


def read_ensemble(folder: Folder, read_member: Callable[[Folder], Model]) -> Ensemble:
    """Return the ensemble of a verified folder, its members read one after another."""
    described = folder.read_json(ENSEMBLE, _Described)
    parts = read_parts(folder)
    folders = tuple(folder.inside(_place(number)) for number in range(len(described.members)))
    members = tuple(map(read_member, folders))
    for own in (member.labels.ids for member in members):
        if not all(label in parts.labels for label in own):
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
    rows = {
        f"member {number}": f"{member.config.method}, weight {weight:.2f}, {len(member.labels):,} labels"
        for number, (member, weight) in enumerate(
            zip(ensemble.members, ensemble.weights, strict=True)
        )
    }
    rows |= {
        "documents": f"{facts.documents:,}, and {facts.held_out:,} to weigh or calibrate by",
        "labels": f"{len(ensemble.labels):,}, of all members",
        "averaged": averaged_in_words(ensemble),
        "scores": "probabilities" if ensemble.calibration is not None else "not calibrated",
    }
    lines = [
        f"# Ensemble of {len(ensemble.members)} models: {len(ensemble.labels):,} labels",
        "Each member is a model folder of its own, in `member-N`.",
        "| | |\n|---|---|" + "".join(f"\n| {name} | {value} |" for name, value in rows.items()),
    ]
    if ensemble.metrics is not None:
        told = "The weights were fitted on them, too." if ensemble.fusion == "weights" else ""
        lines.append(
            f"## Measured on the documents given to calibrate by\n\n{told}\n\n```\n{ensemble.metrics}\n```"
        )
    lines.append("## Use\n\n```\nlongtail predict THIS_FOLDER documents.jsonl -k 5\n```")
    return "\n\n".join(filter(None, lines)) + "\n"


def averaged_in_words(ensemble: Ensemble) -> str:
    """Return what of the members is averaged, and how it is weighed."""
    what = "probabilities" if ensemble.calibrated_members else "raw scores"
    if ensemble.fusion == "rank":
        return "reciprocal ranks, 61 / (60 + rank)"
    if ensemble.fusion == "weights":
        return f"{what}, by weights fitted on documents"
    return what
