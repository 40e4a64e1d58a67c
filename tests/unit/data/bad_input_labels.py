"""Bad label files and bad predictions."""

# fmt: off
from __future__ import annotations

from bad_input import Frame, whole
from bad_input_texts import LINE, LIST, NOT_UTF8, SURROGATE, UTF16

from longtail.data.strings import Strings

A = ("a", "A")
B = ("b", "")
NO_LABEL = "no label; expected at least one"
jsonl = Frame("labels", "labels.jsonl", b'{"id": "a", "name": "A"}\n', b'{"id": "b"}\n', (A, B))
tsv = Frame("labels", "labels.tsv", b"id\tname\taliases\na\tA\t\n", b"b\t\t\n", (A, B))
annif = Frame("labels", "labels.tsv", b"<a>\tA\n", b"b\n", (A, B))
bare = Frame("labels", "labels.txt", b"a\n", b"b\n", (("a", ""), B))

LABELS = jsonl.cases(
    ("wrong JSON", "words", b"not json", "invalid character (byte 4) near 'not json'" + LINE),
    ("wrong JSON", "two a line", b'{"id": "x"} {"id": "y"}',
     "trailing characters (byte 13) near '{\"id\": \"x\"} {\"id\": \"y\"}'" + LINE),
    ("wrong types", "list", b"[]", "a list; expected one JSON object a line; jq -c '.[]' makes lines of a list"),
    ("wrong types", "id", b'{"id": 1}', "a whole number in 'id'; expected a string"),
    ("wrong types", "aliases", b'{"id": "x", "aliases": "y"}', "a string in 'aliases'; expected a list"),
    ("missing fields", "id", b'{"name": "X"}', "no field 'id'; expected a JSON object with 'id'"),
    ("empty text", "id", b'{"id": ""}', "an empty id; expected an id"),
    ("duplicate label", "again", b'{"id": "a"}', "the label 'a' again; expected each id once"),
    ("CRLF", "one", b'{"id": "x"}\r', [("x", "")]),
    ("NUL", "escaped", b'{"id": "x\\u0000"}', [("x\0", "")]),
    ("lone surrogate", "id", b'{"id": "\\udfff"}', SURROGATE),
    ("encoding", "Latin-1", b'{"id": "\xff"}', NOT_UTF8),
) + tsv.cases(
    ("wrong JSON", "aliases", b"x\tX\t[1]", "'[1]'" + LIST),
    ("missing fields", "cells", b"x\tX", "2 cells; expected 3, as in the header"),
    ("empty text", "id cell", b"\tX\t", "an empty id; expected an id"),
    ("duplicate label", "row again", b"a\tX\t", "the label 'a' again; expected each id once"),
    ("encoding", "row", b"\xff\tX\t", NOT_UTF8),
    ("NUL", "row", b"x\0\tX\t", [("x\0", "X")]),
) + annif.cases(
    ("header", "cells", b"x\tX\t\t\t", "5 cells; expected id<TAB>name, or a header row"),
    ("encoding", "no header", b"\xff\tX", NOT_UTF8),
) + bare.cases(
    ("duplicate label", "line again", b"a", "the label 'a' again; expected each id once"),
    ("empty text", "blank line", b" ", []),
    ("CRLF", "lines", b"x\r", [("x", "")]),
) + whole(
    "labels",
    ("empty file", "JSONL", {"labels.jsonl": b"\n"}, f"labels.jsonl: {NO_LABEL}"),
    ("empty file", "TSV", {"labels.tsv": b""}, f"labels.tsv: {NO_LABEL}"),
    ("empty file", "TXT", {"labels.txt": b""}, f"labels.txt: {NO_LABEL}"),
    ("empty file", "Turtle", {"labels.ttl": b""},
     "labels.ttl: no skos:Concept with a URI; expected at least one that is not deprecated"),
    ("empty file", "XML", {"labels.rdf": b""},
     "labels.rdf:1: malformed xml ('no element found'); expected RDF with skos:Concepts"),
    ("BOM", "JSONL", {"labels.jsonl": b"\xef\xbb\xbf" + jsonl.after}, [B]),
    ("BOM", "TSV", {"labels.tsv": b"\xef\xbb\xbfid\tname\na\tA\n"}, [A]),
    ("CRLF", "TSV", {"labels.tsv": b"id\tname\r\na\tA\r\n"}, [A]),
    ("missing fields", "id column", {"labels.csv": b"key,name\na,A\n"},
     "labels.csv:1: no column 'id' in ['key', 'name']; expected a header row with a column 'id'"),
    ("header", "a column twice", {"labels.csv": b"id,id\na,b\n"},
     "labels.csv:1: two columns 'id'; expected each column once"),
    ("malformed table", "open quote", {"labels.csv": b'id,name\na,"A\n'},
     'labels.csv:2: a quote that is never closed; expected a closing "'),
    ("encoding", "UTF-16", {"labels.jsonl": '{"id": "a"}'.encode("utf-16")}, f"labels.jsonl:1: {UTF16}"),
)

PREFIX = b"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
CONCEPT = PREFIX + b'<http://x/a> a skos:Concept ; skos:prefLabel "%b" .\n'
RDF = "expected RDF with skos:Concepts"

