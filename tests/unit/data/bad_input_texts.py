"""Bad inputs in the formats that hold one text a record: JSON lines, tables, fastText and Annif's."""

# fmt: off
from __future__ import annotations

from math import inf, nan

import pyarrow
from bad_input import Frame, parquet, whole

from longtail.data.labels import Labels

SEA = ("sea", ["b"])
WIND = ("wind", ["a"])
CLOSED = {"options": {"labels": Labels.of(["a", "b", "c"])}}
TWICE = {"counts": (1, 0)}
LINE = "; expected one JSON object a line"
NO_TEXT = "no field 'text' or 'title'; expected a document such as {\"text\": \"…\", \"labels\": [\"…\"]}"
NO_DOCUMENT = "no document; expected at least one"
NOT_UTF8 = "a byte that is not UTF-8 ('\\xff'); expected UTF-8; " \
    "text in Latin-1 is converted with: iconv -f LATIN1 -t UTF-8"
SURROGATE = "half of a surrogate pair (\\ud800 to \\udfff alone); expected whole characters"
UNKNOWN = "unknown label 'd'; expected a label of the given vocabulary"
UTF16 = "UTF-16 text; expected UTF-8; convert it with: iconv -f UTF-16 -t UTF-8"

jsonl = Frame(
    "jsonl",
    "bad.jsonl",
    b'{"text": "sea", "labels": ["b"]}\n',
    b'{"text": "wind", "labels": ["a"]}\n',
    (SEA, WIND),
)
RELEVANT = b'{"text": "x", "labels": ["a"], "relevance": [%b]}'

