"""Bad inputs in the formats of the field's benchmarks, and in features and filter files."""

# fmt: off
from __future__ import annotations

import io
import zipfile

import numpy as np
from bad_input import Frame, npz, whole
from bad_input_texts import LINE, NO_DOCUMENT, NOT_UTF8, SURROGATE, TWICE

from longtail.data.labels import Labels

HEADER = "expected a header of {} numbers: documents, features"
BELOW = "expected a number below {}, as the header says"
AS_MANY = "expected as many lines as the header says"
FINITE = "expected a finite number"
CLOSED = {"options": {"labels": Labels.of(["0", "7"])}}
UNKNOWN = "unknown label '1'; expected a label of the given vocabulary"
USAGE = {"exit_code": 2}

ZERO = ({0: 1.0}, ["0"])
ONE = ({1: 1.0}, ["0"])
bow = Frame("bow", "bad.bow", b"3 3 2\n0 0:1\n", b"0 1:1\n", (ZERO, ONE))

BOW = bow.cases(
    ("wrong types", "label", b"x 0:1", "label 'x'; expected a whole number from 0"),
    ("wrong types", "fraction", b"0.0 0:1", "label '0.0'; expected a whole number from 0"),
    ("wrong types", "no label", b"0,,1 0:1", "label ''; expected a whole number from 0"),
    ("wrong types", "value", b"0 0:x", "value 'x'; " + FINITE),
    ("missing fields", "value", b"0 0:", "value ''; " + FINITE),
    ("missing fields", "colon", b"0 1", "'1'; expected feature:value"),
    ("missing fields", "labels", b" 2:1", [({2: 1.0}, [])]),
    ("missing fields", "features", b"1", [({}, ["1"])]),
    ("unknown label", "closed", b"1 0:1", UNKNOWN, CLOSED),
    ("unknown label", "drop", b"0,1 0:1", [ZERO],
     {"options": CLOSED["options"] | {"unknown": "drop"}, "counts": (0, 1)}),
    ("duplicate label", "once", b"1,0,1 0:1", [({0: 1.0}, ["0", "1"])], TWICE),
    ("indices", "feature", b"0 3:1", "feature 3; " + BELOW.format(3)),
    ("indices", "label", b"2 0:1", "label 2; " + BELOW.format(2)),
    ("indices", "negative", b"0 -1:1", "feature '-1'; expected a whole number from 0"),
    ("indices", "huge", b"0 99999999999999999999:1", "feature 99999999999999999999; " + BELOW.format(3)),
    ("indices", "twice", b"0 1:1 1:2", "feature 1 twice; expected each feature once a line"),
    ("indices", "falling", b"1 2:1 0:2", [({0: 2.0, 2: 1.0}, ["1"])]),
    ("NaN or Inf", "nan", b"0 0:nan", "value 'nan'; " + FINITE),
    ("NaN or Inf", "inf", b"0 0:-inf", "value '-inf'; " + FINITE),
    ("NaN or Inf", "float", b"0 0:1e39", "value '1e39'; " + FINITE),
    ("empty text", "line", b"", [({}, [])]),
    ("CRLF", "one", b"0 0:1\r", [ZERO]),
    ("NUL", "value", b"0 0:1\0", "value '1\\x00'; " + FINITE),
    ("encoding", "Latin-1", b"0 0:\xff", "value '\\\\xff'; " + FINITE),
) + whole(
    "bow",
    ("header", "two numbers", b"1 3\n0:1\n", f"bad.bow:1: '1 3'; {HEADER.format(3)}, labels"),
    ("header", "negative", b"-1 3 2\n", f"bad.bow:1: '-1 3 2'; {HEADER.format(3)}, labels"),
    ("header", "none", b"0 0:1\n", [ZERO]),
    ("header", "none, and no features", b"0,1\n2\n", f"bad.bow:1: '0,1'; {HEADER.format(3)}, labels"),
    ("header", "none, blank lines", b"0 0:1\n\n0 1:1\n\n\n", [ZERO, ({}, []), ONE]),
    ("header", "none, comments", b"# svmlight\n0 0:1 # one\n#\n0 qid:7 1:1\n", [ZERO, ONE]),
    ("header", "none, labels", b"1999999999 0:1\n",
     "bad.bow: 2000000000 labels claimed by a file of 15 bytes; expected a label matrix as wide as its labels"),
    ("header", "none, ids", {"bad.txt": b"1 0:1\n", "bad.labels.txt": b"x\n"},
     "bad.labels.txt: 1 lines; expected at least 2, one a label"),
    ("header", "lines less", b"3 3 2\n0 0:1\n", f"bad.bow:1: 1 lines after a header of 3 documents; {AS_MANY}"),
    ("header", "lines more", b"1 3 2\n0 0:1\n\n0 1:1\n",
     "bad.bow:4: a line after the 1 documents of the header; expected the end of the file"),
    ("header", "blank at the end", b"1 3 2\n0 0:1\n\n\n", [ZERO]),
    ("header", "documents", b"999999999999 3 2\n0 0:1\n",
     f"bad.bow:1: 1 lines after a header of 999999999999 documents; {AS_MANY}"),
    ("header", "features", b"1 3000000000 2\n0 0:1\n",
     "bad.bow:1: a header of 3000000000 features; expected at most 2147483647"),
    ("header", "labels", b"1 3 2000000000\n0 0:1\n",
     "bad.bow: 2000000000 labels claimed by a file of 6 bytes; expected a label matrix as wide as its labels"),
    ("header", "ids", {"bad.txt": b"1 3 2\n0 0:1\n", "bad.labels.txt": b"x\n"},
     "bad.labels.txt: 1 lines; expected 2, one a label"),
    ("duplicate label", "ids", {"bad.txt": b"1 3 2\n0 0:1\n", "bad.labels.txt": b"x\nx\n"},
     "bad.labels.txt: a label id that stands twice; expected each id once"),
    ("encoding", "ids", {"bad.txt": b"1 3 2\n0 0:1\n", "bad.labels.txt": b"x\n\xff\n"},
     f"bad.labels.txt:2: {NOT_UTF8}"),
    ("empty file", "nothing", b"", f"bad.bow: an empty file; {HEADER.format(3)}, labels"),
    ("empty file", "header", b"0 0 0\n", f"bad.bow: {NO_DOCUMENT}"),
    ("BOM", "first", b"\xef\xbb\xbf1 3 1\n0 0:1\n", [ZERO]),
)

