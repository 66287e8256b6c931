"""CSV and Parquet files as streams of rows: what flows in is a file, what flows out are batches in bounded memory."""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysm.errors import InvalidInput, option
from raysm.workloads.similarity.reading import ids as row_ids

__all__ = ["Batch", "Table", "csv_table", "parquet_table", "read_csv", "read_parquet"]

BATCH_BYTES = 16 << 20
"""Size of the batches that flow."""

OTHER_DELIMITERS = (";", "\t", "|")
"""Delimiters that others write between the fields of a CSV."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive rows."""

    rows: NDArray[Any]
    """rows[n, D]."""
    ids: pa.Array | None
    """ids[n], where an id column was named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What a table's beginning, or its metadata, says."""

    rows: int | None
    """Number of rows; None where only reading all tells."""
    columns: int | None
    """Number of the matrix's columns, the id column not counted; None where only reading tells."""
    names: tuple[str, ...]
    """All columns."""
    dtype: np.dtype[Any]
    """Type of the matrix."""
    header_lines: int = 0
    """Lines of the header, which has several where a quoted name holds a line break; 0: there is none (CSV)."""
    nested: bool = False
    """One list column holds the whole row (Parquet)."""
    ids: pa.DataType | None = None
    """Type of the ids, as ``ids.converted_type`` has it, where an id column was named."""


def _missing_id(path: Path, id_column: str, names: tuple[str, ...]) -> InvalidInput:
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return InvalidInput(
        f"{path.name} has no column {id_column!r} that could name its rows; its columns are {shown}"
        f"{_as_delimiter(names, names[0])}"
    )


def _as_ids(column: str) -> str:
    return f"; if that column names the rows, give {option('id_column', column)}"


def _as_delimiter(names: tuple[str, ...], text: str) -> str:
    """Return a hint where a table of one column has another program's delimiter in this text of it."""
    delimiter = next((one for one in OTHER_DELIMITERS if one in text), None)
    if delimiter is None or len(names) > 1:
        return ""
    return (
        f"; one column was found, and its fields hold {delimiter!r}: is that the delimiter? A comma is expected: "
        f"pandas.read_csv(…, sep={delimiter!r}).to_csv(…, index=False) writes it so"
    )


def _no_second_id(path: Path, id_column: str | None, names: tuple[str, ...]) -> None:
    # Columns of numbers may share a name, since they go by their places; the ids go by their name.
    count = 0 if id_column is None else names.count(id_column)
    if count > 1:
        raise InvalidInput(
            f"{path.name} has {count} columns {id_column!r}, of which one is to name the rows; rename all but one"
        )


def _is_compressed(path: Path) -> bool:
    # In any case, as suffix has it: M.CSV.GZ was once let in there, and read as plain text here.
    return path.name.lower().endswith(".gz")


def _text(path: Path) -> TextIO:
    if _is_compressed(path):
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    # With a mark of the byte order or without: it would be part of the first name.
    return path.open(encoding="utf-8-sig", newline="")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def csv_table(path: Path, id_column: str | None) -> Table:
    """Read the first line: a header, unless all its fields are numbers.

    A first line of exactly 0,1,…,D-1, D > 1, is a header too: pandas' ``to_csv(index=False)`` of an array writes it.

    Raises:
        InvalidInput: The file is empty or no text, or lacks the id column.
    """
    try:
        with _text(path) as stream:
            records = csv.reader(stream)
            first = next(records, [])
            lines = records.line_num
    # EOFError is what gzip raises of a torn file.
    except (UnicodeDecodeError, EOFError, OSError, csv.Error) as error:
        raise InvalidInput(f"{path.name} cannot be read as CSV: {error}") from error
    if not first:
        raise InvalidInput(f"{path.name} is empty; a CSV has one row of numbers on each line")
    counted = len(first) > 1 and first == [str(i) for i in range(len(first))]
    has_header = counted or not all(map(_is_number, first))
    names = tuple(name.strip() for name in first) if has_header else tuple(f"column {i}" for i in range(len(first)))
    if id_column is not None:
        if not has_header:
            raise InvalidInput(f"{path.name} has no header line, so no column {id_column!r} that could name the rows")
        if id_column not in names:
            raise _missing_id(path, id_column, names)
        _no_second_id(path, id_column, names)
    columns = len(names) - (id_column is not None)
    if columns == 0:
        raise InvalidInput(f"{path.name} has no column of numbers beside {id_column!r}, which names the rows")
    ids = None if id_column is None else pa.large_string()
    header_lines = lines if has_header else 0
    dtype = np.dtype(np.float64)
    return Table(rows=None, columns=columns, names=names, dtype=dtype, header_lines=header_lines, ids=ids)


