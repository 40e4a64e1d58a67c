"""Presets of the methods for short texts: every value of a recipe is named, has a source, and fits
its dataset.
"""

from __future__ import annotations

import math

import pytest

from longtail.config import Encoder
from longtail.methods import METHODS, configure
from longtail.networks.cascade_family import check_levels, level_layers, phase_epochs

LABELS = {
    "lf-amazontitles-131k": 131_073,
    "lf-wikiseealsotitles-320k": 312_330,
    "lf-wikititles-500k": 501_070,
    "lf-amazontitles-1.3m": 1_305_265,
}
DATASETS = tuple(LABELS)

# what a recipe has to name, by family: every setting that changes the network, its training or its
# ranking
EVERY_METHOD = {
    "encoder": ["name", "width", "min_count", "max_tokens"],
    "label_features": [
        "kind",
        "graph_steps",
        "graph_reset",
        "graph_keep",
        "graph_max_documents",
        "graph_features",
    ],
    "tree": ["kind", "sample", "max_iterations", "min_gain"],
    "cascade": [
        *(
            "levels",
            "dropout",
            "last_level",
            "rescale",
            "score",
            "label_rows",
            "prior_bias",
            "combine",
        ),
        "detach_epochs",
    ],
    "training": [
        *(
            "loss",
            "epochs",
            "batch_size",
            "encoder_rate",
            "head_rate",
            "head_optimiser",
            "head_weights",
            "schedule",
        ),
        *(
            "warmup_epochs",
            "cooldown_epochs",
            "encoder_decay",
            "head_decay",
            "clip",
            "precision",
            "average",
            "patience",
        ),
    ],
    "calibration": ["method"],
    "gandalf": ["use", "share", "sample", "threshold"],
}
CLASSIFIERS = ["parts", "combine"]
TWO_PHASES = ["kind", "first_share", "first_rate"]
FAMILY = {
    "inceptionxml": {"cascade": ["layers", "shortlist"]},
    "inceptionxml-lf": {
        "cascade": ["layers", "shortlist"],
        "label_text": CLASSIFIERS,
        "phases": TWO_PHASES,
    },
    "astec": {"label_text": CLASSIFIERS, "phases": [*TWO_PHASES, "shortlist"]},
    "decaf": {"label_text": CLASSIFIERS, "phases": [*TWO_PHASES, "shortlist"]},
    "eclare": {"label_text": CLASSIFIERS, "phases": [*TWO_PHASES, "shortlist"]},
}
CLUSTERS = dict(zip(DATASETS, (16_384, 32_768, 65_536, 131_072), strict=True))
PRESETS = [(method, dataset) for method in FAMILY for dataset in DATASETS]
ALL_PRESETS = pytest.mark.parametrize(
    ("method", "dataset"), PRESETS, ids=[f"{m}/{d}" for m, d in PRESETS]
)


def required(method: str) -> set[str]:
    """Return the paths of the settings that a preset of the method has to name."""
    groups = (EVERY_METHOD, FAMILY[method])
    return {
        f"{stage}.{name}" for group in groups for stage, names in group.items() for name in names
    }


@pytest.mark.parametrize("method", FAMILY)
def test_every_dataset_has_a_preset(method):
    assert set(METHODS[method].presets) >= set(DATASETS)


@ALL_PRESETS
def test_every_setting_is_named_and_has_a_source(method, dataset):
    preset = METHODS[method].presets[dataset]
    assert not required(method) - set(preset.values)
    assert all(source.strip() for source in preset.sources.values())
    assert set(preset.sources) == set(preset.values)
    assert preset.deviations


@ALL_PRESETS
def test_values_are_those_of_the_resolved_settings(method, dataset):
    """Each value is one that its setting takes, and the method has the same."""
    config = configure(method, dataset)
    for path, value in METHODS[method].presets[dataset].values.items():
        stage, name = path.split(".")
        found = getattr(getattr(config, stage), name)
        if isinstance(value, list):
            found = [list(own) if isinstance(own, tuple) else own for own in found]
        assert found == value, path


