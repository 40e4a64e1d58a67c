"""Commands that train many models: tune and reproduce."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.options import (
    ConfigFile,
    Data,
    Device,
    EncoderFolder,
    Features,
    Fields,
    Format,
    Json,
    Labels,
    LabelsColumn,
    LabelSeparator,
    MethodName,
    NoFeatures,
    Preset,
    Separator,
    SetOptions,
    SkipBad,
    TextColumn,
    Threads,
    app,
    method_of,
    overrides,
    print_note,
    read_data,
)
from longtail.errors import UsageError

if TYPE_CHECKING:
    from longtail.reproduction.experiments import Entry, Need
    from longtail.tuning import Dimension, Tuning

__all__ = ["reproduce", "tune"]

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SHOWN = ("P@1", "P@3", "P@5")


@app.command(epilog="Example: longtail tune train.jsonl -o study --trials 40 --metric PSP@5")
def tune(
    data: Data,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for best.toml and the trials."),
    ],
    method: MethodName = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: SetOptions = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=…",
            help="Setting to search: LOW..HIGH, LOW..HIGH:log or A,B,C; repeatable.",
        ),
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="TOML file of the search space; default: the method's.")
    ] = None,
    valid: Annotated[
        str | None, typer.Option(help="Validation data; default: a tenth of DATA, held out.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="Metric to maximise: P@1, nDCG@5, PSP@5 …")
    ] = "nDCG@5",
    trials: Annotated[int, typer.Option(min=1, help="Number of trials of the study.")] = 20,
    time: Annotated[
        str | None, typer.Option(help="No trial starts after this time: 90s, 30m, 2h.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Same seed, settings and data: same trials.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the study in DIR.")] = False,
    labels: Labels = None,
    features: Features = None,
    no_features: NoFeatures = False,
    fields: Fields = None,
    format: Format = None,
    label_separator: LabelSeparator = ";",
    separator: Separator = None,
    text_column: TextColumn = None,
    labels_column: LabelsColumn = None,
    skip_bad: SkipBad = 0,
    threads: Threads = 0,
    device: Device = "auto",
    encoder_folder: EncoderFolder = None,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Train whatever the forecast is.")
    ] = False,
    json: Json = False,
) -> None:
    """Search for the settings that are best on validation data; write them to DIR/best.toml."""
    from longtail.cli.terminal import print_json
    from longtail.features.encoder_search import search_encoders_in
    from longtail.tuning import BEST, check_study_folder
    from longtail.tuning import tune as tune_method

    check_study_folder(output, resume)  # before data is read
    seconds = _parsed_seconds(time)
    dimensions = _space(space, search)
    changes = overrides(config, set_)
    reading: dict[str, Any] = {
        "format": format,
        "no_features": no_features,
        "fields": fields,
        "skip_bad": skip_bad,
        "label_separator": label_separator,
        "separator": separator,
        "text_column": text_column,
        "labels_column": labels_column,
    }
    documents = read_data(data, labels=labels, features=features, **reading)
    validation = None
    if valid is not None:
        validation = read_data(valid, split="test", **reading)
    with search_encoders_in(encoder_folder):
        tuning = tune_method(
            documents,
            output,
            method=method_of(method, changes),
            preset=preset,
            overrides=changes,
            space=dimensions,
            valid=validation,
            metric=metric,
            trials=trials,
            seconds=seconds,
            seed=seed,
            resume=resume,
            threads=threads,
            device=device,
            ignore_memory=ignore_memory,
            report=print_note,
        )
    if json:
        print_json(tuning)
    else:
        _print_trials(tuning)
    if tuning.best is not None:
        best = output / BEST
        print_note(f"{best}: written; to train with it: longtail train {data} -o MODEL -c {best}")


def _space(file: Path | None, search: list[str] | None) -> list[Dimension] | None:
    """Return the search space of a file and of --search, the latter winning; None without both."""
    from longtail.tuning import parse_dimension, read_space

    if file is None and not search:
        return None
    dimensions = []
    if file:
        dimensions += read_space(file)
    dimensions += map(parse_dimension, search or [])
    return dimensions


def _parsed_seconds(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if match is None:
        raise UsageError(f"--time {text!r}; expected a number and a unit, such as 90s, 30m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


def _print_trials(tuning: Tuning) -> None:
    """Print the trials, the best one first, failed ones last."""
    from longtail.cli.terminal import print_table

    order = sorted(
        tuning.trials, key=lambda trial: (trial.value is None, -(trial.value or 0), trial.number)
    )
    paths: list[str] = []
    if order:
        paths += order[0].params
    rows = []
    for trial in order:
        value = "failed"
        if trial.value is not None:
            value = f"{100 * trial.value:.2f}"
        rows.append(
            [str(trial.number), value, f"{trial.seconds:.1f}", *trial.shown.values(), trial.error]
        )
    print_table(["trial", tuning.metric, "s", *paths, ""], rows)


@app.command(
    epilog="Example: longtail reproduce cascadexml/amazon-670k Amazon-670K -o out "
    "--encoder-folder encoders"
)
def reproduce(
    experiment: Annotated[
        str | None,
        typer.Argument(
            metavar="EXPERIMENT", help="METHOD/DATASET of --list, such as dismec/eurlex-4k."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="Folder of the dataset, as its authors publish it."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="OUT", help="Folder for models and result; may be resumed."
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List all experiments with their published numbers.")
    ] = False,
    single: Annotated[
        bool, typer.Option("--single", help="Train the first model of an ensemble only.")
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Repeat with N seeds: mean ± deviation.")
    ] = 1,
    share: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Share of the documents, such as 0.01 for a test."),
    ] = 1.0,
    encoder_folder: EncoderFolder = None,
    set_: SetOptions = None,
    device: Device = "auto",
    threads: Threads = 0,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Train whatever the forecast is.")
    ] = False,
    json: Json = False,
) -> None:
    """Reproduce a published experiment, and show its metrics beside the published numbers."""
    from longtail.cli.terminal import print_json

    if list_:
        _show_list(encoder_folder, device, threads, json)
        return
    if experiment is None or data is None or output is None:
        raise UsageError("expected EXPERIMENT DATA -o OUT, or --list for all experiments")
    from longtail.reproduction.running import reproduce as run

    with redirect_stdout(sys.stderr):
        result = run(
            experiment,
            data,
            output,
            single=single,
            seeds=seeds,
            share=share,
            encoder_folder=encoder_folder,
            overrides=overrides(None, set_),
            device=device,
            threads=threads,
            ignore_memory=ignore_memory,
        )
    if json:
        print_json(result)
    else:
        print(result)


def _show_list(encoder_folder: Path | None, device: str, threads: int, json: bool) -> None:
    from longtail.cli.terminal import print_json, print_table
    from longtail.features.encoder_search import search_encoders_in
    from longtail.reproduction.experiments import entries

    with search_encoders_in(encoder_folder):
        experiments = list(entries(device, threads))
    if json:
        print_json(experiments)
        return
    rows = [row for entry in experiments for row in _experiment_rows(entry)]
    print_table(
        ["experiment", "models", "published in", "of", *_SHOWN, "hours and memory here"], rows
    )


def _experiment_rows(entry: Entry) -> list[list[str]]:
    """Return a line per published row, the first one with the forecast of the experiment."""
    models = str(len(entry.members))
    if entry.not_yet:
        models += f" ({len(entry.not_yet)} not yet)"
    rows = []
    for row in entry.published:
        names = [name for name in row.values if not name.startswith("hours")]
        if names:
            values = [f"{row.values[name]:.2f}" for name in names[: len(_SHOWN)]]
            rows.append([row.table, f"{row.models} {names[0].partition('@')[0]}", *values])
    first, *others = rows or [["–", "", "", "", ""]]
    return [
        [entry.experiment, models, *first, _in_words(entry.need)],
        *(["", "", *row, ""] for row in others),
    ]


def _in_words(need: Need) -> str:
    """Return time and memory in a few words."""
    if need.hours is None or need.memory is None:
        return need.note
    low, unit = _time(need.hours[0]).split()
    high = _time(need.hours[1])
    if not high.endswith(f" {unit}"):
        low = f"{low} {unit}"
    words = f"{low} to {high}, {_gigabytes(need.memory)}"
    if need.gpu_memory is not None:
        words += f", {_gigabytes(need.gpu_memory)} of the GPU"
    if need.note:
        words += f" ({need.note})"
    return words


def _time(hours: float) -> str:
    """Return a time in minutes, hours or days with about two digits."""
    if hours < 1:
        return f"{max(60 * hours, 1):.0f} min"
    if hours < 100:
        return f"{hours:.0f} h"
    return f"{hours / 24:,.0f} days"


def _gigabytes(count: int) -> str:
    if count < 10e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e9:.0f} GB"
