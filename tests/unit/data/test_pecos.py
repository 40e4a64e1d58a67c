"""PECOS folders and the .npz files in them: as they are in the world, there and back, and with everything wrong."""

import contextlib
import io
import logging
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.data.builder import Reading
from longtail.data.dataset import Dataset
from longtail.data.labels import Label, Labels
from longtail.data.npz import read_csr_npz, write_csr_npz
from longtail.data.pecos import read_pecos, write_pecos
from longtail.data.strings import Strings
from longtail.errors import DataError, UsageError

TEXTS = b"Offshore wind turbines\nA short history of salt\n\n"
TARGETS = sparse.csr_matrix(np.array([[1, 0, 1], [0, 0.5, 0], [0, 0, 0]], np.float32))
FEATURES = sparse.csr_matrix(np.array([[0, 2.5], [1, 0], [0, 0]]))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "X.trn.txt").write_bytes(TEXTS)
    sparse.save_npz(tmp_path / "X.trn.npz", FEATURES)
    sparse.save_npz(tmp_path / "Y.trn.npz", TARGETS)
    (tmp_path / "output-items.txt").write_bytes(b"wind power\nsalt, history of\nenergy\n")
    return tmp_path


@pytest.mark.parametrize("name", ["", "X.trn.txt", "Y.trn.npz", "X.trn.npz"])
def test_pecos_as_it_is_in_the_world(folder, name):
    dataset = read_pecos(folder / name, Reading())
    assert list(dataset.texts) == ["Offshore wind turbines", "A short history of salt", ""]
    assert list(dataset.labels.ids) == ["wind power", "salt, history of", "energy"]
    assert dataset.label_matrix.toarray().tolist() == TARGETS.toarray().tolist()
    assert dataset.features.toarray().tolist() == FEATURES.toarray().tolist()
    assert dataset.features.dtype == dataset.label_matrix.dtype == np.float32


def test_pecos_parts_that_may_be_missing(folder):
    (folder / "output-items.txt").unlink()
    (folder / "X.trn.npz").unlink()
    assert list(read_pecos(folder, Reading()).labels.ids) == ["0", "1", "2"]
    (folder / "Y.trn.npz").unlink()
    with pytest.raises(UsageError, match=r"no file Y\.trn\.npz"):
        read_pecos(folder, Reading())
    assert read_pecos(folder, Reading(labelled=False)).label_matrix.shape == (3, 0)
    (folder / "X.trn.txt").unlink()
    with pytest.raises(UsageError, match=r"no file X\.trn\.txt or X\.trn\.npz"):
        read_pecos(folder, Reading())
    sparse.save_npz(folder / "X.trn.npz", FEATURES)
    assert read_pecos(folder, Reading(labelled=False)).texts is None
    with pytest.raises(UsageError, match=r"no file X\.tst\.txt"):
        read_pecos(folder, Reading(split="test"))


def test_pecos_items_that_repeat_are_names(folder, caplog):
    (folder / "output-items.txt").write_bytes(b"salt\nsalt\nenergy\n")
    dataset = read_pecos(folder, Reading())
    assert list(dataset.labels) == [Label("0", "salt"), Label("1", "salt"), Label("2", "energy")]
    assert "1 items stand there before" in caplog.text


def test_pecos_bad_text_is_left_out_everywhere(folder):
    (folder / "X.trn.txt").write_bytes(b"one\n\xfftwo\nthree\n")
    with pytest.raises(DataError) as error:
        read_pecos(folder, Reading())
    (problem,) = error.value.problems
    assert (problem.file, problem.line, problem.expected) == (
        str(folder / "X.trn.txt"),
        2,
        "UTF-8; text in Latin-1 is converted with: iconv -f LATIN1 -t UTF-8",
    )
    dataset = read_pecos(folder, Reading(skip_bad=1))
    assert list(dataset.texts) == ["one", "three"]
    assert dataset.label_matrix.toarray().tolist() == [[1, 0, 1], [0, 0, 0]]
    assert dataset.features.toarray().tolist() == [[0, 2.5], [0, 0]]


