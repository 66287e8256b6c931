"""Read CSV, TSV and Parquet files as streams of rows, in bounded memory."""

import csv
import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysm.core.protocol.names import DATA_FRAME
from raysm.errors import InvalidInput, option
from raysm.features.similarity.cluster.reading.columns import (
    NO_SELECTION,
    Features,
    Selection,
    id_type,
    is_row_index,
    join_ids,
    quote_names,
    stored_id_type,
)
from raysm.instance.work.file_names import is_gzipped
from raysm.instance.work.table_files import find_delimiter, open_csv, unknown_type

BATCH_BYTES = 16 << 20
MAX_COLUMNS = 100_000
"""Most columns of a table: Arrow takes about 4 kB of memory for each of a CSV, and 10 kB for each
of a Parquet file."""

MAX_LINE_CHARACTERS = 16 << 20
"""Most characters of a line: a small compressed file can hold one line of many gigabytes."""

LONG_LINE = "a line is too long to be read; write one row on each line, or save the matrix as .npy"
MIN_COUNTED = 8
"""Fewest rows in which a column that counts by one cannot be a coincidence."""
MAX_LIST = 1 << 24
"""Most numbers in one list of a Parquet file: a small compressed file can hold one list of many
gigabytes."""


@dataclass(frozen=True, slots=True)
class Batch:
    rows: NDArray[Any]
    ids: pa.Array | None
    """ids[n] if id columns were named; a struct if there are several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    rows: int | None
    """Number of rows; None if the whole file would have to be read to count them."""
    columns: int | None
    """Number of columns of the matrix; None if rows would have to be read to count them."""
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    positions: tuple[int, ...]
    features: Features | None
    """The features by name; None for a CSV without a header line."""
    header_lines: int = 0
    """Lines of a CSV's header: several if a quoted name holds a line break, 0 if there is no
    header."""
    ids: pa.DataType | None = None
    texts: tuple[str, ...] = ()
    """Features of a CSV with text in the first row."""

    def ordered(self, expected: Features | None) -> list[int]:
        """Return the positions of the features in the order of another table's.

        Refuse a table with other features.
        """
        order = None if self.features is None or expected is None else self.features.order(expected)
        return list(self.positions) if order is None else [self.positions[at] for at in order]


def describe_table(path: Path, selection: Selection = NO_SELECTION) -> Table:
    """Describe a table from the first line of a CSV, or the metadata of a Parquet file."""
    return (_parquet_table if path.name.lower().endswith(".parquet") else _csv_table)(
        path, selection
    )


def read_table(
    path: Path, selection: Selection = NO_SELECTION, expected: Features | None = None
) -> Iterator[Batch]:
    """Stream the rows of a table; those of CSV and TSV are float64, and their ids text.

    ``expected`` are the features in the order in which the rows have them; None is the file's own
    order.
    """
    return (_read_parquet if path.name.lower().endswith(".parquet") else _read_csv)(
        path, selection, expected
    )


def _id_or_exclude(column: str) -> str:
    return (
        f"; if it names the rows, give {option('id_column', column)}; if it is not a feature, give "
        f"{option('exclude_columns', column)}"
    )


def _refuse_row_index(path: Path, names: Sequence[str]) -> None:
    """Refuse features with names that programs give to row numbers and IDs."""
    found = next((name for name in names if is_row_index(name)), None)
    if found is not None:
        raise _row_index(path, found, "rename it or ")


def _refuse_counting(
    path: Path, table: Table, positions: Sequence[int], rows: NDArray[Any]
) -> None:
    """Refuse a feature whose first rows count by one, as row numbers and IDs do."""
    if len(rows) < MIN_COUNTED or rows.dtype.kind == "b":
        return
    with np.errstate(all="ignore"):
        suspects = np.flatnonzero(rows[-1] - rows[0] == len(rows) - 1)
        for at in suspects.tolist():
            if rows[0, at] % 1 == 0 and np.all(np.diff(rows[:, at]) == 1):
                if not table.header_lines and table.features is None:
                    raise InvalidInput(
                        f"{path.name} has no header line, and its column {at} counts its rows "
                        f"({rows[0, at]:g}, "
                        f"{rows[1, at]:g} …); leave it out (pandas: index=False), or write a "
                        "header line, and choose "
                        f"the features with {option('columns')}"
                    )
                raise _row_index(path, table.names[positions[at]], "")


def _row_index(path: Path, name: str, rename: str) -> InvalidInput:
    how_to_write = (
        "pandas writes no index with to_parquet(…, index=False)"
        if path.name.lower().endswith(".parquet")
        else "pandas writes no index with to_csv(…, index=False), R with write.csv(…, row.names = "
        "FALSE)"
    )
    return InvalidInput(
        f"{path.name}: the column {name!r} looks like a row index or an ID, not like a "
        f"feature{_id_or_exclude(name)}; "
        f"if it is a feature, {rename}list all features with {option('columns')}. {how_to_write}"
    )


def _too_many_columns(path: Path) -> InvalidInput:
    return InvalidInput(
        f"{path.name} has more than {MAX_COLUMNS:,} columns; save the matrix as .npy, or as "
        "Parquet with one list"
    )


def _choose_features(
    names: Sequence[str], selection: Selection, index: Sequence[str]
) -> tuple[int, ...]:
    """Return the positions of the features: named columns, or all but ids and excluded ones."""
    if selection.columns is not None:
        chosen = set(selection.columns)
        return tuple(i for i, name in enumerate(names) if name in chosen)
    others = {*selection.ids, *selection.exclude, *index}
    return tuple(i for i, name in enumerate(names) if name not in others)


def _check_nulls(
    file: str,
    columns: Iterable[tuple[str, pa.Array]],
    ids: Sequence[str],
    done: int,
    header_lines: int | None = None,
) -> None:
    """Refuse missing values, and name every column of this batch that has some.

    A CSV counts lines, as Arrow does.
    """
    # Pairs, because two columns may have the same name.
    missing = [(name, column) for name, column in columns if column.null_count]
    for name, column in missing:
        row = done + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        place = (
            f"row {row} (counted from 0)"
            if header_lines is None
            else f"line {header_lines + row + 1}"
        )
        where = f"{place}: the value is missing"
        if not done and column.null_count == len(column) > 1:
            where = f"none of the first {len(column):,} rows has a value"
        others = [other for other, _ in missing[1:]]
        more = f"; values are missing in {quote_names(others)} too" if others else ""
        remedy = "fill it, or leave out the row" if name in ids else _fill(name)
        raise InvalidInput(f"{file}: column {name!r}, {where}; {remedy}{more}")


def _fill(column: str) -> str:
    return f"fill it, or leave out the row, or the column with {option('exclude_columns', column)}"


# ---- CSV and TSV
# ------------------------------------------------------------------------------------------------


def _delimiter_hint(path: Path, names: Sequence[str]) -> str:
    # Programs in other languages write semicolons: then the whole line is one column.
    return (
        f"; one column was found: its delimiter must be {find_delimiter(path.name)!r}"
        if len(names) == 1
        else ""
    )


def _lines(path: Path, stream: TextIO) -> Iterator[str]:
    while line := stream.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise InvalidInput(f"{path.name}: {LONG_LINE}")
        yield line


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_table(path: Path, selection: Selection) -> Table:
    """Read the first line of a CSV or TSV: it is a header unless all its fields are numbers.

    A first line of exactly 0,1,…,D-1, D > 1, is a header too: pandas' ``to_csv(index=False)`` of an
    array writes it.
    """
    opened = gzip.open if is_gzipped(path.name) else open
    try:
        # utf-8-sig drops a byte order mark, which would become part of the first name.
        with cast(TextIO, opened(path, "rt", encoding="utf-8-sig", newline="")) as stream:
            records = csv.reader(_lines(path, stream), delimiter=find_delimiter(path.name))
            first = next(records, [])
            lines = records.line_num
            row = next(records, [])
    # gzip raises EOFError for a truncated file.
    except (UnicodeDecodeError, EOFError, OSError, csv.Error) as error:
        raise InvalidInput(f"{path.name} cannot be read as CSV: {error}") from error
    if not first:
        raise InvalidInput(
            f"{path.name} has an empty first line; a CSV has one row of numbers on each line"
        )
    if len(first) > MAX_COLUMNS:
        raise _too_many_columns(path)
    start = first[0][:18]
    counts = start.isdecimal() and first == [str(int(start) + i) for i in range(len(first))]
    counted = len(first) > 1 and counts and first[0] == "0"
    has_header = counted or not all(map(_is_number, first))
    if not has_header and len(first) > 2 and counts:
        raise InvalidInput(
            f"{path.name}: the first line, {', '.join(first[:3])} …, may be a header or a row; "
            "write a header line of "
            "names, or save the matrix as .npy"
        )
    names = (
        tuple(name.strip() for name in first)
        if has_header
        else tuple(f"column {i}" for i in range(len(first)))
    )
    if selection.named and not has_header:
        raise InvalidInput(
            f"{path.name} has no header line, so no column {selection.named[0]!r}; write a header "
            "line, or drop "
            f"{option(selection.option, selection.named[0])}"
        )
    selection.check(path.name, names, _delimiter_hint(path, names))
    positions = _choose_features(names, selection, index=())
    if not positions:
        raise InvalidInput(
            f"{path.name} has no feature columns; its columns are {quote_names(names)}"
        )
    chosen = tuple(names[i] for i in positions)
    if has_header and selection.columns is None:
        _refuse_row_index(path, chosen)
    used = {*chosen, *selection.ids}
    left_out = tuple(name for name in names if name not in used)
    return Table(
        rows=None,
        columns=len(positions),
        names=names,
        dtype=np.dtype(np.float64),
        positions=positions,
        # A header of mere numbers gives the columns no names.
        features=Features(path.name, chosen, left_out=left_out)
        if has_header and not counted
        else None,
        header_lines=lines if has_header else 0,
        ids=id_type({name: pa.large_string() for name in selection.ids}),
        texts=tuple(
            names[i]
            for i in positions
            if has_header and row[i:] and row[i] and not _is_number(row[i])
        ),
    )


def _read_csv(path: Path, selection: Selection, expected: Features | None) -> Iterator[Batch]:
    table = _csv_table(path, selection)
    positions = table.ordered(expected)
    ids = [table.names.index(name) for name in selection.ids]
    # Rename the columns to their numbers: column_types uses names, and two columns may have the
    # same one.
    names = [str(i) for i in range(len(table.names))]
    # Ids are text, which keeps leading zeros.
    types = {names[i]: pa.float64() for i in positions} | {names[i]: pa.string() for i in ids}
    used = sorted({*positions, *ids})
    done = 0
    try:
        reader = open_csv(
            path,
            # The longest line must fit into a block; a number takes up to 25 characters.
            block_bytes=max(4 << 20, 64 * len(names)),
            column_names=names,
            skip_lines=table.header_lines,
            # Arrow's default list of missing values has NaN, NA and null, but NaN is a number, and
            # all may be ids.
            convert=pyarrow.csv.ConvertOptions(
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
            columns = [(table.names[i], batch.column(at[i])) for i in used]
            _check_nulls(path.name, columns, selection.ids, done, table.header_lines)
            rows = np.empty((batch.num_rows, len(positions)))
            for target, i in enumerate(positions):
                # Not to_numpy, which imports pandas if it is installed: 0.3 s of a core in every
                # process that reads.
                rows[:, target] = np.from_dlpack(batch.column(at[i]))
            if not done and selection.columns is None:
                _refuse_counting(path, table, positions, rows)
            yield Batch(rows, join_ids({table.names[i]: batch.column(at[i]) for i in ids}))
            done += batch.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise _csv_error(path, table, str(error)) from error


MISSING_TEXTS = frozenset(
    ("-", "--", ".", "?", "n.a.", "n/a", "na", "none", "null", "missing", "unknown")
)
"""Texts, in lower case, that often stand for a missing value."""


def _csv_error(path: Path, table: Table, reason: str) -> InvalidInput:
    """Make Arrow's message, which says "Row #" of lines, name the column."""
    if "straddling object" in reason:
        return InvalidInput(f"{path.name}: {LONG_LINE}")
    remedy = _delimiter_hint(path, table.names)
    if found := re.match(r"In CSV column #(\d+): ", reason):
        name = table.names[int(found[1])]
        reason = re.sub(
            r"Row #(\d+): CSV conversion .*invalid value", r"not a number in line \1:", reason
        )
        reason = f"column {name!r}: {reason[found.end() :]}"
        if reason.rpartition(": ")[2].strip("'").lower() in MISSING_TEXTS:
            remedy = remedy or f"; if the value is missing, {_fill(name)}"
        remedy = remedy or (_id_or_exclude(name) if table.header_lines else "")
        if others := [other for other in table.texts if other != name]:
            remedy += f"; not numbers either: {quote_names(others)}"
    return InvalidInput(f"{path.name}: {reason}{remedy}")


