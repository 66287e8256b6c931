"""The columns of a channel's tables: one type for each, over all files.

The types are known before the first record is read. A type that is guessed from the first block of
a file is wrong for the rest of it, or for the next file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from raysm.errors import InvalidInput

SHOWN_COLUMNS = 50

MAX_KEYS = 100
"""Mappings with more different keys than this are a map in Arrow, others a struct.

A struct has a value for each key in each row: with thousands of keys that takes gigabytes.
"""

NO_KEYS = pa.map_(pa.string(), pa.null())
"""The type of mappings that are all empty: Parquet cannot store a struct without fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """How two types become one."""

    as_text: Literal["never", "scalars", "always"]
    """Which values without another common type become text."""
    max_keys: int | None
    """Mappings with more different keys become a map; None leaves them a struct."""


TABLES = Rules(as_text="scalars", max_keys=None)
JSON = Rules(as_text="always", max_keys=MAX_KEYS)
PREDICTIONS = Rules(as_text="never", max_keys=MAX_KEYS)


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

    def describe(self) -> str:
        more = len(self.schema) - SHOWN_COLUMNS
        shown = ", ".join(
            f"{field.name} {field.type}" for field in list(self.schema)[:SHOWN_COLUMNS]
        )
        return shown + (f" and {more:,} more" if more > 0 else "")


def column(name: str, kind: pa.DataType, lacks_values: bool) -> pa.Field:
    # Arrow has no column of type null that is not nullable, which a file without rows would need.
    return pa.field(name, kind, lacks_values or pa.types.is_null(kind))


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, however a file encodes them.

    Categories and large texts are texts.
    """
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


def unify(
    files: Sequence[FileColumns],
    types: Iterable[str],
    *,
    same_columns: bool = False,
    rules: Rules = TABLES,
) -> InputColumns:
    """Return the columns of all files, each with a type that holds the values of every file.

    A column that is a number in one file and text in another is text; int64 and double are double.
    ``types`` names the columns whose types the user asked for. A file may lack columns, unless all
    must have the ``same_columns``.
    """
    # An empty file has no columns.
    with_columns = [item for item in files if len(item.schema)]
    for item in with_columns[1:] if same_columns else ():
        lacks = set(with_columns[0].schema.names) ^ set(item.schema.names)
        if lacks:
            raise InvalidInput(
                f"{item.file} has other columns than {with_columns[0].file}: only one of them has "
                f"{', '.join(map(repr, sorted(lacks)[:5]))}. Give all files the same columns, "
                "named in their first line"
            )
    # A CSV file with only a header has no types.
    described = [item for item in files if item.rows] or with_columns
    found: dict[str, pa.Field] = {}
    first_file: dict[str, str] = {}
    for item in described:
        for field in item.schema:
            name = field.name
            kind = plain(field.type)
            before = found.get(name, field.with_type(kind))
            joined = join(before.type, kind, rules)
            if joined is None:
                raise InvalidInput(
                    f"the column {name!r} is {kind} in {item.file} and {before.type} in "
                    f"{first_file[name]}; write it with one type in all files"
                )
            found[name] = pa.field(name, joined, before.nullable or field.nullable)
            first_file.setdefault(name, item.file)
    unknown = [name for name in types if name not in found]
    if unknown:
        raise InvalidInput(
            f"types names the column {unknown[0]!r}; the input has "
            f"{', '.join(found) or 'no columns'}"
        )
    fields = [
        column(
            name,
            storable(field.type),
            field.nullable or any(name not in item.schema.names for item in described),
        )
        for name, field in found.items()
    ]
    return InputColumns(schema=pa.schema(fields), rows=sum(item.rows for item in files))


def join(one: pa.DataType, other: pa.DataType, rules: Rules = TABLES) -> pa.DataType | None:
    """Return the type that holds the values of both; None if none does."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = join(one.value_type, other.value_type, rules)
        return None if inner is None else pa.list_(inner)
    if _is_mapping(one) and _is_mapping(other):
        return _join_mappings(one, other, rules)
    try:
        schemas = [pa.schema([("", kind)]) for kind in (one, other)]
        merged: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        return merged
    except pa.ArrowTypeError:
        # Outside of JSON there is no usual text for a list or a mapping.
        is_text = rules.as_text == "always" or (
            rules.as_text == "scalars" and _is_scalar(one) and _is_scalar(other)
        )
        return pa.string() if is_text else None


