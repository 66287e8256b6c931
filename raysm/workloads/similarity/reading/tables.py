"""Read CSV, TSV and Parquet files as streams of rows, in bounded memory."""

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
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
from raysm.workloads.similarity.reading.columns import NO_SELECTION, Features, Selection, is_row_index, listed

BATCH_BYTES = 16 << 20
"""Size of one batch of a Parquet file."""

DELIMITERS = (";", "\t", "|", ",")
"""Delimiters that programs write between fields."""

MAX_COLUMNS = 100_000
"""Most columns of a table: Arrow takes about 4 kB of memory for each of a CSV, and 10 kB for each of a Parquet file."""

MAX_LINE_CHARACTERS = 16 << 20
"""Most characters of a line: a small compressed file can hold one line of many gigabytes."""

MAX_LIST = 1 << 24
"""Most numbers in one list of a Parquet file: a small compressed file can hold one list of many gigabytes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive rows."""

    rows: NDArray[Any]
    ids: pa.Array | None
    """ids[n] if id columns were named; a struct if there are several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The description of a table, from its beginning or its metadata."""

    rows: int | None
    """Number of rows; None if the whole file would have to be read to count them."""
    columns: int | None
    """Number of columns of the matrix; None if rows would have to be read to count them."""
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    positions: tuple[int, ...]
    """Indices of the features in ``names``."""
    features: Features | None
    """The features by name; None for a CSV without a header line."""
    header_lines: int = 0
    """Lines of a CSV's header: several if a quoted name holds a line break, 0 if there is no header."""
    ids: pa.DataType | None = None
    """Type of the ids, as ``ids.converted_type`` returns it; a struct if several columns name the rows."""

    @property
    def list_column(self) -> str | None:
        return None if self.features is None else self.features.list_column

    def ordered(self, expected: Features | None) -> list[int]:
        """Return the positions of the features in the order of another table's; refuse a table with other features."""
        order = None if self.features is None or expected is None else self.features.order(expected)
        return list(self.positions) if order is None else [self.positions[at] for at in order]


def describe_table(path: Path, selection: Selection = NO_SELECTION) -> Table:
    """Describe a table from the first line of a CSV or TSV, or from the metadata of a Parquet file."""
    return (_parquet_table if path.name.lower().endswith(".parquet") else _csv_table)(path, selection)


def read_table(path: Path, selection: Selection = NO_SELECTION, expected: Features | None = None) -> Iterator[Batch]:
    """Stream the rows of a table; those of CSV and TSV are float64, and their ids text.

    ``expected`` are the features in the order in which the rows have them; None is the file's own order.
    """
    return (_read_parquet if path.name.lower().endswith(".parquet") else _read_csv)(path, selection, expected)


def _id_or_exclude(column: str) -> str:
    return (
        f"; if it names the rows, give {option('id_column', column)}; if it is not a feature, give "
        f"{option('exclude_columns', column)}"
    )


def _refuse_row_index(path: Path, names: Sequence[str], how_to_write: str) -> None:
    """Refuse features with names that programs give to row numbers, which would silently pass for data."""
    found = next((name for name in names if is_row_index(name)), None)
    if found is not None:
        raise InvalidInput(
            f"{path.name}: the column {found!r} looks like a row index, not like a feature{_id_or_exclude(found)}; if "
            f"it is a feature, rename it or list all features with {option('columns')}. {how_to_write}"
        )


def _too_many_columns(path: Path, count: str) -> InvalidInput:
    return InvalidInput(
        f"{path.name} has {count} columns; a table may have at most {MAX_COLUMNS:,}: save the matrix as .npy, or as "
        "Parquet with one list column"
    )


def _other_delimiter(path: Path, names: Sequence[str], text: str) -> str:
    """Return a hint if a table of one column has another program's delimiter in this text."""
    delimiter = next((one for one in DELIMITERS if one in text and one != _delimiter(path)), None)
    if delimiter is None or len(names) > 1:
        return ""
    remedies = {",": "Rename the file to .csv", "\t": "Rename the file to .tsv"}
    rewrite = f"Write commas instead: pandas.read_csv(…, sep={delimiter!r}).to_csv(…, index=False)"
    return (
        f"; one column was found, and its fields hold {delimiter!r}: is that the delimiter? "
        f"{remedies.get(delimiter, rewrite)}"
    )


