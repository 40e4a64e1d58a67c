"""The backend inside the real Annif: its commands, its Python interface, and its errors."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest

pytest.importorskip(
    "annif.backend", reason="Annif is not installed; `make annif-test` runs this beside it"
)

import annif.backend
from annif.corpus import Document, DocumentFileTSV
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.registry import AnnifRegistry

import longtail as lt
from longtail.annif_backend import LongtailBackend, create_app, register
from longtail.data.annif import (
    write_annif_csv,
    write_annif_folder,
    write_annif_tsv,
    write_annif_vocabulary,
)

URI = "http://example.org/tag/"
PROJECTS = """
[tags]
name=Tags of Debian packages
language=en
backend=longtail
vocab=tags
limit=10
tree.branching=8
seed=3

[parabel]
name=Another method
language=en
backend=longtail
method=parabel
vocab=tags

[wrong]
name=A setting that is none
language=en
backend=longtail
vocab=tags
tree.branchin=8
"""


def with_uris(documents):
    """Return the documents with labels as Annif wants them: URIs, with names."""
    labels = [
        lt.Label(URI + label.replace("::", "/"), label, uri=URI + label)
        for label in documents.labels.ids
    ]
    return lt.Dataset(documents.label_matrix, lt.Labels.of(labels), documents.texts)


@pytest.fixture(scope="module")
def data():
    return tuple(map(with_uris, lt.sample()))


@pytest.fixture(scope="module")
def place(data, tmp_path_factory):
    """Return a folder with projects, vocabulary, corpora, and the project «tags» trained by the
    command.
    """
    folder = tmp_path_factory.mktemp("annif")
    train, test = data
    (folder / "projects.cfg").write_text(PROJECTS)
    write_annif_vocabulary(train.labels, folder / "tags.tsv")
    write_annif_tsv(train, folder / "train.tsv")
    write_annif_tsv(test.take(np.arange(50)), folder / "test.tsv")
    annif_command(folder, "load-vocab", "tags", "--language", "en", "tags.tsv")
    annif_command(folder, "train", "tags", "train.tsv")
    return folder


def annif_command(folder, *arguments, text=None, fails=False):
    """Return what the command says, errors behind results."""
    command = [sys.executable, "-m", "longtail.annif_backend", *arguments]
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True)
    assert bool(done.returncode) is fails, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def projects(place):
    """Return Annif's registry of the projects, as its own program has it."""
    register()
    return AnnifRegistry(str(place / "projects.cfg"), str(place / "data"), init_projects=False)


def project(projects, name):
    from annif.registry import Access

    return projects.get_projects(min_access=Access.private)[name]


class TestCommands:
    def test_training_leaves_a_model_folder(self, place):
        model = lt.load(place / "data" / "projects" / "tags" / "longtail-model")
        assert (model.config.tree.branching, model.config.seed) == (8, 3)
        assert model.model.labels[0].name
        assert model.model.labels.ids[0].startswith(URI)

    def test_suggest(self, place, data):
        text = data[1].texts[0]
        lines = annif_command(place, "suggest", "tags", "--limit", "4", text=text).splitlines()
        result = [line.split("\t") for line in lines if line.startswith("<")]
        assert 0 < len(result) <= 4
        model = lt.load(place / "data" / "projects" / "tags" / "longtail-model")
        best = model.predict([text], 4)[0]
        assert result[0][0] == f"<{best[0].id}>"
        assert result[0][1] == best[0].name
        assert float(result[0][2]) == pytest.approx(best[0].score, abs=1e-3)

    def test_eval(self, place):
        table = annif_command(place, "eval", "tags", "test.tsv")
        scores = dict(
            line.rsplit(":", 1)
            for line in table.splitlines()
            if line.startswith(("F1@5", "NDCG@5"))
        )
        assert float(scores["F1@5"]) > 0.4

    def test_eval_in_several_processes(self, place):
        one, two = (annif_command(place, "eval", "tags", "test.tsv", "--jobs", n) for n in "12")
        assert [line for line in one.splitlines() if "@" in line] == [
            line for line in two.splitlines() if "@" in line
        ]

    def test_list_projects(self, place):
        assert "tags" in annif_command(place, "list-projects")

    def test_a_wrong_setting_is_one_line(self, place):
        output = annif_command(place, "train", "wrong", "train.tsv", fails=True)
        assert "unknown setting 'tree.branchin'; did you mean 'tree.branching'" in output
        assert "Traceback" not in output

    def test_corpora_that_longtail_writes(self, place, data):
        documents = data[1].take(np.arange(20))
        write_annif_csv(documents, place / "test.csv")
        write_annif_folder(documents, place / "folder")
        write_annif_tsv(documents, place / "same.tsv")
        tables = [
            annif_command(place, "eval", "tags", corpus)
            for corpus in ("test.csv", "folder", "same.tsv")
        ]
        assert (
            len({tuple(line for line in table.splitlines() if "@" in line) for table in tables})
            == 1
        )


