"""The ids of rows: the types that id columns may have, and the arrays that the result shows.

The ids of a matrix are one Arrow array: the values of the id column, or structs if several columns
name the rows. The
head reads this array when everything is computed, and holds all of it: ids of 16 bytes of text take
24 bytes a row, and twice that while the pieces are joined.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysm.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, slots=True)
class Ids:
    neighbors: pa.Array
    """neighbors[N]: ids of the matrix's rows."""
    queries: pa.Array | None = None
    """queries[M]: ids of the rows that look for neighbors; None if the matrix's own do."""

    @property
    def rows(self) -> pa.Array:
        return self.neighbors if self.queries is None else self.queries

    @property
    def row_bytes(self) -> float:
        return _mean_bytes(self.rows)

    @property
    def neighbor_bytes(self) -> float:
        return _mean_bytes(self.neighbors)


def converted_type(file: str, column: str, kind: pa.DataType) -> pa.DataType:
    """Return the type in which ids of the type ``kind`` are kept.

    Dictionaries become the type of their values. Text and bytes become Arrow's *large* types, whose
    offsets fit row groups of any size.
    """
    converted = _converted(kind)
    if converted is None:
        raise InvalidInput(
            f"{file}: the id column {column!r} holds {kind}; an id is a number, text, bytes, a date or a time: convert "
            "the column, or name another one"
        )
    return converted


def word(kind: pa.DataType | None) -> str:
    return {pa.large_string(): "text", pa.large_binary(): "bytes"}.get(kind, str(kind))


def _converted(kind: pa.DataType) -> pa.DataType | None:
    if isinstance(kind, pa.BaseExtensionType):
        # Keep an extension type if its storage needs no conversion: UUIDs are UUIDs in the result.
        return (
            kind
            if _converted(kind.storage_type) == kind.storage_type
            else _converted(kind.storage_type)
        )
    if pa.types.is_dictionary(kind):
        return _converted(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    return None if pa.types.is_nested(kind) or pa.types.is_null(kind) else kind


def convert(ids: pa.Array) -> pa.Array:
    """Return the ids of one batch in the type that ``converted_type`` returns."""
    kind = _converted(ids.type)
    if isinstance(ids, pa.ExtensionArray) and kind != ids.type:
        return convert(ids.storage)
    if isinstance(ids, pa.DictionaryArray):
        return convert(ids.dictionary_decode())
    return ids if kind == ids.type else ids.cast(kind)


def joined_type(types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Return the type of the ids that these columns make together; None if there are no columns."""
    return pa.struct(list(types.items())) if len(types) > 1 else next(iter(types.values()), None)


def joined(columns: Mapping[str, pa.Array]) -> pa.Array | None:
    """Return the ids[n] of one batch that these columns make together; None if there are no columns."""
    converted = [convert(column) for column in columns.values()]
    if len(converted) > 1:
        return pa.StructArray.from_arrays(converted, names=list(columns))
    return converted[0] if converted else None


def take(ids: pa.Array, numbers: NDArray[np.int64]) -> pa.Array:
    return ids.take(as_array(numbers))


def as_array(values: NDArray[Any]) -> pa.Array:
    """Return numbers[n] as an Arrow array: ``pa.array`` would first import pandas where it is installed."""
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)]
    )


def _mean_bytes(ids: pa.Array) -> float:
    """Return the mean bytes of an id in a Parquet file; it depends on the values alone, not on how they are chunked."""
    if isinstance(ids, pa.StructArray):
        return sum(map(_mean_bytes, ids.flatten()))
    values = ids.storage if isinstance(ids, pa.ExtensionArray) else ids
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        # Imported here: it takes 3 MB and a tenth of a second in each process, and only the head
        # needs it.
        import pyarrow.compute as pc

        # Parquet writes four bytes with the length before each value.
        return 4 + float(pc.sum(pc.binary_length(values)).as_py() or 0) / max(1, len(values))
    return float(values.type.bit_width) / 8
