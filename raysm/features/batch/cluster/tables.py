"""Tables, read by Arrow: a record is a row, a column an array."""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.features.batch.cluster.columns import (
    JSON,
    MAX_KEYS,
    TABLES,
    FileColumns,
    InputColumns,
    cast,
    column,
    has_mappings,
    join,
    map_type,
    plain,
    unify,
)
from raysm.features.batch.cluster.files import objects
from raysm.features.batch.cluster.formats import Columns, Span
from raysm.instance.work.file_names import is_gzipped
from raysm.instance.work.table_files import check_delimiter, open_csv, open_parquet

CSV_BLOCK_BYTES = 16 << 20
"""Bytes of a CSV file that are parsed at a time: no record may be longer."""

JSON_BLOCK_BYTES = 4 << 20
"""Bytes of JSON lines that are parsed at a time; a longer record makes its block longer."""

NO_VALUE = pa.array(pa_csv.ConvertOptions().null_values)
"""A missing value in a CSV column that is not text: an empty field, ``NA``, ``null``, ``NaN``
..."""

TRUTH_VALUES = pa.array(["true", "True", "TRUE", "false", "False", "FALSE"])

# 007 and 0x1F are codes, not numbers: as numbers they could not be written back as they were.
WHOLE_NUMBER = r"^-?(0|[1-9][0-9]*)$"
NUMBER = r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^-?(?i:inf|infinity)$"
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""One of the two codes by which JSON writes a character above U+FFFF, such as an emoji."""

LONG_NUMBER = r"^-?[0-9]{19,}$"

MAX_EXACT = 1 << 53
"""The largest number below which a float holds every whole number."""

CSV_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?")


class TableColumns(dict[str, NDArray[Any]]):
    """Records of a table as NumPy arrays."""

    def __init__(self, columns: Columns, table: pa.Table, schema: pa.Schema) -> None:
        super().__init__(columns)
        self.table = table
        self._schema = schema

    def arrow(self, column: str) -> pa.Array | None:
        """Return a column with its file's type; None if the table has no such column.

        In NumPy a missing integer makes floats.
        """
        if column not in self.table.column_names:
            return None
        values = self.table.column(column)
        kind = self._schema.field(column).type
        if values.type != kind:
            rows = [_fit_json(value, kind) for value in _parse_json(values)]
            return pa.array(rows, kind)
        # Combined, a column is one array, unless it is larger than Arrow's arrays may be.
        combined = values.combine_chunks()
        return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


class Table:
    """Base class of the three formats.

    Rows are numbered in their file, and come in batches of one size.
    """

    keys: tuple[str, ...] = ("file", "row")
    same_columns = False
    """All files must have the same columns."""
    rules = TABLES

    def __init__(self, columns: InputColumns | None = None) -> None:
        self._columns = columns

    def split(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """Keep each file whole, because finding a row means reading all rows before it."""
        return [Span(files=(file,)) for file in files]

    def scan(self, folder: Path, file: str, types: Mapping[str, str]) -> FileColumns:
        try:
            return self.scan_file(folder / file, file, types)
        except (pa.ArrowInvalid, OSError, EOFError, zlib.error, RecursionError) as error:
            raise InvalidInput(f"{folder / file} cannot be read: {error}") from error

    def unify(self, files: Sequence[FileColumns], types: Iterable[str]) -> InputColumns:
        return unify(files, types, same_columns=self.same_columns, rules=self.rules)

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        assert self._columns is not None, "tables are read after all of them were scanned"
        (name,) = span.files
        row = span.first_row
        schema = self.read_schema(self._columns.schema)
        try:
            for table in _regroup(self.tables(folder / name, span, batch_size, schema), batch_size):
                table = cast(table, schema, str(folder / name))
                # A table with columns of these names keeps them: it is a result that already names
                # its records.
                columns: dict[str, NDArray[Any]] = {
                    "file": objects([name] * len(table)),
                    "row": np.arange(row, row + len(table)),
                }
                for field in self._columns.schema:
                    values = table.column(field.name)
                    columns[field.name] = (
                        to_numpy(values, field.nullable)
                        if values.type == field.type
                        else objects(_parse_json(values))
                    )
                yield TableColumns(columns, table, self._columns.schema)
                row += len(table)
        except (pa.ArrowInvalid, OSError, EOFError, zlib.error, RecursionError) as error:
            raise InvalidInput(f"{folder / name} cannot be read: {error}") from error

    def read_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the types in which the columns are read; text for another type is JSON."""
        return schema

    def scan_file(self, path: Path, file: str, types: Mapping[str, str]) -> FileColumns:
        raise NotImplementedError

    def tables(
        self, path: Path, span: Span, batch_size: int, schema: pa.Schema
    ) -> Iterator[pa.Table]:
        raise NotImplementedError


