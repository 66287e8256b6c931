"""The similarity as its definition says it, in plain NumPy: slow, and independent of raysm's code."""

import math

import numpy as np


def exact_rows(matrix):
    """Rows as float64; those of extreme magnitude times the power of two that brings the largest into [0.5, 1)."""
    rows = np.asarray(matrix).astype(np.float64)
    if np.asarray(matrix).dtype == np.float64:
        for i, row in enumerate(rows):
            largest = max(abs(row.max()), abs(row.min()))
            exponent = math.frexp(largest)[1]
            if largest and abs(exponent) > 400:
                rows[i] = np.ldexp(row, -exponent)
    return rows


def score_rows(matrix, some):
    """Return scores[len(some), N] float32 by the definition."""
    rows = exact_rows(matrix)
    norms = np.array([math.sqrt(np.sum(row * row)) for row in rows])
    scores = np.zeros((len(some), len(rows)), dtype=np.float32)
    for at, i in enumerate(some):
        dots = np.sum(rows[i] * rows, axis=1)
        divisors = norms[i] * norms
        scores[at] = np.divide(dots, divisors, out=np.zeros(len(rows)), where=divisors != 0).astype(np.float32)
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
    """Return the list of (row, neighbor, score) with row < neighbor and score >= float32(threshold)."""
    scores = score_rows(matrix, range(len(matrix)))
    rows, columns = np.nonzero(scores >= np.float32(threshold))
    return [(int(i), int(j), scores[i, j]) for i, j in zip(rows, columns, strict=True) if i < j]
