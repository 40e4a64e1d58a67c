"""Vectors of words that others have learnt: files of GloVe or word2vec as text, and the token
vectors of an encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from longtail.data.lines import blocks
from longtail.data.problems import Problems, quoted
from longtail.errors import UsageError, printable
from longtail.features.encoder_folder import check_folder
from longtail.reporting import stage

__all__ = ["minilm_vectors", "read_word_vectors"]

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
