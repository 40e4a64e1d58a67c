"""A vocabulary of whole words, made from texts: the tokeniser of encoders that learn a vector for
each word.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from longtail.data.strings import Strings
from longtail.features.tokens import Tokeniser, Tokens
from longtail.reporting import advance, stage

__all__ = ["idf_of", "word_tokeniser", "words_of"]

# 0 and 1; in capitals and brackets, so that no text has them as words
_PAD = "[PAD]"
_UNKNOWN = "[UNK]"
_TEXTS = 4096  # counted at a time
_DOCUMENTS = 1 << 18  # whose words are counted at a time


def word_tokeniser(
    texts: Iterable[Strings | Sequence[str]], max_tokens: int, min_count: int
) -> Tokeniser:
    """Return a tokeniser of the words that occur ``min_count`` times or more in all of ``texts``
    together.

    The most frequent word comes first, ties in the words' own order. Case is folded and accents are
    kept; punctuation is split off sign by sign, as BERT does."""
    counts = _counted(texts)
    kept = sorted(
        (word for word in counts if counts[word] >= min_count),
        key=lambda word: (-counts[word], word),
    )
    made = _splitter({word: number for number, word in enumerate([_PAD, _UNKNOWN, *kept])})
    about = {"pad_token": _PAD, "unk_token": _UNKNOWN, "tokenizer_class": "PreTrainedTokenizerFast"}
    files = {
        "tokenizer.json": made.to_str().encode(),
        "tokenizer_config.json": json.dumps(about).encode(),
    }
    return Tokeniser(files, max_tokens, "words of the texts")


def words_of(tokeniser: Tokeniser) -> list[str]:
    """Return the tokens in the order of their ids, "" where an id has none."""
    numbered = tokeniser._backend.get_vocab()
    words = [""] * (max(numbered.values()) + 1)
    for word, number in numbered.items():
        words[number] = word
    return words


def idf_of(tokens: Tokens, n_words: int) -> NDArray[np.float32]:
    """Return ln((1 + N) / (1 + df)) + 1 of each word (n_words,), of N documents df with the word; 0
    for padding.
    """
    df = np.zeros(n_words, np.int64)
    for first in range(0, len(tokens), _DOCUMENTS):
        ends = tokens.ends[first : first + _DOCUMENTS + 1]
        ids = tokens.ids[ends[0] : ends[-1]].astype(np.int64)
        rows = csr_matrix(
            (np.ones(len(ids), np.int8), ids, ends - ends[0]), shape=(len(ends) - 1, n_words)
        )
        rows.sum_duplicates()
        df += np.bincount(rows.indices, minlength=n_words)
    idf = np.log((1 + len(tokens)) / (1 + df)) + 1
    idf[tokens.pad] = 0
    return idf.astype(np.float32)


def _splitter(numbered: dict[str, int]) -> Tokenizer:
    made = Tokenizer(models.WordLevel(numbered, unk_token=_UNKNOWN))
    bert = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=True
    )
    made.normalizer = normalizers.Sequence([normalizers.NFC(), bert])
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def _counted(texts: Iterable[Strings | Sequence[str]]) -> Counter[str]:
    """Return how often each word occurs.

    Words end at spaces at the latest, so what stands between two spaces is counted first, and split
    once."""
    runs = Counter[str]()
    words = Counter[str]()
    with stage("words", None, "texts"):
        for part in texts:
            for block in _blocks(part):
                runs.update(" ".join(block).split(" "))
                advance(len(block))
    made = _splitter({})
    for run, count in runs.items():
        for word in _split(made, run):
            words[word] += count
    return words


def _split(made: Tokenizer, run: str) -> list[str]:
    if run.isascii() and run.isalnum():  # most: the library takes longer
        return [run.lower()]
    normal = made.normalizer.normalize_str(run)
    return [word for word, _ in made.pre_tokenizer.pre_tokenize_str(normal)]


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while block := list(islice(remaining, _TEXTS)):
        yield block
