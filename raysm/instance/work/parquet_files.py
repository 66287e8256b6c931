"""Open Parquet files of users, with errors that name the cause."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raysm.errors import InvalidInput


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file; the caller closes it.

    Raises:
        InvalidInput: It is no Parquet file, is not complete, or has a column of a type that Arrow
            does not know.
    """
    try:
        return pq.ParquetFile(path)
    except pa.ArrowNotImplementedError as error:
        raise unknown_type(path, error) from error
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {error}") from error


def unknown_type(name: object, error: Exception) -> InvalidInput:
    """Return the error for a complete file with a type that Arrow lacks: Polars writes integers of 128 bits."""
    return InvalidInput(
        f"{name} has a column of a type that pyarrow {pa.__version__} cannot read: {error}",
        remedy="write that column with another type, Int64 or Float64 for example",
    )
