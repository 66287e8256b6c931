"""Checks of a request before anything is sent: local inputs, packages, volumes, and the API's rules."""

import logging
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from raysm.client.plan import Plan
from raysm.client.storage.s3 import file_path
from raysm.contract.instance_types import has_local_storage, local_storage_gb
from raysm.contract.job_api import TRAINING, JobApi, api_of
from raysm.contract.packages import RAY_RANGE, name_of, release_of
from raysm.contract.service_model import (
    Entry,
    Key,
    Rule,
    Step,
    Violation,
    may_be_newer,
    service_model,
    violations,
)
from raysm.contract.service_rules import breaches
from raysm.errors import InvalidRequest, option
from raysm.request import Input, InstanceGroup, JobRequest, Workload

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = [
    "check",
    "check_inputs",
    "check_instance_type",
    "check_ray",
    "check_volume",
    "instance_types",
]

_log = logging.getLogger("raysm")


def check_inputs(workload: Workload, inputs: Mapping[str, Input]) -> None:
    """Look at the inputs that are here.

    Raises:
        InvalidInput: What is wrong with them.
    """
    if workload.input_check is None:
        return
    try:
        check = pkgutil.resolve_name(workload.input_check)
    except ImportError:  # the light half, without NumPy
        return
    check(workload, {channel: _path(item) for channel, item in inputs.items()})


def _path(source: Input) -> Path | None:
    is_here = "://" not in source.uri or source.uri.startswith("file:///")
    # Of a manifest the data are elsewhere.
    return file_path(source.uri) if is_here and not source.manifest else None


RELEASES = 100
"""More than any minor version of Ray has had."""


def check_ray(requirements: Iterable[str]) -> None:
    """Refuse a requirement of a Ray that raysm cannot work with.

    Raises:
        InvalidRequest: Which one, and what to write.
    """
    minor = ".".join(map(str, release_of(RAY_RANGE.lstrip("<>="))))
    usable = [f"{minor}.{number}" for number in range(RELEASES)]
    for line in requirements:
        requirement = _requirement_of_ray(line)
        # Where a file is named, or a condition of the instance, only pip there can say what comes of it.
        if requirement is None or requirement.url or requirement.marker:
            continue
        if not any(requirement.specifier.contains(version, prereleases=True) for version in usable):
            raise InvalidRequest(
                f"the requirement {line!r} asks for a Ray that raysm cannot work with: it needs ray{RAY_RANGE}; drop "
                "it: raysm installs Ray if the image does not have it"
            )


def _requirement_of_ray(line: str) -> "Requirement | None":
    # The name first: of all other lines pip is the judge.
    if name_of(line) != "ray":
        return None
    # On first use: it takes a tenth of what importing all of the client does, and few jobs name Ray.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(line.partition(" #")[0])
    except InvalidRequirement:
        return None


GIB = 2**30
"""A volume's GB are these."""

HEADROOM = 1.25
"""Of what the inputs take, so much is proposed: results, checkpoints and scratch lie on the volume too."""


def check_volume(request: JobRequest, sizes: Mapping[str, int]) -> None:
    """Refuse what cannot fit.

    Args:
        request: What is asked for, on a target whose instances have volumes.
        sizes: Bytes of each channel, as far as they are known.

    Raises:
        InvalidRequest: The size of the inputs and of the volume, and what to do.
    """
    # Of a choice, each: whichever the service takes, the inputs have to fit.
    others = [replace(group, instance_type=name) for group in _groups(request) for name in request.cluster.alternatives]
    for group in (*_groups(request), *others):
        room_gb = _room_gb(group.instance_type, request.cluster.volume_gb)
        needed = _bytes_on_each(request, group, sizes)
        if room_gb is not None and needed > room_gb * GIB:
            fit_gb = int(needed * HEADROOM / GIB) + 1
            larger = (
                "take a larger type"
                if has_local_storage(group.instance_type)
                else f"give a larger one, {option('volume_gb', str(fit_gb))}"
            )
            # A Processing job, which has no checkpoints either, gets its inputs as files in any case.
            stream = ", or stream them: mode='FastFile'" if api_of(request.kind).has_checkpoints else ""
            raise InvalidRequest(
                f"the inputs take {needed / GIB:,.1f} GB of each {group.instance_type}, whose volume has {room_gb} GB; "
                f"{larger}{stream}"
            )


