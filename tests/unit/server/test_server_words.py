"""Words of a text, labels by parts of their names, and the way through a network's tree."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from longtail.config import Config, TfIdf
from longtail.data.labels import Label, Labels
from longtail.models.model import Model
from longtail.rankers.explanation import Contribution, Explanation, Step
from longtail.server.label_neighbours import LabelSearch
from longtail.server.label_path import _network_levels
from longtail.server.problem_details import Refusal
from longtail.server.service import highlights
from longtail.server.telemetry import RecentLatency
from longtail.tree.tree import LabelTree


def weighed(text, totals, kind="sum", **block):
    """Return the highlighted words of a text with their weights, where n-grams have these
    contributions.
    """
    parts = tuple(Contribution(name, 1.0, weight, weight) for name, weight in totals.items())
    step = Step(0, 0, "", 0.0, 0.0, 0.0, 0.0, parts, kind)
    explanation = Explanation("a", "a", 0.0, None, (step,))
    model = Model.__new__(Model)
    config = Config(method="xr-linear", tfidf=(TfIdf(**block),))
    for name, value in (("config", config), ("vectoriser", object())):
        object.__setattr__(model, name, value)
    found = highlights(model, text, explanation)
    assert all(one.end <= two.start for one, two in pairwise(found))
    return [(text[own.start : own.end], own.weight) for own in found]


def test_words_in_any_case():
    assert weighed("Wind, wind! WINDS", {"wind": 2.0}) == [("Wind", 2.0), ("wind", 2.0)]


def test_pairs_of_words_touch_both():
    totals = {"wind power": 3.0, "power": 1.0, "sea": -1.0}
    found = weighed("wind power, a sea", totals, ngram_max=2)
    assert found == [("wind", 3.0), ("power", 4.0), ("sea", -1.0)]


def test_words_stand_together_across_signs_and_short_words():
    """Tf-idf leaves out words of one letter, so that the pair spans them."""
    assert weighed("wind - a power", {"wind power": 1.0}, ngram_min=2, ngram_max=2) == [
        ("wind", 1.0),
        ("power", 1.0),
    ]


def test_letters_whose_small_form_is_two():
    """The second one, a dot, is no letter to tf-idf, and parts words."""
    assert weighed("İİ İZMİR wind", {"zmi": 1.0, "wind": 2.0}) == [("ZMİ", 1.0), ("wind", 2.0)]


def test_places_are_code_points():
    assert weighed("𝔘𝔫 wind 🌬 Wind", {"wind": 1.0}) == [("wind", 1.0), ("Wind", 1.0)]


def test_characters_touch_the_words_around_them():
    totals = {"d p": 2.0, "win": 1.0}
    found = weighed("wind \n power sea", totals, unit="char", ngram_min=3, ngram_max=3)
    assert found == [("wind", 3.0), ("power", 2.0)]


def test_words_left_out_of_a_network():
    found = weighed(
        "The wind’s power: WIND’S end, windy",
        {"wind’s": 2.0, "end": -1.0, "power": 0.0},
        "left-out",
    )
    assert found == [("wind’s", 2.0), ("WIND’S", 2.0), ("end", -1.0)]


@given(
    st.text("aÄİß .-\n", max_size=40),
    st.dictionaries(st.text("aäi ", min_size=1, max_size=5), st.floats(-9, 9)),
)
@pytest.mark.parametrize("unit", ["word", "char"])
def test_any_text_gives_sound_spans(unit, text, totals):
    for word, _ in weighed(text, totals, unit=unit, ngram_max=3):
        assert word
        assert not any(letter.isspace() for letter in word)


class TestSearch:
    LABELS = Labels.of(
        [
            Label("b1", "Blue"),
            Label("b2", "Big blue", aliases=("azure",)),
            Label("b3", "Straße"),
            Label("b4"),
        ]
    )
    INDEX = LabelSearch(LABELS, np.array([1, 9, 3, 3]))

    def found(self, query):
        return [label.id for label in self.INDEX.find(query, 10).labels]

    def test_beginnings_first_then_by_frequency(self):
        assert self.found("blue") == ["b1", "b2"]
        assert self.found("b") == ["b2", "b3", "b4", "b1"]
        assert self.found("") == self.found("  ") == ["b2", "b3", "b4", "b1"]

    def test_folded_case(self):
        assert self.found("STRASSE") == self.found("straße") == ["b3"]
        assert self.found("AZU") == ["b2"]

    def test_a_query_is_no_pattern_and_goes_over_no_border(self):
        assert self.found(".") == self.found("1\nb") == self.found("b1blue") == []

    def test_an_id_before_a_name(self):
        assert self.INDEX.resolve("b1") == "b1"
        assert self.INDEX.resolve("Straße") == "b3"
        with pytest.raises(Refusal) as refused:
            self.INDEX.resolve("blue")
        assert "did you mean 'Blue'?" in refused.value.detail

    @given(st.text(max_size=30))
    def test_anything_may_be_asked(self, query):
        assert self.INDEX.find(query, 2).total <= 4
        if query not in self.LABELS and query not in ("Blue", "Big blue", "Straße"):
            with pytest.raises(Refusal, match="404"):
                self.INDEX.resolve(query)


def test_nodes_of_a_network_are_those_above_its_best_labels():
    tree = LabelTree.from_borders(np.array([3, 0, 1, 2, 4]), [np.array([0, 2, 4, 5])])
    found = sparse.csr_array(np.array([[0.2, 0.9, 0.0, 0.6, 0.0]], np.float32))
    ranker = SimpleNamespace(
        tree=tree,
        n_labels=5,
        search=lambda texts, k: (found, None),
        label_scores=lambda texts, label: np.array([0.05]),
    )
    first, last = _network_levels(SimpleNamespace(neural_ranker=ranker), "text", 4)
    assert first.nodes.tolist() == [1, 0, 2]
    assert first.scores.tolist() == pytest.approx([0.9, 0.6, 0.05])
    assert last.nodes.tolist() == [2, 0, 1, 4]
    assert (first.ancestor_score, last.ancestor_score) == (0.05, 0.05)


def test_recent_latency_of_several_processes(tmp_path):
    one = RecentLatency(tmp_path)
    other = RecentLatency(tmp_path)
    for _ in range(3):
        one.add(0.010)
    other.add(0.5)
    found = one.summary()
    assert found == other.summary()
    assert found.requests == 4
    assert found.p50_ms == pytest.approx(10, rel=0.1)
    assert found.p99_ms == pytest.approx(500, rel=0.1)


def test_recent_latency(monkeypatch):
    now = 1000.0
    monkeypatch.setattr("longtail.server.telemetry.monotonic", lambda: now)
    latency = RecentLatency()
    for _ in range(98):
        latency.add(0.010)
    latency.add(0.5)
    now += 250
    latency.add(100.0)
    found = latency.summary()
    assert found.requests == 100
    assert found.p50_ms == pytest.approx(10, rel=0.1)
    assert found.p99_ms == pytest.approx(500, rel=0.1)
    now += 60
    assert latency.summary().requests == 1
    now += 1000
    assert latency.summary() == RecentLatency().summary()
