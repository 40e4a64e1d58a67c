"""Presets: each is the authors' recipe completely, every value has a source, and values are those
that were published.

The numbers below were typed from the papers and the authors' repositories, not from the files in
``presets/``.
"""

from __future__ import annotations

import pytest

from longtail.config import Config, settings
from longtail.methods import METHODS, configure

SIX = ("eurlex-4k", "wiki10-31k", "amazoncat-13k", "wiki-500k", "amazon-670k", "amazon-3m")
DATASETS = {
    "xr-linear": SIX,
    "parabel": SIX,
    "bonsai": SIX,
    "plt": SIX,
    "dismec": SIX,
    "proxml": ("wiki10-31k", "amazoncat-13k", "amazon-670k"),
    "pfastrexml": SIX,
    "annexml": SIX,
    "cascadexml": (*SIX[1:], *(f"{name}+tfidf" for name in SIX[1:])),
    "lightxml": SIX[:5],
    "xr-transformer": SIX,
    "x-transformer": SIX,
    "xml-cnn": ("eurlex-4k", "wiki10-31k", "amazoncat-13k", "amazon-670k"),
    "attentionxml": SIX,
}
LABELS = {
    "eurlex-4k": 3956,
    "wiki10-31k": 30_938,
    "amazoncat-13k": 13_330,
    "wiki-500k": 501_070,
    "amazon-670k": 670_091,
    "amazon-3m": 2_812_281,
}
ALL = [(method, preset) for method, presets in DATASETS.items() for preset in presets]

# -------------------------------------------------------------------------------- what the presets
# of a method must set Whole groups, so that a new setting is asked for as well: it belongs into the
# presets, or among those not read here.

PATHS = {setting.path for setting in settings(Config())}
FEATURES = {"normalise_features", "tfidf.0.sublinear_tf"}
ALWAYS = {"calibration.method"}


def group(name: str, *unread: str) -> set[str]:
    """Return the paths of all settings of a group but those that a method does not read."""
    found = {path for path in PATHS if path.startswith(f"{name}.")}
    left_out = {f"{name}.{field}" for field in unread}
    assert left_out <= found, left_out - found
    return found - left_out


LEVELS_OF_A_TREE = ("level_costs", "level_negatives")
ONE_VS_ALL = group(
    "ranker", "penalty", "dense_penalty", "alpha", "negatives", *LEVELS_OF_A_TREE, "shard_labels"
)  # shards are files, not results
CLUSTERING = {
    "label_features.kind",
    *group("tree", "branching", "leaf_size", "levels", "max_depth"),
}
LINEAR_TREE = {
    *FEATURES,
    *ALWAYS,
    "label_features.kind",
    *group("tree", "max_depth"),
    *group(
        "ranker", "penalty", "dense_penalty", "hard_negatives", *LEVELS_OF_A_TREE, "shard_labels"
    ),
    *group("search"),
}
FLAT = {*FEATURES, *ALWAYS, "tree.kind", *ONE_VS_ALL, "search.score", "search.last_level"}
TRAINING = group("training", "micro_batch", "compile", "checkpoint_steps")  # speed and records
TRANSFORMER = {"encoder.name", "encoder.max_tokens", "encoder.pooling", "encoder.cleaning"}
WORDS = {"encoder.name", "encoder.width", "encoder.max_tokens", "encoder.min_count"}
CASCADE = {*ALWAYS, *group("cascade", "classifier", "warm_start"), *TRAINING}
CASCADEXML = {
    *FEATURES,
    *TRANSFORMER,
    *CASCADE,
    *CLUSTERING,
    *group("label_features", "tree_kinds"),  # of several trees of linear classifiers
}
RECURSIVE = {
    *FEATURES,
    *ALWAYS,
    *TRANSFORMER,
    "encoder.weight",
    "label_features.kind",
    *group("tree", "branching", "leaf_size", "max_depth"),
    *group("recursive", "resolutions", "epochs"),  # levels and steps stand in their place
    *(TRAINING - {"training.epochs", "training.warmup_epochs", "training.cooldown_epochs"}),
    *group("ranker", "penalty", "dense_penalty", "hard_negatives", "shard_labels"),
    *group("search"),
}
REQUIRED = {
    "xr-linear": LINEAR_TREE,
    "parabel": LINEAR_TREE,
    "bonsai": {*LINEAR_TREE, "tree.max_depth", "label_features.tree_kinds"},
    "plt": LINEAR_TREE,
    "dismec": FLAT,
    "proxml": {*FLAT, "ranker.penalty"},
    "pfastrexml": {*FEATURES, *ALWAYS, *group("forest")},
    "annexml": {*FEATURES, *ALWAYS, *group("neighbours")},
    "cascadexml": CASCADEXML,
    "lightxml": {*FEATURES, *TRANSFORMER, *CASCADE, *CLUSTERING},
    "xr-transformer": RECURSIVE,
    "x-transformer": RECURSIVE,
    "xml-cnn": {*WORDS, *CASCADE},
    "attentionxml": {
        *FEATURES,
        *ALWAYS,
        *WORDS,
        *CLUSTERING,
        "tree.levels",
        "attention.last_level",
        "cascade.combine",
        "attention.epochs",
        "attention.shortlist",
        "attention.dropout",
        *(TRAINING - {"training.epochs"}),
    },
}
BESIDE_THE_NETWORK = {
    "cascade.classifier",
    "cascade.warm_start",
    "encoder.weight",
    "ranker.dense_penalty",
    "search.score",
}
VARIANTS = {"tfidf": {*CASCADEXML, *ONE_VS_ALL, *BESIDE_THE_NETWORK}}


