"""Tf-idf against scikit-learn's, and what it owes to its own promises: same bytes, small folders,
clear errors.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import normalize

from longtail import config, reporting
from longtail.data.strings import Strings
from longtail.errors import DataError, ModelFolderError
from longtail.features import counting
from longtail.features.tfidf import TfIdf
from longtail.kernels import pool

BOOKS = [
    "Offshore wind turbines in the Baltic Sea: the wind, the sea and THE turbines",
    "The İstanbul of ΑΝΔΡΕΑΣ; 2nd edition, naïve cafés",
    "風力発電  とは\n何か? 👩‍🚀 e\u0301tude",
    "",
    "wind wind wind sea\x1csea\x85sea",
    "a b c . -",
]
WORDS = [
    "wind",
    "sea",
    "İzmir",
    "ΟΔΟΣ",
    "cafe\u0301",
    "x2",
    "漢字",
    "😀",
    "a",
    "_",
    "The",
    "the",
    "b-c",
    "\x1f",
    "1 000",
]
texts = st.lists(
    st.one_of(
        st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join),
        st.text(st.characters(codec="utf-8"), max_size=15),
    ),
    min_size=1,
    max_size=8,
)


@st.composite
def blocks(draw) -> config.TfIdf:
    shortest = draw(st.integers(1, 3))
    return config.TfIdf(
        unit=draw(st.sampled_from(["word", "char"])),
        ngram_min=shortest,
        ngram_max=shortest + draw(st.integers(0, 2)),
        min_df=draw(st.integers(1, 2)),
        max_df=draw(st.sampled_from([1.0, 0.7, 0.5])),
        sublinear_tf=draw(st.booleans()),
        weight=draw(st.sampled_from([1.0, 0.3, 7.0])),
    )


def oracle(block: config.TfIdf) -> TfidfVectorizer:
    return TfidfVectorizer(
        dtype=np.float64,
        analyzer=block.unit,
        ngram_range=(block.ngram_min, block.ngram_max),
        min_df=block.min_df,
        max_df=block.max_df,
        max_features=block.max_features or None,
        sublinear_tf=block.sublinear_tf,
    )


def assert_same_features(ours: sparse.csr_array, theirs) -> None:
    theirs = sparse.csr_array(theirs)
    theirs.sort_indices()
    assert ours.shape == theirs.shape
    assert (ours.data.dtype, ours.indices.dtype, ours.indptr.dtype) == (
        np.float32,
        np.int32,
        np.int32,
    )
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_array_equal(ours.indices, theirs.indices)
    np.testing.assert_allclose(ours.data, theirs.data, rtol=1e-6)


def as_bytes(matrix: sparse.csr_array) -> tuple[bytes, bytes, bytes]:
    return matrix.data.tobytes(), matrix.indices.tobytes(), matrix.indptr.tobytes()


@settings(max_examples=120, deadline=None)
@given(texts, texts, blocks())
@example(BOOKS, BOOKS[::-1], config.TfIdf())
@example(
    BOOKS,
    ["nothing known", ""],
    config.TfIdf(unit="char", ngram_min=3, ngram_max=5, sublinear_tf=True),
)
@example(
    ["word " * 300 + " ".join(f"w{i}" for i in range(200, 0, -1))],
    ["w7"],
    config.TfIdf(ngram_max=2),
)
def test_equals_scikit_learn(documents: list[str], others: list[str], block: config.TfIdf) -> None:
    theirs = oracle(block)
    try:
        expected = theirs.fit_transform(documents)
    except ValueError:  # its vocabulary is empty
        with pytest.raises(DataError, match="no n-gram is left"):
            TfIdf.fit(documents, [block])
        return
    ours, features = TfIdf.fit_transform(documents, [block])
    assert list(ours.vocabulary) == theirs.get_feature_names_out().tolist()
    assert ours.n_features == len(ours.vocabulary)
    assert_same_features(features, expected)
    assert as_bytes(ours.transform(documents)) == as_bytes(features)
    assert_same_features(TfIdf.fit(documents, [block]).transform(others), theirs.transform(others))


@settings(max_examples=40, deadline=None)
@given(texts, texts, st.lists(blocks(), min_size=2, max_size=3))
def test_blocks_equal_a_feature_union(
    documents: list[str], others: list[str], several: list[config.TfIdf]
) -> None:
    names = [str(number) for number in range(len(several))]
    weights = {name: block.weight for name, block in zip(names, several, strict=True)}
    theirs = FeatureUnion(
        list(zip(names, map(oracle, several), strict=True)), transformer_weights=weights
    )
    try:
        expected = theirs.fit_transform(documents)
    except ValueError:
        assume(False)
    ours, features = TfIdf.fit_transform(documents, several)
    assert_same_features(features, normalize(expected))
    assert_same_features(ours.transform(others), normalize(theirs.transform(others)))
    member = [
        ngram
        for name in names
        for ngram in theirs.named_transformers[name].get_feature_names_out().tolist()
    ]
    assert list(ours.vocabulary) == member


@pytest.mark.parametrize("unit", ["word", "char"])
@pytest.mark.parametrize("most", [1, 3, 4, 1000])
def test_most_frequent_ngrams_are_kept(unit: str, most: int) -> None:
    documents = ["aa bb bb cc cc cc", "dd dd dd dd ee ee ee ee ee", "ff ff ff ff ff ff"]  # no ties
    block = config.TfIdf(unit=unit, max_features=most)
    theirs = oracle(block)
    if unit == "char":
        documents = [f"{text} abbcccdddd" for text in documents]
    expected = theirs.fit_transform(documents)
    ours, features = TfIdf.fit_transform(documents, [block])
    assert list(ours.vocabulary) == theirs.get_feature_names_out().tolist()
    assert_same_features(features, expected)


def test_of_equally_frequent_ngrams_the_first_in_order_are_kept() -> None:
    documents = ["zz zz yy xx ww vv", "zz tt yy"]
    assert list(TfIdf.fit(documents, [config.TfIdf(max_features=4)]).vocabulary) == [
        "tt",
        "vv",
        "yy",
        "zz",
    ]


SEVERAL = [
    config.TfIdf(ngram_max=2, min_df=2),
    config.TfIdf(unit="char", ngram_min=2, ngram_max=4, weight=0.5),
]


def corpus() -> list[str]:
    random = np.random.default_rng(0)
    return [
        " ".join(f"w{i}" for i in random.zipf(1.4, size) % 500)
        for size in random.integers(0, 60, 400)
    ]


def test_same_bytes_for_any_threads_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    results = set()
    for threads, size in [(1, 1 << 19), (3, 1 << 11), (1, 700), (3, 700)]:
        monkeypatch.setattr(counting, "_BLOCK_BYTES", size)
        with pool.threads(threads):
            ours, features = TfIdf.fit_transform(corpus(), SEVERAL)
            again = ours.transform(corpus())
            learnt = tuple(array.tobytes() for array in ours.to_arrays().values())
        results |= {(as_bytes(features), learnt), (as_bytes(again), learnt)}
    assert len(results) == 1
    assert_same_features(
        features,
        normalize(sparse.hstack([oracle(b).fit_transform(corpus()) * b.weight for b in SEVERAL])),
    )


def test_texts_of_any_kind() -> None:
    expected = as_bytes(TfIdf.fit_transform(BOOKS)[1])
    packed = Strings.of(["left out", *BOOKS])
    for documents in (
        iter(BOOKS),
        tuple(BOOKS),
        Strings.of(BOOKS),
        packed[1:],
        Strings(packed.arena, packed.offsets[1:]),
    ):
        assert as_bytes(TfIdf.fit_transform(documents)[1]) == expected


def test_rows_are_of_length_one_or_empty() -> None:
    features = TfIdf.fit(BOOKS, SEVERAL[1:]).transform([*BOOKS, "¿¡"])
    lengths = np.sqrt(features.multiply(features).sum(axis=1))
    np.testing.assert_allclose(lengths, [1, 1, 1, 0, 1, 1, 0], rtol=1e-6)
    assert TfIdf.fit(BOOKS).transform([]).shape == (0, TfIdf.fit(BOOKS).n_features)


def test_there_and_back_through_arrays() -> None:
    ours, features = TfIdf.fit_transform(corpus(), SEVERAL)
    arrays = ours.to_arrays()
    for array in arrays.values():
        array.flags.writeable = False  # as memory maps are
    back = TfIdf.from_arrays(arrays, SEVERAL)
    assert back.vocabulary == ours.vocabulary
    assert as_bytes(back.transform(corpus())) == as_bytes(features)
    assert {name: array.tobytes() for name, array in back.to_arrays().items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    plain = sum(len(ngram.encode()) + 8 for ngram in ours.vocabulary)
    assert sum(array.nbytes for array in arrays.values()) < 0.6 * plain


def damaged_arrays():
    arrays = TfIdf.fit(BOOKS).to_arrays()
    without = {name: array for name, array in arrays.items() if name != "0.df"}
    longer = {**arrays, "0.df": np.append(arrays["0.df"], 1)}
    wild = {**arrays, "0.shared": np.full_like(arrays["0.shared"], 250)}
    short = {**arrays, "0.rest": arrays["0.rest"][:-1]}
    empty = {
        **arrays,
        "0.sizes": np.zeros_like(arrays["0.sizes"]),
        "0.shared": np.zeros_like(arrays["0.shared"]),
    }
    binary = {**arrays, "0.rest": arrays["0.rest"] | 0x80}
    counts = {**arrays, "0.documents": np.array([1, 2])}
    inside = TfIdf.fit(["éé éè"]).to_arrays()
    inside["0.sizes"] = np.array([5, 3], np.uint8)
    inside["0.shared"] = np.array([0, 0], np.uint8)
    inside["0.rest"] = np.frombuffer("éééé".encode(), np.uint8)
    return [{}, without, longer, wild, short, empty, binary, counts, inside]


@pytest.mark.parametrize("number", range(9))
def test_damaged_arrays_are_refused(number: int) -> None:
    with pytest.raises(
        ModelFolderError, match=r"tf-idf vocabulary: found .*; train the model anew"
    ):
        TfIdf.from_arrays(damaged_arrays()[number], [config.TfIdf()])


def test_spans_name_the_ngrams_of_a_text() -> None:
    ours = TfIdf.fit(
        BOOKS, [config.TfIdf(ngram_max=2), config.TfIdf(unit="char", ngram_min=4, ngram_max=4)]
    )
    columns, result = ours.spans("Wind in THE air")
    assert result == [
        "in",
        "in the",
        "the",
        "wind",
        " in ",
        " the",
        "in t",
        "ind ",
        "n th",
        "the ",
        "wind",
    ]
    assert [ours.vocabulary[c] for c in columns.tolist()] == result
    assert columns.tolist() == sorted(columns.tolist())


@pytest.mark.parametrize(
    ("documents", "block", "message"),
    [
        (
            [],
            config.TfIdf(),
            "0 documents have 0 different word n-grams of 1 to 1; .* give it texts",
        ),
        (
            ["", "a b", "é"],
            config.TfIdf(ngram_max=2),
            "3 documents have 0 different word n-grams of 1 to 2; expected",
        ),
        (
            ["ab"],
            config.TfIdf(unit="char", ngram_min=3, ngram_max=3),
            "0 different char n-grams of 3 to 3",
        ),
        (
            ["ab", "cd"],
            config.TfIdf(min_df=2),
            "none in 2 documents or more and 100% of them or less; .* lower min_df",
        ),
        (
            ["ab", "ab"],
            config.TfIdf(max_df=0.5),
            "none in 1 documents or more and 50% of them or less",
        ),
    ],
)
def test_nothing_left_is_an_error(documents: list[str], block: config.TfIdf, message: str) -> None:
    with pytest.raises(DataError) as error:
        TfIdf.fit(documents, [config.TfIdf(unit="char"), block] if documents else [block])
    assert "tf-idf: no n-gram is left: " in str(error.value)
    assert re.search(message, str(error.value).replace("\n", " "))


def test_a_document_beyond_32_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_MOST_NGRAMS", 40)
    assert TfIdf.fit(["x" * 20, "y" * 20]).n_features == 2
    with pytest.raises(
        DataError, match=r"tf-idf: document 2 has 21 bytes; expected at most 20\nsplit it"
    ):
        TfIdf.fit(["ab" * 9, "x" * 21])


def test_progress_is_told_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[object] = []

    class Recorder:
        def start(self, name: str, total: int | None, unit: str) -> None:
            messages.append((name, total, unit))

        def advance(self, amount: int) -> None:
            messages.append(amount)

        def finish(self) -> None:
            messages.append("end")

    monkeypatch.setattr(counting, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(reporting, "_display", Recorder())
    TfIdf.fit(["wind sea", "sea wind é"]).transform(["wind"] * 4)
    assert messages == [
        ("counting n-grams", 19, "B"),
        8,
        11,
        "end",
        ("computing tf-idf", 16, "B"),
        8,
        8,
        "end",
    ]
