"""The catalogue of data formats, how each is told from its name and first bytes, and ``read`` and
``write``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from longtail.data.builder import Reading, Split, Unknown
from longtail.data.dataset import Dataset
from longtail.data.headers import has_header, is_headerless
from longtail.data.json_lines import LINES_OF_A_LIST
from longtail.data.labels import Labels
from longtail.data.lines import beginning, uncompressed
from longtail.data.origin import log_origin
from longtail.data.problems import Problems
from longtail.data.source import Source
from longtail.errors import UsageError, unknown_name
from longtail.reporting import stage

__all__ = ["FORMATS", "Format", "read", "read_features", "sniff", "write"]


log = logging.getLogger("longtail")


class Format(NamedTuple):
    """A way to keep documents with labels: module ``longtail.data.MODULE`` has read_NAME and
    write_NAME.
    """

    name: str
    module: str
    what: str
    # a folder of files; but for annif-folder, train and test lie there side by side
    folder: bool = False

    def function(self, verb: Literal["read", "write"]) -> Callable[..., Any]:
        """Return the reader or writer; its module, and what that needs, is imported only now."""
        function: Callable[..., Any] = getattr(
            import_module(f"longtail.data.{self.module}"), f"{verb}_{self.name.replace('-', '_')}"
        )
        return function


FORMATS = {
    form.name: form
    for form in [
        Format("jsonl", "jsonl", 'JSON lines {"id", "title", "text", "labels"}'),
        Format("csv", "tables", "comma-separated with a header row"),
        Format("tsv", "tables", "tab-separated with a header row"),
        Format("parquet", "parquet", "Parquet with the columns of a CSV"),
        Format("fasttext", "fasttext", "__label__a __label__b text"),
        Format(
            "bow",
            "xmc_bow",
            "XMC repository, train.txt and test.txt: l,l f:v f:v under N D L; svmlight without it",
        ),
        Format(
            "xmc-split",
            "xmc_bow",
            "XMC repository, split: trn_X_Xf.txt, trn_X_Y.txt, lbl_X_Xf.txt",
            True,
        ),
        Format(
            "lf",
            "lf",
            "XMC repository, texts: trn.json.gz, tst.json.gz with lbl.json.gz or Yf.txt",
            True,
        ),
        Format(
            "attentionxml",
            "attentionxml",
            "train_raw_texts.txt, train_labels.txt, features in train_v1.txt",
            True,
        ),
        Format(
            "pecos",
            "pecos",
            "X.trn.txt, Y.trn.npz, output-items.txt, tfidf-attnxml/X.trn.npz",
            True,
        ),
        Format("annif-tsv", "annif", "text<TAB><uri> <uri>"),
        Format("annif-csv", "annif", "a table with text, subject_uris and document_id"),
        Format(
            "annif-folder", "annif", "one .txt a document, subjects in .tsv or .key beside it", True
        ),
    ]
}

# A folder is told by a file in it, a file by its name without .gz and .zst. Where a folder holds
# several layouts, the first of these that it holds is read: those with texts come before those of
# features alone.
_BY_MEMBER = {
    "trn.json": "lf",
    "tst.json": "lf",
    "trn.raw.json": "lf",
    "tst.raw.json": "lf",
    "train_raw_texts.txt": "attentionxml",
    "test_raw_texts.txt": "attentionxml",
    "train_texts.txt": "attentionxml",
    "test_texts.txt": "attentionxml",
    "X.trn.txt": "pecos",
    "X.tst.txt": "pecos",
    "train.jsonl": "jsonl",
    "test.jsonl": "jsonl",
    "Y.trn.npz": "pecos",
    "Y.tst.npz": "pecos",
    "trn_X_Xf.txt": "xmc-split",
    "tst_X_Xf.txt": "xmc-split",
}
_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def read(
    path: Path | str,
    *,
    format: str | None = None,
    split: Split = "train",
    labels: Labels | Path | str | None = None,
    unknown: Unknown | None = None,
    features: Path | str | Literal[False] | None = None,
    fields: str | Sequence[str] | None = None,
    labelled: bool = True,
    skip_bad: int | None = 0,
    label_separator: str = ";",
    separator: str | None = None,
    text_column: str | None = None,
    labels_column: str | None = None,
) -> Dataset:
    """Read documents with labels from a file, a folder that holds ``split``, or ``-``, standard
    input.

    Args:
        path: A file, a folder or ``-``.
        format: Name of the format; told from names and content otherwise.
        split: Part of a folder that holds both, ``train`` or ``test``.
        labels: A vocabulary or a label file, which fixes the columns.
        unknown: What becomes of a label outside it: ``error``, ``drop`` or ``add``.
        features: File of features in place of text (.npz, BoW, svmlight), or of vectors beside it
            (.npy). None takes those that lie beside the texts in a folder of AttentionXML or PECOS,
            False takes none.
        fields: ``title``, ``content`` or both, of documents and labels of a label-feature set.
        labelled: Whether every record must have labels.
        skip_bad: Bad records that may be left out, also of the label file; None for data that is
        read whole or not.
        label_separator: Between the labels of one cell of a table.
        separator: Between the cells of a CSV or TSV file, where it is not the usual one.
        text_column: Name of the column of texts of a table, in place of ``text``.
        labels_column: Name of the column of labels of a table, in place of ``labels``.
    """
    form = _format(format) if format else sniff(path)
    folder = str(path) != "-" and Path(path).is_dir()
    others = _other_formats(Path(path), form) if folder and not format else []
    if form.name == "jsonl" and folder:
        path, labels, unknown = _own_folder(Path(path), split, labels, unknown)
    if features is False and form.name in ("bow", "xmc-split"):
        raise UsageError(
            f"{path}: {form.name} holds features and no texts; expected to read them, or another format"
        )
    file = features or None
    reading = Reading(
        split,
        _vocabulary(labels, skip_bad),
        unknown or "error",
        labelled,
        file is None,
        skip_bad,
        label_separator,
        separator,
        text_column,
        labels_column,
        labels_file=str(labels) if isinstance(labels, Path | str) else "",
        fields=_fields(fields, form, path),
        folder_features=features is None or Path(file or "").suffix == ".npy",
    )
    _check_table_options(reading, form, path)
    with stage(f"reading {Path(path).name}", _size(path), "B"):
        dataset: Dataset = form.function("read")(path, reading)
    dataset = _with_source(dataset, path, split, skip_bad)
    if reading.notes or (folder and form.name != "jsonl"):
        log_origin(path, form.name, dataset, reading.notes, others)
    if file is None:
        return dataset
    matrix, headerless = _read_features(file, len(dataset))
    return dataset.with_features(matrix, file, headerless)


def _check_table_options(reading: Reading, form: Format, path: Path | str) -> None:
    """Warn of options of tables for documents of another format; refuse a separator that cannot be
    one.
    """
    if reading.separator is not None and (
        len(reading.separator) != 1 or reading.separator in '"\r\n'
    ):
        raise UsageError(f"separator {reading.separator!r}; expected one character, such as ';'")
    options = {
        "label_separator": reading.label_separator != ";",
        "separator": reading.separator is not None,
        "text_column": reading.text_column is not None,
        "labels_column": reading.labels_column is not None,
    }
    used = [name for name, is_used in options.items() if is_used]
    if used and form.name not in ("csv", "tsv", "parquet"):
        log.warning("%s: is read as %s; without effect there: %s", path, form.name, ", ".join(used))


def _with_source(dataset: Dataset, path: Path | str, split: str, skip_bad: int | None) -> Dataset:
    """Return the documents with the place that they are from; a reader whose files number labels
    has said which.
    """
    if str(path) == "-":
        return dataset
    numbered = None if dataset.source is None else dataset.source.labels
    whole = not skip_bad and (dataset.source is None or dataset.source.whole)
    return replace(dataset, source=Source.of(path, split, numbered, whole))


def write(
    dataset: Dataset, path: Path | str, *, format: str | None = None, split: str = "train"
) -> None:
    """Write a dataset; the format is told by the name of ``path`` unless it is given."""
    form = _format(format) if format else _by_name(Path(path), written=True)
    # the name of a member is not that of the folder
    if form is None or (form.folder and not format):
        raise UsageError(
            f"{path}: the name does not tell the format; give one with --to: {', '.join(FORMATS)}"
        )
    if form.folder and str(path) == "-":
        raise UsageError(
            f"{form.name} is a folder of files; expected the name of a folder, found standard output"
        )
    more = {"split": split} if form.folder else {}
    form.function("write")(dataset, path, **more)


def read_features(path: Path | str) -> Any:
    """Return ready-made features: a csr_array (n, d) from ``.npz``, BoW or svmlight, an array (n,
    e) from ``.npy``.
    """
    return _read_features(path, None)[0]


def _read_features(path: Path | str, n_documents: int | None) -> tuple[Any, bool]:
    """Return features, and whether their file has no header, so that it may lack the last columns."""
    expected = "expected features as .npz, .npy, BoW or svmlight"
    if Path(path).suffix in (".npz", ".npy"):
        reader = import_module("longtail.data.npz")
        if Path(path).suffix == ".npz":
            matrix = reader.read_csr_npz(path)
        else:
            matrix = reader.read_dense_npy(path)
        return matrix, False
    if Path(path).is_file() and not _told(Path(path)):
        raise UsageError(f"{path}: unknown format; {expected}")
    # a row left out would move those after it
    reading = Reading(labelled=False, skip_bad=None, n_documents=n_documents)
    dataset: Dataset = sniff(path).function("read")(path, reading)
    if dataset.features is None:
        raise UsageError(f"{path}: holds texts; {expected}")
    for note in reading.notes:
        log.info(note)
    return dataset.features, dataset.headerless_file is not None


def sniff(path: Path | str) -> Format:
    """Tell the format from the folder's members, the file's name, or its first bytes."""
    if str(path) == "-":
        return FORMATS["jsonl"]
    path = Path(path)
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if path.is_dir():
        return _sniff_folder(path)
    if not path.is_file():  # a pipe can be read only once
        return FORMATS["jsonl"]
    form = _told(path)
    if form is None:
        raise UsageError(f"{path}: unknown format; {_way_out(path)}")
    return form


def _way_out(path: Path) -> str:
    """Return what to do with a file of no known format."""
    formats = f"give one with --format: {', '.join(FORMATS)}"
    if path.suffix.lower() == ".txt":
        return f"plain texts are read from a folder, one .txt file a document: give the folder; else {formats}"
    return formats


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise UsageError(unknown_name("format", name, FORMATS))
    return FORMATS[name]


def _told(path: Path) -> Format | None:
    """Tell the format of a file from its name, or its first bytes; of a .csv, whose columns it has."""
    form = _by_name(path) or _by_content(path)
    if form is FORMATS["csv"]:
        names = {cell.strip(b' "').lower() for cell in _beginning(path)[1].split(b",")}
        if b"subject_uris" in names and b"labels" not in names:
            return FORMATS["annif-csv"]
        return form
    return form


def _by_name(path: Path, written: bool = False) -> Format | None:
    bare = uncompressed(path.name)
    suffix = bare.suffix.lower()
    found = (
        _BY_MEMBER.get(bare.name)
        or _BY_SUFFIX.get(suffix)
        or ("tsv" if written and suffix == ".tsv" else None)
    )
    return FORMATS[found] if found else None


def _sniff_folder(folder: Path) -> Format:
    found = _formats_in(folder)
    if found:
        return FORMATS[found[0]]
    names = {uncompressed(member.name).name for member in folder.iterdir()}
    if any(name.endswith(".txt") for name in names):
        return FORMATS["annif-folder"]
    if "manifest.json" in names:
        raise UsageError(
            f"{folder}: is a model folder; expected data: a file or folder of documents"
        )
    known = ", ".join(_BY_MEMBER)
    raise UsageError(
        f"{folder}: no known dataset in this folder; expected one of {known}, or *.txt documents"
    )


def _formats_in(folder: Path) -> list[str]:
    """Return the formats of which a folder holds a file, the one to read first."""
    names = {uncompressed(member.name).name for member in folder.iterdir()}
    found = list(dict.fromkeys(form for member, form in _BY_MEMBER.items() if member in names))
    if not found and any(
        import_module("longtail.data.xmc_bow").bow_files(folder, part) for part in get_args(Split)
    ):
        found.append("bow")
    return found


def _other_formats(folder: Path, form: Format) -> list[str]:
    return [name for name in _formats_in(folder) if name != form.name]


def _fields(
    fields: str | Sequence[str] | None, form: Format, path: Path | str
) -> tuple[str, ...] | None:
    """Return the fields asked for in the order of a record, or say why they cannot be chosen."""
    if fields is None:
        return None
    if form.name != "lf":
        found = f"{path} is read as {form.name}"
        raise UsageError(
            f"fields are chosen of label-feature sets (lf): title, content or both; {found}"
        )
    names = fields.split(",") if isinstance(fields, str) else fields
    if not isinstance(names, list | tuple):
        raise UsageError(f"fields: found {fields!r}; expected title, content or title,content")
    asked = [name.strip() if isinstance(name, str) else name for name in names]
    known = import_module("longtail.data.lf").FIELDS
    for name in asked:
        if name not in known:
            raise UsageError(unknown_name("field", name, known))
    if not asked:
        raise UsageError("no field; expected title, content or title,content")
    return tuple(name for name in known if name in asked)


def _by_content(path: Path) -> Format | None:
    """Tell files whose name says too little (.txt, .tsv, .json) from their first line."""
    start, first = _beginning(path)
    if not start:
        Problems(path).fatal("an empty file", "documents")
    if start.startswith(b"PAR1"):
        return FORMATS["parquet"]
    if first.startswith(b"{"):
        return FORMATS["jsonl"]
    if first.startswith(b"[") and uncompressed(path.name).suffix.lower() == ".json":
        Problems(path).fatal("a list", LINES_OF_A_LIST, 1)
    if has_header(start) or is_headerless(start):
        return FORMATS["bow"]
    if first.startswith(b"__label__"):
        return FORMATS["fasttext"]
    if b"\t" in first:
        names = {cell.strip().lower() for cell in first.split(b"\t")}
        return FORMATS["tsv" if names & {b"text", b"title"} and b"labels" in names else "annif-tsv"]
    return None


def _beginning(path: Path) -> tuple[bytes, bytes]:
    """Return the first bytes of a file, and its first line that is not blank, as far as it stands
    in them.
    """
    start = beginning(path)
    return start, start.lstrip(b"\r\n").partition(b"\n")[0].strip()


def _own_folder(
    folder: Path, split: str, labels: Labels | Path | str | None, unknown: Unknown | None
) -> tuple[Path, Labels | Path | str | None, Unknown | None]:
    """Return the document file of a folder of JSON lines, and the labels that lie beside it."""
    file, beside = (
        next(
            (
                f
                for f in (folder / f"{stem}.jsonl{end}" for end in ("", ".gz", ".zst"))
                if f.exists()
            ),
            None,
        )
        for stem in (split, "labels")
    )
    if file is None:
        raise UsageError(
            f"{folder}: no {split}.jsonl, {split}.jsonl.gz or {split}.jsonl.zst in this folder"
        )
    if labels is None and beside:
        return (file, beside, unknown or "add")
    return (file, labels, unknown)


def _vocabulary(labels: Labels | Path | str | None, skip_bad: int | None) -> Labels | None:
    if labels is None or isinstance(labels, Labels):
        return labels
    vocabulary: Labels = import_module("longtail.data.label_files").read_labels(
        labels, skip_bad=skip_bad
    )
    return vocabulary


def _size(path: Path | str) -> int | None:
    if Path(path).is_file():
        return Path(path).stat().st_size
    return None