@ALL_PRESETS
def test_levels_fit_the_dataset(method, dataset):
    config = configure(method, dataset)
    labels = LABELS[dataset]
    (clusters,) = config.cascade.levels
    assert math.log2(clusters).is_integer()
    assert 2 <= labels / clusters < 21
    check_levels((clusters, labels), config.cascade)
    if config.cascade.layers:
        assert config.cascade.layers == level_layers(2, 2)
    if config.cascade.shortlist:
        assert config.cascade.shortlist[0] < clusters
    assert config.phases.shortlist < labels


@ALL_PRESETS
def test_nothing_is_held_out_averaged_or_joined(method, dataset):
    config = configure(method, dataset)
    assert config.calibration.method == "none"
    assert config.cascade.combine == "never"
    assert not config.gandalf.use
    assert (config.training.encoder_decay, config.training.head_decay, config.training.clip) == (
        0,
        0,
        0,
    )


@ALL_PRESETS
def test_gandalf_is_a_switch_with_the_published_walks(method, dataset):
    plain = configure(method, dataset)
    config = configure(method, dataset, {"gandalf": {"use": True}})
    assert config.gandalf.use
    assert (config.gandalf.share, config.gandalf.sample, config.gandalf.threshold) == (
        1.0,
        "random",
        0.1,
    )
    graph = config.label_features
    assert (graph.graph_steps, graph.graph_reset, graph.graph_keep, graph.graph_max_documents) == (
        400,
        0.8,
        10,
        500,
    )
    assert config.training == plain.training
    assert config.cascade == plain.cascade


class TestInceptionXML:
    @pytest.mark.parametrize(("dataset", "clusters"), list(CLUSTERS.items()))
    @pytest.mark.parametrize("method", ["inceptionxml", "inceptionxml-lf"])
    def test_has_the_clusters_of_its_code(self, method, dataset, clusters):
        assert configure(method, dataset).cascade.levels == (clusters,)

    @pytest.mark.parametrize("dataset", DATASETS)
    def test_one_cycle_of_the_rate(self, dataset):
        """A third of each phase up, two thirds down; the labels' part of the encoder alone learns
        for ten epochs.
        """
        plain, text = (configure(method, dataset) for method in ("inceptionxml", "inceptionxml-lf"))
        assert (plain.training.epochs, plain.cascade.detach_epochs, text.cascade.detach_epochs) == (
            45,
            10,
            0,
        )
        assert phase_epochs(text.phases.first_share, text.training.epochs) == (45, 45)
        for config in (plain, text):
            assert config.training.warmup_epochs + config.training.cooldown_epochs == pytest.approx(
                45
            )
            assert config.training.encoder_rate == config.training.head_rate == 5e-3
            assert config.training.batch_size == 128

    @pytest.mark.parametrize("dataset", DATASETS)
    def test_shortlists_of_the_appendix_have_sqrt_l_labels(self, dataset):
        """A.2 of Gandalf's appendix."""
        cascade = configure("inceptionxml-lf", dataset).cascade
        labels = LABELS[dataset]
        assert cascade.shortlist[0] * labels / cascade.levels[0] == pytest.approx(
            math.sqrt(labels), rel=0.02
        )


class TestTwoPhases:
    @pytest.mark.parametrize("dataset", DATASETS)
    @pytest.mark.parametrize(
        ("method", "epochs"), [("astec", (20, 15)), ("decaf", (20, 10)), ("eclare", (20, 10))]
    )
    def test_epochs(self, method, epochs, dataset):
        config = configure(method, dataset)
        assert phase_epochs(config.phases.first_share, config.training.epochs) == epochs

    def test_rates_of_both_phases(self):
        found = {dataset: configure("astec", dataset) for dataset in DATASETS}
        assert [own.phases.first_rate for own in found.values()] == [0.03, 0.005, 0.005, 0.003]
        assert [own.training.head_rate for own in found.values()] == [0.001, 0.002, 0.0005, 0.0005]
        assert [own.training.encoder_rate for own in found.values()] == [
            0.001,
            0.002,
            0.0005,
            0.0005,
        ]


def test_vectors_of_words_are_named_as_their_files():
    names = {
        method: {configure(method, dataset).encoder.name for dataset in DATASETS}
        for method in FAMILY
    }
    assert names["inceptionxml"] == names["inceptionxml-lf"] == {"glove.6B.300d"}
    assert names["astec"] == {"wiki.en"}
    assert names["decaf"] == names["eclare"] == {"learned"}
    assert Encoder().name not in {name for own in names.values() for name in own}
