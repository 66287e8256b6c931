"""Checks a plan against the API before anything is uploaded.

The limits are botocore's own: its service model states the type, length, range, pattern and values of every parameter.
botocore itself checks types and required keys only; the service would refuse the rest, after the upload. What flows in
is a plan, what flows out is nothing, or the first thing that is wrong, with its limit and what to do.
"""

import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any

from raysm.client.plan import Plan
from raysm.contract.job_api import TRAINING, JobApi
from raysm.contract.patterns import compiled
from raysm.errors import InvalidRequest

__all__ = ["check", "check_instance_type", "instance_types"]

FILE = "file:///"
"""The embedded SageMaker takes it wherever AWS takes ``s3://``: its one extension."""

REMEDIES: Mapping[str, str] = {
    "InputDataConfig": "one channel is raysm's own; put several inputs into one folder",
    "ProcessingInputs": "one input is raysm's own; put several inputs into one folder",
    "HyperParameters": "put what is large into a file of source_dir, or into the script's arguments",
    "Environment": "put what is large into a file of source_dir, or into an input",
    "Tags": "raysm adds some tags of its own; give fewer",
    "MetricDefinitions": "give fewer; raysm.contract.events.Metric needs no definition",
    "InstanceGroups": "join groups of one type",
    "MaxRuntimeInSeconds": "limits.max_restarts lets a training job go on in follow-up jobs",
    "VolumeSizeInGB": "read large inputs as FastFile",
    "TrainingJobName": "choose another name",
    "ProcessingJobName": "choose another name",
    "TrainingImage": "give the image a shorter tag",
    "ImageUri": "give the image a shorter tag",
}
"""What to do, by the parameter that the path ends with or passes through."""


def check(plan: Plan) -> None:
    """Refuse a plan that the API would refuse.

    Raises:
        InvalidRequest: The parameter's path, its value, the limit, and what to do.
    """
    _check_shape(_model()["operations"][plan.api.create]["input"]["shape"], plan.request, ())


def check_instance_type(name: str, api: JobApi = TRAINING) -> None:
    """Refuse an instance type that the API does not have.

    Raises:
        InvalidRequest: The type, and those that are spelt like it.
    """
    known = instance_types(api)
    if name not in known:
        _refuse_unknown(list(known), name, ("InstanceType",))


def instance_types(api: JobApi) -> tuple[str, ...]:
    """Return the instance types that an API takes."""
    return tuple(_model()["shapes"][api.instance_type_shape]["enum"])


@functools.cache
def _model() -> Mapping[str, Any]:
    # Read on first use: it takes 0.1 s, and `import raysm` must not.
    from botocore.loaders import Loader

    model: Mapping[str, Any] = Loader().load_service_model("sagemaker", "service-2")
    return model


def _check_shape(name: str, value: Any, path: tuple[str, ...]) -> None:
    shape = _model()["shapes"][name]
    _CHECKS[shape["type"]](shape, value, path)


def _check_structure(shape: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> None:
    _expect(value, Mapping, "an object", path)
    for key in shape.get("required", ()):
        if key not in value:
            raise InvalidRequest(f"{_named((*path, key))} is missing; the API needs it")
    for key, item in value.items():
        member = shape["members"].get(key)
        if member is None:
            raise InvalidRequest(f"{_named((*path, key))} is unknown to this version of botocore; update boto3")
        _check_shape(member["shape"], item, (*path, key))


def _check_list(shape: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> None:
    _expect(value, list, "a list", path)
    _check_range(shape, len(value), path, "entries")
    for index, item in enumerate(value):
        _check_shape(shape["member"]["shape"], item, (*path, f"[{index}]"))


def _check_map(shape: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> None:
    _expect(value, Mapping, "an object", path)
    _check_range(shape, len(value), path, "entries")
    for key, item in value.items():
        _check_shape(shape["key"]["shape"], key, (*path, "[name]"))
        _check_shape(shape["value"]["shape"], item, (*path, f"[{_short(key)!r}]"))


def _check_string(shape: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> None:
    _expect(value, str, "a text", path)
    _check_range(shape, len(value), path, "characters", value)
    if "enum" in shape and value not in shape["enum"]:
        _refuse_unknown(shape["enum"], value, path)
    if not compiled(shape.get("pattern", ".*")).fullmatch(value) and not _is_file(shape, value):
        raise InvalidRequest(
            f"{_named(path)} is {_short(value)!r}, which the API refuses: it must match {shape['pattern']}"
            f"{_remedy(path)}"
        )


def _check_number(shape: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> None:
    if isinstance(value, bool):
        raise InvalidRequest(f"{_named(path)} must be a number, got {value!r}")
    _expect(value, int, "a number", path)
    _check_range(shape, value, path, "")


def _check_boolean(shape: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> None:
    _expect(value, bool, "true or false", path)


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], Any, tuple[str, ...]], None]] = {
    "structure": _check_structure,
    "list": _check_list,
    "map": _check_map,
    "string": _check_string,
    "integer": _check_number,
    "long": _check_number,
    "boolean": _check_boolean,
}


def _expect(value: Any, kind: Any, what: str, path: tuple[str, ...]) -> None:
    if not isinstance(value, kind):
        raise InvalidRequest(f"{_named(path)} must be {what}, got {_short(repr(value))}")


def _check_range(shape: Mapping[str, Any], size: int, path: tuple[str, ...], unit: str, text: str = "") -> None:
    least, most = shape.get("min", 0), shape.get("max")
    if size < least or (most is not None and size > most):
        bounds = f"at least {least}" if most is None else f"{least} to {most}"
        shown = f": {_short(text)!r}" if text else ""
        raise InvalidRequest(
            f"{_named(path)} has {size} {unit}{shown}; the API takes {bounds}{_remedy(path)}"
            if unit
            else f"{_named(path)} is {size}; the API takes {bounds}{_remedy(path)}"
        )


def _refuse_unknown(known: list[str], value: str, path: tuple[str, ...]) -> None:
    near = difflib.get_close_matches(value.lower(), known, n=3, cutoff=0.6)
    if path[-1] == "InstanceType" and not near:
        near = difflib.get_close_matches(f"ml.{value.lower()}", known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    few = f"; it takes {', '.join(known)}" if len(known) <= 8 else ""
    raise InvalidRequest(f"{_named(path)} is {value!r}, which SageMaker does not have{hint}{few}")


def _is_file(shape: Mapping[str, Any], value: str) -> bool:
    return value.startswith(FILE) and "s3" in shape.get("pattern", "")


def _named(path: tuple[str, ...]) -> str:
    return ".".join(path).replace(".[", "[")


def _remedy(path: tuple[str, ...]) -> str:
    for part in reversed(path):
        if part in REMEDIES:
            return f"; {REMEDIES[part]}"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "…"
