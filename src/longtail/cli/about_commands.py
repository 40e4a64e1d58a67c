"""Commands about this installation: methods, doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from longtail.cli.options import ConfigFile, Json, Preset, SetOptions, app, overrides
from longtail.errors import UsageError

__all__ = ["doctor", "methods"]


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method with every setting, as TOML.")] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: SetOptions = None,
    json: Json = False,
) -> None:
    """List the methods, or show one with its settings resolved."""
    from longtail.config import to_toml
    from longtail.methods import METHODS, configure, method
    from longtail.terminal import print_json, print_table

    if name is None and (preset or config or set_):
        raise UsageError("--preset, -c and --set are settings of one method; expected its name, as in the list")
    if name is None:
        rows = [[m.name, ", ".join(m.presets), m.what] for m in METHODS.values()]
        if json:
            print_json(list(METHODS.values()))
        else:
            print_table(["method", "presets", "what"], rows)
        return
    resolved = configure(name, preset, *overrides(config, set_))
    if json:
        print_json(resolved)
        return
    entry = method(name)
    print(f"# {entry.what}\n# {entry.paper}\n# {' → '.join(entry.recipe)}\n\n{to_toml(resolved)}", end="")


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
