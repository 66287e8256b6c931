"""The bounds of the compiled engines' cheap products, and the proof that they miss no neighbor.

**The frame.** For a row x_i, u_i is x_i over its computed norm, c the frame's centre (any vector;
the mean of the u_i is the best), Q an orthogonal matrix (the identity, or signs and Hadamard
transforms, which spread large elements), and y_i = Q (u_i - c). With b_i = c.u_i - c.c, exactly

    u_i . u_j = y_i . y_j + b_i + b_j + c.c.

Rows that are nearly all alike have tiny y, so their products are as accurate, relative to their
spread, as any others.

**Tight clusters.** The same holds about any vector. For two rows of one tight cluster, take its
centre instead of c:
their y about it are tiny, and so are the errors. A pair is first compared about c; if it passes,
and both rows are in the same tight cluster, then also about that centre. Neither filter misses a
neighbor, so failing one excludes a pair.

**The product.** The engine keeps a cheap form of each row, z_i = s_i q_i, with integers q_i (or
float32 numbers, s_i = 1). The error is *measured*, r_i >= ||y_i - z_i||, and X_i >= ||y_i||,
||z_i||. As y_i . y_j - z_i . z_j = (y_i - z_i) . z_j + y_i . (y_j - z_j), Cauchy and Schwarz give

    |y_i . y_j - z_i . z_j| <= r_i X_j + X_i r_j.

Products of integers are summed without error: ``largest_integer`` keeps every partial sum below
2**31, even if a processor adds several products at once (AMX, VNNI, NEON's dot). A sum of D float32
products, in any order, is wrong by at most g(D, u) sum |z_i[a] z_j[a]| <= g(D, u) X_i X_j with u =
2**-24 and g(D, u) = D u / (1 - D u); r_i of a float32 row contains g(D + 8, u) X_i beside its own
error (``growth``), which covers it once (elements below 2**-60 are made 0 and are part of the
measured error, so no product underflows).

**float64 rounding.** The preparation computes u_i, its mix and that of c in float64, and y_i as Q
u_i - Q c, so that a
row is mixed once, whatever it is compared about: at most 2 (log2(D) + 3) + 4 roundings of each
element, each of 2**-53 relative to the norm of its stage, so y_i is wrong by less than 2**-45 (1 +
||c||). The sum c.u_i, of both as they are mixed, is wrong by at most 2**-44 + g(D, 2**-53), and c.c
by g(D, 2**-53), times ||c|| (1 + ||c||), the score before its rounding to float32 by g(D + 8,
2**-53), and r_i and X_i by a factor of 1 + D 2**-53, for which they are multiplied by 1 + 2**-30.
``slop``, (D + 128) 2**-48 (1 + ||c||)**2, exceeds the sum of them all; it is added to r_i, to X_i
and to b_i.

**float32 rounding.** The filter compares U = s_i (s_j P) + r_i X_j + X_i r_j + b_j with a limit
less b_i in float32; all its inputs were rounded up, or down for limits. Each of the six operations
is wrong by 2**-24 of a magnitude of at most M = 4 X_i X_j + |b_i| + |b_j|, with the largest values
of a tile; if the limit is larger than 2 M, the comparison cannot be wrong. 2**-21 M + 2**-80 is
added to b_j (``slack`` in numbers.h).

**Scores from both sides.** A closer product gives two float64 numbers between which the quotient
lies. Rounding to float32 is monotone, so the score lies between these two numbers, rounded. A row's
bound is the k-th best of its pairs' lower ends, as keys, and a pair whose upper end comes behind
that bound is not scored. The bound is a key and not a score, because the scores of a tight cluster
are few float32 numbers, so that the index decides most comparisons.

**Seeds.** A row without any bound is first multiplied with some of the columns. The k columns with
the largest products, at most one from each lane of the vectors, get a closer look; they are
distinct, and neither the row itself nor padding. The proof does not depend on which columns these
are. The smallest lower end of their scores is a score that k columns reach. It becomes the row's
floor, as a key with the last index of all, so that a pair that ties with it still passes.

**Limits.** A score of at least the float32 number t comes from a float64 quotient of at least the
middle between t and the float32 number below, and one above t from at least the middle between t
and the one above. The second limit suffices if only a better score can enter, that is, if all later
columns have higher indices than the row's k-th best.
No score is above 1: D(i, j) / (n_i n_j) <= 1 + (D + 8) 2**-53 < 1 + 2**-25, by Cauchy and Schwarz.
So if the k-th best
score is 1, no row with a higher index enters: rows that are all multiples of each other cost no
more than others.

**float16 on GPUs.** A row is kept as z_i = float16(s_i y_i), s_i a power of two that its panel
shares, with six more
columns (of beta, below, two pieces): left (z_i, e_i, w_i, beta_i, beta'_i, s_i, 2**-11 s_i), right
(z_j, w_j, e_j, s_j, 2**-11 s_j, beta_j, beta'_j). So one matrix product gives the filter's whole
value, in units of s_i s_j:
T = z_i . z_j + e_i w_j + w_i e_j + beta_i + beta_j.
float16 has three bits more than bfloat16, at the same speed, and r_i includes the errors from its
smaller range. Products of float16 numbers are exact in float32. How tensor cores add them is not
documented; measured ones align the terms of a step with the largest and cut the rest off at 24 bits
or more, an error below 2**-22 sum |terms| a step even with one step for each term. G =
``device_growth`` takes 2**-22 for each term and is asked to be at most 1/8. With

    e_i = (r_i + slop + 2 G X_i) (1 + 4 G),  w_i = X_i + slop,  beta_i = b_i + 2 G |b_i| + slop,

each rounded up, the computed T is at least y_i . y_j + b_i + b_j: the error G sum |terms| is at
most G (X_i X_j + e_i w_j + w_i e_j) + 1.01 G (|beta_i| + |beta_j|); e_i (1 - G) >= r_i + 2 G X_i as
(1 + 4 G)(1 - G) >= 1; and beta_i - 1.01 G |beta_i| >= b_i. The output is rounded to float16 and
compared with a limit that was rounded down to float16: rounding is monotone, so a pair that reaches
the limit still does. Seeds need T from above: T exceeds y_i . y_j + b_i + b_j by at most 3 (e_i w_j
+ w_i e_j) + spare_i + spare_j with spare_i = beta_i - b_i + 2 G |beta_i| + 2 slop.
"""