class Csv(Table):
    # If a file has no header, its first row would be taken for one.
    same_columns = True

    def scan_file(self, path: Path, file: str, types: Mapping[str, str]) -> FileColumns:
        if not path.stat().st_size:
            return FileColumns(file=file, schema=pa.schema([]), rows=0)
        try:
            schema, rows = _csv_columns(path, types)
        except pa.ArrowInvalid as error:
            _name_csv_column(error, path)
        return FileColumns(file=file, schema=schema, rows=rows)

    def tables(
        self, path: Path, span: Span, batch_size: int, schema: pa.Schema
    ) -> Iterator[pa.Table]:
        if not path.stat().st_size:
            return
        try:
            yield from _csv_tables(path, {field.name: field.type for field in schema})
        except pa.ArrowInvalid as error:
            _name_csv_column(error, path)


def _csv_tables(path: Path, kinds: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    convert = pa_csv.ConvertOptions(column_types=dict(kinds))
    with open_csv(path, block_bytes=CSV_BLOCK_BYTES, convert=convert) as reader:
        # A file without rows has columns too, by its header.
        yield reader.schema.empty_table()
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _csv_columns(path: Path, types: Mapping[str, str]) -> tuple[pa.Schema, int]:
    names = next(_csv_tables(path, {})).column_names
    if len(names) == 1:
        check_delimiter(path)
    _check_unique(path, names)
    kinds = {name: pa.type_for_alias(types[name]) if name in types else pa.null() for name in names}
    missing = dict.fromkeys(names, False)
    large: set[str] = set()
    rows = 0
    for table in _csv_tables(path, dict.fromkeys(names, pa.string())):
        rows += len(table)
        for name in names:
            if pa.types.is_string(kinds[name]):
                continue
            values = table.column(name)
            present = values.filter(pc.invert(pc.is_in(values, NO_VALUE)))
            missing[name] = missing[name] or len(present) < len(values)
            if name not in types and len(present):
                kind = _csv_type(present)
                if not pa.types.is_string(kind) and _has_large(present):
                    large.add(name)
                joined = join(kinds[name], kind)
                assert joined is not None, "scalars always have a common type"
                kinds[name] = joined
    for name in large:
        # As text, because a float would lose digits.
        if pa.types.is_floating(kinds[name]) and name not in types:
            kinds[name] = pa.string()
    fields = [
        column(name, kind, missing[name] and not pa.types.is_string(kind))
        for name, kind in kinds.items()
    ]
    return pa.schema(fields), rows


def _check_unique(path: Path, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InvalidInput(f"{path} has several columns named {twice!r}; rename all but one")


def _csv_type(values: pa.ChunkedArray) -> pa.DataType:
    """Return the narrowest type that holds these values exactly as they are written."""
    if pc.all(pc.is_in(values, TRUTH_VALUES)).as_py():
        return pa.bool_()
    # Arrow ignores blanks around a number.
    trimmed = pc.ascii_trim_whitespace(values)
    if not pc.all(pc.match_substring_regex(trimmed, NUMBER)).as_py():
        return pa.string()
    # Whole numbers that need more than 64 bits would lose digits: they are codes.
    long = trimmed.filter(pc.match_substring_regex(trimmed, LONG_NUMBER))
    try:
        pc.cast(long, pa.int64())
    except pa.ArrowInvalid:
        return pa.string()
    return (
        pa.int64()
        if pc.all(pc.match_substring_regex(trimmed, WHOLE_NUMBER)).as_py()
        else pa.float64()
    )


def _has_large(values: pa.ChunkedArray) -> bool:
    """Return whether a whole number of at most 64 bits is too large for a float."""
    trimmed = pc.ascii_trim_whitespace(values)
    whole = trimmed.filter(pc.match_substring_regex(trimmed, r"^-?[0-9]{16,}$"))
    return not _fits_floats(pc.cast(whole, pa.int64()))


def _name_csv_column(error: pa.ArrowInvalid, path: Path) -> NoReturn:
    """Raise an error with the column's name, where Arrow has only its number."""
    found = CSV_COLUMN.search(str(error))
    if found is None:
        raise error
    names = next(_csv_tables(path, {})).column_names
    name = names[int(found[1])]
    if "invalid UTF8" in str(error):
        raise InvalidInput(
            f"the column {name!r} of {path} is not UTF-8; convert the file to UTF-8"
        ) from error
    raise InvalidInput(
        f"the column {name!r} of {path} cannot be read: {str(error)[found.end() :]}; read it as "
        f"text, types={{{name!r}: 'string'}}"
    ) from error


class JsonLines(Table):
    rules = JSON

    def read_schema(self, schema: pa.Schema) -> pa.Schema:
        # As JSON until the predictor gets it, because a record has its own keys and a struct has
        # all.
        kinds = [pa.string() if has_mappings(field.type) else field.type for field in schema]
        return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])

    def scan_file(self, path: Path, file: str, types: Mapping[str, str]) -> FileColumns:
        found: dict[str, pa.DataType] = {}
        values: Counter[str] = Counter()
        count = 0
        for rows in _json_rows(path):
            count += len(rows)
            for row in rows:
                for name, value in row.items():
                    # In JSON all types have a common one.
                    found[name] = join(found.get(name, pa.null()), _json_type(value), JSON)
                    values[name] += value is not None
        found |= {name: pa.type_for_alias(kind) for name, kind in types.items() if name in found}
        fields = [column(name, kind, values[name] < count) for name, kind in found.items()]
        return FileColumns(file=file, schema=pa.schema(fields), rows=count)

    def tables(
        self, path: Path, span: Span, batch_size: int, schema: pa.Schema
    ) -> Iterator[pa.Table]:
        for rows in _json_rows(path):
            yield pa.table(
                [_json_column(rows, field, path) for field in schema], names=schema.names
            )


