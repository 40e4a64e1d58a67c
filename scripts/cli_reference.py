"""Writes the reference of the command line, as Markdown, from the commands themselves.

python scripts/cli_reference.py: the page to stdout; ``make docs`` puts it into the site.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from longtail.cli import app

__all__ = ["cli_reference", "plain"]

_HEAD = """# Commands

`longtail COMMAND --help` prints the same. Results go to stdout, all else to stderr. Exit codes: 0, all is well; 1,
something failed; 2, the command or a setting cannot be meant; 3, bad data, named by file and line; 4, a model folder
that does not verify.
"""
_WORDS = {
    str: "TEXT",
    int: "N",
    float: "NUMBER",
    Path: "PATH",
}  # where an option has no word of its own


def cli_reference() -> str:
    """Return the page: every command with its usage, and each argument and option with its help and
    default.
    """
    group: Any = typer.main.get_command(app)
    commands = [group.commands[name] for name in sorted(group.commands)]
    listed = [
        f"| [`{command.name}`](#{command.name}) | {plain(command.help)} |" for command in commands
    ]
    parts = [_HEAD, "\n".join(["| command | |", "|---|---|", *listed])]
    parts += ["\nOptions before the command:\n", "\n".join(_table(group.params))]
    for command in commands:
        usage = " ".join(["longtail", command.name, *_usage(command.params)])
        parts.append(
            f"\n## {command.name}\n\n{plain(command.help)}\n\n```console\n$ "
            f"{usage}\n```\n\n{_example(command)}\n"
        )
        parts.append("\n".join(_table(command.params)))
    return "\n".join(parts) + "\n"


def _example(command: Any) -> str:
    return re.sub(r"^Example: (.*)", r"Example: `\1`", command.epilog)


def _table(params: list[Any]) -> Iterator[str]:
    yield from ("| argument or option | default | |", "|---|---|---|")
    for param in params:
        yield f"| {_names(param)} | {_default(param)} | {plain(param.help)} |"


def _usage(params: list[Any]) -> Iterator[str]:
    """Yield what must be written, and [OPTIONS] for all that may be."""
    yield "[OPTIONS]"
    for param in params:
        if param.param_type_name == "option":
            yield from [f"{param.opts[0]} {_value(param)}"] if param.required else []
        else:
            name = f"{_value(param)}{'…' if param.nargs == -1 and not param.metavar else ''}"
            yield name if param.required else f"[{name}]"


def _names(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{_value(param)}`"
    names = ", ".join(f"`{name}`" for name in sorted([*param.opts, *param.secondary_opts], key=len))
    return names if param.is_flag else f"{names} `{_value(param)}`"


def _value(param: Any) -> str:
    if param.metavar or param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    return _WORDS[param.type_descriptor.annotation]


def _default(param: Any) -> str:
    if param.required:
        return "required"
    none = param.is_flag if param.param_type_name == "option" else False
    return "" if none or param.default in (None, "") else f"`{param.default}`"


def plain(text: str | None) -> str:
    """Return a line for a cell of a table, in which only backticks mean something."""
    parts = re.split("(`[^`]*`)", " ".join((text or "").split()))
    return "".join(
        part if part.startswith("`") else html.escape(part, False).replace("|", r"\|")
        for part in parts
    )


if __name__ == "__main__":
    sys.stdout.write(cli_reference())
