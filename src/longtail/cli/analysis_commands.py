"""Commands that look at models: inside a network (analyze), side by side (compare)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import (
    Data,
    Device,
    Features,
    Format,
    Json,
    ModelFolder,
    ResampleSeed,
    SkipBad,
    Threads,
    app,
    cutoffs,
    propensity_of,
    read_data,
    say,
)
from longtail.errors import UsageError

__all__ = ["analyze", "compare"]


@app.command(epilog="Example: longtail analyze model test.jsonl -o figures")
def analyze(
    model: ModelFolder,
    data: Data,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for pictures and numbers.")],
    documents: Annotated[
        int, typer.Option(min=1, help="Documents to measure, taken by chance; PWCCA takes 5 a dimension if more.")
    ] = 1000,
    format: Format = None,
    skip_bad: SkipBad = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Look inside a network: attention of [CLS], likeness of levels (PWCCA), recall of shortlists; PNG and CSV."""
    from longtail.analysis_figures import prepare_folder, summary, write_analysis
    from longtail.model import Model
    from longtail.model_folder import load_model
    from longtail.terminal import print_json, print_table

    prepare_folder(output)
    trained = load_model(model, "cpu")  # where the encoder stays in float32
    if not isinstance(trained, Model) or (ranker := trained.neural_ranker) is None:
        raise UsageError(f"{model}: found no network that ranks, to look into; expected a model that has one")
    from longtail.neural.analysis import analyse, transformer_of, untuned_encoder
    from longtail.neural.device import choose_device

    ranker.network.to(choose_device(device))
    found = read_data(data, format=format, split="test", labelled=False, skip_bad=skip_bad)
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


@app.command(epilog="Example: longtail compare linear bonsai test.jsonl --report compare.html")
def compare(
    paths: Annotated[list[str], typer.Argument(metavar="MODEL… TEST", help="Model folders, and test data.")],
    k: Annotated[str, typer.Option("-k", help="Cut-offs of the metrics.")] = "1,3,5",
    propensity: Annotated[str, typer.Option(help="wikipedia, amazon or default (0.55/1.5), or A,B.")] = "default",
    filter: Annotated[Path | None, typer.Option(help="Filter file: `document label` pairs to mask.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for compare.png and compare.csv, or one such file to write."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with tables and pictures (.html).")] = None,
    bootstrap: Annotated[
        int | None, typer.Option(min=0, help="Resamples for intervals in the report; 1000 where it is written.")
    ] = None,
    seed: ResampleSeed = 0,
    features: Features = None,
    format: Format = None,
    threads: Threads = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure models side by side: every metric, and recall by label frequency, as tables and as a picture."""
    from longtail.comparison import compare as compare_models
    from longtail.comparison_figure import comparison_files, write_comparison
    from longtail.report import check_report_path, write_side_by_side
    from longtail.terminal import print_json

    *models, data = paths
    if not models or Path(data, "manifest.json").exists():
        raise UsageError(f"found {' '.join(paths)}; expected MODEL… TEST, test data after one model folder or more")
    ks, constants = cutoffs(k), propensity_of(propensity)
    if output:
        comparison_files(output)
    if report:
        check_report_path(report)
    test = read_data(data, format=format, features=features, split="test", skip_bad=None)
    found = compare_models(
        models,
        test,
        ks,
        propensity=constants,
        mask=filter,
        bootstrap=(1000 if report else 0) if bootstrap is None else bootstrap,
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
        write_side_by_side(found, report, f"{', '.join(model.name for model in found.models)} on {data}")
        say(f"{report}: written")
