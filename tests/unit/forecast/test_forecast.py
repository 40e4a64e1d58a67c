"""What training will take: against what it takes, and that every setting moves it the right way."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache

import msgspec
import numpy as np
import pytest
from scipy import sparse

from longtail.config import Config, LabelFeatures, resolve, settings
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.sample import sample
from longtail.errors import UsageError
from longtail.features.tfidf import TfIdf
from longtail.forecast import DataSizes, Forecast, StageMemory, check_memory, forecast, memory
from longtail.forecast.levels import label_numbers, tree_levels
from longtail.forecast.memory import MemoryLimit
from longtail.forecast.text import text_forecast
from longtail.kernels import pool
from longtail.tree.cluster import level_widths

EXPECTED = Forecast(1000, 2000, 30000, (8, 100), 5000, 2, (40.4, 130.0), 1_340_000_000, 61_000_000)


@cache
def train() -> Dataset:
    return sample()[0]


def config(*sources: dict) -> Config:
    return resolve({"method": "xr-linear"}, *sources)


def expected(*sources: dict, threads: int = 2, documents: Dataset | None = None) -> Forecast:
    with pool.threads(threads):
        return forecast(train() if documents is None else documents, config(*sources))


def few(n: int = 4) -> Dataset:
    return Dataset.of(
        [f"one two word{i}" for i in range(n)], [["a", f"b{i % 3}"] for i in range(n)]
    )


class TestText:
    @pytest.mark.parametrize(
        "block",
        [
            {},
            {"min_df": 2},
            {"ngram_max": 2},
            {"ngram_max": 2, "min_df": 3},
            {"max_features": 5000},
            {"max_df": 0.02},
            {"unit": "char", "ngram_min": 3, "ngram_max": 4, "min_df": 2},
        ],
    )
    def test_columns_and_numbers_come_out_as_they_will_be(self, block):
        found = expected({"tfidf": [block]})
        vectoriser, rows = TfIdf.fit_transform(train().texts, config({"tfidf": [block]}).tfidf)
        assert found.features == pytest.approx(vectoriser.n_features, rel=0.3)
        assert found.nonzeros == pytest.approx(rows.nnz, rel=0.15)

    def test_blocks_add_up(self):
        one, other = {"max_features": 5000}, {"unit": "char", "ngram_min": 3, "ngram_max": 3}
        apart, both = (
            [expected({"tfidf": [block]}) for block in (one, other)],
            expected({"tfidf": [one, other]}),
        )
        assert both.features == pytest.approx(sum(part.features for part in apart), abs=1)
        assert both.nonzeros == pytest.approx(sum(part.nonzeros for part in apart), abs=1)

    def test_a_few_documents_are_counted(self):
        documents = few()
        found = expected(documents=documents)
        assert found.nonzeros == 12
        assert found.documents == 4
        assert found.features == 6

    def test_long_texts_are_not_all_looked_at(self, monkeypatch):
        looked = []
        make = TfIdf.fit_transform
        monkeypatch.setattr(
            TfIdf,
            "fit_transform",
            lambda texts, blocks: looked.append(texts) or make(texts, blocks),
        )
        expected()
        monkeypatch.setattr("longtail.forecast.text._SAMPLE_BYTES", 100_000)
        found = expected()
        assert [len(looked[0]), looked[1].arena.size < 150_000] == [2000, True]
        assert found.nonzeros == pytest.approx(263_390 / 0.95, rel=0.2)

    @pytest.mark.parametrize("texts", [["", ""], ["?!", "…"]])
    def test_no_words_are_for_training_to_complain_of(self, texts):
        assert expected(documents=Dataset.of(texts, [["a"], ["b"]])).features == 0

    def test_given_features_are_counted(self):
        rows = sparse.random_array(
            (200, 50), density=0.1, format="csr", dtype=np.float32, rng=np.random.default_rng(0)
        )
        documents = dataclasses.replace(few(200), texts=None, features=rows)
        found = expected(documents=documents)
        assert (found.features, found.nonzeros) == (50, rows.nnz)
        dense = expected(
            documents=dataclasses.replace(documents, dense=np.ones((200, 7), np.float32))
        )
        assert (dense.features, dense.nonzeros) == (57, rows.nnz + 1400)
        assert dense.weights > found.weights
        assert dense.peak_bytes > found.peak_bytes


class TestTree:
    def test_widths_are_those_of_the_tree(self):
        settings = {"branching": 4, "leaf_size": 10}
        found = expected({"tree": settings})
        assert found.tree == (*level_widths(501, config({"tree": settings}).tree), 501)

    def test_free_trees_are_wide_and_shallow(self):
        assert expected(
            {"tree": {"kind": "unbalanced", "branching": 20, "leaf_size": 10}}
        ).tree == (20, 167, 501)
        assert expected({"tree": {"kind": "unbalanced", "branching": 20, "max_depth": 1}}).tree == (
            20,
            501,
        )
        assert expected({"tree": {"kind": "unbalanced", "leaf_size": 501}}).tree == (501,)

    def test_documents_of_nodes_lie_between_the_documents_and_the_pairs(self):
        levels = tree_levels(DataSizes.of(train()), config({"tree": {"branching": 2}}))
        pairs = [level.nodes * level.node_documents for level in levels]
        assert [level.parents for level in levels] == [1, *(level.nodes for level in levels[:-1])]
        assert pairs == sorted(pairs)
        assert pairs[0] >= 5999
        assert pairs[-1] == pytest.approx(train().label_matrix.nnz, rel=0.02)

    def test_labels_of_a_document_lie_together(self):
        first = tree_levels(DataSizes.of(train()), config())[0]
        assert first.nodes == 8
        assert first.nodes * first.node_documents == pytest.approx(
            10_090, rel=0.15
        )  # in its tree; 16,600 in a random one


class TestLabelFeatures:
    def numbers(self, **settings: object) -> float:
        own = config({"label_features": settings}).label_features
        sizes = DataSizes.of(train())
        return label_numbers(sizes, text_forecast(sizes, config()), own, own.kind)

    def test_a_label_has_the_columns_of_its_documents(self):
        assert self.numbers() == pytest.approx(_pifa_numbers(train()), rel=0.3)

    def test_text_doubles(self):
        assert self.numbers(kind="pifa+text") == 2 * self.numbers()
        assert self.numbers(kind="graph+text") == 2 * self.numbers(kind="graph")

    def test_neighbours_add_theirs_up_to_a_limit(self):
        assert self.numbers(kind="graph", graph_keep=3, graph_features=10**9) <= 4 * self.numbers()
        assert self.numbers(kind="graph") == pytest.approx(
            497_767, rel=0.1
        )  # in its label features
        assert self.numbers(kind="graph", graph_features=5) == 5 * 501
        sizes = DataSizes.of(few())
        one = text_forecast(sizes, config())
        assert label_numbers(sizes, one, LabelFeatures(graph_keep=1), "graph") <= 4 * one.columns

    def test_labels_of_the_same_documents(self):
        labels = train().label_matrix
        numbers = (labels.T @ labels).nnz
        assert numbers <= self.numbers(kind="output") <= labels.shape[1] ** 2
        both = self.numbers() + self.numbers(kind="output")
        assert self.numbers(kind="joint") == pytest.approx(both)
        alone = Dataset.of(["one", "two", "three"], [["a"], ["b"], ["a"]])
        sizes = DataSizes.of(alone)
        text = text_forecast(sizes, config())
        assert label_numbers(sizes, text, LabelFeatures(), "output") == 2

    def test_each_tree_has_its_numbers(self):
        kinds = ("pifa", "output", "joint")

        def of_trees(*kinds: str) -> Forecast:
            settings = {"tree_kinds": list(kinds)}
            return expected({"ranker": {"trees": len(kinds)}, "label_features": settings})

        mixed = of_trees(*kinds)
        uniform = [of_trees(kind, kind, kind) for kind in kinds]
        seconds = [result.seconds[0] for result in uniform]
        assert mixed.seconds[0] == pytest.approx(sum(seconds) / 3, rel=1e-9)
        assert seconds[1] < seconds[0] < seconds[2]
        for kind, result in zip(kinds, uniform, strict=True):
            assert self.first_tree(of_trees(kind, "pifa", "pifa")) == self.first_tree(result)
        assert self.first_tree(uniform[0]) < self.first_tree(uniform[2])

    def first_tree(self, result: Forecast) -> int:
        return next(stage.peak_bytes for stage in result.stages if stage.name == "tree")


def _pifa_numbers(documents: Dataset) -> int:
    _, rows = TfIdf.fit_transform(documents.texts, config().tfidf)
    return (
        documents.label_matrix.T.astype(bool).astype(np.float32) @ (rows > 0).astype(np.float32)
    ).nnz


class TestMovesTheRightWay:
    @pytest.mark.parametrize(
        "more",
        [
            {"ranker": {"trees": 3}},
            {"ranker": {"loss": "logistic"}},
            {"ranker": {"negatives": "tfn+man"}},
            {"tree": {"leaf_size": 501}},
        ],
    )
    def test_seconds(self, more):
        assert expected(more).seconds[0] > 1.1 * expected().seconds[0]

    def test_texts_of_labels_are_documents_with_gandalf(self):
        names = [f"word{i} of label{i}" for i in range(2000)]
        many = dataclasses.replace(
            few(2000), label_matrix=sparse.eye_array(2000, format="csr", dtype=np.float32)
        )
        many = dataclasses.replace(many, labels=Labels.of(names))
        with_half, with_all = ({"gandalf": {"use": True, "share": share}} for share in (0.5, 1.0))
        plain, half, whole = (expected(own, documents=many) for own in ({}, with_half, with_all))
        assert (plain.documents, half.documents, whole.documents) == (2000, 3000, 4000)
        assert plain.seconds[1] < half.seconds[1] < whole.seconds[1]
        assert plain.peak_bytes < half.peak_bytes < whole.peak_bytes

    def test_threads(self):
        one, four = expected(threads=1), expected(threads=4)
        assert one.seconds[1] > four.seconds[1]
        assert one.peak_bytes < four.peak_bytes
        assert (one.threads, four.threads) == (1, 4)

    def test_bytes_of_the_model(self):
        sizes = [
            expected({"ranker": {"weights": kind}}).model_bytes
            for kind in ("int8", "float16", "float32")
        ]
        assert sizes == sorted(sizes)
        assert expected({"ranker": {"trees": 3}}).weights == pytest.approx(
            3 * expected().weights, abs=2
        )
        assert expected({"ranker": {"prune": 0.01}}).weights > expected().weights
        assert (
            expected({"ranker": {"prune": 0}}).weights
            > expected({"ranker": {"prune": 0.01}}).weights
        )

    def test_more_columns_more_memory(self):
        assert expected({"tfidf": [{"ngram_max": 3}]}).peak_bytes > 1.3 * expected().peak_bytes

    def test_the_sample_as_it_was_measured(self):
        found = expected()
        assert found.peak_bytes == pytest.approx(280e6, rel=0.3)
        assert found.weights == pytest.approx(281_380, rel=0.3)
        assert found.model_bytes == pytest.approx(1_247_647, rel=0.4)
        assert found.seconds[0] < 1.5 < found.seconds[1] < 10


@pytest.mark.parametrize("n", [0, 1, 2])
def test_almost_nothing(n):
    found = expected(documents=few(4).take(np.arange(n)))
    assert found.documents == n
    assert all(map(np.isfinite, found.seconds))
    assert found.peak_bytes > 0


def test_no_labels():
    assert expected(documents=Dataset.of(["a word"], [[]])).tree == ()


def test_same_documents_same_forecast():
    assert expected() == expected()


class TestWords:
    def test_sentence(self):
        words = "forecast: about 40 s to 2 min on 2 threads, 1.3 GB of memory, a model of 61 MB"
        assert str(EXPECTED) == words

    @pytest.mark.parametrize(
        ("seconds", "threads", "words"),
        [
            ((0.2, 0.9), 1, "about 1 s on 1 thread,"),
            ((64, 212), 8, "about 64 s to 4 min on 8 threads,"),
            ((3600, 9000), 2, "about 60 min to 2.5 h on 2 threads,"),
            ((100_000, 400_000), 2, "about 28 h to 110 h on 2 threads,"),
        ],
    )
    def test_times(self, seconds, threads, words):
        assert words in str(msgspec.structs.replace(EXPECTED, seconds=seconds, threads=threads))

    @pytest.mark.parametrize(
        ("n", "words"), [(456_700_000, "460 MB"), (25_600_000_000, "26 GB"), (400_000, "0 MB")]
    )
    def test_sizes(self, n, words):
        assert f"a model of {words}" in str(msgspec.structs.replace(EXPECTED, model_bytes=n))

    def test_network(self):
        cpu = msgspec.structs.replace(EXPECTED, network_bytes=900_000_000)
        words = "forecast: about 40 s to 2 min on 2 threads, 1.3 GB of memory (network 900 MB), a model of 61 MB"
        assert str(cpu) == words
        words = (
            "forecast: about 40 s to 2 min on 2 threads beside the network (whose time on this GPU is not known), "
            "1.3 GB of memory, 900 MB of the GPU's, a model of 61 MB"
        )
        assert str(msgspec.structs.replace(cpu, on_gpu=True)) == words
        words = (
            "forecast: about 40 s to 2 min on 2 threads, 30 s to 100 s of it the network on NVIDIA L4, "
            "1.3 GB of memory, 900 MB of the GPU's, a model of 61 MB"
        )
        assert str(
            msgspec.structs.replace(cpu, on_gpu=True, gpu="NVIDIA L4", gpu_seconds=(30.0, 89.0))
        ) == (words.replace("100 s", "89 s"))

    def test_json(self):
        fields = json.loads(msgspec.json.encode(EXPECTED))
        assert (fields["tree"], fields["peak_bytes"]) == ([8, 100], 1_340_000_000)


def with_stages(found: Forecast = EXPECTED, **peaks: int) -> Forecast:
    """Return a forecast whose stages have these peaks; ``_`` stands for a space."""
    stages = tuple(StageMemory(name.replace("_", " "), peak) for name, peak in peaks.items())
    return msgspec.structs.replace(found, stages=stages)


class TestStages:
    RUN = with_stages(
        documents=300, features=700, tree=500, level_1_of_2=400, level_2_of_2=900, model=600
    )

    def test_peaks_rise_as_those_of_a_process_do(self):
        peaks = {
            "documents": 300,
            "features": 700,
            "tree": 700,
            "level 1 of 2": 700,
            "level 2 of 2": 900,
            "model": 900,
        }
        assert self.RUN.peaks() == peaks

    def test_stages_of_several_trees_are_one(self):
        stages = (*self.RUN.stages, StageMemory("level 1 of 2", 1_000_000_000))
        twice = msgspec.structs.replace(self.RUN, stages=stages)
        assert twice.peaks()["level 1 of 2"] == 1_000_000_000
        lines = twice.table().splitlines()
        assert len(lines) == 6
        assert lines[3].split() == ["level", "1", "of", "2", "1", "GB"]

    def test_the_largest_is_that_of_the_run(self):
        found = expected()
        assert found.peak_bytes == max(stage.peak_bytes for stage in found.stages)
        names = [
            "documents",
            "features",
            "tree",
            "level 1 of 2",
            "level 2 of 2",
            "calibration",
            "model",
        ]
        assert [stage.name for stage in found.stages] == names

    def test_documents_are_there_twice_where_some_are_held_out(self):
        sizes = train().nbytes - train().labels.nbytes
        first = [
            expected({"calibration": {"method": method}}).stages[0].peak_bytes
            for method in ("isotonic", "none")
        ]
        assert first[0] - first[1] == pytest.approx(sizes, abs=1)


class TestMemory:
    def test_nine_tenths_are_the_most(self, monkeypatch):
        monkeypatch.setattr(memory, "memory_limit", lambda: MemoryLimit(1_500_000_000, "made"))
        found = with_stages(features=700, level_1_of_1=1_340_000_000)
        check_memory(found)
        monkeypatch.setattr(memory, "memory_limit", lambda: MemoryLimit(1_450_000_000, "made"))
        with pytest.raises(UsageError) as refused:
            check_memory(found)
        message = str(refused.value)
        words = "training needs about 1.3 GB of memory, most of all in the stage 'level 1 of 1'; found 1.4 GB (made), "
        assert message.startswith(f"{words}of which it may take 90%; ")
        named = set(re.findall(r"[a-z]+\.(?:0\.)?\w+", message))
        assert named == {"tfidf.0.max_features", "tfidf.0.min_df", "ranker.prune"}
        assert named <= {setting.path for setting in settings(Config())}
        assert message.endswith(
            "use fewer threads (-j), or train all the same with --ignore-memory"
        )
        assert "\n" not in message

    def test_fewer_threads_help_only_where_there_are_any(self, monkeypatch):
        monkeypatch.setattr(memory, "memory_limit", lambda: MemoryLimit(1_000_000_000, "made"))
        with pytest.raises(
            UsageError, match=r"in the stage 'features'; .*set tfidf\.0\.max_features or"
        ) as refused:
            check_memory(with_stages(features=1_340_000_000))
        assert "threads" not in str(refused.value)

    def test_of_a_network_that_is_most_of_it(self, monkeypatch):
        monkeypatch.setattr(memory, "memory_limit", lambda: MemoryLimit(1_000_000_000, "made"))
        network = msgspec.structs.replace(
            with_stages(network=1_340_000_000), network_bytes=700_000_000
        )
        with pytest.raises(
            UsageError,
            match=r"found 1 GB.*set a smaller training\.micro_batch or encoder\.max_tokens, ",
        ) as refused:
            check_memory(network)
        named = set(re.findall(r"[a-z]+\.\w+", str(refused.value)))
        assert named == {
            "training.micro_batch", "encoder.max_tokens", "training.head_optimiser", "training.head_weights"
        }  # fmt: skip
        assert named <= {setting.path for setting in settings(Config())}
        for other, way in (
            ({"network_bytes": 600_000_000}, "a larger"),
            ({"on_gpu": True}, "cascade.label_rows=random"),
        ):
            with pytest.raises(UsageError, match=rf"set {re.escape(way)} "):
                check_memory(msgspec.structs.replace(network, **other))
        assert {"cascade.label_rows", "recursive.bootstrap"} <= {
            setting.path for setting in settings(Config())
        }

    def test_features_that_are_given_are_not_chosen_here(self, monkeypatch):
        monkeypatch.setattr(memory, "memory_limit", lambda: MemoryLimit(1_000_000_000, "made"))
        with pytest.raises(UsageError, match=r"set a larger ranker\.prune, use fewer threads"):
            check_memory(with_stages(documents=300, level_1_of_2=1_340_000_000))

    def test_the_memory_of_a_gpu(self, monkeypatch):
        monkeypatch.setattr(memory, "memory_limit", lambda: MemoryLimit(10_000_000_000, "made"))
        gpu = {"on_gpu": True, "gpu": "NVIDIA L4", "gpu_bytes": 24_000_000_000}
        fits = msgspec.structs.replace(EXPECTED, network_bytes=21_000_000_000, **gpu)
        check_memory(fits)
        words = (
            r"training needs about 22 GB of the GPU's memory; found 24 GB \(NVIDIA L4\), of which it may take 90%; "
            r"set a smaller training\.micro_batch .*, use --device cpu, or train all the same with --ignore-memory$"
        )
        with pytest.raises(UsageError, match=words):
            check_memory(msgspec.structs.replace(fits, network_bytes=22_000_000_000))
        check_memory(
            msgspec.structs.replace(fits, network_bytes=22_000_000_000, gpu_bytes=0)
        )  # nobody knows

    def test_unknown_memory_refuses_nothing(self, monkeypatch):
        monkeypatch.setattr(memory, "memory_limit", lambda: None)
        check_memory(EXPECTED)
