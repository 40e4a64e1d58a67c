"""Four documents to train on, two to measure by, and predictions of these, as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

TRAIN = [
    {"id": "1", "text": "wind turbines at sea", "labels": ["wind", "sea"]},
    {"id": "2", "text": "fish", "labels": ["sea"]},
    {"id": "3", "text": "wind", "labels": ["wind"]},
    {
        "id": "4",
        "text": "solar cells; “new”, and\tcheap",
        "labels": ["sun", "a label, with a comma"],
    },
]
TEST = [
    {"id": "x", "text": "a windy beach", "labels": ["wind", "sea"]},
    {"id": "y", "text": "sunshine", "labels": ["sun"]},
]
PREDICTIONS = [
    {"id": "y", "labels": ["wind", "sun", "moon"], "scores": [0.9, 0.8, 0.7]},
    {"id": "x", "labels": ["sun", "wind"], "scores": [0.1, 0.6]},
]


def put(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
