"""What is refused, how, and what every answer carries, whatever becomes of a request."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
import time
from dataclasses import replace

import msgspec
import pytest

from longtail.errors import ModelFolderError
from longtail.server.front import NOBODY
from longtail.server.problem_details import ProblemDetails
from longtail.server.service import load_service
from longtail.server.settings import Limits

JSON = {"content-type": "application/json"}
GOOD = json.dumps({"documents": [{"text": "wind"}]}).encode()


def run(serving, question, **settings):
    async def main():
        async with serving(**settings) as served:
            return await question(served)

    return asyncio.run(main())


def problem(response, status) -> ProblemDetails:
    """Return the problem that a response is, which says the same in its body and its headers."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    found = msgspec.json.decode(response.content, type=ProblemDetails)
    assert (found.type, found.status) == ("about:blank", status)
    assert found.instance == response.request.url.path
    assert found.request_id == response.headers["x-request-id"]
    assert found.title
    assert found.detail
    return found


def refused(serving, status, body=GOOD, path="/v1/predict", method="POST", headers=JSON, **settings):
    async def question(served):
        return await served.client.request(method, path, content=body, headers=headers)

    return problem(run(serving, question, **settings), status)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"not json", 400),
        (GOOD + b" x", 400),
        (b"\xef\xbb\xbf" + GOOD, 400),
        (b'{"documents": [{"text": "\xff"}]}', 400),
        (b'{"documents": [{"text": "\xed\xa0\x80"}]}', 400),
        (b'{"documents": [{"text": "\\ud800"}]}', 400),
        (b'{"documents": ' + b"[" * 200_000, 422),
        (b'{"documents": [{"text": "a", "id": ' + b"[" * 200_000 + b"]" * 200_000 + b"}]}", 422),
        (b"[" * 500_000, 422),
        (b"null", 422),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"documents": {}}', 422),
        (b'{"documents": [{"text": 1}]}', 422),
        (b'{"documents": [{}]}', 422),
        (b'{"documents": [{"text": "a", "id": 1}]}', 422),
        (b'{"documents": [], "k": 0}', 422),
        (b'{"documents": [], "k": 101}', 422),
        (b'{"documents": [], "k": 1.5}', 422),
        (b'{"documents": [], "k": "5"}', 422),
        (b'{"documents": [], "k": true}', 422),
        (b'{"documents": [], "k": 1e999}', 422),
        (b'{"documents": [], "threshold": -0.1}', 422),
        (b'{"documents": [], "threshold": 1.1}', 422),
        (b'{"documents": [], "threshold": NaN}', 400),
        (b'{"documents": [], "exclude": "a"}', 422),
        (b'{"documents": [], "beam_size": 0}', 422),
        (b'{"documents": [], "beam_size": 201}', 422),
        (b'{"documents": [], "more": 1}', 422),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_bodies(serving, body, status):
    refused(serving, status, body)


def test_deep_json_that_is_read_to_its_end(serving):
    """A field of any type would be read however deep it is; there is none, so a deep one is a wrong one."""
    begin = time.monotonic()
    refused(serving, 422, b'{"text": "a", "label": ' + b'{"a":' * 100_000, "/v1/explain")
    assert time.monotonic() - begin < 5


def test_messages_quote_no_text(serving):
    secret = "a secret that nobody may read"
    for body in ({"documents": [{"text": [secret]}]}, {"documents": secret}, {"documents": [], secret: 1, "k": secret}):
        detail = refused(serving, 422, json.dumps(body).encode()).detail
        assert secret not in detail or "unknown field" in detail


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "json", "application/xml"])
def test_other_types(serving, content_type):
    refused(serving, 415, headers={"content-type": content_type})


@pytest.mark.parametrize(
    "content_type", [None, "application/json; charset=utf-8", "APPLICATION/JSON", "application/problem+json"]
)
def test_types_of_json(serving, content_type):
    async def question(served):
        headers = {} if content_type is None else {"content-type": content_type}
        return await served.client.post("/v1/predict", content=GOOD, headers=headers)

    assert run(serving, question).status_code == 200


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/explain", "/v1/path"])
def test_a_large_body(serving, path):
    limits = Limits(body_bytes=1000)
    found = refused(serving, 413, b" " * 1001, path, limits=limits)
    assert "1000 bytes" in found.detail


