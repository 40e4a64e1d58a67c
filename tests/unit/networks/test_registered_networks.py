"""Networks and encoders of other packages: registered, trained, saved, loaded, and refused by name."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import longtail as lt
from longtail.checks import check_encoder
from longtail.config import ENCODER_KINDS, Config
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, UsageError
from longtail.features.encoder_folder import EncoderShape
from longtail.forecast import forecast
from longtail.methods import (
    METHODS,
    Method,
    configure,
    network_of,
    network_ranks,
    register_encoder,
    register_method,
    register_network,
    registry,
)
from longtail.networks.base import NetworkFamily, NetworkPlan, NetworkRun, Ranked
from longtail.networks.batches import Batches
from longtail.networks.embedder import Embedder
from longtail.networks.encoders.kinds import WordEncoderKind
from longtail.networks.encoders.word_encoder import WordEncoder
from longtail.networks.ranker import NeuralRanker
from longtail.pipeline import train
from longtail.scale.training import check_method
from longtail.store import Stages
from longtail.tree.tree import LabelTree
from longtail.tuning.space import default_space

TOPICS = ["cat dog horse", "car train ship", "bread rice soup"]
SETTINGS = {
    "encoder": {"kind": "toy-mean", "name": "learned", "width": 16, "max_tokens": 8},
    "training": {"epochs": 20, "encoder_rate": 0.02, "head_rate": 0.02, "micro_batch": 32},
    "cascade": {"combine": "never", "label_rows": "centroid", "last_level": "full"},
    "calibration": {"method": "none"},
}


class MeanEncoder(WordEncoder):
    """The mean of word vectors, through a linear map."""

    kind: ClassVar[str] = "toy-mean"

    def __init__(self, vectors: Tensor, idf: Tensor, pad: int, max_tokens: int) -> None:
        super().__init__(vectors, idf, pad, max_tokens)
        self.width = self.dimensions
        self.depth = 1
        self.map = nn.Linear(self.dimensions, self.width)

    def read(self, ids: Tensor) -> Tensor:
        """Return the mean vectors (B, D)."""
        words = (ids != self.pad).float()
        weights = words / words.sum(1, keepdim=True).clamp(min=1)
        return (weights[:, None] @ self.embedding(ids)).squeeze(1)

    def layer(self, hidden: Tensor, number: int) -> Tensor:
        """Return the mapped vectors."""
        return hidden + self.map(hidden)


class MeanKind(WordEncoderKind):
    name = "toy-mean"
    encoder = f"{__name__}:MeanEncoder"


class ToySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: int = 60


class ToyNetwork(nn.Module):
    """An encoder, and one linear map to all labels."""

    family: ClassVar[str] = "toy"

    def __init__(self, encoder, n_labels: int, training) -> None:
        super().__init__()
        self.encoder = encoder
        self.labels = nn.Linear(encoder.width, n_labels)
        self.training_settings = training
        self.heads = ()
        self.widths = (encoder.width,)
        self.slots = (n_labels,)

    def vectors(self, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
        return self.encoder(ids, mask, [self.encoder.depth])

    def logits(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        return self.labels(self.vectors(ids, mask)[-1])

    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        vectors = self.vectors(ids, mask)[-1]
        best = self.labels(vectors).sigmoid().topk(k)
        return Ranked(best.values, best.indices.int(), vectors, ())

    def path_scores(self, ids: Tensor, mask: Tensor | None, path) -> Tensor:
        return self.logits(ids, mask)[:, path[-1]].double().sigmoid()

    def in_half(self):
        return deepcopy(self).bfloat16().eval()

    def label_vectors(self):
        raise NotImplementedError


class ToyFamily(NetworkFamily):
    name = "toy"
    reads = frozenset({"encoder", "training", "custom"})
    ranks = True

    def check(self, config: Config) -> None:
        if self.custom_settings(config, ToySettings).steps < 1:
            raise ConfigError("custom.steps: expected 1 or more")

    def levels(self, config: Config, n_labels: int) -> tuple[int, ...]:
        return ()

    def fit(self, run: NetworkRun) -> Embedder:
        torch.manual_seed(run.config.seed)
        network = ToyNetwork(run.embedder.network.encoder, run.tree.n_labels, run.config.training)
        [targets] = run.tree.coarsen(run.documents.label_matrix)
        [batch] = Batches.in_order(run.tokens, len(run.tokens))

        def make() -> dict[str, np.ndarray]:
            optimiser = torch.optim.Adam(network.parameters(), 0.05)
            truth = torch.from_numpy(targets.toarray())
            for _ in range(self.custom_settings(run.config, ToySettings).steps):
                loss = binary_cross_entropy_with_logits(
                    network.logits(batch.ids, batch.mask), truth
                )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            state = network.state_dict()
            return {name: tensor.numpy(force=True) for name, tensor in state.items()}

        arrays = run.work.arrays("toy", make)
        network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        return NeuralRanker(run.embedder.tokeniser, network, run.tree).freeze()

    def save(self, embedder: NeuralRanker, folder) -> None:
        folder.write_arrays("toy-tree.safetensors", embedder.tree.to_arrays())
        state = embedder.network.labels.state_dict()
        arrays = {name: tensor.numpy(force=True) for name, tensor in state.items()}
        folder.write_arrays("toy.safetensors", arrays)

    def load(self, folder, config: Config, tokeniser, encoder, device) -> Embedder:
        tree = LabelTree.from_arrays(folder.arrays("toy-tree.safetensors"))
        network = ToyNetwork(encoder, tree.n_labels, config.training)
        arrays = folder.arrays("toy.safetensors")
        network.labels.load_state_dict(
            {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        )
        return NeuralRanker(tokeniser, network.to(device), tree).freeze()

    def plan(self, shape: EncoderShape, sizes, config: Config) -> NetworkPlan:
        steps = self.custom_settings(config, ToySettings).steps
        return NetworkPlan(
            tree=(sizes.n_labels,),
            width=shape.width,
            passes=3 * steps,
            products=3 * steps * shape.width * sizes.n_labels,
            stages=("toy",),
        )

    def tuning_space(self, config: Config):
        return ["encoder.width=16,32"]


def documents(n: int = 60) -> Dataset:
    texts = [" ".join(np.roll(TOPICS[i % 3].split(), i)) for i in range(n)]
    return Dataset.of(texts, [[f"topic{i % 3}"] for i in range(n)])


@pytest.fixture
def registered():
    """The toy encoder, network and two methods, which are unknown again after the test."""
    tables = registry._NETWORKS.families, ENCODER_KINDS, METHODS
    known = [dict(table) for table in tables]
    register_encoder(MeanKind())
    register_network(ToyFamily())
    recipe = ("words", "-", "-", "toy", "all labels")
    register_method(Method("toy-words", "a toy", "-", recipe, SETTINGS, network="cascade"))
    register_method(Method("toy-network", "a toy", "-", recipe, SETTINGS, network="toy"))
    yield
    for table, before in zip(tables, known, strict=True):
        table.clear()
        table.update(before)


@pytest.mark.usefixtures("registered")
class TestRegistered:
    @pytest.mark.parametrize("method", ["toy-words", "toy-network"])
    def test_trains_saves_loads_and_predicts(self, method: str, tmp_path: Path):
        data = documents()
        model = lt.Longtail(method, device="cpu").fit(data)
        model.save(tmp_path / "model")
        loaded = lt.load(tmp_path / "model", device="cpu")
        for trained in (model, loaded):
            best = trained.predict(["dog cat", "ship", "soup bread rice"], k=1)
            assert [labels[0][0] for labels in best] == ["topic0", "topic1", "topic2"]
        one, other = (trained.predict(["horse"], k=3)[0] for trained in (model, loaded))
        assert one == other

    def test_an_interrupted_run_takes_the_network_over(self, tmp_path: Path, monkeypatch):
        config = configure("toy-network", None)
        with Stages(tmp_path) as stages:
            first = train(documents(), config, stages=stages, device="cpu")
        monkeypatch.setattr(torch.optim, "Adam", None)
        with Stages(tmp_path) as stages:
            again = train(documents(), config, stages=stages, device="cpu")
        for one, other in zip(
            first.network.network.parameters(), again.network.network.parameters(), strict=True
        ):
            assert torch.equal(one, other)

    def test_is_asked_for_its_checks_forecast_and_space(self):
        config = configure("toy-network", None)
        assert network_ranks(config)
        assert network_of(config).widths(config, 9) == (9,)
        assert forecast(documents(), config, "cpu").tree == (3,)
        assert [dimension.path for dimension in default_space(config)] == [
            "training.encoder_rate",
            "training.head_rate",
            "encoder.width",
        ]
        with pytest.raises(UsageError, match="torchrun with toy-network: found the network 'toy'"):
            check_method(config)
        with pytest.raises(UsageError, match="toy-mean, which is not shared yet"):
            check_method(configure("toy-words", None))
        with pytest.raises(ConfigError, match=r"custom.steps: expected 1 or more"):
            check_encoder(configure("toy-network", None, {"custom": {"steps": 0}}), "cpu")

    def test_settings_of_its_own_are_checked(self):
        config = configure("toy-network", None, {"custom": {"stepz": 3}})
        with pytest.raises(ConfigError, match=r"stepz.*expected settings of toy"):
            check_encoder(config, "cpu")

    def test_label_words_need_an_encoder_that_declares_them(self):
        config = configure("toy-words", None, {"label_text": {"parts": ["text", "free"]}})
        with pytest.raises(ConfigError, match=r"found toy-mean.*expected bag or routed-inception$"):
            check_encoder(config, "cpu")

    def test_a_name_is_given_once(self):
        class Cascade(ToyFamily):
            name = "cascade"

        class Bag(MeanKind):
            name = "bag"

        with pytest.raises(ConfigError, match="network 'cascade': is there already"):
            register_network(Cascade())
        with pytest.raises(ConfigError, match="encoder 'bag': is there already"):
            register_encoder(Bag())


class TestUnknown:
    def test_kind_of_encoder(self):
        expected = "encoder.kind: found 'toy-mean'; expected one of transformer, bag, inception, "
        with pytest.raises(ConfigError, match=expected):
            configure("cascadexml", None, {"encoder": {"kind": "toy-mean"}})

    def test_network_of_a_method(self, monkeypatch):
        lost = Method("lost", "a toy", "-", ("-",) * 5, network="toy")
        monkeypatch.setitem(METHODS, "lost", lost)
        with pytest.raises(ConfigError, match="network 'toy': not found; expected one of encoder"):
            network_of(configure("lost", None))

    def test_network_of_a_folder(self, registered, tmp_path: Path):
        lt.Longtail("toy-network", device="cpu").fit(documents()).save(tmp_path / "model")
        del registry._NETWORKS.families["toy"]
        with pytest.raises(ConfigError, match=r"network 'toy': not found; .* that registers it"):
            lt.load(tmp_path / "model", device="cpu")
