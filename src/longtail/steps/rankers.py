"""The steps of the pipeline from features and labels to linear rankers, each kind in stages that can be resumed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config
from longtail.config import Forest as ForestSettings
from longtail.data.dataset import Dataset
from longtail.features.gandalf import real_documents
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.linear.explanation import LinearRanker
from longtail.linear.forest import Forest, fit_tree
from longtail.linear.level_settings import check_level_settings, level_ranker
from longtail.linear.neighbours import Neighbours, learner_seeds
from longtail.linear.one_vs_all import LabelHints, LabelProblems, join_batches, label_batches
from longtail.linear.partitions import document_graph, fit_learner
from longtail.linear.tail_classifier import fit_tail, no_tail
from longtail.linear.tree_ranker import LevelProblems, TreeRanker
from longtail.methods import METHODS, ranks_alone
from longtail.metrics import inverse_propensities
from longtail.search.beam import LevelWeights
from longtail.search.chunks import Chunks
from longtail.search.shards import Shards
from longtail.steps.networks import label_hints
from longtail.steps.run import Run
from longtail.steps.told import told
from longtail.steps.trees import label_trees
from longtail.steps.work import Work
from longtail.store import open_folder
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.neural.embedder import Embedder  # which needs torch

__all__ = ["fit_ranker", "fit_rankers"]

_NO_HINTS = LabelHints()


def fit_rankers(
    documents: Dataset,
    features: Features,
    vectoriser: TfIdf | None,
    network: Embedder | None,
    run: Run,
) -> tuple[LinearRanker, ...]:
    """Return the linear rankers of the method; beside a network those it combines with, if any."""
    config, work = run.config, run.work
    kind = METHODS[config.method].ranker
    if kind == "forest":
        return (fit_forest(documents, features, run),)
    if kind == "neighbours":
        return (fit_neighbours(documents, features, run),)
    if kind != "tree":
        assert_never(kind)
    if ranks_alone(config):
        return ()
    if config.tree.kind == "flat" or METHODS[config.method].network == "recursive":
        run = run._replace(parents=None)  # a hierarchy is the network's
    rankers = []
    seeds = {f"tree-{number}": config.seed + number for number in range(config.ranker.trees)}
    for number, tree in enumerate(label_trees(documents, features, vectoriser, run, seeds)):
        hints = label_hints(documents, network, run) if tree.n_levels == 1 else LabelHints()
        rankers.append(fit_ranker(features, documents.label_matrix, tree, config, number, work, hints))
    return tuple(rankers)


def fit_ranker(
    features: Features,
    label_matrix: sparse.csr_array,
    tree: LabelTree,
    config: Config,
    number: int,
    work: Work,
    hints: LabelHints = _NO_HINTS,
) -> TreeRanker:
    """Return the classifiers of all nodes of one tree, level after level; of labels alone, batch after batch.

    ``hints`` are for labels alone.
    """
    relevance, ranker = tree.coarsen(label_matrix), config.ranker
    check_level_settings(ranker, tree.widths)
    if tree.n_levels == 1:
        own = level_ranker(ranker, 0)
        problems = LabelProblems.of(features, relevance[0], own, config.seed, hints.ordered(tree))
        return TreeRanker(tree, (fit_labels(problems, number, work),), ranker.bias)
    levels: list[LevelWeights] = []

    def problems_below() -> LevelProblems:
        return LevelProblems.of(features, relevance, tree, levels, ranker, config.search, config.seed)

    for level in range(tree.n_levels):
        name = f"ranker-{number}-{level}"
        with told(f"level {level + 1} of {tree.n_levels}") as say:
            if ranker.shard_labels and level == tree.n_levels - 1:
                levels.append(fit_shards(problems_below(), name, work))
            else:
                levels.append(Chunks.from_arrays(work.arrays(name, lambda: problems_below().solve_all().to_arrays())))
            say(f"{tree.widths[level]:,} nodes, {levels[-1].nnz:,} weights")
    return TreeRanker(tree, tuple(levels), ranker.bias)


def fit_shards(problems: LevelProblems, name: str, work: Work) -> Shards:
    """Return a level in shards, each a stage; where stages are kept, no more than one of them is in memory."""
    runs, make = problems.shards(), partial(_arrays_of, problems)
    made = work.each(f"{name}-shard", make, runs, "shards", one_by_one=True, mapped=True)
    shards = Shards.of([Chunks.from_arrays(arrays) for arrays in made], problems.offsets, problems.ranker.shard_labels)
    if work.stages is None:
        return shards
    places = (work.stages.root / f"{name}-shard-{number}" for number in range(len(runs)))
    stages = [open_folder(place, verify="size") for place in places]  # verified already, and again when taken over
    return replace(shards, files=tuple((stage, file) for stage in stages for file in stage.files))


def fit_labels(problems: LabelProblems, number: int, work: Work) -> LevelWeights:
    """Return one classifier a label, cut into shards if they are asked for; each batch of labels is a stage."""
    with told("labels") as say:
        ends, make = label_batches(problems.n_labels), partial(_arrays_of, problems)
        batches = work.each(f"ranker-{number}-batch", make, ends, "batches", one_by_one=True, mapped=True)
        chunks = join_batches([Chunks.from_arrays(batch) for batch in batches], problems.ranker)
        say(f"{problems.n_labels:,} labels, {chunks.nnz:,} weights")
    most = problems.ranker.shard_labels
    return Shards.cut(chunks, most) if most else chunks


def _arrays_of(problems: LevelProblems | LabelProblems, run: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return a run of parents, or of labels, as it is kept; a function of the module, so that it can travel."""
    return problems.solve(run).to_arrays()


