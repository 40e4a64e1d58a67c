"""Commands for data: check, convert, formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import (
    Data,
    Features,
    Fields,
    Format,
    Json,
    Labels,
    LabelsColumn,
    LabelSeparator,
    NoFeatures,
    Separator,
    SkipBad,
    Split,
    TextColumn,
    app,
    print_note,
    read_data,
)
from longtail.errors import UsageError

__all__ = ["check", "convert", "formats"]


@app.command(epilog="Example: longtail check books.jsonl")
def check(
    data: Data,
    format: Format = None,
    label_separator: LabelSeparator = ";",
    separator: Separator = None,
    text_column: TextColumn = None,
    labels_column: LabelsColumn = None,
    labels: Labels = None,
    features: Features = None,
    no_features: NoFeatures = False,
    fields: Fields = None,
    split: Split = "train",
    skip_bad: SkipBad = 0,
    report: Annotated[
        Path | None, typer.Option(help="Draw the label-frequency curve (.png, .svg, .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """Check data: counts, label-frequency curve, problems, and a forecast of training."""
    from longtail.cli.terminal import print_description, print_json
    from longtail.config import Config
    from longtail.forecast import forecast
    from longtail.report.label_figures import draw_frequency_curve
    from longtail.report.picture_files import picture_suffix

    if report:
        picture_suffix(report)
    dataset = read_data(
        data,
        format=format,
        label_separator=label_separator,
        separator=separator,
        text_column=text_column,
        labels_column=labels_column,
        labels=labels,
        features=features,
        no_features=no_features,
        fields=fields,
        split=split,
        skip_bad=skip_bad,
    )
    description = dataset.describe()
    findings = dataset.check()
    wrong = any(finding.level == "error" for finding in findings)
    expected = None
    if not wrong:
        expected = forecast(dataset, Config())
    if json:
        print_json({"description": description, "findings": findings, "forecast": expected})
    else:
        print_description(description, findings)
        if expected is not None:
            print(f"{expected}, with {Config().method}")
    if report:
        draw_frequency_curve(description.frequency_curve, report)
        print_note(f"{report}: written")
    if wrong:
        raise typer.Exit(3)


@app.command(epilog="Example: longtail convert books.csv books.jsonl --labels-output labels.ttl")
def convert(
    data: Data,
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="File or folder to write, or - for stdout.")
    ],
    format: Format = None,
    label_separator: LabelSeparator = ";",
    separator: Separator = None,
    text_column: TextColumn = None,
    labels_column: LabelsColumn = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Output format; default: by the name of OUTPUT.")
    ] = None,
    labels: Labels = None,
    labels_output: Annotated[Path | None, typer.Option(help="Write a label file, too.")] = None,
    features: Features = None,
    no_features: NoFeatures = False,
    fields: Fields = None,
    split: Split = "train",
    skip_bad: SkipBad = 0,
) -> None:
    """Convert data from any format to any other."""
    from longtail.data.label_files import write_labels
    from longtail.data.output import check_apart
    from longtail.data.reading import write

    check_apart(output, data, labels, features)
    if labels_output and labels_output.resolve() == Path(output).resolve():
        raise UsageError(
            f"{output}: found as OUTPUT and as --labels-output; expected two different files"
        )
    dataset = read_data(
        data,
        format=format,
        label_separator=label_separator,
        separator=separator,
        text_column=text_column,
        labels_column=labels_column,
        labels=labels,
        features=features,
        no_features=no_features,
        fields=fields,
        split=split,
        skip_bad=skip_bad,
    )
    if labels_output:
        write_labels(dataset.labels, labels_output)
    if output == "-":
        to = to or "jsonl"
    write(dataset, output, format=to, split=split)
    print_note(f"{output}: {len(dataset):,} documents, {dataset.n_labels:,} labels")


@app.command(epilog="Example: longtail formats --json")
def formats(json: Json = False) -> None:
    """List the data formats that can be read and written."""
    from longtail.cli.terminal import print_json, print_table
    from longtail.data.formats import FORMATS

    rows = [[form.name, form.what] for form in FORMATS.values()]
    if json:
        print_json([{"name": name, "what": what} for name, what in rows])
    else:
        print_table(["format", "description"], rows)
