"""Training of AttentionXML in the pipeline: a network on each level of the label tree, from coarse
to fine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np
from msgspec.structs import replace as replace_settings
from scipy import sparse

from longtail.networks.attention import AttentionLevel, AttentionXML
from longtail.networks.attention_family import averaged_shares, kept_nodes
from longtail.networks.attention_trees import AttentionTrees
from longtail.networks.base import NetworkRun
from longtail.networks.batches import Batches
from longtail.networks.device import in_one_process
from longtail.networks.encoders.lstm import LstmEncoder
from longtail.networks.encoders.word_encoder import make_word_encoder
from longtail.networks.heads.initial_rows import prior_logit
from longtail.networks.layout import LevelLength, level_lengths
from longtail.networks.level_fitting import LevelValidation, level_training
from longtail.networks.ranker import NeuralRanker
from longtail.networks.recursive import Matcher, Nodes, joined_nodes
from longtail.networks.training.loop import fit
from longtail.reporting import logged_stage
from longtail.steps.process_group import current_group, shared_cores

__all__ = ["fit_attention"]


def fit_attention(run: NetworkRun) -> NeuralRanker:
    """Return the network of all levels, trained; the run's embedder has the LSTM that the first
    level begins with.

    Each level is two stages: its training, and the candidates of the next one. Of several trees,
    each has networks of its own, which begin with the same vectors of words.
    """
    trees = [run.tree, *run.more_trees]
    encoder = cast(LstmEncoder, run.embedder.network.encoder)
    encoders = [encoder]  # all before the first one is trained
    encoders += [_redrawn(encoder, run.config.seed + tree) for tree in range(1, len(trees))]
    networks = list[AttentionXML]()
    for number, (tree, encoder) in enumerate(zip(trees, encoders, strict=True)):
        config = replace_settings(run.config, seed=run.config.seed + number)
        of_tree = replace(run, tree=tree, config=config)
        networks.append(_fit_tree(of_tree, encoder, number))
    if len(networks) == 1:
        return NeuralRanker(run.embedder.tokeniser, networks[0], run.tree).freeze()
    return NeuralRanker(run.embedder.tokeniser, AttentionTrees(networks, trees), run.tree).freeze()


def _redrawn(encoder: LstmEncoder, seed: int) -> LstmEncoder:
    """Return an LSTM that has the same vectors of words, and other weights."""
    drawn = make_word_encoder(
        encoder.kind,
        encoder.embedding.weight.numpy(force=True),
        encoder.idf.numpy(force=True),
        encoder.pad,
        encoder.max_tokens,
        seed,
        {"hidden": encoder.hidden, "word_dropout": encoder.word_dropout},
    )
    return cast(LstmEncoder, drawn.to(encoder.embedding.weight.device))


def _fit_tree(run: NetworkRun, encoder: LstmEncoder, number: int) -> AttentionXML:
    """Return the network of the levels of one tree, trained.

    Args:
        run: with this tree, and its seed.
        encoder: that the first level begins with.
        number: of the tree.
    """
    tree = run.tree
    matrices = [
        matrix.minimum(1).astype(np.float32) for matrix in tree.coarsen(run.documents.label_matrix)
    ]
    # as many epochs for each level: it is the first that takes long to learn where to attend
    lengths = level_lengths(run.config.attention, run.config.training.epochs, tree.n_levels, last=1)
    n_batches = -(-len(run.tokens) // run.config.training.batch_size)
    averages = averaged_shares(run.config, [length.passes(n_batches) for length in lengths])
    training = _LevelTraining(run, encoder, number, matrices, averages, LevelValidation.of(run))
    levels = list[AttentionLevel]()
    chosen: Nodes | None = None
    for t, length in enumerate(lengths):
        with logged_stage(f"level {t + 1} of {tree.n_levels}, network") as note:
            levels.append(training.trained(levels, chosen, length))
            note(f"{tree.widths[t]:,} nodes, {length}")
        if t + 1 < tree.n_levels:
            chosen = training.chosen(levels)
    return AttentionXML(training.in_one_process(levels))


@dataclass(frozen=True)
class _LevelTraining:
    """The training of one level after the other."""

    run: NetworkRun
    encoder: LstmEncoder  # that the first level begins with
    number: int  # of the tree
    matrices: Sequence[sparse.csr_array]  # (n, nodes) of each level, the targets of σ
    averages: Sequence[float]  # share of each level's steps with averaged weights
    validation: LevelValidation | None
    # weights of the levels so far, memory-mapped, where several processes have their parts of them
    stored: list[Mapping[str, np.ndarray]] = field(default_factory=list)

    def trained(
        self, above: Sequence[AttentionLevel], chosen: Nodes | None, length: LevelLength
    ) -> AttentionLevel:
        """Return the network of the next level, trained: LSTM and W_1 to W_o go on from the level
        above.
        """
        t = len(above)
        config = self.run.config
        if above:
            encoder = deepcopy(above[-1].encoder)
            shift = self._prior(t) - self._prior(t - 1)
        else:
            encoder = self.encoder
            shift = self._prior(t)
        level = AttentionLevel(
            encoder,
            self.run.tree,
            t,
            config.attention,
            config.training,
            config.seed,
            loss=self.run.loss,
        )
        group = current_group()

        stage = f"{self._stage}-{t}"
        arrays = self.run.work.joint_stage(stage, self.run.inputs)
        if arrays is None:
            level.parents = None if chosen is None else joined_nodes(chosen, self.matrices[t - 1])
            level.start(above[-1] if above else None, shift)
            with shared_cores(group):
                self._train(level, [*above, level], length)
            weights = level.to_arrays()
            arrays = self.run.work.keep_joint_stage(stage, weights, self.run.inputs)
        level.load_arrays(arrays)
        if group.size > 1:
            self.stored.append(arrays)
        level.parents = None
        level.heads[0].drop_optimiser_state()
        return level

    def in_one_process(self, levels: Sequence[AttentionLevel]) -> Sequence[AttentionLevel]:
        """Return the levels, at the first process with the attention vectors of all: what follows
        training is done by this one alone.
        """
        group = current_group()
        if group.size == 1 or not group.is_first:
            return levels
        config = self.run.config
        # no optimiser's state in memory
        training = replace_settings(config.training, head_optimiser="sgd")
        attention = config.attention

        def make() -> list[AttentionLevel]:
            whole = list[AttentionLevel]()
            for level, arrays in zip(levels, self.stored, strict=True):
                at = level.level
                whole.append(
                    AttentionLevel(
                        level.encoder, self.run.tree, at, attention, training, config.seed, std=0
                    )
                )
                whole[at].load_arrays(arrays)
            return whole

        return in_one_process(make, [level.encoder for level in levels])

    def _train(
        self, level: AttentionLevel, levels: Sequence[AttentionLevel], length: LevelLength
    ) -> None:
        """Train one level; its nodes are measured as the levels above find them."""
        t = level.level
        config = self.run.config
        seed = config.seed + t
        batches = Batches(self.run.tokens, self.matrices[t], config.training.batch_size, seed)
        training = level_training(config.training, config.attention, length, len(batches))
        if self.validation is None:
            validate = None
        else:
            validate = partial(self.validation.precision, self._matcher(levels))
        fit(
            level,
            batches,
            replace_settings(training, average=self.averages[t]),
            seed=seed,
            checkpoints=self.run.checkpoints(self.number * self.run.tree.n_levels + t),
            validate=validate,
            steps=length.steps,
        )

    def _prior(self, t: int) -> float:
        """Return the logit of the share of true ones among a document's candidates on a level."""
        widths = self.run.tree.widths
        candidates = widths[0]
        if t:
            kept = min(self._kept(t - 1), widths[t - 1])
            candidates = round(kept * (widths[t] / widths[t - 1]))
        return prior_logit(self.matrices[t], candidates)

    @property
    def _stage(self) -> str:
        """The beginning of the names of a tree's stages."""
        if not self.number:
            return "attention"
        return f"attention-tree-{self.number}"

    def _kept(self, t: int) -> int:
        """Return C: the number of nodes of a level with candidates below them, beside the true
        ones.
        """
        return kept_nodes(self.run.config.attention, self.run.tree.n_levels)[t]

    def chosen(self, levels: Sequence[AttentionLevel]) -> Nodes:
        """Return (n, C) the best nodes of the last of ``levels`` for each document, whose children
        are candidates.
        """
        name = f"{self._stage}-chosen-{len(levels) - 1}"
        arrays = self.run.work.joint_stage(name, self.run.inputs)
        if arrays is None:
            kept = self._kept(len(levels) - 1)
            with shared_cores(current_group()):
                nodes = self._matcher(levels).match(self.run.tokens, None, kept)[1]
            arrays = self.run.work.keep_joint_stage(name, {"nodes": nodes}, self.run.inputs)
        chosen: Nodes = arrays["nodes"]
        return chosen

    def _matcher(self, levels: Sequence[AttentionLevel]) -> Matcher:
        return Matcher(
            self.run.embedder.tokeniser, AttentionXML(levels), self.run.config.training.precision
        )
