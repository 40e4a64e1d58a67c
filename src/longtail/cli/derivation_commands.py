"""Commands that derive models and files from trained models: ensemble, extend, export."""

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
    ModelFolder,
    NoFeatures,
    Separator,
    SkipBad,
    TextColumn,
    Threads,
    app,
    print_note,
    read_data,
)
from longtail.errors import UsageError

__all__ = ["ensemble", "export", "extend"]


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
            help="mean: of scores; rank: of reciprocal ranks; weights: fitted on --valid."
        ),
    ] = "mean",
    valid: Annotated[
        str | None,
        typer.Option(help="Documents unseen in training, for the weights and the calibration."),
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
    """Combine several models, also of different methods, into an ensemble in a model folder."""
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
    print_note(f"{output}: written")


@app.command(epilog="Example: longtail extend model new-labels.tsv -o larger")
def extend(
    model: ModelFolder,
    labels: Annotated[
        Path, typer.Argument(metavar="LABELS", help="Label file (JSONL, TSV, SKOS).")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="Model folder to write.")
    ],
    force: Force = False,
    skip_bad: SkipBad = 0,
    threads: Threads = 0,
    device: Device = "auto",
) -> None:
    """Add labels to a trained model by their words alone: inceptionxml-lf, decaf, eclare."""
    from longtail.extending import extend_to_folder

    extend_to_folder(
        model, labels, output, force=force, skip_bad=skip_bad, threads=threads, device=device
    )
    print_note(f"{output}: written")


@app.command(epilog="Example: longtail export model -o encoder.onnx")
def export(
    model: ModelFolder,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.onnx", help="File to write.")
    ],
) -> None:
    """Write the encoder of a network as ONNX, and its tokeniser beside it."""
    if output.suffix != ".onnx":
        suffix = output.suffix or "no suffix"
        raise UsageError(f"{output}: found {suffix}; expected a name that ends in .onnx")
    from longtail.data.output import check_output
    from longtail.models.model_folder import load_model
    from longtail.models.onnx_export import export_encoder

    check_output(output)
    beside = export_encoder(load_model(model, "cpu"), output)
    print_note(f"{output}: written, with {beside.name} beside it")
