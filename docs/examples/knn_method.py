"""A linear ranker in one file, outside the package: k nearest training documents by tf-idf.

The score of a label is its share of the votes of the k training documents with the largest cosine
s_i to the document:

    score_l = Σ_i s_i y_il / Σ_i s_i
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config, Search
from longtail.data.csr import csr_arrays, csr_of, csr_of_arrays
from longtail.data.dataset import Dataset
from longtail.errors import ConfigError, ModelFolderError
from longtail.features.matrix import Features
from longtail.methods import Method, register_method, register_ranker
from longtail.rankers.base import Node, RankerExplanation, RankerFamily, TrainingPoints
from longtail.steps.run import Run
from longtail.store import Folder, FolderWriter
from longtail.tree.given import Parents

FILE = "knn.safetensors"
BLOCK = 256  # documents that are compared at a time


class KnnSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the family: ``--set custom.neighbours=20``."""

    neighbours: int = 10


@dataclass(frozen=True)
class Knn:
    """The training documents: their rows of tf-idf and their labels."""

    rows: sparse.csr_array  # (n, columns)
    labels: sparse.csr_array  # (n, L)
    neighbours: int
    label_tree = None

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.labels.shape[1])

    def check_widths(self, n_columns: int, dense_width: int) -> bool:
        """Return whether it reads features of so many sparse and dense columns."""
        return (n_columns, dense_width) == (self.rows.shape[1], 0)

    def missing_score(self, search: Search) -> float:
        """Return 0: a label without votes."""
        return 0.0

    def votes(self, features: Features) -> NDArray[np.float32]:
        """Return (n, N) cosines to the nearest training documents, 0 to all others."""
        cosines = (features.sparse @ self.rows.T).toarray()
        if cosines.shape[1] > self.neighbours:
            smallest = np.partition(cosines, -self.neighbours, axis=1)[:, -self.neighbours, None]
            cosines[cosines < smallest] = 0
        return cosines.astype(np.float32)

    def shares(self, features: Features) -> NDArray[np.float32]:
        """Return (n, L) shares of the votes."""
        votes = self.votes(features)
        total = np.maximum(votes.sum(1, keepdims=True), 1e-9)
        shares: NDArray[np.float32] = (votes / total) @ self.labels
        return shares

    def search(
        self,
        features: Features,
        search: Search,
        k: int | None,
        exclude: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return (n, L) scores of the ``k`` best labels per document, best first."""
        columns = []
        scores = []
        counts = [0]
        for start in range(0, len(features), BLOCK):
            block = slice(start, min(start + BLOCK, len(features)))
            shares = self.shares(features.take(block))
            if exclude is not None:
                shares[exclude[block].toarray() > 0] = 0
            for row in shares:
                best = np.argsort(-row, kind="stable")[:k]
                best = best[row[best] > 0]
                columns.append(best)
                scores.append(row[best])
                counts.append(len(best))
        values = np.concatenate(scores).astype(np.float32)
        labels = np.concatenate(columns).astype(np.int32)
        return csr_of(values, labels, np.cumsum(counts), self.n_labels)

    def explain(
        self, features: Features, label: int, search: Search, number: int
    ) -> RankerExplanation:
        """Explain one label by the words that the document shares with voters for it."""
        votes = self.votes(features)[0]
        share = votes * self.labels[:, [label]].toarray()[:, 0] / max(votes.sum(), 1e-9)
        cosines = np.maximum(votes, 1e-9)
        weights = (share / cosines) @ self.rows  # share_i / s_i · x_i, summed over voters
        score = float(share.sum())
        document = features.sparse[[0]].toarray()[0]
        products = (document * weights).astype(np.float64)
        node = Node.of_products(products, features, score, location="nearest documents")
        return RankerExplanation(score, (node,))

    def write(self, folder: FolderWriter, number: int) -> None:
        """Write the ranker into a model folder."""
        arrays = {f"rows.{name}": array for name, array in csr_arrays(self.rows).items()}
        arrays |= {f"labels.{name}": array for name, array in csr_arrays(self.labels).items()}
        arrays["shape"] = np.array([self.rows.shape[1], self.n_labels, self.neighbours])
        folder.write_arrays(FILE, arrays)


class KnnFamily(RankerFamily):
    """Training and loading of nearest documents."""

    name = "knn"
    reads = frozenset({"custom"})  # the settings under ``custom``, beside those of all methods

    def check(self, config: Config, documents: Dataset, parents: Parents | None) -> None:
        """Refuse settings of the family before any work is done."""
        if self.custom_settings(config, KnnSettings).neighbours < 1:
            raise ConfigError("custom.neighbours: expected at least 1")

    def fit(self, points: TrainingPoints, run: Run) -> tuple[Knn]:
        """Keep the documents; there is nothing to train."""
        settings = self.custom_settings(run.config, KnnSettings)
        return (Knn(points.features.sparse, points.documents.label_matrix, settings.neighbours),)

    def load(self, folder: Folder, config: Config, shards: Collection[int] | None) -> Iterator[Knn]:
        """Yield the ranker of a model folder."""
        if FILE not in folder.files:
            return
        arrays = folder.arrays(FILE)
        columns, n_labels, neighbours = (int(number) for number in arrays["shape"])
        rows = csr_of_arrays(_part(arrays, "rows"), columns)
        labels = csr_of_arrays(_part(arrays, "labels"), n_labels)
        if rows.shape[0] != labels.shape[0]:
            raise ModelFolderError(f"{FILE}: found rows and labels of different documents")
        yield Knn(rows, labels, neighbours)

    def card_rows(self, rankers: Sequence[Any], config: Config) -> dict[str, str]:
        """Return a row of the model card."""
        return {"training documents": f"{rankers[0].rows.shape[0]:,}"}


def _part(arrays: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    prefix = f"{name}."
    return {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }


def register() -> None:
    """Add the family and its method; the entry point of the package names this function."""
    register_ranker(KnnFamily())
    register_method(
        Method(
            "knn",
            "votes of the nearest training documents",
            "Cover and Hart 1967, Nearest neighbor pattern classification",
            ("tf-idf", "none", "none", "nearest documents", "all documents"),
            ranker="knn",
        )
    )
