"""The columns of a table: features, columns that are left out, and the ids of the rows.

The ids of a matrix are one Arrow array: the values of the id column, or structs if several columns
name the rows. The head reads this array when everything is computed, and holds all of it: string
ids of 16 bytes take 24 bytes a row, and twice that while the pieces are joined.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysm.core.protocol.names import natural
from raysm.errors import InvalidInput, option
from raysm.features.similarity.request import MATRIX, Similarity

SHOWN = 8

ROW_INDEX = re.compile(
    r"(?i:|Unnamed: \d+(\.\d+)*|__index_level_\d+__|index|level_0|\.\.\.1"
    r"|row|row[._ ]?(names?|nr|number|id))"
    r"|(?i:(.*_)?(uu)?id)|.*[a-z]I[dD]"
)
"""Names that pandas, polars, R and raysm's own results give to a column of row numbers or names,
and names of IDs."""


@dataclass(frozen=True, slots=True)
class Selection:
    ids: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    may_lack_excluded: bool = False
    """True if a table may lack an excluded column: queries need not have the matrix's labels."""

    @classmethod
    def of(cls, workload: Similarity, channel: str = MATRIX) -> "Selection":
        return cls(
            workload.id_columns,
            workload.columns,
            workload.exclude_columns or (),
            may_lack_excluded=channel != MATRIX,
        )

    @property
    def named(self) -> tuple[str, ...]:
        return (*self.ids, *(self.columns or ()), *self.exclude)

    @property
    def option(self) -> str:
        if self.ids:
            return "id_column"
        return "columns" if self.columns else "exclude_columns"

    def check(self, file: str, names: Sequence[str], hint: str = "") -> None:
        """Refuse names that are not among a table's columns, or are there twice.

        ``hint`` ends the message.
        """
        counts = Counter(names)
        optional = self.exclude if self.may_lack_excluded else ()
        missing = [name for name in self.named if name not in counts and name not in optional]
        if missing:
            if not hint and any("," in name for name in names):
                hint = "; on the command line quote a name that has a comma twice: '\"a, b\"'"
            if self.may_lack_excluded and set(missing) & set(self.ids):
                hint = (
                    "; the IDs of the queries need the same column name as those of the matrix"
                    + hint
                )
            raise InvalidInput(
                f"{file} has no column {quote_names(missing)}; its columns are "
                f"{quote_names(names)}{hint}"
            )
        for name in self.named:
            if counts[name] > 1:
                raise InvalidInput(
                    f"{file} has {counts[name]} columns {name!r}; rename all but one of them"
                )


NO_SELECTION = Selection()


@dataclass(frozen=True, slots=True)
class Features:
    file: str
    names: tuple[str, ...]
    list_column: str | None = None
    """The feature whose values are lists or tensors."""
    left_out: tuple[str, ...] = ()

    @property
    def is_one_list(self) -> bool:
        """True if a single list column holds the whole row, so that the elements have no names."""
        return len(self.names) == 1 and self.list_column is not None

    def order(self, expected: "Features") -> list[int] | None:
        """Return the index of each expected feature in this table; None if the order is the same.

        The elements of a list column have no names: if the other table has scalar columns, they are
        matched by position.
        """
        if self.is_one_list != expected.is_one_list:
            return None
        lacking = _difference(expected.names, self.names)
        unexpected = _difference(self.names, expected.names)
        if lacking or unexpected:
            parts = [f"lacks {quote_names(lacking)}"] if lacking else []
            parts += [f"also has {quote_names(unexpected)}"] if unexpected else []
            raise InvalidInput(
                f"{self.file} does not have the columns of {expected.file}: it "
                f"{' and '.join(parts)}; rename the "
                f"columns, or choose the same features of all files with {option('columns')}"
            )
        if self.list_column != expected.list_column:
            raise InvalidInput(
                f"the list column of {self.file} is {self.list_column!r}, that of {expected.file} "
                "is "
                f"{expected.list_column!r}; write both tables alike"
            )
        if self.names == expected.names:
            return None
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise InvalidInput(
                f"{self.file} has the columns of {expected.file} in another order, and several "
                "are named "
                f"{quote_names(twice)}; give each column its own name"
            )
        at = {name: i for i, name in enumerate(self.names)}
        return [at[name] for name in expected.names]

    def describe(self, columns: int) -> str:
        """Return the features of a matrix of that many columns as text: ``f0 ... f31``."""
        if self.is_one_list:
            return f"the list column {self.list_column!r}"
        width = columns - len(self.names) + 1
        names = [
            f"{name}[{width}]" if name == self.list_column else name or "''" for name in self.names
        ]
        return ", ".join(names) if len(names) <= 4 else f"{names[0]} ... {names[-1]}"


