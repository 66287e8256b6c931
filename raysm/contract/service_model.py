"""botocore's model of SageMaker, read once for both sides: what of a request breaks it, as values.

What flows in is an operation and its parameters, what flows out are Violations: the client words them with remedies
before anything is uploaded, the embedded SageMaker words them as AWS does. boto3 itself checks types and required keys
only.

What no model says stands in ``unwritten_rules``, but for one thing that concerns every URI: ``file://`` is for the
embedded SageMaker alone, and whoever calls says whether it is that.
"""

import datetime
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

__all__ = [
    "Entry",
    "FILE",
    "Key",
    "Rule",
    "Step",
    "TYPES",
    "Violation",
    "compiled",
    "knows_preferences",
    "loader",
    "may_be_newer",
    "service_model",
    "violations",
    "violations_in",
]

CLASSES: Mapping[str, str] = {r"\p{L}": r"\w", r"\p{N}": r"\w", r"\p{Z}": r"\s", r"\p{Alnum}": "a-zA-Z0-9"}
"""Java's classes, which the API uses inside brackets only; Python has no such names for them."""

ANYTHING = re.compile(r".*", re.DOTALL)


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return an API's pattern for Python; one that cannot be said there matches everything.

    ``.*`` stands in the model where the API takes any text, line breaks too; ``.+`` takes one line.
    """
    for java, python in CLASSES.items():
        pattern = pattern.replace(java, python)
    try:
        return re.compile(pattern, re.DOTALL if ".*" in pattern else 0)
    except re.error:  # a range of UTF-16, in a part of the API that is not used here
        return ANYTHING


FILE = "file:///"
"""The embedded SageMaker takes it wherever AWS takes ``s3://``: its one extension."""

INSTANCE_TYPE = re.compile(r"ml\.[a-z][a-z0-9-]*\d[a-z0-9-]*\.(small|medium|large|\d*xlarge|metal(-\d+xl)?)")
"""The form of all instance types that there are."""

URI_SHAPE = "S3Uri"
"""How the model calls every place in S3."""


class Rule(StrEnum):
    """What a value breaks."""

    MISSING = "missing"
    """A member that has to be there is not."""
    UNKNOWN = "unknown"
    """The model has no such member."""
    TYPE = "type"
    """It is of another type."""
    LEAST = "least"
    """It is too small, too short or has too few entries."""
    MOST = "most"
    """It is too large, too long or has too many entries."""
    VALUES = "values"
    """It is none of the values that there are."""
    PATTERN = "pattern"
    """It does not match the pattern."""


@dataclass(frozen=True, slots=True)
class Key:
    """The step into a map by a key that is itself what is wrong."""

    key: Any


@dataclass(frozen=True, slots=True)
class Entry:
    """The step into a map to the value of a key."""

    key: Any


Step: TypeAlias = str | int | Key | Entry
"""One step of the way into a request: a member's name, the index in a list from 0, a key of a map, a key's value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One thing that is wrong."""

    path: tuple[Step, ...]
    """Where; empty is the request itself."""
    value: Any
    """What stands there; None where nothing does."""
    rule: Rule
    """What it breaks."""
    type_name: str
    """The model's type of what should be there: ``structure``, ``list``, ``map``, ``string``, ``integer`` …"""
    least: float | None = None
    """The model's lower bound."""
    most: float | None = None
    """The model's upper bound."""
    values: tuple[str, ...] = ()
    """The values that there are."""
    pattern: str = ""
    """The model's pattern."""

    size: float | None = None
    """What the bounds are about: a number itself, of all else its length; None where no bound is broken."""


@functools.cache
def loader() -> Any:
    """Return botocore's reader of its data files, which keeps what it has read.

    One for the process: a session that makes its own reads 0.1 s of JSON again, for each handle on a service.
    """
    from botocore.loaders import Loader

    return Loader()


