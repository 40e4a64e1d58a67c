"""The short run of the fuzzer that CI makes: every seed, and seeded random mutations of them,
through every target.
"""

from __future__ import annotations

import logging
import random
import zlib
from pathlib import Path

import pytest
import targets

CORPUS = Path(__file__).parent / "corpus"
MUTANTS = 150  # a parser: the same ones everywhere and always
PIECES = [
    b"\n",
    b"\r\n",
    b"\t",
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b":",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc3\xa9",
]
PIECES += [
    b"-1",
    b"1e400",
    b"nan",
    b"99999999999999999999",
    b"\\ud800",
    b"null",
    b"__label__",
    targets.SEPARATOR,
]


@pytest.fixture(autouse=True)
def quick(monkeypatch, caplog):
    monkeypatch.setattr(targets.xmc_bow, "_FREE_LABELS", targets.FREE_LABELS)
    caplog.set_level(logging.CRITICAL, "longtail")


def seeds(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def mutant(rng: random.Random, data: bytes) -> bytes:
    """Return ``data`` after one to four edits: bytes set, taken out, put in, copied, or the end cut
    off.
    """
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, end = sorted(rng.randint(0, len(out)) for _ in range(2))
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[at % len(out)] = rng.randrange(256)
        elif kind == 1:
            del out[at : min(end, at + 16)]
        elif kind == 2:
            out[at:at] = rng.choice(PIECES)
        elif kind == 3:
            out[at:at] = out[end : end + 64]
        elif rng.random() < 0.2:
            del out[end:]
    return bytes(out)


def test_every_target_has_seeds():
    assert {path.name for path in CORPUS.iterdir()} == set(targets.TARGETS)


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_seeds_find_no_defect(path):
    targets.TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_mutants_find_no_defect(name):
    rng = random.Random(zlib.crc32(name.encode()))
    member = seeds(name)
    for _ in range(MUTANTS):
        data = mutant(rng, rng.choice(member))
        try:
            targets.TARGETS[name](data)
        except Exception as error:
            pytest.fail(f"{name}: {data!r}: {error!r}")
