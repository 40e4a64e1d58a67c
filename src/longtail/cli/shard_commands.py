"""The command that puts predictions of shards together: merge."""

from __future__ import annotations

from typing import Annotated

import typer

from longtail.cli.options import app

__all__ = ["merge"]


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
        typer.Option("-k", min=1, help="Labels a document, at most; as in the files otherwise."),
    ] = None,
) -> None:
    """Join predictions that were made with some shards of a model each: what the whole model
    predicts, exactly.
    """
    from longtail.data.output import check_apart
    from longtail.search.partial_predictions import merge_predictions

    check_apart(output, *predictions)
    merge_predictions(predictions, output, k)
