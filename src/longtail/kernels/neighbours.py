"""AnnexML's inner loops (Tagami 2017): neighbours in label space, parts and embeddings learned from
them, and search.

Documents are sparse rows with sorted columns. Each learner is one thread's work from its own seed,
so that the numbers never depend on how many threads there are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.feature_rows import Incidence
from longtail.kernels.jit import borrowing, kernel
from longtail.kernels.splitmix import draw, random_bits

__all__ = [
    "EmbeddingSettings",
    "PartSettings",
    "SparseRows",
    "label_neighbours",
    "learn_embedding",
    "learn_parts",
    "nearest_rows",
    "ranking_gradient",
]

Array = NDArray[Any]
# documents whose products with a query are added up at once: they stay in the cache for all queries
_TILE = 512
_SMALLEST = np.float32(1e-12)  # a shorter vector has no direction


class SparseRows(NamedTuple):
    """Documents as sparse rows of length one."""

    pointers: Any  # (n + 1,) int64
    columns: Any  # int32
    values: Any  # float32
    n_columns: int


class PartSettings(NamedTuple):
    """Settings of :func:`learn_parts`."""

    n_parts: int
    epochs: int
    rate: Any  # float32
    shrink: Any  # float32, weight of the L1 norm


class EmbeddingSettings(NamedTuple):
    """Settings of :func:`learn_embedding`."""

    dimensions: int
    negatives: int
    epochs: int
    rate: Any  # float32
    gamma: float


class _Nearest(NamedTuple):
    """The nearest documents of one document, best first."""

    documents: Any  # int32; −1: no more
    similarities: Any  # float64; 0: no more
    ties: Any  # int64, of equal similarities the lowest comes first


class _Ftrl(NamedTuple):
    """The state of FTRL-Proximal; each is (n_columns, n_parts) float32."""

    weights: Any
    squares: Any  # sums of squared gradients
    sums: Any  # z


@kernel
def label_neighbours(
    first: int,  # IN  the documents first..last - 1 look for neighbours
    last: int,
    incidence: Incidence,  # IN
    keep: int,
    budget: int,  # IN  most entries of the inverted index that a document reads
    seed: int,
) -> Array:
    """Return the ``keep`` documents with the highest cosine of label sets for each document, best
    first; −1: no more.

    Labels are read from the rarest on. Where the budget ends in a label's list, a run of it from a
    random position is read. Of equal cosines a random one comes first: by number, the same few
    documents would be everybody's neighbours."""
    label_pointers, label_documents, document_pointers, document_labels = incidence
    out = np.full((last - first, keep), -1, np.int32)
    marked = np.full(len(label_pointers) - 1, -1, np.int64)
    seen = np.full(len(document_pointers) - 1, -1, np.int64)
    similarities = np.empty(keep, np.float64)
    ties = np.empty(keep, np.int64)
    for row in range(first, last):
        labels = _labels_of(row, document_pointers, document_labels).astype(np.int64)
        _rarest_first(labels, label_pointers)
        marked[labels] = row
        seen[row] = row
        similarities[:] = 0
        ties[:] = 0
        nearest = _Nearest(out[row - first], similarities, ties)
        left = budget
        for label in labels:
            begin = label_pointers[label]
            size = label_pointers[label + 1] - begin
            position = 0
            if size > left:
                position = random_bits(seed, row, label) % size
            for _ in range(min(size, left)):
                other: Any = np.int64(label_documents[begin + position])
                position += 1
                if position == size:
                    position = 0
                if seen[other] == row:
                    continue
                seen[other] = row
                others = _labels_of(other, document_pointers, document_labels)
                similarity = _similarity(others, marked, row)
                if similarity >= similarities[-1]:
                    _insert(nearest, other, similarity, random_bits(seed, row, other))
            left -= min(size, left)
    return out


@kernel
def _labels_of(document: int, pointers: Array, labels: Array) -> Array:
    return labels[pointers[document] : pointers[document + 1]]


@kernel
def _rarest_first(labels: Array, label_ptr: Array) -> None:
    for end in range(1, len(labels)):
        label = labels[end]
        at = end
        size = label_ptr[label + 1] - label_ptr[label]
        while at > 0 and label_ptr[labels[at - 1] + 1] - label_ptr[labels[at - 1]] > size:
            labels[at] = labels[at - 1]
            at -= 1
        labels[at] = label


