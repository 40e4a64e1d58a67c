"""Commands that measure: one model, or predictions (evaluate), and several models side by side
(compare).
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.options import (
    BeamSize,
    Device,
    Features,
    Fields,
    Format,
    Json,
    LabelsColumn,
    LabelSeparator,
    NoFeatures,
    ResampleSeed,
    Separator,
    TextColumn,
    Threads,
    app,
    read_data,
    say,
)
from longtail.errors import UsageError

if TYPE_CHECKING:
    from longtail.evaluation import Measured

__all__ = ["compare", "evaluate"]

_AUTO = "auto"
_RESAMPLES = 1000  # where a report is written

Cutoffs = Annotated[str, typer.Option("-k", help="Cut-offs of the metrics.")]
Propensity = Annotated[
    str,
    typer.Option(
        help="wikipedia, amazon, default (0.55/1.5) or A,B; auto: by the data's name, then the preset."
    ),
]
FilterFile = Annotated[
    Path | None,
    typer.Option(
        help="Filter file: `document label` pairs to mask. filter_labels_test.txt beside TEST needs no option."
    ),
]
NoFilter = Annotated[
    bool, typer.Option("--no-filter", help="Do not use the filter file beside TEST.")
]
Report = Annotated[Path | None, typer.Option(help="Write a page with tables and pictures (.html).")]


@app.command(epilog="Example: longtail evaluate model test.jsonl --report report.html")
def evaluate(
    paths: Annotated[
        list[str], typer.Argument(metavar="[MODEL] TEST", help="A model folder, and test data.")
    ],
    predictions: Annotated[
        Path | None,
        typer.Option(
            help='In place of MODEL: predictions of any system, {"id", "labels", "scores"}.'
        ),
    ] = None,
    train: Annotated[
        str | None, typer.Option(help="With --predictions: training data, for PSP and PSnDCG.")
    ] = None,
    k: Cutoffs = "1,3,5",
    propensity: Propensity = _AUTO,
    filter: FilterFile = None,
    no_filter: NoFilter = False,
    bootstrap: Annotated[
        int | None,
        typer.Option(min=0, help="Resamples for 95 % intervals; 1000 with --report, 0 otherwise."),
    ] = None,
    seed: ResampleSeed = 0,
    beam_size: BeamSize = None,
    report: Report = None,
    timings: Annotated[
        bool,
        typer.Option(
            "--timings", help="Measure times for the report, too, which then differs each time."
        ),
    ] = False,
    features: Features = None,
    no_features: NoFeatures = False,
    fields: Fields = None,
    format: Format = None,
    label_separator: LabelSeparator = ";",
    separator: Separator = None,
    text_column: TextColumn = None,
    labels_column: LabelsColumn = None,
    threads: Threads = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure a model or predictions: P, nDCG, recall, PSP, PSnDCG, coverage and macro-F1 at k."""
    from longtail.cli.terminal import print_json, print_measured
    from longtail.report import check_report_path

    if len(paths) != (1 if predictions else 2):
        if predictions:
            wanted = "TEST, as --predictions stand for the model"
        else:
            wanted = "MODEL TEST, or --predictions FILE TEST"
        raise UsageError(f"found {' '.join(paths)}; expected {wanted}")
    if report:
        check_report_path(report)
    options: dict[str, Any] = {
        "ks": _cutoffs(k),
        "propensity": _propensity(propensity),
        "mask": _mask(filter, no_filter),
        "bootstrap": _resamples(bootstrap, report),
        "seed": seed,
    }
    tables: dict[str, Any] = {
        "label_separator": label_separator,
        "separator": separator,
        "text_column": text_column,
        "labels_column": labels_column,
    }
    if predictions is None:
        if train is not None:
            say("--train has no effect without --predictions: a model knows what it was trained on")
        reading = tables | {
            "format": format,
            "features": features,
            "no_features": no_features,
            "fields": fields,
        }
        own = options | {"beam_size": beam_size} | ({"timings": timings} if report else {})
        measured = _measured_model(paths[0], paths[1], report, device, threads, reading, own)
    else:
        if train is None and propensity != _AUTO:
            say("--propensity has no effect without --train")
        reading = tables | {"format": format, "fields": fields}
        measured = _measured_predictions(predictions, paths[0], train, report, reading, options)
    if json:
        print_json(measured)
    else:
        print_measured(measured)
    if report:
        say(f"{report}: written")


