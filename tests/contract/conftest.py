"""The command line run inside the test, with what it prints and how it ends, and the few documents
it is given.
"""

from __future__ import annotations

import io
import json
import logging
import re
import signal
import sys
from typing import NamedTuple

import pytest
from few_documents import TEST, TRAIN, put

from longtail import cli, reporting


class Done(NamedTuple):
    code: int
    out: str
    err: str

    def json(self):
        """Return the result of a command that went well and said nothing else."""
        assert (self.code, self.err) == (0, "")
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Take colours and the width of the window out of the messages, and leave the process as it
    was.
    """
    for name in ("FORCE_COLOR", "PY_COLORS", "NUMBA_CACHE_DIR", "COLUMNS", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    log = logging.getLogger("longtail")
    handler = signal.getsignal(signal.SIGTERM)
    level = log.level
    yield
    signal.signal(signal.SIGTERM, handler)
    log.setLevel(level)
    reporting.show_on(None)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run ``longtail ARGUMENTS`` in this process."""

    def run(*arguments: object, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["longtail", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(ended.value.code, out, re.sub(r"\x1b\[[\d;]*m", "", err))

    return run


@pytest.fixture
def fails(run):
    """Run a command that must fail without a result, and return what it says."""

    def fails(code: int, *arguments: object, stdin: bytes = b"") -> str:
        done = run(*arguments, stdin=stdin)
        assert (done.code, done.out) == (code, "")
        return " ".join(done.err.split())

    return fails


@pytest.fixture
def train(tmp_path):
    return put(tmp_path / "train.jsonl", TRAIN)


@pytest.fixture
def truth(tmp_path):
    return put(tmp_path / "test.jsonl", TEST)
