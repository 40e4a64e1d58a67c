import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import lines, plain_json
from longtail.data.builder import Reading
from longtail.data.jsonl import read_jsonl
from longtail.data.plain_json import CompactIndex
from longtail.errors import DataError

ALWAYS, NEVER = 0, 1 << 60
words = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", "a", "ab", "Σ", "é", "\0", '"\\/\b\f\n\r\t', "😀", "\u2028"]),
)


def outcome(path, monkeypatch, pays_from, skip_bad=0):
    """What reading gives, all of it, or the message of its error."""
    monkeypatch.setattr(plain_json, "_PAYS_FROM", pays_from)
    try:
        found = read_jsonl(path, Reading(skip_bad=skip_bad))
    except DataError as error:
        return str(error)
    matrix = found.label_matrix
    arrays = [part.tolist() for part in (matrix.data, matrix.indices, matrix.indptr)]
    ids = None if found.ids is None else list(found.ids)
    return list(found.texts), ids, list(found.labels.ids), arrays, found.merged_duplicates


def both_ways(path, skip_bad=0):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_CHUNK", 512)
        return outcome(path, patch, ALWAYS, skip_bad), outcome(path, patch, NEVER, skip_bad)


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
def test_compiled_and_plain_reading_agree(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "x.jsonl"
    path.write_bytes(data)
    compiled, plain = both_ways(path)
    assert compiled == plain


def test_the_compiled_way_is_taken(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "labels": ["x", "y"]}\n' * 100)
    taken = []
    monkeypatch.setattr(plain_json, "_PAYS_FROM", ALWAYS)
    monkeypatch.setattr(plain_json.Builder, "extend", lambda *_: taken.append("slow") or True)
    assert len(read_jsonl(path, Reading())) == 100
    assert taken == []
    monkeypatch.setattr(plain_json, "_PAYS_FROM", NEVER)
    with pytest.raises(DataError, match="no document"):
        read_jsonl(path, Reading())
    assert taken == ["slow"]


@pytest.mark.parametrize(
    ("loaded", "at"),
    [([], 1 << 20), (["numba"], 1 << 14), (["numba", "longtail.kernels.json_lines"], 1 << 10)],
)
def test_what_is_loaded_already_need_not_pay(monkeypatch, loaded, at):
    monkeypatch.setattr(plain_json, "_PAYS_FROM", 1 << 20)
    monkeypatch.setattr(plain_json.sys, "modules", dict.fromkeys(loaded))
    assert plain_json._pays_from() == at


def test_the_block_that_makes_it_pay_is_compiled_already(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "labels": ["x", "y"]}\n' * 100)
    slow, extend = [], plain_json.Builder.extend
    monkeypatch.setattr(
        plain_json.Builder, "extend", lambda self, new: slow.append(len(new)) or extend(self, new)
    )
    monkeypatch.setattr(lines, "_CHUNK", 360)
    monkeypatch.setattr(plain_json, "_pays_from", lambda: 1000)
    assert len(read_jsonl(path, Reading())) == 100
    assert 0 < sum(slow) * 36 < 1000


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
def test_what_is_not_plain_is_read_as_ever(tmp_path, line, at):
    good = [json.dumps({"text": f"text {n}", "labels": [f"label {n % 7}", "x"]}) for n in range(40)]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join([*good[:at], line, *good[at:]]) + "\n")
    for skip_bad in (0, 1):
        compiled, plain = both_ways(path, skip_bad)
        assert compiled == plain
    assert (line in BAD) == isinstance(both_ways(path)[0], str)
    assert (
        line in UNUSUAL or "gone" not in both_ways(path, 1)[0][2]
    )  # no label of a record that was left out


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
    compiled, plain = both_ways(path)
    assert compiled == plain
    assert compiled.startswith(f"{path}:2: a byte that is not UTF-8")


def test_any_damage_gives_the_same_result_both_ways(tmp_path):
    chance = random.Random(0)
    record = {"id": "ä", "text": 'Grüße 😀 \u2028 \\ " \n', "labels": ["Σ", "b\tc", "é"]}
    whole = b"".join(json.dumps(record, ensure_ascii=n % 2 == 0).encode() + b"\n" for n in range(6))
    path = tmp_path / "x.jsonl"
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.choice(
                b'"\\{}[],:u\n 0dD8c\xc3\xed\xf0\x80\xff' + whole
            )
        path.write_bytes(damaged)
        compiled, plain = both_ways(path, skip_bad=10)
        assert compiled == plain, bytes(damaged)


def test_after_ten_blocks_that_are_not_plain_no_more_are_tried(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    plain, titled = (
        '{"text": "a", "labels": ["x"]}\n' * 20,
        '{"text": "a", "labels": ["x"], "title": "t"}\n' * 20,
    )
    path.write_text(plain + titled * 40)
    monkeypatch.setattr(lines, "_CHUNK", 600)
    monkeypatch.setattr(plain_json, "_PAYS_FROM", ALWAYS)
    scans, scan = [], plain_json._scan
    monkeypatch.setattr(plain_json, "_scan", lambda *given: scans.append(scan(*given)) or scans[-1])
    assert len(read_jsonl(path, Reading())) == 20 * 41
    assert sum(found is None for found in scans) == 10


@pytest.mark.parametrize("ids_first", [True, False])
def test_ids_in_one_part_of_the_file_only(tmp_path, ids_first):
    with_ids = [
        json.dumps({"id": f"id {n}", "text": "a", "labels": ["x", f"{n}"]}) for n in range(40)
    ]
    without = [json.dumps({"text": "b", "labels": ["x", f"{n} too"]}) for n in range(40)]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join([*with_ids, *without] if ids_first else [*without, *with_ids]))
    compiled, plain = both_ways(path)
    assert compiled == plain
    assert (
        compiled[1] == [f"id {n}" if (n < 40) == ids_first else f"{n}" for n in range(80)]
        or not ids_first
    )


def test_equal_hashes_are_not_equal_strings():
    def index_of(label):
        index = CompactIndex()
        index.make_room(100, 100)
        assert index[label] == 0
        return index

    one, other = index_of("one"), index_of("two")
    one.table = np.zeros_like(one.table)
    one.table[np.flatnonzero(other.table)] = other.table[
        other.table > 0
    ]  # as if "one" had the hash of "two"
    assert one["two"] == 1


@given(given_labels=st.lists(words, unique=True, max_size=20), asked=st.lists(words, max_size=60))
@settings(deadline=None)
def test_compact_index_is_a_dict(given_labels, asked):
    index, oracle = (
        CompactIndex(given_labels),
        {label: column for column, label in enumerate(given_labels)},
    )
    for label in asked:
        assert index[label] == oracle.setdefault(label, len(oracle))
    assert (len(index), list(index)) == (len(oracle), list(oracle))
    index.forget_after(len(given_labels))
    assert list(index) == given_labels
    assert [index[label] for label in given_labels] == list(range(len(given_labels)))


def test_compact_index_of_many_labels():
    labels = [f"label {n:05d}" for n in range(50_000)]
    index = CompactIndex()
    assert [index[label] for label in labels] == list(range(50_000))
    assert [index[label] for label in labels[::997]] == list(range(0, 50_000, 997))
    assert np.count_nonzero(index.table) == 50_000