# ---- CSV and TSV ------------------------------------------------------------------------------------------------


def _is_compressed(path: Path) -> bool:
    # By the lower-case name, as ``files.suffix`` compares it.
    return path.name.lower().endswith(".gz")


def _delimiter(path: Path) -> str:
    return "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","


def _text(path: Path) -> TextIO:
    # utf-8-sig drops a byte order mark, which would become part of the first name.
    if _is_compressed(path):
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return path.open(encoding="utf-8-sig", newline="")


def _lines(path: Path, stream: TextIO) -> Iterator[str]:
    number = 0
    while line := stream.readline(MAX_LINE_CHARACTERS + 1):
        number += 1
        if len(line) > MAX_LINE_CHARACTERS:
            raise InvalidInput(
                f"{path.name}: line {number} has more than {MAX_LINE_CHARACTERS:,} characters; write one row on each "
                "line, or save the matrix as .npy"
            )
        yield line


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_table(path: Path, selection: Selection) -> Table:
    """Read the first line of a CSV or TSV: it is a header unless all its fields are numbers.

    A first line of exactly 0,1,…,D-1, D > 1, is a header too: pandas' ``to_csv(index=False)`` of an array writes it.
    """
    try:
        with _text(path) as stream:
            records = csv.reader(_lines(path, stream), delimiter=_delimiter(path))
            first = next(records, [])
            lines = records.line_num
    # gzip raises EOFError for a truncated file.
    except (UnicodeDecodeError, EOFError, OSError, csv.Error) as error:
        raise InvalidInput(f"{path.name} cannot be read as CSV: {error}") from error
    if not first:
        raise InvalidInput(f"{path.name} has an empty first line; a CSV has one row of numbers on each line")
    if len(first) > MAX_COLUMNS:
        raise _too_many_columns(path, f"{len(first):,}")
    counted = len(first) > 1 and first == [str(i) for i in range(len(first))]
    has_header = counted or not all(map(_is_number, first))
    names = tuple(name.strip() for name in first) if has_header else tuple(f"column {i}" for i in range(len(first)))
    if selection.named and not has_header:
        raise InvalidInput(
            f"{path.name} has no header line, so no column {selection.named[0]!r}; write a header line, or drop "
            f"{option(selection.option, selection.named[0])}"
        )
    selection.check(path.name, names, _other_delimiter(path, names, names[0]))
    positions = _chosen(names, selection, index=())
    if not positions:
        raise InvalidInput(f"{path.name} has no feature columns; its columns are {listed(names)}")
    chosen = tuple(names[i] for i in positions)
    if has_header and selection.columns is None:
        _refuse_row_index(
            path, chosen, "pandas writes no index with to_csv(…, index=False), R with write.csv(…, row.names = FALSE)"
        )
    used = {*chosen, *selection.ids}
    left_out = tuple(name for name in names if name not in used)
    return Table(
        rows=None,
        columns=len(positions),
        names=names,
        dtype=np.dtype(np.float64),
        positions=positions,
        # A header of mere numbers gives the columns no names.
        features=Features(path.name, chosen, left_out=left_out) if has_header and not counted else None,
        header_lines=lines if has_header else 0,
        ids=row_ids.joined_type({name: pa.large_string() for name in selection.ids}),
    )


