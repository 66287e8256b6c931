"""The similarity as its definition says it, in plain NumPy: slow, and independent of raysm's code."""

import numpy as np


def exact_rows(matrix):
    """Rows as float64; those of extreme magnitude times the power of two that brings the largest into [0.5, 1)."""
    # In C order: of columns that lie apart, NumPy adds in another order.
    rows = np.array(matrix, dtype=np.float64, order="C")
    largest = np.abs(rows).max(axis=1)
    exponents = np.frexp(largest)[1]
    extreme = np.flatnonzero((largest != 0) & (np.abs(exponents) > 400))
    rows[extreme] = np.ldexp(rows[extreme], -exponents[extreme, None])
    return rows


def score_rows(matrix, some):
    """Return scores[len(some), N] float32 by the definition."""
    return scores_between(np.asarray(matrix)[list(some)], matrix)


def scores_between(queries, matrix):
    """Return scores[len(queries), N] float32 of all rows of two matrices, each of its own type, by the definition."""
    left, right = exact_rows(queries), exact_rows(matrix)
    scores = np.zeros((len(left), len(right)), dtype=np.float32)
    norms = [np.sqrt(np.sum(rows * rows, axis=1)) for rows in (left, right)]
    for at, row in enumerate(left):
        divisors = norms[0][at] * norms[1]
        dots = np.sum(row * right, axis=1)
        scores[at] = np.divide(dots, divisors, out=np.zeros(len(right)), where=divisors != 0).astype(np.float32)
    return scores + np.float32(0)


def neighbors(matrix, k, some=None):
    """Return (indices[n, k], scores[n, k]): score descending, then the lower index, without the row itself."""
    some = range(len(matrix)) if some is None else some
    scores = score_rows(matrix, some)
    indices = np.empty((len(scores), k), dtype=np.int64)
    for at, i in enumerate(some):
        order = [j for j in np.lexsort((np.arange(len(matrix)), -scores[at].astype(np.float64))) if j != i]
        indices[at] = order[:k]
    return indices, np.take_along_axis(scores, indices, axis=1)


def pairs(matrix, threshold):
    """Return the list of (row, neighbor, score) with row < neighbor and score >= threshold, as numbers."""
    scores = score_rows(matrix, range(len(matrix)))
    rows, columns = np.nonzero(scores.astype(np.float64) >= float(threshold))
    return [(int(i), int(j), scores[i, j]) for i, j in zip(rows, columns, strict=True) if i < j]
