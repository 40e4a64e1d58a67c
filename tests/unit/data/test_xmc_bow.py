"""The XMC repository's files: as they are in the world, there and back, and with everything wrong."""

import gzip
import logging
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.data.builder import Reading
from longtail.data.dataset import Dataset
from longtail.data.labels import Label, Labels
from longtail.data.strings import Strings
from longtail.data.xmc_bow import read_bow, read_filter, read_xmc_split, write_bow, write_xmc_split
from longtail.errors import DataError, UsageError

BOW = b"""4 6 5
1,3 0:0.084556 2:0.138594 5:1
 1:0.5
4 3:2.0
0,4
"""


def dataset_of(label_rows, feature_rows, labels, n_features=7, label_features=None):
    def matrix(rows, width):
        dense = np.zeros((len(rows), width), np.float32)
        for row, member in enumerate(rows):
            for column, value in member.items():
                dense[row, column] = value
        return sparse.csr_array(dense)

    features = matrix(feature_rows, n_features)
    of_labels = None if label_features is None else matrix(label_features, n_features)
    return Dataset(
        matrix(label_rows, len(labels)), labels, features=features, label_features=of_labels
    )


values = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda v: v != 0)
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"), max_size=6
)


ONE = st.just(1.0)


@st.composite
def datasets(draw, relevance=ONE, with_label_features=False):
    ids = draw(st.lists(names.filter(bool), unique=True, max_size=5))
    numbered = draw(st.booleans())
    own_names = draw(st.lists(names.filter(bool), min_size=len(ids), max_size=len(ids)))
    labels = Labels.of(
        [Label(str(i) if numbered else label, name=own_names[i]) for i, label in enumerate(ids)]
    )
    count = draw(st.integers(1, 5))
    member = (
        st.dictionaries(st.integers(0, len(ids) - 1), relevance, max_size=3) if ids else st.just({})
    )
    label_rows = [draw(member) for _ in range(count)]
    feature_rows = st.dictionaries(st.integers(0, 6), values, max_size=4)
    of_labels = [draw(feature_rows) for _ in ids] if with_label_features else None
    return dataset_of(label_rows, [draw(feature_rows) for _ in range(count)], labels, 7, of_labels)


def same_matrix(one, other):
    return (one is None and other is None) or (
        one.shape == other.shape
        and np.array_equal(one.indptr, other.indptr)
        and np.array_equal(one.indices, other.indices)
        and one.data.tobytes() == other.data.tobytes()
        and one.data.dtype == np.float32
    )


def lines_of(error):
    return [(problem.line, problem.found, problem.expected) for problem in error.value.problems]


