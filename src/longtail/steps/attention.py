"""The steps of the pipeline that train AttentionXML: a network on each level of the label tree, from coarse to fine."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import NamedTuple, cast

import numpy as np
from scipy import sparse

from longtail.neural.attention import AttentionLevel, AttentionXML
from longtail.neural.batches import Batches
from longtail.neural.heads.initial_rows import prior_logit
from longtail.neural.layout import LevelLength, level_lengths
from longtail.neural.ranker import NeuralRanker
from longtail.neural.recursive import Matcher, Nodes, joined_nodes
from longtail.neural.training.loop import fit
from longtail.neural.words.lstm import LstmEncoder
from longtail.steps.levels import LevelValidation, level_training
from longtail.steps.network_run import NetworkRun
from longtail.steps.told import told

__all__ = ["fit_attention"]


def fit_attention(run: NetworkRun) -> NeuralRanker:
    """Return the network of all levels, trained; the run's embedder has the LSTM that the first level begins with.

    Each level is two stages: its training, and the candidates that it gives the next one.
    """
    tree = run.tree
    matrices = [matrix.minimum(1).astype(np.float32) for matrix in tree.coarsen(run.documents.label_matrix)]
    each = _Levels(run, matrices, LevelValidation.of(run))
    levels = list[AttentionLevel]()
    chosen: Nodes | None = None
    # as many epochs for each level: it is the first that takes long to learn where to attend
    lengths = level_lengths(run.config.recursive, run.config.training.epochs, tree.n_levels, last=1)
    for t, length in enumerate(lengths):
        with told(f"level {t + 1} of {tree.n_levels}, network") as say:
            levels.append(each.trained(levels, chosen, length))
            say(f"{tree.widths[t]:,} nodes, {length}")
        if t + 1 < tree.n_levels:
            chosen = each.chosen(levels)
    return NeuralRanker(run.embedder.tokeniser, AttentionXML(levels), tree).freeze()


class _Levels(NamedTuple):
    """What all levels share."""

    run: NetworkRun
    matrices: Sequence[sparse.csr_array]  # (n, nodes) of each level, the targets of σ
    measured: LevelValidation | None

    def trained(self, above: Sequence[AttentionLevel], chosen: Nodes | None, length: LevelLength) -> AttentionLevel:
        """Return the network of the next level, trained: LSTM, W_1 and W_2 go on from the level above."""
        config, t = self.run.config, len(above)
        encoder = cast(LstmEncoder, self.run.embedder.network.encoder) if not above else deepcopy(above[-1].encoder)
        level = AttentionLevel(
            encoder, self.run.tree, t, config.recursive, config.training, config.seed, loss=self.run.loss
        )

        def make() -> dict[str, np.ndarray]:
            level.parents = None if chosen is None else joined_nodes(chosen, self.matrices[t - 1])
            level.start(above[-1] if above else None, self._prior(t) - (self._prior(t - 1) if above else 0))
            self._train(level, [*above, level], length)
            return level.to_arrays()

        level.load_arrays(self.run.work.arrays(f"attention-{t}", make))
        level.parents = None
        level.heads[0].settle()
        return level

    def _train(self, level: AttentionLevel, levels: Sequence[AttentionLevel], length: LevelLength) -> None:
        """Train one level; its nodes are measured as the levels above find them."""
        t, seed = level.level, self.run.config.seed + level.level
        batches = Batches(self.run.tokens, self.matrices[t], self.run.config.training.batch_size, seed)
        validate = None if self.measured is None else partial(self.measured.precision, self._matcher(levels))
        fit(
            level,
            batches,
            level_training(self.run.config, t, length, len(batches)),
            seed=seed,
            checkpoints=self.run.checkpoints(t),
            validate=validate,
            log_file=self.run.log_file,
            steps=length.steps,
        )

    def _prior(self, t: int) -> float:
        """Return the logit of the share of true ones among a document's candidates on a level."""
        widths = self.run.tree.widths
        children = widths[t] / widths[t - 1] if t else 0
        return prior_logit(self.matrices[t], round(min(self._most, widths[t - 1]) * children) if t else widths[0])

    @property
    def _most(self) -> int:
        """C: how many nodes of a level have candidates below them, beside the true ones."""
        return max(self.run.config.recursive.shortlist, 1)

    def chosen(self, levels: Sequence[AttentionLevel]) -> Nodes:
        """Return (n, C) the best nodes of the last of ``levels`` for each document, whose children are candidates."""

        def make() -> dict[str, np.ndarray]:
            return {"nodes": self._matcher(levels).match(self.run.tokens, None, self._most)[1]}

        return self.run.work.arrays(f"attention-chosen-{len(levels) - 1}", make)["nodes"]

    def _matcher(self, levels: Sequence[AttentionLevel]) -> Matcher:
        return Matcher(self.run.embedder.tokeniser, AttentionXML(levels), self.run.config.training.precision)
