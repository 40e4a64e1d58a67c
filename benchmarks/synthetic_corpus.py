"""Writes a made-up corpus with the published layout and sizes of one of the papers' datasets.

    python benchmarks/synthetic_corpus.py amazon-670k FOLDER --share 0.01

Counts of documents and labels, labels and words per document, and columns of the features are those
of ``longtail.reproduction``; label frequencies fall as in Zipf's law, and every label occurs.
Labels lie in topics of 64, and a document has most of its labels from one topic. Its words come
from the topic, from its labels, and from all words, so that something can be learnt, and truncating
a text loses some of it. All words have five letters. ``--share`` takes a part of the documents,
never of the labels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TOPIC = 64  # labels
LETTERS = 5  # of each word
WORDS = 300_000  # different ones
# that belong to a topic, and to a label
TOPIC_WORDS = 24
LABEL_WORDS = 4
# of the words of a document
TOPIC_SHARE = 0.25
LABEL_SHARE = 0.15
SAME_TOPIC = 0.8  # of the labels of a document
CHUNK = 8192  # documents made at a time, by one process
NONZEROS = {
    "amazon-670k": 76,
    "wiki-500k": 200,
    "amazon-3m": 40,
}  # of a row of features; else one for each word


@dataclass(frozen=True)
class Sizes:
    """The published sizes of a dataset."""

    train: int
    test: int
    labels: int
    labels_per_document: float
    features: int
    words: float
    layout: str
    nonzeros: int  # of a row of features; 0 = as many as different words

    @classmethod
    def of(cls, name: str, share: float = 1.0) -> Sizes:
        """Return the sizes of a dataset, with a share of its documents."""
        text = (files("longtail.reproduction") / "datasets.toml").read_text("utf-8")
        entry = tomllib.loads(text)[name]
        return cls(
            train=max(round(share * entry["train"]), 1),
            test=max(round(share * entry["test"]), 1),
            labels=entry["labels"],
            labels_per_document=entry["labels_per_document"],
            features=entry["features"],
            words=entry["words"],
            layout=entry["layout"],
            nonzeros=NONZEROS.get(name, 0),
        )


@dataclass(frozen=True)
class Chunk:
    """Some documents of a split, still to be made: ``required`` are labels that each of them must
    have.
    """

    corpus: Corpus
    split: str
    first: int
    last: int
    required: list[NDArray[np.int32]] | None

    def documents(self) -> Documents:
        """Make the documents."""
        generator = self.generator(0)
        return self.corpus.documents(self.last - self.first, generator, self.required)

    def generator(self, purpose: int) -> np.random.Generator:
        """Return random numbers of this chunk."""
        return np.random.default_rng((self.corpus.seed, self.split == "train", self.first, purpose))


@dataclass(frozen=True)
class Documents:
    """Some documents: their words and labels as numbers, side by side, with the end of each
    document.
    """

    words: NDArray[np.int32]
    word_ends: NDArray[np.int64]
    labels: NDArray[np.int32]
    label_ends: NDArray[np.int64]


class Corpus:
    """The corpus of one seed: its label frequencies, and documents by their numbers."""

    def __init__(self, sizes: Sizes, seed: int = 0) -> None:
        self.sizes = sizes
        self.seed = seed
        generator = np.random.default_rng(seed)
        # labels of a topic lie side by side; which topics are frequent is drawn
        self.popularity = generator.permutation(-(-sizes.labels // TOPIC)).astype(np.int64)

    def chunks(self, split: str, count: int) -> Iterator[Chunk]:
        """Yield what the first ``count`` documents of ``train`` or ``test`` are made of, some
        thousands at a time.
        """
        if split == "train":
            covered = self._coverage(self.sizes.train)
        for first in range(0, count, CHUNK):
            last = min(first + CHUNK, count)
            required = None
            if split == "train":
                required = covered[first:last]
            yield Chunk(self, split, first, last, required)

    def _coverage(self, count: int) -> list[NDArray[np.int32]]:
        """Return, for each training document, labels that it must have so that each label occurs at
        all.
        """
        order = np.random.default_rng((self.seed, 2)).permutation(-(-self.sizes.labels // 2))
        document = np.empty(self.sizes.labels, np.int64)
        document[0::2] = (
            order[: len(document[0::2])] % count
        )  # two neighbouring labels in the same document
        document[1::2] = order[: len(document[1::2])] % count
        by_document = np.argsort(document, kind="stable").astype(np.int32)
        ends = np.cumsum(np.bincount(document, minlength=count))
        return np.split(by_document, ends[:-1])

    def documents(
        self, count: int, generator: np.random.Generator, required: list[NDArray[np.int32]] | None
    ) -> Documents:
        """Make ``count`` documents, those of a training chunk with the labels ``required`` of each."""
        sizes = self.sizes
        wanted = generator.poisson(max(sizes.labels_per_document - 1, 0), count) + 1
        n_fixed = np.zeros(count, np.int64)
        if required is not None:
            n_fixed[:] = [len(labels) for labels in required]
        drawn = np.maximum(wanted - n_fixed, 0)
        drawn[n_fixed + drawn == 0] = 1
        main_topic = self._topics(count, generator)
        if required is not None:
            has = n_fixed > 0
            main_topic[has] = np.array([labels[0] for labels in required if len(labels)]) // TOPIC
        rows = np.repeat(np.arange(count), drawn)
        topic = np.where(
            generator.random(len(rows)) < SAME_TOPIC,
            main_topic[rows],
            self._topics(len(rows), generator),
        )
        offset = zipf(TOPIC, len(rows), generator)
        labels = np.minimum(topic * TOPIC + offset, sizes.labels - 1)
        if required is not None:
            rows = np.concatenate([rows, np.repeat(np.arange(count), n_fixed)])
            labels = np.concatenate([labels, *required])
        keys = np.unique(rows * np.int64(sizes.labels) + labels)
        rows, labels = np.divmod(keys, sizes.labels)
        label_ends = np.cumsum(np.bincount(rows, minlength=count))
        words, word_ends = self._words(count, labels, label_ends, main_topic, generator)
        return Documents(words, word_ends, labels.astype(np.int32), label_ends)

    def _topics(self, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
        return self.popularity[zipf(len(self.popularity), count, generator, exponent=0.7)]

    def _words(
        self,
        count: int,
        labels: NDArray[np.int64],
        label_ends: NDArray[np.int64],
        main_topic: NDArray[np.int64],
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the words of documents: of the topic, of their labels, and of all words by Zipf's
        law.
        """
        shape = 1.5  # of the gamma distribution of lengths
        lengths = np.maximum(
            generator.gamma(shape, self.sizes.words / shape, count).astype(np.int64), 3
        )
        ends = np.cumsum(lengths)
        rows = np.repeat(np.arange(count), lengths)
        words = zipf(WORDS, len(rows), generator)
        kind = generator.random(len(rows))
        of_topic = np.flatnonzero(kind < TOPIC_SHARE)
        words[of_topic] = _mixed(
            main_topic[rows[of_topic]], zipf(TOPIC_WORDS, len(of_topic), generator), 1
        )
        of_label = np.flatnonzero((kind >= TOPIC_SHARE) & (kind < TOPIC_SHARE + LABEL_SHARE))
        starts = np.concatenate([[0], label_ends[:-1]])
        counts = label_ends - starts
        at = rows[of_label]
        chosen = labels[starts[at] + (generator.random(len(at)) * counts[at]).astype(np.int64)]
        words[of_label] = _mixed(chosen, generator.integers(0, LABEL_WORDS, len(at)), 2)
        return words.astype(np.int32), ends