def _chosen(names: Sequence[str], selection: Selection, index: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the features: the named columns, or all but ids, excluded ones and pandas' ``index``."""
    if selection.columns is not None:
        chosen = set(selection.columns)
        return tuple(i for i, name in enumerate(names) if name in chosen)
    others = {*selection.ids, *selection.exclude, *index}
    return tuple(i for i, name in enumerate(names) if name not in others)


def _read_csv(path: Path, selection: Selection, expected: Features | None) -> Iterator[Batch]:
    table = _csv_table(path, selection)
    positions = table.ordered(expected)
    ids = [table.names.index(name) for name in selection.ids]
    # Rename the columns to their numbers: column_types uses names, and two columns may have the same one.
    names = [str(i) for i in range(len(table.names))]
    # Ids are text, which keeps leading zeros.
    types = {names[i]: pa.float64() for i in positions} | {names[i]: pa.string() for i in ids}
    used = sorted({*positions, *ids})
    try:
        reader = pyarrow.csv.open_csv(
            pa.input_stream(str(path), compression="gzip" if _is_compressed(path) else None),
            read_options=pyarrow.csv.ReadOptions(
                # The longest line must fit into a block; a number takes up to 25 characters.
                block_size=max(4 << 20, 64 * len(names)),
                column_names=names,
                skip_rows=table.header_lines,
                use_threads=False,
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=_delimiter(path)),
            # Arrow's default list of missing values has NaN, NA and null, but NaN is a number, and all may be ids.
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                check_utf8=True,
                include_columns=[names[i] for i in used],
            ),
        )
        at = {position: i for i, position in enumerate(used)}
        for batch in reader:
            if not batch.num_rows:
                continue
            if any(batch.column(i).null_count for i in range(batch.num_columns)):
                raise _csv_error(path, table, selection) or InvalidInput(f"{path.name} has an empty field")
            rows = np.empty((batch.num_rows, len(positions)))
            for target, i in enumerate(positions):
                # Not to_numpy, which imports pandas if it is installed: 0.3 s of a core in every process that reads.
                rows[:, target] = np.from_dlpack(batch.column(at[i]))
            yield Batch(rows, row_ids.joined({table.names[i]: batch.column(at[i]) for i in ids}))
    except (pa.ArrowInvalid, OSError) as error:
        # Fall back to Arrow's message if Python's reader finds nothing wrong.
        raise _csv_error(path, table, selection) or InvalidInput(
            f"{path.name} cannot be read as CSV: {error}"
        ) from error


def _csv_error(path: Path, table: Table, selection: Selection) -> InvalidInput | None:
    """Read the file again, slowly, to locate the error; None if this finds none."""
    features, ids = set(table.positions), {table.names.index(name) for name in selection.ids}
    try:
        with _text(path) as stream:
            lines = csv.reader(_lines(path, stream), delimiter=_delimiter(path))
            if table.header_lines:
                next(lines)
            for row, fields in enumerate(line for line in lines if line):
                # Rows count from 0, without the header; the line number is for editors.
                at = f"row {row}, line {lines.line_num}"
                if len(fields) != len(table.names):
                    hint = _other_delimiter(path, table.names, table.names[0])
                    if not hint and table.header_lines and len(fields) == len(table.names) + 1:
                        hint = "; R's write.table writes row names without a name: give it row.names = FALSE"
                    return InvalidInput(
                        f"{path.name}: {at}, has {len(fields)} fields, the first line has {len(table.names)}{hint}"
                    )
                for i, field in enumerate(fields):
                    # Python takes 1_000 for a number, Arrow does not.
                    wrong = i in features and not (_is_number(field) and "_" not in field)
                    if not wrong and (field or i not in ids):
                        continue
                    what = f"{field!r} is not a number" if field else "the field is empty"
                    remedy = _other_delimiter(path, table.names, field)
                    if field and not remedy and table.header_lines:
                        remedy = _id_or_exclude(table.names[i])
                    return InvalidInput(f"{path.name}: column {table.names[i]!r}, {at}: {what}{remedy}")
    except InvalidInput as error:
        return error
    except (csv.Error, ValueError, EOFError, OSError):
        return None
    return None


# ---- Parquet ----------------------------------------------------------------------------------------------------


