"""A real server with a small model, half of whose labels are hostile, and a real browser that looks
at its page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from served_model import documents, labels

MISSING = "the page is tested by `make browser-test`, which installs what is needed"


def _write(path, rows):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """Where `longtail serve` answers."""
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"no {package}: {MISSING}")
    folder = tmp_path_factory.mktemp("served")
    data = str(folder / "train.jsonl")
    names = str(folder / "labels.jsonl")
    model = str(folder / "tiny")
    _write(data, documents())
    _write(names, labels())
    longtail = [sys.executable, "-m", "longtail"]
    train = [*longtail, "train", data, "--labels", names, "--valid", data, "-o", model]
    train += ["--set", "tree.branching=8", "--set", "tree.leaf_size=8"]
    subprocess.run(train, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [*longtail, "serve", model, "--port", str(port), "--documents", data]
    environment = {key: value for key, value in os.environ.items() if key != "LONGTAIL_TOKEN"}
    log = (folder / "log").open("wb")
    server = subprocess.Popen(serve, env=environment, stdout=log, stderr=log)
    try:
        _wait(server, f"http://127.0.0.1:{port}", folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def _wait(server, address, log):
    for _ in range(600):
        assert server.poll() is None, log.read_text("utf-8")
        try:
            with urllib.request.urlopen(f"{address}/health/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"not ready: {log.read_text('utf-8')}")


@pytest.fixture(scope="module")
def chromium():
    """The browser; closed with the module, as the event loop under it is in the way of other tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason=f"no playwright: {MISSING}")
    result = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if result is None:
        pytest.skip(f"no Chromium: {MISSING}")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=result, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Seen:
    """What went on in the browser behind the page."""

    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    refusals: set[int] = field(default_factory=set)  # statuses that a test brings about itself

    def watch(self, page):
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", self._on_dialog)

    def _on_console(self, message):
        wanted = any(f"status of {status}" in message.text for status in self.refusals)
        if message.type in ("error", "warning") and not wanted:
            self.errors.append(message.text)

    def _on_dialog(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def foreign(self, address):
        """Return requests for anything but what the page itself asks this server for."""
        member = re.compile(re.escape(address) + r"/(#.*|v1/.*|static/[a-z]+\.(js|css|svg))?")
        return [url for url in self.requests if not member.fullmatch(url)]


@pytest.fixture
def open_page(chromium, address):
    """Opens the page, in a window made as told; at the end nothing may have run, failed or gone
    elsewhere.
    """
    contexts = []
    watched = []

    def opened(at="/", before=lambda page: None, until="#about:not(:empty)", **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.seen = Seen()
        page.seen.watch(page)
        contexts.append(context)
        watched.append(page)
        before(page)
        page.goto(address + at)
        page.wait_for_selector(until)
        return page

    yield opened
    for page in watched:
        result = page.evaluate("window.__xss ?? null")
        assert (result, page.seen.dialogs, page.seen.errors, page.seen.foreign(address)) == (
            None,
            [],
            [],
            [],
        )
    for context in contexts:
        context.close()