def zipf(
    size: int, count: int, generator: np.random.Generator, exponent: float = 1.0
) -> NDArray[np.int64]:
    """Return ``count`` numbers below ``size``, number i about as often as (i + 1)^−exponent."""
    uniform = generator.random(count)
    if exponent == 1.0:
        ranks = np.exp(uniform * np.log(size + 1.0)) - 1
    else:
        power = 1 - exponent
        ranks = (1 + uniform * ((size + 1.0) ** power - 1)) ** (1 / power) - 1
    return np.minimum(ranks.astype(np.int64), size - 1)


def _mixed(owner: NDArray[np.int64], number: NDArray[np.int64], salt: int) -> NDArray[np.int64]:
    """Return a word for each (owner, number), the same whenever it is asked for."""
    key = (owner * 31 + number).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        salt << 32
    )
    key ^= key >> np.uint64(29)
    key *= np.uint64(0xBF58476D1CE4E5B9)
    return ((key >> np.uint64(32)) % np.uint64(WORDS)).astype(np.int64)


def word_letters() -> NDArray[np.uint8]:
    """Return (WORDS, 6): the letters of each word and the space behind it."""
    numbers = np.arange(WORDS)
    table = np.full((WORDS, LETTERS + 1), ord(" "), np.uint8)
    for digit in range(LETTERS):
        table[:, LETTERS - 1 - digit] = ord("a") + numbers // 26**digit % 26
    return table


