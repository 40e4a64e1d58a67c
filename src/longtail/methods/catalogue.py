"""The catalogue of methods: name → recipe, paper, and our own settings; presets are in
``presets/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longtail.methods.recipe_files import Preset, read_presets

__all__ = ["CATALOGUE", "Method", "Settings"]

Settings = Mapping[str, Any]


class Method(msgspec.Struct, frozen=True):
    """A recipe: what each step of the pipeline uses, and the settings that make it this method."""

    name: str
    what: str
    paper: str
    recipe: tuple[str, ...]  # text features → label features → tree → ranker → search
    settings: Settings = {}
    # family of the network, if there is one: cascade, attention, recursive, or one that a package
    # registers; linear classifiers read its vectors, or join it where it ranks labels itself
    network: str = ""
    # family of the linear ranker: tree, forest, neighbours, extremetext, or one that a package
    # registers
    ranker: str = "tree"

    @property
    def presets(self) -> Mapping[str, Preset]:
        """The recipes of the papers for this method, by the names of their datasets."""
        return read_presets(self.name)


# 1 + ln tf beats tf, and ten passes rank as well as a hundred in about three quarters of the time
# (RESULTS.md)
TEXT = {"0": {"sublinear_tf": True}}
PASSES = 10


# like labels side by side, as many as are solved at a time
FLAT = {"kind": "flat", "leaf_size": 16}
NEWTON = {"solver": "newton", "prune": 0.01, "tolerance": 0.01}
PROXIMAL = {
    "solver": "proximal",
    "penalty": 1.0,
    "cost_positive": 2.0,
    "prune": 0.0,
    "tolerance": 0.01,
    "max_passes": 200,
}


RECURSIVE: dict[str, Any] = {
    "features": "cat",
    "tfidf": TEXT,
    "encoder": {"weight": 1.0},
    "training": {"epochs": 5, "encoder_rate": 2e-4, "head_rate": 1e-3},
}


def on_words(kind: str, **settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a network on vectors of words; ``settings`` are groups that differ."""
    groups: dict[str, Any] = {
        "features": "cat",  # where classifiers are to join the network
        "tfidf": TEXT,
        "encoder": {"kind": kind, "name": "learned", "max_tokens": 32},
        "cascade": {
            "last_level": "shortlist",
            "label_rows": "random",
            "rescale": False,
            "combine": "never",
        },
        # a small encoder is as fast as its batches are large, also on a CPU
        "training": {"epochs": 20, "encoder_rate": 3e-3, "head_rate": 3e-3, "micro_batch": 256},
    }
    for name, group in settings.items():
        groups[name] = {**groups.get(name, {}), **group}
    return groups


def surrogate(**label_text: Any) -> dict[str, dict[str, Any]]:
    """Return the settings of DeepXML's phases: word vectors learn fast, on clusters, for most of
    the epochs.
    """
    return {
        "cascade": {"label_rows": "centroid", "dropout": [0.0, 0.0]},  # the encoder has its own
        "label_text": label_text,
        "phases": {"kind": "surrogate", "first_share": 0.6},
        "training": {"epochs": 40, "encoder_rate": 2e-2, "head_rate": 5e-3},
    }