def _json_rows(path: Path) -> Iterator[list[dict[str, Any]]]:
    # Parsed by Python, because Arrow reads texts as times, and whole numbers of more than 64 bits
    # as fractions.
    first = 1
    with gzip.open(path) if is_gzipped(path.name) else path.open("rb") as file:
        while lines := file.readlines(JSON_BLOCK_BYTES):
            rows = []
            for number, line in enumerate(lines, first):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise InvalidInput(
                        f"{path} cannot be read: line {number} is not JSON: {error}"
                    ) from error
                if not isinstance(row, dict):
                    raise InvalidInput(
                        f"{path} cannot be read: line {number} is not a JSON object: {line[:80]!r}"
                    )
                if SURROGATE.search(line):
                    _refuse_lone_surrogate(row, f"line {number} of {path}")
                rows.append(row)
            first += len(lines)
            yield rows


def _refuse_lone_surrogate(row: Mapping[str, Any], where: str) -> None:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        lone = f"\\u{ord(error.object[error.start]):04x}"
        raise InvalidInput(
            f"{where} has {lone}, half of a character that JSON writes as two such codes: it is no "
            "text, and cannot be stored; replace it there by \\ufffd, the sign for a lost "
            "character"
        ) from error


def _json_type(value: Any) -> pa.DataType:
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if -(2**63) <= value < 2**63 else pa.string()
        case float():
            return pa.float64()
        case list():
            inner: pa.DataType | None = pa.null()
            for item in value:
                inner = join(inner, _json_type(item), JSON)
            return pa.list_(inner)
        case dict() if len(value) > MAX_KEYS:
            return map_type(map(_json_type, value.values()), JSON)
        case dict():
            return pa.struct([(name, _json_type(item)) for name, item in value.items()])
        case _:
            return pa.string()