def test_a_large_body_is_not_read(serving):
    """What says that it is too large, or turns out to be, ends the request before its end."""

    async def question(served, headers, pieces):
        read = 0

        async def body():
            nonlocal read
            for _ in range(pieces):
                read += 1
                yield b" " * 500

        response = await served.client.post("/v1/predict", content=body(), headers={**JSON, **headers})
        assert problem(response, 413)
        assert response.headers["connection"] == "close"
        return read

    limits = Limits(body_bytes=1000)
    chunked = run(serving, lambda served: question(served, {}, 100), limits=limits)
    assert chunked <= 4
    assert run(serving, lambda served: question(served, {"content-length": "5000"}, 100), limits=limits) == 0


def test_too_many_documents_and_too_long_a_text(serving):
    limits = Limits(documents=2, text_characters=5)
    many = json.dumps({"documents": [{"text": "a"}] * 3}).encode()
    assert "3 documents" in refused(serving, 413, many, limits=limits).detail
    for path, body in (
        ("/v1/predict", {"documents": [{"text": "é" * 6}]}),
        ("/v1/explain", {"text": "é" * 6, "label": "wind"}),
        ("/v1/path", {"text": "é" * 6}),
    ):
        assert "6 characters" in refused(serving, 413, json.dumps(body).encode(), path, limits=limits).detail
    fits = json.dumps({"documents": [{"text": "é" * 5}] * 2}).encode()

    async def question(served):
        return await served.client.post("/v1/predict", content=fits, headers=JSON)

    assert run(serving, question, limits=limits).status_code == 200


def test_a_slow_body(serving):
    async def question(served):
        async def body():
            yield GOOD[:5]
            await asyncio.sleep(5)
            yield GOOD[5:]

        begin = time.monotonic()
        response = await served.client.post("/v1/predict", content=body(), headers=JSON)
        assert time.monotonic() - begin < 4
        assert response.headers["connection"] == "close"
        return response

    problem(run(serving, question, limits=Limits(body_seconds=0.1)), 408)


def test_unknown_places_and_methods(serving):
    refused(serving, 404, path="/v1/nothing")
    refused(serving, 404, b"", "/static/none.js", "GET")
    refused(serving, 404, b"", "/static/..%2Fapp.py", "GET")
    refused(serving, 404, b"", "/static/%2e%2e/app.py", "GET")
    refused(serving, 405, b"", "/v1/predict", "GET")
    refused(serving, 405, b"", "/v1/model", "DELETE")


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "limit=-1", "limit=1.5", "limit=", "limit=²"])
def test_wrong_limits_of_a_search(serving, query):
    refused(serving, 422, b"", f"/v1/labels?{query}", "GET")


def test_wrong_queries(serving):
    refused(serving, 422, b"", f"/v1/labels?query={'a' * 201}", "GET")
    refused(serving, 422, b"", "/v1/label", "GET")
    refused(serving, 404, b"", "/v1/label?id=", "GET")


def test_unknown_labels_are_answered_with_the_nearest(serving):
    def detail(label):
        return refused(serving, 404, b"", f"/v1/label?id={label}", "GET").detail

    assert "did you mean 'wind'?" in detail("wint")
    assert "did you mean 'Solar power'?" in detail("solar+powr")
    assert "did you mean" not in detail("qqqqqq")
    assert "2 labels have the name 'Twice'" in detail("Twice")
    assert len(detail("x" * 5000)) < 400
    body = json.dumps({"text": "a", "label": "chese"}).encode()
    for path in ("/v1/explain", "/v1/path"):
        assert "did you mean 'cheese'?" in refused(serving, 404, body, path).detail


def test_request_ids(serving):
    async def question(served):
        ids = ["abc-123_X.y", "x" * 64, "x" * 65, "a b", "é", "", "a;b"]
        given = [await served.client.get("/health/live", headers={"x-request-id": own.encode()}) for own in ids]
        return [response.headers["x-request-id"] for response in given]

    kept = run(serving, question)
    assert kept[:2] == ["abc-123_X.y", "x" * 64]
    assert len(set(kept)) == len(kept)
    assert all(len(own) < 30 for own in kept[2:])


def test_every_answer_carries_the_headers_of_safety(serving):
    async def question(served):
        return [
            await served.client.get("/docs"),
            await served.predict("wind"),
            await served.client.get("/nothing"),
            await served.client.post("/v1/predict", content=b"{"),
        ]

    for response in run(serving, question):
        assert response.headers["content-security-policy"].startswith("default-src 'self'; frame-ancestors 'none'")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"


