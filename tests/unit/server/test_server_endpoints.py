"""Every endpoint, as its contract says, against the model itself."""

from __future__ import annotations

import asyncio
import json
import re
import threading

import msgspec
import numpy as np
import pytest
from asking import run
from server_model import training_documents

import longtail as lt
from longtail.pipeline import predict
from longtail.server.label_neighbours import shortened
from longtail.server.openapi import ENDPOINTS
from longtail.server.service import Asked, load_service

TEXT = "A ship with a sail on the sea, and wind in it: WIND and storm"


def ask(serving, method, path, body=None, **settings):
    async def question(served):
        return await served.client.request(method, path, json=body)

    response = run(serving, question, **settings)
    assert response.status_code == 200, response.text
    return response.json()


def test_predicts_as_the_model_does(serving, service):
    documents = [{"id": "a", "text": TEXT}, {"text": "bread from the oven"}, {"id": "", "text": ""}]
    body = ask(serving, "POST", "/v1/predict", {"documents": documents, "k": 3})
    expected = predict(service.model, [document["text"] for document in documents], 3)
    assert [own["id"] for own in body["predictions"]] == ["a", None, ""]
    for own, ranked in zip(body["predictions"], expected, strict=True):
        assert [tuple(label.values()) for label in own["labels"]] == [
            tuple(label) for label in ranked
        ]
    assert len(body["predictions"][0]["labels"]) == 3
    assert body["model"] == {"name": "energy", "version": service.name.version}


def test_settings_of_a_prediction(serving, service):
    def labels(**settings):
        body = ask(serving, "POST", "/v1/predict", {"documents": [{"text": TEXT}], **settings})
        return [(label["id"], label["score"]) for label in body["predictions"][0]["labels"]]

    every = labels(k=9)
    assert len(labels()) == 5
    assert labels(k=2) == every[:2]
    assert labels(k=2.0) == every[:2]
    least = every[1][1]
    assert labels(k=9, threshold=least) == [pair for pair in every if pair[1] >= least]
    banned = every[0][0]
    assert banned not in dict(labels(k=9, exclude=[banned, "unknown"]))
    narrow = predict(service.model, [TEXT], 9, beam_size=1)[0]
    assert labels(k=9, beam_size=1) == [(label.id, label.score) for label in narrow] != every


def test_excluded_labels_are_looked_up_once_for_all_documents_of_a_request(service):
    class Names(tuple):
        lookups = 0

        def __iter__(self):
            Names.lookups += 1
            return super().__iter__()

    names = Names(("ship", "unknown"))
    asked = [Asked(TEXT, 3, 0.0, names) for _ in range(20)]
    found = service.predict(service.key(3, None), asked)
    assert Names.lookups == 1
    assert len(found) == 20
    assert all(label.id != "ship" for labels in found for label in labels)


def test_no_document_has_no_prediction(serving):
    assert ask(serving, "POST", "/v1/predict", {"documents": []})["predictions"] == []


def test_a_document_is_answered_as_if_alone(serving, service):
    """Requests of different k, threshold and exclusions share batches, and none of them shows."""
    asked = [
        {
            "documents": [{"text": " ".join(TEXT.split()[n:])}],
            "k": 1 + n % 4,
            "exclude": ["ship"] if n % 3 else [],
        }
        for n in range(12)
    ]

    async def together(served):
        return await asyncio.gather(
            *(served.client.post("/v1/predict", json=body) for body in asked)
        )

    for body, response in zip(asked, run(serving, together), strict=True):
        alone = predict(
            service.model, [body["documents"][0]["text"]], body["k"], exclude=[body["exclude"]]
        )[0]
        found = response.json()["predictions"][0]["labels"]
        assert [(label["id"], label["score"]) for label in found] == [
            (label.id, label.score) for label in alone
        ]


