"""The scanner of sparse lines against Python's own parsers."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtail.kernels.text import LineLimits, ScannedLines, _to_float32, scan_lines

N_LABELS, N_COLUMNS = 50, 1000
NUMBER = re.compile(rb"\d{1,10}")
VALUE = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def scan(data, start=0, most_rows=None, with_labels=True, least=-np.inf):
    """Return ([labels], [(columns, values)], start of the first line not taken)."""
    rows = data.count(b"\n") if most_rows is None else most_rows
    labels, label_ends = np.empty(len(data) // 2 + 1, np.int32), np.empty(rows, np.int64)
    columns, values = (
        np.empty(len(data) // 4 + 1, np.int32),
        np.empty(len(data) // 4 + 1, np.float32),
    )
    pair_ends = np.empty(rows, np.int64)
    limits = LineLimits(with_labels, N_LABELS, N_COLUMNS, np.float32(least))
    lines = ScannedLines(labels, label_ends, columns, values, pair_ends)
    taken, stopped = scan_lines(np.frombuffer(data, np.uint8), start, rows, limits, lines)
    label_cuts, pair_cuts = label_ends[: max(0, taken - 1)], pair_ends[: max(0, taken - 1)]
    own = np.split(labels[: label_ends[taken - 1] if taken else 0], label_cuts)
    found = (
        columns[: pair_ends[taken - 1] if taken else 0],
        values[: pair_ends[taken - 1] if taken else 0],
    )
    pairs = zip(*(np.split(part, pair_cuts) for part in found), strict=True)
    return [o.tolist() for o in own][:taken], [(c.tolist(), v) for c, v in pairs][:taken], stopped


def oracle(line, with_labels=True, least=-np.inf):
    """Return (labels, {column: value}) or None for a line that is wrong."""
    tokens, labels = line.split(), []
    if with_labels and tokens and not line[:1].isspace() and b":" not in tokens[0]:
        labels = tokens.pop(0).split(b",")
        if not all(NUMBER.fullmatch(label) and int(label) < N_LABELS for label in labels):
            return None
    pairs = {}
    for token in tokens:
        column, colon, value = token.partition(b":")
        if not (colon and NUMBER.fullmatch(column) and VALUE.fullmatch(value)):
            return None
        with np.errstate(over="ignore"):
            number = np.float32(float(value))
        if (
            int(column) >= N_COLUMNS
            or int(column) in pairs
            or not np.isfinite(number)
            or number < least
        ):
            return None
        pairs[int(column)] = number
    return [int(label) for label in labels], pairs


def same(found, pairs):
    columns, values = found
    expected = np.array([pairs[column] for column in sorted(pairs)], np.float32)
    return columns == sorted(pairs) and values.tobytes() == expected.tobytes()


any_line = st.one_of(
    st.text(alphabet="0123456789:,. eE+-\t\r\x0bxn", max_size=30).map(str.encode),
    st.lists(
        st.tuples(
            st.integers(0, N_COLUMNS + 1), st.floats(-1e6, 1e6, width=32) | st.integers(0, 99)
        ),
        max_size=6,
    ).map(lambda pairs: " ".join(["1,7", *(f"{c}:{v}" for c, v in pairs)]).encode()),
)


@settings(deadline=None)  # the first call compiles
@given(st.lists(any_line, min_size=1, max_size=5), st.booleans(), st.sampled_from([-np.inf, 1e-45]))
@example([b"3,4:1"], True, -np.inf)
@example([b"1", b"1,2", b"1:2", b" 1:2", b"", b" "], True, -np.inf)
@example([b"9:1 2:2 5:3 3:4 1:5"], False, -np.inf)
@example([b"9:1 2:2 9:3"], False, -np.inf)
@example([b"1:0"], False, 1e-45)
def test_scan_takes_what_is_right_and_stops_at_what_is_wrong(lines, with_labels, least):
    labels, pairs, stopped = scan(b"\n".join(lines) + b"\n", with_labels=with_labels, least=least)
    for line, own, found in zip(lines, labels, pairs, strict=False):
        expected = oracle(line, with_labels, least)
        assert expected is not None, line
        assert own == expected[0]
        assert same(found, expected[1])
    assert stopped == sum(len(line) + 1 for line in lines[: len(labels)])
    if len(labels) < len(lines):
        odd = lines[len(labels)]
        hard = re.search(
            rb"[\d.]{19}|[eE][+-]?\d\d", odd
        )  # such numbers may be left to the exact parser
        assert hard or oracle(odd, with_labels, least) is None, odd


FORMS = ["%.3f", "%.6g", "%.9g", "%.15g", "%.16g", "%.17g", "%.25f", "%.7e", "%r"]


@pytest.mark.parametrize("form", FORMS)
def test_values_equal_the_rounded_double(form):
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(5000) * 10.0 ** rng.integers(-12, 12, 5000)
    tokens = [(form % number).encode() for number in numbers.tolist()]
    data = b"".join(b"7:%b\n" % token for token in tokens)
    start, values = 0, []
    _, pairs, stopped = scan(data, start, with_labels=False)
    while True:  # a value too near a float32 boundary is for the exact parser
        values += [found[0] for _, found in pairs]
        if stopped == len(data):
            break
        values.append(np.float32(float(tokens[len(values)])))
        _, pairs, stopped = scan(data, data.index(b"\n", stopped) + 1, with_labels=False)
    expected = np.array([float(token) for token in tokens]).astype(np.float32)
    assert np.array(values, np.float32).tobytes() == expected.tobytes()


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 2e-16, -2e-16, 1e-17, -1e-17, 1e-19]))
@settings(max_examples=300, deadline=None)
def test_values_at_float32_boundaries_are_never_misrounded(bits, nudge):
    value = np.array([bits], np.uint32).view(np.float32)
    with np.errstate(over="ignore"):  # behind the largest comes inf, which is passed over
        after = np.nextafter(value, np.float32(np.inf))
    if not (np.isfinite(value[0]) and np.isfinite(after[0])):
        return
    middle = (float(value[0]) + float(after[0])) / 2 * (1 + nudge)
    for token in (b"%.17g" % middle, b"%.30g" % middle, b"%.40f" % middle, b"%.17g1" % middle):
        expected = oracle(b"7:" + token, with_labels=False)
        _, pairs, stopped = scan(b"7:%b\n" % token, with_labels=False)
        assert not stopped or same(pairs[0], expected[1]), token


def test_certain_values_near_float32_boundaries_are_right():
    rng = np.random.default_rng(0)
    value = np.abs(rng.standard_normal(3000)).astype(np.float32)
    middle = (value.astype(np.float64) + np.nextafter(value, np.float32(9))) / 2
    certain_ones = 0
    for step in range(-3, 4):
        for number in (middle + step * np.spacing(middle)).tolist():
            digits = f"{number:.17e}"[:19].replace(
                ".", ""
            )  # 18 digits, so that mantissa and power are both inexact
            power = int(f"{number:.17e}"[20:]) - 17
            certain, found = _to_float32(int(digits), power, False)
            assert not certain or found == np.float32(float(f"{digits}e{power}"))
            certain_ones += certain
    assert certain_ones < 2000


def test_common_numbers_never_need_the_exact_parser():
    tokens = [
        "0",
        "1",
        "-1",
        "+.5",
        "5.",
        "1e5",
        "2.5E-3",
        "0.30000000000000004",
        "16777217",
        "1e-45",
        "3.4028234e38",
    ]
    tokens += [
        "0.1234567890123456789",
        "0" * 40 + "1",
        "0." + "0" * 30 + "1",
        "0e999",
        "123456789012345678901234567890",
    ]
    for token in tokens:
        _, pairs, stopped = scan(b"7:%b\n" % token.encode(), with_labels=False)
        assert stopped, token
        assert pairs[0][1][0] == np.float32(float(token)), token


@pytest.mark.parametrize(
    "token",
    ["1e39", "3.4028236e38", "-1e39", "1e-400", "nan", "inf", "-", "+", ".", "e5", "1e", ""],
)
def test_unusual_numbers_are_left_to_the_exact_parser(token):
    assert scan(b"7:1\n7:%b\n" % token.encode(), with_labels=False)[2] == 4


@settings(deadline=None)
@given(st.permutations(range(40)))
def test_rows_are_sorted_with_their_values(order):
    _, pairs, _ = scan(" ".join(f"{c}:{c}.5" for c in order).encode() + b"\n", with_labels=False)
    assert pairs[0][0] == list(range(40))
    assert pairs[0][1].tolist() == [c + 0.5 for c in range(40)]


def test_scan_stops_after_most_rows_and_goes_on_where_it_is_told():
    data = b"1 1:1\n2 2:2\n3 3:3\n"
    assert scan(data, most_rows=2)[::2] == ([[1], [2]], 12)
    assert scan(data, start=6, most_rows=9)[::2] == ([[2], [3]], 18)
