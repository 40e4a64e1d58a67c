"""The table of labels: data beside a small script that draws, sorts and filters it, all of it as
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from longtail.errors import printable
from longtail.report.page import Section, note, paragraph

if TYPE_CHECKING:
    from longtail.metrics.analysis import PrecisionRecall
    from longtail.report.examination import LabelRow

__all__ = ["label_section"]

_MOST = 2000  # rows in a page
_HEADS = ("label", "in train", "in test", "said", "precision", "recall", "F1")
_SCRIPT = """
"use strict";
(() => {
  const rows = JSON.parse(document.getElementById("label-data").textContent);
  const body = document.querySelector("#label-table tbody"), box = document.getElementById("label-filter");
  const heads = [...document.querySelectorAll("#label-table thead th")];
  let by = 2, rising = false;
  const shown = (value, at) => value === null ? "–" : at === 0 ? value
    : at > 3 ? (100 * value).toFixed(1) : value.toLocaleString("en");
  const order = (one, two) => {
    const a = one[by], b = two[by];
    if (a === null || b === null) return (a === null) - (b === null);
    const way = typeof a === "string" ? a.localeCompare(b) : a - b;
    return rising ? way : -way;
  };
  const draw = () => {
    const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
    const found = rows.filter(row => words.every(word => row[0].toLowerCase().includes(word))).sort(order);
    body.replaceChildren(...found.map(row => {
      const line = document.createElement("tr");
      row.forEach((value, at) => {
        const cell = document.createElement(at ? "td" : "th");
        if (!at) cell.scope = "row";
        cell.textContent = shown(value, at);
        line.append(cell);
      });
      return line;
    }));
    heads.forEach((head, at) => head.setAttribute("aria-sort",
      at === by ? (rising ? "ascending" : "descending") : "none"));
    document.getElementById("label-count").textContent = `${found.length.toLocaleString("en")} labels shown`;
  };
  heads.forEach((head, at) => head.querySelector("button").addEventListener("click", () => {
    rising = at === by ? !rising : at === 0;
    by = at;
    draw();
  }));
  box.addEventListener("input", draw);
  draw();
})();
"""


def label_section(rows: Sequence[LabelRow], curve: PrecisionRecall) -> Section:
    """Return the table of at most 2,000 labels, those of most test documents."""
    data = [[printable(row[0]), *(_rounded(value) for value in row[1:])] for row in rows[:_MOST]]
    # no </script> and no <!-- in it
    encoded = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    heads = "".join(
        f'<th scope="col"><button type="button">{head}</button></th>' for head in _HEADS
    )
    parts = [
        paragraph(
            f"Each document is given the labels with a score of at least {curve.threshold:.3g}, where F1 over all "
            "pairs is best on these documents. In percent: precision is the share of its suggestions that are right, "
            "recall the share of its documents that got it."
        ),
        '<p><input id="label-filter" type="search" placeholder="Find labels" aria-label="Find labels"> '
        '<span class="note" id="label-count" role="status"></span></p>',
        f'<div class="tall"><table id="label-table"><thead><tr>{heads}</tr></thead><tbody></tbody></table></div>',
        "<noscript><p>This table is drawn by a script of this page, which the browser does not run.</p></noscript>",
        f'<script type="application/json" id="label-data">{encoded}</script>',
    ]
    if len(rows) > _MOST:
        parts.append(
            note(
                f"The {_MOST:,} labels of most test documents; {len(rows) - _MOST:,} others are left out."
            )
        )
    return Section("labels", "Label by label", parts, _SCRIPT)


def _rounded(value: float | str | None) -> float | str | None:
    if isinstance(value, float):
        return round(value, 4)
    return value