@kernel
def _similarity(labels: Array, marked: Array, row: int) -> float:
    """Return the squared cosine times the number of the row's labels: a quotient of integers, so
    equals are equal.
    """
    shared = 0
    for label in labels:
        shared += marked[label] == row
    return shared * shared / len(labels)


@kernel
def _insert(nearest: _Nearest, document: int, similarity: float, tie: int) -> None:
    """Insert a document among the nearest, the highest similarity first, of equal ones the lowest
    tie.
    """
    documents, similarities, ties = nearest
    at = len(documents)
    while at > 0:
        before = similarities[at - 1]  # 0 where there is no document yet, which is less than any
        if similarity < before or (similarity == before and tie >= ties[at - 1]):
            break
        at -= 1
    if at == len(documents):
        return
    for other in range(len(documents) - 1, at, -1):
        documents[other] = documents[other - 1]
        similarities[other] = similarities[other - 1]
        ties[other] = ties[other - 1]
    documents[at] = document
    similarities[at] = similarity
    ties[at] = tie


@kernel
def learn_parts(
    rows: SparseRows,  # IN
    neighbours: Array,  # IN  (n, keep) of ``label_neighbours``
    settings: PartSettings,  # IN
    seed: int,
) -> Array:
    """Return (n_columns, n_parts) float32 weights of the part classifiers, learned so that
    neighbours share a part.

    Each document takes its best part; that part's logistic classifier is then trained with the
    document's neighbours as positives and as many random documents as negatives, which keep parts
    from swallowing everything (AnnexML, section 3.1). The optimiser is FTRL-Proximal (McMahan et
    al. 2013): most weights are 0."""
    n = len(rows.pointers) - 1
    ftrl = _initial_parts(rows, settings, seed)
    scores = np.empty(settings.n_parts, np.float32)
    everyone = np.arange(n)
    for epoch in range(settings.epochs):
        order = draw(everyone, n, random_bits(seed, 1, epoch))
        for step in range(n):
            row = order[step]
            _part_scores(rows, row, ftrl.weights, scores)
            best = int(np.argmax(scores))
            for number in range(neighbours.shape[1]):
                if neighbours[row, number] < 0:
                    break
                other = random_bits(seed, 2 + epoch, step * neighbours.shape[1] + number) % n
                _update_part(rows, neighbours[row, number], True, best, settings, ftrl)
                _update_part(rows, other, False, best, settings, ftrl)
    weights: Array = ftrl.weights
    return weights


@kernel
def _initial_parts(rows: SparseRows, settings: PartSettings, seed: int) -> _Ftrl:
    """Return the state before the first step: the weights of a part are a random document."""
    pointers, columns, values, n_columns = rows
    shape = (n_columns, settings.n_parts)
    weights = np.zeros(shape, np.float32)
    sums = np.zeros(shape, np.float32)
    everyone = np.arange(len(pointers) - 1)
    for part, row in enumerate(draw(everyone, settings.n_parts, random_bits(seed, 0, 0))):
        for at in range(pointers[row], pointers[row + 1]):
            weights[columns[at], part] = values[at]
            penalty = settings.shrink * np.sign(values[at])
            sums[columns[at], part] = values[at] / settings.rate + penalty
    return _Ftrl(weights, np.ones(shape, np.float32), sums)


@borrowing
def _part_scores(rows: SparseRows, row: int, weights: Array, scores: Array) -> None:
    """Write the score of a row in each part."""
    columns = rows.columns
    values = rows.values
    scores[:] = 0
    for at in range(rows.pointers[row], rows.pointers[row + 1]):
        for part in range(scores.shape[0]):
            scores[part] += values[at] * weights[columns[at], part]


