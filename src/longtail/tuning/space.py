"""What is searched over: settings by their paths, each with a range or some choices."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from longtail.config import ENCODER_KINDS, Config, expected_of, read_toml, settings, toml_value
from longtail.errors import ConfigError, UsageError, unknown_name
from longtail.methods import METHODS, is_read, network_of, settings_read, unread_message
from longtail.methods.family import around
from longtail.rankers import ranker_family

__all__ = [
    "Choice",
    "Dimension",
    "Range",
    "check_space",
    "default_space",
    "parse_dimension",
    "read_space",
]


class Range(msgspec.Struct, frozen=True, tag="range"):
    """Numbers from ``low`` to ``high``, both of them included; on a log scale each order of
    magnitude counts alike.
    """

    path: str
    low: float
    high: float
    log: bool = False
    whole: bool = False  # whole numbers alone

    def holds(self, value: Any) -> bool:
        """Tell whether the value is one of these."""
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
        )


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """Some values, which may be of any kind that a setting takes."""

    path: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Tell whether the value is one of these."""
        return self.position(value) >= 0

    def position(self, value: Any) -> int:
        """Return the position of the value in ``values``, −1 for none.

        Lists and tuples are alike, and so are 1 and 1.0.
        """
        plain = [msgspec.json.decode(msgspec.json.encode(one)) for one in (value, *self.values)]
        if plain[0] in plain[1:]:
            return plain[1:].index(plain[0])
        return -1


Dimension: TypeAlias = Range | Choice

_RANGE = re.compile(r"\s*([-+.\deE]+?)\s*\.\.\s*([-+.\deE]+?)\s*(:log)?\s*")


def parse_dimension(text: str) -> Dimension:
    """Return what ``PATH=LOW..HIGH``, ``PATH=LOW..HIGH:log`` or ``PATH=a,b,c`` stands for."""
    path, equals, values = text.partition("=")
    if not equals or not path.strip():
        raise UsageError(
            f"--search {text!r}; expected PATH=LOW..HIGH[:log] or PATH=A,B,C, "
            "such as tree.branching=8,16"
        )
    return _dimension(path.strip(), values)


def _dimension(path: str, values: str) -> Dimension:
    if ends := _RANGE.fullmatch(values):
        try:
            return Range(path, float(ends[1]), float(ends[2]), bool(ends[3]))
        except ValueError:
            raise ConfigError(
                f"{path}: found {values!r}; expected two numbers, such as 0.1..10:log"
            ) from None
    try:
        choices = tomllib.loads(f"values = [{values}]")["values"]
    except (ValueError, RecursionError):  # strings without quotes: of «8,x» it is x that is wrong
        choices = [toml_value(value) for value in values.split(",")]
    return Choice(path, tuple(choices))


def read_space(path: Path | str) -> list[Dimension]:
    """Return the space of a TOML file, in tables as the settings are: "LOW..HIGH[:log]", or a list
    of choices.
    """
    return list(_leaves(read_toml(path), ""))


def _leaves(table: Mapping[str, Any], prefix: str) -> Iterator[Dimension]:
    for name, value in table.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}.")
        elif isinstance(value, str) and _RANGE.fullmatch(value):
            yield _dimension(path, value)
        elif isinstance(value, list) and not any(isinstance(item, Mapping) for item in value):
            yield Choice(path, tuple(value))
        else:
            way_out = 'expected "LOW..HIGH", "LOW..HIGH:log" or a list of choices'
            raise ConfigError(
                f"{path}: found {value!r}; {way_out}; blocks of tf-idf are [tfidf.0] here"
            )


def check_space(space: Sequence[Dimension], config: Config) -> list[Dimension]:
    """Return the space, the last of two dimensions of one path, with ranges of whole numbers where
    settings are.

    Refused are paths that are no settings or that the method does not read, values that a setting
    cannot have, and what leaves nothing to choose."""
    known = {setting.path for setting in settings(config)} - {"method"}
    names = settings_read(config)
    if not space:
        raise UsageError(
            "found nothing to search over; give --search PATH=LOW..HIGH or --space FILE.toml"
        )
    for dimension in space:
        if dimension.path not in known:
            raise ConfigError(unknown_name("setting", dimension.path, known))
        if not is_read(dimension.path, names):
            raise ConfigError(unread_message(dimension.path, config))
    return [
        _checked(dimension)
        for dimension in {dimension.path: dimension for dimension in space}.values()
    ]


def _checked(dimension: Dimension) -> Dimension:
    hint = _type_of(dimension.path)
    if isinstance(dimension, Choice):
        for value in dimension.values:
            _check_value(dimension.path, value, hint)
        if len({msgspec.json.encode(value) for value in dimension.values}) < 2:
            raise ConfigError(
                f"{dimension.path}: found one choice; expected two or more, or --set for one value"
            )
        return dimension
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    shown = f"{dimension.low:g}..{dimension.high:g}"
    if kind not in (int, float):
        raise ConfigError(
            f"{dimension.path}: found {shown}; expected a list of choices, as it is no number"
        )
    if not dimension.low < dimension.high or (dimension.log and dimension.low <= 0):
        raise ConfigError(
            f"{dimension.path}: found {shown}; expected LOW below HIGH, and above 0 on a log scale"
        )
    for end in (dimension.low, dimension.high):
        _check_value(dimension.path, int(end) if kind is int and end == int(end) else end, hint)
    return msgspec.structs.replace(dimension, whole=kind is int)


def _type_of(path: str) -> Any:
    if path == "encoder.kind":  # a string to the settings, as packages register kinds
        return Literal[tuple(ENCODER_KINDS)]
    hint: Any = Config
    for part in path.split("."):
        bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if part.isdecimal():
            hint = get_args(bare)[0]
        else:
            hint = get_type_hints(bare, include_extras=True)[part]
    return hint


def _check_value(path: str, value: Any, hint: Any) -> None:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        message = str(error).partition(" - at `$")[0]
        bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        expected = expected_of(message, bare) or message
        raise ConfigError(f"{path}: found {value!r}; {expected}") from None


def default_space(config: Config, reads_text: bool = True) -> list[Dimension]:
    """Return what is worth searching over in this method: first costs or rates, then features and
    tree.
    """
    network = network_of(config)
    if network is not None:
        rates = ("encoder_rate", "head_rate")
        names = [around(f"training.{rate}", getattr(config.training, rate)) for rate in rates]
        names += network.tuning_space(config)
    else:
        settings_of_method = METHODS[config.method].settings
        names = [*ranker_family(config).tuning_space(config, settings_of_method)]
    if reads_text and network is None and config.features != "dnn":
        names += ["tfidf.0.ngram_max=1,2", "tfidf.0.min_df=1,2"]
    return [parse_dimension(name) for name in names]
