"""`longtail analyze`: a trained network in, pictures and numbers out."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import longtail as lt  # noqa: E402
from longtail.data.sample import FOLDER  # noqa: E402
from tiny_encoder import write_encoder  # noqa: E402

NAMES = ["attention_entropy", "cls_self_attention", "pwcca", "shortlist_recall"]
SETTINGS = {
    "training": {"epochs": 1, "batch_size": 32},
    "cascade": {"combine": "never", "shortlist": [2, 4]},
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("analyze")


@pytest.fixture(scope="module")
def model(place):
    train = lt.read(FOLDER).split(test=150)[1]
    folder = write_encoder(place / "encoder", train.texts, width=8)
    encoder = {"name": str(folder), "max_tokens": 16}
    lt.Longtail("cascadexml", encoder=encoder, tree={"levels": [4, 16]}, **SETTINGS).fit(
        train
    ).save(place / "model")
    return place / "model"


@pytest.fixture(scope="module")
def data(place):
    test = lt.read(FOLDER, split="test").split(test=60)[1]
    lt.write(test, place / "test.jsonl")
    return place / "test.jsonl"


def test_all_of_it(run, model, data, tmp_path):
    done = run("analyze", model, data, "-o", tmp_path / "new" / "out", "--documents", 30, "--json")
    assert (done.code, done.err) == (0, f"{tmp_path / 'new' / 'out'}: written\n")
    found = json.loads(done.out)
    assert (found["documents"], found["vector_documents"]) == (30, 40)
    assert [*found["attention"]] == [*found["likeness"]] == ["trained", "untuned"]
    assert found["attention"]["trained"] != found["attention"]["untuned"]
    assert len(found["shortlist_recall"]) == 2
    assert all(0 < recall <= 1 for recall in found["shortlist_recall"])
    written = sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
    assert written == [f"{name}.{kind}" for name in NAMES for kind in ("csv", "png")]


def test_tables(run, model, data, tmp_path):
    done = run("analyze", model, data, "-o", tmp_path, "--device", "cpu")
    assert done.code == 0
    first, _, heads, *rest = done.out.splitlines()
    assert first == "60 documents, 60 for PWCCA"
    assert heads.startswith("layer  level  to itself  to itself, untuned  maximum")
    starts = ["1", "2", "3", "levels", "1–2", "1–3", "2–3", "level", "1", "2"]
    assert [line.split()[0] for line in rest if line] == starts


def test_without_labels_and_without_the_first_encoder(run, model, place, tmp_path, caplog):
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "an editor for sound"}\n{"text": "a game with cards"}\n')
    away = (place / "encoder").rename(place / "away")
    try:
        done = run("analyze", model, texts, "-o", tmp_path / "out")
    finally:
        away.rename(place / "encoder")
    assert done.code == 0
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("the encoder before training is left out: encoder ")
    assert second.startswith("PWCCA is left out: found 2 documents; expected more than 16, ")
    assert sorted({path.stem for path in (tmp_path / "out").iterdir()}) == NAMES[:2]


def test_a_linear_model_has_nothing_to_look_into(fails, data, tmp_path):
    lt.Longtail("xr-linear").fit(lt.read(data)).save(tmp_path / "linear")
    message = fails(2, "analyze", tmp_path / "linear", data, "-o", tmp_path / "out")
    assert message.endswith(
        "linear: found no network that ranks, to look into; expected a model that has one"
    )


def test_refusals_before_any_work(fails, model, data, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "found a file; expected a folder" in fails(
        2, "analyze", model, data, "-o", tmp_path / "file"
    )
    assert "--documents" in fails(2, "analyze", model, data, "-o", tmp_path, "--documents", 0)
    assert "device 'moon'" in fails(2, "analyze", model, data, "-o", tmp_path, "--device", "moon")