JSONL = jsonl.cases(
    ("wrong JSON", "words", b"not json", "invalid character (byte 4) near 'not json'" + LINE),
    ("wrong JSON", "cut off", b'{"text": "x"', "JSON that ends too early near '{\"text\": \"x\"'" + LINE),
    ("wrong JSON", "Python", b"{'a': 1}", "object keys must be strings (byte 1) near \"{'a': 1}\"" + LINE),
    ("wrong JSON", "last comma", b'{"a": 1,}', "trailing comma in object (byte 8) near '{\"a\": 1,}'" + LINE),
    ("wrong JSON", "no colon", b'{"a" 1}', "no ':' (byte 5) near '{\"a\" 1}'" + LINE),
    ("wrong JSON", "two a line", b"{} {}", "trailing characters (byte 4) near '{} {}'" + LINE),
    ("wrong JSON", "raw tab", b'{"a": "\t"}', "invalid character (byte 7) near '{\"a\": \"\\t\"}'" + LINE),
    ("wrong JSON", "far in a long line", b'{"text": "' + "€".encode() * 40 + b'", }',
     "trailing comma in object (byte 133) near '" + "€" * 9 + "\", }'" + LINE),
    ("wrong JSON", "deep", b'{"x": ' + b"[" * 9999, "JSON nested too deeply; expected a flat JSON object"),
    ("wrong types", "string", b'"x"', "a string; expected a JSON object"),
    ("wrong types", "null", b"null", "null; expected a JSON object"),
    ("wrong types", "list", b"[]", "a list; expected one JSON object a line; jq -c '.[]' makes lines of a list"),
    ("wrong types", "text", b'{"text": 7, "labels": []}', "a whole number in 'text'; expected a string"),
    ("wrong types", "title", b'{"title": [], "labels": []}', "a list in 'title'; expected a string"),
    ("wrong types", "labels", b'{"text": "x", "labels": "a"}', "a string in 'labels'; expected a list"),
    ("wrong types", "labels object", b'{"labels": {"a": 1}}', "a JSON object in 'labels'; expected a list"),
    ("wrong types", "label", b'{"labels": ["a", 1]}', "a whole number in 'labels[1]'; expected a string"),
    ("wrong types", "label null", b'{"labels": [null]}', "null in 'labels[0]'; expected a string"),
    ("wrong types", "id", b'{"id": 1.5}', "a number in 'id'; expected a whole number or a string"),
    ("wrong types", "id bool", b'{"id": true}', "true or false in 'id'; expected a whole number or a string"),
    ("wrong types", "relevance", RELEVANT % b'"1"', "a string in 'relevance[0]'; expected a number"),
    ("wrong types", "relevances", RELEVANT % b"1, 2", "2 relevances for 1 labels; expected one relevance a label"),
    ("wrong types", "large id", b'{"text": "x", "labels": [], "id": 99999999999999999999}', [("x", [])]),
    ("wrong types", "other field", b'{"text": "x", "labels": [], "year": {"a": 1}}', [("x", [])]),
    ("missing fields", "all", b"{}", NO_TEXT),
    ("missing fields", "text null", b'{"text": null, "labels": []}', NO_TEXT),
    ("missing fields", "capitals", b'{"Text": "x", "labels": []}', NO_TEXT),
    ("missing fields", "labels", b'{"text": "x"}', "no field 'labels'; expected a list of strings, [] for none"),
    ("missing fields", "unlabelled", b'{"text": "x"}', [("x", [])], {"options": {"labelled": False}}),
    ("missing fields", "title only", b'{"title": "x", "labels": []}', [("x", [])]),
    ("missing fields", "relevance null", b'{"text": "x", "labels": ["a"], "relevance": null}', [("x", ["a"])]),
    ("unknown label", "closed", b'{"text": "x", "labels": ["a", "d"]}', UNKNOWN, CLOSED),
    ("unknown label", "near", b'{"text": "x", "labels": ["Wind powr"]}',
     "unknown label 'Wind powr' (did you mean 'Wind power'?); expected a label of the given vocabulary",
     {"options": {"labels": Labels.of(["a", "b", "Wind power"])}}),
    ("unknown label", "drop", b'{"text": "x", "labels": ["d", "a"]}', [("x", ["a"])],
     {"options": CLOSED["options"] | {"unknown": "drop"}, "counts": (0, 1)}),
    ("unknown label", "add", b'{"text": "x", "labels": ["d", "a"]}', [("x", ["a", "d"])],
     {"options": CLOSED["options"] | {"unknown": "add"}}),
    ("duplicate label", "once", b'{"text": "x", "labels": ["b", "a", "b"]}', [("x", ["b", "a"])], TWICE),
    ("duplicate label", "first relevance", b'{"text": "x", "labels": ["b", "a", "b"], "relevance": [0.5, 1, 2]}',
     [("x", {"b": 0.5, "a": 1})], TWICE),
    ("NaN or Inf", "nan", RELEVANT % b"NaN", "NaN (byte 45); expected a finite number"),
    ("NaN or Inf", "inf", RELEVANT % b"-Infinity", "Infinity (byte 46); expected a finite number"),
    ("NaN or Inf", "double", RELEVANT % b"1e999", "a number too large in 'relevance[0]'; expected a finite number"),
    ("NaN or Inf", "float", RELEVANT % b"1e39", "relevance [1e+39]; expected finite numbers above 0"),
    ("NaN or Inf", "zero", RELEVANT % b"0", "relevance [0.0]; expected finite numbers above 0"),
    ("NaN or Inf", "tiny", RELEVANT % b"1e-60", "relevance [1e-60]; expected finite numbers above 0"),
    ("empty text", "kept", b'{"text": "", "labels": ["a"]}', [("", ["a"])]),
    ("empty text", "blank lines", b" \n\t", []),
    ("BOM", "inside", b"\xef\xbb\xbf{}", "invalid character (byte 0) near '\\ufeff{}'" + LINE),
    ("CRLF", "good", b'{"text": "x", "labels": []}\r\n\r', [("x", [])]),
    ("CRLF", "bad", b'{"text": 7}\r', "a whole number in 'text'; expected a string"),
    ("NUL", "raw", b'{"a": "\0"}', "invalid character (byte 7) near '{\"a\": \"\\x00\"}'" + LINE),
    ("NUL", "zeros", b"\0\0", "invalid character (byte 0) near '\\x00\\x00'" + LINE),
    ("NUL", "escaped", b'{"text": "a\\u0000b", "labels": []}', [("a\0b", [])]),
    ("lone surrogate", "high", b'{"text": "\\ud800", "labels": []}', SURROGATE),
    ("lone surrogate", "low", b'{"text": "x", "labels": ["\\uDC00"]}', SURROGATE),
    ("lone surrogate", "before a pair", b'{"text": "\\ud83d\\ud83d\\ude00", "labels": []}', SURROGATE),
    ("lone surrogate", "a pair", b'{"text": "\\ud83d\\ude00", "labels": []}', [("\U0001f600", [])]),
    ("lone surrogate", "encoded", b'{"text": "\xed\xa0\x80", "labels": []}', NOT_UTF8.replace("xff", "xed")),
    ("encoding", "Latin-1", b'{"text": "Stra\xdfe", "labels": []}', NOT_UTF8.replace("xff", "xdf")),
) + whole(
    "jsonl",
    ("wrong JSON", "one list", b'[{"text": "sea"},\n{"text": "x"}]\n',
     "bad.jsonl:1: a list; expected one JSON object a line; jq -c '.[]' makes lines of a list\n"
     "bad.jsonl:2: trailing characters (byte 14) near '{\"text\": \"x\"}]'; expected one JSON object a line"),
    ("wrong JSON", "pretty", b'{"text": "sea",\n"labels": ["b"]}\n',
     "bad.jsonl:1: JSON that ends too early near '{\"text\": \"sea\",'; expected one JSON object a line\n"
     "bad.jsonl:2: a string; expected a JSON object"),
    ("empty file", "nothing", b"", f"bad.jsonl: {NO_DOCUMENT}"),
    ("empty file", "blank", b"\n \n\r\n", f"bad.jsonl: {NO_DOCUMENT}"),
    ("empty file", "BOM", b"\xef\xbb\xbf", f"bad.jsonl: {NO_DOCUMENT}"),
    ("BOM", "first", b"\xef\xbb\xbf" + jsonl.after, [WIND]),
    ("CRLF", "no last", jsonl.before + jsonl.after[:-1], [SEA, WIND]),
    ("encoding", "UTF-16", jsonl.after.decode().encode("utf-16"), f"bad.jsonl:1: {UTF16}"),
    ("encoding", "UTF-16 BE", b"\xfe\xff" + jsonl.after.decode().encode("utf-16-be"), f"bad.jsonl:1: {UTF16}"),
)