CATALOGUE = [
    Method(
        "xr-linear",
        "linear one-vs-rest classifiers on a balanced label tree, beam search",
        "Yu et al. 2022, PECOS: Prediction for Enormous and Correlated Output Spaces",
        ("tf-idf", "PIFA", "balanced k-means", "squared hinge", "beam"),
        settings={"tfidf": TEXT, "ranker": {"max_passes": PASSES}},
    ),
    Method(
        "parabel",
        "three balanced binary label trees, scores averaged",
        "Prabhu et al. 2018, Parabel: Partitioned Label Trees for Extreme Classification",
        ("tf-idf", "PIFA", "balanced 2-means", "squared hinge", "beam"),
        settings={
            "tfidf": TEXT,
            "tree": {"branching": 2},
            "ranker": {"trees": 3, "max_passes": 20},
            "search": {"score": "hinge-2"},
        },
    ),
    Method(
        "bonsai",
        "three shallow, free 100-ary label trees",
        "Khandagale et al. 2020, Bonsai: diverse and shallow trees for extreme multi-label "
        "classification",
        ("tf-idf", "PIFA", "free k-means", "squared hinge", "beam"),
        settings={
            "tfidf": TEXT,
            "tree": {"kind": "unbalanced", "branching": 100, "max_depth": 2},
            "ranker": {"trees": 3, "max_passes": PASSES},
            "search": {"score": "hinge-2"},
        },
    ),
    Method(
        "plt",
        "probabilistic label tree: the score of a label is a true probability",
        "Wydmuch et al. 2018, A no-regret generalization of hierarchical softmax to extreme "
        "multi-label classification",
        ("tf-idf", "PIFA", "balanced 2-means", "logistic", "exact"),
        settings={
            "tfidf": TEXT,
            "tree": {"branching": 2},
            "ranker": {"loss": "logistic", "cost_positive": 20.0, "cost_negative": 20.0},
            "search": {"score": "sigmoid", "exact": True},
        },
    ),
    Method(
        "extremetext",
        "vectors of words learned with a probabilistic label tree; documents are their means",
        "Wydmuch et al. 2018, A no-regret generalization of hierarchical softmax to extreme "
        "multi-label classification",
        ("tf-idf", "PIFA", "balanced 2-means", "vectors of words, logistic", "exact"),
        settings={
            "tfidf": TEXT,
            "tree": {"branching": 2},
            "search": {"score": "sigmoid", "exact": True},
        },
        ranker="extremetext",
    ),
    Method(
        "dismec",
        "one linear classifier a label over all documents, no tree",
        "Babbar and Schölkopf 2017, DiSMEC: Distributed Sparse Machines for Extreme Multi-label "
        "Classification",
        ("tf-idf", "PIFA", "none", "squared hinge, Newton", "all labels"),
        settings={"tfidf": TEXT, "tree": FLAT, "ranker": NEWTON, "search": {"score": "sigmoid"}},
    ),
    Method(
        "proxml",
        "one sparse linear classifier a label, robust for labels with few documents",
        "Babbar and Schölkopf 2019, Data scarcity, robustness and extreme multi-label "
        "classification",
        ("tf-idf", "PIFA", "none", "squared hinge, L1, proximal Newton", "all labels"),
        settings={
            "tfidf": TEXT,
            "tree": FLAT,
            "ranker": PROXIMAL,
            "search": {"score": "sigmoid"},
        },
    ),
    Method(
        "fastxml",
        "trees over documents that split for nDCG, whose leaves know labels",
        "Prabhu and Varma 2014, FastXML: A Fast, Accurate and Stable Tree-classifier for Extreme "
        "Multi-label Learning",
        ("tf-idf", "none", "50 trees of documents", "leaves", "a leaf a tree"),
        settings={"tfidf": TEXT, "forest": {"cost": 1.0, "propensities": False, "tail_share": 0.0}},
        ranker="forest",
    ),
    Method(
        "pfastrexml",
        "trees over documents that split for propensity-scored nDCG, and centroids that bring up "
        "rare labels",
        "Jain et al. 2016, Extreme Multi-label Loss Functions for Recommendation, Tagging, "
        "Ranking and Other Missing "
        "Label Applications",
        ("tf-idf", "none", "50 trees of documents", "leaves, centroids", "a leaf a tree"),
        settings={"tfidf": TEXT},
        ranker="forest",
    ),
    Method(
        "annexml",
        "documents near each other in learnt embeddings vote with their labels",
        "Tagami 2017, AnnexML: Approximate Nearest Neighbor Search for Extreme Multi-label "
        "Classification",
        (
            "tf-idf",
            "label-kNN graph",
            "partitions of documents",
            "embeddings",
            "nearest neighbours",
        ),
        settings={"tfidf": TEXT},
        ranker="neighbours",
    ),
    Method(
        "cascadexml",
        "one pass through a transformer, a level of the label tree at each of some layers, "
        "trained end to end",
        "Kharbanda et al. 2022, CascadeXML: Rethinking Transformers for End-to-end "
        "Multi-resolution Training",
        ("tokens, tf-idf", "PIFA", "balanced 2-means", "transformer", "cascade of shortlists"),
        # rates, length of vectors and trees of the classifiers beside the network: those that
        # ranked best (RESULTS.md)
        settings={
            "features": "cat",
            "tfidf": TEXT,
            "encoder": {"weight": 0.25},
            "training": {"encoder_rate": 2e-4, "head_rate": 5e-4},
            "ranker": {"max_passes": PASSES, "trees": 3},
        },
        network="cascade",
    ),
    Method(
        "lightxml",
        "a transformer's last five layers side by side, for clusters of labels and the labels of "
        "the best, or for all",
        "Jiang et al. 2021, LightXML: Transformer with Dynamic Negative Sampling for "
        "High-Performance Extreme "
        "Multi-label Text Classification",
        (
            "tokens",
            "PIFA",
            "balanced 2-means, one level or none",
            "transformer",
            "shortlist of clusters, or all labels",
        ),
        settings={
            "features": "cat",  # where classifiers are to join the network
            "tfidf": TEXT,
            # first rows, rates and averaging: those that ranked best (RESULTS.md)
            "cascade": {"merge": "concat", "bottleneck": 400, "rescale": False, "combine": "never"},
            "training": {"encoder_rate": 2e-4, "head_rate": 5e-4, "average": 0.3},
        },
        network="cascade",
    ),
    Method(
        "xr-transformer",
        "a transformer tuned level by level of a label tree, then linear classifiers on its "
        "vectors and tf-idf",
        "Zhang et al. 2021, Fast Multi-Resolution Transformer Fine-tuning for Extreme Multi-label "
        "Text Classification",
        ("tokens, tf-idf", "PIFA", "balanced k-means", "squared hinge on Φcat", "beam"),
        # few epochs, as vectors that know their documents by heart mislead the classifiers on them
        # (RESULTS.md)
        settings={
            **RECURSIVE,
            "recursive": {"cost_sensitive": False},
            "ranker": {"max_passes": PASSES, "negatives": "tfn+man", "trees": 3},
        },
        network="recursive",
    ),
    Method(
        "x-transformer",
        "a transformer tuned on clusters of labels, then linear classifiers on its vectors and "
        "tf-idf",
        "Chang et al. 2020, Taming Pretrained Transformers for Extreme Multi-label Text "
        "Classification",
        ("tokens, tf-idf", "PIFA", "balanced k-means", "squared hinge on Φcat", "beam"),
        settings={
            **RECURSIVE,
            "recursive": {
                "resolutions": "one",
                "finest": "clusters",
                "bootstrap": False,
                "cost_sensitive": False,
            },
            "training": {**RECURSIVE["training"], "loss": "squared-hinge"},
            "ranker": {"max_passes": PASSES, "negatives": "tfn+man", "trees": 3},
        },
        network="recursive",
    ),
    Method(
        "xml-cnn",
        "convolutions over word vectors, a bottleneck, and all labels one-vs-all",
        "Liu et al. 2017, Deep Learning for Extreme Multi-label Text Classification",
        ("words", "none", "none", "convolutions", "all labels"),
        settings=on_words("cnn", encoder={"max_tokens": 128}, cascade={"last_level": "full"}),
        network="cascade",
    ),
    Method(
        "attentionxml",
        "an LSTM over word vectors, whose words each label attends to in its own way; a network a "
        "level of the tree",
        "You et al. 2019, AttentionXML: Label Tree-based Attention-Aware Deep Model for "
        "High-Performance Extreme "
        "Multi-Label Text Classification",
        (
            "words",
            "PIFA",
            "balanced 2-means, one level",
            "LSTM, attention of labels",
            "shortlist of clusters",
        ),
        settings=on_words(
            "lstm",
            encoder={"max_tokens": 128},
            training={
                "epochs": 24,
                "head_optimiser": "adamw",
                "encoder_decay": 0.0,
                "head_decay": 0.0,
                "micro_batch": 0,
            },
        ),
        network="attention",
    ),
    Method(
        "inceptionxml",
        "short texts: convolutions along word vectors, clusters of labels and the labels of the "
        "best at once",
        "Kharbanda et al. 2023, InceptionXML: A Lightweight Framework with Synchronized Negative "
        "Sampling for Short "
        "Text Extreme Classification",
        ("words", "PIFA", "balanced 2-means, one level", "convolutions", "shortlist of clusters"),
        settings=on_words("inception", cascade={"detach_epochs": 5}),
        network="cascade",
    ),
    Method(
        "inceptionxml-lf",
        "short texts and label text: routed convolutions, classifiers of label words, label graph "
        "and free rows",
        "Kharbanda et al. 2024, Learning label-label correlations in extreme multi-label "
        "classification via label "
        "features (Gandalf), appendix A",
        (
            "words",
            "PIFA, then label words",
            "balanced 2-means, one level",
            "convolutions",
            "shortlist of clusters",
        ),
        settings=on_words(
            "routed-inception",
            label_text={"parts": ["text", "graph", "free"]},
            phases={"kind": "tied"},
        ),
        network="cascade",
    ),
    Method(
        "astec",
        "short texts: a weighted sum of word vectors, learnt on clusters, then labels among the "
        "nearest ones",
        "Dahiya et al. 2021, DeepXML: A Deep Extreme Multi-Label Learning Framework Applied to "
        "Short Text Documents",
        ("words", "PIFA", "balanced 2-means, one level", "sum of word vectors", "nearest labels"),
        settings=on_words("bag", **surrogate()),
        network="cascade",
    ),
    Method(
        "decaf",
        "astec with classifiers made of label words and a refinement",
        "Mittal et al. 2021, DECAF: Deep Extreme Classification with Label Features",
        (
            "words",
            "PIFA",
            "balanced 2-means, one level",
            "sum of word vectors, label words",
            "nearest labels",
        ),
        settings=on_words("bag", **surrogate(parts=["text", "free"], combine="sum")),
        network="cascade",
    ),
    Method(
        "eclare",
        "astec with classifiers made of label words, those of related labels, and a refinement",
        "Mittal et al. 2021, ECLARE: Extreme Classification with Label Graph Correlations",
        (
            "words",
            "PIFA",
            "balanced 2-means, one level",
            "sum of word vectors, label words",
            "nearest labels",
        ),
        settings=on_words("bag", **surrogate(parts=["text", "graph", "free"])),
        network="cascade",
    ),
]