import math

import numpy as np
from numpy.typing import NDArray

MAX_COLUMNS = 1 << 20


def largest_integer(columns: int, bits: int) -> int:
    """Return the largest integer of so many bits whose products can be summed in 32 bits.

    With 8 bits, one side holds q + 128, up to 255; the sums begin with its correction, -128 times
    the sum of a row. AMX needs neither: its sums are smaller.
    """
    if bits == 8:
        return 127 if columns * 127 * 2 * (255 + 128) < 2**31 else 0
    return min(32767, math.isqrt((2**31 - 1) // columns))


def growth(columns: int) -> float:
    """Return the error of a float32 sum of products, relative to the product of the norms.

    See above.
    """
    terms = (columns + 8) * 2.0**-24
    return terms / (1 - terms)


def device_growth(columns: int) -> float:
    """Return the error of a GPU's sum of products, relative to the sum of their absolute values.

    See above.
    """
    # More than D terms, because each row has six further columns.
    terms = (columns + 16) * 2.0**-22
    return terms / (1 - terms)


def slop(columns: int, centre: NDArray[np.float64]) -> float:
    """Return the bound on all errors of the float64 arithmetic; see above."""
    return (columns + 128) * 2.0**-48 * float(1 + np.linalg.norm(centre)) ** 2


def signs(columns: int) -> NDArray[np.float64]:
    """Return signs[D] over the square root of the transform's size: the same in every process."""
    # A transform's size is a power of two, so rows are mixed by two that overlap, one from each
    # end.
    size = 1 << (columns.bit_length() - 1)
    # Seeded by the width, so that every process makes the same signs.
    bits = np.random.Generator(np.random.PCG64(columns)).integers(0, 2, columns)
    return np.where(bits == 1, 1.0, -1.0) / np.float64(math.sqrt(size))
