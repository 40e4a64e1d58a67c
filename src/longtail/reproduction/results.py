"""Results of a reproduction beside the published rows, and the fusion of the members' lists.

Fusions, as in the papers' published code, with 0 for labels that a list does not have:

mean      mean of the scores: CascadeXML, LightXML, AttentionXML
sigmoid   mean of σ(score): X-Transformer, and XR-Transformer on Wiki-500K
softmax   mean of the softmax over each list: XR-Transformer on Eurlex-4K, AmazonCat-13K and
          Amazon-670K
rank      mean of n for the first label of a list, n - 1 for the second, and so on; n is the length
          of the longest list: XR-Transformer on Wiki10-31K and Amazon-3M
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import mean, stdev

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from longtail.data.csr import csr_of, places_in_rows
from longtail.errors import UsageError
from longtail.metrics.layout import in_columns
from longtail.reproduction.experiments import Experiment, Fusion, PublishedRow
from longtail.search.ensemble import mean_scores

__all__ = ["Comparison", "Measure", "Result", "compared", "fused"]

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