def _parquet_table(path: Path, selection: Selection) -> Table:
    """Read a Parquet file's metadata.

    The features are numeric columns, or one column of lists or tensors of numbers. Both together are features only if
    ``selection`` names them. The columns in which pandas keeps a frame's index are not features.
    """
    try:
        # The limit applies to every list in the metadata, including the list of columns.
        with pq.ParquetFile(path, thrift_container_size_limit=MAX_COLUMNS + 1) as file:
            schema, metadata = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError) as error:
        if "Exceeded size limit" in str(error):
            raise _too_many_columns(path, f"more than {MAX_COLUMNS:,}") from error
        raise InvalidInput(f"{path.name} is not a complete Parquet file ({error}); write it again") from error
    names = tuple(schema.names)
    selection.check(path.name, names)
    id_types = {}
    for name in selection.ids:
        id_types[name] = row_ids.converted_type(path.name, name, schema.field(name).type)
        row_ids.check_missing(path.name, name, metadata)
    index = _pandas_index(schema)
    positions = _chosen(names, selection, index)
    if not positions:
        without = f" without the pandas index {listed(index)}" if index else ""
        raise InvalidInput(f"{path.name} has no feature columns{without}; its columns are {listed(names)}")
    fields = [schema.field(i) for i in positions]
    _check_types(path, fields)
    lists = [field for field in fields if _is_list(field.type)]
    scalars = [field.name for field in fields if not _is_list(field.type)]
    if len(lists) > 1:
        raise InvalidInput(
            f"{path.name} has several columns of lists: {listed(field.name for field in lists)}; choose one of them: "
            f"{option('columns', lists[0].name)}"
        )
    if selection.columns is None:
        if lists and scalars:
            raise InvalidInput(
                f"{path.name} has the list column {lists[0].name!r} and also {listed(scalars)}; choose the "
                f"features: {option('columns', lists[0].name)} takes the list alone, with other names those columns too"
            )
        _refuse_row_index(path, scalars, "pandas writes no index with to_parquet(…, index=False)")
    used = {*(field.name for field in fields), *selection.ids}
    kinds = [np.dtype(_element(field.type).to_pandas_dtype()) for field in fields]
    return Table(
        rows=metadata.num_rows,
        columns=_width(path, lists[0], metadata, len(scalars)) if lists else len(fields),
        names=names,
        dtype=np.result_type(*kinds),
        positions=positions,
        features=Features(
            path.name,
            tuple(field.name for field in fields),
            list_column=lists[0].name if lists else None,
            left_out=tuple(name for name in names if name not in used),
        ),
        ids=row_ids.joined_type(id_types),
    )


def _pandas_index(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns in which pandas keeps a frame's index; a RangeIndex takes none."""
    try:
        index = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(name for name in index if isinstance(name, str) and name in schema.names)


def _storage(kind: pa.DataType) -> pa.DataType:
    # Ray's tensors are an extension type in processes that have imported Ray Data, and plain lists in others.
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: pa.DataType) -> bool:
    kind = _storage(kind)
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _element(kind: pa.DataType) -> pa.DataType:
    return _storage(kind).value_type if _is_list(kind) else kind


def _check_types(path: Path, fields: Sequence[pa.Field]) -> None:
    def is_numeric(kind: pa.DataType) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))

    wrong = [field for field in fields if not is_numeric(_element(field.type))]
    if not wrong:
        return
    first, others = wrong[0], [field.name for field in wrong[1:]]
    more = f" (nor do {listed(others)})" if others else ""
    if pa.types.is_nested(_storage(first.type)):
        remedy = f"; leave it out with {option('exclude_columns', first.name)}"
    else:
        remedy = _id_or_exclude(first.name)
    raise InvalidInput(f"{path.name}: column {first.name!r} holds {first.type}, not numbers{more}{remedy}")


