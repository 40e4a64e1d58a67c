"""What commands share: the application, options that mean the same everywhere, and how they read
data.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.hints import App
from longtail.errors import UsageError

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset

__all__ = [
    "BeamSize",
    "ConfigFile",
    "Data",
    "Device",
    "EncoderFolder",
    "Features",
    "Fields",
    "Force",
    "Format",
    "Json",
    "LabelSeparator",
    "Labels",
    "LabelsColumn",
    "MethodName",
    "ModelFolder",
    "NoFeatures",
    "Preset",
    "Ray",
    "ResampleSeed",
    "Separator",
    "SetOptions",
    "Shards",
    "SkipBad",
    "Split",
    "TextColumn",
    "Threads",
    "app",
    "method_of",
    "overrides",
    "read_data",
    "say",
    "shard_numbers",
]

_METHOD = "xr-linear"  # where none is asked for

app = App(
    name="longtail",
    help="Give any text the right few of a million labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _known_device(name: str) -> str:
    """Refuse a misspelt device also where nothing runs on one, and before torch is there to ask."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise UsageError(f"--device {name!r}; expected auto, cpu, cuda or cuda:N")
    return name


# Options that mean the same in every command.
Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A file, a folder, or - for standard input.")
]
Format = Annotated[
    str | None, typer.Option("--format", help="Data format; told from name and content otherwise.")
]
Labels = Annotated[
    Path | None, typer.Option("--labels", help="Label file (JSONL, TSV, SKOS): fixes the labels.")
]
Split = Annotated[str, typer.Option(help="Part of a folder that holds both: train or test.")]
Features = Annotated[
    Path | None,
    typer.Option(
        "--features",
        help="Features in place of text (.npz, BoW, svmlight), or vectors beside it (.npy).",
    ),
]
NoFeatures = Annotated[
    bool,
    typer.Option(
        "--no-features", help="Leave out features that lie beside the texts in the folder of DATA."
    ),
]
Fields = Annotated[
    str | None,
    typer.Option(
        help="Of a label-feature set: title, content or title,content, of documents and labels."
    ),
]
LabelSeparator = Annotated[
    str, typer.Option("--label-separator", help="Between labels in one cell of a table.")
]
Separator = Annotated[
    str | None,
    typer.Option("--separator", metavar="CHARACTER", help="Between cells of a CSV or TSV file."),
]
TextColumn = Annotated[
    str | None, typer.Option("--text-column", help="Column of texts of a table, if not text.")
]
LabelsColumn = Annotated[
    str | None, typer.Option("--labels-column", help="Column of labels of a table, if not labels.")
]
SkipBad = Annotated[
    int, typer.Option("--skip-bad", min=0, metavar="N", help="Leave out up to N bad records.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a model that is in the output folder.")
]
Threads = Annotated[
    int,
    typer.Option("-j", "--threads", min=0, help="Threads; 0 = all cores. Results stay the same."),
]
Device = Annotated[
    str,
    typer.Option(
        "--device", callback=_known_device, help="Where a network runs: auto, cpu, cuda or cuda:N."
    ),
]
BeamSize = Annotated[
    int | None, typer.Option(min=1, help="Nodes kept on each level; the model's own otherwise.")
]
EncoderFolder = Annotated[
    Path | None,
    typer.Option(
        "--encoder-folder",
        metavar="DIR",
        help="Folder that holds pretrained encoders or vectors by name.",
    ),
]
Shards = Annotated[
    str | None,
    typer.Option(
        "--shards", metavar="N,N", help="Load these shards of the labels alone, such as 0,2."
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS|local", help="Work on a Ray cluster: local, auto, HOST:PORT."
    ),
]
ResampleSeed = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of the resamples behind intervals.")
]
MethodName = Annotated[
    str | None,
    typer.Option(
        help="Name in the list of `longtail methods`; that of -c, or xr-linear, otherwise."
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(help="The authors' recipe for a dataset of the papers, such as amazon-670k."),
]
ConfigFile = Annotated[Path | None, typer.Option("-c", "--config", help="TOML file of settings.")]
SetOptions = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="One setting; repeatable.")
]


def read_data(
    path: str, *, features: Path | None = None, no_features: bool = False, **options: Any
) -> Dataset:
    """Read documents in any format; ``no_features`` leaves out the features of their folder."""
    from longtail.data.reading import read

    if no_features and features is not None:
        raise UsageError("found --features and --no-features; expected one of them")
    return read(path, features=False if no_features else features, **options)


def overrides(config: Path | None, set_: list[str] | None) -> list[dict[str, Any]]:
    """Return the settings of a TOML file and of ``--set``, the later ones winning."""
    from longtail.config import parse_assignment, read_toml

    return [*([read_toml(config)] if config else []), *map(parse_assignment, set_ or [])]


def method_of(asked: str | None, given: Sequence[Mapping[str, Any]]) -> str:
    """Return the method asked for, else that of the settings ``given``, the last one winning."""
    named = [own["method"] for own in given if isinstance(own.get("method"), str)]
    return asked if asked is not None else [_METHOD, *named][-1]


def shard_numbers(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of ``--shards 0,2``."""
    try:
        return None if text is None else tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"--shards {text!r}; expected numbers of shards such as 0,2") from None


def say(message: str) -> None:
    """Tell a person something, on stderr."""
    print(message, file=sys.stderr)