@borrowing
def _update_part(
    rows: SparseRows,  # IN
    row: int,  # IN
    positive: bool,  # IN
    part: int,  # IN
    settings: PartSettings,  # IN
    ftrl: _Ftrl,  # IN/OUT
) -> None:
    """One step of FTRL-Proximal on ln(1 + exp(∓w·x))."""
    columns = rows.columns
    values = rows.values
    begin = rows.pointers[row]
    end = rows.pointers[row + 1]
    rate = settings.rate
    weights, squares, sums = ftrl
    margin = np.float32(0)
    for at in range(begin, end):
        margin += values[at] * weights[columns[at], part]
    wanted = np.float32(1) if positive else np.float32(0)
    error = wanted - np.float32(1) / (np.float32(1) + np.exp(-margin))
    for at in range(begin, end):
        column = columns[at]
        gradient = error * values[at]
        before = np.sqrt(squares[column, part])
        squares[column, part] += gradient * gradient
        after = np.sqrt(squares[column, part])
        sums[column, part] += gradient + (after - before) / rate * weights[column, part]
        beyond = max(abs(sums[column, part]) - settings.shrink, np.float32(0))
        weights[column, part] = rate * beyond * np.sign(sums[column, part]) / after


@kernel
def learn_embedding(
    rows: SparseRows,  # IN  the documents of one part
    neighbours: Array,  # IN  (n, keep) of ``label_neighbours`` in the part
    settings: EmbeddingSettings,  # IN
    seed: int,
) -> Array:
    """Return (n_columns, dimensions) float32 V, learned so that neighbours have a high cosine of
    V'x (AnnexML).

    AdaGrad on Σ −ln softmax over a neighbour and random others, one step per document with all its
    neighbours."""
    pointers, columns, values, n_columns = rows
    dimensions = settings.dimensions
    n = len(pointers) - 1
    bound = np.sqrt(max(n, 1) / max(len(columns), 1))
    matrix = _random_start(n_columns, dimensions, bound, random_bits(seed, 0, 0))
    squares = np.ones(n_columns, np.float32)
    # the document, its neighbours, the others
    members = np.empty(1 + neighbours.shape[1] + settings.negatives, np.int64)
    vectors = np.empty((len(members), dimensions), np.float32)
    gradients = np.empty((len(members), dimensions), np.float32)
    everyone = np.arange(n)
    for epoch in range(settings.epochs):
        order = draw(everyone, n, random_bits(seed, 1, epoch))
        for step in range(n):
            members[0] = order[step]
            near = _take_neighbours(neighbours[order[step]], members)
            if near == 0:
                continue
            count = 1 + near
            for number in range(settings.negatives):
                other = random_bits(seed, 2 + epoch, step * settings.negatives + number) % n
                if not _among(members[: near + 1], other):
                    members[count] = other
                    count += 1
            for at in range(count):
                _embed(pointers, columns, values, members[at], matrix, vectors[at])
            ranking_gradient(vectors[:count], near, settings.gamma, gradients)
            for at in range(count):
                _descend(rows, members[at], gradients[at], settings.rate, matrix, squares)
    return matrix


@kernel
def _take_neighbours(neighbours: Array, members: Array) -> int:
    """Copy the neighbours of a document behind it; return how many it has."""
    near = 0
    while near < len(neighbours) and neighbours[near] >= 0:
        members[1 + near] = neighbours[near]
        near += 1
    return near


@kernel
def _random_start(n_columns: int, dimensions: int, width: float, state: int) -> Array:
    """Return numbers between −width and width."""
    matrix = np.empty((n_columns, dimensions), np.float32)
    for column in range(n_columns):
        for at in range(dimensions):
            matrix[column, at] = width * (random_bits(state, column, at) / 2.0**62 - 1)
    return matrix


@kernel
def _among(rows: Array, row: int) -> bool:
    is_member = False
    for other in rows:
        is_member |= other == row
    return is_member


@kernel
def _embed(
    pointers: Array, columns: Array, values: Array, row: int, matrix: Array, out: Array
) -> None:
    """Write the embedding of a row."""
    out[:] = 0
    for at in range(pointers[row], pointers[row + 1]):
        column = columns[at]
        value = values[at]
        for d in range(len(out)):
            out[d] += value * matrix[column, d]


