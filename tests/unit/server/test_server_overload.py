"""A server that is asked for more than it can do, and what it logs of requests and failures."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from dataclasses import replace

from asking import JSON, problem, refused, run

from longtail.server.front import NOBODY
from longtail.server.settings import Limits


class TestOverload:
    def held(self, service, seconds):
        """Return the service with a model that takes its time, a third of it a document as far as is known first."""
        slow = replace(service)
        quick = slow.predict

        def predict(key, asked):
            time.sleep(seconds)
            return quick(key, asked)

        slow.__dict__["predict"] = predict
        return slow

    def test_sheds_and_recovers(self, serving, service):
        async def question(served):
            responses = await asyncio.gather(*(served.predict("wind", k=51 + n) for n in range(30)))
            statuses = [response.status_code for response in responses]
            shed = [response for response in responses if response.status_code == 503]
            assert statuses[0] == 200
            assert set(statuses) == {200, 503}
            for response in shed:
                assert problem(response, 503).title == "Overloaded"
                assert response.headers["retry-after"] == "1"
            assert (await served.predict("wind")).status_code == 200
            metrics = (await served.client.get("/metrics")).text
            assert f'longtail_requests_total{{path="/v1/predict",status="503"}} {len(shed)}.0' in metrics

        run(serving, question, own=self.held(service, 0.03), limits=Limits(queue_seconds=0.05))

    def test_a_shed_request_is_not_read(self, serving, service):
        gate, held = threading.Event(), replace(service)

        async def question(served):
            held.__dict__["predict"] = lambda key, asked: gate.wait(10) and service.predict(key, asked)
            waiting = [asyncio.create_task(served.predict("wind", k=51 + n)) for n in range(2)]
            while not served.server.batcher.is_full:
                await asyncio.sleep(0.001)

            async def body():
                raise AssertionError("read")
                yield b""

            response = await served.client.post("/v1/predict", content=body(), headers=JSON)
            problem(response, 503)
            assert "longtail_shed_total 1.0" in (await served.client.get("/metrics")).text
            head, _, body = served.app.shed_early([(b"x-request-id", b"mine")]).partition(b"\r\n\r\n")
            lines = head.decode().splitlines()
            assert lines[0] == "HTTP/1.1 503 Service Unavailable"
            early = dict(line.split(": ", 1) for line in lines[1:])
            assert {**response.headers, "x-request-id": "mine", "content-length": str(len(body))} == early
            assert {**response.json(), "request_id": "mine"} == json.loads(body)
            gate.set()
            assert {response.status_code for response in await asyncio.gather(*waiting)} == {200}

            assert served.app.shed_early([]) is None

        run(serving, question, own=held, limits=Limits(queue_seconds=0.05))

    def test_too_late(self, serving, service):
        async def question(served):
            return await served.predict("wind")

        slow = self.held(service, 0.15)
        problem(run(serving, question, own=slow, limits=Limits(request_seconds=0.05)), 503)

    def test_a_client_that_left_is_not_computed(self, serving, service):
        slow = self.held(service, 0.1)
        asked = []
        held = slow.predict

        def noting(key, items):
            asked.extend(item.text for item in items)
            return held(key, items)

        slow.__dict__["predict"] = noting

        async def leaving(app):
            """Send a request whole, then be gone."""
            sent, body = [], json.dumps({"documents": [{"text": "from one who left"}], "k": 60}).encode()
            messages = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

            async def receive():
                return messages.pop(0)

            async def send(message):
                sent.append(message)

            scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
            await app(scope, receive, send)
            return sent[0]["status"]

        async def question(served):
            first = asyncio.create_task(served.predict("wind"))
            while "wind" not in asked:
                await asyncio.sleep(0.001)
            assert await leaving(served.app) == NOBODY
            await first
            assert (await served.predict("storm")).status_code == 200

        run(serving, question, own=slow, limits=Limits(queue_seconds=10))
        assert "from one who left" not in asked

    def test_lanes_for_the_rest_are_few(self, serving, service):
        def wait(*arguments):
            time.sleep(0.1)
            raise AssertionError("too late to matter")

        slow = replace(service)
        slow.__dict__["explain"] = wait

        async def question(served):
            ask = {"text": "a", "label": "wind"}
            asked = [asyncio.create_task(served.client.post("/v1/explain", json=ask)) for _ in range(20)]
            return await asyncio.gather(*asked)

        statuses = [response.status_code for response in run(serving, question, own=slow)]
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
            response = run(serving, question, own=broken, access_log=True)
        found = problem(response, 500)
        lines = [record.getMessage() for record in caplog.records if record.name.startswith(("longtail", "uvicorn"))]
        assert not any("secret" in line for line in lines)
        assert any(line.startswith("GET /v1/labels 200 ") and line.endswith(" ms mine") for line in lines)
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
            refused(serving, 500, b"", "/v1/label?id=wind", "GET", own=broken)
        assert "ZeroDivisionError in /v1/label" in caplog.text
