"""The steps of the pipeline that train a network which ranks labels by itself: in one go, or in two phases.

InceptionXML-LF (appendix A.4 of Gandalf) first learns word vectors with classifiers made of label words alone, then
clusters the labels anew and gives each a row of its own («tied»). Astec, DECAF and ECLARE (DeepXML) first learn word
vectors on clusters of labels, then classifiers of labels on vectors that stay («surrogate»).
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np
import torch
from msgspec.structs import replace as replace_settings
from scipy import sparse

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import ConfigError
from longtail.features.matrix import Features, unit_vectors
from longtail.neural.cascade import CascadeXML
from longtail.neural.cascade_folder import ranking_settings
from longtail.neural.cascade_ranker import CascadeRanker
from longtail.neural.cascade_training import train_ranker
from longtail.neural.heads.head import head_settings
from longtail.neural.heads.label_text import LabelText, Part, label_words
from longtail.neural.heads.text_head import TextHead
from longtail.neural.layout import phase_epochs
from longtail.neural.ranks import Ranks, as_ranks, current_ranks
from longtail.neural.words.word_encoder import WordEncoder
from longtail.steps.network_run import NetworkRun
from longtail.steps.told import told
from longtail.steps.trees import label_graph_of
from longtail.tree.cluster import build_tree
from longtail.tree.tree import LabelTree

__all__ = ["fit_cascade"]

log = logging.getLogger("longtail")


def fit_cascade(run: NetworkRun) -> CascadeRanker:
    """Return the network, trained; its weights are a stage, or one a phase, and training has checkpoints of its own."""
    phases = _Phases(*run)
    train = {"one": phases.at_once, "tied": phases.tied, "surrogate": phases.surrogate}
    ranker = train[run.config.label_text.phases]()
    ranker.settle_label_text()  # from here on a label's words cost nothing
    return ranker.freeze()


class _Words(NamedTuple):
    """What labels say of themselves, rows in the order of labels."""

    texts: sparse.csr_array  # (L, V) z⁰, tf-idf weights of a label's words
    graph: sparse.csr_array | None  # (L, L) G, whose rows are its neighbours


class _Phases(NetworkRun):
    """The training in one go, or in two phases."""

    def at_once(self) -> CascadeRanker:
        """Train on the tree, from the encoder to the labels."""
        of_labels = self._of_labels(self.tree, self._words(), self.config.label_text.parts)
        return self._trained(self._ranker(self.tree, self.config, of_labels=of_labels), "network", 0, self.config)

    def tied(self) -> CascadeRanker:
        """Train without w_l, then cluster by z¹, and again with w_l, which start at z¹, as long as Φ(z¹) was (A.4)."""
        tree, parts, words = self.tree, self.config.label_text.parts, self._words()
        of_first, of_second = self._of_phases()
        without = tuple(part for part in parts if part != "free")
        first = self._of_labels(tree, words, without)
        assert first is not None
        self._trained(self._ranker(tree, of_first, of_labels=first), "network-0", 0, of_first)
        z1 = first.text.z1().detach().cpu().numpy()  # (L, D), in the order of the first tree
        by_label = np.empty_like(z1)
        by_label[tree.order] = z1
        tree = self._clustered(by_label, tree) if tree.n_levels > 1 else tree
        second = self._of_labels(tree, words, parts)
        assert second is not None
        second.text.start_from(first.text)
        second.set_free(by_label[tree.order] * first.text.first_scale)
        return self._trained(self._ranker(tree, of_second, of_labels=second), "network-1", 1, of_second)

    def surrogate(self) -> CascadeRanker:
        """Train the encoder on clusters, then labels among those whose centroids are nearest, on what was learnt."""
        tree = self.tree
        of_first, of_second = self._of_phases()
        clusters = tree.coarsen(self.documents.label_matrix)[0]
        flat = LabelTree(np.arange(tree.widths[0], dtype=np.int32), ())
        names = Labels.of([str(number) for number in range(tree.widths[0])])
        own = {"layers": ((1,),), "shortlist": (), "dropout": self.config.cascade.dropout[:1]}  # of its one level
        cascade = replace_settings(self.config.cascade, **own, last_level="full", label_rows="random")
        config = replace_settings(of_first, cascade=cascade)
        coarse = self._replace(documents=Dataset(clusters, names, self.documents.texts), valid=None)
        coarse._trained(self._ranker(flat, config), "network-0", 0, config)
        self._encoder().embedding.requires_grad_(False)
        itself = LabelTree(tree.order, (np.arange(tree.n_labels + 1),))  # each label below a node of its own
        of_labels = self._of_labels(itself, self._words(), self.config.label_text.parts)
        config = replace_settings(of_second, cascade=ranking_settings(self.config, tree.n_labels))
        return self._trained(self._ranker(itself, config, of_labels=of_labels, fixed=1), "network-1", 1, config)

    def _ranker(self, tree: LabelTree, config: Config, **options: Any) -> CascadeRanker:
        """Return a network that is still to be trained; ``options`` are those of :class:`CascadeXML`."""
        encoder, device = self.embedder.network.encoder, self.embedder.device
        network = CascadeXML(
            encoder, tree, config.cascade, config.training, config.seed, device, loss=self.loss, **options
        )
        return CascadeRanker(self.embedder.tokeniser, network, tree)

    def _trained(self, ranker: CascadeRanker, stage: str, number: int, config: Config) -> CascadeRanker:
        def make() -> dict[str, np.ndarray]:
            checkpoints = self.checkpoints(number)
            train_ranker(ranker, self.documents, self.tokens, config, self.valid, checkpoints, self.log_file)
            return ranker.network.to_arrays()

        with told(stage) as say:
            arrays = self.work.together(stage, make)
            if current_ranks().count > 1 and current_ranks().first:
                ranker = self._alone(ranker.tree, config)
            ranker.network.load_arrays(arrays)
            say(f"{ranker.n_parameters:,} parameters")
        return ranker

    def _alone(self, tree: LabelTree, config: Config) -> CascadeRanker:
        """Return the network for the rows of all ranks: what comes after training is the first one's work alone."""
        training = replace_settings(config.training, head_optimiser="sgd")  # no optimiser's state in memory
        config = replace_settings(config, training=training)
        with as_ranks(Ranks()):
            try:
                return self._ranker(tree, config, std=0)
            except torch.OutOfMemoryError:
                log.warning("the classifiers of all ranks do not fit on one GPU: the rest is done on the CPU")
            self.embedder.network.encoder.cpu()
            return self._ranker(tree, config, std=0)

    def _of_phases(self) -> tuple[Config, Config]:
        """Return the settings of both phases, which share the epochs; the first may have a rate of its own."""
        settings = self.config.label_text
        training = self.config.training
        epochs = phase_epochs(settings.first_share, training.epochs)
        first = replace_settings(training, epochs=epochs[0])
        if settings.first_rate:
            first = replace_settings(first, encoder_rate=settings.first_rate, head_rate=settings.first_rate)
        second = replace_settings(training, epochs=epochs[1])
        return replace_settings(self.config, training=first), replace_settings(self.config, training=second)

    def _clustered(self, z1: np.ndarray, like: LabelTree) -> LabelTree:
        """Return a label tree by dense vectors of the labels (L, D), with as many nodes as ``like``."""

        def make() -> dict[str, np.ndarray]:
            settings = replace_settings(self.config.tree, kind="balanced", levels=like.widths[:-1])
            return build_tree(
                Features.of(unit_vectors(z1)), self.documents.label_counts, settings, self.config.seed
            ).to_arrays()

        with told("tree by label words") as say:
            tree = LabelTree.from_arrays(self.work.arrays("tree-words", make))
            say(" → ".join(f"{width:,}" for width in tree.widths))
        return tree

    def _words(self) -> _Words | None:
        """Return the words of the labels, if classifiers are made of them."""
        parts = self.config.label_text.parts
        if parts == ("free",):
            return None
        tokens = self.embedder.tokeniser(self.documents.labels.described())
        texts = label_words(tokens, self._encoder().idf.cpu().numpy())
        if "graph" not in parts:
            return _Words(texts, None)
        return _Words(texts, label_graph_of(self.documents, self.config, self.work))

    def _of_labels(self, tree: LabelTree, words: _Words | None, parts: tuple[Part, ...]) -> TextHead | None:
        """Return classifiers of labels, in the tree's order, that their words make; None where these do not count."""
        if words is None:
            return None
        graph = None if words.graph is None else words.graph[tree.order][:, tree.order]
        config, embedding = self.config, self._encoder().embedding
        text = LabelText(embedding, words.texts[tree.order], graph, parts, config.label_text.combine, config.seed)
        return TextHead(text, seed=config.seed, **head_settings(config.training))

    def _encoder(self) -> WordEncoder:
        encoder = self.embedder.network.encoder
        if not isinstance(encoder, WordEncoder):
            kind = self.config.encoder.kind
            raise ConfigError(f"label_text: found encoder.kind={kind}; expected one that reads vectors of words")
        return encoder
