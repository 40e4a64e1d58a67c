"""Commands for models: train, predict, merge, embed, explain, info."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.options import (
    BeamSize,
    ConfigFile,
    Data,
    Device,
    EncoderFolder,
    Features,
    Fields,
    Force,
    Format,
    Json,
    Labels,
    LabelsColumn,
    LabelSeparator,
    MethodName,
    ModelFolder,
    NoFeatures,
    Preset,
    Ray,
    Separator,
    SetOptions,
    Shards,
    SkipBad,
    TextColumn,
    Threads,
    app,
    method_of,
    overrides,
    print_note,
    read_data,
    shard_numbers,
)
from longtail.errors import UsageError

__all__ = ["embed", "explain", "info", "merge", "predict", "train"]


@app.command(epilog="Example: longtail train train.jsonl -o model --set tree.branching=32")
def train(
    data: Data,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="MODEL", help="Model folder to write.")
    ],
    method: MethodName = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: SetOptions = None,
    labels: Labels = None,
    valid: Annotated[
        str | None,
        typer.Option(
            help="Data for calibration and a network's best epoch; default: held out of DATA."
        ),
    ] = None,
    features: Features = None,
    no_features: NoFeatures = False,
    fields: Fields = None,
    tree: Annotated[
        Path | None, typer.Option(help="Hierarchy of the labels: child<TAB>parent, JSONL or SKOS.")
    ] = None,
    format: Format = None,
    label_separator: LabelSeparator = ";",
    separator: Separator = None,
    text_column: TextColumn = None,
    labels_column: LabelsColumn = None,
    skip_bad: SkipBad = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Same seed, settings and data: same bytes.")
    ] = None,
    threads: Threads = 0,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume an interrupted run, if there is one.",
        ),
    ] = False,
    force: Force = False,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Train whatever the forecast is.")
    ] = False,
    device: Device = "auto",
    gandalf: Annotated[
        bool, typer.Option("--gandalf", help="Also train on texts of labels (gandalf.use).")
    ] = False,
    gandalf_share: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Gandalf with this share of the labels, such as 0.5."),
    ] = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOGGER[:ADDRESS]",
            help="Log the run to mlflow, wandb or tensorboard; repeatable.",
        ),
    ] = None,
    encoder_folder: EncoderFolder = None,
    ray: Ray = None,
) -> None:
    """Train a model from documents with labels."""
    from longtail.methods import configure
    from longtail.run_loggers import check_targets
    from longtail.scale.training import training_job
    from longtail.training_run import RunOptions

    check_targets(log_to or ())
    with training_job(device, sources=(data, valid), ray=ray, encoder_folder=encoder_folder) as job:
        assignments = [
            *overrides(config, set_),
            _gandalf(gandalf, gandalf_share),
            {} if seed is None else {"seed": seed},
        ]
        settings = configure(method_of(method, assignments), preset, *assignments)
        job.check(settings)  # before documents are read
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
        valid_documents = None
        if valid is not None:
            valid_documents = read_data(valid, split="test", **reading)
        options = RunOptions(
            valid=valid_documents,
            tree=tree,
            threads=threads,
            resume=resume,
            force=force,
            ignore_memory=ignore_memory,
            device=job.device,
            log_to=log_to or (),
        )
        with job.workers(threads):
            job.run(documents, output, settings, options)


def _gandalf(use: bool, share: float | None) -> dict[str, Any]:
    """Return the settings of --gandalf and --gandalf-share, either of which is enough."""
    if share is not None:
        return {"gandalf": {"use": True, "share": share}}
    if use:
        return {"gandalf": {"use": True}}
    return {}


@app.command(epilog="Example: longtail predict model new.jsonl -k 3 -o predictions.jsonl")
def predict(
    model: ModelFolder,
    data: Data,
    k: Annotated[int, typer.Option("-k", min=1, help="Labels per document, at most.")] = 5,
    threshold: Annotated[
        float,
        typer.Option(
            "-t",
            "--threshold",
            min=0,
            max=1,
            help="Smallest score: a probability if the model is calibrated.",
        ),
    ] = 0.0,
    beam_size: BeamSize = None,
    output: Annotated[
        str, typer.Option("-o", "--output", help="File to write; - for stdout.")
    ] = "-",
    features: Features = None,
    no_features: NoFeatures = False,
    fields: Fields = None,
    format: Format = None,
    separator: Separator = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = 0,
    threads: Threads = 0,
    device: Device = "auto",
    shards: Shards = None,
    ray: Ray = None,
) -> None:
    """Predict the labels of documents, as JSON lines {"id", "labels", "scores"}."""
    from longtail.data.output import check_apart, check_output
    from longtail.scale.prediction import prediction_job

    check_output(output)  # now, not after hours of predicting
    check_apart(output, data, features)
    numbers = shard_numbers(shards)
    job = prediction_job(model, threads=threads, device=device, shards=numbers, ray=ray)
    documents = read_data(
        data,
        format=format,
        separator=separator,
        text_column=text_column,
        features=features,
        no_features=no_features,
        fields=fields,
        split="test",
        labelled=False,
        skip_bad=skip_bad,
    )
    unread = job.run(documents, output, k, threshold, beam_size)
    if unread:
        count = f"{unread:,} of {len(documents):,} documents"
        print_note(f"{count} hold nothing that the model knows, and have the same labels")


@app.command(epilog="Example: longtail merge a.jsonl b.jsonl -o predictions.jsonl")
def merge(
    predictions: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Files of `longtail predict --shards`.")
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", help="File to write; - for stdout.")
    ] = "-",
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="Labels per document, at most; default: as in the files."),
    ] = None,
) -> None:
    """Merge predictions of `predict --shards`; the result equals those of the whole model."""
    from longtail.data.output import check_apart
    from longtail.search.partial_predictions import merge_predictions

    check_apart(output, *predictions)
    merge_predictions(predictions, output, k)


@app.command(epilog="Example: longtail embed model new.jsonl -o vectors.npy")
def embed(
    model: ModelFolder,
    data: Data,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.npy", help="File to write.")
    ],
    format: Format = None,
    fields: Fields = None,
    skip_bad: SkipBad = 0,
    device: Device = "auto",
) -> None:
    """Write the network's vectors of documents (n, d float32), for --features or for search."""
    from longtail.data.npz import write_dense_npy
    from longtail.data.output import check_output
    from longtail.models.model_folder import load_model

    if output.suffix != ".npy":
        raise UsageError(
            f"{output}: found {output.suffix or 'no suffix'}; expected a name that ends in .npy"
        )
    check_output(output)
    trained = load_model(model, device)
    documents = read_data(
        data,
        format=format,
        no_features=True,
        fields=fields,
        split="test",
        labelled=False,
        skip_bad=skip_bad,
    )
    write_dense_npy(trained.embed(documents), output)
    print_note(f"{output}: written")


