"""Training of CascadeXML and its kin in the pipeline: in one phase, or in two.

InceptionXML-LF (appendix A.4 of Gandalf) first learns word vectors with classifiers made of label
words alone, then clusters the labels anew and gives each a free row («tied»). Astec, DECAF and
ECLARE (DeepXML) first learn word vectors on clusters of labels, then classifiers of labels on
vectors that stay («surrogate»)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from msgspec.structs import replace as replace_settings
from scipy import sparse

from longtail.config import Cascade, Config
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import ConfigError
from longtail.features.matrix import Features, unit_vectors
from longtail.features.tokens import Tokens
from longtail.methods import encoder_of
from longtail.methods.registry import encoder_kind
from longtail.metrics import evaluate
from longtail.networks.base import NetworkRun
from longtail.networks.batches import Batches
from longtail.networks.cascade import CascadeXML
from longtail.networks.cascade_family import phase_epochs, ranking_settings
from longtail.networks.cascade_ranker import CascadeRanker
from longtail.networks.device import in_one_process
from longtail.networks.encoders.word_encoder import WordEncoder
from longtail.networks.heads.head import head_settings
from longtail.networks.heads.initial_rows import Rows, centroid_rows, prior_logit
from longtail.networks.heads.label_text import LabelText, Part, label_words
from longtail.networks.heads.text_head import TextHead
from longtail.networks.training.checkpoints import Checkpoints
from longtail.networks.training.loop import History, fit
from longtail.networks.training.meter import BEST_BY, RECALL
from longtail.reporting import logged_stage
from longtail.steps.process_group import ProcessGroup, current_group, shared_cores
from longtail.steps.trees import label_graph_of
from longtail.tree.cluster import build_tree
from longtail.tree.tree import LabelTree

__all__ = ["CascadeTraining", "train_ranker"]

log = logging.getLogger("longtail")


@dataclass(frozen=True)
class _Words:
    """The words of the labels, rows in the order of labels."""

    texts: sparse.csr_array  # (L, V) z⁰, tf-idf weights of a label's words
    graph: sparse.csr_array | None  # (L, L) G, whose rows are its neighbours


@dataclass(frozen=True)
class CascadeTraining:
    """The training of a network in one phase or in two."""

    run: NetworkRun

    def in_one_phase(self) -> CascadeRanker:
        """Train on the tree, from the encoder to the labels."""
        tree = self.run.tree
        config = self.run.config
        label_head = self._label_head(tree, self._words(), config.label_text.parts)
        return self._trained(
            self._ranker(tree, config, label_head=label_head), "network", 0, config
        )

    def tied(self) -> CascadeRanker:
        """Train without free rows w_l, recluster the labels by z¹, and train again with w_l (A.4).

        The w_l start at z¹, scaled to the norm of Φ(z¹).
        """
        tree = self.run.tree
        parts = self.run.config.label_text.parts
        words = self._words()
        first_config, second_config = self._phase_configs()
        without_free = tuple(part for part in parts if part != "free")
        first = self._label_head(tree, words, without_free)
        assert first is not None
        self._trained(
            self._ranker(tree, first_config, label_head=first), "network-0", 0, first_config
        )
        z1 = first.text.z1().detach().cpu().numpy()  # (L, D), in the order of the first tree
        by_label = np.empty_like(z1)
        by_label[tree.order] = z1
        if tree.n_levels > 1:
            tree = self._clustered(by_label, tree)
        second = self._label_head(tree, words, parts)
        assert second is not None
        second.text.start_from(first.text)
        second.set_free(by_label[tree.order] * first.text.initial_scale)
        ranker = self._ranker(tree, second_config, label_head=second)
        return self._trained(ranker, "network-1", 1, second_config)

    def surrogate(self) -> CascadeRanker:
        """Train the encoder on clusters, then the labels among those of nearest centroids on frozen
        word vectors.
        """
        tree = self.run.tree
        config = self.run.config
        first_config, second_config = self._phase_configs()
        self._train_on_clusters(tree, first_config)
        self._word_encoder().embedding.requires_grad_(False)
        # each label below a node of its own
        one_to_one = LabelTree(tree.order, (np.arange(tree.n_labels + 1),))
        label_head = self._label_head(one_to_one, self._words(), config.label_text.parts)
        second_config = replace_settings(
            second_config, cascade=ranking_settings(config, tree.n_labels)
        )
        ranker = self._ranker(one_to_one, second_config, label_head=label_head, frozen_levels=1)
        return self._trained(ranker, "network-1", 1, second_config)

    def _train_on_clusters(self, tree: LabelTree, config: Config) -> None:
        """Train the encoder with the nodes above the labels in their place: DeepXML's surrogate
        task.
        """
        n_clusters = tree.widths[0]
        cascade = replace_settings(
            config.cascade,
            layers=((1,),),
            shortlist=(),
            dropout=config.cascade.dropout[:1],
            last_level="full",
            label_rows="random",
        )
        config = replace_settings(config, cascade=cascade)
        labels = Labels.of([str(number) for number in range(n_clusters)])
        documents = Dataset(
            tree.coarsen(self.run.documents.label_matrix)[0], labels, self.run.documents.texts
        )
        on_clusters = CascadeTraining(replace(self.run, documents=documents, valid=None))
        flat = LabelTree(np.arange(n_clusters, dtype=np.int32), ())
        on_clusters._trained(on_clusters._ranker(flat, config), "network-0", 0, config)

    def _ranker(self, tree: LabelTree, config: Config, **options: Any) -> CascadeRanker:
        """Return a network that is still to be trained; ``options`` are those of
        :class:`CascadeXML`.
        """
        embedder = self.run.embedder
        network = CascadeXML(
            embedder.network.encoder,
            tree,
            config.cascade,
            config.training,
            config.seed,
            embedder.device,
            loss=self.run.loss,
            **options,
        )
        return CascadeRanker(embedder.tokeniser, network, tree)

    def _trained(
        self, ranker: CascadeRanker, stage: str, number: int, config: Config
    ) -> CascadeRanker:
        """Return the ranker after its training, with the weights of the stage if that was made
        before.
        """
        run = self.run
        with logged_stage(stage) as note:
            arrays = run.work.joint_stage(stage, run.inputs)
            if arrays is None:
                checkpoints = run.checkpoints(number)
                train_ranker(ranker, run.documents, run.tokens, config, run.valid, checkpoints)
                weights = ranker.network.to_arrays()
                arrays = run.work.keep_joint_stage(stage, weights, run.inputs)
            group = current_group()
            if group.size > 1 and group.is_first:
                trained = self._in_one_process(ranker.tree, config)
            else:
                trained = ranker
            trained.network.load_arrays(arrays)
            note(f"{trained.n_parameters:,} parameters")
        return trained

    def _in_one_process(self, tree: LabelTree, config: Config) -> CascadeRanker:
        """Return a network with the rows of all processes: what follows training is done by the
        first one alone.
        """
        # no optimiser's state in memory
        training = replace_settings(config.training, head_optimiser="sgd")
        config = replace_settings(config, training=training)
        encoder = self.run.embedder.network.encoder
        return in_one_process(lambda: self._ranker(tree, config, std=0), [encoder])

    def _phase_configs(self) -> tuple[Config, Config]:
        """Return the settings of both phases, which share the epochs; the first may have a rate of
        its own.
        """
        config = self.run.config
        settings = config.phases
        epochs = phase_epochs(settings.first_share, config.training.epochs)
        first = replace_settings(config.training, epochs=epochs[0])
        if settings.first_rate:
            first = replace_settings(
                first, encoder_rate=settings.first_rate, head_rate=settings.first_rate
            )
        second = replace_settings(config.training, epochs=epochs[1])
        return replace_settings(config, training=first), replace_settings(config, training=second)

    def _clustered(self, z1: np.ndarray, like: LabelTree) -> LabelTree:
        """Return a label tree by dense vectors of the labels (L, D), with as many nodes as
        ``like``.
        """
        run = self.run

        def make() -> dict[str, np.ndarray]:
            settings = replace_settings(run.config.tree, kind="balanced", levels=like.widths[:-1])
            features = Features.of(unit_vectors(z1))
            return build_tree(
                features, run.documents.label_counts, settings, run.config.seed
            ).to_arrays()

        with logged_stage("tree by label words") as note:
            tree = LabelTree.from_arrays(run.work.arrays("tree-words", make, run.inputs))
            note(" → ".join(f"{width:,}" for width in tree.widths))
        return tree

    def _words(self) -> _Words | None:
        """Return the words of the labels, if classifiers are made of them."""
        run = self.run
        parts = run.config.label_text.parts
        if parts == ("free",):
            return None
        tokens = run.embedder.tokeniser(run.documents.labels.described())
        texts = label_words(tokens, self._word_encoder().idf.cpu().numpy())
        if "graph" not in parts:
            return _Words(texts, None)
        return _Words(texts, label_graph_of(run.documents, run.config, run.work))

    def _label_head(
        self, tree: LabelTree, words: _Words | None, parts: tuple[Part, ...]
    ) -> TextHead | None:
        """Return classifiers of labels, in the tree's order, that their words make; None where
        these do not count.
        """
        if words is None:
            return None
        config = self.run.config
        embedding = self._word_encoder().embedding
        graph = None if words.graph is None else words.graph[tree.order][:, tree.order]
        text = LabelText(
            embedding, words.texts[tree.order], graph, parts, config.label_text.combine, config.seed
        )
        return TextHead(text, seed=config.seed, **head_settings(config.training))

    def _word_encoder(self) -> WordEncoder:
        kind = self.run.config.encoder.kind
        if not encoder_kind(kind).reads_words:
            raise ConfigError(
                f"label_text: found encoder.kind={kind}; expected one that reads vectors of words"
            )
        return cast(WordEncoder, self.run.embedder.network.encoder)


def train_ranker(
    ranker: CascadeRanker,
    documents: Dataset,
    tokens: Tokens,
    config: Config,
    valid: Dataset | None = None,
    checkpoints: Checkpoints | None = None,
) -> History:
    """Train the network of ``ranker`` on the documents and their tokens; relevances above 1 count
    as 1.
    """
    with shared_cores(current_group()), _graphs_of_training(ranker.network):
        levels = [_targets(matrix) for matrix in ranker.tree.coarsen(documents.label_matrix)]
        if checkpoints is None or not checkpoints.exists():
            set_initial_weights(ranker, tokens, levels, config.cascade, documents.labels)
        by_length = encoder_of(config).batches_by_length
        batches = Batches(tokens, levels[-1], config.training.batch_size, config.seed, by_length)
        if valid is None:
            validate = None
        else:
            validate = _validation(ranker, valid.with_labels(documents.labels, unknown="drop"))
        return fit(
            ranker.network,
            batches,
            config.training,
            seed=config.seed,
            checkpoints=checkpoints,
            validate=validate,
        )


@contextmanager
def _graphs_of_training(network: CascadeXML) -> Iterator[None]:
    """Let go of the CUDA graphs that were recorded in the body."""
    try:
        yield
    finally:
        network.read.forget_graphs()


def _validation(ranker: CascadeRanker, valid: Dataset) -> Callable[[], dict[str, float]]:
    """Return a function that measures the network as it is: precision, and recall of the shortlists
    (table 11).
    """
    tokens = ranker.tokeniser(valid.document_texts())

    def measure() -> dict[str, float]:
        with ranker.distributed(current_group()):
            metrics = evaluate(
                ranker.search(tokens, min(5, ranker.tree.n_labels))[0], valid.label_matrix
            )
            recalls = ranker.shortlist_recall(tokens, valid.label_matrix)
        kept = {f"{RECALL}{level}": recall for level, recall in enumerate(recalls, 1)}
        return {name: float(metrics[name]) for name in BEST_BY} | kept

    return measure


def set_initial_weights(
    ranker: CascadeRanker,
    tokens: Tokens,
    levels: list[sparse.csr_array],
    settings: Cascade,
    labels: Labels,
) -> None:
    """Set the initial classifiers of each level; random rows are those that the network was made
    with.
    """
    heads = ranker.network.heads
    group = current_group()
    priors = [0.0] * len(heads)
    if settings.prior_bias:
        priors = [
            prior_logit(matrix, size)
            for matrix, size in zip(levels, ranker.network.slots, strict=True)
        ]
    for head, prior in zip(heads, priors, strict=True):
        head.set_bias(prior)
    if settings.label_rows in ("random", "xavier"):
        return
    vectors = _level_vectors(ranker, tokens, group)
    with_texts = settings.label_rows == "centroid+text" and (
        labels.names is not None or labels.texts is not None
    )
    texts: Sequence[tuple[np.ndarray | None, np.ndarray | None]] = [(None, None)] * len(heads)
    if with_texts:
        texts = _text_vectors(ranker, labels, group)
    for head, level_vectors, matrix, prior, (text, mean) in zip(
        heads, vectors, levels, priors, texts, strict=True
    ):
        if head.text is not None:  # starts at the labels' words
            continue
        rows: Rows = centroid_rows(level_vectors, matrix, prior, text, mean, head.nodes)
        head.set_rows(rows.weights, rows.bias)


def _level_vectors(ranker: CascadeRanker, tokens: Tokens, group: ProcessGroup) -> list[np.ndarray]:
    """Return the vectors of all documents for each level; each rank reads some of them."""
    if group.size == 1:
        return ranker.level_vectors(tokens)
    part = group.part(len(tokens))
    lengths = group.lengths(len(tokens))
    ends = tokens.ends[part.start : part.stop + 1]
    part_tokens = replace(tokens, ids=tokens.ids[ends[0] : ends[-1]], ends=ends - ends[0])
    return [group.all_gather_array(level, lengths) for level in ranker.level_vectors(part_tokens)]


def _text_vectors(
    ranker: CascadeRanker, labels: Labels, group: ProcessGroup
) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Return the vectors of the nodes' texts: of a label its own, of a node above the mean of its
    labels'.

    Of several ranks each reads the texts of its own labels, and has the rows of its own nodes and
    the mean of all."""
    tree = ranker.tree
    runs = [group.part(width) for width in tree.widths]
    labels_of_part = np.sort(tree.order[runs[-1]])
    descriptions = labels.described()
    levels = ranker.level_vectors(
        ranker.tokeniser([descriptions[label] for label in labels_of_part]), "label texts"
    )
    nodes = tree.coarsen(
        sparse.csr_array(sparse.eye_array(tree.n_labels, format="csr", dtype=np.float32))
    )
    if group.size == 1:
        return [
            (matrix.T.tocsr() @ vectors, None)
            for matrix, vectors in zip(nodes, levels, strict=True)
        ]
    by_level = list[tuple[np.ndarray, np.ndarray | None]]()
    for level, (run, matrix, vectors) in enumerate(zip(runs, nodes, levels, strict=True)):
        mean = group.all_reduce_array(vectors.sum(0, dtype=np.float64)) / matrix.shape[1]
        rows = matrix[labels_of_part].T.tocsr()
        if level == tree.n_levels - 1:  # a label's text is read by the rank that has its row
            texts = rows[run] @ vectors
        else:
            texts = group.all_reduce_array(rows @ vectors)[run]
        by_level.append((texts, mean.astype(np.float32)))
    return by_level


def _targets(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix = matrix.astype(np.float32)
    np.minimum(matrix.data, 1, out=matrix.data)
    return matrix