csv = Frame("csv", "bad.csv", b"text,labels\nsea,b\n", b"wind,a\n", (SEA, WIND))
graded = Frame("csv", "bad.csv", b"text,labels,relevance\nsea,b,\n", b"wind,a,1\n", (SEA, WIND))
LIST = ' as a list; expected a list such as ["one", "two"]'
_COLUMNS = "; expected the columns 'text' and 'labels'"
COLUMNS = f"{_COLUMNS} (--text-column and --labels-column name others)"

CSV = csv.cases(
    ("wrong JSON", "list", b"x,[a", "'[a'" + LIST),
    ("wrong types", "label", b'x,"[""a"", 1]"', "'[\"a\", 1]'" + LIST),
    ("missing fields", "cell", b"x", "1 cells; expected 2, as in the header"),
    ("header", "more cells", b"x,a,b", "3 cells; expected 2, as in the header"),
    ("malformed table", "quote", b'"x"y,a',
     'text after the closing quote of a cell; expected a quote inside a quoted cell written twice, ""'),
    ("malformed table", "CR", b"x\ry,a", "a carriage return outside quotes; expected lines that end in LF or CRLF"),
    ("unknown label", "closed", b"x,a;d", UNKNOWN, CLOSED),
    ("duplicate label", "once", b"x,b;a;b", [("x", ["b", "a"])], TWICE),
    ("empty text", "kept", b",a", [("", ["a"])]),
    ("empty text", "no labels", b"x,", [("x", [])]),
    ("empty text", "blank lines", b"\n", []),
    ("BOM", "inside", b"\xef\xbb\xbfx,a", [("\ufeffx", ["a"])]),
    ("CRLF", "kept in quotes", b'"x\r\ny",a\r', [("x\r\ny", ["a"])]),
    ("NUL", "kept", b"x\0y,a", [("x\0y", ["a"])]),
    ("lone surrogate", "in a list", b'x,"[""\\ud800""]"', "'[\"\\\\ud800\"]'" + LIST),
    ("lone surrogate", "encoded", b"\xed\xa0\x80,a", NOT_UTF8.replace("xff", "xed")),
    ("encoding", "Latin-1", b"x\xff,a", NOT_UTF8),
) + graded.cases(
    ("wrong types", "relevance", b"x,a,high", "'high' as a list; expected a list such as [1, 0.5]"),
    ("wrong types", "relevances", b"x,a,1;2", "2 relevances for 1 labels; expected one relevance a label"),
    ("NaN or Inf", "nan", b"x,a,nan", "relevance [nan]; expected finite numbers above 0"),
    ("NaN or Inf", "inf", b"x,a,-inf", "relevance [-inf]; expected finite numbers above 0"),
) + whole(
    "csv",
    ("empty file", "nothing", b"", "bad.csv: no header row; expected a first line such as text,labels"),
    ("empty file", "header", b"text,labels\n", f"bad.csv: {NO_DOCUMENT}"),
    ("missing fields", "labels", b"text,label\nx,a\n",
     "bad.csv:1: no column 'labels' (did you mean 'label'?) in ['text', 'label']" + COLUMNS),
    ("missing fields", "header", b"sea,b\nwind,a\n", "bad.csv:1: no column 'text' in ['sea', 'b']" + COLUMNS),
    ("missing fields", "unlabelled", b"text\nx\n", [("x", [])], {"options": {"labelled": False}}),
    ("header", "semicolons", b"text;labels\nx;a\n",
     "bad.csv:1: no column 'text' in ['text;labels']" + _COLUMNS + ", separated by , (--separator names another)"),
    ("header", "a column twice", b"text,text,labels\n", "bad.csv:1: two columns 'text'; expected each column once"),
    ("malformed table", "open quote", b'text,labels\nsea,b\n"x,a\nwind,a\n',
     'bad.csv:3: a quote that is never closed; expected a closing "'),
    ("malformed table", "line of a record", b'text,labels\n"s\nea",b\nx\n',
     "bad.csv:4: 1 cells; expected 2, as in the header"),
    ("BOM", "first", b"\xef\xbb\xbftext,labels\nwind,a\n", [WIND]),
    ("CRLF", "all", b"text,labels\r\nsea,b\r\nwind,a\r\n", [SEA, WIND]),
    ("encoding", "UTF-16", "text,labels\nwind,a\n".encode("utf-16"), f"bad.csv:1: {UTF16}"),
)