@pytest.fixture
def file(tmp_path):
    def make(content, name="train.txt"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return make


# One file


FORMS = {
    "plain": lambda content: content,
    "CRLF": lambda content: content.replace(b"\n", b"\r\n"),
    "BOM": lambda content: b"\xef\xbb\xbf" + content,
    "gzip": gzip.compress,
    "tabs": lambda content: content.replace(b" ", b"\t"),
    "no last newline": lambda content: content[:-1],
    "blank lines at the end": lambda content: content + b"\n \n",
}


@pytest.mark.parametrize("change", FORMS.values(), ids=FORMS)
def test_bow_as_the_repository_has_it(file, change):
    dataset = read_bow(file(change(BOW)), Reading())
    assert [dataset.labels_of(row) for row in range(4)] == [["1", "3"], [], ["4"], ["0", "4"]]
    assert list(dataset.labels.ids) == ["0", "1", "2", "3", "4"]
    expected = np.zeros((4, 6), np.float32)
    expected[0, [0, 2, 5]] = [0.084556, 0.138594, 1]
    expected[1, 1] = 0.5
    expected[2, 3] = 2
    assert np.array_equal(dataset.features.toarray(), expected)
    assert dataset.texts is None
    assert dataset.features.dtype == dataset.label_matrix.dtype == np.float32


def test_bow_line_may_begin_with_a_feature_and_indices_may_be_unsorted(file):
    dataset = read_bow(file(b"2 9 3\n4:1 2:0.5\n2,0,2 8:1 1:2 3:-3\n"), Reading())
    assert dataset.features.indices.tolist() == [2, 4, 1, 3, 8]
    assert dataset.features.data.tolist() == [0.5, 1, 2, -3, 1]
    assert dataset.labels_of(1) == ["0", "2"]
    assert dataset.merged_duplicates == 1


def test_bow_lines_that_need_the_exact_parser(file):
    lines = b"1 5:1e-400 2:1\n1 00000000000000000008:2\n0,2 3:3 7:1.000000059604644775390625\n"
    dataset = read_bow(file(b"3 9 3\n" + lines), Reading())
    assert dataset.features.indices.tolist() == [2, 5, 8, 3, 7]
    assert dataset.features.data.tolist() == [1, 0, 2, 3, 1]
    assert dataset.labels_of(2) == ["0", "2"]


@pytest.mark.parametrize("count", [0, 1, 10, 11, 1203])
def test_labels_without_ids_are_called_by_their_numbers(file, count):
    assert list(read_bow(file(b"1 1 %d\n\n" % count), Reading()).labels.ids) == [
        str(label) for label in range(count)
    ]


def test_overlong_line_keeps_the_others_in_their_rows(file, monkeypatch):
    monkeypatch.setattr("longtail.data.lines.MAX_LINE", 3_000_000)
    path = file(b"3 9 3\n0 1:1\n" + b"1 2:2 " * 900_000 + b"\n2 3:3\n")
    with pytest.raises(DataError) as error:
        read_bow(path, Reading())
    assert [line for line, *_ in lines_of(error)] == [3]
    dataset = read_bow(path, Reading(skip_bad=1))
    assert [dataset.labels_of(row) for row in range(len(dataset))] == [["0"], ["2"]]
    assert dataset.features.indices.tolist() == [1, 3]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(dataset=datasets())
def test_bow_round_trip(dataset, tmp_path):
    for stale in tmp_path.glob("*"):
        stale.unlink()
    write_bow(dataset, tmp_path / "train.txt.gz")
    again = read_bow(tmp_path / "train.txt.gz", Reading())
    assert again.labels.ids == dataset.labels.ids
    assert same_matrix(again.label_matrix, dataset.label_matrix)
    assert same_matrix(again.features, dataset.features)


def test_bow_writer_says_what_it_cannot_hold(tmp_path, caplog):
    dataset = dataset_of(
        [{0: 0.5}, {1: 1}], [{0: 1}, {}], Labels.of([Label("a", "A"), Label("b\nb")])
    )
    dataset = Dataset(
        **{**vars(dataset), "texts": Strings.of(["x", "y"]), "ids": Strings.of(["i", "j"])}
    )
    with caplog.at_level(logging.WARNING, "longtail"):
        write_bow(dataset, tmp_path / "b.txt")
    left_out, numbers, changed = caplog.messages
    assert "2 document ids, 2 texts, 2 label names, 1 relevances other than 1" in left_out
    assert "column numbers" in numbers
    assert "b.labels.txt" in numbers
    assert "1 label ids" in changed
    assert (tmp_path / "b.txt").read_bytes() == b"2 7 2\n0 0:1.0\n1 \n"
    assert (tmp_path / "b.labels.txt").read_bytes() == b"a\nb b\n"
    assert not list(tmp_path.glob(".*"))


def test_bow_writer_replaces_ids_of_an_earlier_file(tmp_path):
    for ids in (["x", "y"], ["0", "1"]):
        write_bow(dataset_of([{1: 1}], [{0: 1}], Labels.of(ids)), tmp_path / "b.txt")
        assert list(read_bow(tmp_path / "b.txt", Reading()).labels.ids) == ids


def test_bow_writer_refuses_texts_and_labels_that_become_one(tmp_path):
    with pytest.raises(UsageError, match="no features"):
        write_bow(Dataset.of(["text"], [["a"]]), tmp_path / "b.txt")
    with pytest.raises(UsageError, match="become one"):
        write_bow(dataset_of([{}], [{}], Labels.of(["a b", "a\nb"])), tmp_path / "b.txt")


BAD_LINES = {
    b"1 0:1 x": ("'x'", "feature:value"),
    b"1 garbage": ("'garbage'", "feature:value"),
    b"1 0": ("'0'", "feature:value"),
    b"1 0:": ("value ''", "a finite number"),
    b"1 0:nan": ("value 'nan'", "a finite number"),
    b"1 0:inf": ("value 'inf'", "a finite number"),
    b"1 0:-inf": ("value '-inf'", "a finite number"),
    b"1 0:1e39": ("value '1e39'", "a finite number"),
    b"1 0:1e999": ("value '1e999'", "a finite number"),
    b"1 0:1_0": ("value '1_0'", "a finite number"),
    b"1 0:1:2": ("value '1:2'", "a finite number"),
    b"1 0:0x1": ("value '0x1'", "a finite number"),
    b"1 0:1\x00": ("value '1\\x00'", "a finite number"),
    b"1 6:1": ("feature 6", "a number below 6, as the header says"),
    b"1 99999999999999999999999:1": (
        "feature 99999999999999999999999",
        "a number below 6, as the header says",
    ),
    b"1 -1:1": ("feature '-1'", "a whole number from 0"),
    b"1 1.0:1": ("feature '1.0'", "a whole number from 0"),
    b"1 :1": ("feature ''", "a whole number from 0"),
    b"1 2:1 0:1 2:5": ("feature 2 twice", "each feature once a line"),
    b"1 2:1 2:1": ("feature 2 twice", "each feature once a line"),
    b"5 0:1": ("label 5", "a number below 5, as the header says"),
    b"-1 0:1": ("label '-1'", "a whole number from 0"),
    b"1,,2 0:1": ("label ''", "a whole number from 0"),
    b"1, 0:1": ("label ''", "a whole number from 0"),
    b"a,b 0:1": ("label 'a'", "a whole number from 0"),
    b"1,2:1": ("feature '1,2'", "a whole number from 0"),
    b"\xff\xfe 0:1": ("label '\\\\xff\\\\xfe'", "a whole number from 0"),
    "１ 0:1".encode(): ("label '１'", "a whole number from 0"),
    b"1 " + b"9" * 5000 + b":1": (
        "feature " + "9" * 58 + "…",
        "a number below 6, as the header says",
    ),
}


@pytest.mark.parametrize(
    "line", BAD_LINES, ids=lambda line: line[:20].decode("utf-8", "backslashreplace")
)
def test_bad_line_is_named_and_can_be_skipped(file, line):
    path = file(BOW.replace(b"4 6 5", b"5 6 5").replace(b"4 3:2.0\n", line + b"\n4 3:2.0\n"))
    with pytest.raises(DataError) as error:
        read_bow(path, Reading())
    (problem,) = error.value.problems
    result, expected = BAD_LINES[line]
    assert (problem.file, problem.line, problem.expected) == (str(path), 4, expected)
    assert problem.found.startswith(result[:50])
    others = read_bow(path, Reading(skip_bad=1))
    assert [others.labels_of(row) for row in range(4)] == [["1", "3"], [], ["4"], ["0", "4"]]
    assert np.diff(others.features.indptr).tolist() == [3, 1, 1, 0]


BAD_FILES = {
    b"": (0, "an empty file"),
    b"\n": (1, "''"),
    b"3 2\n": (1, "'3 2'"),
    b"3 2 1 1\n": (1, "'3 2 1 1'"),
    b"a b c\n": (1, "'a b c'"),
    b"1.0 2 3\n": (1, "'1.0 2 3'"),
    b"-1 2 3\n": (1, "'-1 2 3'"),
    b"1 2 99999999999999999999\n": (1, "'1 2 99999999999999999999'"),
    b"1 2 3000000000\n 0:1\n": (1, "a header of 3000000000 labels"),
    b"1 3000000000 2\n 0:1\n": (1, "a header of 3000000000 features"),
    b"1 2 2000000000\n 0:1\n": (0, "2000000000 labels claimed by a file of 5 bytes"),
    b"1000000000000000 2 2\n0 0:1\n": (1, "1 lines after a header of 1000000000000000 documents"),
    b"3 2 2\n0 0:1\n": (1, "1 lines after a header of 3 documents"),
    b"1 2 2\n0 0:1\n\n1 0:1\n": (4, "a line after the 1 documents of the header"),
    b"0 2 2\n": (0, "no document"),
    b"0 2 2\n0 0:1\n": (2, "a line after the 0 documents of the header"),
    b"\xff\xfe1\x00": (1, "UTF-16 text"),
    gzip.compress(b"1 2 2\n0 0:1\n", mtime=0)[:-6]: (0, "gzip data that ends too early"),
}


@pytest.mark.parametrize("content", BAD_FILES, ids=lambda content: repr(content)[:30])
def test_bad_file_is_refused_whatever_may_be_skipped(file, content):
    tracemalloc.start()
    with pytest.raises(DataError) as error:
        read_bow(file(content), Reading(skip_bad=100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    (problem,) = error.value.problems
    assert (problem.line, problem.found) == BAD_FILES[content]


def test_exactly_the_bad_documents_are_named(file):
    lines = [b"0 0:x" if row % 100 == 7 else b"0 0:%d" % row for row in range(1000)]
    path = file(b"1000 1 1\n" + b"\n".join(lines))
    with pytest.raises(DataError) as error:
        read_bow(path, Reading(skip_bad=9))
    assert [line for line, *_ in lines_of(error)] == list(range(9, 1000, 100))
    dataset = read_bow(path, Reading(skip_bad=10))
    assert dataset.features.toarray()[:, 0].tolist() == [
        row for row in range(1000) if row % 100 != 7
    ]
    with pytest.raises(DataError, match="no document"):
        read_bow(file(b"1 1 1\n0 0:x\n"), Reading(skip_bad=10))


def test_many_blocks_read_as_one(file):
    rng = np.random.default_rng(0)
    features = sparse.random_array(
        (30_000, 1000), density=0.01, rng=rng, dtype=np.float32, format="csr"
    )
    features.sort_indices()
    dataset = Dataset(
        sparse.csr_array(np.eye(30_000, 3, dtype=np.float32)), Labels.of("012"), features=features
    )
    path = file(b"")
    write_bow(dataset, path)
    assert path.stat().st_size > 3e6
    again = read_bow(path, Reading())
    assert same_matrix(again.features, features)
    assert same_matrix(again.label_matrix, dataset.label_matrix)


def test_given_vocabulary(file):
    path = file(BOW)
    labels = Labels.of(["4", "3", "x"])
    with pytest.raises(DataError, match="unknown label '1'"):
        read_bow(path, Reading(labels=labels))
    dropped = read_bow(path, Reading(labels=labels, unknown="drop"))
    assert [dropped.labels_of(row) for row in range(4)] == [["3"], [], ["4"], ["4"]]
    assert dropped.labels is labels
    added = read_bow(path, Reading(labels=labels, unknown="add"))
    assert list(added.labels.ids) == ["4", "3", "x", "0", "1", "2"]
    assert added.labels_of(3) == ["4", "0"]


def test_ids_beside_must_fit(file):
    path = file(BOW)
    file(b"a\nb\nc\nd\ne\n", "train.labels.txt")
    assert read_bow(path, Reading()).labels_of(3) == ["a", "e"]
    for content, result in (
        (b"a\nb\n", "2 lines"),
        (b"a\nb\nc\nd\na\n", "stands twice"),
        (b"a\n\xff\n", "not UTF-8"),
    ):
        file(content, "train.labels.txt")
        with pytest.raises(DataError, match=result) as error:
            read_bow(path, Reading(skip_bad=9))
        assert error.value.problems[0].file.endswith("train.labels.txt")


# Split by X and Y

SPLIT = {
    "trn_X_Xf.txt": b"3 4\n0:0.5 2:1.0\n\n3:0.25\n",
    "trn_X_Y.txt": b"3 2\n0:1.0 1:1.0\n1:0.5\n\n",
    "lbl_X_Xf.txt": b"2 4\n1:1\n0:1 3:2\n",
    "tst_X_Xf.txt": b"1 4\n1:1\n",
    "tst_X_Y.txt": b"1 2\n0:1\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, content in SPLIT.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("name", ["", "trn_X_Xf.txt", "trn_X_Y.txt"])
def test_split_as_the_repository_has_it(folder, name):
    dataset = read_xmc_split(folder / name, Reading())
    assert dataset.features.toarray().tolist() == [[0.5, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0.25]]
    assert dataset.label_matrix.toarray().tolist() == [[1, 1], [0, 0.5], [0, 0]]
    assert dataset.label_features.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 0, 2]]
    assert list(dataset.labels.ids) == ["0", "1"]
    assert dataset.labels.names is None


def test_split_test_part_names_and_compressed_files(folder):
    (folder / "Yf.txt").write_text("First\nSecond\n")
    (folder / "tst_X_Y.txt").unlink()
    (folder / "tst_X_Y.txt.gz").write_bytes(gzip.compress(SPLIT["tst_X_Y.txt"]))
    for dataset in (
        read_xmc_split(folder, Reading(split="test")),
        read_xmc_split(folder / "tst_X_Xf.txt", Reading()),
    ):
        assert dataset.labels_of(0) == ["0"]
        assert list(dataset.labels.names) == ["First", "Second"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(dataset=datasets(st.floats(0.125, 100, width=32), with_label_features=True))
def test_split_round_trip(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    write_xmc_split(dataset, folder, "test")
    again = read_xmc_split(folder, Reading(split="test"))
    assert again.labels == dataset.labels
    for name in ("label_matrix", "features", "label_features"):
        assert same_matrix(getattr(again, name), getattr(dataset, name))


def test_bad_lines_are_left_out_in_x_and_y(folder):
    (folder / "trn_X_Xf.txt").write_bytes(b"3 4\n0:0.5 2:1.0\n9:1\n3:0.25\n")
    (folder / "trn_X_Y.txt").write_bytes(b"3 2\n0:0\n1:0.5\n1:2\n")
    (folder / "lbl_X_Xf.txt").write_bytes(b"2 4\n1:x\n0:1 3:2\n")
    with pytest.raises(DataError) as error:
        read_xmc_split(folder, Reading())
    assert [str(problem).replace(f"{folder}/", "") for problem in error.value.problems] == [
        "trn_X_Xf.txt:3: feature 9; expected a number below 4, as the header says",
        "trn_X_Y.txt:2: relevance '0' of label 0; expected a finite number above 0",
        "lbl_X_Xf.txt:2: value 'x'; expected a finite number",
    ]
    dataset = read_xmc_split(folder, Reading(skip_bad=3))
    assert dataset.features.toarray().tolist() == [[0, 0, 0, 0.25]]
    assert dataset.label_matrix.toarray().tolist() == [[0, 2]]
    assert dataset.label_features.toarray().tolist() == [[0, 0, 0, 0], [1, 0, 0, 2]]


ABOVE_0 = "a finite number above 0"
DISAGREEING = [
    ("trn_X_Y.txt", b"2 2\n\n\n", 1, "2 documents, but 3 in trn_X_Xf.txt", "as many in both"),
    ("lbl_X_Xf.txt", b"1 4\n\n", 1, "1 labels and 4 features", "2 and 4, as in the other files"),
    ("lbl_X_Xf.txt", b"2 9\n\n\n", 1, "2 labels and 9 features", "2 and 4, as in the other files"),
    ("trn_X_Xf.txt", b"3 4 2\n\n\n\n", 1, "'3 4 2'", "a header of 2 numbers: documents, features"),
    ("trn_X_Y.txt", b"3 2\n0:-1\n\n\n", 2, "relevance '-1' of label 0", ABOVE_0),
    ("trn_X_Y.txt", b"3 2\n0:1e-60\n\n\n", 2, "relevance '1e-60' of label 0", ABOVE_0),
    ("trn_X_Y.txt", b"3 2\n2:1\n\n\n", 2, "label 2", "a number below 2, as the header says"),
    ("Yf.txt", b"one\n", 0, "1 lines", "2, one a label"),
]


@pytest.mark.parametrize(("name", "content", "line", "found", "expected"), DISAGREEING)
def test_split_files_must_agree(folder, name, content, line, found, expected):
    (folder / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        read_xmc_split(folder, Reading())
    assert error.value.problems == [(str(folder / name), line, found, expected)]


def test_split_files_that_are_missing_or_doubled(folder, tmp_path):
    (folder / "trn_X_Y.txt").unlink()
    with pytest.raises(UsageError, match=r"no file trn_X_Y\.txt"):
        read_xmc_split(folder, Reading())
    unlabelled = read_xmc_split(folder, Reading(labelled=False))
    assert unlabelled.label_matrix.shape == (3, 0)
    vocabulary = Labels.of(["a", "b"])
    assert read_xmc_split(
        folder, Reading(labelled=False, labels=vocabulary)
    ).label_matrix.shape == (3, 2)
    (folder / "trn_X_Xf.txt.gz").write_bytes(gzip.compress(SPLIT["trn_X_Xf.txt"]))
    with pytest.raises(UsageError, match="expected one of them"):
        read_xmc_split(folder, Reading(labelled=False))
    with pytest.raises(UsageError, match="not a folder"):
        read_xmc_split(folder / "other.txt", Reading())
    with pytest.raises(UsageError, match="unknown split 'tain'; did you mean 'train'"):
        write_xmc_split(unlabelled, folder, "tain")
    with pytest.raises(UsageError, match="cannot be made a folder"):
        write_xmc_split(unlabelled, folder / "trn_X_Xf.txt")


def test_two_splits_of_one_folder_have_the_same_labels(tmp_path):
    def one(ids):
        return dataset_of([{0: 1}], [{0: 1}], Labels.of(ids))

    write_xmc_split(one(["a", "b"]), tmp_path, "train")
    write_xmc_split(one(["b", "a"]), tmp_path, "train")
    with pytest.raises(UsageError, match="other labels"):
        write_xmc_split(one(["a", "b"]), tmp_path, "test")
    write_xmc_split(one(["b", "a"]), tmp_path, "test")
    assert read_xmc_split(tmp_path, Reading(split="test")).labels_of(0) == ["b"]


# Filter files


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=20))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_filter_is_read_as_it_was_written(tmp_path, pairs):
    path = tmp_path / "filter_labels_test.txt"
    path.write_text("".join(f"{document} {label}\n" for document, label in pairs))
    result = read_filter(path, 10, 5)
    assert result.dtype == np.int64
    assert np.array_equal(result, np.array(pairs, np.int64).reshape(-1, 2))


@pytest.mark.parametrize(
    "content",
    [
        b"0 1\n7 4",
        b"0\t1\r\n7 4\r\n",
        b" 0 1 \n\n07  4\n \n",
        gzip.compress(b"0 1\n7 4\n", mtime=0),
    ],
)
def test_filter_forms(file, content):
    assert read_filter(file(content), 8, 5).tolist() == [[0, 1], [7, 4]]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"8 0", "document 8"), (b"0 5", "label 5"), (b"0", "'0'"), (b"0 1 2", "'0 1 2'"), (b"a b", "'a b'"),
        (b"-1 0", "'-1 0'"), (b"0 1.0", "'0 1.0'"), (b"0 99999999999999999999", "'0 99999999999999999999'"),
        (b"0 9999999999", "label 9999999999"), (b"0 99999999999", "label 99999999999"), (b"\xff", "'\\\\xff'"),
    ],
)  # fmt: skip
def test_filter_errors(file, line, found):
    path = file(b"1 1\n" + line + b"\n2 2\n")
    with pytest.raises(DataError) as error:
        read_filter(path, 8, 5)
    (problem,) = error.value.problems
    assert (problem.file, problem.line, problem.found) == (str(path), 2, found)
