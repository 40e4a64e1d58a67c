"""Token ids of documents, as an encoder's own tokeniser makes them: kept without padding, padded
batch by batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from longtail.data.growing import ArrayBuilder
from longtail.data.strings import Strings
from longtail.errors import ModelFolderError, UsageError, printable
from longtail.reporting import advance, stage

__all__ = ["Tokeniser", "Tokens"]

Cleaning = Literal["none", "attentionxml"]

_BLOCK = 4096  # texts tokenised at a time
_UNKNOWN = "ꙮ"  # a word that few vocabularies have
_CHARACTERS = 6  # a token, somewhat more than European languages have: see _encode
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_OLDER_FILES = (
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
_LINE_BREAKS = re.compile(r"\s*\n\s*")
_SEPARATORS = ("[SEP]", "</s>", "<sep>")
# Their positions count from the padding id + 1 on: RoBERTa has 514 of them for 512 tokens.
_OFFSET_POSITIONS = {
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "mpnet",
    "roberta-prelayernorm",
    "xmod",
}


@dataclass(frozen=True)
class Tokens:
    """Token ids of ``n`` documents, special tokens included, truncated and not padded.

    The document ``i`` has ``ids[ends[i]:ends[i + 1]]``.
    """

    ids: NDArray[np.uint16] | NDArray[np.uint32]
    ends: NDArray[np.int64]  # (n + 1,), from 0 on
    pad: int  # id of the padding token
    pad_left: bool  # where the class token is the last one
    max_tokens: int = 0  # of a document; 0: as many as there are

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each document."""
        return np.diff(self.ends)

    def padded(
        self, rows: NDArray[np.integer], multiple: int = 8
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return ids and mask (True: a token), both (rows, T).

        T is the longest of ``rows``, rounded up to ``multiple`` as far as ``max_tokens`` allows.
        """
        starts = self.ends[rows]
        lengths = self.ends[np.asarray(rows) + 1] - starts
        width = -(-int(lengths.max(initial=0)) // multiple) * multiple
        if self.max_tokens:
            width = min(width, self.max_tokens)
        columns = np.arange(width)
        if self.pad_left:
            mask = columns >= width - lengths[:, None]
        else:
            mask = columns < lengths[:, None]
        ids = np.full(mask.shape, self.pad, np.int64)
        firsts = np.cumsum(lengths) - lengths
        ids[mask] = self.ids[np.arange(lengths.sum()) + np.repeat(starts - firsts, lengths)]
        return ids, mask

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it as arrays, for a stage on disk."""
        padding = np.array([self.pad, self.pad_left, self.max_tokens], np.int64)
        return {"ids": self.ids, "ends": self.ends, "padding": padding}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Tokens:
        """Undo ``to_arrays``; the arrays may be memory-mapped, and are not copied."""
        ids = arrays["ids"]
        ends = arrays["ends"]
        padding = arrays["padding"]
        if (
            len(padding) != 3
            or not len(ends)
            or ends[0] != 0
            or ends[-1] != len(ids)
            or (np.diff(ends) < 0).any()
        ):
            raise ModelFolderError(
                "tokens: found arrays that contradict one another; delete them and start again"
            )
        pad, pad_left, max_tokens = padding.tolist()
        return cls(ids, ends, pad, bool(pad_left), max_tokens)


class Tokeniser:
    """A Hugging Face tokeniser that truncates to ``max_tokens``, special tokens included.

    With the cleaning "attentionxml" each line break of a text is read as the tokeniser's separator
    token, as a space where it has none, and each underscore as a space."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        max_tokens: int,
        shown: str = "encoder",
        cleaning: Cleaning = "none",
    ) -> None:
        """Take the files of a tokeniser; ``shown`` is the name of the encoder in errors."""
        self._files = dict(files)
        self._backend = _parsed(self._files["tokenizer.json"], shown)
        special = self._backend.num_special_tokens_to_add(False)
        if max_tokens <= special:
            expected = f"more than {special}, which are special tokens of {shown}"
            raise UsageError(f"max_tokens: found {max_tokens}; expected {expected}")
        self.max_tokens = max_tokens
        names = _token_names(self._files, shown)
        self.pad = _pad_id(self._backend, names, shown)
        self.pad_left = _class_token_is_last(self._backend, names, shown)
        self.largest_id = max(
            self.pad, *self._backend.get_vocab().values(), *self._backend.encode("").ids
        )
        self._typecode = "H" if self.largest_id < 1 << 16 else "I"
        self._backend.no_padding()
        self._backend.enable_truncation(max_tokens)
        self.cleaning = cleaning
        self.separator = _separator(self._backend, names)
        if cleaning != "none" and self.separator:  # which is then one token, wherever a text has it
            self._backend.add_special_tokens([self.separator])

    @classmethod
    def load(cls, folder: Path, max_tokens: int, cleaning: Cleaning = "none") -> Tokeniser:
        """Read the tokeniser of an encoder's folder; ``max_tokens`` may not exceed the encoder's
        positions.
        """
        _check_positions(folder, max_tokens)
        shown = f"encoder {printable(str(folder))!r}"
        if (folder / "tokenizer.json").is_file():
            return cls(_read(folder), max_tokens, shown, cleaning)
        if not any((folder / name).is_file() for name in _OLDER_FILES):
            way_out = "copy it there beside config.json"
            raise UsageError(f"{shown}: found no tokenizer; expected tokenizer.json; {way_out}")
        return cls(_converted(folder, shown), max_tokens, shown, cleaning)

    def save(self, folder: Path) -> None:
        """Write the files of the tokeniser, as :meth:`load` and transformers read them."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self._files.items():
            (folder / name).write_bytes(content)

    def __call__(self, texts: Strings | Iterable[str]) -> Tokens:
        """Tokenise texts on all cores; a document without any token gets one that is padding."""
        ids = ArrayBuilder(self._typecode)
        ends = ArrayBuilder("q", [0])
        total = len(texts) if isinstance(texts, Sized) else None
        with stage("tokens", total, "documents"):
            for block in _blocks(texts):
                rows = [row or [self.pad] for row in self._encode(self._cleaned(block))]
                lengths = np.fromiter(map(len, rows), np.int64, len(rows))
                ends.extend_packed(len(ids) + np.cumsum(lengths))
                ids.extend_packed(
                    np.fromiter(chain.from_iterable(rows), self._typecode, int(lengths.sum()))
                )
                advance(len(rows))
        return Tokens(ids.finish(), ends.finish(), self.pad, self.pad_left, self.max_tokens)

    def _cleaned(self, texts: list[str]) -> list[str]:
        """Return the texts as the tokeniser is to read them."""
        if self.cleaning == "none":
            return texts
        return [_LINE_BREAKS.sub(self._as_separators, text.replace("_", " ")) for text in texts]

    def _as_separators(self, breaks: re.Match[str]) -> str:
        """Return a separator per line break; white space before it would be a token of RoBERTa."""
        return self.separator * breaks[0].count("\n") + " "

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text; of a long one the beginning is tried first.

        It is cut before white space, where tokens end: the tokens of the beginning begin the tokens
        of the whole, and where they fill ``max_tokens`` a book costs no more than a page."""
        most = _CHARACTERS * self.max_tokens
        heads = [_head(text, most) for text in texts]
        rows = [encoding.ids for encoding in self._backend.encode_batch_fast(heads)]
        cut = [
            at
            for at, row in enumerate(rows)
            if len(heads[at]) < len(texts[at]) and len(row) < self.max_tokens
        ]
        whole = self._backend.encode_batch_fast([texts[at] for at in cut])
        for at, encoding in zip(cut, whole, strict=True):
            rows[at] = encoding.ids
        return rows


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while block := list(islice(remaining, _BLOCK)):
        yield block


def _head(text: str, most: int) -> str:
    """Return the first words of ``text``, of ``most`` characters or less, or all of it where no
    word ends.
    """
    if len(text) <= most:
        return text
    # only at spaces: what else Python calls white space, BERT's normaliser takes away in the middle
    # of a word
    end = text.rfind(" ", 0, most + 1)
    if end > 0:
        return text[:end].rstrip(" \t\n") or text
    return text


def _read(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in _FILES if (folder / name).is_file()}


def _converted(folder: Path, shown: str) -> dict[str, bytes]:
    """Return the files that transformers makes of an older folder, which has a vocabulary and no
    tokenizer.json.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        with TemporaryDirectory() as made:
            tokenizer.save_pretrained(made)
            files = _read(Path(made))
    except (ImportError, OSError, ValueError) as error:
        raise UsageError(
            f"{shown}: transformers cannot read its tokenizer: {_line(error)}"
        ) from error
    if "tokenizer.json" not in files:
        raise UsageError(
            f"{shown}: found a tokenizer without tokenizer.json; convert it to a fast one"
        )
    return files


def _parsed(content: bytes, shown: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises nothing narrower
        raise UsageError(f"{shown}: tokenizer.json cannot be read: {_line(error)}") from error


def _token_names(files: Mapping[str, bytes], shown: str) -> dict[str, str]:
    """Return «pad_token» → «[PAD]» and the like; a name may be given as it is, or as a description
    of the token.
    """
    names: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        for key, value in _parsed_json(files.get(name, b"{}"), f"{shown}: {name}").items():
            content = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(content, str):
                names[key] = content
    return names


def _pad_id(backend: Tokenizer, names: Mapping[str, str], shown: str) -> int:
    for name in (names.get("pad_token"), "[PAD]", "<pad>"):
        if name is None:
            continue
        pad = backend.token_to_id(name)
        if pad is not None:
            return int(pad)
    if backend.padding:
        return int(backend.padding["pad_id"])
    raise UsageError(
        f"{shown}: found no padding token; expected pad_token in tokenizer_config.json"
    )


def _separator(backend: Tokenizer, names: Mapping[str, str]) -> str:
    """Return the token that separates two texts, the empty string where the tokeniser has none."""
    for name in (names.get("sep_token"), *_SEPARATORS):
        if name and backend.token_to_id(name) is not None:
            return name
    return ""


def _class_token_is_last(backend: Tokenizer, names: Mapping[str, str], shown: str) -> bool:
    """Tell whether padding stands on the left, so that the class token of all documents is in the
    same place.

    The ``padding_side`` of the files is not asked: it changes nothing in what an encoder computes,
    but where it would move the class token."""
    try:
        ids = backend.encode("").ids
        backend.encode(_UNKNOWN)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        # tokens that the file names and lacks make the library fail, or panic
        raise UsageError(f"{shown}: tokenizer.json cannot be used: {_line(error)}") from error
    return (
        len(ids) > 1 and "cls_token" in names and ids[-1] == backend.token_to_id(names["cls_token"])
    )


def _check_positions(folder: Path, max_tokens: int) -> None:
    """Refuse more tokens than the encoder has positions for."""
    path = folder / "config.json"
    about = {}
    if path.is_file():
        about = _parsed_json(path.read_bytes(), printable(str(path)))
    most = about.get("max_position_embeddings")
    if not isinstance(most, int) or most <= 0:  # relative positions
        return
    if about.get("model_type") in _OFFSET_POSITIONS:
        pad = about.get("pad_token_id")
        if pad is None:
            pad = 1
        most -= int(pad) + 1
    if max_tokens > most:
        problem = f"max_tokens: found {max_tokens}; expected at most {most}"
        raise UsageError(f"{problem}, the positions of encoder {printable(str(folder))}")


def _parsed_json(content: bytes, shown: str) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise UsageError(
            f"{shown}: found no JSON: {_line(error)}; take an undamaged copy of it"
        ) from error
    if not isinstance(parsed, dict):
        raise UsageError(f"{shown}: found {type(parsed).__name__}; expected a JSON object")
    return parsed


def _line(error: BaseException) -> str:
    return printable(str(error).strip().partition("\n")[0])
