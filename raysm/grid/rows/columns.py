"""What the columns of a row mean: those that raysm knows say what they say, every other one is a parameter.

What flows in is a Table, what flows out are the Tasks of a grid, in its order. A value that cannot be is refused with
its row and column, before anything is sent.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.rows.table import Table, plain
from raysm.grid.task import Task, Value

__all__ = ["COLUMNS", "FAMILIES", "Column", "tasks_of"]

KEY_CHARACTERS = 200
"""A key is a folder of its result: S3 takes 1,024 bytes for the whole of a path."""

MOST_WHOLE = 2**53
"""Up to which a number is read to its last digit; what is far above it SQLite does not take."""

REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
INSTANCE_TYPE = re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9-]+|local")
VARIABLE = re.compile(r"[a-zA-Z_]\w{0,511}")
"""CreateTrainingJob's pattern of a variable's name."""


def _key(value: Any) -> str:
    text = str(value)
    if len(text) > KEY_CHARACTERS or not text.isprintable() or text in (".", ".."):
        raise ValueError(f"a key has 1 to {KEY_CHARACTERS} printable characters, and is a folder's name")
    return text


def _matching(pattern: re.Pattern[str], example: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = str(value).strip()
        if not pattern.fullmatch(text):
            raise ValueError(f"write it like {example}")
        return text

    return read


_instance_type = _matching(INSTANCE_TYPE, "ml.g5.xlarge, several with commas between")


def _instance_types(value: Any) -> tuple[str, ...]:
    return tuple(_instance_type(item) for item in str(value).split(","))


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        try:
            number = float(str(value))
        except ValueError:
            raise ValueError("it is not a number") from None
        # A frame has 4.0 for 4 where another row has no value.
        if not math.isfinite(number) or number != int(number) or number < least:
            raise ValueError(f"it must be a whole number of at least {least}")
        if number > MOST_WHOLE:
            raise ValueError(f"it must be at most {MOST_WHOLE}")
        return int(number)

    return read


_integer = _whole(-(2**31))


def _seconds(value: Any) -> float:
    try:
        number = float(str(value))
    except ValueError:
        raise ValueError("it is not a number") from None
    if not 0 < number < math.inf:
        raise ValueError("it must be a number above 0")
    return number


def _bytes_of_gb(value: Any) -> int:
    return round(_seconds(value) * 1e9)


def _truth(value: Any) -> bool:
    text = str(value).strip().lower()
    # SQLite has no truth values, but 0 and 1; a CSV has words.
    words = {"true": True, "1": True, "yes": True, "1.0": True, "false": False, "0": False, "no": False, "0.0": False}
    if text not in words:
        raise ValueError("it must be true or false")
    return words[text]


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One that raysm knows."""

    field: str
    """Of ``Task``."""
    read: Callable[[Any], Any]
    """Returns the field's value of the column's; raises ValueError, whose text says what it should be."""
    summary: str
    """What it says, for the reference."""


COLUMNS: Mapping[str, Column] = {
    "key": Column(field="key", read=_key, summary="name of the row, one value a row; without it, its content is"),
    "region": Column(field="region", read=_matching(REGION, "us-east-1"), summary="where its data lie"),
    "instance_type": Column(
        field="instance_types", read=_instance_types, summary="type of its instances; of several, the best first"
    ),
    "count": Column(field="count", read=_whole(1), summary="instances of its cluster"),
    "image": Column(field="image", read=str, summary="URI of its image"),
    "priority": Column(field="priority", read=_integer, summary="the higher, the earlier"),
    "spot": Column(field="spot", read=_truth, summary="whether it takes spare capacity"),
    "max_runtime_s": Column(field="max_runtime_s", read=_whole(1), summary="seconds after which it is stopped"),
    "expected_s": Column(field="expected_s", read=_seconds, summary="seconds that it is believed to take"),
    "input_gb": Column(field="input_bytes", read=_bytes_of_gb, summary="GB that would travel to another region"),
    "checkpoint": Column(field="checkpoint", read=str, summary="URI of its checkpoints"),
}
"""By the column's name."""

