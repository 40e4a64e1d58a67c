"""What a network adds to a forecast: by counting, and against what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import msgspec
import numpy as np
import pytest

from longtail.checks import check_network
from longtail.config import Cascade, Config
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, MissingExtra, UsageError
from longtail.features.encoder_folder import EncoderShape
from longtail.forecast import DataSizes, Forecast, forecast, training
from longtail.forecast import networks as module
from longtail.forecast import sizes as size_module
from longtail.forecast.gpus import Gpu
from longtail.forecast.networks import NetworkForecast
from longtail.forecast.sizes import Distribution, shape_of
from longtail.kernels import pool
from longtail.methods import METHODS, configure, network_of
from longtail.networks.base import NetworkPlan
from longtail.networks.layout import scored_nodes

WIDTH, DEPTH, HEADS, INNER, PARAMETERS = 16, 3, 2, 32, 10_000
SHAPE = EncoderShape(WIDTH, DEPTH, HEADS, INNER, 200, PARAMETERS)
MINILM = EncoderShape(384, 6, 12, 1536, 30522, 22_713_216)
H200 = Gpu("NVIDIA H200", 150_000_000_000)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(training, "gpu_for", lambda device: None)


def network_forecast(data: Dataset, config: Config, gpu: Gpu | None = None) -> NetworkForecast:
    sizes = DataSizes.of(data)
    return module.network_forecast(sizes, config, size_module.shape_of(sizes, config), gpu)


def plan_of(shape: EncoderShape, sizes: DataSizes, config: Config) -> NetworkPlan:
    return network_of(config).plan(shape, sizes, config)


@pytest.fixture
def encoder(tmp_path):
    shape = {
        "hidden_size": WIDTH,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": HEADS,
        "vocab_size": 200,
    }
    (tmp_path / "config.json").write_text(json.dumps({**shape, "intermediate_size": INNER}))
    (tmp_path / "model.safetensors").write_bytes(bytes(4 * PARAMETERS))
    return str(tmp_path)


def documents(n: int = 200, words: int = 10, n_labels: int = 40) -> Dataset:
    texts = [
        " ".join(f"w{(7 * i + j) % 97:02}x" for j in range(words)) for i in range(n)
    ]  # 5 bytes a word, with its space
    return Dataset.of(texts, [[f"l{i % n_labels}", f"l{i * 7 % n_labels}"] for i in range(n)])


def configured(name: str, method: str = "cascadexml", **settings: dict):
    encoder = {"name": name, **settings.pop("encoder", {})}
    if METHODS[method].network or settings.get("features", "tfidf") != "tfidf":
        settings["encoder"] = encoder
    return configure(method, None, settings)


@pytest.fixture
def network(encoder):
    def of(
        data: Dataset | None = None, gpu: Gpu | None = None, **settings: dict
    ) -> NetworkForecast:
        return network_forecast(
            documents() if data is None else data, configured(encoder, **settings), gpu
        )

    return of


@pytest.fixture
def whole(encoder):
    def of(**settings: dict) -> Forecast:
        with pool.threads(2):
            return forecast(documents(), configured(encoder, **settings))

    return of


class TestBytes:
    def difference(self, network, **settings: str | float) -> float:
        return (
            network(training=settings).training_bytes
            - network(training={"head_optimiser": "sgd"}).training_bytes
        )

    def test_classifiers_and_their_optimisers(self, network):
        nodes = 4 + 40  # 2² nodes above 40 labels
        assert network().tree == (4, 40)
        assert self.difference(network, head_optimiser="row-adam") == pytest.approx(12 * nodes)
        assert self.difference(network, head_optimiser="adamw") == pytest.approx(
            8 * nodes * WIDTH + 12 * nodes
        )
        halved = self.difference(network, head_optimiser="sgd", head_weights="bfloat16")
        assert halved == pytest.approx(-2 * nodes * WIDTH)
        assert network().resting_bytes == 4 * PARAMETERS + nodes * (4 * WIDTH + 4)
        assert network(tree={"levels": [5, 10]}).tree == (5, 10, 40)

    def test_parameters_and_activations(self, network):
        tokens = 2 + 49 / 4  # ten words of four bytes and nine spaces
        layer = 40 * WIDTH + 8 * INNER + 12 * HEADS * tokens
        classifiers = 44 * (4 * WIDTH + 4 + 12)
        for documents_at_a_time, settings in [
            (32, {}),
            (64, {"micro_batch": 64}),
            (32, {"batch_size": 32}),
        ]:
            activations = 1.2 * documents_at_a_time * tokens * DEPTH * layer
            expected = 24 * PARAMETERS + classifiers + activations
            assert network(training=settings).training_bytes == pytest.approx(expected)
        for precision, layer in [
            ("auto", 30 * WIDTH + 4 * INNER),
            ("float32", 34 * WIDTH + 8 * INNER),
        ]:
            expected = 16 * PARAMETERS + classifiers + 1.2 * 200 * tokens * DEPTH * layer
            assert network(
                gpu=H200, training={"precision": precision}
            ).training_bytes == pytest.approx(expected)

    def test_activations_as_torch_keeps_them(self):
        """Of MiniLM in training mode on the CPU, counted by hooks on saved tensors: bytes a token and layer."""
        training = configured("x").training
        for length, counted in [(32, 32_787), (64, 37_395), (128, 46_611)]:
            found = module._token_bytes(MINILM, length, False, training) / MINILM.depth
            assert found == pytest.approx(counted, rel=0.03)

    def test_peaks_as_measured(self, monkeypatch):
        """Three steps of AdamW with MiniLM and 32 documents on the CPU, without classifiers and without numba."""
        monkeypatch.setattr(size_module, "encoder_folder", str)
        monkeypatch.setattr(size_module, "encoder_shape", lambda folder: MINILM)
        for words, measured in [(600, 2296e6), (24, 1165e6)]:
            found = network_forecast(documents(32, words, 2), configured("x"))
            assert 26e6 + found.library_bytes + found.training_bytes == pytest.approx(
                measured, rel=0.1
            )

    def test_averages_are_a_copy(self, network):
        """As float32, whatever the classifiers are."""
        for weights in ("float32", "bfloat16"):
            settings = {"head_optimiser": "sgd", "head_weights": weights}
            averaged = self.difference(network, **settings, average=0.5) - self.difference(
                network, **settings
            )
            assert averaged == pytest.approx(4 * PARAMETERS + 44 * (4 * WIDTH + 4))

    def test_first_rows_need_all_vectors(self, network):
        rows = {
            kind: network(cascade={"label_rows": kind}).first_bytes
            for kind in ("random", "xavier", "centroid")
        }
        assert rows == {"random": 0, "xavier": 0, "centroid": 4 * 200 * WIDTH * 2}
        assert network().first_bytes == 4 * 240 * WIDTH * 2

    def test_tokens_are_cut(self, network):
        assert network().token_bytes == pytest.approx(2 * 200 * (2 + 49 / 4) + 8 * 200)
        assert network(encoder={"max_tokens": 8}).token_bytes == 2 * 200 * 8 + 8 * 200


class TestStages:
    """What is in memory at each stage of a run."""

    @pytest.fixture
    def peaks(self, encoder):
        def of(method: str = "cascadexml", threads: int = 2, **settings: dict) -> dict[str, int]:
            with pool.threads(threads):
                found = forecast(documents(), configured(encoder, method, **settings))
            return {stage.name: stage.peak_bytes for stage in found.stages}

        return of

    def test_names_and_their_order(self, peaks):
        network = ["documents", "features", "tokens", "tree", "network"]
        assert list(peaks(cascade={"combine": "never"})) == [*network, "calibration", "model"]
        both = [*network, "embeddings", "level 1 of 1", "calibration", "model"]
        assert list(peaks(tree={"levels": [4]}, cascade={"combine": "always"})) == [
            name.replace("of 1", "of 2") for name in both[:-2]
        ] + ["level 2 of 2", "calibration", "model"]
        levels = ["level 1 of 3, network", "level 2 of 3, network", "level 3 of 3, network"]
        tuned = list(
            peaks("xr-transformer", recursive={"levels": [4, 8]}, calibration={"method": "none"})
        )
        assert tuned == [
            "documents",
            "features",
            "tokens",
            "tree",
            *levels,
            "embeddings",
            "level 1 of 1",
            "model",
        ]

    def test_a_network_is_in_memory_while_it_is_trained_and_after(self, encoder, peaks):
        found = network_forecast(documents(), configured(encoder, cascade={"label_rows": "random"}))
        own = peaks(cascade={"label_rows": "random", "combine": "never"})
        assert own["network"] - own["documents"] >= found.library_bytes + found.training_bytes
        assert own["model"] - own["documents"] >= found.library_bytes + found.resting_bytes

    def test_what_torch_gives_back_stays_with_the_process(self, encoder, peaks):
        settings = {
            "cascade": {"label_rows": "random", "combine": "never"},
            "training": {"micro_batch": 200},
        }
        own = peaks(**settings)
        taken = (
            own["network"]
            - network_forecast(documents(), configured(encoder, **settings)).resting_bytes
        )
        assert own["model"] > own["features"] + 0.8 * (taken - own["features"])

    def test_no_threads_where_no_solver_runs(self, peaks):
        one, many = (peaks(threads=n, cascade={"combine": "never"}) for n in (1, 64))
        assert "level 1 of 1" not in one
        # the label tree alone has threads, and the allocator keeps some of what they gave back
        assert one["network"] == pytest.approx(many["network"], rel=0.01)
        assert one["features"] == many["features"]


class TestSeconds:
    def test_operations_of_the_encoder(self, network):
        rows = {"label_rows": "random", "combine": "never"}
        data = documents(words=1000)
        tokens = 4e-6 * 200 * 128
        epochs = (network(data, cascade=rows, training={"epochs": n}).seconds for n in (1, 2))
        one, two = ((seconds - tokens) * 30e9 for seconds in epochs)
        assert two == pytest.approx(2 * one)
        weights = DEPTH * (4 * WIDTH**2 + 2 * WIDTH * INNER)
        attention = 2 * 128 * WIDTH * DEPTH
        classifiers = WIDTH * (4 + 40)
        assert one == pytest.approx(200 * 6 * (128 * (weights + attention) + classifiers))

    def test_passes_without_training(self, network):
        bare = network(cascade={"label_rows": "random", "combine": "never"}).seconds
        for more in ({"label_rows": "random"}, {"combine": "never"}):
            ratio = network(cascade=more).seconds / bare
            assert (
                1 < ratio == pytest.approx(31 / 30, rel=0.02)
            )  # forward is a third of a step, ten epochs

    def test_shortlists_spare_the_classifiers_of_most_labels(self):
        assert scored_nodes((16, 256, 4096), (4, 10)) == [16, 64, 160]
        assert scored_nodes((2**10, 2**13, 2**16, 670_091), (128, 256, 401)) == [
            1024,
            1024,
            2048,
            4411,
        ]
        assert scored_nodes((7,), ()) == [7]

    @pytest.mark.parametrize(
        ("last_level", "scored"), [("auto", 4 + 40), ("full", 4 + 40), ("shortlist", 4 + 10)]
    )
    def test_labels_in_shortlists_or_all(self, last_level, scored):
        config = configured(
            "x", cascade={"shortlist": [1], "last_level": last_level}, training={"epochs": 2}
        )
        assert plan_of(SHAPE, DataSizes.of(documents()), config).products == 3 * 2 * WIDTH * scored

    def test_minilm_as_measured(self, monkeypatch):
        """An epoch of 392 documents of 59 tokens on one core took 35 s; two cores get less each."""
        monkeypatch.setattr(size_module, "encoder_folder", str)
        monkeypatch.setattr(size_module, "encoder_shape", lambda folder: MINILM)
        config = configured(
            "x", training={"epochs": 1}, encoder={"max_tokens": 64}, cascade={"combine": "never"}
        )
        assert 35 < network_forecast(documents(392, 46, 590), config).seconds < 90


class TestKinds:
    """Plans of networks that are not CascadeXML's, counted by hand."""

    def test_levels_one_after_the_other(self):
        levels = {"levels": [4, 8], "epochs": [1, 2, 3], "shortlist": 2}
        plan = plan_of(
            SHAPE, DataSizes.of(documents()), configured("x", "xr-transformer", recursive=levels)
        )
        assert (plan.tree, plan.width, plan.keeps_classifiers) == ((4, 8, 40), WIDTH, False)
        assert plan.passes == 3 * 6 + 4  # before, between, and behind the levels
        assert plan.products == 3 * WIDTH * (
            4 + 2 * 8 + 3 * 20
        )  # two true nodes and two more, of 2 and 5 children
        assert plan.level_groups == (((4, WIDTH),), ((8, WIDTH),), ((40, WIDTH),))
        assert (plan.first_vectors, plan.kept_vectors) == (2 * 200 * WIDTH, 200 * WIDTH)

    def test_steps_in_place_of_epochs(self):
        settings = {"levels": [4, 8], "steps": [10, 20, 30], "shortlist": 2}
        config = configured("x", "xr-transformer", recursive=settings, training={"batch_size": 20})
        plan = plan_of(SHAPE, DataSizes.of(documents()), config)
        assert plan.passes == pytest.approx(
            3 * (1 + 2 + 3) + 4
        )  # ten steps are a pass over 200 documents
        assert plan.products == pytest.approx(3 * WIDTH * (4 + 2 * 8 + 3 * 20))

    def test_without_labels_and_first_classifiers(self):
        settings = {"levels": [4, 8], "finest": "clusters", "bootstrap": False}
        config = configured("x", "xr-transformer", recursive=settings, training={"epochs": 8})
        plan = plan_of(SHAPE, DataSizes.of(documents()), config)
        assert plan.level_groups == (((4, WIDTH),), ((8, WIDTH),))
        assert plan.passes == 3 * 8 + 2
        assert plan.products == 3 * WIDTH * (2 * 4 + 6 * 8)

    def test_a_network_a_level(self):
        given = {"tree": {"levels": [4]}, "attention": {"epochs": [1, 2], "shortlist": 2}}
        plan = plan_of(SHAPE, DataSizes.of(documents()), configure("attentionxml", None, given))
        assert (plan.tree, plan.width, plan.keeps_classifiers, plan.encoders) == (
            (4, 40),
            WIDTH,
            True,
            2,
        )
        assert plan.passes == 3 * 3 + 1  # and once for the candidates of the second level
        looks = (2 + 49 / 4) * (WIDTH + 256) + 256  # at each word, for a node, and W_o
        assert plan.products == pytest.approx(
            3 * looks * (4 + 2 * 40)
        )  # two true nodes and two more are all four
        assert plan.level_groups == (((4, WIDTH), (40, WIDTH)),)

    def test_layers_and_states_of_attention(self):
        """A node costs each layer's weights, and a wider LSTM has more of them."""
        levels = {"tree": {"levels": [4]}}
        sizes = DataSizes.of(documents())

        def plan_with(**attention):
            settings = levels | {"attention": {"epochs": [1, 2], "shortlist": 2} | attention}
            return plan_of(SHAPE, sizes, configure("attentionxml", None, settings))

        nodes = 4 + 2 * 40
        more = plan_with(layers=[256, 64, 8]).products - plan_with().products
        assert more == pytest.approx(3 * nodes * (256 * 64 + 64 * 8 + 8 - 256))
        few = plan_with(level_shortlists=[1]).products
        assert few < plan_with().products == plan_with(level_shortlists=[2]).products
        narrow, wide = (
            shape_of(sizes, configure("attentionxml", None, {"attention": {"hidden": hidden}}))
            for hidden in (256, 512)
        )
        assert (narrow.width, wide.width) == (512, 1024)
        gates = [2 * 4 * hidden * (300 + hidden) for hidden in (256, 512)]
        assert wide.parameters - narrow.parameters == gates[1] - gates[0]

    def test_memory_of_averaged_weights(self):
        settings = {"tree": {"levels": [4]}, "attention": {"epochs": [1, 2]}}
        of_share = settings | {"training": {"average": 0.5}}
        of_epochs = settings | {"attention": {"epochs": [1, 2], "average_from": [0, 1]}}
        plain, by_share, by_epochs = (
            network_forecast(documents(), configure("attentionxml", None, chosen)).training_bytes
            for chosen in (settings, of_share, of_epochs)
        )
        assert plain < by_share == by_epochs

    def test_convolutions_over_padded_texts(self):
        """A few long texts make all others of their batches as long, as XML-CNN's are not sorted by length."""
        config = configure("xml-cnn", None, {"training": {"epochs": 2}})
        mixed = Dataset.of(
            ["word " * (200 if at % 10 == 0 else 5) for at in range(1000)], [["a", "b"]] * 1000
        )

        def operations(data: Dataset) -> float:
            tokens = np.minimum(2 + data.texts.lengths / 4, 128).sum()
            return (network_forecast(data, config).seconds - 4e-6 * tokens) * 30e9

        filters = 300 * 128 * (2 + 4 + 8)
        weights = 128 * filters + 3 * 128 * 8 * 512 + 2 * 512  # the last are those of two labels
        assert operations(mixed) == pytest.approx(2 * 3 * 2 * 1000 * weights)
        short = mixed.take(np.flatnonzero(np.arange(1000) % 10))
        assert operations(short) < 0.2 * operations(mixed)

    def test_the_longest_of_a_batch(self):
        lengths = Distribution.of([9.0, 1, 5])
        assert lengths.expected_largest(1) == pytest.approx(5)
        assert lengths.expected_largest(2) == pytest.approx((1 * 1 + 3 * 5 + 5 * 9) / 9)
        assert lengths.expected_largest(1000) == pytest.approx(9)
        assert Distribution.of([]).expected_largest(4) == 0

    def test_labels_of_convolutions_read_the_bottleneck(self):
        found = network_forecast(documents(), configure("xml-cnn"))
        assert (found.width, found.tree) == (512, (40,))

    def test_epochs_for_the_levels_of_a_hierarchy_are_taken_as_they_are(self):
        config = configure(
            "attentionxml", None, {"tree": {"levels": [4]}, "attention": {"epochs": [1, 2, 3]}}
        )
        assert plan_of(SHAPE, DataSizes.of(documents()), config).passes == 3 * 6 + 1
        check_network(documents(), config, {"0": ["a"]})
        with pytest.raises(
            ConfigError, match=r"attention\.epochs: found numbers for 3 levels; expected 2, as many"
        ):
            check_network(documents(), config)

    def test_classifiers_are_not_kept(self, encoder):
        found = network_forecast(
            documents(), configured(encoder, "xr-transformer", recursive={"levels": [4, 8]})
        )
        other = network_forecast(documents(), configured(encoder, tree={"levels": [4, 8]}))
        assert found.resting_bytes == 4 * PARAMETERS
        assert other.training_bytes - found.training_bytes == (4 + 8) * (4 * WIDTH + 4 + 12)
        assert (found.first_bytes, found.kept_bytes) == (8 * 200 * WIDTH, 4 * 200 * WIDTH)

    def test_epochs_for_another_tree_are_left_to_training(self, encoder):
        config = configured(encoder, "xr-transformer", recursive={"epochs": [1, 2, 3, 4]})
        assert network_forecast(documents(), config).seconds > 0

    @pytest.mark.parametrize(("gpu", "at_a_time", "layer"), [
        (False, 32, 40 * WIDTH + 8 * INNER + 12 * HEADS * 14.25), (True, 200, 30 * WIDTH + 4 * INNER)
    ])  # fmt: skip
    def test_an_encoder_as_it_is(self, encoder, gpu, at_a_time, layer):
        config = configured(encoder, "xr-linear", features="cat")
        found = network_forecast(documents(), config, H200 if gpu else None)
        assert (found.tree, found.width, found.first_bytes, found.kept_bytes) == ((), WIDTH, 0, 0)
        assert found.training_bytes == pytest.approx(
            4 * PARAMETERS + 1.2 * at_a_time * 14.25 * layer
        )
        assert found.resting_bytes == 4 * PARAMETERS

    def test_it_takes_one_pass(self, encoder):
        rows = {"label_rows": "random", "combine": "never"}
        trained = network_forecast(
            documents(), configured(encoder, cascade=rows, training={"epochs": 10})
        )
        frozen = network_forecast(documents(), configured(encoder, "xr-linear", features="dnn"))
        tokens = 4e-6 * 200 * 14.25
        assert frozen.seconds - tokens == pytest.approx((trained.seconds - tokens) / 30, rel=0.02)

    def test_layers_side_by_side(self):
        merged = {"merge": "concat", "bottleneck": 5, "last_level": "full"}
        config = configured("x", tree={"levels": [4]}, cascade=merged, training={"epochs": 2})
        plan = plan_of(SHAPE, DataSizes.of(documents()), config)
        assert (plan.width, plan.level_groups) == (5, (((4, 3 * WIDTH), (40, 5)),))
        assert plan.products == 3 * 2 * (4 * 3 * WIDTH + 40 * 5)


