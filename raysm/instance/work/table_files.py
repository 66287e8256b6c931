"""Open users' tables, CSV, TSV and Parquet, by the same rules for every workload.

A CSV file's delimiter follows from its name, and a quoted value may contain line breaks. The client
checks the first lines of its inputs by the same rules.
"""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from raysm.errors import InvalidInput
from raysm.instance.work.file_names import is_gzipped

OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
MAX_LINE = 1 << 20
"""Characters of a line that are looked at for its delimiter."""


def find_delimiter(name: str) -> str:
    return "\t" if name.lower().removesuffix(".gz").endswith(".tsv") else ","


def check_delimiter(path: Path) -> None:
    """Refuse a file whose first two lines are one column, and as many columns by another delimiter.

    Raises:
        InvalidInput: The message names the delimiter that was found, and the remedy.
    """
    delimiter = find_delimiter(path.name)
    opener = gzip.open if is_gzipped(path.name) else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace") as file:
            header = file.readline(MAX_LINE)
            row = file.readline(MAX_LINE)
    except (OSError, EOFError):
        # The reader names the problem.
        return
    for other, name in OTHER_DELIMITERS.items():
        if delimiter not in header and 0 < header.count(other) == row.count(other):
            remedy = "name it .tsv" if other == "\t" else "write it with commas"
            raise InvalidInput(
                f"{path} has one column, {header.strip()[:80]!r}: "
                f"its values are separated by {name}, "
                f"and those of a {'.tsv by tabs' if delimiter == chr(9) else '.csv by commas'}",
                remedy=f"{remedy}, or read its lines as they are: read='text'",
            )


def open_csv(
    path: Path,
    *,
    block_bytes: int,
    convert: pa_csv.ConvertOptions,
    column_names: list[str] | None = None,
    skip_lines: int = 0,
) -> pa_csv.CSVStreamingReader:
    """Return a reader of record batches.

    Args:
        path: The file; its name says whether it is compressed, and its delimiter.
        block_bytes: Bytes that are parsed at a time; no record may be longer.
        convert: Types of the columns, and what stands for a missing value.
        column_names: Names of the columns; None reads them from the first line.
        skip_lines: Lines before the first record, if ``column_names`` are given.
    """
    return pa_csv.open_csv(
        pa.input_stream(str(path), compression="gzip" if is_gzipped(path.name) else None),
        read_options=pa_csv.ReadOptions(
            block_size=block_bytes,
            column_names=column_names,
            skip_rows=skip_lines,
            # With threads, Arrow's messages would not name the line.
            use_threads=False,
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=find_delimiter(path.name), newlines_in_values=True
        ),
        convert_options=convert,
    )


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
    """Return the error for a complete file with a type that Arrow lacks.

    For example, Polars writes integers of 128 bits.
    """
    return InvalidInput(
        f"{name} has a column of a type that pyarrow {pa.__version__} cannot read: {error}",
        remedy="write that column with another type, Int64 or Float64 for example",
    )
