"""Products of whole tiles: which pairs may be among the answers, with a proof that none is missed.

Notation: u = 2**-24 is the unit roundoff of float32, v = 2**-53 that of float64, g(m, w) = m*w / (1 - m*w); x^ is a row
divided by its norm, exactly.

**The float32 product.** y = float32(x / n) is computed in float64 and rounded once, so y = x^ + e with
||e|| <= u*(1 + 2**-20) + sqrt(D) * 2**-126 (the last for elements that a BLAS flushes to zero). Then

- |y_i . y_j - x^_i . x^_j| <= 2*u + u**2 and a little, by Cauchy-Schwarz;
- the computed product of D terms, added in any order, with or without fused multiply-add, differs from y_i . y_j by at
  most g(D, u) * sum |y_i[c] y_j[c]| <= g(D, u) * (1 + u)**2, and by D * 2**-125 for terms that underflow;
- the score is the cosine, computed in float64 to within (D + 8) * v * 2, rounded to float32: u * |score|.

The sum is below g(D + 8, u) + D * 2**-120 for every D with (D + 8) * u < 1/2, which is ``float32_bound``. (g(D + 8, u)
exceeds g(D, u) by more than 8*u; the other terms take 3*u, twice u*g(D, u) <= 2*u, and D * v * 4 < u / 8.) Beyond, the
bound is 4: nothing is ruled out, and the tile is decided in float64.

**The float64 product.** With the rows themselves (scaled as ``score`` says), a product in any order and the definition
both lie within g(D, v) * sum |x_i[c] x_j[c]| of the true dot product; both are divided by the same n_i * n_j. So they
differ by at most 2 * g(D, v) * S + 2*v*|s|, with S = sum |x_i[c] x_j[c]| / (n_i n_j) <= 1 + g(D + 4, v). The bound is
``2 * g(D + 8, v)`` with S <= 1, or, where many entries need it, with S from a product of absolute values (rows with few
common elements have tiny or zero S, and their scores lie near zero, where float32 is fine). Rounding to float32 is
monotone: where s - bound and s + bound round to the same float32, that is the score. The others, about one entry in a
million, are scored by the definition.

**Integers.** Where all elements are integers and all norms are below 2**26, every partial sum of every order is an
integer of at most 2**52 (Cauchy-Schwarz), so the float64 product *is* D(i, j).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic.score import Rows, pair_scores, quotient

__all__ = ["CROWDED", "Tile", "below", "exact_scores", "float32_bound", "float64_bound", "normalised"]

CROWDED = 0.03
"""Fraction of a tile's entries above which a float64 product of the tile is cheaper than scoring pair by pair."""

LARGEST_WHOLE_NORM = 2.0**26
"""Below it, the float64 product of integer rows is exact."""

MANY_AMBIGUOUS = 0.01
"""Fraction of ambiguous entries above which a second product, of absolute values, pays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """Consecutive rows of the matrix with what belongs to them."""

    start: int
    """Number of the first row in the matrix."""
    rows: Rows
    """rows[n, D], scaled."""
    norms: NDArray[np.float64]
    """norms[n] of the scaled rows."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def part(self, start: int, stop: int) -> "Tile":
        """Return rows start to stop of this tile, counted from its first."""
        return Tile(start=self.start + start, rows=self.rows[start:stop], norms=self.norms[start:stop])


def _g(terms: int, roundoff: float) -> float:
    return terms * roundoff / (1 - terms * roundoff)


def float32_bound(columns: int) -> float:
    """Return the bound on abs(float32 product - score) for rows of that many columns; see above."""
    if (columns + 8) * 2.0**-24 >= 0.5:
        return 4.0
    return _g(columns + 8, 2.0**-24) + columns * 2.0**-120


def float64_bound(columns: int) -> float:
    """Return the bound on abs(float64 product / norms - score before its rounding); see above."""
    return 2 * _g(columns + 8, 2.0**-53)


def below(scores: NDArray[np.float32], bound: float) -> NDArray[np.float32]:
    """Return float32 numbers strictly below scores - bound: who exceeds them may reach the score."""
    exact = scores.astype(np.float64) - bound
    # Rounding to float32 may have gone up, by half a step at most: one step down makes up for it.
    return np.nextafter(exact.astype(np.float32), np.float32(-np.inf))


def normalised(tile: Tile) -> NDArray[np.float32]:
    """Return the tile's rows[n, D] divided by their norms, as float32; zero rows stay zero."""
    zero = tile.norms == 0
    inverse = np.divide(1.0, tile.norms, out=np.zeros(len(tile)), where=~zero)
    result = np.empty(tile.rows.shape, dtype=np.float32)
    with np.errstate(under="ignore"):
        # In float64, rounded once on the way out, as the bound has it; and no tile of float64 is made.
        np.multiply(tile.rows, inverse[:, None], out=result, dtype=np.float64, casting="unsafe")
    return result


def exact_scores(left: Tile, right: Tile, *, integral: bool) -> NDArray[np.float32]:
    """Return scores[n, m], by the definition, of all rows of one tile with all rows of another.

    Args:
        left: n rows.
        right: m rows.
        integral: All elements of the matrix are integers.
    """
    first, second = left.rows.astype(np.float64), right.rows.astype(np.float64)
    norms = left.norms[:, None] * right.norms[None, :]
    quotients = quotient(first @ second.T, norms)
    if integral and max(left.norms.max(), right.norms.max()) < LARGEST_WHOLE_NORM:
        return quotients.astype(np.float32) + np.float32(0)
    bound: float | NDArray[np.float64] = float64_bound(first.shape[1])
    scores, ambiguous = _rounded(quotients, bound)
    if len(ambiguous) > MANY_AMBIGUOUS * scores.size:
        common = quotient(np.abs(first) @ np.abs(second).T, norms)
        # The computed sum of absolute values is itself off by a relative g(D, v): twice the bound covers it.
        scores, ambiguous = _rounded(quotients, np.multiply(common, 2 * bound, out=common))
    # Pairs are scored from the tiles' own rows: these copies would only take memory beside them.
    del first, second
    _score_pairs(scores, ambiguous, left, right)
    return scores


def _rounded(
    quotients: NDArray[np.float64], bound: float | NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Round to float32; return that, and the flat positions at which the bound admits another result."""
    low, high = quotients - bound, quotients + bound
    # 4 * 2**-53 covers the rounding of the division and of these two sums, and stays 0 for an exact zero.
    slack = np.abs(quotients) * 2.0**-51
    low -= slack
    high += slack
    scores = high.astype(np.float32) + np.float32(0)
    return scores, np.flatnonzero(low.astype(np.float32) != scores)


def _score_pairs(scores: NDArray[np.float32], positions: NDArray[np.int64], left: Tile, right: Tile) -> None:
    # The rows of a pair are gathered, so one that is in many pairs is copied as often.
    at_once = max(1, (4 << 20) // left.rows.shape[1])
    for start in range(0, len(positions), at_once):
        chosen = positions[start : start + at_once]
        i, j = np.divmod(chosen, scores.shape[1])
        scores.ravel()[chosen] = pair_scores(left.rows[i], right.rows[j], left.norms[i], right.norms[j])
