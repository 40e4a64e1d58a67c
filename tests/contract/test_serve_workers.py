"""Workers that are killed or cannot start again, beside others that go on."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from test_serve import BODY, folders, serving  # noqa: F401

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs /proc, and ports that are shared"
)


def workers(server) -> set[int]:
    """Return the process ids of the workers."""
    parent = server.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    }


def predicts(server) -> bool:
    return server.ask("POST", "/v1/predict", BODY)[0] == 200


def replace(file: Path, content: bytes) -> None:
    new = file.parent.parent / "new-file"
    new.write_bytes(content)
    new.rename(file)


def test_a_worker_that_cannot_start_again_ends_no_other(folders, tmp_path):  # noqa: F811
    model = tmp_path / "model"
    shutil.copytree(folders / "model-0", model)
    file = next(model.glob("ranker-*.safetensors"))
    content = file.read_bytes()
    with serving(model, "--workers", "2") as server:
        first = workers(server)
        assert len(first) == 2
        replace(file, content[:-1] + bytes([content[-1] ^ 1]))
        status, problem = server.ask("POST", "/v1/reload")
        assert (status, problem["title"]) == (409, "Not reloaded")
        killed = min(first)
        os.kill(killed, signal.SIGKILL)
        server.until(lambda: server.says(f"^worker {killed} ended with -9; another starts"))
        server.until(
            lambda: server.says(r"ended with 4 before it was ready; .* another starts in 1 s$")
        )
        assert all(predicts(server) for _ in range(10))
        server.until(
            lambda: server.says(r"ended with 4 before it was ready; .* another starts in 2 s$")
        )
        replace(file, content)
        server.until(lambda: server.says(r"^worker \d+ is ready$"))
        assert len(workers(server)) == 2
        os.kill(max(first), signal.SIGKILL)  # the new one serves, too
        server.until(lambda: server.says(f"^worker {max(first)} ended with -9; another starts"))
        assert all(predicts(server) for _ in range(10))
        server.until(lambda: sum(line.endswith("is ready") for line in server.lines) == 2)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert not server.says("Traceback")
