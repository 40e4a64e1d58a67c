"""The command that looks inside a network: analyze."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import (
    Data,
    Device,
    Fields,
    Format,
    Json,
    ModelFolder,
    SkipBad,
    app,
    read_data,
    say,
)
from longtail.errors import UsageError

__all__ = ["analyze"]


@app.command(epilog="Example: longtail analyze model test.jsonl -o figures")
def analyze(
    model: ModelFolder,
    data: Data,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for pictures and numbers.")
    ],
    documents: Annotated[
        int,
        typer.Option(
            min=1, help="Documents to measure, taken by chance; PWCCA takes 5 a dimension if more."
        ),
    ] = 1000,
    format: Format = None,
    fields: Fields = None,
    skip_bad: SkipBad = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Look inside a network: attention of [CLS], likeness of levels (PWCCA), recall of shortlists;
    PNG and CSV.
    """
    from longtail.cli.terminal import print_json, print_table
    from longtail.models.model_folder import load_model
    from longtail.report.analysis_figures import prepare_folder, summary, write_analysis

    prepare_folder(output)
    trained = load_model(model, "cpu")  # where the encoder stays in float32
    ranker = trained.neural_ranker
    if ranker is None:
        raise UsageError(
            f"{model}: found no network that ranks, to look into; expected a model that has one"
        )
    from longtail.networks.analysis import analyse, transformer_of, untuned_encoder
    from longtail.networks.device import choose_device

    ranker.network.to(choose_device(device))
    found = read_data(
        data,
        format=format,
        no_features=True,
        fields=fields,
        split="test",
        labelled=False,
        skip_bad=skip_bad,
    )
    known = found.with_labels(trained.labels, unknown="drop")
    untuned = untuned_encoder(trained.config.encoder, transformer_of(ranker))
    analysis = analyse(ranker, untuned, known, documents, trained.config.seed)
    write_analysis(analysis, output)
    if json:
        print_json(analysis)
    else:
        print(f"{analysis.documents:,} documents, {analysis.vector_documents:,} for PWCCA")
        for table in summary(analysis):
            print()
            print_table(*table)
    say(f"{output}: written")
