"""The command that makes one model of several: ensemble."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import (
    Device,
    Features,
    Fields,
    Force,
    Format,
    LabelsColumn,
    LabelSeparator,
    NoFeatures,
    Separator,
    SkipBad,
    TextColumn,
    Threads,
    app,
    read_data,
    say,
)

__all__ = ["ensemble"]


@app.command(
    epilog="Example: longtail ensemble linear flat -o both --fusion weights --valid valid.jsonl"
)
def ensemble(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL…", help="Model folders, two or more.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="Model folder to write.")
    ],
    fusion: Annotated[
        str,
        typer.Option(
            help="mean of the scores; rank, by reciprocal ranks; weights, fitted on --valid."
        ),
    ] = "mean",
    valid: Annotated[
        str | None,
        typer.Option(help="Documents that no model has seen, for the weights and the calibration."),
    ] = None,
    force: Force = False,
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
) -> None:
    """Make one model of several, also of different methods; it predicts, measures and explains like
    any other.
    """
    from longtail.ensembling import checked_fusion, ensemble_to_folder

    known = checked_fusion(models, fusion, valid is not None)
    documents = None
    if valid is not None:
        documents = read_data(
            valid,
            format=format,
            label_separator=label_separator,
            separator=separator,
            text_column=text_column,
            labels_column=labels_column,
            features=features,
            no_features=no_features,
            fields=fields,
            split="test",
            skip_bad=skip_bad,
        )
    ensemble_to_folder(
        models, output, known, documents, force=force, threads=threads, device=device
    )
    say(f"{output}: written")