def test_waiting_documents_share_batches(serving, service, monkeypatch):
    sizes, gate = [], threading.Event()
    predict = type(service).predict

    def held(self, key, asked):
        sizes.append(len(asked))
        assert gate.wait(200)
        return predict(self, key, asked)

    async def together(served):
        monkeypatch.setattr(type(service), "predict", held)
        waiting = [asyncio.create_task(served.predict(TEXT))]
        while not sizes:
            await asyncio.sleep(0.001)
        waiting += [asyncio.create_task(served.predict(TEXT, k=1 + n)) for n in range(8)]
        while served.server.batcher.documents < 8:
            await asyncio.sleep(0.001)
        gate.set()
        return await asyncio.gather(*waiting)

    assert [response.status_code for response in run(serving, together)] == [200] * 9
    assert sizes == [1, 8]


def test_of_many_labels_k_is_part_of_the_key(service):
    assert service.key(5, None) == service.key(50, None) != service.key(51, None)
    assert service.key(51, None) != service.key(52, None)
    assert service.key(5, 3) != service.key(5, None)


def test_explains_as_the_command_does(serving, service):
    body = ask(serving, "POST", "/v1/explain", {"text": TEXT, "label": "Wind power"})
    highlights = body.pop("highlights")
    explanation = service.model.explain(TEXT, "wind")
    assert body == msgspec.json.decode(msgspec.json.encode(explanation))
    totals = dict(explanation.summed())
    shown = [(TEXT[own["start"] : own["end"]], own["weight"]) for own in highlights]
    assert shown == [(word, totals[word.lower()]) for word, _ in shown]
    assert {"wind", "WIND", "storm"} <= {word for word, _ in shown}
    assert shown[0][0] == "ship"
    assert [own["start"] for own in highlights] == sorted({own["start"] for own in highlights})


def test_nothing_to_highlight(serving):
    assert ask(serving, "POST", "/v1/explain", {"text": "?!", "label": "wind"})["highlights"] == []


def test_the_way_through_the_tree(serving, service):
    levels = ask(serving, "POST", "/v1/path", {"text": TEXT, "label": "cheese", "alternatives": 2})[
        "levels"
    ]
    tree = service.model.tree
    assert [level["level"] for level in levels] == list(range(1, tree.n_levels + 1))
    column = service.model.labels.columns["cheese"]
    scores = np.cumprod([step.score for step in service.model.explain(TEXT, "cheese").steps])
    for level, node, score in zip(levels, tree.ancestors(column), scores, strict=True):
        assert len(level["nodes"]) <= 2
        (own,) = [found for found in level["nodes"] if found["on_path"]]
        assert (own["node"], own["score"]) == (node, pytest.approx(score, rel=1e-3))
        assert all(1 <= len(found["names"]) <= 5 <= 5 * found["labels"] for found in level["nodes"])
    assert {"cheese"} < {node["label"] for node in levels[-1]["nodes"]} | {""}
    assert all("label" not in node for level in levels[:-1] for node in level["nodes"])


def test_the_way_to_the_best_label(serving, service):
    levels = ask(serving, "POST", "/v1/path", {"text": TEXT})["levels"]
    best = predict(service.model, [TEXT], 1)[0][0].id
    assert [node["label"] for node in levels[-1]["nodes"] if node["on_path"]] == [best]
    for level in levels:
        scores = [node["score"] for node in level["nodes"]]
        assert scores == sorted(scores, reverse=True)
    assert levels[0]["nodes"][0]["labels"] > 1
    raw = service.model.rankers[0].search(
        service.model.features([TEXT]), service.model.config.search, 5
    )
    assert [node["score"] for node in levels[-1]["nodes"]] == pytest.approx(raw.data.tolist())


def test_describes_the_model(serving, service, model_folder):
    body = ask(serving, "GET", "/v1/model")
    assert (body["name"], body["method"], body["labels"]) == ("energy", "xr-linear", 9)
    assert (
        body["version"] == json.loads((model_folder / "manifest.json").read_text())["sha256"][:12]
    )
    assert body["documents"] == service.model.facts.documents
    assert body["metrics"]["P@1"] == service.model.metrics["P@1"]
    assert (body["calibrated"], body["has_tree"], body["has_text"], body["has_examples"]) == (
        True,
    ) * 4
    assert body["card"] == (model_folder / "README.md").read_text()
    assert body["latency"] == {"requests": 0, "p50_ms": None, "p99_ms": None}
    assert body["limits"]["documents"] == 256
    assert body["shards"] is None
    assert ask(serving, "GET", "/v1/model", shards=(2, 0, 2))["shards"] == [0, 2]


