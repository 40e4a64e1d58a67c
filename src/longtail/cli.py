"""The command line: verbs → functions, no logic. Results on stdout, everything else on stderr."""

from __future__ import annotations

import signal
import sys
from io import TextIOWrapper
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from longtail import __version__
from longtail.errors import DataError, LongtailError, UsageError

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset

__all__ = ["app", "main"]

app = typer.Typer(
    name="longtail",
    help="Give any text the right few of a million labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Options that mean the same in every command.
Data = Annotated[str, typer.Argument(metavar="DATA", help="A file, a folder, or - for standard input.")]
Format = Annotated[str | None, typer.Option("--format", help="Data format; told from name and content otherwise.")]
Labels = Annotated[Path | None, typer.Option("--labels", help="Label file (JSONL, TSV, SKOS): fixes the labels.")]
Split = Annotated[str, typer.Option(help="Part of a folder that holds both: train or test.")]
Features = Annotated[Path | None, typer.Option("--features", help="Features (.npz, BoW) in place of text.")]
SkipBad = Annotated[int, typer.Option("--skip-bad", min=0, metavar="N", help="Leave out up to N bad records.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]

_PROPENSITIES = ("wikipedia", "amazon", "default")


def _show_version(asked: bool) -> None:
    if asked:
        print(f"longtail {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Give any text the right few of a million labels."""
    from longtail.terminal import show_progress

    show_progress(quiet)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for what the demo writes.")] = Path("demo"),
) -> None:
    """Check and convert the bundled real sample: descriptions of Debian packages with their tags."""
    from longtail.data.sample import FOLDER

    output.mkdir(parents=True, exist_ok=True)
    print(f"$ longtail check {FOLDER}\n")
    check(str(FOLDER), report=output / "labels.png")
    print(f"\n$ longtail convert {FOLDER} {output / 'train.csv'} --labels-output {output / 'labels.tsv'}\n")
    convert(str(FOLDER), str(output / "train.csv"), labels_output=output / "labels.tsv")
    print("\nThis version reads, checks, converts and measures; training comes with the linear engine.")


@app.command()
def check(
    data: Data,
    format: Format = None,
    labels: Labels = None,
    features: Features = None,
    split: Split = "train",
    skip_bad: SkipBad = 0,
    report: Annotated[Path | None, typer.Option(help="Draw the label-frequency curve (.png, .svg, .pdf).")] = None,
    json: Json = False,
) -> None:
    """Count documents and labels, show the label-frequency curve, and say what is wrong."""
    from longtail.metrics.report import draw_frequency_curve, picture_suffix
    from longtail.terminal import print_description, print_json

    if report:
        picture_suffix(report)
    dataset = _read(data, format=format, labels=labels, features=features, split=split, skip_bad=skip_bad)
    description, findings = dataset.describe(), dataset.check()
    if json:
        print_json({"description": description, "findings": findings})
    else:
        print_description(description, findings)
    if report:
        draw_frequency_curve(description.frequency_curve, report)
        _say(f"{report}: written")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(3)


@app.command()
def convert(
    data: Data,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="File or folder to write, or - for stdout.")],
    format: Format = None,
    to: Annotated[str | None, typer.Option("--to", help="Output format; told from the name otherwise.")] = None,
    labels: Labels = None,
    labels_output: Annotated[Path | None, typer.Option(help="Write the label file too.")] = None,
    features: Features = None,
    split: Split = "train",
    skip_bad: SkipBad = 0,
) -> None:
    """Read any format and write any other."""
    from longtail.data.formats import write
    from longtail.data.label_files import write_labels

    dataset = _read(data, format=format, labels=labels, features=features, split=split, skip_bad=skip_bad)
    if labels_output:
        write_labels(dataset.labels, labels_output)
    write(dataset, output, format=to or ("jsonl" if output == "-" else None), split=split)
    _say(f"{output}: {len(dataset):,} documents, {dataset.n_labels:,} labels")


@app.command()
def evaluate(
    test: Annotated[str, typer.Argument(metavar="TEST", help="Test data with the true labels.")],
    predictions: Annotated[Path, typer.Option(help='Predictions of any system: {"id", "labels", "scores"} a line.')],
    train: Annotated[str | None, typer.Option(help="Training data: label frequencies for PSP, PSnDCG.")] = None,
    k: Annotated[str, typer.Option("-k", help="Cut-offs.")] = "1,3,5",
    propensity: Annotated[str, typer.Option(help="wikipedia, amazon or default (0.55/1.5), or A,B.")] = "default",
    filter: Annotated[Path | None, typer.Option(help="Filter file: `document label` pairs to mask.")] = None,
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples for 95 % intervals, e.g. 1000.")] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    format: Format = None,
    json: Json = False,
) -> None:
    """Measure predictions: P, nDCG, recall, PSP, PSnDCG, coverage and macro-F1 at k."""
    from longtail.pipeline import evaluate_predictions
    from longtail.terminal import print_json

    constants = _propensity(propensity)
    if train is None and propensity != "default":
        _say("--propensity has no effect without --train")
    train_set = None if train is None else _read(train, format=format, skip_bad=None)
    known = None if train_set is None else train_set.labels
    test_set = _read(test, format=format, split="test", labels=known, unknown="add", skip_bad=None)
    measured = evaluate_predictions(
        predictions,
        test_set,
        train_set,
        ks=_cutoffs(k),
        propensity=constants,
        mask=filter,
        bootstrap=bootstrap,
        seed=seed,
    )
    if json:
        print_json(measured)
        return
    print(measured.evaluation)
    if measured.by_frequency:
        print(f"\nBy frequency of the label in train\n{measured.by_frequency}")


@app.command()
def info(model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")], json: Json = False) -> None:
    """Verify a model folder and show what is in it."""
    from longtail.store import open_folder
    from longtail.terminal import print_json, print_table

    folder = open_folder(model)
    if json:
        print_json(folder.manifest)
        return
    print(f"{model}: {folder.manifest.producer}, format {folder.manifest.format}, verified\n")
    print_table(["file", "bytes", "sha256"], [[f.path, f"{f.size:,}", f.sha256[:16]] for f in folder.manifest.files])


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method with every setting, as TOML.")] = None,
    preset: Annotated[str | None, typer.Option(help="Settings for a benchmark of the papers.")] = None,
    config: Annotated[Path | None, typer.Option("-c", "--config", help="TOML file of settings.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="One setting; repeatable.")] = None,
    json: Json = False,
) -> None:
    """List the methods, or show one with its settings resolved."""
    from longtail.config import parse_assignment, read_toml, to_toml
    from longtail.methods import METHODS, configure, method
    from longtail.terminal import print_json, print_table

    if name is None and (preset or config or set_):
        raise UsageError("--preset, -c and --set are settings of one method; expected its name, as in the list")
    if name is None:
        rows = [[m.name, "yes" if m.trainable else "not yet", ", ".join(m.presets), m.what] for m in METHODS.values()]
        if json:
            print_json(list(METHODS.values()))
        else:
            print_table(["method", "trains", "presets", "what"], rows)
        return
    overrides = [*([read_toml(config)] if config else []), *map(parse_assignment, set_ or [])]
    resolved = configure(name, preset, *overrides)
    if json:
        print_json(resolved)
        return
    entry = method(name)
    print(f"# {entry.what}\n# {entry.paper}\n# {' → '.join(entry.recipe)}\n\n{to_toml(resolved)}", end="")


@app.command()
def formats(json: Json = False) -> None:
    """List the data formats that can be read and written."""
    from longtail.data.formats import FORMATS
    from longtail.terminal import print_json, print_table

    rows = [[form.name, form.what] for form in FORMATS.values()]
    if json:
        print_json([{"name": name, "what": what} for name, what in rows])
    else:
        print_table(["format", "what"], rows)


@app.command()
def doctor(json: Json = False) -> None:
    """Look at this machine: versions, cores, memory, kernels, optional parts."""
    from longtail.doctor import examine
    from longtail.terminal import print_json, print_table

    symptoms = examine()
    if json:
        print_json(symptoms)
    else:
        print_table(["what", "state", "detail"], [[s.what, s.state, s.detail] for s in symptoms])
    if any(symptom.state == "bad" for symptom in symptoms):
        raise typer.Exit(1)


def _read(path: str, **options: Any) -> Dataset:
    from longtail.data.formats import read

    return read(path, **options)


def _cutoffs(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"-k {text!r}; expected whole numbers such as 1,3,5") from None


def _propensity(text: str) -> tuple[float, float]:
    from longtail.metrics import propensity_constants

    if text in _PROPENSITIES:
        return propensity_constants(text)
    try:
        a, b = map(float, text.split(","))
    except ValueError:
        raise UsageError(
            f"--propensity {text!r}; expected {', '.join(_PROPENSITIES)}, or A,B such as 0.55,1.5"
        ) from None
    if not (0 < a < inf and 0 < b < inf):
        raise UsageError(f"--propensity {text!r}; expected A and B above 0, such as 0.55,1.5")
    return a, b


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> NoReturn:
    """Run the command line; every error becomes one message and its exit code."""
    signal.signal(signal.SIGTERM, _stop)  # so that `finally` blocks run
    if isinstance(sys.stdout, TextIOWrapper):  # a pipe is UTF-8 in every locale; what a terminal lacks is escaped
        encoding = sys.stdout.encoding if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        app()
    except DataError as error:  # each line begins with the place, for people and editors
        _say(str(error))
        sys.exit(error.exit_code)
    except LongtailError as error:
        _say(f"longtail: {error}")
        sys.exit(error.exit_code)
    except MemoryError:
        _say("longtail: not enough memory; give less data at a time, or use a larger machine")
        sys.exit(1)
    except OSError as error:
        _say(f"longtail: {error.filename or 'error'}: {error.strerror or error}")
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
