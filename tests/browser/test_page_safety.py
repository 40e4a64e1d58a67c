"""Hostile strings in the page, as labels, texts and answers: none runs, and each is shown as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from page_steps import JSON, expect
from served_model import CORPUS, id_of, mark_of

import longtail

pytestmark = pytest.mark.browser

SERVER = Path(longtail.__file__).parent / "server"
SOURCES = [
    SERVER / "page.html",
    *sorted((SERVER / "static").glob("*.css")),
    *sorted((SERVER / "static").glob("*.js")),
]


def texts(page, selector):
    return set(page.locator(selector).all_text_contents())


def show_all(page):
    """Bring every hostile string to every place that shows strings, and return what it is shown as."""
    page.fill("#k", "60")
    text = "\n".join([*map(mark_of, range(50)), *CORPUS])
    page.fill("#text", text)
    page.wait_for_selector("#suggestions li:nth-child(50)")
    page.wait_for_selector(".marked mark")
    shown = {
        "text": page.locator(".marked").text_content() == text,
        "suggested": texts(page, "#suggestions .name"),
    }
    click = "(number) => document.querySelectorAll('#suggestions .accept')[number].click()"
    for number in range(55):
        page.evaluate(click, number)
    shown["accepted"] = texts(page, "#accepted bdi")
    for form in ("curl", "python", "json"):
        page.evaluate("(id) => document.getElementById(id).click()", f"tab-{form}")
    answer = json.loads(page.locator("#code-text").text_content())
    shown["answer"] = {label["name"] for label in answer["predictions"][0]["labels"]}
    page.click("#tab-path")
    page.wait_for_selector("#path .way")
    return shown


def test_no_label_or_text_runs_and_each_is_shown_as_it_is(open_page):
    page = open_page()
    hostile = set(CORPUS)
    shown = show_all(page)
    assert shown.pop("text")
    for path, result in shown.items():
        assert hostile <= result, path
    page.click("nav a[data-view=labels]")
    page.fill("#query", "zeta")
    expect(page.locator("#found")).to_have_text("50 labels")
    assert texts(page, "#results bdi") == hostile


def test_no_text_runs_on_its_own_either(open_page):
    """Each string as a whole text, with the reasons for its best label: put in at once, without the
    wait for typing.
    """
    page = open_page()
    wrong = page.evaluate(
        """async (corpus) => {
          const { setText } = await import("/static/input.js");
          const until = async (done) => {
            for (let turn = 0; turn < 1000 && !done(); turn += 1) await new Promise((go) => { setTimeout(go, 10); });
            return done();
          };
          const shown = (text) => document.querySelector(".marked")?.textContent === text;
          const first = () => document.querySelector("#suggestions .why");
          const wrong = [];
          for (const text of corpus) {
            const before = first();
            setText(text);
            await until(() => first() && first() !== before);
            first().click();
            if (!(await until(() => shown(text)))) wrong.push(text);
          }
          return wrong;
        }""",
        [f"{mark_of(number)} {hostile}" for number, hostile in enumerate(CORPUS)],
    )
    assert wrong == []


PANEL = """() => ({
  facts: [...document.querySelectorAll("#label-panel dd")].map((each) => each.textContent),
  quotes: [...document.querySelectorAll("#label-panel .quote")].map((each) => each.textContent),
  neighbours: [...document.querySelectorAll("#label-panel .chip")].map((each) => each.textContent),
  links: [...document.querySelectorAll("#label-panel a")].map((each) => each.getAttribute("href")),
})"""


def test_no_panel_of_a_label_runs_and_no_link_leads_to_code(open_page):
    page = open_page("/#labels")
    for number, hostile in enumerate(CORPUS):
        page.evaluate(
            "(hash) => { location.hash = hash; }", f"label={quote(id_of(number), safe='')}"
        )
        page.wait_for_function(
            "(name) => document.querySelector('#label-panel h2')?.textContent === name", arg=hostile
        )
        shown = page.evaluate(PANEL)
        assert shown["facts"] == ["6", id_of(number), f"{mark_of(number)} {hostile}", hostile]
        assert shown["quotes"][0] == f"about {hostile}"
        assert sum(hostile in quoted for quoted in shown["quotes"]) >= 5
        assert CORPUS[(number + 1) % 50] in shown["neighbours"]
        assert all(
            href.startswith("#label=") for href in shown["links"]
        )  # no address here is one of the web


def test_no_answer_of_the_server_runs(open_page):
    """Cards, metrics and problems, with the corpus wherever a string may stand."""
    everything = "\n\n".join(CORPUS)

    def before(page):
        page.route(
            "**/v1/model",
            lambda route: _changed(route, card=everything, name=CORPUS[10], method=CORPUS[41]),
        )

    page = open_page("/#model", before=before)
    page.wait_for_selector("#facts dd")
    shown = page.locator("#card").text_content()
    assert all(hostile.replace("`", "") in shown.replace("`", "") for hostile in CORPUS)
    page.click("nav a[data-view=tag]")
    page.seen.refusals.add(400)
    problem = json.dumps({"detail": everything, "request_id": everything})
    page.route(
        "**/v1/predict", lambda route: route.fulfill(status=400, body=problem, content_type=JSON)
    )
    page.fill("#text", "wind")
    page.wait_for_selector("#problem .problem")
    assert page.locator("#problem code").text_content() == everything


def _changed(route, **fields):
    answer = route.fetch()
    route.fulfill(response=answer, body=json.dumps(answer.json() | fields))


def test_the_corpus_bites_where_text_is_taken_as_markup(chromium, address):
    """The same page with one line wrong, in a browser without the policy: these tests would see it."""
    context = chromium.new_context(bypass_csp=True)
    context.set_default_timeout(10_000)
    page = context.new_page()
    source = (SERVER / "static" / "dom.js").read_text("utf-8")
    wrong = source.replace(
        "node.append(", "(node.innerHTML = children.flat().join('')); if (0) node.append("
    )
    assert wrong != source
    page.route("**/dom.js", lambda route: route.fulfill(body=wrong, content_type="text/javascript"))
    page.on("dialog", lambda dialog: dialog.dismiss())
    page.goto(f"{address}/#labels")
    page.wait_for_selector("#results li")
    page.fill("#query", "zeta")
    page.wait_for_function("window.__xss === 1")
    context.close()


def test_the_page_is_small_and_takes_no_text_as_markup():
    assert sum(path.stat().st_size for path in SOURCES) < 60_000
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc"
    inline = r"\bstyle=|\son\w+=|<style|<script(?! type=\"module\" src=)"
    for path in SOURCES:
        source = path.read_text("utf-8")
        assert not re.search(markup, source), path
        assert path.suffix != ".html" or not re.search(inline, source), path
        assert not re.search(r"https?://[\w.]", source), path  # nothing comes from elsewhere
