"""The examples of docs/adding-a-method.md, installed as packages of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import longtail as lt
from longtail.errors import LongtailError

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
PAGE = (ROOT / "docs" / "adding-a-method.md").read_text()


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder of installed packages: each example with the entry point that the page shows."""
    folder = tmp_path_factory.mktemp("packages")
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, folder)
    for example in sorted(EXAMPLES.glob("*_method.py")):
        about = folder / f"{example.stem}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {example.stem}\nVersion: 1.0\n"
        )
        (about / "entry_points.txt").write_text(
            f"[longtail.methods]\n{example.stem} = {example.stem}:register\n"
        )
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    train, test = lt.sample()
    lt.write(train.take(np.arange(2000)), folder / "train.jsonl")
    lt.write(test.take(np.arange(300)), folder / "test.jsonl")
    return folder


@pytest.fixture(scope="module")
def longtail(packages):
    """Runs the command in a process of its own, which finds the packages."""
    paths = [str(packages), str(Path(lt.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    def run(*arguments, expected=0):
        command = [sys.executable, "-m", "longtail", *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == expected, done.stderr
        return done.stdout if expected == 0 else done.stderr

    return run


@pytest.fixture(scope="module")
def knn(longtail, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("knn") / "model"
    longtail("train", files / "train.jsonl", "-o", folder, "--method", "knn")
    return folder


class TestKnn:
    def test_ranks_by_the_votes_of_the_nearest_documents(self, longtail, knn, files):
        evaluation = json.loads(longtail("evaluate", knn, files / "test.jsonl", "--json"))
        texts = lt.read(files / "train.jsonl"), lt.read(files / "test.jsonl")
        precision = evaluation["evaluation"]["metrics"]["P@1"]
        assert precision > 0.45
        assert precision == pytest.approx(_brute_force(*texts), abs=0.03)

    def test_is_explained_by_words(self, longtail, knn):
        words = "A small editor for sound files"
        shown = longtail("explain", knn, words, "--label", "role::program")
        assert "nearest documents" in shown
        assert "sound" in shown

    def test_is_in_the_catalogue_and_the_card(self, longtail, knn):
        assert "votes of the nearest training documents" in longtail("methods")
        assert re.search(r"\| training documents \| [\d,]+ \|", longtail("info", knn))

    def test_settings_are_checked_before_training(self, longtail, files, tmp_path):
        command = "train", files / "train.jsonl", "-o", tmp_path / "model", "--method", "knn"
        error = longtail(*command, "--set", "custom.neighbors=3", expected=2)
        assert "unknown field `neighbors`" in error
        error = longtail(*command, "--set", "custom.neighbours=0", expected=2)
        assert "custom.neighbours: expected at least 1" in error
        assert not (tmp_path / "model").exists()

    def test_is_unknown_without_its_package(self, knn):
        with pytest.raises(LongtailError, match="unknown method 'knn'"):
            lt.Longtail("knn")
        with pytest.raises(LongtailError, match="method 'knn', which is not known here; install"):
            lt.load(knn)


def _brute_force(train, test):
    """P@1 of ten nearest neighbours by scikit-learn's tf-idf with the settings of the example."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer()
    rows = vectoriser.fit_transform(list(train.texts))
    cosines = (vectoriser.transform(list(test.texts)) @ rows.T).toarray()
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :10]
    votes = np.zeros_like(cosines)
    np.put_along_axis(votes, nearest, np.take_along_axis(cosines, nearest, 1), 1)
    best = (votes @ train.label_matrix).argmax(1)
    names = [train.labels.ids[label] for label in best]
    hits = [
        name in {test.labels.ids[label] for label in test.label_matrix[[row]].indices}
        for row, name in enumerate(names)
    ]
    return np.mean(hits)


def test_an_encoder_of_another_package_trains_and_loads(longtail, files, tmp_path):
    model = tmp_path / "model"
    fast = ("--set", "training.epochs=4", "--set", "encoder.max_tokens=32")
    longtail("train", files / "train.jsonl", "-o", model, "--method", "max-pool", *fast)
    shown = json.loads(longtail("evaluate", model, files / "test.jsonl", "--json"))
    assert shown["evaluation"]["metrics"]["P@1"] > 0.4
    assert json.loads((model / "encoder" / "config.json").read_text())["kind"] == "max-pool"
    with pytest.raises(LongtailError, match="max-pool"):
        lt.load(model)


def test_the_page_names_the_examples_and_members_that_exist():
    for example in EXAMPLES.glob("*.py"):
        assert f"examples/{example.name}" in PAGE
    from longtail.networks.base import NetworkFamily
    from longtail.networks.encoders.kinds import WordEncoderKind
    from longtail.rankers.base import RankerFamily

    section = PAGE.partition("member of `RankerFamily`")[2].partition("**`register()`**")[0]
    members = re.findall(r"`(\w+)[`(]", section)
    assert {"fit", "load", "check", "forecast", "reads"} <= set(members)
    for name in set(members) & {"fit", "load", "check", "forecast", "card_rows", "tuning_space"}:
        assert hasattr(RankerFamily, name)
    for name in ("check_levels", "check_loss", "check_processes", "levels", "save", "plan"):
        assert f"`{name}" in PAGE
        assert hasattr(NetworkFamily, name)
    for name in ("reads_label_words", "normalises_over_batch", "trains_in_processes", "depth"):
        assert f"`{name}`" in PAGE
        assert hasattr(WordEncoderKind, name)
