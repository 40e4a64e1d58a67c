"""The command that runs the papers' experiments again: reproduce."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.options import Device, EncoderFolder, Json, SetOptions, Threads, app, overrides
from longtail.errors import UsageError

if TYPE_CHECKING:
    from longtail.reproduction.experiments import Entry, Need

__all__ = ["reproduce"]

_SHOWN = ("P@1", "P@3", "P@5")


@app.command(
    epilog="Example: longtail reproduce cascadexml/amazon-670k Amazon-670K -o out --encoder-folder encoders"
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
            "-o", "--output", metavar="OUT", help="Folder for models and result; resumed."
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Show all experiments with their published numbers.")
    ] = False,
    single: Annotated[
        bool, typer.Option("--single", help="Train the first model of an ensemble only.")
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Repeat with N seeds: mean ± deviation.")
    ] = 1,
    share: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the documents, for a quick look: 0.01.")
    ] = 1.0,
    encoder_folder: EncoderFolder = None,
    set_: SetOptions = None,
    device: Device = "auto",
    threads: Threads = 0,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Train whatever the forecast says.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a published experiment again, and show what it reaches beside the published numbers."""
    from longtail.cli.terminal import print_json

    if list_:
        _show_list(encoder_folder, device, threads, json)
        return
    if experiment is None or data is None or output is None:
        raise UsageError("expected EXPERIMENT DATA -o OUT, or --list for what there is")
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
        found = list(entries(device, threads))
    if json:
        print_json(found)
        return
    rows = [row for entry in found for row in _rows(entry)]
    print_table(
        ["experiment", "models", "published in", "of", *_SHOWN, "hours and memory here"], rows
    )


def _rows(entry: Entry) -> list[list[str]]:
    """Return a line for each published row, the first one with what the experiment takes."""
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
    low, high = (_time(hours).split() for hours in need.hours)
    span = " to ".join([" ".join(low[:1] if low[1] == high[1] else low), " ".join(high)])
    gpu = "" if need.gpu_memory is None else f", {_gigabytes(need.gpu_memory)} of the GPU"
    note = f" ({need.note})" if need.note else ""
    return f"{span}, {_gigabytes(need.memory)}{gpu}{note}"


def _time(hours: float) -> str:
    """Return hours, minutes or days, with about two digits."""
    if hours < 1:
        return f"{max(60 * hours, 1):.0f} min"
    if hours < 100:
        return f"{hours:.0f} h"
    return f"{hours / 24:,.0f} days"


def _gigabytes(count: int) -> str:
    if count < 10e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e9:.0f} GB"
