"""Validate requests against botocore's model of SageMaker.

The client and the embedded SageMaker use this module.

boto3 itself checks only types, required keys and minimums; this also checks maximums, enums and
patterns. The client words violations with remedies before it uploads anything, the embedded
SageMaker words them as AWS does. ``service_rules`` has the documented rules that the model lacks.
"""

import datetime
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

CLASSES: Mapping[str, str] = {
    r"\p{L}": r"\w",
    r"\p{N}": r"\w",
    r"\p{Z}": r"\s",
    r"\p{Alnum}": "a-zA-Z0-9",
}
"""Python's equivalents of Java's character classes, which the API uses inside brackets."""
ANYTHING = re.compile(r".*", re.DOTALL)


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of the API, which is written for Java.

    A pattern that Python cannot compile matches everything.

    In the model ``.*`` also matches line breaks, but ``.+`` matches one line.
    """
    for java, python in CLASSES.items():
        pattern = pattern.replace(java, python)
    try:
        return re.compile(pattern, re.DOTALL if ".*" in pattern else 0)
    except re.error:  # a range of UTF-16, in a part of the API that is not used here
        return ANYTHING


FILE = "file:///"
"""The embedded SageMaker takes it wherever AWS takes ``s3://``."""
INSTANCE_TYPE = re.compile(
    r"ml\.[a-z][a-z0-9-]*\d[a-z0-9-]*\.(small|medium|large|\d*xlarge|metal(-\d+xl)?)"
)
URI_SHAPE = "S3Uri"


class Rule(StrEnum):
    MISSING = "missing"
    UNKNOWN = "unknown"
    TYPE = "type"
    LEAST = "least"
    MOST = "most"
    VALUES = "values"
    PATTERN = "pattern"


@dataclass(frozen=True, slots=True)
class Key:
    key: Any


@dataclass(frozen=True, slots=True)
class Entry:
    key: Any


Step: TypeAlias = str | int | Key | Entry
"""One step of a path into a request: a member's name, an index in a list, a key of a map, or a
key's value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    path: tuple[Step, ...]
    value: Any
    rule: Rule
    type_name: str
    least: float | None = None
    most: float | None = None
    values: tuple[str, ...] = ()
    pattern: str = ""

    size: float | None = None
    """The number, or the length of other values; None unless a bound is broken."""


@functools.cache
def loader() -> Any:
    """Return botocore's cached reader of its data files, one for the process.

    Reading them takes 0.1 s.
    """
    from botocore.loaders import Loader

    return Loader()


@functools.cache
def service_model() -> Any:
    from botocore.model import ServiceModel

    return ServiceModel(loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def knows_preferences() -> bool:
    return "InstancePreferences" in service_model().shape_for("ResourceConfig").members


def violations(operation: str, parameters: Any, *, takes_files: bool) -> Iterator[Violation]:
    """Yield the violations of a request in their order; a value of None counts as missing.

    ``takes_files`` is for the embedded SageMaker, which takes ``file://`` for ``s3://``.
    """
    shape = service_model().operation_model(operation).input_shape
    yield from violations_in(parameters, shape, takes_files=takes_files)


def may_be_newer(path: tuple[Step, ...], value: str) -> bool:
    """Return whether an unknown value may be a newer instance type.

    AWS may have added it since this botocore was released.
    """
    return path[-1:] == ("InstanceType",) and INSTANCE_TYPE.fullmatch(value) is not None


def violations_in(
    value: Any, shape: Any, *, takes_files: bool, path: tuple[Step, ...] = ()
) -> Iterator[Violation]:
    """Yield the violations of ``value`` and of what it contains against botocore's ``shape``."""
    kind = shape.type_name
    if not _is_of_type(value, kind):
        yield _violation(Rule.TYPE, value, shape, path)
        return

    def inner(item: Any, item_shape: Any, step: Step) -> Iterator[Violation]:
        return violations_in(item, item_shape, takes_files=takes_files, path=(*path, step))

    match kind:
        case "structure":
            for name in shape.required_members:
                if value.get(name) is None:
                    yield _violation(Rule.MISSING, None, shape.members[name], (*path, name))
            for name, item in value.items():
                if name not in shape.members:
                    yield _violation(Rule.UNKNOWN, item, shape, (*path, name))
                elif item is not None:
                    yield from inner(item, shape.members[name], name)
        case "list":
            yield from _bounds(value, len(value), shape, path)
            for index, item in enumerate(value):
                yield from inner(item, shape.member, index)
        case "map":
            yield from _bounds(value, len(value), shape, path)
            for key, item in value.items():
                yield from inner(key, shape.key, Key(key))
                yield from inner(item, shape.value, Entry(key))
        case "string":
            # The pattern of a URI requires https:// or s3://.
            if not (takes_files and shape.name == URI_SHAPE and value.startswith(FILE)):
                yield from _check_text(value, shape, path)
        case "integer" | "long" | "float" | "double":
            yield from _bounds(value, value, shape, path)


def _check_text(value: str, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
    values = shape.metadata.get("enum")
    pattern = shape.metadata.get("pattern")
    if values and value not in values:
        yield _violation(Rule.VALUES, value, shape, path)
    yield from _bounds(value, len(value), shape, path)
    # Few patterns are anchored, but the service matches the whole value.
    if pattern and not compiled(pattern).fullmatch(value):
        yield _violation(Rule.PATTERN, value, shape, path)


TYPES: Mapping[str, Any] = {
    "structure": Mapping,
    "list": list,
    "map": Mapping,
    "string": str,
    "boolean": bool,
    "integer": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    # Seconds since the epoch in JSON; boto3 also takes datetime.
    "timestamp": (int, float, datetime.datetime),
}
"""Python's types for those of the model; other types (``blob``) are not checked."""


def _is_of_type(value: Any, type_name: str) -> bool:
    if isinstance(value, bool) and type_name != "boolean":  # a bool is an int in Python
        return type_name not in TYPES
    return isinstance(value, TYPES.get(type_name, object))


def _bounds(value: Any, size: float, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
    least = shape.metadata.get("min")
    most = shape.metadata.get("max")
    if least is not None and size < least:
        yield _violation(Rule.LEAST, value, shape, path, size)
    if most is not None and size > most:
        yield _violation(Rule.MOST, value, shape, path, size)


def _violation(
    rule: Rule, value: Any, shape: Any, path: tuple[Step, ...], size: float | None = None
) -> Violation:
    facts = shape.metadata
    return Violation(
        path=path,
        value=value,
        rule=rule,
        type_name=shape.type_name,
        least=facts.get("min"),
        most=facts.get("max"),
        values=tuple(facts.get("enum", ())),
        pattern=facts.get("pattern", ""),
        size=size,
    )