headerless = Frame("bow", "bad.bow", b"0 0:1\n", b"0 1:1\n", (ZERO, ONE))

BOW += headerless.cases(
    ("wrong types", "headerless label", b"x 0:1", "label 'x'; expected a whole number from 0"),
    ("wrong types", "headerless sign", b"-1 0:1", "label '-1'; expected a whole number from 0"),
    ("wrong types", "headerless value", b"0 0:x", "value 'x'; " + FINITE),
    ("header", "headerless in the second line", b"3 3 2", "'3'; expected feature:value"),
    ("wrong types", "headerless qid", b"0 0:1 qid:3", "feature 'qid'; expected a whole number from 0"),
    ("missing fields", "headerless colon", b"0 1", "'1'; expected feature:value"),
    ("indices", "headerless huge", b"0 2147483647:1", "feature 2147483647; expected a number below 2147483647"),
    ("indices", "headerless twice", b"0 1:1 1:2", "feature 1 twice; expected each feature once a line"),
    ("NaN or Inf", "headerless", b"0 0:inf", "value 'inf'; " + FINITE),
)

X = b"3 3\n0:1\n0:1\n1:1\n"
Y = b"3 2\n0:1\n0:1\n0:1\n"
xs = Frame("xmc-split", "set/trn_X_Xf.txt", b"3 3\n0:1\n", b"1:1\n", (ZERO, ONE), {"set/trn_X_Y.txt": Y})
ys = Frame("xmc-split", "set/trn_X_Y.txt", b"3 2\n0:1\n", b"0:1\n", (ZERO, ONE), {"set/trn_X_Xf.txt": X})


def split(kind, id, result, more=None, x=X, y=Y, **others):
    """Return the case of a folder with these files."""
    files = {"trn_X_Xf.txt": x, "trn_X_Y.txt": y} | {f"{name}.txt": content for name, content in others.items()}
    return kind, id, {f"set/{name}": content for name, content in files.items() if content is not None}, result, more


