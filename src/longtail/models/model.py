"""A trained model: from texts or features to ranked labels with probabilities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Search
from longtail.data.dataset import Dataset
from longtail.data.strings import Strings
from longtail.errors import UsageError
from longtail.features.document_features import document_features
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.models.ranking_model import Facts, RankingModel, members_k
from longtail.rankers import Ranker
from longtail.rankers.explanation import Explanation, RawExplanation, explain_label
from longtail.rankers.tree import TreeRanker
from longtail.search.beam import ranked_labels
from longtail.search.ensemble import mean_scores
from longtail.search.partial_predictions import PartialPredictions
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.networks.embedder import Embedder  # which need torch
    from longtail.networks.ranker import NeuralRanker

__all__ = ["Facts", "Model"]


@dataclass(frozen=True)
class Model(RankingModel):
    """Labels, how documents become features, the rankers, and what scores mean.

    Linear rankers score tf-idf or given features, or a network's vectors and these together (Φcat).
    A network may rank by itself, too, or give its vectors alone."""

    vectoriser: TfIdf | None  # None: documents come as features, or a network's vectors are all
    rankers: tuple[Ranker, ...]  # one a label tree, or a forest; none where a network does it all
    network: Embedder | None = None
    label_graph: sparse.csr_array | None = None  # (L, L) normalised, where training made one

    @property
    def reads_text(self) -> bool:
        """Whether texts are all that is needed, no ready-made features."""
        if self.network is not None:
            return self.vectoriser is not None or not self.rankers or not self.facts.n_columns
        return self.vectoriser is not None and not self.facts.dense_width

    @property
    def single(self) -> Model:
        """This model."""
        return self

    def weighted_members(self) -> tuple[tuple[Model, float], ...]:
        """Return this model alone."""
        return ((self, 1.0),)

    @property
    def tree(self) -> LabelTree | None:
        """The label tree of the network, else of the first linear ranker, if it has one."""
        if self.neural_ranker is not None:
            return self.neural_ranker.tree
        return self.rankers[0].label_tree

    @property
    def neural_ranker(self) -> NeuralRanker | None:
        """The network, if it ranks labels by itself."""
        if self.network is None:
            return None
        return self.network.ranker

    @property
    def missing_score(self) -> float:
        """The score, before calibration, of a label that is not found: 0, or −1 where scores are
        margins.
        """
        if not self.rankers or self.facts.network_share > 0:
            return 0.0
        return max(ranker.missing_score(self.config.search) for ranker in self.rankers)

    def raw_scores(
        self,
        documents: Dataset | Strings,
        k: int,
        search: Search,
        exclude: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return (n, L) scores before calibration, best first: of the network, of the linear
        rankers by their mean, or the weighted mean of both.
        """
        share = self.facts.network_share
        network = self.neural_ranker
        if network is not None and share == 1:
            return network.search(_texts(documents), k, exclude)[0]
        if network is not None and share > 0:
            both = self.both_scores(documents, k, search, exclude)
            return mean_scores(both, k, (share, 1 - share))
        features = self.features(documents)
        if len(self.rankers) == 1:
            return self.rankers[0].search(features, search, k, exclude)
        each = members_k(k, len(self.labels))
        return self._mean_of_rankers(features, k, each, search, exclude)

    def both_scores(
        self,
        documents: Dataset | Strings,
        k: int,
        search: Search,
        exclude: sparse.csr_array | None = None,
    ) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Return the scores of the network and of the linear classifiers beside it, of more than
        ``k`` labels.
        """
        if self.neural_ranker is None:
            raise UsageError(f"{self.config.method} has no network that ranks")
        wanted = members_k(k, len(self.labels))
        ranked, vectors = self.neural_ranker.search(_texts(documents), wanted, exclude)
        features = document_features(
            documents, self.vectoriser, self.config, vectors, widths=self.facts.widths
        )
        return ranked, self._mean_of_rankers(features, wanted, wanted, search, exclude)

    def _mean_of_rankers(
        self,
        features: Features,
        k: int,
        each: int,
        search: Search,
        exclude: sparse.csr_array | None,
    ) -> sparse.csr_array:
        """Return the ``k`` best labels by the mean over rankers, each with its ``each`` best."""
        ranked = []
        for ranker in self.rankers:
            ranked.append(ranker.search(features, search, each, exclude))
        if len(ranked) == 1:
            return ranked[0]
        return mean_scores(ranked, k, missing=self.missing_score)

    def predict_part(
        self,
        documents: Dataset,
        k: int = 5,
        *,
        threshold: float = 0.0,
        beam_size: int | None = None,
    ) -> PartialPredictions:
        """Return the ``k`` best labels of each document that the loaded shards hold, with what a
        merge needs.
        """
        ranker = self.rankers[0] if len(self.rankers) == 1 else None
        if not isinstance(ranker, TreeRanker) or ranker.shards is None:
            raise UsageError(
                "this model has no shards; load a model of one label tree in shards, or use predict"
            )
        if self.neural_ranker is not None:
            raise UsageError(
                "this model has a network that ranks as well, whose scores no shard has; "
                "use predict"
            )
        self.warn_of_threshold(threshold)
        search = self.search_settings(beam_size)
        beam = ranker.descent(self.features(documents), search).run(self.check_k(k))
        ranked = self.calibrated(ranked_labels(beam, ranker.tree, search.last_level))
        return PartialPredictions.of(
            beam, ranked, threshold, self.labels, documents.ids, ranker.shards, k
        )

    def features(self, documents: Dataset | Iterable[str]) -> Features:
        """Return the features of documents as the linear rankers got them in training."""
        documents = self.readable(documents)
        vectors = None
        if self.network is not None:
            if not self.rankers:
                raise UsageError(
                    "this model has a network alone, which reads texts, not features; see embed"
                )
            vectors = self.network.embed(_texts(documents))
        return document_features(
            documents, self.vectoriser, self.config, vectors, widths=self.facts.widths
        )

    def embed(self, documents: Dataset | Iterable[str]) -> NDArray[np.float32]:
        """Return the network's (n, d) vectors of documents, Φ_dnn."""
        if self.network is None:
            raise UsageError(
                f"{self.config.method} has no network, so no embeddings; "
                "train with a method that has one"
            )
        return self.network.embed(_texts(self.readable(documents)))

    def explain(self, text: str, label: str) -> Explanation:
        """Return what each n-gram of ``text`` adds to the margin of each node on the way to
        ``label``, an id or a name.

        What a network's vector adds, if the classifiers read one, is a sum of its own. Of a network
        that ranks, it is how much the label's score falls without each word."""
        column = self.labels.find(label)
        share = self.facts.network_share
        network = None
        raw = RawExplanation(column, 0.0, ())
        if share < 1:
            raw = self._explain_linear(text, column)
        if self.neural_ranker is not None and share > 0:
            from longtail.networks.ranker import occlusions

            network = occlusions(self.neural_ranker, text, column).step()
        vocabulary = Strings.of([])
        if self.vectoriser is not None:
            vocabulary = self.vectoriser.vocabulary
        return raw.named(
            self.labels, self.label_counts, vocabulary, self.calibration, network, share
        )

    def _explain_linear(self, text: str, column: int) -> RawExplanation:
        if self.vectoriser is None and self.facts.network_share == 0:
            features = "ready-made features"
            if self.config.features == "dnn":
                features = "a network's vectors"
            raise UsageError(
                f"this model was trained on {features}, which have no words to explain by"
            )
        return explain_label(self.rankers, self.features([text]), column, self.config.search)


def _texts(documents: Dataset | Strings) -> Strings:
    if isinstance(documents, Strings):
        return documents
    return documents.document_texts()
