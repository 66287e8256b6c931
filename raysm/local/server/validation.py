"""Checks a request against botocore's model of SageMaker, as SageMaker itself does: boto3 checks only a part of it.

What flows in is the JSON of a request, what flows out is the same, or a refusal in SageMaker's words that lists
everything that is wrong.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape
from botocore.session import Session

from raysm.contract.patterns import compiled
from raysm.local.server.api_error import validation

__all__ = ["check", "service_model"]

FILE_URI = "file:///"
"""The one extension: what takes ``s3://`` takes this too."""
URI_SHAPE = "S3Uri"
NUMBERS = ("integer", "long", "float", "double")
MOST_SHOWN = 10
LONGEST_SHOWN = 300


@functools.cache
def service_model() -> ServiceModel:
    """Return botocore's model of SageMaker."""
    model: ServiceModel = Session().get_service_model("sagemaker")
    return model


@functools.cache
def _operation(name: str) -> OperationModel:
    return service_model().operation_model(name)


def check(operation: str, request: Any) -> None:
    """Check the whole request.

    Raises:
        ApiError: ValidationException, as SageMaker words it; SerializationException for a wrong type.
    """
    shape = _operation(operation).input_shape
    wrong = list(_wrong(request, shape, ""))
    if wrong:
        shown = "; ".join(wrong[:MOST_SHOWN])
        raise validation(f"{len(wrong)} validation error{'s'[: len(wrong) > 1]} detected: {shown}")


def _wrong(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if isinstance(shape, StructureShape):
        yield from _structure(value, shape, path)
    elif isinstance(shape, ListShape):
        if not isinstance(value, list):
            yield f"Value at '{path}' must be a list"
            return
        yield from _size(value, shape, path)
        for index, item in enumerate(value, start=1):
            yield from _wrong(item, shape.member, f"{path}.{index}.member")
    elif isinstance(shape, MapShape):
        if not isinstance(value, Mapping):
            yield f"Value at '{path}' must be a map"
            return
        yield from _size(value, shape, path)
        for key, item in value.items():
            yield from _wrong(key, shape.key, f"{path}.key")
            yield from _wrong(item, shape.value, f"{path}.{key}.member")
    elif shape.type_name == "string":
        yield from _string(value, shape, path)
    elif shape.type_name in NUMBERS:
        yield from _number(value, shape, path)
    elif shape.type_name == "boolean" and not isinstance(value, bool):
        yield f"Value '{value}' at '{path}' must be a boolean"


def _structure(value: Any, shape: StructureShape, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"Value at '{path or 'request'}' must be a structure"
        return
    for name in shape.required_members:
        if value.get(name) is None:
            yield f"Value null at '{_below(path, name)}' failed to satisfy constraint: Member must not be null"
    for name, item in value.items():
        if item is None:
            continue
        # SageMaker passes over members that it does not know: they may be of a newer model.
        if name in shape.members:
            yield from _wrong(item, shape.members[name], _below(path, name))


def _below(path: str, name: str) -> str:
    name = name[:1].lower() + name[1:]
    return f"{path}.{name}" if path else name


def _failed(value: Any, path: str, constraint: str) -> str:
    return f"Value '{str(value)[:LONGEST_SHOWN]}' at '{path}' failed to satisfy constraint: Member must {constraint}"


def _size(value: Any, shape: Shape, path: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and len(value) < least:
        yield _failed(value, path, f"have length greater than or equal to {least}")
    if most is not None and len(value) > most:
        yield _failed(value, path, f"have length less than or equal to {most}")


def _string(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"Value '{value}' at '{path}' must be a string"
        return
    if shape.name == URI_SHAPE and value.startswith(FILE_URI):
        return
    values = shape.metadata.get("enum")
    if values and value not in values:
        yield _failed(value, path, f"satisfy enum value set: [{', '.join(values)}]")
    yield from _size(value, shape, path)
    pattern = shape.metadata.get("pattern")
    if pattern and not compiled(pattern).fullmatch(value):
        yield _failed(value, path, f"satisfy regular expression pattern: {pattern}")


def _number(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        yield f"Value '{value}' at '{path}' must be a number"
        return
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and value < least:
        yield _failed(value, path, f"have value greater than or equal to {least}")
    if most is not None and value > most:
        yield _failed(value, path, f"have value less than or equal to {most}")