class TestBackend:
    def test_limit_and_threshold_of_suggestions(self, projects, data):
        texts = [Document(text=data[1].texts[row]) for row in range(5)]
        member = project(projects, "tags")
        batch = member.suggest(texts)
        assert [len(result) for result in batch] == [10] * 5
        assert [len(result) for result in member.suggest(texts, {"longtail": {"limit": 3}})] == [
            3
        ] * 5
        scores = [suggestion.score for suggestion in batch[0]]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)

    def test_a_narrow_beam(self, projects, data):
        texts = [Document(text=data[1].texts[row]) for row in range(20)]
        member = project(projects, "tags")
        wide, narrow = (
            member.suggest(texts, {"longtail": params}).array for params in ({}, {"beam_size": "1"})
        )
        assert (narrow != wide).nnz

    def test_suggestions_are_numbers_of_subjects(self, projects, data):
        member = project(projects, "tags")
        (result,) = member.suggest([Document(text=data[0].texts[0])])
        uris = {member.subjects[suggestion.subject_id].uri for suggestion in result}
        assert uris & set(data[0].labels_of(0))

    def test_parameters_of_one_training(self, projects, place):
        member = project(projects, "parabel")
        assert not member.is_trained
        with pytest.raises(NotInitializedException):
            member.suggest([Document(text="x")])
        with pytest.raises(NotInitializedException, match="not found"):
            member.backend.initialize()
        corpus = DocumentFileTSV(str(place / "test.tsv"), member.subjects)
        member.train(corpus, {"longtail": {"ranker.trees": "2"}}, jobs=1)
        assert member.is_trained
        config = lt.load(place / "data" / "projects" / "parabel" / "longtail-model").config
        assert (config.method, config.ranker.trees) == ("parabel", 2)

    def test_a_subject_that_has_left_the_vocabulary(self, projects, data):
        member = project(projects, "tags")
        member.backend.initialize()
        (before,) = member.suggest([Document(text=data[0].texts[0])])
        gone = next(iter(before)).subject_id
        member.backend._columns[member.backend._columns == gone] = -1
        (after,) = member.suggest([Document(text=data[0].texts[0])])
        assert gone not in {suggestion.subject_id for suggestion in after}
        assert len(after) == len(before) - 1

    def test_what_is_not_supported(self, projects, place):
        member = project(projects, "tags")
        with pytest.raises(NotSupportedException):
            member.learn(DocumentFileTSV(str(place / "test.tsv"), member.subjects))
        with pytest.raises(NotSupportedException, match="cached"):
            member.train("cached")
        (place / "empty.tsv").write_text("a text\t<http://example.org/unknown>\n")
        with pytest.raises(NotSupportedException, match="no documents"):
            member.train(DocumentFileTSV(str(place / "empty.tsv"), member.subjects))
        assert member.is_trained

    def test_errors_are_annifs(self, projects, place):
        member = project(projects, "wrong")
        corpus = DocumentFileTSV(str(place / "test.tsv"), member.subjects)
        with pytest.raises(ConfigurationException, match="unknown setting"):
            member.train(corpus)
        broken = project(projects, "tags")
        broken.backend._tagger = None
        broken.backend.datadir = str(place / "broken")
        (place / "broken" / "longtail-model").mkdir(parents=True)
        (place / "broken" / "longtail-model" / "manifest.json").write_text("{}")
        with pytest.raises(OperationFailedException, match="manifest"):
            broken.suggest([Document(text="x")])

    def test_the_application_knows_the_backend(self, monkeypatch, place):
        monkeypatch.chdir(place)
        with create_app(config_name="annif.default_config.Config").test_client() as client:
            answer = client.get("/v1/projects").json()
        assert {member["backend"]["backend_id"] for member in answer["projects"]} == {"longtail"}
        assert annif.backend.get_backend("longtail") is LongtailBackend


def test_gunicorn_serves_it(place):
    """As the documentation has it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    command = "-m", "gunicorn", "-k", "uvicorn.workers.UvicornWorker", "-b", address
    server = subprocess.Popen(
        [sys.executable, *command, "longtail.annif_backend:create_app()"], cwd=place
    )
    try:
        answer = suggestions(f"http://{address}/v1/projects/tags/suggest", "a library for images")
    finally:
        server.terminate()
        server.wait(30)
    assert len(answer["results"]) == 10
    assert answer["results"][0]["uri"].startswith(URI)


def suggestions(url, text):
    """Return what a server that is still starting answers in the end."""
    for _ in range(120):
        try:
            with urllib.request.urlopen(
                url, urllib.parse.urlencode({"text": text}).encode(), timeout=60
            ) as answer:
                return json.load(answer)
        except (ConnectionError, urllib.error.URLError):
            time.sleep(0.5)
    pytest.fail(f"{url}: no answer")
