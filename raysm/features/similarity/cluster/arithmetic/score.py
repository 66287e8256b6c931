"""The definition of the answer.

Everything else in this package only decides which pairs are scored. For rows x_i, taken as float64:

- D(i, j) is the sum of the products x_i[c] * x_j[c]: each product rounded to float64, then summed
  by ``numpy.sum`` over one contiguous row. The order of that sum depends only on the length of the
  row (a test checks this), so a score does not depend on which engine or task computes it.
- n_i = sqrt(D(i, i)).
- score(i, j) = float32(D(i, j) / (n_i * n_j)), and 0 if a norm is 0. There is no negative zero.

float64 rows whose largest element lies outside 2**-400 … 2**400 are first multiplied by a power of
two that moves it into [0.5, 1). That is exact for every element that matters (those that underflow
are 2**-600 of the largest), it does not change the cosine, and it keeps the products and norms of
such rows from overflowing or vanishing.

**Products of whole tiles** find the pairs that may be among the answers, with a proof that none is
missed.
Notation: u = 2**-24 is the unit roundoff of float32, v = 2**-53 that of float64, g(m, w) = m*w / (1
- m*w); x^ is a row divided by its norm, exactly.

**The float32 product.** y = float32(x / n) is computed in float64 and rounded once, so y = x^ + e
with ||e|| <= u*(1 + 2**-20) + sqrt(D) * 2**-126 (the last for elements that a BLAS flushes to
zero). Then

- |y_i . y_j - x^_i . x^_j| <= 2*u + u**2 and a little, by Cauchy-Schwarz;
- the computed product of D terms, added in any order, with or without fused multiply-add, differs
  from y_i . y_j by at most g(D, u) * sum |y_i[c] y_j[c]| <= g(D, u) * (1 + u)**2, and by D *
  2**-125 for terms that underflow;
- the score is the cosine, computed in float64 to within (D + 8) * v * 2, rounded to float32: u *
  |score|.

The sum is below g(D + 8, u) for every D with (D + 8) * u < 1/2, which is ``float32_bound``. (It
exceeds g(D, u) by more than 8*u; the other terms take 3*u, twice u*g(D, u) <= 2*u, D * v * 4 < u /
8, and much less for terms that underflow.) Beyond, the bound is 4: nothing is ruled out.

**The float64 product.** With the rows themselves (scaled as ``score`` says), a product in any order
and the definition both lie within g(D, v) * sum |x_i[c] x_j[c]| of the true dot product; both are
divided by the same n_i * n_j. So they differ by at most 2 * g(D, v) * S + 2*v*|s|, with S = sum
|x_i[c] x_j[c]| / (n_i n_j) <= 1 + g(D + 4, v), and |s| about S at most. The bound is
``2 * g(D + 8, v)`` with S <= 1, or, if many entries need it, with S from a product of absolute
values (rows with few common elements have tiny or zero S, and their scores are near zero, where
float32 is fine); its 8 further terms cover 2*v*|s|. Rounding is monotone: if s - bound and s +
bound, computed in float64, round to the same float32, that is the score. The others, about one
entry in a million, are scored by the definition.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[Any]

BUFFER_BYTES = 1 << 20
"""Bytes of products that are summed at a time: half of a core's second-level cache."""

EXTREME = 400
"""Binary exponent beyond which squares of float64 elements come near overflow or underflow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Norms:
    norms: NDArray[np.float64]
    exponents: NDArray[np.int16]
    """exponents[n]: row i is multiplied by 2**-exponents[i] wherever it is used; nearly always
    0."""
    first_bad: int | None
    """The first row that holds NaN or infinity, which makes the norms meaningless; None if there is
    none."""


def scale_rows(rows: Rows, exponents: NDArray[np.int16]) -> Rows:
    """Return rows[n, D] multiplied by 2**-exponents; the same array if all exponents are 0."""
    if not exponents.any():
        return rows
    return np.ldexp(rows, -exponents.astype(np.int32)[:, None])


def prepare(rows: Rows) -> Norms:
    exponents = np.zeros(len(rows), dtype=np.int16)
    bad = np.zeros(len(rows), dtype=bool)
    # Only float64 needs exponents: squares of smaller types are far inside the range of float64.
    if rows.dtype == np.float64:
        # Not np.abs(rows), which would copy all rows.
        largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
        bad = ~np.isfinite(largest)
        binary = np.frexp(np.where(bad, 1.0, largest))[1]
        exponents = np.where(np.abs(binary) > EXTREME, binary, 0).astype(np.int16)
        rows = scale_rows(rows, exponents)
    with np.errstate(invalid="ignore", over="ignore"):
        squares = _dots(rows, rows)
    bad |= ~np.isfinite(squares)
    first_bad = int(np.argmax(bad)) if bad.any() else None
    return Norms(norms=np.sqrt(squares), exponents=exponents, first_bad=first_bad)


def least_score(threshold: float) -> np.float32:
    """Return the smallest float32 that is not below the threshold."""
    nearest = np.float32(threshold)
    return nearest if float(nearest) >= threshold else np.nextafter(nearest, np.float32(np.inf))


def pair_scores(
    left: Rows, right: Rows, left_norms: NDArray[np.float64], right_norms: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return scores[n] of the pairs (left[i], right[i]), both scaled rows[n, D]."""
    # Adding 0 turns a negative zero, which keys cannot order, into a positive one.
    return divide(_dots(left, right), left_norms * right_norms).astype(np.float32) + np.float32(0)