def test_a_token(serving):
    async def question(served):
        async def status(path, authorization=None):
            headers = {} if authorization is None else {"authorization": authorization.encode()}
            response = await served.client.get(path, headers=headers)
            if response.status_code == 401:
                problem(response, 401)
                assert response.headers["www-authenticate"] == "Bearer"
            return response.status_code

        for wrong in (None, "", "Bearer", "Bearer secre", "Bearer secrett", "Basic secret", "secret", "Bearer é"):
            assert await status("/v1/model", wrong) == 401
            assert await status("/metrics", wrong) == 401
            assert await status("/v1/nothing", wrong) == 401
        assert await status("/v1/model", "Bearer secret") == await status("/v1/model", "bearer  secret") == 200
        assert await status("/metrics", "Bearer secret") == 200
        assert [await status(path) for path in ("/health/live", "/health/ready", "/docs", "/openapi.json")] == [200] * 4
        response = await served.predict("wind")
        return problem(response, 401)

    run(serving, question, token="secret")


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


class TestReload:
    def test_takes_the_place_of_the_old(self, serving, service, model_folder):
        other = load_service(model_folder, "cpu", 1, 1)
        new = replace(other, name=replace_version(other.name, "new"))
        old = replace(service, name=replace_version(service.name, "old"))

        async def question(served):
            before = await served.predict("wind")
            response = await served.client.post("/v1/reload")
            after = await served.predict("wind")
            metrics = (await served.client.get("/metrics")).text
            assert 'version="old"} 0.0' in metrics
            assert 'version="new"} 1.0' in metrics
            return before.json()["model"]["version"], response.json(), after.json()["model"]["version"]

        assert run(serving, question, own=old, load=lambda: new) == ("old", {"version": "new"}, "new")

    def test_what_is_the_same_is_not_loaded_again(self, serving, service):
        def never():
            raise AssertionError("loaded")

        async def question(served):
            return (await served.client.post("/v1/reload")).json()

        assert run(serving, question, load=never) == {"version": service.name.version}

    def test_a_bad_folder_leaves_the_old(self, serving, service, caplog):
        old = replace(service, name=replace_version(service.name, "old"))

        def bad():
            raise ModelFolderError("ranker.safetensors: is damaged")

        async def question(served):
            response = await served.client.post("/v1/reload")
            after = await served.predict("wind")
            return response, after.json()["model"]["version"]

        response, version = run(serving, question, own=old, load=bad)
        assert "is damaged" in problem(response, 409).detail
        assert version == "old"
        assert "not reloaded, version old goes on" in caplog.text

    def test_want_of_memory_ends_a_reload_and_not_the_watch(self, serving, service, caplog):
        def bad():
            raise MemoryError

        async def question(served):
            await served.server.reloader.reload_quietly()

        run(serving, question, own=replace(service, name=replace_version(service.name, "old")), load=bad)
        assert "not reloaded, version old goes on: MemoryError" in caplog.text

    @pytest.mark.parametrize("header", ["origin", "x-forwarded-for", "forwarded"])
    def test_not_through_others_without_a_token(self, serving, header):
        async def question(served):
            return await served.client.post("/v1/reload", headers={header: "http://elsewhere"})

        problem(run(serving, question), 403)
        response = run(serving, lambda served: served.client.post("/v1/reload", headers=bearer(header)), token="secret")
        assert response.status_code == 200

    def test_not_from_elsewhere_without_a_token(self, serving):
        refused(serving, 403, b"", "/v1/reload", host="0.0.0.0")

    def test_watching(self, serving, service, model_folder, tmp_path):
        folder = tmp_path / "model"
        shutil.copytree(model_folder, folder)
        old = replace(service, name=replace_version(service.name, "old"))

        async def question(served):
            watching = asyncio.create_task(served.server.reloader.watch(0.01))
            await asyncio.sleep(0.05)
            assert served.server.reloader.current is old
            copy = folder / "copy"
            shutil.copy(folder / "manifest.json", copy)
            copy.rename(folder / "manifest.json")
            while served.server.reloader.current is old:
                await asyncio.sleep(0.01)
            watching.cancel()

        run(serving, question, own=old, model=folder, load=lambda: service)


def replace_version(name, version):
    return msgspec.structs.replace(name, version=version)


def bearer(header):
    return {header: "http://elsewhere", "authorization": "Bearer secret"}


def test_not_ready_before_the_end(serving):
    async def question(served):
        served.server.is_ready = False
        live = await served.client.get("/health/live")
        return live, await served.client.get("/health/ready"), await served.predict("wind")

    live, ready, predicted = run(serving, question)
    assert (live.status_code, predicted.status_code) == (200, 200)
    assert problem(ready, 503).title == "Not ready"
    assert "retry-after" in ready.headers
