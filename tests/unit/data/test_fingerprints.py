"""Which documents stand in other data as well, by their hashes."""

from __future__ import annotations

import numpy as np
from scipy import sparse

import longtail as lt
from longtail.data.fingerprints import Fingerprints, document_hashes, shared_ids, shared_with


def texts(*result):
    return lt.Dataset.of(list(result), [["a"]] * len(result))


def prints(documents, **options):
    return Fingerprints.of(document_hashes(documents), **options)


def test_documents_in_both_are_counted_by_their_texts():
    training = prints(texts("one", "two", "two", "three"))
    assert len(training.hashes) == 3
    assert shared_with(texts("two", "four", "three", "two"), [training]) == 3
    assert shared_with(texts("four"), [training]) == 0
    assert shared_with(texts("four"), []) == 0


def test_documents_of_several_models_are_counted_once():
    both = [prints(texts("one", "two")), prints(texts("two", "three"))]
    assert shared_with(texts("one", "two", "three", "four"), both) == 3


def test_empty_texts_are_nobody_s():
    training = prints(texts("", "  ", "one"))
    assert len(training.hashes) == 1
    assert shared_with(texts("", " ", "one"), [training]) == 1


def test_outer_space_makes_no_other_text():
    assert shared_with(texts(" one\n"), [prints(texts("one"))]) == 1


def test_rows_of_features_are_compared_where_there_is_no_text():
    labels = texts("a", "b").label_matrix
    rows = sparse.csr_array(np.array([[0, 1.5], [0, 0]], np.float32))
    vocabulary = lt.Labels.of(["a"])
    sparse_rows = lt.Dataset(labels, vocabulary, features=rows)
    assert shared_with(sparse_rows, [prints(sparse_rows)]) == 1
    dense = lt.Dataset(labels, vocabulary, dense=np.array([[1, 2], [0, 0]], np.float32))
    assert shared_with(dense, [prints(dense)]) == 1
    assert shared_with(sparse_rows, [prints(dense)]) == 0


def test_a_sample_of_many_documents_gives_an_estimate():
    many = texts(*map(str, range(4000)))
    sample = prints(many, kept=1000)
    assert len(sample.hashes) == 1000
    assert not sample.complete
    assert shared_with(many, [sample]) == 4000
    half = texts(*map(str, range(2000, 6000)))
    assert abs(shared_with(half, [sample]) - 2000) < 300


def test_ids_count_where_they_are_more_than_numbers(tmp_path):
    def read(*ids):
        file = tmp_path / "documents.jsonl"
        file.write_text(
            "".join(f'{{"id": "{member}", "text": "x", "labels": ["a"]}}\n' for member in ids)
        )
        return lt.read(file)

    assert shared_ids(read("b1", "2", "b3"), read("b1", "2", "b4")) == 1
    assert shared_ids(texts("one"), texts("one")) == 0
