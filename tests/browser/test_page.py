"""The page in a real browser: suggestions, decisions, reasons, labels and the model."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from page_steps import JSON, WIND, expect, first, names, tag

pytestmark = pytest.mark.browser


def test_labels_are_suggested_while_typing(open_page):
    page = open_page()
    assert "55 labels this model knows" in page.locator("#empty").inner_text()
    page.locator("#text").press_sequentially(WIND, delay=5)
    expect(first(page)).to_have_text("Wind power")
    assert len(names(page)) == 5
    assert page.locator("#empty").is_hidden()
    assert re.fullmatch(r"5 labels in \d+ ms", page.locator("#status").inner_text())
    assert sum(url.endswith("/v1/predict") for url in page.seen.requests) == 1  # not one a key
    page.fill("#k", "2")
    expect(page.locator("#suggestions li")).to_have_count(2)
    page.click("#clear")
    assert names(page) == []
    assert page.locator("#empty").is_visible()
    assert page.locator("#reasons").is_hidden()


def test_an_older_answer_is_not_shown(open_page):
    page = open_page()
    held = []
    page.route("**/v1/predict", lambda route: held.append(route) if not held else route.continue_())
    page.fill("#text", "honey hive nectar")
    page.wait_for_timeout(500)
    assert len(held) == 1
    tag(page, "grape vineyard cellar", "Wine")
    with contextlib.suppress(Exception):  # the browser has given it up by now
        held[0].continue_()
    page.wait_for_timeout(300)
    assert names(page)[0] == "Wine"


def test_the_threshold_hides_labels_at_once(open_page):
    page = open_page()
    tag(page, WIND, "Wind power")
    scores = [
        float(text.removesuffix(" %")) / 100
        for text in page.locator("#suggestions .score").all_text_contents()
    ]
    asked = len(page.seen.requests)
    page.locator("#threshold").fill("0.3")
    assert len(names(page)) == sum(score >= 0.3 for score in scores) < 5
    assert page.locator("#threshold-value").inner_text() == "30 %"
    assert "below the threshold" in page.locator("#below").inner_text()
    assert '"threshold":0.3' in page.locator("#code-text").text_content()
    assert len([url for url in page.seen.requests[asked:] if url.endswith("predict")]) == 0


def test_accepted_labels_are_copied_and_rejected_ones_make_room(open_page):
    page = open_page()
    tag(page, WIND, "Wind power")
    second, third = names(page)[1:3]
    page.click("#suggestions li:nth-child(1) .accept")
    page.click("#suggestions li:nth-child(3) .accept")
    page.click("#suggestions li:nth-child(2) .reject")
    expect(page.locator("#suggestions li")).to_have_count(5)
    assert second not in names(page)
    assert page.locator("#rejected bdi").all_text_contents() == [second]
    assert page.locator("#accepted bdi").all_text_contents() == ["Wind power", third]
    page.click("#copy-accepted")
    page.wait_for_selector("#toast.shown")
    assert page.evaluate("navigator.clipboard.readText()") == f"Wind power\n{third}"
    page.select_option("#copy-as", "json")
    page.click("#copy-accepted")
    expect(page.locator("#toast")).to_have_text("2 labels copied")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied["text"] == WIND
    assert copied["labels"][0] == "wind"
    page.click("#rejected button")
    page.wait_for_selector(f"#suggestions .name >> text={second!r}")
    page.click("#forget")
    assert page.locator("#accepted-card").is_hidden()


def test_why_marks_the_right_words(open_page):
    page = open_page()
    text = "👩‍👩‍👧 Äneas: " + WIND
    tag(page, text, "Wind power")
    page.wait_for_selector("#why .marked mark")
    marked = {mark.lower() for mark in page.locator(".marked .for").all_text_contents()}
    assert {"offshore", "rotor", "blade"} <= marked
    assert "äneas" not in marked
    assert (
        page.locator(".marked").text_content() == text
    )  # nothing is lost or twice, also after an emoji
    assert page.locator("#why .word").first.text_content() in {"offshore", "rotor", "blade"}
    page.locator("#suggestions li", has_text="Wine").locator(".why").click()
    expect(page.locator("#reasons-heading")).to_have_text("Why Wine")
    expect(page.locator(".marked .for.shade4")).to_have_text("vineyard")
    assert page.locator("#why .words li").first.inner_text().startswith("vineyard")


def test_why_of_an_ensemble_adds_its_members_and_has_two_sides(open_page):
    step = {
        "kind": "sum",
        "contributions": [{"feature": "rotor", "value": 1, "weight": 1, "contribution": 0.5}],
    }
    member = {
        "method": "xr-linear",
        "weight": 0.5,
        "score": 1,
        "explanation": {"steps": [step]},
        "note": "",
    }
    other = {
        "method": "dense",
        "weight": 0.5,
        "score": 0,
        "explanation": None,
        "note": "has no words",
    }
    answer = {
        "label": "wind",
        "name": "Wind power",
        "score": 1,
        "probability": None,
        "members": [member, other],
    }
    spans = [(0, 8, 0.5), (9, 17, -0.25), (19, 20, 0.001)]
    highlights = [{"start": start, "end": end, "weight": weight} for start, end, weight in spans]
    body = json.dumps(answer | {"highlights": highlights})
    page = open_page()
    page.route("**/v1/explain", lambda route: route.fulfill(body=body, content_type=JSON))
    tag(page, WIND, "Wind power")
    page.wait_for_selector("#why .word")
    assert page.locator("#why .words").inner_text().split() == ["rotor", "+0.250"]
    marks = [
        (mark.get_attribute("class"), mark.text_content())
        for mark in page.locator(".marked mark").all()
    ]
    assert marks == [
        ("for shade4", "Offshore"),
        ("against shade2", "turbines"),
    ]  # what weighs next to nothing is plain
    assert "dense: has no words" in page.locator("#why").inner_text()


def test_the_way_through_the_tree_is_marked(open_page):
    page = open_page()
    tag(page, WIND, "Wind power")
    page.click("#tab-path")
    page.wait_for_selector("#path .way")
    levels = page.locator("#path .way > li")
    assert levels.count() >= 2
    for level in levels.all():
        assert level.locator(".on").count() == 1
    assert levels.last.locator(".on").inner_text().startswith("Wind power")
    assert levels.first.locator("li").count() > 1  # the beam's alternatives
    levels.last.locator(".on a").click()
    page.wait_for_selector("#label-panel h2 >> text=Wind power")


def another_model(**facts):
    """Return what a page is opened with that takes the model to have other ``facts``."""

    def change(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=json.dumps(answer.json() | facts))

    return lambda page: page.route("**/v1/model", change)


def test_a_model_without_tree_or_words_says_so(open_page):
    page = open_page(before=another_model(has_tree=False, has_text=False))
    tag(page, WIND, "Wind power")
    expect(page.locator("#why")).to_have_text(
        "This model does not score by words, so none can be marked."
    )
    assert page.locator("#tab-path").is_hidden()
    assert not any("explain" in url for url in page.seen.requests)


def test_labels_are_found_and_lead_to_their_documents(open_page):
    page = open_page("/#labels")
    page.wait_for_selector("#results li")
    assert page.locator("#found").inner_text() == "55 labels, the first 50 shown"
    page.fill("#query", "keeping")
    expect(page.locator("#results li")).to_have_count(1)
    assert page.locator("#results li").inner_text().split("\n")[:2] == [
        "Bees and their keeping",
        "6 documents",
    ]
    page.click("#results a")
    page.wait_for_selector("#label-panel h2 >> text=Bees")
    assert "honey" in " ".join(page.locator("#label-panel .quote").all_inner_texts())
    page.locator("#label-panel .chip", has_text="Wine").click()
    page.wait_for_selector("#label-panel h2 >> text=Wine")
    page.go_back()
    page.wait_for_selector("#label-panel h2 >> text=Bees")
    page.locator("#label-panel button", has_text="Accept").click()
    page.locator("#label-panel button", has_text="Tag this text").last.click()
    expect(first(page)).to_have_text("Bees and their keeping")
    page.fill("#text", "")
    page.goto(page.url.partition("#")[0] + "#label=nothing-of-the-kind")
    page.seen.refusals.add(404)
    page.wait_for_selector("#label-panel .problem")
    assert "nothing-of-the-kind" in page.locator("#label-panel").inner_text()


def test_a_part_of_the_labels_is_told(open_page):
    page = open_page("/#model", before=another_model(shards=[0, 2]))
    page.wait_for_selector("#facts dd")
    assert "shards 0, 2" in page.locator("#facts dd").all_text_contents()


def test_the_model_and_its_latency_are_shown(open_page):
    page = open_page("/#model", before=lambda page: page.clock.install())
    page.wait_for_selector("#facts dd")
    assert {"tiny", "xr-linear", "55"} <= set(page.locator("#facts dd").all_text_contents())
    assert page.locator("#card h2").inner_text() == "xr-linear: 55 labels"
    assert page.locator("#card td", has_text="probabilities").count() == 1
    assert page.locator("#metrics tbody th").first.inner_text() == "P"
    assert page.locator("#latency strong").count() == 3
    assert page.locator("#facts dt", has_text="answers with").count() == 0  # all labels
    asked = sum(url.endswith("/v1/model") for url in page.seen.requests)
    with page.expect_request("**/v1/model"):
        page.clock.fast_forward(5_000)
    page.click("nav a[data-view=tag]")
    expect(
        page.locator("#view-model")
    ).to_be_hidden()  # the address changes first, the view after it
    page.clock.fast_forward(20_000)
    page.wait_for_timeout(100)
    assert sum(url.endswith("/v1/model") for url in page.seen.requests) == asked + 1


def test_an_example_is_offered(open_page):
    page = open_page()
    page.click("#empty button")
    page.wait_for_selector("#suggestions li")
    assert page.locator("#text").input_value().startswith("A ")
