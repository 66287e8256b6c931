"""Rows of several memory-mapped files as one array, of which only the rows that are asked for are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["StackedRows"]


class StackedRows:
    """Arrays of equally many columns, one below the other.

    Attributes:
        parts: The arrays, in order: for callers that read them one by one.
        shape: Of all together.
        dtype: Of their elements.
    """

    ndim = 2

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        """Stack ``parts[n, D]``; nothing is read or copied."""
        self.parts = tuple(parts)
        self._edges = np.cumsum([0, *map(len, self.parts)])
        self.shape = (int(self._edges[-1]), self.parts[0].shape[1])
        self.dtype = self.parts[0].dtype

    @classmethod
    def of_files(cls, paths: Sequence[Path]) -> "StackedRows":
        """Map these ``.npy`` files."""
        return cls([np.load(path, mmap_mode="r") for path in paths])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """Return rows as NumPy would: by a number, a slice, a mask or numbers; of columns one or a slice.

        Raises:
            IndexError: There is no such row, or columns are asked for in another way.
        """
        rows, columns = key if isinstance(key, tuple) and len(key) == 2 else (key, slice(None))
        if not isinstance(columns, int | np.integer | slice):
            raise IndexError(
                f"columns are asked for by a number or a slice, not by {columns!r}: scores[rows][:, columns]"
            )
        # Any index that NumPy knows, and its errors.
        numbers = np.arange(len(self))[rows]
        at = np.searchsorted(self._edges, numbers, side="right") - 1
        if numbers.ndim == 0:
            return self.parts[at][numbers - self._edges[at], columns]
        stacked = np.empty((len(numbers), *self.parts[0][:0, columns].shape[1:]), dtype=self.dtype)
        for one in np.unique(at):
            stacked[at == one] = self.parts[one][numbers[at == one] - self._edges[one]][:, columns]
        return stacked

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all rows in the memory."""
        if copy is False:
            raise ValueError("rows of several files are one array only as a copy")
        return np.concatenate(self.parts, dtype=dtype or self.dtype)

    def __repr__(self) -> str:
        return f"<{self.shape[0]:,} x {self.shape[1]:,} {self.dtype} in {len(self.parts):,} files>"