def read_csv(path: Path, id_column: str | None) -> Iterator[Batch]:
    """Stream a CSV (``.gz`` too) as float64 rows; ids are kept as text.

    Raises:
        InvalidInput: A field is missing or no number, or a line has another number of fields.
    """
    table = csv_table(path, id_column)
    # Numbers for names: column_types goes by them, and two columns may have one name.
    names = [str(i) for i in range(len(table.names))]
    id_index = None if id_column is None else table.names.index(id_column)
    # Ids are text, or their leading zeros would be lost.
    types = {name: pa.string() if i == id_index else pa.float64() for i, name in enumerate(names)}
    try:
        reader = pyarrow.csv.open_csv(
            pa.input_stream(str(path), compression="gzip" if _is_compressed(path) else None),
            read_options=pyarrow.csv.ReadOptions(
                # The longest line must fit; numbers take up to 25 characters.
                block_size=max(4 << 20, 64 * len(names)),
                column_names=names,
                skip_rows=table.header_lines,
                use_threads=False,
            ),
            # Arrow's own list of what is missing has NaN, NA and null: the one is a number, and all may be ids.
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=True, check_utf8=True
            ),
        )
        for batch in reader:
            if batch.num_rows:
                yield _csv_batch(path, table, batch, id_index)
    except (pa.ArrowInvalid, OSError) as error:
        # Where Python's reader finds nothing wrong, Arrow's words are all there is.
        raise _csv_error(path, table, id_index) or InvalidInput(
            f"{path.name} cannot be read as CSV: {error}"
        ) from error


def _csv_batch(path: Path, table: Table, batch: pa.RecordBatch, id_index: int | None) -> Batch:
    values = [i for i in range(batch.num_columns) if i != id_index]
    if any(batch.column(i).null_count for i in range(batch.num_columns)):
        raise _csv_error(path, table, id_index) or InvalidInput(f"{path.name} has an empty field")
    rows = np.empty((batch.num_rows, len(values)))
    for target, i in enumerate(values):
        # Not its to_numpy, which imports pandas where that is installed: 0.3 s of a core in every process that reads.
        rows[:, target] = np.from_dlpack(batch.column(i))
    return Batch(rows, None if id_index is None else row_ids.convert(batch.column(id_index)))


def _csv_error(path: Path, table: Table, id_index: int | None) -> InvalidInput | None:
    """Read the file again, slowly, to say where it is wrong."""
    try:
        with _text(path) as stream:
            lines = csv.reader(stream)
            if table.header_lines:
                next(lines)
            for row, fields in enumerate(line for line in lines if line):
                # The header is no row, and rows count from 0: an editor goes to the line.
                at = f"row {row}, line {lines.line_num}"
                if len(fields) != len(table.names):
                    return InvalidInput(
                        f"{path.name}: {at}, has {len(fields)} fields, the first line has {len(table.names)}"
                        f"{_as_delimiter(table.names, table.names[0])}"
                    )
                for i, field in enumerate(fields):
                    if i == id_index and field:
                        continue
                    # Python takes 1_000 for a number, Arrow does not.
                    if not field or not _is_number(field) or "_" in field:
                        what = f"{field!r} is no number" if field else "the field is empty"
                        remedy = _as_delimiter(table.names, field)
                        if field and not remedy and table.header_lines and id_index is None:
                            remedy = _as_ids(table.names[i])
                        return InvalidInput(f"{path.name}: column {table.names[i]!r}, {at}: {what}{remedy}")
    except (csv.Error, ValueError, EOFError, OSError):
        return None
    return None


