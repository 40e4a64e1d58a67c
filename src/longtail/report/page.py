"""The HTML page of all reports: style, sections, tables and escaped text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from longtail.data.output import check_output, open_output
from longtail.errors import UsageError, printable

__all__ = [
    "Section",
    "check_report_path",
    "note",
    "pair",
    "paragraph",
    "percent",
    "table",
    "text",
    "tiles",
    "write_page",
]

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
_STYLE = """\
:root { color-scheme: light dark; --ink: #1c2226; --paper: #fff; --line: #d5dbe0; --soft: #5a6670;
  --tile: #f3f6f8; --link: #1f5f8b; --good: #1d7a4c; --bad: #b04a2f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8eb; --paper: #14181b; --line: #3a444c; --soft: #9aa7b1; --tile: #1d2327;
    --link: #8fc1e8; --good: #6fcf97; --bad: #e8937c; }
}
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif;
  max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-top: 2.4rem; border-top: 1px solid var(--line);
  padding-top: 1.2rem; }
p { max-width: 44rem; }
a { color: var(--link); }
nav { font-size: .9rem; display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: 1rem 0; }
.note { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; }
.tall { overflow: auto; max-height: 32rem; border-bottom: 1px solid var(--line); }
.tall thead th { position: sticky; top: 0; background: var(--paper); }
.tall tbody th { max-width: 22rem; white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; }
th:first-child { text-align: left; padding-left: 0; }
tbody th { font-weight: 400; }
td small { color: var(--soft); }
.stacked td small { display: block; }
.pair { display: flex; flex-wrap: wrap; gap: 0 2rem; align-items: start; }
.pair svg { flex: 1 1 24rem; min-width: 0; }
.pair .wide { flex: 0 1 auto; max-width: 100%; }
.wide + .wide { margin-top: 1rem; }
td.text, th.text { text-align: left; white-space: normal; min-width: 12rem;
  overflow-wrap: anywhere; }
.best { font-weight: 700; }
.good { color: var(--good); }
.bad { color: var(--bad); }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.tiles div { background: var(--tile); border-radius: .5rem; padding: .5rem .9rem;
  min-width: 5.5rem; }
.tiles b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: .85rem; }
.document { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .9rem;
  margin: .8rem 0; }
.document p { margin: .3rem 0; max-width: none; overflow-wrap: anywhere; }
.document ul { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem .5rem; margin: .3rem 0;
  padding: 0; }
.document li { background: var(--tile); border-radius: .3rem; padding: 0 .5rem;
  overflow-wrap: anywhere; }
input { font: inherit; color: inherit; background: var(--tile); border: 1px solid var(--line);
  border-radius: .4rem; padding: .3rem .6rem; width: min(100%, 24rem); box-sizing: border-box; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer;
  font-weight: 600; }
th[aria-sort="ascending"] button::after { content: " \\2191"; }
th[aria-sort="descending"] button::after { content: " \\2193"; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
summary { cursor: pointer; }
@media (max-width: 50rem) { .pair { display: block; } }
@media (max-width: 40rem) {
  table { font-size: .9rem; }
  td small { display: block; }
  th, td { padding: .25rem .35rem; }
}
svg { display: block; width: 100%; max-width: 40rem; height: auto; margin: 1rem 0; }
svg text { font-family: system-ui, sans-serif !important; }
"""


class Section(NamedTuple):
    """A section: title, HTML parts, and the script that it needs."""

    name: str
    title: str
    parts: list[str]
    script: str = ""


def check_report_path(path: Path | str) -> None:
    """Refuse a report that could not be written; to be called before long work."""
    path = Path(path)
    if path.suffix != ".html":
        raise UsageError(
            f"{path}: cannot write a {path.suffix or 'file without suffix'}; expected .html"
        )
    check_output(path)


def write_page(
    path: Path | str, title: str, top: Sequence[str], sections: Sequence[Section]
) -> None:
    """Write the page: ``top``, links to the sections, and the sections.

    Its content security policy allows only the scripts of the sections.
    """
    check_report_path(path)
    scripts = [section.script for section in sections if section.script]
    body = [*top, _links(sections)]
    for section in sections:
        body += [
            f'<section id="{section.name}">',
            f"<h2>{text(section.title)}</h2>",
            *section.parts,
            "</section>",
        ]
    body += [f"<script>{script}</script>" for script in scripts]
    page = _PAGE.format(
        title=text(title), body="\n".join(body), style=_STYLE, policy=_policy(scripts)
    )
    with open_output(path) as file:
        file.write(page.encode())


def _policy(scripts: Sequence[str]) -> str:
    """Return a content security policy that allows only these scripts, and no network access."""
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    sources = " ".join(f"'sha256-{value}'" for value in hashes) or "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {sources}; "
        "base-uri 'none'; form-action 'none'"
    )


def _links(sections: Sequence[Section]) -> str:
    links = "".join(f'<a href="#{section.name}">{text(section.title)}</a>' for section in sections)
    if len(sections) > 2:
        return f'<nav aria-label="Sections">{links}</nav>'
    return ""


def text(value: str) -> str:
    """Return text as escaped HTML."""
    return escape(printable(value)).replace(" %", "\xa0%")  # no line break before «%»


def percent(value: float | None) -> str:
    """Return a fraction as percent with two decimals."""
    if value is None:
        return "–"
    return f"{100 * value:.2f}"


def note(value: str) -> str:
    """Return a note in small letters."""
    return f'<p class="note">{text(value)}</p>'


def paragraph(value: str) -> str:
    """Return a paragraph of text."""
    return f"<p>{text(value)}</p>"


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Return (name, value) pairs as large numbers with their names below."""
    shown = "".join(
        f"<div><b>{text(value)}</b><span>{text(name)}</span></div>" for name, value in values
    )
    return f'<div class="tiles">{shown}</div>'


def pair(picture: str, numbers: str) -> str:
    """Return a picture with its table beside it, or below on narrow screens."""
    return f'<div class="pair">{picture}\n{numbers}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "wide") -> str:
    """Return a table of HTML cells; the first column names the row.

    In the kind «wide stacked», text in small letters is below its number.
    """
    top = "".join(
        head if head.startswith("<th") else f'<th scope="col">{head}</th>' for head in heads
    )
    body = "\n".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(map(_cell, row[1:]))}</tr>' for row in rows
    )
    return (
        f'<div class="{kind}"><table>\n<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _cell(cell: str) -> str:
    if cell.startswith("<td"):
        return cell
    return f"<td>{cell}</td>"
