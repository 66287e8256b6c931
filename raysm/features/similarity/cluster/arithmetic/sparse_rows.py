"""Sparse rows (CSR), as a file has them or in canonical form (rising columns, no zeros)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.features.similarity.cluster.arithmetic.score import Rows

MAX_COLUMNS = 1 << 31
DENSE_GAIN = 1500
"""Elements that a dense product handles in the time of one element of a sparse product;
measured."""

SAMPLED = 1 << 24
"""Most elements that are counted to estimate the cost of a sparse product."""


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Rows of a CSR matrix. Cutting it copies no elements."""

    begins: NDArray[Any]
    """begins[n + 1]: the elements of row i are begins[i] to begins[i + 1] of the other arrays."""
    indices: NDArray[Any]
    """indices: columns; in canonical form int32, rising in each row."""
    data: NDArray[Any]
    """data: elements, of any real type; in canonical form none of them is zero."""
    columns: int

    def canonical(self) -> "SparseRows":
        """Return the same rows in canonical form.

        Duplicate entries are summed in their own type, as SciPy does.
        """
        own = self.own()
        indices = own.indices
        data = own.data
        columns = own.columns
        starts = own.begins.astype(np.int64)
        rising = indices[1:] > indices[:-1]
        # Columns need not rise from one row to the next.
        rising[starts[(0 < starts) & (starts < len(indices))] - 1] = True
        # If they have this form already, copy nothing, so that a mapped file stays mapped.
        if rising.all() and np.all(data != 0):
            return SparseRows(starts, indices.astype(np.int32, copy=False), data, columns)
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        places = rows * columns + indices
        if (np.diff(places) <= 0).any():
            places, entries = np.unique(places, return_inverse=True)
            # Add in the order of the file, as for a dense row.
            summed = np.zeros(len(places), dtype=data.dtype)
            np.add.at(summed, entries, data)
            data = summed
        # Remove zeros only now: duplicate entries may add up to zero.
        nonzero = data != 0
        if not nonzero.all():
            places = places[nonzero]
            data = data[nonzero]
        rows, indices = np.divmod(places, columns)
        starts = np.searchsorted(rows, np.arange(len(starts)))
        return SparseRows(
            starts.astype(np.int64), indices.astype(np.int32), np.ascontiguousarray(data), columns
        )

    @classmethod
    def joined(cls, parts: "list[SparseRows]", dtype: np.dtype[Any]) -> "SparseRows":
        sizes = np.cumsum([0, *(int(part.begins[-1] - part.begins[0]) for part in parts)])
        begins = [
            part.begins[:-1] - part.begins[0] + at for part, at in zip(parts, sizes, strict=False)
        ]
        return cls(
            np.concatenate([*begins, sizes[-1:]]),
            np.concatenate([part.indices[part.begins[0] : part.begins[-1]] for part in parts]),
            np.concatenate(
                [
                    part.data[part.begins[0] : part.begins[-1]].astype(dtype, copy=False)
                    for part in parts
                ]
            ),
            parts[0].columns,
        )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def size(self) -> int:
        return int(self.begins[-1] - self.begins[0])

    @property
    def nbytes(self) -> int:
        return self.begins.nbytes + self.size * (self.indices.itemsize + self.data.itemsize)

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.begins)

    def __len__(self) -> int:
        return len(self.begins) - 1

    def __getitem__(self, rows: slice) -> "SparseRows":
        start, stop, _ = rows.indices(len(self))
        return SparseRows(self.begins[start : stop + 1], self.indices, self.data, self.columns)

    def own(self) -> "SparseRows":
        """Return the same rows with arrays that hold only their elements."""
        first = self.begins[0]
        last = self.begins[-1]
        return SparseRows(
            self.begins - first, self.indices[first:last], self.data[first:last], self.columns
        )

    def scaled(self, exponents: NDArray[np.int16]) -> "SparseRows":
        if not exponents.any():
            return self
        compact = self.own()
        with np.errstate(under="ignore"):
            # Only these rows' elements: a slice shares the arrays of all rows.
            data = np.ldexp(compact.data, -np.repeat(exponents.astype(np.int32), compact.counts))
        return SparseRows(compact.begins, compact.indices, data, compact.columns)

    def dense(self) -> Rows:
        compact = self.own()
        rows = np.zeros(self.shape, dtype=self.dtype)
        # Not rows[…] += data, which would add only the last of several entries for one element.
        np.add.at(
            rows, (np.repeat(np.arange(len(self)), compact.counts), compact.indices), compact.data
        )
        return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class SparseTile:
    """Consecutive sparse rows with their norms: the counterpart of ``Tile`` for dense rows."""

    start: int
    rows: SparseRows
    """rows[n, D], scaled."""
    norms: NDArray[np.float64]
    """norms[n] of the scaled rows."""

    def __len__(self) -> int:
        return len(self.rows)


def sparse_pays(rows: SparseRows, matrix_rows: int) -> bool:
    """Return whether comparing rows by their elements is cheaper than by dense products.

    For each two rows, the first takes only the columns that both have. ``rows`` are a sample of the
    N rows.
    """
    if not len(rows) or rows.columns >= MAX_COLUMNS:
        return False
    indices = rows.own().indices
    share = len(rows) * min(1.0, SAMPLED / max(1, len(indices))) / matrix_rows
    _, counts = np.unique(indices[:SAMPLED], return_counts=True)
    # Count pairs of a row with itself apart, since scaling up the sample must not multiply them
    # like other pairs.
    touched = (
        float(np.sum(counts.astype(np.float64) * (counts - 1))) / share + float(counts.sum())
    ) / share
    return touched * DENSE_GAIN < float(matrix_rows) ** 2 * rows.columns
