"""The catalogue of data formats, and how each is recognised by name and first bytes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from longtail.data.builder import Split
from longtail.data.headers import has_header, is_headerless
from longtail.data.json_lines import LINES_OF_A_LIST
from longtail.data.lines import beginning, uncompressed
from longtail.data.problems import Problems
from longtail.errors import UsageError, unknown_name

__all__ = [
    "FORMATS",
    "Format",
    "format_by_name",
    "formats_in",
    "named_format",
    "recognise",
    "sniff",
]


class Format(NamedTuple):
    """A way to keep documents with labels; reader and writer are given as ``module:function``."""

    name: str
    reader: str
    writer: str
    what: str
    # a folder of files; but for annif-folder, train and test lie there side by side
    folder: bool = False

    def function(self, verb: Literal["read", "write"]) -> Callable[..., Any]:
        """Return the reader or writer; its module, and what that needs, is imported only now."""
        module, _, name = (self.reader if verb == "read" else self.writer).partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function


FORMATS = {
    form.name: form
    for form in [
        Format(
            "jsonl",
            "longtail.data.jsonl:read_jsonl",
            "longtail.data.jsonl:write_jsonl",
            'JSON lines {"id", "title", "text", "labels"}',
        ),
        Format(
            "csv",
            "longtail.data.tables:read_csv",
            "longtail.data.tables:write_csv",
            "comma-separated with a header row",
        ),
        Format(
            "tsv",
            "longtail.data.tables:read_tsv",
            "longtail.data.tables:write_tsv",
            "tab-separated with a header row",
        ),
        Format(
            "parquet",
            "longtail.data.parquet:read_parquet",
            "longtail.data.parquet:write_parquet",
            "Parquet with the columns of a CSV",
        ),
        Format(
            "fasttext",
            "longtail.data.fasttext:read_fasttext",
            "longtail.data.fasttext:write_fasttext",
            "__label__a __label__b text",
        ),
        Format(
            "bow",
            "longtail.data.xmc_bow:read_bow",
            "longtail.data.xmc_bow:write_bow",
            "XMC repository, train.txt and test.txt: l,l f:v f:v under N D L; svmlight without it",
        ),
        Format(
            "xmc-split",
            "longtail.data.xmc_bow:read_xmc_split",
            "longtail.data.xmc_bow:write_xmc_split",
            "XMC repository, split: trn_X_Xf.txt, trn_X_Y.txt, lbl_X_Xf.txt",
            True,
        ),
        Format(
            "lf",
            "longtail.data.lf:read_lf",
            "longtail.data.lf:write_lf",
            "XMC repository, texts: trn.json.gz, tst.json.gz with lbl.json.gz or Yf.txt",
            True,
        ),
        Format(
            "attentionxml",
            "longtail.data.attentionxml:read_attentionxml",
            "longtail.data.attentionxml:write_attentionxml",
            "train_raw_texts.txt, train_labels.txt, features in train_v1.txt",
            True,
        ),
        Format(
            "pecos",
            "longtail.data.pecos:read_pecos",
            "longtail.data.pecos:write_pecos",
            "X.trn.txt, Y.trn.npz, output-items.txt, tfidf-attnxml/X.trn.npz",
            True,
        ),
        Format(
            "annif-tsv",
            "longtail.data.annif:read_annif_tsv",
            "longtail.data.annif:write_annif_tsv",
            "text<TAB><uri> <uri>",
        ),
        Format(
            "annif-csv",
            "longtail.data.annif:read_annif_csv",
            "longtail.data.annif:write_annif_csv",
            "a table with text, subject_uris and document_id",
        ),
        Format(
            "annif-folder",
            "longtail.data.annif:read_annif_folder",
            "longtail.data.annif:write_annif_folder",
            "one .txt a document, subjects in .tsv or .key beside it",
            True,
        ),
    ]
}

# A folder is recognised by a file in it, a file by its name without .gz and .zst. Where a folder
# holds several layouts, the first of these is read: those with texts come before those of features
# alone.
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


def named_format(name: str) -> Format:
    """Return the format of a name, or raise for an unknown one."""
    if name not in FORMATS:
        raise UsageError(unknown_name("format", name, FORMATS))
    return FORMATS[name]


def sniff(path: Path | str) -> Format:
    """Recognise a format by the folder's members, the file's name, or its first bytes."""
    if str(path) == "-":
        return FORMATS["jsonl"]
    path = Path(path)
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if path.is_dir():
        return _sniff_folder(path)
    if not path.is_file():  # a pipe can be read only once
        return FORMATS["jsonl"]
    form = recognise(path)
    if form is None:
        raise UsageError(f"{path}: unknown format; {_way_out(path)}")
    return form


def _way_out(path: Path) -> str:
    """Return what to do with a file of no known format."""
    formats = f"give one with --format: {', '.join(FORMATS)}"
    if path.suffix.lower() == ".txt":
        folder = "plain texts are read from a folder, one .txt file a document: give the folder"
        return f"{folder}; else {formats}"
    return formats


def recognise(path: Path) -> Format | None:
    """Recognise the format of a file by its name, or its first bytes; of a .csv, by its columns."""
    form = format_by_name(path) or _by_content(path)
    if form is FORMATS["csv"]:
        names = {cell.strip(b' "').lower() for cell in _beginning(path)[1].split(b",")}
        if b"subject_uris" in names and b"labels" not in names:
            return FORMATS["annif-csv"]
    return form


def format_by_name(path: Path, written: bool = False) -> Format | None:
    """Recognise a format by the name of its file; a .tsv says enough only where it is written."""
    bare = uncompressed(path.name)
    suffix = bare.suffix.lower()
    name = _BY_MEMBER.get(bare.name) or _BY_SUFFIX.get(suffix)
    if not name and written and suffix == ".tsv":
        name = "tsv"
    if name is None:
        return None
    return FORMATS[name]


def _sniff_folder(folder: Path) -> Format:
    known_formats = formats_in(folder)
    if known_formats:
        return FORMATS[known_formats[0]]
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


def formats_in(folder: Path) -> list[str]:
    """Return the formats of which a folder holds a file, the one to read first."""
    names = {uncompressed(member.name).name for member in folder.iterdir()}
    formats = list(dict.fromkeys(form for member, form in _BY_MEMBER.items() if member in names))
    if formats:
        return formats
    from longtail.data.xmc_bow import bow_files

    if any(bow_files(folder, part) for part in get_args(Split)):
        return ["bow"]
    return []


def _by_content(path: Path) -> Format | None:
    """Recognise files whose name says too little (.txt, .tsv, .json) by their first line."""
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
        if names & {b"text", b"title"} and b"labels" in names:
            return FORMATS["tsv"]
        return FORMATS["annif-tsv"]
    return None


def _beginning(path: Path) -> tuple[bytes, bytes]:
    """Return the first bytes of a file, and what they hold of its first line that is not blank."""
    start = beginning(path)
    return start, start.lstrip(b"\r\n").partition(b"\n")[0].strip()
