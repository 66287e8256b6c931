"""Checks of a request before it is sent: local inputs, packages, volumes, and the API's rules."""

import logging
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raysm.core.client.plan import Plan
from raysm.core.client.storage.s3 import file_path
from raysm.core.protocol.instance_types import has_local_storage, local_storage_gb
from raysm.core.protocol.job_api import TRAINING, JobApi, api_of
from raysm.core.protocol.packages import HASH, RAY_RANGE, name_of, release_of
from raysm.core.protocol.service_model import (
    Entry,
    Key,
    Rule,
    Step,
    Violation,
    may_be_newer,
    service_model,
    violations,
)
from raysm.core.protocol.service_rules import breaches
from raysm.core.request import Input, InstanceGroup, JobRequest, Security, Workload
from raysm.errors import InvalidRequest, did_you_mean, option

if TYPE_CHECKING:
    from packaging.requirements import Requirement


_log = logging.getLogger("raysm")


def check_inputs(workload: Workload, inputs: Mapping[str, Input]) -> None:
    """Check the inputs that are on this machine, by the workload's own check."""
    if workload.input_check is None:
        return
    try:
        check = pkgutil.resolve_name(workload.input_check)
    except ImportError:  # NumPy is not installed
        return
    paths: dict[str, Path | None] = {}
    for channel, source in inputs.items():
        is_here = "://" not in source.uri or source.uri.startswith("file:///")
        # A manifest is here, but its data are somewhere else.
        paths[channel] = file_path(source.uri) if is_here and not source.manifest else None
    check(workload, paths)


PATCHES = 10
"""More patch releases than any minor version of Ray has had."""


def check_ray(requirements: Iterable[str]) -> None:
    """Refuse a requirement of a version of Ray that raysm cannot work with."""
    (major, first), (_, last) = (release_of(bound.lstrip("<>=")) for bound in RAY_RANGE.split(","))
    usable = [
        f"{major}.{minor}.{patch}" for minor in range(first, last) for patch in range(PATCHES)
    ]
    for line in requirements:
        # Only pip can judge other packages, and lines with a URL or an environment marker.
        requirement = parse_requirement(line) if name_of(line) == "ray" else None
        if requirement is None or requirement.url or requirement.marker:
            continue
        if not any(requirement.specifier.contains(version, prereleases=True) for version in usable):
            raise InvalidRequest(
                f"the requirement {line.partition(HASH)[0]!r} asks for a Ray that raysm cannot "
                f"work with: it needs ray{RAY_RANGE}; drop it: raysm installs Ray if the image "
                "does not have it"
            )


def parse_requirement(line: str) -> "Requirement | None":
    """Parse a line of a requirements file; None if it is no requirement of PEP 508."""
    # Imported here, because it takes a tenth of the import of the whole client.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(line.partition(" #")[0].partition(HASH)[0])
    except InvalidRequirement:
        return None


def check_keys(security: Security, region: Callable[[], str]) -> None:
    """Refuse keys of another region than the job's, which cannot encrypt its volumes or outputs."""
    for name in ("volume_kms_key", "output_kms_key"):
        key = getattr(security, name) or ""
        # Only an ARN has a region: a job whose keys are IDs need not know its own.
        if key.startswith("arn:") and (of_key := key.split(":")[3]) != (own := region()):
            raise InvalidRequest(
                f"{option(name, key)} is a key of {of_key}, "
                f"and the job runs in {own}; name one of {own}"
            )


GIB = 2**30

HEADROOM = 1.25
"""Factor of the proposed size of a volume, which also holds results, checkpoints and scratch."""


def check_volume(request: JobRequest, sizes: Mapping[str, int]) -> None:
    """Refuse inputs that cannot fit onto the volumes of the instances.

    ``sizes`` are bytes by channel, where known.
    """
    cluster = request.cluster
    groups = cluster.groups or (InstanceGroup("all", cluster.instance_type, cluster.count),)
    # Streamed inputs take no room.
    downloaded = [
        (name, source) for name, source in request.inputs.items() if source.mode == "File"
    ]
    # The inputs must fit onto each alternative type.
    others = [
        InstanceGroup("all", each.instance_type, each.count or cluster.count)
        for each in cluster.preferences[1:]
    ]
    for group in (*groups, *others):
        needed = 0.0
        for name, source in downloaded:
            sharing = [each for each in groups if not source.groups or each.name in source.groups]
            if group.name in {each.name for each in sharing}:
                # Shares are cut by objects, so some are larger than this: what is refused cannot
                # fit in any case.
                is_shared = source.distribution == "ShardedByS3Key"
                count = sum(each.count for each in sharing) if cluster.groups else group.count
                needed += sizes.get(name, 0) / (count if is_shared else 1)
        has_disks = has_local_storage(group.instance_type)
        # None if it is unknown whether the instance has disks of its own, or how large they are.
        room_gb = cluster.volume_gb if has_disks is False else local_storage_gb(group.instance_type)
        if room_gb is None or needed <= room_gb * GIB:
            continue
        fit_gb = int(needed * HEADROOM / GIB) + 1
        larger = (
            "take a larger type"
            if has_disks
            else f"give a larger one, {option('volume_gb', str(fit_gb))}"
        )
        # A Processing job gets its inputs as files in any case.
        stream = ", or stream them: mode='FastFile'" if api_of(request.kind).has_checkpoints else ""
        raise InvalidRequest(
            f"the inputs take {needed / GIB:,.1f} GB of each {group.instance_type}, "
            f"whose volume has {room_gb} GB; {larger}{stream}"
        )


