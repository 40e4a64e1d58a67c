"""The shape of the encoder that a run will read its documents with."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from longtail.config import Config
from longtail.errors import LongtailError
from longtail.features.encoder_folder import (
    EncoderShape,
    encoder_folder,
    encoder_shape,
    names_folder,
)
from longtail.forecast.sizes import DataSizes
from longtail.networks.layout import LSTM_HIDDEN, TWO_LAYERS

__all__ = ["WORD_BYTES", "known_shapes", "shape_of"]

WORD_BYTES = 7.0  # a word of a text, with the space behind it
_WORDS = 40.0  # different ones in a text of n words: these times √n


def shape_of(sizes: DataSizes, config: Config, *, known: bool = False) -> EncoderShape:
    """Return the shape of the encoder; one on vectors of words is mostly these, by Heaps' law for
    their number.

    With ``known`` an encoder whose files are not there has the shape that its name is known for.
    """
    settings = config.encoder
    if settings.kind == "transformer":
        return _transformer(settings.name, known)
    if names_folder(settings.name):
        pretrained = _transformer(settings.name, known)
        width = pretrained.width
        vocabulary = pretrained.vocabulary
    else:
        words = sizes.text_lengths.sum / WORD_BYTES
        width = settings.width
        vocabulary = int(_WORDS * words**0.5) + 1
    if settings.kind == "lstm":  # four gates of a state, in both directions
        state = 2 * LSTM_HIDDEN
        return EncoderShape(
            state, 1, 1, state, vocabulary, vocabulary * width + 4 * state * (width + LSTM_HIDDEN)
        )
    depth = 2 if settings.kind in TWO_LAYERS else 1
    parameters = vocabulary * width + 8 * width * width
    return EncoderShape(width, depth, 1, 2 * width, vocabulary, parameters)


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