@app.command(epilog="Example: longtail explain model 'Small wind turbines' --label 'Wind power'")
def explain(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text, or - for standard input.")],
    label: Annotated[
        str | None, typer.Option("--label", help="Label to explain; default: the best one.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Words per step.")] = 8,
    json: Json = False,
) -> None:
    """Explain a label by the words of a text: their weights, or their effect on a network."""
    from longtail.cli.terminal import print_explanation, print_json
    from longtail.models.model_folder import load_model
    from longtail.pipeline import predict as predict_labels

    trained = load_model(model)
    if os.path.isfile(text):  # noqa: PTH113 - Path's raises where a text is too long for a name
        print_note(
            f"{text} is a file, but its name is explained; "
            f"for its content: longtail explain {model} - < {text}"
        )
    if text == "-":
        text = sys.stdin.read()
    if label is None:
        best = predict_labels(trained, [text], 1)[0]
        if not best:
            raise UsageError("no label was found for this text; give one with --label")
        label = best[0].id
    explanation = trained.explain(text, label)
    if json:
        print_json(explanation)
    else:
        print_explanation(explanation, top)


@app.command(epilog="Example: longtail info model")
def info(model: ModelFolder, shards: Shards = None, json: Json = False) -> None:
    """Verify a model folder and show its contents."""
    from longtail.cli.terminal import print_json, print_table
    from longtail.search.shard_files import open_model_folder, shard_files

    folder = open_model_folder(model, shard_numbers(shards))
    if json:
        print_json(folder.manifest)
        return
    print(f"{model}: {folder.manifest.producer}, format {folder.manifest.format}, verified\n")
    print_table(
        ["file", "bytes", "sha256"],
        [[f.path, f"{f.size:,}", f.sha256[:16]] for f in folder.manifest.files],
    )
    if labels := shard_files(folder):
        rows = [
            [name, f"{count:,}", f"{folder.files[name].size:,}"] for name, count in labels.items()
        ]
        print()
        print_table(["shard", "labels", "bytes"], rows)
    if any(file.path == "README.md" for file in folder.manifest.files):
        print(f"\n{folder.read_bytes('README.md').decode().partition('## Settings')[0].rstrip()}")
