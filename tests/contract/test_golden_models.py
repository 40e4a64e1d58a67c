"""The promise that a model folder of any method, made by an earlier version, loads and predicts the
same forever.
"""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import re

import make_golden as golden
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import longtail as lt
from longtail import store
from longtail.config import Attention, Phases
from longtail.errors import ModelFolderError
from longtail.methods import METHODS
from longtail.store.manifest import FORMAT, FileEntry, encode

EXPECTED = json.loads((golden.MODELS / golden.EXPECTED).read_text())
NAMES = [*METHODS, golden.ENSEMBLE]
LINEAR = [name for name in NAMES if name == golden.ENSEMBLE or not METHODS[name].network]
LATER = ["extremetext"]  # methods that version 0.1 did not have

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path):
    """Return the golden folder of a name, as one that may be written to."""
    return lambda name: golden.unpack(golden.MODELS, name, tmp_path)


def sealed(folder, name, content):
    """Write other bytes into a file of a folder, and a manifest that says so."""
    manifest = store.open_folder(folder).manifest
    (folder / name).write_bytes(content)
    entry = FileEntry(name, len(content), hashlib.sha256(content).hexdigest())
    files = tuple(entry if member.path == name else member for member in manifest.files)
    (folder / "manifest.json").write_bytes(encode(manifest.producer, manifest.config_hash, files))


def test_every_method_has_a_golden_folder():
    assert sorted(EXPECTED["models"]) == sorted(NAMES)
    assert sorted(file.stem for file in golden.MODELS.glob("*.zip")) == sorted(NAMES)
    assert sorted(golden.SETTINGS) == sorted(METHODS)


def test_golden_folders_are_small():
    assert sum(file.stat().st_size for file in golden.MODELS.iterdir()) < 1_500_000


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_and_predicts_the_same(folder, name):
    result = golden.predicted(lt.load(folder(name), device="cpu"), EXPECTED["texts"])
    tolerance = (
        1e-6 if name in LINEAR else 1e-5
    )  # sums may be rounded otherwise on another processor
    for row, expected in zip(result, EXPECTED["models"][name], strict=True):
        assert row["scores"] == pytest.approx(expected["scores"], rel=0, abs=tolerance)
        known = dict(zip(expected["labels"], expected["scores"], strict=True))
        for label, score in zip(row["labels"], row["scores"], strict=True):
            # labels of the same score may change places, and at the end of the list with the next
            # one
            assert score == pytest.approx(
                known.get(label, expected["scores"][-1]), rel=0, abs=2 * tolerance
            ), label


@pytest.mark.parametrize("name", LINEAR)
def test_labels_of_linear_models_are_in_the_same_order(folder, name):
    result = golden.predicted(lt.load(folder(name)), EXPECTED["texts"])
    assert [row["labels"] for row in result] == [row["labels"] for row in EXPECTED["models"][name]]


@pytest.mark.parametrize("name", [name for name in LINEAR if name != golden.ENSEMBLE])
def test_a_model_in_use_can_be_copied_and_pickled(folder, name):
    model = lt.load(folder(name))
    expected = golden.predicted(model, EXPECTED["texts"])
    pickled = pickle.loads(pickle.dumps(model))  # noqa: S301, made here
    for again in (copy.copy(model), copy.deepcopy(model), pickled):
        assert golden.predicted(again, EXPECTED["texts"]) == expected
    assert golden.predicted(model, EXPECTED["texts"]) == expected


@pytest.mark.parametrize(
    "name", ["xr-linear", "extremetext", "annexml", "pfastrexml", "eclare", "ensemble"]
)
def test_written_again_it_is_the_same_but_for_its_card(folder, tmp_path, name):
    before = folder(name)
    lt.load(before, device="cpu").save(tmp_path / "again")
    then, now = (store.open_folder(target).files for target in (before, tmp_path / "again"))
    changed = {path for path in then if path not in now or then[path].sha256 != now[path].sha256}
    # what came later is written with its default, of settings and of metrics; the card lists
    # settings, too
    free = ("README.md", "config.json", "manifest.json", "metrics.json")
    assert changed <= {path for path in then if path.endswith(free)}
    assert (
        now.keys() - {"network.json"} == then.keys()
    )  # the family of a network, which files told before
    for path in (path for path in changed if path.endswith("metrics.json")):
        older, newer = (
            json.loads((target / path).read_bytes()) for target in (before, tmp_path / "again")
        )
        assert newer.items() >= older.items()


@pytest.mark.parametrize("name", ["xr-linear", "cascadexml"])
def test_settings_that_a_folder_does_not_have_are_the_defaults(folder, name):
    path = folder(name)
    config = json.loads((path / "config.json").read_text())
    expected = golden.predicted(lt.load(path, device="cpu"), EXPECTED["texts"])
    for group, setting in [
        ("gandalf", "threshold"),
        ("training", "average"),
        ("tree", "min_gain"),
        ("ranker", "alpha"),
    ]:
        del config[group][setting]
    for group in ("neighbours", "recursive"):
        del config[group]
    sealed(path, "config.json", json.dumps(config).encode())
    loaded = lt.load(path, device="cpu")
    assert golden.predicted(loaded, EXPECTED["texts"]) == expected
    assert (loaded.config.gandalf.threshold, loaded.config.neighbours.learners) == (0.1, 15)
    assert "tree_kinds" not in config["label_features"]
    assert loaded.config.label_features.kinds == {config["label_features"]["kind"]}


