"""Training of AttentionXML in the pipeline, a network on each level of the label tree, from coarse
to fine; and its files in a model folder.

The encoder of the first level is the folder's encoder/; the other levels' are among their arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config
from longtail.features.text_encoder import TextEncoder
from longtail.features.tokens import Tokeniser
from longtail.networks.attention import AttentionLevel, AttentionXML
from longtail.networks.base import NetworkRun
from longtail.networks.batches import Batches
from longtail.networks.encoders.lstm import LstmEncoder
from longtail.networks.heads.initial_rows import prior_logit
from longtail.networks.layout import LevelLength, level_lengths
from longtail.networks.level_fitting import LevelValidation, level_training
from longtail.networks.ranker import TREE, NeuralRanker, map_rows
from longtail.networks.recursive import Matcher, Nodes, joined_nodes
from longtail.networks.training.loop import fit
from longtail.reporting import logged_stage
from longtail.store import Folder, FolderWriter
from longtail.tree.tree import LabelTree

__all__ = ["fit_attention", "load_attention", "save_attention"]

_FILES = "attention-"  # beginning of the names of the levels' files
_ENCODER = "encoder."
_HEAD = "head."


def fit_attention(run: NetworkRun) -> NeuralRanker:
    """Return the network of all levels, trained; the run's embedder has the LSTM that the first
    level begins with.

    Each level is two stages: its training, and the candidates of the next one.
    """
    tree = run.tree
    matrices = [
        matrix.minimum(1).astype(np.float32) for matrix in tree.coarsen(run.documents.label_matrix)
    ]
    training = _LevelTraining(run, matrices, LevelValidation.of(run))
    levels = list[AttentionLevel]()
    chosen: Nodes | None = None
    # as many epochs for each level: it is the first that takes long to learn where to attend
    lengths = level_lengths(run.config.recursive, run.config.training.epochs, tree.n_levels, last=1)
    for t, length in enumerate(lengths):
        with logged_stage(f"level {t + 1} of {tree.n_levels}, network") as note:
            levels.append(training.trained(levels, chosen, length))
            note(f"{tree.widths[t]:,} nodes, {length}")
        if t + 1 < tree.n_levels:
            chosen = training.chosen(levels)
    return NeuralRanker(run.embedder.tokeniser, AttentionXML(levels), tree).freeze()


@dataclass(frozen=True)
class _LevelTraining:
    """The training of one level after the other."""

    run: NetworkRun
    matrices: Sequence[sparse.csr_array]  # (n, nodes) of each level, the targets of σ
    validation: LevelValidation | None

    def trained(
        self, above: Sequence[AttentionLevel], chosen: Nodes | None, length: LevelLength
    ) -> AttentionLevel:
        """Return the network of the next level, trained: LSTM, W_1 and W_2 go on from the level
        above.
        """
        t = len(above)
        config = self.run.config
        if above:
            encoder = deepcopy(above[-1].encoder)
            shift = self._prior(t) - self._prior(t - 1)
        else:
            encoder = cast(LstmEncoder, self.run.embedder.network.encoder)
            shift = self._prior(t)
        level = AttentionLevel(
            encoder,
            self.run.tree,
            t,
            config.recursive,
            config.training,
            config.seed,
            loss=self.run.loss,
        )

        def make() -> dict[str, np.ndarray]:
            level.parents = None if chosen is None else joined_nodes(chosen, self.matrices[t - 1])
            level.start(above[-1] if above else None, shift)
            self._train(level, [*above, level], length)
            return level.to_arrays()

        level.load_arrays(self.run.work.arrays(f"attention-{t}", make, self.run.inputs))
        level.parents = None
        level.heads[0].drop_optimiser_state()
        return level

    def _train(
        self, level: AttentionLevel, levels: Sequence[AttentionLevel], length: LevelLength
    ) -> None:
        """Train one level; its nodes are measured as the levels above find them."""
        t = level.level
        seed = self.run.config.seed + t
        batches = Batches(
            self.run.tokens, self.matrices[t], self.run.config.training.batch_size, seed
        )
        if self.validation is None:
            validate = None
        else:
            validate = partial(self.validation.precision, self._matcher(levels))
        fit(
            level,
            batches,
            level_training(self.run.config, t, length, len(batches)),
            seed=seed,
            checkpoints=self.run.checkpoints(t),
            validate=validate,
            steps=length.steps,
        )

    def _prior(self, t: int) -> float:
        """Return the logit of the share of true ones among a document's candidates on a level."""
        widths = self.run.tree.widths
        candidates = widths[0]
        if t:
            candidates = round(min(self._most, widths[t - 1]) * (widths[t] / widths[t - 1]))
        return prior_logit(self.matrices[t], candidates)

    @property
    def _most(self) -> int:
        """C: the number of nodes of a level with candidates below them, beside the true ones."""
        return max(self.run.config.recursive.shortlist, 1)

    def chosen(self, levels: Sequence[AttentionLevel]) -> Nodes:
        """Return (n, C) the best nodes of the last of ``levels`` for each document, whose children
        are candidates.
        """

        def make() -> dict[str, np.ndarray]:
            return {"nodes": self._matcher(levels).match(self.run.tokens, None, self._most)[1]}

        name = f"attention-chosen-{len(levels) - 1}"
        return self.run.work.arrays(name, make, self.run.inputs)["nodes"]

    def _matcher(self, levels: Sequence[AttentionLevel]) -> Matcher:
        return Matcher(
            self.run.embedder.tokeniser, AttentionXML(levels), self.run.config.training.precision
        )


