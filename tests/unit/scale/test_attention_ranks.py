"""AttentionXML in two and four processes (gloo) against one: attention, gradients, and whole trainings."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

import torch
from scipy import sparse

from attention_networks import SETTINGS, TREE, D, V, arrays_of, encoder_of, sample_problem, trained
from longtail.config import Attention, Training
from longtail.features.tokens import Tokens
from longtail.kernels import pool
from longtail.networks.attention import AttentionLevel
from longtail.networks.batches import Batches
from longtail.networks.heads.sharded_head import new_head
from longtail.networks.ranker import NeuralRanker
from longtail.networks.training.schedule import Schedule
from longtail.networks.training.stepper import Stepper
from longtail.steps.process_group import (
    FollowedStages,
    ProcessGroup,
    all_reduce_gradients,
    current_group,
)
from longtail.steps.work import Work
from longtail.store import Stages
from longtail.tree.tree import LabelTree
from process_ranks import all_well, close

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(
        not hasattr(os, "fork"),
        reason="forks its ranks, which would take seconds to start otherwise",
    ),
]

COUNTS = pytest.mark.parametrize("count", [2, 4])
DOCUMENTS = 13


def level_of(t, training):
    """Return a level in float64 with attention far from even; of several ranks, each has its own nodes."""
    vectors = np.random.default_rng(t).normal(size=(V, D)).astype(np.float32)
    attending = Attention(dropout=0.0, shortlist=2, layers=(6, 5))
    level = AttentionLevel(encoder_of(vectors, seed=t), TREE, t, attending, training, 5, std=2.0)
    with torch.no_grad():
        for parameter in [part for layer in level.shared.values() for part in layer.parameters()]:
            parameter.mul_(3)
    return level.double()


def batches_of(t):
    """Batches of 6, 6 and a single document, which only one rank has."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(3, 12, DOCUMENTS)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    tokens = Tokens(rng.integers(1, V, ends[-1]).astype(np.uint16), ends, 0, False)
    truth = rng.random((DOCUMENTS, 14)) < 0.2
    truth[:, 1] |= ~truth.any(1)
    levels = TREE.coarsen(sparse.csr_array(truth.astype(np.float32)))
    return Batches(tokens, levels[t].minimum(1), 6, 2)


def gradients(group):
    """The gradient of every batch of an epoch: of parameters as it is, of attention vectors as an SGD step."""
    training = Training(head_optimiser="sgd", head_decay=0, micro_batch=2, head_weights="float64")
    found = {}
    for t in range(3):
        level = level_of(t, training).train()
        if t:
            rng = np.random.default_rng(t)
            above = TREE.widths[t - 1]
            level.parents = np.stack(
                [np.sort(rng.permutation(above)[:2]) for _ in range(DOCUMENTS)]
            ).astype(np.int32)
            level.parents[::3, 1] = -1
        stepper = Stepper(level, training, Schedule.of(training, 3), 0)
        for number, batch in enumerate(batches_of(t).epoch(0)):
            _, losses = stepper._gradients(batch, 0)
            learns = group.lengths(len(batch))[group.rank] > 0
            losses = all_reduce_gradients(group, stepper.parameters, losses, learns)
            grads = {
                str(at): parameter.grad.numpy()
                for at, parameter in enumerate(stepper.parameters)
                if parameter.grad is not None
            }
            level.heads[0].step(0.1, 0)
            arrays = grads | {"losses": losses.numpy()} | level.heads[0].to_arrays(False)
            found |= {f"{t} {number} {name}": array.copy() for name, array in arrays.items()}
            stepper.adamw.zero_grad()
    return found


