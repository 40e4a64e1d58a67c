"""A tiny BERT with random weights and a vocabulary of its own, as a folder: all that a network
needs, in no time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig

import longtail as lt
from longtail.features.encoder import Encoder

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def tokenizer_of(texts: Iterable[str], vocabulary: int = 200) -> Tokenizer:
    """Return a WordPiece tokeniser with [CLS] before and [SEP] behind: all letters, and the most
    frequent words.

    It is not trained, as a trainer breaks ties between pieces in another way in each process.
    """
    normaliser = normalizers.BertNormalizer()
    splitter = pre_tokenizers.BertPreTokenizer()
    words = Counter(
        word
        for text in texts
        for word, _ in splitter.pre_tokenize_str(normaliser.normalize_str(text))
    )
    letters = sorted({letter for word in words for letter in word})
    frequent = sorted(words, key=lambda word: (-words[word], word))
    pieces = dict.fromkeys([*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *frequent])
    numbered = {piece: number for number, piece in enumerate(islice(pieces, vocabulary))}
    made = Tokenizer(models.WordPiece(numbered, unk_token="[UNK]"))
    made.normalizer = normaliser
    made.pre_tokenizer = splitter
    ends = [("[CLS]", numbered["[CLS]"]), ("[SEP]", numbered["[SEP]"])]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return made


def write_encoder(
    folder: Path,
    texts: Iterable[str],
    *,
    width: int = 16,
    depth: int = 3,
    vocabulary: int = 200,
    seed: int = 0,
) -> Path:
    """Write config.json, model.safetensors and the tokeniser's files; dropout inside is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_of(texts, vocabulary).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"pad_token": "[PAD]", "cls_token": "[CLS]"})
    )
    tiny_encoder(width, depth, vocabulary, seed).save(folder)
    return folder


def write_sample(folder: Path, n_train: int, n_test: int, *, width: int) -> Path:
    """Write train.jsonl and test.jsonl, the first documents of the bundled sample, and encoder/ for
    their words.
    """
    train, test = lt.sample()
    train = train.take(np.arange(n_train))
    lt.write(train, folder / "train.jsonl")
    lt.write(test.take(np.arange(n_test)), folder / "test.jsonl")
    write_encoder(folder / "encoder", train.texts, width=width, vocabulary=1000)
    return folder


def tiny_encoder(width: int = 16, depth: int = 3, vocabulary: int = 200, seed: int = 0) -> Encoder:
    """Return the encoder alone; its weights are wide, so that each token is felt in the vectors."""
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=2,
        intermediate_size=2 * width,
        vocab_size=vocabulary,
        max_position_embeddings=128,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return Encoder.from_config(config, seed=seed)
