"""Commands whose refusal of an option names the one that was meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand
from typer.models import CommandFunctionType

__all__ = ["App", "hint"]

_SAME = {"--top": "-k", "--top-k": "-k", "--num-labels": "-k"}
# groups, where several have a setting of one name
_PREFERRED = ("training.", "ranker.", "tree.", "search.")


class App(typer.Typer):
    """An application whose commands give hints."""

    def command(  # type: ignore[override]  # by name and epilog alone, as commands here are made
        self, name: str | None = None, *, epilog: str | None = None
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Return the decorator of a command."""
        return super().command(name, cls=_Command, epilog=epilog)


class _Command(TyperCommand):
    """A command that adds a hint to what it says of wrong options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asked = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            message = getattr(error, "message", None)
            if not isinstance(message, str):  # not of the options
                raise
            known = [name for parameter in self.params for name in parameter.opts]
            found = hint(getattr(error, "option_name", None), asked, known, ctx.info_name or "")
            if found:
                error.message = f"{message} {found}"  # type: ignore[attr-defined]
                error.possibilities = ()  # type: ignore[attr-defined]
            raise


def hint(option: str | None, arguments: Sequence[str], known: Sequence[str], command: str) -> str:
    """Return the option that was probably meant, or nothing.

    Args:
        option: The option that the command does not have; None where something else is wrong.
        arguments: All words behind the command.
        known: Options of the command.
        command: Its name.
    """
    if option in ("-q", "--quiet"):
        return f"It stands before the command: longtail -q {command} …"
    if option in _SAME and "-k" in known:
        return f"Labels a document are given by -k: -k {_value(option, arguments)}"
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
    """Return the value of an option, or a mark for it."""
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == option and equals:
            return value
        if (
            name == option
            and place + 1 < len(arguments)
            and not arguments[place + 1].startswith("-")
        ):
            return arguments[place + 1]
    return "VALUE"


def _setting(name: str) -> str:
    """Return the path of the setting of a name; of several the most usual one, empty for none."""
    from longtail.config import Config, settings

    paths = [own.path for own in settings(Config()) if own.path.rpartition(".")[2] == name]
    for group in _PREFERRED:
        for path in paths:
            if path.startswith(group):
                return path
    return paths[0] if paths else ""
