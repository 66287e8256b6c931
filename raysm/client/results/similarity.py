"""The result of a similarity on this machine: one file, or parts that together are one table or one array."""

from pathlib import Path
from typing import Any

from raysm.client.results.result import Result
from raysm.contract.result import ResultFile
from raysm.errors import MissingDependency

__all__ = ["SimilarityResult"]


class SimilarityResult(Result):
    """A result that is neighbors, pairs or all scores of rows."""

    @property
    def parts(self) -> list[Path]:
        """The files of the rows, in their order: together they are the result; one where the head wrote it."""
        return [self.path / file.name for file in self._rows]

    def table(self, name: str | None = None) -> Any:
        """Read the result: neighbors or pairs as one ``pyarrow.Table``, all scores as a memory-mapped array.

        Scores in several parts come as a ``StackedRows``: ``scores[5]``, ``scores[10:20, :100]`` read the rows that are
        asked for, ``numpy.asarray(scores)`` all of them into the memory.

        Args:
            name: Of one file, ``ids.parquet``; None is the result, however many parts it has.

        Raises:
            InvalidRequest: There is no such file.
            MissingDependency: The package that reads it is not installed.
        """
        if name is not None or len(self._rows) == 1:
            return Result.table(self, name)
        if self.file.suffix == ".parquet":
            return self._one_table(self.parts)
        try:
            from raysm.client.results.rows import StackedRows
        except ImportError as error:
            raise MissingDependency(f"table needs {error.name}: python3 -m pip install {error.name}") from error
        return StackedRows.of_files(self.parts)

    @property
    def _rows(self) -> list[ResultFile]:
        first, *others = self.manifest.files
        folder = Path(first.name).parent
        # One file lies beside the manifest, where ids do too; parts have a folder of their own.
        return [first, *(file for file in others if folder != Path() and Path(file.name).parent == folder)]

    def _lines(self) -> list[str]:
        rows = self._rows
        if len(rows) == 1:
            return Result._lines(self)
        # Hundreds of parts would bury what they are together.
        lengths, units = (sum(file.shape[0] for file in rows), *rows[0].shape[1:]), rows[0].units
        together = ResultFile(
            name=str(Path(rows[0].name).parent),
            shape=lengths,
            units=units,
            bytes=sum(file.bytes for file in rows),
            sha256="",
            how_to_read="",
        )
        others = [file for file in self.manifest.files if file not in rows]
        return [
            f"  {together.name}: {together.size} in {len(rows):,} parts; .table()",
            *(f"  {file.name}: {file.size}" for file in others),
        ]