@COUNTS
def test_gradients_are_those_of_one_process(tmp_path, count):
    """With more ranks than nodes on the first level, and than documents in the last batch."""
    expected = gradients(ProcessGroup())
    found = all_well(count, gradients, tmp_path)
    assert found[0].keys() == expected.keys()  # parameters without a gradient have none
    moved = [np.abs(array).max() for name, array in expected.items() if name[-1].isdigit()]
    assert min(moved) > 1e-8
    for name, array in expected.items():
        tolerance = 1e-6 if name.endswith("losses") else 1e-10  # losses are added up in float32
        np.testing.assert_allclose(
            found[0][name], array, rtol=tolerance, atol=tolerance, err_msg=name
        )
    for name in expected:
        if not name.endswith(("weight", "bias")):
            np.testing.assert_array_equal(found[-1][name], found[0][name])  # encoders stay alike


@COUNTS
def test_a_rank_scores_its_own_nodes_alone(tmp_path, count):
    """No rank is asked for more slots than the document with most of its nodes among the candidates has."""
    nodes = torch.tensor([[0, 1, 2, 3, -1], [9, 3, 10, -1, -1], [10, 9, 8, 7, 6]])

    def body(group):
        head = new_head(11, 4, seed=3, std=0.5, dtype=torch.float64).eval()
        widths = []

        def score(states, mask, local):
            widths.append(local.shape[1])
            assert mask.shape == states.shape[:2]
            rows = (
                head.weight[local.clamp(min=0)] if len(head.weight) else states.new_zeros(3, 0, 4)
            )
            return (rows * states.sum(1)[:, None]).sum(2)

        own = group.part(3)
        states = torch.randn(
            3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
        mask = torch.ones(3, 2, dtype=torch.bool)
        logits = head.scores_by(score, states[own], mask[own], nodes[own].int())
        here = (nodes >= head.nodes.start) & (nodes < head.nodes.stop)
        most = 5 if group.size == 1 else int(here.sum(1).max())
        logits = logits.masked_fill(nodes[own] < 0, 0)
        return {
            "logits": group.all_gather(logits, group.lengths(3)).numpy(),
            "slots": np.array(widths == [most]),
        }

    expected = body(ProcessGroup())
    assert np.count_nonzero(expected["logits"]) == 12
    for rank in all_well(count, body, tmp_path):
        close(rank, expected, 1e-12)


# whole trainings

PLAIN = SETTINGS | {
    "attention": SETTINGS["attention"] | {"epochs": [2, 2], "layers": [16, 8], "trees": 2},
    "training": SETTINGS["training"] | {"average": 0.5, "clip": 0.5},
}


@pytest.fixture(scope="module")
def problem():
    return sample_problem()


def training_of(problem, folder):
    """Train two trees with validation as a rank of the current group; return what the first one's model has."""
    group = current_group()
    stages = Stages(folder / "stages") if group.is_first else FollowedStages(folder / "stages")
    order = np.random.default_rng(8).permutation(problem.tree.n_labels).astype(np.int32)
    more_trees = [LabelTree(order, problem.tree.offsets)]
    valid = problem.documents.take(np.arange(10))
    with stages, pool.threads(1):  # others would not be there after a fork
        ranker = trained(problem, Work(stages), valid, settings=PLAIN, more_trees=more_trees)
        nodes = {"nodes": np.array(len(ranker.network.heads[-1].bias))}
        if not group.is_first:
            return nodes
        scores = ranker.search(problem.documents.texts, 5)[0].toarray()
    return (
        nodes
        | {
            f"tree {number} level {level} {name}": array
            for number, network in enumerate(ranker.network.networks)
            for (level, name), array in arrays_of(
                NeuralRanker(ranker.tokeniser, network, ranker.network.trees[number])
            ).items()
        }
        | {"scores": scores}
    )


def test_the_network_of_two_processes_is_that_of_one(problem, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # its threads would not survive a fork
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    expected = training_of(problem, tmp_path / "one")
    first, other = all_well(2, lambda group: training_of(problem, tmp_path / "two"), tmp_path)
    assert int(first["nodes"]) == int(expected["nodes"]) == problem.tree.n_labels
    assert int(other["nodes"]) == problem.tree.n_labels // 2
    close(first, expected, 2e-4)