class TestCompleteness:
    def test_every_row_of_the_tables_has_a_preset(self):
        for method, presets in DATASETS.items():
            assert list(METHODS[method].presets) == list(presets), method

    @pytest.mark.parametrize(("method", "name"), ALL)
    def test_nothing_is_left_to_our_own_settings(self, method, name):
        preset = METHODS[method].presets[name]
        variant = name.partition("+")[2]
        required = VARIANTS[variant] if variant else REQUIRED[method]
        assert not required - set(preset.values), "settings that the preset leaves open"

    @pytest.mark.parametrize(("method", "name"), ALL)
    def test_resolves_to_its_values(self, method, name):
        preset = METHODS[method].presets[name]
        config = configure(method, name)
        assert config.preset == name
        assert preset.sources_in(config) == preset.sources
        assert set(preset.sources) == set(preset.values)

    @pytest.mark.parametrize(("method", "name"), ALL)
    def test_texts_fit_into_a_comment(self, method, name):
        preset = METHODS[method].presets[name]
        for text in (*preset.sources.values(), *preset.deviations):
            assert text == " ".join(text.split())
            assert text

    @pytest.mark.parametrize(("method", "name"), ALL)
    def test_holds_nothing_out(self, method, name):
        assert configure(method, name).calibration.method == "none"


# CascadeXML's appendix, table 9: nodes above the labels, layers, dropouts, epochs, tokens, slots of
# each level
TABLE_9 = {
    "wiki10-31k": ((2**9, 2**12), ((9, 10), (11,), (12,)), (0.3, 0.3, 0.4), 15, 256, (2**9, 2**9, 2**9)),
    "amazoncat-13k": ((2**8, 2**11), ((7, 8), (10,), (12,)), (0.2, 0.3, 0.4), 6, 256, (2**8, 2**8, 2**8)),
    "wiki-500k": (
        (2**10, 2**13, 2**16), ((5, 6), (8,), (10,), (12,)), (0.2, 0.25, 0.35, 0.5), 12, 128,
        (2**10, 2**10, 2**11, 2**12),
    ),
    "amazon-670k": (
        (2**10, 2**13, 2**16), ((5, 6), (8,), (10,), (12,)), (0.2, 0.25, 0.4, 0.5), 15, 128,
        (2**10, 2**10, 2**11, 2**12),
    ),
    "amazon-3m": (
        (2**10, 2**13, 2**16), ((5, 6), (8,), (10,), (12,)), (0.2, 0.25, 0.3, 0.5), 15, 128,
        (2**10, 2**10, 2**11, 2**12),
    ),
}  # fmt: skip


