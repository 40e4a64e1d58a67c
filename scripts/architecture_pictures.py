"""Draws the pictures of docs/architecture.md: the way data flows, and who may import whom.

python scripts/architecture_pictures.py: writes docs/data-flow.svg and docs/import-direction.svg. The second is made
from the layers of the import-linter contract in pyproject.toml; a test sees that both are up to date.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

__all__ = ["FLOW", "PICTURES", "data_flow", "import_direction", "layers", "main"]

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 960
_INK, _FAINT, _TEAL, _PALE = "#1f2933", "#52606d", "#00796b", "#e0f2f1"
_LETTER = 7.3  # pixels of a letter of 12 pixels in a monospaced face


class Box(NamedTuple):
    """A step of the way: its name, the modules that do it, and where its top left corner is, in pixels."""

    name: str
    modules: tuple[str, ...]
    left: int
    top: int


_BOX = (164, 64)  # width and height, pixels
_COLUMNS = (20, 208, 396, 584, 772)
_PLACES = [  # row by row, in pixels from the top: (name, modules) of each column, None where there is no box
    (50, [None, None, ("network, if any", ("networks/",)), None, None]),
    (
        140,
        [
            ("documents", ("data/",)),
            ("text features", ("features/tfidf.py",)),
            None,
            ("classifiers", ("rankers/",)),
            ("model folder", ("models/", "store/")),
        ],
    ),
    (
        230,
        [
            ("label matrix", ("data/labels.py", "data/dataset.py")),
            ("label features", ("features/label_features.py",)),
            ("label tree", ("tree/",)),
            None,
            None,
        ],
    ),
    (
        390,
        [
            ("new documents", ("data/",)),
            ("their features", ("models/model.py",)),
            ("search", ("search/beam.py",)),
            ("probabilities", ("search/calibration.py",)),
            ("predictions", ("search/predictions.py",)),
        ],
    ),
    (
        490,
        [
            None,
            None,
            ("explanation", ("models/",)),
            ("server", ("server/",)),
            ("metrics, report", ("metrics/", "report/")),
        ],
    ),
]
FLOW = {
    place[0]: Box(*place, left, top)
    for top, row in _PLACES
    for left, place in zip(_COLUMNS, row, strict=True)
    if place is not None
}
_ARROWS = [
    *[
        ("documents", "text features"),
        ("text features", "classifiers"),
        ("classifiers", "model folder"),
    ],
    *[
        ("label matrix", "label features"),
        ("text features", "label features"),
        ("label features", "label tree"),
    ],
    *[("documents", "network, if any"), ("label tree", "network, if any")],
    *[
        ("network, if any", "classifiers"),
        ("label tree", "classifiers"),
        ("model folder", "search"),
    ],
    *[
        ("new documents", "their features"),
        ("their features", "search"),
        ("search", "probabilities"),
    ],
    *[
        ("probabilities", "predictions"),
        ("predictions", "metrics, report"),
        ("predictions", "server"),
    ],
    ("search", "explanation"),
]


def data_flow() -> str:
    """Return the picture of the steps from documents to a model, and from new documents to answers."""
    parts = [_text(20, 35, "Training", 15, _TEAL), _text(20, 370, "Prediction", 15, _TEAL)]
    parts += [_arrow(FLOW[start], FLOW[end]) for start, end in _ARROWS]
    parts += [part for box in FLOW.values() for part in _drawn(box)]
    return _svg(
        "Data flows from documents to a model, and from new documents to answers", 575, parts
    )


def _drawn(box: Box) -> Iterator[str]:
    yield _rectangle(box.left, box.top, *_BOX, _PALE, _TEAL)
    middle = box.left + _BOX[0] // 2
    yield _text(middle, box.top + 24, box.name, 14, _INK, "middle")
    for line, module in enumerate(box.modules):
        yield _text(middle, box.top + 42 + 14 * line, module, 10, _FAINT, "middle", "monospace")


def _arrow(start: Box, end: Box) -> str:
    """Draw from one box to the next: straight, or along the row and the column."""
    width, height = _BOX
    x, y, to_x, to_y = (
        start.left + width // 2,
        start.top + height // 2,
        end.left + width // 2,
        end.top + height // 2,
    )
    if x == to_x:  # down, or up
        tail, head = (
            (start.top + height, end.top - 4) if y < to_y else (start.top, end.top + height + 4)
        )
        return _path(f"M{x} {tail} L{x} {head}")
    if y == to_y:
        return _path(f"M{start.left + width} {y} L{end.left - 4} {to_y}")
    if to_x - x == _COLUMNS[1] - _COLUMNS[0]:  # the next column: along the row first
        return _path(
            f"M{start.left + width} {y} L{to_x} {y} L{to_x} {end.top - 4 if y < to_y else end.top + height + 4}"
        )
    if x < to_x:
        return _path(f"M{x} {start.top} L{x} {to_y} L{end.left - 4} {to_y}")
    turn = end.top - (55 if x - to_x > width * 2 else 18)  # back, between two rows
    return _path(
        f"M{x - 20} {start.top + height} L{x - 20} {turn} L{to_x} {turn} L{to_x} {end.top - 4}"
    )


def layers() -> list[list[str]]:
    """Return the layers of the contract, the highest first; parentheses, which say that one may be missing, are off."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    contract = next(contract for contract in contracts if contract["type"] == "layers")
    return [[name.strip(" ()") for name in layer.split(":")] for layer in contract["layers"]]