tsv = Frame("tsv", "bad.tsv", b"labels\ttext\nb\tsea\n", b"a\twind\n", (SEA, WIND))

TSV = tsv.cases(
    ("missing fields", "cell", b"a x", "1 cells; expected 2, as in the header"),
    ("unknown label", "closed", b"d\tx", UNKNOWN, CLOSED),
    ("duplicate label", "once", b"a;a\tx", [("x", ["a"])], TWICE),
    ("empty text", "kept", b"a\t", [("", ["a"])]),
    ("NUL", "kept", b"a\t\0", [("\0", ["a"])]),
    ("CRLF", "one", b"a\tx\r", [("x", ["a"])]),
    ("encoding", "Latin-1", b"a\t\xff", NOT_UTF8),
) + whole(
    "tsv",
    ("empty file", "nothing", b"", "bad.tsv: no header row; expected a first line such as text<TAB>labels"),
    ("header", "commas", b"text,labels\nx,a\n",
     "bad.tsv:1: no column 'text' in ['text,labels']" + _COLUMNS + ", separated by <TAB> (--separator names another)"),
    ("malformed table", "open quote", b'text\tlabels\n"x\ta\n',
     'bad.tsv:2: a quote that is never closed; expected a closing "'),
    ("BOM", "first", b"\xef\xbb\xbftext\tlabels\nwind\ta\n", [WIND]),
)

TABLE = parquet(text=["sea", "wind"], labels=[["b"], ["a"]])
BYTES = pyarrow.array([b"sea", b"\xff", b"wind"], pyarrow.binary()).view(pyarrow.string())
LISTS = [["b"], ["a"], ["a"]]
DAMAGED = "bad.parquet: damaged Parquet data ({}); expected a whole Parquet file"
MAGIC = "'Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.'"
TEXTS = ["sea", "x", "wind"]


def row(kind, id, problem, more=None, **columns):
    """Return the case of a table whose second row is bad."""
    more = (more or {}) | {"rest": [SEA, WIND]}
    return kind, id, parquet(**{"text": TEXTS, "labels": LISTS} | columns), f"bad.parquet:2: {problem}", more


