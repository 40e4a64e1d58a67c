"""The bundled sample: descriptions of Debian packages with their tags, real data for the demo and
the tests.
"""

from __future__ import annotations

from pathlib import Path

from longtail.data.dataset import Dataset
from longtail.data.reading import read

__all__ = ["FOLDER", "sample"]

FOLDER = Path(__file__).parent


def sample() -> tuple[Dataset, Dataset]:
    """Return the bundled sample as (train, test) over the same labels: Debian packages with their
    tags.
    """
    train = read(FOLDER, split="train")
    return train, read(FOLDER, split="test", labels=train.labels)