def test_latency_is_that_of_predictions(serving):
    async def question(served):
        for _ in range(4):
            await served.predict(TEXT)
        return (await served.client.get("/v1/model")).json()["latency"]

    latency = run(serving, question)
    assert latency["requests"] == 4
    assert 0 < latency["p50_ms"] <= latency["p99_ms"] < 10_000


def test_finds_labels(serving, service):
    def found(query, limit=20):
        body = ask(serving, "GET", f"/v1/labels?query={query}&limit={limit}")
        return [label["id"] for label in body["labels"]], body["total"]

    counts = dict(zip(service.model.labels.ids, service.model.label_counts.tolist(), strict=True))
    everything, total = found("")
    assert total == 9
    assert everything == sorted(everything, key=lambda label: -counts[label])
    assert found("POWER")[1] == 2
    assert set(found("windkraft")[0]) == set(found("eolic")[0]) == {"wind"}
    assert found("s")[0][:3] == sorted(["sun", "sea", "ship"], key=lambda label: -counts[label])
    assert "cheese" in found("s")[0][3:]
    assert found("e", limit=2)[1] > 2 == len(found("e", limit=2)[0])
    assert found("%0A") == found("")
    assert found(".*") == ([], 0)


def test_describes_a_label(serving):
    documents = training_documents()
    body = ask(serving, "GET", "/v1/label?id=wind")
    assert (body["id"], body["name"], body["text"]) == (
        "wind",
        "Wind power",
        "Energy from moving air",
    )
    assert (body["aliases"], body["uri"]) == (
        ["Windkraft", "eolic energy"],
        "https://example.org/wind",
    )
    column = documents.labels.columns["wind"]
    matrix = documents.label_matrix.toarray() > 0
    together = matrix[matrix[:, column]].sum(0)
    cosines = {
        documents.labels.ids[at]: count / np.sqrt(together[column] * matrix[:, at].sum())
        for at, count in enumerate(together)
        if count and at != column
    }
    assert {own["id"]: own["weight"] for own in body["neighbours"]} == pytest.approx(cosines)
    weights = [own["weight"] for own in body["neighbours"]]
    assert weights == sorted(weights, reverse=True)
    rows = np.flatnonzero(matrix[:, column])[:5].tolist()
    assert body["examples"] == [{"id": None, "text": documents.texts[row]} for row in rows]
    assert ask(serving, "GET", "/v1/label?id=cheese")["text"] is None
    assert ask(serving, "GET", "/v1/label?id=Solar+power")["id"] == "sun"


def test_without_documents_neighbours_are_siblings(serving, model_folder):
    alone = load_service(model_folder, "cpu", 1, None)
    body = ask(serving, "GET", "/v1/label?id=wind", own=alone)
    assert body["examples"] == []
    assert body["neighbours"]
    assert {own["weight"] for own in body["neighbours"]} == {None}
    assert "wind" not in [own["id"] for own in body["neighbours"]]
    assert ask(serving, "GET", "/v1/model", own=alone)["has_examples"] is False


def test_a_long_example_is_cut(model_folder):
    documents = shortened(lt.Dataset.of(["x" * 1000, "y" * 300], [["wind"], ["milk"]]))
    known = load_service(model_folder, "cpu", 1, None, documents)
    assert known.label("wind").examples[0].text == "x" * 299 + "…"
    assert known.label("milk").examples[0].text == "y" * 300
    assert known.label("sun").examples == known.label("sun").neighbours == []