def import_direction() -> str:
    """Return the picture of the layers, each in a band of its own."""
    parts, top = [], 20
    for layer in layers():
        rows = _rows(layer)
        height = 12 + 24 * len(rows)
        parts.append(_rectangle(70, top, WIDTH - 90, height, _PALE, "none"))
        for line, row in enumerate(rows):
            parts += [_chip(name, left, top + 8 + 24 * line) for name, left in row]
        top += height + 6
    parts.append(_path(f"M35 24 L35 {top - 14}"))
    parts.append(
        f'<g transform="translate(25 {top // 2}) rotate(-90)">{_text(0, 0, "imports", 14, _TEAL, "middle")}</g>'
    )
    return _svg("Layers of the package; each imports only from those below it", top + 14, parts)


def _rows(layer: list[str]) -> list[list[tuple[str, int]]]:
    """Return names with their left ends, in as many rows as they need."""
    rows: list[list[tuple[str, int]]] = [[]]
    left = 80
    for name in layer:
        if left + _chip_width(name) > WIDTH - 30:
            rows.append([])
            left = 80
        rows[-1].append((name, left))
        left += _chip_width(name) + 8
    return rows


def _chip_width(name: str) -> int:
    return round(_LETTER * len(name)) + 16


def _chip(name: str, left: int, top: int) -> str:
    text = _text(left + _chip_width(name) // 2, top + 14, name, 12, _INK, "middle", "monospace")
    return _rectangle(left, top, _chip_width(name), 20, "#ffffff", _TEAL) + text


def _rectangle(left: int, top: int, width: int, height: int, fill: str, stroke: str) -> str:
    return f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}"/>'


def _text(
    x: int, y: int, text: str, size: int, fill: str, anchor: str = "start", face: str = "sans-serif"
) -> str:
    place = f'x="{x}" y="{y}" font-size="{size}" font-family="{face}" text-anchor="{anchor}"'
    return f'<text {place} fill="{fill}">{escape(text)}</text>'


def _path(points: str) -> str:
    return f'<path d="{points}" fill="none" stroke="{_FAINT}" stroke-width="1.5" marker-end="url(#head)"/>'


def _svg(title: str, height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    shape = f'<path d="M0 0 L8 4 L0 8 z" fill="{_FAINT}"/>'
    marker = f'<marker id="head" markerWidth="8" markerHeight="8" refX="5" refY="4" orient="auto">{shape}</marker>'
    ground = f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>'
    return "\n".join(
        [
            head,
            f"<title>{escape(title)}</title>",
            f"<defs>{marker}</defs>",
            ground,
            *parts,
            "</svg>",
            "",
        ]
    )


PICTURES = {"docs/data-flow.svg": data_flow, "docs/import-direction.svg": import_direction}


def main() -> None:
    """Write both pictures."""
    for name, draw in PICTURES.items():
        (ROOT / name).write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
