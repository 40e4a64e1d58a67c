"""What a reproduction measured beside the published rows, as structs for JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, stdev

import msgspec

from longtail.metrics.layout import in_columns
from longtail.reproduction.experiments import Experiment, PublishedRow

__all__ = ["Comparison", "Measure", "Result", "compared"]

_METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@1", "R@3", "R@5")
ENSEMBLE = "ensemble"


class Measure(msgspec.Struct, frozen=True):
    """What one model, or the ensemble, reached on the test documents."""

    name: str  # of the member, or ensemble
    repeat: int  # from 0; each with other seeds
    metrics: dict[str, float]  # in percent
    hours: float  # of training, of all members for the ensemble


class Comparison(msgspec.Struct, frozen=True):
    """One published number beside the measured one; means where there are several repeats."""

    table: str
    system: str
    models: int  # of the published row
    setting: str
    metric: str
    unit: str  # percent or hours
    published: float
    of: str  # the member, or ensemble, that it is compared with; empty: not trained
    measured: float | None = None
    difference: float | None = None  # none for hours: other machines
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
    not_comparable: tuple[str, ...]  # why the differences mean nothing; empty: they do
    deviations: tuple[str, ...]  # what the recipe has and this software has not

    def __str__(self) -> str:
        parts = [self._head(), self._measured(), self._warning(), self._compared(), self._recipe()]
        return "\n\n".join(filter(None, parts))

    def _head(self) -> str:
        sizes = self.documents
        a, b = self.propensity
        lines = [
            f"{self.experiment}: {self.dataset}",
            f"{sizes['train']:,} documents to train on, {sizes['test']:,} to measure by, {sizes['labels']:,} labels",
            f"propensities: A={a:g}, B={b:g}; filter file: {self.filter or 'none'}",
        ]
        return "\n".join(lines)

    def _measured(self) -> str:
        """Return the table of the models and the ensemble, percent."""
        rows = [["measured", *_METRICS, "hours"]]
        for name in dict.fromkeys(measure.name for measure in self.measures):
            own = [measure for measure in self.measures if measure.name == name]
            cells = [
                _spread([measure.metrics[metric] for measure in own], 2) for metric in _METRICS
            ]
            rows.append([name, *cells, _spread([measure.hours for measure in own], 2)])
        return in_columns(rows, n_left=1)

    def _compared(self) -> str:
        """Return the table of the published numbers, each beside the measured one."""
        if not self.comparisons:
            return f"The published tables in Longtail have no numbers of this on {self.dataset}."
        rows = [
            [
                "published in",
                "system",
                "models",
                "metric",
                "published",
                "measured",
                "difference",
                "with",
            ]
        ]
        for own in self.comparisons:
            system = f"{own.system}, {own.setting}" if own.setting else own.system
            measured = "–" if own.measured is None else _plus_minus(own.measured, own.deviation, 2)
            difference = "–" if own.difference is None else f"{own.difference:+.2f}"
            published = f"{own.published:.2f}"
            rows.append(
                [
                    own.table,
                    system,
                    str(own.models),
                    own.metric,
                    published,
                    measured,
                    difference,
                    own.of or "not trained",
                ]
            )
        return in_columns(rows, n_left=2)

    def _warning(self) -> str:
        """Return why the differences mean nothing; empty where they do."""
        if not self.not_comparable:
            return ""
        reasons = "".join(f"\n- {reason}" for reason in self.not_comparable)
        return f"NOT COMPARABLE with the published numbers:{reasons}"

    def _recipe(self) -> str:
        """Return what differs from the authors' recipe."""
        if not self.deviations:
            return ""
        return "The recipe:" + "".join(f"\n- {deviation}" for deviation in self.deviations)


def compared(experiment: Experiment, measures: Sequence[Measure]) -> Iterator[Comparison]:
    """Yield each published number of an experiment beside what was measured.

    A row of a single model is compared with the first member, one of several with the ensemble.
    """
    for row in experiment.published_rows():
        of = _counterpart(experiment, row)
        own = [measure for measure in measures if measure.name == of]
        for metric, published in row.values.items():
            yield _comparison(row, metric, published, of, own)


def _counterpart(experiment: Experiment, row: PublishedRow) -> str:
    if len(experiment.members) == 1 or row.models == 1:
        return experiment.members[0].name
    return ENSEMBLE


def _comparison(
    row: PublishedRow, metric: str, published: float, of: str, measures: Sequence[Measure]
) -> Comparison:
    """Return one number beside the mean of ``measures``, those of one member or of the ensemble."""
    is_hours = metric.startswith("hours")
    values = [measure.hours if is_hours else measure.metrics[metric] for measure in measures]
    unit = "hours" if is_hours else "percent"
    about = (row.table, row.system, row.models, row.setting, metric, unit, published)
    if not values:
        return Comparison(*about, of="")
    measured = mean(values)
    return Comparison(
        *about,
        of=of,
        measured=measured,
        difference=None if is_hours else measured - published,
        deviation=stdev(values) if len(values) > 1 else None,
    )


def _spread(values: Sequence[float], digits: int) -> str:
    return _plus_minus(mean(values), stdev(values) if len(values) > 1 else None, digits)


def _plus_minus(value: float, deviation: float | None, digits: int) -> str:
    shown = f"{value:.{digits}f}"
    if deviation is None:
        return shown
    return f"{shown} ± {deviation:.{digits}f}"
