"""AnnexML's inner loops (Tagami 2017): neighbours in label space, parts and embeddings learned from
them, and search.

Documents are sparse rows with sorted columns. Each learner is one thread's work from its own seed,
so that the numbers never depend on how many threads there are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.splitmix import draw, random_bits

__all__ = ["label_neighbours", "learn_embedding", "learn_parts", "nearest_rows", "ranking_gradient"]

Array = NDArray[Any]
# documents whose products with a query are added up at once: they stay in the cache for all queries
_TILE = 512
_SMALLEST = np.float32(1e-12)  # a shorter vector has no direction


@kernel
def label_neighbours(
    first: int,  # IN  the documents first..last - 1 look for neighbours
    last: int,
    document_ptr: Array,  # IN  (n + 1,)
    document_labels: Array,  # IN  the labels of each document
    label_ptr: Array,  # IN  (n_labels + 1,)
    label_documents: Array,  # IN  the documents of each label: the same pairs
    keep: int,
    budget: int,  # IN  most entries of the inverted index that a document reads
    seed: int,
) -> Array:
    """Return the ``keep`` documents with the highest cosine of label sets for each document, best
    first; −1: no more.

    Labels are read from the rarest on. Where the budget ends in a label's list, a run of it from a
    random place is read. Of equal cosines a random one comes first: by number, the same few
    documents would be everybody's neighbours."""
    out = np.full((last - first, keep), -1, np.int32)
    marked = np.full(len(label_ptr) - 1, -1, np.int64)
    seen = np.full(len(document_ptr) - 1, -1, np.int64)
    likeness = np.empty(keep, np.float64)
    ties = np.empty(keep, np.int64)
    for row in range(first, last):
        labels = document_labels[document_ptr[row] : document_ptr[row + 1]].astype(np.int64)
        _rarest_first(labels, label_ptr)
        marked[labels] = row
        seen[row], left = row, budget
        likeness[:], ties[:] = 0, 0
        for label in labels:
            size = label_ptr[label + 1] - label_ptr[label]
            place = random_bits(seed, row, label) % size if size > left else 0
            for _ in range(min(size, left)):
                other: Any = np.int64(label_documents[label_ptr[label] + place])
                place = place + 1 if place + 1 < size else 0
                if seen[other] != row:
                    seen[other] = row
                    found = _likeness(
                        document_labels[document_ptr[other] : document_ptr[other + 1]], marked, row
                    )
                    if found >= likeness[-1]:
                        _insert(
                            out[row - first],
                            likeness,
                            ties,
                            other,
                            found,
                            random_bits(seed, row, other),
                        )
            left -= min(size, left)
    return out


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
def _likeness(labels: Array, marked: Array, row: int) -> float:
    """Return the squared cosine times the number of the row's labels: a quotient of integers, so
    equals are equal.
    """
    shared = 0
    for label in labels:
        shared += marked[label] == row
    return shared * shared / len(labels)


@kernel
def _insert(rows: Array, likeness: Array, ties: Array, row: int, found: float, tie: int) -> None:
    """Put a row in its place among the best, highest likeness first, of equal ones the lowest tie."""
    at = len(rows)
    while at > 0:
        before = likeness[at - 1]  # 0 where there is no row yet, which is less than any
        if found < before or (found == before and tie >= ties[at - 1]):
            break
        at -= 1
    if at == len(rows):
        return
    for other in range(len(rows) - 1, at, -1):
        rows[other], likeness[other], ties[other] = (
            rows[other - 1],
            likeness[other - 1],
            ties[other - 1],
        )
    rows[at], likeness[at], ties[at] = row, found, tie


@kernel
def learn_parts(
    ptr: Array,  # IN  documents as sparse rows of length one
    columns: Array,
    values: Array,
    n_columns: int,
    neighbours: Array,  # IN  (n, keep) of ``label_neighbours``
    n_parts: int,
    epochs: int,
    rate: Any,  # IN  float32
    shrink: Any,  # IN  float32, weight of the L1 norm
    seed: int,
) -> Array:
    """Return (n_columns, n_parts) float32 weights of the part classifiers, learned so that
    neighbours share a part.

    Each document takes its best part; that part's logistic classifier is then trained with the
    document's neighbours as positives and as many random documents as negatives, which keep parts
    from swallowing everything (AnnexML, section 3.1). The optimiser is FTRL-Proximal (McMahan et
    al. 2013): most weights are 0."""
    n = len(ptr) - 1
    weights = np.zeros((n_columns, n_parts), np.float32)
    squares = np.ones((n_columns, n_parts), np.float32)
    sums = np.zeros((n_columns, n_parts), np.float32)
    scores = np.empty(n_parts, np.float32)
    everyone = np.arange(n)
    for part, row in enumerate(draw(everyone, n_parts, random_bits(seed, 0, 0))):
        for at in range(ptr[row], ptr[row + 1]):
            weights[columns[at], part] = values[at]
            sums[columns[at], part] = values[at] / rate + shrink * np.sign(values[at])
    for epoch in range(epochs):
        order = draw(everyone, n, random_bits(seed, 1, epoch))
        for step in range(n):
            row = order[step]
            scores[:] = 0
            for at in range(ptr[row], ptr[row + 1]):
                for part in range(n_parts):
                    scores[part] += values[at] * weights[columns[at], part]
            best = int(np.argmax(scores))
            for number in range(neighbours.shape[1]):
                if neighbours[row, number] < 0:
                    break
                other = random_bits(seed, 2 + epoch, step * neighbours.shape[1] + number) % n
                _follow(
                    ptr,
                    columns,
                    values,
                    neighbours[row, number],
                    True,
                    best,
                    weights,
                    squares,
                    sums,
                    rate,
                    shrink,
                )
                _follow(
                    ptr, columns, values, other, False, best, weights, squares, sums, rate, shrink
                )
    return weights


