"""Several models on the same test data, side by side: every metric, recall by label frequency, and
a closer look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple, Unpack

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.dataset import Dataset
from longtail.data.filter_files import find_filter
from longtail.data.labels import Labels
from longtail.errors import DataError, Problem, UsageError, printable
from longtail.estimator import Longtail, load
from longtail.evaluation import Measured, MeasureKeywords, MeasureOptions, evaluate_model
from longtail.kernels import pool
from longtail.metrics import Constants, FrequencyTable, choose_constants
from longtail.metrics.analysis import PrecisionRecall, precision_recall
from longtail.metrics.bootstrap import Difference, paired_differences
from longtail.metrics.layout import in_columns
from longtail.metrics.ranking import resampled_metrics
from longtail.metrics.statistics import check_ks
from longtail.models.ranking_model import RankingModel
from longtail.report.evaluation_page import over_all, wide_ranking
from longtail.report.examination import folder_bytes
from longtail.report.speed import ms_per_document, timing_sample
from longtail.reporting import advance, stage
from longtail.store import open_folder

__all__ = ["ComparedModel", "Comparison", "compare"]

_COLUMNS = 100  # that a table has at most; the rest goes below
# side by side where there is room
_SHOWN = (("P", "nDCG"), ("PSP", "PSnDCG"), ("coverage", "macro-F1"))

Column = list[str]


class ComparedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model: its folder's name, made unique, its method, and what was measured; more where that
    was asked for.
    """

    name: str
    method: str
    measured: Measured
    curve: PrecisionRecall | None = None
    ms: float | None = None  # a document, many at a time
    size: int | None = None  # bytes of the folder
    # of each metric from the first model's, over the same resamples
    differences: dict[str, Difference] = {}

    @property
    def by_frequency(self) -> FrequencyTable:
        """Where the hits come from, in the bins of the comparison."""
        assert self.measured.by_frequency is not None  # known of every model
        return self.measured.by_frequency


class Comparison(msgspec.Struct, frozen=True):
    """Models in the order given; bins and propensities of all of them are by the training data of
    the first.
    """

    models: tuple[ComparedModel, ...]
    notes: tuple[str, ...] = ()

    @property
    def ks(self) -> tuple[int, ...]:
        """The cut-offs, rising."""
        return self.models[0].measured.evaluation.ks

    @property
    def rows(self) -> list[tuple[str, str, str, float]]:
        """Everything as (model, metric, bin, fraction); the bin is empty for a metric over all
        labels.
        """
        return [(model.name, *row) for model in self.models for row in _values(model)]

    def __str__(self) -> str:
        """Lay out the metrics, a row a model, and recall at each k, a row a bin; the best is marked
        by a star.
        """
        # which have no room here
        plain = msgspec.structs.replace(self.models[0].measured.evaluation, intervals={})
        footnote = plain.footnote
        if len(self.models) > 1:
            footnote += "; * the best"
        parts = [*_metrics(self), footnote, *_recalls(self), "\n".join(self.notes)]
        return "\n\n".join(filter(None, parts))


