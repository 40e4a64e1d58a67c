"""AnnexML: training on planted topics, search and explanation against plain Python, storage, and
odd documents.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import sparse

from longtail.config import Neighbours as Settings
from longtail.config import Search
from longtail.data.csr import csr_of
from longtail.errors import MissingExtra, ModelFolderError, UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.rankers.neighbours import Neighbours, learner_seeds
from longtail.rankers.partitions import document_graph, fit_learner, unit_block

TOPICS = 12
WORDS = 20
NOISE = 120
SMALL = Settings(learners=3, part_size=100, dimensions=12, epochs=5, voters=7, index="exact")


def planted(n=320, dense=0, seed=0):
    """Documents of 3 of the 20 words of each of their topics under 12 words of noise; labels are
    topics, some two.
    """
    random = np.random.default_rng(seed)
    y = np.zeros((n, TOPICS), bool)
    y[np.arange(n), random.integers(0, TOPICS, n)] = True
    y[random.random(n) < 0.3, 0] = True
    x = np.zeros((n, TOPICS * WORDS + NOISE))
    for row in range(n):
        for topic in np.flatnonzero(y[row]):
            x[row, topic * WORDS + random.choice(WORDS, 3, replace=False)] = 1
        x[row, TOPICS * WORDS + random.choice(NOISE, 12, replace=False)] = 1
    block = random.normal(size=(n, dense)) * 0.1 if dense else None
    return Features.of(sparse.csr_array(x, dtype=np.float32), block), sparse.csr_array(
        y.astype(np.float32)
    )


def fit(features, labels, settings, seed=0):
    graph = document_graph(labels, settings.graph_neighbours, seed)
    seeds = learner_seeds(settings.learners, seed)
    learners = list(
        pool.run(lambda own: fit_learner(features, labels, graph, settings, own), seeds)
    )
    return Neighbours.of(learners, features, labels, settings)


@pytest.fixture(scope="module")
def data():
    return planted(dense=2)


@pytest.fixture(scope="module")
def model(data):
    return fit(*data, SMALL, seed=5)


@pytest.fixture(scope="module")
def queries():
    """New documents; number 3 is empty but for its dense block, number 4 altogether."""
    features, labels = planted(n=40, dense=2, seed=1)
    rows = features.sparse.tolil()
    rows[3:5] = 0
    features.dense[4] = 0
    return Features.of(rows.tocsr(), features.dense), labels


def whole(features):
    """Both blocks as one dense matrix, rows of length one."""
    x = np.hstack([features.dense, features.sparse.toarray()]).astype(np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)


def plain_scores(model, features):
    """Votes by the book: best part, cosines with all of its documents, softmax over the nearest,
    mean of learners.
    """
    labels = csr_of(
        np.ones(len(model.label_columns)), model.label_columns, model.label_ptr, model.n_labels
    ).toarray()
    scores = np.zeros((len(features), model.n_labels))
    for learner in model.learners:
        for row, x in enumerate(whole(features)):
            margins = np.zeros(learner.n_parts)
            for part in range(learner.n_parts):
                own = slice(*learner.part_ptr[part : part + 2])
                margins[part] = x[learner.part_columns[own]] @ learner.part_values[own]
            part = int(np.argmax(margins))
            own = slice(*learner.column_ptr[part : part + 2])
            z = x[learner.columns[own]] @ learner.weights[own].astype(np.float64)
            if not z.any():
                continue
            own = slice(*learner.document_ptr[part : part + 2])
            cosines = learner.embeddings[own].astype(np.float64) @ z / np.linalg.norm(z)
            best = np.argsort(-cosines, kind="stable")[: model.voters]
            votes = np.exp(model.gamma / 2 * cosines[best])
            scores[row] += (
                votes / votes.sum() @ labels[learner.documents[own][best]] / len(model.learners)
            )
    return scores


def precision(ranked, labels):
    first = ranked.indices[ranked.indptr[:-1]]
    return np.mean(labels.toarray()[np.arange(len(first)), first] > 0)


def test_search_is_that_of_plain_python(model, queries):
    features, _ = queries
    found = model.search(features, Search(), None)
    np.testing.assert_allclose(found.toarray(), plain_scores(model, features), atol=1e-5)
    assert found.dtype == np.float32
    assert found.indptr[5] == found.indptr[4]  # nothing known, no votes
    assert found.data.min() > 0
    assert found.data.max() <= 1


def test_labels_come_best_first_and_ties_by_number(model, queries):
    features, _ = queries
    everything = model.search(features, Search(), None)
    best = model.search(features, Search(), 3)
    for row in range(len(features)):
        start, end = everything.indptr[row : row + 2]
        pairs = list(zip(-everything.data[start:end], everything.indices[start:end], strict=True))
        assert pairs == sorted(pairs)
        first = best.indptr[row]
        assert (
            best.indices[first : best.indptr[row + 1]].tolist()
            == everything.indices[start:end][:3].tolist()
        )


def test_excluded_labels_make_room_for_the_next(model, queries):
    features, _ = queries
    best = model.search(features, Search(), 2)
    tops = best.indices[best.indptr[:-1]]
    exclude = sparse.csr_array((np.ones(40), (np.arange(40), tops)), (40, TOPICS))
    found = model.search(features, Search(), 1, exclude)
    free = model.search(features, Search(), None)
    expected = [free.indices[free.indptr[row] :][1] for row in (0, 1, 2)]
    assert found.indices[:3].tolist() == expected
    assert not found.multiply(exclude).nnz


def test_learned_neighbours_find_planted_topics_better_than_words_do():
    features, labels = planted(n=900, seed=2)
    test, truth = planted(n=300, seed=3)
    settings = Settings(learners=4, part_size=300, dimensions=20, epochs=10, index="exact")
    learned = precision(fit(features, labels, settings).search(test, Search(), 1), truth)
    near = np.argsort(-(whole(test) @ whole(features).T), axis=1)[:, :10]
    votes = sparse.csr_array((labels.toarray()[near]).sum(axis=1))
    plain = np.mean(truth.toarray()[np.arange(300), votes.toarray().argmax(axis=1)] > 0)
    assert learned > 0.85
    assert learned > plain + 0.15


def test_neighbours_share_a_part():
    features, labels = planted(n=900, seed=2)
    graph = document_graph(labels, 10, 0)
    arrays = fit_learner(
        features, labels, graph, Settings(part_size=225, epochs=3, dimensions=4), 1
    )
    sizes = np.diff(arrays["document_ptr"])
    part = np.empty(900, int)
    part[arrays["documents"]] = np.repeat(np.arange(len(sizes)), sizes)
    together = (part[:, None] == part[graph])[graph >= 0].mean()
    assert together > np.sum((sizes / 900) ** 2) + 0.2  # which chance would give
    assert (np.diff(sizes) <= 0).all()
    assert 2 <= len(sizes) <= 4


def test_threads_do_not_change_a_byte(data, queries, model):
    features, _ = queries
    for count in (1, 3):
        with pool.threads(count):
            other = fit(*data, SMALL, seed=5)
            ranked = other.search(features, Search(), 5)
        for name, array in model.to_arrays().items():
            assert array.tobytes() == other.to_arrays()[name].tobytes(), name
        assert ranked.data.tobytes() == model.search(features, Search(), 5).data.tobytes()


def test_learners_one_by_one_are_those_of_fit(data, model):
    features, labels = data
    graph = document_graph(labels, SMALL.graph_neighbours, 5)
    graph.flags.writeable = False  # as a stage that was kept
    learners = [fit_learner(features, labels, graph, SMALL, seed) for seed in learner_seeds(3, 5)]
    other = Neighbours.of(learners, features, labels, SMALL).to_arrays()
    assert all((array == other[name]).all() for name, array in model.to_arrays().items())
    assert len(set(learner_seeds(20, 5))) == 20


def test_a_block_of_its_own_for_each_document_finds_the_same(model, queries, monkeypatch):
    features, _ = queries
    expected = model.search(features, Search(), 4)
    monkeypatch.setattr("longtail.rankers.neighbours._BLOCK", 7)
    found = model.search(features, Search(), 4)
    assert found.data.tobytes() == expected.data.tobytes()
    assert found.indices.tolist() == expected.indices.tolist()


def test_explanation_adds_up_to_the_score(model, queries):
    features, _ = queries
    scores = model.search(features, Search(), None).toarray()
    x = whole(features)
    for row in (0, 7):
        one = features.take(slice(row, row + 1))
        for label in range(TOPICS):
            found = model.explain_votes(one, label)
            assert found.score == pytest.approx(scores[row, label], abs=1e-6)
            assert found.score == pytest.approx(sum(voter.vote for voter in found.voters), abs=1e-6)
            for voter in found.voters:
                labels = model.label_columns[
                    slice(*model.label_ptr[voter.document : voter.document + 2])
                ]
                assert label in labels
                assert found.parts[voter.learner] == voter.part
                assert voter.contributions.sum() == pytest.approx(voter.similarity, abs=1e-5)
                assert (x[row, voter.columns] != 0).all()


def test_explanation_of_a_column_is_what_leaving_it_out_takes(model, queries):
    features, _ = queries
    one = features.take(slice(0, 1))
    voter = max(
        (v for label in range(TOPICS) for v in model.explain_votes(one, label).voters),
        key=lambda v: v.similarity,
    )
    learner = model.learners[voter.learner]
    own = slice(*learner.document_ptr[voter.part : voter.part + 2])
    e = learner.embeddings[own][learner.documents[own] == voter.document][0].astype(np.float64)
    z = whole(one)[0, voter.columns, None] * learner.column_weights(voter.columns, voter.part)
    np.testing.assert_allclose(
        voter.contributions, z @ e / np.linalg.norm(z.sum(axis=0)), atol=1e-6
    )


def test_arrays_come_back_from_read_only_memory(model, queries, tmp_path):
    features, _ = queries
    arrays = {}
    for number, (name, array) in enumerate(model.to_arrays().items()):
        np.save(tmp_path / f"{number}.npy", array)
        arrays[name] = np.load(tmp_path / f"{number}.npy", mmap_mode="r")
    other = Neighbours.from_arrays(arrays, "exact")
    assert (
        other.search(features, Search(), 5).data.tobytes()
        == model.search(features, Search(), 5).data.tobytes()
    )
    assert other.explain_votes(features, 0).score == model.explain_votes(features, 0).score
    assert model.to_arrays()["0.embeddings"].dtype == np.float16


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sizes", lambda a: a[:3]),
        ("gamma", lambda a: a[:0]),
        ("label_ptr", lambda a: a[::-1]),
        ("label_columns", lambda a: a + 1),
        ("1.part_columns", lambda a: a[:-1]),
        ("1.columns", lambda a: a[::-1]),
        ("2.columns", lambda a: a + 1),
        ("0.documents", lambda a: a - 1),
        ("0.document_ptr", lambda a: a[:-1]),
        ("0.column_ptr", lambda a: a[::-1]),
        ("2.embeddings", lambda a: a[:, 1:]),
        ("2.weights", lambda a: a[:, 0]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(model, name, change):
    arrays = model.to_arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ModelFolderError, match="neighbours: "):
        Neighbours.from_arrays(arrays)
    del arrays[name]
    with pytest.raises(ModelFolderError, match="neighbours: "):
        Neighbours.from_arrays(arrays)


def test_features_and_excluded_labels_of_other_shapes_are_refused(model, queries):
    features, _ = queries
    with pytest.raises(UsageError, match="columns; expected 362"):
        model.search(Features.of(features.sparse), Search(), 3)
    with pytest.raises(UsageError, match="exclude"):
        model.search(features, Search(), 3, sparse.csr_array((40, 3)))


def test_documents_without_labels_or_words_never_vote():
    features, labels = planted(n=60)
    rows = features.sparse.tolil()
    pairs = labels.tolil()
    rows[10:20] = 0
    pairs[30:40] = 0
    model = fit(Features.of(rows.tocsr()), sparse.csr_array(pairs.tocsr()), SMALL)
    for learner in model.learners:
        assert sorted(learner.documents.tolist()) == [
            n for n in range(60) if not (10 <= n < 20 or 30 <= n < 40)
        ]
    assert np.ptp(model.search(Features.of(rows.tocsr()), Search(), 3).indptr[10:21]) == 0


@pytest.mark.parametrize("n", [1, 4])
def test_few_documents_of_one_label_are_enough(n):
    x = np.eye(4, 6, dtype=np.float32)[:n] + 0.1
    model = fit(Features.of(x), sparse.csr_array(np.ones((n, 1), np.float32)), SMALL)
    found = model.search(Features.of(x), Search(), 5)  # fewer documents than voters
    np.testing.assert_allclose(found.toarray(), np.ones((n, 1)), rtol=1e-6)


def test_no_labels_and_no_documents_are_no_error():
    model = fit(Features.of(np.ones((3, 2))), sparse.csr_array((3, 2), dtype=np.float32), SMALL)
    assert model.search(Features.of(np.ones((2, 2))), Search(), 1).nnz == 0
    assert Neighbours.from_arrays(model.to_arrays()).search(
        Features.of(np.ones((0, 2))), Search(), 1
    ).shape == (0, 2)


def test_rows_of_any_length_say_the_same(data):
    features, _ = data
    longer = Features.of(features.sparse * np.float32(8), features.dense * 8)
    found = unit_block(longer)
    expected = unit_block(features)
    np.testing.assert_array_equal(found.toarray(), expected.toarray())
    np.testing.assert_allclose(expected.toarray(), whole(features), atol=1e-6)


def test_faiss_finds_what_the_exact_kernel_finds(model, queries):
    pytest.importorskip("faiss")
    features, _ = queries
    other = Neighbours.from_arrays(model.to_arrays(), "faiss")
    np.testing.assert_allclose(
        other.search(features, Search(), None).toarray(),
        model.search(features, Search(), None).toarray(),
        atol=1e-5,
    )


def test_faiss_that_is_missing_is_said_only_where_it_is_asked_for(model, queries, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    features, _ = queries
    exact = Neighbours.from_arrays(model.to_arrays(), "exact").search(features, Search(), 3)
    assert exact.data.tobytes() == model.search(features, Search(), 3).data.tobytes()
    with pytest.raises(MissingExtra, match=r"longtail\[faiss\]"):
        Neighbours.from_arrays(model.to_arrays(), "faiss").search(features, Search(), 3)
