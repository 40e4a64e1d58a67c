"""Commands that look for better settings."""

from __future__ import annotations

import re
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
    read_data,
    say,
)
from longtail.errors import UsageError

if TYPE_CHECKING:
    from longtail.tuning import Dimension, Tuning

__all__ = ["tune"]

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


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
            metavar="PATH=…", help="What to search: LOW..HIGH, LOW..HIGH:log or A,B,C; repeatable."
        ),
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="TOML file of what to search; the method's own otherwise.")
    ] = None,
    valid: Annotated[
        str | None, typer.Option(help="Data to measure on; a tenth of DATA, held out, otherwise.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="What should be high: P@1, nDCG@5, PSP@5 …")
    ] = "nDCG@5",
    trials: Annotated[int, typer.Option(min=1, help="Trials of the whole study.")] = 20,
    time: Annotated[
        str | None, typer.Option(help="No trial starts after this: 90s, 30m, 2h.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Same seed, settings and data: same trials.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the study in DIR.")] = False,
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
        bool, typer.Option("--ignore-memory", help="Train whatever the forecast says.")
    ] = False,
    json: Json = False,
) -> None:
    """Search for the settings that are best on validation data: trials to stdout, the best to
    DIR/best.toml.
    """
    from longtail.cli.terminal import print_json
    from longtail.features.encoder_search import search_encoders_in
    from longtail.tuning import BEST, check_study_folder
    from longtail.tuning import tune as tune_method

    check_study_folder(output, resume)  # now, not when all data are read
    seconds = None if time is None else _seconds(time)
    dimensions = _space(space, search)
    given = overrides(config, set_)
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
    measured = None if valid is None else read_data(valid, split="test", **reading)
    with search_encoders_in(encoder_folder):
        found = tune_method(
            documents,
            output,
            method=method_of(method, given),
            preset=preset,
            overrides=given,
            space=dimensions,
            valid=measured,
            metric=metric,
            trials=trials,
            seconds=seconds,
            seed=seed,
            resume=resume,
            threads=threads,
            device=device,
            ignore_memory=ignore_memory,
            say=say,
        )
    if json:
        print_json(found)
    else:
        _print_trials(found)
    if found.best is not None:
        best = output / BEST
        say(f"{best}: written; use it so: longtail train {data} -o MODEL -c {best}")


def _space(file: Path | None, search: list[str] | None) -> list[Dimension] | None:
    """Return the space of a file and of --search, the later ones winning; None where neither is
    given.
    """
    from longtail.tuning import parse_dimension, read_space

    if file is None and not search:
        return None
    return [*(read_space(file) if file else []), *map(parse_dimension, search or [])]


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if found is None:
        raise UsageError(f"--time {text!r}; expected a number and a unit, such as 90s, 30m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def _print_trials(found: Tuning) -> None:
    """Print the trials, the best one first, those that failed last."""
    from longtail.cli.terminal import print_table

    order = sorted(
        found.trials, key=lambda trial: (trial.value is None, -(trial.value or 0), trial.number)
    )
    paths = list(order[0].params) if order else []
    rows = []
    for trial in order:
        value = "failed" if trial.value is None else f"{100 * trial.value:.2f}"
        rows.append(
            [str(trial.number), value, f"{trial.seconds:.1f}", *trial.shown.values(), trial.error]
        )
    print_table(["trial", found.metric, "s", *paths, ""], rows)
