"""The columns of a channel's tables: one type for each, over all files, known before the first record is read.

CSV and JSON carry no types, so each of their files is read once beforehand, by tasks on all instances. A type that is
guessed from the first block of a file is wrong for the rest of it, or for the next file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from raysm.errors import InvalidInput

BLOCK_BYTES = 4 << 20
"""Bytes of a CSV or JSON file that are parsed at a time; a longer record makes its block longer."""

SHOWN_COLUMNS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumns:
    """The columns of one file."""

    file: str
    schema: pa.Schema
    """Names and types; a column is nullable only if a value is missing."""
    rows: int
    block_bytes: int = BLOCK_BYTES
    """The block size that holds the longest record of a CSV file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputColumns:
    """The columns of all files of a channel."""

    schema: pa.Schema
    """The type of each column, the same for all files."""
    rows: int
    block_bytes: int
    """The block size that holds the longest record of any CSV file."""
    notes: Mapping[str, str]
    """Remarks by column: its type differs between files, or values are missing."""

    def described(self) -> str:
        """Return the columns with their types, for people: ``zip string, price double (int64 in a.csv)``."""
        shown = []
        for field in list(self.schema)[:SHOWN_COLUMNS]:
            note = f" ({self.notes[field.name]})" if field.name in self.notes else ""
            shown.append(f"{field.name} {field.type}{note}")
        more = len(self.schema) - len(shown)
        return ", ".join(shown) + (f" and {more:,} more" if more else "")


def column(name: str, kind: pa.DataType, lacks_values: bool) -> pa.Field:
    """Return a column of a schema; it is nullable if a value is missing."""
    # Arrow has no column of type null that is not nullable, which a file without rows would need.
    return pa.field(name, kind, lacks_values or pa.types.is_null(kind))


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, however a file encodes them: categories and large texts are texts."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


def unified(
    files: Sequence[FileColumns], types: Iterable[str], *, same_columns: bool = False, any_is_text: bool = False
) -> InputColumns:
    """Return the columns of all files, each with a type that holds the values of every file.

    A column that is a number in one file and text in another is text; int64 and double are double.

    Args:
        files: The columns of each file.
        types: The columns whose types the user asked for.
        same_columns: All files must have the same columns. Otherwise a missing column has missing values.
        any_is_text: Lists and structs can be text as well, as in JSON.
    """
    # An empty file has no columns.
    with_columns = [item for item in files if len(item.schema)]
    if same_columns:
        for item in with_columns[1:]:
            _check_names(item, with_columns[0])
    # A CSV file with only a header has no types.
    described = [item for item in files if item.rows] or with_columns
    found: dict[str, pa.DataType] = {}
    seen: dict[str, list[tuple[str, pa.DataType]]] = {}
    nullable: dict[str, bool] = {}
    for item in described:
        for field in item.schema:
            name, kind = field.name, plain(field.type)
            before = found.get(name)
            joined = kind if before is None else join(before, kind, any_is_text=any_is_text)
            if joined is None:
                raise InvalidInput(
                    f"the column {name!r} is {kind} in {item.file} and {before} in {seen[name][0][0]}; write it with "
                    "one type in all files"
                )
            found[name] = joined
            seen.setdefault(name, []).append((item.file, field.type))
            nullable[name] = nullable.get(name, False) or field.nullable
    notes: dict[str, str] = {}
    for name, where in seen.items():
        others = [(file, kind) for file, kind in where if plain(kind) != found[name]]
        if others:
            kind = others[0][1]
            notes[name] = f"{kind} in {_and_more([file for file, other in others if other == kind])}"
        if len(where) < len(described):
            nullable[name] = True
            having = {file for file, _ in where}
            notes.setdefault(
                name, f"missing in {_and_more([item.file for item in described if item.file not in having])}"
            )
    unknown = [name for name in types if name not in found]
    if unknown:
        raise InvalidInput(f"types names the column {unknown[0]!r}; the input has {', '.join(found) or 'no columns'}")
    return InputColumns(
        schema=pa.schema([column(name, kind, nullable[name]) for name, kind in found.items()]),
        rows=sum(item.rows for item in files),
        block_bytes=max((item.block_bytes for item in files), default=BLOCK_BYTES),
        notes=notes,
    )


def join(one: pa.DataType, other: pa.DataType, *, any_is_text: bool = False) -> pa.DataType | None:
    """Return the type that holds the values of both; None if none does."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = join(one.value_type, other.value_type, any_is_text=any_is_text)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields: dict[str, pa.DataType | None] = {field.name: field.type for field in one}
        for field in other:
            before = fields.get(field.name, field.type)
            fields[field.name] = None if before is None else join(before, field.type, any_is_text=any_is_text)
        return None if None in fields.values() else pa.struct(list(fields.items()))
    try:
        schemas = [pa.schema([("", kind)]) for kind in (one, other)]
        merged: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        return merged
    except pa.ArrowTypeError:
        # Outside of JSON there is no usual text for a list or a struct.
        return pa.string() if any_is_text or (_is_scalar(one) and _is_scalar(other)) else None


def filled(one: pa.Schema, other: pa.Schema) -> pa.Schema | None:
    """Return two schemas as one, None if they differ; a column without values in one has the type of the other."""
    if one.names != other.names:
        return None
    kinds = [_filled(mine.type, others.type) for mine, others in zip(one, other, strict=True)]
    return None if None in kinds else pa.schema(list(zip(one.names, kinds, strict=True)))


def _filled(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = _filled(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    return None


def cast(table: pa.Table, columns: InputColumns, file: str) -> pa.Table:
    """Return a table of one file with the columns and types of all files."""
    arrays = []
    for field in columns.schema:
        array = table.column(field.name) if field.name in table.column_names else pa.nulls(len(table), field.type)
        try:
            arrays.append(array if array.type == field.type else pc.cast(array, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInput(
                f"the column {field.name!r} of {file} cannot be read as {field.type}: {error}; read it as text, "
                f"types={{{field.name!r}: 'string'}}"
            ) from error
    return pa.table(arrays, names=columns.schema.names)


def _check_names(item: FileColumns, first: FileColumns) -> None:
    mine, others = set(item.schema.names), set(first.schema.names)
    if mine != others:
        lacks, has = sorted(others - mine), sorted(mine - others)
        differences = [
            f"it has no {', '.join(map(repr, lacks[:5]))}" if lacks else "",
            f"only it has {', '.join(map(repr, has[:5]))}" if has else "",
        ]
        raise InvalidInput(
            f"{item.file} has other columns than {first.file}: {'; '.join(filter(None, differences))}. Give all files "
            "the same columns, named in their first line"
        )


def _is_scalar(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal)
    return any(check(kind) for check in checks)


def _and_more(files: Sequence[str]) -> str:
    return files[0] + (f" and {len(files) - 1:,} more" if len(files) > 1 else "")
