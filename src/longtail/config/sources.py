"""The settings: one frozen Struct a stage, each field with its range and its one line of documentation.

Later sources win: field defaults < method < preset < TOML file < ``--set a.b=c``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from longtail.errors import ConfigError, UsageError, unknown_name

__all__ = [
    "Calibration",
    "Config",
    "LabelFeatures",
    "Ranker",
    "Search",
    "Setting",
    "TfIdf",
    "Tree",
    "merge",
    "parse_assignment",
    "read_toml",
    "resolve",
    "settings",
    "to_toml",
]

Count = Annotated[int, Meta(ge=1)]
# the upper end keeps out inf, which TOML can write and JSON cannot
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
NotNegative = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every group of settings."""


class TfIdf(Stage, frozen=True):
    """One block of text features; several blocks stand side by side, each normalised and weighted."""

    unit: Annotated[Literal["word", "char"], Meta(description="count words or characters")] = "word"
    ngram_min: Annotated[Count, Meta(description="shortest n-gram, in units")] = 1
    ngram_max: Annotated[Count, Meta(description="longest n-gram, in units")] = 1
    min_df: Annotated[Count, Meta(description="leave out n-grams in fewer documents than this")] = 1
    max_df: Annotated[float, Meta(gt=0, le=1, description="leave out n-grams in a larger share of documents")] = 1.0
    max_features: Annotated[int, Meta(ge=0, description="keep this many of the most frequent n-grams; 0 = all")] = 0
    sublinear_tf: Annotated[bool, Meta(description="use 1 + ln tf in place of tf")] = False
    weight: Annotated[Positive, Meta(description="weight of this block beside the others")] = 1.0

    def __post_init__(self) -> None:
        if self.ngram_min > self.ngram_max:
            raise ValueError(f"ngram_min: found {self.ngram_min}; expected at most ngram_max ({self.ngram_max})")


class LabelFeatures(Stage, frozen=True):
    """What a label looks like to the clustering."""

    kind: Annotated[
        Literal["pifa", "text", "pifa+text"],
        Meta(description="mean of its documents' features, features of its own text, or both side by side"),
    ] = "pifa"


class Tree(Stage, frozen=True):
    """The label tree."""

    kind: Annotated[
        Literal["balanced", "unbalanced", "random", "frequency"],
        Meta(description="balanced or free k-means, or a tree without features for comparison"),
    ] = "balanced"
    branching: Annotated[int, Meta(ge=2, description="children of an inner node")] = 16
    leaf_size: Annotated[Count, Meta(description="most labels under one last inner node")] = 100
    levels: Annotated[
        tuple[Count, ...], Meta(description="nodes on each level, coarse to fine; empty = branching")
    ] = ()
    max_depth: Annotated[Count, Meta(description="most levels above the labels where k-means is unbalanced")] = 3
    sample: Annotated[
        int, Meta(ge=0, description="k-means of a node looks at this many labels, the others join; 0 = all")
    ] = 16384
    max_iterations: Annotated[Count, Meta(description="most k-means rounds a node")] = 20
    min_gain: Annotated[NotNegative, Meta(description="stop k-means below this gain of mean similarity")] = 1e-5

    def __post_init__(self) -> None:
        if any(coarse >= fine for coarse, fine in pairwise(self.levels)):
            raise ValueError(f"levels: found {list(self.levels)}; expected rising numbers, coarse to fine")


class Ranker(Stage, frozen=True):
    """The linear classifiers on the nodes of every level."""

    loss: Annotated[Literal["squared-hinge", "logistic"], Meta(description="loss of each classifier")] = "squared-hinge"
    cost_positive: Annotated[Positive, Meta(description="C of a positive document (Cp)")] = 1.0
    cost_negative: Annotated[Positive, Meta(description="C of a negative document (Cn)")] = 1.0
    cost_sensitive: Annotated[bool, Meta(description="weight positives by how many labels lie below the node")] = False
    alpha: Annotated[
        Positive, Meta(description="relevance of negatives beside the positives' shares, if cost_sensitive")
    ] = 1.0
    negatives: Annotated[
        Literal["tfn", "man", "tfn+man"],
        Meta(description="documents whose true parent is the node, those the level above puts there, or both"),
    ] = "tfn"
    bias: Annotated[NotNegative, Meta(description="value of the constant feature; 0 = none")] = 1.0
    tolerance: Annotated[Positive, Meta(description="stop when the projected gradients lie within this (ε)")] = 0.1
    max_passes: Annotated[Count, Meta(description="most passes over a node's documents")] = 100
    prune: Annotated[NotNegative, Meta(description="drop weights smaller than this")] = 0.1
    weights: Annotated[
        Literal["float32", "float16", "int8"], Meta(description="how weights are stored and searched")
    ] = "float16"
    trees: Annotated[Count, Meta(description="trees in the ensemble, scores averaged")] = 1


class Search(Stage, frozen=True):
    """How the tree is searched for one document."""

    beam_size: Annotated[Count, Meta(description="nodes kept on each level")] = 10
    score: Annotated[
        Literal["hinge-2", "hinge-3", "sigmoid"],
        Meta(description="value of a margin v along the path: exp(−max(0, 1−v)^p) or σ(v)"),
    ] = "hinge-3"
    exact: Annotated[bool, Meta(description="the exact best labels, in place of those that a beam finds")] = False


class Calibration(Stage, frozen=True):
    """How scores become probabilities."""

    method: Annotated[
        Literal["isotonic", "logistic", "none"], Meta(description="map from scores to probabilities, or none")
    ] = "isotonic"
    share: Annotated[
        float, Meta(ge=0, le=0.5, description="share of the documents held out for it where no --valid is given")
    ] = 0.02
    max_documents: Annotated[Count, Meta(description="most documents held out")] = 500


