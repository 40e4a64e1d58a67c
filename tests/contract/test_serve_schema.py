"""Schemathesis asks every endpoint of a running server what its own OpenAPI document allows, and
what it does not.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from test_serve import PATIENT, folders, serving  # noqa: F401

pytest.importorskip(
    "schemathesis", reason="needs schemathesis, which fuzzes an API by its OpenAPI document"
)


def test_answers_are_as_documented(folders, tmp_path):  # noqa: F811
    """No 5xx, no status or body that is not in the document, nothing refused that it allows."""
    with serving(folders / "model-0", *PATIENT) as server:
        address = f"http://127.0.0.1:{server.port}/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli", "run", address, "--phases", "fuzzing"]
        command += ["--max-examples", "5", "--seed", "1"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=250
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "10 passed" in done.stdout
