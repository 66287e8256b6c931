"""The columns of a channel's tables: one type for each, over all files, known before the first record is read.

A type that is guessed from the first block of a file is wrong for the rest of it, or for the next file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from raysm.errors import InvalidInput

SHOWN_COLUMNS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumns:
    file: str
    schema: pa.Schema
    """Names and types; a column is nullable only if a value is missing."""
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InputColumns:
    schema: pa.Schema
    rows: int

    def described(self) -> str:
        more = len(self.schema) - SHOWN_COLUMNS
        shown = ", ".join(f"{field.name} {field.type}" for field in list(self.schema)[:SHOWN_COLUMNS])
        return shown + (f" and {more:,} more" if more > 0 else "")


def column(name: str, kind: pa.DataType, lacks_values: bool) -> pa.Field:
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

    A column that is a number in one file and text in another is text; int64 and double are double. ``types`` names the
    columns whose types the user asked for. A file may lack columns, unless all must have the ``same_columns``. With
    ``any_is_text`` lists and structs can be text as well, as in JSON.
    """
    # An empty file has no columns.
    with_columns = [item for item in files if len(item.schema)]
    for item in with_columns[1:] if same_columns else ():
        lacks = set(with_columns[0].schema.names) ^ set(item.schema.names)
        if lacks:
            raise InvalidInput(
                f"{item.file} has other columns than {with_columns[0].file}: only one of them has "
                f"{', '.join(map(repr, sorted(lacks)[:5]))}. Give all files the same columns, named in their first line"
            )
    # A CSV file with only a header has no types.
    described = [item for item in files if item.rows] or with_columns
    found: dict[str, pa.Field] = {}
    first_file: dict[str, str] = {}
    for item in described:
        for field in item.schema:
            name, kind = field.name, plain(field.type)
            before = found.get(name, field.with_type(kind))
            joined = join(before.type, kind, any_is_text=any_is_text)
            if joined is None:
                raise InvalidInput(
                    f"the column {name!r} is {kind} in {item.file} and {before.type} in {first_file[name]}; write it "
                    "with one type in all files"
                )
            found[name] = pa.field(name, joined, before.nullable or field.nullable)
            first_file.setdefault(name, item.file)
    unknown = [name for name in types if name not in found]
    if unknown:
        raise InvalidInput(f"types names the column {unknown[0]!r}; the input has {', '.join(found) or 'no columns'}")
    fields = [
        column(name, field.type, field.nullable or any(name not in item.schema.names for item in described))
        for name, field in found.items()
    ]
    return InputColumns(schema=pa.schema(fields), rows=sum(item.rows for item in files))


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


def _is_scalar(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal)
    return any(check(kind) for check in checks)
