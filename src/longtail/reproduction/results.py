"""State and results of a reproduction: the folder by which a run can resume and no two runs are
mixed, results beside the published rows, and the fusion of the members' lists.

Fusions, as in the papers' published code, with 0 for labels that a list does not have:

mean      mean of the scores: CascadeXML, LightXML, AttentionXML
sigmoid   mean of σ(score): X-Transformer, and XR-Transformer on Wiki-500K
softmax   mean of the softmax over each list: XR-Transformer on Eurlex-4K, AmazonCat-13K and
          Amazon-670K
rank      mean of n for the first label of a list, n - 1 for the second, and so on; n is the length
          of the longest list: XR-Transformer on Wiki10-31K and Amazon-3M
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy import sparse, special

from longtail import __version__
from longtail.config import Config, settings
from longtail.data.csr import csr_of, places_in_rows
from longtail.data.dataset import Dataset
from longtail.data.output import open_output
from longtail.data.strings import Strings
from longtail.errors import UsageError
from longtail.metrics.layout import in_columns
from longtail.reproduction.experiments import Experiment, Fusion, PublishedRow
from longtail.search.ensemble import mean_scores
from longtail.steps.inputs import WITHOUT_EFFECT
from longtail.store import content_hash

__all__ = [
    "Comparison",
    "Measure",
    "MemberState",
    "Result",
    "RunFolder",
    "comparable_settings",
    "compared",
    "data_hash",
    "fused",
    "refuse_file",
    "write_json",
]

_METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@1", "R@3", "R@5")
ENSEMBLE = "ensemble"

Values = NDArray[np.float64]


class Measure(msgspec.Struct, frozen=True):
    """Metrics of a member, or of the ensemble, on the test documents."""

    name: str  # of the member, or "ensemble"
    repeat: int  # from 0; each with other seeds
    metrics: dict[str, float]  # in percent
    hours: float  # training time; of all members for the ensemble


class Comparison(msgspec.Struct, frozen=True):
    """A published number beside the measured one, which is a mean over repeats."""

    table: str
    system: str
    models: int  # of the published row
    setting: str
    metric: str
    unit: str  # percent or hours
    published: float
    of: str  # member or "ensemble" that it is compared with; empty: not trained
    measured: float | None = None
    difference: float | None = None  # None for hours, which depend on the machine
    deviation: float | None = None  # standard deviation over repeats


class Result(msgspec.Struct, frozen=True):
    """The outcome of one experiment."""

    experiment: str
    dataset: str
    preset: str
    longtail: str
    documents: dict[str, int]  # train, test, labels
    share: float
    propensity: tuple[float, float]  # A and B
    filter: str  # name of the filter file; empty: none
    fusion: str
    repeats: int
    measures: tuple[Measure, ...]
    comparisons: tuple[Comparison, ...]
    not_comparable: tuple[str, ...]  # reasons why the numbers cannot be compared; empty: they can
    deviations: tuple[str, ...]  # from the authors' recipe

    def __str__(self) -> str:
        parts = [self._head(), self._measured(), self._warning(), self._compared(), self._recipe()]
        return "\n\n".join(filter(None, parts))

    def _head(self) -> str:
        sizes = self.documents
        a, b = self.propensity
        lines = [
            f"{self.experiment}: {self.dataset}",
            f"{sizes['train']:,} training documents, {sizes['test']:,} test documents, "
            f"{sizes['labels']:,} labels",
            f"propensities: A={a:g}, B={b:g}; filter file: {self.filter or 'none'}",
        ]
        return "\n".join(lines)

    def _measured(self) -> str:
        """Return the table of the members and the ensemble, in percent."""
        rows = [["measured", *_METRICS, "hours"]]
        for name in dict.fromkeys(measure.name for measure in self.measures):
            repeats = [measure for measure in self.measures if measure.name == name]
            cells = [
                _spread([measure.metrics[metric] for measure in repeats], 2) for metric in _METRICS
            ]
            rows.append([name, *cells, _spread([measure.hours for measure in repeats], 2)])
        return in_columns(rows, n_left=1)

    def _compared(self) -> str:
        """Return the table of the published numbers, each beside the measured one."""
        if not self.comparisons:
            return f"The published tables in Longtail have no numbers of this on {self.dataset}."
        heads = "published in,system,models,metric,published,measured,difference,with"
        rows = [_cells(comparison) for comparison in self.comparisons]
        return in_columns([heads.split(","), *rows], n_left=2)

    def _warning(self) -> str:
        """Return the reasons why the numbers cannot be compared; empty if they can."""
        if not self.not_comparable:
            return ""
        reasons = "".join(f"\n- {reason}" for reason in self.not_comparable)
        return f"NOT COMPARABLE with the published numbers:{reasons}"

    def _recipe(self) -> str:
        """Return the deviations from the authors' recipe."""
        if not self.deviations:
            return ""
        return "The recipe:" + "".join(f"\n- {deviation}" for deviation in self.deviations)


