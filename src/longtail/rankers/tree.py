"""A linear classifier on every node of a label tree: XR-Linear, Parabel, Bonsai and PLT are
settings of it.

The tree is trained level after level (``level_problems.py``). Without inner levels it is one
classifier per label, trained in batches: DiSMEC and ProXML (``one_vs_all.py``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from longtail.config import Config, Search
from longtail.config import Ranker as Settings
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, UsageError
from longtail.features.matrix import Features
from longtail.methods import network_of, network_ranks, ranks_alone
from longtail.methods.family import around
from longtail.methods.registry import ranker_reads
from longtail.rankers.base import LabelHints, Node, RankerExplanation, RankerFamily, TrainingPoints
from longtail.rankers.level_problems import (
    LevelProblems,
    check_level_settings,
    level_ranker,
    uses_matcher,
)
from longtail.rankers.one_vs_all import LabelProblems, batch_offsets, join_batches, label_batches
from longtail.reporting import logged_stage
from longtail.search.beam import Descent, LevelWeights, SearchTree, ranked_labels
from longtail.search.chunks import Chunks
from longtail.search.ensemble import MISSING_MARGIN
from longtail.search.shard_files import shard_file
from longtail.search.shards import Shards, checked_shards, cut_parents
from longtail.steps.inputs import EVERYTHING, Inputs, settings_in
from longtail.steps.run import Run
from longtail.steps.trees import label_trees, tree_inputs
from longtail.steps.work import Work
from longtail.store import Folder, FolderWriter, open_folder
from longtail.tree.cluster import level_widths
from longtail.tree.given import Parents
from longtail.tree.tree import LabelTree

__all__ = ["TreeFamily", "TreeRanker", "fit_ranker", "fit_shards", "read_ranker"]

_NO_HINTS = LabelHints()


@dataclass(frozen=True)
class TreeRanker:
    """A label tree and the weights of its nodes, one :class:`Chunks` per level; those of labels may
    be in shards.
    """

    tree: LabelTree
    levels: tuple[LevelWeights, ...]
    bias: float

    @property
    def n_labels(self) -> int:
        """Labels of the tree."""
        return self.tree.n_labels

    @property
    def label_tree(self) -> LabelTree:
        """The label tree, which may have labels alone."""
        return self.tree

    @property
    def shards(self) -> Shards | None:
        """The weights of the labels, if they are in shards."""
        last = self.levels[-1]
        if isinstance(last, Shards):
            return last
        return None

    def check_widths(self, n_columns: int, dense_width: int) -> bool:
        """Return whether all levels read so many sparse and dense columns."""
        return all(
            (level.n_columns, level.dense_width) == (n_columns, dense_width)
            for level in self.levels
        )

    def missing_score(self, search: Search) -> float:
        """Return 0, or the margin that stands for a label that the beam does not reach."""
        if search.last_level == "margin":
            return MISSING_MARGIN
        return 0.0

    def search(
        self,
        features: Features,
        search: Search,
        k: int | None,
        exclude: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return (n, L) scores of the ``k`` best labels per document (None: all that the beam
        reaches), best first.
        """
        beam = self.descent(features, search, exclude).run(k)
        return ranked_labels(beam, self.tree, search.last_level)

    def descent(
        self, features: Features, search: Search, exclude: sparse.csr_array | None = None
    ) -> Descent:
        """Return the search as a descent to nodes of the last level and their log scores, which
        tell apart what scores may not.

        Where labels are ranked by their margins, these take the place of log scores.
        """
        return Descent.of(self.level_features(features), self._search_tree, search, exclude)

    @cached_property
    def _search_tree(self) -> SearchTree:
        """The weights and labels as a search reads them."""
        return SearchTree.of(self.levels, self.bias, self.tree.order)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle holds: all but the search tree, whose list cannot be
        pickled and is made again.
        """
        return {name: value for name, value in vars(self).items() if name != "_search_tree"}

    def level_features(self, features: Features) -> Features:
        """Return what the levels read of documents: their features."""
        return features

    def explain(
        self, features: Features, label: int, search: Search, number: int
    ) -> RankerExplanation:
        """Explain one label: a step for each node from the root; their scores multiply to the path
        score.
        """
        nodes = tuple(
            self._node(features, level, node, search, number)
            for level, node in enumerate(self.tree.ancestors(label))
        )
        if search.last_level == "margin":
            return RankerExplanation(nodes[-1].score, nodes)
        return RankerExplanation(float(np.prod([node.score for node in nodes])), nodes)

    def _node(self, features: Features, level: int, node: int, search: Search, number: int) -> Node:
        start, end = features.sparse.indptr[:2]
        columns = features.sparse.indices[start:end]
        values = features.sparse.data[start:end].astype(np.float64)
        node_columns, node_weights, dense_weights = self.levels[level].weights(node)
        weight_of = dict(
            zip(node_columns.tolist(), node_weights.astype(np.float64).tolist(), strict=True)
        )
        weights = np.array([weight_of.get(column, 0.0) for column in columns.tolist()])
        bias = weight_of.get(features.sparse.shape[1], 0.0) * self.bias
        dense = float(features.dense[0].astype(np.float64) @ dense_weights)
        margin = float(values @ weights) + bias + dense
        is_label = level == self.tree.n_levels - 1
        by_margin = is_label and search.last_level == "margin"
        return Node(
            tree=number,
            level=level,
            labels=self._labels_below(level, node),
            margin=margin,
            score=margin if by_margin else _score(margin, search.score),
            bias=bias,
            dense=dense,
            columns=columns,
            values=values,
            weights=weights,
        )

    def _labels_below(self, level: int, node: int) -> NDArray[np.int32]:
        first = node
        last = node + 1
        for offsets in self.tree.offsets[level:]:
            first = int(offsets[first])
            last = int(offsets[last])
        return self.tree.order[first:last]

    def write(self, folder: FolderWriter, number: int) -> None:
        """Write the tree and a file for each level, or each shard of the labels."""
        folder.write_arrays(f"tree-{number}.safetensors", self.tree.to_arrays())
        for level, weights in enumerate(self.levels):
            name = f"ranker-{number}-{level}"
            if isinstance(weights, Chunks):
                folder.write_arrays(f"{name}.safetensors", weights.to_arrays())
            elif isinstance(weights, Shards):
                _write_shards(folder, weights, name)


def _score(margin: float, score: str) -> float:
    """Return exp(−max(0, 1 − v)^p) or σ(v), as the search does."""
    if score == "sigmoid":
        return float(special.expit(margin))
    power = 2 if score == "hinge-2" else 3
    return float(np.exp(-(max(0.0, 1.0 - margin) ** power)))


def _write_shards(folder: FolderWriter, shards: Shards, name: str) -> None:
    """Write each shard, or take over the file of the stage that made it."""
    for number, part in enumerate(shards.parts):
        if part is None:
            held = f"{len(shards.held)} of {shards.n_shards} shards"
            raise UsageError(f"a model of which {held} are loaded cannot be written; load it whole")
        file = shard_file(name, number)
        if shards.files:
            stage, stage_file = shards.files[number]
            folder.take(file, stage, stage_file)
        else:
            folder.write_arrays(file, part.to_arrays())


class TreeFamily(RankerFamily):
    """Label trees with a linear classifier on every node, and one-vs-all classifiers where the tree
    is flat.
    """

    name = "tree"
    reads = ranker_reads("tree")
    has_label_tree = True

    def check(self, config: Config, documents: Dataset, parents: Parents | None) -> None:
        """Refuse settings for another number of levels than the tree or of trees than the ensemble,
        and margins beside a network's scores.

        Where the depth of the tree is not known before it is built (a given hierarchy, unbalanced
        k-means), the number of levels is checked when the tree is there."""
        _check_tree_kinds(config)
        if ranks_alone(config):
            return
        combine = config.cascade.combine
        if config.search.last_level == "margin" and network_ranks(config) and combine != "only":
            raise ConfigError(
                f"search.last_level: found margin with cascade.combine={combine}, which averages "
                "scores of a network and of the classifiers; expected path, or cascade.combine=only"
            )
        if config.tree.kind == "flat":
            check_level_settings(config.ranker, (documents.n_labels,))
        elif config.tree.kind != "unbalanced" and (parents is None or _is_of_network(config)):
            widths = level_widths(documents.n_labels, config.tree)
            check_level_settings(config.ranker, (*widths, documents.n_labels))

    def label_trees(self, points: TrainingPoints, run: Run) -> tuple[LabelTree, ...]:
        """Return the clustered or given label trees; none where a network ranks alone."""
        config = run.config
        if ranks_alone(config):
            return ()
        if config.tree.kind == "flat" or _is_of_network(config):
            run = run._replace(parents=None)
        seeds = {f"tree-{number}": config.seed + number for number in range(config.ranker.trees)}
        kinds = {
            f"tree-{number}": config.label_features.kind_of_tree(number)
            for number in range(config.ranker.trees)
        }
        inputs = tree_inputs(config, points.inputs, of_ensemble=True)
        trees = label_trees(
            points.documents, points.features, points.vectoriser, run, seeds, inputs, kinds
        )
        return tuple(trees)

    def fit(self, points: TrainingPoints, run: Run) -> tuple[TreeRanker, ...]:
        """Train the classifiers of each label tree."""
        config = run.config
        inputs = tree_inputs(config, points.inputs, of_ensemble=True)
        rankers = []
        for number, tree in enumerate(points.trees):
            hints = points.label_hints() if tree.n_levels == 1 else _NO_HINTS
            label_matrix = points.documents.label_matrix
            of_classifiers = classifier_inputs(config, inputs | hints.inputs)
            rankers.append(
                fit_ranker(
                    points.features,
                    label_matrix,
                    tree,
                    config,
                    number,
                    run.work,
                    hints,
                    of_classifiers,
                )
            )
        return tuple(rankers)

    def load(
        self, folder: Folder, config: Config, shards: Collection[int] | None
    ) -> Iterator[TreeRanker]:
        """Yield the trees of the folder."""
        if shards is not None:
            _check_divisible(folder, config)
        for number in range(min(config.ranker.trees, len(folder.files))):
            if f"tree-{number}.safetensors" in folder.files:
                yield read_ranker(folder, number, config.ranker, shards)

    def card_rows(self, rankers: Sequence[TreeRanker], config: Config) -> dict[str, str]:
        """Return the widths of the first tree, and the weights of all trees."""
        shape = " → ".join(f"{width:,}" for width in rankers[0].tree.widths)
        if len(rankers) > 1:
            shape = f"{shape}, one of {len(rankers)}"
        weights = sum(level.nnz for ranker in rankers for level in ranker.levels)
        return {"label tree": shape, "linear weights": f"{weights:,} as {config.ranker.weights}"}

    def tuning_space(self, config: Config, settings: Mapping[str, Any]) -> Sequence[str]:
        """Return costs, penalties, and the shape of the tree where it does not make the method."""
        ranker = config.ranker
        space = [around("ranker.cost_positive", ranker.cost_positive, 16)]
        if ranker.solver == "proximal":
            space.append(around("ranker.penalty", ranker.penalty))
        else:
            space.append(around("ranker.cost_negative", ranker.cost_negative))
        if config.tree.kind != "flat":
            space.append("tree.leaf_size=25,50,100,200")
            if "branching" not in settings.get("tree", {}):
                space.append("tree.branching=8,16,32")
        if config.features == "cat":
            space.append("encoder.weight=0.1..1:log")
        return space


def _check_tree_kinds(config: Config) -> None:
    """Refuse label features for another number of trees than are trained."""
    kinds = list(config.label_features.tree_kinds)
    if not kinds:
        return
    problem = f"label_features.tree_kinds: found {kinds}"
    if ranks_alone(config):
        raise ConfigError(
            f"{problem} with cascade.combine=never, where no linear classifiers have trees; "
            "expected []"
        )
    trees = config.ranker.trees
    if len(kinds) != trees:
        raise ConfigError(
            f"{problem}, {len(kinds)} kinds; expected {trees}, one for each tree (ranker.trees), "
            "or [] for label_features.kind for all"
        )


def _is_of_network(config: Config) -> bool:
    """Return whether a hierarchy of the labels is for the tree of a network."""
    network = network_of(config)
    return network is not None and network.takes_hierarchy


def classifier_inputs(config: Config, of_tree: Inputs) -> Inputs:
    """Return the inputs of the classifiers on a label tree with the inputs given.

    The search is one where it finds their negatives.
    """
    inputs = of_tree | settings_in("ranker", "seed") - settings_in("ranker.trees")
    if uses_matcher(config.ranker):
        inputs |= settings_in("search.beam_size", "search.score")
    return inputs


def fit_ranker(
    features: Features,
    label_matrix: sparse.csr_array,
    tree: LabelTree,
    config: Config,
    number: int,
    work: Work,
    hints: LabelHints = _NO_HINTS,
    inputs: Inputs = EVERYTHING,
) -> TreeRanker:
    """Train the classifiers of all nodes of one tree, level after level; of labels alone, batch
    after batch.

    Args:
        features: of the documents.
        label_matrix: (n, L) relevance.
        tree: the label tree.
        config: resolved settings.
        number: of the tree, in the names of its stages.
        work: where stages are kept.
        hints: for classifiers of single labels.
        inputs: of the classifiers (:func:`classifier_inputs`).
    """
    relevance = tree.coarsen(label_matrix)
    settings = config.ranker
    check_level_settings(settings, tree.widths)
    if tree.n_levels == 1:
        label_settings = level_ranker(settings, 0)
        problems = LabelProblems.of(
            features, relevance[0], label_settings, config.seed, hints.ordered(tree)
        )
        return TreeRanker(tree, (fit_labels(problems, number, work, inputs),), settings.bias)
    levels: list[LevelWeights] = []

    def problems_below() -> LevelProblems:
        return LevelProblems.of(
            features, relevance, tree, levels, settings, config.search, config.seed
        )

    for level in range(tree.n_levels):
        name = f"ranker-{number}-{level}"
        with logged_stage(f"level {level + 1} of {tree.n_levels}") as log_fact:
            if settings.shard_labels and level == tree.n_levels - 1:
                levels.append(fit_shards(problems_below(), name, work, inputs))
            else:
                arrays = work.arrays(name, lambda: problems_below().solve().to_arrays(), inputs)
                levels.append(Chunks.from_arrays(arrays))
            log_fact(f"{tree.widths[level]:,} nodes, {levels[-1].nnz:,} weights")
    return TreeRanker(tree, tuple(levels), settings.bias)


def fit_shards(
    problems: LevelProblems, name: str, work: Work, inputs: Inputs = EVERYTHING
) -> Shards:
    """Train a level in shards, each a stage; where stages are kept, no more than one of them is in
    memory.
    """
    runs = problems.shards()
    solve = partial(_solved_arrays, problems)
    arrays = work.each(f"{name}-shard", solve, runs, "shards", inputs, one_by_one=True, mapped=True)
    parts = [Chunks.from_arrays(part) for part in arrays]
    shards = Shards.of(parts, problems.offsets, problems.ranker.shard_labels)
    if work.stages is None:
        return shards
    folders = (work.stages.root / f"{name}-shard-{number}" for number in range(len(runs)))
    # verified already, and again when taken over
    stages = [open_folder(folder, verify="size") for folder in folders]
    return replace(shards, files=tuple((stage, file) for stage in stages for file in stage.files))


def fit_labels(
    problems: LabelProblems, number: int, work: Work, inputs: Inputs = EVERYTHING
) -> LevelWeights:
    """Train one classifier per label, cut into shards if they are asked for; each batch of labels
    is a stage.
    """
    with logged_stage("labels") as log_fact:
        solve = partial(_solved_arrays, problems)
        ends = label_batches(problems.n_labels)
        name = f"ranker-{number}-batch"
        batches = work.each(name, solve, ends, "batches", inputs, one_by_one=True, mapped=True)
        chunks = join_batches([Chunks.from_arrays(batch) for batch in batches], problems.ranker)
        log_fact(f"{problems.n_labels:,} labels, {chunks.nnz:,} weights")
    shard_labels = problems.ranker.shard_labels
    if shard_labels:
        return Shards.cut(chunks, shard_labels)
    return chunks


def _solved_arrays(
    problems: LevelProblems | LabelProblems, run: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Return a run of parents, or of labels, as it is stored; a function of the module, so that it
    can be pickled.
    """
    return problems.solve(run).to_arrays()


