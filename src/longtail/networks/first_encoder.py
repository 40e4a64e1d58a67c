"""The encoder that a network begins with, and its tokeniser: pretrained, or on vectors of words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.config import Encoder as Settings
from longtail.data.dataset import Dataset
from longtail.features.encoder import Encoder, encoder_folder
from longtail.features.encoder_folder import is_pretrained, names_folder
from longtail.features.encoder_search import find_word_vectors
from longtail.features.tokens import Cleaning, Tokeniser, Tokens
from longtail.features.word_tokens import idf_of, word_tokeniser, words_of
from longtail.features.word_vectors import minilm_vectors, read_word_vectors
from longtail.methods.registry import encoder_kind
from longtail.networks.encoders.word_encoder import MODEL_TYPE, WordEncoder, make_word_encoder

__all__ = ["cleaning_of", "first_encoder", "load_text_encoder", "tokeniser_for"]


def tokeniser_for(documents: Dataset, settings: Settings) -> Tokeniser:
    """Return the tokeniser of a pretrained encoder, else one of the words of documents and labels."""
    if is_pretrained(settings.kind, settings.name):
        folder = encoder_folder(settings.name)
        return Tokeniser.load(folder, settings.max_tokens, cleaning_of(settings))
    texts = documents.document_texts(), documents.labels.described()
    return word_tokeniser(texts, settings.max_tokens, settings.min_count)


def cleaning_of(settings: Settings) -> Cleaning:
    """Return how a transformer's tokeniser cleans texts; words are read as they are."""
    if encoder_kind(settings.kind).reads_words:
        return "none"
    return settings.cleaning


def first_encoder(
    tokeniser: Tokeniser, tokens: Tokens, settings: Settings, seed: int
) -> Encoder | WordEncoder:
    """Return the encoder that training begins with; ``tokens`` are those of all documents."""
    if not encoder_kind(settings.kind).reads_words:
        return Encoder.load(encoder_folder(settings.name), settings.pooling)
    vectors = _word_vectors(tokeniser, settings, seed)
    idf = idf_of(tokens, len(vectors))
    return make_word_encoder(settings.kind, vectors, idf, tokeniser.pad, settings.max_tokens, seed)


def _word_vectors(tokeniser: Tokeniser, settings: Settings, seed: int) -> NDArray[np.float32]:
    """Return (V, D): those of a pretrained encoder or a file; what it does not have, words or
    numbers, by chance.
    """
    if names_folder(settings.name):
        return minilm_vectors(encoder_folder(settings.name))
    words = words_of(tokeniser)
    if settings.name == "learned":
        vectors = np.zeros((len(words), settings.width), np.float32)
        known = np.zeros(len(words), bool)
    else:
        vectors, known = read_word_vectors(find_word_vectors(settings.name) or settings.name, words)
    scale = float(vectors[known].std()) if known.any() else settings.width**-0.5
    read = vectors.shape[1]
    drawn = (
        np.random.default_rng(seed)
        .normal(0, scale, (len(words), max(read, settings.width)))
        .astype(np.float32)
    )
    drawn[known, :read] = vectors[known]
    drawn[tokeniser.pad] = 0
    return drawn


def load_text_encoder(folder: Path, settings: Settings) -> Encoder | WordEncoder:
    """Read the encoder of a model folder."""
    try:
        about = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        about = {}
    if isinstance(about, dict) and about.get("model_type") == MODEL_TYPE:
        return WordEncoder.load(folder)
    return Encoder.load(folder, settings.pooling)
