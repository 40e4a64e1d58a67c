"""Where settings come from, later ones winning: field defaults < method < preset < TOML file <
``--set a.b=c``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from longtail.config.stage import Stage
from longtail.config.structs import Config, TfIdf
from longtail.errors import ConfigError, UsageError, unknown_name

__all__ = [
    "Setting",
    "SettingsFile",
    "expected_of",
    "file_of",
    "merge",
    "nested",
    "parse_assignment",
    "read_toml",
    "resolve",
    "settings",
    "to_toml",
    "toml_value",
]


# settings of before, and their names of now
_MOVED = {
    "label_text.first_rate": "phases.first_rate",
    "label_text.first_share": "phases.first_share",
    "label_text.phases": "phases.kind",
    "label_text.shortlist": "phases.shortlist",
    "recursive.loss": "training.loss",
}
# settings of before, and the options in their place
_REMOVED = {"training.tensorboard": "--log-to tensorboard[:DIR]"}


class Setting(NamedTuple):
    """One leaf of the config: dotted path, value, and its documentation."""

    path: str
    value: Any
    doc: str


class SettingsFile(dict[str, Any]):
    """The settings of a file, whose name errors about them begin with."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        super().__init__(values)
        self.name = name


def settings(config: Stage, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of ``config`` with its dotted path, e.g. ``tree.branching`` or
    ``tfidf.0.min_df``.
    """
    hints = get_type_hints(type(config), include_extras=True)
    for name in config.__struct_fields__:
        value = getattr(config, name)
        path = f"{prefix}{name}"
        if isinstance(value, Stage):
            yield from settings(value, f"{path}.")
        elif value and isinstance(value, tuple) and isinstance(value[0], Stage):
            for position, part in enumerate(value):
                yield from settings(part, f"{path}.{position}.")
        else:
            yield Setting(path, value, _description(hints[name]))


def _description(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        metas = [meta for meta in get_args(hint)[1:] if isinstance(meta, Meta)]
    else:
        metas = []
    return next((meta.description for meta in reversed(metas) if meta.description), "")


def resolve(*sources: Mapping[str, Any]) -> Config:
    """Return the validated config of several nested mappings; later ones win."""
    merged: dict[str, Any] = msgspec.to_builtins(Config())
    for source in sources:
        try:
            merged = merge(merged, source, "")
        except ConfigError as error:
            raise ConfigError(f"{_file(source)}{error}") from None
    try:
        return msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        message, paths = _wrong_value(str(error), merged)
        raise ConfigError(f"{file_of(sources, *paths)}{message}") from None


def file_of(sources: Iterable[Mapping[str, Any]], *paths: str) -> str:
    """Return «FILE: » where the last of ``sources`` with one of the settings at ``paths`` is a
    file, else "".
    """
    owners = [source for source in sources if any(_has(source, path.split(".")) for path in paths)]
    return _file(owners[-1]) if owners else ""


def _file(source: Mapping[str, Any]) -> str:
    if isinstance(source, SettingsFile):
        return f"{source.name}: "
    return ""


def _has(source: Any, parts: list[str]) -> bool:
    """Tell whether a source sets a setting; blocks and lists are written whole, or by position."""
    if not parts:
        return True
    if isinstance(source, list | tuple):
        source = {str(position): value for position, value in enumerate(source)}
    return isinstance(source, Mapping) and parts[0] in source and _has(source[parts[0]], parts[1:])


_WORDS = {"int": "a whole number", "float": "a number", "str": "a string", "bool": "true or false"}
_WORDS |= {"array": "a list", "object": "a table of settings"}


def _wrong_value(error: str, merged: Any) -> tuple[str, list[str]]:
    """Return «PATH: found VALUE; expected WHAT» for what msgspec says of ``$.path``, and the paths
    that it names.
    """
    # the last " - at `$": the value in the message may hold another
    what, separator, path = error.rpartition(" - at `$")
    if not separator:
        what = error
        path = ""
    parts = re.findall(r"\w+", path)
    value = merged
    hint = Config
    for part in parts:
        value, hint = (
            (value[int(part)], get_args(hint)[0])
            if part.isdecimal()
            else (value[part], _hint(hint, part))
        )
    expected = expected_of(what, hint)
    # a ValueError of __post_init__, which begins with the field and may name another
    if not expected:
        fields = [word for word in re.findall(r"\w+", what) if word in value]
        return ".".join([*parts, what]), [".".join([*parts, field]) for field in fields]
    return f"{'.'.join(parts)}: found {value!r}; {expected}", [".".join(parts)]


def expected_of(message: str, hint: Any) -> str:
    """Return «expected WHAT» for what msgspec says of a value that is none of the type ``hint``; ""
    for other words.
    """
    if message.startswith("Invalid enum value"):
        message = f"Expected one of {', '.join(get_args(hint))}"
    if not message.startswith("Expected "):
        return ""
    expected = message[1:].partition(", got")[0]
    return "e" + re.sub("`(.*?)`", lambda word: _WORDS.get(word[1], word[1]), expected)


def _hint(stage: Any, field: str) -> Any:
    return get_type_hints(stage)[field]


def merge(base: Any, over: Any, path: str) -> Any:
    """Return ``base`` with the values of ``over``; every key must be one that ``base`` has."""
    if path == "custom." and isinstance(over, Mapping):  # checked by the ranker that reads it
        return {**base, **over}
    if isinstance(base, dict):
        # at once, for a later source could put anything into what is no group
        if not isinstance(over, Mapping):
            raise ConfigError(f"{path[:-1]}: found {over!r}; expected a table of settings")
        for key in over:
            if f"{path}{key}" in _MOVED:
                raise ConfigError(f"{path}{key}: is now called {_MOVED[path + key]}; rename it")
            if f"{path}{key}" in _REMOVED:
                raise ConfigError(
                    f"{path}{key}: is no longer a setting; use {_REMOVED[path + key]} instead"
                )
            if key not in base:
                known = [setting.path for setting in settings(Config())] + list(
                    Config.__struct_fields__
                )
                raise ConfigError(
                    unknown_name("setting", f"{path}{key}", {*known, *(f"{path}{k}" for k in base)})
                )
        return {
            key: merge(base[key], over[key], f"{path}{key}.") if key in over else base[key]
            for key in base
        }
    if isinstance(base, list | tuple) and isinstance(over, Mapping):  # tfidf.0.min_df=2
        return _merge_items(list(base), over, path)
    # [[tfidf]] tables stand for all blocks, each from scratch
    if path == "tfidf." and isinstance(over, list | tuple):
        return [
            merge(msgspec.to_builtins(TfIdf()), block, f"{path}{at}.")
            for at, block in enumerate(over)
        ]
    return over


def _merge_items(items: list[Any], over: Mapping[str, Any], path: str) -> list[Any]:
    for key, value in over.items():
        if not key.isdecimal() or len(key) > 9 or int(key) > len(items):
            known = ", ".join(f"{path}{position}" for position in range(len(items) + 1))
            raise ConfigError(f"unknown setting {path + key!r}; expected one of {known}")
        at = int(key)
        fresh = msgspec.to_builtins(TfIdf()) if path == "tfidf." else None
        items[at : at + 1] = [merge(items[at] if at < len(items) else fresh, value, f"{path}{at}.")]
    return items


def parse_assignment(assignment: str) -> dict[str, Any]:
    """Return ``a.b=c`` as a nested mapping; ``c`` is a TOML value, else a bare string."""
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"--set {assignment!r}; expected PATH=VALUE such as tree.branching=32")
    try:
        assignment.encode()
    except UnicodeEncodeError:  # bytes of the shell
        raise UsageError(f"--set {assignment!r}; expected UTF-8") from None
    return nested({path.strip(): toml_value(text)})


def toml_value(text: str) -> Any:
    """Return what ``text`` is in TOML, else itself: a string without quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted path, or groups of them, as the nested mapping that a config is
    made of.
    """
    result: dict[str, Any] = {}
    for path, value in values.items():
        inner = result
        *groups, last = path.split(".")
        for group in groups:
            inner = inner.setdefault(group, {})
        # a copy: the mapping of the caller stays as it is
        inner[last] = dict(value) if isinstance(value, Mapping) else value
    return result


def read_toml(path: Path | str) -> SettingsFile:
    """Return the settings of a TOML file."""
    try:
        return SettingsFile(tomllib.loads(Path(path).read_text("utf-8-sig")), str(path))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder; expected a TOML file of settings") from None
    except (ValueError, RecursionError, OSError) as error:
        # ValueError: not TOML, not UTF-8, a number too long
        raise ConfigError(f"{path}: not a TOML file ({error})") from None


def to_toml(
    config: Config,
    sources: Mapping[str, str] | None = None,
    is_written: Callable[[str], bool] = lambda path: True,
) -> str:
    """Return the config as TOML, every setting with its documentation: a file for ``-c`` to start
    from.

    Args:
        config: resolved settings.
        sources: where values were taken from, by path; written in brackets behind the
            documentation.
        is_written: whether the setting at a path is written.
    """
    known = sources or {}
    out = []
    section = ""
    for setting in settings(config):
        if not is_written(setting.path):
            continue
        head, _, key = setting.path.rpartition(".")
        if head != section:
            section = head
            table = head.partition(".")[0]
            out.append(f"\n[[{table}]]" if head != table else f"\n[{table}]")
        source = f" [{known[setting.path]}]" if setting.path in known else ""
        out.append(f"{key} = {_toml_value(setting.value)}  # {setting.doc}{source}")
    return "\n".join(out) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{name} = {_toml_value(item)}" for name, item in value.items()) + "}"
        )
    # JSON and TOML agree on strings, numbers, booleans and lists of them
    return msgspec.json.encode(value).decode()
