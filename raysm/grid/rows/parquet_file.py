"""Rows of a Parquet file: a path flows in, a Table flows out."""

from dataclasses import dataclass
from pathlib import Path

from raysm.errors import InvalidRequest, MissingDependency
from raysm.grid.rows.arrow import ArrowFrame
from raysm.grid.rows.file_source import FileSource
from raysm.grid.rows.source import check_number
from raysm.grid.rows.table import Table

__all__ = ["ParquetFile"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ParquetFile(FileSource):
    """One file; a folder of them is for DuckDB."""

    @classmethod
    def reads(cls, path: Path) -> bool:
        """See ``FileSource``."""
        return path.suffix.lower() in (".parquet", ".pq")

    def read(self, max_rows: int) -> Table:
        """Return all rows; see ``Source``.

        Raises:
            MissingDependency: pyarrow is not installed.
        """
        origin = str(self.path)
        try:
            from pyarrow import ArrowException, parquet
        except ImportError as error:
            raise MissingDependency(f"{origin} needs pyarrow: python3 -m pip install pyarrow") from error
        try:
            with parquet.ParquetFile(self.path) as file:
                # By the footer alone, before a million rows are brought into memory.
                check_number(origin, file.metadata.num_rows, max_rows)
                return ArrowFrame(frame=file.read(), origin=origin).read(max_rows)
        except (OSError, ArrowException) as error:
            raise InvalidRequest(f"{origin} cannot be read as Parquet: {error}") from error
