"""Writes the reference of all settings, as Markdown, from the Structs of ``longtail.config``.

python scripts/settings_reference.py: the page to stdout; ``make docs`` puts it into the site.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from cli_reference import plain
from longtail.config import Config, Stage, settings
from longtail.methods import METHODS, configure, is_read, settings_read

__all__ = ["settings_reference", "values"]

_HEAD = """# Settings

Every setting of every method, with what it may be and its default. A setting is given as `--set tree.branching=32`,
in a TOML file (`-c settings.toml`, one table a group) or from Python (`lt.Longtail("xr-linear", tree={"branching":
32})`). Later ones win: defaults, then those of the method, of `--preset`, of the file, of `--set`. A setting that the
method does not read is refused, with the methods that read it.

`longtail methods NAME` prints the settings that a method reads as such a file. A second line in the last column says
what methods have in place of the default.
"""
_KINDS = {
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    str: "text",
    dict: "table",
}


def settings_reference() -> str:
    """Return the page: a section a stage, with a table of its settings."""
    defaults = {setting.path: setting for setting in settings(Config())}
    others = _others()
    hints = get_type_hints(Config, include_extras=True)
    stages = {name: _stage(hint) for name, hint in hints.items()}
    top = [name for name, stage in stages.items() if stage is None]
    parts = [_HEAD, "## Of the whole model\n", "\n".join(_table(Config, "", top, defaults, others))]
    for name, stage in stages.items():
        if stage is not None:
            prefix = (
                f"{name}.0." if get_origin(hints[name]) is Annotated else f"{name}."
            )  # a list: its first block
            parts.append(f"\n## {name}\n\n{plain(stage.__doc__)}\n\n{_readers(prefix, stage)}\n")
            parts.append(
                "\n".join(_table(stage, prefix, stage.__struct_fields__, defaults, others))
            )
    return "\n".join(parts) + "\n"


def _readers(prefix: str, stage: type[Stage]) -> str:
    """Return the methods that read all settings of a group, or some of them."""
    fields = [f"{prefix}{field}" for field in stage.__struct_fields__]
    all_of = list[str]()
    some_of = list[str]()
    for name in METHODS:
        read = settings_read(configure(name, None))
        count = sum(is_read(path, read) for path in fields)
        if count == len(fields):
            all_of.append(name)
        elif count:
            some_of.append(name)
    line = f"Read by {_methods(all_of)}." if all_of else "Read by no method as it is."
    if some_of:
        line += f" Some of them are read by {_methods(some_of)}."
    return line


def _stage(hint: Any) -> type[Stage] | None:
    """Return the Struct of a group of settings, also where there may be several of them."""
    inner = hint
    for origin in (Annotated, tuple):
        if get_origin(inner) is origin:
            inner = get_args(inner)[0]
    if isinstance(inner, type) and issubclass(inner, Stage):
        return inner
    return None


def _table(
    stage: type[Stage], prefix: str, fields: Any, defaults: Any, others: dict[str, str]
) -> Iterator[str]:
    hints = get_type_hints(stage, include_extras=True)
    yield from ("| setting | values | default | |", "|---|---|---|---|")
    for field in fields:
        path = f"{prefix}{field}"
        default = defaults[path]
        what = plain(default.doc) + (f"<br>{others[path]}" if path in others else "")
        yield f"| `{path}` | {values(hints[field])} | {_toml(default.value)} | {what} |"


def _others() -> dict[str, str]:
    """Return, by path, the methods whose settings are not the defaults, with what they have."""
    defaults = {setting.path: setting.value for setting in settings(Config())}
    changes: dict[str, dict[str, list[str]]] = {}
    for name in METHODS:
        for path, value, _ in settings(configure(name, None)):
            if path in defaults and path != "method" and value != defaults[path]:
                changes.setdefault(path, {}).setdefault(_toml(value), []).append(name)
    return {
        path: "; ".join(f"{value}: {_methods(names)}" for value, names in by.items())
        for path, by in changes.items()
    }


def _methods(names: list[str]) -> str:
    if len(names) == len(METHODS):
        return "all methods"
    return ", ".join(names)


def values(hint: Any) -> str:
    """Return in words what a field may be: its choices, or its kind and range."""
    inner, metas = (
        (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
    )
    if get_origin(inner) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(inner))
    if get_origin(inner) is dict:
        return _KINDS[dict]
    if get_origin(inner) is tuple:
        return f"list of: {values(get_args(inner)[0])}"
    bounds = ", ".join(_bounds([meta for meta in metas if isinstance(meta, Meta)]))
    return f"{_KINDS[inner]} {bounds}".rstrip()


def _bounds(metas: list[Meta]) -> Iterator[str]:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    for name, sign in signs.items():
        for bound in (getattr(meta, name) for meta in metas if getattr(meta, name) is not None):
            if bound not in (sys.float_info.max, 2**63 - 1):  # as large as it can be written
                yield f"{sign} {bound}"


def _toml(value: Any) -> str:
    return f"`{msgspec.json.encode(value).decode()}`"


if __name__ == "__main__":
    sys.stdout.write(settings_reference())