# ---- Parquet
# -------------------------------------------------------------------------------------------------


def _parquet_table(path: Path, selection: Selection) -> Table:
    """Read a Parquet file's metadata.

    The features are numeric columns, or one column of lists or tensors of numbers. Both together
    are features only if ``selection`` names them. The columns in which pandas keeps a frame's index
    are not features.
    """
    try:
        # The limit applies to every list in the metadata, including the list of columns.
        with pq.ParquetFile(path, thrift_container_size_limit=MAX_COLUMNS + 1) as file:
            schema = file.schema_arrow
            metadata = file.metadata
    except pa.ArrowNotImplementedError as error:
        raise unknown_type(path.name, error) from error
    except (pa.ArrowException, OSError) as error:
        if "Exceeded size limit" in str(error):
            raise _too_many_columns(path) from error
        raise InvalidInput(
            f"{path.name} is not a complete Parquet file ({error}); write it again"
        ) from error
    names = tuple(schema.names)
    selection.check(path.name, names)
    id_types = {
        name: stored_id_type(path.name, name, schema.field(name).type) for name in selection.ids
    }
    index = _pandas_index(schema)
    positions = _choose_features(names, selection, index)
    if not positions:
        raise InvalidInput(
            f"{path.name} has no feature columns; its columns are {quote_names(names)}"
        )
    fields = [schema.field(i) for i in positions]
    kinds = pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean
    texts = [
        field for field in fields if not any(is_kind(_element(field.type)) for is_kind in kinds)
    ]
    if texts:
        name = texts[0].name
        others = [field.name for field in texts[1:]]
        more = f"; not numbers either: {quote_names(others)}" if others else ""
        raise InvalidInput(
            f"{path.name}: column {name!r} holds {texts[0].type}, not "
            f"numbers{_id_or_exclude(name)}{more}"
        )
    lists = [field for field in fields if _is_list(field.type)]
    if len(lists) > 1 or (lists and len(fields) > 1 and selection.columns is None):
        name = lists[0].name
        others = [field.name for field in fields if field is not lists[0]]
        raise InvalidInput(
            f"{path.name} has the list column {name!r} and also {quote_names(others)}; choose the "
            "features: "
            f"{option('columns', name)} takes the list alone, with names of columns of numbers "
            "those too"
        )
    if selection.columns is None and not lists:
        _refuse_row_index(path, [field.name for field in fields])
    used = {*(field.name for field in fields), *selection.ids}
    return Table(
        rows=metadata.num_rows,
        columns=_width(path, lists[0], metadata, len(fields) - 1) if lists else len(fields),
        names=names,
        dtype=np.result_type(*(_element(field.type).to_pandas_dtype() for field in fields)),
        positions=positions,
        features=Features(
            path.name,
            tuple(field.name for field in fields),
            list_column=lists[0].name if lists else None,
            left_out=tuple(name for name in names if name not in used),
        ),
        ids=id_type(id_types),
    )