def _check_divisible(folder: Folder, config: Config) -> None:
    """Refuse to load a part of a model whose parts could not be put together again."""
    trees = config.ranker.trees
    if trees == 1 and "tree-network.safetensors" not in folder.files:
        return
    reason = f"{trees} label trees" if trees > 1 else "a network that ranks as well"
    raise UsageError(
        f"{folder.root}: has {reason}, whose scores are averaged, so no shard has an answer by "
        "itself; load it whole"
    )


def read_ranker(
    folder: Folder, number: int, settings: Settings, shards: Collection[int] | None
) -> TreeRanker:
    """Return a label tree of a model folder with its weights, checked.

    Args:
        folder: a verified model folder.
        number: of the label tree.
        settings: whether the last level is in shards, and the value of the constant feature.
        shards: numbers of the shards to load; None for all.
    """
    tree = LabelTree.from_arrays(folder.arrays(f"tree-{number}.safetensors"))
    n_files = tree.n_levels - bool(settings.shard_labels)
    levels: list[LevelWeights] = [
        Chunks.from_arrays(folder.arrays(f"ranker-{number}-{level}.safetensors"))
        for level in range(n_files)
    ]
    if settings.shard_labels:
        levels.append(_read_shards(folder, number, tree, settings.shard_labels, shards))
    for width, parents, weights in zip(tree.widths, (None, *tree.widths), levels, strict=False):
        if weights.n_nodes != width or weights.n_chunks != (parents or weights.n_chunks):
            raise ValueError(
                f"a ranker of {weights.n_nodes} nodes below {weights.n_chunks} parents on a level "
                f"of {width} below {parents or 'any'}"
            )
    return TreeRanker(tree, tuple(levels), settings.bias)


def _read_shards(
    folder: Folder, number: int, tree: LabelTree, shard_labels: int, shards: Collection[int] | None
) -> Shards:
    """Return the last level; shards that are not asked for are left out."""
    name = f"ranker-{number}-{tree.n_levels - 1}"
    offsets = tree.offsets[-1] if tree.offsets else batch_offsets(tree.n_labels)
    count = len(cut_parents(offsets, shard_labels)) - 1
    held: Collection[int] = range(count)
    if shards is not None:
        held = checked_shards(shards, count)
    parts: list[Chunks | None] = [None] * count
    for shard in held:
        parts[shard] = Chunks.from_arrays(folder.arrays(shard_file(name, shard)))
    return replace(Shards.of(parts, offsets, shard_labels), seal=folder.manifest.sha256)
