"""``longtail serve`` as a process: signals, workers, reloading under load, slow clients, and what does not start."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

import longtail as lt

pytest.importorskip("fastapi", reason="needs longtail[server]")
pytest.importorskip("uvicorn", reason="needs longtail[server]")

BODY = json.dumps({"documents": [{"text": "wind and storm"}], "k": 2})
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two model folders that differ."""
    folder = tmp_path_factory.mktemp("serve")
    texts = ["wind storm turbine", "sea wave salt", "bread oven flour", "milk cow farm"] * 6
    documents = lt.Dataset.of(texts, [["wind"], ["sea"], ["bread"], ["milk"]] * 6)
    for seed in (0, 1):
        lt.Longtail("xr-linear", seed=seed).fit(documents).save(folder / f"model-{seed}")
    return folder


HANG = 200  # seconds, after which something has gone wrong; no server here needs them
PATIENT = (
    "--queue-ms",
    str(1000 * HANG),
    "--timeout",
    str(HANG),
)  # nothing is shed, however busy the machine


class Process:
    """A server under test."""

    def __init__(self, process: subprocess.Popen[str], port: int, lines: list[str]) -> None:
        self.process, self.port, self.lines = process, port, lines

    def ask(self, method: str, path: str, body: str | None = None, headers=JSON):
        """Return status and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()

    def version(self) -> str:
        return self.ask("POST", "/v1/predict", BODY)[1]["model"]["version"]

    def says(self, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in self.lines)

    def until(self, condition) -> None:
        end = time.monotonic() + HANG
        while not condition():
            assert time.monotonic() < end, self.lines
            assert self.process.poll() is None, self.lines
            time.sleep(0.02)


@contextmanager
def serving(*arguments: object, **environment: str):
    command = [sys.executable, "-m", "longtail", "serve", *map(str, arguments), "--port", "0"]
    own = {name: value for name, value in os.environ.items() if name != "LONGTAIL_TOKEN"}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**own, **environment}
    )
    server = Process(process, 0, [])

    def listen() -> None:
        for line in process.stderr:
            server.lines.append(line.rstrip())

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        server.until(lambda: server.says(r"^curl "))
        server.port = int(
            next(filter(None, (re.match(r"page: .*:(\d+)/$", line) for line in server.lines)))[1]
        )
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        listening.join()
        process.stderr.close()


def half_sent(port: int, sent: str) -> socket.socket:
    """Return a connection that has sent this much."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=HANG)
    connection.sendall(sent.encode())
    return connection


HEAD = (
    "POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"content-length: {len(BODY)}\r\n\r\n"
)


def test_one_process(folders, tmp_path):
    """Reload under load without a request that fails, slow clients, and an end that waits for those in flight."""
    live = tmp_path / "live"
    live.symlink_to(folders / "model-0")
    named = (
        "--allowed-host",
        "labels.example",
        "--allowed-host",
        "other.example",
        "--max-connections",
        "50",
    )
    with serving(live, "--body-timeout", "1", "--access-log", *named, *PATIENT) as server:
        assert server.lines[0] == f"page: http://127.0.0.1:{server.port}/"
        first = server.version()
        reload_under_load(server, live, folders, first)
        a_bad_folder_leaves_the_old(server, live, tmp_path)
        only_known_hosts(server)
        slow_clients(server)
        text = "a text that no log may hold"
        server.ask("POST", "/v1/predict", json.dumps({"documents": [{"text": text}]}))
        server.ask("POST", "/v1/predict", json.dumps({"documents": [{"texts": text}]}))
        ends_well(server)
        assert server.says(r"^POST /v1/predict 200 \d+\.\d ms \S+$")
        assert not server.says("no log may hold")
        assert not server.says("Traceback")


def swap(live, target) -> None:
    new = live.with_name("new")
    new.symlink_to(target)
    new.rename(live)


def reload_under_load(server, live, folders, first) -> None:
    answers, stop = [], threading.Event()

    def load() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG)
        while not stop.is_set():
            connection.request("POST", "/v1/predict", BODY, JSON)
            response = connection.getresponse()
            answers.append((response.status, json.loads(response.read())["model"]["version"]))
        connection.close()

    clients = [threading.Thread(target=load) for _ in range(2)]
    for client in clients:
        client.start()
    swap(live, folders / "model-1")
    status, answer = server.ask("POST", "/v1/reload")
    assert (status, answer["version"] != first) == (200, True)
    assert server.version() == answer["version"]
    swap(live, folders / "model-0")
    server.process.send_signal(signal.SIGHUP)
    server.until(lambda: server.says(f"reloaded: version {first} in place of {answer['version']}"))
    server.until(lambda: server.version() == first)
    stop.set()
    for client in clients:
        client.join()
    assert {status for status, _ in answers} == {200}
    assert {version for _, version in answers} == {first, answer["version"]}


def a_bad_folder_leaves_the_old(server, live, tmp_path) -> None:
    first = server.version()
    bad = tmp_path / "bad"
    shutil.copytree(live, bad)
    with open(bad / "tree-0.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x55")
    (bad / "manifest.json").write_bytes(
        (bad / "manifest.json").read_bytes().replace(b"longtail", b"longtaiL", 1)
    )
    target = live.resolve()
    swap(live, bad)
    status, problem = server.ask("POST", "/v1/reload")
    assert (status, problem["title"]) == (409, "Not reloaded")
    assert server.version() == first
    swap(live, target)