class Config(Stage, frozen=True):
    """Everything that decides a model, resolved; its hash is part of the model folder."""

    method: Annotated[str, Meta(description="name in the catalogue of methods")] = "xr-linear"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="same seed, settings and data = same bytes")] = 0
    tfidf: Annotated[tuple[TfIdf, ...], Meta(min_length=1, description="blocks of text features")] = (TfIdf(),)
    label_features: LabelFeatures = LabelFeatures()
    tree: Tree = Tree()
    ranker: Ranker = Ranker()
    search: Search = Search()
    calibration: Calibration = Calibration()


class Setting(NamedTuple):
    """One leaf of the config: dotted path, value, and its documentation."""

    path: str
    value: Any
    doc: str


def settings(config: Stage, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of ``config`` with its dotted path, e.g. ``tree.branching`` or ``tfidf.0.min_df``."""
    hints = get_type_hints(type(config), include_extras=True)
    for name in config.__struct_fields__:
        value, path = getattr(config, name), f"{prefix}{name}"
        if isinstance(value, Stage):
            yield from settings(value, f"{path}.")
        elif value and isinstance(value, tuple) and isinstance(value[0], Stage):
            for position, part in enumerate(value):
                yield from settings(part, f"{path}.{position}.")
        else:
            yield Setting(path, value, _description(hints[name]))


def _description(hint: Any) -> str:
    metas = [meta for meta in get_args(hint)[1:] if isinstance(meta, Meta)] if get_origin(hint) is Annotated else []
    return next((meta.description for meta in reversed(metas) if meta.description), "")


def resolve(*sources: Mapping[str, Any]) -> Config:
    """Return the config of several nested mappings, later ones winning; every value is validated."""
    merged: dict[str, Any] = msgspec.to_builtins(Config())
    for source in sources:
        merged = merge(merged, source, "")
    try:
        return msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_wrong_value(str(error), merged)) from None


_WORDS = {"int": "a whole number", "float": "a number", "str": "a string", "bool": "true or false"}
_WORDS |= {"array": "a list", "object": "a table of settings"}


def _wrong_value(error: str, merged: Any) -> str:
    """Return «PATH: found VALUE; expected WHAT» for what msgspec says of the value at ``$.path``."""
    what, at, place = error.rpartition(" - at `$")  # the last one: what was found may hold another
    what, place = (what, place) if at else (error, "")
    parts = re.findall(r"\w+", place)
    value, hint = merged, Config
    for part in parts:
        value, hint = (value[int(part)], get_args(hint)[0]) if part.isdecimal() else (value[part], _hint(hint, part))
    if what.startswith("Invalid enum value"):
        what = f"Expected one of {', '.join(get_args(hint))}"
    if not what.startswith("Expected "):
        return ".".join([*parts, what])  # a ValueError of __post_init__, which begins with the field
    expected = re.sub("`(.*?)`", lambda word: _WORDS.get(word[1], word[1]), what.partition(", got")[0])
    return f"{'.'.join(parts)}: found {value!r}; e{expected[1:]}"


def _hint(stage: Any, field: str) -> Any:
    return get_type_hints(stage)[field]


def merge(base: Any, over: Any, path: str) -> Any:
    """Return ``base`` with the values of ``over``; every key must be one that ``base`` has."""
    if isinstance(base, dict):
        if not isinstance(over, Mapping):  # at once, for a later source could put anything into what is no group
            raise ConfigError(f"{path[:-1]}: found {over!r}; expected a table of settings")
        for key in over:
            if key not in base:
                known = [setting.path for setting in settings(Config())] + list(Config.__struct_fields__)
                raise ConfigError(unknown_name("setting", f"{path}{key}", {*known, *(f"{path}{k}" for k in base)}))
        return {key: merge(base[key], over[key], f"{path}{key}.") if key in over else base[key] for key in base}
    if isinstance(base, list | tuple) and isinstance(over, Mapping):  # tfidf.0.min_df=2
        return _merge_items(list(base), over, path)
    if path == "tfidf." and isinstance(over, list | tuple):  # [[tfidf]] tables stand for all blocks, each from scratch
        return [merge(msgspec.to_builtins(TfIdf()), block, f"{path}{at}.") for at, block in enumerate(over)]
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
    """Return ``a.b=c`` as a nested mapping; ``c`` is read as a TOML value, else as a bare string."""
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"--set {assignment!r}; expected PATH=VALUE such as tree.branching=32")
    try:
        assignment.encode()
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except UnicodeEncodeError:  # bytes of the shell
        raise UsageError(f"--set {assignment!r}; expected UTF-8") from None
    except (ValueError, RecursionError):
        value = text.strip()
    for part in reversed(path.strip().split(".")):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested


def read_toml(path: Path | str) -> dict[str, Any]:
    """Return the settings of a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (ValueError, RecursionError, OSError) as error:  # ValueError: not TOML, not UTF-8, a number too long
        raise ConfigError(f"{path}: not a TOML file ({error})") from None


def to_toml(config: Config) -> str:
    """Return the config as TOML, every setting with its documentation: a file for ``-c`` to start from."""
    out, section = [], ""
    for setting in settings(config):
        head, _, key = setting.path.rpartition(".")
        if head != section:
            section = head
            table = head.partition(".")[0]
            out.append(f"\n[[{table}]]" if head != table else f"\n[{table}]")
        out.append(f"{key} = {_toml_value(setting.value)}  # {setting.doc}")
    return "\n".join(out) + "\n"


def _toml_value(value: Any) -> str:
    # JSON and TOML agree on strings, numbers, booleans and lists of them
    return msgspec.json.encode(value).decode()
