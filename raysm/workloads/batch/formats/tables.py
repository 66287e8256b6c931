"""Tables, read by Arrow: a record is a row, a column an array."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats.format import Columns, Span, TableColumns, is_gzipped
from raysm.workloads.batch.formats.whole_files import objects

__all__ = ["Csv", "JsonLines", "Parquet", "array_of"]


class _Table:
    """What the three have in common: rows are numbered in their file, and come in batches of one size."""

    keys: tuple[str, ...] = ("file", "row")

    def cut(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """See ``Format``; where a row ends says only whoever reads all before it, so each file stays whole."""
        return [Span(files=(file,)) for file in files]

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        """See ``Format``."""
        (name,) = span.files
        row = span.first_row
        try:
            for table in _regrouped(self.tables(folder / name, span, batch_size), batch_size):
                columns = {column: array_of(table.column(column)) for column in table.column_names}
                reserved = sorted({"file", "row"} & set(columns))
                if reserved:
                    raise InvalidInput(
                        f"{folder / name} has a column {reserved[0]!r}, which is raysm's name for where a record comes "
                        "from; rename it"
                    )
                numbers = np.arange(row, row + len(table))
                yield TableColumns({"file": objects([name] * len(table)), "row": numbers, **columns}, table)
                row += len(table)
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInput(f"{folder / name} cannot be read: {error}") from error

    def tables(self, path: Path, span: Span, batch_size: int) -> Iterator[pa.Table]:
        """Yield the rows of a span in tables of any length."""
        raise NotImplementedError


class Csv(_Table):
    """Reads CSV with a header; ``.tsv`` by tabs. Types are Arrow's guess at the first block."""

    def tables(self, path: Path, span: Span, batch_size: int) -> Iterator[pa.Table]:
        """See ``_Table``."""
        # Anywhere in the name: of .tsv.gz the last suffix is .gz.
        delimiter = "\t" if ".tsv" in path.name.lower() else ","
        # Whoever splits a table into files leaves empty ones too, which Arrow takes for torn.
        if not path.stat().st_size:
            return
        with pa.input_stream(str(path), compression=_compression(path)) as stream:
            reader = pa_csv.open_csv(stream, parse_options=pa_csv.ParseOptions(delimiter=delimiter))
            for batch in reader:
                yield pa.Table.from_batches([batch])


class JsonLines(_Table):
    """Reads a JSON object a line."""

    def tables(self, path: Path, span: Span, batch_size: int) -> Iterator[pa.Table]:
        """See ``_Table``."""
        if not path.stat().st_size:
            return
        with pa.input_stream(str(path), compression=_compression(path)) as stream:
            yield pa_json.read_json(stream)


class Parquet(_Table):
    """Reads Parquet by its row groups."""

    def cut(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """See ``Format``; a row group is never cut, for it is read whole anyway."""
        spans = []
        for file in files:
            counts = _row_groups(folder / file)
            start = first = 0
            for group in range(len(counts)):
                # Added up until they are enough: some writers leave groups of a few rows.
                count = sum(counts[start : group + 1])
                if count >= rows or group == len(counts) - 1:
                    spans.append(Span(files=(file,), start=start, stop=group + 1, first_row=first, rows=count))
                    start, first = group + 1, first + count
        return spans

    def tables(self, path: Path, span: Span, batch_size: int) -> Iterator[pa.Table]:
        """See ``_Table``."""
        with pq.ParquetFile(path) as file:
            groups = range(span.start, file.num_row_groups if span.stop is None else span.stop)
            for batch in file.iter_batches(batch_size, row_groups=list(groups)):
                yield pa.Table.from_batches([batch])


def _compression(path: Path) -> str:
    # Arrow knows small letters alone.
    return "gzip" if is_gzipped(path.name) else "detect"


def _row_groups(path: Path) -> list[int]:
    try:
        with pq.ParquetFile(path) as file:
            return [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {error}") from error


def _regrouped(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Cut tables anew: ``size`` rows each, fewer at the end."""
    waiting: list[pa.Table] = []
    length = 0
    for table in tables:
        waiting.append(table)
        length += len(table)
        if length >= size:
            whole = pa.concat_tables(waiting)
            for start in range(0, length - size + 1, size):
                yield whole.slice(start, size)
            # What is over begins the next batch: its size may not depend on how a file was written.
            waiting, length = [whole.slice(length - length % size)], length % size
    if length:
        yield pa.concat_tables(waiting)


def array_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column as NumPy has it: numbers as numbers, lists of one length as rows of a matrix, else objects."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    kind = whole.type
    if isinstance(whole, pa.FixedShapeTensorArray):
        return np.array(whole.to_numpy_ndarray())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = set(whole.value_lengths().to_pylist()) if len(whole) else set()
        inner = whole.flatten()
        # A list that is absent, or a number in one, has no place in a matrix.
        if len(lengths) == 1 and None not in lengths and not inner.null_count and _is_number(inner.type):
            return np.array(inner.to_numpy(zero_copy_only=False)).reshape(len(whole), -1)
        return objects(whole.to_pylist())
    if _is_number(kind):
        # A number that is missing comes as NaN, as pandas has it.
        return np.array(whole.to_numpy(zero_copy_only=False))
    return objects(whole.to_pylist())


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
