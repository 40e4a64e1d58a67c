"""The catalogue: every method and preset resolves, to the numbers of the papers' tables."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from longtail.config import Config, TfIdf
from longtail.errors import ConfigError
from longtail.methods import METHODS, configure, method

ALL = [(name, preset) for name, entry in METHODS.items() for preset in (None, *entry.presets)]


def said(*arguments) -> str:
    with pytest.raises(ConfigError) as caught:
        configure(*arguments)
    return str(caught.value)


class TestCatalogue:
    def test_names(self):
        linear = [
            "xr-linear",
            "parabel",
            "bonsai",
            "plt",
            "extremetext",
            "dismec",
            "proxml",
            "fastxml",
            "pfastrexml",
            "annexml",
        ]
        transformers = ["cascadexml", "lightxml", "xr-transformer", "x-transformer"]
        words = [
            "xml-cnn",
            "attentionxml",
            "inceptionxml",
            "inceptionxml-lf",
            "astec",
            "decaf",
            "eclare",
        ]
        assert list(METHODS) == [*linear, *transformers, *words]
        assert all(name == entry.name for name, entry in METHODS.items())

    @pytest.mark.parametrize("entry", METHODS.values(), ids=lambda entry: entry.name)
    def test_entry_says_what_it_is(self, entry):
        assert entry.what
        assert "\n" not in entry.what + entry.paper
        assert re.search(r"( et al\.| and \w+|^\w+) 20\d\d, ", entry.paper)
        assert len(entry.recipe) == 5  # text features, label features, tree, ranker, search
        assert method(entry.name) is entry

    @pytest.mark.parametrize(("name", "preset"), ALL)
    def test_resolves(self, name, preset):
        resolved = configure(name, preset)
        assert isinstance(resolved, Config)
        assert resolved.method == name

    @pytest.mark.parametrize("entry", METHODS.values(), ids=lambda entry: entry.name)
    def test_recipe_agrees_with_the_settings(self, entry):
        resolved = configure(entry.name)
        (features, label_features, tree, ranker, search) = entry.recipe
        on_words = resolved.encoder.kind != "transformer"
        own = ["words" if on_words else "tokens"] * bool(entry.network)
        read = own + ["tf-idf"] * (resolved.cascade.combine != "never")
        assert features == ", ".join(read)
        assert (resolved.features == "cat") == bool(entry.network)
        if on_words:
            assert ("label words" in label_features + ranker) == (
                resolved.label_text.parts != ("free",)
            )
            assert (search == "all labels") == (resolved.cascade.last_level == "full")
            assert (search == "nearest labels") == (resolved.phases.kind == "surrogate")
        if entry.ranker != "tree" or on_words:
            return
        assert label_features.lower() == resolved.label_features.kind
        assert ("balanced" in tree) == (resolved.tree.kind == "balanced")
        ranks = "transformer" if entry.network == "cascade" else resolved.ranker.loss
        assert ranker.partition(",")[0].partition(" on Φcat")[0].replace(" ", "-") == ranks
        assert (resolved.tree.kind == "flat") == (tree == "none") == (search == "all labels")
        solvers = {"Newton": "newton", "L1, proximal Newton": "proximal"}
        assert resolved.ranker.solver == solvers.get(ranker.partition(", ")[2], "dual")
        assert (search == "exact") == resolved.search.exact


class TestNumbers:
    def test_text_features_are_scikit_learns_but_for_the_logarithm_of_tf(self):
        assert Config().tfidf == (TfIdf(),)
        for name in METHODS:
            assert configure(name).tfidf == (TfIdf(sublinear_tf=True),)

    def test_xr_linear_solver(self):
        ranker = configure("xr-linear").ranker
        assert (ranker.loss, ranker.tolerance, ranker.max_passes, ranker.bias) == (
            "squared-hinge",
            0.1,
            10,
            1,
        )
        assert (ranker.prune, ranker.negatives, ranker.trees) == (0.1, "tfn", 1)
        search = configure("xr-linear").search
        assert (search.score, search.beam_size, search.exact) == ("hinge-3", 10, False)

    def test_parabel(self):
        resolved = configure("parabel")
        assert (resolved.tree.kind, resolved.tree.branching, resolved.tree.leaf_size) == (
            "balanced",
            2,
            100,
        )
        assert (resolved.ranker.trees, resolved.ranker.max_passes, resolved.ranker.prune) == (
            3,
            20,
            0.1,
        )
        assert resolved.ranker.loss == "squared-hinge"

    def test_bonsai(self):
        resolved = configure("bonsai")
        assert (resolved.tree.kind, resolved.tree.branching, resolved.ranker.trees) == (
            "unbalanced",
            100,
            3,
        )
        assert (
            resolved.tree.max_depth == 2
        )  # above the labels: omikuji's max_depth of 3 counts their level

    def test_plt(self):
        resolved = configure("plt")
        assert (resolved.tree.branching, resolved.tree.leaf_size) == (2, 100)
        assert (resolved.ranker.loss, resolved.search.score, resolved.search.exact) == (
            "logistic",
            "sigmoid",
            True,
        )

    def test_fastxml_is_pfastrexml_without_propensities_and_centroids(self):
        own = configure("fastxml").forest
        other = configure("pfastrexml").forest
        assert (own.trees, own.leaf_size, own.cost, own.propensities, own.tail_share) == (
            50,
            10,
            1.0,
            False,
            0.0,
        )
        assert replace(own, cost=other.cost, propensities=True, tail_share=0.2) == other


class TestUnknown:
    @pytest.mark.parametrize(
        ("name", "near"), [("xr-liner", "xr-linear"), ("Parabel", "parabel"), ("bonzai", "bonsai")]
    )
    def test_method(self, name, near):
        assert said(name) == f"unknown method '{name}'; did you mean '{near}'?"
        with pytest.raises(ConfigError, match="did you mean"):
            method(name)

    def test_method_with_nothing_near(self):
        assert said("zzzzz") == f"unknown method 'zzzzz'; known: {', '.join(sorted(METHODS))}"

    def test_preset(self):
        assert said("xr-linear", "eurlex") == "unknown preset 'eurlex'; did you mean 'eurlex-4k'?"
        assert said("xr-linear", "").startswith("unknown preset ''; known: amazon-3m, ")
        assert (
            said("cascadexml", "amazon-3m+tf")
            == "unknown preset 'amazon-3m+tf'; did you mean 'amazon-3m+tfidf'?"
        )

    def test_preset_of_a_method_without_any(self):
        assert said("fastxml", "eurlex-4k") == "unknown preset 'eurlex-4k'; fastxml has none"

    def test_setting(self):
        assert "did you mean 'tree.branching'?" in said("parabel", None, {"tree": {"branchng": 2}})


class TestOverrides:
    def test_in_order(self):
        resolved = configure("parabel", None, {"ranker": {"trees": 5}}, {"ranker": {"trees": 1}})
        assert (resolved.ranker.trees, resolved.ranker.max_passes) == (1, 20)

    def test_its_own_name_may_stand_in_a_file(self):
        assert configure("plt", None, {"method": "plt"}) == configure("plt")

    def test_another_method_may_not(self):
        message = said("parabel", None, {"method": "plt"})
        assert (
            message
            == "method: found 'plt' among the settings for 'parabel'; expected 'parabel' or nothing"
        )

    def test_the_catalogue_stays_as_it_is(self):
        before = configure("xr-linear", "eurlex-4k")
        configure(
            "xr-linear", "eurlex-4k", {"tree": {"levels": [2]}, "ranker": {"cost_positive": 9}}
        )
        assert configure("xr-linear", "eurlex-4k") == before