def _width(path: Path, field: pa.Field, metadata: Any, scalars: int) -> int | None:
    """Return the columns of a matrix with a list column; None if the lists must be read to know their length."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = (group.column(i) for i in range(group.num_columns))
        values = sum(chunk.num_values for chunk in chunks if chunk.path_in_schema.startswith(f"{field.name}."))
        longest = values / max(1, group.num_rows)
        # Lists of equal length have a whole number of values for each row. If few values differ, reading names the row.
        if longest > MAX_LIST or (values > MAX_LIST and values % group.num_rows):
            what = f"lists of about {longest:,.0f} numbers" if longest > MAX_LIST else "lists of different lengths"
            raise InvalidInput(
                f"{path.name}: column {field.name!r} holds {what}; each list is one row of the matrix, all of one "
                f"length, at most {MAX_LIST:,}"
            )
    size = getattr(_storage(field.type), "list_size", None)
    return None if size is None else size + scalars


def _read_parquet(path: Path, selection: Selection, expected: Features | None) -> Iterator[Batch]:
    table = _parquet_table(path, selection)
    positions = table.ordered(expected)
    ids = [table.names.index(name) for name in selection.ids]
    used = sorted({*positions, *ids})
    # Arrow takes names for paths, in which a dot separates levels. So if a name has a dot, read all columns.
    some = (
        None
        if len(used) == len(table.names) or any("." in n for n in table.names)
        else [*dict.fromkeys(table.names[i] for i in used)]
    )
    at = {position: i for i, position in enumerate(used if some else range(len(table.names)))}
    done, length = 0, None
    try:
        # Without pre_buffer, because Arrow keeps all that it reads ahead in memory.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(
                batch_size=_batch_rows(table, file.metadata), columns=some, use_threads=False
            ):
                if not batch.num_rows:
                    continue
                columns = {i: batch.column(at[i]) for i in (*positions, *ids)}
                for i, column in columns.items():
                    _check_nulls(path, table.names[i], column, done)
                pieces = []
                for i in positions:
                    name, column = table.names[i], columns[i]
                    if name == table.list_column:
                        piece = _list_rows(path, name, column, done, length)
                        length = piece.shape[1]
                    else:
                        # Booleans are single bits in Arrow, so they need a copy.
                        piece = column.to_numpy(zero_copy_only=False)
                    pieces.append(piece)
                yield Batch(_joined(pieces, table.dtype), row_ids.joined({table.names[i]: columns[i] for i in ids}))
                done += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path.name} cannot be read as Parquet: {error}") from error


def _batch_rows(table: Table, metadata: Any) -> int:
    """Return the number of rows in a batch of ``BATCH_BYTES``."""
    width = table.columns
    if width is None:
        # Without a fixed length, estimate it from the number of stored values.
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        values = max((group.column(i).num_values for group in groups for i in range(group.num_columns)), default=0)
        width = max(1024, values // max(1, min((group.num_rows for group in groups), default=1)))
    return max(1, min(65536, BATCH_BYTES // (8 * width)))


def _joined(pieces: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the rows of features[n] and lists[n, length] side by side."""
    if len(pieces) == 1 and pieces[0].ndim == 2:
        return pieces[0]
    widths = [1 if piece.ndim == 1 else piece.shape[1] for piece in pieces]
    rows = np.empty((len(pieces[0]), sum(widths)), dtype=dtype)
    start = 0
    for piece, width in zip(pieces, widths, strict=True):
        rows[:, start if piece.ndim == 1 else slice(start, start + width)] = piece
        start += width
    return rows


def _check_nulls(path: Path, name: str, column: pa.Array, done: int) -> None:
    if column.null_count:
        row = done + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidInput(f"{path.name}: column {name!r}, row {row}: the value is missing")


def _list_rows(path: Path, name: str, column: Any, done: int, expected: int | None) -> NDArray[Any]:
    tensor = column.type if isinstance(column, pa.FixedShapeTensorArray) else None
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
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
    # Not column.values, which also has the lists outside this batch.
    values = column.flatten()
    if values.null_count:
        at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidInput(f"{path.name}: column {name!r}, row {done + at // length}: a number in the list is missing")
    rows = cast(NDArray[Any], values.to_numpy(zero_copy_only=False))
    if tensor is not None and tensor.permutation:
        # The dimensions are stored in another order.
        rows = rows.reshape(-1, *tensor.shape).transpose(0, *(1 + at for at in tensor.permutation))
    return rows.reshape(-1, length)
