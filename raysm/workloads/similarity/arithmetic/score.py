"""The definition of the answer: everything else in this package only decides who is scored.

For rows x_i, taken as float64:

- D(i, j) is the sum of the products x_i[c] * x_j[c]: each product rounded to float64, then summed by ``numpy.sum`` over
  one contiguous row. The order of that sum depends on the length of the row alone (a test holds it), so a score does
  not depend on who computes it, or on what is computed beside it.
- n_i = sqrt(D(i, i)).
- score(i, j) = float32(D(i, j) / (n_i * n_j)), and 0 where a norm is 0. There is no negative zero.

float64 rows whose largest element lies outside 2**-400 … 2**400 are first multiplied by a power of two that brings it
into [0.5, 1). That is exact for every element that matters (those that underflow are 2**-600 of the largest), it does
not change the cosine, and it keeps the products and norms of such rows from overflowing or vanishing.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Norms", "Rows", "least_score", "pair_scores", "prepare", "scaled"]

Rows: TypeAlias = NDArray[Any]
"""rows[n, D] of any real type."""

BUFFER_BYTES = 1 << 20
"""Products of one go: half of a core's second-level cache."""

EXTREME = 400
"""Binary exponent beyond which squares of float64 elements come near overflow or underflow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Norms:
    """What is known of each row before any two are compared."""

    norms: NDArray[np.float64]
    """norms[n], of the scaled rows."""
    exponents: NDArray[np.int16]
    """exponents[n]: row i is multiplied by 2**-exponents[i] wherever it is used; nearly always 0."""
    integral: bool
    """All elements are integers: their float64 products may be exact, see ``products``."""
    first_bad: int | None
    """The first row that holds NaN or infinity; the norms mean nothing then."""


def scaled(rows: Rows, exponents: NDArray[np.int16]) -> Rows:
    """Return rows[n, D] as they are used: themselves, or multiplied by 2**-exponents where one is not 0."""
    if not exponents.any():
        return rows
    with np.errstate(under="ignore"):
        return np.ldexp(rows, -exponents.astype(np.int32)[:, None])


def prepare(rows: Rows) -> Norms:
    """Compute the norms of rows[n, D], and look for what cannot be used."""
    exponents = np.zeros(len(rows), dtype=np.int16)
    bad = np.zeros(len(rows), dtype=bool)
    # Squares of every smaller type stay far inside of what float64 holds.
    if rows.dtype == np.float64:
        # Not of np.abs(rows), which would be another copy of all.
        largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
        bad = ~np.isfinite(largest)
        binary = np.frexp(np.where(bad | (largest == 0), 1.0, largest))[1]
        exponents = np.where(np.abs(binary) > EXTREME, binary, 0).astype(np.int16)
        rows = scaled(rows, exponents)
    with np.errstate(invalid="ignore", over="ignore"):
        squares = _dots(rows, rows)
    bad |= ~np.isfinite(squares)
    integral = rows.dtype.kind in "iub" or (not bad.any() and not exponents.any() and _all_integers(rows))
    first_bad = int(np.argmax(bad)) if bad.any() else None
    return Norms(norms=np.sqrt(squares), exponents=exponents, integral=integral, first_bad=first_bad)


def _all_integers(rows: Rows) -> bool:
    # The first row decides for nearly every matrix that is not made of integers, without reading the others.
    return all(bool(np.all(np.rint(row) == row)) for row in rows)


def least_score(threshold: float) -> np.float32:
    """Return the smallest float32 that is not below a number: scores reach the one if and only if the other."""
    nearest = np.float32(threshold)
    return nearest if float(nearest) >= threshold else np.nextafter(nearest, np.float32(np.inf))


def pair_scores(
    left: Rows, right: Rows, left_norms: NDArray[np.float64], right_norms: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return scores[n] of the pairs (left[i], right[i]), both rows[n, D] as ``scaled`` returns them."""
    # The 0 that is added turns a negative zero, which keys cannot order, into the other.
    return quotient(_dots(left, right), left_norms * right_norms).astype(np.float32) + np.float32(0)


def quotient(dots: NDArray[np.float64], norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return dots / norms, and 0 where norms is 0; in place of ``dots``."""
    zero = norms == 0
    if not zero.any():
        return np.divide(dots, norms, out=dots)
    dots[zero] = 0
    # 1 in the place of 0, or NumPy would warn of what is meant.
    return np.divide(dots, np.where(zero, 1.0, norms), out=dots)


def _dots(left: Rows, right: Rows) -> NDArray[np.float64]:
    count, columns = left.shape
    dots = np.empty(count)
    at_once = max(1, min(count, BUFFER_BYTES // (8 * columns)))
    products = np.empty((at_once, columns))
    for start in range(0, count, at_once):
        part = products[: min(at_once, count - start)]
        stop = start + len(part)
        np.multiply(left[start:stop], right[start:stop], out=part, dtype=np.float64)
        # Of a contiguous row NumPy adds in an order that follows from its length alone; a BLAS says nothing of its own.
        part.sum(axis=-1, out=dots[start:stop])
    return dots
