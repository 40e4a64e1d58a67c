"""Blocks of JSON lines that are decoded at once, compared with reading line by line."""

import json
import random

import pytest
from dataset_content import outcome
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import json_lines, lines
from longtail.data.builder import Builder, Reading
from longtail.data.jsonl import read_jsonl
from longtail.errors import DataError

words = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", "a", "ab", "Σ", "é", "\0", '"\\/\b\f\n\r\t', "😀", "\u2028"]),
)


def both_ways(path, skip_bad=0):
    """The content or message of the error, in blocks and line by line."""
    reading = Reading(skip_bad=skip_bad)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK", 512)
        in_blocks = outcome(lambda: read_jsonl(path, reading))
        patch.setattr(json_lines.JsonBlock, "objects", None)
        by_line = outcome(lambda: read_jsonl(path, reading))
    return in_blocks, by_line


@st.composite
def files(draw):
    """JSON lines as any program may write them: escaped or not, spaced, keys in any order."""
    with_ids, ascii_only = draw(st.booleans()), draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\r : ")]))
    out = []
    for number, (text, labels) in enumerate(
        draw(st.lists(st.tuples(words, st.lists(words, max_size=4)), max_size=40))
    ):
        record = {"text": text, "labels": labels} | ({"id": f"{number}{text}"} if with_ids else {})
        keys = draw(st.permutations(list(record)))
        out.append(
            json.dumps(
                {key: record[key] for key in keys}, ensure_ascii=ascii_only, separators=separators
            )
        )
    return "".join(line + draw(st.sampled_from(["\n", "\r\n", " \t\n"])) for line in out).encode()


@settings(max_examples=150, deadline=None)
@given(data=files())
def test_blocks_and_lines_agree(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "x.jsonl"
    path.write_bytes(data)
    in_blocks, by_line = both_ways(path)
    assert in_blocks == by_line


def test_good_lines_are_decoded_at_once(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "labels": ["x", "y"]}\n' * 100)
    added = []
    monkeypatch.setattr(Builder, "add", lambda *record: added.append(record))
    assert len(read_jsonl(path, Reading())) == 100
    assert added == []
    monkeypatch.setattr(json_lines.JsonBlock, "objects", None)
    with pytest.raises(DataError, match="no document"):
        read_jsonl(path, Reading())
    assert len(added) == 100


UNUSUAL = [
    '{"text": "a", "labels": ["x"], "title": "t"}',
    '{"text": "a", "labels": ["new", "x"], "other": 1}',
    '{"text": "a", "labels": ["x"], "relevance": [0.5]}',
    '{"text": "a", "labels": ["x"], "id": 7}',
    '{"text": "a", "labels": ["x"], "id": null}',
    '{"text": "a", "labels": ["x"], "id": "7"}',
    '{"text": "a", "text": "b", "labels": ["x"]}',
    '{"text": "a", "labels": ["x"], "labels": ["y"]}',
    '{"t\\u0065xt": "a", "labels": ["x"]}',
    '{"title": "only", "labels": ["x"]}',
    "",
    "   ",
]
BAD = [
    '{"text": "a", "labels": ["gone"]} {"text": "b", "labels": ["x"]}',
    "{",
    "[]",
    "{}",
    '{"text": "a"}',
    '{"labels": ["gone"]}',
    '{"text": "a", "labels": ["gone",]}',
    '{"text": "a", "labels": ["gone" "x"]}',
    '{"text": "a", "labels": ["gone", 1]}',
    '{"text": "a", "labels": [,]}',
    '{"text": "a", "labels": "gone"}',
    '{"text": "a", "labels": ["gone"],}',
    '{"text": "a", "labels": ["gone"]}}',
    '{"text": "a", "labels": ["gone"]} x',
    '{"text": "a" "labels": ["gone"]}',
    '{"text" "a", "labels": ["gone"]}',
    '{"text": "a\tb", "labels": ["gone"]}',
    '{"text": "a\x1fb", "labels": ["gone"]}',
    '{"text": "a", "labels": ["gone", "\x11"]}',
    '{"text": "a\\x", "labels": ["gone"]}',
    '{"text": "a\\u12g4", "labels": ["gone"]}',
    '{"text": "\\ud800", "labels": ["gone"]}',
    '{"text": "\\udc00\\ud800", "labels": ["gone"]}',
    '{"text": "\\ud800\\u0041", "labels": ["gone"]}',
    '{"text": "\\ud800\\ue000", "labels": ["gone"]}',
    '{"text": 1, "labels": ["gone"]}',
    '{"text": "a", "labels": ["gone"], "id": true}',
    '{"text": "a", "labels": ["gone"], "id": "7',
]


@pytest.mark.parametrize("line", [*UNUSUAL, *BAD])
@pytest.mark.parametrize("at", [0, 10, 39])
def test_unusual_and_bad_lines(tmp_path, line, at):
    good = [json.dumps({"text": f"text {n}", "labels": [f"label {n % 7}", "x"]}) for n in range(40)]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join([*good[:at], line, *good[at:]]) + "\n")
    for skip_bad in (0, 1):
        in_blocks, by_line = both_ways(path, skip_bad)
        assert in_blocks == by_line
    assert (line in BAD) == isinstance(both_ways(path)[0], str)
    is_pretty_printed = at == 0 and line == "{"  # of which nothing is read
    if line in BAD and not is_pretty_printed:  # no label of a record that was left out
        labels = [label.id for label in both_ways(path, 1)[0]["labels"]]
        assert "gone" not in labels


