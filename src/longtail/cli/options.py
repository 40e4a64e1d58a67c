"""Parts shared by all commands: the application, common options, reading data, hints."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand
from typer.models import CommandFunctionType

from longtail.errors import UsageError

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset

__all__ = [
    "App",
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
    "print_note",
    "read_data",
    "shard_numbers",
]

_SAME = {"--top": "-k", "--top-k": "-k", "--num-labels": "-k"}
# groups in the order in which a setting is looked up by its name alone
_PREFERRED = ("training.", "ranker.", "tree.", "search.")
_METHOD = "xr-linear"  # default


class App(typer.Typer):
    """An application whose commands give hints."""

    def command(  # type: ignore[override]  # only name and epilog are used here
        self, name: str | None = None, *, epilog: str | None = None
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Return the decorator of a command."""
        return super().command(name, cls=_Command, epilog=epilog)


class _Command(TyperCommand):
    """A command that adds a hint to errors about wrong options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asked = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            message = getattr(error, "message", None)
            if not isinstance(message, str):  # not an error about options
                raise
            known = [name for parameter in self.params for name in parameter.opts]
            advice = hint(getattr(error, "option_name", None), asked, known, ctx.info_name or "")
            if advice:
                error.message = f"{message} {advice}"  # type: ignore[attr-defined]
                error.possibilities = ()  # type: ignore[attr-defined]
            raise


app = App(
    name="longtail",
    help="Give any text the right few of a million labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _known_device(name: str) -> str:
    """Refuse a misspelt device, even if nothing runs on it, without importing torch."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise UsageError(f"--device {name!r}; expected auto, cpu, cuda or cuda:N")
    return name


# Options with the same meaning in every command.
Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A file, a folder, or - for standard input.")
]
Format = Annotated[
    str | None, typer.Option("--format", help="Data format; default: by name and content.")
]
Labels = Annotated[
    Path | None, typer.Option("--labels", help="Label file (JSONL, TSV, SKOS): fixes the labels.")
]
Split = Annotated[str, typer.Option(help="Part of a folder with two parts: train or test.")]
Features = Annotated[
    Path | None,
    typer.Option(
        "--features",
        help="Features instead of text (.npz, BoW, svmlight), or vectors beside it (.npy).",
    ),
]
NoFeatures = Annotated[
    bool,
    typer.Option(
        "--no-features", help="Ignore features that are beside the texts in the folder of DATA."
    ),
]
Fields = Annotated[
    str | None,
    typer.Option(help="Fields of a label-feature set: title, content or title,content."),
]
LabelSeparator = Annotated[
    str, typer.Option("--label-separator", help="Separator of labels in a cell of a table.")
]
Separator = Annotated[
    str | None,
    typer.Option(
        "--separator", metavar="CHARACTER", help="Separator of cells of a CSV or TSV file."
    ),
]
TextColumn = Annotated[
    str | None, typer.Option("--text-column", help="Column of texts in a table; default: text.")
]
LabelsColumn = Annotated[
    str | None,
    typer.Option("--labels-column", help="Column of labels in a table; default: labels."),
]
SkipBad = Annotated[
    int, typer.Option("--skip-bad", min=0, metavar="N", help="Skip up to N bad records.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace an existing model in the output folder.")
]
Threads = Annotated[
    int,
    typer.Option(
        "-j",
        "--threads",
        min=0,
        help="Threads; 0: all cores. Results are the same, but for extremetext.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device", callback=_known_device, help="Device of networks: auto, cpu, cuda or cuda:N."
    ),
]
BeamSize = Annotated[
    int | None, typer.Option(min=1, help="Nodes kept per level; default: the model's beam size.")
]
EncoderFolder = Annotated[
    Path | None,
    typer.Option(
        "--encoder-folder",
        metavar="DIR",
        help="Folder of pretrained encoders or word vectors, each by its name.",
    ),
]
Shards = Annotated[
    str | None,
    typer.Option(
        "--shards", metavar="N,N", help="Load only these shards of the labels, such as 0,2."
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS|local", help="Run on a Ray cluster: local, auto, HOST:PORT."
    ),
]
ResampleSeed = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of the bootstrap resamples.")
]
MethodName = Annotated[
    str | None,
    typer.Option(help="Name from `longtail methods`; default: the method of -c, or xr-linear."),
]
Preset = Annotated[
    str | None,
    typer.Option(help="The authors' recipe for a dataset of the papers, such as amazon-670k."),
]
ConfigFile = Annotated[Path | None, typer.Option("-c", "--config", help="TOML file of settings.")]
SetOptions = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="A setting; repeatable.")
]


def read_data(
    path: str, *, features: Path | None = None, no_features: bool = False, **options: Any
) -> Dataset:
    """Read documents in any format; ``no_features`` ignores the features of their folder."""
    from longtail.data.reading import read

    if no_features and features is not None:
        raise UsageError("found --features and --no-features; expected one of them")
    if no_features:
        return read(path, features=False, **options)
    return read(path, features=features, **options)


def overrides(config: Path | None, set_: list[str] | None) -> list[dict[str, Any]]:
    """Return the settings of a TOML file and of ``--set``; later ones win."""
    from longtail.config import parse_assignment, read_toml

    layers: list[dict[str, Any]] = []
    if config:
        layers.append(read_toml(config))
    layers += map(parse_assignment, set_ or [])
    return layers


def method_of(name: str | None, layers: Sequence[Mapping[str, Any]]) -> str:
    """Return the method ``name``, or the last method in the settings ``layers``."""
    if name is not None:
        return name
    methods = [layer.get("method") for layer in layers]
    return [_METHOD, *(method for method in methods if isinstance(method, str))][-1]


def shard_numbers(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of ``--shards 0,2``."""
    if text is None:
        return None
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"--shards {text!r}; expected numbers of shards such as 0,2") from None


def print_note(message: str) -> None:
    """Print a message to stderr."""
    print(message, file=sys.stderr)


# Hints about wrong options


def hint(option: str | None, arguments: Sequence[str], known: Sequence[str], command: str) -> str:
    """Return a hint about the option that was probably meant, or an empty string.

    Args:
        option: the unknown option; None if something else is wrong.
        arguments: all words after the command.
        known: options of the command.
        command: name of the command.
    """
    if option in ("-q", "--quiet"):
        return f"It comes before the command: longtail -q {command} …"
    if option in _SAME and "-k" in known:
        return f"The number of labels per document is -k: -k {_value(option, arguments)}"
    if "--set" not in known:
        return ""
    if option is not None:
        path = _setting(option.lstrip("-").replace("-", "_"))
        if path:
            return f"It is a setting: --set {path}={_value(option, arguments)}"
        return ""
    for word, path, value in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if word == "--set" and "=" not in path and not value.startswith("-"):
            return f"A setting is one word: --set {path}={value}"
    return ""


def _value(option: str | None, arguments: Sequence[str]) -> str:
    """Return the value of an option, or "VALUE" if it has none."""
    for word, after in zip(arguments, [*arguments[1:], "-"], strict=True):
        name, equals, value = word.partition("=")
        if name == option and equals:
            return value
        if name == option and not after.startswith("-"):
            return after
    return "VALUE"


def _setting(name: str) -> str:
    """Return the path of the setting with a name, the most common one of several; empty if none."""
    from longtail.config import Config, settings

    paths = [setting.path for setting in settings(Config())]
    matches = [path for path in paths if path.rpartition(".")[2] == name]
    for group in _PREFERRED:
        for path in matches:
            if path.startswith(group):
                return path
    return next(iter(matches), "")