XMC_SPLIT = xs.cases(
    ("indices", "feature", b"9:1", "feature 9; " + BELOW.format(3)),
    ("NaN or Inf", "feature", b"0:nan", "value 'nan'; " + FINITE),
    ("empty text", "line", b"", [({}, ["0"])]),
) + ys.cases(
    ("wrong types", "label", b"one:1", "label 'one'; expected a whole number from 0"),
    ("missing fields", "colon", b"1", "'1'; expected label:value"),
    ("missing fields", "labels", b"", [({0: 1.0}, [])]),
    ("unknown label", "closed", b"1:1", UNKNOWN, CLOSED),
    ("duplicate label", "refused", b"1:1 1:1", "label 1 twice; expected each label once a line"),
    ("indices", "label", b"2:1", "label 2; " + BELOW.format(2)),
    ("indices", "falling", b"1:0.5 0:1", [({0: 1.0}, {"0": 1.0, "1": 0.5})]),
    ("NaN or Inf", "relevance", b"0:inf", "value 'inf'; " + FINITE),
    ("NaN or Inf", "zero", b"0:0", "relevance '0' of label 0; expected a finite number above 0"),
    ("CRLF", "one", b"1:1\r", [({0: 1.0}, ["1"])]),
    ("NUL", "value", b"0:1\0", "value '1\\x00'; " + FINITE),
) + whole(
    "xmc-split",
    split("missing file", "Y", "set: no file trn_X_Y.txt", USAGE, y=None),
    split("missing file", "X", "set: no file trn_X_Xf.txt", USAGE, x=None),
    split("missing file", "test", "set: no file tst_X_Xf.txt", USAGE | {"options": {"split": "test"}}),
    split("header", "Y", "set/trn_X_Y.txt:1: 1 documents, but 3 in trn_X_Xf.txt; expected as many in both",
          y=b"1 2\n0:1\n"),
    split("header", "lines", f"set/trn_X_Y.txt:1: 1 lines after a header of 3 documents; {AS_MANY}", y=b"3 2\n0:1\n"),
    split("header", "label features",
          "set/lbl_X_Xf.txt:1: 1 labels and 3 features; expected 2 and 3, as in the other files",
          lbl_X_Xf=b"1 3\n0:1\n"),
    split("header", "names", "set/Yf.txt: 1 lines; expected 2, one a label", Yf=b"one\n"),
    split("indices", "both", "set/trn_X_Xf.txt:3: feature 3; " + BELOW.format(3) + "\n"
          "set/trn_X_Y.txt:4: label 2; " + BELOW.format(2), {"rest": [ZERO]},
          x=b"3 3\n0:1\n3:1\n1:1\n", y=b"3 2\n0:1\n0:1\n2:1\n"),
    split("empty file", "X", f"set/trn_X_Xf.txt: an empty file; {HEADER.format(2)}", x=b""),
    split("BOM", "both", [ZERO, ZERO, ONE], x=b"\xef\xbb\xbf" + X, y=b"\xef\xbb\xbf" + Y),
)

SEA = ("sea", ["l1"])
WIND = ("wind", ["l0"])
LABELS = b'{"uid": "l0", "title": "zero"}\n{"uid": "l1", "title": "one"}\n'
TARGETS = b'{"title": "x", "target_ind": [%b], "target_rel": [%b]}'
lf = Frame(
    "lf",
    "set/trn.json",
    b'{"uid": "1", "title": "sea", "content": "", "target_ind": [1]}\n',
    b'{"uid": "3", "content": "wind", "target_ind": [0], "target_rel": [1.0]}\n',
    (SEA, WIND),
    {"set/lbl.json": LABELS},
)


def lf_labels(kind, id, labels, result, more=None):
    """Return the case of a set with this label file."""
    return kind, id, {"set/trn.json": lf.after, "set/lbl.json": labels}, result, more


