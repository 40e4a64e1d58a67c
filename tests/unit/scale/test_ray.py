"""Training and prediction on a real Ray cluster of two worker processes: the same bytes as on threads."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections import Counter
from concurrent.futures import Future

import numpy as np
import pytest

import longtail as lt
from folder_contents import contents
from longtail.cli import model_commands
from longtail.errors import LongtailError, MissingExtra, ModelFolderError, UsageError
from longtail.kernels import pool
from longtail.methods import configure
from longtail.rankers import one_vs_all, spans
from longtail.scale import ray as ray_module
from longtail.scale.ray import check_trainable, connected, predict_folder
from longtail.steps import work as work_module
from longtail.steps.work import Work
from longtail.store import RunFolder, StageAddress, Stages
from longtail.training_run import train_to_folder

ray = pytest.importorskip("ray")

SETTINGS = {"tree": {"branching": 4, "leaf_size": 16}}
FOREST = {"forest": {"trees": 3}}


@pytest.fixture(scope="module")
def cluster():
    """Start a cluster that ``connected`` takes as it finds it."""
    handler = signal.getsignal(signal.SIGTERM)
    ray_module._start(ray_module._ray(), "local", 2)
    assert (
        signal.getsignal(signal.SIGTERM) is handler
    )  # Ray's own would end the process on the spot
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def _many_small_tasks(monkeypatch):
    monkeypatch.setattr(one_vs_all, "BATCH", 96)
    monkeypatch.setattr(spans, "_TASK", 1 << 12)
    monkeypatch.setattr(ray_module, "_DOCUMENTS", 32)


@pytest.fixture(scope="module")
def documents():
    train, test = lt.sample()
    return train.take(np.arange(400)), test.take(np.arange(150))


@pytest.fixture(scope="module")
def model(documents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    train_to_folder(documents[0], folder, configure("xr-linear", None, SETTINGS))
    return folder


@pytest.mark.usefixtures("cluster")
class TestTraining:
    @pytest.mark.parametrize(
        ("method", "settings"),
        [
            ("xr-linear", SETTINGS),
            ("xr-linear", {**SETTINGS, "ranker": {"shard_labels": 100}}),
            ("dismec", SETTINGS),
            ("pfastrexml", FOREST),
        ],
        ids=["tree", "tree in shards", "one-vs-all", "forest"],
    )
    def test_a_model_folder_has_the_bytes_of_threads(self, documents, method, settings, tmp_path):
        config = configure(method, None, settings)
        train_to_folder(documents[0], tmp_path / "threads", config, threads=2)
        with connected("local"):
            train_to_folder(documents[0], tmp_path / "ray", config)
        assert contents(tmp_path / "ray") == contents(tmp_path / "threads")
        expected = {"ray", "ray.run.jsonl", "threads", "threads.run.jsonl"}
        assert {path.name for path in tmp_path.iterdir()} == expected

    def test_a_model_in_memory_gives_the_same_predictions(self, documents):
        train, test = documents
        expected = lt.Longtail("dismec").fit(train).predict(test)
        with connected("local"):
            found = lt.Longtail("dismec").fit(train).predict(test)
        assert (found.matrix != expected.matrix).nnz == 0
        assert found.matrix.nnz == expected.matrix.nnz > 0

    def test_workers_write_stages_and_only_those_that_are_missing(self, tmp_path):
        made = tmp_path / "made"
        made.mkdir()

        def make(item):
            (made / str(item)).write_text(f"{pool.thread_count()} thread of {os.getpid()}")
            return {"squares": np.arange(item) ** 2}

        with Stages(tmp_path / "work") as stages, connected("local"):
            work = Work(stages)
            work.arrays("square-1", lambda: {"squares": np.arange(5) ** 2})
            found = work.each("square", make, [4, 5, 6], "numbers")
            mapped = work.each("square", make, [4, 5, 6], "numbers", mapped=True)
        assert [arrays["squares"].tolist() for arrays in found] == [
            [n * n for n in range(item)] for item in (4, 5, 6)
        ]
        assert [arrays["squares"].flags.writeable for arrays in (*found, *mapped)] == [True] * 3 + [
            False
        ] * 3
        by = {path.name: path.read_text() for path in made.iterdir()}
        assert sorted(by) == ["4", "6"]
        for words in by.values():
            assert words.startswith("1 thread of ")
            assert words != f"1 thread of {os.getpid()}"

    def test_an_error_of_a_worker_is_the_error_of_the_run(self, tmp_path):
        def fails(item):
            raise UsageError(f"{item}: cannot be meant") if item == 2 else ZeroDivisionError

        with Stages(tmp_path / "work") as stages, connected("local"):
            with pytest.raises(UsageError, match=r"^2: cannot be meant$"):
                Work(stages).each("fail", fails, [2], "numbers")
            with pytest.raises(ZeroDivisionError):
                Work(stages).each("fail", fails, [1], "numbers")


@pytest.mark.usefixtures("cluster")
class TestPrediction:
    @pytest.mark.parametrize("options", [{}, {"k": 3, "threshold": 0.2}, {"beam_size": 2}], ids=str)
    def test_predictions_are_those_of_one_process(self, documents, model, options):
        expected = lt.load(model).predict(documents[1], **options)
        with connected("local"):
            found = predict_folder(model, documents[1], **options)
        for name in ("data", "indices", "indptr"):
            one, other = getattr(found.matrix, name), getattr(expected.matrix, name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert found.matrix.shape == expected.matrix.shape
        assert list(found.ids) == list(expected.ids)
        assert found.labels.ids[3] == expected.labels.ids[3]

    def test_the_commands(self, documents, tmp_path):
        for name, part in zip(("train", "test"), documents, strict=True):
            lt.write(part, tmp_path / f"{name}.jsonl")
        for name, address in (("one", None), ("ray", "local")):
            model_commands.train(str(tmp_path / "train.jsonl"), tmp_path / name, ray=address)
            answers = str(tmp_path / f"{name}.jsonl")
            model_commands.predict(
                tmp_path / name, str(tmp_path / "test.jsonl"), output=answers, ray=address
            )
        assert contents(tmp_path / "ray") == contents(tmp_path / "one")
        assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
        assert len(json.loads((tmp_path / "ray.jsonl").read_text().splitlines()[0])["labels"]) == 5

    def test_a_missing_model_is_told_before_anything_starts(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ray_module, "connected", None)
        with pytest.raises(ModelFolderError, match="no such model folder"):
            model_commands.predict(tmp_path / "none", str(tmp_path / "none.jsonl"), ray="local")

    def test_no_documents(self, documents, model):
        with connected("local"):
            assert predict_folder(model, documents[1].take(np.arange(0))).matrix.shape == (
                0,
                documents[0].n_labels,
            )


@pytest.mark.usefixtures("cluster")
def test_workers_with_another_version_are_refused(monkeypatch):
    monkeypatch.setattr(ray_module, "__version__", "0.0.1")
    with pytest.raises(
        UsageError, match=r"workers have longtail .*, and this process 0\.0\.1; install the same"
    ):
        connected("local").__enter__()
    assert not pool.handed_over()


class TestRefusals:
    @pytest.fixture(autouse=True)
    def _not_connected(self, monkeypatch):
        monkeypatch.setattr(ray, "is_initialized", lambda: False)

    @pytest.mark.parametrize("address", ["nonsense", "host:", "host:port", ":6379", "host:123456"])
    def test_what_is_no_address(self, address):
        with pytest.raises(
            UsageError, match=f"^--ray {address}: is no address; expected local, auto, HOST:PORT"
        ):
            connected(address).__enter__()

    @pytest.mark.parametrize("scheme", ["", "ray://"])
    def test_nobody_there(self, scheme):
        with socket.socket() as taken:  # bound, and not listening
            taken.bind(("127.0.0.1", 0))
            address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(
                UsageError, match=rf"{address}: no cluster answers \(.+\); check the address"
            ):
                connected(address).__enter__()

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (ConnectionError("Could not find any running Ray instance."), "no cluster answers"),
            (RuntimeError("Version mismatch:\n Ray: 1.0"), "Version mismatch: Ray: 1.0; expected"),
        ],
        ids=["nobody", "version"],
    )
    def test_what_ray_refuses(self, monkeypatch, error, said):
        def init(*_, **__):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            raise error

        handler = signal.getsignal(signal.SIGTERM)
        monkeypatch.setattr(ray, "init", init)
        with pytest.raises(UsageError, match=f"^--ray auto: {said}"):
            connected("auto").__enter__()
        assert signal.getsignal(signal.SIGTERM) is handler

    def test_without_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(
            MissingExtra, match=r"--ray needs an optional package; .*longtail\[ray\]"
        ):
            connected("local").__enter__()

    def test_without_an_address_nothing_is_handed_over(self):
        with connected(None):
            assert not pool.handed_over()

    def test_networks(self):
        check_trainable(configure("dismec"))
        with pytest.raises(UsageError, match=r"--ray: cascadexml trains a network.*torchrun"):
            check_trainable(configure("cascadexml"))

    def test_ray_and_shards(self, model):
        with pytest.raises(UsageError, match="found --ray and --shards"):
            model_commands.predict(model, "none.jsonl", shards="0", ray="local")

    def test_ray_and_a_gpu(self, model):
        with pytest.raises(UsageError, match="found --ray and --device cuda; expected one of them"):
            model_commands.predict(model, "none.jsonl", device="cuda", ray="local")

    def test_a_network_is_refused_before_data_is_read(self, tmp_path):
        with pytest.raises(UsageError, match=r"--ray: cascadexml trains a network"):
            model_commands.train("none.jsonl", tmp_path / "model", "cascadexml", ray="local")

    def test_a_worker_without_the_work_folder(self, tmp_path):
        with pytest.raises(
            UsageError, match=rf"stages: is not there on {socket.gethostname()}.*share"
        ):
            work_module._write_stage(
                (StageAddress("a", "1"), 1), dict, RunFolder(tmp_path / "stages", "0")
            )
        assert list(tmp_path.iterdir()) == []

    def test_a_stage_that_was_written_elsewhere(self, tmp_path, monkeypatch):
        def elsewhere(task, items, shared, together):
            yield from (name for name, _ in items)

        monkeypatch.setattr("longtail.store.stages._LOOKS", 1)
        said = pytest.raises(
            UsageError, match=r"work/a-0: a worker has written.*storage that all machines share"
        )
        with Stages(tmp_path / "work") as stages, pool.handed_to(elsewhere), said:
            Work(stages).each("a", dict, [1], "items")

    def test_another_model_on_the_machine_of_a_worker(self, model, tmp_path):
        with pytest.raises(ModelFolderError, match=f"is another model on {socket.gethostname()}"):
            ray_module._opened(str(model), "0" * 64)
        with pytest.raises(
            ModelFolderError, match=f"^on {socket.gethostname()}, which .*no such model folder"
        ):
            ray_module._opened(str(tmp_path / "none"), "0" * 64)


def test_kernels_get_one_type_of_arrays_wherever_they_run(monkeypatch):
    monkeypatch.setattr(spans, "train_spans", lambda *arguments: arguments)
    odd = np.zeros(17, np.uint8)[1:].view(np.float64)
    blank = spans._Arguments(*[None] * len(spans._Arguments._fields))
    monkeypatch.setattr(spans, "_prepared", lambda *given: "own")
    given = blank._replace(groups=np.zeros(3, np.int64), values=odd, n_columns=5)
    ends, own, siblings, data, settings = spans._train((0, 1), None, *given)
    assert (ends, own, data.features.n_columns, data.start_weights, settings) == (
        (0, 1),
        "own",
        5,
        None,
        None,
    )
    for array in (siblings.groups, data.features.values):
        assert (array.flags.writeable, array.flags.aligned) == (False, True)


class FakeRay:
    """What the runner uses of Ray; tasks are done when their results are asked for."""

    exceptions = ray.exceptions

    def __init__(self, cpus=1):
        self.cpus, self.calls, self.stored, self.asked, self.cancelled = cpus, [], [], 0, 0

    def cluster_resources(self):
        return {"CPU": self.cpus}

    def put(self, value):
        self.stored.append(value)
        return ("stored", len(self.stored) - 1)

    def remote(self, **options):
        assert options["num_cpus"] == 1
        assert options["max_retries"] > 1
        return lambda function: Remote(self, function)

    def cancel(self, _, force):
        assert force
        self.cancelled += 1


class Remote:
    """A remote function and, with arguments, its task."""

    def __init__(self, fake, function, arguments=()):
        self.fake, self.function, self.arguments = fake, function, arguments

    def remote(self, *arguments):
        self.fake.calls.append(arguments)
        return Remote(self.fake, self.function, arguments)

    def future(self):
        self.fake.asked += 1
        done = Future()
        try:
            done.set_result(self.function(*self.arguments))
        except Exception as error:
            done.set_exception(error)
        return done


def double(item, *_):
    return 2 * item


class TestRunner:
    def test_results_in_order_and_not_all_tasks_at_once(self):
        fake = FakeRay()
        results = ray_module._Cluster(fake)(double, range(40), (), 1)
        assert next(results) == 0
        assert len(fake.calls) == ray_module._AHEAD + 1
        assert list(results) == [2 * n for n in range(1, 40)]
        assert fake.cancelled == 0

    def test_many_items_are_joined_few_are_not(self):
        sizes = {}
        for n in (31, 32, 100, 10_000):
            fake = FakeRay(cpus=2)
            assert list(ray_module._Cluster(fake)(double, range(n), (), 8)) == [
                2 * item for item in range(n)
            ]
            sizes[n] = Counter(len(call[1]) for call in fake.calls).most_common(1)[0][0]
        assert sizes == {31: 1, 32: 1, 100: 3, 10_000: 8}

    def test_leaving_cancels_what_has_not_been_taken(self):
        fake = FakeRay()
        results = ray_module._Cluster(fake)(double, range(10), (), 1)
        next(results)
        results.close()
        assert (fake.asked, fake.cancelled) == (1, 9)

    def test_an_interruption_cancels_all(self):
        def interrupted(item):
            raise KeyboardInterrupt

        fake = FakeRay()
        with pytest.raises(KeyboardInterrupt):
            list(ray_module._Cluster(fake)(interrupted, range(5), (), 1))
        assert fake.cancelled == 5

    def test_an_array_is_stored_once_and_let_go(self):
        fake = FakeRay()
        run = ray_module._Cluster(fake)
        large, other, small = np.zeros(100_000), np.ones(100_000), np.zeros(3)
        for _ in range(3):
            list(run(double, [1], (large, small, 5, None), 1))
        assert len(fake.stored) == 1
        assert fake.calls[0][2:] == (("stored", 0), small, 5, None)
        list(run(double, [1], (other, large, {"any": "thing"}), 1))
        assert len(fake.stored) == 3
        assert len(run._arrays) == 2
        fake.stored.clear()
        del large
        gc.collect()
        assert len(run._arrays) == 1

    def test_a_worker_that_is_lost_again_and_again(self):
        def lost(item):
            raise ray.exceptions.WorkerCrashedError

        with pytest.raises(LongtailError, match=r"Ray gave up a task after 10 tries.*--resume"):
            list(ray_module._Cluster(FakeRay())(lost, [1], (), 1))

    def test_what_ray_does_not_try_again(self):
        def full(item):
            raise ray.exceptions.ObjectStoreFullError

        with pytest.raises(
            LongtailError, match=r"^Ray could not do a task \(.+\); look at the cluster.*--resume"
        ):
            list(ray_module._Cluster(FakeRay())(full, [1], (), 1))