SKOS = whole(
    "labels",
    ("malformed table", "Turtle", {"labels.ttl": CONCEPT % b'A" "'},
     f"labels.ttl:2: malformed turtle (expected '.' or '}}' or ']' at end of statement); {RDF}"),
    ("malformed table", "XML", {"labels.rdf": b"<a>\n</b>"}, f"labels.rdf:2: malformed xml ('mismatched tag'); {RDF}"),
    ("wrong JSON", "JSON-LD", {"labels.jsonld": b'{"@graph": '},
     f"labels.jsonld:1: malformed json-ld ('Expecting value: line 1 column 12 (char 11)'); {RDF}"),
    ("missing fields", "concept", {"labels.ttl": PREFIX + b"<http://x/a> a skos:Collection .\n"},
     "labels.ttl: no skos:Concept with a URI; expected at least one that is not deprecated"),
    ("lone surrogate", "Turtle", {"labels.ttl": CONCEPT % b"\\ud800"}, f"labels.ttl: {SURROGATE}"),
    ("BOM", "Turtle", {"labels.ttl": b"\xef\xbb\xbf" + CONCEPT % b"A"}, [("http://x/a", "A")]),
    ("CRLF", "Turtle", {"labels.ttl": (CONCEPT % b"A").replace(b"\n", b"\r\n")}, [("http://x/a", "A")]),
    ("NUL", "Turtle", {"labels.ttl": CONCEPT % b"A\\u0000"}, [("http://x/a", "A\0")]),
    ("hostile", "entity", {"labels.rdf": b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/hostname">]>\n<r>&x;</r>'},
     "labels.rdf: the XML entity '<!ENTITY x SYSTEM '; expected entities that hold plain text"),
    ("hostile", "context", {"labels.jsonld": b'{"@context": "http://x.invalid/c"}'},
     "labels.jsonld: the remote context 'http://x.invalid/c'; expected a context written out in the file"),
)

SCORED = b'{"id": 2, "labels": ["a", "b"], "scores": [%b]}'
IN_ORDER = {"options": {"ids": None, "n_documents": 2}}
A_DOCUMENT = "predictions for 2 documents; expected one a document in order, as not both sides have ids"
EACH = "expected one line for each document of the test data"


def scored(kind, id, record, result, more=None):
    """Return the case of a second line of predictions."""
    content = {"out.jsonl": b'{"id": 1, "labels": ["b"]}\n' + record + b"\n"}
    return kind, id, content, [["b"], *result] if isinstance(result, list) else f"out.jsonl:2: {result}", more


PREDICTIONS = whole(
    "predictions",
    scored("wrong JSON", "words", b"not json", "invalid character (byte 4) near 'not json'" + LINE),
    scored("wrong types", "labels", b'{"labels": "a"}', "a string in 'labels'; expected a list"),
    scored("wrong types", "label", b'{"labels": [0]}', "a whole number in 'labels[0]'; expected a string"),
    scored("wrong types", "score", SCORED % b"1, null", "null in 'scores[1]'; expected a number"),
    scored("wrong types", "scores", SCORED % b"1", "1 scores for 2 labels; expected one score a label"),
    scored("missing fields", "labels", b'{"id": 2}',
           "no field 'labels'; expected a list of labels, best first, [] for none"),
    scored("missing fields", "id", b'{"labels": []}',
           "no id, unlike the lines before; expected ids in all lines or in none"),
    scored("missing fields", "scores", b'{"id": "2", "labels": ["b", "a"]}', [["b", "a"]]),
    scored("unknown label", "a miss", b'{"id": "2", "labels": ["z", "a"]}', [["z", "a"]]),
    scored("duplicate label", "refused", b'{"id": 2, "labels": ["a", "b", "a"]}',
           "label 'a' twice; expected each label once"),
    scored("indices", "unknown id", b'{"id": 3, "labels": []}', f"an unknown document id 3; {EACH}"),
    scored("indices", "again", b'{"id": "1", "labels": []}', f"a second prediction for document '1'; {EACH}"),
    scored("indices", "rising scores", SCORED % b"0.1, 0.2", [["b", "a"]]),
    scored("NaN or Inf", "nan", SCORED % b"1, NaN", "NaN (byte 46); expected a finite number"),
    scored("NaN or Inf", "inf", SCORED % b"-Infinity, 1", "Infinity (byte 44); expected a finite number"),
    scored("NaN or Inf", "float", SCORED % b"1, -1e399", "a number too large in 'scores[1]'; expected a finite number"),
    scored("CRLF", "one", b'{"id": 2, "labels": ["a"]}\r', [["a"]]),
    scored("NUL", "raw", b'{"id": "\0"}', "invalid character (byte 8) near '{\"id\": \"\\x00\"}'" + LINE),
    scored("lone surrogate", "label", b'{"labels": ["\\ud800"]}', SURROGATE),
    scored("encoding", "Latin-1", b'{"labels": ["\xff"]}', NOT_UTF8),
    ("header", "too many", {"out.jsonl": b'{"labels": []}\n' * 3}, f"out.jsonl: 3 {A_DOCUMENT}", IN_ORDER),
    ("header", "too few", {"out.jsonl": b'{"labels": []}\n'}, f"out.jsonl: 1 {A_DOCUMENT}", IN_ORDER),
    ("header", "ids twice", {"out.jsonl": b'{"id": "1", "labels": []}\n'},
     "out.jsonl: ids that stand more than once in the test data; expected unique ids, or a file in order without ids",
     {"options": {"ids": Strings.of(["1", "1"])}}),
    ("empty file", "nothing", {"out.jsonl": b""}, "out.jsonl: no prediction; expected 2, one a document"),
    ("empty text", "no label", {"out.jsonl": b'{"id": 1, "labels": []}\n'}, [[], []]),
    ("BOM", "first", {"out.jsonl": b'\xef\xbb\xbf{"id": 1, "labels": ["b"]}\n'}, [["b"], []]),
)

CASES = [*LABELS, *SKOS, *PREDICTIONS]