LF = lf.cases(
    ("wrong JSON", "words", b"not json", "invalid character (byte 4) near 'not json'" + LINE),
    ("wrong JSON", "two a line", b"{} {}", "trailing characters (byte 4) near '{} {}'" + LINE),
    ("wrong types", "title", b'{"title": 7}', "a whole number in 'title'; expected a string"),
    ("wrong types", "label", b'{"target_ind": ["0"]}', "a string in 'target_ind[0]'; expected a whole number"),
    ("wrong types", "fraction", b'{"target_ind": [0.5]}', "a number in 'target_ind[0]'; expected a whole number"),
    ("wrong types", "relevances", TARGETS % (b"0", b"1, 2"),
     "2 of 'target_rel' for 1 of 'target_ind'; expected one relevance a label"),
    ("missing fields", "text", b'{"target_ind": [0]}',
     "no field 'title' or 'content'; expected a document such as {\"title\": \"…\", \"target_ind\": [0]}"),
    ("missing fields", "labels", b'{"title": "x"}',
     "no field 'target_ind'; expected a list of label numbers, [] for none"),
    ("unknown label", "closed", TARGETS % (b"0, 1", b"1, 1"), "",
     {"options": {"labels": Labels.of(["l1"])}, "rest": [SEA], "problems": tuple(
         f"set/trn.json:{line}: unknown label 'l0'; expected a label of the given vocabulary"
         for line in (2, 3))}),
    ("duplicate label", "once", TARGETS % (b"1, 0, 1", b"0.5, 1, 2"), [("x", {"l0": 1.0, "l1": 0.5})], TWICE),
    ("indices", "range", TARGETS % (b"2", b"1"),
     "label number 2 in 'target_ind'; expected a number below 2, the labels of the set"),
    ("indices", "negative", TARGETS % (b"-1", b"1"),
     "label number -1 in 'target_ind'; expected a number below 2, the labels of the set"),
    ("NaN or Inf", "nan", TARGETS % (b"0", b"NaN"), "NaN (byte 49); expected a finite number"),
    ("NaN or Inf", "zero", TARGETS % (b"0", b"0"), "relevance [0.0]; expected finite numbers above 0"),
    ("empty text", "kept", b'{"title": "", "content": "", "target_ind": [0]}', [("", ["l0"])]),
    ("empty text", "blank lines", b" \n", []),
    ("CRLF", "one", TARGETS % (b"0", b"1") + b"\r", [("x", ["l0"])]),
    ("NUL", "escaped", b'{"title": "x\\u0000", "target_ind": [0]}', [("x\0", ["l0"])]),
    ("lone surrogate", "title", b'{"title": "\\ud800", "target_ind": [0]}', SURROGATE),
    ("encoding", "Latin-1", b'{"title": "\xff", "target_ind": [0]}', NOT_UTF8),
) + whole(
    "lf",
    ("missing file", "labels", {"set/trn.json": lf.after}, "set: no file lbl.json or Yf.txt", USAGE),
    ("empty file", "nothing", {"set/trn.json": b"", "set/lbl.json": LABELS}, f"set/trn.json: {NO_DOCUMENT}"),
    ("BOM", "first", {"set/trn.json": b"\xef\xbb\xbf" + lf.after, "set/lbl.json": b"\xef\xbb\xbf" + LABELS}, [WIND]),
    lf_labels("empty file", "labels", b"",
              "set/trn.json:1: label number 0 in 'target_ind'; expected labels in lbl.json"),
    lf_labels("wrong JSON", "labels", LABELS + b"x\n", "set/lbl.json:3: invalid character (byte 0) near 'x'" + LINE),
    lf_labels("wrong types", "labels", b'{"uid": "x", "title": 1}\n',
              "set/lbl.json:1: a whole number in 'title'; expected a string"),
    lf_labels("missing fields", "label file", b'{"title": "zero"}\n{}\n', [("wind", ["0"])]),
    lf_labels("duplicate label", "labels", LABELS + LABELS,
              "set/lbl.json:3: uid 'l0' again; expected a uid of its own for each label\n"
              "set/lbl.json:4: uid 'l1' again; expected a uid of its own for each label"),
)


def lines(kind, id, texts, labels, result, more=None):
    """Return the case of an AttentionXML folder."""
    files = {"set/train_raw_texts.txt": texts, "set/train_labels.txt": labels}
    files |= {f"set/{name}": content for name, content in (more or {}).pop("beside", {}).items()}
    return kind, id, {name: content for name, content in files.items() if content is not None}, result, more


