"""The page in use: files, keys alone, light and dark, on a phone."""

from __future__ import annotations

import re

import pytest
from page_steps import WIND, expect, first, names, tag
from served_model import mark_of

pytestmark = pytest.mark.browser


def luminance(colour):
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(page, selector, part=None):
    """Return the contrast of a text, or of such a part as ::placeholder, with the card behind it,
    as WCAG counts it.
    """
    card = "getComputedStyle(node.closest('.card')).backgroundColor"
    style = f"(node, part) => [getComputedStyle(node, part).color, {card}]"
    light, dark = sorted(
        map(luminance, page.locator(selector).first.evaluate(style, part)), reverse=True
    )
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.txt", "grape vineyard\ncellar ü".encode(), "grape vineyard\ncellar ü"),
        ("a.json", b'{"title": "Grapes", "text": "of a vineyard"}', "Grapes. of a vineyard"),
        ("a.md", b"\xff\xfe\x00grape", ""),
    ],
)
def test_a_file_is_read(open_page, name, content, text):
    page = open_page()
    page.set_input_files("#file", [{"name": name, "mimeType": "text/plain", "buffer": content}])
    if text:
        expect(first(page)).to_have_text("Wine")
    else:
        page.wait_for_selector("#toast.shown")
        assert page.locator("#toast").inner_text() == f"{name} is not text in UTF-8"
    assert page.locator("#text").input_value() == text


def test_a_file_is_dropped(open_page):
    page = open_page()
    page.evaluate(
        """() => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File(["hive honey nectar"], "bees.txt", { type: "text/plain" }));
          for (const kind of ["dragover", "drop"]) {
            document.body.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
          }
        }"""
    )
    expect(first(page)).to_have_text("Bees and their keeping")
    assert page.locator(".dropping").count() == 0


def test_all_of_it_by_keyboard_alone(open_page):
    page = open_page()
    keys = page.keyboard
    focused = "document.activeElement"
    assert page.evaluate(f"{focused}.id") == "text"
    keys.type("Offshore rotor, vineyard?")
    expect(first(page)).to_have_text("Wind power")
    keys.press("Control+Enter")
    assert page.evaluate(f"{focused}.textContent") == "Wind power"
    assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
    keys.press("Enter")
    assert page.locator("#accepted bdi").all_text_contents() == ["Wind power"]
    assert page.evaluate(f"{focused}.getAttribute('aria-label')").startswith("Wind power, accepted")
    keys.press("ArrowDown")
    second = page.evaluate(f"{focused}.textContent")
    assert second == names(page)[1]
    keys.press("Delete")
    assert page.evaluate(f"{focused}.textContent") == names(page)[1] != second
    expect(page.locator("#suggestions li")).to_have_count(5)
    assert (
        page.evaluate(f"{focused}.className") == "name"
    )  # still there after the next labels have come
    keys.press("End")
    keys.press("ArrowDown")
    assert page.evaluate(f"{focused}.textContent") == names(page)[-1]
    keys.press("Space")
    expect(page.locator("#reasons-heading")).to_have_text(f"Why {names(page)[-1]}")
    keys.press("c")
    page.wait_for_selector("#toast.shown")
    assert page.evaluate("navigator.clipboard.readText()") == "Wind power"
    keys.press("?")
    assert page.locator("#keys").is_visible()
    keys.press("Escape")
    assert page.locator("#keys").is_hidden()
    keys.press("/")
    keys.type("railw")
    expect(page.locator("#results li")).to_have_count(1)
    keys.press("ArrowDown")
    keys.press("Enter")
    page.wait_for_selector("#label-panel h2 >> text=Railways")
    keys.press("t")
    assert page.evaluate(f"{focused}.id") == "text"
    keys.type("?/t")  # these are letters here
    assert page.locator("#text").input_value().endswith("?/t")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_in_light_and_dark(open_page, scheme):
    page = open_page(color_scheme=scheme)
    assert contrast(page, "#text", "::placeholder") >= 4.5
    tag(page, WIND, "Wind power")
    page.wait_for_selector("#why .word")
    page.click("#suggestions .accept")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(ground) < 0.1) == (scheme == "dark")
    for selector in (
        ".name",
        ".score",
        "#status",
        ".accepted .name",
        "#why .word",
        "#clear",
        "#reasons-label",
    ):
        assert contrast(page, selector) >= 4.5, selector


@pytest.mark.parametrize("width", [360, 390])
def test_nothing_is_wider_than_a_phone(open_page, width):
    page = open_page(viewport={"width": width, "height": 800})
    page.fill("#k", "60")
    page.fill("#text", "rope syllable " + " ".join(map(mark_of, range(50))))
    page.wait_for_selector("#suggestions li:nth-child(50)")
    page.locator(".name", has_text="ÜÜÜ").click()
    page.wait_for_selector("#why .word")
    page.click("#suggestions .accept")
    page.click("#code summary")
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wider) == 0
    page.click("#tab-path")
    page.wait_for_selector("#path .way")
    assert page.evaluate(wider) == 0
    for path, there in (
        ("labels", "#results li"),
        ("label=long", "#label-panel h2"),
        ("model", "#facts dd"),
    ):
        page.evaluate("(hash) => { location.hash = hash; }", path)
        page.wait_for_selector(there)
        assert page.evaluate(wider) == 0, path


def test_motion_is_reduced_where_wished(open_page):
    page = open_page(reduced_motion="reduce")
    assert (
        page.evaluate("getComputedStyle(document.getElementById('toast')).transitionDuration")
        == "0s"
    )
