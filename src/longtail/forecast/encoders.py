"""The shape of the encoder that a run will read its documents with."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import cast

from longtail.config import Config
from longtail.errors import LongtailError
from longtail.features.encoder_folder import (
    EncoderShape,
    encoder_folder,
    encoder_shape,
    names_folder,
)
from longtail.forecast.sizes import DataSizes
from longtail.methods import encoder_of
from longtail.networks.encoders.kinds import WordEncoderKind

__all__ = ["known_shapes", "shape_of"]

_WORDS = 40.0  # different ones in a text of n words: these times √n


def shape_of(sizes: DataSizes, config: Config, *, known: bool = False) -> EncoderShape:
    """Return the shape of the encoder; one on vectors of words is mostly these, by Heaps' law for
    their number.

    With ``known`` an encoder whose files are not there has the shape that its name is known for.
    """
    settings = config.encoder
    kind = encoder_of(config)
    if not kind.reads_words:
        return _transformer(settings.name, known)
    kind = cast(WordEncoderKind, kind)
    if names_folder(settings.name):
        pretrained = _transformer(settings.name, known)
        return kind.shape(pretrained.vocabulary, pretrained.width)
    vocabulary = int(_WORDS * sizes.all_words**0.5) + 1
    return kind.shape(vocabulary, settings.width)


def _transformer(name: str, known: bool) -> EncoderShape:
    try:
        return encoder_shape(encoder_folder(name))
    except LongtailError:
        shape = known_shapes().get(PurePath(name).name)
        if not known or shape is None:
            raise
        return shape


@cache
def known_shapes() -> dict[str, EncoderShape]:
    """Return the shapes of the encoders that the papers' recipes name."""
    content = tomllib.loads((files("longtail.forecast") / "encoders.toml").read_text("utf-8"))
    return {name: EncoderShape(**numbers) for name, numbers in content.items()}
