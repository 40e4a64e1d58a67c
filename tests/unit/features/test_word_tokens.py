"""Words of texts as a tokeniser; the oracle of the vocabulary is the library's trainer, that of idf
scikit-learn's.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tokenizers")

from sklearn.feature_extraction.text import TfidfTransformer
from tokenizers import Tokenizer, trainers

from longtail.data.strings import Strings
from longtail.errors import UsageError
from longtail.features import word_tokens as module
from longtail.features.tokens import Tokeniser
from longtail.features.word_tokens import idf_of, word_tokeniser, words_of

TEXTS = ["Wind power, wind-power!", "wind of the Sea", "the SEA the café", "café naïve", ""]


def oracle(texts, min_count):
    tokenizer = module._splitter({})
    special = ["[PAD]", "[UNK]"]
    trainer = trainers.WordLevelTrainer(
        vocab_size=1 << 30, min_frequency=min_count, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    numbered = tokenizer.get_vocab()
    return sorted(numbered, key=numbered.get)


def test_words_come_by_frequency_and_then_by_themselves():
    assert words_of(word_tokeniser([TEXTS], 8, 2)) == [
        "[PAD]",
        "[UNK]",
        "the",
        "wind",
        "café",
        "power",
        "sea",
    ]


def test_counts_are_of_all_texts_together():
    parts = [Strings.of(TEXTS[:2]), TEXTS[2:]]
    assert words_of(word_tokeniser(parts, 8, 2)) == words_of(word_tokeniser([TEXTS], 8, 2))
    assert words_of(word_tokeniser([["a"], ["a b"]], 8, 2)) == ["[PAD]", "[UNK]", "a"]


def test_ids_of_documents():
    tokeniser = word_tokeniser([TEXTS], 4, 2)
    tokens = tokeniser(["The WIND of café", "power power power power power", "", "cafe [PAD]"])
    rows = [
        tokens.ids[start:end].tolist()
        for start, end in zip(tokens.ends, tokens.ends[1:], strict=False)
    ]
    assert rows == [
        [2, 3, 1, 4],
        [5, 5, 5, 5],
        [0],
        [1, 1, 1, 1],
    ]  # «cafe» lacks the accent; [PAD] is three words
    assert (tokens.pad, tokens.pad_left, tokens.max_tokens) == (0, False, 4)


def test_composed_and_decomposed_accents_are_the_same_word():
    assert words_of(word_tokeniser([["café cafe\u0301"]], 8, 1)) == ["[PAD]", "[UNK]", "café"]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=8), st.integers(1, 3))
def test_vocabulary_is_that_of_the_trainer(texts, min_count):
    texts = [*texts, "a B. a_b\tA", "木 x木\n b"]
    assert words_of(word_tokeniser([texts], 8, min_count)) == oracle(texts, min_count)


def test_blocks_of_texts_change_nothing(monkeypatch):
    whole = words_of(word_tokeniser([TEXTS], 8, 1))
    monkeypatch.setattr(module, "_TEXTS", 2)
    assert words_of(word_tokeniser([TEXTS], 8, 1)) == whole


def test_saved_tokeniser_is_the_same(tmp_path):
    tokeniser = word_tokeniser([TEXTS], 8, 1)
    tokeniser.save(tmp_path)
    loaded = Tokeniser.load(tmp_path, 8)
    assert words_of(loaded) == words_of(tokeniser)
    assert loaded(TEXTS).ids.tolist() == tokeniser(TEXTS).ids.tolist()


def test_same_words_are_the_same_bytes(tmp_path):
    for name, texts in {"a": TEXTS, "b": TEXTS[::-1]}.items():
        word_tokeniser([texts], 8, 1).save(tmp_path / name)
    assert (tmp_path / "a/tokenizer.json").read_bytes() == (
        tmp_path / "b/tokenizer.json"
    ).read_bytes()


def test_texts_without_words_leave_the_two_that_are_always_there():
    tokeniser = word_tokeniser([["", "  "]], 8, 1)
    assert words_of(tokeniser) == ["[PAD]", "[UNK]"]
    assert tokeniser(["wind"]).ids.tolist() == [1]


def test_no_room_for_a_token_is_refused():
    with pytest.raises(UsageError, match="max_tokens: found 0"):
        word_tokeniser([TEXTS], 0, 1)


def test_ids_without_a_token_are_empty_words():
    tokeniser = word_tokeniser([["a b"]], 8, 1)
    about = json.loads(tokeniser._files["tokenizer.json"])
    about["model"]["vocab"]["b"] = 5
    tokeniser._backend = Tokenizer.from_str(json.dumps(about))
    assert words_of(tokeniser) == ["[PAD]", "[UNK]", "a", "", "", "b"]


@pytest.mark.parametrize("documents", [1 << 18, 2])
def test_idf_is_smooth_and_of_documents(monkeypatch, documents):
    monkeypatch.setattr(module, "_DOCUMENTS", documents)
    tokeniser = word_tokeniser([TEXTS], 8, 1)
    tokens = tokeniser(TEXTS)
    n = len(words_of(tokeniser)) + 1
    counts = np.zeros((len(TEXTS), n))
    for row, (start, end) in enumerate(zip(tokens.ends, tokens.ends[1:], strict=False)):
        np.add.at(counts[row], tokens.ids[start:end], 1)
    expected = TfidfTransformer(smooth_idf=True).fit(counts).idf_
    expected[0] = 0
    idf = idf_of(tokens, n)
    assert idf.dtype == np.float32
    np.testing.assert_allclose(idf, expected, rtol=1e-6)


def test_progress_counts_texts(monkeypatch):
    seen = []
    monkeypatch.setattr(module, "advance", seen.append)
    word_tokeniser([TEXTS, TEXTS], 8, 1)
    assert sum(seen) == 2 * len(TEXTS)