@pytest.mark.parametrize(
    "raw",
    [
        *(
            b"\x80",
            b"\xc1\x81",
            b"\xc3",
            b"\xc3(",
            b"\xe0\x80\x80",
            b"\xed\xa0\x80",
            b"\xf0\x80\x80\x80",
            b"\xff",
        ),
        *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xe2(\xa1"),
    ],
)
@pytest.mark.parametrize(
    "template", [b'{"text": "a%s", "labels": []}\n', b'{"text": "a", "labels": ["%s"]}\n']
)
def test_what_is_not_utf8_is_refused(tmp_path, raw, template):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text": "a", "labels": []}\n' + template % raw)
    in_blocks, by_line = both_ways(path)
    assert in_blocks == by_line
    assert in_blocks.startswith(f"{path}:2: a byte that is not UTF-8")


def test_any_damage_gives_the_same_result_both_ways(tmp_path):
    rng = random.Random(0)
    record = {"id": "ä", "text": 'Grüße 😀 \u2028 \\ " \n', "labels": ["Σ", "b\tc", "é"]}
    whole = b"".join(json.dumps(record, ensure_ascii=n % 2 == 0).encode() + b"\n" for n in range(6))
    path = tmp_path / "x.jsonl"
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice(
                b'"\\{}[],:u\n 0dD8c\xc3\xed\xf0\x80\xff' + whole
            )
        path.write_bytes(damaged)
        in_blocks, by_line = both_ways(path, skip_bad=10)
        assert in_blocks == by_line, bytes(damaged)


@pytest.mark.parametrize("ids_first", [True, False])
def test_ids_in_one_part_of_the_file_only(tmp_path, ids_first):
    with_ids = [
        json.dumps({"id": f"id {n}", "text": "a", "labels": ["x", f"{n}"]}) for n in range(40)
    ]
    without = [json.dumps({"text": "b", "labels": ["x", f"{n} too"]}) for n in range(40)]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join([*with_ids, *without] if ids_first else [*without, *with_ids]))
    in_blocks, by_line = both_ways(path)
    assert in_blocks == by_line
    if ids_first:
        assert in_blocks["ids"] == [f"id {n}" if n < 40 else f"{n}" for n in range(80)]
