"""The settings: one frozen Struct a stage, each field with its range and its one line of
documentation.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from longtail.config.networks import (
    Attention,
    Cascade,
    Encoder,
    LabelText,
    Phases,
    Recursive,
    Training,
)
from longtail.config.stage import Count, NotNegative, Positive, Stage, check_levels

__all__ = [
    "Calibration",
    "Config",
    "Forest",
    "Gandalf",
    "LabelFeatures",
    "Neighbours",
    "Ranker",
    "Search",
    "TfIdf",
    "Tree",
]


class TfIdf(Stage, frozen=True):
    """One block of text features; several are joined side by side, each normalised and weighted."""

    unit: Annotated[Literal["word", "char"], Meta(description="count words or characters")] = "word"
    ngram_min: Annotated[Count, Meta(description="shortest n-gram, in units")] = 1
    ngram_max: Annotated[Count, Meta(description="longest n-gram, in units")] = 1
    min_df: Annotated[Count, Meta(description="leave out n-grams in fewer documents than this")] = 1
    max_df: Annotated[
        float, Meta(gt=0, le=1, description="leave out n-grams in a larger share of documents")
    ] = 1.0
    max_features: Annotated[
        int, Meta(ge=0, description="keep this many of the most frequent n-grams; 0 = all")
    ] = 0
    sublinear_tf: Annotated[bool, Meta(description="use 1 + ln tf in place of tf")] = False
    weight: Annotated[Positive, Meta(description="weight of this block beside the others")] = 1.0

    def __post_init__(self) -> None:
        if self.ngram_min > self.ngram_max:
            raise ValueError(
                f"ngram_min: found {self.ngram_min}; expected at most ngram_max ({self.ngram_max})"
            )


_LabelFeatureKind = Literal["pifa", "text", "pifa+text", "graph", "graph+text", "output", "joint"]


class LabelFeatures(Stage, frozen=True):
    """What a label looks like to the clustering."""

    kind: Annotated[
        _LabelFeatureKind,
        Meta(
            description="mean of its documents' features (Bonsai: input), those of its text, or "
            "both; graph: its neighbours', too; output: labels of the same documents; "
            "joint: pifa and output"
        ),
    ] = "pifa"
    tree_kinds: Annotated[
        tuple[_LabelFeatureKind, ...],
        Meta(description="the same for each tree of the linear classifiers; empty = kind for all"),
    ] = ()
    graph_steps: Annotated[
        Count, Meta(description="steps of the random walk from each label, for graph")
    ] = 400
    graph_reset: Annotated[
        float, Meta(ge=0, le=1, description="chance to go back to the label at each step")
    ] = 0.8
    graph_keep: Annotated[Count, Meta(description="neighbours kept of each label")] = 10
    graph_max_documents: Annotated[
        int,
        Meta(ge=0, description="labels with more documents are not walked through; 0 = all are"),
    ] = 500
    graph_features: Annotated[Count, Meta(description="largest features kept of each label")] = 1000

    @property
    def kinds(self) -> frozenset[str]:
        """All kinds that the label trees of a method may be clustered by."""
        return frozenset({self.kind, *self.tree_kinds})

    def kind_of_tree(self, number: int) -> str:
        """Return the kind for a tree of the linear classifiers."""
        if self.tree_kinds:
            return self.tree_kinds[number]
        return self.kind


class Gandalf(Stage, frozen=True):
    """Gandalf: texts of labels as further training documents, whose labels are their neighbours in
    the label graph.
    """

    use: Annotated[bool, Meta(description="whether texts of labels are trained on")] = False
    share: Annotated[
        float, Meta(gt=0, le=1, description="share of the labels whose texts are trained on")
    ] = 1.0
    sample: Annotated[
        Literal["random", "tail"],
        Meta(description="which labels, if not all: any, or rare ones first"),
    ] = "random"
    threshold: Annotated[
        float,
        Meta(
            ge=0, le=1, description="neighbours with a smaller value in the graph do not count (δ)"
        ),
    ] = 0.1


class Tree(Stage, frozen=True):
    """The label tree."""

    kind: Annotated[
        Literal["balanced", "unbalanced", "random", "frequency", "flat"],
        Meta(
            description="balanced or free k-means, a tree without features for comparison, "
            "or none: one-vs-all"
        ),
    ] = "balanced"
    branching: Annotated[int, Meta(ge=2, description="children of an inner node")] = 16
    leaf_size: Annotated[Count, Meta(description="most labels under one last inner node")] = 100
    levels: Annotated[
        tuple[Count, ...],
        Meta(description="nodes on each level, coarse to fine; empty = branching"),
    ] = ()
    max_depth: Annotated[
        Count, Meta(description="most levels above the labels where k-means is unbalanced")
    ] = 3
    sample: Annotated[
        int,
        Meta(
            ge=0,
            description="k-means of a node looks at this many labels, the others join; 0 = all",
        ),
    ] = 16384
    max_iterations: Annotated[Count, Meta(description="most k-means rounds a node")] = 20
    min_gain: Annotated[
        NotNegative, Meta(description="stop k-means below this gain of mean similarity")
    ] = 1e-5

    def __post_init__(self) -> None:
        check_levels(self.levels)


class Ranker(Stage, frozen=True):
    """The linear classifiers on the nodes of every level."""

    loss: Annotated[
        Literal["squared-hinge", "logistic"], Meta(description="loss of each classifier")
    ] = "squared-hinge"
    solver: Annotated[
        Literal["dual", "newton", "proximal"],
        Meta(
            description="coordinate descent in the dual, Newton steps, "
            "or proximal Newton steps with an L1 penalty"
        ),
    ] = "dual"
    penalty: Annotated[Positive, Meta(description="λ of the L1 penalty of the proximal solver")] = (
        0.1
    )
    dense_penalty: Annotated[
        Positive,
        Meta(
            description="penalty of the weights of dense features, "
            "where that of the sparse ones is 1"
        ),
    ] = 1.0
    cost_positive: Annotated[Positive, Meta(description="C of a positive document (Cp)")] = 1.0
    cost_negative: Annotated[Positive, Meta(description="C of a negative document (Cn)")] = 1.0
    level_costs: Annotated[
        tuple[tuple[Positive, Positive], ...],
        Meta(
            description="[Cp, Cn] of each level, coarse to fine; "
            "empty = cost_positive and cost_negative on all"
        ),
    ] = ()
    cost_sensitive: Annotated[
        bool, Meta(description="weight positives by how many labels lie below the node")
    ] = False
    alpha: Annotated[
        Positive,
        Meta(description="relevance of negatives beside the positives' shares, if cost_sensitive"),
    ] = 1.0
    negatives: Annotated[
        Literal["tfn", "man", "tfn+man"],
        Meta(
            description="documents whose true parent is the node, "
            "those the level above puts there, or both"
        ),
    ] = "tfn"
    level_negatives: Annotated[
        tuple[Literal["tfn", "man", "tfn+man"], ...],
        Meta(description="the same for each level, coarse to fine; empty = negatives on all"),
    ] = ()
    hard_negatives: Annotated[
        int,
        Meta(
            ge=0,
            description="one-vs-all: negatives from so many nearest labels, and by chance; "
            "0 = all documents",
        ),
    ] = 0
    bias: Annotated[NotNegative, Meta(description="value of the constant feature; 0 = none")] = 1.0
    tolerance: Annotated[
        Positive, Meta(description="where the solver stops, as a size of gradients (ε)")
    ] = 0.1
    max_passes: Annotated[
        Count, Meta(description="most passes over a node's documents, or Newton steps")
    ] = 100
    prune: Annotated[NotNegative, Meta(description="drop weights smaller than this")] = 0.1
    weights: Annotated[
        Literal["float32", "float16", "int8"],
        Meta(description="how weights are stored and searched"),
    ] = "float16"
    trees: Annotated[Count, Meta(description="trees in the ensemble, scores averaged")] = 1
    shard_labels: Annotated[
        int,
        Meta(ge=0, description="most labels of one file of the last level; 0 = all in one file"),
    ] = 0

    def __post_init__(self) -> None:
        if self.loss == "logistic" and self.solver != "dual":
            raise ValueError(f"solver: found {self.solver} with the logistic loss; expected dual")


class Forest(Stage, frozen=True):
    """FastXML and PfastreXML: trees over documents, and centroids of labels beside them."""

    trees: Annotated[Count, Meta(description="trees, whose label distributions are averaged")] = 50
    leaf_size: Annotated[Count, Meta(description="most documents of a leaf")] = 10
    leaf_labels: Annotated[Count, Meta(description="most labels kept in a leaf")] = 100
    cost: Annotated[Positive, Meta(description="C of the separator at each split")] = 4.0
    max_rounds: Annotated[
        Count, Meta(description="most rounds of dealing documents to the two sides")
    ] = 20
    prune: Annotated[
        NotNegative, Meta(description="drop weights of separators smaller than this")
    ] = 0.01
    tail_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="weight of the label's centroid in the score (1 − α); 0 = trees only",
        ),
    ] = 0.2
    tail_gamma: Annotated[
        Positive, Meta(description="how fast the centroid's score falls with distance (γ)")
    ] = 30.0
    propensities: Annotated[
        bool, Meta(description="whether training weighs labels by propensities")
    ] = True
    propensity_a: Annotated[Positive, Meta(description="A of the propensities")] = 0.55
    propensity_b: Annotated[Positive, Meta(description="B of the propensities")] = 1.5


class Neighbours(Stage, frozen=True):
    """AnnexML: documents near each other in learnt embeddings vote with their labels."""

    learners: Annotated[Count, Meta(description="learners, whose votes are averaged")] = 15
    part_size: Annotated[
        Count, Meta(description="documents of a part, each with an embedding of its own")
    ] = 6000
    dimensions: Annotated[Count, Meta(description="dimensions of an embedding")] = 50
    epochs: Annotated[Count, Meta(description="passes over the documents of a part")] = 10
    rate: Annotated[Positive, Meta(description="learning rate (AdaGrad)")] = 0.1
    gamma: Annotated[
        Positive, Meta(description="what cosines are multiplied by in the ranking loss (γ)")
    ] = 10.0
    graph_neighbours: Annotated[
        Count, Meta(description="documents of like labels that each should be near to")
    ] = 10
    negatives: Annotated[Count, Meta(description="other documents drawn for each document")] = 10
    voters: Annotated[Count, Meta(description="nearest documents that vote")] = 10
    index: Annotated[Literal["exact", "faiss"], Meta(description="how neighbours are found")] = (
        "exact"
    )


class Search(Stage, frozen=True):
    """How the tree is searched for one document."""

    beam_size: Annotated[Count, Meta(description="nodes kept on each level")] = 10
    score: Annotated[
        Literal["hinge-2", "hinge-3", "sigmoid"],
        Meta(description="value of a margin v along the path: exp(−max(0, 1−v)^p) or σ(v)"),
    ] = "hinge-3"
    last_level: Annotated[
        Literal["path", "margin"],
        Meta(
            description="score of a label: the product along its path, "
            "or its own margin alone (PECOS: noop)"
        ),
    ] = "path"
    exact: Annotated[
        bool, Meta(description="the exact best labels, in place of those that a beam finds")
    ] = False

    def __post_init__(self) -> None:
        if self.exact and self.last_level == "margin":
            raise ValueError(
                "exact: found true with last_level=margin; expected false: "
                "margins may rise along a path"
            )


class Calibration(Stage, frozen=True):
    """How scores become probabilities."""

    method: Annotated[
        Literal["isotonic", "logistic", "none"],
        Meta(description="map from scores to probabilities, or none"),
    ] = "isotonic"
    share: Annotated[
        float,
        Meta(
            ge=0,
            le=0.5,
            description="share of the documents held out for it where no --valid is given",
        ),
    ] = 0.02
    max_documents: Annotated[Count, Meta(description="most documents held out")] = 500


class Config(Stage, frozen=True):
    """Everything that decides a model, resolved; its hash is part of the model folder."""

    method: Annotated[str, Meta(description="name in the catalogue of methods")] = "xr-linear"
    preset: Annotated[
        str,
        Meta(
            description="recipe of a paper that the settings begin with, such as amazon-670k; "
            "empty = our own"
        ),
    ] = ""
    seed: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="same seed, settings and data = same bytes")
    ] = 0
    features: Annotated[
        Literal["tfidf", "cat", "dnn"],
        Meta(
            description="what linear classifiers read: tf-idf, "
            "an encoder's vectors beside it (Φcat), or these alone"
        ),
    ] = "tfidf"
    normalise_features: Annotated[
        bool, Meta(description="scale each row of given sparse features to length 1")
    ] = True
    custom: Annotated[
        dict[str, Any],
        Meta(description="settings of a ranker that another package registers; it checks them"),
    ] = field(default_factory=dict)
    tfidf: Annotated[
        tuple[TfIdf, ...], Meta(min_length=1, description="blocks of text features")
    ] = (TfIdf(),)
    gandalf: Gandalf = Gandalf()
    label_features: LabelFeatures = LabelFeatures()
    tree: Tree = Tree()
    encoder: Encoder = Encoder()
    cascade: Cascade = Cascade()
    label_text: LabelText = LabelText()
    phases: Phases = Phases()
    recursive: Recursive = Recursive()
    attention: Attention = Attention()
    training: Training = Training()
    ranker: Ranker = Ranker()
    forest: Forest = Forest()
    neighbours: Neighbours = Neighbours()
    search: Search = Search()
    calibration: Calibration = Calibration()