def parquet_table(path: Path, id_column: str | None) -> Table:
    """Read a Parquet file's metadata: numeric columns, or one list column of numbers, and the id column.

    Raises:
        InvalidInput: It is torn, lacks the id column, or has a column of another type.
    """
    try:
        with pq.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path.name} is no whole Parquet file: {error}") from error
    names = tuple(schema.names)
    if id_column is not None and id_column not in names:
        raise _missing_id(path, id_column, names)
    _no_second_id(path, id_column, names)
    ids = None
    if id_column is not None:
        ids = row_ids.converted_type(path.name, id_column, schema.field(id_column).type)
        row_ids.check_missing(path.name, id_column, metadata)
    fields = [field for field in schema if field.name != id_column]
    if not fields:
        raise InvalidInput(f"{path.name} has no column of numbers beside {id_column!r}, which names the rows")
    nested = len(fields) == 1 and _is_list(fields[0].type)
    for field in fields:
        kind = field.type.value_type if nested else field.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            if id_column is None and not _is_list(kind):
                remedy = _as_ids(field.name)
            else:
                remedy = "; a matrix is numeric columns, or one list column of numbers"
            raise InvalidInput(f"{path.name}: column {field.name!r} holds {field.type}, no numbers{remedy}")
    kinds = [np.dtype((field.type.value_type if nested else field.type).to_pandas_dtype()) for field in fields]
    size = getattr(fields[0].type, "list_size", None) if nested else len(fields)
    rows = metadata.num_rows
    return Table(rows=rows, columns=size, names=names, dtype=np.result_type(*kinds), nested=nested, ids=ids)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def read_parquet(path: Path, id_column: str | None) -> Iterator[Batch]:
    """Stream a Parquet file's rows, one part of a row group after the other.

    Raises:
        InvalidInput: A value is null, a list has another length than the first, or the file is torn.
    """
    table = parquet_table(path, id_column)
    # How long its lists are, only reading tells; this sizes batches, no more.
    width = table.columns or 1024
    # By position: two columns may have one name.
    row_columns = [i for i, name in enumerate(table.names) if name != id_column]
    names = [table.names[i] for i in row_columns]
    done, length = 0, table.columns if table.nested else None
    try:
        # What is read ahead would lie in memory: Arrow's default trades that for speed.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(
                batch_size=max(1, min(65536, BATCH_BYTES // (8 * width))), use_threads=False
            ):
                if not batch.num_rows:
                    continue
                columns = [batch.column(i) for i in row_columns]
                ids = None if id_column is None else batch.column(table.names.index(id_column))
                for name, column in [*zip(names, columns, strict=True), (id_column, ids)]:
                    _check_nulls(path, name, column, done)
                if table.nested:
                    rows = _list_rows(path, names[0], columns[0], done, length)
                    length = rows.shape[1]
                else:
                    rows = np.empty((batch.num_rows, len(columns)), dtype=table.dtype)
                    for i, column in enumerate(columns):
                        # Booleans are single bits in Arrow: of them there is no view.
                        rows[:, i] = column.to_numpy(zero_copy_only=False)
                yield Batch(rows, None if ids is None else row_ids.convert(ids))
                done += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path.name} cannot be read as Parquet: {error}") from error


def _check_nulls(path: Path, name: str | None, column: pa.Array | None, done: int) -> None:
    if column is not None and column.null_count:
        row = done + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidInput(f"{path.name}: column {name!r}, row {row}: the value is missing")


def _list_rows(path: Path, name: str, column: Any, done: int, expected: int | None) -> NDArray[Any]:
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.full(len(column), column.type.list_size)
    else:
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    length = int(lengths[0]) if expected is None else expected
    if length == 0:
        raise InvalidInput(f"{path.name}: column {name!r}, row {done}: the list is empty")
    wrong = np.flatnonzero(lengths != length)
    if len(wrong):
        raise InvalidInput(
            f"{path.name}: column {name!r}, row {done + int(wrong[0])}: the list has {int(lengths[wrong[0]])} numbers, "
            f"those before have {length}"
        )
    # Not column.values, which has the lists outside this batch too.
    values = column.flatten()
    if values.null_count:
        at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidInput(f"{path.name}: column {name!r}, row {done + at // length}: a number in the list is missing")
    return cast(NDArray[Any], values.to_numpy(zero_copy_only=False).reshape(-1, length))
