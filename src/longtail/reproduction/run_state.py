"""What a folder knows of its reproduction, so that a run goes on, and no two are mixed in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from longtail import __version__
from longtail.config import Config, settings
from longtail.data.dataset import Dataset
from longtail.data.output import open_output
from longtail.errors import UsageError
from longtail.steps.inputs import WITHOUT_EFFECT
from longtail.store import content_hash

__all__ = [
    "MemberState",
    "RunFolder",
    "comparable_settings",
    "data_hash",
    "refuse_file",
    "write_json",
]

_FILE = "run.json"


class MemberState(msgspec.Struct, frozen=True):
    """A model of the run: its settings by dotted path, and how long its training took so far."""

    settings: dict[str, Any]
    seconds: float = 0.0


class _State(msgspec.Struct, frozen=True):
    """What ``run.json`` holds."""

    longtail: str
    experiment: str
    share: float
    data: str  # hash of the documents, those of training and those of the test
    members: dict[str, MemberState] = {}


class RunFolder:
    """The folder of one experiment on one set of documents, with a model folder for each member."""

    def __init__(self, root: Path, experiment: str, share: float, data: str) -> None:
        """Take a new folder, or one of the very same run; refuse any other.

        Args:
            root: the folder; it is made where it is not there.
            experiment: name of the experiment.
            share: the share of the documents that is used.
            data: hash of these documents.
        """
        self.root = root
        wanted = _State(__version__, experiment, share, data)
        found = _read(root)
        if found is None:
            root.mkdir(parents=True, exist_ok=True)
            found = wanted
            self._write(found)
        _refuse_other(root, found, wanted)
        self._state = found

    def model(self, member: str) -> Path:
        """Return where the model folder of a member is, or will be."""
        return self.root / f"member-{member}"

    def predictions(self, member: str) -> Path:
        """Return where the test documents' labels by a member are kept."""
        return self.root / f"predictions-{member}"

    def seconds(self, member: str) -> float:
        """Return how long the training of a member took, in all runs."""
        return self._state.members[member].seconds

    def begin(self, member: str, config: Config) -> None:
        """Note the settings of a member before training; refuse others than those it was begun
        with.
        """
        wanted = comparable_settings(config)
        known = self._state.members.get(member)
        if known is None:
            self._note(member, MemberState(wanted))
            return
        differing = [path for path in wanted if wanted[path] != known.settings.get(path)]
        if differing:
            path = differing[0]
            begun = f"{path}={known.settings.get(path)!r}"
            found = f"member {member} was begun with {begun}, not {wanted[path]!r}"
            more = f", and {len(differing) - 1} other settings differ" if len(differing) > 1 else ""
            ways = "give the same settings, or another folder with -o"
            raise UsageError(f"{self.root}: {found}{more}; {ways}")

    def add_seconds(self, member: str, seconds: float) -> None:
        """Note that the training of a member took so much longer."""
        known = self._state.members[member]
        self._note(member, replace(known, seconds=known.seconds + seconds))

    def _note(self, member: str, state: MemberState) -> None:
        self._state = replace(self._state, members={**self._state.members, member: state})
        self._write(self._state)

    def _write(self, state: _State) -> None:
        write_json(self.root / _FILE, state)


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON; the file appears whole or not at all."""
    raw = msgspec.json.encode(value, order="deterministic")
    with open_output(path) as out:
        out.write(msgspec.json.format(raw, indent=2) + b"\n")


def data_hash(*parts: Dataset) -> str:
    """Return a hash of all that training and measuring read of some documents."""
    return content_hash([_content(documents) for documents in parts])


def _content(documents: Dataset) -> list[object]:
    strings = [documents.texts, documents.labels.ids, documents.labels.texts]
    packed = [
        None if column is None else [column.packed().arena, column.lengths] for column in strings
    ]
    return [packed, documents.label_matrix, documents.features, documents.dense]


def comparable_settings(config: Config) -> dict[str, Any]:
    """Return the settings that must be the same when a run goes on, as JSON has them."""
    config = replace(config, training=replace(config.training, **WITHOUT_EFFECT))
    values = {setting.path: setting.value for setting in settings(config)}
    # lists, as in the file
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values))
    return found


def refuse_file(root: Path) -> None:
    """Refuse a file where the folder of the run should be."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file; expected a folder for the models and the result")


def _read(root: Path) -> _State | None:
    """Return the state of a folder; None for one that is not there, or empty."""
    file = root / _FILE
    if not root.exists():
        return None
    refuse_file(root)
    if not file.is_file():
        if any(root.iterdir()):
            found = f"holds files, but no {_FILE} of a reproduction"
            raise UsageError(f"{root}: {found}; give an empty or a new folder")
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=_State)
    except msgspec.DecodeError as error:
        expected = "expected what longtail reproduce writes; give a new folder"
        raise UsageError(f"{file}: found {error}; {expected}") from None


def _refuse_other(root: Path, found: _State, wanted: _State) -> None:
    """Refuse a folder that another experiment, share or data has begun."""
    names: Mapping[str, str] = {
        "experiment": "experiment",
        "share": "--share",
        "data": "data with the hash",
    }
    for field, what in names.items():
        there = getattr(found, field)
        here = getattr(wanted, field)
        if there != here:
            shown = (there[:12], here[:12]) if field == "data" else (there, here)
            ways = "give the same, or another folder with -o"
            raise UsageError(f"{root}: was begun with {what} {shown[0]}, not {shown[1]}; {ways}")