def divide(dots: NDArray[np.float64], norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return dots / norms, with 0 for zero norms; it overwrites ``dots``."""
    # Divide by 1 instead of 0, which would make NumPy warn: the dots of a zero row are 0.
    return np.divide(dots, np.where(norms == 0, 1.0, norms), out=dots)


def _dots(left: Rows, right: Rows) -> NDArray[np.float64]:
    count, columns = left.shape
    dots = np.empty(count)
    at_once = max(1, min(count, BUFFER_BYTES // (8 * columns)))
    products = np.empty((at_once, columns))
    for start in range(0, count, at_once):
        part = products[: min(at_once, count - start)]
        stop = start + len(part)
        np.multiply(left[start:stop], right[start:stop], out=part, dtype=np.float64)
        # NumPy sums a contiguous row in an order that depends only on its length; the order of a
        # BLAS is unspecified.
        part.sum(axis=-1, out=dots[start:stop])
    return dots


MANY_AMBIGUOUS = 0.01
"""Share of ambiguous entries above which a second product, of absolute values, pays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    start: int
    rows: Rows
    """rows[n, D], scaled."""
    norms: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> "Tile":
        return Tile(
            start=self.start + start, rows=self.rows[start:stop], norms=self.norms[start:stop]
        )


def _g(terms: int, roundoff: float) -> float:
    return terms * roundoff / (1 - terms * roundoff)


def float32_bound(columns: int) -> float:
    """Return the bound on abs(float32 product - score) for rows of that many columns; see above."""
    if (columns + 8) * 2.0**-24 >= 0.5:
        return 4.0
    return _g(columns + 8, 2.0**-24)


def lower_bound_of_product(scores: NDArray[np.float32], bound: float) -> NDArray[np.float32]:
    """Return float32 numbers strictly below scores - bound, for a filter of products."""
    exact = scores.astype(np.float64) - bound
    # Rounding to float32 may have gone up, by half a step at most: one step down makes up for it.
    return np.nextafter(exact.astype(np.float32), np.float32(-np.inf))


def exact_scores(left: Tile, right: Tile) -> NDArray[np.float32]:
    """Return scores[n, m], by the definition, of all rows of two tiles."""
    first = left.rows.astype(np.float64)
    second = right.rows.astype(np.float64)
    norms = left.norms[:, None] * right.norms[None, :]
    quotients = divide(first @ second.T, norms)
    bound = 2 * _g(first.shape[1] + 8, 2.0**-53)
    scores, ambiguous = _round_to_float32(quotients, bound)
    if len(ambiguous) > MANY_AMBIGUOUS * scores.size:
        common = divide(np.abs(first) @ np.abs(second).T, norms)
        # The computed sum of absolute values is itself off by a relative g(D, v): twice the bound
        # covers it.
        scores, ambiguous = _round_to_float32(quotients, np.multiply(common, 2 * bound, out=common))
    # Free the copies: pairs are scored from the tiles' own rows.
    del first, second
    # Limit the pairs of one step, because both rows of each pair are copied.
    at_once = max(1, (4 << 20) // left.rows.shape[1])
    for start in range(0, len(ambiguous), at_once):
        chosen = ambiguous[start : start + at_once]
        i, j = np.divmod(chosen, scores.shape[1])
        scores.ravel()[chosen] = pair_scores(
            left.rows[i], right.rows[j], left.norms[i], right.norms[j]
        )
    return scores


def _round_to_float32(
    quotients: NDArray[np.float64], bound: float | NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Round to float32; also return the flat positions where the bound admits another result."""
    scores = (quotients + bound).astype(np.float32) + np.float32(0)
    return scores, np.flatnonzero((quotients - bound).astype(np.float32) != scores)