def _measured_model(
    model: str,
    data: str,
    report: Path | None,
    device: str,
    threads: int,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> Measured:
    from longtail.evaluation import evaluate_model
    from longtail.kernels import pool
    from longtail.models.model_folder import load_model
    from longtail.report import report_on_model

    trained = load_model(model, device)
    test = read_data(data, split="test", skip_bad=None, **reading)
    with pool.threads(threads):
        if report is None:
            return evaluate_model(trained, test, **options)
        return report_on_model(
            trained, test, report, f"{model} on {data}", folder=Path(model), **options
        )


def _measured_predictions(
    predictions: Path,
    data: str,
    train: str | None,
    report: Path | None,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> Measured:
    from longtail.evaluation import evaluate_predictions
    from longtail.report import report_on_predictions

    train_set = None if train is None else read_data(train, skip_bad=None, **reading)
    known = None if train_set is None else train_set.labels
    test = read_data(data, split="test", skip_bad=None, **reading)
    if known is not None:
        test = test.with_labels(known, unknown="add")
    if report is None:
        return evaluate_predictions(predictions, test, train_set, **options)
    return report_on_predictions(
        predictions, test, train_set, report, f"{predictions} on {data}", **options
    )


@app.command(epilog="Example: longtail compare linear bonsai test.jsonl --report compare.html")
def compare(
    paths: Annotated[
        list[str], typer.Argument(metavar="MODEL… TEST", help="Model folders, and test data.")
    ],
    k: Cutoffs = "1,3,5",
    propensity: Propensity = _AUTO,
    filter: FilterFile = None,
    no_filter: NoFilter = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder for compare.png and compare.csv, or one such file to write.",
        ),
    ] = None,
    report: Report = None,
    bootstrap: Annotated[
        int | None,
        typer.Option(
            min=0, help="Resamples for intervals in the report; 1000 where it is written."
        ),
    ] = None,
    seed: ResampleSeed = 0,
    features: Features = None,
    no_features: NoFeatures = False,
    fields: Fields = None,
    format: Format = None,
    label_separator: LabelSeparator = ";",
    separator: Separator = None,
    text_column: TextColumn = None,
    labels_column: LabelsColumn = None,
    threads: Threads = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure models side by side: every metric, and recall by label frequency, as tables and as a
    picture.
    """
    from longtail.cli.terminal import print_json
    from longtail.comparison import compare as compare_models
    from longtail.report import check_report_path, write_side_by_side
    from longtail.report.side_by_side import comparison_files, write_comparison

    *models, data = paths
    if not models or Path(data, "manifest.json").exists():
        raise UsageError(
            f"found {' '.join(paths)}; expected MODEL… TEST, test data after one model folder or more"
        )
    ks = _cutoffs(k)
    constants = _propensity(propensity)
    mask = _mask(filter, no_filter)
    if output:
        comparison_files(output)
    if report:
        check_report_path(report)
    test = read_data(
        data,
        format=format,
        label_separator=label_separator,
        separator=separator,
        text_column=text_column,
        labels_column=labels_column,
        features=features,
        no_features=no_features,
        fields=fields,
        split="test",
        skip_bad=None,
    )
    found = compare_models(
        models,
        test,
        ks,
        propensity=constants,
        mask=mask,
        bootstrap=_resamples(bootstrap, report),
        seed=seed,
        closely=report is not None,
        threads=threads,
        device=device,
    )
    if json:
        print_json(found)
    else:
        print(found)
    if output:
        write_comparison(found, output)
        say(f"{output}: written")
    if report:
        write_side_by_side(
            found, report, f"{', '.join(model.name for model in found.models)} on {data}"
        )
        say(f"{report}: written")


def _resamples(asked: int | None, report: Path | None) -> int:
    if asked is None:
        return _RESAMPLES if report else 0
    return asked


def _cutoffs(text: str) -> tuple[int, ...]:
    """Return the numbers of ``-k 1,3,5``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"-k {text!r}; expected whole numbers such as 1,3,5") from None


def _mask(filter: Path | None, no_filter: bool) -> Path | str | None:
    """Return the filter file, none, or the word for the one beside the test data."""
    from longtail.data.filter_files import AUTO

    if filter is not None and no_filter:
        raise UsageError("found --filter and --no-filter; expected one of them")
    if filter is not None:
        return filter
    return None if no_filter else AUTO


def _propensity(text: str) -> tuple[float, float] | str | None:
    """Return A and B as given, or the name of a family; None where the data or the model shall
    decide.
    """
    from longtail.metrics.propensity import FAMILIES

    if text == _AUTO:
        return None
    if text in FAMILIES:
        return text
    try:
        a, b = map(float, text.split(","))
    except ValueError:
        expected = ", ".join([_AUTO, *FAMILIES])
        raise UsageError(
            f"--propensity {text!r}; expected {expected}, or A,B such as 0.55,1.5"
        ) from None
    if not (0 < a < inf and 0 < b < inf):
        raise UsageError(f"--propensity {text!r}; expected A and B above 0, such as 0.55,1.5")
    return a, b