def test_pecos_files_must_agree(folder):
    def refused(name, content):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        with pytest.raises(DataError) as error:
            read_pecos(folder, Reading(skip_bad=9))
        (folder / name).write_bytes(before)
        (problem,) = error.value.problems
        assert problem.file.startswith(str(folder))
        return problem.file.rsplit("/")[-1], problem.found, problem.expected

    two = io.BytesIO()
    sparse.save_npz(two, TARGETS[:2])
    assert refused("X.trn.npz", two.getvalue()) == (
        "X.trn.npz",
        "2 rows, but 3 documents in X.trn.txt",
        "as many in both",
    )
    assert refused("Y.trn.npz", two.getvalue()) == (
        "Y.trn.npz",
        "2 rows, but 3 documents in X.trn.txt",
        "as many in both",
    )
    assert refused("output-items.txt", b"a\nb\n") == (
        "output-items.txt",
        "2 lines",
        "3, one a label",
    )
    negative = io.BytesIO()
    sparse.save_npz(negative, -TARGETS)
    assert refused("Y.trn.npz", negative.getvalue()) == (
        "Y.trn.npz",
        "relevance -1.0",
        "finite numbers above 0",
    )


def test_pecos_stored_zeros_are_no_labels(folder):
    targets = sparse.csr_array((np.array([1, 0], np.int8), [0, 2], [0, 2, 2, 2]), shape=(3, 3))
    sparse.save_npz(folder / "Y.trn.npz", targets)
    assert read_pecos(folder, Reading()).label_matrix.nnz == 1


characters = st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff")


@st.composite
def datasets(draw):
    rows = draw(st.integers(1, 5))
    ids = draw(st.lists(st.text(characters, min_size=1, max_size=5), unique=True, max_size=5))
    relevance = st.floats(0.125, 9, width=32) | st.just(0.0)

    def matrix(width, values):
        dense = [[draw(values) for _ in range(width)] for _ in range(rows)]
        return sparse.csr_array(np.array(dense, np.float32).reshape(rows, width))

    texts = Strings.of(
        draw(st.lists(st.text(characters, max_size=9), min_size=rows, max_size=rows))
    )
    features = matrix(draw(st.integers(0, 4)), st.floats(-9, 9, width=32))
    which = draw(st.sampled_from(["texts", "features", "both"]))
    return Dataset(
        matrix(len(ids), relevance),
        Labels.of(ids),
        texts=texts if which != "features" else None,
        features=features if which != "texts" else None,
    )


@settings(max_examples=60, deadline=None)
@given(dataset=datasets())
@example(dataset=Dataset.of(["a\r\nb\nc\rd"], [["x\ny", "x,y", " "]]))
def test_pecos_round_trip(dataset, tmp_path_factory):
    def flat(strings):
        return [
            string.replace("\r\n", " ").replace("\r", " ").replace("\n", " ") for string in strings
        ]

    folder = tmp_path_factory.mktemp("pecos")
    if len(set(flat(dataset.labels.ids))) < dataset.n_labels:
        with pytest.raises(UsageError, match="become one"):
            write_pecos(dataset, folder, "test")
        return
    write_pecos(dataset, folder, "test")
    again = read_pecos(folder, Reading(split="test"))
    assert list(again.labels.ids) == flat(dataset.labels.ids)
    assert np.array_equal(again.label_matrix.toarray(), dataset.label_matrix.toarray())
    assert (again.texts is None) == (dataset.texts is None)
    assert list(again.texts or ()) == flat(dataset.texts or ())
    assert (again.features is None) == (dataset.features is None)
    if again.features is not None:
        assert np.array_equal(again.features.toarray(), dataset.features.toarray())