class TestCascadeXML:
    @pytest.mark.parametrize("variant", ["", "+tfidf"])
    @pytest.mark.parametrize("name", TABLE_9)
    def test_table_9(self, name, variant):
        levels, layers, dropouts, epochs, tokens, slots = TABLE_9[name]
        config = configure("cascadexml", name + variant)
        assert config.cascade.levels == levels
        assert config.cascade.layers == layers
        assert config.cascade.dropout == dropouts
        assert (config.training.epochs, config.encoder.max_tokens) == (epochs, tokens)
        children = [
            below / above for above, below in zip(levels, (*levels[1:], LABELS[name]), strict=True)
        ]
        found = [kept * each for kept, each in zip(config.cascade.shortlist, children, strict=True)]
        assert found == pytest.approx(slots[1:], rel=0.06)
        assert config.cascade.last_level == "shortlist"

    @pytest.mark.parametrize("name", TABLE_9)
    def test_section_a_2_1(self, name):
        config = configure("cascadexml", name)
        training = config.training
        assert (training.encoder_rate, training.head_rate, training.batch_size) == (1e-4, 1e-3, 256)
        assert (training.head_optimiser, training.schedule, training.clip) == (
            "adamw",
            "one-cycle",
            0,
        )
        assert training.epsilon == 1e-6  # AdamW of transformers
        assert (training.encoder_decay, training.head_decay) == (
            0.05,
            0.005,
        )  # src/main_acc.py, src/Runner.py
        assert (training.warmup_epochs, training.cooldown_epochs) == (
            2 if name == "wiki10-31k" else 1,
            3,
        )
        assert (config.encoder.name, config.encoder.pooling) == ("bert-base-uncased", "cls")
        cascade = config.cascade
        assert (cascade.label_rows, cascade.prior_bias, cascade.merge_training) == (
            "xavier",
            False,
            "classifiers",
        )
        assert cascade.rescale
        assert cascade.score == (
            "level" if name in ("amazoncat-13k", "wiki-500k") else "weighted"
        )  # EVAL_SCHEME

    def test_shortlists_of_the_readme(self):
        assert configure("cascadexml", "wiki10-31k").cascade.shortlist == (64, 64)
        assert configure("cascadexml", "amazon-670k").cascade.shortlist == (128, 256, 400)
        assert configure("cascadexml", "wiki-500k").cascade.shortlist == (128, 256, 512)

    @pytest.mark.parametrize("name", TABLE_9)
    def test_the_network_alone_and_dismec_alone(self, name):
        assert configure("cascadexml", name).cascade.combine == "never"
        config = configure("cascadexml", f"{name}+tfidf")  # section A.3
        assert (config.cascade.combine, config.cascade.classifier, config.encoder.weight) == (
            "only",
            "dismec",
            1.0,
        )
        assert (config.features, config.tree.kind, config.ranker.solver) == (
            "cat",
            "flat",
            "newton",
        )
        assert (config.ranker.cost_positive, config.ranker.cost_negative, config.ranker.prune) == (
            1,
            1,
            0.01,
        )


# XR-Transformer, table 7: HLT_prelim and HLT_refine without the labels, rate, steps, tokens, α
TABLE_7 = {
    "eurlex-4k": ((16, 256), (4, 32, 256), 5e-5, 2400, 128, 1.0),
    "wiki10-31k": ((128, 2048), (8, 128, 2048), 1e-4, 4000, 256, 0.25),
    "amazoncat-13k": ((128, 1024), (128, 1024), 1e-4, 45_000, 256, 2.0),
    "wiki-500k": ((64, 512, 4096, 32_768), (8, 256, 8192), 1e-4, 60_000, 128, 0.25),
    "amazon-670k": ((128, 2048, 32_768), (8, 256, 8192), 1e-4, 20_000, 128, None),
    "amazon-3m": ((128, 2048, 32_768), (8, 256, 8192), 1e-4, 30_000, 128, 0.125),
}
# PECOS, examples/xr-transformer-neurips21/params: warm-up, matchers' and rankers' only_topk,
# threshold, eps, Cp and Cn
PARAMS = {
    "eurlex-4k": (100, 5, 100, 1e-3, 0.1, [(1, 2), (1, 2), (1, 2), (2, 4)]),
    "wiki10-31k": (100, 20, 100, 1e-3, 0.1, [(4, 1)] * 4),
    "amazoncat-13k": (1000, 50, 100, 1e-4, 0.01, [(0.25, 0.5)] * 3),
    "wiki-500k": (5000, 5, 50, 1e-3, 0.1, [(4, 1)] * 4),
    "amazon-670k": (200, 5, 75, 1e-3, 0.1, [(1, 1)] * 4),
    "amazon-3m": (1000, 20, 50, 1e-3, 0.1, [(8, 1)] * 4),
}