def agree_on_features(
    found: Iterable[Features | None], expected: Features | None = None
) -> Features | None:
    """Return the features that all files of a channel must have, in their order.

    Return None if no file has names. A file with scalar columns decides before a file with one list
    column, whose elements have no names. ``expected`` are the features of the matrix that these
    rows are compared with.
    """
    named = (one for one in found if one is not None)
    own = min(named, key=lambda one: (one.is_one_list, natural(one.file)), default=None)
    if own is None or expected is None or (expected.is_one_list and not own.is_one_list):
        return own or expected
    return replace(expected, left_out=own.left_out)


def is_row_index(name: str) -> bool:
    return ROW_INDEX.fullmatch(name) is not None


def quote_names(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(map(repr, shown[:SHOWN])) + (
        f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    )


def _difference(names: Sequence[str], others: Sequence[str]) -> list[str]:
    return list((Counter(names) - Counter(others)).elements())


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


def stored_id_type(file: str, column: str, kind: pa.DataType) -> pa.DataType:
    """Return the type in which ids of the type ``kind`` are kept.

    Dictionaries become the type of their values. Text and bytes become Arrow's *large* types, whose
    offsets fit row groups of any size.
    """
    converted = _stored_type(kind)
    if converted is None:
        raise InvalidInput(
            f"{file}: the id column {column!r} holds {kind}; an id is a number, text, bytes, a "
            "date or a time: convert "
            "the column, or name another one"
        )
    return converted


def type_name(kind: pa.DataType | None) -> str:
    return {pa.large_string(): "text", pa.large_binary(): "bytes"}.get(kind, str(kind))


def _stored_type(kind: pa.DataType) -> pa.DataType | None:
    if isinstance(kind, pa.BaseExtensionType):
        # Keep an extension type if its storage needs no conversion: UUIDs are UUIDs in the result.
        return (
            kind
            if _stored_type(kind.storage_type) == kind.storage_type
            else _stored_type(kind.storage_type)
        )
    if pa.types.is_dictionary(kind):
        return _stored_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    return None if pa.types.is_nested(kind) or pa.types.is_null(kind) else kind


def convert_ids(ids: pa.Array) -> pa.Array:
    """Return the ids of one batch in the type that ``stored_id_type`` returns."""
    kind = _stored_type(ids.type)
    if isinstance(ids, pa.ExtensionArray) and kind != ids.type:
        return convert_ids(ids.storage)
    if isinstance(ids, pa.DictionaryArray):
        return convert_ids(ids.dictionary_decode())
    return ids if kind == ids.type else ids.cast(kind)


def id_type(types: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Return the type of the ids that these columns make together; None if there are no columns."""
    return pa.struct(list(types.items())) if len(types) > 1 else next(iter(types.values()), None)


def join_ids(columns: Mapping[str, pa.Array]) -> pa.Array | None:
    """Return the ids[n] of one batch that these columns make together; None without columns."""
    converted = [convert_ids(column) for column in columns.values()]
    if len(converted) > 1:
        return pa.StructArray.from_arrays(converted, names=list(columns))
    return converted[0] if converted else None


def take_ids(ids: pa.Array, numbers: NDArray[np.int64]) -> pa.Array:
    return ids.take(as_array(numbers))


def as_array(values: NDArray[Any]) -> pa.Array:
    """Return numbers[n] as an Arrow array; ``pa.array`` would import pandas first."""
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)]
    )


def _mean_bytes(ids: pa.Array) -> float:
    """Return the mean bytes of an id in a Parquet file.

    The mean depends on the values alone, not on how they are chunked.
    """
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