def _groups(request: JobRequest) -> tuple[InstanceGroup, ...]:
    cluster = request.cluster
    return cluster.groups or (InstanceGroup("all", cluster.instance_type, cluster.count),)


def _room_gb(instance_type: str, volume_gb: int) -> int | None:
    """Return the room that an instance has; None where its disks are its own, and their size is not known here."""
    return local_storage_gb(instance_type) if has_local_storage(instance_type) else volume_gb


def _bytes_on_each(request: JobRequest, group: InstanceGroup, sizes: Mapping[str, int]) -> float:
    """Return the bytes that each instance of ``group`` downloads."""
    return sum(
        # About, of shares: they are cut by objects. So what is refused cannot fit, and what passes may not fit either.
        sizes.get(name, 0) / (_sharing(request, source) if source.distribution == "ShardedByS3Key" else 1)
        for name, source in _downloaded(request.inputs)
        if not source.groups or group.name in source.groups
    )


def _downloaded(inputs: Mapping[str, Input]) -> Iterator[tuple[str, Input]]:
    # What is streamed takes no room on the volume.
    yield from ((name, source) for name, source in inputs.items() if source.mode == "File")


def _sharing(request: JobRequest, source: Input) -> int:
    """Return how many instances share a channel."""
    return sum(group.count for group in _groups(request) if not source.groups or group.name in source.groups)


REMEDIES: Mapping[Step, str] = {
    "InputDataConfig": "one channel is raysm's own; put several inputs into one folder",
    "ProcessingInputs": "one input is raysm's own; put several inputs into one folder",
    "HyperParameters": "put what is large into a file of source_dir, or into the script's arguments",
    "Environment": "put what is large into a file of source_dir, or into an input",
    "Tags": "raysm adds some tags of its own; give fewer",
    "MetricDefinitions": "give fewer; raysm.contract.events.Metric needs no definition",
    "InstanceGroups": "join groups of one type",
    "InstancePreferences": "leave cluster.alternatives out, or bring a newer botocore",
    "MaxRuntimeInSeconds": "limits.max_restarts lets a training job go on in follow-up jobs",
    "VolumeSizeInGB": "read large inputs as FastFile",
    "TrainingJobName": "choose another name",
    "ProcessingJobName": "choose another name",
    "TrainingImage": "give the image a shorter tag",
    "ImageUri": "give the image a shorter tag",
    "S3OutputPath": "give s3://bucket/prefix",
    "S3Uri": "give s3://bucket/prefix",
}
"""What to do, by the parameter that the path ends with or passes through."""

NOUNS: Mapping[str, str] = {
    "structure": "an object",
    "map": "an object",
    "list": "a list",
    "string": "a text",
    "boolean": "true or false",
    "timestamp": "a time",
}
"""What the types of the model are called; all others are numbers."""

UNITS: Mapping[str, str] = {"list": "entries", "map": "entries", "string": "characters"}

FEW = 8
"""Values that are all told to whoever gave another."""


def check(plan: Plan, *, takes_files: bool) -> None:
    """Refuse a plan that the API would refuse.

    Args:
        plan: What is to be sent.
        takes_files: Whether its target takes ``file://`` where the API wants ``s3://``.

    Raises:
        InvalidRequest: The parameter's path, its value, the limit, and what to do.
    """
    newer: list[Violation] = []
    for violation in violations(plan.api.create, plan.request, takes_files=takes_files):
        # The one thing that may pass: a botocore that other packages pin knows no types of the last months.
        if violation.rule is not Rule.VALUES or not may_be_newer(violation.path, violation.value):
            raise InvalidRequest(_message(violation))
        newer.append(violation)
    for breach in breaches(plan.api, plan.request):
        remedy = f"; {breach.remedy}" if breach.remedy else ""
        raise InvalidRequest(f"{breach.message}{remedy} ({breach.source})")
    # Last: of a request that is refused, nobody wants to know what else may be.
    for violation in newer:
        _warn_of_newer(violation.values, violation.value, violation.path)


