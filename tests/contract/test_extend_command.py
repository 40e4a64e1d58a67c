"""`longtail extend`: a model folder and a label file in, a model folder out that knows the labels
of both.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

import longtail as lt
from longtail.data.label_files import write_labels

pytestmark = pytest.mark.usefixtures("one_thread")

TOPICS = ("wind", "solar", "river", "tram")
KINDS = ("museum", "factory", "history")
NAMES = [f"{topic} {kind}" for topic in TOPICS for kind in KINDS]
UNSEEN = "river factory"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extend")
    member = [name for name in NAMES if name != UNSEEN] * 20
    train = lt.Dataset.of(
        [f"{name} of the town, volume {at % 7}" for at, name in enumerate(member)],
        [[name] for name in member],
    )
    training = {
        "epochs": 12,
        "batch_size": 16,
        "micro_batch": 16,
        "encoder_rate": 5e-3,
        "head_rate": 5e-3,
    }
    groups = {
        "encoder": {"width": 16, "max_tokens": 8},
        "tree": {"levels": [4]},
        "training": training,
    }
    lt.Longtail("decaf", **groups).fit(train).save(folder / "model")
    write_labels(lt.Labels.of([lt.Label("n1", UNSEEN), NAMES[0], "???"]), folder / "labels.jsonl")
    (folder / "labels.tsv").write_text(f"n1\t{UNSEEN}\n{NAMES[0]}\tas it is\n???\t\n")
    lt.write(
        lt.Dataset.of(["the factory by the river", "a wind museum"], [["n1"], [NAMES[0]]]),
        folder / "new.jsonl",
    )
    return folder


@pytest.mark.parametrize("labels", ["labels.jsonl", "labels.tsv"])
def test_a_new_label_is_predicted(run, place, tmp_path, labels, caplog):
    done = run(
        "extend",
        place / "model",
        place / labels,
        "-o",
        tmp_path / "more",
        "-j",
        1,
        "--device",
        "cpu",
    )
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith(f"{tmp_path / 'more'}: written\n")
    assert "new labels: 1 added; 1 were known" in caplog.text
    assert "new labels: 1 left out, as the model knows no word of theirs: '???'" in caplog.text
    result = run(
        "-q", "predict", tmp_path / "more", place / "new.jsonl", "-k", "2"
    ).out.splitlines()
    best = [json.loads(line)["labels"] for line in result]
    assert "n1" in best[0]
    assert NAMES[0] in best[1]
    scores = run("-q", "evaluate", tmp_path / "more", place / "new.jsonl", "--json").json()
    assert scores["evaluation"]["metrics"]["R@5"] == 1
    assert len(lt.load(tmp_path / "more").model.labels) == len(NAMES)
    assert "1 of them added after training" in (tmp_path / "more" / "README.md").read_text()


def test_what_is_left_out_is_said_however_quiet(run, place, tmp_path, caplog):
    assert (
        run("-q", "extend", place / "model", place / "labels.jsonl", "-o", tmp_path / "more").code
        == 0
    )
    assert "1 left out" in caplog.text
    assert "added" not in caplog.text


def test_in_place(run, place, tmp_path):
    run("-q", "extend", place / "model", place / "labels.jsonl", "-o", tmp_path / "more")
    (tmp_path / "late.tsv").write_text("late\ttram and wind\n")
    assert (
        run(
            "-q",
            "extend",
            tmp_path / "more",
            tmp_path / "late.tsv",
            "-o",
            tmp_path / "more",
            "--force",
        ).code
        == 0
    )
    assert list(lt.load(tmp_path / "more").model.labels.ids)[-2:] == ["n1", "late"]


def test_the_label_graph_has_room_for_new_labels(run, place, tmp_path):
    known = lt.load(place / "model").model
    graph = sparse.csr_array(sparse.eye_array(len(known.labels), format="csr", dtype=np.float32))
    lt.Longtail.of(replace(known, label_graph=graph)).save(tmp_path / "graph")
    assert (
        run(
            "-q", "extend", tmp_path / "graph", place / "labels.jsonl", "-o", tmp_path / "more"
        ).code
        == 0
    )
    more = lt.load(tmp_path / "more").model.label_graph
    assert more.shape == (len(NAMES), len(NAMES))
    np.testing.assert_array_equal(more.toarray()[:-1, :-1], graph.toarray())
    shown = run("labels", tmp_path / "more", "--neighbours", "n1")
    assert shown.code == 0
    assert "no neighbours" in shown.err


def test_a_label_graph_of_other_labels_is_no_model(fails, place, tmp_path):
    known = lt.load(place / "model").model
    lt.Longtail.of(replace(known, label_graph=sparse.csr_array((2, 2), dtype=np.float32))).save(
        tmp_path / "wrong"
    )
    assert f"a label graph of 2 labels beside {len(known.labels)}" in fails(
        4, "labels", tmp_path / "wrong"
    )


def test_bad_labels_are_left_out_where_that_is_asked_for(run, place, tmp_path):
    (tmp_path / "bad.jsonl").write_text(
        '{"name": "no id"}\n{"id": "late", "text": "tram and wind"}\n'
    )
    done = run(
        "-q",
        "extend",
        place / "model",
        tmp_path / "bad.jsonl",
        "-o",
        tmp_path / "x",
        "--skip-bad",
        "1",
    )
    assert done.code == 0
    assert lt.load(tmp_path / "x").model.labels.ids[-1] == "late"


def test_refusals(fails, run, place, tmp_path):
    assert "none.jsonl" in fails(
        2, "extend", place / "model", tmp_path / "none.jsonl", "-o", tmp_path / "x"
    )
    (tmp_path / "bad.jsonl").write_text('{"name": "no id"}\n')
    assert "bad.jsonl:1" in fails(
        3, "extend", place / "model", tmp_path / "bad.jsonl", "-o", tmp_path / "x"
    )
    assert fails(4, "extend", place / "nothing", place / "labels.jsonl", "-o", tmp_path / "x")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("not a model")
    assert fails(2, "extend", place / "model", place / "labels.jsonl", "-o", tmp_path / "notes")
    assert (tmp_path / "notes" / "mine.txt").read_text() == "not a model"
