"""The 34 kinds of matrices that an audit attacked the similarity with, each a named generator of rows."""

import math
from functools import partial

import numpy as np

TYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)


def cast(rows, dtype):
    """Return the rows as that type: what it cannot hold becomes the nearest that it can, never NaN or infinity."""
    dtype = np.dtype(dtype)
    if rows.dtype == dtype:
        return rows
    if dtype.kind == "b":
        return rows > 0
    if rows.dtype.kind in "iu" and dtype.kind in "iu":
        own, limits = np.iinfo(rows.dtype), np.iinfo(dtype)
        return np.clip(rows, max(own.min, limits.min), min(own.max, limits.max)).astype(dtype)
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    wide = np.clip(rows.astype(np.float64), float(limits.min), float(limits.max))
    if dtype.kind == "f":
        return wide.astype(dtype)
    # The largest integers round, as float64, to one that the type does not hold.
    most = (
        np.nextafter(float(limits.max), 0) if float(limits.max) > limits.max else float(limits.max)
    )
    return np.minimum(np.rint(wide), most).astype(dtype)


def ulp_apart(rng, rows, columns, dtype):
    """Copies of a few rows, each with elements moved to the number beside."""
    few = rng.standard_normal((max(1, rows // 6), columns)).astype(dtype)
    found = few[rng.integers(len(few), size=rows)]
    moved = rng.random(found.shape) < rng.choice([0.5 / columns, 0.5])
    return np.where(
        moved, np.nextafter(found, np.array(rng.choice([-np.inf, np.inf]), dtype=dtype)), found
    )


def identical(rng, rows, columns):
    return rng.standard_normal((3, columns)).astype(np.float32)[rng.integers(3, size=rows)]


def one_huge_element(rng, rows, columns, size):
    """In each row one element beside which the others vanish, mostly in the same place."""
    found = rng.standard_normal((rows, columns))
    places = np.where(rng.random(rows) < 0.8, 0, rng.integers(columns, size=rows))
    found[np.arange(rows), places] = size * rng.choice([-1, 1, 1.0000001], size=rows)
    return found


def opposite(rng, rows, columns):
    """Rows and their negatives, between a few that are alike."""
    found = rng.standard_normal((2, columns))[rng.integers(2, size=rows)] * rng.choice(
        [-1.0, 1.0], size=(rows, 1)
    )
    return found + rng.choice([0, 1e-7]) * rng.standard_normal(found.shape)


def denormal(rng, rows, columns, dtype, by_row):
    """Numbers so small that they have few bits left: of whole rows, or of single elements."""
    least = float(np.finfo(dtype).smallest_subnormal)
    small = rng.integers(-9, 10, (rows, columns)) * least
    normal = rng.standard_normal((rows, columns)) * (least * 2.0**20 if by_row else 1)
    return np.where(
        rng.random((rows, 1) if by_row else (rows, columns)) < 0.5, small, normal
    ).astype(dtype)


def exponents_about(rng, rows, columns, exponent):
    """Rows whose largest element lies just inside and just outside of what is scaled."""
    return np.ldexp(rng.standard_normal((rows, columns)), exponent + rng.integers(-3, 4, (rows, 1)))


def largest(rng, rows, columns, dtype):
    most = np.finfo(dtype).max
    found = np.where(
        rng.random((rows, columns)) < 0.5, most, np.nextafter(most, np.array(0, dtype=dtype))
    )
    return (found * rng.choice([-1, 1], size=found.shape)).astype(dtype)


def beyond_float64(rng, rows, columns, dtype):
    """Integers that float64 rounds, a few rows one apart in elements."""
    limits = np.iinfo(dtype)
    few = rng.integers(
        limits.min // 2, limits.max, (max(1, rows // 5), columns), dtype=dtype, endpoint=True
    )
    return few[rng.integers(len(few), size=rows)] - rng.integers(0, 3, (rows, columns)).astype(
        dtype
    )


def least_integers(rng, rows, columns):
    """The integer that has no opposite, among small ones."""
    small = rng.integers(-3, 4, (rows, columns))
    return np.where(rng.random((rows, columns)) < 0.3, np.iinfo(np.int64).min, small)


def negative_zeros(rng, rows, columns):
    """Few elements, the others zeros of both signs."""
    zeros = rng.choice([0.0, -0.0], size=(rows, columns))
    return np.where(
        rng.random((rows, columns)) < 0.15, rng.choice([-1.0, 1.0], size=(rows, columns)), zeros
    )


def norms_about_two_to_26(rng, rows, columns):
    """Integers up to whose norm a float64 product is exact, and just beyond."""
    unit = rng.standard_normal((rows, columns))
    unit /= np.linalg.norm(unit, axis=1)[:, None]
    return np.rint(unit * 2.0**26 * (1 + rng.choice([-1e-7, 0, 1e-7, 0.5], size=(rows, 1)))).astype(
        np.int64
    )


def spread_about_mean(rng, rows, columns, spread):
    return rng.standard_normal(columns) + spread * rng.standard_normal((rows, columns))


def fan(rng, rows, columns, rising):
    """Rows whose similarity to the first ones rises, or falls, from each to the next, by about one step of float32."""
    angles = np.arange(rows) * rng.choice([1e-6, 1e-4, 1e-3])
    found = np.zeros((rows, columns))
    found[:, 0], found[:, -1] = np.cos(angles), np.sin(angles)
    return found[::-1] if rising else found


def half_way(rng, rows, columns):
    """Integers of norm 2**25, and unit vectors of that length: quotients exactly between two float32."""
    found = np.zeros((rows, columns), dtype=np.int64)
    for row in found:
        some = 5 if columns >= 5 else 1
        parts = [1 << 25] if some == 1 or rng.random() < 0.3 else _of_norm(rng)
        row[:some][: len(parts)] = parts
        if columns >= 5:
            row[1:5] = rng.permutation(row[1:5])
    return found


def _of_norm(rng):
    """Return m, odd, with four others: their squares sum to 2**50."""
    while True:
        most = int(rng.integers(1 << 23, 1 << 24)) * 2 + 1
        rest = (1 << 50) - most**2
        second = math.isqrt(rest) - int(rng.integers(3))
        third = math.isqrt(rest - second**2) - int(rng.integers(3))
        if third < 0:
            continue
        left = rest - second**2 - third**2
        for fourth in range(math.isqrt(left), -1, -1):
            fifth = math.isqrt(left - fourth**2)
            if fourth**2 + fifth**2 == left:
                return [most, second, third, fourth, fifth]


def multiples(rng, rows, columns):
    """Multiples of few rows: similarities of 1 that differ in their last bits before they are rounded."""
    few = rng.standard_normal((2, columns))
    return few[rng.integers(2, size=rows)] * rng.choice(
        [3.0, 0.1, 7.0, 2.0**-60, 1e15], size=(rows, 1)
    )


def one_hot(rng, rows, columns, size):
    """One element in a row, that large, or one beside it."""
    found = np.zeros((rows, columns))
    found[np.arange(rows), rng.integers(min(4, columns), size=rows)] = rng.choice(
        [1, -1, size], size=rows
    )
    return found


def cancelling(rng, rows, columns):
    """Products that cancel each other but for their rounding: the order of a sum is all that is left."""
    half = rng.standard_normal((rows, -(-columns // 2))) * np.exp2(
        rng.integers(-20, 20, (1, -(-columns // 2)))
    )
    signs = rng.choice([-1.0, 1.0], size=(rows, 1))
    return np.concatenate([half[:1] + 0 * half, half[:1] * signs], axis=1)[
        :, rng.permutation(columns)
    ]


KINDS = {
    **{
        f"1 ulp apart, {dtype}": partial(ulp_apart, dtype=dtype)
        for dtype in ("float16", "float32", "float64")
    },
    "identical": identical,
    **{f"one element of {size:g}": partial(one_huge_element, size=size) for size in (1e30, 1e15)},
    "opposite": opposite,
    **{
        f"denormal {dtype}, {'rows' if by_row else 'elements'}": partial(
            denormal, dtype=dtype, by_row=by_row
        )
        for dtype in ("float16", "float32", "float64")
        for by_row in (True, False)
    },
    **{
        f"exponents about {exponent}": partial(exponents_about, exponent=exponent)
        for exponent in (-400, 400)
    },
    **{
        f"largest {dtype}": partial(largest, dtype=dtype)
        for dtype in ("float16", "float32", "float64")
    },
    **{
        f"{dtype} beyond 2**53": partial(beyond_float64, dtype=dtype)
        for dtype in ("int64", "uint64")
    },
    "least int64": least_integers,
    "negative zeros": negative_zeros,
    "norms about 2**26": norms_about_two_to_26,
    **{
        f"spread of {spread:g}": partial(spread_about_mean, spread=spread)
        for spread in (1e-3, 1e-7, 1e-11, 1e-15)
    },
    **{
        f"{'rising' if rising else 'falling'} fan": partial(fan, rising=rising)
        for rising in (True, False)
    },
    "half way between two float32": half_way,
    "multiples": multiples,
    **{f"one-hot with {size:g}": partial(one_hot, size=size) for size in (1e300, 1e-300)},
    "cancelling sums": cancelling,
}
"""Generators of rows[n, D] by name: ``KINDS[name](rng, rows, columns)``."""
