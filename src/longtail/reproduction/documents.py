"""Documents of an experiment: read in the published layout and compared with published sizes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.dataset import Dataset
from longtail.data.filter_files import AUTO, find_filter
from longtail.data.formats import sniff
from longtail.data.output import open_output
from longtail.data.reading import read
from longtail.data.xmc_bow import read_filter
from longtail.errors import UsageError
from longtail.reproduction.published import PublishedDataset

__all__ = ["Documents", "read_documents"]

log = logging.getLogger("longtail")

_FILTER = "filter_labels_test.txt"
_SHARE_SEED = 0  # the same share on every machine
_WIDTH_TOLERANCE = 0.01  # relative deviation of the number of feature columns


@dataclass(frozen=True)
class Documents:
    """Training and test documents; the labels of the test part begin with those of training."""

    train: Dataset
    test: Dataset
    filter: Path | None  # pairs of a test document and a label that are not counted
    differences: tuple[str, ...]  # from the published sizes, as sentences
    test_rows: NDArray[np.int64] | None = None  # rows of a share's test documents

    def share(self, share: float) -> Documents:
        """Return a share of the documents of both parts, in their order, with all labels."""
        if share == 1:
            return self
        test_rows = _rows(len(self.test), share)
        train = self.train.take(_rows(len(self.train), share))
        return replace(self, train=train, test=self.test.take(test_rows), test_rows=test_rows)

    def filter_file(self, folder: Path) -> Path | None:
        """Return the filter file for these test documents; a share's is written to ``folder``."""
        if self.filter is None or self.test_rows is None:
            return self.filter
        any_number = np.iinfo(np.int64).max  # sizes are checked when the file is used
        pairs = read_filter(self.filter, any_number, any_number)
        kept = pairs[np.isin(pairs[:, 0], self.test_rows)]
        numbers = np.searchsorted(self.test_rows, kept[:, 0])
        path = folder / _FILTER
        with open_output(path) as out:
            for number, label in zip(numbers.tolist(), kept[:, 1].tolist(), strict=True):
                out.write(f"{number} {label}\n".encode())
        return path


def read_documents(
    folder: Path, published: PublishedDataset, reads_features: bool = False
) -> Documents:
    """Read both parts of a dataset in its published layout, and compare their sizes.

    Args:
        folder: the dataset as its authors publish it.
        published: its published sizes and layout.
        reads_features: whether the recipe reads tf-idf, which should be the published features.
    """
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "no such folder"
        expected = f"expected the folder of {published.title} as its authors publish it"
        raise UsageError(f"{folder}: {problem}; {expected}")
    options = _reading(folder, published)
    train = read(folder, split="train", skip_bad=None, **options)
    test = read(folder, split="test", labels=train.labels, unknown="add", skip_bad=None, **options)
    differences = [*_differences(train, test, published)]
    if reads_features and published.layout != "lf":
        differences += _feature_differences(train, published)
    documents = Documents(train, test, find_filter(AUTO, test), tuple(differences))
    for difference in documents.differences:
        log.warning("%s: %s; another dataset or split?", folder, difference)
    return documents


def _reading(folder: Path, published: PublishedDataset) -> dict[str, Any]:
    """Return the options for reading this dataset: the fields of label-feature sets."""
    if not published.fields or sniff(folder).name != "lf":
        return {}
    return {"fields": published.fields}


def _rows(count: int, share: float) -> NDArray[np.int64]:
    """Return the rows of a share, at least one."""
    order = np.random.default_rng(_SHARE_SEED).permutation(count)
    return np.sort(order[: max(1, math.ceil(share * count))])


def _differences(train: Dataset, test: Dataset, published: PublishedDataset) -> Iterator[str]:
    """Yield sentences on sizes that differ; the labels may be those of one part or of both."""
    sizes = {
        "documents to train on": (len(train), published.train),
        "test documents": (len(test), published.test),
    }
    if train.n_labels != published.labels:
        sizes["labels"] = (test.n_labels, published.labels)
    for quantity, (number, expected) in sizes.items():
        if number != expected:
            yield f"found {number:,} {quantity}, and {published.title} has {expected:,}"


def _feature_differences(train: Dataset, published: PublishedDataset) -> Iterator[str]:
    """Yield a sentence if the features differ from the published ones."""
    if train.features is None:
        yield (
            f"found no tf-idf features beside the texts of {published.title}, "
            "so Longtail's are used"
        )
        return
    width = train.features.shape[1]
    # the last columns of an svmlight file may be empty in the training part
    if abs(width - published.features) > _WIDTH_TOLERANCE * published.features:
        yield (
            f"found {width:,} columns of features, and {published.title} has {published.features:,}"
        )
