"""How tests ask a server, and what they look at in each refusal."""

from __future__ import annotations

import asyncio
import json

import msgspec

from longtail.server.problem_details import ProblemDetails

__all__ = ["GOOD", "JSON", "problem", "refused", "run"]

JSON = {"content-type": "application/json"}
GOOD = json.dumps({"documents": [{"text": "wind"}]}).encode()


def run(serving, question, *arguments, **settings):
    """Serve, ask, and return the answer."""

    async def main():
        async with serving(*arguments, **settings) as served:
            return await question(served)

    return asyncio.run(main())


def problem(response, status) -> ProblemDetails:
    """Return the problem that a response is, which says the same in its body and its headers."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    found = msgspec.json.decode(response.content, type=ProblemDetails)
    assert (found.type, found.status) == ("about:blank", status)
    assert found.instance == response.request.url.path[:200]
    assert found.request_id == response.headers["x-request-id"]
    assert found.title
    assert found.detail
    return found


def refused(
    serving, status, body=GOOD, path="/v1/predict", method="POST", headers=JSON, **settings
):
    """Ask, and return the problem of this status that is answered."""

    async def question(served):
        return await served.client.request(method, path, content=body, headers=headers)

    return problem(run(serving, question, **settings), status)
