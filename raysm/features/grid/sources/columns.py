"""Tables of rows, and their columns: reserved names that raysm interprets, and parameters.

Invalid values are refused with their row and column, before anything is sent.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from raysm.errors import InvalidRequest
from raysm.features.grid.row import Row, Value, row_label


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    origin: str
    lines: Sequence[int] | None = None
    """For a text file, the line on which each row begins."""

    def __post_init__(self) -> None:
        for number, name in enumerate(self.columns, 1):
            if not name:
                raise InvalidRequest(f"{self.origin}: column {number} has no name; give it one")
        double = [name for name, times in Counter(self.columns).items() if times > 1]
        if double:
            raise InvalidRequest(
                f"{self.origin}: two columns are named {double[0]!r}; rename one (in SQL: AS)"
            )

    def where(self, row: int) -> str:
        """Return how messages name a row, by its index: ``drives.csv, line 5``."""
        return (
            f"{self.origin}, line {self.lines[row]}"
            if self.lines is not None
            else f"{self.origin}, {row_label(row)}"
        )


def plain(value: Any) -> Value:
    """Convert a value to one that JSON has; a missing value becomes None."""
    match value:
        # First for speed, since nearly all values are of these types; bool is an int.
        case str() | int() | None:
            return value
        case float():
            # pandas has NaN for missing values.
            if math.isnan(value):
                return None
            # JSON has no infinity: it becomes a text, as in a CSV.
            return value if math.isfinite(value) else str(float(value))
        case datetime() | date() | time():
            # pandas' NaT is a date that does not equal itself.
            return value.isoformat() if value == value else None
        case Decimal() | UUID():
            # A float would change the digits of a Decimal.
            return str(value)
    # NumPy's and pandas' values, without importing them.
    if type(value).__name__ == "NAType":
        return None
    # datetime has no nanoseconds: item() of a time with nanoseconds returns a number.
    if type(value).__name__ == "datetime64" and isinstance(value.item(), int):
        return str(value)
    for convert in ("isoformat", "item"):
        if hasattr(value, convert):
            return None if value != value else plain(getattr(value, convert)())
    raise ValueError(f"a {type(value).__name__} cannot be a value of a row: {repr(value)[:60]}")


KEY_CHARACTERS = 200
"""The key names the folder of the row's result, and S3 takes paths of at most 1,024 bytes."""

MAX_WHOLE = 2**53
"""Larger numbers are not exact as floats, and SQLite refuses far larger ones."""

REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
INSTANCE_TYPE = re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9-]+|local")
VARIABLE = re.compile(r"[a-zA-Z_]\w{0,511}")
"""CreateTrainingJob's pattern for names of variables."""


def _key(value: Any) -> str:
    text = str(value)
    if len(text) > KEY_CHARACTERS or not text.isprintable() or text in (".", ".."):
        raise ValueError(
            f"a key has 1 to {KEY_CHARACTERS} printable characters, and is a folder's name"
        )
    return text