def test_health_and_metrics(serving, service):
    async def question(served):
        await asyncio.gather(*(served.predict(TEXT, TEXT) for _ in range(3)))
        await served.client.get("/nowhere/at/all")
        return [
            await served.client.get(path) for path in ("/health/live", "/health/ready", "/metrics")
        ]

    live, ready, metrics = run(serving, question)
    assert (live.json(), ready.json()) == ({"status": "live"}, {"status": "ready"})
    lines = metrics.text.splitlines()
    assert 'longtail_requests_total{path="/v1/predict",status="200"} 3.0' in lines
    assert 'longtail_requests_total{path="other",status="404"} 1.0' in lines
    assert "longtail_batch_documents_sum 6.0" in lines
    assert "longtail_shed_total 0.0" in lines
    assert "longtail_queue_documents 0.0" in lines
    info = f'longtail_model_info{{method="xr-linear",name="energy",version="{service.name.version}"}} 1.0'
    assert info in lines
    for stage in ("read", "queue", "model", "write"):
        assert f'longtail_stage_seconds_count{{stage="{stage}"}} 3.0' in lines


def test_documents_itself(serving):
    document = ask(serving, "GET", "/openapi.json")
    assert {(path, method) for path, own in document["paths"].items() for method in own} == {
        (endpoint.path, endpoint.method.lower()) for endpoint in ENDPOINTS
    }
    text = json.dumps(document)
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert name in document["components"]["schemas"]

    async def question(served):
        return await served.client.get("/docs")

    page = run(serving, question)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<script" not in page.text
    assert "style=" not in page.text
    assert "https://" not in page.text
    assert all(f"{endpoint.method} {endpoint.path}" in page.text for endpoint in ENDPOINTS)


def test_an_ensemble_is_served_like_a_model(serving, tmp_path, model_folder):
    other = lt.Longtail(
        "xr-linear", seed=1, tfidf=[{"unit": "char", "ngram_min": 2, "ngram_max": 3}]
    )
    other.fit(training_documents()).save(tmp_path / "other")
    lt.ensemble([model_folder, tmp_path / "other"]).save(tmp_path / "both")
    both = load_service(tmp_path / "both", "cpu", 1, None)
    body = ask(serving, "POST", "/v1/predict", {"documents": [{"text": TEXT}]}, own=both)
    expected = predict(both.model, [TEXT])[0]
    assert [label["id"] for label in body["predictions"][0]["labels"]] == [
        label.id for label in expected
    ]
    body = ask(serving, "POST", "/v1/explain", {"text": TEXT, "label": "wind"}, own=both)
    assert [member["method"] for member in body["members"]] == ["xr-linear", "xr-linear"]
    ends = [0, *(own["end"] for own in body["highlights"])]
    assert all(own["start"] >= end for own, end in zip(body["highlights"], ends, strict=False))
    levels = ask(serving, "POST", "/v1/path", {"text": TEXT, "label": "wind"}, own=both)["levels"]
    assert [node["label"] for node in levels[-1]["nodes"] if node["on_path"]] == ["wind"]
    assert ask(serving, "GET", "/v1/model", own=both)["method"] == "ensemble"


def test_models_without_a_tree_have_no_way_to_show(serving, tmp_path):
    lt.Longtail("dismec", seed=0).fit(training_documents()).save(tmp_path / "flat")
    flat = load_service(tmp_path / "flat", "cpu", 1, None)
    assert ask(serving, "POST", "/v1/path", {"text": TEXT}, own=flat) == {"levels": []}
    assert ask(serving, "GET", "/v1/model", own=flat)["has_tree"] is False
    assert ask(serving, "GET", "/v1/label?id=wind", own=flat)["neighbours"] == []


def test_a_beam_for_all_requests(model_folder):
    narrow = load_service(model_folder, "cpu", 1, 1)
    found = narrow.predict(narrow.key(9, None), [Asked(TEXT, 9, 0.0, ())])[0]
    assert [label.id for label in found] == [
        label.id for label in predict(narrow.model, [TEXT], 9, beam_size=1)[0]
    ]
