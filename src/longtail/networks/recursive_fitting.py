"""Tuning of an encoder level after level in the pipeline: the first loop of XR-Transformer's
algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec.structs import replace as replace_settings
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Training
from longtail.data.csr import csr_of_slots
from longtail.features.encoder import Encoder
from longtail.networks.base import NetworkRun
from longtail.networks.batches import Batches
from longtail.networks.embedder import Embedder
from longtail.networks.heads.initial_rows import prior_logit
from longtail.networks.layout import LevelLength, level_lengths
from longtail.networks.level_fitting import LevelValidation, level_training
from longtail.networks.recursive import Matcher, Nodes, Resolution, joined_nodes
from longtail.networks.training.loop import fit
from longtail.rankers.level_problems import fit_rows
from longtail.reporting import logged_stage

__all__ = ["fit_recursive"]


def fit_recursive(run: NetworkRun, n_levels: int) -> Embedder:
    """Return the encoder after the first ``n_levels`` levels; each level is two stages: its
    training, and its input for the next one.
    """
    tree = run.tree
    config = run.config
    encoder = run.embedder.network.encoder
    levels = tree.coarsen(run.documents.label_matrix)  # R^(t), eq. 6
    if config.training.compile and isinstance(encoder, Encoder):
        encoder.model.compile()
    last = n_levels - 1
    validation = LevelValidation.of(run)
    above: _LevelOutput | None = None
    for t, length in enumerate(level_lengths(config.recursive, config.training.epochs, last + 1)):
        level = _Level(t, length, run, levels)
        with logged_stage(f"level {t + 1} of {last + 1}, network") as note:
            matcher = level.trained(above, validation)
            note(f"{tree.widths[t]:,} nodes, {length}")
        if t < last:
            above = level.output(matcher, above)
            if validation is not None:
                validation = validation.below(matcher, config.recursive.shortlist)
        del matcher  # its classifiers make room for those of the next level
    return run.embedder.freeze()


@dataclass(frozen=True)
class _LevelOutput:
    """The input of the next level: vectors and matched nodes of all documents."""

    vectors: NDArray[np.float32]  # (n, d)
    matched: Nodes  # P (n, k), the best nodes


@dataclass(frozen=True)
class _Level:
    """One level of the loop."""

    t: int
    length: LevelLength
    run: NetworkRun
    levels: Sequence[sparse.csr_array]  # (n, nodes) R^(t) of each level

    def trained(self, above: _LevelOutput | None, validation: LevelValidation | None) -> Matcher:
        """Return the network of the level, trained: Θ goes on from the level above (algorithm
        1).
        """
        t = self.t
        config = self.run.config
        embedder = self.run.embedder
        encoder = embedder.network.encoder
        network = Resolution(
            encoder,
            self.run.tree,
            t,
            config.recursive,
            config.training,
            config.seed,
            loss=self.run.loss,
        )
        matcher = Matcher(embedder.tokeniser, network, config.training.precision)

        def make() -> dict[str, np.ndarray]:
            checkpoints = self.run.checkpoints(t)
            network.parents = self._parents(above)
            if not checkpoints.exists():
                self._set_initial_weights(network, above)
            validate = None if validation is None else partial(validation.precision, matcher)
            training, batches = self._training()
            fit(
                network,
                batches,
                training,
                seed=config.seed + t,
                checkpoints=checkpoints,
                validate=validate,
                steps=self.length.steps,
            )
            return network.to_arrays()

        network.load_arrays(self.run.work.arrays(f"network-{t}", make, self.run.inputs))
        return matcher

    def _training(self) -> tuple[Training, Batches]:
        """Return the settings of this level's training, and its documents, the values of whose
        positives are R.
        """
        config = self.run.config
        positives = self.levels[self.t].astype(np.float32)
        batches = Batches(
            self.run.tokens, positives, config.training.batch_size, config.seed + self.t
        )
        return level_training(config.training, config.recursive, self.length, len(batches)), batches

    def output(self, matcher: Matcher, above: _LevelOutput | None) -> _LevelOutput:
        """Return P^(t) and the vectors that the next level's classifiers start from (eq. 7, 11)."""
        k = self.run.config.recursive.shortlist

        def make() -> dict[str, np.ndarray]:
            vectors, nodes = matcher.match(
                self.run.tokens, None if above is None else above.matched, max(k, 1)
            )
            return {"vectors": vectors, "nodes": nodes[:, :k]}

        arrays = self.run.work.arrays(f"matched-{self.t}", make, self.run.inputs)
        return _LevelOutput(arrays["vectors"], arrays["nodes"])

    def _parents(self, above: _LevelOutput | None) -> Nodes | None:
        """Return the parents of M^(t) (eq. 8): the nodes that the level above matched, and the true
        ones.
        """
        if above is None:
            return None
        return joined_nodes(above.matched, self.levels[self.t - 1])

    def _set_initial_weights(self, network: Resolution, above: _LevelOutput | None) -> None:
        """Start the classifiers by a linear solve, or at random about the score of a node that is
        not true.
        """
        head = network.heads[0]
        parents = network.parents
        settings = self.run.config.recursive
        if settings.bootstrap and (self.t > 0 or settings.bootstrap_root):
            head.set_rows(*self._bootstrapped(above, parents))
            return
        hinge = self.run.config.training.loss == "squared-hinge"
        slots = len(head.bias)
        if parents is not None:
            slots = round(
                float((parents >= 0).sum(1).mean()) * network.tables.most_children[self.t - 1]
            )
        bias = -1.0 if hinge else prior_logit(self.levels[self.t], slots)
        head.set_rows(head.weight, np.full(len(head.bias), bias, np.float32))

    def _bootstrapped(
        self, above: _LevelOutput | None, matched: Nodes | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return W_init (eq. 11) and biases: linear classifiers on the vectors of the level
        above.
        """
        vectors = self.run.embedder.embed(self.run.tokens) if above is None else above.vectors
        scale = np.float32(1 / max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-6))
        tree = self.run.tree
        config = self.run.config
        settings = config.recursive
        ranker = replace_settings(
            config.ranker,
            loss="squared-hinge" if config.training.loss == "squared-hinge" else "logistic",
            solver="dual",
            cost_negative=config.ranker.cost_positive,  # R̂ alone tells negatives from positives
            cost_sensitive=settings.cost_sensitive,
            alpha=settings.alpha,
            prune=0.0,
        )
        parents = None
        if matched is not None:
            parents = csr_of_slots(
                np.ones(matched.shape, np.float32), matched, tree.widths[self.t - 1]
            )
        weights, bias = fit_rows(
            vectors * scale, self.levels[self.t], tree, self.t, parents, ranker, config.seed
        )
        return weights * scale, bias
