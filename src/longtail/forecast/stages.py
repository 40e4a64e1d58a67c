"""The memory of each stage of a training run: what stays in memory, and what the stage takes beside
it.

Stages are called as the log of a run calls them, so that a forecast can be put beside what was
measured."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from longtail.config import Config
from longtail.forecast.levels import Level
from longtail.forecast.networks import NetworkForecast
from longtail.forecast.sizes import DataSizes
from longtail.forecast.text import TextForecast
from longtail.rankers.base import RankerForecast

__all__ = ["StageMemory", "TrainingPlan", "memory_of_stages"]


class Bytes(NamedTuple):
    """What is in memory, in bytes; measured on five sets of 6,000 to 182,000 documents."""

    base: float = 235e6  # Python, its packages and the kernels
    counted_number: float = 27.0  # a document and n-gram of it, before n-grams are chosen
    counted_ngram: float = 200.0  # a different n-gram
    # a number of the label features, with the copies that k-means works on
    label_number: float = 22.0
    # a number of the label features of a part, which a thread clusters by itself
    tree_number: float = 12.0
    tree_parts: int = 32  # parts of the labels that are clustered by one thread each
    relevance: float = 8.0  # a pair of a document and a node, on each level of a tree
    # the same on the level that is solved and the one above, as both ways to look it up
    problem: float = 28.0
    # a pair of a document and a label that is a hard negative, while they are grouped
    negative: float = 50.0
    matched: float = 40.0  # a pair of a document and a node that the beam finds for it
    group_number: float = 8.0  # a number of the documents of a parent, in columns of its own
    group_column: float = 12.0  # a column that these documents have
    group_document: float = 16.0
    # 16 siblings: a cache line of weights, targets, or what a solver keeps of a document
    line: float = 64.0
    kept: float = 0.6  # of what a stage takes and gives back, this share stays with the allocator,
    kept_most: float = 64e6  # at most so much for each thread;
    kept_by_torch: float = 0.9  # this share where a network is trained on the CPU, whatever it is


_BYTES = Bytes()
_TASK = 1 << 18  # documents × siblings of a task, as `linear/spans.py` divides the work
# lines of 16 siblings that a solver keeps of each document, and of each column
_LINES = {"dual": (2.2, 2.0), "newton": (5.3, 2.5), "proximal": (4.0, 2.0)}


class StageMemory(msgspec.Struct, frozen=True):
    """The largest memory of a stage of training; a name may occur once for each tree."""

    name: str
    peak_bytes: int


class TrainingPlan(NamedTuple):
    """What will be trained, as far as memory depends on it."""

    sizes: DataSizes
    config: Config
    threads: int
    text: TextForecast  # features made of texts
    joined: TextForecast  # what linear classifiers read
    network: NetworkForecast | None
    network_labels: float  # numbers of the label features that its tree is clustered by
    levels: list[Level]  # of each tree; none where no linear solver runs
    labels: list[float]  # numbers of the label features that each of these trees is clustered by
    weights: list[float]  # of each level
    stored: list[float]  # their bytes
    other: RankerForecast | None

    @property
    def trees(self) -> int:
        """Trees of the linear classifiers."""
        return len(self.labels)


def memory_of_stages(plan: TrainingPlan) -> tuple[StageMemory, ...]:
    """Return the stages of a training run with their largest memory, in their order."""
    sizes = plan.sizes
    held_out = plan.config.calibration.method != "none"  # documents are copied without these
    copies = held_out + plan.config.gandalf.use  # and again where others join them
    data = _BYTES.base + sizes.data_bytes + copies * (sizes.data_bytes - sizes.label_bytes)
    course = _Course(plan.threads)
    course.add("documents", data, data)
    if plan.network is not None:
        data += plan.network.library_bytes  # settings are checked with it before anything is made
    rows = (
        data
        + 8.0 * (plan.text.numbers + sizes.documents)
        + 4.0 * plan.text.dense_width * sizes.documents
    )
    if sizes.features is None and plan.text.all_numbers:
        counting = (
            _BYTES.counted_number * plan.text.all_numbers
            + _BYTES.counted_ngram * plan.text.all_columns
        )
        course.add("features", max(data + counting, rows), rows)
    resting = rows
    if plan.network is not None:
        resting = _add_network(course, plan, plan.network, rows)
    stored = _add_rankers(course, plan, resting)
    if held_out:
        course.add("calibration", resting + stored, resting + stored)
    course.add("model", resting + stored, resting + stored)
    return tuple(course.stages)


class _Course:
    """The stages so far, and what the allocator has kept of what they gave back."""

    def __init__(self, threads: int) -> None:
        self.stages: list[StageMemory] = []
        self._most_kept = _BYTES.kept_most * threads
        self._kept = 0.0

    def add(self, name: str, during: float, after: float, *, by_torch: bool = False) -> None:
        """Add a stage by what is in memory ``during`` it and ``after`` it, and whether torch takes
        it.
        """
        self.stages.append(StageMemory(name, int(max(during, after + self._kept))))
        kept = min(_BYTES.kept * (during - after), self._most_kept)
        if by_torch:
            kept = _BYTES.kept_by_torch * (during - after)
        self._kept = max(self._kept, kept)


def _add_network(
    course: _Course, plan: TrainingPlan, network: NetworkForecast, rows: float
) -> float:
    """Add the stages of a network; return what stays in memory after them, the features that are
    read included.
    """
    sizes = plan.sizes
    here = float(not network.on_gpu)
    resting = rows + here * network.resting_bytes
    if network.stages:
        tokens = rows + network.token_bytes
        course.add("tokens", tokens + 0.5 * network.token_bytes, tokens)
        if network.tree[:-1]:
            _add_tree(course, plan, tokens, plan.network_labels, 0)
        first = (
            tokens
            + here * network.reading_bytes
            + network.first_bytes
            + _bootstrap_bytes(plan, network)
        )
        training = tokens + here * network.training_bytes + network.kept_bytes
        for name in network.stages:
            course.add(name, max(first, training), resting, by_torch=not network.on_gpu)
    if plan.joined.dense_width > plan.text.dense_width:
        vectors = 4.0 * sizes.documents * network.width
        reading = rows + network.token_bytes + here * network.reading_bytes + vectors
        joining = resting + vectors  # scaled where they are
        resting += vectors
        course.add("embeddings", max(reading, joining), resting)
    return resting


def _bootstrap_bytes(plan: TrainingPlan, network: NetworkForecast) -> float:
    """Return what a linear solver takes that finds the first classifiers of a level by the vectors
    of documents.

    That is most at the first level that has one, where all documents are those of one parent.
    """
    if not network.bootstraps:
        return 0.0
    vectors = plan.text._replace(columns=0, numbers=0, dense_width=network.width)
    n = float(plan.sizes.documents)
    first = Level(network.tree[0], n, 1, n, n)
    return _solver_bytes(plan._replace(joined=vectors), first, "dual")


def _add_tree(
    course: _Course, plan: TrainingPlan, resting: float, numbers: float, width: int
) -> None:
    """Add the clustering of a label tree by label features.

    Args:
        course: the stages so far.
        plan: of the run.
        resting: bytes that stay in memory.
        numbers: of the label features.
        width: dense columns of them.
    """
    labels = plan.sizes.n_labels
    features = _BYTES.label_number * numbers + 8.0 * width * labels
    part = (_BYTES.tree_number * numbers + 6.0 * width * labels) / _BYTES.tree_parts
    working = features + min(plan.threads, _BYTES.tree_parts) * part
    course.add("tree", resting + working, resting)


def _add_rankers(course: _Course, plan: TrainingPlan, resting: float) -> float:
    """Add the stages of the linear rankers; return the bytes of their weights."""
    if plan.other is not None:
        work = plan.threads * plan.other.thread_bytes + plan.other.stored
        course.add(plan.other.stage, resting + work, resting + plan.other.stored)
        return plan.other.stored
    if not plan.levels:
        return 0.0
    for numbers in plan.labels:
        _add_tree(course, plan, resting, numbers, plan.joined.dense_width)
    if plan.config.ranker.dense_penalty == 1:
        scaled = 0.0
    else:
        scaled = 4.0 * plan.joined.dense_width * plan.sizes.documents
    relevance = _BYTES.relevance * sum(level.nodes * level.node_documents for level in plan.levels)
    stored = 0.0
    for _ in range(plan.trees):
        for number, level in enumerate(plan.levels):
            stored += plan.stored[number]
            if plan.config.tree.kind != "flat":
                name = f"level {number + 1} of {len(plan.levels)}"
            else:
                name = "labels"
            solver = _solver_bytes(plan, level, plan.config.ranker.solver)
            work = relevance + scaled + _problem_bytes(plan, number) + solver
            course.add(name, resting + stored + work, resting + stored)
    return stored


def _problem_bytes(plan: TrainingPlan, number: int) -> float:
    """Return what tells the documents of the parents and of the nodes of a level."""
    level = plan.levels[number]
    of_nodes = level.nodes * level.node_documents
    of_parents = level.parents * level.parent_documents
    if plan.config.tree.kind == "flat":
        work = _BYTES.problem * of_nodes
        if level.parents > 1:
            work += _BYTES.negative * of_parents
        return work
    work = _BYTES.problem * (of_nodes + of_parents)
    if number:
        above = plan.levels[number - 1]
        if of_parents > above.nodes * above.node_documents:
            work += _BYTES.matched * of_parents
    return work


def _solver_bytes(plan: TrainingPlan, level: Level, solver: str) -> float:
    """Return what all threads take together that solve a level.

    The documents of a parent are prepared once for all threads that work below it; each has its own
    block of siblings."""
    parents = min(plan.threads, level.parents)
    blocks = _group_bytes(plan, level.largest) + (parents - 1) * _group_bytes(
        plan, level.parent_documents
    )
    at_largest = min(plan.threads, _tasks(level.largest, level.children))
    elsewhere = min(
        plan.threads - at_largest,
        _tasks(level.parent_documents, level.children) * (level.parents - 1),
    )
    blocks += at_largest * _block_bytes(plan, level.largest, solver)
    return blocks + elsewhere * _block_bytes(plan, level.parent_documents, solver)


def _tasks(documents: float, siblings: int) -> int:
    """Return how many tasks the children of a parent are divided into."""
    step = max(int(_TASK / max(documents, 1.0)) // 8, 1) * 8
    return math.ceil(siblings / step)


def _group_bytes(plan: TrainingPlan, documents: float) -> float:
    """Return the bytes of so many documents as the solvers of their parent read them."""
    text = plan.joined
    each = _BYTES.group_number * text.numbers / max(text.documents, 1) + _BYTES.group_document
    work = each * documents + _BYTES.group_column * float(text.distinct(documents))
    if documents < text.dense_width:
        work += 4.0 * documents**2  # their products
    return work


def _block_bytes(plan: TrainingPlan, documents: float, solver: str) -> float:
    """Return the bytes of one thread that solves a block of siblings on so many documents."""
    text = plan.joined
    columns = text.dense_width + float(text.distinct(documents))
    of_document, of_column = _LINES[solver]
    lines = of_document * documents + of_column * columns
    return _BYTES.line * lines + 4.0 * (text.columns + text.documents)
