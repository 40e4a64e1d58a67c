"""Requests that a page of another site may have sent through the browser of somebody on this
machine.
"""

from __future__ import annotations

import pytest
from asking import problem, run

TOKEN = {"authorization": "Bearer secret"}


def status(serving, method="GET", path="/v1/label?id=wind", headers=(), **settings):
    async def question(served):
        return await served.client.request(method, path, headers=dict(headers))

    response = run(serving, question, **settings)
    if response.status_code >= 400:
        problem(response, response.status_code)
    return response.status_code


class TestHost:
    @pytest.mark.parametrize(
        "host",
        [
            "localhost",
            "LOCALHOST:8000",
            "localhost.",
            "127.0.0.1:80",
            "127.8.9.1",
            "[::1]",
            "[::1]:8000",
        ],
    )
    def test_names_of_this_machine(self, serving, host):
        assert status(serving, headers={"host": host}) == 200

    @pytest.mark.parametrize(
        "host",
        [
            "attacker.example",
            "attacker.example:8000",
            "127.0.0.1.attacker.example",
            "127.attacker.example",
            "localhost.attacker.example",
            "192.168.0.7",
            "[::2]",
            "2130706433",
            "0.0.0.0",
            "",
            "localhost@attacker.example",
        ],
    )
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/"),
            ("GET", "/v1/label?id=wind"),
            ("POST", "/v1/predict"),
            ("POST", "/v1/reload"),
        ],
    )
    def test_other_names(self, serving, host, method, path):
        """What a page reads whose name was made to lead here (DNS rebinding)."""
        assert status(serving, method, path, {"host": host}) == 421

    def test_every_host_header_counts(self, serving):
        async def question(served):
            headers = [("host", "localhost"), ("host", "attacker.example")]
            return await served.client.get("/v1/model", headers=headers)

        detail = problem(run(serving, question), 421).detail
        assert "'attacker.example'" in detail
        assert "--allowed-host" in detail

    def test_names_that_are_allowed(self, serving):
        allowed = {"allowed_hosts": ("labels.example", "Other.Example")}
        for host in ("labels.example", "LABELS.example:443", "other.example", "localhost"):
            assert status(serving, headers={"host": host}, **allowed) == 200
            assert (
                status(serving, headers={"host": host, **TOKEN}, token="secret", **allowed) == 200
            )
        assert status(serving, headers={"host": "attacker.example"}, **allowed) == 421
        assert (
            status(
                serving, headers={"host": "attacker.example", **TOKEN}, token="secret", **allowed
            )
            == 421
        )

    def test_with_a_token_or_beyond_this_machine(self, serving):
        """No page knows the token, and the names of a whole network are not known here."""
        host = {"host": "labels.example"}
        assert status(serving, headers={**host, **TOKEN}, token="secret") == 200
        assert status(serving, headers=host, token="secret") == 401
        assert status(serving, headers=host, **{"host": "0.0.0.0"}) == 200


class TestSite:
    @pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
    def test_what_pages_of_other_sites_send(self, serving, site):
        headers = {"sec-fetch-site": site, **TOKEN}
        for path in ("/v1/reload", "/v1/predict"):
            assert status(serving, "POST", path, headers) == 403
            assert status(serving, "POST", path, headers, token="secret") == 403
        assert status(serving, headers=headers) == 200  # a link to it

    @pytest.mark.parametrize("site", ["same-origin", "none"])
    def test_what_its_page_or_its_user_sends(self, serving, site):
        assert status(serving, "POST", "/v1/reload", {"sec-fetch-site": site}) == 200

    @pytest.mark.parametrize("header", ["x-real-ip", "via"])
    def test_a_proxy_that_names_itself_otherwise(self, serving, header):
        assert status(serving, "POST", "/v1/reload", {header: "192.0.2.1"}) == 403
