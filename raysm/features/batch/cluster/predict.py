"""Predict one piece in a worker process by the user's predictor.

Write its values as a Parquet file. The bytes of a part depend on the piece and the predictor alone.
"""

import functools
import inspect
import io
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raysm.core.protocol.payload import FUNCTION
from raysm.core.protocol.tensors import as_numpy, is_tensor
from raysm.errors import InvalidRequest
from raysm.features.batch.cluster.columns import (
    MAX_KEYS,
    InputColumns,
    fit,
    fit_table,
    storable,
    widen,
)
from raysm.features.batch.cluster.formats import Columns, make_reader
from raysm.features.batch.cluster.pieces import Piece
from raysm.features.batch.cluster.tables import TableColumns
from raysm.features.batch.request import BatchInference
from raysm.instance import environment
from raysm.instance.work.failure import unpickled
from raysm.instance.work.forks import ending_forks
from raysm.instance.work.record import Buffers

T = TypeVar("T")

SHOWN_CHARACTERS = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    workload: BatchInference
    channel: str
    format: str
    threads: int
    columns: InputColumns | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    rows: int
    """0 for a file without records, which becomes no file."""
    schema: pa.Schema | None
    """Names and types of its columns; None without rows. A column without a value has the type
    null."""
    content: bytes


PART_FORMAT = "arrow"
LENGTHS = struct.Struct("<QQ")
"""Before an encoded part: its rows, and the bytes of its schema."""


def encode_part(part: Part) -> Buffers:
    """Turn a part into bytes: two lengths, the schema as an Arrow message, and the Parquet file.

    The schema is written too, because Parquet does not keep every type of Arrow, such as timestamps
    in seconds.
    """
    schema = b"" if part.schema is None else part.schema.serialize().to_pybytes()
    return [LENGTHS.pack(part.rows, len(schema)), schema, part.content]


def decode_part(data: memoryview) -> Part:
    rows, size = LENGTHS.unpack_from(data)
    end = LENGTHS.size + size
    schema = pa.ipc.read_schema(pa.py_buffer(data[LENGTHS.size : end])) if size else None
    return Part(rows=rows, schema=schema, content=bytes(data[end:]))


def predict(prediction: Prediction, piece: Piece) -> Part:
    instance = environment.read()
    workload = prediction.workload
    # Made before anything is read, so that a model that cannot be made fails at once.
    predictor = load_predictor(instance.payload / FUNCTION, workload.name)
    reader = make_reader(prediction.format, prediction.columns)
    folder = instance.paths.channel(prediction.channel)
    batches = reader.batches(folder, piece.span, workload.batch_size, prediction.threads)
    tables = []
    for batch in ahead(batches):
        # A copy, so that columns that the predictor adds or replaces do not change the keys.
        with ending_forks():
            predicted = predictor(dict(batch))
        tables.append(to_table(batch, predicted, reader.keys, workload.keep, workload.name))
    if not tables:
        return Part(rows=0, schema=None, content=b"")
    table = _join_tables(tables, workload.name, piece)
    return Part(rows=len(table), schema=table.schema, content=to_parquet(table))


def _join_tables(tables: list[pa.Table], name: str, piece: Piece) -> pa.Table:
    joined: list[pa.Table] = []
    schema: pa.Schema = tables[0].schema
    for table in tables:
        merged = widen(schema, table.schema)
        if not isinstance(merged, pa.Schema):
            place = f"in {piece}"
            raise InvalidRequest(
                describe_difference(name, merged, (place, joined), (place, [table]))
            )
        schema = merged
        joined.append(table)
    return fit_tables(joined, schema, name, str(piece))


def fit_tables(tables: Sequence[pa.Table], schema: pa.Schema, name: str, where: str) -> pa.Table:
    """Return predictions as one table with the types of a wider schema."""
    try:
        return pa.concat_tables([fit_table(table, schema) for table in tables]).combine_chunks()
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            f"{name} returned whole numbers in one batch and fractions in another, and one of the "
            f"whole numbers in {where} cannot be stored as a fraction: {error}; return floats or "
            "texts for every batch"
        ) from error


def describe_difference(
    name: str,
    column: str | None,
    first: tuple[str, Sequence[pa.Table]],
    then: tuple[str, Sequence[pa.Table]],
) -> str:
    """Return the message for predictions that have no common type.

    Args:
        name: Name of the predictor.
        column: The column without a common type; None if the names of the columns differ.
        first: Where the first predictions were made, and their tables.
        then: The same of those that differ from the first.
    """
    if column is None:
        names = [", ".join(tables[0].column_names) for _, tables in (first, then)]
        return (
            f"{name} must return the same columns for every batch; it returned {names[0]} "
            f"{first[0]}, and {names[1]} {then[0]}"
        )
    values = [_first_value(tables, column) for _, tables in (first, then)]
    return (
        f"{name} returned values in {column!r} that have no common type: {values[0]} {first[0]}, "
        f"and {values[1]} {then[0]}; return one type for every batch"
    )