def _is_mapping(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind))


def _join_mappings(one: pa.DataType, other: pa.DataType, rules: Rules) -> pa.DataType | None:
    if NO_KEYS in (one, other):
        return one if other == NO_KEYS else other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields: dict[str, pa.DataType | None] = {field.name: field.type for field in one}
        for field in other:
            before = fields.get(field.name, field.type)
            fields[field.name] = None if before is None else join(before, field.type, rules)
        if rules.max_keys is None or len(fields) <= rules.max_keys:
            return None if None in fields.values() else pa.struct(list(fields.items()))
    values = [kind.item_type for kind in (one, other) if pa.types.is_map(kind)]
    values += [field.type for kind in (one, other) if pa.types.is_struct(kind) for field in kind]
    return map_type(values, rules)


def map_type(values: Iterable[pa.DataType], rules: Rules) -> pa.DataType | None:
    """Return a map from text to the type that holds all of these types; None if none does."""
    joined: pa.DataType | None = pa.null()
    for kind in values:
        if joined is not None:
            joined = join(joined, kind, rules)
    return None if joined is None else pa.map_(pa.string(), joined)


def storable(kind: pa.DataType) -> pa.DataType:
    """Return a type that Parquet can store: structs without fields, also inner ones, are maps."""
    if pa.types.is_struct(kind):
        fields = [field.with_type(storable(field.type)) for field in kind]
        return pa.struct(fields) if fields else NO_KEYS
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(storable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, storable(kind.item_type))
    return kind


def has_mappings(kind: pa.DataType) -> bool:
    """Return whether values of the type are mappings, or have some inside."""
    if pa.types.is_list(kind):
        return has_mappings(kind.value_type)
    return _is_mapping(kind)


def widen(one: pa.Schema, other: pa.Schema) -> pa.Schema | str | None:
    """Return the schema that holds the predictions of both.

    The result is the name of a column if no type holds its values of both, and None if the names
    of the columns differ.
    """
    if one.names != other.names:
        return None
    fields = []
    for mine, others in zip(one, other, strict=True):
        kind = join(mine.type, others.type, PREDICTIONS)
        if kind is None:
            return str(mine.name)
        fields.append((mine.name, kind))
    return pa.schema(fields)


def fit_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the types of a wider schema.

    Raises:
        pa.ArrowInvalid: A value has no exact equal in the wider type: a whole number above 2**53
            among floats.
    """
    arrays = []
    for column, field in zip(table.columns, schema, strict=True):
        if column.type == field.type:
            arrays.append(column)
        elif has_mappings(field.type):
            rows = [fit(value, field.type) for value in column.to_pylist()]
            arrays.append(pa.chunked_array([pa.array(rows, field.type)]))
        else:
            arrays.append(column.cast(field.type))
    return pa.table(arrays, schema=schema)


def fit(value: Any, kind: pa.DataType) -> Any:
    """Return a Python value in the form in which Arrow takes it for a type with mappings."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [fit(item, kind.value_type) for item in value]
    # Arrow gives the values of a map as pairs, those of a struct as a mapping with all its keys.
    items = dict(value) if _is_mapping(kind) else {}
    if pa.types.is_map(kind):
        pairs = ((key, fit(item, kind.item_type)) for key, item in items.items())
        return [(key, item) for key, item in pairs if item is not None]
    if pa.types.is_struct(kind):
        return {field.name: fit(items.get(field.name), field.type) for field in kind}
    return value


def cast(table: pa.Table, schema: pa.Schema, file: str) -> pa.Table:
    arrays = []
    for field in schema:
        array = (
            table.column(field.name)
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
        )
        try:
            arrays.append(array if array.type == field.type else pc.cast(array, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInput(
                f"the column {field.name!r} of {file} cannot be read as {field.type}: {error}; "
                f"read it as text, types={{{field.name!r}: 'string'}}"
            ) from error
    return pa.table(arrays, names=schema.names)


def _is_scalar(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_string,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_temporal,
    )
    return any(check(kind) for check in checks)