PARQUET = whole(
    "parquet",
    row("missing fields", "text", NO_TEXT, text=["sea", None, "wind"]),
    row("missing fields", "labels", "no field 'labels'; expected a list of strings, [] for none",
        labels=[["b"], None, ["a"]]),
    row("wrong types", "null", "a null in 'labels'; expected strings", labels=[["b"], ["a", None], ["a"]]),
    row("wrong JSON", "cell", "'[1]'" + LIST, labels=["b", "[1]", "a"]),
    row("unknown label", "closed", UNKNOWN, CLOSED, labels=[["b"], ["d"], ["a"]]),
    row("NaN or Inf", "nan", "relevance [nan]; expected finite numbers above 0", relevance=[[1.0], [nan], [1.0]]),
    row("NaN or Inf", "inf", "relevance [-inf]; expected finite numbers above 0", relevance=[[1.0], [-inf], [1.0]]),
    row("encoding", "Latin-1", NOT_UTF8, text=BYTES),
    ("wrong types", "text", parquet(text=[1], labels=[["a"]]),
     "bad.parquet: column 'text' of type int64; expected strings"),
    ("wrong types", "labels", parquet(text=["x"], labels=[[1]]),
     "bad.parquet: column 'labels' of type list<element: int64>; expected strings or lists of strings"),
    ("missing fields", "column", parquet(text=["x"]), "bad.parquet: no column 'labels' in ['text']" + COLUMNS),
    ("duplicate label", "once", parquet(text=["x"], labels=[["b", "a", "b"]]), [("x", ["b", "a"])], TWICE),
    ("empty text", "kept", parquet(text=[""], labels=[["a"]]), [("", ["a"])]),
    ("NUL", "kept", parquet(text=["x\0"], labels=[["a\0"]]), [("x\0", ["a\0"])]),
    ("empty file", "nothing", b"", DAMAGED.format("'Parquet file size is 0 bytes'")),
    ("empty file", "no rows", parquet(text=pyarrow.array([], "str"), labels=pyarrow.array([], "str")),
     f"bad.parquet: {NO_DOCUMENT}"),
    ("truncated", "footer", TABLE[:-1], DAMAGED.format(MAGIC)),
    ("header", "length", TABLE[:-8] + b"\xff\xff\xff\x7fPAR1", DAMAGED.format(
        f"\"Parquet file size is {len(TABLE)} bytes, smaller than the size reported by footer's (2147483647bytes)\"")),
    ("damaged", "page", TABLE[:20] + b"XXXX" + TABLE[24:], DAMAGED.format("'Unexpected end of stream'")),
    ("damaged", "JSON", jsonl.after, DAMAGED.format(MAGIC)),
)

fasttext = Frame("fasttext", "bad.fasttext", b"__label__b sea\n", b"__label__a wind\n", (SEA, WIND))

FASTTEXT = fasttext.cases(
    ("missing fields", "name", b"__label__ x", "'__label__' without a name; expected a label such as __label__name"),
    ("missing fields", "labels", b"x", [("x", [])]),
    ("unknown label", "closed", b"__label__d x", UNKNOWN, CLOSED),
    ("duplicate label", "once", b"__label__a __label__a x", [("x", ["a"])], TWICE),
    ("empty text", "kept", b"__label__a", [("", ["a"])]),
    ("empty text", "blank lines", b" \n\t", []),
    ("CRLF", "one", b"__label__a x\r", [("x", ["a"])]),
    ("NUL", "kept", b"__label__a x\0y", [("x\0y", ["a"])]),
    ("lone surrogate", "encoded", b"__label__a \xed\xa0\x80", NOT_UTF8.replace("xff", "xed")),
    ("encoding", "Latin-1", b"__label__a \xff", NOT_UTF8),
) + whole(
    "fasttext",
    ("empty file", "nothing", b"", f"bad.fasttext: {NO_DOCUMENT}"),
    ("BOM", "first", b"\xef\xbb\xbf__label__a wind\n", [WIND]),
    ("encoding", "UTF-16", "__label__a x".encode("utf-16"), f"bad.fasttext:1: {UTF16}"),
)

annif = Frame("annif-tsv", "bad.tsv", b"sea\t<b>\n", b"wind\t<a>\n", (SEA, WIND))

ANNIF = annif.cases(
    ("missing fields", "tab", b"x", "no tab in 'x'; expected text<TAB><uri> <uri>"),
    ("missing fields", "unlabelled", b"x", [("x", [])], {"options": {"labelled": False}}),
    ("missing fields", "URI", b"x\t<a> <>", "an empty URI <>; expected <uri>"),
    ("unknown label", "closed", b"x\t<d>", UNKNOWN, CLOSED),
    ("duplicate label", "once", b"x\t<a> a", [("x", ["a"])], TWICE),
    ("empty text", "kept", b"\t<a>", [("", ["a"])]),
    ("CRLF", "one", b"x\t<a>\r", [("x", ["a"])]),
    ("NUL", "kept", b"x\0\t<a>", [("x\0", ["a"])]),
    ("encoding", "Latin-1", b"x\xff\t<a>", NOT_UTF8),
) + whole(
    "annif-tsv",
    ("empty file", "nothing", b"", f"bad.annif-tsv: {NO_DOCUMENT}"),
    ("BOM", "first", b"\xef\xbb\xbfwind\t<a>\n", [WIND]),
)