class TestXRTransformer:
    @pytest.mark.parametrize("name", TABLE_7)
    def test_table_7(self, name):
        coarse, refined, rate, steps, tokens, alpha = TABLE_7[name]
        config = configure("xr-transformer", name)
        recursive = config.recursive
        assert (recursive.levels, config.tree.levels) == (coarse, refined)
        assert (config.training.encoder_rate, config.training.head_rate) == (rate, rate)
        assert sum(recursive.steps) == steps
        assert len(recursive.steps) == len(coarse) + (recursive.finest == "labels")
        assert (recursive.finest == "labels") == (LABELS[name] <= 32_768)  # max_match_clusters
        assert config.encoder.max_tokens == tokens
        assert (recursive.cost_sensitive, recursive.alpha) == (alpha is not None, alpha or 1.0)
        assert config.ranker.cost_sensitive == (alpha is not None)

    @pytest.mark.parametrize("name", PARAMS)
    def test_params_json(self, name):
        warmup, matched, beam, prune, tolerance, costs = PARAMS[name]
        config = configure("xr-transformer", name)
        recursive = config.recursive
        ranker = config.ranker
        assert (recursive.warmup_steps, recursive.shortlist, config.search.beam_size) == (
            warmup,
            matched,
            beam,
        )
        assert (ranker.prune, ranker.tolerance, ranker.max_passes, ranker.bias) == (
            prune,
            tolerance,
            100,
            1,
        )
        own = [(ranker.cost_positive, ranker.cost_negative)] * len(costs)
        assert list(ranker.level_costs or own) == costs
        assert own[-1] == costs[-1]
        assert ranker.level_negatives == (*["tfn"] * (len(costs) - 1), "tfn+man")
        assert (config.search.score, config.search.last_level) == (
            "hinge-3",
            "margin",
        )  # l3-hinge, noop

    @pytest.mark.parametrize("name", TABLE_7)
    def test_section_a_3(self, name):
        config = configure("xr-transformer", name)
        recursive = config.recursive
        training = config.training
        assert (training.batch_size, training.schedule, training.head_optimiser) == (
            256,
            "linear",
            "adamw",
        )
        assert (training.encoder_decay, training.head_decay, training.clip) == (0, 0, 1)
        assert (recursive.dropout, recursive.bootstrap, recursive.bootstrap_root) == (
            0.1,
            True,
            False,
        )
        assert (training.loss, config.encoder.weight, config.ranker.trees) == (
            "squared-hinge",
            1.0,
            1,
        )
        assert config.encoder.name == "bert-base-uncased"


# LightXML, run.sh of BERT: --epoch, --batch, --max_len, --swa_warmup, clusters,
# --group_y_candidate_topk, --hidden_dim
RUN_SH = {
    "eurlex-4k": (20, 16, 512, 10, None),
    "wiki10-31k": (30, 16, 512, 10, None),
    "amazoncat-13k": (5, 16, 512, 2, None),
    "wiki-500k": (10, 32, 128, 4, (8192, 32, 500)),
    "amazon-670k": (15, 16, 128, 4, (8192, 75, 400)),
}


class TestLightXML:
    @pytest.mark.parametrize("name", RUN_SH)
    def test_run_sh(self, name):
        epochs, batch, tokens, swa_warmup, clusters = RUN_SH[name]
        config = configure("lightxml", name)
        training = config.training
        cascade = config.cascade
        assert (training.epochs, training.batch_size, config.encoder.max_tokens) == (
            epochs,
            batch,
            tokens,
        )
        assert training.average == pytest.approx(1 - swa_warmup / epochs, abs=1e-4)
        assert (training.encoder_rate, training.head_rate) == (1e-4, 1e-4)
        assert (training.encoder_decay, training.head_decay, training.head_optimiser) == (
            0.01,
            0.01,
            "adamw",
        )
        assert (training.warmup_epochs, training.cooldown_epochs, training.clip) == (0, 0, 0)
        assert (cascade.merge, cascade.rescale, cascade.combine) == ("concat", False, "never")
        assert set(cascade.layers) == {(8, 9, 10, 11, 12)}
        assert set(cascade.dropout) == {0.5}
        assert cascade.last_level == ("shortlist" if clusters else "full")
        if clusters:
            assert (*cascade.levels, *cascade.shortlist, cascade.bottleneck) == clusters
            assert LABELS[name] / cascade.levels[0] <= 100


