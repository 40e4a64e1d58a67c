"""A server that is asked for more than it can do, and what it logs of requests and failures."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from dataclasses import replace

import pytest
from asking import JSON, problem, refused, run

from longtail.server.front import NOBODY
from longtail.server.settings import Limits

_HANG = 200  # seconds, after which something has gone wrong
SOON_FULL = Limits(queue_seconds=0.05, request_seconds=_HANG)


async def until(condition):
    """Come back when the condition is true."""
    while not condition():
        await asyncio.sleep(0.001)


class TestOverload:
    @pytest.fixture
    def gate(self):
        """Return what holds the model; it is open after the test."""
        gate = threading.Event()
        yield gate
        gate.set()

    @pytest.fixture
    def held(self, service, gate):
        """Return the service with a model that waits for the gate, and in ``begun`` the texts that
        it was given.
        """
        held = replace(service)
        begun = []

        def predict(key, asked):
            begun.extend(item.text for item in asked)
            assert gate.wait(_HANG)
            return service.predict(key, asked)

        held.__dict__["predict"] = predict
        held.__dict__["_document_seconds"] = 0.001  # rather than what it would wait for the gate
        return held, begun

    async def full(self, served, begun):
        """Ask until the queue is full: one document is with the model, another waits; return the
        two requests.
        """
        waiting = [asyncio.create_task(served.predict("wind", k=51))]
        await until(lambda: begun)
        waiting.append(asyncio.create_task(served.predict("wind", k=52)))
        await until(lambda: served.server.batcher.documents == 1)
        await until(lambda: served.server.batcher.is_full)
        return waiting

    def test_sheds_and_recovers(self, serving, held, gate):
        held, begun = held

        async def question(served):
            waiting = await self.full(served, begun)
            for response in await asyncio.gather(
                *(served.predict("wind", k=60 + n) for n in range(20))
            ):
                assert problem(response, 503).title == "Overloaded"
                assert response.headers["retry-after"] == "1"
            gate.set()
            assert [response.status_code for response in await asyncio.gather(*waiting)] == [
                200,
                200,
            ]
            assert (await served.predict("wind")).status_code == 200
            metrics = (await served.client.get("/metrics")).text
            assert 'longtail_requests_total{path="/v1/predict",status="503"} 20.0' in metrics

        run(serving, question, current=held, limits=SOON_FULL)

    def test_a_shed_request_is_not_read(self, serving, held, gate):
        held, begun = held

        async def question(served):
            waiting = await self.full(served, begun)

            async def body():
                raise AssertionError("read")
                yield b""

            response = await served.client.post("/v1/predict", content=body(), headers=JSON)
            problem(response, 503)
            assert "longtail_shed_total 1.0" in (await served.client.get("/metrics")).text
            head, _, body = served.app.shed_early([(b"x-request-id", b"mine")]).partition(
                b"\r\n\r\n"
            )
            lines = head.decode().splitlines()
            assert lines[0] == "HTTP/1.1 503 Service Unavailable"
            early = dict(line.split(": ", 1) for line in lines[1:])
            assert {
                **response.headers,
                "x-request-id": "mine",
                "content-length": str(len(body)),
            } == early
            assert {**response.json(), "request_id": "mine"} == json.loads(body)
            gate.set()
            assert {response.status_code for response in await asyncio.gather(*waiting)} == {200}

            assert served.app.shed_early([]) is None

        run(serving, question, current=held, limits=SOON_FULL)

    def test_too_late(self, serving, held, gate):
        async def question(served):
            response = await served.predict("wind")
            gate.set()
            return response

        problem(run(serving, question, current=held[0], limits=Limits(request_seconds=0.05)), 503)

    def test_a_client_that_left_is_not_computed(self, serving, held, gate):
        held, begun = held
        held.__dict__["_document_seconds"] = (
            1000.0  # so long a wait that the server looks who is still there
        )

        async def leaving(app):
            """Send a request whole, then be gone."""
            sent = []
            body = json.dumps({"documents": [{"text": "from one who left"}], "k": 60}).encode()
            messages = [
                {"type": "http.request", "body": body, "more_body": False},
                {"type": "http.disconnect"},
            ]

            async def receive():
                return messages.pop(0)

            async def send(message):
                sent.append(message)

            scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
            await app(scope, receive, send)
            return sent[0]["status"]

        async def question(served):
            first = asyncio.create_task(served.predict("wind"))
            await until(lambda: "wind" in begun)
            assert await leaving(served.app) == NOBODY
            await until(lambda: served.server.batcher.documents == 0)
            gate.set()
            await first
            assert (await served.predict("storm")).status_code == 200

        run(serving, question, current=held)
        assert begun == ["wind", "storm"]

    def test_lanes_for_the_rest_are_few(self, serving, service, gate):
        def wait(*arguments):
            assert gate.wait(_HANG)
            raise AssertionError("too late to matter")

        slow = replace(service)
        slow.__dict__["explain"] = wait

        async def question(served):
            ask = {"text": "a", "label": "wind"}
            asked = [
                asyncio.create_task(served.client.post("/v1/explain", json=ask)) for _ in range(20)
            ]
            await until(lambda: sum(task.done() for task in asked) == 4)
            gate.set()
            return await asyncio.gather(*asked)

        statuses = [response.status_code for response in run(serving, question, current=slow)]
        assert statuses.count(503) == 4
        assert statuses.count(500) == 16


class TestLogs:
    def test_nothing_of_a_text_is_logged(self, serving, service, caplog):
        def fail(key, asked):
            raise ValueError(asked[0].text)

        broken = replace(service)

        async def question(served):
            broken.__dict__["predict"] = fail
            await served.client.get("/v1/labels?query=secret", headers={"x-request-id": "mine"})
            return await served.predict("secret words")

        with caplog.at_level(logging.DEBUG):
            response = run(serving, question, current=broken, access_log=True)
        found = problem(response, 500)
        lines = [
            record.getMessage()
            for record in caplog.records
            if record.name.startswith(("longtail", "uvicorn"))
        ]
        assert not any("secret" in line for line in lines)
        assert any(
            line.startswith("GET /v1/labels 200 ") and line.endswith(" ms mine") for line in lines
        )
        assert any(line.startswith("POST /v1/predict 500 ") for line in lines)
        assert any("ValueError" in line and found.request_id in line for line in lines)

    def test_no_line_a_request_unless_asked(self, serving, caplog):
        with caplog.at_level(logging.DEBUG, "longtail"):
            run(serving, lambda served: served.predict("wind"))
        assert [record for record in caplog.records if record.name == "longtail"] == []

    def test_a_failure_elsewhere(self, serving, service, caplog):
        broken = replace(service)
        broken.__dict__["label"] = lambda label: 1 / 0
        with caplog.at_level(logging.ERROR, "longtail"):
            refused(serving, 500, b"", "/v1/label?id=wind", "GET", current=broken)
        assert "ZeroDivisionError in /v1/label" in caplog.text
