"""Commands for models: train, predict, embed, explain, info."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from longtail.config import Config

__all__ = ["embed", "explain", "info", "predict", "train"]


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
            help="Data for the calibration, else held out of DATA; and for a network's best epoch."
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
            help="Go on with a run that was interrupted; begin anew where there is none.",
        ),
    ] = False,
    force: Force = False,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Train whatever the forecast says.")
    ] = False,
    device: Device = "auto",
    gandalf: Annotated[
        bool, typer.Option("--gandalf", help="Train on texts of labels as well (gandalf.use).")
    ] = False,
    gandalf_share: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="The same with this share of the labels, such as 0.5."),
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
    from longtail.features.encoder_search import search_encoders_in
    from longtail.methods import configure
    from longtail.run_loggers import check_targets
    from longtail.scale.ranks import check_sources, joined
    from longtail.scale.ray import connected
    from longtail.training_run import BEGUN, take_part, train_to_folder

    check_targets(log_to or ())
    with search_encoders_in(encoder_folder), joined(device) as (ranks, own_device):
        if not ranks.is_first:
            ranks.wait_for(BEGUN)
        elif ranks.size > 1:
            check_sources(data, valid)
        given = [
            *overrides(config, set_),
            _gandalf(gandalf, gandalf_share),
            {} if seed is None else {"seed": seed},
        ]
        settings = configure(method_of(method, given), preset, *given)
        # before documents are read
        _check_settings(settings, own_device, ranks.size > 1, ray is not None)
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
        valid_documents = None if valid is None else read_data(valid, split="test", **reading)
        options: dict[str, Any] = {
            "valid": valid_documents,
            "tree": tree,
            "threads": threads,
            "device": own_device,
        }
        if ranks.is_first:
            options |= {
                "resume": resume,
                "force": force,
                "ignore_memory": ignore_memory,
                "log_to": log_to or (),
            }
        run = train_to_folder if ranks.is_first else take_part
        # Ray would tell of lost workers on stdout
        with redirect_stdout(sys.stderr), connected(ray, threads):
            run(documents, output, settings, **options)


def _check_settings(settings: Config, device: str, several_ranks: bool, on_ray: bool) -> None:
    """Refuse settings that cannot be trained with, or not so."""
    from longtail.checks import check_encoder
    from longtail.methods import uses_encoder
    from longtail.scale.ranks import check_method
    from longtail.scale.ray import check_trainable

    if several_ranks:
        check_method(settings)
    if on_ray:
        check_trainable(settings)
    if uses_encoder(settings):
        check_encoder(settings, device)


def _gandalf(use: bool, share: float | None) -> dict[str, Any]:
    """Return the settings of --gandalf and --gandalf-share, either of which is enough."""
    if not use and share is None:
        return {}
    return {"gandalf": {"use": True} | ({} if share is None else {"share": share})}


@app.command(epilog="Example: longtail predict model new.jsonl -k 3 -o predictions.jsonl")
def predict(
    model: ModelFolder,
    data: Data,
    k: Annotated[int, typer.Option("-k", min=1, help="Labels a document, at most.")] = 5,
    threshold: Annotated[
        float,
        typer.Option(
            "-t",
            "--threshold",
            min=0,
            max=1,
            help="Least score: a probability of a calibrated model.",
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
    """Give each document its labels: {"id", "labels", "scores"} a line; `longtail merge` joins
    those of --shards.
    """
    from longtail.data.output import check_apart, check_output
    from longtail.estimator import load
    from longtail.search.predictions import write_predictions
    from longtail.store import open_folder

    if ray is not None and shards is not None:
        raise UsageError(
            "found --ray and --shards; expected one of them, as a worker loads the whole model"
        )
    if ray is not None and device not in ("auto", "cpu"):
        raise UsageError(
            f"found --ray and --device {device}; expected one of them, as workers predict on CPUs"
        )
    check_output(output)  # now, not after hours of predicting
    check_apart(output, data, features)
    tagger = load(model, threads, device, shard_numbers(shards)) if ray is None else None
    if tagger is None:
        # now, not when a cluster has started; its bytes are verified there
        open_folder(model, verify="size")
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
    options: dict[str, Any] = {"threshold": threshold, "beam_size": beam_size}
    if tagger is None:
        from longtail.scale.ray import connected, predict_folder

        with redirect_stdout(sys.stderr), connected(ray, threads):
            found = predict_folder(model, documents, k, **options)
        write_predictions(found, output)
    elif shards is not None:
        from longtail.search.partial_predictions import write_partial

        write_partial(tagger.predict_part(documents, k, **options), output)
    else:
        found = tagger.predict(documents, k, **options)
        write_predictions(found, output)
        if unread := tagger.model.count_unread(documents, found, beam_size):
            count = f"{unread:,} of {len(documents):,} documents"
            print_note(f"{count} hold nothing that the model knows, and have the same labels")


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
    """Write the network's vectors of documents, (n, d) float32, for --features or for a search by
    likeness.
    """
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
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The text itself, or - for standard input.")
    ],
    label: Annotated[
        str | None, typer.Option("--label", help="Label to explain; the best one otherwise.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Words shown a step.")] = 8,
    json: Json = False,
) -> None:
    """Show what each word adds on the way to a label, or how far the score of a network falls
    without it.
    """
    from longtail.cli.terminal import print_explanation, print_json
    from longtail.models.model_folder import load_model

    trained = load_model(model)
    if os.path.isfile(text):  # noqa: PTH113 - Path's raises where a text is too long for a name
        print_note(
            f"{text} is a file, but its name is explained; for its content: longtail explain "
            f"{model} - < {text}"
        )
    text = sys.stdin.read() if text == "-" else text
    if label is None:
        best = trained.predict([text], 1)[0]
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
    """Verify a model folder and show what is in it."""
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