# AttentionXML, configure/models: batch, epochs of each level, nodes above the labels, C
YAML = {
    "eurlex-4k": (40, (30,), (), 0),
    "wiki10-31k": (40, (30,), (), 0),
    "amazoncat-13k": (200, (10,), (), 0),
    "wiki-500k": (200, (5, 5), (2**13,), 15),
    "amazon-670k": (200, (10, 10, 10, 10), (2**11, 2**14, 2**17), 160),
    "amazon-3m": (200, (5, 5, 5, 5), (2**13, 2**16, 2**19), 160),
}
# X-Transformer, run_transformer_train.sh: clusters, MAX_STEPS, WARMUP_STEPS, LEARNING_RATE
TRAIN_SH = {
    "eurlex-4k": (64, 1000, 100, 5e-5),
    "wiki10-31k": (512, 1400, 100, 5e-5),
    "amazoncat-13k": (256, 20_000, 2000, 8e-5),
    "wiki-500k": (8192, 80_000, 1000, 6e-5),
}


class TestOthers:
    @pytest.mark.parametrize("name", YAML)
    def test_attentionxml(self, name):
        batch, epochs, levels, chosen = YAML[name]
        config = configure("attentionxml", name)
        assert (config.training.batch_size, config.attention.epochs) == (batch, epochs)
        assert (config.tree.levels, config.attention.shortlist) == (levels, chosen)
        assert (config.training.encoder_rate, config.encoder.max_tokens) == (1e-3, 500)
        assert config.attention.dropout == 0.5
        assert config.attention.last_level == ("shortlist" if levels else "full")

    @pytest.mark.parametrize("name", TRAIN_SH)
    def test_x_transformer(self, name):
        clusters, steps, warmup, rate = TRAIN_SH[name]
        config = configure("x-transformer", name)
        assert (config.recursive.levels, config.tree.levels) == ((clusters,), (clusters,))
        assert (config.recursive.steps, config.recursive.warmup_steps) == ((steps,), warmup)
        assert (config.training.encoder_rate, config.training.head_rate) == (rate, rate)
        depth = (
            LABELS[name] // 100 + 1
        ).bit_length()  # ⌊log2⌋ + 1, of the clusters of a hundred labels
        assert clusters == 2**depth

    @pytest.mark.parametrize("name", SIX)
    def test_linear_methods(self, name):
        parabel, bonsai, dismec = (
            configure(method, name) for method in ("parabel", "bonsai", "dismec")
        )
        assert (parabel.ranker.trees, parabel.tree.branching, parabel.tree.leaf_size) == (3, 2, 100)
        assert (parabel.ranker.max_passes, parabel.ranker.prune, parabel.search.score) == (
            20,
            0.1,
            "hinge-2",
        )
        assert (bonsai.ranker.trees, bonsai.tree.branching, bonsai.tree.kind) == (
            3,
            100,
            "unbalanced",
        )
        # -m counts the root: a tree of 2 levels has one above the labels
        assert bonsai.tree.max_depth == (1 if LABELS[name] < 200_000 else 2)
        assert bonsai.label_features.kinds == {"pifa"}
        assert (dismec.ranker.cost_positive, dismec.ranker.prune, dismec.ranker.bias) == (
            1,
            0.01,
            1,
        )
        assert dismec.ranker.tolerance == 0.001

    @pytest.mark.parametrize("name", SIX)
    def test_xr_linear(self, name):
        config = configure("xr-linear", name)  # PECOS, exp_v1.sh
        assert (config.tree.branching, config.tree.leaf_size, config.search.beam_size) == (
            32,
            100,
            10,
        )
        assert (config.ranker.cost_positive, config.ranker.cost_negative, config.ranker.prune) == (
            1,
            1,
            0.1,
        )
        assert (config.ranker.negatives, config.ranker.max_passes, config.ranker.trees) == (
            "tfn",
            100,
            1,
        )

    @pytest.mark.parametrize(
        ("name", "a", "b"),
        [
            ("wiki10-31k", 0.55, 1.5),
            ("wiki-500k", 0.5, 0.4),
            ("amazon-670k", 0.6, 2.6),
            ("amazon-3m", 0.6, 2.6),
        ],
    )
    def test_propensities_of_pfastrexml(self, name, a, b):
        forest = configure("pfastrexml", name).forest
        assert (forest.propensity_a, forest.propensity_b) == (a, b)
        assert (forest.trees, forest.leaf_size, forest.cost, forest.tail_share) == (
            50,
            10,
            1.0,
            0.2,
        )