ATTENTIONXML = whole(
    "attentionxml",
    lines("missing file", "labels", b"sea\n", None, "set: no file train_labels.txt", USAGE),
    lines("missing file", "texts", None, b"b\n", "set: no file train_raw_texts.txt or train_texts.txt", USAGE),
    lines("missing fields", "labels", b"sea\nwind\n", b"\na\n", [("sea", []), ("wind", ["a"])]),
    lines("header", "texts", b"sea\nx\n", b"b\n",
          "set/train_raw_texts.txt:2: a line more than in set/train_labels.txt; expected as many lines in both"),
    lines("header", "labels", b"sea\n", b"b\na\n",
          "set/train_labels.txt:2: a line more than in set/train_raw_texts.txt; expected as many lines in both"),
    lines("header", "features", b"sea\n", b"b\n",
          "set/train_v1.txt: 2 rows of features, but 1 lines in train_raw_texts.txt; "
          "expected as many in both; leave the features out with --no-features",
          {"beside": {"train_v1.txt": b"0 0:1\n0 0:1\n"}}),
    lines("NaN or Inf", "features", b"sea\nx\nwind\n", b"b\nb\na\n", "set/train_v1.txt:2: value 'nan'; " + FINITE,
          {"beside": {"train_v1.txt": b"0 0:1\n0 0:nan\n 1:1\n"},
           "rest": [("sea", {0: 1.0}, ["b"]), ("wind", {1: 1.0}, ["a"])]}),
    lines("header", "blank at the end", b"sea\n\n\n", b"b\n", [("sea", ["b"])]),
    lines("unknown label", "closed", b"sea\nx\nwind\n", b"0\n1\n7\n", f"set/train_labels.txt:2: {UNKNOWN}",
          CLOSED | {"rest": [("sea", ["0"]), ("wind", ["7"])]}),
    lines("duplicate label", "once", b"sea\n", b"b a b\n", [("sea", ["b", "a"])], TWICE),
    lines("empty text", "kept", b"\nwind\n", b"b\na\n", [("", ["b"]), ("wind", ["a"])]),
    lines("empty file", "both", b"", b"", f"set/train_raw_texts.txt: {NO_DOCUMENT}"),
    lines("BOM", "both", b"\xef\xbb\xbfsea\n", b"\xef\xbb\xbfb\n", [("sea", ["b"])]),
    lines("CRLF", "both", b"sea\r\nwind\r\n", b"b\r\na\r\n", [("sea", ["b"]), ("wind", ["a"])]),
    lines("NUL", "kept", b"s\0ea\n", b"b\0\n", [("s\0ea", ["b\0"])]),
    lines("encoding", "texts", b"sea\n\xff\nwind\n", b"b\nc\na\n", f"set/train_raw_texts.txt:2: {NOT_UTF8}",
          {"rest": [("sea", ["b"]), ("wind", ["a"])]}),
    lines("encoding", "labels", b"sea\nx\nwind\n", b"b\n\xff\na\n", f"set/train_labels.txt:2: {NOT_UTF8}",
          {"rest": [("sea", ["b"]), ("wind", ["a"])]}),
)


def zipped(**members: bytes) -> bytes:
    """Return a compressed archive of the names that scipy gives, empty but for ``members``."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("format", "shape", "indptr", "indices", "data"):
            archive.writestr(f"{name}.npy", members.get(name, b""))
    return out.getvalue()


def array(*shape: int) -> bytes:
    """Return the header of an .npy file of float64 in this shape."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return out.getvalue()


IDENTITY = npz()
CSR = "row ends that do not rise from 0 to the number of entries; expected a CSR matrix"
SCIPY = "expected a matrix of scipy.sparse.save_npz"
SHAPE = "expected (rows, columns) and at most 2147483647 columns"
NO_ZIP = f"a damaged archive ('File is not a zip file'); {SCIPY}"

