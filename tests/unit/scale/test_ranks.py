"""Two and four processes (gloo) against one: heads, gradients, whole runs, and what happens when a rank is stopped."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from scipy import sparse

import longtail as lt
from longtail.config import Cascade, Training
from longtail.errors import LongtailError, UsageError
from longtail.features.tokens import Tokens
from longtail.kernels import pool
from longtail.methods import configure
from longtail.networks.batches import Batches
from longtail.networks.cascade import CascadeXML
from longtail.networks.heads import random_rows
from longtail.networks.heads.head import Head
from longtail.networks.heads.sharded_head import ShardedHead, new_head
from longtail.networks.losses import BinaryCrossEntropy
from longtail.networks.ranker import DistributedRanking
from longtail.networks.training.checkpoints import Checkpoints
from longtail.networks.training.loop import fit
from longtail.networks.training.schedule import Schedule
from longtail.networks.training.stepper import Stepper
from longtail.reporting import listening
from longtail.run_log import RunLog
from longtail.scale.training import (
    LostRanks,
    check_method,
    check_sources,
    joined,
    under_torchrun,
)
from longtail.steps.process_group import (
    FollowedStages,
    ProcessGroup,
    all_reduce_gradients,
    current_group,
    shared_cores,
)
from longtail.steps.work import Work
from longtail.store import Stages
from longtail.training_run import RunOptions, take_part, train_to_folder, work_folder
from longtail.tree.tree import LabelTree
from process_ranks import all_well, close, in_ranks
from tiny_encoder import tiny_encoder, write_encoder

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(
        not hasattr(os, "fork"),
        reason="forks its ranks, which would take seconds to start otherwise",
    ),
]

COUNTS = pytest.mark.parametrize("count", [2, 4])
TREE = LabelTree(
    np.random.default_rng(1).permutation(14).astype(np.int32),
    (
        np.array([0, 1, 4, 6]),
        np.array([0, 3, 4, 5, 9, 13, 14]),
    ),  # 3 → 6 → 14: 4 ranks are more than the first level
)


# heads

KINDS = ("candidates", "all nodes", "full loss")


def trained_head(group, kind, n_nodes, dtype, optimiser, documents=7):
    """Three steps of a head; return what it gives for all documents, and what it has learnt."""
    chance = torch.Generator().manual_seed(n_nodes)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    settings = {
        "optimiser": optimiser,
        "dtype": dtype,
        "weight_decay": 0.01,
        "seed": 3,
        "std": 0.5,
        "device": "cpu",
    }
    head = new_head(n_nodes, 6, **settings).train()
    own, lengths, arrays = group.part(documents), group.lengths(documents), {}
    for step in range(3):
        x = torch.randn(documents, 6, generator=chance, dtype=wide)[own].requires_grad_(step > 0)
        slots = 5 + 2 * (
            kind == "candidates" and group.rank == 1
        )  # widths may differ: what is beyond is padding
        nodes = torch.stack(
            [torch.randperm(n_nodes, generator=chance)[:3] for _ in range(documents)]
        )
        nodes = torch.nn.functional.pad(nodes.int(), (0, slots - 3), value=-1)[own]
        weights = torch.randn(documents, max(7, n_nodes), generator=chance, dtype=wide)[own]
        if kind == "full loss":
            given = head.full_loss(x, nodes, (nodes >= 0) * 0.75, BinaryCrossEntropy())
            (given * weights[:, 0].abs()).sum().backward()
        else:
            given = head.scores(x, nodes if kind == "candidates" else None)
            given = given[:, :3] if kind == "candidates" else given
            (given.square() * weights[:, : given.shape[1]]).sum().backward()
        arrays[f"given {step}"] = group.all_gather(given.detach(), lengths).numpy()
        if x.grad is not None:
            arrays[f"gradient {step}"] = group.all_gather(x.grad, lengths).numpy()
        head.step(0.1, seed=step)
    logits, nodes = head.best(x.detach(), 4)
    arrays |= {
        "best": group.all_gather(logits, lengths).numpy(),
        "nodes": group.all_gather(nodes, lengths).numpy(),
    }
    return arrays | head.to_arrays()


def each_head(dtype, optimiser, group):
    """Heads of all kinds, also with more ranks than nodes or documents."""
    found = {}
    for kind in KINDS:
        for n_nodes, documents in ((11, 7), (3, 7), (11, 2)):
            arrays = trained_head(group, kind, n_nodes, dtype, optimiser, documents)
            found |= {
                f"{kind}, {n_nodes} nodes, {documents} documents, {name}": arrays[name]
                for name in arrays
            }
    return found


@COUNTS
def test_heads_learn_what_one_process_does(tmp_path, count):
    def body(group):
        return each_head(torch.float64, "adamw", group)

    found = all_well(count, body, tmp_path)
    expected = body(ProcessGroup())
    close(found[0], expected, 1e-11)
    for other in found[1:]:  # what is exchanged is the same everywhere
        shared = [
            name
            for name in expected
            if name.endswith(tuple("0123")) or name.endswith(("best", "nodes"))
        ]
        assert len(shared) == 9 * 5 + 18
        close(
            {name: other[name] for name in shared}, {name: expected[name] for name in shared}, 1e-11
        )


@COUNTS
@pytest.mark.parametrize("optimiser", ["row-adam", "sgd"])
def test_rounded_rows_have_the_same_bits(tmp_path, count, optimiser):
    def body(group):
        return trained_head(group, "candidates", 11, torch.bfloat16, optimiser)

    found, expected = all_well(count, body, tmp_path)[0], body(ProcessGroup())
    for name in ("weight", "bias", "given 2"):
        np.testing.assert_array_equal(found[name], expected[name])


@COUNTS
def test_first_rows_and_parts(tmp_path, monkeypatch, count):
    monkeypatch.setattr(random_rows, "_DRAWN", 48)
    options = {"std": 0.02, "seed": 5}

    def body(group):
        drawn = {
            kind: ShardedHead(n, 7, group, dtype=getattr(torch, kind), **options)
            for kind, n in sizes.items()
        }
        filled = {f"{kind} here": np.array(len(head.bias)) for kind, head in drawn.items()}
        again = ShardedHead(sizes["float32"], 7, group, std=0)
        again.load_arrays(Head(sizes["float32"], 7, **options).to_arrays())
        same = {"same": (again.weight == drawn["float32"].weight).all().numpy()}
        return {kind: head.to_arrays()["weight"] for kind, head in drawn.items()} | filled | same

    sizes = {"float32": 101, "bfloat16": 60, "float64": 3}
    found = all_well(count, body, tmp_path)
    for kind, n_nodes in sizes.items():
        expected = Head(n_nodes, 7, dtype=getattr(torch, kind), **options).to_arrays()["weight"]
        np.testing.assert_array_equal(found[0][kind], expected)
        rows = [int(own[f"{kind} here"]) for own in found]
        assert sum(rows) == n_nodes
        assert max(rows) - min(rows) <= 1
    assert all(own["same"] for own in found)


@COUNTS
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_xavier_rows_are_those_of_the_whole_level(tmp_path, monkeypatch, count, kind):
    monkeypatch.setattr(random_rows, "_DRAWN", 48)
    dtype, n_nodes = getattr(torch, kind), 101

    def body(group):
        head = new_head(n_nodes, 7, dtype=dtype, std=0)
        head.set_xavier_rows(5)
        return {"weight": head.to_arrays()["weight"], "rows": np.array(len(head.bias))}

    found, expected = all_well(count, body, tmp_path), body(ProcessGroup())
    assert sum(int(own["rows"]) for own in found) == n_nodes == int(expected["rows"])
    np.testing.assert_array_equal(found[0]["weight"], expected["weight"])


# networks

SETTINGS = Training(
    epochs=2,
    batch_size=6,
    micro_batch=2,
    average=0.5,
    head_rate=1e-2,
    encoder_rate=1e-3,
    checkpoint_steps=2,
    clip=0.5,
)


def network_of(last_level="shortlist", training=SETTINGS):
    settings = Cascade(
        layers=((1, 2), (2,), (3,)), shortlist=(2, 2), dropout=(0, 0, 0), last_level=last_level
    )
    network = CascadeXML(tiny_encoder(), TREE, settings, training, seed=5, std=0.3)
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return network


def batches_of(documents=13, seed=2):
    """Documents of 13: two batches of 6, and one of a single document, which only one rank has."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(3, 20, documents)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    tokens = Tokens(chance.integers(4, 200, ends[-1]).astype(np.uint16), ends, 0, False)
    truth = chance.random((documents, 14)) < 0.2
    truth[:, 1] |= ~truth.any(1)  # each has a label
    return Batches(tokens, sparse.csr_array(truth.astype(np.float32)), 6, seed)