def only_known_hosts(server) -> None:
    for host, status in (
        ("labels.example", 200),
        ("other.example:80", 200),
        ("attacker.example", 421),
    ):
        assert server.ask("GET", "/v1/model", None, {"Host": host})[0] == status


def slow_clients(server) -> None:
    """Headers and bodies that do not come to an end are 408, and others are served meanwhile."""
    slow = [
        half_sent(server.port, HEAD + BODY[:5]),
        half_sent(server.port, HEAD[:30]),
        half_sent(server.port, ""),
    ]
    assert server.ask("GET", "/health/ready") == (200, {"status": "ready"})
    for connection in slow:
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 408 ")
        connection.close()


def ends_well(server) -> None:
    """SIGTERM: who has begun is answered, nobody else gets in, and all is well."""
    begun = half_sent(server.port, HEAD.replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n"))
    assert begun.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"  # it waits for the body
    begun.sendall(BODY[:5].encode())
    server.process.send_signal(signal.SIGTERM)
    server.until(lambda: server.says("stopping"))
    begun.sendall(BODY[5:].encode())
    answer = b""
    while piece := begun.recv(4096):
        answer += piece
    begun.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert server.process.wait(HANG) == 0
    with pytest.raises(ConnectionError):
        server.ask("GET", "/health/live")


def test_two_processes_on_one_port(folders, tmp_path):
    live, token = tmp_path / "live", tmp_path / "token"
    live.symlink_to(folders / "model-0")
    token.write_text("s3cret\n")
    shown = {**JSON, "Authorization": "Bearer s3cret"}
    with serving(live, "--workers", "2", "--token-file", token, *PATIENT) as server:
        assert server.ask("POST", "/v1/predict", BODY)[0] == 401
        answers = [
            server.ask("POST", "/v1/predict", BODY, shown)[1]["model"]["version"] for _ in range(20)
        ]
        assert len(set(answers)) == 1
        assert 'path="/v1/predict",status="200"} 20.0' in metrics(server, shown)
        assert server.ask("GET", "/v1/model", None, shown)[1]["latency"]["requests"] == 20
        swap(live, folders / "model-1")
        assert server.ask("POST", "/v1/reload", "", shown)[1]["version"] != answers[0]
        server.until(lambda: sum(line.startswith("reloaded:") for line in server.lines) == 2)
        answers = [
            server.ask("POST", "/v1/predict", BODY, shown)[1]["model"]["version"] for _ in range(10)
        ]
        assert len(set(answers)) == 1
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(HANG) == 0
        assert not server.says("Traceback")


def metrics(server, headers) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG)
    connection.request("GET", "/metrics", headers=headers)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_what_does_not_start(fails, folders, tmp_path, monkeypatch):
    model = folders / "model-0"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for more in ([], ["--workers", "2"]):
            message = fails(2, "serve", model, "--port", port, *more)
            assert (
                f"127.0.0.1:{port}: another program listens there; choose another with --host and --port"
                in message
            )
        message = fails(2, "serve", model, "--port", port, "--documents", tmp_path / "none.jsonl")
        assert "another program listens there" in message  # before anything is read
    assert "no such model folder" in fails(4, "serve", tmp_path / "none", "--port", "0")
    (tmp_path / "bad.jsonl").write_text('{"text": 5, "labels": ["wind"]}\n')
    message = fails(3, "serve", model, "--port", "0", "--documents", tmp_path / "bad.jsonl")
    assert "bad.jsonl:1: a whole number in 'text'; expected a string" in message
    assert "--skip-bad" not in message  # which this command does not have
    assert "--token-file" in fails(2, "serve", model, "--token-file", tmp_path / "none")
    (tmp_path / "empty").write_text("\n")
    assert "expected one token" in fails(2, "serve", model, "--token-file", tmp_path / "empty")
    monkeypatch.setenv("LONGTAIL_TOKEN", "two words")
    assert "LONGTAIL_TOKEN: expected one token" in fails(2, "serve", model)


def test_without_the_extra(fails, folders, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("longtail.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    message = fails(2, "serve", folders / "model-0", "--port", "0")
    assert (
        "longtail serve needs an optional package; install it with: pip install 'longtail[server]'"
        in message
    )


def test_a_model_of_ready_made_features(fails, tmp_path):
    import numpy as np
    from scipy import sparse

    from longtail.data.labels import Labels

    features = sparse.csr_array(np.eye(6, dtype=np.float32)[[0, 1, 2] * 8])
    labels = sparse.csr_array(np.eye(3, dtype=np.float32)[[0, 1, 2] * 8])
    documents = lt.Dataset(labels, Labels.of(["a", "b", "c"]), features=features)
    lt.Longtail("xr-linear").fit(documents).save(tmp_path / "model")
    assert "ready-made features, but a server receives texts" in fails(
        2, "serve", tmp_path / "model", "--port", "0"
    )