def _first_value(tables: Sequence[pa.Table], column: str) -> str:
    for table in tables:
        values = table.column(column)
        for value in values:
            if value.is_valid:
                return f"{repr(value.as_py())[:SHOWN_CHARACTERS]} ({values.type})"
    return str(tables[0].schema.field(column).type)


def to_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    # zstd: predictions are mostly few labels and texts, and travel to the head and from there to
    # S3.
    pq.write_table(table, sink, compression="zstd", row_group_size=max(1, len(table)))
    return sink.getvalue()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items, while a thread makes the next two.

    With one, each that takes longer than its use costs time.
    """
    end: Any = object()
    # Leaving it early waits for the items that are being made: a reader must not go on with its
    # files open.
    with ThreadPoolExecutor(1, "reading-ahead") as pool:
        following = deque(pool.submit(next, items, end) for _ in range(2))
        while (item := following.popleft().result()) is not end:
            following.append(pool.submit(next, items, end))
            yield item


Predictor = Callable[[dict[str, Any]], Any]

_made: dict[Path, Predictor] = {}
"""Predictors by the payload's file, so that a process that predicts many pieces makes its model
once."""


def load_predictor(pickled: Path, name: str) -> Predictor:
    if pickled not in _made:
        predictor, _, arguments = unpickled(pickled, name)
        # Its exceptions pass through: if a model could not be downloaded, the piece is tried again.
        ready: Any = (
            predictor(**arguments)
            if inspect.isclass(predictor)
            else functools.partial(predictor, **arguments)
        )
        _made[pickled] = ready
    return _made[pickled]


def to_table(
    batch: Columns, predicted: object, keys: tuple[str, ...], keep: tuple[str, ...], name: str
) -> pa.Table:
    rows = len(next(iter(batch.values())))
    if not isinstance(predicted, Mapping) or not predicted:
        raise InvalidRequest(
            f"{name} must return predictions by column, {{'label': array}}, and returned a "
            f"{type(predicted).__name__}"
        )
    unknown = [column for column in keep if column not in batch]
    if unknown:
        raise InvalidRequest(
            f"keep names the column {unknown[0]!r}; the input has {', '.join(map(str, batch))}"
        )
    columns_written = (*keys, *(column for column in keep if column not in keys))
    columns = {column: _keep_column(batch, column, name) for column in columns_written}
    for column, values in predicted.items():
        if column in columns:
            raise InvalidRequest(
                f"{name} returned the column {column!r}, which the records already have; rename it"
            )
        array = _arrow(values, str(column), name)
        if len(array) != rows:
            raise InvalidRequest(
                f"{name} returned {len(array)} predictions in {column!r} for a batch of {rows} "
                "records; it must return one for each record"
            )
        columns[str(column)] = array
    return pa.table(columns)


def _keep_column(batch: Columns, column: str, name: str) -> pa.Array:
    """Return a column of the records.

    A table's column keeps its Arrow type, so that all batches have one type.
    """
    own = batch.arrow(column) if isinstance(batch, TableColumns) else None
    return _arrow(batch[column], column, name) if own is None else own


def _arrow(values: Any, column: str, name: str) -> pa.Array:
    """Convert a column to Arrow: two dimensions become lists of one length, more become tensors."""
    try:
        if is_tensor(values):
            values = as_numpy(values)
        elif isinstance(values, list | tuple) and any(map(is_tensor, values)):
            values = [as_numpy(value) if is_tensor(value) else value for value in values]
    except (RuntimeError, TypeError) as error:  # quantized, or sparse
        raise InvalidRequest(
            f"{name} returned a tensor without plain numbers in {column!r} ({error}); return "
            "tensor.float() or tensor.to_dense()"
        ) from error
    try:
        if isinstance(values, list | tuple) and not (values and hasattr(values[0], "__array__")):
            # Texts, mappings, lists of any length: Arrow knows more types than NumPy does.
            return to_array(list(values))
        array = values if isinstance(values, np.ndarray) else np.asarray(values)
        if array.ndim == 0:
            raise InvalidRequest(
                f"{name} returned one value in {column!r} for a whole batch; it must return one "
                "for each record"
            )
        if array.dtype == object or array.dtype.kind in "US":
            return to_array(array.tolist())
        if array.ndim == 1:
            return pa.array(array)
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        if array.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
        return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(array))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as error:
        raise InvalidRequest(
            f"the column {column!r} of {name} cannot be written to Parquet: {error}"
        ) from error


def to_array(values: list[Any]) -> pa.Array:
    """Return Python values as an Arrow array whose type Parquet can store."""
    mappings = [value for value in values if isinstance(value, Mapping)]
    if len(set().union(*mappings)) > MAX_KEYS:
        # Not by a struct, which has a value for each key in each row.
        items = pa.array([item for value in mappings for item in value.values()])
        pairs = [value if value is None else list(value.items()) for value in values]
        array = pa.array(pairs, pa.map_(pa.string(), items.type))
    else:
        array = pa.array(values)
    kind = storable(array.type)
    return array if kind == array.type else pa.array([fit(value, kind) for value in values], kind)