def compare(
    models: Sequence[Longtail | Path | str],
    test: Dataset,
    k: Iterable[int] = (1, 3, 5),
    *,
    closely: bool = False,
    threads: int = 0,
    device: str = "auto",
    **options: Unpack[MeasureKeywords],
) -> Comparison:
    """Measure models, or model folders loaded one after another, on ``test``.

    Label frequencies, for bins and propensities, are those of the first model's training data, for
    all models, and so is the preset that the constants of the propensities may go by.

    Args:
        models: Models, or paths of model folders.
        test: Documents with labels.
        k: Cut-offs of the metrics.
        closely: Whether to look at thresholds, time and size as well.
        threads: 0 for all cores.
        device: Where networks run.
        **options: Fields of ``longtail.evaluation.MeasureOptions``, below.

    Keyword Args:
        propensity: (A, B) or a family, as for ``longtail.evaluation.evaluate_model``.
        mask: A filter file, "auto" or None, as there.
        bootstrap: Resamples of the documents, for intervals and, with ``closely``, for how sure
            differences from the first model are.
        seed: Seed of the resamples.
    """
    asked = MeasureOptions(**options)
    ks = check_ks(k)
    if not models:
        raise UsageError("found no model; expected at least one")
    if not test.label_matrix.nnz:
        problem = f"{len(test):,} documents without labels"
        raise DataError([Problem("test", 0, problem, "labels to measure against")])
    for model in models:  # what is no model folder is refused before any work
        if not isinstance(model, Longtail):
            open_folder(model, verify="size")
    filter_file = find_filter(asked.mask, test)
    by_number = filter_file is not None and (test.source is None or test.source.labels is None)
    first: _Training | None = None
    look: _CloserLook | None = None
    measuring: MeasureKeywords = {
        "mask": filter_file,
        "bootstrap": asked.bootstrap,
        "seed": asked.seed,
    }
    compared = []
    notes = []
    with stage("comparing", len(models), "models"), pool.threads(threads):
        for name, model in zip(_names(models), models, strict=True):
            folder = None
            if not isinstance(model, Longtail):
                folder = Path(model)
                model = load(folder, device=device)
            trained = model.model
            if first is None or look is None:
                first = _Training(
                    name, trained.labels, trained.label_counts, trained.facts.documents
                )
                constants = choose_constants(asked.propensity, test.source_names, trained.preset)
                look = _CloserLook(ks, constants, filter_file, asked)
                measuring["propensity"] = constants
            notes += first.differences(name, trained, by_number)
            with stage(f"measuring {name}"):
                frequencies = first.frequencies(trained, test)
                ranked = None
                if closely:
                    ranked = wide_ranking(trained, test, ks)
                measured = evaluate_model(
                    trained, test, ks=ks, frequencies=frequencies, ranked=ranked, **measuring
                )
                result = ComparedModel(name, trained.config.method, measured)
                if ranked is not None:
                    result = look.at(result, trained, ranked, test, folder, frequencies)
            compared.append(result)
            del model, trained  # before the next one is loaded
            advance(1)
    return Comparison(tuple(compared), tuple(notes))


class _Training(NamedTuple):
    """The training data of the first model, as far as metrics know it."""

    name: str
    labels: Labels
    label_counts: NDArray[np.int64]
    documents: int

    def differences(self, name: str, model: RankingModel, by_number: bool) -> list[str]:
        """Return a note on a model with other training data; refuse one that cannot be compared.

        ``by_number`` says that a filter file has labels by their places among the models'.
        """
        same_labels = model.labels.ids == self.labels.ids
        if by_number and not same_labels:
            raise UsageError(
                f"{name}: its labels are not those of {self.name}; "
                "expected models with the same labels, as a filter file has labels by number"
            )
        if self._is_of(model):
            return []
        if same_labels:
            known = len(self.labels)
        else:
            known = sum(label in self.labels for label in model.labels.ids)
        if not known:
            raise UsageError(
                f"{name}: has no label in common with {self.name}; "
                "expected models of the same labels"
            )
        data = f"{model.facts.documents:,} documents, {known:,} of the {len(self.labels):,} labels"
        return [
            f"{name}: other training data than {self.name} ({data}); "
            f"bins and propensities are {self.name}'s"
        ]

    def frequencies(self, model: RankingModel, test: Dataset) -> tuple[NDArray[np.int64], int]:
        """Return the documents of each label, in the columns of ``test`` over the model's labels,
        and of all.
        """
        labels = test.with_labels(model.labels, unknown="add").labels
        columns = np.fromiter(
            (self.labels.columns.get(label, -1) for label in labels.ids), np.int64
        )
        return np.where(columns < 0, 0, self.label_counts[columns]), self.documents

    def _is_of(self, model: RankingModel) -> bool:
        return (
            model.facts.documents == self.documents
            and model.labels.ids == self.labels.ids
            and np.array_equal(model.label_counts, self.label_counts)
        )


class _CloserLook:
    """What a report shows of each model, the first one being what the others are compared with."""

    def __init__(
        self,
        ks: tuple[int, ...],
        constants: Constants,
        filter_file: Path | None,
        options: MeasureOptions,
    ) -> None:
        self._ks = ks
        self._constants = constants
        self._filter = filter_file
        self._bootstrap = options.bootstrap
        self._seed = options.seed
        self._first: dict[str, NDArray[np.float64]] = {}

    def at(
        self,
        compared: ComparedModel,
        model: RankingModel,
        ranked: sparse.csr_array,
        test: Dataset,
        folder: Path | None,
        frequencies: tuple[NDArray[np.int64], int],
    ) -> ComparedModel:
        """Return the comparison with curve, time, size and differences from the first model."""
        test = test.with_labels(model.labels, unknown="add")
        ranked = over_all(ranked, test, self._filter)
        size = None
        if folder is not None:
            size = folder_bytes(folder)
        return msgspec.structs.replace(
            compared,
            curve=precision_recall(ranked, test.label_matrix),
            ms=ms_per_document(model, timing_sample(model, test, self._seed)),
            size=size,
            differences=self._differences(ranked, test, frequencies),
        )

    def _differences(
        self, ranked: sparse.csr_array, test: Dataset, frequencies: tuple[NDArray[np.int64], int]
    ) -> dict[str, Difference]:
        if not self._bootstrap:
            return {}
        values = resampled_metrics(
            ranked,
            test.label_matrix,
            self._ks,
            label_counts=frequencies[0],
            n_train=frequencies[1],
            a=self._constants.a,
            b=self._constants.b,
            bootstrap=self._bootstrap,
            seed=self._seed,
        )
        if not self._first:
            self._first = values
            return {}
        return paired_differences(self._first, values)


