"""`evaluate` and `compare` measure a benchmark as its papers do: by its propensities and its filter file."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import longtail as lt
from longtail.evaluation import evaluate_model, evaluate_predictions
from longtail.models.model import Model
from longtail.pipeline import predict

NAME = "LF-AmazonTitles-131K"
N_TEST = 60
SMALL = {"ranker": {"max_passes": 3}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A label-feature set by the name of a benchmark with models of it, one with its labels in another order."""
    place = tmp_path_factory.mktemp("published")
    train, test = lt.sample()
    for documents, n, split in ((train, 200, "train"), (test, N_TEST, "test")):
        lt.write(documents.take(np.arange(n)), place / NAME, format="lf", split=split)
    train = lt.read(place / NAME)
    lt.Longtail("xr-linear", **SMALL).fit(train).save(place / "model")
    turned = train.with_labels(lt.Labels.of([*train.labels][::-1]))
    lt.Longtail("xr-linear", **SMALL).fit(turned).save(place / "turned")
    return place


@pytest.fixture(scope="module")
def test_set(place):
    return lt.read(place / NAME, split="test")


@pytest.fixture(scope="module")
def pairs(place, test_set):
    """Write a filter file of the first prediction of every other document; return its pairs with labels by id."""
    ranked = lt.load(place / "model").predict(test_set, 1)
    found = [(row, ranked[row][0].id) for row in range(0, N_TEST, 2)]
    columns = test_set.labels.columns
    lines = "".join(f"{row} {columns[label]}\n" for row, label in found)
    (place / NAME / "filter_labels_test.txt").write_text(lines)
    return found


def precision_by_hand(model, test, pairs, k):
    """Return P@k over documents with labels, where pairs (document, label id) are passed over."""
    hits = []
    for row, ranked in enumerate(model.predict(test, k + 1)):
        kept = [label.id for label in ranked if (row, label.id) not in pairs][:k]
        if test.labels_of(row):
            hits.append(len({*kept} & {*test.labels_of(row)}))
    return np.mean(hits) / k


@pytest.mark.parametrize("model", ["model", "turned"])
def test_the_filter_file_beside_the_data_is_used(run, place, test_set, pairs, model):
    arguments = ("evaluate", place / model, place / NAME, "-k", "1,3", "--json")
    found = run(*arguments).json()["evaluation"]
    assert (found["filter"], found["filter_pairs"]) == ("filter_labels_test.txt", len(pairs))
    without = run(*arguments, "--no-filter").json()["evaluation"]
    assert (without["filter"], without["filter_pairs"]) == ("", 0)
    loaded = lt.load(place / model)
    for k in (1, 3):
        assert found["metrics"][f"P@{k}"] == pytest.approx(
            precision_by_hand(loaded, test_set, pairs, k)
        )
        assert without["metrics"][f"P@{k}"] == pytest.approx(
            precision_by_hand(loaded, test_set, [], k)
        )
    assert without["metrics"]["P@3"] > found["metrics"]["P@3"]


def test_it_is_named_where_metrics_are(run, place, pairs, tmp_path):
    said = f"filtered by filter_labels_test.txt, {len(pairs)} pairs"
    constants = f"propensity A=0.6 B=2.6 (by the name {NAME})"
    report = tmp_path / "report.html"
    for command in ("evaluate", "compare"):
        done = run(command, place / "model", place / NAME, "--bootstrap", 5, "--report", report)
        assert done.code == 0
        for page in (done.out, report.read_text()):
            assert f"{constants}; {said}" in page, command
    assert str(lt.load(place / "model").evaluate(lt.read(place / NAME, split="test"))).endswith(
        f"{constants}; {said}"
    )


def test_another_file_is_used_in_its_place(run, fails, place, test_set, pairs, tmp_path):
    column = test_set.labels.columns[lt.load(place / "model").predict(test_set, 1)[1][0].id]
    (tmp_path / "mine.txt").write_text(f"1 {column}\n")
    arguments = (
        "evaluate",
        place / "turned",
        place / NAME,
        "-k",
        "1",
        "--json",
        "--filter",
        tmp_path / "mine.txt",
    )
    found = run(*arguments).json()["evaluation"]
    assert (found["filter"], found["filter_pairs"]) == ("mine.txt", 1)
    own = [(1, test_set.labels.ids[column])]
    assert found["metrics"]["P@1"] == pytest.approx(
        precision_by_hand(lt.load(place / "turned"), test_set, own, 1)
    )
    message = fails(2, *arguments, "--no-filter")
    assert "found --filter and --no-filter; expected one of them" in message