@borrowing
def _descend(
    rows: SparseRows,  # IN
    row: int,  # IN
    gradient: Array,  # IN  of the row's vector; that of V at each column is value × gradient
    rate: Any,  # IN  float32
    matrix: Array,  # IN/OUT V
    squares: Array,  # IN/OUT (n_columns,) sums of mean squared gradients
) -> None:
    """One step of AdaGrad with one sum of squares per column: half the memory of one per number,
    and fewer roots.
    """
    columns = rows.columns
    values = rows.values
    dimensions = gradient.shape[0]
    square = _dot(gradient, gradient) / np.float32(dimensions)
    for at in range(rows.pointers[row], rows.pointers[row + 1]):
        column = columns[at]
        value = values[at]
        squares[column] += square * value * value
        scale = rate * value / np.sqrt(squares[column])
        for d in range(dimensions):
            matrix[column, d] -= scale * gradient[d]


@kernel
def ranking_gradient(vectors: Array, near: int, gamma: float, gradients: Array) -> float:
    """Set ``gradients`` to those of Σ_p −ln softmax_p(γ cos(z, z_p)) and return that sum, AnnexML's
    loss.

    The first of ``vectors`` is z, then come its ``near`` neighbours p, then the others that each p
    is ranked with."""
    count = len(vectors)
    loss = 0.0
    lengths = np.empty(count, np.float32)
    cosines = np.zeros(count, np.float64)
    pulls = np.zeros(count, np.float64)  # −∂loss/∂cosine
    gradients[:count] = 0
    for at in range(count):
        lengths[at] = np.sqrt(_dot(vectors[at], vectors[at]))
        if lengths[at] > _SMALLEST and lengths[0] > _SMALLEST:
            cosines[at] = _dot(vectors[0], vectors[at]) / (lengths[0] * lengths[at])
    for p in range(1, near + 1):
        total = 1.0
        for other in range(near + 1, count):
            total += np.exp(gamma * (cosines[other] - cosines[p]))
        for other in range(near + 1, count):
            pull = gamma * np.exp(gamma * (cosines[other] - cosines[p])) / total
            pulls[p] += pull
            pulls[other] -= pull
        loss += np.log(total)
    for at in range(1, count):
        if lengths[at] > _SMALLEST and lengths[0] > _SMALLEST:
            scale = np.float32(-pulls[at] / (lengths[0] * lengths[at]))
            ratio = lengths[at] / lengths[0]
            first_share = np.float32(cosines[at] * ratio)
            other_share = np.float32(cosines[at] / ratio)
            for d in range(vectors.shape[1]):
                gradients[0, d] += scale * (vectors[at, d] - first_share * vectors[0, d])
                gradients[at, d] = scale * (vectors[0, d] - other_share * vectors[at, d])
    return loss


@kernel
def _dot(one: Array, two: Array) -> Any:
    """Return one·two, in four independent sums."""
    a = np.float32(0)
    b = np.float32(0)
    c = np.float32(0)
    d = np.float32(0)
    at = 0
    while at + 4 <= len(one):
        a += one[at] * two[at]
        b += one[at + 1] * two[at + 1]
        c += one[at + 2] * two[at + 2]
        d += one[at + 3] * two[at + 3]
        at += 4
    while at < len(one):
        a += one[at] * two[at]
        at += 1
    return (a + b) + (c + d)


@kernel
def nearest_rows(queries: Array, across: Array, keep: int) -> Any:
    """Return the ``keep`` columns of ``across`` (d, n) with the highest product for each of
    ``queries`` (q, d).

    (rows, products), both of shape (q, keep), best first and of equal ones the first; keep ≤ n.
    """
    n = across.shape[1]
    rows = np.full((len(queries), keep), -1, np.int32)
    best = np.full((len(queries), keep), -np.inf, np.float32)
    products = np.empty(_TILE, np.float32)
    for start in range(0, n, _TILE):
        width = min(_TILE, n - start)
        tile = np.ascontiguousarray(across[:, start : start + width])
        for query in range(len(queries)):
            products[:width] = 0
            for d in range(len(tile)):
                number = queries[query, d]
                for at in range(width):
                    products[at] += number * tile[d, at]
            for at in range(width):
                if products[at] > best[query, -1]:
                    _insert_row(rows[query], best[query], start + at, products[at])
    return rows, best


@kernel
def _insert_row(rows: Array, products: Array, row: int, product: Any) -> None:
    """Insert a row that is better than the last one, behind those with an equal product."""
    position = len(rows) - 1
    while position > 0 and product > products[position - 1]:
        rows[position] = rows[position - 1]
        products[position] = products[position - 1]
        position -= 1
    rows[position] = row
    products[position] = product
