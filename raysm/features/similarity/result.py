"""The result of a similarity on this machine: one file, or parts of one table or array."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysm.core.client.results.result import Result
from raysm.core.protocol.result import ResultFile
from raysm.errors import InvalidRequest, used_by

if TYPE_CHECKING:
    from numpy.typing import NDArray


LISTS = {"neighbors": "neighbor", "neighbor_ids": "neighbor_id", "similarities": "similarity"}
"""Columns of neighbors, a list for each row, and their names in a table of pairs."""


class SimilarityResult(Result):
    """A result that is neighbors, pairs or all scores of rows."""

    @property
    def parts(self) -> list[Path]:
        """The files of the result in the order of their rows; one file if the head wrote it."""
        return [self.path / file.name for file in self._rows]

    def table(self, name: str | None = None) -> Any:
        """Read the result.

        Neighbors and pairs are one ``pyarrow.Table``, all scores are a memory-mapped array.

        Scores in several parts are a ``StackedRows``: ``scores[5]``, ``scores[10:20, :100]`` read
        the rows that are asked for, ``numpy.asarray(scores)`` all of them into memory.

        Args:
            name: Name of one file, ``ids.parquet``; None is the result, however many parts it has.

        Raises:
            InvalidRequest: There is no such file.
            MissingDependency: The package that reads it is not installed.
        """
        if name is not None or len(self._rows) < 2:
            return Result.table(self, name)
        if self.file.suffix == ".parquet":
            return self._one_table(self.parts)
        with used_by("table"):
            return StackedRows.of_files(self.parts)

    def pairs(self) -> Any:
        """Read neighbors or pairs as one ``pyarrow.Table`` with a row for each pair.

        The columns of the table are ``row``, ``neighbor`` and ``similarity``, and with ids ``id``
        and ``neighbor_id``: the form in which a result of ``threshold`` is stored. Of a result of
        ``top_k``, each row has k pairs, the most similar first.

        Raises:
            InvalidRequest: The result is the full matrix.
            MissingDependency: PyArrow is not installed.
        """
        if self.file.suffix != ".parquet":
            raise InvalidRequest(
                f"{self.file.name} has a similarity for each two rows: read it with table()"
            )
        table = self.table()
        if "neighbors" not in table.column_names:
            return table
        with used_by("pairs"):
            import pyarrow
            from pyarrow import compute
        # Each row as often as it has neighbors.
        places = compute.list_parent_indices(table["neighbors"].combine_chunks())
        columns = {}
        for name in table.column_names:
            is_list = name in LISTS
            column = table[name].combine_chunks()
            columns[LISTS.get(name, name)] = column.flatten() if is_list else column.take(places)
        return pyarrow.table(columns)

    @property
    def _rows(self) -> list[ResultFile]:
        if not self.manifest.files:
            return []
        first, *others = self.manifest.files
        folder = Path(first.name).parent
        # A single file is beside the manifest, as ids are; parts have a folder of their own.
        return [
            first,
            *(file for file in others if folder != Path() and Path(file.name).parent == folder),
        ]

    def _lines(self) -> list[str]:
        rows = self._rows
        if len(rows) < 2:
            return Result._lines(self)
        # One line for hundreds of parts.
        together = ResultFile(
            name=str(Path(rows[0].name).parent),
            shape=(sum(file.shape[0] for file in rows if file.shape), *rows[0].shape[1:]),
            units=rows[0].units,
            bytes=sum(file.bytes for file in rows),
            sha256="",
            how_to_read="",
        )
        return [
            f"  {together.name}: {together.size} in {len(rows):,} parts; .table()",
            *(f"  {file.name}: {file.size}" for file in self.manifest.files if file not in rows),
        ]


class StackedRows:
    """Memory-mapped arrays, one below the other; an index reads only the rows that it selects.

    ``parts`` are the arrays, ``shape`` and ``dtype`` are those of all together.
    """

    ndim = 2

    def __init__(self, parts: "Sequence[NDArray[Any]]") -> None:
        import numpy as np

        self.parts = tuple(parts)
        self._edges = np.cumsum([0, *map(len, self.parts)])
        self.shape = (int(self._edges[-1]), self.parts[0].shape[1])
        self.dtype = self.parts[0].dtype

    @classmethod
    def of_files(cls, paths: Sequence[Path]) -> "StackedRows":
        import numpy as np

        return cls([np.load(path, mmap_mode="r") for path in paths])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """Return rows as NumPy would: by a number, a slice, a mask or numbers.

        Columns by one number or a slice.
        """
        import numpy as np

        rows, columns = key if isinstance(key, tuple) and len(key) == 2 else (key, slice(None))
        if not isinstance(columns, int | np.integer | slice):
            raise IndexError(
                f"columns must be a number or a slice, got {columns!r}; write scores[rows][:, "
                "columns]"
            )
        # NumPy resolves any kind of index here, and raises its own errors.
        numbers = np.arange(len(self))[rows]
        at = np.searchsorted(self._edges, numbers, side="right") - 1
        if numbers.ndim == 0:
            return self.parts[at][numbers - self._edges[at], columns]
        stacked = np.empty((len(numbers), *self.parts[0][:0, columns].shape[1:]), dtype=self.dtype)
        for one in np.unique(at):
            stacked[at == one] = self.parts[one][numbers[at == one] - self._edges[one]][:, columns]
        return stacked

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "NDArray[Any]":
        import numpy as np

        if copy is False:
            raise ValueError("rows of several files are one array only as a copy")
        return np.concatenate(self.parts, dtype=dtype)

    def __repr__(self) -> str:
        return f"<{self.shape[0]:,} x {self.shape[1]:,} {self.dtype} in {len(self.parts):,} files>"