@kernel
def _follow(
    ptr: Array,
    columns: Array,
    values: Array,
    row: int,
    positive: bool,
    part: int,
    weights: Array,  # OUT
    squares: Array,  # OUT sums of squared gradients
    sums: Array,  # OUT z of FTRL-Proximal
    rate: Any,
    shrink: Any,
) -> None:
    """One step of FTRL-Proximal on ln(1 + exp(∓w·x))."""
    margin = np.float32(0)
    for at in range(ptr[row], ptr[row + 1]):
        margin += values[at] * weights[columns[at], part]
    wanted = np.float32(1) if positive else np.float32(0)
    error = wanted - np.float32(1) / (np.float32(1) + np.exp(-margin))
    for at in range(ptr[row], ptr[row + 1]):
        column = columns[at]
        gradient = error * values[at]
        before = np.sqrt(squares[column, part])
        squares[column, part] += gradient * gradient
        after = np.sqrt(squares[column, part])
        sums[column, part] += gradient + (after - before) / rate * weights[column, part]
        beyond = max(abs(sums[column, part]) - shrink, np.float32(0))
        weights[column, part] = rate * beyond * np.sign(sums[column, part]) / after


@kernel
def learn_embedding(
    ptr: Array,  # IN  documents of one part as sparse rows of length one
    columns: Array,
    values: Array,
    n_columns: int,
    neighbours: Array,  # IN  (n, keep) of ``label_neighbours`` in the part
    dimensions: int,
    negatives: int,
    epochs: int,
    rate: Any,  # IN  float32
    gamma: float,
    seed: int,
) -> Array:
    """Return (n_columns, dimensions) float32 V, learned so that neighbours have a high cosine of
    V'x (AnnexML).

    AdaGrad on Σ −ln softmax over a neighbour and random others, one step a document with all its
    neighbours."""
    n = len(ptr) - 1
    matrix = _random_start(
        n_columns, dimensions, np.sqrt(max(n, 1) / max(len(columns), 1)), random_bits(seed, 0, 0)
    )
    squares = np.ones(n_columns, np.float32)
    # the document, its neighbours, the others
    rows = np.empty(1 + neighbours.shape[1] + negatives, np.int64)
    vectors = np.empty((len(rows), dimensions), np.float32)
    gradients = np.empty((len(rows), dimensions), np.float32)
    everyone = np.arange(n)
    for epoch in range(epochs):
        order = draw(everyone, n, random_bits(seed, 1, epoch))
        for step in range(n):
            rows[0], count = order[step], 1
            while count <= neighbours.shape[1] and neighbours[rows[0], count - 1] >= 0:
                rows[count] = neighbours[rows[0], count - 1]
                count += 1
            near = count - 1
            if near == 0:
                continue
            for number in range(negatives):
                other = random_bits(seed, 2 + epoch, step * negatives + number) % n
                if not _among(rows[: near + 1], other):
                    rows[count] = other
                    count += 1
            for at in range(count):
                _embed(ptr, columns, values, rows[at], matrix, vectors[at])
            ranking_gradient(vectors[:count], near, gamma, gradients)
            for at in range(count):
                _descend(ptr, columns, values, rows[at], gradients[at], rate, matrix, squares)
    return matrix


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
    found = False
    for other in rows:
        found |= other == row
    return found


@kernel
def _embed(ptr: Array, columns: Array, values: Array, row: int, matrix: Array, out: Array) -> None:
    out[:] = 0
    for at in range(ptr[row], ptr[row + 1]):
        column = columns[at]
        value = values[at]
        for d in range(len(out)):
            out[d] += value * matrix[column, d]


@kernel
def _descend(
    ptr: Array,
    columns: Array,
    values: Array,
    row: int,
    # IN  of the row's vector; that of V at each of its columns is value × gradient
    gradient: Array,
    rate: Any,
    matrix: Array,  # OUT
    squares: Array,  # OUT (n_columns,) sums of mean squared gradients
) -> None:
    """One step of AdaGrad with one sum of squares a column: half the memory of one a number, and
    fewer roots.
    """
    square = _dot(gradient, gradient) / np.float32(len(gradient))
    for at in range(ptr[row], ptr[row + 1]):
        column = columns[at]
        value = values[at]
        squares[column] += square * value * value
        scale = rate * value / np.sqrt(squares[column])
        for d in range(len(gradient)):
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
            mine = np.float32(cosines[at] * ratio)
            its = np.float32(cosines[at] / ratio)
            for d in range(vectors.shape[1]):
                gradients[0, d] += scale * (vectors[at, d] - mine * vectors[0, d])
                gradients[at, d] = scale * (vectors[0, d] - its * vectors[at, d])
    return loss


@kernel
def _dot(one: Array, two: Array) -> Any:
    """Return one·two; four sums, because one would wait for itself."""
    a = b = c = d = np.float32(0)
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
                    place = keep - 1
                    while place > 0 and products[at] > best[query, place - 1]:
                        rows[query, place], best[query, place] = (
                            rows[query, place - 1],
                            best[query, place - 1],
                        )
                        place -= 1
                    rows[query, place], best[query, place] = start + at, products[at]
    return rows, best
