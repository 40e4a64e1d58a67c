"""The bundled sample: what is in the repository."""

from __future__ import annotations

import gzip
import hashlib
import json
import re

import pytest

from longtail.data.sample import FOLDER

FILES = ("train.jsonl.gz", "test.jsonl.gz", "labels.jsonl.gz")


def read(name):
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def sample():
    return {name: read(name) for name in FILES}


def test_counts_and_fields(sample):
    assert [len(sample[name]) for name in FILES] == [6000, 1500, 501]
    for record in sample["train.jsonl.gz"] + sample["test.jsonl.gz"]:
        assert list(record) == ["id", "text", "labels"]
        assert record["text"].startswith(f"{record['id']}: ")
        assert record["labels"]
        assert record["labels"] == sorted(set(record["labels"]))


def test_ids_and_descriptions_are_unique_over_both_sides(sample):
    records = sample["train.jsonl.gz"] + sample["test.jsonl.gz"]
    assert len({record["id"] for record in records}) == 7500
    assert len({record["text"].split(": ", 1)[1] for record in records}) == 7500


def test_every_label_is_known(sample):
    train = {label for record in sample["train.jsonl.gz"] for label in record["labels"]}
    test = {label for record in sample["test.jsonl.gz"] for label in record["labels"]}
    assert [record["id"] for record in sample["labels.jsonl.gz"]] == sorted(train)
    assert test <= train
    assert not any(re.search(r"^special::|TODO", label) for label in train)


def test_labels_have_names_and_texts_of_the_vocabulary(sample):
    labels = {record["id"]: record for record in sample["labels.jsonl.gz"]}
    assert labels["role::program"] == {
        "id": "role::program",
        "name": "Role: Program",
        "text": "Role: Program. Executable computer program.",
    }
    assert len({record["name"] for record in labels.values()}) == len(labels)
    assert not any(
        "http:" in record["text"] or "Link:" in record["text"] for record in labels.values()
    )


def test_no_placeholder_packages(sample):
    for record in sample["train.jsonl.gz"] + sample["test.jsonl.gz"]:
        assert not re.search(r"(transitional|dummy) package", record["text"], re.IGNORECASE), (
            record["id"]
        )


def test_size_and_header():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000
    for name in FILES:  # no flags (so no file name), time 0
        assert (FOLDER / name).read_bytes()[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


def test_licence_note_names_these_very_files(sample):
    note = (FOLDER / "LICENCE.md").read_text(encoding="utf-8")
    for name in FILES:
        content = (FOLDER / name).read_bytes()
        row = rf"`{name}` *\| *{len(sample[name]):,} *\| *{len(content):,} *\| `{hashlib.sha256(content).hexdigest()}`"
        assert re.search(row, note), name
