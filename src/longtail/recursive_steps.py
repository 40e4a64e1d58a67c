"""The steps of the pipeline that tune an encoder level after level: the first loop of XR-Transformer's algorithm 2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace as replace_settings
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config, Training
from longtail.data.csr import csr_of_slots
from longtail.data.dataset import Dataset
from longtail.features.encoder import Encoder
from longtail.features.tokens import Tokens
from longtail.linear.tree_ranker import fit_rows
from longtail.metrics import evaluate
from longtail.neural.batches import Batches
from longtail.neural.checkpoints import Checkpoints
from longtail.neural.embedder import Embedder
from longtail.neural.initial_rows import prior_logit
from longtail.neural.layout import level_epochs, tuned_levels
from longtail.neural.loop import fit
from longtail.neural.recursive import Matcher, Nodes, Resolution, joined_nodes, relevances
from longtail.neural.run_log import BEST_BY
from longtail.tree.tree import LabelTree
from longtail.work import Work, told

__all__ = ["Measured", "fit_recursive", "level_training"]

_WARM_UP = 0.1  # of the epochs of a level; the rest cools down, nearly the linear schedule of the paper


def fit_recursive(
    documents: Dataset,
    embedder: Embedder,
    tokens: Tokens,
    tree: LabelTree,
    config: Config,
    work: Work,
    valid: Dataset | None,
    log_file: Path | None,
) -> Embedder:
    """Return the encoder after all levels; each level is two stages: its training, and what it gives the next one."""
    levels = tree.coarsen(documents.label_matrix)  # R^(t), eq. 6
    encoder = embedder.network.encoder
    if config.training.compile and isinstance(encoder, Encoder):
        encoder.model.compile()
    last = tuned_levels(tree.widths, config.recursive.finest) - 1
    measured = None if valid is None else Measured.of(valid, tree, embedder)
    handed: _Handed | None = None
    for t, epochs in enumerate(level_epochs(config.recursive.epochs, config.training.epochs, last + 1)):
        level = _Level(t, epochs, embedder, tree, levels, tokens, config, work)
        with told(f"level {t + 1} of {last + 1}, network") as say:
            matcher = level.trained(handed, measured, log_file)
            say(f"{tree.widths[t]:,} nodes, {epochs} epochs")
        if t < last:
            handed = level.handed(matcher, handed)
            measured = None if measured is None else measured.below(matcher, config.recursive.shortlist)
        del matcher  # its classifiers make room for those of the next level
    return embedder.freeze()


def level_training(training: Training, t: int, epochs: int) -> Training:
    """Return the settings of training for one level by itself, of these epochs."""
    warm_up = _WARM_UP * epochs
    board = training.tensorboard
    return replace_settings(
        training,
        epochs=epochs,
        warmup_epochs=warm_up,
        cooldown_epochs=epochs - warm_up,
        tensorboard=board and f"{board}/level-{t + 1}",  # steps are counted anew on each level
    )


class _Handed(NamedTuple):
    """What a level gives the next one."""

    vectors: NDArray[np.float32]  # (n, d) of all documents
    matched: Nodes  # P (n, k), the nodes it would choose


class Measured(NamedTuple):
    """Validation documents on the way down, with the nodes that the levels so far chose for them."""

    levels: Sequence[sparse.csr_array]
    tokens: Tokens
    matched: Nodes | None = None

    @classmethod
    def of(cls, valid: Dataset, tree: LabelTree, embedder: Embedder) -> Measured:
        """Return the documents above the first level."""
        return cls(tree.coarsen(valid.label_matrix), embedder.tokeniser(valid.document_texts()))

    def below(self, matcher: Matcher, k: int) -> Measured:
        """Return them with the ``k`` best nodes of a level, for the next one."""
        return Measured(self.levels, self.tokens, matcher.match(self.tokens, self.matched, max(k, 1))[1])

    def precision(self, matcher: Matcher) -> dict[str, float]:
        """Return P@1, P@3 and P@5 of the level's nodes."""
        truth = self.levels[matcher.network.level]
        nodes = matcher.match(self.tokens, self.matched, 5)[1]
        ranks = np.broadcast_to(np.arange(nodes.shape[1], 0, -1, dtype=np.float32), nodes.shape)
        metrics = evaluate(csr_of_slots(ranks, nodes, truth.shape[1]), truth.astype(bool).astype(np.float32))
        return {name: float(metrics[name]) for name in BEST_BY}


