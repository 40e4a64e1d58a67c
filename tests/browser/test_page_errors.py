"""What the page says when the server is busy, gone or refuses; and that the code it offers works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest
from page_steps import JSON, WIND, expect, names, tag

pytestmark = pytest.mark.browser


def test_a_busy_server_is_asked_again(open_page):
    page = open_page()
    answers = []
    page.seen.refusals.add(503)

    def busy_once(route):
        answers.append(route)
        if len(answers) > 1:
            return route.continue_()
        return route.fulfill(
            status=503, headers={"Retry-After": "0.4"}, body="{}", content_type=JSON
        )

    page.route("**/v1/predict", busy_once)
    page.fill("#text", WIND)
    expect(page.locator("#status")).to_contain_text("trying again in 1 s")
    page.wait_for_selector("#suggestions li")
    assert len(answers) == 2
    assert page.locator(".problem").count() == 0


def test_errors_are_sentences_with_the_request_id(open_page):
    page = open_page()
    page.seen.refusals.add(413)
    page.fill("#text", "wind " * 25_000)
    page.wait_for_selector("#problem .problem")
    output = page.locator("#problem").inner_text()
    assert "found a text of 125000 characters; expected at most 100000." in output
    assert re.search(r"Request [\w.-]{6,}", output)
    assert names(page) == []
    tag(page, WIND, "Wind power")
    assert page.locator(".problem").count() == 0


def test_a_server_that_is_gone_is_a_sentence(open_page):
    page = open_page()
    page.route("**/v1/predict", lambda route: route.abort())
    page.fill("#text", WIND)
    page.wait_for_selector("#problem .problem")
    assert (
        page.locator("#problem p").inner_text()
        == "The server does not answer. Is it still running?"
    )
    page.unroute("**/v1/predict")
    page.click("#problem button")
    page.wait_for_selector("#suggestions li")
    page.seen.errors = [error for error in page.seen.errors if "net::ERR_FAILED" not in error]


def test_the_token_is_asked_for_once(open_page):
    def guard(route):
        if route.request.headers.get("authorization") == "Bearer right":
            return route.continue_()
        problem = json.dumps(
            {"title": "Unauthorised", "detail": "expected a token", "request_id": "r1"}
        )
        return route.fulfill(status=401, body=problem, content_type="application/problem+json")

    def before(page):
        page.seen.refusals.add(401)
        page.route("**/v1/**", guard)

    page = open_page(before=before, until="#token[open]")
    for token in ("wrong", "right"):
        page.wait_for_selector("#token[open]")
        page.fill("#token-value", token)
        page.keyboard.press("Enter")
        expect(page.locator("#token-value")).to_have_value("")
    expect(page).to_have_title("tiny – Longtail")
    tag(page, WIND, "Wind power")
    assert page.locator("#token").is_hidden()
    assert "$LONGTAIL_TOKEN" in page.locator("#code-text").text_content()
    assert "right" not in page.locator("#code-text").text_content()
    page.reload()
    expect(page).to_have_title("tiny – Longtail")
    assert page.locator("#token").is_hidden()


@pytest.mark.parametrize("form", ["curl", "python"])
def test_the_code_runs_and_says_the_same(open_page, form):
    if form == "curl" and not (shutil.which("curl") and shutil.which("bash")):
        pytest.skip("no curl or bash")
    page = open_page()
    tag(page, "Offshore 'rotor' \"blade\" $(exit 3) `exit 4` \\n é 👩‍👧\nturbine \\", "Wind power")
    page.click("#code summary")
    page.click(f"#tab-{form}")
    code = page.locator("#code-text").text_content()
    command = ["bash", "-c", f"{code} -s"] if form == "curl" else [sys.executable, "-c", code]
    ran = subprocess.run(
        command, capture_output=True, check=True, encoding="utf-8", timeout=60
    ).stdout
    if form == "curl":
        page.click("#tab-json")
        assert json.loads(ran) == json.loads(page.locator("#code-text").text_content())
    else:
        assert [line[6:] for line in ran.splitlines()] == names(page)