def _cells(comparison: Comparison) -> list[str]:
    """Return the cells of a row of the table of published numbers."""
    system = comparison.system
    if comparison.setting:
        system = f"{system}, {comparison.setting}"
    measured = "–"
    if comparison.measured is not None:
        measured = _plus_minus(comparison.measured, comparison.deviation, 2)
    difference = "–"
    if comparison.difference is not None:
        difference = f"{comparison.difference:+.2f}"
    return [
        comparison.table,
        system,
        str(comparison.models),
        comparison.metric,
        f"{comparison.published:.2f}",
        measured,
        difference,
        comparison.of or "not trained",
    ]


def compared(experiment: Experiment, measures: Sequence[Measure]) -> Iterator[Comparison]:
    """Yield each published number of an experiment beside the measured one.

    A row of a single model is compared with the first member, one of several with the ensemble.
    """
    for row in experiment.published_rows():
        name = _counterpart(experiment, row)
        repeats = [measure for measure in measures if measure.name == name]
        for metric, published in row.values.items():
            yield _comparison(row, metric, published, name, repeats)


def _counterpart(experiment: Experiment, row: PublishedRow) -> str:
    if len(experiment.members) == 1 or row.models == 1:
        return experiment.members[0].name
    return ENSEMBLE


def _comparison(
    row: PublishedRow, metric: str, published: float, name: str, repeats: Sequence[Measure]
) -> Comparison:
    """Return a published number beside the mean over the repeats of a member or the ensemble."""
    if metric.startswith("hours"):
        unit = "hours"
        values = [measure.hours for measure in repeats]
    else:
        unit = "percent"
        values = [measure.metrics[metric] for measure in repeats]
    about = (row.table, row.system, row.models, row.setting, metric, unit, published)
    if not values:
        return Comparison(*about, of="")
    measured = mean(values)
    difference = None
    if unit == "percent":
        difference = measured - published
    return Comparison(*about, name, measured, difference, _deviation(values))


def _deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation; None for a single value."""
    if len(values) == 1:
        return None
    return stdev(values)


def _spread(values: Sequence[float], digits: int) -> str:
    return _plus_minus(mean(values), _deviation(values), digits)


def _plus_minus(value: float, deviation: float | None, digits: int) -> str:
    number = f"{value:.{digits}f}"
    if deviation is None:
        return number
    return f"{number} ± {deviation:.{digits}f}"


# Fusion of the members' lists


def fused(lists: Sequence[sparse.csr_array], fusion: Fusion, k: int) -> sparse.csr_array:
    """Return the ``k`` best labels of each document by several (n, L) lists, each best first."""
    longest = max(int(np.diff(ranked.indptr).max(initial=0)) for ranked in lists)
    convert = _CONVERSIONS[fusion]
    converted = []
    for ranked in lists:
        values = convert(ranked, longest).astype(np.float32)
        converted.append(csr_of(values, ranked.indices, ranked.indptr, ranked.shape[1]))
    return mean_scores(converted, k)


def _scores(ranked: sparse.csr_array, longest: int) -> Values:
    values = ranked.data.astype(np.float64)
    if values.min(initial=0.0) < 0:
        raise UsageError(
            f"found a score of {values.min():.3g} with the fusion mean, which counts 0 for other "
            "labels; expected scores of at least 0: search.last_level=path"
        )
    return values


def _sigmoids(ranked: sparse.csr_array, longest: int) -> Values:
    return np.asarray(special.expit(ranked.data.astype(np.float64)))


def _softmaxes(ranked: sparse.csr_array, longest: int) -> Values:
    values = ranked.data.astype(np.float64)
    lengths = np.diff(ranked.indptr)
    starts = ranked.indptr[:-1][lengths > 0]
    lengths = lengths[lengths > 0]
    if not len(starts):
        return values
    powers = np.exp(values - np.repeat(np.maximum.reduceat(values, starts), lengths))
    sums = np.add.reduceat(powers, starts)
    return np.asarray(powers / np.repeat(sums, lengths))


def _ranks(ranked: sparse.csr_array, longest: int) -> Values:
    return np.asarray(longest - places_in_rows(ranked), dtype=np.float64)


_CONVERSIONS: dict[Fusion, Callable[[sparse.csr_array, int], Values]] = {
    "mean": _scores,
    "sigmoid": _sigmoids,
    "softmax": _softmaxes,
    "rank": _ranks,
}


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