FAMILIES: Mapping[str, str] = {"input": "inputs", "manifest": "manifests", "env": "environment", "tag": "tags"}
"""Columns that begin so name a member of a mapping of Task: ``input_data``, or ``input.data``, is the channel data."""


def tasks_of(table: Table) -> list[Task]:
    """Return the tasks of a table, in its order.

    Raises:
        InvalidRequest: A value cannot be, or two rows have one key; the message names row and column.
    """
    reader = _Reader(table.columns)
    keys: dict[str, int] = {}
    tasks = []
    for index, values in enumerate(table.rows):
        task = reader.task(values, index, table.where)
        if task.key in keys:
            raise InvalidRequest(
                f"{table.where(index)}: {table.where(keys[task.key])} has the key {task.key!r} too; a key "
                "must be unique, so choose a column with a different value in each row"
            )
        keys[task.key] = index
        tasks.append(task)
    return tasks


class _Reader:
    """Reads rows of the same columns: what each column is, is decided once for all of them."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.names = columns
        self.own: list[tuple[int, Column]] = []
        self.members: list[tuple[int, str, str]] = []
        self.parameters: list[tuple[int, str]] = []
        self.alike: Counter[str] = Counter()
        for place, name in enumerate(columns):
            family = _family(name)
            if name in COLUMNS:
                self.own.append((place, COLUMNS[name]))
            elif family is not None:
                self.members.append((place, *family))
            else:
                self.parameters.append((place, name))

    def task(self, values: tuple[Any, ...], index: int, where: Callable[[int], str]) -> Task:
        fields: dict[str, Any] = {}
        # Which column is being read: whatever goes wrong is said of it.
        place = 0
        try:
            for place, column in self.own:
                value = plain(values[place])
                if value is not None:
                    fields[column.field] = column.read(value)
            parameters = {}
            for place, name in self.parameters:
                parameters[name] = plain(values[place])
            # A member that is empty is left to the grid, as a field is: None as a text would be a value.
            for place, field, name in self.members:
                value = plain(values[place])
                if value is not None:
                    fields.setdefault(field, {})[name] = str(value)
        except ValueError as error:
            shown = f"{values[place]!r:.60}"
            raise InvalidRequest(f"{where(index)}, column {self.names[place]!r}: {shown}: {error}") from error
        if "key" in self.names and "key" not in fields:
            raise InvalidRequest(
                f"{where(index)}: the column 'key' is empty; give every row a key, or leave the column out"
            )
        # What the content says: another order of the rows is the same grid.
        key = fields.pop("key", None) or self._content_key(values)
        return Task(key=key, position=index, parameters=parameters, **fields)

    def _content_key(self, values: Iterable[Any]) -> str:
        pairs: dict[str, Value] = dict(zip(self.names, map(plain, values), strict=True))
        digest = hashlib.sha256(json.dumps(pairs, sort_keys=True).encode()).hexdigest()[:16]
        # The same row twice is two tasks: whoever repeats a measurement means so.
        self.alike[digest] += 1
        return f"row-{digest}" if self.alike[digest] == 1 else f"row-{digest}-{self.alike[digest]}"


def _family(name: str) -> tuple[str, str] | None:
    """Return the field and the member that a column's name stands for."""
    for prefix, field in FAMILIES.items():
        # By the first in SQL, whose names are identifiers; by the second where people write a file.
        for separator in "_.":
            begin = prefix + separator
            if name.startswith(begin) and len(name) > len(begin):
                member = name[len(begin) :]
                if field == "environment" and not VARIABLE.fullmatch(member):
                    raise InvalidRequest(
                        f"the column {name!r} is not the name of a variable: {member!r} may have letters, digits and _"
                    )
                return field, member
    return None