def test_settings_of_attentionxml_were_in_other_groups(folder):
    path = folder("attentionxml")
    config = json.loads((path / "config.json").read_text())
    recursive = {"shortlist": 7, "dropout": 0.25, "epochs": [], "steps": [3], "warmup_steps": 2}
    config["recursive"] |= recursive
    config["cascade"] |= {"levels": [8], "last_level": "auto"}
    sealed(path, "config.json", json.dumps(config).encode())
    loaded = lt.load(path, device="cpu")
    assert loaded.config.attention == Attention(
        levels=(8,), last_level="shortlist", shortlist=7, dropout=0.25, steps=(3,), warmup_steps=2
    )
    loaded.save(path.parent / "again")
    assert lt.load(path.parent / "again", device="cpu").config == loaded.config


@pytest.mark.parametrize(("name", "kind"), [("decaf", "surrogate"), ("inceptionxml-lf", "tied")])
def test_phases_were_settings_of_label_text(folder, name, kind):
    path = folder(name)
    config = json.loads((path / "config.json").read_text())
    assert "phases" not in config
    config["label_text"] |= {"first_share": 0.25, "first_rate": 0.5, "shortlist": 9}
    sealed(path, "config.json", json.dumps(config).encode())
    loaded = lt.load(path, device="cpu").config
    assert loaded.phases == Phases(kind=kind, first_share=0.25, first_rate=0.5, shortlist=9)
    assert list(loaded.label_text.parts) == config["label_text"]["parts"]


@pytest.mark.parametrize("name", [name for name in LINEAR if name not in (golden.ENSEMBLE, *LATER)])
def test_version_0_1_took_given_features_as_they_were(folder, tmp_path, name):
    loaded = lt.load(folder(name))
    assert not loaded.config.normalise_features
    loaded.save(tmp_path / "again")
    assert not lt.load(tmp_path / "again").config.normalise_features


def test_a_folder_without_the_setting_does_not_scale_features(tmp_path):
    train, test = (documents.take(np.arange(80)) for documents in lt.sample())
    vectoriser, rows = lt.TfIdf.fit_transform(train.texts)
    fit = lt.Longtail("xr-linear", normalise_features=False).fit
    model = fit(train.with_features(3 * rows))
    long = test.with_features(5 * vectoriser.transform(test.texts))
    model.save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config.pop("normalise_features") is False
    sealed(tmp_path / "model", "config.json", json.dumps(config).encode())
    result = lt.load(tmp_path / "model").predict(long).matrix
    assert (result != model.predict(long).matrix).nnz == 0


@pytest.mark.parametrize("setting", ["shiny", "ranker.shiny"])
def test_a_setting_of_a_newer_version_is_refused_by_name(folder, setting):
    path = folder("xr-linear")
    config = json.loads((path / "config.json").read_text())
    group, _, key = setting.rpartition(".")
    (config[group] if group else config)[key] = 1
    sealed(path, "config.json", json.dumps(config).encode())
    with pytest.raises(ModelFolderError, match=r"config\.json.*unknown field `shiny`"):
        lt.load(path)


def test_a_newer_format_is_refused_with_the_way_out(folder):
    path = folder("xr-linear")
    manifest = (path / "manifest.json").read_bytes()
    newer = re.sub(rb'"format": \d+', b'"format": %d, "more": true' % (FORMAT + 1), manifest)
    (path / "manifest.json").write_bytes(newer)
    message = f"format {FORMAT + 1} was made by a newer version of longtail; this one reads up to format {FORMAT}"
    with pytest.raises(ModelFolderError, match=rf"manifest\.json: {message}; upgrade longtail"):
        lt.load(path)


def test_what_was_predicted_then_is_worth_comparing():
    for name, rows in EXPECTED["models"].items():
        assert len(rows) == golden.N_TEXTS, name
        assert len({tuple(row["labels"]) for row in rows}) > 1, name
        assert all(np.isfinite(row["scores"]).all() and row["scores"][0] > 0 for row in rows), name


@pytest.mark.parametrize("name", ["xr-linear", "ensemble"])
@pytest.mark.parametrize(
    ("counts", "found"),
    [
        (lambda counts: -1 - counts, "label counts below 0"),
        (lambda counts: counts[1:], "label counts of"),
        (lambda counts: counts / 2, "float64"),
    ],
    ids=["negative", "too few", "no whole numbers"],
)
def test_label_counts_that_are_none_are_refused(folder, tmp_path, name, counts, found):
    path = folder(name)
    known = np.array(store.open_folder(path).arrays("label_counts.safetensors")["counts"])
    with store.write_folder(tmp_path / "other") as other:
        other.write_arrays("label_counts.safetensors", {"counts": counts(known)})
    sealed(
        path,
        "label_counts.safetensors",
        (tmp_path / "other" / "label_counts.safetensors").read_bytes(),
    )
    with pytest.raises(ModelFolderError, match=found):
        lt.load(path, device="cpu")
