"""Commands about Longtail: methods, doctor and demo."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.options import ConfigFile, Json, Preset, SetOptions, Threads, app, overrides
from longtail.errors import UsageError

if TYPE_CHECKING:
    from longtail.methods import Method

__all__ = ["demo", "doctor", "methods"]

_DEMO_TEXT = (
    "A small editor for sound files: cut, mix and listen to recordings, with a window for GNOME."
)


@app.command(epilog="Example: longtail methods xr-linear > settings.toml")
def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Show one method with every setting that it reads, as TOML."),
    ] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: SetOptions = None,
    json: Json = False,
) -> None:
    """List the methods, or show one with its settings; those of a preset with their sources."""
    from msgspec import to_builtins

    from longtail.cli.terminal import print_json, print_table
    from longtail.methods import METHODS, configure, load_plugins, method, method_toml

    if name is None and (preset or config or set_):
        raise UsageError(
            "--preset, -c and --set are settings of one method; expected its name, as in the list"
        )
    if name is None:
        load_plugins()
        rows = [[m.name, ", ".join(m.presets), m.what] for m in METHODS.values()]
        if json:
            print_json([_listed(entry) for entry in METHODS.values()])
        else:
            print_table(["method", "presets", "description"], rows)
        return
    resolved = configure(name, preset, *overrides(config, set_))
    entry = method(name)
    recipe = entry.presets.get(resolved.preset)
    sources: dict[str, str] = {}
    about: dict[str, Any] = {}
    if recipe is not None:
        sources = recipe.sources_in(resolved)
        about = {"sources": sources, "deviations": recipe.deviations}
    if json:
        print_json(to_builtins(resolved) | about)
        return
    print(f"# {entry.what}\n# {entry.paper}\n# {' → '.join(entry.recipe)}\n")
    print(method_toml(resolved, sources), end="")
    if about.get("deviations"):
        print("\n# Deviations from the authors' recipe:")
        print("\n".join(f"# - {deviation}" for deviation in about["deviations"]))


def _listed(entry: Method) -> dict[str, Any]:
    """Return the entry of a method in the list as JSON, with the settings of its presets."""
    from msgspec import to_builtins

    presets = {name: preset.settings for name, preset in entry.presets.items()}
    about: dict[str, Any] = to_builtins(entry)
    return about | {"presets": presets}


@app.command(epilog="Example: longtail doctor --json")
def doctor(
    json: Json = False,
    compile_: Annotated[
        bool,
        typer.Option(
            "--compile", help="First compile the CPU kernels of all linear methods (minutes, once)."
        ),
    ] = False,
) -> None:
    """Check this machine: versions, cores, memory, kernels and optional packages."""
    from longtail.cli.doctor import examine
    from longtail.cli.terminal import print_json, print_table

    if compile_:
        from longtail.cli.kernel_compilation import compile_kernels, linear_trainings

        compile_kernels(linear_trainings())
    symptoms = examine()
    if json:
        print_json(symptoms)
    else:
        print_table(["part", "state", "detail"], [[s.what, s.state, s.detail] for s in symptoms])
    if any(symptom.state == "bad" for symptom in symptoms):
        raise typer.Exit(1)


@app.command(epilog="Example: longtail demo -o demo")
def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the files of the demo.")
    ] = Path("demo"),
    threads: Threads = 0,
) -> None:
    """Train, evaluate and explain on the bundled sample: Debian packages with their tags."""
    from longtail.cli.data_commands import check
    from longtail.cli.kernel_compilation import compile_missing_kernels
    from longtail.cli.measure_commands import evaluate
    from longtail.cli.model_commands import explain, train
    from longtail.config import Config
    from longtail.data.sample import FOLDER
    from longtail.store import holds_a_model

    if output.is_file():
        raise UsageError(f"{output}: is a file; expected a folder, or the name of a new one")
    output.mkdir(parents=True, exist_ok=True)
    compile_missing_kernels(Config())
    model = output / "model"
    test = str(FOLDER)
    print(f"$ longtail check {FOLDER}\n")
    check(str(FOLDER), report=output / "labels.png")
    force = holds_a_model(model)
    print(f"\n$ longtail train {FOLDER} -o {model}{' --force' if force else ''}\n")
    train(str(FOLDER), model, force=force, threads=threads)
    report = output / "report.html"
    print(f"\n$ longtail evaluate {model} {FOLDER} --bootstrap 1000 --report {report}\n")
    evaluate([str(model), test], bootstrap=1000, report=report, threads=threads)
    print(f'\n$ longtail explain {model} "{_DEMO_TEXT}"\n')
    explain(model, _DEMO_TEXT)
    longtail = _program()
    document = f'{{"text": "{_DEMO_TEXT}"}}'
    print(f"\nNow your own texts: echo '{document}' | {longtail} predict {model} -")
    print(f"A page to try it in the browser: {longtail} serve {model} --documents {FOLDER}")


def _program() -> str:
    """Return the command that runs this program from the current folder."""
    is_off_path = Path(sys.argv[0]).name == "longtail" and not shutil.which("longtail")
    if is_off_path:
        return os.path.relpath(sys.argv[0])
    return "longtail"