def _names(models: Sequence[Longtail | Path | str]) -> list[str]:
    """Return the shortest ends of the paths that tell them apart, or the method; the same again
    gets a number.
    """
    paths = [
        (m.config.method,) if isinstance(m, Longtail) else Path(m).resolve().parts for m in models
    ]
    names: list[str] = []
    for parts in paths:
        others = [path for path in paths if path != parts]
        lengths = (
            n for n in range(1, len(parts)) if all(path[-n:] != parts[-n:] for path in others)
        )
        name = printable("/".join(parts[-next(lengths, len(parts)) :]))
        numbered = chain([name], (f"{name} ({number})" for number in count(2)))
        names.append(next(free for free in numbered if free not in names))
    return names


def _values(model: ComparedModel) -> Iterator[tuple[str, str, float]]:
    for name, value in model.measured.evaluation.metrics.items():
        yield name, "", value
    for at, k in enumerate(model.by_frequency.ks):
        for part in model.by_frequency.bins:
            yield f"P@{k}", part.name, part.precision[at]
            recall = part.recall[at]
            if recall is not None:
                yield f"R@{k}", part.name, recall


def _metrics(comparison: Comparison) -> list[str]:
    models = comparison.models
    fixed = [
        ["model", *(model.name for model in models)],
        ["method", *(model.method for model in models)],
    ]

    def column(name: str) -> Column:
        return [f"{name} ", *_marked([model.measured.evaluation[name] for model in models])]

    tables = []
    for pair in _SHOWN:
        tables += _blocks(
            fixed, [[column(f"{metric}@{k}") for k in comparison.ks] for metric in pair], n_left=2
        )
    return tables


def _recalls(comparison: Comparison) -> list[str]:
    """Return for each k a table of one row a bin, one column a model."""
    bins = comparison.models[0].by_frequency.bins
    tables = []
    for at, k in enumerate(comparison.ks):
        by_model = [
            [part.recall[at] for part in model.by_frequency.bins] for model in comparison.models
        ]
        marked = zip(*(_marked(values) for values in zip(*by_model, strict=True)), strict=True)
        fixed = [
            ["in train", *(part.name for part in bins)],
            ["labels", *(f"{part.n_labels:,}" for part in bins)],
            ["positives", *(f"{part.n_positives:,}" for part in bins)],
        ]
        groups = [
            [[f"{m.name} ", *column]] for m, column in zip(comparison.models, marked, strict=True)
        ]
        tables += [
            f"R@{k} by label frequency\n{table}" for table in _blocks(fixed, groups, n_left=0)
        ]
    return tables


def _marked(values: Sequence[float | None]) -> list[str]:
    """Return percent with two decimals, a star at the best of them unless all are alike."""
    cells = [_percent(value) for value in values]
    if len(set(cells)) == 1:
        return [f"{cell} " for cell in cells]
    best = _percent(max((value for value in values if value is not None), default=0.0))
    return [f"{cell}*" if cell == best else f"{cell} " for cell in cells]


def _percent(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.2f}"


def _blocks(fixed: list[Column], groups: list[list[Column]], n_left: int) -> list[str]:
    """Return tables that begin with the same columns, as few as have lines of 100; groups that can
    stay together.
    """
    tables = [list(fixed)]
    for group in groups:
        parts = [[column] for column in group]
        if _width([*fixed, *group]) <= _COLUMNS:
            parts = [group]
        for part in parts:
            if len(tables[-1]) > len(fixed) and _width([*tables[-1], *part]) > _COLUMNS:
                tables.append(list(fixed))
            tables[-1] += part
    return [in_columns([*zip(*columns, strict=True)], n_left) for columns in tables]


def _width(columns: list[Column]) -> int:
    # no gap and no place for a star at the end
    return sum(max(map(len, column)) + 2 for column in columns) - 3