def compared(network):
    """All that was learnt, but for biases of attention keys, whose gradient is nothing but rounding."""
    return {
        name: array
        for name, array in network.to_arrays(True).items()
        if not name.endswith("key.bias")
    }


def gradients(group):
    """The gradient of every batch of an epoch, in float64 all through: encoder's as it is, heads' as an SGD step."""
    training = Training(head_optimiser="sgd", head_decay=0, micro_batch=2, head_weights="float64")
    found = {}
    for last_level in ("shortlist", "full"):
        network = network_of(last_level, training).double().train()
        stepper = Stepper(network, training, Schedule.of(training, 3), 0)
        for number, batch in enumerate(batches_of().epoch(0)):
            _, losses = stepper._gradients(batch, 0)
            losses = all_reduce_gradients(
                group, stepper.parameters, losses, group.lengths(len(batch))[group.rank] > 0
            )
            own = dict(zip(map(str, range(999)), stepper.parameters, strict=False))
            grads = {
                name: parameter.grad.numpy()
                for name, parameter in own.items()
                if parameter.grad is not None
            }
            for head in network.heads:
                head.step(0.1, 0)
            arrays = grads | {"losses": losses.numpy()} | network.to_arrays()
            found |= {
                f"{last_level} {number} {name}": array.copy() for name, array in arrays.items()
            }
            stepper.adamw.zero_grad()
    return found