def _matching(pattern: re.Pattern[str], example: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = str(value).strip()
        if not pattern.fullmatch(text):
            raise ValueError(f"write it like {example}")
        return text

    return read


_instance_type = _matching(INSTANCE_TYPE, "ml.g5.xlarge, several with commas between")


def _number(value: Any) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise ValueError("it is not a number") from None


def _whole(minimum: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = _number(value)
        # A data frame has 4.0 for 4 if another row has no value.
        if not math.isfinite(number) or number != int(number) or number < minimum:
            raise ValueError(f"it must be a whole number of at least {minimum}")
        if number > MAX_WHOLE:
            raise ValueError(f"it must be at most {MAX_WHOLE}")
        return int(number)

    return read


def _positive(value: Any) -> float:
    number = _number(value)
    if not 0 < number < math.inf:
        raise ValueError("it must be a number above 0")
    return number


# SQLite has 0 and 1, a CSV has words.
TRUTHS = {
    "true": True,
    "1": True,
    "yes": True,
    "1.0": True,
    "false": False,
    "0": False,
    "no": False,
    "0.0": False,
}


def _truth(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in TRUTHS:
        raise ValueError("it must be true or false")
    return TRUTHS[text]


@dataclass(frozen=True, slots=True)
class Column:
    field: str
    read: Callable[[Any], Any]
    """Returns the field's value; raises ValueError with a text that says what is allowed."""
    summary: str


COLUMNS: Mapping[str, Column] = {
    "key": Column("key", _key, "unique name of the row; without it, a hash of its content"),
    "region": Column("region", _matching(REGION, "us-east-1"), "region of its data"),
    "instance_type": Column(
        "instance_types",
        lambda value: tuple(_instance_type(item) for item in str(value).split(",")),
        "type of its instances; of several, the best first",
    ),
    "count": Column("count", _whole(1), "instances of its cluster"),
    "image": Column("image", str, "URI of its image"),
    "priority": Column(
        "priority", _whole(-(2**31)), "rows with a higher priority are sent earlier"
    ),
    "spot": Column("spot", _truth, "whether it uses spot capacity"),
    "max_runtime_s": Column("max_runtime_s", _whole(1), "seconds after which it is stopped"),
    "expected_s": Column("expected_s", _positive, "estimate of its duration in seconds"),
    "input_gb": Column(
        "input_bytes",
        lambda value: round(_positive(value) * 1e9),
        "GB that would move to another region",
    ),
    "checkpoint": Column("checkpoint", str, "URI of its checkpoints"),
}

FAMILIES: Mapping[str, str] = {
    "input": "inputs",
    "manifest": "manifests",
    "env": "environment",
    "tag": "tags",
}
"""Field of Row by prefix of the column: ``input_data``, or ``input.data``, is the entry ``data``
of ``inputs``."""


def parse_rows(table: Table) -> list[Row]:
    reader = _Reader(table.columns)
    keys: dict[str, int] = {}
    rows = []
    for index, values in enumerate(table.rows):
        row = reader.row(values, index, table.where)
        if row.key in keys:
            raise InvalidRequest(
                f"{table.where(index)}: {table.where(keys[row.key])} has the key {row.key!r} "
                "too; a key must be unique, so choose a column with a different value in each row"
            )
        keys[row.key] = index
        rows.append(row)
    return rows


class _Reader:
    def __init__(self, columns: Sequence[str]) -> None:
        self.names = columns
        self.own: list[tuple[int, Column]] = []
        self.members: list[tuple[int, str, str]] = []
        self.parameters: list[tuple[int, str]] = []
        self.alike: Counter[str] = Counter()
        for index, name in enumerate(columns):
            family = _family(name)
            if name in COLUMNS:
                self.own.append((index, COLUMNS[name]))
            elif family is not None:
                self.members.append((index, *family))
            else:
                self.parameters.append((index, name))

    def row(self, values: tuple[Any, ...], row_index: int, where: Callable[[int], str]) -> Row:
        fields: dict[str, Any] = {}
        parameters: dict[str, Value] = {}
        # The column that an error message names.
        index = 0
        try:
            for index, column in self.own:
                value = plain(values[index])
                if value is not None:
                    fields[column.field] = column.read(value)
            for index, name in self.parameters:
                parameters[name] = plain(values[index])
            # Empty values, like those of fields above, leave the choice to the grid.
            for index, field, name in self.members:
                value = plain(values[index])
                if value is not None:
                    fields.setdefault(field, {})[name] = str(value)
        except ValueError as error:
            shown = f"{values[index]!r:.60}"
            raise InvalidRequest(
                f"{where(row_index)}, column {self.names[index]!r}: {shown}: {error}"
            ) from error
        if "key" in self.names and "key" not in fields:
            raise InvalidRequest(
                f"{where(row_index)}: the column 'key' is empty; "
                "give every row a key, or leave the column out"
            )
        # A key made from the content stays the same if the rows are in another order.
        key = fields.pop("key", None) or self._content_key(values)
        return Row(key=key, position=row_index, parameters=parameters, **fields)

    def _content_key(self, values: Iterable[Any]) -> str:
        pairs: dict[str, Value] = dict(zip(self.names, map(plain, values), strict=True))
        digest = hashlib.sha256(json.dumps(pairs, sort_keys=True).encode()).hexdigest()[:16]
        # Equal rows are not merged: a measurement may be repeated.
        self.alike[digest] += 1
        return f"row-{digest}" if self.alike[digest] == 1 else f"row-{digest}-{self.alike[digest]}"


def _family(name: str) -> tuple[str, str] | None:
    """Return the field and the member that a column's name stands for."""
    for prefix, field in FAMILIES.items():
        # Both separators, since names in SQL cannot have dots.
        for separator in "_.":
            begin = prefix + separator
            if name.startswith(begin) and len(name) > len(begin):
                member = name[len(begin) :]
                if field == "environment" and not VARIABLE.fullmatch(member):
                    raise InvalidRequest(
                        f"the column {name!r} names the variable {member!r}; "
                        "variables have letters, digits and _ only"
                    )
                return field, member
    return None
