"""What is refused, how, and what every answer carries, whatever becomes of a request."""

from __future__ import annotations

import asyncio
import json

import pytest
from asking import GOOD, JSON, problem, refused, run

from longtail.server.settings import Limits


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


@pytest.mark.parametrize("value", [b"0", b"1000", b"1.5", b'"5"'])
def test_numbers_out_of_range(serving, value):
    """The field and its range are named, not the type by which it is read."""
    for field, most in (("k", 100), ("beam_size", 200), ("alternatives", 50)):
        path, start = (
            ("/v1/path", b'"text": "a"')
            if field == "alternatives"
            else ("/v1/predict", b'"documents": []')
        )
        detail = refused(
            serving, 422, b'{%b, "%b": %b}' % (start, field.encode(), value), path
        ).detail
        assert detail.startswith(f"{field}: expected a whole number from 1 to {most}")
    if value != b"0":
        detail = refused(serving, 422, b'{"documents": [], "threshold": %b}' % value).detail
        assert detail == "threshold: expected a number from 0 to 1"


def test_too_many_excluded_labels(serving):
    for exclude in (["wind"] * 1001, "wind", 5):
        body = json.dumps({"documents": [{"text": "a"}], "exclude": exclude}).encode()
        assert (
            refused(serving, 422, body).detail
            == "exclude: expected a list of at most 1000 ids of labels"
        )
    body = json.dumps({"documents": [{"text": "a"}], "exclude": ["wind"] * 1000}).encode()

    async def question(served):
        return await served.client.post("/v1/predict", content=body, headers=JSON)

    assert run(serving, question).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "field", "example"),
    [
        (
            "/v1/predict",
            b'{"text": "x"}',
            "unknown field `text`",
            '{"documents": [{"text": "..."}]}',
        ),
        ("/v1/predict", b"{}", "required field `documents`", '{"documents": [{"text": "..."}]}'),
        (
            "/v1/predict",
            b'{"documents": [{"texts": "x"}]}',
            "unknown field `texts`",
            '{"text": "..."}',
        ),
        ("/v1/predict", b'{"documents": [{}]}', "required field `text`", '{"text": "..."}'),
        (
            "/v1/explain",
            b'{"text": "x"}',
            "required field `label`",
            '{"text": "...", "label": "..."}',
        ),
        ("/v1/path", b'{"texts": "x"}', "unknown field `texts`", '{"text": "..."}'),
    ],
)
def test_wrong_fields_are_answered_with_the_right_ones(serving, path, body, field, example):
    detail = refused(serving, 422, body, path).detail
    assert field in detail
    assert f"; expected an object such as {example}; optional fields: " in detail
    if b"documents" not in body and path == "/v1/predict":
        assert detail.endswith("optional fields: k, threshold, exclude, beam_size")


def test_deep_json_that_is_read_to_its_end(serving):
    """A field of any type would be read however deep it is; there is none, so a deep one is a wrong
    one.
    """
    refused(serving, 422, b'{"text": "a", "label": ' + b'{"a":' * 100_000, "/v1/explain")


def test_messages_quote_no_text(serving):
    secret = "a secret that nobody may read"
    for body in (
        {"documents": [{"text": [secret]}]},
        {"documents": secret},
        {"documents": [], secret: 1, "k": secret},
    ):
        detail = refused(serving, 422, json.dumps(body).encode()).detail
        assert secret not in detail or "unknown field" in detail


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "json", "application/xml"]
)
def test_other_types(serving, content_type):
    refused(serving, 415, headers={"content-type": content_type})


@pytest.mark.parametrize(
    "content_type",
    [None, "application/json; charset=utf-8", "APPLICATION/JSON", "application/problem+json"],
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

        response = await served.client.post(
            "/v1/predict", content=body(), headers={**JSON, **headers}
        )
        assert problem(response, 413)
        assert response.headers["connection"] == "close"
        return read

    limits = Limits(body_bytes=1000)
    chunked = run(serving, lambda served: question(served, {}, 100), limits=limits)
    assert chunked <= 4
    assert (
        run(
            serving, lambda served: question(served, {"content-length": "5000"}, 100), limits=limits
        )
        == 0
    )


def test_too_many_documents_and_too_long_a_text(serving):
    limits = Limits(documents=2, text_characters=5)
    many = json.dumps({"documents": [{"text": "a"}] * 3}).encode()
    assert "3 documents" in refused(serving, 413, many, limits=limits).detail
    for path, body in (
        ("/v1/predict", {"documents": [{"text": "é" * 6}]}),
        ("/v1/explain", {"text": "é" * 6, "label": "wind"}),
        ("/v1/path", {"text": "é" * 6}),
    ):
        assert (
            "6 characters"
            in refused(serving, 413, json.dumps(body).encode(), path, limits=limits).detail
        )
    fits = json.dumps({"documents": [{"text": "é" * 5}] * 2}).encode()

    async def question(served):
        return await served.client.post("/v1/predict", content=fits, headers=JSON)

    assert run(serving, question, limits=limits).status_code == 200


def test_a_slow_body(serving):
    async def question(served):
        async def body():
            yield GOOD[:5]
            await (
                asyncio.Event().wait()
            )  # for ever: the answer must come without the end of the body

        response = await served.client.post("/v1/predict", content=body(), headers=JSON)
        assert response.headers["connection"] == "close"
        return response

    problem(run(serving, question, limits=Limits(body_seconds=0.1)), 408)


def test_unknown_places_and_methods(serving):
    refused(serving, 404, path="/v1/nothing")
    refused(serving, 404, b"", "/static/none.js", "GET")
    refused(serving, 404, b"", f"/static/{'a' * 5000}.js", "GET")
    refused(serving, 404, b"", "/static/..%2Fapp.py", "GET")
    refused(serving, 404, b"", "/static/%2e%2e/app.py", "GET")
    refused(serving, 405, b"", "/v1/predict", "GET")
    refused(serving, 405, b"", "/v1/model", "DELETE")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "limit=-1", "limit=1.5", "limit=", "limit=²"]
)
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
        given = [
            await served.client.get("/health/live", headers={"x-request-id": own.encode()})
            for own in ids
        ]
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
        assert response.headers["content-security-policy"].startswith(
            "default-src 'self'; frame-ancestors 'none'"
        )
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

        for wrong in (
            None,
            "",
            "Bearer",
            "Bearer secre",
            "Bearer secrett",
            "Basic secret",
            "secret",
            "Bearer é",
        ):
            assert await status("/v1/model", wrong) == 401
            assert await status("/metrics", wrong) == 401
            assert await status("/v1/nothing", wrong) == 401
        assert (
            await status("/v1/model", "Bearer secret")
            == await status("/v1/model", "bearer  secret")
            == 200
        )
        assert await status("/metrics", "Bearer secret") == 200
        assert [
            await status(path)
            for path in ("/health/live", "/health/ready", "/docs", "/openapi.json")
        ] == [200] * 4
        response = await served.predict("wind")
        return problem(response, 401)

    run(serving, question, token="secret")


def test_not_ready_before_the_end(serving):
    async def question(served):
        served.server.is_ready = False
        live = await served.client.get("/health/live")
        return live, await served.client.get("/health/ready"), await served.predict("wind")

    live, ready, predicted = run(serving, question)
    assert (live.status_code, predicted.status_code) == (200, 200)
    assert problem(ready, 503).title == "Not ready"
    assert "retry-after" in ready.headers