@COUNTS
def test_gradients_are_those_of_one_process(tmp_path, count):
    expected = gradients(ProcessGroup())
    found = all_well(count, gradients, tmp_path)
    assert min(len(batch) for batch in batches_of().epoch(0)) == 1
    assert found[0].keys() == expected.keys()  # parameters without a gradient have none
    for name, array in expected.items():
        tolerance = 1e-6 if name.endswith("losses") else 1e-10  # losses are added up in float32
        np.testing.assert_allclose(
            found[0][name], array, rtol=tolerance, atol=tolerance, err_msg=name
        )
    for name in expected:
        if "heads." not in name:
            np.testing.assert_array_equal(
                found[-1][name], found[0][name]
            )  # so that encoders never drift apart


def run(folder, resume, validate=None, stop_at=None):
    """Train in the current ranks, with checkpoints in ``folder``; a signal comes to the last rank at ``stop_at``."""
    group, network, at = current_group(), network_of(), [0]
    stages = Stages(folder / "stages") if group.is_first else FollowedStages(folder / "stages")
    losses = network.losses

    def counted(batch):
        at[0] += 1
        if at[0] == stop_at and group.rank == group.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return losses(batch)

    network.losses = counted
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    with stages, pool.threads(1):  # others would not be there after a fork
        checkpoints = Checkpoints(stages, "data")
        assert checkpoints.exists() == resume
        log = folder / f"run-{group.rank}.jsonl"
        with listening(RunLog(log)):
            history = fit(
                network,
                batches_of(),
                SETTINGS,
                seed=1,
                checkpoints=checkpoints,
                validate=validate,
            )
    assert log.exists() == group.is_first
    arrays = compared(network) | {
        "losses": np.array([list(epoch.losses.values()) for epoch in history.epochs])
    }
    return arrays | {"best": np.array(history.best)}


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    before = signal.getsignal(signal.SIGTERM)
    yield run(tmp_path_factory.mktemp("one"), resume=False)
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("first", "then"), [(4, 2), (2, 1), (1, 2)])
def test_stopped_and_resumed_by_another_number(tmp_path, one_process, first, then):
    """A signal to one rank stops all, with one checkpoint, from which any number of ranks goes on."""
    _, codes = in_ranks(first, lambda group: run(tmp_path, resume=False, stop_at=5), tmp_path)
    assert codes == [143] * first
    found = all_well(then, lambda group: run(tmp_path, resume=True), tmp_path)[0]
    close(found, one_process, 2e-4)