def fit_forest(documents: Dataset, features: Features, run: Run) -> Forest:
    """Return the trees over documents, each a stage, and the labels' centroids, if these have a part in scores."""
    config, work = run.config, run.work
    settings, relevance = config.forest, documents.label_matrix
    propensities = label_propensities(documents, settings)

    def grow(tree: int) -> dict[str, np.ndarray]:
        return fit_tree(features, relevance, propensities, settings, config.seed, tree)

    with told("trees of documents") as say:
        trees = work.each("document-tree", grow, range(settings.trees), "trees")
        tail = (
            work.arrays("centroids", lambda: fit_tail(features, relevance))
            if settings.tail_share > 0
            else no_tail(documents.n_labels)
        )
        forest = Forest.of(trees, tail, features, settings)
        say(f"{settings.trees} trees, {len(forest.trees.children) / settings.trees:,.0f} nodes each")
    return forest


def label_propensities(documents: Dataset, settings: ForestSettings) -> NDArray[np.float64]:
    """Return what gains are divided by: 1 for every label where training does not weigh by propensities."""
    if not settings.propensities:
        return np.ones(documents.n_labels)
    real = real_documents(documents)  # texts of labels would make rare ones look frequent
    return 1 / inverse_propensities(real.label_counts, len(real), settings.propensity_a, settings.propensity_b)


def fit_neighbours(documents: Dataset, features: Features, run: Run) -> Neighbours:
    """Return the learners, each a stage, whose documents vote."""
    config, work = run.config, run.work
    settings, relevance = config.neighbours, documents.label_matrix
    graph = work.arrays(
        "document-graph", lambda: {"rows": document_graph(relevance, settings.graph_neighbours, config.seed)}
    )["rows"]

    def learn(seed: int) -> dict[str, np.ndarray]:
        return fit_learner(features, relevance, graph, settings, seed)

    with told("learners") as say:
        learners = work.each("learner", learn, learner_seeds(settings.learners, config.seed), "learners")
        found = Neighbours.of(learners, features, relevance, settings)
        say(f"{settings.learners} learners, {settings.dimensions} dimensions")
    return found