@functools.cache
def service_model() -> Any:
    """Return botocore's ``ServiceModel`` of SageMaker; reading it takes 0.1 s, and `import raysm` must not."""
    from botocore.model import ServiceModel

    # Not by a client, which would want a region before it could say anything.
    return ServiceModel(loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def knows_preferences() -> bool:
    """Return whether this botocore lets a job choose among instance types: older ones refuse the parameter."""
    return "InstancePreferences" in service_model().shape_for("ResourceConfig").members


def violations(operation: str, parameters: Any, *, takes_files: bool) -> Iterator[Violation]:
    """Yield what is wrong with a request, in the order in which it stands there; None stands for nothing.

    Args:
        operation: ``CreateTrainingJob``.
        parameters: Its parameters, JSON values, or times as boto3 takes them.
        takes_files: Whether it is for the embedded SageMaker, which takes ``file://`` for ``s3://``.
    """
    shape = service_model().operation_model(operation).input_shape
    yield from violations_in(parameters, shape, takes_files=takes_files)


def may_be_newer(path: tuple[Step, ...], value: str) -> bool:
    """Whether a value that the model does not have may be one that AWS has added since: an instance type's name.

    Types are added every few weeks, and a botocore of last year, pinned by other packages, knows none of them.
    """
    # A slice: the way to the request itself is empty.
    return path[-1:] == ("InstanceType",) and INSTANCE_TYPE.fullmatch(value) is not None


def violations_in(value: Any, shape: Any, *, takes_files: bool) -> Iterator[Violation]:
    """Yield what is wrong with ``value``, of which botocore's ``shape`` says what it should be."""
    yield from _Walk(takes_files).check(value, shape, ())


class _Walk:
    """Goes through a request beside the shapes of the model."""

    def __init__(self, takes_files: bool) -> None:
        self._takes_files = takes_files
        self._by_type: Mapping[str, Callable[[Any, Any, tuple[Step, ...]], Iterator[Violation]]] = {
            "structure": self._structure,
            "list": self._list,
            "map": self._map,
            "string": self._string,
            "integer": self._number,
            "long": self._number,
            "float": self._number,
            "double": self._number,
        }

    def check(self, value: Any, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
        """Yield what is wrong with ``value``; nothing further of one that is of the wrong type."""
        if not _is_of_type(value, shape.type_name):
            yield _violation(Rule.TYPE, value, shape, path)
        elif shape.type_name in self._by_type:  # of booleans and times the model says no more
            yield from self._by_type[shape.type_name](value, shape, path)

    def _structure(self, value: Any, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
        for name in shape.required_members:
            if value.get(name) is None:
                yield _violation(Rule.MISSING, None, shape.members[name], (*path, name))
        for name, item in value.items():
            if name not in shape.members:
                # With the structure's shape: what the model lacks has none.
                yield _violation(Rule.UNKNOWN, item, shape, (*path, name))
            elif item is not None:
                yield from self.check(item, shape.members[name], (*path, name))

    def _list(self, value: Any, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
        yield from _bounds(value, len(value), shape, path)
        for index, item in enumerate(value):
            yield from self.check(item, shape.member, (*path, index))

    def _map(self, value: Any, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
        yield from _bounds(value, len(value), shape, path)
        for key, item in value.items():
            yield from self.check(key, shape.key, (*path, Key(key)))
            yield from self.check(item, shape.value, (*path, Entry(key)))

    def _string(self, value: Any, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
        # Before the pattern, which wants https:// or s3://.
        if self._takes_files and shape.name == URI_SHAPE and value.startswith(FILE):
            return
        values, pattern = shape.metadata.get("enum"), shape.metadata.get("pattern")
        if values and value not in values:
            yield _violation(Rule.VALUES, value, shape, path)
        yield from _bounds(value, len(value), shape, path)
        # The whole of it: few patterns are anchored, and the service means all of the value.
        if pattern and not compiled(pattern).fullmatch(value):
            yield _violation(Rule.PATTERN, value, shape, path)

    def _number(self, value: Any, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
        yield from _bounds(value, value, shape, path)


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
    # Seconds since the epoch in JSON; boto3 takes what Python calls a time too.
    "timestamp": (int, float, datetime.datetime),
}
"""What Python calls the types of the model; of others (``blob``) nothing is checked."""


def _is_of_type(value: Any, type_name: str) -> bool:
    if isinstance(value, bool) and type_name != "boolean":  # which Python counts among the integers
        return type_name not in TYPES
    return isinstance(value, TYPES.get(type_name, object))


def _bounds(value: Any, size: float, shape: Any, path: tuple[Step, ...]) -> Iterator[Violation]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        yield _violation(Rule.LEAST, value, shape, path, size)
    if most is not None and size > most:
        yield _violation(Rule.MOST, value, shape, path, size)


def _violation(rule: Rule, value: Any, shape: Any, path: tuple[Step, ...], size: float | None = None) -> Violation:
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
