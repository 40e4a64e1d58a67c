"""The result of an evaluation: values with everything needed to read them, as a struct, JSON or
table.
"""

from __future__ import annotations

import msgspec

from longtail.errors import printable
from longtail.metrics.layout import in_columns

__all__ = ["NAMES", "Evaluation"]

_HELD_OUT = (
    "documents held out of the training data, easier than new ones: "
    "all their labels have others there"
)
# in front of @k, in the order of a table
NAMES = ("P", "nDCG", "R", "PSP", "PSnDCG", "coverage", "macro-F1")


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics as fractions by name, ``evaluation["P@1"]``; printed as a table in percent.

    Documents without labels are in no mean. ``hits`` are right labels among the k best, one number
    per k; ``intervals`` are (low, high) by name where there were resamples; ``a`` and ``b`` are
    those of the propensities, if known, and ``constants_from`` what decided them. ``filter`` is the
    name of the filter file, of ``filter_pairs`` pairs, if any. ``trained_on`` counts the documents
    that the model was trained on. ``held_out``: the documents were held out of the training data,
    such that each of their labels has other documents there."""

    n_documents: int
    n_without_labels: int
    n_test_labels: int
    ks: tuple[int, ...]
    a: float | None
    b: float | None
    metrics: dict[str, float]
    hits: tuple[int, ...]
    intervals: dict[str, tuple[float, float]] = {}
    n_resamples: int = 0
    seed: int = 0
    confidence: float = 0.95
    constants_from: str = ""
    filter: str = ""
    filter_pairs: int = 0
    trained_on: int = 0
    held_out: bool = False

    def __getitem__(self, name: str) -> float:
        return self.metrics[name]

    def __str__(self) -> str:
        """Lay out the papers' table: metrics in rows, ks in columns, percent with two decimals."""
        names = [name for name in NAMES if f"{name}@{self.ks[0]}" in self.metrics]
        cells = [["", *(f"@{k}" for k in self.ks)]]
        cells += [[name, *(self._cell(f"{name}@{k}") for k in self.ks)] for name in names]
        return f"{in_columns(cells, n_left=1)}\n{self.footnote}"

    def _cell(self, name: str) -> str:
        value = f"{100 * self.metrics[name]:.2f}"
        if name not in self.intervals:
            return value
        low, high = self.intervals[name]
        return f"{value} [{100 * low:.2f}, {100 * high:.2f}]"

    @property
    def footnote(self) -> str:
        """What the metrics are of: documents and labels, and the settings behind propensities and
        intervals.
        """
        parts = [f"percent over {self.n_documents} documents with {self.n_test_labels} labels"]
        if self.n_without_labels:
            parts.append(f"{self.n_without_labels} documents without labels left out")
        if self.a is not None:
            constants = f"propensity A={self.a:g} B={self.b:g}"
            if self.constants_from:
                constants += f" ({printable(self.constants_from)})"
            parts.append(constants)
        if self.filter:
            parts.append(f"filtered by {printable(self.filter)}, {self.filter_pairs:,} pairs")
        if self.intervals:
            parts.append(
                f"[{100 * self.confidence:g} % intervals of {self.n_resamples} resamples, "
                f"seed {self.seed}]"
            )
        if self.measured_on:
            parts.append(self.measured_on)
        if self.trained_on:
            parts.append(self.trained_on_in_words)
        return "; ".join(parts)

    @property
    def measured_on(self) -> str:
        """What has to be known of the documents to read the numbers; empty for documents of no
        relation to training.
        """
        if self.held_out:
            return _HELD_OUT
        return ""

    @property
    def trained_on_in_words(self) -> str:
        """How many of the documents the model was trained on, and what follows; empty for none."""
        if not self.trained_on:
            return ""
        share = self.trained_on / max(1, self.n_documents)
        return (
            f"{self.trained_on:,} of the {self.n_documents:,} documents ({share:.1%}) are training "
            "documents of the model, so the numbers are higher than for new documents"
        )