REMEDIES: Mapping[Step, str] = {
    "InputDataConfig": "one channel is raysm's own; put several inputs into one folder",
    "ProcessingInputs": "one input is raysm's own; put several inputs into one folder",
    "HyperParameters": (
        "put what is large into a file of source_dir, or into the script's arguments"
    ),
    "Environment": "put what is large into a file of source_dir, or into an input",
    "Tags": "raysm adds some tags of its own; give fewer",
    "MetricDefinitions": "give fewer; raysm.core.protocol.events.Metric needs no definition",
    "InstanceGroups": "join groups of one type",
    "InstancePreferences": "leave cluster.alternatives out, or install a newer botocore",
    "MaxRuntimeInSeconds": "limits.max_restarts lets follow-up jobs continue a training job",
    "VolumeSizeInGB": "read large inputs as FastFile",
    "TrainingJobName": "choose another name",
    "ProcessingJobName": "choose another name",
    "TrainingImage": "give the image a shorter tag",
    "ImageUri": "give the image a shorter tag",
    "S3OutputPath": "give s3://bucket/prefix",
    "S3Uri": "give s3://bucket/prefix",
}
"""Remedies by parameter, for a violation at the parameter or inside it."""

UNITS: Mapping[str, str] = {"list": "entries", "map": "entries", "string": "characters"}

FEW = 8


def check(plan: Plan, *, takes_files: bool) -> None:
    """Refuse a plan that the API would refuse.

    With ``takes_files``, ``file://`` may stand in place of ``s3://``.
    """
    newer: list[Violation] = []
    for violation in violations(plan.api.create, plan.request, takes_files=takes_files):
        # Other packages may pin a botocore that lacks the instance types of the last months.
        if violation.rule is not Rule.VALUES or not may_be_newer(violation.path, violation.value):
            raise InvalidRequest(_message(violation))
        newer.append(violation)
    for breach in breaches(plan.api, plan.request):
        remedy = f"; {breach.remedy}" if breach.remedy else ""
        raise InvalidRequest(f"{breach.message}{remedy} ({breach.source})")
    # Warned last, since a refused request needs no warning.
    for violation in newer:
        _warn_of_newer(violation.values, violation.value, violation.path)


def check_instance_type(name: str, api: JobApi = TRAINING) -> None:
    """Refuse an unknown instance type, unless it looks like a new one: then warn."""
    types = instance_types(api)
    path = ("InstanceType",)
    if name in types:
        return
    if not may_be_newer(path, name):
        raise InvalidRequest(_unknown_value(types, name, path))
    _warn_of_newer(types, name, path)


def _warn_of_newer(values: Sequence[str], name: str, path: tuple[Step, ...]) -> None:
    from botocore import __version__

    _log.warning(
        "%s is %r, which botocore %s does not know%s It is sent as it is; "
        "if AWS refuses it, check the name, or update boto3 for a newer list",
        _dotted(path),
        name,
        __version__,
        _hint(values, name, path) or ".",
    )


def instance_types(api: JobApi) -> tuple[str, ...]:
    return tuple(service_model().shape_for(api.instance_type_shape).enum)


def _message(violation: Violation) -> str:
    path = _dotted(violation.path)
    value = violation.value
    match violation.rule:
        case Rule.MISSING:
            return f"{path} is missing; the API needs it"
        case Rule.UNKNOWN:
            return f"{path} is unknown to this version of botocore; update boto3"
        case Rule.TYPE:
            return f"{path} must be of the type {violation.type_name}, got {_short(repr(value))}"
        case Rule.VALUES:
            return _unknown_value(violation.values, value, violation.path)
        case Rule.PATTERN:
            text = f"is {_short(value)!r}, which the API refuses: it must match {violation.pattern}"
        case Rule.LEAST | Rule.MOST:
            least = violation.least
            most = violation.most
            unit = UNITS.get(violation.type_name)
            bounds = f"at least {least}" if most is None else f"{least or 0} to {most}"
            size = f"has {violation.size} {unit}" if unit else f"is {violation.size}"
            text = f"{size}; the API takes {bounds}"
    return f"{path} {text}{_remedy(violation.path)}"


def _unknown_value(values: Sequence[str], value: str, path: tuple[Step, ...]) -> str:
    few = f"; it takes {', '.join(values)}" if len(values) <= FEW else ""
    return (
        f"{_dotted(path)} is {value!r}, "
        f"which SageMaker does not have{_hint(values, value, path)}{few}"
    )


def _hint(values: Sequence[str], value: str, path: tuple[Step, ...]) -> str:
    # Instance types are in lower case, and begin with ml., which people leave out.
    text = f"ml.{value.lower().removeprefix('ml.')}" if path[-1] == "InstanceType" else value
    return did_you_mean(text, values, most=3, cutoff=0.5)


def _dotted(path: tuple[Step, ...]) -> str:
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
    # From the inside out, because the remedy for a channel's S3Uri is more specific than that for
    # channels.
    for step in reversed(path):
        if step in REMEDIES:
            return f"; {REMEDIES[step]}"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "…"