def word_string(number: int) -> str:
    """Return a word as a string."""
    return "".join(chr(ord("a") + number // 26**digit % 26) for digit in reversed(range(LETTERS)))


def write_corpus(
    name: str, folder: Path, share: float = 1.0, seed: int = 0, test_share: float = 1.0
) -> Sizes:
    """Write the corpus in the layout of its authors' download.

    Args:
        name: dataset in ``datasets.toml``, such as amazon-670k.
        folder: where to write; its name should be that of the dataset, as readers and propensities
            go by it.
        share: share of the documents.
        seed: same seed, same corpus.
        test_share: a further share of the test documents.
    """
    sizes = Sizes.of(name, share)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(sizes, seed)
    for split in ("train", "test"):
        limit = sizes.train if split == "train" else max(round(test_share * sizes.test), 1)
        write = _write_lf if sizes.layout == "lf" else _write_attentionxml
        write(corpus, split, folder, limit)
    if sizes.layout == "lf":
        _write_lf_labels(sizes, folder)
    return sizes


def _write_attentionxml(corpus: Corpus, split: str, folder: Path, count: int) -> None:
    """Write texts, labels and the svmlight features without a header, as AttentionXML's downloads
    have them.
    """
    names = (
        f"{split}_raw_texts.txt",
        f"{split}_labels.txt",
        "train_v1.txt" if split == "train" else "test.txt",
    )
    with ExitStack() as stack, ProcessPoolExecutor() as pool:
        outputs = [stack.enter_context((folder / name).open("wb")) for name in names]
        for parts in pool.map(_attentionxml_lines, corpus.chunks(split, count)):
            for output, part in zip(outputs, parts, strict=True):
                output.write(part)


def _attentionxml_lines(chunk: Chunk) -> tuple[bytes, bytes, bytes]:
    """Return the lines of texts, labels and features of some documents."""
    documents = chunk.documents()
    labels = _label_lines(documents)
    features = _feature_lines(
        documents, labels, chunk.corpus.sizes, chunk.generator(1), chunk.first == 0
    )
    return _text_lines(documents), b"\n".join(labels) + b"\n", features


def _text_lines(documents: Documents) -> bytes:
    content = word_letters()[documents.words]
    content[documents.word_ends - 1, -1] = ord("\n")
    return content.tobytes()


def _label_lines(documents: Documents) -> list[bytes]:
    names = documents.labels.astype("S7").tolist()
    ends = documents.label_ends.tolist()
    starts = [0, *ends[:-1]]
    return [b" ".join(names[start:end]) for start, end in zip(starts, ends, strict=True)]


def _feature_lines(
    documents: Documents,
    labels: list[bytes],
    sizes: Sizes,
    generator: np.random.Generator,
    first_chunk: bool,
) -> bytes:
    """Return ``l,l f:v f:v`` lines: different words of each document, folded into the columns,
    counted from 1.
    """
    columns = sizes.features
    count = len(documents.word_ends)
    rows = np.repeat(np.arange(count), np.diff(documents.word_ends, prepend=0))
    keys, frequency = np.unique(
        rows * np.int64(columns) + documents.words % columns, return_counts=True
    )
    if sizes.nonzeros:
        kept = generator.random(len(keys)) < sizes.nonzeros * count / len(keys)
        keys, frequency = keys[kept], frequency[kept]
    if first_chunk:  # so that the training file is as wide as the published one
        keys, where = np.unique(np.append(keys, columns - 1), return_index=True)
        frequency = np.append(frequency, 1)[where]
    rows, places = np.divmod(keys, columns)
    values = np.minimum((1 + np.log(frequency)) * np.log1p(places + 1.0), 99)
    digits = len(str(columns))
    cells = np.full((len(keys), 1 + digits + 1 + 5), ord(" "), np.uint8)  # " 012345:12.34"
    for digit in range(digits):
        cells[:, digits - digit] = ord("0") + (places + 1) // 10**digit % 10
    cells[:, digits + 1] = ord(":")
    hundredths = np.round(values * 100).astype(np.int64)
    for column, power in ((2, 3), (3, 2), (5, 1), (6, 0)):
        cells[:, digits + column] = ord("0") + hundredths // 10**power % 10
    cells[:, digits + 4] = ord(".")
    ends = np.cumsum(np.bincount(rows, minlength=count)) * cells.shape[1]
    starts = [0, *ends[:-1].tolist()]
    content = cells.tobytes()
    lines = [
        targets.replace(b" ", b",") + content[start:end]
        for targets, start, end in zip(labels, starts, ends.tolist(), strict=True)
    ]
    return b"\n".join(lines) + b"\n"


def _write_lf(corpus: Corpus, split: str, folder: Path, count: int) -> None:
    """Write ``trn.json.gz`` or ``tst.json.gz``, with a short content that titles-only sets leave
    out.
    """
    name = "trn" if split == "train" else "tst"
    with (
        gzip.open(folder / f"{name}.json.gz", "wb", compresslevel=1) as out,
        ProcessPoolExecutor() as pool,
    ):
        for lines in pool.map(_lf_lines, corpus.chunks(split, count)):
            out.write(lines)


def _lf_lines(chunk: Chunk) -> bytes:
    """Return the records of some documents as JSON lines."""
    documents = chunk.documents()
    titles = _text_lines(documents).decode().splitlines()
    targets = np.split(documents.labels, documents.label_ends[:-1])
    records = (
        {
            "uid": f"{chunk.split}{chunk.first + row}",
            "title": title,
            "content": title[: LETTERS + 1] * 8,
            "target_ind": labels.tolist(),
            "target_rel": [1.0] * len(labels),
        }
        for row, (title, labels) in enumerate(zip(titles, targets, strict=True))
    )
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def _write_lf_labels(sizes: Sizes, folder: Path) -> None:
    """Write ``lbl.json.gz``, whose titles are the words of each label."""
    with gzip.open(folder / "lbl.json.gz", "wb", compresslevel=1) as out:
        numbers = np.arange(sizes.labels)
        words = np.stack(
            [
                _mixed(numbers, np.full(sizes.labels, position), 2)
                for position in range(LABEL_WORDS)
            ],
            1,
        )
        for label, numbers_of_label in enumerate(words.tolist()):
            title = " ".join(map(word_string, numbers_of_label))
            out.write(
                json.dumps({"uid": f"L{label}", "title": title, "content": ""}).encode() + b"\n"
            )


def write_bert(
    folder: Path, seed: int = 0, depth: int = 12, width: int = 768, vocabulary: int = 30_522
) -> Path:
    """Write BERT-base with random weights, and a tokeniser that has the most frequent words whole,
    others in pieces.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig

    from longtail.features.encoder import Encoder

    folder.mkdir(parents=True, exist_ok=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    letters = [chr(ord("a") + number) for number in range(26)]
    pairs = [first + second for first in letters for second in letters]
    pieces = [*special, *letters, *(f"##{piece}" for piece in letters + pairs)]
    whole = [word_string(number) for number in range(vocabulary - len(pieces))]
    numbered = {piece: number for number, piece in enumerate(dict.fromkeys([*pieces, *whole]))}
    tokeniser = Tokenizer(models.WordPiece(numbered, unk_token="[UNK]"))
    tokeniser.normalizer = normalizers.BertNormalizer()
    tokeniser.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", numbered["[CLS]"]), ("[SEP]", numbered["[SEP]"])]
    tokeniser.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    tokeniser.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    config = BertConfig(
        vocab_size=vocabulary,
        num_hidden_layers=depth,
        hidden_size=width,
        num_attention_heads=max(width // 64, 1),
        intermediate_size=4 * width,
    )
    Encoder.from_config(config, seed=seed).save(folder)
    return folder


def main() -> None:
    """Write a corpus from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--test-share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--encoder", type=Path, help="write a BERT with random weights into this folder as well"
    )
    parser.add_argument("--depth", type=int, default=12, help="its layers")
    parser.add_argument("--width", type=int, default=768, help="numbers of its vectors")
    arguments = parser.parse_args()
    sizes = write_corpus(
        arguments.dataset, arguments.folder, arguments.share, arguments.seed, arguments.test_share
    )
    if arguments.encoder is not None:
        write_bert(arguments.encoder, arguments.seed, arguments.depth, arguments.width)
    print(
        json.dumps({"benchmark": "synthetic_corpus", "train": sizes.train, "labels": sizes.labels})
    )


if __name__ == "__main__":
    main()