# (kind, id, archive, what is read or what is refused), of features as of PECOS' label matrix
MATRICES = [
    ("header", "rows", npz(shape=np.array([3, 2])), f"the shape (3, 2) with 2 rows; {SHAPE}"),
    ("header", "columns", npz(shape=np.array([2, 2**40])), f"the shape (2, 1099511627776) with 2 rows; {SHAPE}"),
    ("header", "one axis", npz(shape=np.array([2])), f"the shape (2,) with 2 rows; {SHAPE}"),
    ("header", "lengths", npz(data=np.ones(3)), CSR),
    ("indices", "row ends fall", npz(shape=np.array([3, 2]), indptr=np.array([0, 2, 1, 2])), CSR),
    ("indices", "row ends start", npz(indptr=np.array([1, 1, 2])), CSR),
    ("indices", "row ends beyond", npz(indptr=np.array([0, 1, 3])), CSR),
    ("indices", "column", npz(indices=np.array([0, 2])), "column 2; expected a number below 2"),
    ("indices", "negative", npz(indices=np.array([-1, 1])), "column -1; expected a number below 2"),
    ("indices", "twice", npz(indptr=np.array([0, 2, 2]), indices=np.array([1, 1])),
     "column 1 twice in row 0; expected each column once a row"),
    ("wrong types", "indices", npz(indices=np.array([0.0, 1.0])),
     "indices of type float64 and shape (2,); expected a list of whole numbers"),
    ("wrong types", "data", npz(data=np.array(["a", "b"])),
     "data of type <U1 and shape (2,); expected a list of numbers"),
    ("wrong types", "format", npz(format=np.array(b"coo")),
     "a matrix in the format 'coo'; expected csr; convert it with matrix.tocsr()"),
    ("missing fields", "data", npz(data=None), f"an archive without data.npy; {SCIPY}"),
    ("NaN or Inf", "nan", npz(data=np.array([1, np.nan])), "value nan; expected finite numbers"),
    ("NaN or Inf", "inf", npz(data=np.array([1, -np.inf])), "value -inf; expected finite numbers"),
    ("NaN or Inf", "float", npz(data=np.array([1, 1e39])), "value 1e+39; expected finite numbers"),
    ("hostile", "objects", npz(data=np.array([1, {}], object)),
     "data.npy of type object and shape (2,); expected a list of plain numbers"),
    ("empty file", "nothing", b"", NO_ZIP),
    ("truncated", "end", IDENTITY[:-10], NO_ZIP),
    ("truncated", "start", IDENTITY[:100], NO_ZIP),
]


def pecos(kind, id, result, more=None, texts=b"sea\nwind\n", targets=IDENTITY, **others):
    """Return the case of a PECOS folder."""
    files = {"X.trn.txt": texts, "Y.trn.npz": targets} | {name.replace("__", "."): c for name, c in others.items()}
    return kind, id, {f"set/{name}": content for name, content in files.items() if content is not None}, result, more


PECOS = whole(
    "pecos",
    *(pecos(kind, id, f"set/Y.trn.npz: {said}", targets=content) for kind, id, content, said in MATRICES),
    pecos("indices", "falling", [("sea", ["0", "1"]), ("wind", [])],
          targets=npz(indptr=np.array([0, 2, 2]), indices=np.array([1, 0]))),
    pecos("missing file", "texts", "set: no file X.trn.txt or X.trn.npz", USAGE, texts=None),
    pecos("missing file", "labels", "set: no file Y.trn.npz", USAGE, targets=None),
    pecos("header", "texts", "set/Y.trn.npz: 2 rows, but 1 documents in X.trn.txt; expected as many in both",
          texts=b"sea\n"),
    pecos("header", "features", "set/X.trn.npz: 3 rows, but 2 documents in X.trn.txt; expected as many in both",
          X__trn__npz=npz(shape=np.array([3, 2]), indptr=np.array([0, 1, 2, 2]))),
    pecos("header", "items", "set/output-items.txt: 1 lines; expected 2, one a label", **{"output-items__txt": b"x\n"}),
    pecos("duplicate label", "items", [("sea", ["0"]), ("wind", ["1"])], **{"output-items__txt": b"x\nx\n"}),
    pecos("unknown label", "closed", f"set/X.trn.txt:2: {UNKNOWN}", CLOSED | {"rest": [("sea", ["0"])]}),
    pecos("unknown label", "features", f"set/Y.trn.npz: {UNKNOWN.replace(';', ' in row 1;')}",
          CLOSED | {"rest": [({0: 1.0}, ["0"])]}, texts=None, X__trn__npz=IDENTITY),
    pecos("NaN or Inf", "below zero", "set/Y.trn.npz: relevance -1.0; expected finite numbers above 0",
          targets=npz(data=np.array([1.0, -1.0]))),
    pecos("NaN or Inf", "zero", [("sea", []), ("wind", ["1"])], targets=npz(data=np.array([0.0, 1.0]))),
    pecos("empty text", "kept", [("", ["0"]), ("wind", ["1"])], texts=b"\nwind\n"),
    pecos("empty file", "texts", "set/Y.trn.npz: 2 rows, but 0 documents in X.trn.txt; expected as many in both",
          texts=b""),
    pecos("BOM", "texts", [("sea", ["0"]), ("wind", ["1"])], texts=b"\xef\xbb\xbfsea\nwind\n"),
    pecos("CRLF", "texts", [("sea", ["0"]), ("wind", ["1"])], texts=b"sea\r\nwind\r\n"),
    pecos("NUL", "texts", [("sea\0", ["0"]), ("wind", ["1"])], texts=b"sea\0\nwind\n"),
    pecos("encoding", "texts", f"set/X.trn.txt:2: {NOT_UTF8}", {"rest": [("sea", ["0"])]}, texts=b"sea\n\xff\n"),
)