class _Level(NamedTuple):
    """One level of the loop."""

    t: int
    epochs: int
    embedder: Embedder
    tree: LabelTree
    levels: Sequence[sparse.csr_array]
    tokens: Tokens
    config: Config
    work: Work

    def trained(self, handed: _Handed | None, measured: Measured | None, log_file: Path | None) -> Matcher:
        """Return the network of the level, trained: Θ goes on from the level above (algorithm 1)."""
        config, t = self.config, self.t
        encoder = self.embedder.network.encoder
        network = Resolution(encoder, self.tree, t, config.recursive, config.training, config.seed)
        matcher = Matcher(self.embedder.tokeniser, network, config.training.precision)

        def make() -> dict[str, np.ndarray]:
            checkpoints = Checkpoints(self.work.stages, self.work.input_hash, t)
            network.parents = self._given(handed)
            if not checkpoints.exists():
                self._set_first_rows(network, handed)
            validate = None if measured is None else partial(measured.precision, matcher)
            training, batches = self._training()
            fit(
                network,
                batches,
                training,
                seed=config.seed + t,
                checkpoints=checkpoints,
                validate=validate,
                log_file=log_file,
            )
            return network.to_arrays()

        network.load_arrays(self.work.arrays(f"network-{t}", make))
        return matcher

    def _training(self) -> tuple[Training, Batches]:
        """Return the settings of this level's training, and its documents, whose positives weigh R̂."""
        training = level_training(self.config.training, self.t, self.epochs)
        positives = relevances(self.levels[self.t], self.config.recursive.cost_sensitive)
        return training, Batches(self.tokens, positives, training.batch_size, self.config.seed + self.t)

    def handed(self, matcher: Matcher, above: _Handed | None) -> _Handed:
        """Return P^(t) and the vectors that the next level's classifiers start from (eq. 7, 11)."""
        k = self.config.recursive.shortlist

        def make() -> dict[str, np.ndarray]:
            vectors, nodes = matcher.match(self.tokens, None if above is None else above.matched, max(k, 1))
            return {"vectors": vectors, "nodes": nodes[:, :k]}

        arrays = self.work.arrays(f"matched-{self.t}", make)
        return _Handed(arrays["vectors"], arrays["nodes"])

    def _given(self, handed: _Handed | None) -> Nodes | None:
        """Return the parents of M^(t) (eq. 8): those that the level above chose, and the true ones."""
        return None if handed is None else joined_nodes(handed.matched, self.levels[self.t - 1])

    def _set_first_rows(self, network: Resolution, handed: _Handed | None) -> None:
        """Let the classifiers start by a linear solve, or at random about the score of a node that is not true."""
        head, given = network.heads[0], network.parents
        if self.config.recursive.bootstrap:
            head.set_rows(*self._first_rows(handed, given))
            return
        slots = len(head.bias)
        if given is not None:
            slots = round(float((given >= 0).sum(1).mean()) * network.tables.most_children[self.t - 1])
        bias = prior_logit(self.levels[self.t], slots) if self.config.recursive.loss == "bce" else -1.0
        head.set_rows(head.weight, np.full(len(head.bias), bias, np.float32))

    def _first_rows(
        self, handed: _Handed | None, given: Nodes | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return W_init (eq. 11) and biases: linear classifiers on the vectors of the level above."""
        vectors = self.embedder.embed(self.tokens) if handed is None else handed.vectors
        scale = np.float32(1 / max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-6))
        settings, config = self.config.recursive, self.config
        ranker = replace_settings(
            config.ranker,
            loss="logistic" if settings.loss == "bce" else "squared-hinge",
            solver="dual",
            cost_negative=config.ranker.cost_positive,  # R̂ alone tells negatives from positives
            cost_sensitive=settings.cost_sensitive,
            alpha=settings.alpha,
            prune=0.0,
        )
        parents = None
        if given is not None:
            parents = csr_of_slots(np.ones(given.shape, np.float32), given, self.tree.widths[self.t - 1])
        weights, bias = fit_rows(vectors * scale, self.levels[self.t], self.tree, self.t, parents, ranker, config.seed)
        return weights * scale, bias