def test_best_epoch_is_restored_on_all_ranks(tmp_path):
    def body(group):
        values = iter([0.9, 0.1])
        return run(tmp_path, resume=False, validate=lambda: {"P@1": next(values)})

    found = all_well(2, body, tmp_path)
    assert [int(own["best"]) for own in found] == [1, 1]
    names = [name for name in found[0] if name.startswith("encoder.")]
    close({name: found[1][name] for name in names}, {name: found[0][name] for name in names}, 0)


@COUNTS
@pytest.mark.parametrize("last_level", ["shortlist", "full"])
def test_ranking_is_shared_and_known_to_all(tmp_path, count, last_level):
    ids = torch.from_numpy(np.random.default_rng(0).integers(4, 200, (5, 9)))

    def body(group):
        network = DistributedRanking(network_of(last_level).eval(), group)
        ranked = network.rank(ids, torch.ones(5, 9, dtype=torch.bool), 4)
        return {
            "scores": ranked.scores.numpy(),
            "nodes": ranked.nodes.numpy(),
            "vectors": ranked.vectors.numpy(),
        } | {f"kept {level}": np.sort(kept.numpy(), 1) for level, kept in enumerate(ranked.kept)}

    expected = body(ProcessGroup())
    for found in all_well(count, body, tmp_path):
        close(found, expected, 1e-5)


# whole runs


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(
        tmp_path_factory.mktemp("encoder"),
        lt.sample()[0].texts.take(np.arange(150)),
        vocabulary=500,
    )


def whole_run(encoder, folder, resume, end_at=None):
    """Train a model as the command does; the last rank is gone after ``end_at`` losses."""
    documents, valid = (part.take(np.arange(100)) for part in lt.sample())
    settings = {
        "encoder": {"name": str(encoder), "max_tokens": 24},
        "training": {
            "epochs": 2,
            "batch_size": 8,
            "checkpoint_steps": 4,
            "head_rate": 3e-3,
            "encoder_rate": 3e-4,
        },
        "cascade": {"dropout": [0, 0, 0], "layers": [[1], [2], [3]], "combine": "never"},
    }
    config, group, at = configure("cascadexml", None, settings), current_group(), [0]
    losses = CascadeXML.losses

    def counted(network, batch):
        at[0] += 1
        if at[0] == end_at and group.rank == group.size - 1:
            os._exit(9)
        return losses(network, batch)

    CascadeXML.losses = counted
    try:
        if group.is_first:
            train_to_folder(documents, folder, config, valid=valid, threads=1, resume=resume)
        else:
            group.wait_for("begun")
            take_part(documents, folder, config, RunOptions(valid=valid, threads=1))
    finally:
        CascadeXML.losses = losses
    return {"left": np.array(current_group().size)}


def test_killed_on_four_and_resumed_on_two(tmp_path, encoder, monkeypatch, capfd):
    monkeypatch.setenv(
        "TOKENIZERS_PARALLELISM", "false"
    )  # its threads would not be there after a fork
    whole_run(encoder, tmp_path / "one", resume=False)
    _, codes = in_ranks(
        4, lambda group: whole_run(encoder, tmp_path / "model", False, end_at=10), tmp_path
    )
    assert codes == [1, 1, 1, 9]
    assert "another rank is gone" in capfd.readouterr().err
    assert (work_folder(tmp_path / "model") / "checkpoint-0").is_dir()
    found = all_well(2, lambda group: whole_run(encoder, tmp_path / "model", resume=True), tmp_path)
    assert [int(own["left"]) for own in found] == [1, 1]
    assert not work_folder(tmp_path / "model").exists()
    one, several = lt.load(tmp_path / "one"), lt.load(tmp_path / "model")
    texts = list(lt.sample()[1].texts)[:50]
    assert [head.weight.shape for head in several.model.neural_ranker.network.heads] == [
        head.weight.shape for head in one.model.neural_ranker.network.heads
    ]
    expected, found = (
        model.model.neural_ranker.search(texts, 5)[0].toarray() for model in (one, several)
    )
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_stages_are_made_by_the_first_rank(tmp_path):
    def body(group):
        stages = (
            Stages(tmp_path / "stages") if group.is_first else FollowedStages(tmp_path / "stages")
        )
        work, made = Work(stages), []
        arrays = work.arrays("features", lambda: made.append(1) or {"a": np.arange(3)})
        both = work.joint_stage("network")
        if both is None:
            made.append(2)
            arrays_of_rank = {"b": np.arange(4) if group.is_first else np.zeros(0)}
            both = work.keep_joint_stage("network", arrays_of_rank)
        group.barrier()
        return {"a": arrays["a"], "b": both["b"], "made": np.array(made)}

    first, other = all_well(2, body, tmp_path)
    assert (first["made"].tolist(), other["made"].tolist()) == ([1, 2], [2])
    for own in (first, other):
        assert (own["a"].tolist(), own["b"].tolist()) == ([0, 1, 2], [0, 1, 2, 3])