def test_pecos_writer_says_what_it_cannot_hold_and_keeps_the_labels_of_the_other_split(
    tmp_path, caplog
):
    dataset = Dataset.of(["t"], [["b"]], [Label("a", "A"), Label("b")])
    with caplog.at_level(logging.WARNING, "longtail"):
        write_pecos(dataset, tmp_path)
    assert caplog.messages == [
        f"{tmp_path}: changed or left out, as this format cannot hold it: 2 label names"
    ]
    with pytest.raises(UsageError, match="other labels"):
        write_pecos(Dataset.of(["t"], [["b"]]), tmp_path, "test")
    write_pecos(dataset, tmp_path, "test")
    assert read_pecos(tmp_path, Reading(split="test")).labels_of(0) == ["b"]
    assert sparse.load_npz(tmp_path / "Y.tst.npz").toarray().tolist() == [[0, 1]]


# .npz


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_npz_of_scipy(tmp_path, compressed, kind):
    matrix = kind([[0, 1, 0], [1, 0, 1]], dtype=bool)
    sparse.save_npz(tmp_path / "m.npz", matrix, compressed=compressed)
    again = read_csr_npz(tmp_path / "m.npz")
    assert again.dtype == np.float32
    assert again.toarray().tolist() == matrix.toarray().tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u8", ">i4", "?"])
@pytest.mark.parametrize("index", ["i4", "i8", "u4", "u8", ">i4", ">u8"])
def test_npz_of_any_number_type(tmp_path, dtype, index):
    arrays = parts(format="csr", data=np.array([1, 0, 1], dtype))
    arrays |= {name: arrays[name].astype(index) for name in ("shape", "indptr", "indices")}
    (tmp_path / "m.npz").write_bytes(archive(arrays))
    again = read_csr_npz(tmp_path / "m.npz")
    assert again.dtype == np.float32
    assert again.toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert again.indices.dtype == np.int32


