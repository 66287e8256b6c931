"""The similarity as its definition says it, in plain NumPy: slow, and independent of raysm's code."""

import functools
import hashlib

import numpy as np

KEPT = 128
"""Answers to a question: more than one engine is asked about before the next one begins."""
KEPT_SCORES = 1 << 18
"""Of larger matrices nothing is kept."""


class _Rows:
    """A matrix that is known by what it holds."""

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix)
        digest = hashlib.blake2b(self.matrix.tobytes()).digest()
        self.key = (digest, self.matrix.dtype.str, self.matrix.shape)

    def __len__(self):
        return len(self.matrix)

    def __eq__(self, other):
        return self.key == other.key

    def __hash__(self):
        return hash(self.key)


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
    return scores_between(np.asarray(matrix)[list(some)], matrix)


def scores_between(queries, matrix):
    """Return scores[len(queries), N] float32 of all rows of two matrices, each of its own type, by the definition."""
    left, right = _Rows(queries), _Rows(matrix)
    if len(left) * len(right) > KEPT_SCORES:
        return _scores.__wrapped__(left, right)
    # A copy: whoever asks may write into it.
    return _scores(left, right).copy()


@functools.lru_cache(KEPT)
def _scores(queries, matrix):
    left, right = exact_rows(queries.matrix), exact_rows(matrix.matrix)
    scores = np.zeros((len(left), len(right)), dtype=np.float32)
    norms = [np.sqrt(np.sum(rows * rows, axis=1)) for rows in (left, right)]
    for at, row in enumerate(left):
        divisors = norms[0][at] * norms[1]
        dots = np.sum(row * right, axis=1)
        scores[at] = np.divide(
            dots, divisors, out=np.zeros(len(right)), where=divisors != 0
        ).astype(np.float32)
    return scores + np.float32(0)


def neighbors(matrix, k, some=None):
    """Return (indices[n, k], scores[n, k]): score descending, then the lower index, without the row itself."""
    some = np.arange(len(matrix)) if some is None else np.asarray(some)
    scores = score_rows(matrix, some)
    # Of equal scores the lower index stays before the higher one.
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")
    indices = order[order != some[:, None]].reshape(len(some), -1)[:, :k]
    return indices, np.take_along_axis(scores, indices, axis=1)


def pairs(matrix, threshold):
    """Return the list of (row, neighbor, score) with row < neighbor and score >= threshold, as numbers."""
    return list(_pairs(_Rows(matrix), float(threshold)))


@functools.lru_cache(KEPT)
def _pairs(matrix, threshold):
    scores = score_rows(matrix.matrix, range(len(matrix)))
    rows, columns = np.nonzero(scores.astype(np.float64) >= threshold)
    return [(int(i), int(j), scores[i, j]) for i, j in zip(rows, columns, strict=True) if i < j]
