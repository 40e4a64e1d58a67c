"""State of a reproduction in its folder, so that a run can resume and no two runs are mixed."""

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
from longtail.data.strings import Strings
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
    """A model of the run: its settings by dotted path, and its training time so far."""

    settings: dict[str, Any]
    seconds: float = 0.0


class _State(msgspec.Struct, frozen=True):
    """The content of ``run.json``."""

    longtail: str
    experiment: str
    share: float
    data: str  # hash of the training and test documents
    members: dict[str, MemberState] = {}


class RunFolder:
    """The folder of one experiment on one set of documents, with a model folder per member."""

    def __init__(self, root: Path, experiment: str, share: float, data: str) -> None:
        """Open a new folder, or one of the same run; refuse any other.

        Args:
            root: the folder; created if it does not exist.
            experiment: name of the experiment.
            share: the share of the documents that is used.
            data: hash of these documents.
        """
        self.root = root
        wanted = _State(__version__, experiment, share, data)
        state = _read(root)
        if state is None:
            root.mkdir(parents=True, exist_ok=True)
            state = wanted
            self._write(state)
        _refuse_other(root, state, wanted)
        self._state = state

    def model(self, member: str) -> Path:
        """Return the path of a member's model folder."""
        return self.root / f"member-{member}"

    def predictions(self, member: str) -> Path:
        """Return the path of a member's predictions for the test documents."""
        return self.root / f"predictions-{member}"

    def seconds(self, member: str) -> float:
        """Return the training time of a member over all runs."""
        return self._state.members[member].seconds

    def begin(self, member: str, config: Config) -> None:
        """Store the settings of a member before training; refuse settings that have changed."""
        wanted = comparable_settings(config)
        known = self._state.members.get(member)
        if known is None:
            self._set(member, MemberState(wanted))
            return
        differing = [path for path in wanted if wanted[path] != known.settings.get(path)]
        if differing:
            path = differing[0]
            before = f"{path}={known.settings.get(path)!r}"
            problem = f"member {member} was begun with {before}, not {wanted[path]!r}"
            if len(differing) > 1:
                problem += f", and {len(differing) - 1} other settings differ"
            expected = "give the same settings, or another folder with -o"
            raise UsageError(f"{self.root}: {problem}; {expected}")

    def add_seconds(self, member: str, seconds: float) -> None:
        """Add to the training time of a member."""
        known = self._state.members[member]
        self._set(member, replace(known, seconds=known.seconds + seconds))

    def _set(self, member: str, state: MemberState) -> None:
        self._state = replace(self._state, members={**self._state.members, member: state})
        self._write(self._state)

    def _write(self, state: _State) -> None:
        write_json(self.root / _FILE, state)


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, atomically."""
    raw = msgspec.json.encode(value, order="deterministic")
    with open_output(path) as out:
        out.write(msgspec.json.format(raw, indent=2) + b"\n")


def data_hash(*parts: Dataset) -> str:
    """Return a hash of everything in documents that training and evaluation read."""
    return content_hash([_content(documents) for documents in parts])


def _content(documents: Dataset) -> list[object]:
    columns = (documents.texts, documents.labels.ids, documents.labels.texts)
    packed = [_packed(column) for column in columns]
    return [packed, documents.label_matrix, documents.features, documents.dense]


def _packed(column: Strings | None) -> list[object] | None:
    if column is None:
        return None
    return [column.packed().arena, column.lengths]


def comparable_settings(config: Config) -> dict[str, Any]:
    """Return the settings that must not change when a run resumes, in JSON types."""
    config = replace(config, training=replace(config.training, **WITHOUT_EFFECT))
    values = {setting.path: setting.value for setting in settings(config)}
    # lists instead of tuples, as in the file
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values))
    return decoded


def refuse_file(root: Path) -> None:
    """Refuse a file in place of the folder of the run."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file; expected a folder for the models and the result")


def _read(root: Path) -> _State | None:
    """Return the state of a folder; None if it does not exist or is empty."""
    file = root / _FILE
    if not root.exists():
        return None
    refuse_file(root)
    if not file.is_file():
        if any(root.iterdir()):
            problem = f"holds files, but no {_FILE} of a reproduction"
            raise UsageError(f"{root}: {problem}; give an empty or a new folder")
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=_State)
    except msgspec.DecodeError as error:
        expected = "expected a file of longtail reproduce; give a new folder"
        raise UsageError(f"{file}: found {error}; {expected}") from None


def _refuse_other(root: Path, state: _State, wanted: _State) -> None:
    """Refuse the folder of a run with another experiment, share or data."""
    names: Mapping[str, str] = {
        "experiment": "experiment",
        "share": "--share",
        "data": "data with the hash",
    }
    for field, name in names.items():
        old = getattr(state, field)
        new = getattr(wanted, field)
        if old != new:
            if field == "data":
                old = old[:12]
                new = new[:12]
            raise UsageError(
                f"{root}: was begun with {name} {old}, not {new}; "
                "give the same, or another folder with -o"
            )
