"""Frozen dataclasses to plain JSON values and back, checked field by field.

The JSON comes from another machine, so every field is checked against its declared type. No library
(pydantic, msgspec), because instances read the request with the standard library, before anything
is installed.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from raysm.errors import InvalidRequest

T = TypeVar("T")

NAMES = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
"""Names of the classes of JSON values in messages."""

AnyFloat: TypeAlias = Annotated[float, "may be NaN or infinite"]
"""The type of a field whose number may be NaN or infinite; a field of type ``float`` takes finite
numbers only."""

NOT_FINITE: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The texts that stand for numbers that JSON does not have; Protocol Buffers write the same in
their JSON."""

TAG = "kind"
"""The key that names the class if a field admits several; its value is the class attribute
``kind``."""
CHOOSE = "named"
"""Name of a classmethod of a field's type that returns the class of a kind."""


def to_json(value: Any) -> Any:
    """Turn a dataclass into values that ``json.dumps`` takes: fields to keys, tuples to lists."""
    # is_dataclass is also true for a class, which JSON cannot hold.
    if dataclasses.is_dataclass(type(value)):
        tag = {TAG: getattr(value, TAG)} if hasattr(value, TAG) else {}
        content = {
            field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
        for name in _names_of_any_floats(typing.cast(Any, type(value))):
            content[name] = spelled(content[name])
        return tag | content
    match value:
        case Mapping():
            return {key: to_json(item) for key, item in value.items()}
        case tuple() | list():
            return [to_json(item) for item in value]
    return value


def spelled(value: Any) -> Any:
    """Return JSON values with a text of ``NOT_FINITE`` in place of each NaN and infinity."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {key: spelled(item) for key, item in value.items()}
        case tuple() | list():
            return [spelled(item) for item in value]
    return value


def from_json(kind: type[T], data: Any, where: str = "request") -> T:
    """Build ``kind`` from JSON values; ``where`` is the path that messages begin with.

    A dataclass's fields may be str, int, float, AnyFloat, bool, None, Any, ``Literal``,
    ``tuple[X, ...]``, ``Mapping[str, X]``, dataclasses, classes with the classmethod ``CHOOSE``,
    and unions of None with one of these, of dataclasses that have a ``kind``, of str with a
    dataclass, or ``str | tuple[str, ...]``. InvalidRequest names the path
    (``request.cluster.count``) and the value.
    """
    return typing.cast(T, _read(kind, data, where))


def _read(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(kind), data, where)
    if origin is Annotated:
        if isinstance(data, str) and data in NOT_FINITE:
            return NOT_FINITE[data]
        return _read(typing.get_args(kind)[0], data, where)
    if origin is typing.Literal:
        # The types must be equal too: in Python 1 == True, but they are different values in JSON.
        if not any(
            type(data) is type(choice) and data == choice for choice in typing.get_args(kind)
        ):
            raise _mismatch(where, f"one of {', '.join(map(repr, typing.get_args(kind)))}", data)
        return data
    if origin is tuple:
        items = enumerate(_typed(list, data, where))
        return tuple(_read(typing.get_args(kind)[0], item, f"{where}[{i}]") for i, item in items)
    if origin is Mapping:
        members = _typed(dict, data, where).items()
        return {
            key: _read(typing.get_args(kind)[1], item, f"{where}.{key}") for key, item in members
        }
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, data, where)
    if hasattr(kind, CHOOSE):
        return _read_dataclass(getattr(kind, CHOOSE)(_tag_of(data), f"{where}.{TAG}"), data, where)
    return _read_scalar(kind, data, where)


def _read_union(choices: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in choices:
        return None
    choices = tuple(choice for choice in choices if choice is not type(None))
    if len(choices) == 1:
        return _read(choices[0], data, where)
    if choices == (str, tuple[str, ...]):
        return _read(choices[isinstance(data, list)], data, where)
    if len(choices) == 2 and choices[0] is str and dataclasses.is_dataclass(choices[1]):
        return _read(choices[isinstance(data, dict)], data, where)
    if not all(hasattr(choice, TAG) for choice in choices):
        raise _cannot_travel(where, " | ".join(map(str, choices)))
    tags = {choice.kind: choice for choice in choices}
    tag = _tag_of(data)
    # A list, because looking up an unhashable value in the dictionary would raise TypeError.
    if tag not in list(tags):
        raise _mismatch(f"{where}.{TAG}", f"one of {', '.join(map(repr, tags))}", tag)
    return _read(tags[tag], data, where)


def _tag_of(data: Any) -> Any:
    # A value that is not an object has no tag, so the caller's error lists the allowed tags.
    return data.get(TAG) if isinstance(data, dict) else None


def hints_of(kind: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by name."""
    return _hints(kind)


# Cached, because get_type_hints evaluates the annotations' source text, and a session decodes two
# values in each call.
@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True).items()
    return types.MappingProxyType(
        {name: hint for name, hint in hints if typing.get_origin(hint) is not ClassVar}
    )


@functools.cache
def _names_of_any_floats(kind: Any) -> tuple[str, ...]:
    return tuple(name for name, hint in _hints(kind).items() if _has_any_float(hint))


def _has_any_float(hint: Any) -> bool:
    return hint == AnyFloat or any(map(_has_any_float, typing.get_args(hint)))


def _read_dataclass(kind: Any, data: Any, where: str) -> Any:
    data = _typed(dict, data, where)
    hints = hints_of(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(data) - set(fields) - ({TAG} if hasattr(kind, TAG) else set()))
    if unknown:
        raise InvalidRequest(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(fields)}")
    required = [
        name
        for name, field in fields.items()
        if field.default is field.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in required if name not in data]
    if missing:
        raise InvalidRequest(f"{where}: the key {missing[0]!r} is missing")
    return kind(
        **{
            name: _read(hints[name], data[name], f"{where}.{name}")
            for name in fields
            if name in data
        }
    )


def _read_scalar(kind: Any, data: Any, where: str) -> Any:
    # JSON may write a float without a decimal point.
    if kind is float and type(data) in (int, float):
        try:
            number = float(data)
        except OverflowError:
            # A JSON integer may be too large for a float.
            raise _mismatch(where, "a number", data) from None
        # json.loads accepts NaN and Infinity, although they are not JSON.
        if math.isfinite(number):
            return number
        raise _mismatch(where, "a finite number", data)
    if kind not in NAMES and type(data) is not kind:
        raise _cannot_travel(where, kind)
    return _typed(kind, data, where)


def _typed(kind: type[T], data: Any, where: str) -> T:
    """Return ``data`` if its class is exactly ``kind``: ``isinstance`` takes a bool for an int."""
    if type(data) is not kind:
        raise _mismatch(where, NAMES[kind], data)
    return data


def _mismatch(where: str, expected: str, data: Any) -> InvalidRequest:
    shown = repr(data)
    return InvalidRequest(
        f"{where}: expected {expected}, got {shown if len(shown) <= 80 else shown[:77] + '...'}"
    )


def _cannot_travel(where: str, annotation: Any) -> InvalidRequest:
    return InvalidRequest(
        f"{where}: a field of the type {annotation} cannot travel as JSON; declare text, "
        "a number, a bool, tuple[X, ...], Mapping[str, X], a dataclass, or any of them or None"
    )
