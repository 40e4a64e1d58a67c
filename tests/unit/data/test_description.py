"""Counts against numbers worked out by hand, and every finding of check."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from longtail.data.dataset import Dataset
from longtail.data.description import Finding
from longtail.data.labels import Labels
from longtail.data.strings import Strings


@pytest.fixture
def small():
    texts = ["one two three", " four\n", "", "one two three"]
    return Dataset.of(texts, [["a", "b"], ["a"], [], ["a", "c"]], ["a", "b", "c", "d"])


def test_counts_by_hand(small):
    description = small.describe()
    assert (
        description.documents,
        description.labels,
        description.labels_used,
        description.pairs,
    ) == (4, 4, 3, 5)
    assert description.labels_per_document == 5 / 4
    assert description.documents_per_label == 5 / 3
    assert description.median_documents_per_label == 1
    assert description.most_documents_per_label == 3
    assert description.share_of_labels_with_1 == 2 / 3
    assert description.share_of_labels_with_at_most_5 == 1
    assert description.share_of_pairs_in_top_1_percent == 3 / 5
    assert description.words_per_document == (3 + 1 + 0 + 3) / 4
    assert description.memory_mb == small.nbytes / 1e6
    assert description.frequency_curve == [(1, 3), (2, 1), (3, 1)]


def test_a_long_tail():
    """300 labels: the first has 12 documents, the next two 7 and 6, the next 5, all others 1."""
    counts = [12, 7, 6, 5] + [1] * 296
    labels = [
        [f"l{column}" for column, count in enumerate(counts) if row < count] for row in range(12)
    ]
    description = Dataset.of([f"text {row}" for row in range(12)], labels).describe()
    pairs = 12 + 7 + 6 + 5 + 296
    assert description.pairs == pairs
    assert description.share_of_pairs_in_top_1_percent == 25 / pairs
    assert description.share_of_labels_with_1 == 296 / 300
    assert description.share_of_labels_with_at_most_5 == 297 / 300
    assert description.documents_per_label == pairs / 300
    ranks = [rank for rank, _ in description.frequency_curve]
    assert ranks[0] == 1
    assert ranks[-1] == 300
    assert ranks == sorted(set(ranks))
    assert 30 <= len(ranks) <= 50
    assert all(documents == counts[rank - 1] for rank, documents in description.frequency_curve)
    assert ranks[:5] == [1, 2, 3, 4, 5]


def test_relevance_does_not_change_the_counts():
    matrix = sparse.csr_array(np.array([[0.5, 0], [3, 9]], np.float32))
    description = Dataset(matrix, Labels.of("ab"), features=matrix).describe()
    assert (description.pairs, description.most_documents_per_label) == (3, 2)
    assert description.words_per_document is None


@pytest.mark.parametrize("documents", [0, 2])
def test_nothing_to_count_is_no_division_by_zero(documents):
    dataset = Dataset.of(["a b", "c"], [[], []]).take(np.arange(documents))
    description = dataset.describe()
    assert (description.documents, description.labels_used, description.pairs) == (documents, 0, 0)
    assert description.labels_per_document == description.documents_per_label == 0
    assert description.share_of_labels_with_1 == description.share_of_pairs_in_top_1_percent == 0
    assert description.median_documents_per_label == description.most_documents_per_label == 0
    assert description.words_per_document == (1.5 if documents else 0)
    assert description.frequency_curve == []


def test_findings_by_hand(small):
    assert small.check() == [
        Finding("warning", "documents without a label", 1, ["2"]),
        Finding("warning", "labels without a document", 1, ["d"]),
        Finding("warning", "documents with empty text", 1, ["2"]),
        Finding("warning", "texts that stand more than once", 1, ["one two three"]),
    ]


def test_the_gravest_first():
    dataset = Dataset(
        sparse.csr_array((2, 1), dtype=np.float32),
        Labels.of("a"),
        texts=Strings.of(["x", "y"]),
        ids=Strings.of(["i", "i"]),
        merged_duplicates=3,
        dropped_unknown=2,
    )
    findings = dataset.check()
    assert [(finding.level, finding.what, finding.count) for finding in findings] == [
        ("error", "no document has a label", 1),
        ("warning", "documents without a label", 2),
        ("warning", "labels without a document", 1),
        ("warning", "document ids that stand more than once", 1),
        ("note", "labels that stood twice in one record and were kept once", 3),
        ("note", "unknown labels that were dropped", 2),
    ]
    assert findings[1].examples == ["i", "i"]
    assert findings[3].examples == ["i"]


def test_nothing_to_say():
    assert Dataset.of(["x", "y"], [["a"], ["b"]]).check() == []


def test_a_label_of_every_document():
    assert Dataset.of(["x", "y"], [["a", "b"], ["a"]]).check() == [
        Finding("note", "labels that every document has", 1, ["a"])
    ]


def test_five_examples_the_most_frequent_first_and_long_texts_cut():
    long = "ww " + "w" * 57
    texts = (
        [f"text t{kind}" for kind in range(6) for _ in range(2)]
        + ["very often"] * 3
        + [long + "x"] * 4
        + [long] * 5
    )
    dataset = Dataset.of(texts, [["a"] if row else ["b"] for row in range(len(texts))])
    (finding,) = dataset.check()
    assert finding.count == 9
    assert finding.examples == [long, long[:59] + "…", "very often", "text t0", "text t1"]


def test_features_without_texts():
    matrix = sparse.csr_array(np.eye(2, dtype=np.float32))
    assert Dataset(matrix, Labels.of("ab"), features=matrix).check() == []


def test_composed_and_decomposed_characters():
    """Labels and words that look the same are two; nothing is changed in silence."""
    composed = "Caf\u00e9"
    decomposed = "Cafe\u0301"
    texts = [f"a cup in the {composed}", f"a cup in the {decomposed}", "tea and milk"]
    dataset = Dataset.of(texts, [[composed], [decomposed], ["tea"]])
    assert dataset.n_labels == 3
    labels, documents = dataset.check()
    assert (labels.level, labels.count, labels.examples) == ("warning", 1, [decomposed])
    assert labels.what.startswith("labels that look like another one")
    assert (documents.level, documents.count, documents.examples) == ("warning", 1, ["1"])
    assert documents.what.startswith("documents not in the Unicode form NFC")
    assert Dataset.of(texts[::2], [[composed], [decomposed]]).check()[0].count == 1
    assert Dataset.of(texts[::2], [[composed], ["tea"]]).check() == []
