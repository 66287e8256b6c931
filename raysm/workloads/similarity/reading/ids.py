"""The ids of rows: which columns can name rows, and what the result shows of them.

The ids of a matrix are one Arrow array: the values of the id column, or structs if several columns name the rows. The
head reads it once everything is computed and holds it as a whole: 16 bytes of text take 24 bytes a row, and twice that
while the pieces are joined.
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
    """The ids of the rows and of the neighbors of a result."""

    neighbors: pa.Array
    """neighbors[N]: of the rows among which others look."""
    queries: pa.Array | None = None
    """queries[M]: of the rows that look for them; None where the matrix's own do."""

    @property
    def rows(self) -> pa.Array:
        """rows[M]: of the rows that look for neighbors."""
        return self.neighbors if self.queries is None else self.queries

    @property
    def row_bytes(self) -> float:
        """Mean size of the id of a row that looks for neighbors."""
        return _mean_bytes(self.rows)

    @property
    def neighbor_bytes(self) -> float:
        """Mean size of the id of a neighbor."""
        return _mean_bytes(self.neighbors)


def converted_type(file: str, column: str, kind: pa.DataType) -> pa.DataType:
    """Return the type in which ids of the type ``kind`` are kept.

    A dictionary's is that of its values. Text and bytes are *large*: no row group is too big for their offsets.

    Raises:
        InvalidInput: ``kind`` has values that are no names.
    """
    converted = _converted(kind)
    if converted is None:
        raise InvalidInput(
            f"{file}: the id column {column!r} holds {kind}; an id is a number, text, bytes, a date or a time: convert "
            "the column, or name another one"
        )
    return converted


def word(kind: pa.DataType | None) -> str:
    """Return what a converted type is called in messages."""
    return {pa.large_string(): "text", pa.large_binary(): "bytes"}.get(kind, str(kind))


def _converted(kind: pa.DataType) -> pa.DataType | None:
    if isinstance(kind, pa.BaseExtensionType):
        # An extension's own type where its storage can stay: UUIDs are UUIDs in the result.
        return kind if _converted(kind.storage_type) == kind.storage_type else _converted(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _converted(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    return None if pa.types.is_nested(kind) or pa.types.is_null(kind) else kind


def convert(ids: pa.Array) -> pa.Array:
    """Return the ids of one batch as ``converted_type`` has them."""
    kind = _converted(ids.type)
    if isinstance(ids, pa.ExtensionArray) and kind != ids.type:
        return convert(ids.storage)
    if isinstance(ids, pa.DictionaryArray):
        return convert(ids.dictionary_decode())
    return ids if kind == ids.type else ids.cast(kind)


def joined_type(types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Return the type of ids that these columns make together; None if there is none."""
    return pa.struct(list(types.items())) if len(types) > 1 else next(iter(types.values()), None)


def joined(columns: Mapping[str, pa.Array]) -> pa.Array | None:
    """Return the ids[n] of one batch that these columns make together; None if there is none."""
    converted = [convert(column) for column in columns.values()]
    if len(converted) > 1:
        return pa.StructArray.from_arrays(converted, names=list(columns))
    return converted[0] if converted else None


def check_missing(file: str, column: str, metadata: Any) -> None:
    """Refuse a Parquet file whose own statistics say that ids are missing.

    Raises:
        InvalidInput: They say so.
    """
    missing = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            # A writer may leave statistics out: of such a file, reading tells.
            if chunk.path_in_schema == column and chunk.statistics is not None and chunk.statistics.has_null_count:
                missing += chunk.statistics.null_count
    if missing:
        raise InvalidInput(
            f"{file}: {missing:,} of {metadata.num_rows:,} rows have no value in the id column {column!r}; each row "
            "needs an id: fill them, or name another column"
        )


def take(ids: pa.Array, numbers: NDArray[np.int64]) -> pa.Array:
    """Return the ids of rows by their numbers[n]."""
    return ids.take(as_array(numbers))


def as_array(values: NDArray[Any]) -> pa.Array:
    """Return numbers[n] as an Arrow array: ``pa.array`` would first import pandas where it is installed."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _mean_bytes(ids: pa.Array) -> float:
    """Return what an id takes in a Parquet file: it follows from the values alone, however they came here."""
    if isinstance(ids, pa.StructArray):
        return sum(map(_mean_bytes, ids.flatten()))
    values = ids.storage if isinstance(ids, pa.ExtensionArray) else ids
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        # Here: it takes 3 MB and a tenth of a second in every process of a cluster, and the head alone has ids.
        import pyarrow.compute as pc

        # Parquet writes its length before each text, in four bytes.
        return 4 + float(pc.sum(pc.binary_length(values)).as_py() or 0) / max(1, len(values))
    return float(values.type.bit_width) / 8