FEATURES = whole(
    "features",
    *((kind, id, {"bad.npz": content}, f"bad.npz: {said}") for kind, id, content, said in MATRICES),
    ("indices", "falling", {"bad.npz": npz(indptr=np.array([0, 2, 2]), indices=np.array([1, 0]))},
     [{0: 1.0, 1: 1.0}, {}]),
    ("bomb", "zip", {"bad.npz": lambda: zipped(data=bytes(70 << 20))},
     "bad.npz: an archive that grows more than 200 times; expected a matrix; "
     "if it is meant, save it with compressed=False"),
    ("header", "claims", {"bad.npz": zipped(format=array(1 << 40))},
     "bad.npz: format.npy that claims 8796093022208 bytes and holds 0; expected as many"),
    ("NaN or Inf", "BoW", {"bad.bow": b"1 3 0\n 1:nan\n"}, "bad.bow:2: value 'nan'; expected a finite number"),
    ("wrong types", "texts", {"bad.jsonl": b'{"text": "x"}\n'},
     "bad.jsonl: holds texts; expected features as .npz, .npy, BoW or svmlight", USAGE),
)

pair = Frame("filter", "bad.filter", b"0 1\n", b"1 2\n", ([0, 1], [1, 2]), skips=False)
PAIR = "; expected a document number and a label number"

FILTER = pair.cases(
    ("wrong types", "words", b"a b", "'a b'" + PAIR),
    ("wrong types", "fraction", b"0 1.5", "'0 1.5'" + PAIR),
    ("missing fields", "label", b"0", "'0'" + PAIR),
    ("missing fields", "more", b"0 1 2", "'0 1 2'" + PAIR),
    ("indices", "document", b"2 0", "document 2; expected a number below 2"),
    ("indices", "label", b"0 3", "label 3; expected a number below 3"),
    ("indices", "negative", b"-1 0", "'-1 0'" + PAIR),
    ("indices", "huge", b"0 99999999999999999999", "'0 99999999999999999999'" + PAIR),
    ("NaN or Inf", "nan", b"nan 0", "'nan 0'" + PAIR),
    ("duplicate label", "pair", b"0 1", [[0, 1]]),
    ("empty text", "blank lines", b"\n", []),
    ("CRLF", "one", b"1 0\r", [[1, 0]]),
    ("NUL", "inside", b"0 \0", "'0 \\x00'" + PAIR),
    ("encoding", "Latin-1", b"0 \xff", "'0 \\\\xff'" + PAIR),
) + whole(
    "filter",
    ("empty file", "nothing", b"", []),
    ("BOM", "first", b"\xef\xbb\xbf0 1\n", [[0, 1]]),
)

CASES = [*BOW, *XMC_SPLIT, *LF, *ATTENTIONXML, *PECOS, *FEATURES, *FILTER]