def test_compare_masks_models_whose_labels_are_in_another_order(run, place, test_set, pairs):
    found = run(
        "compare", place / "model", place / "turned", place / NAME, "-k", "1", "--json"
    ).json()
    for entry in found["models"]:
        expected = precision_by_hand(lt.load(place / entry["name"]), test_set, pairs, 1)
        assert entry["measured"]["evaluation"]["metrics"]["P@1"] == pytest.approx(expected)
        assert entry["measured"]["evaluation"]["filter_pairs"] == len(pairs)
    plain = run("compare", place / "model", place / NAME, "-k", "1", "--json", "--no-filter").json()
    assert plain["models"][0]["measured"]["evaluation"]["filter"] == ""


def test_predictions_of_any_system_are_filtered_too(run, place, test_set, pairs, tmp_path):
    assert run("predict", place / "turned", place / NAME, "-o", tmp_path / "out.jsonl").code == 0
    arguments = (
        "evaluate",
        place / NAME,
        "--predictions",
        tmp_path / "out.jsonl",
        "-k",
        "1,3",
        "--json",
    )
    expected = run("evaluate", place / "turned", place / NAME, "-k", "1,3", "--json").json()[
        "evaluation"
    ]
    for more in ((), ("--train", place / NAME)):
        found = run(*arguments, *more).json()["evaluation"]
        assert found["filter_pairs"] == len(pairs)
        assert found["metrics"]["P@3"] == pytest.approx(expected["metrics"]["P@3"])
    assert (found["a"], found["b"], found["constants_from"]) == (0.6, 2.6, f"by the name {NAME}")


@pytest.mark.parametrize(
    ("asked", "a", "source"),
    [
        ((), 0.6, f"by the name {NAME}"),
        (("--propensity", "auto"), 0.6, f"by the name {NAME}"),
        (("--propensity", "wikipedia"), 0.5, "family wikipedia"),
        (("--propensity", "0.7,2"), 0.7, "as given"),
    ],
)
def test_propensities_of_the_command_line(run, place, asked, a, source):
    for command in ("evaluate", "compare"):
        found = run(command, place / "model", place / NAME, "--json", *asked).json()
        evaluation = (found if command == "evaluate" else found["models"][0]["measured"])[
            "evaluation"
        ]
        assert (evaluation["a"], evaluation["constants_from"]) == (a, source)


class TestInPython:
    def test_a_mask(self, place, test_set, pairs):
        model = lt.load(place / "model").model
        file = place / NAME / "filter_labels_test.txt"
        assert evaluate_model(model, test_set) == evaluate_model(model, test_set, mask=file)
        assert evaluate_model(model, test_set, mask=None).evaluation.filter == ""
        predictions = predict(model, test_set, 10)
        assert evaluate_predictions(predictions, test_set).evaluation.filter_pairs == len(pairs)

    def test_part_of_the_documents_is_not_filtered(self, place, test_set, pairs, caplog):
        some = test_set.take(np.arange(30))
        found = lt.load(place / "model").evaluate(some)
        assert found.filter == ""
        assert "filter_labels_test.txt: not used" in caplog.text
        assert found.constants_from == f"by the name {NAME}"

    def test_the_preset_counts_where_no_name_does(self, place, test_set):
        model = lt.load(place / "model").model
        unnamed = replace(test_set, source=None)
        assert evaluate_model(model, unnamed).evaluation.constants_from == "default"
        trained = with_preset(model, "wiki-500k")
        found = evaluate_model(trained, unnamed).evaluation
        assert (found.a, found.b, found.constants_from) == (0.5, 0.4, "by the preset wiki-500k")
        assert evaluate_model(trained, test_set).evaluation.a == 0.6
        assert evaluate_model(trained, unnamed, propensity="default").evaluation.a == 0.55
        assert (
            evaluate_model(trained, unnamed, propensity=(0.7, 2)).evaluation.constants_from
            == "as given"
        )

    def test_an_ensemble_has_the_preset_that_all_members_have(self, place, test_set):
        model = lt.load(place / "model").model
        unnamed = replace(test_set, source=None)
        for presets, source in (
            (["amazon-3m"] * 2, "by the preset amazon-3m"),
            (["amazon-3m", "wiki-500k"], "default"),
        ):
            members = [lt.Longtail.of(with_preset(model, preset)) for preset in presets]
            assert lt.ensemble(members).evaluate(unnamed).constants_from == source

    def test_a_comparison_goes_by_the_first_preset(self, place, test_set):
        model = lt.load(place / "model").model
        unnamed = replace(test_set, source=None)
        members = [
            lt.Longtail.of(with_preset(model, preset)) for preset in ("amazon-3m", "wiki-500k")
        ]
        found = lt.compare(members, unnamed).models
        assert [entry.measured.evaluation.constants_from for entry in found] == [
            "by the preset amazon-3m"
        ] * 2
        assert found[0].measured.evaluation == found[1].measured.evaluation


def with_preset(model: Model, preset: str) -> Model:
    return replace(model, config=msgspec.structs.replace(model.config, preset=preset))