def test_npz_indices_are_sorted_and_bytes_are_the_same(tmp_path):
    matrix = sparse.csr_array(([3.0, 1.0, 2.0], [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    for name in ("one.npz", "two.npz"):
        write_csr_npz(matrix, tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    again = read_csr_npz(tmp_path / "one.npz")
    assert again.indices.tolist() == [0, 2, 1]
    assert again.data.tolist() == [1, 3, 2]
    assert again.has_canonical_format


def parts(**changes):
    """Return the arrays of a good matrix, some of them changed."""
    good = {
        "format": b"csr",
        "shape": (2, 3),
        "indptr": [0, 2, 3],
        "indices": [0, 2, 1],
        "data": [1.0, 2.0, 3.0],
    }
    return {
        name: np.asarray(value) for name, value in (good | changes).items() if value is not None
    }


BAD_PARTS = {
    "coo": (parts(format=b"coo"), "a matrix in the format 'coo'"),
    "no shape": (parts(shape=None), "an archive without shape.npy"),
    "no data": (parts(data=None), "an archive without data.npy"),
    "one number of shape": (parts(shape=[2]), "the shape (2,) with 2 rows"),
    "too few rows": (parts(shape=(1, 3)), "the shape (1, 3) with 2 rows"),
    "too many rows": (parts(shape=(10**15, 3)), "the shape (1000000000000000, 3) with 2 rows"),
    "too many columns": (parts(shape=(2, 10**15)), "the shape (2, 1000000000000000) with 2 rows"),
    "negative columns": (parts(shape=(2, -1)), "the shape (2, -1) with 2 rows"),
    "shape of floats": (parts(shape=(2.0, 3.0)), "shape of type float64 and shape (2,)"),
    "no row ends": (
        parts(indptr=np.empty(0, int), shape=(-1, 3)),
        "indptr of type int64 and shape (0,)",
    ),
    "row ends that fall": (parts(indptr=[0, 3, 2, 3], shape=(3, 3)), "row ends that do not rise"),
    "row ends from 1": (parts(indptr=[1, 2, 3]), "row ends that do not rise"),
    "row ends too far": (parts(indptr=[0, 2, 4]), "row ends that do not rise"),
    "row ends that wrap": (
        parts(indptr=np.array([0, 2**64 - 1, 3], np.uint64)),
        "row ends that do not rise",
    ),
    "row ends of floats": (parts(indptr=[0.0, 2.0, 3.0]), "indptr of type float64"),
    "index too large": (parts(indices=[0, 3, 1]), "column 3"),
    "index negative": (parts(indices=[0, -1, 1]), "column -1"),
    "index that wraps": (parts(indices=np.array([0, 2**32 + 1, 1])), "column 4294967297"),
    "index twice": (parts(indices=[2, 2, 1]), "column 2 twice in row 0"),
    "indices of another length": (parts(indices=[0, 1]), "row ends that do not rise"),
    "data of another length": (parts(data=[1.0]), "row ends that do not rise"),
    "NaN": (parts(data=[1.0, np.nan, 1.0]), "value nan"),
    "Inf": (parts(data=[1.0, -np.inf, 1.0]), "value -inf"),
    "too large for float32": (parts(data=[1.0, 1e39, 1.0]), "value 1e+39"),
    "complex": (parts(data=[1j, 1, 1]), "data.npy of type complex128"),
    "strings": (parts(data=["a", "b", "c"]), "data of type <U1"),
    "two dimensions": (parts(indices=[[0, 2, 1]]), "indices.npy of type int64 and shape (1, 3)"),
    "no dimension": (parts(data=1.0), "data of type float64 and shape ()"),
}


def archive(arrays, **replaced):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array)
            out.writestr(f"{name}.npy", replaced.get(name, member.getvalue()))
    return file.getvalue()


def refused(path, content):
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError) as error:
            read_csr_npz(path)
    (problem,) = error.value.problems
    assert problem.file == str(path)
    assert "\n" not in str(problem)
    return problem.found


@pytest.mark.parametrize("case", BAD_PARTS)
def test_npz_with_wrong_parts_is_refused(tmp_path, case):
    arrays, found = BAD_PARTS[case]
    assert refused(tmp_path / "m.npz", archive(arrays)).startswith(found)


def header(shape, descr="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def test_npz_that_claims_more_than_it_holds(tmp_path):
    path = tmp_path / "m.npz"
    assert (
        refused(path, archive(parts(), data=header((10**12,))))
        == "data.npy that claims 8000000000000 bytes and holds 0"
    )
    assert "claims" in refused(path, archive(parts(), data=header((-3,)) + b"\0" * 24))
    assert "of type object" in refused(path, archive(parts(), data=header((3,), "|O") + b"\0" * 24))
    assert "of type" in refused(
        path, archive(parts(), data=header((3,), [("a", "<f8")]) + b"\0" * 24)
    )
    assert "damaged" in refused(
        path, archive(parts(), data=b"\x93NUMPY\x01\x00\xff\xff{" + b"-" * 60000)
    )
    assert "damaged" in refused(path, archive(parts(), data=b""))
    bomb = archive(parts(), data=header((10**7,)) + bytes(8 * 10**7))
    assert refused(path, bomb) == "an archive that grows more than 200 times"


def test_npz_that_is_damaged(tmp_path):
    path, whole = tmp_path / "m.npz", archive(parts())
    for content in (
        b"",
        b"text",
        whole[:-30],
        whole[: len(whole) // 2],
        b"PK\x05\x06" + bytes(18),
        b"\x93NUMPY",
    ):
        refused(path, content)
    rng, taken = np.random.default_rng(0), 0
    for _ in range(300):  # no flipped byte may raise anything but a DataError
        content = bytearray(whole)
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        with contextlib.suppress(DataError):
            taken += read_csr_npz(path).shape[0] == 2
    assert taken < 200
    with pytest.raises(UsageError, match="cannot be read"):
        read_csr_npz(tmp_path / "none.npz")
    with pytest.raises(UsageError, match="cannot be read"):
        read_csr_npz(tmp_path)