def _pandas_index(schema: pa.Schema) -> tuple[str, ...]:
    try:
        index = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(name for name in index if isinstance(name, str) and name in schema.names)


def _storage(kind: pa.DataType) -> pa.DataType:
    # Ray's tensors are an extension type in processes that have imported Ray Data, and plain lists
    # in others.
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: pa.DataType) -> bool:
    kind = _storage(kind)
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _element(kind: pa.DataType) -> pa.DataType:
    return _storage(kind).value_type if _is_list(kind) else kind


def _width(path: Path, field: pa.Field, metadata: Any, scalars: int) -> int | None:
    """Return the columns of a matrix with a list column.

    Return None if the lists must be read to know their length.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = (group.column(i) for i in range(group.num_columns))
        values = sum(
            chunk.num_values
            for chunk in chunks
            if chunk.path_in_schema.startswith(f"{field.name}.")
        )
        # Lists of equal length have a whole number of values for each row. If few values differ,
        # reading names the row.
        if values > MAX_LIST * max(1, group.num_rows) or (
            values > MAX_LIST and values % group.num_rows
        ):
            raise InvalidInput(
                f"{path.name}: column {field.name!r} holds {values:,} numbers in "
                f"{group.num_rows:,} lists; each list "
                f"is one row of the matrix, all of one length, at most {MAX_LIST:,}"
            )
    size = getattr(_storage(field.type), "list_size", None)
    return None if size is None else size + scalars


def _read_parquet(path: Path, selection: Selection, expected: Features | None) -> Iterator[Batch]:
    table = _parquet_table(path, selection)
    positions = table.ordered(expected)
    ids = [table.names.index(name) for name in selection.ids]
    used = sorted({*positions, *ids})
    # Arrow takes names for paths, in which a dot separates levels. So if a name has a dot, read all
    # columns.
    some = (
        None
        if len(used) == len(table.names) or any("." in n for n in table.names)
        else [*dict.fromkeys(table.names[i] for i in used)]
    )
    at = {position: i for i, position in enumerate(used if some else range(len(table.names)))}
    done = 0
    length = None
    try:
        # Without pre_buffer, because Arrow keeps all that it reads ahead in memory.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            frame = (file.schema_arrow.metadata or {}).get(DATA_FRAME.encode(), b"").decode()
            shown = f"the data frame {frame!r}" if frame else path.name
            for batch in file.iter_batches(
                batch_size=_batch_rows(table, file.metadata), columns=some, use_threads=False
            ):
                if not batch.num_rows:
                    continue
                columns = {i: batch.column(at[i]) for i in (*positions, *ids)}
                _check_nulls(
                    shown,
                    ((table.names[i], column) for i, column in columns.items()),
                    selection.ids,
                    done,
                )
                pieces = []
                for i in positions:
                    name = table.names[i]
                    column = columns[i]
                    if _is_list(column.type):
                        piece = _list_rows(shown, name, column, done, length)
                        length = piece.shape[1]
                    else:
                        # Booleans are single bits in Arrow, so they need a copy.
                        piece = column.to_numpy(zero_copy_only=False)
                    pieces.append(piece)
                rows = _join_pieces(pieces, table.dtype)
                if not (done or length) and selection.columns is None:
                    _refuse_counting(path, table, positions, rows)
                yield Batch(rows, join_ids({table.names[i]: columns[i] for i in ids}))
                done += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path.name} cannot be read as Parquet: {error}") from error


def _batch_rows(table: Table, metadata: Any) -> int:
    width = table.columns
    if width is None:
        # Without a fixed length, estimate it from the number of stored values.
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        values = max(
            (group.column(i).num_values for group in groups for i in range(group.num_columns)),
            default=0,
        )
        width = max(1024, values // max(1, min((group.num_rows for group in groups), default=1)))
    return max(1, min(65536, BATCH_BYTES // (8 * width)))


def _join_pieces(pieces: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    if len(pieces) == 1 and pieces[0].ndim == 2:
        return pieces[0]
    widths = [1 if piece.ndim == 1 else piece.shape[1] for piece in pieces]
    rows = np.empty((len(pieces[0]), sum(widths)), dtype=dtype)
    start = 0
    for piece, width in zip(pieces, widths, strict=True):
        rows[:, start if piece.ndim == 1 else slice(start, start + width)] = piece
        start += width
    return rows


def _list_rows(file: str, name: str, column: Any, done: int, expected: int | None) -> NDArray[Any]:
    tensor = column.type if isinstance(column, pa.FixedShapeTensorArray) else None
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.full(len(column), column.type.list_size)
    else:
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    length = int(lengths[0]) if expected is None else expected
    if length == 0:
        raise InvalidInput(f"{file}: column {name!r}, row {done}: the list is empty")
    wrong = np.flatnonzero(lengths != length)
    if len(wrong):
        raise InvalidInput(
            f"{file}: column {name!r}, row {done + int(wrong[0])}: {int(lengths[wrong[0]])} "
            f"numbers, not {length}"
        )
    # Not column.values, which also has the lists outside this batch.
    values = column.flatten()
    if values.null_count:
        at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidInput(
            f"{file}: column {name!r}, row {done + at // length}: a number in the list is missing"
        )
    rows = cast(NDArray[Any], values.to_numpy(zero_copy_only=False))
    if tensor is not None and tensor.permutation:
        # The dimensions are stored in another order.
        rows = rows.reshape(-1, *tensor.shape).transpose(0, *(1 + at for at in tensor.permutation))
    return rows.reshape(-1, length)