class TestForecast:
    def test_network_and_linear_part(self, whole):
        both, alone = whole(), whole(cascade={"combine": "never"})
        assert both.features == alone.features + WIDTH
        assert both.nonzeros == alone.nonzeros + 200 * WIDTH
        assert (both.tree, alone.tree) == ((40,), (4, 40))
        assert both.weights >= 40 * WIDTH
        assert alone.weights == 0
        assert both.seconds > alone.seconds
        assert both.model_bytes > alone.model_bytes > 4 * PARAMETERS
        assert both.network_bytes == alone.network_bytes > 16 * PARAMETERS

    def test_an_encoder_beside_linear_classifiers(self, encoder):
        def of(method: str = "xr-linear", **settings: str) -> Forecast:
            with pool.threads(2):
                return forecast(documents(), configured(encoder, method, **settings))

        plain, cat, dnn = of(), of(features="cat"), of(features="dnn")
        assert (plain.features, plain.network_bytes) == (cat.features - WIDTH, 0)
        assert (dnn.features, dnn.nonzeros) == (WIDTH, 200 * WIDTH)
        assert plain.seconds < cat.seconds > dnn.seconds
        assert plain.tree == cat.tree == dnn.tree
        assert cat.model_bytes > dnn.model_bytes > 4 * PARAMETERS > plain.model_bytes
        forests = [of("pfastrexml", features=kind) for kind in ("tfidf", "cat")]
        assert forests[0].model_bytes + 4 * PARAMETERS < forests[1].model_bytes
        assert forests[1].tree == ()

    def test_a_tuned_encoder_is_no_cascade(self, encoder):
        both, other = (
            forecast(
                documents(),
                msgspec.structs.replace(configured(encoder, "xr-transformer"), cascade=cascade),
            )
            for cascade in (Cascade(), Cascade(combine="never"))
        )
        assert both == other
        assert both.weights >= 40 * WIDTH

    def test_memory_is_the_network_s_too(self, whole, encoder):
        small, large = whole(training={"micro_batch": 1}), whole(encoder={"max_tokens": 4})
        assert large.network_bytes < whole().network_bytes > small.network_bytes
        with pool.threads(2):
            linear = forecast(documents(), configure("xr-linear"))
        assert whole().peak_bytes > linear.peak_bytes + module.NetworkCosts().library_bytes
        assert (linear.network_bytes, linear.on_gpu) == (0, False)

    def test_on_a_gpu(self, whole, monkeypatch):
        there = partial(whole, training={"epochs": 10_000, "batch_size": 10_000})
        cpu = there()
        monkeypatch.setattr(training, "gpu_for", lambda device: None if device == "cpu" else H200)
        gpu = there()
        assert (cpu.on_gpu, cpu.gpu_seconds) == (False, None)
        assert (gpu.on_gpu, gpu.gpu, gpu.gpu_bytes) == (True, "NVIDIA H200", 150_000_000_000)
        assert 0 < gpu.gpu_seconds[1] < 0.01 * cpu.seconds[0]
        assert gpu.seconds[0] > gpu.gpu_seconds[0]
        stages = ({stage.name: stage.peak_bytes for stage in own.stages} for own in (cpu, gpu))
        on_cpu, on_gpu = (own["network"] - own["tokens"] for own in stages)
        assert on_gpu < 0.1 * on_cpu
        assert "of it the network on NVIDIA H200" in str(gpu)

    def test_a_device_that_is_not_known(self, whole, monkeypatch):
        monkeypatch.setattr(training, "gpu_for", lambda device: Gpu("Some Device", 0))
        found = whole()
        assert (found.on_gpu, found.gpu_seconds) == (True, None)
        assert "beside the network (whose time on this GPU is not known)" in str(found)

    def test_almost_nothing(self, encoder):
        for data in (
            Dataset.of(["a"], [["b"]]),
            documents(5).take(np.arange(0)),
            Dataset.of(["a word"], [[]]),
        ):
            assert forecast(data, configured(encoder)).peak_bytes > 0

    def test_encoders_that_are_not_there(self, tmp_path, monkeypatch):
        with pytest.raises(UsageError, match="found no such folder"):
            forecast(documents(), configured(str(tmp_path / "none")))
        monkeypatch.setattr("longtail.features.encoder_folder._MINILM", "no_such_package")
        with pytest.raises(MissingExtra, match="minilm"):
            forecast(documents(), configured("minilm"))

    def test_torch_is_not_imported(self):
        code = "import sys, longtail.forecast; print({'torch', 'transformers', 'tokenizers'} & set(sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "set()"