def save_attention(ranker: NeuralRanker, folder: FolderWriter) -> None:
    """Write the tree and attention-N.safetensors of each level; the first level's encoder is
    written by others.
    """
    folder.write_arrays(TREE, ranker.tree.to_arrays())
    for level in cast(AttentionXML, ranker.network).levels:
        arrays = level.to_arrays()
        written = {
            name: array
            for name, array in arrays.items()
            if level.level or not name.startswith(_ENCODER)
        }
        folder.write_arrays(_file(level.level), written)


def load_attention(
    folder: Folder, config: Config, tokeniser: Tokeniser, encoder: TextEncoder, device: torch.device
) -> NeuralRanker:
    """Read the levels below an encoder, which becomes the first one's; on the CPU attention vectors
    stay mapped.
    """
    if encoder.kind != "lstm":
        raise ValueError(f"attention: found an encoder {type(encoder).__name__}; expected an LSTM")
    encoder = cast(LstmEncoder, encoder)
    tree = LabelTree.from_arrays(folder.arrays(TREE))
    training = replace(config.training, head_optimiser="sgd")  # no optimiser's state in memory
    levels = []
    for t in range(tree.n_levels):
        level_encoder = deepcopy(encoder) if t else encoder
        level = AttentionLevel(
            level_encoder, tree, t, config.recursive, training, config.seed, std=0
        )
        _load_level(level, folder.arrays(_file(t)))
        levels.append(level)
    return NeuralRanker(tokeniser, AttentionXML(levels).to(device), tree).freeze()


def _load_level(level: AttentionLevel, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, tensor in level.trained().items():
        if name.startswith(_ENCODER) and not level.level:
            continue
        if name not in arrays or arrays[name].shape != tuple(tensor.shape):
            shape = arrays[name].shape if name in arrays else "nothing"
            raise ValueError(
                f"{_file(level.level)}, {name}: found {shape}; expected {tuple(tensor.shape)}"
            )
        tensor.copy_(torch.from_numpy(np.array(arrays[name])))
    map_rows(level.heads[0], {name: arrays[_HEAD + name] for name in ("weight", "bias")})


def _file(level: int) -> str:
    return f"{_FILES}{level}.safetensors"