def _json_column(rows: Sequence[Mapping[str, Any]], field: pa.Field, path: Path) -> pa.Array:
    # JSON has no literal for times: they are read as texts, and cast afterwards.
    kind = pa.string() if pa.types.is_temporal(field.type) else field.type
    try:
        return pa.array([_fit_json(row.get(field.name), kind) for row in rows], kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(
            f"the column {field.name!r} of {path} cannot be read as {kind}: {error}; read it as "
            f"text, types={{{field.name!r}: 'string'}}"
        ) from error


def _fit_json(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON for a column of that type.

    A number in a column of texts becomes JSON again.
    """
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if pa.types.is_floating(kind) and isinstance(value, int):
        if abs(value) > MAX_EXACT:
            raise ValueError(f"among fractions {value} would become {float(value):.0f}")
        return float(value)
    if pa.types.is_list(kind):
        return [_fit_json(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _fit_json(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(name, _fit_json(item, kind.item_type)) for name, item in value.items()]
    return value


def _parse_json(values: pa.ChunkedArray) -> list[Any]:
    return [None if text is None else json.loads(text) for text in values.to_pylist()]


class Parquet(Table):
    def split(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        spans = []
        for file in files:
            counts = _row_groups(folder / file)
            start = first = 0
            for group in range(len(counts)):
                # Small groups are joined: some writers make groups of a few rows.
                count = sum(counts[start : group + 1])
                if count >= rows or group == len(counts) - 1:
                    spans.append(
                        Span(
                            files=(file,), start=start, stop=group + 1, first_row=first, rows=count
                        )
                    )
                    start = group + 1
                    first = first + count
        return spans

    def scan_file(self, path: Path, file: str, types: Mapping[str, str]) -> FileColumns:
        """Read only the file's footer, which has types and usually counts missing values."""
        with open_parquet(path) as parquet:
            _check_unique(path, parquet.schema_arrow.names)
            fields = []
            for field in parquet.schema_arrow:
                kind = pa.type_for_alias(types[field.name]) if field.name in types else field.type
                fields.append(
                    column(field.name, kind, field.nullable and _lacks_values(parquet, field))
                )
            return FileColumns(file=file, schema=pa.schema(fields), rows=parquet.metadata.num_rows)

    def tables(
        self, path: Path, span: Span, batch_size: int, schema: pa.Schema
    ) -> Iterator[pa.Table]:
        with open_parquet(path) as file:
            groups = range(span.start, file.num_row_groups if span.stop is None else span.stop)
            for batch in file.iter_batches(batch_size, row_groups=list(groups)):
                yield pa.Table.from_batches([batch])


def _row_groups(path: Path) -> list[int]:
    with open_parquet(path) as file:
        return [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]


def _lacks_values(parquet: pq.ParquetFile, field: pa.Field) -> bool:
    # Other types become objects in NumPy, whether a value is missing or not.
    if not _is_number(plain(field.type)):
        return True
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        chunk = next(
            chunk
            for chunk in map(group.column, range(group.num_columns))
            if chunk.path_in_schema == field.name
        )
        statistics = chunk.statistics
        if statistics is not None and statistics.has_null_count:
            count = statistics.null_count
        else:
            count = parquet.read_row_group(number, columns=[field.name]).column(0).null_count
        if count:
            return True
    return False


def _regroup(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    length = 0
    for table in tables:
        waiting.append(table)
        length += len(table)
        if length >= size:
            whole = pa.concat_tables(waiting)
            for start in range(0, length - size + 1, size):
                yield whole.slice(start, size)
            # The rest begins the next batch: batch sizes must not depend on how a file was written.
            waiting = [whole.slice(length - length % size)]
            length = length % size
    if length:
        yield pa.concat_tables(waiting)


def to_numpy(column: pa.ChunkedArray, nullable: bool) -> NDArray[Any]:
    """Return a column for NumPy: numbers, lists of one length as rows of a matrix, else objects.

    A ``nullable`` column lacks a value in this batch or another one: all batches get the same type.
    """
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    kind = whole.type
    if isinstance(whole, pa.FixedShapeTensorArray):
        return np.array(whole.to_numpy_ndarray())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = set(whole.value_lengths().to_pylist()) if len(whole) else set()
        inner = whole.flatten()
        # Missing lists or numbers do not fit into a matrix.
        if (
            len(lengths) == 1
            and None not in lengths
            and not inner.null_count
            and _is_number(inner.type)
        ):
            return np.array(inner.to_numpy(zero_copy_only=False)).reshape(len(whole), -1)
        return objects(whole.to_pylist())
    if _is_number(kind):
        # A missing number is NaN, as in pandas, and makes whole numbers fractions; a missing truth
        # value is None.
        array = np.array(whole.to_numpy(zero_copy_only=False))
        if not nullable or pa.types.is_floating(kind):
            return array
        # Large whole numbers stay exact, mostly ids that no one computes with.
        if pa.types.is_integer(kind) and not _fits_floats(whole):
            return objects(whole.to_pylist())
        return array.astype(object if pa.types.is_boolean(kind) else np.float64)
    return objects(whole.to_pylist())


def _fits_floats(values: "pa.Array | pa.ChunkedArray") -> bool:
    least, most = pc.min_max(values).as_py().values()
    return most is None or (most <= MAX_EXACT and least >= -MAX_EXACT)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )
