"""Commands that give a model to other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import ModelFolder, app, say
from longtail.errors import UsageError

__all__ = ["export"]


@app.command(epilog="Example: longtail export model -o encoder.onnx")
def export(
    model: ModelFolder,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.onnx", help="File to write.")
    ],
) -> None:
    """Write the encoder of a model with a network as ONNX, and its tokeniser beside it."""
    if output.suffix != ".onnx":
        raise UsageError(
            f"{output}: found {output.suffix or 'no suffix'}; expected a name that ends in .onnx"
        )
    from longtail.data.output import check_output
    from longtail.models.model_folder import load_model
    from longtail.models.onnx_export import export_encoder

    check_output(output)
    beside = export_encoder(load_model(model, "cpu"), output)
    say(f"{output}: written, with {beside.name} beside it")