def check_instance_type(name: str, api: JobApi = TRAINING) -> None:
    """Refuse what is no instance type; warn of one that the API may have by now.

    Raises:
        InvalidRequest: The type, and those that are spelt like it.
    """
    types, path = instance_types(api), ("InstanceType",)
    if name in types:
        return
    if not may_be_newer(path, name):
        raise InvalidRequest(_unknown_value(types, name, path))
    _warn_of_newer(types, name, path)


def _warn_of_newer(values: Sequence[str], name: str, path: tuple[Step, ...]) -> None:
    from botocore import __version__

    _log.warning(
        "%s is %r, which botocore %s does not know%s: it is sent as it is; if AWS refuses it, check the name, or "
        "update boto3 for a newer list",
        _named(path),
        name,
        __version__,
        _hint(values, name, path),
    )


def instance_types(api: JobApi) -> tuple[str, ...]:
    """Return the instance types that an API takes."""
    return tuple(service_model().shape_for(api.instance_type_shape).enum)


def _message(violation: Violation) -> str:
    path, value = violation.path, violation.value
    match violation.rule:
        case Rule.MISSING:
            return f"{_named(path)} is missing; the API needs it"
        case Rule.UNKNOWN:
            return f"{_named(path)} is unknown to this version of botocore; update boto3"
        case Rule.TYPE:
            # Who gave 1.5 gave a number: what the API misses is a whole one.
            number = "a whole number" if isinstance(value, float) else "a number"
            return f"{_named(path)} must be {NOUNS.get(violation.type_name, number)}, got {_short(repr(value))}"
        case Rule.VALUES:
            return _unknown_value(violation.values, value, path)
        case Rule.LEAST | Rule.MOST:
            return _out_of_bounds(violation)
        case Rule.PATTERN:
            return (
                f"{_named(path)} is {_short(value)!r}, which the API refuses: it must match {violation.pattern}"
                f"{_remedy(path)}"
            )


def _out_of_bounds(violation: Violation) -> str:
    least, most, unit = violation.least, violation.most, UNITS.get(violation.type_name)
    bounds = f"at least {least}" if most is None else f"at most {most}" if least is None else f"{least} to {most}"
    # Of a text the value tells more than its length; of a list it would only repeat the request.
    shown = f": {_short(violation.value)!r}" if violation.value and violation.type_name == "string" else ""
    size = f"has {violation.size} {unit}{shown}" if unit else f"is {violation.size}"
    return f"{_named(violation.path)} {size}; the API takes {bounds}{_remedy(violation.path)}"


def _unknown_value(values: Sequence[str], value: str, path: tuple[Step, ...]) -> str:
    few = f"; it takes {', '.join(values)}" if len(values) <= FEW else ""
    return f"{_named(path)} is {value!r}, which SageMaker does not have{_hint(values, value, path)}{few}"


def _hint(values: Sequence[str], value: str, path: tuple[Step, ...]) -> str:
    import difflib  # for a slip alone

    # Instance types are in small letters, and begin with ml., which people leave out.
    near = difflib.get_close_matches(value.lower(), values, n=3, cutoff=0.6)
    if path[-1] == "InstanceType" and not near:
        near = difflib.get_close_matches(f"ml.{value.lower()}", values, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _named(path: tuple[Step, ...]) -> str:
    return ".".join(map(_step, path)).replace(".[", "[") or "the request"


def _step(step: Step) -> str:
    match step:
        case int():
            return f"[{step}]"
        case Key():
            return "[name]"
        case Entry(key):
            return f"[{_short(str(key))!r}]"
        case _:
            return step


def _remedy(path: tuple[Step, ...]) -> str:
    # From the inside out: of a channel's S3Uri there is more to say than of all channels.
    for step in reversed(path):
        if step in REMEDIES:
            return f"; {REMEDIES[step]}"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "…"
