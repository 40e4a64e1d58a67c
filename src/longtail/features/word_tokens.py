"""A vocabulary of whole words, made from texts: the tokeniser of encoders that learn a vector for
each word; and pretrained vectors of words: files of GloVe or word2vec as text, and the token
vectors of an encoder.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from scipy.sparse import csr_matrix
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from longtail.data.lines import blocks
from longtail.data.problems import Problems, quoted
from longtail.data.strings import Strings
from longtail.errors import UsageError, printable
from longtail.features.encoder_folder import check_folder
from longtail.features.tokens import Tokeniser, Tokens
from longtail.reporting import advance, stage

__all__ = ["idf_of", "minilm_vectors", "read_word_vectors", "word_tokeniser", "words_of"]

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


# Pretrained vectors of words

# as BERT and its kin, T5 and newer ones, XLNet and DistilBERT, GPT-2 call their token vectors
_KEYS = ("word_embeddings.weight", "embed_tokens.weight", "word_embedding.weight", "wte.weight")
_LARGEST = float(np.finfo(np.float32).max)


def read_word_vectors(
    path: Path | str, words: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the vectors (len(words), D) of ``words``, and which of them the file has; the others
    are zeros.

    A line is a word and its D numbers, space between them; word2vec has «count D» as a line above.
    Of two lines with the same word the first counts."""
    problems = Problems(path)
    rows = {word.encode(): row for row, word in reversed(list(enumerate(words))) if word}
    has_vector = np.zeros(len(words), np.bool_)
    vectors: NDArray[np.float32] | None = None
    size = None
    if Path(path).is_file():
        size = Path(path).stat().st_size
    with stage(f"reading {Path(path).name}", size, "B"):
        for number, word, line, dimensions in _vector_lines(path, problems):
            if vectors is None:  # only now: a first line may promise any number of dimensions
                vectors = np.zeros((len(words), dimensions), np.float32)
            row = rows.get(word, -1)
            if row < 0 or has_vector[row]:
                continue
            vector = _numbers(line, dimensions, number, problems)
            if vector is not None:
                vectors[row] = vector
                has_vector[row] = True
    problems.close()
    if vectors is None:
        problems.fatal(
            "no vectors", "lines of a word and its numbers, as GloVe and word2vec have them"
        )
    return vectors, has_vector


def minilm_vectors(folder: Path) -> NDArray[np.float32]:
    """Return the token vectors (V, D) of an encoder's folder in the layout of Hugging Face, and
    read nothing else.
    """
    shown = f"encoder {printable(str(folder))!r}"
    check_folder(folder, shown)
    try:
        for file in sorted(folder.glob("model*.safetensors")):
            with safe_open(str(file), framework="np") as weights:
                names = [name for name in weights.keys() if name.endswith(_KEYS)]  # noqa: SIM118
                if names:
                    return _matrix(weights.get_tensor(min(names, key=len)), names[0], shown)
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        # TypeError: bfloat16, which numpy lacks
        reason = printable(str(error).strip().partition("\n")[0])
        expected = "whole files of float32 or float16; take a whole copy, or convert it"
        raise UsageError(
            f"{shown}: its weights cannot be read: {reason}; expected {expected}"
        ) from error
    raise UsageError(
        f"{shown}: found no vectors of tokens; expected weights named …{' or …'.join(_KEYS)}"
    )


def _matrix(array: NDArray[Any], name: str, shown: str) -> NDArray[np.float32]:
    if array.ndim != 2:
        problem = f"found {array.ndim} dimensions in {name}"
        raise UsageError(f"{shown}: {problem}; expected 2, tokens and their numbers")
    return np.ascontiguousarray(array, np.float32)


def _vector_lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, bytes, bytes, int]]:
    """Yield (line number, word, line, D) of the lines with D numbers or more; the others are
    reported.
    """
    dimensions = 0
    for block in blocks(path, problems):
        for number, raw in enumerate(block.data.split(b"\n")[:-1], block.first_line):
            line = raw.rstrip(b" \r\t")
            spaces = line.count(b" ")
            if not dimensions:
                dimensions, is_header = _first_line(line, number, problems)
                if is_header:
                    continue
            if spaces == dimensions:
                yield number, line[: line.index(b" ")], line, dimensions
            elif spaces > dimensions:  # a few words of GloVe have spaces in them
                yield number, line.rsplit(b" ", dimensions)[0], line, dimensions
            elif line:
                _check_text(line, number, problems)
                problems.add(number, f"{spaces} numbers", f"a word and {dimensions} numbers")


def _check_text(line: bytes, number: int, problems: Problems) -> None:
    """Refuse the whole file where a line is no text: word2vec's binary form would be wrong in every
    one.
    """
    try:
        line.decode()
    except UnicodeDecodeError:
        problems.fatal(
            "bytes that are no text", "text; convert word2vec's binary form to it first", number
        )


def _first_line(line: bytes, number: int, problems: Problems) -> tuple[int, bool]:
    """Return D, and whether the line is word2vec's «count D» rather than a vector."""
    fields = line.split(b" ")
    if len(fields) == 2 and all(field.isdigit() for field in fields) and int(fields[1]) > 0:
        return int(fields[1]), True
    if len(fields) < 2:
        problems.fatal(
            quoted(line), "a word and its numbers, or word2vec's count and dimensions", number
        )
    return len(fields) - 1, False


def _numbers(
    line: bytes, dimensions: int, number: int, problems: Problems
) -> NDArray[np.float32] | None:
    fields = line.rsplit(b" ", dimensions)[1:]
    try:
        row = np.array(list(map(float, fields)))
    except ValueError:
        row = np.array(list(map(_number, fields)))
    if np.abs(row).max() <= _LARGEST:  # which no NaN is
        return row.astype(np.float32)
    bad = fields[int(np.argmin(np.abs(row) <= _LARGEST))]
    problems.add(number, quoted(bad), f"a word and {dimensions} numbers, all finite")
    return None


def _number(field: bytes) -> float:
    try:
        return float(field)
    except ValueError:
        return np.nan