annif_csv = Frame("annif-csv", "bad.csv", b"text,subject_uris\nsea,<b>\n", b"wind,<a>\n", (SEA, WIND))
ANNIF_HEADER = "; expected a header row with the columns text and subject_uris, each once"

ANNIF_CSV = annif_csv.cases(
    ("missing fields", "cell", b"x", "1 cells; expected 2, as in the header"),
    ("missing fields", "URI", b"x,<a> <>", "an empty URI <>; expected <uri>"),
    ("unknown label", "closed", b"x,<d>", UNKNOWN, CLOSED),
    ("duplicate label", "once", b"x,<a> a", [("x", ["a"])], TWICE),
    ("empty text", "kept", b",<a>", [("", ["a"])]),
    ("CRLF", "one", b"x,<a>\r", [("x", ["a"])]),
    ("NUL", "kept", b"x\0,<a>", [("x\0", ["a"])]),
    ("encoding", "Latin-1", b"x\xff,<a>", NOT_UTF8),
) + whole(
    "annif-csv",
    ("empty file", "nothing", b"", "bad.annif-csv: no column 'text' in []" + ANNIF_HEADER),
    ("header", "semicolons", b"text;subject_uris\nx;<a>\n",
     "bad.annif-csv:1: no column 'text' in ['text;subject_uris']" + ANNIF_HEADER),
    ("header", "a column twice", b"text,text,subject_uris\n", "bad.annif-csv:1: two columns 'text'" + ANNIF_HEADER),
    ("BOM", "first", b"\xef\xbb\xbftext,subject_uris\nwind,<a>\n", [WIND]),
)


def file(kind, id, text, subjects, result, more=None):
    """Return the case of a folder whose second document is bad."""
    files = {"set/1.txt": b"sea", "set/1.key": b"b\n", "set/2.txt": text, "set/2.tsv": subjects}
    files |= {"set/3.txt": b"wind", "set/3.tsv": b"<a>\tA\n"}
    files = {name: content for name, content in files.items() if content is not None}
    if isinstance(result, list):
        return kind, id, files, [SEA, *result, WIND], more
    return kind, id, files, result, (more or {}) | {"rest": [SEA, WIND]}


FOLDER = whole(
    "annif-folder",
    file("missing fields", "subjects", b"x", None,
         "set/2.txt: no subject file; expected one with the same name and .tsv or .key beside it"),
    file("missing fields", "URI", b"x", b"<a>\n<>\tA\n", "set/2.tsv: an empty URI <>; expected <uri>"),
    file("unknown label", "closed", b"x", b"<d>\tD\n", f"set/2.txt: {UNKNOWN}", CLOSED),
    file("duplicate label", "once", b"x", b"<a>\tA\na\n", [("x", ["a"])], TWICE),
    file("empty text", "kept", b"", b"<a>\n", [("", ["a"])]),
    file("empty file", "subjects", b"x", b"", [("x", [])]),
    file("BOM", "both", b"\xef\xbb\xbfx", b"\xef\xbb\xbf<a>\n", [("x", ["a"])]),
    file("CRLF", "both", b"x\r\ny", b"<a>\tA\r\n<b>\r\n", [("x\r\ny", ["b", "a"])]),
    file("NUL", "kept", b"x\0", b"<a>\n", [("x\0", ["a"])]),
    file("encoding", "text", b"\xff", b"<a>\n", f"set/2.txt: {NOT_UTF8}"),
    file("encoding", "subjects", b"x", b"<\xff>\n", f"set/2.tsv: {NOT_UTF8}"),
    ("empty file", "no document", {"set/1.tsv": b"<a>\n"}, f"set: {NO_DOCUMENT}"),
)

CASES = [*JSONL, *CSV, *TSV, *PARQUET, *FASTTEXT, *ANNIF, *ANNIF_CSV, *FOLDER]