def test_a_stage_of_other_data_is_refused(tmp_path):
    with Stages(tmp_path / "stages") as stages:
        Work(stages).arrays("features", lambda: {"a": np.arange(3)})
        with pytest.raises(LongtailError, match="another input than this rank's; all ranks must"):
            FollowedStages(tmp_path / "stages").get("features", "other input")


def test_exchanges(tmp_path):
    def body(group):
        own = np.full((group.rank + 1, 2), group.rank, np.float32)
        found = {
            "rows": group.all_gather_array(own, [1, 2, 3]),
            "sum": group.all_reduce_array(own[:1]),
        }
        found |= {
            "largest": np.array(group.all_reduce_max(7 * (group.rank == 1))),
            "first": np.array(group.broadcast(group.rank)),
        }
        with pool.threads(7), shared_cores(group):
            return found | {"threads": np.array(pool.thread_count())}

    for own in all_well(3, body, tmp_path):
        assert own["rows"][:, 0].tolist() == [0, 1, 1, 2, 2, 2]
        assert own["sum"].tolist() == [[3, 3]]
        assert (int(own["largest"]), int(own["first"]), int(own["threads"])) == (7, 0, 2)


def test_a_lost_rank_is_told_in_one_line(tmp_path):
    def body(group):
        if not group.is_first:
            os._exit(3)
        with pytest.raises(LostRanks, match=r"^rank 0: ends, as another rank is gone \([^\n]*\)$"):
            group.all_reduce(torch.ones(3))
        os._exit(0)

    assert in_ranks(2, body, tmp_path)[1] == [0, 3]


# what is refused


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "xr-linear",
            "torchrun with xr-linear, which trains no network; leave torchrun out, or try --ray",
        ),
        (
            "xr-transformer",
            "level by level; expected cascadexml, lightxml, xml-cnn or attentionxml",
        ),
        ("inceptionxml", "encoder.kind=inception, which normalises over a batch"),
        ("decaf", "classifiers of label words or phases"),
    ],
)
def test_methods_that_ranks_cannot_share(method, message):
    with pytest.raises(UsageError, match=message):
        check_method(configure(method))


def test_a_sum_of_words_is_not_said_to_normalise():
    with pytest.raises(UsageError, match=r"encoder\.kind=bag, which is not shared yet"):
        check_method(configure("astec", None, {"phases": {"kind": "one"}}))


def test_a_normaliser_over_all_labels_is_not_shared():
    settings = {"training": {"loss": "decoupled-softmax"}}
    with pytest.raises(
        UsageError, match=r"decoupled-softmax with cascade\.last_level=auto; its normaliser"
    ):
        check_method(configure("cascadexml", None, settings))
    check_method(
        configure("cascadexml", None, {**settings, "cascade": {"last_level": "shortlist"}})
    )


@pytest.mark.parametrize("method", ["cascadexml", "lightxml", "xml-cnn", "attentionxml"])
def test_methods_that_they_can(method):
    check_method(configure(method))


def test_standard_input_is_refused():
    check_sources("train.jsonl", None)
    with pytest.raises(UsageError, match="found standard input; expected files"):
        check_sources("train.jsonl", "-")


def test_one_process_joins_nobody(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not under_torchrun()
    with joined("auto") as (group, device):
        assert (group.size, group.is_first, device) == (1, True, "auto")
    assert current_group().part(7) == slice(0, 7)


def test_devices_of_torchrun(monkeypatch):
    environment = {
        "TORCHELASTIC_RUN_ID": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(
            UsageError, match="--device cuda:1 with torchrun; expected auto, cpu or cuda"
        ),
        joined("cuda:1"),
    ):
        pass
    with pytest.raises(UsageError, match="expected one a process, or --device cpu"), joined("cuda"):
        pass
