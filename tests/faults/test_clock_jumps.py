"""A clock that jumps by days, to and fro: training, saving, predicting and serving do not look at
it.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from pathlib import Path

import pytest
from trainings import here, training

import longtail as lt
from folder_contents import contents

DAYS = 86_400
SOURCE = Path(lt.__file__).parent


@pytest.fixture
def jumping_clock(monkeypatch):
    """Let the time of day jump by up to 5,000 days at each look at it; what only ever rises stays
    as it is.
    """
    generator = random.Random(0)
    real = time.time()
    of_day = time.localtime

    def now() -> float:
        return real + generator.uniform(-5000, 5000) * DAYS

    monkeypatch.setattr(time, "time", now)
    monkeypatch.setattr(time, "time_ns", lambda: int(now() * 1e9))
    monkeypatch.setattr(
        time, "localtime", lambda seconds=None: of_day(now() if seconds is None else seconds)
    )


def test_a_model_is_the_same_whatever_the_clock_says(trained, tmp_path, request):
    member, expected = trained
    predicting = ["predict", str(tmp_path / "whole"), str(member.data / "train.jsonl"), "-o"]
    assert here([*predicting, str(tmp_path / "before.jsonl.gz")], tmp_path / "said").code == 0
    request.getfixturevalue("jumping_clock")
    member.whole(tmp_path / "other")
    assert contents(tmp_path / "other") == expected
    predicting[1] = str(tmp_path / "other")
    assert here([*predicting, str(tmp_path / "after.jsonl.gz")], tmp_path / "said").code == 0
    assert (tmp_path / "after.jsonl.gz").read_bytes() == (tmp_path / "before.jsonl.gz").read_bytes()


def test_stages_of_the_future_and_of_long_ago_are_gone_on_with(trained, tmp_path, monkeypatch):
    member, expected = trained
    model = tmp_path / "model"
    with monkeypatch.context() as patch:
        patch.setattr(
            "longtail.training_run.save_model",
            lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        assert here(member.arguments(model), tmp_path / "said").code == 130
    generator = random.Random(1)
    for path in model.with_name("model.stages").rglob("*"):
        when = time.time() + generator.choice([-9000, 9000]) * DAYS
        os.utime(path, (when, when))
    ended = here(member.arguments(model, "--resume"), tmp_path / "said")
    assert ended.code == 0
    assert "taken over from the interrupted run" in ended.said
    assert "made again" not in ended.said
    assert contents(model) == expected


def test_a_server_answers_whatever_the_clock_says(tmp_path, jumping_clock):
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("fastapi")
    from longtail.server.app import create_app
    from longtail.server.endpoints import Server
    from longtail.server.reloading import Reloader
    from longtail.server.service import load_service
    from longtail.server.settings import ServerSettings
    from longtail.server.telemetry import Telemetry

    training("xr-linear", tmp_path / "data").whole(tmp_path / "model")
    member = load_service(tmp_path / "model", "cpu", 1, None)
    server = Server(
        ServerSettings(tmp_path / "model"),
        Reloader(tmp_path / "model", member, lambda: member),
        Telemetry(()),
    )

    async def ask() -> list[int]:
        server.start()
        transport = httpx.ASGITransport(create_app(server), client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"documents": [{"text": "sound editor"}]}
            answers = [(await client.post("/v1/predict", json=body)).status_code for _ in range(10)]
        await asyncio.to_thread(server.stop)
        return answers

    assert asyncio.run(ask()) == [200] * 10


def test_nothing_but_what_loggers_are_told_looks_at_the_time_of_day():
    """Timeouts, rates and waits are by clocks that only rise; files say nothing of when they were
    written.
    """
    looks = re.compile(
        r"\btime\.(time|time_ns|localtime|gmtime|ctime|strftime)\(|\b(utc)?(now|today)\("
    )
    result = {path.name for path in SOURCE.rglob("*.py") if looks.search(path.read_text())}
    assert result <= {"run_loggers.py"}
