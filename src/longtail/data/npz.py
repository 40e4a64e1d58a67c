"""CSR matrices in ``.npz`` as scipy saves them and dense ones in ``.npy``, checked before they are
believed.
"""

from __future__ import annotations

import zipfile
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import MAX_COLUMNS, csr_of
from longtail.data.lines import MAX_EXPANSION
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.errors import LongtailError, UsageError

__all__ = ["read_csr_npz", "read_dense_npy", "write_csr_npz", "write_dense_npy"]

_EXPANSION_FREE = 64 << 20  # bytes that are never a bomb
_CHUNK = 1 << 20  # bytes read from an archive at a time


def write_csr_npz(matrix: sparse.csr_array, path: Path | str) -> None:
    """Write a matrix as ``scipy.sparse.save_npz`` does; the same matrix gives the same bytes."""
    with open_output(path) as out:
        sparse.save_npz(out, matrix)


def read_csr_npz(path: Path | str) -> sparse.csr_array:
    """Read a CSR matrix from ``.npz`` as canonical float32; sizes and indices are checked before
    they are used.
    """
    problems = Problems(path)
    try:
        with open(path, "rb") as file:
            arrays = _read_members(file, problems)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    return _checked_csr(arrays, problems)


def write_dense_npy(matrix: NDArray[np.float32], path: Path | str) -> None:
    """Write a dense matrix in the .npy format."""
    with open_output(path) as out:
        np.lib.format.write_array(out, np.ascontiguousarray(matrix), allow_pickle=False)


def read_dense_npy(path: Path | str) -> NDArray[np.float32]:
    """Read a matrix (rows, columns) of finite numbers from ``.npy`` as float32."""
    problems = Problems(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except (OSError, ValueError, EOFError) as error:  # numpy's kinds for damaged bytes
        problems.fatal(f"a damaged array ({quoted(str(error))})", "an array of numpy.save")
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "iuf":
        if isinstance(array, np.ndarray):
            what = f"type {array.dtype} and shape {array.shape}"
        else:
            what = "several arrays"
        problems.fatal(what, "one array of numbers, (documents, columns)")
    with np.errstate(over="ignore"):
        values = np.array(array, np.float32, order="C")
    if not np.isfinite(values).all():
        problems.fatal(f"value {values[~np.isfinite(values)][0]}", "finite numbers")
    return values


_MEMBERS = ("format", "shape", "indptr", "indices", "data")


def _read_members(file: BinaryIO, problems: Problems) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            _check_members(members, file.seek(0, 2), problems)
            return {name: _read_array(archive, members[name], problems) for name in _MEMBERS}
    except LongtailError:
        raise
    except Exception as error:  # zipfile and numpy raise a dozen kinds for damaged bytes
        problems.fatal(
            f"a damaged archive ({quoted(str(error))})", "a matrix of scipy.sparse.save_npz"
        )


def _check_members(members: dict[str, zipfile.ZipInfo], nbytes: int, problems: Problems) -> None:
    """Refuse an archive of something else, and one that claims more than ``nbytes`` of archive can
    hold.
    """
    missing = [name for name in _MEMBERS if name not in members]
    if missing:
        problems.fatal(f"an archive without {missing[0]}.npy", "a matrix of scipy.sparse.save_npz")
    if sum(members[name].file_size for name in _MEMBERS) > max(
        _EXPANSION_FREE, MAX_EXPANSION * nbytes
    ):
        problem = f"an archive that grows more than {MAX_EXPANSION} times"
        problems.fatal(problem, "a matrix; if it is meant, save it with compressed=False")


def _read_array(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, problems: Problems
) -> NDArray[Any]:
    """Return one array; its header must claim just the bytes that the archive holds, and no
    objects.
    """
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0
        else:
            header = np.lib.format.read_array_header_2_0
        shape, _, dtype = header(member)
        if dtype.kind not in "iufbSU" or len(shape) > 1:
            problems.fatal(
                f"{info.filename} of type {dtype} and shape {shape}", "a list of plain numbers"
            )
        size = prod(shape) * dtype.itemsize
        held = info.file_size - member.tell()
        if size != held:
            problems.fatal(f"{info.filename} that claims {size} bytes and holds {held}", "as many")
        content = bytearray(size)
        for at in range(0, size, _CHUNK):  # ZipExtFile.readinto would hold all of it twice
            content[at : at + _CHUNK] = member.read(_CHUNK)
        return np.frombuffer(content, dtype).reshape(shape)


def _checked_csr(arrays: dict[str, NDArray[Any]], problems: Problems) -> sparse.csr_array:
    """Return the matrix, or say what is wrong with it."""
    shape, indptr, indices = (
        _integers(arrays, name, problems) for name in ("shape", "indptr", "indices")
    )
    kind = arrays["format"].tobytes().replace(b"\0", b"")
    data = arrays["data"]
    if kind != b"csr":
        problems.fatal(
            f"a matrix in the format {quoted(kind)}", "csr; convert it with matrix.tocsr()"
        )
    if data.dtype.kind not in "iufb" or data.ndim != 1:
        problems.fatal(f"data of type {data.dtype} and shape {data.shape}", "a list of numbers")
    if len(shape) != 2 or shape[0] != len(indptr) - 1 or not 0 <= shape[1] <= MAX_COLUMNS:
        problem = f"the shape {tuple(shape.tolist())} with {len(indptr) - 1} rows"
        problems.fatal(problem, f"(rows, columns) and at most {MAX_COLUMNS} columns")
    if (
        indptr[0] != 0
        or (indptr[1:] < indptr[:-1]).any()
        or not indptr[-1] == len(indices) == len(data)
    ):
        problems.fatal("row ends that do not rise from 0 to the number of entries", "a CSR matrix")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        problems.fatal(f"column {_outside(indices, shape[1])}", f"a number below {shape[1]}")
    with np.errstate(over="ignore"):
        values = data.astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        problems.fatal(f"value {data[~np.isfinite(values)][0]}", "finite numbers")
    return _canonical(values, indices.astype(np.int32, copy=False), indptr, int(shape[1]), problems)


def _integers(arrays: dict[str, NDArray[Any]], name: str, problems: Problems) -> NDArray[Any]:
    array = arrays[name]
    if array.dtype.kind not in "iu" or array.ndim != 1 or (name == "indptr" and not len(array)):
        problems.fatal(
            f"{name} of type {array.dtype} and shape {array.shape}", "a list of whole numbers"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _outside(indices: NDArray[Any], n_columns: int) -> int:
    if indices.min() < 0:
        return int(indices.min())
    return int(indices[indices >= n_columns][0])


def _canonical(
    values: NDArray[np.float32],
    columns: NDArray[np.int32],
    ends: NDArray[Any],
    n_columns: int,
    problems: Problems,
) -> sparse.csr_array:
    """Return the matrix with rising columns in each row; the same column twice is refused."""
    matrix = csr_of(values, columns, ends.astype(np.int64, copy=False), n_columns)
    matrix.sort_indices()
    if not matrix.has_canonical_format:
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        twice = (matrix.indices[1:] == matrix.indices[:-1]) & (rows[1:] == rows[:-1])
        at = int(np.flatnonzero(twice)[0])
        problems.fatal(
            f"column {matrix.indices[at]} twice in row {rows[at]}", "each column once a row"
        )
    return matrix
